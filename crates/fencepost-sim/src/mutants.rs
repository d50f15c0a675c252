//! Every known bug of leases by its name, the world in which it does harm, and the promise that it breaks.

use fencepost_core::lease::Rules;

use crate::bugs;
use crate::config::{LeaseFlaw, LeaseSetting};
use crate::invariants::LeaseViolation::{self, *};
use crate::model;
use crate::rulebook::Rulebook;
use crate::world::LeaseWorld;
use crate::worlds;

pub type LeaseMutant = model::Mutant<LeaseWorld>;

/// The bugs of the rules, and those of a driver or a store.
pub const ALL: [LeaseMutant; 30] = [
    rule::<bugs::RenewUnchecked>(
        "renew_unchecked",
        "A renewal does not look whose lease it renews.",
        TwoChildren,
        worlds::ASLEEP,
    ),
    rule::<bugs::ReleaseUnchecked>(
        "release_unchecked",
        "A release does not look whose lease it ends.",
        Overrun,
        worlds::STALL,
    ),
    flaw(
        "release_deletes",
        "A release deletes the record, and with it the token and the ledger.",
        OutcomeLost,
        LeaseFlaw::ReleaseDeletes,
        worlds::SLOW,
    ),
    flaw(
        "lost_swap_is_lost_lease",
        "A holder whose swap was lost gives up without looking whose lease it is.",
        HolderStopped,
        LeaseFlaw::LostSwapIsLostLease,
        worlds::FOREIGN,
    ),
    flaw(
        "lost_swap_is_won",
        "A lost swap is taken for a won one.",
        TwoChildren,
        LeaseFlaw::LostSwapIsWon,
        worlds::SLOW,
    ),
    flaw(
        "unknown_is_won",
        "A swap whose fate is unknown is taken for won.",
        TwoChildren,
        LeaseFlaw::UnknownIsWon,
        worlds::LOSS,
    ),
    flaw(
        "unknown_is_lost",
        "A swap whose fate is unknown is taken for lost.",
        HolderStopped,
        LeaseFlaw::UnknownIsLost,
        worlds::LOSS,
    ),
    rule::<bugs::SkipResetsObserver>(
        "skip_resets_observer",
        "Every trigger that is turned away begins to count again since when it has seen the lease.",
        NoRecovery,
        worlds::CRASH_CLOCKLESS,
    ),
    flaw(
        "observer_from_request",
        "An observer counts from before its read instead of from after it.",
        Overrun,
        LeaseFlaw::ObserverFromRequest,
        worlds::OBSERVED,
    ),
    rule::<bugs::RenewalsUnseen>(
        "renewals_unseen",
        "An observer looks at the token only, and takes a renewed lease for an unchanged one.",
        TwoChildren,
        worlds::DRIFT_CLOCKLESS,
    ),
    rule::<bugs::DeadlineFromResponse>(
        "deadline_from_response",
        "A holder counts its deadline from the answer instead of from before the request.",
        Overrun,
        worlds::HANGING,
    ),
    rule::<bugs::NoMargin>(
        "no_margin",
        "A holder believes for the whole time-to-live, and its clock is slow.",
        Overrun,
        worlds::DRIFT,
    ),
    rule::<bugs::UntilFromOldReading>(
        "until_from_old_reading",
        "A lease ends one time-to-live after the last reading of the store's clock, however old that is.",
        Overrun,
        worlds::SLOW,
    ),
    rule::<bugs::OldReading>(
        "old_reading",
        "After a sleep, a lease is renewed on a reading from before it, and the clocks have drifted apart.",
        Overrun,
        worlds::DRIFT,
    ),
    rule::<bugs::HoldersClock>(
        "holders_clock",
        "The holder writes down its own clock, and others compare it with theirs.",
        TwoChildren,
        worlds::SLOW_CLOCKLESS,
    ),
    rule::<bugs::FenceOutside>(
        "fence_outside",
        "The fence of a resource is judged when a command is started, and not again in its claim.",
        StaleRan,
        worlds::RESOURCE.with(LeaseFlaw::FenceOutside),
    ),
    rule::<bugs::NamesIgnored>(
        "names_ignored",
        "A command that died half-way is run again under its token and name.",
        RanTwice,
        worlds::RESOURCE_NAMED,
    ),
    rule::<bugs::DiedIsApplied>(
        "died_is_applied",
        "A command that died half-way is taken for applied.",
        AppliedUnseen,
        worlds::RESOURCE_NAMED,
    ),
    rule::<bugs::PlainCounter>(
        "plain_counter",
        "Tokens are counted in the record alone, and a restored record has forgotten some.",
        TokenNotGreater,
        worlds::RESTORE,
    ),
    flaw(
        "plain_write",
        "A claim is written without comparing versions.",
        TokenNotGreater,
        LeaseFlaw::PlainWrite,
        worlds::SLOW,
    ),
    flaw(
        "clock_stops_in_sleep",
        "Deadlines are kept by a clock that stands still while the host sleeps.",
        TwoChildren,
        LeaseFlaw::ClockStopsInSleep,
        worlds::ASLEEP,
    ),
    flaw(
        "blocked_loop",
        "The loop that watches the deadline waits for the store, and the store hangs.",
        TwoChildren,
        LeaseFlaw::BlockedLoop,
        worlds::SLOW,
    ),
    flaw(
        "no_freeze",
        "What wakes past its deadline runs on while its wrapper asks whose lease it is.",
        TwoChildren,
        LeaseFlaw::NoFreeze,
        worlds::ASLEEP,
    ),
    flaw(
        "keeper_forgotten",
        "A holder counts as dead as soon as its wrapper is, while its keeper still ends the tree.",
        TwoChildren,
        LeaseFlaw::KeeperForgotten,
        worlds::CRASH,
    ),
    flaw(
        "foreign_processes",
        "A process that is not found on this host counts as dead, though it runs on another.",
        TwoChildren,
        LeaseFlaw::ForeignProcesses,
        worlds::SLOW,
    ),
    flaw(
        "early_release",
        "The lease is released when TERM is sent instead of when the tree is gone.",
        TwoChildren,
        LeaseFlaw::EarlyRelease,
        worlds::FOREIGN,
    ),
    flaw(
        "skips_in_record",
        "Skips are counted in the lease itself, so that it never looks unchanged.",
        NoRecovery,
        LeaseFlaw::SkipsInRecord,
        worlds::CRASH_CLOCKLESS,
    ),
    flaw(
        "no_sightings",
        "What an observer saw is forgotten when its process ends, and every trigger is a new process.",
        NoRecovery,
        LeaseFlaw::NoSightings,
        worlds::CRASH_CLOCKLESS,
    ),
    flaw(
        "takeover_keeps_fence",
        "A takeover leaves the fence of the command that died, and an older token passes it.",
        StaleRan,
        LeaseFlaw::TakeoverKeepsFence,
        worlds::RESOURCE,
    ),
    flaw(
        "versions_repeat",
        "A restored store gives out its version numbers again, and an old expectation matches a new state.",
        TokenNotGreater,
        LeaseFlaw::VersionsRepeat,
        worlds::RESTORE,
    ),
];

const fn rule<R: Rules>(
    name: &'static str,
    what: &'static str,
    breaks: LeaseViolation,
    setting: LeaseSetting,
) -> LeaseMutant {
    LeaseMutant { name, what, breaks, setting, rules: Rulebook::of::<R>() }
}

const fn flaw(
    name: &'static str,
    what: &'static str,
    breaks: LeaseViolation,
    flaw: LeaseFlaw,
    setting: LeaseSetting,
) -> LeaseMutant {
    LeaseMutant { name, what, breaks, setting: setting.with(flaw), rules: Rulebook::HONEST }
}
