//! Why a call came to nothing.

use fencepost_core::lease::Refusal;
use fencepost_core::ledger::{Barred, Status};
use fencepost_core::register::StoreError;
use fencepost_core::run::{Finish, Kept, StopCause};
use fencepost_core::slot::NotNow;
use fencepost_guard::publish::PublishError;
use fencepost_store::OpenError;
use fencepost_view::ReasonCode;
use thiserror::Error;

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
    },
    /// An upstream is not good, so the work must not begin.
    #[error("{0}")]
    Halted(String),
    /// The lease is lost. Stop the work under it, and write nothing any more.
    #[error("the lease is lost: {0}")]
    Lost(String),
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
    /// The exit code of the command line for the same failure.
    pub fn code(&self) -> u8 {
        match self {
            Self::Skipped { .. } => 11,
            Self::Halted(_) => 15,
            Self::Lost(_) => 12,
            Self::Stale(_) => 13,
            Self::Unknown { .. } => 17,
            Self::Usage(_) => 2,
            Self::Store(_) | Self::Failed(_) => 125,
        }
    }

    fn skipped(reason: ReasonCode, message: String) -> Self {
        Self::Skipped { reason: reason.as_str(), message }
    }

    /// Why a claim was not granted.
    pub(crate) fn of_claim(finish: Finish, token: impl FnOnce() -> u64) -> Self {
        match finish {
            Finish::Held { record, .. } => {
                let holder = record.lease.map(|lease| lease.holder.host).unwrap_or_default();
                Self::skipped(ReasonCode::Held, format!("it is held by a run on {holder}"))
            }
            Finish::NotNow(NotNow::Lost { .. }) => Self::Unknown { token: token() },
            Finish::NotNow(why) => Self::of_slot(&why),
            Finish::Barred { halt: true, barred, .. } => Self::Halted(reasons(&barred)),
            Finish::Barred { barred, .. } => Self::skipped(ReasonCode::Barred, reasons(&barred)),
            other => Self::of_end(other).unwrap_or_else(|| Self::Failed("nothing was done".to_string())),
        }
    }

    fn of_slot(why: &NotNow) -> Self {
        let reason = match why {
            NotNow::Duplicate { state: Status::Running, .. } => ReasonCode::Running,
            NotNow::Duplicate { .. } => ReasonCode::Done,
            NotNow::NotDue { .. } | NotNow::Early { .. } => ReasonCode::NotDue,
            NotNow::Paused { .. } => ReasonCode::Paused,
            _ => return Self::Failed(why.words()),
        };
        Self::skipped(reason, why.words())
    }

    /// Why work did not end well; none if it did.
    pub(crate) fn of_end(finish: Finish) -> Option<Self> {
        Some(match finish {
            Finish::Ended { judgement, .. } | Finish::WithoutLease { judgement, .. } => match judgement.breach {
                None => return None,
                Some(_) => Self::Failed(judgement.note.unwrap_or_default()),
            },
            Finish::Fenced { refused, .. } => {
                let why = refused.refused.as_deref().unwrap_or_default();
                Self::Stale(format!("its write to {} was refused: {why}", refused.resource))
            }
            Finish::Stopped { why: StopCause::Timeout, .. } => {
                Self::Lost("it worked longer than its timeout".to_string())
            }
            Finish::Stopped { recorded: Kept::Failed(error), .. } => Self::store(&error),
            Finish::Stopped { why, .. } => Self::Lost(why.note().trim_start_matches("stopped: ").to_string()),
            Finish::StoreFailed(error) | Finish::Unrecorded { error, .. } => Self::store(&error),
            Finish::Refused(refusal) => Self::refusal(&refusal),
            Finish::Nested => {
                Self::Failed("the job is claimed from inside its own run, which holds the lease".to_string())
            }
            other => Self::Failed(format!("{other:?}")),
        })
    }

    fn refusal(refusal: &Refusal) -> Self {
        Self::Failed(refusal.to_string())
    }

    pub(crate) fn store(error: &StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

fn reasons(barred: &[Barred]) -> String {
    barred.iter().map(|barred| barred.reason.as_str()).collect::<Vec<_>>().join(" ")
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
