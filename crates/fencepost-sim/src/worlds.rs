//! The worlds that are explored completely. Together they are the bound that the documentation states.

use crate::config::{Budget, Config};

const NOTHING: Budget = Budget {
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

/// Two runs of one job, and nothing goes wrong but what is named.
const TWO_RUNS: Budget = Budget { triggers: 2, ..NOTHING };

/// A store that lets calls hang.
pub const SLOW: Config = Config::new("slow", Budget { delays: 1, ..TWO_RUNS }).until(120_000);
pub const SLOW_CLOCKLESS: Config =
    Config::new("slow-clockless", Budget { delays: 1, ..TWO_RUNS }).without_clock().until(160_000);

/// Hosts that sleep past their deadlines.
pub const ASLEEP: Config = Config::new("asleep", Budget { sleeps: 1, ..TWO_RUNS }).until(120_000);
pub const ASLEEP_CLOCKLESS: Config =
    Config::new("asleep-clockless", Budget { sleeps: 1, ..TWO_RUNS }).without_clock().until(160_000);

/// Clocks that run at different rates, over a sleep and a hanging call.
pub const DRIFT: Config =
    Config::new("drift", Budget { triggers: 1, sleeps: 1, delays: 1, ..NOTHING }).drifting().until(200_000);
pub const DRIFT_CLOCKLESS: Config = Config::new("drift-clockless", TWO_RUNS).drifting().without_clock().until(160_000);

/// Wrappers, keepers and hosts that die.
pub const CRASH: Config = Config::new("crash", Budget { crashes: 1, ..TWO_RUNS }).until(100_000);
pub const CRASH_CLOCKLESS: Config =
    Config::new("crash-clockless", Budget { crashes: 1, ..TWO_RUNS }).without_clock().until(100_000);

/// Wrappers that are stopped, on a store that also refuses.
pub const STALL: Config = Config::new("stall", Budget { stalls: 1, refusals: 1, ..TWO_RUNS }).until(80_000);

/// Answers that are lost, and requests that come late.
pub const LOSS: Config = Config::new("loss", Budget { losses: 1, ..TWO_RUNS }).until(80_000);
pub const LOSSES: Config =
    Config::new("losses", Budget { triggers: 1, losses: 2, delays: 1, crashes: 1, ..NOTHING }).until(60_000);
pub const NEW_STORE: Config =
    Config::new("new-store", Budget { losses: 1, refusals: 1, ..TWO_RUNS }).on_new_store().until(20_000);

/// Others who swap the record as well.
pub const FOREIGN: Config = Config::new("foreign", Budget { foreign: 2, ..TWO_RUNS }).until(80_000);

/// A store that is restored from a backup, with three grants.
pub const RESTORE: Config = Config::new("restore", Budget { triggers: 3, rollbacks: 1, ..NOTHING }).until(40_000);
pub const RESTORE_CLOCKLESS: Config =
    Config::new("restore-clockless", Budget { rollbacks: 1, ..TWO_RUNS }).without_clock().until(80_000);

/// Runs that wait for their turn. The pauses between looks are fixed, so that a short lease keeps the world small.
pub const WAIT: Config = Config::new("wait", Budget { crashes: 1, ..TWO_RUNS }).short().waiting(12).until(12_000);

pub const ALL: [Config; 16] = [
    SLOW,
    SLOW_CLOCKLESS,
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
];
