//! Notifications: the body of a webhook, and the results of a test.

use std::fmt::Write as _;

use fencepost_core::ledger::Status;
use schemars::JsonSchema;
use serde::Serialize;

use super::{AnswerVersion, RunAnswer};
use crate::drift::DriftDifference;
use crate::text;
use crate::time::LocalTime;
use crate::vocabulary::WordSchema;

/// What a webhook receives as JSON. A command receives it on standard input, after the text for people.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NotificationAnswer {
    /// One sentence for people, under the name that chat services display.
    pub text: String,
    pub event: NotificationEvent,
    #[serde(flatten)]
    pub run: NotifiedRun,
    /// The failure was told before and still lasts.
    pub reminder: bool,
    /// When the failure streak began.
    pub since: Option<LocalTime>,
    /// How long the job was down.
    pub down_ms: Option<u64>,
    /// How many triggers in a row were skipped.
    pub in_a_row: Option<u64>,
    pub missed: Option<MissedRange>,
    /// How the job differs from what it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftDifference>,
    /// The last lines that a failed command printed, if they were kept.
    pub last_output: Vec<String>,
    /// The store's URL without its password.
    pub store: String,
    pub config: Option<String>,
}

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationEvent {
    Error,
    Halted,
    Recovered,
    Skips,
    Missed,
    Drift,
    /// `notify --test` sent it.
    Test,
}

impl NotificationEvent {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Halted => "halted",
            Self::Recovered => "recovered",
            Self::Skips => "skips",
            Self::Missed => "missed",
            Self::Drift => "drift",
            Self::Test => "test",
        }
    }

    /// The few words that a title adds to the job's name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Error => "failed",
            Self::Halted => "was halted",
            Self::Recovered => "works again",
            Self::Skips => "is skipped again and again",
            Self::Missed => "missed slots",
            Self::Drift => "is not as it was",
            Self::Test => "test message",
        }
    }
}

/// The run that a notification is about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum NotifiedRun {
    Recorded(Box<RunAnswer>),
    Unrecorded(UnrecordedRun),
}

/// A run that no record holds: the store failed, or it has not ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UnrecordedRun {
    pub v: AnswerVersion,
    pub job: String,
    #[schemars(with = "Option<WordSchema<Status>>")]
    pub status: Option<Status>,
    pub run: String,
    pub host: String,
    pub timezone: String,
}

/// Slots that passed without a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MissedRange {
    pub count: u64,
    pub slot_from: LocalTime,
    pub slot_to: LocalTime,
}

impl NotificationAnswer {
    pub fn job(&self) -> &str {
        match &self.run {
            NotifiedRun::Recorded(run) => &run.job,
            NotifiedRun::Unrecorded(run) => &run.job,
        }
    }

    /// A subject or a title.
    pub fn title(&self) -> String {
        let still = if self.reminder { "still " } else { "" };
        format!("{} {still}{}", self.job(), self.event.title())
    }

    /// The message for people, on several lines.
    pub fn readable(&self) -> String {
        let mut message = self.text.clone();
        let (host, run, slot) = match &self.run {
            NotifiedRun::Recorded(run) => (&run.host, &run.run, Some(&run.slot)),
            NotifiedRun::Unrecorded(run) => (&run.host, &run.run, None),
        };
        let slot = slot.map_or_else(String::new, |slot| format!("slot {}, ", text::second_in(slot.at, &slot.zone)));
        let _ = write!(message, "\n\n{slot}run {run} on {}", text::flat(host));
        if self.last_output.len() > 1 {
            let _ = write!(message, "\n\nLast lines of its output:\n    {}", self.last_output.join("\n    "));
        }
        message
    }
}

/// `notify --test`: the result of each recipient.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NotifyAnswer {
    pub v: AnswerVersion,
    pub job: String,
    pub recipients: Vec<RecipientResult>,
}

/// Whether a recipient took a message.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecipientResult {
    /// The recipient without secrets.
    pub recipient: String,
    /// The keys of the configuration that name it.
    pub keys: Vec<String>,
    pub sent: bool,
    pub error: Option<String>,
}
