//! Text for people: times, lengths of time, holders, and foreign text made safe for a terminal.

use std::borrow::Cow;
use std::time::Duration;

use fencepost_core::ledger::LISTED_MAX;
use fencepost_core::record::{Holder, Lease};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

use crate::answer::RecordedArtifact;

pub use fencepost_core::duration::show as length;

/// The zone that a record names. One that this version does not know is shown in UTC.
pub fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap_or_else(|_| Zone::utc())
}

/// An instant, to the second, and how long ago it was.
pub fn time_for_people(moment: Wall, now: Wall, zone: &Zone) -> String {
    format!("{} ({} ago)", second_in(moment, zone), length(now.since(moment)))
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
        None => "what could not be ended".to_string(),
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
    fn the_first_and_the_last_moment_are_shown() {
        for moment in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            assert!(!second(Wall(moment)).is_empty(), "{moment}");
        }
        assert_eq!(second(Wall(-1)), "1969-12-31 23:59:59Z");
    }
}
