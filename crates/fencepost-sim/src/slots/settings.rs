//! The worlds of slots and items of work that are explored completely.

use std::time::Duration;

use fencepost_core::plan::CatchUpMode;
use fencepost_core::slot::OnUnknown;

use super::{SlotBudget, SlotSetting, SlotWork};

const NONE: SlotBudget = SlotBudget { crashes: 0, losses: 0, failures: 0, pauses: 0, forgets: 0, halts: 0, leaps: 0 };
const CRASH: SlotBudget = SlotBudget { crashes: 1, failures: 1, ..NONE };
const LOSS: SlotBudget = SlotBudget { losses: 2, ..NONE };
const PAUSE: SlotBudget = SlotBudget { pauses: 1, ..NONE };
const FORGET: SlotBudget = SlotBudget { forgets: 1, failures: 1, ..NONE };
const DEATHS: SlotBudget = SlotBudget { crashes: 2, losses: 1, failures: 1, ..NONE };
const HALTS: SlotBudget = SlotBudget { halts: 2, ..NONE };
const LEAP: SlotBudget = SlotBudget { leaps: 1, ..NONE };
const DEATH: SlotBudget = SlotBudget { crashes: 1, losses: 1, ..NONE };

const UNSTARTED: SlotBudget = SlotBudget { halts: 2, failures: 1, ..NONE };

const fn slots(name: &'static str, catch_up: u32, mode: CatchUpMode) -> SlotSetting {
    let work = SlotWork::Slots { catch_up, mode };
    SlotSetting { hosts: 2, triggers: 3, ticks: 5, ..with(name, work, CRASH) }
}

/// The clock goes from a slot to halfway before the next.
const fn with(name: &'static str, work: SlotWork, budget: SlotBudget) -> SlotSetting {
    let (tick, begins) = (Duration::from_secs(30), Duration::ZERO);
    SlotSetting {
        name,
        work,
        hosts: 3,
        triggers: 4,
        ticks: 0,
        tick,
        begins,
        rows: false,
        budget,
        pause_for: None,
        flaw: None,
    }
}

pub const NEVER: SlotSetting = slots("never", 0, CatchUpMode::Each);
pub const NEWEST: SlotSetting = slots("newest", 1, CatchUpMode::Each);
pub const THREE: SlotSetting = slots("three", 3, CatchUpMode::Each);
pub const COLLAPSE: SlotSetting = SlotSetting { ticks: 4, ..slots("collapse", 1, CatchUpMode::Collapse) };
pub const LOSSY: SlotSetting = SlotSetting { name: "lossy", ticks: 3, budget: LOSS, ..slots("", 3, CatchUpMode::Each) };
pub const PAUSED: SlotSetting =
    SlotSetting { name: "paused", ticks: 4, budget: PAUSE, ..slots("", 3, CatchUpMode::Each) };
/// A pause ends by itself, unless it is ended before.
pub const PAUSED_FOR: SlotSetting =
    SlotSetting { name: "paused-for", pause_for: Some(Duration::from_secs(60)), ..PAUSED };
/// The job is forgotten once, at any moment at which no run has it.
pub const FORGOTTEN: SlotSetting =
    SlotSetting { name: "forgotten", ticks: 4, budget: FORGET, ..slots("", 3, CatchUpMode::Each) };
pub const CROWD: SlotSetting = SlotSetting { name: "crowd", hosts: 3, ticks: 2, ..slots("", 1, CatchUpMode::Each) };

/// A trigger goes on to the next slot that is due, and may be halted.
pub const ROW: SlotSetting =
    SlotSetting { name: "row", triggers: 2, ticks: 4, rows: true, budget: HALTS, ..slots("", 3, CatchUpMode::Each) };
/// The clock begins ten seconds before a slot, and goes in steps of five.
pub const EARLY: SlotSetting = SlotSetting {
    name: "early",
    ticks: 4,
    tick: Duration::from_secs(5),
    begins: Duration::from_secs(50),
    ..slots("", 1, CatchUpMode::Each)
};
pub const AHEAD: SlotSetting = SlotSetting { name: "ahead", ticks: 6, budget: LEAP, ..slots("", 1, CatchUpMode::Each) };

const fn once(name: &'static str, on_unknown: OnUnknown, budget: SlotBudget) -> SlotSetting {
    with(name, SlotWork::Once(on_unknown), budget)
}

pub const ONCE: SlotSetting = once("once", OnUnknown::Halt, DEATHS);
pub const ONCE_RETRIED: SlotSetting = once("once-retried", OnUnknown::Retry, DEATH);
/// No process dies at work, so no end is unknown.
pub const ONCE_UNSTARTED: SlotSetting = once("once-unstarted", OnUnknown::Halt, UNSTARTED);

pub const ALL: [SlotSetting; 15] = [
    NEVER,
    NEWEST,
    THREE,
    COLLAPSE,
    LOSSY,
    PAUSED,
    PAUSED_FOR,
    FORGOTTEN,
    CROWD,
    ROW,
    EARLY,
    AHEAD,
    ONCE,
    ONCE_RETRIED,
    ONCE_UNSTARTED,
];
