//! The lines that `up --json` prints: what happens to its jobs and to itself.

use fencepost_core::ledger::Status;
use fencepost_core::token::{RunId, Token};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::AnswerVersion;
use crate::event::StopReason;
use crate::vocabulary::ReasonCode;

/// One line of `up --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UpEventLine {
    pub v: AnswerVersion,
    /// RFC 3339 in the configuration's zone.
    pub at: String,
    /// The name of the event. A run that ended has its status.
    pub event: &'static str,
    /// Absent in events of `up` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(flatten)]
    pub fields: UpEvent,
}

impl UpEventLine {
    pub fn new(at: String, job: Option<&str>, fields: UpEvent) -> Self {
        Self { v: AnswerVersion, at, event: fields.name(), job: job.map(str::to_string), fields }
    }
}

/// An event with its fields. Its name is the line's `event`. Variants with more required fields stand first: a reader of the
/// schema takes the first that fits.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum UpEvent {
    Up {
        jobs: usize,
        store: String,
        config: String,
        pid: u32,
    },
    Reloaded {
        jobs: usize,
        by: &'static str,
    },
    Started {
        slot: String,
        #[schemars(with = "String")]
        run: RunId,
        #[schemars(with = "u64")]
        token: Token,
        #[serde(skip_serializing_if = "Option::is_none")]
        took_over: Option<String>,
    },
    /// A run ended. Its status names the line.
    Ended {
        #[serde(skip)]
        status: Status,
        #[serde(skip_serializing_if = "Option::is_none")]
        slot: Option<String>,
        exit: u8,
        took_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<ReasonCode>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The last line that a failed command printed.
        #[serde(skip_serializing_if = "Option::is_none")]
        last_output: Option<String>,
    },
    Missed {
        count: u64,
        from: String,
        to: String,
    },
    Stopping {
        signal: i32,
        running: usize,
        within: String,
    },
    /// The job waits for a running one to end.
    Queued {
        running: usize,
    },
    /// A job that does not run because of its mistakes, or runs by its last good settings.
    Broken {
        runs_as_before: bool,
        message: String,
    },
    ReloadRefused {
        message: String,
    },
    StoreAway {
        message: String,
    },
    NotStarted {
        message: String,
    },
    StoreBack {
        after: String,
    },
    Slept {
        r#for: String,
    },
    ClockStepped {
        by_ms: i64,
    },
    /// A run ended without its last event.
    Died {
        exit: i32,
    },
    /// A run was asked to end.
    Ending {
        pid: u32,
    },
    /// An event of a run, forwarded under its own name.
    PassedOn {
        #[serde(skip)]
        name: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<StopReason>,
    },
    Stopped {},
}

impl UpEvent {
    /// The line's `event`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Up { .. } => "up",
            Self::Reloaded { .. } => "reloaded",
            Self::ReloadRefused { .. } => "reload_refused",
            Self::Broken { .. } => "broken",
            Self::Slept { .. } => "slept",
            Self::ClockStepped { .. } => "clock_stepped",
            Self::StoreAway { .. } => "store_away",
            Self::StoreBack { .. } => "store_back",
            Self::Stopping { .. } => "stopping",
            Self::Stopped {} => "stopped",
            Self::Queued { .. } => "queued",
            Self::NotStarted { .. } => "not_started",
            Self::Started { .. } => "started",
            Self::Missed { .. } => "missed",
            Self::Ended { status, .. } => status.as_str(),
            Self::PassedOn { name, .. } => name,
            Self::Died { .. } => "died",
            Self::Ending { .. } => "ending",
        }
    }
}
