//! Forgets a job or a `once` item: hides its record, then deletes its history and its skip counters.

use fencepost_core::history::Page;
use fencepost_core::lease::Intent;
use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_core::register::{StoreError, Swapped};
use fencepost_core::token::RunId;
use fencepost_store::{SCAN_KEYS_MAX, Store};

use crate::local::Local;
use crate::transact::{TransactError, look, transact};

/// Forgets a job at rest, and returns the number of deleted entries of its history.
///
/// The record comes first: from then on no answer shows the outcomes, in the record or in the history. A process that dies
/// after it leaves entries that are not shown, and the next call deletes them.
pub fn forget(store: &dyn Store, local: &Local, job: &Job, by: RunId) -> Result<usize, TransactError> {
    transact(store, local, job, Intent::Forget, by)?;
    let (record, _) = look(store, job).map_err(TransactError::Store)?;
    let deleted = record.map_or(Ok(0), |record| delete_history(store, &record));
    deleted.and_then(|deleted| delete(store, &Key::skips(job)).map(|_| deleted)).map_err(TransactError::Store)
}

fn delete_history(store: &dyn Store, record: &Record) -> Result<usize, StoreError> {
    let (mut deleted, mut after) = (0, None);
    loop {
        let keys = store.scan(&Key::histories(&record.job), after.as_ref(), SCAN_KEYS_MAX)?.value;
        let Some(last) = keys.last().cloned() else { return Ok(deleted) };
        for key in &keys {
            let Some(entry) = store.read(key)?.value else { continue };
            // A run that began since then may have put its own outcome there.
            let is_newer = |page: Page| page.attempts.iter().any(|outcome| !record.has_forgotten(outcome));
            if !Page::decode(&entry.bytes, &record.job).is_ok_and(is_newer)
                && let Swapped::Won(_) = store.swap(key, Some(&entry.version), None)?.value
            {
                deleted += 1;
            }
        }
        after = Some(last);
    }
}

fn delete(store: &dyn Store, key: &Key) -> Result<(), StoreError> {
    if let Some(entry) = store.read(key)?.value {
        // A trigger that is skipped at this moment counts anew.
        store.swap(key, Some(&entry.version), None)?;
    }
    Ok(())
}
