//! Which slot a run is for, decided inside the claim from the record alone. Two machines that fire at one instant, or
//! come back after one outage, therefore never both run it.

mod known;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::known::tries;
use self::known::{done, failed, is_run, known, newest, past_failures};
use crate::artifact::Fingerprint;
use crate::fence::{Fence, Write};
use crate::format::Unknown;
use crate::ledger::{Covered, Status, Trigger};
use crate::plan::{self, Gap, Plan, PlanReason, PlanRules, PlanState, SlotState, plan};
use crate::record::Record;
use crate::schedule::Schedule;
use crate::time::Wall;
use crate::token::Token;

/// How a run finds its slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// This instant, which is not a slot: a run started by hand.
    At(Wall),
    /// This slot, unless it is done or its attempts are used up.
    Slot(Named),
    /// The slot that is due by a schedule.
    Due(Box<Scheduled>),
    /// The single slot of a `once` item.
    Once { params: Option<Fingerprint>, on_unknown: OnUnknown },
    /// The turn of a command at a fenced resource, which the claim judges by the fence in the record.
    Fenced(Box<Write>),
}

/// The single slot of a `once` item.
pub const ONCE: Wall = Wall(0);

/// What to do about a `once` item whose last attempt ended between its effect and its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// Halt: a person has to check.
    #[default]
    Halt,
    Retry,
    /// A person checked, and found no effect of the attempts up to this token. A later attempt is not covered.
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

/// A slot given by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    pub slot: Wall,
    pub repeat: Repeat,
    pub on_lost: OnLost,
    /// How many retries the slot has.
    pub retries: u32,
    /// How early a trigger may come and wait for its slot. `None` if this host's clock has reached the slot.
    pub slack: Option<Duration>,
}

/// How often a named slot may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// Until it is done or its attempts are used up.
    #[default]
    No,
    /// The same, as a retry by the same trigger.
    Retry,
    /// Once more, regardless of its outcome.
    Again,
}

/// A scheduled job, and which slot is requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scheduled {
    pub schedule: Schedule,
    pub terms: plan::CatchUpTerms,
    pub asked: Asked,
    pub on_lost: OnLost,
    /// How many retries each slot has.
    pub retries: u32,
}

/// Which slot a trigger requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// The first slot that is due.
    Due,
    /// The first due slot after this one, which the same trigger has tried.
    DueAfter(Wall),
    /// A run now, which satisfies the slot it replaces.
    Now,
    /// The newest slot once more, whether done or not.
    Again,
}

impl Asked {
    /// Whether the schedule alone determines the slot.
    pub fn is_by_schedule(self) -> bool {
        matches!(self, Self::Due | Self::DueAfter(_))
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
    /// The schedule as written, with its zone, for readers without the configuration.
    pub schedule: String,
    pub zone: String,
    /// Detects an edit of the schedule.
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

/// The slot a run is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub slot: Wall,
    pub trigger: Trigger,
    /// The slots this run covers, if more than one.
    pub covers: Option<Covered>,
    /// Slots that will never run.
    pub missed: Option<Covered>,
    pub timing: Option<Timing>,
    /// The fence that the claim writes, for a command on a fenced resource.
    pub fence: Option<Fence>,
}

/// Why nothing runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NotNow {
    /// The slot is done, or another run is working on it.
    Duplicate { slot: Wall, state: Status, exit_code: Option<i32> },
    /// The attempts of the slot are used up; the last one failed like this.
    Failed { slot: Wall, state: Status, exit_code: i32 },
    /// The slot is later than this time.
    Early { slot: Wall, wait: Duration },
    /// No slot is due.
    NotDue { next: Option<Wall>, missed: Option<Covered>, reason: String },
    /// An earlier run of the slot died between its effect and its record, and `on_lost` forbids a repeat.
    Lost { slot: Wall },
    /// The `once` item is recorded with other parameters.
    OtherParameters,
    /// The slot is older than the record remembers.
    TooOld { slot: Wall },
    Paused {
        since: Wall,
        /// When the job resumes by itself.
        until: Option<Wall>,
        by: String,
        note: Option<String>,
    },
}

impl NotNow {
    /// The status under which this is counted.
    pub fn status(&self) -> Status {
        match self {
            Self::Duplicate { .. } | Self::TooOld { .. } => Status::SkippedDuplicate,
            Self::NotDue { .. } | Self::Early { .. } => Status::Missed,
            Self::Failed { state, .. } => *state,
            Self::Lost { .. } => Status::Lost,
            Self::OtherParameters => Status::Error,
            Self::Paused { .. } => Status::SkippedPaused,
        }
    }

    /// One sentence, without the job's name and without times.
    pub fn words(&self) -> String {
        match self {
            Self::Duplicate { state: Status::Running, .. } => "a run of this very slot is going.".to_string(),
            Self::Duplicate { state, .. } => alloc::format!("the slot is done already: {state}."),
            Self::Failed { state, exit_code, .. } => {
                alloc::format!("the slot failed ({state}, exit code {exit_code}), and its attempts are used up.")
            }
            Self::Early { .. } => "the trigger is early, and the slot has not come.".to_string(),
            Self::NotDue { reason, .. } => {
                let mut letters = reason.chars();
                letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
            }
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
    /// Finds the slot by the record at `now`.
    pub fn choose<R: PlanRules>(
        &self,
        record: Option<&Record>,
        lease: LeaseState,
        now: Wall,
    ) -> Result<Chosen, NotNow> {
        match self {
            Self::At(slot) => Ok(Chosen::at(*slot, Trigger::Manual)),
            Self::Slot(named) => named.choose::<R>(record, lease, now),
            Self::Due(scheduled) => scheduled.choose::<R>(record, lease, now),
            Self::Once { params, on_unknown } => once::<R>(*params, *on_unknown, record, lease),
            Self::Fenced(write) => Ok(Chosen::at(write.at, Trigger::Manual)),
        }
    }

    /// The slot that an early trigger may wait for.
    pub fn early<R: PlanRules>(&self, record: Option<&Record>, now: Wall) -> Option<NotNow> {
        let slot = match self {
            Self::Due(scheduled) if scheduled.asked.is_by_schedule() => {
                let (_, plan) = scheduled.plan::<R>(record, LeaseState::Stands, now);
                scheduled.first::<R>(&plan).map(|due| due.slot)?
            }
            Self::Slot(named) => named.awaited(record, now)?,
            _ => return None,
        };
        R::is_early(slot, now).then(|| NotNow::Early { slot, wait: slot.since(now) })
    }

    /// Whether the record must be updated although nothing runs: the schedule was seen for the first time, or slots
    /// were missed.
    pub fn accounts<R: PlanRules>(&self, record: Option<&Record>, lease: LeaseState, now: Wall) -> bool {
        let Self::Due(scheduled) = self else { return false };
        let (timing, plan) = scheduled.plan::<R>(record, lease, now);
        let settled = Timing { since: plan.since, evaluated: plan.evaluated, ..timing };
        let seen = record.and_then(|record| record.timing.as_ref());
        plan.dropped.is_some()
            || seen.is_none_or(|seen| (seen.since, &seen.fingerprint) != (settled.since, &settled.fingerprint))
    }

    /// The slot of a trigger at `now`. Distinguishes a second trigger of one slot from an overlap.
    pub fn current<R: PlanRules>(&self, record: &Record, now: Wall) -> Option<Wall> {
        match self {
            // The second caller of a `once` item is told that it is in progress.
            Self::At(_) | Self::Once { .. } | Self::Fenced(_) => None,
            Self::Slot(named) => Some(named.slot),
            Self::Due(scheduled) => {
                scheduled.newest(&scheduled.plan::<R>(Some(record), LeaseState::Stands, now).1, now)
            }
        }
    }

    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Due(scheduled) => Some(scheduled.schedule.zone().name()),
            _ => None,
        }
    }
}

/// The state of the lease in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Stands,
    Over,
}

impl Scheduled {
    fn choose<R: PlanRules>(&self, record: Option<&Record>, lease: LeaseState, now: Wall) -> Result<Chosen, NotNow> {
        let (timing, plan) = self.plan::<R>(record, lease, now);
        let known = known::<R>(record, lease, &self.schedule, self.retries);
        let state = |slot| known.iter().rev().find(|(known, _)| *known == slot).map(|(_, state)| *state);
        let missed = plan.dropped.map(covered);
        let nothing = || self.nothing(&plan, missed, record, now);
        let (slot, trigger, covers) = match self.asked {
            Asked::Due | Asked::DueAfter(_) => {
                let due = self.first::<R>(&plan).ok_or_else(nothing)?;
                (due.slot, due.trigger, due.covers.map(covered))
            }
            Asked::Now => {
                let replaced = self.replaced(&plan, now, state).ok_or_else(nothing)?;
                // A slot that was already replaced is repeated only by `--again`.
                match (state(replaced), record) {
                    (Some(SlotState::Done), Some(record)) => {
                        let state = done(record, replaced).unwrap_or(Status::SkippedDuplicate);
                        return Err(NotNow::Duplicate { slot: replaced, state, exit_code: None });
                    }
                    (Some(SlotState::Failed), Some(record)) => return Err(failed(record, replaced)),
                    _ => (replaced, MANUAL, None),
                }
            }
            Asked::Again => {
                // The next slot may have run before its time.
                let is_tried =
                    |slot: &Wall| record.is_some_and(|record| record.ledger.attempts(*slot).next().is_some());
                let newest = self.schedule.after(now).filter(is_tried).or_else(|| self.newest(&plan, now));
                (newest.ok_or_else(nothing)?, MANUAL, None)
            }
        };
        if state(slot) == Some(SlotState::Lost) && self.on_lost == OnLost::Halt && self.asked.is_by_schedule() {
            return Err(NotNow::Lost { slot });
        }
        // A slot completed before its time stays in the ring until then, because `evaluated` is never ahead.
        let is_here = |slot: &Wall| *slot <= now + self.terms.slack;
        let settles = Some(slot).filter(is_here).filter(|slot| self.schedule.before(*slot) <= plan.evaluated);
        let timing = Timing { since: plan.since, evaluated: plan.evaluated, settles, ..timing };
        Ok(Chosen { slot, trigger, covers, missed, timing: Some(timing), fence: None })
    }

    /// The slot of the plan that this trigger tries next. One trigger tries each slot once.
    fn first<'a, R: PlanRules>(&self, plan: &'a Plan) -> Option<&'a plan::Due> {
        plan.run.iter().find(|due| match self.asked {
            Asked::DueAfter(tried) => R::follows(due.slot, tried, self.terms.order),
            _ => true,
        })
    }

    /// The plan by the record.
    pub fn plan<R: PlanRules>(&self, record: Option<&Record>, lease: LeaseState, now: Wall) -> (Timing, Plan) {
        let timing = self.timing(record, now);
        let known = known::<R>(record, lease, &self.schedule, self.retries);
        let failures = record.zip(timing.evaluated).and_then(|(record, evaluated)| {
            past_failures::<R>(&record.ledger, &self.schedule, &known, evaluated, self.retries)
        });
        let state = PlanState { since: timing.since, evaluated: timing.evaluated.max(failures), known: &known };
        let plan = plan::<R>(&self.schedule, &state, &self.terms, now);
        (timing, plan)
    }

    /// The slot that a run now replaces: the current one if it is open or has failed, or else the next.
    fn replaced(&self, plan: &Plan, now: Wall, state: impl Fn(Wall) -> Option<SlotState>) -> Option<Wall> {
        let current = self.newest(plan, now);
        let is_current = |slot: &Wall| plan.run.iter().any(|due| due.slot == *slot);
        let is_failed = |slot: &Wall| state(*slot) == Some(SlotState::Failed);
        let next = || self.schedule.after(current.map_or(now, |current| current.max(now)));
        current.filter(|slot| is_current(slot) || is_failed(slot)).or_else(next)
    }

    /// The slot that a trigger now is for, done or not.
    fn newest(&self, plan: &Plan, now: Wall) -> Option<Wall> {
        match plan.why {
            PlanReason::OnTime(slot) | PlanReason::Again(slot) | PlanReason::TooLate(slot) | PlanReason::Done(slot) => {
                Some(slot)
            }
            PlanReason::Failed(slot) | PlanReason::Running(slot) => Some(slot),
            PlanReason::CatchUp | PlanReason::NoneYet => self.schedule.at_or_before(now),
        }
    }

    /// The timing in the record, or a new one if the schedule was edited or is seen for the first time.
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

    /// Tells a duplicate trigger, which comes at the slot's time, from a poll that finds nothing due.
    fn nothing(&self, plan: &Plan, missed: Option<Covered>, record: Option<&Record>, now: Wall) -> NotNow {
        let reason = plan.reason(&self.terms, self.schedule.zone());
        match plan.why {
            PlanReason::Failed(slot) => match record {
                Some(record) => failed(record, slot),
                None => NotNow::NotDue { next: plan.next, missed, reason },
            },
            PlanReason::Done(slot) if now.since(slot) <= self.terms.slack => {
                match record.and_then(|record| done(record, slot)) {
                    Some(state) => NotNow::Duplicate { slot, state, exit_code: None },
                    None => NotNow::NotDue { next: plan.next, missed, reason },
                }
            }
            PlanReason::Running(slot) => NotNow::Duplicate { slot, state: Status::Running, exit_code: None },
            _ => NotNow::NotDue { next: plan.next, missed, reason },
        }
    }
}

impl Chosen {
    pub(crate) fn at(slot: Wall, trigger: Trigger) -> Self {
        Self { slot, trigger, covers: None, missed: None, timing: None, fence: None }
    }
}

const MANUAL: Trigger = Trigger::Manual;

impl Named {
    fn choose<R: PlanRules>(&self, record: Option<&Record>, lease: LeaseState, now: Wall) -> Result<Chosen, NotNow> {
        let slot = self.slot;
        if self.is_ahead(record, now) && self.awaited(record, now).is_none() {
            let reason = "Nothing is due, because the slot that was named lies in the future.".to_string();
            return Err(NotNow::NotDue { next: Some(slot), missed: None, reason });
        }
        let chosen = Ok(Chosen::at(slot, MANUAL));
        let Some(record) = record.filter(|_| self.repeat != Repeat::Again) else { return chosen };
        let newest = newest(&record.ledger, slot);
        let status = if known::died(record, slot, lease) { Some(Status::Lost) } else { newest.map(|last| last.status) };
        let is_spent = R::is_spent(tries::<R>(&record.ledger, slot, None), self.retries);
        match status.map(|status| (status, SlotState::of(status, is_spent))) {
            Some((state, SlotState::Done | SlotState::Running)) => {
                Err(NotNow::Duplicate { slot, state, exit_code: None })
            }
            Some((_, SlotState::Failed)) => Err(failed(record, slot)),
            Some((_, SlotState::Lost)) if self.on_lost == OnLost::Halt => Err(NotNow::Lost { slot }),
            Some((_, SlotState::Lost | SlotState::Open)) => match newest.filter(|_| self.repeat == Repeat::Retry) {
                Some(last) => Ok(Chosen { covers: last.covers, ..Chosen::at(slot, last.trigger) }),
                None => chosen,
            },
            None if record.ledger.given_up >= Some(slot) => Err(NotNow::TooOld { slot }),
            None => chosen,
        }
    }

    /// The slot, if it is ahead and near enough to wait for.
    fn awaited(&self, record: Option<&Record>, now: Wall) -> Option<Wall> {
        let is_near = self.slack.is_some_and(|slack| self.slot <= now + slack);
        (is_near && self.is_ahead(record, now)).then_some(self.slot)
    }

    /// Whether the slot is ahead. A slot that ran before its time may be repeated before it.
    fn is_ahead(&self, record: Option<&Record>, now: Wall) -> bool {
        let is_tried = || record.is_some_and(|record| record.ledger.attempts(self.slot).next().is_some());
        self.slack.is_some() && self.slot > now && !(self.repeat != Repeat::No && is_tried())
    }
}

/// Chooses for a `once` item: a done item is not repeated, a failed one may be, and a died one is unknown.
fn once<R: PlanRules>(
    params: Option<Fingerprint>,
    on_unknown: OnUnknown,
    record: Option<&Record>,
    lease: LeaseState,
) -> Result<Chosen, NotNow> {
    let run = Ok(Chosen::at(ONCE, MANUAL));
    let Some(record) = record else { return run };
    if params.is_some() && record.grants > 0 && !record.is_hidden() && params != record.params {
        return Err(NotNow::OtherParameters);
    }
    let died = is_run(record) && lease == LeaseState::Over;
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

pub(crate) fn covered(gap: Gap) -> Covered {
    Covered { from: gap.from, to: gap.to, count: gap.count }
}

/// How late a run is for its slot.
pub fn late(slot: Wall, now: Wall) -> Duration {
    now.since(slot)
}
