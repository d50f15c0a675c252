//! Slots that passed with nothing recorded by any machine: the trigger of the job is gone.

use crate::ledger::Outcome;
use crate::plan::{AHEAD_MAX, Gap};
use crate::record::Record;
use crate::schedule::Schedule;
use crate::slot::LeaseState;
use crate::time::Wall;

/// The slots up to `by` with nothing recorded, after the newest slot with a record.
///
/// A run records the slots missed before it, so older gaps are not searched. A slot is accounted for if it is running,
/// has ended, was missed, or passed while a run was going. If the record does not know this schedule, no slot before
/// `floor` is expected.
pub fn overdue(schedule: &Schedule, record: Option<&Record>, lease: LeaseState, floor: Wall, by: Wall) -> Option<Gap> {
    let held = record.is_some_and(|record| record.lease.is_some());
    if held && lease == LeaseState::Stands {
        return None;
    }
    let fingerprint = schedule.fingerprint();
    let known = record.and_then(|record| record.timing.as_ref()).filter(|timing| timing.fingerprint == fingerprint);
    let since = known.map_or(floor, |timing| timing.since);
    let evaluated = known.and_then(|timing| timing.evaluated);
    // A mark far in the future comes from a wrong clock and is ignored.
    let marks = [Some(just_before(since)), evaluated].into_iter().flatten().filter(|mark| *mark <= by + AHEAD_MAX);
    let ring = record.into_iter().flat_map(|record| &record.ledger.ring);
    let ring = ring.filter_map(|outcome| covered(schedule, outcome, by));
    let accounted = marks.chain(ring).max().unwrap_or(just_before(by));
    let from = schedule.after(accounted).filter(|from| *from <= by)?;
    Some(Gap { from, to: schedule.at_or_before(by)?, count: schedule.count(accounted, by) })
}

/// The newest slot of the schedule that an outcome accounts for. A run that seems to end far in the future was timed by
/// a wrong clock; it accounts for no later slot.
fn covered(schedule: &Schedule, outcome: &Outcome, by: Wall) -> Option<Wall> {
    let newest = outcome.covers.map_or(outcome.slot, |covers| covers.to.max(outcome.slot));
    let own = Some(newest).filter(|slot| schedule.at_or_before(*slot) == Some(*slot));
    let ended = Some(outcome.ended()).filter(|ended| *ended <= by + AHEAD_MAX);
    let last = ended.and_then(|ended| schedule.at_or_before(just_before(ended)));
    let overlapped = last.filter(|slot| outcome.status.is_of_a_run() && *slot > outcome.started);
    own.max(overlapped)
}

fn just_before(at: Wall) -> Wall {
    Wall(at.0.saturating_sub(1))
}
