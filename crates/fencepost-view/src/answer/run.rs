//! Runs: one line of `runs`, and the attempts inside other answers.

use fencepost_core::artifact::Artifact;
use fencepost_core::ledger::{Consumed, EndedBy, Outcome, Status, Trigger};
use fencepost_core::record::{Lease, Record};
use fencepost_core::time::millis;
use fencepost_core::zone::Zone;
use schemars::JsonSchema;
use serde::Serialize;

use super::AnswerVersion;
use crate::text;
use crate::time::LocalTime;
use crate::vocabulary::WordSchema;

/// A run and how it ended, or a stretch of slots that no run was for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunAnswer {
    pub v: AnswerVersion,
    pub job: String,
    /// The instant the run was for.
    pub slot: LocalTime,
    /// The slot's civil date in the job's zone.
    pub date: String,
    pub timezone: String,
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
    pub token: u64,
    pub run: String,
    pub host: String,
    #[schemars(with = "WordSchema<Trigger>")]
    pub trigger: Trigger,
    pub started: LocalTime,
    pub finished: Option<LocalTime>,
    pub duration_ms: Option<u64>,
    pub exit_code: Option<i32>,
    #[schemars(with = "Option<WordSchema<EndedBy>>")]
    pub ended_by: Option<EndedBy>,
    pub artifacts: Vec<RecordedArtifact>,
    pub upstreams: Vec<ConsumedUpstream>,
    pub note: Option<String>,
    /// The first slot, where one outcome stands for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_from: Option<LocalTime>,
    /// The last slot, where one outcome stands for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_to: Option<LocalTime>,
    /// How many slots, where one outcome stands for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// A file as a run left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordedArtifact {
    pub path: String,
    pub size: u64,
    pub sha256: String,
}

impl From<&Artifact> for RecordedArtifact {
    fn from(artifact: &Artifact) -> Self {
        Self { path: artifact.path.clone(), size: artifact.size, sha256: artifact.sha256.to_string() }
    }
}

/// The attempt of an upstream that a run was let through by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConsumedUpstream {
    pub job: String,
    pub slot: LocalTime,
    pub run: String,
    /// The bytes that the run read.
    pub sha256: Option<String>,
}

impl ConsumedUpstream {
    pub(crate) fn new(consumed: &Consumed, zone: &Zone) -> Self {
        Self {
            job: consumed.job.clone(),
            slot: LocalTime::new(consumed.slot, zone),
            run: consumed.run.to_string(),
            sha256: consumed.sha256.map(|sha256| sha256.to_string()),
        }
    }
}

impl RunAnswer {
    /// A run that has ended.
    pub fn ended(record: &Record, outcome: &Outcome) -> Self {
        let zone = text::zone(&outcome.zone);
        let covers = outcome.covers.as_ref();
        Self {
            v: AnswerVersion,
            job: record.job.to_string(),
            slot: LocalTime::new(outcome.slot, &zone),
            date: zone.date(outcome.slot).to_string(),
            timezone: outcome.zone.clone(),
            status: outcome.status,
            token: outcome.token.number(),
            run: outcome.run.to_string(),
            host: outcome.host.clone(),
            trigger: outcome.trigger,
            started: LocalTime::new(outcome.started, &zone),
            finished: Some(LocalTime::new(outcome.finished, &zone)),
            duration_ms: Some(millis(outcome.length())),
            exit_code: outcome.exit_code,
            ended_by: Some(outcome.ended_by),
            artifacts: outcome.artifacts.iter().map(RecordedArtifact::from).collect(),
            upstreams: outcome.upstreams.iter().map(|consumed| ConsumedUpstream::new(consumed, &zone)).collect(),
            note: outcome.note.clone(),
            slot_from: covers.map(|covers| LocalTime::new(covers.from, &zone)),
            slot_to: covers.map(|covers| LocalTime::new(covers.to, &zone)),
            count: covers.map(|covers| covers.count),
        }
    }

    /// The run behind the lease: going, or lost and not yet recorded as such.
    pub fn unrecorded(record: &Record, is_over: bool) -> Option<Self> {
        let lease = unrecorded(record)?;
        let zone = text::zone(&lease.zone);
        Some(Self {
            v: AnswerVersion,
            job: record.job.to_string(),
            slot: LocalTime::new(lease.slot, &zone),
            date: zone.date(lease.slot).to_string(),
            timezone: lease.zone.clone(),
            status: if is_over { Status::Lost } else { Status::Running },
            token: record.token.number(),
            run: lease.run.to_string(),
            host: lease.holder.host.clone(),
            trigger: lease.trigger,
            started: LocalTime::new(lease.since, &zone),
            finished: None,
            duration_ms: None,
            exit_code: None,
            ended_by: None,
            artifacts: Vec::new(),
            upstreams: Vec::new(),
            slot_from: None,
            slot_to: None,
            count: None,
            note: is_over.then(|| "it did not end properly; the next run takes over".to_string()),
        })
    }
}

/// The lease of a run whose end is not recorded. A lease by hand is not a run.
pub(crate) fn unrecorded(record: &Record) -> Option<&Lease> {
    let lease = record.lease.as_ref()?;
    (lease.holder.is_run() && record.ledger.of_run(lease.run).is_none()).then_some(lease)
}
