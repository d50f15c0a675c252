//! Triggers that were waved off. They are counted under a key of their own, so that a skip never disturbs a renewal.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::record::FORMAT;
use crate::time::Wall;
use crate::token::{Nonce, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skips {
    pub v: u32,
    pub nonce: Nonce,
    pub overlap: u64,
    pub last: LastSkip,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastSkip {
    pub at: Wall,
    pub host: String,
    /// The token of the run that was in the way.
    pub token: Token,
    /// How many triggers in a row that run has turned away.
    pub in_a_row: u64,
}

impl Skips {
    /// One more trigger was turned away by the run with `token`.
    pub fn add(before: Option<&Self>, nonce: Nonce, at: Wall, host: String, token: Token) -> Self {
        let in_a_row = match before {
            Some(skips) if skips.last.token == token => skips.last.in_a_row + 1,
            _ => 1,
        };
        let overlap = before.map_or(0, |skips| skips.overlap) + 1;
        Self { v: FORMAT, nonce, overlap, last: LastSkip { at, host, token, in_a_row } }
    }

    /// How many triggers in a row were skipped, if the newest grant is still the one that was in the way.
    pub fn streak(&self, newest: Token) -> Option<u64> {
        (self.last.token == newest).then_some(self.last.in_a_row)
    }

    /// Skips among all triggers.
    pub fn rate(&self, grants: u64) -> f64 {
        self.overlap as f64 / (self.overlap + grants).max(1) as f64
    }
}
