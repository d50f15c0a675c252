//! Schedules: the instants of a cron expression or of `every 45m` in a zone.
//!
//! Instants are generated here and not by a cron library: a daily job must have exactly one per civil day, also when
//! the clocks change, and the plan walks backwards in time.

mod cron;
mod dst;
mod every;
mod field;
mod walk;
mod words;

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::time::Duration;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::duration::exact;
use crate::time::Wall;
use crate::zone::Zone;

pub use dst::{ChangeKind, ClockChange, Effect};

use cron::{Cron, END, FIRST};
use every::Every;
use walk::Walk;

/// The instants at which a job is due.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    text: String,
    zone: Zone,
    kind: ScheduleKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ScheduleKind {
    Cron(Cron),
    Every(Every),
}

impl Schedule {
    /// Parses a cron expression of five fields, or six with seconds first; `@daily` and the like; or `every 45m`,
    /// optionally with `from` and a time. Refuses a schedule that can never fire.
    pub fn parse(text: &str, zone: &Zone) -> Result<Self, ScheduleError> {
        let text = text.split_whitespace().collect::<alloc::vec::Vec<_>>().join(" ");
        let kind = ScheduleKind::parse(&text, zone);
        match kind {
            Ok(kind) => Ok(Self { text, zone: zone.clone(), kind }),
            Err(reason) => Err(ScheduleError { text, reason }),
        }
    }

    /// The text it was parsed from, without superfluous blanks.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As a person writes it: an interval in its largest unit.
    pub fn written(&self) -> String {
        match &self.kind {
            ScheduleKind::Every(every) if every.from == Wall(0) && every.length.subsec_nanos() == 0 => {
                format!("every {}", exact(every.length))
            }
            _ => self.text.to_string(),
        }
    }

    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Whether it follows real time: `every 45m`, or a time of day that starts with a star. Fixed times follow local
    /// time.
    pub fn is_interval(&self) -> bool {
        match &self.kind {
            ScheduleKind::Every(_) => true,
            ScheduleKind::Cron(cron) => cron.is_interval,
        }
    }

    /// The first instant after `at`.
    pub fn after(&self, at: Wall) -> Option<Wall> {
        match &self.kind {
            ScheduleKind::Every(every) => every.after(at),
            ScheduleKind::Cron(cron) => {
                let second = second(at).saturating_add(1);
                Walk::new(cron, &self.zone, second).first(second).map(wall)
            }
        }
    }

    /// The last instant at or before `at`.
    pub fn at_or_before(&self, at: Wall) -> Option<Wall> {
        match &self.kind {
            ScheduleKind::Every(every) => every.at_or_before(at),
            // An instant before the calendar maps to the calendar's first second, which is later.
            ScheduleKind::Cron(cron) => {
                Walk::new(cron, &self.zone, second(at)).last(second(at)).map(wall).filter(|found| *found <= at)
            }
        }
    }

    /// The last instant before `at`.
    pub fn before(&self, at: Wall) -> Option<Wall> {
        self.at_or_before(Wall(at.0.saturating_sub(1)))
    }

    /// The instants after `at`, in order.
    pub fn forward(&self, at: Wall) -> impl Iterator<Item = Wall> {
        let mut walk = self.walk(at);
        let mut next = move |last: Wall| match &mut walk {
            Some(walk) => walk.first(second(last).saturating_add(1)).map(wall),
            None => self.after(last),
        };
        core::iter::successors(next(at), move |&last| next(last))
    }

    /// The instants at or before `at`, the last first.
    pub fn backward(&self, at: Wall) -> impl Iterator<Item = Wall> {
        let mut walk = self.walk(at);
        let mut back = move |to: Wall| match &mut walk {
            Some(walk) => walk.last(second(to)).map(wall).filter(|found| *found <= to),
            None => self.at_or_before(to),
        };
        core::iter::successors(back(at), move |&last| back(Wall(last.0.saturating_sub(1))))
    }

    /// The exact number of instants after `after` up to `to`, without enumerating them: ten years of minutes cost a
    /// little per month.
    pub fn count(&self, after: Wall, to: Wall) -> u64 {
        match &self.kind {
            ScheduleKind::Every(every) => every.count(after, to),
            ScheduleKind::Cron(cron) => {
                let from = second(after).saturating_add(1);
                Walk::new(cron, &self.zone, from).count(from, second(to))
            }
        }
    }

    /// The time between the last instant at or before `at` and the next one.
    pub fn period_hint(&self, at: Wall) -> Option<Duration> {
        let before = self.at_or_before(at)?;
        Some(self.after(at)?.since(before))
    }

    /// A short text that changes with the instants: two spellings of one schedule share it, another zone or time does
    /// not.
    pub fn fingerprint(&self) -> String {
        let canonical = match &self.kind {
            ScheduleKind::Cron(cron) => cron.canonical(),
            ScheduleKind::Every(every) => every.canonical(),
        };
        let hash = Sha256::digest(format!("{canonical} in {}", self.zone.name()));
        crate::hex::encode(&hash[..8])
    }

    /// A description in words.
    pub fn describe(&self) -> String {
        match &self.kind {
            ScheduleKind::Cron(cron) => format!("{}, {} time", cron.words(), self.zone),
            ScheduleKind::Every(every) if every.from == Wall(0) => format!("every {}", words::length(every.length)),
            ScheduleKind::Every(every) => {
                format!("every {} from {}", words::length(every.length), self.zone.show(every.from))
            }
        }
    }

    fn walk(&self, at: Wall) -> Option<Walk<'_>> {
        match &self.kind {
            ScheduleKind::Cron(cron) => Some(Walk::new(cron, &self.zone, second(at))),
            ScheduleKind::Every(_) => None,
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.zone)
    }
}

impl ScheduleKind {
    fn parse(text: &str, zone: &Zone) -> Result<Self, String> {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        if text.is_empty() {
            return Err("it is empty; expected five fields, @daily, or every 45m".to_string());
        }
        if first.eq_ignore_ascii_case("every") {
            return Every::parse(rest, zone).map(Self::Every);
        }
        let fields = if text.starts_with('@') { field::alias(text)? } else { text };
        field::cron(fields).map(Self::Cron)
    }
}

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a schedule: {reason}.")]
pub struct ScheduleError {
    text: String,
    reason: String,
}

/// The second of an instant, clamped to the calendar.
fn second(at: Wall) -> i64 {
    at.0.div_euclid(1000).clamp(FIRST, END)
}

fn wall(second: i64) -> Wall {
    Wall(second * 1000)
}
