//! Why a call came to nothing.

use fencepost_core::register::StoreError;
use fencepost_guard::publish::PublishError;
use fencepost_store::OpenError;
use fencepost_view::ReasonCode;
use fencepost_view::exit_code::Code;
use thiserror::Error;

use crate::lease::RunOver;

/// Why a call came to nothing. The message says what state remains.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuardError {
    /// There is nothing to do: another run holds the lease, the slot is done or not due, or the job is paused.
    #[error("{message}")]
    Skipped {
        /// The word that programs branch on, as `docs/reference/reasons.md` lists it: `held`, `done`, `not_due`, …
        reason: &'static str,
        message: String,
        /// With `held`: how many claims in a row the run that holds the lease has turned away, this one included.
        in_a_row: u64,
    },
    /// An upstream is not good, so the work must not begin.
    #[error("{0}")]
    Halted(String),
    /// The lease is lost. Stop the work under it, and write nothing any more.
    #[error("{0}")]
    Lost(String),
    /// The work took longer than its timeout, and has stopped. That is recorded.
    #[error("{0}")]
    TimedOut(String),
    /// A fenced write was refused: a newer token has written, or the target belongs to another job.
    #[error("{0}")]
    Stale(String),
    /// An earlier attempt at an item of work may have had its effect.
    #[error("it is not known whether the attempt with token {token} had its effect")]
    Unknown {
        /// For [`JobClaim::retry_after`](crate::JobClaim::retry_after), once it is certain that there was no effect.
        token: u64,
    },
    /// The store failed. If it may have done what it was asked, the message says so.
    #[error("{0}")]
    Store(String),
    /// A value is wrong.
    #[error("{0}")]
    Usage(String),
    /// The work did not end as the program said, or fencepost failed.
    #[error("{0}")]
    Failed(String),
}

impl GuardError {
    /// The exit code of the command line for the same failure, by hand: 11 to 18, 124, 125, or 2.
    pub fn code(&self) -> u8 {
        match self {
            Self::Skipped { reason, .. } => skipped(reason),
            Self::TimedOut(_) => Code::TIMED_OUT,
            Self::Halted(_) => Code::HALTED,
            Self::Lost(_) => Code::LOST,
            Self::Stale(_) => Code::FENCED,
            Self::Unknown { .. } => Code::UNKNOWN,
            Self::Usage(_) => Code::USAGE,
            Self::Store(_) | Self::Failed(_) => Code::FAILED,
        }
        .0
    }

    /// Why a run came to nothing, or did not end as the program said. None if it ended well.
    pub(crate) fn of(end: &RunOver) -> Option<Self> {
        let RunOver { summary, in_a_row, token } = end;
        let message = summary.message.clone().unwrap_or_default();
        Some(match summary.reason? {
            reason if reason.is_skip() => {
                Self::Skipped { reason: reason.as_str(), message, in_a_row: in_a_row.unwrap_or_default() }
            }
            ReasonCode::Halted => Self::Halted(message),
            ReasonCode::Unknown => Self::Unknown { token: token.unwrap_or_default() },
            ReasonCode::Fenced => Self::Stale(message),
            ReasonCode::Timeout => Self::TimedOut(message),
            ReasonCode::Lost => Self::Lost(message),
            ReasonCode::StoreFailed | ReasonCode::Unrecorded => Self::Store(message),
            _ => Self::Failed(message),
        })
    }

    /// A call under a lease that is lost.
    pub(crate) fn lost(why: &str) -> Self {
        Self::Lost(format!("The lease is lost: {why}. Nothing was done."))
    }

    /// The end of work whose lease was lost before.
    pub(crate) fn lost_before_the_end(why: &str) -> Self {
        Self::Lost(format!("The lease is lost: {why}. The outcome was not recorded."))
    }

    pub(crate) fn store(error: &StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

/// The exit code of a claim that had nothing to do.
fn skipped(reason: &str) -> Code {
    let is = |codes: &[ReasonCode]| codes.iter().any(|code| code.as_str() == reason);
    if is(&[ReasonCode::Done, ReasonCode::NotDue]) {
        Code::NOT_NOW
    } else if is(&[ReasonCode::Barred]) {
        Code::BARRED
    } else {
        Code::HELD
    }
}

impl From<PublishError> for GuardError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Refused { .. } => Self::Stale(error.to_string()),
            PublishError::Usage(message) => Self::Usage(message),
            PublishError::OtherContent { .. } | PublishError::Failed(_) => Self::Failed(error.to_string()),
        }
    }
}

impl From<OpenError> for GuardError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Usage(message) => Self::Usage(message),
            OpenError::Store(error) => Self::store(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_skip_has_the_code_of_the_command_line() {
        let code = |reason: ReasonCode| match reason {
            ReasonCode::Held | ReasonCode::Running | ReasonCode::Paused => 11,
            ReasonCode::Barred => 14,
            ReasonCode::Done | ReasonCode::NotDue => 16,
            other => panic!("{other} has no code"),
        };
        for reason in ReasonCode::ALL.iter().copied().filter(|reason| reason.is_skip()) {
            let skipped = GuardError::Skipped { reason: reason.as_str(), message: String::new(), in_a_row: 0 };
            assert_eq!(skipped.code(), code(reason), "{reason}");
        }
        assert_eq!(GuardError::TimedOut(String::new()).code(), 124);
        assert_eq!(GuardError::Lost(String::new()).code(), 12);
    }
}
