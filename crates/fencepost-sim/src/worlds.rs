//! The worlds that are explored completely. Together they are the bound that the documentation states.

use crate::config::{Fenced, LeaseBudget, LeaseSetting};

/// Nothing happens at all.
const NOTHING: LeaseBudget = LeaseBudget {
    triggers: 0,
    crashes: 0,
    sleeps: 0,
    stalls: 0,
    delays: 0,
    losses: 0,
    refusals: 0,
    foreign: 0,
    rollbacks: 0,
};

/// So many runs of one job, on either host, and nothing goes wrong.
const ONE_RUN: LeaseBudget = LeaseBudget { triggers: 1, ..NOTHING };
const TWO_RUNS: LeaseBudget = LeaseBudget { triggers: 2, ..NOTHING };
const THREE_RUNS: LeaseBudget = LeaseBudget { triggers: 3, ..NOTHING };

/// A store that lets a call hang.
pub const SLOW: LeaseSetting = LeaseSetting::new("slow", LeaseBudget { delays: 1, ..TWO_RUNS }).until(120_000);
pub const SLOW_CLOCKLESS: LeaseSetting =
    LeaseSetting::new("slow-clockless", LeaseBudget { delays: 1, ..TWO_RUNS }).without_clock().until(120_000);
/// One run on a store that hangs again and again.
pub const HANGING: LeaseSetting = LeaseSetting::new("hanging", LeaseBudget { delays: 3, ..ONE_RUN }).until(120_000);
/// A run that two others look at, over a store that hangs.
pub const OBSERVED: LeaseSetting =
    LeaseSetting::new("observed", LeaseBudget { delays: 2, ..THREE_RUNS }).without_clock().endless().until(63_000);

/// Hosts that sleep past their deadlines.
pub const ASLEEP: LeaseSetting = LeaseSetting::new("asleep", LeaseBudget { sleeps: 1, ..TWO_RUNS }).until(120_000);
pub const ASLEEP_CLOCKLESS: LeaseSetting =
    LeaseSetting::new("asleep-clockless", LeaseBudget { sleeps: 1, ..TWO_RUNS }).without_clock().until(120_000);

/// Clocks that run at different rates, over a sleep and a hanging call, and over two observers.
pub const DRIFT: LeaseSetting =
    LeaseSetting::new("drift", LeaseBudget { sleeps: 1, delays: 1, ..ONE_RUN }).drifting().until(200_000);
pub const DRIFT_CLOCKLESS: LeaseSetting =
    LeaseSetting::new("drift-clockless", THREE_RUNS).drifting().without_clock().endless().until(120_000);

/// Wrappers, keepers and hosts that die.
pub const CRASH: LeaseSetting = LeaseSetting::new("crash", LeaseBudget { crashes: 1, ..TWO_RUNS }).until(100_000);
pub const CRASH_CLOCKLESS: LeaseSetting =
    LeaseSetting::new("crash-clockless", LeaseBudget { crashes: 1, ..TWO_RUNS }).without_clock().until(100_000);

/// Wrappers that are stopped, on a store that also refuses.
pub const STALL: LeaseSetting =
    LeaseSetting::new("stall", LeaseBudget { stalls: 1, refusals: 1, ..TWO_RUNS }).until(80_000);

/// Answers that are lost, and requests that come late.
pub const LOSS: LeaseSetting = LeaseSetting::new("loss", LeaseBudget { losses: 1, ..TWO_RUNS }).until(80_000);
pub const LOSSES: LeaseSetting =
    LeaseSetting::new("losses", LeaseBudget { losses: 2, delays: 1, crashes: 1, ..ONE_RUN }).until(60_000);
pub const NEW_STORE: LeaseSetting =
    LeaseSetting::new("new-store", LeaseBudget { losses: 1, refusals: 1, ..TWO_RUNS }).on_new_store().until(20_000);

/// Others who swap the record as well.
pub const FOREIGN: LeaseSetting = LeaseSetting::new("foreign", LeaseBudget { foreign: 2, ..TWO_RUNS }).until(80_000);

/// A store that is restored from a backup, with three grants.
pub const RESTORE: LeaseSetting =
    LeaseSetting::new("restore", LeaseBudget { rollbacks: 1, ..THREE_RUNS }).until(20_000);
pub const RESTORE_CLOCKLESS: LeaseSetting =
    LeaseSetting::new("restore-clockless", LeaseBudget { rollbacks: 1, ..TWO_RUNS }).without_clock().until(80_000);

/// Runs that wait for their turn. The pauses between looks are fixed, so that a short lease keeps the world small.
pub const WAIT: LeaseSetting =
    LeaseSetting::new("wait", LeaseBudget { crashes: 1, ..TWO_RUNS }).short().waiting(12).until(8_000);

/// Commands on a fenced resource, whose tokens do not come in order, and one of which dies.
pub const RESOURCE: LeaseSetting = LeaseSetting::new("resource", LeaseBudget { crashes: 1, ..THREE_RUNS })
    .on_resource(&[plain(1), plain(3), plain(2)])
    .until(20_000);
/// The same over a store that lets calls hang, until a command outlives its lease.
pub const RESOURCE_SLOW: LeaseSetting = LeaseSetting::new("resource-slow", LeaseBudget { delays: 1, ..TWO_RUNS })
    .on_resource(&[plain(2), plain(1)])
    .until(120_000);
/// One named command that is asked for again and again, while processes die and answers are lost.
pub const RESOURCE_NAMED: LeaseSetting =
    LeaseSetting::new("resource-named", LeaseBudget { crashes: 1, losses: 1, ..TWO_RUNS })
        .on_resource(&[named(1), named(1)])
        .until(60_000);
/// The same in a store without a clock, while hosts sleep.
pub const RESOURCE_CLOCKLESS: LeaseSetting =
    LeaseSetting::new("resource-clockless", LeaseBudget { sleeps: 1, ..TWO_RUNS })
        .on_resource(&[named(1), named(1)])
        .without_clock()
        .until(120_000);

const fn plain(token: u64) -> Fenced {
    Fenced { token, is_named: false }
}

const fn named(token: u64) -> Fenced {
    Fenced { token, is_named: true }
}

/// What every test run explores.
pub const ALL: [LeaseSetting; 22] = [
    SLOW,
    SLOW_CLOCKLESS,
    HANGING,
    OBSERVED,
    ASLEEP,
    ASLEEP_CLOCKLESS,
    DRIFT,
    DRIFT_CLOCKLESS,
    CRASH,
    CRASH_CLOCKLESS,
    STALL,
    LOSS,
    LOSSES,
    NEW_STORE,
    FOREIGN,
    RESTORE,
    RESTORE_CLOCKLESS,
    WAIT,
    RESOURCE,
    RESOURCE_SLOW,
    RESOURCE_NAMED,
    RESOURCE_CLOCKLESS,
];

/// What takes minutes: more of the same, and misfortunes in company.
pub const DEEP: [LeaseSetting; 8] = [
    LeaseSetting::new("everything", LeaseBudget { sleeps: 1, delays: 1, losses: 1, crashes: 1, stalls: 1, ..ONE_RUN })
        .until(80_000),
    LeaseSetting::new("slow", LeaseBudget { delays: 2, ..TWO_RUNS }).until(140_000),
    LeaseSetting::new("asleep", LeaseBudget { sleeps: 1, delays: 1, ..TWO_RUNS }).until(100_000),
    LeaseSetting::new("asleep-clockless", LeaseBudget { sleeps: 2, ..TWO_RUNS }).without_clock().until(120_000),
    LeaseSetting::new("crash", LeaseBudget { crashes: 1, losses: 1, ..TWO_RUNS }).until(60_000),
    LeaseSetting::new("loss", LeaseBudget { losses: 1, delays: 1, ..TWO_RUNS }).until(80_000),
    LeaseSetting::new("restore", LeaseBudget { rollbacks: 1, ..THREE_RUNS }).until(40_000),
    LeaseSetting::new("observed", LeaseBudget { delays: 2, ..THREE_RUNS }).without_clock().until(63_000),
];
