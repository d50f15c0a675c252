//! Time zones by name, from a database compiled into the program.
//!
//! The machine's own database is not used: two machines with different versions would compute different slots.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{self, DateTime};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::nearest::{distance, nearest};
use crate::time::Wall;

/// A time zone of the IANA database, known by its name.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone {
    /// Rules with a name. A clone shares them.
    rules: TimeZone,
}

impl Zone {
    /// UTC, which needs no database.
    pub fn utc() -> Self {
        Self { rules: TimeZone::UTC }
    }

    /// Parses a zone name, ignoring case.
    pub fn parse(text: &str) -> Result<Self, ZoneError> {
        if text.eq_ignore_ascii_case("UTC") {
            return Ok(Self::utc());
        }
        let known = TimeZoneDatabase::bundled().get(text).ok().filter(|_| is_a_place(text));
        let named = known.filter(|rules| rules.iana_name().is_some()).map(|rules| Self { rules });
        named.ok_or_else(|| ZoneError { text: text.to_string(), reason: why_not(text) })
    }

    /// The zone a machine is set to, which may be an abbreviation in the database (`EST`).
    pub fn of_machine(name: &str) -> Result<Self, ZoneError> {
        let place = ABBREVIATIONS.iter().find(|(short, _)| short.eq_ignore_ascii_case(name));
        Self::parse(place.map_or(name, |(_, place)| place))
    }

    /// The names of all zones.
    pub fn names() -> impl Iterator<Item = String> {
        let names: alloc::vec::Vec<_> = TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
        names.into_iter().filter(|name| is_a_place(name))
    }

    pub fn name(&self) -> &str {
        self.rules.iana_name().unwrap_or("UTC")
    }

    /// The civil date in this zone.
    pub fn date(&self, at: Wall) -> Date {
        Date(self.rules.to_datetime(timestamp(at)).date())
    }

    /// The first instant of a day. A day that the zone skipped starts with the next day.
    pub fn start_of_day(&self, date: Date) -> Wall {
        self.instant(date.0.to_datetime(civil::Time::midnight()))
    }

    /// RFC 3339 with the offset in force, with fractions of a second only if there are any.
    pub fn show(&self, at: Wall) -> String {
        let at = timestamp(at);
        at.display_with_offset(self.rules.to_offset(at)).to_string()
    }

    /// The time of day without date and offset, as in `02:30`, with seconds if there are any.
    pub fn show_time(&self, at: Wall) -> String {
        show_time(self.rules.to_datetime(timestamp(at)).time())
    }

    /// Parses an instant (`2026-03-08T07:30:00Z`, `2026-03-08T02:30-05:00`), a local date and time in this zone
    /// (`2026-03-08T02:30`), or a date, meaning its first instant.
    ///
    /// A local time that occurs twice means the first. A skipped local time and a skipped day are refused: another slot
    /// than the intended one would be used.
    pub fn parse_time(&self, text: &str) -> Result<Wall, TimeError> {
        match self.read_time(text)? {
            Read::Instant(at) => Ok(at),
            Read::Local(local) if text.trim().len() == DATE_BYTES => {
                self.day(Date(local.date())).map(|(first, _)| first)
            }
            Read::Local(local) => match self.gap(local) {
                None => Ok(self.instant(local)),
                Some(after) => Err(self.skipped(text, after)),
            },
        }
    }

    /// Like `parse_time`, but a skipped local time means the first instant after the gap, and a skipped day starts with
    /// the next day.
    pub fn parse_time_or_next(&self, text: &str) -> Result<Wall, TimeError> {
        Ok(match self.read_time(text)? {
            Read::Instant(at) => at,
            Read::Local(local) => self.instant(local),
        })
    }

    fn read_time(&self, text: &str) -> Result<Read, TimeError> {
        let text = text.trim();
        if let Ok(at) = text.parse::<Timestamp>() {
            return Ok(Read::Instant(Wall(at.as_millisecond())));
        }
        let is_local = !text.contains(['[', 'Z', 'z']);
        match text.parse::<DateTime>() {
            Ok(local) if is_local => Ok(Read::Local(local)),
            _ => Err(TimeError::unread(text)),
        }
    }

    /// The first instant of a day and of the next one. A skipped day has neither.
    pub fn day(&self, date: Date) -> Result<(Wall, Wall), TimeError> {
        if date.tomorrow() == date {
            return Err(TimeError {
                text: date.to_string(),
                reason: "is too late: times end before this day".to_string(),
            });
        }
        let (first, end) = (self.start_of_day(date), self.start_of_day(date.tomorrow()));
        if first < end { Ok((first, end)) } else { Err(self.skipped(&date.to_string(), first)) }
    }

    fn skipped(&self, text: &str, after: Wall) -> TimeError {
        let (zone, after) = (self.name(), self.show(after));
        let reason = format!("does not exist in {zone}: the clocks skip it. The first instant after it is {after}");
        TimeError { text: text.trim().to_string(), reason }
    }

    /// The first instant after the gap that contains a local time.
    fn gap(&self, local: DateTime) -> Option<Wall> {
        let is_gap = matches!(self.rules.to_ambiguous_timestamp(local).offset(), AmbiguousOffset::Gap { .. });
        is_gap.then(|| self.instant(local))
    }

    /// The instant of a local time: after the gap if it is skipped, the first if it occurs twice.
    fn instant(&self, local: DateTime) -> Wall {
        let at = |offset: Offset| offset.to_timestamp(local).unwrap_or(Timestamp::MAX);
        let first = match self.rules.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(offset),
            AmbiguousOffset::Fold { before, .. } => at(before),
            AmbiguousOffset::Gap { after, .. } => {
                let early = at(after);
                self.rules.following(early).next().map_or(early, |change| change.timestamp())
            }
        };
        Wall(first.as_millisecond())
    }

    /// The period around an instant in which the offset is constant, in seconds.
    pub(crate) fn stretch(&self, second: i64) -> Stretch {
        let at = from_second(second);
        let offset = seconds(self.rules.to_offset(at));
        let mut stretch = Stretch { start: i64::MIN, end: i64::MAX, offset, before: offset, after: offset };
        if let Some((start, before)) = self.change_up_to(second) {
            (stretch.start, stretch.before) = (start, before);
        }
        for change in self.rules.following(at) {
            if seconds(change.offset()) != offset {
                (stretch.end, stretch.after) = (change.timestamp().as_second(), seconds(change.offset()));
                break;
            }
        }
        stretch
    }

    /// The last change of the offset at or before a second, and the offset before it.
    ///
    /// Some changes affect the name alone. Looking backwards, jiff 0.2.39 skips a last change that its rule for the
    /// future does not explain (America/Ciudad_Juarez, 2022-11-30), so the search goes forward again from its answer.
    /// It is called with whole seconds only: before 1970 it truncates fractions in the wrong direction.
    fn change_up_to(&self, second: i64) -> Option<(i64, i64)> {
        let offset_at = |second: i64| seconds(self.rules.to_offset(from_second(second)));
        let changed =
            |start: i64| Some((start, offset_at(start - 1))).filter(|(_, before)| *before != offset_at(start));
        let earlier = self.rules.preceding(from_second(second.saturating_add(1)));
        earlier.map(|change| change.timestamp()).find_map(|earliest| {
            let later = self.rules.following(earliest).map(|change| change.timestamp().as_second());
            let later = later.take_while(|start| *start <= second);
            core::iter::once(earliest.as_second()).chain(later).filter_map(changed).last()
        })
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl FromStr for Zone {
    type Err = ZoneError;
    fn from_str(text: &str) -> Result<Self, ZoneError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Zone {
    type Error = ZoneError;
    fn try_from(text: String) -> Result<Self, ZoneError> {
        Self::parse(&text)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name().to_string()
    }
}

/// A period in which a zone has one offset from UTC, in seconds. A period without start or end extends to the limits of
/// the number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub start: i64,
    /// Exclusive.
    pub end: i64,
    pub offset: i64,
    /// The offset before it.
    pub before: i64,
    /// The offset after it.
    pub after: i64,
}

/// A calendar date without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date(civil::Date);

impl Date {
    /// Parses `2026-03-08`.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let shaped = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        match text.parse() {
            Ok(date) if shaped => Ok(Self(date)),
            _ => Err(TimeError::unread(text)),
        }
    }

    pub fn tomorrow(self) -> Self {
        Self(self.0.tomorrow().unwrap_or(self.0))
    }

    pub fn yesterday(self) -> Self {
        Self(self.0.yesterday().unwrap_or(self.0))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:04}-{:02}-{:02}", self.0.year(), self.0.month(), self.0.day()))
    }
}

impl FromStr for Date {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Date {
    type Error = TimeError;
    fn try_from(text: String) -> Result<Self, TimeError> {
        Self::parse(&text)
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}

/// Why a text is not a zone name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a time zone: {reason}")]
pub struct ZoneError {
    text: String,
    reason: String,
}

/// Why a text is not a time: unreadable, or skipped by the clocks of the zone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} {reason}")]
pub struct TimeError {
    text: String,
    reason: String,
}

impl TimeError {
    fn unread(text: &str) -> Self {
        let reason = "is not a time: write an instant such as 2026-03-08T07:30:00Z, a local time such as \
                      2026-03-08T02:30, or a date such as 2026-03-08";
        Self { text: text.to_string(), reason: reason.to_string() }
    }
}

/// A time as written.
enum Read {
    Instant(Wall),
    Local(DateTime),
}

/// The length of `2026-03-08`.
const DATE_BYTES: usize = 10;

/// Names in the database that mean "no zone".
const NO_PLACES: [&str; 3] = ["Etc/Unknown", "Factory", "localtime"];

/// Abbreviations and rules that the database keeps for old systems, each with the place it stands for. They are refused
/// like unknown ones: readers of a schedule take `EST` for different places.
const ABBREVIATIONS: [(&str, &str); 17] = [
    ("CET", "Europe/Brussels"),
    ("CST6CDT", "America/Chicago"),
    ("EET", "Europe/Athens"),
    ("EST", "America/Panama"),
    ("EST5EDT", "America/New_York"),
    ("GMT", "UTC"),
    ("GMT+0", "UTC"),
    ("GMT-0", "UTC"),
    ("GMT0", "UTC"),
    ("HST", "Pacific/Honolulu"),
    ("MET", "Europe/Brussels"),
    ("MST", "America/Phoenix"),
    ("MST7MDT", "America/Denver"),
    ("PST8PDT", "America/Los_Angeles"),
    ("UCT", "UTC"),
    ("WET", "Europe/Lisbon"),
    ("Zulu", "UTC"),
];

fn is_a_place(name: &str) -> bool {
    let abbreviations = ABBREVIATIONS.iter().map(|(name, _)| name);
    !NO_PLACES.iter().chain(abbreviations).any(|other| name.eq_ignore_ascii_case(other))
}

/// Whether it looks like a zone abbreviation such as `JST` or `CEST`.
fn is_abbreviation(text: &str) -> bool {
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn why_not(text: &str) -> String {
    const EXAMPLE: &str = "Write the name of a place in the IANA database, such as Asia/Tokyo, or UTC.";
    if text.trim().is_empty() {
        return format!("it is empty. {EXAMPLE}");
    }
    if text.starts_with(['+', '-']) || text.get(..3).is_some_and(|start| is_offset_of_utc(start, &text[3..])) {
        return format!("a fixed offset does not say when the clocks change. {EXAMPLE}");
    }
    if text.contains([',', '<', ':']) || is_posix(text) {
        return format!("rules of the form of TZ differ from machine to machine. {EXAMPLE}");
    }
    if is_abbreviation(text) {
        return format!("an abbreviation means different zones to different people. {EXAMPLE}");
    }
    match meant(text) {
        Some(name) => format!("did you mean {name:?}?"),
        None => EXAMPLE.to_string(),
    }
}

fn is_offset_of_utc(start: &str, rest: &str) -> bool {
    ["UTC", "GMT"].iter().any(|name| start.eq_ignore_ascii_case(name)) && rest.starts_with(['+', '-'])
}

/// Whether it looks like `EST5EDT` or `JST-9`: letters, then digits.
fn is_posix(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let number = rest.trim_start_matches(['+', '-']);
    rest.len() < text.len() && number.starts_with(|c: char| c.is_ascii_digit())
}

/// The zone with the most similar name, or the one that ends in this city.
fn meant(text: &str) -> Option<String> {
    let text = text.trim().replace(' ', "_");
    let names: alloc::vec::Vec<String> = Zone::names().collect();
    let city = |name: &str| name.rsplit('/').next().is_some_and(|city| distance(&text, city) <= 1);
    let whole = nearest(&text, names.iter().map(String::as_str));
    whole.map(String::from).or_else(|| names.iter().find(|name| city(name)).cloned())
}

/// Clamps instants beyond the calendar to its first or last.
fn timestamp(at: Wall) -> Timestamp {
    let end = if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(at.0).unwrap_or(end)
}

fn from_second(second: i64) -> Timestamp {
    timestamp(Wall(second.saturating_mul(1000)))
}

fn seconds(offset: Offset) -> i64 {
    i64::from(offset.seconds())
}

fn show_time(time: civil::Time) -> String {
    match time.second() {
        0 => format!("{:02}:{:02}", time.hour(), time.minute()),
        second => format!("{:02}:{:02}:{second:02}", time.hour(), time.minute()),
    }
}
