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
        let (mut graph, mut unread) = (Graph::of(configured), Unread::default());
        each_record(self.store, &mut unread, |_, record, _| {
            graph.add(&record);
            Ok(())
        })?;
        Ok(graph.answer(unread.into_errors()))
    }
}

/// The graph, gathered while the records are read.
pub(crate) struct Graph {
    jobs: BTreeSet<String>,
    edges: BTreeMap<(String, String), GraphEdge>,
}

impl Graph {
    /// The configured needs.
    pub(crate) fn of(configured: &[(Job, Vec<Need>)]) -> Self {
        let (mut jobs, mut edges) = (BTreeSet::new(), BTreeMap::new());
        for (job, needs) in configured {
            jobs.insert(job.to_string());
            for need in needs {
                jobs.insert(need.job.to_string());
                let edge = edge(&mut edges, need.job.to_string(), job);
                edge.when = Some(need.when.to_string());
                edge.artifacts.clone_from(&need.artifacts);
            }
        }
        Self { jobs, edges }
    }

    /// Adds what the newest run of a job read, and what kept it from working.
    pub(crate) fn add(&mut self, record: &Record) {
        if record.job.is_once() {
            return;
        }
        self.jobs.insert(record.job.to_string());
        let Some(last) = record.ledger.last() else { return };
        let (edges, zone) = (&mut self.edges, text::zone(&last.zone));
        for consumed in &last.upstreams {
            edge(edges, consumed.job.clone(), &record.job).last = Some(ConsumedUpstream::new(consumed, &zone));
        }
        for (upstream, gauge) in &record.upstreams {
            edge(edges, upstream.clone(), &record.job).gauge = Some(UpstreamGauge::new(upstream, gauge, &zone));
        }
    }

    pub(crate) fn answer(mut self, errors: Vec<ErrorDetail>) -> GraphAnswer {
        self.jobs.extend(self.edges.keys().map(|(upstream, _)| upstream.clone()));
        let (jobs, edges) = (self.jobs.into_iter().collect(), self.edges.into_values().collect());
        GraphAnswer { v: AnswerVersion, jobs, edges, errors }
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
