//! Text for people: times, lengths of time, holders, and foreign text made safe for a terminal.

use std::borrow::Cow;
use std::time::Duration;

use fencepost_core::ledger::LISTED_MAX;
use fencepost_core::record::{Holder, Lease, Paused};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

use crate::answer::RecordedArtifact;

pub use fencepost_core::duration::show as length;

/// Says that no job of this name is known: neither in the configuration nor, if it was asked, in a store.
pub fn unknown_job(job: &str, config: Option<&str>, store: Option<&str>, near: Option<&str>) -> String {
    let file = config.map_or_else(|| "no configuration was found".to_string(), |path| format!("it is not in {path}"));
    let store = store.map_or_else(String::new, |store| format!(", and it has never run on {store}"));
    let next =
        near.map_or_else(|| "List the jobs: fencepost status".to_string(), |near| format!("Did you mean {near}?"));
    format!("No job {job} is known: {file}{store}. {next}")
}

/// The zone that a record names. One that this version does not know is shown in UTC.
pub fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap_or_else(|_| Zone::utc())
}

/// An instant, to the second, and how long ago it was.
pub fn time_for_people(moment: Wall, now: Wall, zone: &Zone) -> String {
    format!("{} ({} ago)", second_in(moment, zone), length(now.since(moment)))
}

/// Until when a pause lasts, in words after "paused"; nothing if it has no end.
pub fn until(paused: &Paused, zone: &Zone) -> String {
    paused.until.map_or_else(String::new, |until| format!(" until {}", second_in(until, zone)))
}

/// An instant in UTC, to the second.
pub fn second(moment: Wall) -> String {
    second_in(moment, &Zone::utc())
}

/// An instant, to the second.
pub fn second_in(moment: Wall, zone: &Zone) -> String {
    let whole = Wall(moment.0.div_euclid(1000).saturating_mul(1000));
    let shown = zone.show(whole).replace('T', " ");
    shown.strip_suffix("+00:00").map(|start| format!("{start}Z")).unwrap_or(shown)
}

/// A length of time in its largest unit: `45s`, `12m`, `26h`, `3d`.
pub fn short(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A moment that is near, to the minute: the time of day, with the weekday or the date if it is another day.
pub fn near(moment: Wall, now: Wall, zone: &Zone) -> String {
    let minute = Wall(moment.0.div_euclid(60_000).saturating_mul(60_000));
    let (date, time) = (zone.date(minute), zone.show_time(minute));
    if date == zone.date(now) {
        return time;
    }
    let text = date.to_string();
    let is_near = minute.since(now).max(now.since(minute)) < Duration::from_secs(6 * 86_400);
    match text.parse::<jiff::civil::Date>() {
        Ok(day) if is_near => format!("{} {time}", day.strftime("%a")),
        _ => text,
    }
}

/// How many columns a text takes on a terminal.
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Combining characters take no column, those of East Asian scripts and emoji two.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036F | 0x0483..=0x0489 | 0x0591..=0x05BD | 0x0610..=0x061A | 0x064B..=0x065F => 0,
        0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF | 0xFE00..=0xFE0F | 0xFE20..=0xFE2F => 0,
        0x200B..=0x200D | 0x3099 | 0x309A | 0xFEFF => 0,
        0x1100..=0x115F | 0x2E80..=0x303E | 0x3041..=0x33FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF => 2,
        0xA000..=0xA4CF | 0xA960..=0xA97F | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F => 2,
        0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1F64F | 0x1F680..=0x1F6FF | 0x1F900..=0x1F9FF => 2,
        0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// Strips what a terminal would obey: control characters, and the characters that reverse the order of text. Newlines and
/// tabs stay.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| !is_unsafe(*c)).collect())
}

/// A text without terminal escape sequences: colours, cursor movements, titles.
pub fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek().copied()) {
            ('\u{1b}', Some('[')) => {
                rest.next();
                // Parameters, then one final character.
                while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
            }
            ('\u{1b}', Some(']')) => while rest.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
            ('\u{1b}', Some(_)) => drop(rest.next()),
            ('\u{1b}', None) => {}
            _ => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// A foreign text on one line, cleaned.
pub fn flat(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || is_unsafe(c))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether a terminal would obey the character instead of showing it.
pub fn is_unsafe(c: char) -> bool {
    let is_bidi = matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    (c.is_control() && c != '\n' && c != '\t') || is_bidi || is_separator
}

/// Artifacts as people compare them: size, and how the fingerprint begins. Of a long list only the first are named.
pub fn artifacts(artifacts: &[RecordedArtifact]) -> Vec<String> {
    let one = |artifact: &RecordedArtifact| {
        let start = artifact.sha256.get(..12).unwrap_or_default();
        format!("{} ({} bytes, SHA-256 {start}…)", flat(&artifact.path), artifact.size)
    };
    let mut shown: Vec<String> = artifacts.iter().take(LISTED_MAX).map(one).collect();
    if artifacts.len() > LISTED_MAX {
        shown.push(format!("and {} more", artifacts.len() - LISTED_MAX));
    }
    shown
}

/// One sentence about who holds a lease: host, process, since when, until when.
pub fn holder(lease: &Lease, remaining: Option<Duration>, now: Wall) -> String {
    let zone = zone(&lease.zone);
    let process = process(&lease.holder);
    let until = match remaining {
        Some(left) => format!("until {} unless renewed", second_in(now + left, &zone)),
        None => format!("for {} after its last renewal", length(lease.ttl)),
    };
    format!("{} ({process}), since {}, {until}", flat(&lease.holder.host), time_for_people(lease.since, now, &zone))
}

/// What is behind a lease, in a few words.
pub fn process(holder: &Holder) -> String {
    match holder.pid() {
        Some(pid) => format!("pid {pid}"),
        None if holder.by_hand => "by hand".to_string(),
        None => "no known process".to_string(),
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
    }

    #[test]
    fn a_near_moment_has_its_day_only_if_it_is_another() {
        let (tokyo, utc) = (Zone::parse("Asia/Tokyo").unwrap(), Zone::utc());
        let at = |text: &str| utc.parse_time(text).unwrap();
        let now = at("2026-11-18T10:00Z");
        for (moment, in_utc, in_tokyo) in [
            ("2026-11-18T12:30:40Z", "12:30", "21:30"),
            ("2026-11-18T15:00Z", "15:00", "Thu 00:00"),
            ("2026-11-19T07:00Z", "Thu 07:00", "Thu 16:00"),
            ("2026-11-17T07:00Z", "Tue 07:00", "Tue 16:00"),
            ("2026-12-24T07:00Z", "2026-12-24", "2026-12-24"),
        ] {
            assert_eq!((near(at(moment), now, &utc), near(at(moment), now, &tokyo)), (in_utc.into(), in_tokyo.into()));
        }
    }

    #[test]
    fn widths_are_columns_of_a_terminal() {
        for (text, columns) in [("abc", 3), ("e\u{301}", 1), ("日本", 4), ("✓∅✗‖…", 5), ("한 a", 4), ("", 0)]
        {
            assert_eq!(width(text), columns, "{text}");
        }
    }

    #[test]
    fn the_first_and_the_last_moment_are_shown() {
        for moment in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            assert!(!second(Wall(moment)).is_empty(), "{moment}");
        }
        assert_eq!(second(Wall(-1)), "1969-12-31 23:59:59Z");
    }
}
