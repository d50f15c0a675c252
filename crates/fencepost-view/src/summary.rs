//! How a run ended: one description that the exit code, the messages, the events and the notifications read.

use fencepost_core::lease::Refusal;
use fencepost_core::ledger::{EndedBy, Status};
use fencepost_core::register::StoreError;
use fencepost_core::run::Kept;
use fencepost_core::said::Published;
use fencepost_core::skips::Skip;
use fencepost_core::time::Wall;

use crate::output;
use crate::vocabulary::ReasonCode;

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The exit code of the wrapper.
    pub code: u8,
    pub status: Status,
    pub ended_by: EndedBy,
    /// The word that programs branch on. `None` if the command's own exit says everything.
    pub reason: Option<ReasonCode>,
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
    /// The last lines that a failed command printed, if they were kept.
    pub last_output: Vec<String>,
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
            last_output: Vec::new(),
        }
    }

    /// A run that failed before a command could start, by a failure that no rule of a run decided.
    pub fn failed(code: u8, reason: ReasonCode, message: &str) -> Self {
        Self {
            reason: Some(reason),
            message: Some(message.to_string()),
            recorded: Kept::NoLease,
            ..Self::new(Status::Error, code, EndedBy::Fencepost)
        }
    }

    /// The refused publish that the last swap of the run could not record, because another run had the lease by then.
    pub fn unrecorded_refusal(&self) -> Option<&Published> {
        self.refused.as_deref().filter(|_| !self.recorded.is_recorded())
    }

    /// The reason, if the run failed by more than its own exit code. A skip is not a failure.
    pub fn failure(&self) -> Option<ReasonCode> {
        self.reason.filter(|reason| !reason.is_skip())
    }

    /// The message with the last line of the command's output.
    pub fn sentence(&self) -> Option<String> {
        self.message.as_ref().map(|message| format!("{message}{}", output::quoted(&self.last_output)))
    }

    /// Whether the output of the command helps to explain this end.
    pub fn is_explained_by_output(&self) -> bool {
        self.code != 0 && !matches!(self.status, Status::Ok | Status::Empty | Status::SkippedBarrier)
    }

    pub fn is(&self, reason: ReasonCode) -> bool {
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
