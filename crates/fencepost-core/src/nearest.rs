//! The nearest right word to a wrong one, for errors that say what was meant.

use alloc::vec::Vec;

/// The word that differs least, ignoring case, if it differs by no more than a third of its letters.
pub fn nearest<'a>(wrong: &str, right: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (apart, word) = right.into_iter().map(|word| (distance(wrong, word), word)).min_by_key(|(apart, _)| *apart)?;
    (apart <= (word.len() / 3).max(1)).then_some(word)
}

/// How many letters must be added, dropped, changed or swapped with their neighbour.
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
    fn what_is_too_far_away_is_not_meant() {
        let days = ["SUN", "MON", "TUE"];
        assert_eq!(nearest("tues", days), Some("TUE"));
        assert_eq!(nearest("xyz", days), None);
    }
}
