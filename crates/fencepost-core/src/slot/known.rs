//! The known slots of a record: how each ended, and how many attempts it has had.

use alloc::vec::Vec;

use super::{LeaseState, NotNow};
use crate::ledger::{Covered, Ledger, Outcome, Status};
use crate::plan::{PlanRules, SlotState};
use crate::record::Record;
use crate::schedule::Schedule;
use crate::time::Wall;

/// The most slots that one run is found to have overlapped. Older ones are accounted for by other means.
const OVERLAPPED_MAX: usize = 64;

/// The status of a done slot.
pub(super) fn done(record: &Record, slot: Wall) -> Option<Status> {
    let newest = record.ledger.attempts(slot).last().map(|newest| newest.status);
    newest.filter(|status| matches!(status, Status::Ok | Status::Empty))
}

/// The newest outcome of a slot: its own, else that of a run that covered it.
pub(super) fn newest(ledger: &Ledger, slot: Wall) -> Option<&Outcome> {
    let stands_for = |outcome: &&Outcome| outcome.status != Status::Missed && outcome.is_within(slot, slot);
    ledger.attempts(slot).last().or_else(|| ledger.ring.iter().rev().find(stands_for))
}

/// The failure of a slot whose attempts are used up.
pub(super) fn failed(record: &Record, slot: Wall) -> NotNow {
    let mut newest_first = record.ledger.ring.iter().rev();
    let newest = newest_first.find(|outcome| outcome.status.is_failure() && outcome.is_within(slot, slot));
    let (state, exit_code) = newest.map_or((Status::Error, 1), |newest| (newest.status, newest.failure_code()));
    NotNow::Failed { slot, state, exit_code }
}

/// How many attempts a slot has had; of several slots, the highest count.
pub(crate) fn tries<R: PlanRules>(ledger: &Ledger, slot: Wall, covers: Option<Covered>) -> u32 {
    let Some(covers) = covers else { return ledger.tries(|outcome| R::counts_for(outcome, slot, slot)) };
    // A slot that was already done is not covered by the run.
    let is_done = |slot| ledger.attempts(slot).last().is_some_and(|last| SlotState::of(last.status, true).is_done());
    let is_covered = |outcome: &Outcome| outcome.covers.is_some() || !is_done(outcome.slot);
    ledger.tries(|outcome| R::counts_for(outcome, covers.from, covers.to) && is_covered(outcome))
}

/// The last known state of each slot in the record.
pub(super) fn known<R: PlanRules>(
    record: Option<&Record>,
    lease: LeaseState,
    schedule: &Schedule,
    retries: u32,
) -> Vec<(Wall, SlotState)> {
    let Some(record) = record else { return Vec::new() };
    let mut known: Vec<(Wall, SlotState)> = Vec::new();
    let mut note = |slot: Wall, state: SlotState| {
        known.retain(|(other, _)| *other != slot);
        known.push((slot, state));
    };
    for outcome in &record.ledger.ring {
        for slot in overlapped::<R>(outcome, schedule) {
            note(slot, SlotState::Done);
        }
    }
    let is_spent = |slot| R::is_spent(tries::<R>(&record.ledger, slot, None), retries);
    for outcome in record.ledger.ring.iter().filter(|outcome| outcome.status != Status::Missed) {
        note(outcome.slot, SlotState::of(outcome.status, is_spent(outcome.slot)));
    }
    if let Some(held) = record.lease.as_ref().filter(|_| is_run(record)) {
        let status = if lease == LeaseState::Over { Status::Lost } else { Status::Running };
        note(held.slot, SlotState::of(status, is_spent(held.slot)));
    }
    known
}

/// The last slot of a collapsed run that failed for good, if every slot between it and `evaluated` is accounted for.
/// Only this outcome accounts for the slots it covered.
pub(super) fn past_failures<R: PlanRules>(
    ledger: &Ledger,
    schedule: &Schedule,
    known: &[(Wall, SlotState)],
    evaluated: Wall,
    retries: u32,
) -> Option<Wall> {
    let is_spent = |covers: &Covered| R::is_spent(tries::<R>(ledger, covers.from, None), retries);
    let is_failure = |outcome: &&Outcome| SlotState::of(outcome.status, true) == SlotState::Failed;
    let covered = ledger.ring.iter().filter(is_failure).filter_map(|outcome| outcome.covers).filter(is_spent);
    let ranges: Vec<Covered> = covered.collect();
    let is_closed = |slot: Wall| known.iter().any(|(other, state)| *other == slot && !R::is_due(Some(*state)));
    let (mut at, mut past) = (evaluated, None);
    while let Some(next) = schedule.after(at).filter(|_| !ranges.is_empty()) {
        match ranges.iter().find(|range| (range.from..=range.to).contains(&next)) {
            Some(range) => (at, past) = (range.to, Some(range.to)),
            None if is_closed(next) => at = next,
            None => break,
        }
    }
    past
}

/// The slots that passed while a run was going: their triggers were skipped, which is final. For a run that died, only
/// the time of detection is known, so it overlaps none.
fn overlapped<R: PlanRules>(outcome: &Outcome, schedule: &Schedule) -> Vec<Wall> {
    let ended = R::ended(outcome);
    if outcome.started >= ended || !outcome.status.is_of_a_run() || outcome.status == Status::Lost {
        return Vec::new();
    }
    let last = schedule.at_or_before(Wall(ended.0 - 1));
    let backwards = core::iter::successors(last, |slot| schedule.before(*slot));
    backwards.take_while(|slot| *slot > outcome.started && *slot > outcome.slot).take(OVERLAPPED_MAX).collect()
}

/// Whether the lease belongs to a run without an outcome yet.
pub(super) fn is_run(record: &Record) -> bool {
    record.lease.as_ref().is_some_and(|lease| lease.holder.is_run() && record.ledger.of_run(lease.run).is_none())
}

/// Whether the lease's run was for this slot and has died.
pub(super) fn died(record: &Record, slot: Wall, lease: LeaseState) -> bool {
    record.lease.as_ref().is_some_and(|held| is_run(record) && held.slot == slot && lease == LeaseState::Over)
}
