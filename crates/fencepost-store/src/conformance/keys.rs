//! Keys that nearly collide.

use super::{Bench, Check, CheckOutcome};
use crate::{Entry, Version};

pub(super) const CHECKS: &[Check] =
    &[Check { name: "keys", sentence: "Similar keys do not share a value.", slow: false, body: near_keys_are_apart }];

/// Tries names whose keys a careless store would confuse: a directory and a file of the same name, names that differ in
/// case only, names with a special meaning, the longest names, and names that share a long beginning.
fn near_keys_are_apart(bench: &Bench<'_>) -> CheckOutcome {
    let longest = ["z".repeat(128), format!("{}y", "z".repeat(127)), "A/".repeat(64), "a/".repeat(64), "Aa".repeat(64)];
    let awkward = [
        "a", "A", "a/b", "a/B", "a/b/c", "a.b", "a:b", "a-b", "a_b", "a/", "x", "x.lock", "x.tmp", "x-wal", "HEAD",
        "head", "con", "nul", "aux.txt", "0", "00", "_", "1e5",
    ];
    let names = awkward.into_iter().map(str::to_string).chain(longest);
    let keys: Vec<_> = names.map(|name| (bench.key(&name), name)).collect();
    let mut versions: Vec<Version> = Vec::new();
    for (key, name) in &keys {
        versions.push(bench.put(key, None, name.as_bytes())?);
    }
    for ((key, name), version) in keys.iter().zip(&versions) {
        bench.stands(key, Some(&Entry { bytes: name.clone().into_bytes(), version: version.clone() }))?;
    }
    // Removing every second key must leave the others.
    for ((key, _), version) in keys.iter().zip(&versions).step_by(2) {
        bench.remove(key, version)?;
    }
    for (number, ((key, name), version)) in keys.iter().zip(&versions).enumerate() {
        let entry = Entry { bytes: name.clone().into_bytes(), version: version.clone() };
        bench.stands(key, (number % 2 == 1).then_some(&entry))?;
    }
    Ok(())
}
