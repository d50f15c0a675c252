//! Verbs that change something for one job: `publish`, `once`, `record`, `pause`, `run --dry-run`.

use fencepost_core::fence::{Level, WriteMode};
use fencepost_core::ledger::{Status, Trigger};
use schemars::JsonSchema;
use serde::Serialize;

use super::{AnswerVersion, ErrorDetail};
use crate::event::RunEnd;
use crate::time::LocalTime;
use crate::vocabulary::{ReasonCode, WordSchema, words};

/// `publish`: a fenced write, accepted or refused.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PublishAnswer {
    pub v: AnswerVersion,
    pub resource: String,
    pub kind: String,
    pub accepted: bool,
    #[schemars(with = "WordSchema<Level>")]
    pub level: Level,
    pub token: u64,
    /// The highest token that the target has accepted.
    pub seen: u64,
    #[schemars(with = "WordSchema<WriteMode>")]
    pub mode: WriteMode,
    /// The target had this very write before.
    pub already_applied: bool,
    /// The digest of the content, for `--if-digest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why the write was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

/// `publish git --hook`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GitHookAnswer {
    pub v: AnswerVersion,
    pub hook: String,
    pub installed: bool,
    pub changed: bool,
}

words! {
    /// How an item of work stands.
    OnceState {
        Done = "done",
        Failed = "failed",
        InProgress = "in_progress",
        Unknown = "unknown",
    }
}

/// `once`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OnceAnswer {
    pub v: AnswerVersion,
    pub key: String,
    pub state: OnceState,
    pub exit_code: Option<i32>,
    /// The result of an earlier attempt; nothing was run.
    pub replayed: bool,
}

/// `record` inside a run. By hand it answers with a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SaidAnswer {
    pub v: AnswerVersion,
    pub job: String,
    pub run: String,
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
}

/// `pause` and `resume`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PauseAnswer {
    pub v: AnswerVersion,
    #[serde(flatten)]
    pub job: PauseChange,
}

/// A job after `pause` or `resume`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PauseChange {
    pub job: String,
    pub paused: bool,
    /// When the job resumes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<LocalTime>,
}

/// `pause --all` and `resume --all`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PauseAllAnswer {
    pub v: AnswerVersion,
    pub jobs: Vec<PauseChange>,
}

words! {
    /// What a run would do now.
    DryRunDecision {
        Run = "run",
        Wait = "wait",
        Skip = "skip",
        Halt = "halt",
        Fail = "fail",
    }
}

/// `run --dry-run`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DryRunAnswer {
    pub v: AnswerVersion,
    pub job: String,
    pub decision: DryRunDecision,
    pub reason: ReasonCode,
    pub message: String,
    pub slot: Option<String>,
    #[schemars(with = "Option<WordSchema<Trigger>>")]
    pub trigger: Option<Trigger>,
    /// What the run would end with if it starts nothing.
    pub exit_code: Option<u8>,
}

words! {
    /// How far a run has come that was started on request.
    RunNowState {
        Running = "running",
        Ended = "ended",
    }
}

/// A job that was started on request (`run JOB --now`): its end, or the fact that it is still going.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunNowAnswer {
    pub v: AnswerVersion,
    pub job: String,
    pub state: RunNowState,
    /// The id of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The process of the wrapper, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How the run ended, as its last event says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

/// `forget` and `once forget`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ForgetAnswer {
    pub v: AnswerVersion,
    /// The job, or the key of the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub forgotten: bool,
    /// How many entries of its history were deleted.
    pub history: usize,
}
