//! The nearest valid word to a mistyped one, for error messages.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// One letter in this many may be wrong.
const LETTERS_PER_MISTAKE: usize = 3;

/// The word that was probably meant: the one with the smallest distance, if at most every third letter is wrong, or one
/// that starts with the typed text.
pub fn nearest<'a>(wrong: &str, right: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = folded(wrong);
    let letters = wrong.chars().count();
    let apart = |word: &str| {
        let word = folded(word);
        let begins_alike = letters >= LETTERS_PER_MISTAKE && word.starts_with(&wrong);
        if begins_alike { 1 } else { distance(&wrong, &word) }
    };
    let (apart, word) = right.into_iter().map(|word| (apart(word), word)).min_by_key(|(apart, _)| *apart)?;
    (apart <= letters / LETTERS_PER_MISTAKE).then_some(word)
}

/// `Did you mean "…"?`, if a similar word exists.
pub fn did_you_mean<'a>(wrong: &str, right: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(wrong, right).map(|word| format!("Did you mean {word:?}?"))
}

/// Treats dash and underscore as equal.
fn folded(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

/// The edit distance: letters added, dropped, changed or swapped with their neighbour.
pub fn distance(left: &str, right: &str) -> usize {
    let right: Vec<u8> = right.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    let mut last = 0;
    for (at, byte) in left.bytes().map(|byte| byte.to_ascii_lowercase()).enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(at + 1);
        for (to, other) in right.iter().enumerate() {
            let changed = row[to] + usize::from(byte != *other);
            let mut best = changed.min(row[to + 1] + 1).min(next[to] + 1);
            if at > 0 && to > 0 && byte == right[to - 1] && last == *other {
                best = best.min(before[to - 1] + 1);
            }
            next.push(best);
        }
        last = byte;
        before = core::mem::replace(&mut row, next);
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_more_less_other_or_swapped_is_one_apart() {
        for (left, right, apart) in [
            ("mon", "MON", 0),
            ("mom", "mon", 1),
            ("mo", "mon", 1),
            ("mmon", "mon", 1),
            ("omn", "mon", 1),
            ("", "mon", 3),
        ] {
            assert_eq!(distance(left, right), apart, "{left} {right}");
        }
    }

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let known = ["schedule", "catch_up", "ttl", "needs", "a", "TUE"];
        for (typed, meant) in [
            ("shedule", Some("schedule")),
            ("schdeule", Some("schedule")),
            ("sched", Some("schedule")),
            ("catch-up", Some("catch_up")),
            ("TTL", Some("ttl")),
            ("tll", Some("ttl")),
            ("need", Some("needs")),
            ("tues", Some("TUE")),
            ("b", None),
            ("cron", None),
            ("xyz", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
