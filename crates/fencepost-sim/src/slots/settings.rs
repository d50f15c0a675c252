//! The worlds of slots and items of work that are explored completely.

use fencepost_core::plan::Mode;
use fencepost_core::slot::OnUnknown;

use super::{Budget, Setting, Work};

const NONE: Budget = Budget { crashes: 0, losses: 0, failures: 0, pauses: 0 };
const CRASH: Budget = Budget { crashes: 1, failures: 1, ..NONE };
const LOSS: Budget = Budget { losses: 2, ..NONE };
const PAUSE: Budget = Budget { pauses: 1, ..NONE };
const DEATHS: Budget = Budget { crashes: 2, losses: 1, failures: 1, ..NONE };
const DEATH: Budget = Budget { crashes: 1, losses: 1, ..NONE };

const fn slots(name: &'static str, catch_up: u32, mode: Mode) -> Setting {
    let work = Work::Slots { catch_up, mode };
    Setting { name, work, hosts: 2, triggers: 3, ticks: 5, budget: CRASH, flaw: None }
}

pub const NEVER: Setting = slots("never", 0, Mode::Each);
pub const NEWEST: Setting = slots("newest", 1, Mode::Each);
pub const THREE: Setting = slots("three", 3, Mode::Each);
pub const COLLAPSE: Setting = Setting { ticks: 4, ..slots("collapse", 1, Mode::Collapse) };
pub const LOSSY: Setting = Setting { name: "lossy", ticks: 3, budget: LOSS, ..slots("", 3, Mode::Each) };
pub const PAUSED: Setting = Setting { name: "paused", ticks: 4, budget: PAUSE, ..slots("", 3, Mode::Each) };
pub const CROWD: Setting = Setting { name: "crowd", hosts: 3, ticks: 2, ..slots("", 1, Mode::Each) };

const fn once(name: &'static str, on_unknown: OnUnknown, budget: Budget) -> Setting {
    Setting { name, work: Work::Once(on_unknown), hosts: 3, triggers: 4, ticks: 0, budget, flaw: None }
}

pub const ONCE: Setting = once("once", OnUnknown::Halt, DEATHS);
pub const ONCE_RETRIED: Setting = once("once-retried", OnUnknown::Retry, DEATH);

pub const ALL: [Setting; 9] = [NEVER, NEWEST, THREE, COLLAPSE, LOSSY, PAUSED, CROWD, ONCE, ONCE_RETRIED];
