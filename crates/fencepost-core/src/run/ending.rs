//! How a run ends: what is recorded, and what is said.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::{COMPLETION_PATIENCE, Exit, Finish, Output, Phase, Run};
use crate::lease::{Intent, Now, Rules};
use crate::ledger::{EndedBy, Ending, Status};

impl<R: Rules> Run<R> {
    /// The tree is gone: say how it ended, in the swap that releases.
    pub(super) fn complete(&mut self, now: Now, out: &mut Vec<Output>) {
        let patience = now.boot + COMPLETION_PATIENCE;
        self.phase = Phase::Completing;
        self.give_up_at = Some(self.deadline().map_or(patience, |deadline| deadline.max(patience)));
        let me = self.mine.as_ref().map(|mine| mine.me).filter(|_| !self.is_taken());
        let Some(me) = me else { return self.finish_child(self.mine.is_some(), out) };
        match &self.transition {
            // A renewal is out. Its answer comes first, for it decides what the record holds.
            Some(_) if self.retry_at.is_none() => return,
            _ => self.transition = None,
        }
        let escaped = !self.child.escaped.is_empty();
        let intent = if self.terms.leaves_outcome {
            Intent::Complete { me, ending: self.ending(), escaped }
        } else {
            Intent::Release(me)
        };
        self.start(intent, now, out);
    }

    fn ending(&self) -> Ending {
        let exit_code = self.child.exit.map(Exit::code);
        let published = self.child.published.clone();
        let refused = published.iter().find_map(|published| published.refused.as_ref());
        let (status, ended_by, note) = match (&self.child.stopped, &self.child.not_spawned, exit_code) {
            _ if refused.is_some() => {
                (Status::Fenced, EndedBy::Fencepost, refused.map(|why| format!("a publish was refused: {why}")))
            }
            (Some(why), _, _) => (why.status(), EndedBy::Fencepost, Some(why.note())),
            (None, Some(failure), _) => (Status::Error, EndedBy::Fencepost, Some(failure.text.clone())),
            (None, None, Some(0)) => (Status::Ok, EndedBy::Child, None),
            (None, None, _) => (Status::Error, EndedBy::Child, None),
        };
        let note = match self.child.escaped.as_slice() {
            [] => note,
            escaped => Some(format!("could not be ended: {}. {}", escaped.join(", "), note.unwrap_or_default())),
        };
        Ending { status, exit_code, ended_by, note, published }
    }

    pub(super) fn finish_child(&mut self, recorded: bool, out: &mut Vec<Output>) {
        let escaped = core::mem::take(&mut self.child.escaped);
        let exit = self.child.exit;
        let refused =
            core::mem::take(&mut self.child.published).into_iter().find(|published| published.refused.is_some());
        if let Some(refused) = refused {
            let recorded = recorded && !self.is_taken();
            let finish = Finish::Fenced { exit, refused: Box::new(refused), recorded, escaped };
            return self.finish(finish, out);
        }
        let finish = match (self.child.stopped.take(), self.child.not_spawned.take(), self.interrupted) {
            (Some(why), _, _) => Finish::Stopped { why, exit, recorded, escaped },
            (None, Some(_), Some(signal)) => Finish::Interrupted(signal),
            (None, Some(failure), None) => Finish::NotSpawned(failure),
            (None, None, _) => {
                let exit = exit.unwrap_or(Exit::Code(125));
                match (&self.mine, recorded) {
                    (None, _) => Finish::WithoutLease { exit, escaped },
                    (Some(_), true) => Finish::Ended { exit, escaped },
                    (Some(_), false) => Finish::Unrecorded { exit, error: self.last_error.take(), escaped },
                }
            }
        };
        self.finish(finish, out);
    }
}
