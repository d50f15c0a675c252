//! The worlds of slots and items of work that are explored completely.

use std::time::Duration;

use fencepost_core::plan::Mode;
use fencepost_core::slot::OnUnknown;

use super::{Budget, Setting, Work};

const NONE: Budget = Budget { crashes: 0, losses: 0, failures: 0, pauses: 0, halts: 0, leaps: 0 };
const CRASH: Budget = Budget { crashes: 1, failures: 1, ..NONE };
const LOSS: Budget = Budget { losses: 2, ..NONE };
const PAUSE: Budget = Budget { pauses: 1, ..NONE };
const DEATHS: Budget = Budget { crashes: 2, losses: 1, failures: 1, ..NONE };
const HALTS: Budget = Budget { halts: 2, ..NONE };
const LEAP: Budget = Budget { leaps: 1, ..NONE };
const DEATH: Budget = Budget { crashes: 1, losses: 1, ..NONE };

const UNSTARTED: Budget = Budget { halts: 2, failures: 1, ..NONE };

const fn slots(name: &'static str, catch_up: u32, mode: Mode) -> Setting {
    let work = Work::Slots { catch_up, mode };
    Setting { hosts: 2, triggers: 3, ticks: 5, ..with(name, work, CRASH) }
}

/// The clock goes from a slot to halfway before the next.
const fn with(name: &'static str, work: Work, budget: Budget) -> Setting {
    let (tick, begins) = (Duration::from_secs(30), Duration::ZERO);
    Setting { name, work, hosts: 3, triggers: 4, ticks: 0, tick, begins, rows: false, budget, flaw: None }
}

pub const NEVER: Setting = slots("never", 0, Mode::Each);
pub const NEWEST: Setting = slots("newest", 1, Mode::Each);
pub const THREE: Setting = slots("three", 3, Mode::Each);
pub const COLLAPSE: Setting = Setting { ticks: 4, ..slots("collapse", 1, Mode::Collapse) };
pub const LOSSY: Setting = Setting { name: "lossy", ticks: 3, budget: LOSS, ..slots("", 3, Mode::Each) };
pub const PAUSED: Setting = Setting { name: "paused", ticks: 4, budget: PAUSE, ..slots("", 3, Mode::Each) };
pub const CROWD: Setting = Setting { name: "crowd", hosts: 3, ticks: 2, ..slots("", 1, Mode::Each) };

/// A trigger goes on to the next slot that is due, and may be halted.
pub const ROW: Setting =
    Setting { name: "row", triggers: 2, ticks: 4, rows: true, budget: HALTS, ..slots("", 3, Mode::Each) };
/// The clock begins ten seconds before a slot, and goes in steps of five.
pub const EARLY: Setting = Setting {
    name: "early",
    ticks: 4,
    tick: Duration::from_secs(5),
    begins: Duration::from_secs(50),
    ..slots("", 1, Mode::Each)
};
pub const AHEAD: Setting = Setting { name: "ahead", ticks: 6, budget: LEAP, ..slots("", 1, Mode::Each) };

const fn once(name: &'static str, on_unknown: OnUnknown, budget: Budget) -> Setting {
    with(name, Work::Once(on_unknown), budget)
}

pub const ONCE: Setting = once("once", OnUnknown::Halt, DEATHS);
pub const ONCE_RETRIED: Setting = once("once-retried", OnUnknown::Retry, DEATH);
/// No process dies at work, so no end is unknown.
pub const ONCE_UNSTARTED: Setting = once("once-unstarted", OnUnknown::Halt, UNSTARTED);

pub const ALL: [Setting; 13] =
    [NEVER, NEWEST, THREE, COLLAPSE, LOSSY, PAUSED, CROWD, ROW, EARLY, AHEAD, ONCE, ONCE_RETRIED, ONCE_UNSTARTED];
