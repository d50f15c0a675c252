//! The worlds of fenced writes that are explored completely.

use fencepost_core::fence::Mode;

use super::{Budget, Setting, Writer};

const fn writer(token: u64, writes: u8) -> Writer {
    Writer { store: 1, token, run: token as u8, writes }
}

/// A run and its two successors.
const THREE: &[Writer] = &[writer(1, 2), writer(2, 2), writer(3, 1)];
/// One of another store with the highest token of all.
const LINEAGES: &[Writer] = &[writer(1, 1), writer(2, 2), Writer { store: 2, token: 9, run: 9, writes: 1 }];
/// Two runs that both believe to hold the second token.
const RUNS: &[Writer] = &[writer(1, 1), writer(2, 2), Writer { store: 1, token: 2, run: 9, writes: 2 }];

const CRASHES: Budget = Budget { kills: 2, cuts: 2, damages: 0 };
const DAMAGES: Budget = Budget { kills: 1, cuts: 1, damages: 1 };

pub const MANY: Setting = Setting::new("many", Mode::Many, THREE, CRASHES);
pub const ONCE: Setting = Setting::new("once", Mode::Once, THREE, CRASHES);
pub const MANY_DAMAGED: Setting = Setting::new("many-damaged", Mode::Many, THREE, DAMAGES);
pub const ONCE_DAMAGED: Setting = Setting::new("once-damaged", Mode::Once, THREE, DAMAGES);
pub const MANY_LINEAGES: Setting = Setting::new("many-lineages", Mode::Many, LINEAGES, CRASHES);
pub const ONCE_LINEAGES: Setting = Setting::new("once-lineages", Mode::Once, LINEAGES, CRASHES);
pub const MANY_RUNS: Setting = Setting::new("many-runs", Mode::Many, RUNS, CRASHES);
pub const ONCE_RUNS: Setting = Setting::new("once-runs", Mode::Once, RUNS, CRASHES);

pub const ALL: [Setting; 8] =
    [MANY, ONCE, MANY_DAMAGED, ONCE_DAMAGED, MANY_LINEAGES, ONCE_LINEAGES, MANY_RUNS, ONCE_RUNS];
