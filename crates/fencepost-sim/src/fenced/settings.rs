//! The worlds of fenced writes that are explored completely.

use fencepost_core::fence::WriteMode;

use super::{FenceBudget, FenceSetting, FenceWriter};

const fn writer(token: u64, writes: u8) -> FenceWriter {
    FenceWriter { store: 1, token, run: token as u8, writes }
}

/// A run and its two successors.
const THREE: &[FenceWriter] = &[writer(1, 2), writer(2, 2), writer(3, 1)];
/// One of another store with the highest token of all.
const LINEAGES: &[FenceWriter] = &[writer(1, 1), writer(2, 2), FenceWriter { store: 2, token: 9, run: 9, writes: 1 }];
/// Two runs that both believe to hold the second token.
const RUNS: &[FenceWriter] = &[writer(1, 1), writer(2, 2), FenceWriter { store: 1, token: 2, run: 9, writes: 2 }];

const CRASHES: FenceBudget = FenceBudget { kills: 2, cuts: 2, damages: 0 };
const DAMAGES: FenceBudget = FenceBudget { kills: 1, cuts: 1, damages: 1 };

pub const MANY: FenceSetting = FenceSetting::new("many", WriteMode::Many, THREE, CRASHES);
pub const ONCE: FenceSetting = FenceSetting::new("once", WriteMode::Once, THREE, CRASHES);
pub const MANY_DAMAGED: FenceSetting = FenceSetting::new("many-damaged", WriteMode::Many, THREE, DAMAGES);
pub const ONCE_DAMAGED: FenceSetting = FenceSetting::new("once-damaged", WriteMode::Once, THREE, DAMAGES);
pub const MANY_LINEAGES: FenceSetting = FenceSetting::new("many-lineages", WriteMode::Many, LINEAGES, CRASHES);
pub const ONCE_LINEAGES: FenceSetting = FenceSetting::new("once-lineages", WriteMode::Once, LINEAGES, CRASHES);
pub const MANY_RUNS: FenceSetting = FenceSetting::new("many-runs", WriteMode::Many, RUNS, CRASHES);
pub const ONCE_RUNS: FenceSetting = FenceSetting::new("once-runs", WriteMode::Once, RUNS, CRASHES);

pub const ALL: [FenceSetting; 8] =
    [MANY, ONCE, MANY_DAMAGED, ONCE_DAMAGED, MANY_LINEAGES, ONCE_LINEAGES, MANY_RUNS, ONCE_RUNS];
