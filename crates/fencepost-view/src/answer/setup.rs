//! `validate`, `init`, `install` and `logs --list`.

use std::time::Duration;

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{AnswerVersion, ErrorDetail};
use crate::drift::DriftAnswer;
use crate::text;
use crate::time::LocalTime;
use crate::vocabulary::WordSchema;

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
    /// How the jobs differ from what they were, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftAnswer>,
}

/// A trigger on this host that is not as the configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstalledDifference {
    pub job: Option<String>,
    pub kind: &'static str,
    pub message: String,
    /// The file that it is in, if it is a file's own.
    #[serde(skip)]
    pub place: Option<String>,
    /// When it began, if that is known.
    #[serde(skip)]
    pub since: Option<Wall>,
}

/// A mistake in a configuration, and where it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MistakeAnswer {
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    pub hint: Option<String>,
    /// The jobs that it stops. Empty: it stands outside any job and stops all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
}

/// A job of the configuration that does not run because of its mistakes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobMistakes {
    /// The key under `[job]`, which may not be a valid name.
    pub job: String,
    pub mistakes: Vec<MistakeAnswer>,
}

impl JobMistakes {
    /// A sentence for people: the first mistake and where it is, in a file of this name.
    pub fn sentence(&self, config: Option<&str>) -> String {
        let path = config.unwrap_or("the configuration");
        let Some(first) = self.mistakes.first() else { return format!("{} has a mistake in {path}.", self.job) };
        let line = first.line.map_or_else(String::new, |line| format!(":{line}"));
        let hint = first.hint.as_ref().map_or_else(String::new, |hint| format!(" {hint}"));
        let more = match self.mistakes.len() - 1 {
            0 => String::new(),
            1 => " And 1 more mistake.".to_string(),
            more => format!(" And {more} more mistakes."),
        };
        format!("{} does not run because of a mistake in {path}{line}: {}{hint}{more}", self.job, first.message)
    }
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
    /// Whether the job does not run because of its mistakes. The other fields are those that could be read.
    pub broken: bool,
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

/// `logs`: what is kept of a run's output, and how the run ended. `--list` prints one per line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LogAnswer {
    pub v: AnswerVersion,
    pub job: String,
    pub slot: LocalTime,
    pub timezone: String,
    pub run: String,
    /// The host that ran it: logs stay there.
    pub host: String,
    pub started: Option<LocalTime>,
    pub finished: Option<LocalTime>,
    pub duration_ms: Option<u64>,
    /// `None` if the store has no record of the run, or cannot be read.
    #[schemars(with = "Option<WordSchema<Status>>")]
    pub status: Option<Status>,
    pub exit_code: Option<i32>,
    pub bytes: u64,
    /// The run is still writing it.
    pub running: bool,
    pub path: String,
    /// The output itself, or its last lines. Absent in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The logs of one job or of all, newest first within a job, and the records that cannot be read. `logs` prints each log as an
/// answer of its own.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LogList {
    pub v: AnswerVersion,
    pub logs: Vec<LogAnswer>,
    pub errors: Vec<ErrorDetail>,
}

impl LogAnswer {
    /// One line above the output: which run it is, and how that ended.
    pub fn heading(&self) -> String {
        let mut parts = vec![
            self.job.clone(),
            format!("slot {}", text::second_in(self.slot.at, &self.slot.zone)),
            format!("run {} on {}", self.run, text::flat(&self.host)),
        ];
        parts.extend(self.started.as_ref().map(|at| format!("started {}", text::second_in(at.at, &at.zone))));
        let code = self.exit_code.filter(|code| *code != 0).map(|code| format!(" (exit {code})"));
        let after = self.duration_ms.map(|took| format!(" after {}", text::length(Duration::from_millis(took))));
        parts.push(match self.status {
            _ if self.running => "running".to_string(),
            Some(status) => format!("{status}{}{}", code.unwrap_or_default(), after.unwrap_or_default()),
            None => "its end is not known".to_string(),
        });
        format!("==> {} <==", parts.join(", "))
    }
}

/// `serve token`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ServeTokenAnswer {
    pub v: AnswerVersion,
    /// The client.
    pub name: String,
    /// The token, which is not shown again.
    pub token: String,
    /// The file that has its digest now.
    pub file: String,
}
