//! `validate`, `init`, `install` and `logs --list`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::AnswerVersion;

/// `validate`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValidateAnswer {
    pub v: AnswerVersion,
    pub config: String,
    pub ok: bool,
    pub mistakes: Vec<MistakeAnswer>,
    pub warnings: Vec<MistakeAnswer>,
    pub jobs: Vec<ValidatedJob>,
    /// What is installed otherwise than the configuration says, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<Vec<InstalledDifference>>,
}

/// A trigger on this host that is not as the configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstalledDifference {
    pub job: Option<String>,
    pub kind: &'static str,
    pub message: String,
}

/// A mistake in a configuration, and where it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MistakeAnswer {
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    pub hint: Option<String>,
}

/// A job of the configuration, with every key that it has or takes from `[defaults]`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValidatedJob {
    pub job: String,
    pub timezone: Option<String>,
    pub working_directory: String,
    pub next_slots: Vec<String>,
    /// The schedule in words.
    pub in_words: Option<String>,
    /// The next change of the clocks that meets the schedule.
    pub clock_change: Option<String>,
    /// The keys of `fencepost.toml`.
    #[serde(flatten)]
    pub keys: Map<String, Value>,
}

/// `init`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InitAnswer {
    pub v: AnswerVersion,
    pub config: String,
    pub jobs: Vec<String>,
    /// The lines of the crontab that became no job.
    pub left_out: Vec<LeftOutLine>,
}

/// A line of a crontab that became no job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LeftOutLine {
    pub line: usize,
    pub text: String,
    pub reason: String,
}

/// `install`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InstallAnswer {
    pub v: AnswerVersion,
    pub changes: Vec<InstallChange>,
    pub done: bool,
}

/// A file or crontab that `install` changes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InstallChange {
    pub place: String,
    pub action: &'static str,
}

/// One line of `logs --list`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LogAnswer {
    pub v: AnswerVersion,
    pub slot: String,
    pub run: String,
    pub bytes: u64,
    /// The run is still writing it.
    pub running: bool,
    pub path: String,
}
