//! The known bugs of slots and items of work, and the promise that each breaks.

use fencepost_core::lease::{Honest, Rules};
use fencepost_core::ledger::Outcome;
use fencepost_core::plan::{PlanRules, SlotState, Terms};

use super::invariants::Violation::{self, *};
use super::{Flaw, Setting, Step, settings};
use crate::explore::{Found, Report};

/// A known bug. The same setting without it is explored completely, and is sound.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub name: &'static str,
    /// What the bug is, in a sentence.
    pub what: &'static str,
    pub breaks: Violation,
    pub setting: Setting,
    explore: fn(&Setting, Option<Violation>) -> Report<Step, Violation>,
    narrate: fn(&Setting, &Found<Step, Violation>) -> String,
}

impl Mutant {
    pub fn explore(&self) -> Report<Step, Violation> {
        (self.explore)(&self.setting, Some(self.breaks))
    }

    pub fn narrate(&self, found: &Found<Step, Violation>) -> String {
        (self.narrate)(&self.setting, found)
    }
}

/// The last zero slots of a list are all of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ZeroIsAll;

impl PlanRules for ZeroIsAll {
    fn most(terms: &Terms) -> usize {
        if terms.catch_up == 0 { usize::MAX } else { terms.catch_up as usize }
    }
}

impl Rules for ZeroIsAll {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnknownIsFailed;

impl PlanRules for UnknownIsFailed {
    fn is_unknown(_attempt: Option<&Outcome>) -> bool {
        false
    }
}

impl Rules for UnknownIsFailed {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FailedForEver;

impl PlanRules for FailedForEver {
    fn is_due(known: Option<SlotState>, _is_newest: bool) -> bool {
        !matches!(known, Some(SlotState::Done | SlotState::Running))
    }
}

impl Rules for FailedForEver {}

pub fn named(name: &str) -> Option<Mutant> {
    ALL.into_iter().find(|mutant| mutant.name == name)
}

pub const ALL: [Mutant; 7] = [
    flaw(
        "slot_is_now",
        "A run is recorded for the moment it began at instead of for its slot.",
        DoneTwice,
        Flaw::SlotIsNow,
        settings::NEWEST,
    ),
    rule::<ZeroIsAll>("zero_is_all", "A catch-up of zero is taken for all.", TooLate, settings::NEVER),
    flaw(
        "plan_outside",
        "The slot is chosen outside the claim, and two machines both catch up.",
        DoneTwice,
        Flaw::PlanOutside,
        settings::NEWEST,
    ),
    rule::<UnknownIsFailed>(
        "unknown_is_failed",
        "An attempt that died is taken for one that failed, though it may have had its effect.",
        TwoEffects,
        settings::ONCE,
    ),
    rule::<FailedForEver>(
        "failed_for_ever",
        "An older slot that failed is tried again and again.",
        FailedAgain,
        settings::THREE,
    ),
    flaw(
        "missed_unwritten",
        "What was missed is accounted for and not written down.",
        Silent,
        Flaw::MissedUnwritten,
        settings::NEVER,
    ),
    flaw("pause_unseen", "A pause is not kept in the record.", RunWhilePaused, Flaw::PauseUnseen, settings::PAUSED),
];

const fn flaw(name: &'static str, what: &'static str, breaks: Violation, flaw: Flaw, setting: Setting) -> Mutant {
    rule::<Honest>(name, what, breaks, Setting { flaw: Some(flaw), ..setting })
}

const fn rule<R: Rules>(name: &'static str, what: &'static str, breaks: Violation, setting: Setting) -> Mutant {
    Mutant { name, what, breaks, setting, explore: Setting::explore::<R>, narrate: Setting::narrate::<R> }
}
