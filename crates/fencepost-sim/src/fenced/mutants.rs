//! The known bugs of fenced writes, and the promise that each breaks.

use fencepost_core::fence::{FenceRules, WriteMode, judge};
use fencepost_core::token::Token;

use super::invariants::FenceViolation::{self, *};
use super::{FenceFlaw, FenceSetting, FenceWorld, settings};
use crate::model;
use crate::rulebook::Rulebook;

pub type FenceMutant = model::Mutant<FenceWorld>;

#[derive(Debug)]
struct EqualIsStale;

impl FenceRules for EqualIsStale {
    fn is_stale(seen: Token, token: Token) -> bool {
        token <= seen
    }
}

#[derive(Debug)]
struct EqualIsUnspent;

impl FenceRules for EqualIsUnspent {
    fn is_spent(mode: WriteMode, seen: Token, token: Token) -> bool {
        mode == WriteMode::Once && token < seen
    }
}

#[derive(Debug)]
struct NeverStale;

impl FenceRules for NeverStale {
    fn is_stale(_seen: Token, _token: Token) -> bool {
        false
    }
}

pub const ALL: [FenceMutant; 15] = [
    rule::<EqualIsStale>(
        "equal_is_stale",
        "A token that equals the fence's is refused, and a holder cannot write a second time.",
        HolderRefused,
        settings::MANY,
    ),
    rule::<EqualIsUnspent>(
        "equal_is_unspent",
        "In mode once, a token that equals the fence's is accepted.",
        TokenTwice,
        settings::ONCE,
    ),
    rule::<NeverStale>("never_stale", "Tokens are written down and not compared.", StaleLanded, settings::MANY),
    flaw("no_lock", "Check and write are two steps.", StaleLanded, FenceFlaw::NoLock, settings::MANY),
    flaw(
        "early_unlock",
        "The lock is given up when the fence is written, before the content is.",
        StaleLanded,
        FenceFlaw::EarlyUnlock,
        settings::MANY,
    ),
    flaw(
        "content_first",
        "The content is written before the fence.",
        FenceBehind,
        FenceFlaw::ContentFirst,
        settings::MANY,
    ),
    flaw(
        "fence_not_durable",
        "The directory is flushed once, after both fence and content.",
        FenceBehind,
        FenceFlaw::FenceNotDurable,
        settings::MANY,
    ),
    flaw(
        "fence_unflushed",
        "The fence gets its name before its bytes are flushed.",
        FenceTorn,
        FenceFlaw::FenceUnflushed,
        settings::MANY,
    ),
    flaw(
        "content_unflushed",
        "The content gets its name before its bytes are flushed.",
        ContentTorn,
        FenceFlaw::ContentUnflushed,
        settings::MANY,
    ),
    flaw(
        "torn_is_none",
        "A fence that cannot be read is taken for no fence.",
        StaleLanded,
        FenceFlaw::TornIsNone,
        settings::MANY_DAMAGED,
    ),
    flaw(
        "lost_is_none",
        "A fence that is gone is taken for a first write.",
        StaleLanded,
        FenceFlaw::LostIsNone,
        settings::MANY_DAMAGED,
    ),
    flaw(
        "no_lineage_check",
        "Tokens of another store are compared with ours.",
        OtherLineage,
        FenceFlaw::NoLineageCheck,
        settings::MANY_LINEAGES,
    ),
    flaw(
        "no_run_check",
        "A token is accepted from every run that presents it.",
        OtherRun,
        FenceFlaw::NoRunCheck,
        settings::MANY_RUNS,
    ),
    flaw(
        "arrival_unchecked",
        "A write that was accepted before is reported as done, though it was killed between fence and content.",
        ReportedLost,
        FenceFlaw::ArrivalUnchecked,
        settings::MANY,
    ),
    flaw(
        "arrival_unflushed",
        "Who comes again after a kill builds on a fence that is not on the disk yet.",
        FenceBehind,
        FenceFlaw::ArrivalUnflushed,
        settings::MANY,
    ),
];

const fn flaw(
    name: &'static str,
    what: &'static str,
    breaks: FenceViolation,
    flaw: FenceFlaw,
    setting: FenceSetting,
) -> FenceMutant {
    FenceMutant { name, what, breaks, setting: setting.with(flaw), rules: Rulebook::HONEST }
}

const fn rule<R: FenceRules>(
    name: &'static str,
    what: &'static str,
    breaks: FenceViolation,
    setting: FenceSetting,
) -> FenceMutant {
    FenceMutant { name, what, breaks, setting, rules: Rulebook::HONEST.judging(judge::<R>) }
}
