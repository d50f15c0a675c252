//! How a run keeps its lease while its command runs, and stops the command where it cannot.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Event, Kept, Mine, Output, Run, RunPhase, StopCause};
use crate::lease::{Intent, Me, Now, Rules};
use crate::record::Record;
use crate::time::Boot;
use crate::transition::Done;

/// How long the answer to a claim is waited for once the keeper has died. Nothing runs meanwhile.
const KEEPER_PATIENCE: Duration = Duration::from_secs(5);

impl<R: Rules> Run<R> {
    /// Takes over what a won claim or renewal says.
    pub(super) fn hold(&mut self, done: Done) {
        let Some(known) = done.held else { return };
        let ttl = self.terms.claim.ttl;
        let me = Me { token: known.record.token, run: Some(self.terms.claim.run) };
        let deadline = R::deadline(done.sent, ttl);
        let renew_at = done.sent + ttl / 3;
        self.last_error = None;
        self.mine = Some(Mine { me, known, reference: done.reference, deadline, renew_at });
    }

    pub(super) fn renewed(&mut self, now: Now, done: Done, out: &mut Vec<Output>) {
        self.hold(done);
        let Some(mine) = &self.mine else { return };
        let (deadline, lease) = (mine.deadline, mine.known.record.lease.clone());
        let renewals = lease.as_ref().map_or(0, |lease| lease.renewals);
        out.push(Output::Tell(Event::Renewed { renewals, deadline }));
        if self.child.frozen_since.is_some() {
            // The swap may have been sent before the long sleep. Then it says nothing about now.
            if deadline <= now.boot + self.terms.grace {
                self.renew(now, out);
                return;
            }
            self.child.frozen_since = None;
            if self.child.is_stale {
                self.start_stale(now, out);
            } else {
                out.extend([Output::Tell(Event::Thawed), Output::Thaw(deadline)]);
            }
        } else {
            out.push(Output::Extend(deadline));
        }
        if let Some(asked) = lease.and_then(|lease| lease.stop_asked).filter(|_| self.child.stopped.is_none()) {
            self.stop(StopCause::Replaced(asked), out);
        }
    }

    /// Renews now, unless the answer to an earlier try is still out.
    pub(super) fn renew(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.phase != RunPhase::Running {
            return;
        }
        if self.retry_at.is_some() {
            self.retry_at = Some(now.boot);
            self.retry_if_due(now, out);
        } else if self.transition.is_none() {
            self.start_renewal(now, out);
        }
    }

    pub(super) fn start_renewal(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Some(me) = self.mine.as_ref().map(|mine| mine.me) {
            self.start(Intent::Renew(me), now, out);
        }
    }

    pub(super) fn renewal_due(&self) -> Option<Boot> {
        if self.is_taken() {
            return None;
        }
        match (&self.transition, self.retry_at) {
            (_, Some(at)) => Some(at),
            (None, None) => self.mine.as_ref().map(|mine| mine.renew_at),
            (Some(_), None) => None,
        }
    }

    pub(super) fn tick_running(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.child.timeout_at.is_some_and(|at| now.boot >= at) && self.child.stopped.is_none() {
            self.child.timeout_at = None;
            self.stop(StopCause::Timeout, out);
        }
        if self.child.frozen_since.is_some_and(|since| now.boot >= since + self.terms.grace) {
            self.child.frozen_since = None;
            self.kill(StopCause::WokeLate, out);
            return;
        }
        if self.renewal_due().is_some_and(|at| now.boot >= at) {
            self.renew(now, out);
        }
    }

    /// Whether the record said that the lease is another's: then there is nothing left to renew or release.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.child.stopped, Some(StopCause::Taken { .. }))
    }

    pub(super) fn retry_if_due(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.retry_at.is_some_and(|at| now.boot >= at) {
            self.retry_at = None;
            self.with_transition(now, out, |t| t.again(now));
        }
    }

    /// The tree is gone with its keeper. Without a tree there may be a claim under way, whose answer is waited for: what was
    /// claimed is released, and recorded as not started.
    pub(super) fn keeper_died(&mut self, now: Now, escaped: Vec<String>, out: &mut Vec<Output>) {
        self.stopping(StopCause::KeeperDied, out);
        self.child.escaped = escaped;
        match self.phase {
            RunPhase::Waiting { .. } => self.finish_child(Kept::NoLease, out),
            RunPhase::Claiming => self.give_up_at = self.give_up_at.min(Some(now.boot + KEEPER_PATIENCE)),
            _ => self.complete(now, out),
        }
    }

    pub(super) fn frozen(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.child.frozen_since.is_some() || self.child.stopped.is_some() {
            return;
        }
        self.child.frozen_since = Some(now.boot);
        out.push(Output::Tell(Event::Frozen));
        self.renew(now, out);
    }

    pub(super) fn stopping(&mut self, why: StopCause, out: &mut Vec<Output>) {
        if self.terms.observe && why != StopCause::KeeperDied {
            return self.observed(why.status(), why.note(), out);
        }
        if self.child.stopped.is_none() {
            self.child.stopped = Some(why.clone());
            out.push(Output::Tell(Event::Stopping(why)));
        }
    }

    pub(super) fn stop(&mut self, why: StopCause, out: &mut Vec<Output>) {
        self.stopping(why, out);
        if self.child.stopped.is_some() {
            out.push(Output::Stop);
        }
    }

    pub(super) fn kill(&mut self, why: StopCause, out: &mut Vec<Output>) {
        self.stopping(why, out);
        if self.child.stopped.is_some() {
            out.push(Output::Kill);
        }
    }

    /// The lease has passed on, which replaces every other reason to stop: there is nothing left to renew, to release or
    /// to record.
    pub(super) fn taken(&mut self, record: Option<Box<Record>>, out: &mut Vec<Output>) {
        self.child.stopped = None;
        self.kill(StopCause::Taken { record }, out);
        if self.terms.observe {
            // It goes on without a lease, and has nothing left to renew.
            self.mine = None;
        }
    }
}
