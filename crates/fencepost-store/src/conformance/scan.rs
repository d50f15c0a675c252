//! The keys that `scan` lists.

use std::thread;
use std::time::{Duration, Instant};

use super::{Bench, Check, CheckOutcome, PATIENCE, Wrong, ensure};
use crate::{Key, SCAN_KEYS_MAX};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "scan",
        sentence: "A scan lists the keys with a prefix, in order, page by page.",
        slow: false,
        body: lists_in_order,
    },
    Check {
        name: "scan removed",
        sentence: "A removed key disappears from the list in the end; no decision depends on the list.",
        slow: false,
        body: forgets_what_was_removed,
    },
    Check {
        name: "scan limit",
        sentence: "A scan returns at most as many keys as requested, and never more than 1000.",
        slow: true,
        body: lists_no_more_than_the_most,
    },
];

fn lists_in_order(bench: &Bench<'_>) -> CheckOutcome {
    // Created out of order, and with characters that sort before and after the letters.
    let mut keys: Vec<Key> =
        ["b", "a", "c/d", "B", "a0", "aa", "-", "_", "9", "c"].iter().map(|name| bench.key(name)).collect();
    for key in &keys {
        bench.put(key, None, b"1")?;
    }
    keys.sort();
    let prefix = bench.prefix();
    settled(bench, &keys)?;
    for limit in 0..=keys.len() + 1 {
        lists(bench, &prefix, None, limit, &keys[..limit.min(keys.len())])?;
    }
    for (number, after) in keys.iter().enumerate() {
        lists(bench, &prefix, Some(after), usize::MAX, &keys[number + 1..])?;
        lists(bench, &prefix, Some(after), 1, &keys[number + 1..keys.len().min(number + 2)])?;
    }
    let absent = Key::probe(&bench.space, "aab");
    let later: Vec<Key> = keys.iter().filter(|key| **key > absent).cloned().collect();
    lists(bench, &prefix, Some(&absent), usize::MAX, &later)?;
    let narrow = format!("{prefix}a");
    let begin_with_a: Vec<Key> = keys.iter().filter(|key| key.as_str().starts_with(&narrow)).cloned().collect();
    lists(bench, &narrow, None, usize::MAX, &begin_with_a)?;
    lists(bench, &format!("{prefix}zz"), None, usize::MAX, &[])?;
    // An `after` that sorts before or after everything with the prefix.
    lists(bench, &narrow, Some(&keys[0]), usize::MAX, &begin_with_a)?;
    lists(bench, &narrow, keys.last(), usize::MAX, &[])
}

fn forgets_what_was_removed(bench: &Bench<'_>) -> CheckOutcome {
    let (gone, stays) = (bench.key("a"), bench.key("b"));
    let version = bench.put(&gone, None, b"1")?;
    bench.put(&stays, None, b"1")?;
    bench.remove(&gone, &version)?;
    settled(bench, &[stays])
}

fn lists_no_more_than_the_most(bench: &Bench<'_>) -> CheckOutcome {
    let mut keys: Vec<Key> = (0..=SCAN_KEYS_MAX).map(|number| bench.key(&format!("k{number:05}"))).collect();
    keys.sort();
    for key in &keys {
        bench.put(key, None, b"1")?;
    }
    let (most, rest) = keys.split_at(SCAN_KEYS_MAX);
    settled(bench, most)?;
    lists(bench, &bench.prefix(), None, SCAN_KEYS_MAX + 1, most)?;
    lists(bench, &bench.prefix(), most.last(), usize::MAX, rest)
}

fn lists(bench: &Bench<'_>, prefix: &str, after: Option<&Key>, limit: usize, expected: &[Key]) -> CheckOutcome {
    let found = bench.store.scan(prefix, after, limit)?.value;
    ensure(found == expected, || {
        let after = after.map_or("the beginning", Key::as_str);
        format!(
            "A scan of {prefix} after {after} with the limit {limit} gave {} instead of {}.",
            shown(&found),
            shown(expected)
        )
    })
}

/// Waits until the whole listing is `expected`, because a store may lag. Every listing must be in order meanwhile.
fn settled(bench: &Bench<'_>, expected: &[Key]) -> CheckOutcome {
    let begun = Instant::now();
    loop {
        let found = bench.store.scan(&bench.prefix(), None, usize::MAX)?.value;
        ensure(found.is_sorted(), || format!("A scan gave {}, which is not in order.", shown(&found)))?;
        if found == expected {
            return Ok(());
        }
        let overlong = found.len() > SCAN_KEYS_MAX;
        if overlong || begun.elapsed() > PATIENCE / 12 {
            return Err(Wrong::from(format!("A scan gave {} instead of {}.", shown(&found), shown(expected))));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn shown(keys: &[Key]) -> String {
    let names: Vec<&str> = keys.iter().take(12).map(Key::as_str).collect();
    format!("{} keys ({}{})", keys.len(), names.join(", "), if keys.len() > 12 { ", …" } else { "" })
}
