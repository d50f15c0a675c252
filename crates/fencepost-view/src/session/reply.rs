//! What a session answers, and what it says of its leases.

use std::collections::BTreeMap;

use fencepost_core::barrier::Decision;
use fencepost_core::fence::Level;
use fencepost_core::ledger::{Status, Trigger};
use schemars::JsonSchema;
use serde::Serialize;

use super::RequestId;
use crate::answer::{AnswerVersion, PublishAnswer};
use crate::event::StopReason;
use crate::gate::GateUpstream;
use crate::time::{LocalTime, UtcTime};
use crate::vocabulary::{ReasonCode, WordSchema};

/// The answer to one request.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionReply {
    pub v: AnswerVersion,
    /// The id of the request; null if the line had none that can be read.
    pub id: Option<RequestId>,
    #[serde(flatten)]
    pub answer: SessionAnswer,
}

impl SessionReply {
    pub fn new(id: Option<RequestId>, answer: SessionAnswer) -> Self {
        Self { v: AnswerVersion, id, answer }
    }
}

/// What is answered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum SessionAnswer {
    Hello(HelloReply),
    Granted(Box<GrantedReply>),
    Skipped(SkippedReply),
    Halted(HaltedReply),
    Published(PublishedReply),
    Recorded(RecordedReply),
    Released(ReleasedReply),
    Gated(GatedReply),
    Judged(JudgedReply),
    Error(ErrorReply),
}

/// The versions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HelloReply {
    /// The version of the program.
    pub version: String,
    /// The version of the protocol.
    pub protocol: u32,
}

/// The lease is held, and the work may begin.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GrantedReply {
    pub job: String,
    pub run: String,
    /// The fencing token, greater than that of every earlier grant.
    pub token: u64,
    pub grants: u64,
    /// The slot that the work is for; of a job without slots, the time of the claim.
    pub slot: LocalTime,
    /// The day of the slot in the job's zone.
    pub date: String,
    pub timezone: String,
    #[schemars(with = "WordSchema<Trigger>")]
    pub trigger: Trigger,
    pub late_seconds: u64,
    /// The gap that this grant covers, with `catch_up_mode = "collapse"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_from: Option<LocalTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_to: Option<LocalTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_count: Option<u64>,
    /// The idempotency key: the same for every attempt at one slot, on every machine.
    pub key: String,
    /// The identity of the store: with the job, the lineage of the token.
    pub store: String,
    pub host: String,
    /// Where the pinned inputs of each upstream are.
    pub inputs: BTreeMap<String, String>,
    pub ttl_ms: u64,
    pub until: UtcTime,
    /// How long the lease may be relied on without a renewal.
    pub remaining_ms: u64,
}

/// There is nothing to do.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SkippedReply {
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
    pub reason: ReasonCode,
    pub message: String,
    /// The slot that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<LocalTime>,
    /// Of an item that is done: the code it was done with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// An upstream is not good, so the work must not begin.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HaltedReply {
    pub reason: ReasonCode,
    pub message: String,
}

/// A fenced write that was accepted. A refused one is an `error`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PublishedReply {
    pub resource: String,
    pub kind: String,
    #[schemars(with = "WordSchema<Level>")]
    pub level: Level,
    pub token: u64,
    /// The highest token that the target has accepted.
    pub seen: u64,
    /// The target had this very write before.
    pub already_applied: bool,
    pub digest: Option<String>,
    /// Warnings about the target.
    pub remarks: Vec<String>,
}

impl PublishedReply {
    pub fn new(answer: PublishAnswer, remarks: Vec<String>) -> Self {
        let PublishAnswer { resource, kind, level, token, seen, already_applied, digest, .. } = answer;
        Self { resource, kind, level, token, seen, already_applied, digest, remarks }
    }
}

/// An outcome that was stated for a lease, or recorded by hand.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecordedReply {
    pub job: String,
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
}

/// The work has ended, and that is recorded.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReleasedReply {
    /// How the run ended, as it is recorded.
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
    /// Why it did not end as the program said.
    pub reason: Option<ReasonCode>,
    pub message: Option<String>,
}

/// What the upstreams say.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GatedReply {
    #[schemars(with = "WordSchema<Decision>")]
    pub decision: Decision,
    /// The reasons of the upstreams that decided, as a sentence.
    pub reason: String,
    pub upstreams: Vec<GateUpstream>,
}

/// The write may be made. A refused one is an `error`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JudgedReply {
    /// The fence to write in the same transaction, as one text.
    pub fence: String,
    /// This very write was made before: there is nothing to do.
    pub already_applied: bool,
}

/// What failed, why, and the next step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorReply {
    /// The exit code of the command line for the same failure.
    pub code: u8,
    pub reason: ReasonCode,
    pub message: String,
    pub next_step: Option<String>,
    /// With `unknown`: the token of the attempt whose effect is unknown, for `retry_after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

impl ErrorReply {
    pub fn new(code: u8, reason: ReasonCode, message: impl Into<String>) -> Self {
        let next_step = reason.next_step().map(str::to_string);
        Self { code, reason, message: message.into(), next_step, token: None }
    }
}

/// Something that happened to a lease.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionEventLine {
    pub v: AnswerVersion,
    /// The id of the claim.
    pub claim: RequestId,
    pub at: UtcTime,
    #[serde(flatten)]
    pub event: SessionEvent,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SessionEvent {
    Renewed {
        renewals: u64,
        until: UtcTime,
        remaining_ms: u64,
    },
    /// The store failed. The session tries again until the lease is lost.
    RenewalFailed {
        message: String,
    },
    /// The program is asked to end its work, and to release the lease by then.
    Stop {
        reason: StopReason,
        message: String,
        until: UtcTime,
        remaining_ms: u64,
    },
    /// The lease is not renewed any more and passes on, or has. The program must not write any more.
    Lost {
        reason: StopReason,
        message: String,
    },
}
