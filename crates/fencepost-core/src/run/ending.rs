//! How a run ends: what is recorded, and what is said.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{COMPLETION_PATIENCE, Event, Exit, Finish, Interruption, Kept, Output, Run, RunPhase, Stage, StopCause};
use crate::contract::{Breach, Judgement, judge};
use crate::lease::{Intent, Now, Rules};
use crate::ledger::{Barred, EndedBy, Ending, Status};
use crate::register::{Fate, StoreError, Trouble};

impl<R: Rules> Run<R> {
    /// The tree is gone: say how it ended, in the swap that releases.
    pub(super) fn complete(&mut self, now: Now, out: &mut Vec<Output>) {
        let patience = now.boot + COMPLETION_PATIENCE;
        self.phase = RunPhase::Completing;
        self.give_up_at = Some(self.deadline().map_or(patience, |deadline| deadline.max(patience)));
        let me = self.mine.as_ref().map(|mine| mine.me).filter(|_| !self.is_taken());
        let Some(me) = me else {
            // A lease that passed on: the run that took it over has recorded the end of this one.
            let kept = if self.mine.is_some() { Kept::Recorded } else { Kept::NoLease };
            return self.finish_child(kept, out);
        };
        if self.is_over_for_good() {
            return self.finish_child(Kept::NoLease, out);
        }
        match &self.transition {
            // A renewal is out. Its answer comes first, for it decides what the record holds.
            Some(_) if self.retry_at.is_none() => return,
            _ => self.transition = None,
        }
        let escaped = !self.child.escaped.is_empty();
        self.tell_if_stuck(now, out);
        let intent = if self.terms.claim.holder.by_hand {
            Intent::Release(me)
        } else {
            Intent::Complete { me, ending: self.ending(now), escaped }
        };
        self.start(intent, now, out);
    }

    /// A lease that was only held has reached its deadline. There is nothing to record and it ends by itself. Its
    /// caller has to know before another run holds it, also if the store does not answer.
    fn is_over_for_good(&self) -> bool {
        self.terms.claim.holder.by_hand && self.child.stopped == Some(StopCause::Deadline)
    }

    fn ending(&self, now: Now) -> Ending {
        let exit_code = self.child.exit.map(Exit::code);
        let refused = self.child.published.iter().find_map(|published| published.refused.as_ref());
        let by_us = |status| Ending::new(status, EndedBy::Fencepost);
        let ending = match (&self.child.stopped, &self.child.not_spawned, self.child.halt) {
            _ if refused.is_some() => {
                let why = refused.map_or("", |why| why.as_str());
                by_us(Status::Fenced).with_note(format!("a publish was refused: {why}"))
            }
            (Some(why), _, _) if self.is_unstarted() => by_us(why.status()).with_note(why.note_unstarted()),
            (Some(why), _, _) => by_us(why.status()).with_note(why.note()),
            // Nothing ran, which the code says that a shell would show.
            (None, Some(failure), _) => Ending {
                exit_code: match self.interrupted {
                    Some(Interruption::Signal(signal)) => Some(Exit::Signal(signal).code()),
                    Some(Interruption::GivenUp) => None,
                    None if failure.not_found => Some(127),
                    None => Some(126),
                },
                ..by_us(Status::Error).with_note(failure.text.clone())
            },
            (None, None, Some(halt)) => {
                let status = if halt { Status::Halted } else { Status::SkippedBarrier };
                by_us(status).with_note(reasons(&self.child.barred))
            }
            (None, None, None) => {
                let Judgement { status, ended_by, note, artifacts, .. } = self.judgement();
                Ending { note, artifacts, ..Ending::new(status, ended_by) }
            }
        };
        let note = match self.observed.as_slice() {
            [] => ending.note.clone(),
            observed => Some(format!("observed: {}. {}", observed.join("; "), ending.note.clone().unwrap_or_default())),
        };
        let ending = Ending { note, ..ending };
        let note = match self.child.escaped.as_slice() {
            [] => ending.note,
            escaped => Some(format!("could not be ended: {}. {}", escaped.join(", "), ending.note.unwrap_or_default())),
        };
        Ending {
            note,
            exit_code: exit_code.or(ending.exit_code),
            unstarted: self.is_unstarted(),
            took: self.began.map(|began| now.boot.since(began)),
            cut_short: self.is_cut_short(ending.status),
            upstreams: self.child.upstreams.clone(),
            barred: self.child.barred.clone(),
            published: self.child.published.clone(),
            definition: self.child.definition.clone().filter(|_| ending.status.is_good()),
            ..ending
        }
    }

    /// Whether the command did not come to an end that says something about it. Its own exit, the timeout and the fence
    /// do.
    fn is_cut_short(&self, status: Status) -> bool {
        let has_run = self.stage >= Stage::Working && self.child.not_spawned.is_none();
        let is_stopped = self.child.stopped.is_some() && !matches!(status, Status::Timeout | Status::Fenced);
        !has_run || is_stopped || self.child.is_interrupted
    }

    /// How the child is judged, which ended by itself.
    fn judgement(&self) -> Judgement {
        let code = self.child.exit.map_or(125, Exit::code);
        if self.stage == Stage::Preparing {
            let note = format!("the command to prepare failed with exit code {code}");
            return Judgement { note: Some(note), ..judge(code, None, None, &[], &[]) };
        }
        if let (Stage::Surveying, Some(Interruption::Signal(signal))) = (self.stage, self.interrupted) {
            let note = format!("interrupted by signal {signal} while its artifacts were looked at");
            return Judgement { note: Some(note), ended_by: EndedBy::Fencepost, ..judge(code, None, None, &[], &[]) };
        }
        if let Some(why) = &self.child.unreadable {
            // A refused publish may be missing in it, so that the run cannot be said to have ended well.
            let failed = judge(125, None, None, &[], &[]);
            return Judgement { note: Some(why.clone()), ended_by: EndedBy::Fencepost, ..failed };
        }
        if let Some(why) = &self.child.other_content {
            return Judgement::of(Breach::OtherContent, why.clone());
        }
        let last_ok = self.mine.as_ref().and_then(|mine| mine.known.record.ledger.last_ok.as_ref());
        let before = last_ok.map_or(&[][..], |last| &last.artifacts);
        let judged = judge(code, self.terms.empty_exit, self.child.said.as_ref(), &self.child.produced, before);
        let is_unreported = self.terms.must_record && self.child.said.is_none() && judged.status == Status::Ok;
        if is_unreported { Judgement::unreported() } else { judged }
    }

    /// Says so if the artifacts have been the same for long.
    fn tell_if_stuck(&self, now: Now, out: &mut Vec<Output>) {
        let (Some(after), Some(mine)) = (self.terms.stuck_after, &self.mine) else { return };
        let ending = self.ending(now);
        let count = mine.known.record.ledger.repeats(&ending.artifacts) + 1;
        if ending.status == Status::Ok && !ending.artifacts.is_empty() && count >= after {
            out.push(Output::Tell(Event::Stuck { count }));
        }
    }

    /// What the store has left open about the last swap, once it is given up.
    pub(super) fn completion_error(&mut self) -> StoreError {
        let silent = || StoreError::not_done(Trouble::Unavailable, "The store did not answer.");
        let error = self.last_error.take().unwrap_or_else(silent);
        match &self.transition {
            // A renewal is still out, so the last swap was never sent.
            Some(transition) if !transition.completes() => StoreError { fate: Fate::NotDone, ..error },
            Some(_) if self.retry_at.is_none() => StoreError { fate: Fate::Unknown, ..error },
            _ => error,
        }
    }

    pub(super) fn finish_child(&mut self, kept: Kept, out: &mut Vec<Output>) {
        let escaped = core::mem::take(&mut self.child.escaped);
        let exit = self.child.exit;
        let refused =
            core::mem::take(&mut self.child.published).into_iter().find(|published| published.refused.is_some());
        if let Some(refused) = refused {
            let recorded = if self.is_taken() { Kept::NoLease } else { kept };
            let finish = Finish::Fenced { exit, refused: Box::new(refused), recorded, escaped };
            return self.finish(finish, out);
        }
        let started = !self.is_unstarted();
        let judgement = Box::new(self.judgement());
        let finish = match (self.child.stopped.take(), self.child.not_spawned.take(), self.interrupted) {
            (Some(why), _, _) => Finish::Stopped { why, started, exit, recorded: kept, escaped },
            (None, Some(_), Some(why)) => why.finish(kept),
            (None, Some(failure), None) => Finish::NotSpawned(failure),
            (None, None, _) if self.child.halt.is_some() => {
                let (halt, barred) = (self.child.halt == Some(true), core::mem::take(&mut self.child.barred));
                Finish::Barred { halt, barred, recorded: if self.mine.is_some() { kept } else { Kept::NoLease } }
            }
            (None, None, _) => {
                let exit = exit.unwrap_or(Exit::Code(125));
                match (&self.mine, kept) {
                    (None, _) => Finish::WithoutLease { exit, judgement, escaped },
                    (Some(_), Kept::Failed(error)) => Finish::Unrecorded { exit, error, escaped },
                    (Some(_), _) => Finish::Ended { exit, judgement, escaped },
                }
            }
        };
        self.finish(finish, out);
    }
}

/// What every upstream said that kept the run from working.
fn reasons(barred: &[Barred]) -> String {
    barred.iter().map(|barred| barred.reason.as_str()).collect::<Vec<_>>().join(" ")
}
