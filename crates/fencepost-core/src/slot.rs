//! Which slot a run is for, decided inside the claim from the record alone: two machines that fire at one instant, or
//! come back from one outage, do not both run it.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::artifact::Fingerprint;
use crate::format::Unknown;
use crate::ledger::{Covered, Outcome, Status, Trigger};
use crate::plan::{self, Gap, Plan, PlanRules, SlotState, State, Why, plan};
use crate::record::Record;
use crate::schedule::Schedule;
use crate::time::Wall;
use crate::token::Token;

/// The most slots that one run can be found to have overlapped, one by one. Older ones are accounted for otherwise.
const OVERLAPPED_MAX: usize = 64;

/// How the slot of a run is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// This instant, which is no slot of anything: a run that somebody started.
    At(Wall),
    /// This slot, unless it is done.
    Slot { slot: Wall, again: bool, on_lost: OnLost },
    /// The slot that is due by a schedule.
    Due(Box<Scheduled>),
    /// The only slot of an item of work that is done once.
    Once { params: Option<Fingerprint>, on_unknown: OnUnknown },
}

/// The one slot of an item of work that is done once.
pub const ONCE: Wall = Wall(0);

/// What to do about an item of work whose last attempt ended between its effect and its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// Somebody has to look.
    #[default]
    Halt,
    Retry,
    /// Somebody has looked, and found no effect of the attempts up to the one with this token. A later one is another
    /// matter.
    RetryAfter(Token),
}

impl OnUnknown {
    fn lets_through(self, record: &Record) -> bool {
        match self {
            Self::Halt => false,
            Self::Retry => true,
            Self::RetryAfter(token) => record.token == token,
        }
    }
}

/// A job that has a schedule, and what of it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scheduled {
    pub schedule: Schedule,
    pub terms: plan::Terms,
    pub asked: Asked,
    pub on_lost: OnLost,
}

/// What a trigger asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Whatever is due.
    Due,
    /// Whatever is due but this slot, which was tried just now.
    DueBut(Wall),
    /// Whatever is due and was not tried yet, or whose run died: several machines trigger a slot at one instant, and
    /// one that has failed on the first is not tried again by the others.
    Untried,
    /// A run now, which satisfies the slot it replaces.
    Now,
    /// The newest slot once more, done or not.
    Again,
}

impl Asked {
    /// Whether the schedule alone says which slot it is.
    pub fn is_by_schedule(self) -> bool {
        matches!(self, Self::Due | Self::DueBut(_) | Self::Untried)
    }
}

/// What becomes of a slot whose run died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLost {
    #[default]
    Rerun,
    Halt,
}

/// How far the schedule of a job has been evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Timing {
    /// As it is written, with its zone, for whoever has no configuration.
    pub schedule: String,
    pub zone: String,
    /// Tells an edit of it.
    pub fingerprint: String,
    /// When the job was first seen, resumed, or its schedule edited.
    pub since: Wall,
    /// Every slot up to here is accounted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated: Option<Wall>,
    /// Once a run of this slot has ended well, every slot up to it is accounted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settles: Option<Wall>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What a run is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub slot: Wall,
    pub trigger: Trigger,
    /// The slots that the run stands for, where there is more than one.
    pub covers: Option<Covered>,
    /// Slots that will never run.
    pub missed: Option<Covered>,
    pub timing: Option<Timing>,
    /// How many slots are left to run after this one.
    pub more: usize,
}

/// Why there is nothing to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NotNow {
    /// The slot is done, or somebody is at it.
    Duplicate {
        slot: Wall,
        state: Status,
        exit_code: Option<i32>,
    },
    /// No slot is due.
    NotDue {
        next: Option<Wall>,
        missed: Option<Covered>,
        reason: String,
    },
    /// An earlier run of the slot died between its effect and its record, and is not to be repeated by itself.
    Lost {
        slot: Wall,
    },
    /// The item of work is known with other parameters.
    OtherParameters,
    /// The slot is so old that the record may have forgotten it.
    TooOld {
        slot: Wall,
    },
    Paused {
        since: Wall,
        by: String,
        note: Option<String>,
    },
}

impl NotNow {
    /// What it is counted as, or would be.
    pub fn status(&self) -> Status {
        match self {
            Self::Duplicate { .. } | Self::TooOld { .. } => Status::SkippedDuplicate,
            Self::NotDue { .. } => Status::Missed,
            Self::Lost { .. } => Status::Lost,
            Self::OtherParameters => Status::Error,
            Self::Paused { .. } => Status::SkippedPaused,
        }
    }

    /// A sentence without the job's name and without times.
    pub fn words(&self) -> String {
        match self {
            Self::Duplicate { state: Status::Running, .. } => "a run of this very slot is going.".to_string(),
            Self::Duplicate { state, .. } => alloc::format!("the slot is done already: {state}."),
            Self::NotDue { reason, .. } => reason.clone(),
            Self::Lost { .. } => {
                "an earlier run of the slot died, and whether it had its effect is not known.".to_string()
            }
            Self::OtherParameters => {
                "this key was used with other parameters. Another item of work needs another key.".to_string()
            }
            Self::TooOld { .. } => "the slot is so old that the record may have forgotten how it ended.".to_string(),
            Self::Paused { by, note, .. } => {
                let note = note.as_ref().map_or_else(String::new, |note| alloc::format!(" ({note})"));
                alloc::format!("the job is paused, from {by}{note}.")
            }
        }
    }
}

impl Choice {
    /// Finds the slot, from what the record says about slots at `now`.
    pub fn choose<R: PlanRules>(&self, record: Option<&Record>, lease: Standing, now: Wall) -> Result<Chosen, NotNow> {
        match self {
            Self::At(slot) => Ok(Chosen::at(*slot, Trigger::Manual)),
            Self::Slot { slot, again, on_lost } => fixed(*slot, *again, *on_lost, record, lease),
            Self::Due(scheduled) => scheduled.choose::<R>(record, lease, now),
            Self::Once { params, on_unknown } => once::<R>(*params, *on_unknown, record, lease),
        }
    }

    /// Whether the record has to learn something though nothing runs: that the schedule was seen, or what was missed.
    pub fn accounts<R: PlanRules>(&self, record: Option<&Record>, lease: Standing, now: Wall) -> bool {
        let Self::Due(scheduled) = self else { return false };
        let (timing, plan) = scheduled.plan::<R>(record, lease, now);
        let settled = Timing { since: plan.since, evaluated: plan.evaluated, ..timing };
        let seen = record.and_then(|record| record.timing.as_ref());
        plan.dropped.is_some()
            || seen.is_none_or(|seen| (seen.since, &seen.fingerprint) != (settled.since, &settled.fingerprint))
    }

    /// The slot that a trigger now would be for, to tell a second trigger of one slot from an overlap.
    pub fn current<R: PlanRules>(&self, record: &Record, now: Wall) -> Option<Wall> {
        match self {
            // Whoever comes second to an item of work is told that it is in progress.
            Self::At(_) | Self::Once { .. } => None,
            Self::Slot { slot, .. } => Some(*slot),
            Self::Due(scheduled) => scheduled.newest(&scheduled.plan::<R>(Some(record), Standing::Stands, now).1, now),
        }
    }

    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Due(scheduled) => Some(scheduled.schedule.zone().name()),
            _ => None,
        }
    }
}

/// How the lease in a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Stands,
    Over,
}

impl Scheduled {
    fn choose<R: PlanRules>(&self, record: Option<&Record>, lease: Standing, now: Wall) -> Result<Chosen, NotNow> {
        let (timing, plan) = self.plan::<R>(record, lease, now);
        let known = known(record, lease, &self.schedule);
        let state = |slot| known.iter().rev().find(|(known, _)| *known == slot).map(|(_, state)| *state);
        let missed = plan.dropped.map(covered);
        let (slot, trigger, covers) = match self.asked {
            Asked::Due | Asked::DueBut(_) | Asked::Untried => {
                match plan.run.iter().find(|due| self.may_try(due.slot, state(due.slot))) {
                    Some(due) => (due.slot, due.trigger, due.covers.map(covered)),
                    None => return Err(self.nothing(&plan, missed, record, now)),
                }
            }
            Asked::Now => {
                let replaced = self.replaced(&plan, now).ok_or_else(|| self.nothing(&plan, missed, record, now))?;
                // It was replaced before: who means that one says so by asking for it again.
                if let Some(state) = record.and_then(|record| done(record, replaced)) {
                    return Err(NotNow::Duplicate { slot: replaced, state, exit_code: None });
                }
                (replaced, MANUAL, None)
            }
            Asked::Again => {
                // The next one may have been run before its time.
                let is_tried =
                    |slot: &Wall| record.is_some_and(|record| record.ledger.attempts(*slot).next().is_some());
                let newest = self.schedule.after(now).filter(is_tried).or_else(|| self.newest(&plan, now));
                (newest.ok_or_else(|| self.nothing(&plan, missed, record, now))?, MANUAL, None)
            }
        };
        if state(slot) == Some(SlotState::Lost) && self.on_lost == OnLost::Halt && self.asked.is_by_schedule() {
            return Err(NotNow::Lost { slot });
        }
        // A slot that is done long before its time stays in the ring until then: what is accounted for is not ahead.
        let is_here = |slot: &Wall| *slot <= now + self.terms.slack;
        let settles = Some(slot).filter(is_here).filter(|slot| self.schedule.before(*slot) <= plan.evaluated);
        let timing = Timing { since: plan.since, evaluated: plan.evaluated, settles, ..timing };
        let more = plan.run.len().saturating_sub(1);
        Ok(Chosen { slot, trigger, covers, missed, timing: Some(timing), more })
    }

    /// Whether a slot that stands so may be tried by this trigger.
    fn may_try(&self, slot: Wall, state: Option<SlotState>) -> bool {
        match self.asked {
            Asked::DueBut(tried) => slot != tried,
            Asked::Untried => state != Some(SlotState::Failed),
            _ => true,
        }
    }

    /// The plan from what the record says.
    pub fn plan<R: PlanRules>(&self, record: Option<&Record>, lease: Standing, now: Wall) -> (Timing, Plan) {
        let timing = self.timing(record, now);
        let known = known(record, lease, &self.schedule);
        let state = State { since: timing.since, evaluated: timing.evaluated, known: &known };
        let plan = plan::<R>(&self.schedule, &state, &self.terms, now);
        (timing, plan)
    }

    /// The slot that a run now replaces: the current one if it is open, or else the next.
    fn replaced(&self, plan: &Plan, now: Wall) -> Option<Wall> {
        let current = self.newest(plan, now);
        let is_current = |due: &&plan::Due| Some(due.slot) == current;
        plan.run.iter().find(is_current).map(|due| due.slot).or(plan.next)
    }

    /// The slot that a trigger now is for, done or not.
    fn newest(&self, plan: &Plan, now: Wall) -> Option<Wall> {
        match plan.why {
            Why::OnTime(slot) | Why::Again(slot) | Why::TooLate(slot) | Why::Done(slot) => Some(slot),
            Why::Failed(slot) | Why::Running(slot) => Some(slot),
            Why::CatchUp | Why::NoneYet => self.schedule.at_or_before(now),
        }
    }

    /// What the record says, unless the schedule was edited since or is seen for the first time.
    fn timing(&self, record: Option<&Record>, now: Wall) -> Timing {
        let fingerprint = self.schedule.fingerprint();
        let kept = record.and_then(|record| record.timing.as_ref()).filter(|kept| kept.fingerprint == fingerprint);
        kept.cloned().unwrap_or_else(|| Timing {
            schedule: self.schedule.text().to_string(),
            zone: self.schedule.zone().name().to_string(),
            fingerprint,
            since: now,
            evaluated: None,
            settles: None,
            unknown: Unknown::default(),
        })
    }

    /// A second trigger of a slot comes at its time. Who looks every few minutes whether something is due finds that
    /// nothing is.
    fn nothing(&self, plan: &Plan, missed: Option<Covered>, record: Option<&Record>, now: Wall) -> NotNow {
        let reason = plan.reason(&self.terms, self.schedule.zone());
        match plan.why {
            Why::Done(slot) if now.since(slot) <= self.terms.slack => {
                match record.and_then(|record| done(record, slot)) {
                    Some(state) => NotNow::Duplicate { slot, state, exit_code: None },
                    None => NotNow::NotDue { next: plan.next, missed, reason },
                }
            }
            Why::Running(slot) => NotNow::Duplicate { slot, state: Status::Running, exit_code: None },
            _ => NotNow::NotDue { next: plan.next, missed, reason },
        }
    }
}

impl Chosen {
    fn at(slot: Wall, trigger: Trigger) -> Self {
        Self { slot, trigger, covers: None, missed: None, timing: None, more: 0 }
    }
}

const MANUAL: Trigger = Trigger::Manual;

/// How a slot was done, if it was.
fn done(record: &Record, slot: Wall) -> Option<Status> {
    let newest = record.ledger.attempts(slot).last().map(|newest| newest.status);
    newest.filter(|status| matches!(status, Status::Ok | Status::Empty))
}

/// A slot that was named.
fn fixed(slot: Wall, again: bool, on_lost: OnLost, record: Option<&Record>, lease: Standing) -> Result<Chosen, NotNow> {
    let Some(record) = record.filter(|_| !again) else { return Ok(Chosen::at(slot, MANUAL)) };
    let died = record.lease.as_ref().is_some_and(|held| is_run(record) && held.slot == slot && lease == Standing::Over);
    let newest = record.ledger.attempts(slot).last().map(|newest| newest.status);
    let newest = if died { Some(Status::Lost) } else { newest };
    match newest.map(|status| (status, SlotState::from(status))) {
        Some((state, SlotState::Done | SlotState::Running)) => Err(NotNow::Duplicate { slot, state, exit_code: None }),
        Some((_, SlotState::Lost)) if on_lost == OnLost::Halt => Err(NotNow::Lost { slot }),
        Some(_) => Ok(Chosen::at(slot, MANUAL)),
        None if record.ledger.given_up >= Some(slot) => Err(NotNow::TooOld { slot }),
        None => Ok(Chosen::at(slot, MANUAL)),
    }
}

/// An item of work. What is done is not done again; what failed by itself may be; of what died nobody knows.
fn once<R: PlanRules>(
    params: Option<Fingerprint>,
    on_unknown: OnUnknown,
    record: Option<&Record>,
    lease: Standing,
) -> Result<Chosen, NotNow> {
    let run = Ok(Chosen::at(ONCE, MANUAL));
    let Some(record) = record else { return run };
    if params.is_some() && record.grants > 0 && params != record.params {
        return Err(NotNow::OtherParameters);
    }
    let died = is_run(record) && lease == Standing::Over;
    let newest = record.ledger.attempts(ONCE).last();
    match newest {
        _ if died && R::is_unknown(None) && !on_unknown.lets_through(record) => Err(NotNow::Lost { slot: ONCE }),
        _ if died => run,
        None => run,
        Some(newest) if matches!(newest.status, Status::Ok | Status::Empty) => {
            Err(NotNow::Duplicate { slot: ONCE, state: newest.status, exit_code: newest.exit_code })
        }
        Some(newest) if R::is_unknown(Some(newest)) && !on_unknown.lets_through(record) => {
            Err(NotNow::Lost { slot: ONCE })
        }
        Some(_) => run,
    }
}

/// What the record knows about single slots, one entry each, its last.
fn known(record: Option<&Record>, lease: Standing, schedule: &Schedule) -> Vec<(Wall, SlotState)> {
    let Some(record) = record else { return Vec::new() };
    let mut known: Vec<(Wall, SlotState)> = Vec::new();
    let mut note = |slot: Wall, state: SlotState| {
        known.retain(|(other, _)| *other != slot);
        known.push((slot, state));
    };
    for outcome in &record.ledger.ring {
        for slot in overlapped(outcome, schedule) {
            note(slot, SlotState::Done);
        }
    }
    for outcome in record.ledger.ring.iter().filter(|outcome| outcome.status != Status::Missed) {
        note(outcome.slot, SlotState::from(outcome.status));
    }
    if let Some(held) = record.lease.as_ref().filter(|_| is_run(record)) {
        note(held.slot, if lease == Standing::Over { SlotState::Lost } else { SlotState::Running });
    }
    known
}

/// The slots that passed while a run was going: whoever was triggered for them was waved off, and that is final. Of a run
/// that died it is known when that was found out, not until when it was going.
fn overlapped(outcome: &Outcome, schedule: &Schedule) -> Vec<Wall> {
    if outcome.started >= outcome.finished || !outcome.status.is_of_a_run() || outcome.status == Status::Lost {
        return Vec::new();
    }
    let last = schedule.at_or_before(Wall(outcome.finished.0 - 1));
    let backwards = core::iter::successors(last, |slot| schedule.before(*slot));
    backwards.take_while(|slot| *slot > outcome.started && *slot > outcome.slot).take(OVERLAPPED_MAX).collect()
}

/// Whether what holds the lease is a run that nothing is recorded of yet.
fn is_run(record: &Record) -> bool {
    record.lease.as_ref().is_some_and(|lease| lease.holder.is_run() && record.ledger.of_run(lease.run).is_none())
}

pub(crate) fn covered(gap: Gap) -> Covered {
    Covered { from: gap.from, to: gap.to, count: gap.count }
}

/// How late a run is for its slot.
pub fn late(slot: Wall, now: Wall) -> Duration {
    now.since(slot)
}
