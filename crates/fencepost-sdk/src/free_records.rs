//! The records that this process released a moment ago, so that the next claim of the same lock begins with the swap.
//!
//! Such a record has no lease and is not paused, so a claim on it can only end in a swap, which expects this very version: if
//! anything has changed, the swap is lost and the claim is decided by the record that it returns. Only locks use this. A claim
//! of a slot may be refused by what it reads, and that has to be what the store holds now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::record::{Record, decode};
use fencepost_core::register::Answer;
use fencepost_core::time::{Boot, StoreClock, Wall};
use fencepost_guard::clock;
use fencepost_store::{Entry, Key, Store, StoreError, Swapped, Version};

/// For how long a record counts. Its clock is extrapolated by its age, as every reading of a store's clock is.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The most records that are kept.
const RECORDS_MAX: usize = 256;

/// A store that answers the next read of a record that this process has just released.
pub(crate) struct FreeRecords {
    inner: Arc<dyn Store>,
    left: Mutex<BTreeMap<Key, LeftRecord>>,
}

struct LeftRecord {
    answer: Answer<Option<Entry>>,
    /// Before the swap that left it was sent.
    sent: Boot,
}

impl FreeRecords {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, left: Mutex::default() }
    }

    fn left(&self) -> MutexGuard<'_, BTreeMap<Key, LeftRecord>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for FreeRecords {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let left = self.left().remove(key);
        let aged = left.map(|left| (clock::boot_now().since(left.sent), left.answer));
        match aged.filter(|(age, _)| *age <= AGE_MAX) {
            Some((age, answer)) => Ok(later(answer, age)),
            None => self.inner.read(key),
        }
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        let sent = clock::boot_now();
        self.left().remove(key);
        let answer = self.inner.swap(key, expected, new)?;
        if let (Swapped::Won(Some(version)), Some(bytes)) = (&answer.value, new)
            && is_free(bytes)
        {
            let entry = Entry { bytes: bytes.to_vec(), version: version.clone() };
            let answer = Answer { value: Some(entry), clock: answer.clock.clone(), date: answer.date };
            let mut left = self.left();
            if left.len() < RECORDS_MAX {
                left.insert(key.clone(), LeftRecord { answer, sent });
            }
        }
        Ok(answer)
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        self.inner.scan(prefix, after, limit)
    }
}

/// Whether a claim can take a record at once.
fn is_free(bytes: &[u8]) -> bool {
    let read = decode::<Record>(bytes);
    read.is_ok_and(|record| record.lease.is_none() && record.paused.is_none() && record.moved_to.is_none())
}

/// The answer as the store would have given it later: no clock of it can be ahead of that.
fn later(answer: Answer<Option<Entry>>, age: Duration) -> Answer<Option<Entry>> {
    let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let wall = |wall: Wall| Wall(wall.0.saturating_add_unsigned(millis));
    let clock = answer.clock.map(|clock| StoreClock {
        wall: wall(clock.wall),
        tick: clock.tick.saturating_add(millis),
        era: clock.era,
    });
    Answer { clock, date: answer.date.map(wall), ..answer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_store::MemoryStore;
    use fencepost_store::layer::{Trace, TraceVerb};

    use crate::guard::Guard;

    fn lock(guard: &Guard) -> crate::Lease {
        guard.job("shared").unwrap().unrecorded().claim().unwrap()
    }

    /// A guard on a store in memory, with the calls that it receives.
    fn scene() -> (tempfile::TempDir, Guard, Arc<Trace<MemoryStore>>) {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Trace::new(MemoryStore::new()));
        let guard = Guard::on(Arc::clone(&store) as Arc<dyn Store>, directory.path());
        lock(&guard).release().unwrap();
        store.clear();
        (directory, guard, store)
    }

    #[test]
    fn a_lock_that_was_just_released_is_taken_by_one_swap() {
        let (_directory, guard, store) = scene();
        let held = lock(&guard);
        assert_eq!((store.count(TraceVerb::Read), store.count(TraceVerb::Swap)), (0, 1));
        let token = held.token();
        held.release().unwrap();
        assert!(lock(&guard).token() > token);
    }

    #[test]
    fn a_record_that_changed_since_decides_the_claim() {
        let (directory, guard, store) = scene();
        let other = Guard::on(Arc::clone(&store) as Arc<dyn Store>, &directory.path().join("other"));
        let held = lock(&other);
        store.clear();
        let refused = guard.job("shared").unwrap().unrecorded().claim().unwrap_err();
        assert!(matches!(refused, crate::Error::Skipped { reason: "held", .. }), "{refused}");
        let token = held.token();
        held.release().unwrap();
        assert!(lock(&guard).token() > token);
    }

    #[test]
    fn a_held_record_is_read_from_the_store() {
        let (_directory, guard, store) = scene();
        let held = lock(&guard);
        store.clear();
        assert!(guard.job("shared").unwrap().unrecorded().claim().is_err());
        assert!(store.count(TraceVerb::Read) > 0);
        drop(held);
    }

    #[test]
    fn the_clock_of_a_kept_answer_goes_on() {
        let clock = StoreClock { wall: Wall(1_000), era: fencepost_core::time::Era("e".to_string()), tick: 10 };
        let kept = Answer { value: None, clock: Some(clock.clone()), date: Some(Wall(1_000)) };
        let given = later(kept, Duration::from_millis(30));
        assert_eq!(given.clock, Some(StoreClock { wall: Wall(1_030), tick: 40, ..clock }));
        assert_eq!(given.date, Some(Wall(1_030)));
    }
}
