//! What is done under the lease, one after the other: the command to prepare, a look at the upstreams, the job itself,
//! and a look at what it left.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Exit, Grant, Interruption, Output, Passage, Run, RunPhase, StopCause};
use crate::contract::Produced;
use crate::lease::{Now, Rules};
use crate::ledger::Status;
use crate::said::Said;
use crate::time::Boot;

/// How far a run has come. The order is the order of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stage {
    Claimed,
    Preparing,
    Inspecting,
    Working,
    Surveying,
}

impl<R: Rules> Run<R> {
    /// Begins the next stage under the lease.
    pub(super) fn advance(&mut self, now: Now, out: &mut Vec<Output>) {
        let stages = self.terms.stages;
        let timeout_at = self.terms.timeout.map(|timeout| now.boot + timeout);
        self.child.exit = None;
        if self.stage < Stage::Preparing && stages.prepare {
            self.stage = Stage::Preparing;
            self.child.timeout_at = timeout_at;
            out.push(Output::Prepare { grant: self.grant() });
        } else if self.stage < Stage::Inspecting && stages.inspect {
            self.stage = Stage::Inspecting;
            self.child.timeout_at = None;
            out.push(Output::Inspect { grant: self.grant() });
        } else {
            self.stage = Stage::Working;
            self.child.timeout_at = timeout_at;
            out.push(Output::Spawn { grant: self.grant() });
        }
    }

    /// Whether there can be processes of the job. A look at files has none, and nothing that a keeper could end.
    pub(super) fn has_tree(&self) -> bool {
        matches!(self.stage, Stage::Preparing | Stage::Working) && !self.child.is_stale
    }

    /// When a stage without processes has to end, for no keeper does it. One that waits for its lease to be confirmed
    /// waits for the grace, independent of the deadline.
    pub(super) fn own_deadline(&self) -> Option<Boot> {
        let is_waiting = self.child.frozen_since.is_some();
        let deadline = self.deadline().filter(|_| self.is_without_tree() && !is_waiting);
        deadline.map(|deadline| deadline.before(self.terms.grace))
    }

    fn is_without_tree(&self) -> bool {
        !self.has_tree() && self.stage != Stage::Claimed
    }

    /// The keeper, or the whole host, stood still between the claim and the start. The lease is confirmed first.
    pub(super) fn stale(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.phase != RunPhase::Running || self.child.stopped.is_some() {
            return;
        }
        self.child.is_stale = true;
        self.child.timeout_at = None;
        if self.lease_deadline().is_some_and(|deadline| deadline > now.boot + self.terms.grace) {
            // A renewal was confirmed meanwhile.
            return self.start_stale(now, out);
        }
        self.child.frozen_since = Some(now.boot);
        self.renew(now, out);
    }

    /// Starts the command whose order came too late, under the lease as it is now.
    pub(super) fn start_stale(&mut self, now: Now, out: &mut Vec<Output>) {
        self.child.is_stale = false;
        self.child.timeout_at = self.terms.timeout.map(|timeout| now.boot + timeout);
        let grant = self.grant();
        out.push(match self.stage {
            Stage::Preparing => Output::Prepare { grant },
            _ => Output::Spawn { grant },
        });
    }

    /// Whether the command certainly never started.
    pub(super) fn is_unstarted(&self) -> bool {
        self.stage < Stage::Working || self.child.not_spawned.is_some() || self.child.is_stale
    }

    /// Ends a stage without processes by its deadline, or because the lease is gone or wanted by another.
    pub(super) fn end_without_tree(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.phase != RunPhase::Running {
            return;
        }
        if !self.is_without_tree() {
            return;
        }
        if self.own_deadline().is_some_and(|deadline| now.boot >= deadline) {
            self.stopping(StopCause::Deadline, out);
        }
        if self.child.stopped.is_some() {
            self.complete(now, out);
        }
    }

    pub(super) fn heard(&mut self, said: Said) {
        match said {
            Said::Published(published) => self.child.published.push(published),
            Said::Recorded(recorded) => self.child.said = Some(recorded),
            Said::Gated(gated) => {
                self.child.upstreams.extend(gated.upstreams);
                self.child.barred.extend(gated.barred);
            }
            Said::OtherContent(why) => self.child.other_content = Some(why),
            Said::Hooked(_) | Said::Rehearsed(_) => {}
        }
    }

    /// Nothing of the tree is left: either that was all, or something comes next.
    pub(super) fn tree_empty(&mut self, now: Now, out: &mut Vec<Output>) {
        let stands = self.child.stopped.is_none() && self.child.escaped.is_empty();
        let refused = self.child.published.iter().any(|published| published.refused.is_some());
        self.child.frozen_since = None;
        match self.stage {
            Stage::Preparing if stands && self.interrupted.is_some() => {
                self.interrupted.into_iter().for_each(|why| self.interrupt_look(now, why, out));
            }
            Stage::Preparing if stands && self.child.exit == Some(Exit::Code(0)) => self.advance(now, out),
            Stage::Preparing if self.observes_prepare() => {
                self.child.escaped.clear();
                self.observe_unprepared(now, None, out);
            }
            Stage::Working
                if stands
                    && !refused
                    && self.child.unreadable.is_none()
                    && self.terms.stages.survey
                    && self.ended_well() =>
            {
                self.stage = Stage::Surveying;
                self.child.timeout_at = None;
                out.push(Output::Survey);
            }
            _ => self.complete(now, out),
        }
    }

    pub(super) fn inspected(&mut self, now: Now, passage: Passage, out: &mut Vec<Output>) {
        if self.phase != RunPhase::Running || self.stage != Stage::Inspecting {
            return;
        }
        match passage {
            Passage::Proceed { upstreams } => {
                self.child.upstreams = upstreams;
                return self.advance(now, out);
            }
            Passage::Skip { barred } | Passage::Halt { barred } if self.terms.observe => {
                for barred in &barred {
                    let status = if barred.halt { Status::Halted } else { Status::SkippedBarrier };
                    self.observed(status, barred.reason.clone(), out);
                }
                self.child.barred = barred;
                return self.advance(now, out);
            }
            Passage::Skip { barred } => (self.child.halt, self.child.barred) = (Some(false), barred),
            Passage::Halt { barred } => (self.child.halt, self.child.barred) = (Some(true), barred),
        }
        self.complete(now, out);
    }

    pub(super) fn surveyed(&mut self, now: Now, produced: Vec<Produced>, out: &mut Vec<Output>) {
        if self.phase == RunPhase::Running && self.stage == Stage::Surveying {
            self.child.produced = produced;
            self.complete(now, out);
        }
    }

    /// The run has to end while no command is running.
    pub(super) fn interrupt_look(&mut self, now: Now, why: Interruption, out: &mut Vec<Output>) {
        match why {
            // The command has run. Its artifacts are not known, so it did not end well.
            Interruption::Signal(signal) if self.stage == Stage::Surveying => {
                self.child.exit = Some(Exit::Signal(signal));
            }
            why => self.child.not_spawned = Some(why.unstarted()),
        }
        self.complete(now, out);
    }

    /// Whether its exit code leaves it to the artifacts to say how it ended.
    fn ended_well(&self) -> bool {
        let code = self.child.exit.map(Exit::code);
        code == Some(0) || (code.is_some() && code == self.terms.empty_exit)
    }

    fn grant(&self) -> Option<Grant> {
        let mine = self.mine.as_ref()?;
        let deadline = if self.terms.observe { Boot(u64::MAX) } else { mine.deadline };
        Some(Grant { record: Arc::clone(&mine.known.record), deadline })
    }
}
