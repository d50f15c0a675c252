//! Skipped triggers, counted under a key of their own: a skip never disturbs a renewal.

use alloc::string::String;
use alloc::vec::Vec;

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
    /// How many for another run in each hour that had any, oldest first, at most [`HOURS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<HourOfSkips>,
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

/// How many triggers were skipped for another run in one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HourOfSkips {
    /// Hours since 1970.
    pub hour: i64,
    pub overlap: u64,
}

/// The most hours that are told apart.
pub const HOURS_MAX: usize = 72;

const HOUR_MILLIS: i64 = 3_600_000;

impl Skips {
    /// Adds one skipped trigger.
    pub fn add(before: Option<&Self>, nonce: Nonce, at: Wall, host: String, skip: Skip) -> Self {
        let none = Self {
            v: FORMAT,
            nonce,
            overlap: 0,
            duplicate: 0,
            paused: 0,
            last: None,
            hours: Vec::new(),
            unknown: Unknown::default(),
        };
        let mut skips = Self { nonce, ..before.cloned().unwrap_or(none) };
        match skip {
            Skip::Duplicate => skips.duplicate += 1,
            Skip::Paused => skips.paused += 1,
            Skip::Overlap(token) => {
                let same = skips.last.as_ref().filter(|last| last.token == token);
                let in_a_row = same.map_or(0, |last| last.in_a_row) + 1;
                skips.overlap += 1;
                skips.count_hour(at.0.div_euclid(HOUR_MILLIS));
                skips.last = Some(LastSkip { at, host, token, in_a_row, unknown: Unknown::default() });
            }
        }
        skips
    }

    fn count_hour(&mut self, hour: i64) {
        match self.hours.last_mut() {
            Some(last) if last.hour == hour => last.overlap += 1,
            _ => self.hours.push(HourOfSkips { hour, overlap: 1 }),
        }
        let over = self.hours.len().saturating_sub(HOURS_MAX);
        self.hours.drain(..over);
    }

    /// How many triggers were skipped for another run since an instant, to the hour and as far as is known.
    pub fn overlaps_since(&self, since: Wall) -> u64 {
        let from = since.0.div_euclid(HOUR_MILLIS);
        let counted: u64 = self.hours.iter().filter(|hour| hour.hour >= from).map(|hour| hour.overlap).sum();
        // Skips counted by an earlier version have no hours.
        let newest = self.last.as_ref().filter(|last| last.at >= since);
        if newest.is_some() { counted.max(1) } else { 0 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::RunId;
    use alloc::string::ToString;

    #[test]
    fn overlaps_are_told_apart_by_the_hour_for_three_days() {
        let nonce = Nonce { by: RunId(uuid::Uuid::from_u128(7)), write: 0 };
        let overlap = Skip::Overlap(Token::new(5).unwrap());
        let mut skips: Option<Skips> = None;
        for minute in (0..200 * 60).step_by(30) {
            skips = Some(Skips::add(skips.as_ref(), nonce, Wall(minute * 60_000), "h".to_string(), overlap));
        }
        let skips = Skips::add(skips.as_ref(), nonce, Wall(0), "h".to_string(), Skip::Duplicate);
        assert_eq!((skips.overlap, skips.hours.len()), (400, HOURS_MAX));
        let since = |hour: i64| skips.overlaps_since(Wall(hour * HOUR_MILLIS));
        assert_eq!((since(199), since(190), since(0), since(200)), (2, 20, 144, 0));
        // An earlier version counted no hours.
        let older = Skips { hours: Vec::new(), ..skips };
        assert_eq!((older.overlaps_since(Wall(0)), older.overlaps_since(Wall(200 * HOUR_MILLIS))), (1, 0));
    }
}
