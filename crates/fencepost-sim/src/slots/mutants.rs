//! The known bugs of slots and items of work, and the promise that each breaks.

use fencepost_core::lease::{Honest, Rules};
use fencepost_core::ledger::Outcome;
use fencepost_core::plan::{CatchUpOrder, CatchUpTerms, PlanRules};
use fencepost_core::time::Wall;

use super::invariants::SlotViolation::{self, *};
use super::{SlotFlaw, SlotSetting, SlotWorld, settings};
use crate::model;
use crate::rulebook::Rulebook;

pub type SlotMutant = model::Mutant<SlotWorld>;

/// The last zero slots of a list are all of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ZeroIsAll;

impl PlanRules for ZeroIsAll {
    fn most(terms: &CatchUpTerms) -> usize {
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
struct UnstartedIsUnknown;

impl PlanRules for UnstartedIsUnknown {
    fn is_unknown(attempt: Option<&Outcome>) -> bool {
        attempt.is_none_or(|attempt| attempt.exit_code.is_none_or(|code| !(1..=128).contains(&code)))
    }
}

impl Rules for UnstartedIsUnknown {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FailedForEver;

impl PlanRules for FailedForEver {
    fn is_spent(_tries: u32, _retries: u32) -> bool {
        false
    }
}

impl Rules for FailedForEver {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CollapseCountsOnce;

impl PlanRules for CollapseCountsOnce {
    fn counts_for(outcome: &Outcome, from: Wall, to: Wall) -> bool {
        (from..=to).contains(&outcome.slot)
    }
}

impl Rules for CollapseCountsOnce {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ManyAttempts;

impl PlanRules for ManyAttempts {
    fn follows(_slot: Wall, _tried: Wall, _order: CatchUpOrder) -> bool {
        true
    }
}

impl Rules for ManyAttempts {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EarlyStart;

impl PlanRules for EarlyStart {
    fn is_early(_slot: Wall, _now: Wall) -> bool {
        false
    }
}

impl Rules for EarlyStart {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClockAheadSilences;

impl PlanRules for ClockAheadSilences {
    fn ended(outcome: &Outcome) -> Wall {
        outcome.finished
    }
}

impl Rules for ClockAheadSilences {}

pub const ALL: [SlotMutant; 15] = [
    flaw(
        "slot_is_now",
        "A run is recorded for the moment it began at instead of for its slot.",
        DoneTwice,
        SlotFlaw::SlotIsNow,
        settings::NEWEST,
    ),
    rule::<ZeroIsAll>("zero_is_all", "A catch-up of zero is taken for all.", TooLate, settings::NEVER),
    flaw(
        "plan_outside",
        "The slot is chosen outside the claim, and two machines both catch up.",
        DoneTwice,
        SlotFlaw::PlanOutside,
        settings::NEWEST,
    ),
    rule::<UnknownIsFailed>(
        "unknown_is_failed",
        "An attempt that died is taken for one that failed, though it may have had its effect.",
        TwoEffects,
        settings::ONCE,
    ),
    rule::<UnstartedIsUnknown>(
        "unstarted_is_unknown",
        "An attempt whose command never started is taken for one that may have had its effect.",
        UnknownForNothing,
        settings::ONCE_UNSTARTED,
    ),
    rule::<FailedForEver>(
        "failed_slot_forever_retried",
        "A slot that failed is tried again by every trigger.",
        TriedTooOften,
        settings::NEWEST,
    ),
    rule::<CollapseCountsOnce>(
        "collapse_counts_once",
        "A collapsed attempt counts for its own slot alone, and the slots that it covered are tried again.",
        TriedTooOften,
        settings::COLLAPSE,
    ),
    rule::<ManyAttempts>(
        "one_trigger_many_attempts",
        "A trigger that goes on from slot to slot tries a halted slot again.",
        TriedTwice,
        settings::ROW,
    ),
    rule::<EarlyStart>("early_start", "A trigger within the slack runs before its slot.", TooEarly, settings::EARLY),
    rule::<ClockAheadSilences>(
        "clock_ahead_silences",
        "A run whose end was read from a clock that was ahead is taken to have overlapped the slots until then.",
        Silenced,
        settings::AHEAD,
    ),
    flaw(
        "missed_unwritten",
        "What was missed is accounted for and not written down.",
        Silent,
        SlotFlaw::MissedUnwritten,
        settings::NEVER,
    ),
    flaw("pause_unseen", "A pause is not kept in the record.", RunWhilePaused, SlotFlaw::PauseUnseen, settings::PAUSED),
    flaw(
        "pause_until_ignored",
        "A pause with an end does not end by itself.",
        PausedTooLong,
        SlotFlaw::PauseUntilIgnored,
        settings::PAUSED_FOR,
    ),
    flaw(
        "forget_reruns_slot",
        "Forgetting a job removes the outcomes that alone tell that a slot is not tried again.",
        TriedTooOften,
        SlotFlaw::ForgetRerunsSlot,
        settings::FORGOTTEN,
    ),
    flaw(
        "forget_resets_token",
        "Forgetting a job removes its token.",
        TokenWentBack,
        SlotFlaw::ForgetResetsToken,
        settings::FORGOTTEN,
    ),
];

const fn flaw(
    name: &'static str,
    what: &'static str,
    breaks: SlotViolation,
    flaw: SlotFlaw,
    setting: SlotSetting,
) -> SlotMutant {
    rule::<Honest>(name, what, breaks, SlotSetting { flaw: Some(flaw), ..setting })
}

const fn rule<R: Rules>(
    name: &'static str,
    what: &'static str,
    breaks: SlotViolation,
    setting: SlotSetting,
) -> SlotMutant {
    SlotMutant { name, what, breaks, setting, rules: Rulebook::of::<R>() }
}
