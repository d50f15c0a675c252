//! Checks whether a job's needs can ever be as fresh as required.

use fencepost_core::barrier::When;
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;

use crate::calendar;
use crate::config::{Config, ConfigNeed, Mistake};
use crate::options::JobOptions;

/// How many slots are examined.
const SLOTS: usize = 30;

/// Warns about each need that is not met at any of the coming slots.
pub fn never_fresh(config: &Config, now: Wall) -> Vec<Mistake> {
    let needs =
        config.jobs.iter().flat_map(|(name, job)| job.needed().iter().map(move |need| (name.as_str(), job, need)));
    needs.filter_map(|(name, job, need)| judge(config, name, job, need, now)).collect()
}

fn judge(config: &Config, name: &str, job: &JobOptions, need: &ConfigNeed, now: Wall) -> Option<Mistake> {
    let upstream = config.jobs.get(&need.job.value.name)?;
    let (mine, theirs) = (schedule(config, job)?, schedule(config, upstream)?);
    let slots: Vec<Wall> = mine.forward(now).take(SLOTS).collect();
    let never = |is_met: &dyn Fn(Wall, Wall) -> bool| {
        !slots.is_empty() && !slots.iter().any(|slot| theirs.at_or_before(*slot).is_some_and(|due| is_met(*slot, due)))
    };
    let day = |at: Wall| mine.zone().date(at);
    let why = match need.rule() {
        When::SameSlot if never(&|slot, due| slot == due) => "is never due at the same instant",
        When::SameDay if never(&|slot, due| day(slot) == day(due)) => "is never due before it on the same day",
        When::Within(length) if never(&|slot, due| slot.since(due) <= length) => "is never due so shortly before it",
        When::SameSlot | When::SameDay | When::LastDue
            if job.needs_wait.is_none() && never(&|slot, due| slot != due) =>
        {
            let message = format!("{name} is always due at the same instant as {}, which it needs.", need.job.value);
            let hint = "Give it \"needs_wait\", or let it be due later.".to_string();
            return Some(Mistake::at(&need.job, message, Some(hint)));
        }
        _ => return None,
    };
    let at = need.when.as_ref().map_or_else(|| need.job.with(()), |when| when.with(()));
    let message = format!("{name} can never proceed: {} {why}.", need.job.value);
    Some(Mistake::at(&at, message, Some("Change one of the schedules, or how fresh it must be.".to_string())))
}

fn schedule(config: &Config, job: &JobOptions) -> Option<Schedule> {
    calendar::written_schedule(job, &calendar::written_zone(config, job).ok()?).ok()?
}
