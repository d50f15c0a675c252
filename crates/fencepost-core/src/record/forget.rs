//! Forgetting a job: what goes, and what stays so that no token goes back and no slot runs again.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Record;
use crate::format::Unknown;
use crate::ledger::{Ledger, Outcome, Status};
use crate::time::Wall;
use crate::token::Token;

/// When a job was forgotten. Outcomes up to its token stay only as long as slots need them, and no answer shows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forgotten {
    pub at: Wall,
    /// The highest token granted until then.
    pub token: Token,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record {
    /// Removes the outcomes and their counts. The token and how far the schedule was evaluated stay, and of the outcomes
    /// those that alone tell that a slot needs no run: how they ended, and nothing else. Of a `once` item nothing stays but
    /// its token, so that its effect is allowed again.
    pub fn forget(&mut self, at: Wall) {
        let newest = self.attempted().map(|outcome| outcome.slot).max();
        let is_once = self.job.is_once();
        let ring = core::mem::take(&mut self.ledger.ring);
        let kept = ring.into_iter().filter(|outcome| !is_once && self.needs(outcome, newest)).map(Outcome::bare);
        let kept: Vec<Outcome> = kept.collect();
        // A slot up to here that is named by its time is not taken for one that never ran.
        let given_up = if is_once { None } else { self.ledger.given_up.max(newest) };
        let unknown = core::mem::take(&mut self.ledger.unknown);
        self.ledger = Ledger { ring: kept, given_up, unknown, ..Ledger::default() };
        self.upstreams.clear();
        self.definition = None;
        if is_once {
            self.params = None;
        }
        self.forgotten = Some(Forgotten { at, token: self.token, unknown: Unknown::default() });
    }

    fn attempted(&self) -> impl Iterator<Item = &Outcome> {
        self.ledger.ring.iter().filter(|outcome| outcome.status != Status::Missed)
    }

    /// Whether an outcome alone tells of a slot that it needs no run: one that is not accounted for yet, or the newest. A run
    /// also settles the slots that it covered, and those that passed while it was going.
    fn needs(&self, outcome: &Outcome, newest: Option<Wall>) -> bool {
        let covered = outcome.covers.map_or(outcome.slot, |covers| covers.to.max(outcome.slot));
        let reaches = covered.max(outcome.finished).max(outcome.ended());
        let is_open =
            self.timing.as_ref().is_some_and(|timing| Some(reaches) > timing.evaluated.max(Some(timing.since)));
        is_open || (Some(outcome.slot) == newest && outcome.status != Status::Missed)
    }

    /// Whether the job was forgotten and has not run since: no list shows it.
    pub fn is_hidden(&self) -> bool {
        self.lease.is_none() && self.forgotten.as_ref().is_some_and(|forgotten| forgotten.token == self.token)
    }

    /// Whether an outcome is from before the job was forgotten.
    pub fn has_forgotten(&self, outcome: &Outcome) -> bool {
        self.forgotten.as_ref().is_some_and(|forgotten| outcome.token <= forgotten.token)
    }

    /// The record without the outcomes that are forgotten, for every answer and for the barrier. Slots are judged by all.
    pub fn remembered(&self) -> Cow<'_, Self> {
        if !self.ledger.ring.iter().any(|outcome| self.has_forgotten(outcome)) {
            return Cow::Borrowed(self);
        }
        let mut record = self.clone();
        record.ledger.ring.retain(|outcome| !self.has_forgotten(outcome));
        Cow::Owned(record)
    }
}
