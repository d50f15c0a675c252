//! Bounded catch-up: which slots run now, which are dropped, and why.
//!
//! The plan walks backwards from now and never enumerates slots it will not run, so ten years of missed minutes cost as
//! much as an hour. It is computed inside the claim, from the record alone; otherwise two machines would both catch up.
//!
//! [`PlanRules`] lists the rules, one method each. The default methods are the shipped code. The model replaces one at
//! a time by a known bug and shows that it is found.

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

/// The most slots that may be caught up one by one. For more, use [`CatchUpMode::Collapse`].
pub const CATCH_UP_MAX: u32 = 1000;

/// The most slots that may be caught up with the newest first. Until the oldest is done, only the ring of outcomes
/// knows the newer ones, and other runs take places in the ring too.
pub const NEWEST_FIRST_MAX: u32 = RING_OUTCOMES_KEPT as u32 * 3 / 4;

/// Marks further in the future than this come from a wrong clock, not from skew.
pub const AHEAD_MAX: Duration = Duration::from_secs(3600);

/// A source of instants: a schedule.
pub trait Occurrences {
    /// The first instant after `at`.
    fn after(&self, at: Wall) -> Option<Wall>;
    /// The last instant at or before `at`.
    fn at_or_before(&self, at: Wall) -> Option<Wall>;
    /// The number of instants after `after` up to `to`, without enumerating them.
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

/// The catch-up settings of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CatchUpTerms {
    /// After a gap, run at most this many of the newest open slots, including the current one. With 0, only a slot that
    /// is on time runs.
    pub catch_up: u32,
    /// No slot older than this runs late. Default: `catch_up` periods. With [`CatchUpMode::Collapse`] the default is the whole
    /// gap.
    pub within: Option<Duration>,
    pub mode: CatchUpMode,
    pub order: CatchUpOrder,
    /// The pause between the starts of two runs of one plan.
    pub spacing: Duration,
    /// A trigger this early or late counts as on time.
    pub slack: Duration,
}

impl Default for CatchUpTerms {
    fn default() -> Self {
        Self {
            catch_up: 1,
            within: None,
            mode: CatchUpMode::Each,
            order: CatchUpOrder::OldestFirst,
            spacing: Duration::ZERO,
            slack: Duration::from_secs(60),
        }
    }
}

impl CatchUpTerms {
    /// Validates the settings.
    pub fn check(&self) -> Result<(), TermsError> {
        let one_by_one = self.mode == CatchUpMode::Each;
        if one_by_one && self.catch_up > CATCH_UP_MAX {
            return Err(TermsError::TooMany(self.catch_up));
        }
        if one_by_one && self.order == CatchUpOrder::NewestFirst && self.catch_up > NEWEST_FIRST_MAX {
            return Err(TermsError::TooManyNewestFirst(self.catch_up));
        }
        Ok(())
    }
}

/// Why settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TermsError {
    #[error("a catch-up of {0} is more than {CATCH_UP_MAX}. To make up for all of a gap in one run, use collapse.")]
    TooMany(u32),
    #[error("a catch-up of {0} with the newest first is more than {NEWEST_FIRST_MAX}. Let the oldest come first.")]
    TooManyNewestFirst(u32),
}

/// Whether each slot runs, or one run covers them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CatchUpMode {
    Each,
    Collapse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CatchUpOrder {
    OldestFirst,
    NewestFirst,
}

/// What the record contains about the slots of a job.
#[derive(Clone, Copy, Debug)]
pub struct PlanState<'a> {
    /// When the job was first seen, resumed, or its schedule edited. No earlier slot is due, except one that was on
    /// time at that moment.
    pub since: Wall,
    /// Every slot up to here is accounted for.
    pub evaluated: Option<Wall>,
    /// The last state of each known slot, in any order.
    pub known: &'a [(Wall, SlotState)],
}

impl PlanState<'_> {
    fn of(&self, slot: Wall) -> Option<SlotState> {
        self.known.iter().find(|(known, _)| *known == slot).map(|(_, state)| *state)
    }
}

/// The state of a known slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// No run is needed.
    Done,
    /// It failed and its attempts are used up.
    Failed,
    /// It failed and has attempts left. It is tried again within the bounds of catch-up.
    Open,
    /// Its run died. It is tried again within the bounds of catch-up.
    Lost,
    Running,
}

impl SlotState {
    /// A skip or a recorded miss ends a slot. Any other slot is open until its attempts are used up.
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
    /// The first slot that may run: the one on time when the job was first seen, resumed or edited, else the first
    /// after that.
    fn floor<O: Occurrences + ?Sized>(schedule: &O, since: Wall, slack: Duration) -> Wall {
        let last = schedule.at_or_before(since);
        last.filter(|slot| Self::is_on_time(*slot, since, slack)).unwrap_or(since)
    }

    /// The instant from which unknown slots are due. A slot from before the job was seen is not caught up: it runs on
    /// time or never.
    fn opening(floor: Wall, since: Wall, now: Wall, slack: Duration) -> Wall {
        if Self::is_on_time(floor, now, slack) { floor } else { floor.max(since) }
    }

    /// The slot of a trigger at `now`: the last one, or the next if it is due within the slack. A trigger that fits
    /// both is late for an open slot rather than early for the next. A trigger of a frequent job is early only in the
    /// last quarter of the period.
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

    /// How many late slots may run. Zero means none, not all.
    fn most(terms: &CatchUpTerms) -> usize {
        terms.catch_up as usize
    }

    /// Whether a slot is due, given its known state.
    fn is_due(known: Option<SlotState>) -> bool {
        match known {
            None | Some(SlotState::Lost | SlotState::Open) => true,
            Some(SlotState::Done | SlotState::Failed | SlotState::Running) => false,
        }
    }

    /// Whether a slot has used up its first attempt and its retries.
    fn is_spent(tries: u32, retries: u32) -> bool {
        tries > retries
    }

    /// Whether an outcome counts for a slot in this stretch: the slot's own outcome, or a collapsed run that covers it.
    fn counts_for(outcome: &Outcome, from: Wall, to: Wall) -> bool {
        outcome.is_within(from, to)
    }

    /// Whether a slot follows the one that the same trigger has tried. One trigger tries each slot once.
    fn follows(slot: Wall, tried: Wall, order: CatchUpOrder) -> bool {
        match order {
            CatchUpOrder::OldestFirst => slot > tried,
            CatchUpOrder::NewestFirst => slot < tried,
        }
    }

    /// Whether a run would start before its slot.
    fn is_early(slot: Wall, now: Wall) -> bool {
        slot > now
    }

    /// When a run ended. The wall clock may have been wrong at that moment.
    fn ended(outcome: &Outcome) -> Wall {
        outcome.ended()
    }

    /// Whether a late slot is recent enough. Without an age limit: whether it is among the newest slots.
    fn reaches<O: Occurrences + ?Sized>(
        schedule: &O,
        slot: Wall,
        current: Wall,
        now: Wall,
        terms: &CatchUpTerms,
    ) -> bool {
        match terms.within {
            Some(within) => now.since(slot) <= within,
            None => schedule.count(just_before(slot), current) <= Self::most(terms) as u64,
        }
    }

    /// Whether a failed attempt may have had its effect. An attempt that failed by its own exit code, or whose command
    /// never started, had none. One that died or was terminated is unknown.
    fn is_unknown(attempt: Option<&Outcome>) -> bool {
        let failed_by_itself = |attempt: &Outcome| {
            attempt.status == Status::Error && attempt.exit_code.is_some_and(|code| (1..=128).contains(&code))
        };
        !attempt.is_some_and(|attempt| attempt.unstarted || failed_by_itself(attempt))
    }

    /// Judges a mark in the record that lies in the future. A distant one comes from a wrong clock; waiting for it
    /// would silence the job.
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

/// The verdict on a mark in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    Sound,
    /// Another machine's clock is ahead. Nothing is due before the mark.
    Ahead,
    /// The mark is reset to now, as if the job were seen for the first time.
    Wrong,
}

/// The slots to run now, and those dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In execution order.
    pub run: Vec<Due>,
    /// Slots that will never run; they are recorded as missed.
    pub dropped: Option<Gap>,
    /// The next slot after those of this plan.
    pub next: Option<Wall>,
    /// Replaces [`PlanState::since`]; different only if that was in the future.
    pub since: Wall,
    /// When `dropped` is recorded, every slot up to here is accounted for. Replaces [`PlanState::evaluated`], even if it is
    /// lower.
    pub evaluated: Option<Wall>,
    pub why: PlanReason,
    /// A mark in the record that lies in the future, and the verdict on it.
    pub ahead: Option<(Wall, Trust)>,
}

impl Plan {
    /// The next slot that will start, possibly one that a trigger waits for now.
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
    /// The pause after the start of the previous run.
    pub wait: Duration,
    /// The slots that this run covers, including its own. When it ends well, every slot up to its own is accounted for.
    pub covers: Option<Gap>,
}

/// A range of slots, both ends included. Known slots inside it do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: Wall,
    pub to: Wall,
    pub count: u64,
}

/// Why the plan is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanReason {
    /// The current slot is on time.
    OnTime(Wall),
    /// The current slot has attempts left and is tried again.
    Again(Wall),
    /// Late slots are caught up.
    CatchUp,
    /// The current slot is late, and late slots may not run.
    TooLate(Wall),
    /// The current slot is done.
    Done(Wall),
    /// The current slot failed and its attempts are used up.
    Failed(Wall),
    Running(Wall),
    /// No slot since the job was first seen, resumed or edited.
    NoneYet,
}

/// Decides which slots run now.
pub fn plan<R: PlanRules>(
    schedule: &(impl Occurrences + ?Sized),
    state: &PlanState<'_>,
    terms: &CatchUpTerms,
    now: Wall,
) -> Plan {
    let mark = state.evaluated.map_or(state.since, |evaluated| evaluated.max(state.since));
    let trust = R::trust(mark, now, terms.slack);
    let sound = match trust {
        Trust::Wrong => PlanState { since: now, evaluated: None, known: state.known },
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
