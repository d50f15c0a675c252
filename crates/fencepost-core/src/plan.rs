//! Which slots run now, which are dropped, and why: bounded catch-up.
//!
//! The plan walks backwards from now and never enumerates what it will not run, so that ten years of missed minutes cost
//! what an hour does. It is computed inside the lease, from the record alone; otherwise two machines would both catch up.
//!
//! [`PlanRules`] is the list of the rules, one method each. The methods are the shipped code; the model replaces one at a
//! time by a known bug and shows that it is found.

mod planner;
mod words;

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use thiserror::Error;

use crate::lease::Honest;
use crate::ledger::{Outcome, RING_OUTCOMES_KEPT, Status, Trigger};
use crate::schedule::Schedule;
use crate::time::Wall;

use planner::Planner;

/// The most slots that may be caught up one by one. Who wants more wants [`Mode::Collapse`].
pub const CATCH_UP_MAX: u32 = 1000;

/// The most slots that may be caught up with the newest first: until the oldest is done, only the record's ring of
/// outcomes knows the others, and other runs take places in it too.
pub const NEWEST_FIRST_MAX: u32 = RING_OUTCOMES_KEPT as u32 * 3 / 4;

/// A record of slots this far in the future is not the fault of two clocks that differ, but of one that was wrong.
pub const AHEAD_MAX: Duration = Duration::from_secs(3600);

/// Something that names instants: a schedule.
pub trait Occurrences {
    /// The first instant after `at`.
    fn after(&self, at: Wall) -> Option<Wall>;
    /// The last instant that is not after `at`.
    fn at_or_before(&self, at: Wall) -> Option<Wall>;
    /// How many instants there are after `after` and up to `to`, without walking over them.
    fn count(&self, after: Wall, to: Wall) -> u64;
}

impl Occurrences for Schedule {
    fn after(&self, at: Wall) -> Option<Wall> {
        self.after(at)
    }

    fn at_or_before(&self, at: Wall) -> Option<Wall> {
        self.at_or_before(at)
    }

    fn count(&self, after: Wall, to: Wall) -> u64 {
        self.count(after, to)
    }
}

/// How much is caught up, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Of all slots that are due and not done, this many of the most recent run. The current slot counts among them.
    /// With 0 only a slot that is on time runs, a late one never.
    pub catch_up: u32,
    /// No slot older than this runs late. Without it, as many periods as `catch_up` says: the most recent slots,
    /// whether they were done or not. With [`Mode::Collapse`], without it the run covers the whole gap.
    pub within: Option<Duration>,
    pub mode: Mode,
    pub order: Order,
    /// How long to wait between the starts of two runs of one plan.
    pub spacing: Duration,
    /// A trigger this much early or late is on time.
    pub slack: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            catch_up: 1,
            within: None,
            mode: Mode::Each,
            order: Order::OldestFirst,
            spacing: Duration::ZERO,
            slack: Duration::from_secs(60),
        }
    }
}

impl Terms {
    /// Refuses what cannot be kept.
    pub fn check(&self) -> Result<(), TermsError> {
        let one_by_one = self.mode == Mode::Each;
        if one_by_one && self.catch_up > CATCH_UP_MAX {
            return Err(TermsError::TooMany(self.catch_up));
        }
        if one_by_one && self.order == Order::NewestFirst && self.catch_up > NEWEST_FIRST_MAX {
            return Err(TermsError::TooManyNewestFirst(self.catch_up));
        }
        Ok(())
    }
}

/// Why terms cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TermsError {
    #[error("a catch-up of {0} is more than {CATCH_UP_MAX}. To make up for all of a gap in one run, use collapse.")]
    TooMany(u32),
    #[error("a catch-up of {0} with the newest first is more than {NEWEST_FIRST_MAX}. Let the oldest come first.")]
    TooManyNewestFirst(u32),
}

/// Whether each slot runs, or one run covers them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    Each,
    Collapse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    OldestFirst,
    NewestFirst,
}

/// What the record says about the slots of a job.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// When the job was first seen, resumed, or its schedule last edited. No slot before it is ever due, but for one
    /// that is on time at that very moment.
    pub since: Wall,
    /// Every slot up to here is accounted for.
    pub evaluated: Option<Wall>,
    /// What is known about single slots, in any order: one entry each, its last.
    pub known: &'a [(Wall, SlotState)],
}

impl State<'_> {
    fn of(&self, slot: Wall) -> Option<SlotState> {
        self.known.iter().find(|(known, _)| *known == slot).map(|(_, state)| *state)
    }
}

/// How a slot stands of which something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// It needs no run any more.
    Done,
    /// It ended badly, and its attempts are used up.
    Failed,
    /// It ended badly, and has attempts left. It is tried again within the bounds of catch-up.
    Open,
    /// Its run died without a word. It is tried again within the bounds of catch-up.
    Lost,
    Running,
}

impl SlotState {
    /// A skip is the end of a slot, and so is what was written down as missed. Any other slot is open until its attempts
    /// are used up.
    pub fn of(status: Status, is_spent: bool) -> Self {
        match status {
            Status::Ok | Status::Empty | Status::Missed => Self::Done,
            Status::SkippedOverlap | Status::SkippedBarrier | Status::SkippedDuplicate | Status::SkippedPaused => {
                Self::Done
            }
            Status::Running => Self::Running,
            Status::Error | Status::Timeout | Status::Fenced | Status::Halted | Status::Lost if is_spent => {
                Self::Failed
            }
            Status::Lost => Self::Lost,
            Status::Error | Status::Timeout | Status::Fenced | Status::Halted => Self::Open,
        }
    }

    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

/// The rules. Each is a function of its arguments alone.
pub trait PlanRules: Clone + fmt::Debug + PartialEq + Eq + core::hash::Hash {
    /// The first slot that may ever run: the one that was on time when the job was first seen, resumed or edited, or
    /// else none from before that.
    fn floor<O: Occurrences + ?Sized>(schedule: &O, since: Wall, slack: Duration) -> Wall {
        let last = schedule.at_or_before(since);
        last.filter(|slot| Self::is_on_time(*slot, since, slack)).unwrap_or(since)
    }

    /// From when on slots are due of which nothing is known. A slot from before the job was seen is not caught up: it
    /// runs on time or not at all.
    fn opening(floor: Wall, since: Wall, now: Wall, slack: Duration) -> Wall {
        if Self::is_on_time(floor, now, slack) { floor } else { floor.max(since) }
    }

    /// The slot that a trigger at `now` is for: the last one, or the next if that is due within the slack. A trigger
    /// that may be either is late for a slot that is still open rather than early for another, and a trigger of a
    /// frequent job is early only in the last quarter of the period.
    fn current<O: Occurrences + ?Sized>(
        schedule: &O,
        now: Wall,
        slack: Duration,
        is_open: impl Fn(Wall) -> bool,
    ) -> Option<Wall> {
        let last = schedule.at_or_before(now);
        let Some(next) = schedule.after(now) else { return last };
        let early = last.map_or(slack, |last| slack.min(next.since(last) / 4));
        let is_late = last.is_some_and(|last| Self::is_on_time(last, now, slack) && is_open(last));
        if next.since(now) <= early && !is_late { Some(next) } else { last }
    }

    fn is_on_time(slot: Wall, now: Wall, slack: Duration) -> bool {
        now.since(slot) <= slack
    }

    /// How many late slots may run: as many as were asked for. Zero is none, not all.
    fn most(terms: &Terms) -> usize {
        terms.catch_up as usize
    }

    /// Whether a slot is due, from what is known about it.
    fn is_due(known: Option<SlotState>) -> bool {
        match known {
            None | Some(SlotState::Lost | SlotState::Open) => true,
            Some(SlotState::Done | SlotState::Failed | SlotState::Running) => false,
        }
    }

    /// Whether a slot has had its attempts: the first, and its retries.
    fn is_spent(tries: u32, retries: u32) -> bool {
        tries > retries
    }

    /// Whether an outcome counts for a slot of this stretch: its own, and each that a collapsed run covers.
    fn counts_for(outcome: &Outcome, from: Wall, to: Wall) -> bool {
        outcome.is_within(from, to)
    }

    /// Whether a slot comes after one that the same trigger has tried. One trigger tries each slot once.
    fn follows(slot: Wall, tried: Wall, order: Order) -> bool {
        match order {
            Order::OldestFirst => slot > tried,
            Order::NewestFirst => slot < tried,
        }
    }

    /// Whether a run would start before its slot.
    fn is_early(slot: Wall, now: Wall) -> bool {
        slot > now
    }

    /// Until when a run was going. The wall clock may have been wrong for a moment when it ended.
    fn ended(outcome: &Outcome) -> Wall {
        outcome.ended()
    }

    /// Whether a late slot is recent enough. Unless an age is given, it is among the most recent slots.
    fn reaches<O: Occurrences + ?Sized>(schedule: &O, slot: Wall, current: Wall, now: Wall, terms: &Terms) -> bool {
        match terms.within {
            Some(within) => now.since(slot) <= within,
            None => schedule.count(just_before(slot), current) <= Self::most(terms) as u64,
        }
    }

    /// Whether an attempt may have had its effect though it did not end well: one that failed by its own exit code says
    /// that it did not, and so does one whose command never started. One that died, or was ended, says nothing.
    fn is_unknown(attempt: Option<&Outcome>) -> bool {
        let failed_by_itself = |attempt: &Outcome| {
            attempt.status == Status::Error && attempt.exit_code.is_some_and(|code| (1..=128).contains(&code))
        };
        !attempt.is_some_and(|attempt| attempt.unstarted || failed_by_itself(attempt))
    }

    /// What is made of a mark in the record that lies in the future. One that is far away comes from a clock that was
    /// wrong; to wait for it would be never to run.
    fn trust(mark: Wall, now: Wall, slack: Duration) -> Trust {
        if mark <= now + slack {
            Trust::Sound
        } else if mark <= now + AHEAD_MAX.max(slack) {
            Trust::Ahead
        } else {
            Trust::Wrong
        }
    }
}

impl PlanRules for Honest {}

/// What a mark in the record is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    Sound,
    /// Another machine's clock is ahead of ours. Nothing is due before the mark.
    Ahead,
    /// The mark is put back to now, as if the job were seen for the first time.
    Wrong,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they run.
    pub run: Vec<Due>,
    /// Slots that will never run, to be written down as missed.
    pub dropped: Option<Gap>,
    /// The next slot after those of this plan.
    pub next: Option<Wall>,
    /// Takes the place of [`State::since`], which it differs from only if that was in the future.
    pub since: Wall,
    /// Once `dropped` is written down, every slot up to here is accounted for. It takes the place of
    /// [`State::evaluated`], even if it is less.
    pub evaluated: Option<Wall>,
    pub why: Why,
    /// A mark in the record that lies in the future, and what was made of it.
    pub ahead: Option<(Wall, Trust)>,
}

impl Plan {
    /// The next slot that will start, which may be one that a trigger now waits for.
    pub fn upcoming(&self, now: Wall) -> Option<Wall> {
        let awaited = self.run.iter().map(|due| due.slot).filter(|slot| *slot > now).min();
        awaited.or(self.next)
    }
}

/// A slot that runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub slot: Wall,
    pub trigger: Trigger,
    pub late: Duration,
    /// How long to wait after the start of the run before this one.
    pub wait: Duration,
    /// The slots that this run makes up for, its own among them. When it has ended well, every slot up to its own is
    /// accounted for.
    pub covers: Option<Gap>,
}

/// Slots from one to another, both included. Those in between of which something is known do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: Wall,
    pub to: Wall,
    pub count: u64,
}

/// Why the plan is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The current slot is on time.
    OnTime(Wall),
    /// The current slot has attempts left, and is tried again.
    Again(Wall),
    /// Late slots are caught up.
    CatchUp,
    /// The current slot is late, and may not run late.
    TooLate(Wall),
    /// The current slot is done.
    Done(Wall),
    /// The current slot failed, and its attempts are used up.
    Failed(Wall),
    Running(Wall),
    /// There was no slot yet since the job was first seen, resumed or edited.
    NoneYet,
}

/// Decides which slots run now.
pub fn plan<R: PlanRules>(schedule: &(impl Occurrences + ?Sized), state: &State<'_>, terms: &Terms, now: Wall) -> Plan {
    let mark = state.evaluated.map_or(state.since, |evaluated| evaluated.max(state.since));
    let trust = R::trust(mark, now, terms.slack);
    let sound = match trust {
        Trust::Wrong => State { since: now, evaluated: None, known: state.known },
        _ => *state,
    };
    let floor = R::floor(schedule, sound.since, terms.slack);
    let opening = R::opening(floor, sound.since, now, terms.slack);
    let accounted = just_before(opening).max(sound.evaluated.unwrap_or(Wall(i64::MIN)));
    let is_open = |slot| slot > accounted && R::is_due(sound.of(slot));
    let current = R::current(schedule, now, terms.slack, is_open);
    let planner =
        Planner::<R, _> { schedule, state: sound, terms, now, floor, accounted, rules: core::marker::PhantomData };
    let mut plan = planner.plan(current);
    plan.ahead = (trust != Trust::Sound).then_some((mark, trust));
    if trust == Trust::Ahead {
        plan.next = schedule.after(mark);
    }
    plan
}

fn earlier(at: Wall, by: Duration) -> Wall {
    Wall(at.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}

fn just_before(at: Wall) -> Wall {
    Wall(at.0.saturating_sub(1))
}
