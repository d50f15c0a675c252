//! How a run ended: one description that the exit code, the messages, the events and the notifications read.

use fencepost_core::lease::Refusal;
use fencepost_core::ledger::{EndedBy, Status};
use fencepost_core::register::StoreError;
use fencepost_core::run::Kept;
use fencepost_core::said::Published;
use fencepost_core::skips::Skip;
use fencepost_core::time::Wall;
use serde::{Deserialize, Serialize};

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The exit code of the wrapper.
    pub code: u8,
    pub status: Status,
    pub ended_by: EndedBy,
    /// The word that programs branch on. `None` if the command's own exit says everything.
    pub reason: Option<EndReason>,
    /// One sentence for people. `None` if the command's own end speaks for itself.
    pub message: Option<String>,
    /// How important the message is.
    pub weight: Weight,
    /// Whether the store knows this end.
    pub recorded: Kept,
    /// The command's exit code as a shell shows it. If the item of work was done before, the recorded one.
    pub exit_code: Option<i32>,
    /// The signal that ended the command, or the run before it had one.
    pub signal: Option<i32>,
    /// Whether the command may have started.
    pub started: bool,
    /// The slot that is the reason why nothing was run.
    pub slot: Option<Wall>,
    /// What the skipped trigger is counted as.
    pub skip: Option<Skip>,
    /// The publish that was refused.
    pub refused: Option<Box<Published>>,
    /// Why the claim was refused.
    pub refusal: Option<Box<Refusal>>,
    /// Why the store could not be used before anything was run.
    pub error: Option<StoreError>,
    /// Why fencepost stopped the command, as the ledger notes it.
    pub note: Option<String>,
    /// Processes that could not be ended.
    pub escaped: Vec<String>,
}

impl Summary {
    /// An end without a reason and a message.
    pub fn new(status: Status, code: u8, ended_by: EndedBy) -> Self {
        Self {
            code,
            status,
            ended_by,
            reason: None,
            message: None,
            weight: Weight::Trouble,
            recorded: Kept::Recorded,
            exit_code: None,
            signal: None,
            started: false,
            slot: None,
            skip: None,
            refused: None,
            refusal: None,
            error: None,
            note: None,
            escaped: Vec::new(),
        }
    }

    /// A run that failed before a command could start, by a failure that no rule of a run decided.
    pub fn failed(code: u8, reason: EndReason, message: &str) -> Self {
        Self {
            reason: Some(reason),
            message: Some(message.to_string()),
            recorded: Kept::NoLease,
            ..Self::new(Status::Error, code, EndedBy::Fencepost)
        }
    }

    /// The reason, if the run failed by more than its own exit code. A skip is not a failure.
    pub fn failure(&self) -> Option<EndReason> {
        self.reason.filter(|reason| !reason.is_skip())
    }

    pub fn is(&self, reason: EndReason) -> bool {
        self.reason == Some(reason)
    }
}

/// How important a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The caller prints it, with its own advice.
    Silent,
    /// Printed on a terminal and with `-v`.
    Remark,
    /// Printed also off a terminal: cron mails it.
    Trouble,
}

/// Why a run ended without a command, or differently from its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Another run holds the lease.
    Held,
    /// A run of the same slot is going.
    Running,
    /// The slot is done.
    Done,
    NotDue,
    Paused,
    /// An upstream has nothing for this slot.
    Barred,
    /// An upstream failed, or its artifact is not the recorded one.
    Halted,
    /// A publish was refused.
    Fenced,
    Timeout,
    KeeperDied,
    /// The lease was lost.
    Lost,
    NotFound,
    CannotExecute,
    /// The run was started from inside a run of the same job.
    Nested,
    StoreFailed,
    /// The claim was refused for a reason that waiting does not mend.
    Refused,
    /// The store did not confirm the end.
    Unrecorded,
    /// A signal ended the run before it had a command.
    Interrupted,
    /// A declared artifact is missing or untouched.
    NoOutput,
    /// An earlier attempt died between its effect and its record.
    Unknown,
    /// The attempts of the slot are used up, or fencepost failed.
    Failed,
    TooOld,
    OtherParameters,
    /// The command line or the configuration is wrong.
    Usage,
    /// A word of a later version.
    #[serde(other)]
    Other,
}

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Running => "running",
            Self::Done => "done",
            Self::NotDue => "not_due",
            Self::Paused => "paused",
            Self::Barred => "barred",
            Self::Halted => "halted",
            Self::Fenced => "fenced",
            Self::Timeout => "timeout",
            Self::KeeperDied => "keeper_died",
            Self::Lost => "lost",
            Self::NotFound => "not_found",
            Self::CannotExecute => "cannot_execute",
            Self::Nested => "nested",
            Self::StoreFailed => "store_failed",
            Self::Refused => "refused",
            Self::Unrecorded => "unrecorded",
            Self::Interrupted => "interrupted",
            Self::NoOutput => "no_output",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
            Self::TooOld => "too_old",
            Self::OtherParameters => "other_parameters",
            Self::Usage => "usage",
            Self::Other => "other",
        }
    }

    /// Whether the trigger had nothing to do, which is not a failure.
    pub fn is_skip(self) -> bool {
        matches!(self, Self::Held | Self::Running | Self::Done | Self::NotDue | Self::Paused | Self::Barred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_written_as_its_word_and_an_unknown_word_is_read() {
        for reason in [EndReason::Held, EndReason::NotDue, EndReason::KeeperDied, EndReason::OtherParameters] {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("{:?}", reason.as_str()));
        }
        assert_eq!(serde_json::from_str::<EndReason>("\"of_tomorrow\"").unwrap(), EndReason::Other);
    }
}
