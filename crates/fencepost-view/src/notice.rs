//! Which ends of runs are worth a notification.
//!
//! The outcomes in the job's record decide, and all hosts share that record: one message when a failure streak begins,
//! reminders while it lasts, one message when it is over. So no notification needs a write to the store, and two hosts
//! that take turns at a job send one message per streak together. Ends that no record holds are judged from a note on the
//! host ([`UnrecordedTrouble`]): there each host sends its own.

use std::time::Duration;

use fencepost_core::ledger::{Ledger, Outcome, Status};
use fencepost_core::time::Wall;
use fencepost_core::token::RunId;
use serde::{Deserialize, Serialize};

/// The part of a reminder's period by which a run may come early: a daily job does not end at the same second each day.
const EARLY_PART: u32 = 20;

/// A run that has ended, and the outcomes of its job.
#[derive(Clone, Copy, Debug)]
pub struct EndedRun<'a> {
    pub ledger: &'a Ledger,
    pub run: RunId,
    /// Failed attempts of the same trigger: no notification was sent for them.
    pub retries: u32,
    /// The end of the run, if the ring does not hold it.
    pub now: Wall,
}

/// What to tell about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// A streak has begun.
    First,
    /// The streak still lasts.
    Reminder(TroubleSince),
    Silent,
}

/// When a failure streak began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TroubleSince {
    pub at: Wall,
    /// The beginning is in the ring. Otherwise it was earlier.
    pub is_exact: bool,
}

/// A success after a failure streak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How the run before ended.
    pub before: Status,
    pub since: TroubleSince,
    pub down: Duration,
}

impl EndedRun<'_> {
    /// What to tell about this failed run: `status` is its own. Failures from before `configured` may have had no
    /// recipients: these are told with the next one.
    pub fn failure(&self, status: Status, remind: Option<Duration>, configured: Wall) -> Telling {
        let before = self.streak_before();
        let mut alike = before.iter().filter(|outcome| is_halt(outcome.status) == is_halt(status)).peekable();
        if alike.peek().is_none() {
            return Telling::First;
        }
        if alike.all(|outcome| outcome.ended() < configured) {
            return self.since(&before).map_or(Telling::First, Telling::Reminder);
        }
        let (Some(remind), Some(last)) = (remind.filter(|remind| !remind.is_zero()), before.first()) else {
            return Telling::Silent;
        };
        let Some(since) = self.since(&before) else { return Telling::Silent };
        // The ring of a long streak no longer holds its beginning. Any fixed instant before it does for counting periods.
        let anchor = match since.is_exact {
            true => since.at,
            false => self.ledger.last_ok.as_ref().map_or(Wall(0), Outcome::ended),
        };
        let periods = |at: Wall| (at.since(anchor) + remind / EARLY_PART).as_millis() / remind.as_millis().max(1);
        match periods(self.at()) > periods(last.ended()) {
            true => Telling::Reminder(since),
            false => Telling::Silent,
        }
    }

    /// The recovery that this good run is, if the run before it failed.
    pub fn recovery(&self) -> Option<Recovery> {
        let before = self.streak_before();
        let since = self.since(&before)?;
        Some(Recovery { before: before.first()?.status, since, down: self.at().since(since.at) })
    }

    fn place(&self) -> Option<usize> {
        self.ledger.ring.iter().rposition(|outcome| outcome.run == self.run && outcome.status.is_of_a_run())
    }

    fn at(&self) -> Wall {
        self.place().map_or(self.now, |place| self.ledger.ring[place].ended())
    }

    /// The outcomes before this run, newest first. Missed slots and skips say nothing about the job.
    fn before(&self) -> Vec<&Outcome> {
        let ring = &self.ledger.ring;
        let place = self.place();
        let slot = place.map(|place| ring[place].slot);
        let mut retries = self.retries;
        let before = ring[..place.unwrap_or(ring.len())].iter().rev().filter(|outcome| is_judged(outcome));
        let before = before.skip_while(|outcome| {
            let is_retry = Some(outcome.slot) == slot && retries > 0;
            retries = retries.saturating_sub(1);
            is_retry
        });
        before.collect()
    }

    /// The failures in a row right before this run, newest first.
    fn streak_before(&self) -> Vec<&Outcome> {
        self.before().into_iter().take_while(|outcome| !outcome.status.is_good()).collect()
    }

    fn since(&self, streak: &[&Outcome]) -> Option<TroubleSince> {
        since(self.ledger, streak, self.before().len())
    }
}

/// The failures in a row up to now, if the last run failed: how the newest ended, how many there are, and since when.
pub fn trouble(ledger: &Ledger) -> Option<(Status, usize, TroubleSince)> {
    let judged: Vec<&Outcome> = ledger.ring.iter().rev().filter(|outcome| is_judged(outcome)).collect();
    let streak: Vec<&Outcome> = judged.iter().copied().take_while(|outcome| !outcome.status.is_good()).collect();
    Some((streak.first()?.status, streak.len(), since(ledger, &streak, judged.len())?))
}

/// Whether an outcome says something about the job. Missed slots and skips do not.
fn is_judged(outcome: &Outcome) -> bool {
    outcome.status.is_of_a_run() && !matches!(outcome.status, Status::SkippedBarrier | Status::Running)
}

/// When a streak began, newest first, of so many outcomes in the ring.
fn since(ledger: &Ledger, streak: &[&Outcome], judged: usize) -> Option<TroubleSince> {
    let is_exact = ledger.given_up.is_none() || judged > streak.len();
    Some(TroubleSince { at: streak.last()?.ended(), is_exact })
}

/// Halts and errors have recipients of their own, so a streak may send one message of each.
fn is_halt(status: Status) -> bool {
    status == Status::Halted
}

/// A streak of failures that no record holds, because the store or the configuration failed. It is kept on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnrecordedTrouble {
    pub since: Wall,
    /// When the last message was sent.
    pub told: Wall,
}

impl UnrecordedTrouble {
    /// What to tell about another such failure, and what to keep if anything is told.
    pub fn next(known: Option<Self>, now: Wall, remind: Option<Duration>) -> (Telling, Self) {
        let Some(known) = known else { return (Telling::First, Self { since: now, told: now }) };
        let is_due =
            remind.is_some_and(|remind| !remind.is_zero() && now.since(known.told) + remind / EARLY_PART >= remind);
        match is_due {
            true => (Telling::Reminder(known.trouble()), Self { told: now, ..known }),
            false => (Telling::Silent, known),
        }
    }

    pub fn trouble(&self) -> TroubleSince {
        TroubleSince { at: self.since, is_exact: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::ledger::{EndedBy, RING_OUTCOMES_MAX, Trigger};

    const HOUR: i64 = 3_600_000;
    const DAY: Option<Duration> = Some(Duration::from_secs(24 * 3600));

    fn outcome(number: usize, at: i64, status: Status) -> Outcome {
        serde_json::from_value(serde_json::json!({
            "slot": at, "zone": "UTC", "status": status, "token": number + 1, "run": RunId(uuid::Uuid::from_u128(number as u128)),
            "host": if number.is_multiple_of(2) { "a" } else { "b" }, "trigger": Trigger::Schedule, "started": at, "finished": at,
            "ended_by": EndedBy::Child,
        }))
        .unwrap()
    }

    /// What is told at the end of each run, in turn on two hosts: `!` first, `r` reminder, `+` recovery, `.` nothing.
    fn told(every: i64, statuses: &[Status], remind: Option<Duration>) -> String {
        let mut ledger = Ledger::default();
        let tell = |(number, status): (usize, &Status)| {
            ledger.push(outcome(number, number as i64 * every, *status));
            while ledger.ring.len() > RING_OUTCOMES_MAX {
                ledger.give_up(0);
            }
            let run = EndedRun {
                ledger: &ledger,
                run: RunId(uuid::Uuid::from_u128(number as u128)),
                retries: 0,
                now: Wall(0),
            };
            match status.is_good() {
                true => run.recovery().map_or('.', |_| '+'),
                false => match run.failure(*status, remind, Wall(0)) {
                    Telling::First => '!',
                    Telling::Reminder(_) => 'r',
                    Telling::Silent => '.',
                },
            }
        };
        statuses.iter().enumerate().map(tell).collect()
    }

    use Status::{Empty, Error, Fenced, Halted, Lost, Missed, Ok, SkippedBarrier, Timeout};

    #[test]
    fn a_streak_is_told_once_and_its_end_once() {
        assert_eq!(told(HOUR, &[Ok, Error, Timeout, Lost, Fenced, Ok, Ok, Error], None), ".!...+.!");
        assert_eq!(told(HOUR, &[Error, Error, Empty, Empty], None), "!.+.");
        // Missed slots and skips neither end a streak nor begin one.
        assert_eq!(told(HOUR, &[Ok, Error, SkippedBarrier, Error, Ok], None).chars().nth(3), Some('.'));
        let mut ledger = Ledger::default();
        for (number, status) in [Ok, Missed, Error].into_iter().enumerate() {
            ledger.push(outcome(number, number as i64, status));
        }
        let run = EndedRun { ledger: &ledger, run: RunId(uuid::Uuid::from_u128(2)), retries: 0, now: Wall(0) };
        assert_eq!(run.failure(Error, DAY, Wall(0)), Telling::First);
    }

    #[test]
    fn halts_and_errors_are_told_once_each() {
        assert_eq!(told(HOUR, &[Ok, Error, Halted, Error, Halted, Ok], None), ".!!..+");
    }

    #[test]
    fn a_reminder_comes_once_per_period() {
        // Every six hours.
        assert_eq!(told(6 * HOUR, &[[Ok].as_slice(), &[Error; 10]].concat(), DAY), ".!...r...r.");
        // A daily job that ends a little earlier each day.
        assert_eq!(told(24 * HOUR - 20_000, &[Ok, Error, Error, Error, Error], DAY), ".!rrr");
        assert_eq!(told(24 * HOUR, &[Ok, Error, Error], Some(Duration::ZERO)), ".!.");
    }

    #[test]
    fn a_streak_that_is_longer_than_the_ring_is_still_reminded_of_once_per_period() {
        // Every ten minutes for four days: the ring holds less than seven hours.
        let statuses = [[Ok].as_slice(), &[Error; 4 * 144]].concat();
        let told = told(HOUR / 6, &statuses, DAY);
        assert_eq!((told.matches('!').count(), told.matches('r').count()), (1, 4), "{told}");
        // Without any good run before.
        let told = self::told(HOUR / 6, &[Error; 4 * 144], DAY);
        assert_eq!(told.matches('!').count(), 1, "{told}");
        assert!((3..=5).contains(&told.matches('r').count()), "{told}");
    }

    #[test]
    fn failed_attempts_of_the_same_trigger_were_not_told() {
        let mut ledger = Ledger::default();
        for (number, (slot, status)) in [(1, Ok), (2, Error), (2, Error), (2, Error)].into_iter().enumerate() {
            ledger.push(outcome(number, slot, status));
        }
        let run = |retries| EndedRun { ledger: &ledger, run: RunId(uuid::Uuid::from_u128(3)), retries, now: Wall(0) };
        assert_eq!(run(2).failure(Error, DAY, Wall(0)), Telling::First);
        assert_eq!(run(0).failure(Error, DAY, Wall(0)), Telling::Silent, "another trigger tried it before");
    }

    #[test]
    fn a_streak_from_before_the_recipients_were_written_down_is_told_with_its_next_failure() {
        let mut ledger = Ledger::default();
        for (number, status) in [Ok, Error, Error, Error].into_iter().enumerate() {
            ledger.push(outcome(number, number as i64 * HOUR, status));
        }
        let run =
            |number| EndedRun { ledger: &ledger, run: RunId(uuid::Uuid::from_u128(number)), retries: 0, now: Wall(0) };
        let configured = Wall(HOUR + HOUR / 2);
        let since = TroubleSince { at: Wall(HOUR), is_exact: true };
        assert_eq!(run(1).failure(Error, DAY, configured), Telling::First);
        assert_eq!(run(2).failure(Error, DAY, configured), Telling::Reminder(since));
        assert_eq!(run(3).failure(Error, DAY, configured), Telling::Silent);
    }

    #[test]
    fn the_time_down_counts_from_the_first_failure() {
        let mut ledger = Ledger::default();
        for (number, status) in [Ok, Error, Error, Ok].into_iter().enumerate() {
            ledger.push(outcome(number, number as i64 * HOUR, status));
        }
        let run = EndedRun { ledger: &ledger, run: RunId(uuid::Uuid::from_u128(3)), retries: 0, now: Wall(0) };
        let since = TroubleSince { at: Wall(HOUR), is_exact: true };
        let down = Duration::from_secs(2 * 3600);
        assert_eq!(run.recovery(), Some(Recovery { before: Error, since, down }));
    }

    #[test]
    fn failures_without_a_record_are_told_once_per_period_and_host() {
        let (telling, kept) = UnrecordedTrouble::next(None, Wall(0), DAY);
        assert_eq!(telling, Telling::First);
        let (telling, kept) = UnrecordedTrouble::next(Some(kept), Wall(HOUR), DAY);
        assert_eq!(telling, Telling::Silent);
        let (telling, kept) = UnrecordedTrouble::next(Some(kept), Wall(24 * HOUR), DAY);
        assert_eq!(telling, Telling::Reminder(TroubleSince { at: Wall(0), is_exact: true }));
        assert_eq!(UnrecordedTrouble::next(Some(kept), Wall(25 * HOUR), DAY).0, Telling::Silent);
        assert_eq!(UnrecordedTrouble::next(Some(kept), Wall(99 * HOUR), None).0, Telling::Silent);
    }
}
