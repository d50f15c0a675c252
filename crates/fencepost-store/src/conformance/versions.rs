//! Versions are never reused.

use std::collections::HashSet;

use super::{Bench, Check, CheckOutcome, ensure};
use crate::{Key, Version};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "versions",
        sentence: "No version is given twice for the same key.",
        slow: false,
        body: never_reused_for_equal_bytes,
    },
    Check {
        name: "versions after removal",
        sentence: "No version is given again after the key was removed and created again.",
        slow: false,
        body: never_reused_after_removal,
    },
];

/// A store whose versions are hashes of the content fails here: content that returns brings its version back, and a
/// swap from long ago is won.
fn never_reused_for_equal_bytes(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let mut seen = HashSet::new();
    let mut current: Option<Version> = None;
    for bytes in [&b"one"[..], b"one", b"two", b"one", b"", b"one", b""] {
        let version = bench.put(&key, current.as_ref(), bytes)?;
        fresh(&key, &mut seen, &version)?;
        current = Some(version);
    }
    Ok(())
}

fn never_reused_after_removal(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let mut seen = HashSet::new();
    for _ in 0..4 {
        let first = bench.put(&key, None, b"one")?;
        fresh(&key, &mut seen, &first)?;
        let second = bench.put(&key, Some(&first), b"two")?;
        fresh(&key, &mut seen, &second)?;
        bench.remove(&key, &second)?;
    }
    Ok(())
}

fn fresh(key: &Key, seen: &mut HashSet<Version>, version: &Version) -> CheckOutcome {
    ensure(seen.insert(version.clone()), || format!("The version {version:?} of {key} was given twice."))
}
