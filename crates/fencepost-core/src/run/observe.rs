//! A run that is only observed: everything is decided and recorded, and nothing is skipped, halted or stopped.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Event, Exit, Kept, Output, Run, Stage, StopCause};
use crate::lease::{Now, Refusal, Rules};
use crate::ledger::Status;
use crate::register::StoreError;

impl<R: Rules> Run<R> {
    /// The claim was refused. That is said, and the job runs without a lease.
    pub(super) fn observe_refusal(&mut self, now: Now, refusal: &Refusal, out: &mut Vec<Output>) {
        let (status, reason) = match refusal {
            Refusal::NotNow { why, .. } => (why.status(), why.words()),
            Refusal::Held { .. } => (Status::SkippedOverlap, format!("{refusal}")),
            other => (Status::Error, format!("{other}")),
        };
        self.observed(status, reason, out);
        self.begin_without_lease(now, out);
    }

    /// The store failed before there was a lease. That is said, and the job runs without one.
    pub(super) fn observe_failure(&mut self, now: Now, error: &StoreError, out: &mut Vec<Output>) {
        self.observed(Status::Error, format!("{error}"), out);
        self.begin_without_lease(now, out);
    }

    /// The command to prepare failed, or could not be started. The job starts all the same.
    pub(super) fn observe_unprepared(&mut self, now: Now, why: Option<String>, out: &mut Vec<Output>) {
        let code = self.child.exit.map_or(0, Exit::code);
        let reason = why.unwrap_or_else(|| format!("the command to prepare failed with exit code {code}"));
        self.observed(Status::Error, reason, out);
        self.advance(now, out);
    }

    /// Whether a failure belongs to the command to prepare of a run that is only observed.
    pub(super) fn observes_prepare(&self) -> bool {
        self.terms.observe && self.stage == Stage::Preparing && self.interrupted.is_none()
    }

    /// Notes what would have been done. The same is said once, though every renewal may find it.
    pub(super) fn observed(&mut self, status: Status, reason: String, out: &mut Vec<Output>) {
        let line = format!("{status}: {reason}");
        if self.observed.contains(&line) {
            return;
        }
        self.observed.push(line);
        out.push(Output::Tell(Event::Observed { status, reason }));
    }

    /// The last swap found that the lease is another's, so that it recorded nothing.
    pub(super) fn lost_at_the_end(&mut self, why: StopCause, out: &mut Vec<Output>) {
        if self.terms.observe {
            self.observed(why.status(), why.note(), out);
            self.mine = None;
        } else {
            self.child.stopped.get_or_insert(why);
        }
        self.finish_child(Kept::Recorded, out);
    }

    /// The store could not be told how a run ended. One that is only observed ends with its own exit code all the same.
    pub(super) fn give_up_completion(&mut self, out: &mut Vec<Output>) {
        let error = self.completion_error();
        if self.terms.observe && self.mine.is_some() {
            self.observed(Status::Lost, format!("its end could not be recorded: {}", error.detail), out);
            self.mine = None;
        }
        let kept = if self.mine.is_some() { Kept::Failed(error) } else { Kept::NoLease };
        self.finish_child(kept, out);
    }
}
