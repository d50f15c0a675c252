//! Skipped triggers, counted under a key of their own: a skip never disturbs a renewal.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::format::{FORMAT, Format, Unknown};
use crate::ledger::Status;
use crate::time::Wall;
use crate::token::{Nonce, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Skips {
    pub v: Format,
    pub nonce: Nonce,
    /// Another run was going.
    pub overlap: u64,
    /// The slot was done, or another run was working on it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicate: u64,
    /// The job was paused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paused: u64,
    /// The last one for another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastSkip>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why a trigger was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skip {
    /// The run with this token was going.
    Overlap(Token),
    Duplicate,
    Paused,
}

impl Skip {
    /// How a trigger with this status is counted. A trigger that finds nothing due is not counted; an overlap needs the
    /// token of the going run.
    pub fn of(status: Status) -> Option<Self> {
        match status {
            Status::SkippedDuplicate => Some(Self::Duplicate),
            Status::SkippedPaused => Some(Self::Paused),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastSkip {
    pub at: Wall,
    pub host: String,
    /// The token of the run that was going.
    pub token: Token,
    /// How many triggers in a row that run has caused to skip.
    pub in_a_row: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Skips {
    /// Adds one skipped trigger.
    pub fn add(before: Option<&Self>, nonce: Nonce, at: Wall, host: String, skip: Skip) -> Self {
        let none =
            Self { v: FORMAT, nonce, overlap: 0, duplicate: 0, paused: 0, last: None, unknown: Unknown::default() };
        let mut skips = Self { nonce, ..before.cloned().unwrap_or(none) };
        match skip {
            Skip::Duplicate => skips.duplicate += 1,
            Skip::Paused => skips.paused += 1,
            Skip::Overlap(token) => {
                let same = skips.last.as_ref().filter(|last| last.token == token);
                let in_a_row = same.map_or(0, |last| last.in_a_row) + 1;
                skips.overlap += 1;
                skips.last = Some(LastSkip { at, host, token, in_a_row, unknown: Unknown::default() });
            }
        }
        skips
    }

    /// How many triggers in a row were skipped, if the newest grant is still the going run's.
    pub fn streak(&self, newest: Token) -> Option<u64> {
        self.last.as_ref().filter(|last| last.token == newest).map(|last| last.in_a_row)
    }

    /// The share of skips among all triggers.
    pub fn rate(&self, grants: u64) -> f64 {
        self.overlap as f64 / (self.overlap + grants).max(1) as f64
    }
}
