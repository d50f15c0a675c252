//! Reads and decodes the entries of a job: its record, its skip counters, its history.

use std::sync::Arc;

use fencepost_core::history::Page;
use fencepost_core::ledger::Outcome;
use fencepost_core::name::{Job, Key};
use fencepost_core::record::{Record, decode};
use fencepost_core::register::StoreError;
use fencepost_core::skips::Skips;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::transition::{Known, unreadable};

use crate::Store;

/// A page of the history that could not be read, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryError {
    pub key: Key,
    pub error: StoreError,
}

impl From<HistoryError> for StoreError {
    fn from(failed: HistoryError) -> Self {
        failed.error
    }
}

/// Reads a job's record, with the store's clock at that moment.
pub fn look(store: &dyn Store, job: &Job) -> Result<(Option<Record>, Option<StoreClock>), StoreError> {
    let answer = store.read(&Key::job(job))?;
    let known = answer.value.map(|entry| Known::of(entry, job)).transpose()?;
    Ok((known.map(|known| Arc::unwrap_or_clone(known.record)), answer.clock))
}

/// Reads the counters of a job's skipped triggers.
pub fn skips(store: &dyn Store, job: &Job) -> Result<Option<Skips>, StoreError> {
    let entry = store.read(&Key::skips(job))?.value;
    entry.map(|entry| decode(&entry.bytes).map_err(|why| unreadable(&format!("the skips of {job}"), &why))).transpose()
}

/// Reads all attempts of a slot that its job's record has evicted, oldest first.
pub fn history(store: &dyn Store, job: &Job, slot: Wall) -> Result<Vec<Outcome>, HistoryError> {
    let mut attempts: Vec<_> = pages(store, job, slot)?.into_iter().flat_map(|page| page.attempts).collect();
    // The pages are not ordered by attempt: an attempt that a full page already holds does not go to the next one.
    attempts.sort_by_key(Outcome::attempt);
    Ok(attempts)
}

/// Reads the evicted attempts of a slot, and the full text of those that the record holds abbreviated.
pub fn history_and_details(store: &dyn Store, record: &Record, slot: Wall) -> Result<Vec<Outcome>, HistoryError> {
    let known: Vec<&Outcome> = record.ledger.ring.iter().chain(&record.ledger.last_ok).collect();
    let is_known = |detail: &Outcome| {
        known.iter().any(|known| (known.attempt(), known.status) == (detail.attempt(), detail.status))
    };
    let mut all = Vec::new();
    for page in pages(store, &record.job, slot)? {
        all.extend(page.details.into_iter().filter(|detail| is_known(detail)));
        all.extend(page.attempts);
    }
    all.retain(|outcome| !record.has_forgotten(outcome));
    all.sort_by_key(Outcome::attempt);
    Ok(all)
}

/// Reads the full text of an attempt that its job's record holds abbreviated, if the history has it.
pub fn details(store: &dyn Store, job: &Job, short: &Outcome) -> Result<Option<Outcome>, HistoryError> {
    let pages = pages(store, job, short.slot)?;
    let mut all = pages.into_iter().flat_map(|page| page.details.into_iter().chain(page.attempts));
    Ok(all.find(|known| known.attempt() == short.attempt() && known.status == short.status))
}

fn pages(store: &dyn Store, job: &Job, slot: Wall) -> Result<Vec<Page>, HistoryError> {
    let mut pages = Vec::new();
    for page in 0.. {
        let key = Key::history(job, slot, page);
        let entry = match store.read(&key) {
            Ok(answer) => answer.value,
            Err(error) => return Err(HistoryError { key, error }),
        };
        let Some(entry) = entry else { break };
        match Page::decode(&entry.bytes, job) {
            Ok(decoded) => pages.push(decoded),
            Err(why) => {
                let error = unreadable(&format!("the history of {job} under slot {}", slot.0), &why);
                return Err(HistoryError { key, error });
            }
        }
        if !Page::is_full(&entry.bytes) {
            break;
        }
    }
    Ok(pages)
}
