//! A store in memory for tests and the model, stricter than any real one.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    Answer, Entry, Key, SCAN_KEYS_MAX, Store, StoreClock, StoreError, Swapped, Trouble, Version, refuse_unsound,
};

/// A store that lives as long as its last handle. A clone is another handle of the same store.
///
/// It is stricter than any real one: no two states of any key of any `MemoryStore` in the process share a version,
/// versions have no order, and a read with an invalid key is refused like a swap.
#[derive(Clone)]
pub struct MemoryStore {
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    clock: Option<Arc<dyn Fn() -> StoreClock + Send + Sync>>,
}

impl MemoryStore {
    /// A store without a clock, like a shared directory.
    pub fn new() -> Self {
        Self { entries: Arc::default(), clock: None }
    }

    /// A store with the given clock, like a database server.
    pub fn with_clock(clock: impl Fn() -> StoreClock + Send + Sync + 'static) -> Self {
        Self { entries: Arc::default(), clock: Some(Arc::new(clock)) }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // No operation here panics half-way, so the map behind a poisoned lock is intact.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T>(&self, value: T) -> Answer<T> {
        Answer::new(value, self.clock.as_ref().map(|clock| clock()))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("entries", &self.entries().len()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        refuse_unsound(key, None)?;
        let entries = self.entries();
        Ok(self.answer(entries.get(key.as_str()).cloned()))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        let mut entries = self.entries();
        let current = entries.get(key.as_str());
        if current.map(|entry| &entry.version) != expected {
            return Ok(self.answer(Swapped::Lost(current.cloned())));
        }
        let Some(bytes) = new else {
            entries.remove(key.as_str());
            return Ok(self.answer(Swapped::Won(None)));
        };
        let version = fresh_version();
        entries.insert(key.as_str().to_string(), Entry { bytes: bytes.to_vec(), version: version.clone() });
        Ok(self.answer(Swapped::Won(Some(version))))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let start = match after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        let entries = self.entries();
        let keys = entries.range::<str, _>((start, Bound::Unbounded));
        let found: Option<Vec<Key>> = keys
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit.min(SCAN_KEYS_MAX))
            .map(|(key, _)| Key::from_stored(key))
            .collect();
        let unsound = || StoreError::not_done(Trouble::Corrupt, "The memory store holds an unsound key.");
        found.map(|keys| self.answer(keys)).ok_or_else(unsound)
    }
}

/// Eight bytes that are unique in this process. Multiplying by an odd number keeps them distinct and removes their
/// order, which callers must not rely on.
fn fresh_version() -> Version {
    static GIVEN: AtomicU64 = AtomicU64::new(1);
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    Version(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec())
}
