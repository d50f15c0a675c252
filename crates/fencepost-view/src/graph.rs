//! Which jobs depend on which: what the configuration says, and what the records show.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::barrier::Need;
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ConsumedUpstream, ErrorDetail};
use crate::status::UpstreamGauge;
use crate::unread::{Unread, each_record};
use crate::{View, ViewError, text};

/// The graph of upstreams.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GraphAnswer {
    pub v: AnswerVersion,
    /// Every job of the configuration and of the store.
    pub jobs: Vec<String>,
    pub edges: Vec<GraphEdge>,
    /// Records that cannot be read, with their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorDetail>,
}

/// A job and one of its upstreams.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GraphEdge {
    pub upstream: String,
    pub job: String,
    /// Which slot of the upstream is needed (`last-due`, `same-day`, …); null if the configuration does not need it.
    pub when: Option<String>,
    pub artifacts: Vec<String>,
    /// What the job's newest run read of it.
    pub last: Option<ConsumedUpstream>,
    /// How often it kept the job from working.
    pub gauge: Option<UpstreamGauge>,
}

impl View<'_> {
    /// The graph of the configured needs and of the recorded runs.
    pub fn graph(&self, configured: &[(Job, Vec<Need>)]) -> Result<GraphAnswer, ViewError> {
        let mut jobs: BTreeSet<String> = BTreeSet::new();
        let mut edges: BTreeMap<(String, String), GraphEdge> = BTreeMap::new();
        for (job, needs) in configured {
            jobs.insert(job.to_string());
            for need in needs {
                jobs.insert(need.job.to_string());
                let edge = edge(&mut edges, need.job.to_string(), job);
                edge.when = Some(need.when.to_string());
                edge.artifacts.clone_from(&need.artifacts);
            }
        }
        let mut unread = Unread::default();
        each_record(self.store, &mut unread, |_, record, _| {
            if !record.job.is_once() {
                jobs.insert(record.job.to_string());
                add_record(&mut edges, &record);
            }
            Ok(())
        })?;
        jobs.extend(edges.keys().map(|(upstream, _)| upstream.clone()));
        Ok(GraphAnswer {
            v: AnswerVersion,
            jobs: jobs.into_iter().collect(),
            edges: edges.into_values().collect(),
            errors: unread.into_errors(),
        })
    }
}

fn add_record(edges: &mut BTreeMap<(String, String), GraphEdge>, record: &Record) {
    if let Some(last) = record.ledger.last() {
        let zone = text::zone(&last.zone);
        for consumed in &last.upstreams {
            edge(edges, consumed.job.clone(), &record.job).last = Some(ConsumedUpstream::new(consumed, &zone));
        }
        for (upstream, gauge) in &record.upstreams {
            edge(edges, upstream.clone(), &record.job).gauge = Some(UpstreamGauge::new(upstream, gauge, &zone));
        }
    }
}

fn edge<'e>(edges: &'e mut BTreeMap<(String, String), GraphEdge>, upstream: String, job: &Job) -> &'e mut GraphEdge {
    let job = job.to_string();
    edges.entry((upstream.clone(), job.clone())).or_insert(GraphEdge {
        upstream,
        job,
        when: None,
        artifacts: Vec::new(),
        last: None,
        gauge: None,
    })
}
