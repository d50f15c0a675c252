//! How things look: times, leases and runs, for people and as JSON.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;

use fencepost_core::artifact::Artifact;
use fencepost_core::lease::{Facts, Honest, Rules, Standing};
use fencepost_core::ledger::{Consumed, LISTED_MAX, Outcome, Status};
use fencepost_core::record::{Holder, Lease, Record};
use fencepost_core::time::{Boot, StoreClock, Wall};
use fencepost_core::zone::Zone;
use jiff::Timestamp;
use serde::Serialize;

use crate::duration;

/// RFC 3339 in UTC, for what belongs to no job's day.
pub fn time(moment: Wall) -> String {
    Timestamp::from_millisecond(moment.0).map_or_else(|_| format!("{}ms", moment.0), |moment| format!("{moment:.3}"))
}

/// The zone that a record names. One that this fencepost does not know is shown in UTC.
pub fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap_or_else(|_| Zone::utc())
}

/// A moment, to the second, and how long ago it was.
pub fn time_for_people(moment: Wall, now: Wall, zone: &Zone) -> String {
    format!("{} ({} ago)", second_in(moment, zone), duration::show(now.since(moment)))
}

/// A moment in UTC, to the second.
pub fn second(moment: Wall) -> String {
    second_in(moment, &Zone::utc())
}

/// A moment, to the second.
pub fn second_in(moment: Wall, zone: &Zone) -> String {
    let whole = Wall(moment.0.div_euclid(1000).saturating_mul(1000));
    let shown = zone.show(whole).replace('T', " ");
    shown.strip_suffix("+00:00").map(|start| format!("{start}Z")).unwrap_or(shown)
}

/// Strips what a terminal would obey: control characters, and the characters that reverse the order of text. Lines and tabs stay.
/// Everything that fencepost prints passes through this.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| !is_unsafe(*c)).collect())
}

/// A foreign text on one line, cleaned.
pub fn flat(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || is_unsafe(c))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether a terminal would obey the character instead of showing it.
fn is_unsafe(c: char) -> bool {
    let is_bidi = matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    (c.is_control() && c != '\n' && c != '\t') || is_bidi || is_separator
}

/// Artifacts as people compare them: size, and how the fingerprint begins. Of very many the first will do.
pub fn artifacts(artifacts: &[Artifact]) -> Vec<String> {
    let one = |artifact: &Artifact| {
        let start = &artifact.sha256.to_string()[..12];
        format!("{} ({} bytes, SHA-256 {start}…)", flat(&artifact.path), artifact.size)
    };
    let mut shown: Vec<String> = artifacts.iter().take(LISTED_MAX).map(one).collect();
    if artifacts.len() > LISTED_MAX {
        shown.push(format!("and {} more", artifacts.len() - LISTED_MAX));
    }
    shown
}

/// How long a lease lasts at least, and until when, as far as the store's clock tells.
pub fn remaining(record: &Record, clock: Option<&StoreClock>) -> Option<Duration> {
    match Honest::standing(record, clock, &Facts::default(), Boot(0)) {
        Standing::Held { remaining } => remaining,
        Standing::Over(_) => Some(Duration::ZERO),
        Standing::Free => None,
    }
}

/// One sentence about who holds a lease: host, process, since when, until when.
pub fn holder(lease: &Lease, remaining: Option<Duration>, now: Wall) -> String {
    let zone = zone(&lease.zone);
    let process = process(&lease.holder);
    let until = match remaining {
        Some(left) => format!("until {} unless renewed", second_in(now + left, &zone)),
        None => format!("for {} after its last renewal", duration::show(lease.ttl)),
    };
    format!("{} ({process}), since {}, {until}", flat(&lease.holder.host), time_for_people(lease.since, now, &zone))
}

/// What is behind a lease, in a few words.
pub fn process(holder: &Holder) -> String {
    match holder.pid() {
        Some(pid) => format!("pid {pid}"),
        None if holder.by_hand => "by hand".to_string(),
        None => "what could not be ended".to_string(),
    }
}

/// What `lease …` prints as JSON.
#[derive(Debug, Serialize)]
pub struct LeaseJson {
    pub v: u32,
    pub job: String,
    pub token: u64,
    pub grants: u64,
    pub run: Option<String>,
    pub until: Option<String>,
    pub remaining_ms: Option<u64>,
    pub held: bool,
}

impl LeaseJson {
    pub fn new(record: &Record, remaining: Option<Duration>, now: Wall) -> Self {
        let held = record.lease.is_some() && remaining != Some(Duration::ZERO);
        let remaining = remaining.filter(|_| held);
        Self {
            v: 1,
            job: record.job.to_string(),
            token: record.token.number(),
            grants: record.grants,
            run: record.lease.as_ref().filter(|_| held).map(|lease| lease.run.to_string()),
            until: remaining.map(|left| time(now + left)),
            remaining_ms: remaining.map(fencepost_core::time::millis),
            held,
        }
    }
}

/// One line of `runs` as JSON.
#[derive(Debug, Serialize)]
pub struct RunJson {
    pub v: u32,
    pub job: String,
    pub slot: String,
    pub date: String,
    pub timezone: String,
    pub status: &'static str,
    pub token: u64,
    pub run: String,
    pub host: String,
    pub trigger: &'static str,
    pub started: String,
    pub finished: Option<String>,
    pub duration_ms: Option<u64>,
    pub exit_code: Option<i32>,
    pub ended_by: Option<&'static str>,
    pub artifacts: Vec<Artifact>,
    pub upstreams: Vec<ConsumedJson>,
    pub note: Option<String>,
    /// Where one outcome stands for several slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// What a run read of another job.
#[derive(Debug, Serialize)]
pub struct ConsumedJson {
    pub job: String,
    pub slot: String,
    pub run: String,
    pub sha256: Option<String>,
}

impl ConsumedJson {
    fn new(consumed: &Consumed, zone: &Zone) -> Self {
        Self {
            job: consumed.job.clone(),
            slot: zone.show(consumed.slot),
            run: consumed.run.to_string(),
            sha256: consumed.sha256.map(|sha256| sha256.to_string()),
        }
    }
}

impl RunJson {
    pub fn ended(record: &Record, outcome: &Outcome) -> Self {
        let zone = zone(&outcome.zone);
        let covers = outcome.covers.as_ref();
        Self {
            v: 1,
            job: record.job.to_string(),
            slot: zone.show(outcome.slot),
            date: zone.date(outcome.slot).to_string(),
            timezone: outcome.zone.clone(),
            status: outcome.status.as_str(),
            token: outcome.token.number(),
            run: outcome.run.to_string(),
            host: outcome.host.clone(),
            trigger: outcome.trigger.as_str(),
            started: zone.show(outcome.started),
            finished: Some(zone.show(outcome.finished)),
            duration_ms: Some(fencepost_core::time::millis(outcome.length())),
            exit_code: outcome.exit_code,
            ended_by: Some(outcome.ended_by.as_str()),
            artifacts: outcome.artifacts.clone(),
            upstreams: outcome.upstreams.iter().map(|consumed| ConsumedJson::new(consumed, &zone)).collect(),
            note: outcome.note.clone(),
            slot_from: covers.map(|covers| zone.show(covers.from)),
            slot_to: covers.map(|covers| zone.show(covers.to)),
            count: covers.map(|covers| covers.count),
        }
    }

    /// The run behind the lease: going, or lost and not yet recorded as such. A lease by hand is not a run.
    pub fn unrecorded(record: &Record, is_over: bool) -> Option<Self> {
        let lease = record.lease.as_ref()?;
        let recorded = record.ledger.of_run(lease.run).is_some();
        if !lease.holder.is_run() || recorded {
            return None;
        }
        let zone = zone(&lease.zone);
        Some(Self {
            v: 1,
            job: record.job.to_string(),
            slot: zone.show(lease.slot),
            date: zone.date(lease.slot).to_string(),
            timezone: lease.zone.clone(),
            status: if is_over { Status::Lost } else { Status::Running }.as_str(),
            token: record.token.number(),
            run: lease.run.to_string(),
            host: lease.holder.host.clone(),
            trigger: lease.trigger.as_str(),
            started: zone.show(lease.since),
            finished: None,
            duration_ms: None,
            exit_code: None,
            ended_by: None,
            artifacts: Vec::new(),
            upstreams: Vec::new(),
            slot_from: None,
            slot_to: None,
            count: None,
            note: is_over.then(|| "it did not end properly; the next run takes over".to_string()),
        })
    }
}

/// Why something could not be printed, if anything could not.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Prints a line.
pub fn line(line: &str) {
    text(&format!("{line}\n"));
}

/// Prints lines that are written already, cleaned.
pub fn text(text: &str) {
    write(&clean(text));
}

/// Prints a text of our own that moves the cursor or sets colours. A reader that has seen enough (`| head`) is no error.
pub fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => failed(&error),
        Ok(()) | Err(_) => {}
    }
}

/// Notes that something could not be printed.
pub fn failed(why: &std::io::Error) {
    let _ = FAILURE.set(why.to_string());
}

/// Why something could not be printed, if anything could not.
pub fn failure() -> Option<&'static str> {
    FAILURE.get().map(String::as_str)
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) {
    line(&escaped(serde_json::to_string(value).expect("our own types serialize")));
}

/// JSON in which every character that a terminal would obey is escaped. Such a character stands only inside a string.
fn escaped(json: String) -> String {
    if !json.contains(is_unsafe) {
        return json;
    }
    let escape = |c: char| if is_unsafe(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    json.chars().map(escape).collect()
}

/// Prints rows in aligned columns, each row as long as the heading. The last column may be as long as it likes.
pub fn table(heading: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| flat(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let render = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    line(&render(heading.to_vec()));
    for row in &rows {
        line(&render(row.iter().map(String::as_str).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let foreign = "a\x1b[2Jb\u{9b}c\u{202e}d\u{2066}e\u{200f}f\u{2028}g\x07\x7fh\ti\r\nj";
        assert_eq!(clean(foreign), "a[2Jbcdefgh\ti\nj");
        assert_eq!(flat(foreign), "a [2Jb c d e f g h i j");
        let json = escaped(serde_json::to_string(foreign).unwrap());
        assert!(!json.contains(is_unsafe), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), foreign, "programs lose nothing");
    }

    #[test]
    fn the_first_and_the_last_moment_are_shown() {
        for moment in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            assert!(!second(Wall(moment)).is_empty(), "{moment}");
        }
        assert_eq!(second(Wall(-1)), "1969-12-31 23:59:59Z");
    }
}
