//! Five calls that detect a store which does not compare at all.

use super::{BrokenContract, CheckOutcome, Wrong, fresh_space};
use crate::{Key, Store, Swapped};

/// Creates a key twice and swaps it by an old version: the second creation and the old swap must be lost. It runs at
/// the first use of a store, where the whole suite would take too long.
pub fn canary(store: &dyn Store) -> Result<(), BrokenContract> {
    let violated = |wrong: Wrong| BrokenContract {
        check: "canary",
        sentence: "Replaces what stands under `key` if its version is `expected`.",
        detail: wrong.detail,
        failed: wrong.failed,
    };
    let key = fresh_space().map(|space| Key::probe(&space, "canary")).map_err(violated)?;
    let sung = sing(store, &key);
    // Removes the key. Errors are ignored: they were reported above.
    if sung.is_err()
        && let Ok(answer) = store.read(&key)
        && let Some(entry) = answer.value
    {
        let _ = store.swap(&key, Some(&entry.version), None);
    }
    sung.map_err(violated)
}

fn sing(store: &dyn Store, key: &Key) -> CheckOutcome {
    let wrong = |text: &str| Err(Wrong::from(text.to_string()));
    let Swapped::Won(Some(old)) = store.swap(key, None, Some(b"one"))?.value else {
        return wrong("A swap of nothing into something was not won.");
    };
    if !matches!(store.swap(key, None, Some(b"two"))?.value, Swapped::Lost(Some(_))) {
        return wrong("What was there already was made again: of many that come at once all would win.");
    }
    let Swapped::Won(Some(new)) = store.swap(key, Some(&old), Some(b"three"))?.value else {
        return wrong("A swap that expected the very state was not won.");
    };
    if !matches!(store.swap(key, Some(&old), Some(b"four"))?.value, Swapped::Lost(Some(_))) {
        return wrong("A swap that expected an old state was won: a stale writer would overwrite a new one.");
    }
    match store.swap(key, Some(&new), None)?.value {
        Swapped::Won(None) => Ok(()),
        _ => wrong("A removal that expected the very state was not won."),
    }
}
