//! The backwards walk of the plan.

use alloc::vec::Vec;
use core::time::Duration;

use super::{
    CatchUpMode, CatchUpOrder, CatchUpTerms, Due, Gap, Occurrences, Plan, PlanReason, PlanRules, PlanState, SlotState,
    earlier, just_before,
};
use crate::ledger::Trigger;
use crate::time::Wall;

/// The inputs of a plan.
pub(super) struct Planner<'a, R, O: ?Sized> {
    pub(super) schedule: &'a O,
    pub(super) state: PlanState<'a>,
    pub(super) terms: &'a CatchUpTerms,
    pub(super) now: Wall,
    /// No slot before this runs.
    pub(super) floor: Wall,
    /// Every slot up to here is accounted for, or from before the job was seen.
    pub(super) accounted: Wall,
    pub(super) rules: core::marker::PhantomData<R>,
}

/// Late slots that may run, newest first, and the newest that may not.
#[derive(Default)]
struct LateChoice {
    chosen: Vec<Wall>,
    refused: Option<Wall>,
}

impl<R: PlanRules, O: Occurrences + ?Sized> Planner<'_, R, O> {
    pub(super) fn plan(&self, current: Option<Wall>) -> Plan {
        let mut plan = Plan {
            run: Vec::new(),
            dropped: None,
            next: self.next(current.map_or(self.now, |current| current.max(self.now))),
            since: self.state.since,
            evaluated: self.state.evaluated,
            why: PlanReason::NoneYet,
            ahead: None,
        };
        let Some(current) = current else { return plan };
        let choice = self.choose(current);
        plan.why = self.why(current, &choice);
        plan.dropped = choice.refused.and_then(|newest| self.gap(self.accounted, newest, |known| known.is_none()));
        plan.evaluated = Some(self.settled(current, &choice));
        plan.run = match self.terms.mode {
            CatchUpMode::Each => self.each(current, &choice),
            CatchUpMode::Collapse => self.collapsed(current, &choice).into_iter().collect(),
        };
        plan
    }

    /// The next slot that will run, leaving out slots that ran before their time.
    fn next(&self, after: Wall) -> Option<Wall> {
        let mut slots = core::iter::successors(self.schedule.after(after), |slot| self.schedule.after(*slot));
        slots.find(|slot| R::is_due(self.state.of(*slot)))
    }

    /// Walks backwards until the limit is reached: over slots that are not accounted for, then over those that are but
    /// have attempts left or whose run died.
    fn choose(&self, current: Wall) -> LateChoice {
        let mut choice = LateChoice::default();
        let open = core::iter::successors(Some(current), |slot| self.schedule.at_or_before(just_before(*slot)));
        let open = open.take_while(|slot| *slot > self.accounted);
        for slot in open.chain(self.known_before(current)) {
            if !R::is_due(self.state.of(slot)) {
                continue;
            }
            if !self.may_run(slot, current, choice.chosen.len()) {
                choice.refused = Some(slot).filter(|slot| *slot > self.accounted);
                break;
            }
            choice.chosen.push(slot);
            if self.terms.mode == CatchUpMode::Collapse {
                choice.refused = self.beyond_age(slot);
                break;
            }
        }
        choice
    }

    /// Known slots that are accounted for, newest first.
    fn known_before(&self, current: Wall) -> impl Iterator<Item = Wall> {
        let is_slot = |slot: &Wall| self.schedule.at_or_before(*slot) == Some(*slot);
        let is_old = |slot: &Wall| (self.floor..=self.accounted.min(current)).contains(slot);
        let open = self.state.known.iter().filter(|(slot, state)| is_old(slot) && R::is_due(Some(*state)));
        let mut slots: Vec<Wall> = open.map(|(slot, _)| *slot).filter(is_slot).collect();
        slots.sort_unstable_by(|left, right| right.cmp(left));
        slots.into_iter()
    }

    fn may_run(&self, slot: Wall, current: Wall, chosen: usize) -> bool {
        let is_timely = slot == current && R::is_on_time(slot, self.now, self.terms.slack);
        let is_whole = self.terms.mode == CatchUpMode::Collapse && self.terms.within.is_none() && slot > self.accounted;
        let reaches = || is_whole || R::reaches(self.schedule, slot, current, self.now, self.terms);
        is_timely || (chosen < R::most(self.terms) && reaches())
    }

    /// The newest slot that is too old for a run of `slot` to cover.
    fn beyond_age(&self, slot: Wall) -> Option<Wall> {
        let newest = match (R::most(self.terms), self.terms.within) {
            (0, _) => just_before(slot),
            (_, None) => return None,
            (_, Some(within)) => just_before(earlier(self.now, within)).min(just_before(slot)),
        };
        self.schedule.at_or_before(newest).filter(|slot| *slot > self.accounted)
    }

    fn why(&self, current: Wall, choice: &LateChoice) -> PlanReason {
        let known = self.state.of(current);
        let is_chosen = choice.chosen.contains(&current);
        match known {
            Some(SlotState::Open) if is_chosen => PlanReason::Again(current),
            _ if is_chosen && R::is_on_time(current, self.now, self.terms.slack) => PlanReason::OnTime(current),
            _ if !choice.chosen.is_empty() => PlanReason::CatchUp,
            Some(SlotState::Running) => PlanReason::Running(current),
            Some(SlotState::Failed) => PlanReason::Failed(current),
            Some(SlotState::Open | SlotState::Lost) => PlanReason::TooLate(current),
            Some(SlotState::Done) => PlanReason::Done(current),
            None if choice.refused.is_some() => PlanReason::TooLate(current),
            None if self.state.evaluated.is_some_and(|evaluated| evaluated >= current) => PlanReason::Done(current),
            None => PlanReason::NoneYet,
        }
    }

    /// Up to where everything is accounted for before the first run has ended.
    fn settled(&self, current: Wall, choice: &LateChoice) -> Wall {
        let before = self.state.evaluated.unwrap_or(Wall(i64::MIN));
        let open = match self.terms.mode {
            CatchUpMode::Each => choice.chosen.iter().copied().filter(|slot| *slot > self.accounted).min(),
            CatchUpMode::Collapse => {
                choice.chosen.first().and_then(|slot| self.covered(*slot, choice)).map(|gap| gap.from)
            }
        };
        let settled = open.map_or(Some(current), |open| self.schedule.at_or_before(just_before(open)));
        settled.unwrap_or(Wall(i64::MIN)).max(before).max(Wall(0))
    }

    fn each(&self, current: Wall, choice: &LateChoice) -> Vec<Due> {
        let mut slots = choice.chosen.clone();
        if self.terms.order == CatchUpOrder::OldestFirst {
            slots.reverse();
        }
        let due = slots.iter().enumerate().map(|(number, slot)| Due {
            wait: if number == 0 { Duration::ZERO } else { self.terms.spacing },
            ..self.due(*slot, current)
        });
        due.collect()
    }

    fn collapsed(&self, current: Wall, choice: &LateChoice) -> Option<Due> {
        let slot = *choice.chosen.first()?;
        let covers = self.covered(slot, choice).filter(|gap| gap.from < slot);
        Some(Due { covers, ..self.due(slot, current) })
    }

    /// The slots that one run for `slot` covers.
    fn covered(&self, slot: Wall, choice: &LateChoice) -> Option<Gap> {
        let after = choice.refused.unwrap_or(self.accounted).max(self.accounted);
        let older = self.gap(after, just_before(slot), R::is_due);
        let own = Gap { from: slot, to: slot, count: 1 };
        match older {
            Some(gap) => Some(Gap { from: gap.from, to: slot, count: gap.count + 1 }),
            None => (slot > self.accounted).then_some(own),
        }
    }

    fn due(&self, slot: Wall, current: Wall) -> Due {
        let is_timely = slot == current && R::is_on_time(slot, self.now, self.terms.slack);
        Due {
            slot,
            trigger: if is_timely { Trigger::Schedule } else { Trigger::CatchUp },
            late: self.now.since(slot),
            wait: Duration::ZERO,
            covers: None,
        }
    }

    /// The slots after `after` up to `to` that count by their known state, computed arithmetically: most slots are
    /// unknown.
    fn gap(&self, after: Wall, to: Wall, counts: impl Fn(Option<SlotState>) -> bool) -> Option<Gap> {
        let is_slot = |slot: Wall| self.schedule.at_or_before(slot) == Some(slot);
        let between = |slot: Wall| after < slot && slot <= to;
        let others = self.state.known.iter().filter(|(slot, state)| between(*slot) && !counts(Some(*state)));
        let others = others.filter(|(slot, _)| is_slot(*slot)).count() as u64;
        let count = self.schedule.count(after, to).checked_sub(others).filter(|count| *count > 0)?;
        let mut from = self.schedule.after(after)?;
        while !counts(self.state.of(from)) {
            from = self.schedule.after(from)?;
        }
        let mut to = self.schedule.at_or_before(to)?;
        while !counts(self.state.of(to)) {
            to = self.schedule.at_or_before(just_before(to))?;
        }
        Some(Gap { from, to, count })
    }
}
