//! `every 45m from T`: instants at a constant distance in real time, independent of clock changes.

use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use crate::duration;
use crate::time::{Wall, millis};
use crate::zone::Zone;

const EXAMPLE: &str = "write for example: every 45m";
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3660 * 24 * 3600);

/// The instants `from`, `from` + `length` and so on. There are none before `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Every {
    pub length: Duration,
    pub from: Wall,
}

impl Every {
    /// Parses the text after `every`. Without `from` it counts from 1970-01-01T00:00:00Z.
    pub fn parse(text: &str, zone: &Zone) -> Result<Self, String> {
        let (length, from) = match text.split_once(" from ") {
            None => (text, Wall(0)),
            Some((length, from)) => (length, zone.parse_time_or_next(from).map_err(|error| format!("{error}"))?),
        };
        Ok(Self { length: length_of(length.trim())?, from })
    }

    fn step(&self) -> i64 {
        i64::try_from(millis(self.length)).unwrap_or(i64::MAX)
    }

    /// The number of instants up to and including `at`.
    fn up_to(&self, at: Wall) -> i64 {
        if at < self.from { 0 } else { at.0.saturating_sub(self.from.0) / self.step() + 1 }
    }

    fn number(&self, number: i64) -> Option<Wall> {
        let since = self.step().checked_mul(number)?;
        self.from.0.checked_add(since).map(Wall)
    }

    pub fn after(&self, at: Wall) -> Option<Wall> {
        self.number(self.up_to(at))
    }

    pub fn at_or_before(&self, at: Wall) -> Option<Wall> {
        match self.up_to(at) {
            0 => None,
            count => self.number(count - 1),
        }
    }

    pub fn count(&self, after: Wall, to: Wall) -> u64 {
        u64::try_from(self.up_to(to) - self.up_to(after)).unwrap_or(0)
    }

    pub fn canonical(&self) -> String {
        format!("every {} from {}", millis(self.length), self.from.0)
    }
}

fn length_of(text: &str) -> Result<Duration, String> {
    match text.to_ascii_lowercase().as_str() {
        unit @ ("minute" | "hour" | "week") => {
            return Err(format!("did you mean @{unit}ly, or every 1{}?", unit.get(..1).unwrap_or("h")));
        }
        "day" => return Err("did you mean @daily, or every 1d?".to_string()),
        // Months and years have no fixed length.
        unit @ ("month" | "year") => return Err(format!("did you mean @{unit}ly?")),
        _ => {}
    }
    match Duration::try_from(duration::signed(text, EXAMPLE)?) {
        Ok(length) if (SHORTEST..=LONGEST).contains(&length) => Ok(length),
        _ => Err(format!("{text:?} is not between 1s and 3660d; {EXAMPLE}")),
    }
}
