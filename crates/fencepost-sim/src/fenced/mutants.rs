//! The known bugs of fenced writes, and the promise that each breaks.

use fencepost_core::fence::{FenceRules, Mode, judge};
use fencepost_core::token::Token;

use super::invariants::Violation::{self, *};
use super::{Flaw, Setting, Step, settings};
use crate::explore::Report;

/// A known bug. The same setting without it is explored completely, and is sound.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub name: &'static str,
    /// What the bug is, in a sentence.
    pub what: &'static str,
    pub breaks: Violation,
    pub setting: Setting,
}

impl Mutant {
    pub fn explore(&self) -> Report<Step, Violation> {
        self.setting.explore(Some(self.breaks))
    }
}

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
    fn is_spent(mode: Mode, seen: Token, token: Token) -> bool {
        mode == Mode::Once && token < seen
    }
}

#[derive(Debug)]
struct NeverStale;

impl FenceRules for NeverStale {
    fn is_stale(_seen: Token, _token: Token) -> bool {
        false
    }
}

pub fn named(name: &str) -> Option<Mutant> {
    ALL.into_iter().find(|mutant| mutant.name == name)
}

pub const ALL: [Mutant; 15] = [
    Mutant {
        name: "equal_is_stale",
        what: "A token that equals the fence's is refused, and a holder cannot write a second time.",
        breaks: HolderRefused,
        setting: Setting { judge: judge::<EqualIsStale>, ..settings::MANY },
    },
    Mutant {
        name: "equal_is_unspent",
        what: "In mode once, a token that equals the fence's is accepted.",
        breaks: TokenTwice,
        setting: Setting { judge: judge::<EqualIsUnspent>, ..settings::ONCE },
    },
    Mutant {
        name: "never_stale",
        what: "Tokens are written down and not compared.",
        breaks: StaleLanded,
        setting: Setting { judge: judge::<NeverStale>, ..settings::MANY },
    },
    flaw("no_lock", "Check and write are two steps.", StaleLanded, Flaw::NoLock, settings::MANY),
    flaw(
        "early_unlock",
        "The lock is given up when the fence is written, before the content is.",
        StaleLanded,
        Flaw::EarlyUnlock,
        settings::MANY,
    ),
    flaw("content_first", "The content is written before the fence.", FenceBehind, Flaw::ContentFirst, settings::MANY),
    flaw(
        "fence_not_durable",
        "The directory is flushed once, after both fence and content.",
        FenceBehind,
        Flaw::FenceNotDurable,
        settings::MANY,
    ),
    flaw(
        "fence_unflushed",
        "The fence gets its name before its bytes are flushed.",
        FenceTorn,
        Flaw::FenceUnflushed,
        settings::MANY,
    ),
    flaw(
        "content_unflushed",
        "The content gets its name before its bytes are flushed.",
        ContentTorn,
        Flaw::ContentUnflushed,
        settings::MANY,
    ),
    flaw(
        "torn_is_none",
        "A fence that cannot be read is taken for no fence.",
        StaleLanded,
        Flaw::TornIsNone,
        settings::MANY_DAMAGED,
    ),
    flaw(
        "lost_is_none",
        "A fence that is gone is taken for a first write.",
        StaleLanded,
        Flaw::LostIsNone,
        settings::MANY_DAMAGED,
    ),
    flaw(
        "no_lineage_check",
        "Tokens of another store are compared with ours.",
        OtherLineage,
        Flaw::NoLineageCheck,
        settings::MANY_LINEAGES,
    ),
    flaw(
        "no_run_check",
        "A token is accepted from whatever run presents it.",
        OtherRun,
        Flaw::NoRunCheck,
        settings::MANY_RUNS,
    ),
    flaw(
        "arrival_unchecked",
        "A write that was accepted before is reported as done, though it was killed between fence and content.",
        ReportedLost,
        Flaw::ArrivalUnchecked,
        settings::MANY,
    ),
    flaw(
        "arrival_unflushed",
        "Who comes again after a kill builds on a fence that is not on the disk yet.",
        FenceBehind,
        Flaw::ArrivalUnflushed,
        settings::MANY,
    ),
];

const fn flaw(name: &'static str, what: &'static str, breaks: Violation, flaw: Flaw, setting: Setting) -> Mutant {
    Mutant { name, what, breaks, setting: setting.with(flaw) }
}
