//! How a state is shown: always a colour, a symbol and a word.

use fencepost_core::ledger::Status;
use fencepost_view::attention::AttentionReason;
use fencepost_view::status::{JobState, JobStatus};
use fencepost_view::vocabulary::StatusSymbol;
use maud::{Markup, html};

/// A state on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Face {
    /// The class that colours it.
    pub class: &'static str,
    pub symbol: char,
    pub word: &'static str,
}

impl Face {
    /// What became of a slot. The symbols are those of `status`.
    pub fn of_status(status: Status) -> Self {
        let class = class_of(status);
        let word = if class == "skipped" { class } else { status.as_str() };
        Self { class, symbol: StatusSymbol::of(status).unicode, word }
    }

    /// Why something needs attention.
    pub fn of_reason(reason: AttentionReason) -> Self {
        let status = match reason {
            AttentionReason::Fenced => Status::Fenced,
            AttentionReason::Lost => Status::Lost,
            AttentionReason::Error => Status::Error,
            AttentionReason::Timeout => Status::Timeout,
            AttentionReason::Halted => Status::Halted,
            AttentionReason::Missed => Status::Missed,
            AttentionReason::Overdue => return Self { class: "bad", symbol: '!', word: "overdue" },
            AttentionReason::Skips => return Self { class: "halted", symbol: '»', word: "skipped" },
            AttentionReason::Sealed => return Self { class: "bad", symbol: '!', word: "sealed" },
            AttentionReason::Unreadable => return Self { class: "bad", symbol: '!', word: "unreadable" },
            AttentionReason::Misconfigured => return Self { class: "bad", symbol: '!', word: "misconfigured" },
        };
        Self::of_status(status)
    }

    /// How a job stands: what it does now, or else why it needs attention, or else how it last ended.
    pub fn of_job(job: &JobStatus, reason: Option<AttentionReason>) -> Self {
        let idle = |symbol, word| Self { class: "idle", symbol, word };
        match job.state {
            JobState::Running => Self::of_status(Status::Running),
            JobState::Held => Self { class: "running", symbol: '✋', word: "held" },
            _ if !job.enabled => idle('−', "disabled"),
            JobState::Paused => idle('−', "paused"),
            JobState::Lost => Self::of_status(Status::Lost),
            JobState::Free | JobState::NeverRan => match (reason, &job.last) {
                (Some(reason), _) => Self::of_reason(reason),
                (None, Some(last)) => Self::of_status(last.status),
                (None, None) => idle('–', "never ran"),
            },
        }
    }

    /// The symbol on its colour. The word stands beside it, so that a screen reader skips this.
    pub fn dot(self) -> Markup {
        html! { span class={ "dot " (self.class) } aria-hidden="true" { (self.symbol) } }
    }

    /// The word in its colour.
    pub fn text(self) -> Markup {
        html! { span class={ "word " (self.class) } { (self.word) } }
    }

    /// Symbol and word.
    pub fn whole(self) -> Markup {
        html! { span.face { (self.dot()) " " (self.text()) } }
    }
}

/// The class that colours a status.
pub fn class_of(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Empty => "empty",
        Status::Error | Status::Timeout | Status::Lost => "bad",
        Status::Fenced => "fenced",
        Status::Halted => "halted",
        Status::Missed => "missed",
        Status::Running => "running",
        Status::SkippedOverlap | Status::SkippedBarrier | Status::SkippedDuplicate | Status::SkippedPaused => "skipped",
    }
}
