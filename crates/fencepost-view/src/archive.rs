//! The history of a job by slot, newest first, however long it is.
//!
//! No decision rests on it: a scan may lag behind.

use std::time::Duration;

use fencepost_core::ledger::Outcome;
use fencepost_core::name::{Job, Key};
use fencepost_core::register::StoreError;
use fencepost_core::time::{Wall, millis};
use fencepost_store::records::details;
use fencepost_store::{SCAN_KEYS_MAX, Store};

/// How far back the first look into the history goes, and how much further each one goes than the one before.
const STRETCH_MIN: Duration = Duration::from_secs(3600);
const STRETCH_GROWTH: u64 = 4;

/// The slots of a job's history, newest first.
///
/// A store lists keys in ascending order only. So this lists stretches of time that grow on the way back, and a caller
/// that stops early does not make the store list everything.
pub struct Slots<'a> {
    store: &'a dyn Store,
    job: &'a Job,
    /// The oldest slot in range.
    from: Wall,
    /// Everything from here on is listed.
    listed_from: Wall,
    stretch: u64,
    /// Slots that are listed and not yet returned, oldest first.
    found: Vec<Wall>,
}

impl std::fmt::Debug for Slots<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("job", self.job).field("listed_from", &self.listed_from).finish_non_exhaustive()
    }
}

impl<'a> Slots<'a> {
    /// The slots from one moment to just before another. The first look goes back to `at_once`.
    pub fn between(
        store: &'a dyn Store,
        job: &'a Job,
        from: Wall,
        before: Wall,
        at_once: Wall,
    ) -> Result<Self, StoreError> {
        let oldest = store.scan(&Key::histories(job), Key::before_history(job, from).as_ref(), 1)?.value;
        let oldest = oldest.first().and_then(Key::slot).filter(|oldest| *oldest < before);
        let mut slots =
            Self { store, job, from: before, listed_from: before, stretch: millis(STRETCH_MIN), found: Vec::new() };
        if let Some(oldest) = oldest {
            slots.from = oldest;
            slots.list(at_once)?;
        }
        Ok(slots)
    }

    /// The next older slot, if it is not older than `floor`. A slot below it may be asked for later.
    pub fn next_from(&mut self, floor: Wall) -> Result<Option<Wall>, StoreError> {
        while self.found.is_empty() && self.listed_from > self.from.max(floor) {
            let back = i64::try_from(self.stretch).unwrap_or(i64::MAX);
            self.stretch = self.stretch.saturating_mul(STRETCH_GROWTH);
            self.list(Wall(self.listed_from.0.saturating_sub(back)))?;
        }
        Ok(self.found.pop_if(|slot| *slot >= floor))
    }

    /// Lists everything from `from` to what was listed already.
    fn list(&mut self, from: Wall) -> Result<(), StoreError> {
        let from = from.max(self.from);
        if from >= self.listed_from {
            return Ok(());
        }
        let prefix = Key::histories(self.job);
        let mut after = Key::before_history(self.job, from);
        loop {
            let keys = self.store.scan(&prefix, after.as_ref(), SCAN_KEYS_MAX)?.value;
            let in_reach = keys.iter().filter_map(Key::slot).take_while(|slot| *slot < self.listed_from);
            let before = self.found.len();
            self.found.extend(in_reach);
            let is_all = keys.len() < SCAN_KEYS_MAX || self.found.len() - before < keys.len();
            after = keys.into_iter().next_back();
            if is_all {
                break;
            }
        }
        // A slot with several pages has several keys.
        self.found.dedup();
        self.listed_from = from;
        Ok(())
    }
}

/// The first slot of the history after a moment.
pub fn next_slot(store: &dyn Store, job: &Job, after: Wall) -> Result<Option<Wall>, StoreError> {
    let from = Wall(after.0.saturating_add(1));
    let keys = store.scan(&Key::histories(job), Key::before_history(job, from).as_ref(), 1)?.value;
    Ok(keys.first().and_then(Key::slot))
}

/// An outcome as it was before the record cut it short.
pub fn whole(store: &dyn Store, job: &Job, outcome: &Outcome) -> Result<Outcome, StoreError> {
    if !outcome.clipped {
        return Ok(outcome.clone());
    }
    Ok(details(store, job, outcome)?.unwrap_or_else(|| outcome.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::name::Name;
    use fencepost_store::MemoryStore;

    const HOUR: i64 = 3_600_000;

    fn filled(slots: impl IntoIterator<Item = i64>) -> (MemoryStore, Job) {
        let store = MemoryStore::new();
        let job = Job::shared(Name::new("j").unwrap());
        for slot in slots {
            store.swap(&Key::history(&job, Wall(slot), 0), None, Some(b"{}")).unwrap();
        }
        (store, job)
    }

    fn all(store: &MemoryStore, job: &Job, from: i64, before: i64, at_once: i64) -> Vec<i64> {
        let mut slots = Slots::between(store, job, Wall(from), Wall(before), Wall(at_once)).unwrap();
        std::iter::from_fn(|| slots.next_from(Wall(i64::MIN)).unwrap()).map(|slot| slot.0).collect()
    }

    #[test]
    fn they_come_newest_first_however_many_and_however_far_apart() {
        let far = 1_700_000_000_000;
        let expected: Vec<i64> = (0..3_000).map(|hour| far + hour * HOUR).rev().chain([5 * HOUR, 0]).collect();
        let (store, job) = filled(expected.iter().copied());
        store.swap(&Key::history(&job, Wall(far), 1), None, Some(b"{}")).unwrap();
        for at_once in [i64::MAX, far + 2_990 * HOUR, far, 0] {
            assert_eq!(all(&store, &job, i64::MIN, i64::MAX, at_once), expected, "{at_once}");
        }
        assert_eq!(all(&store, &job, far, far + 2 * HOUR, i64::MAX), [far + HOUR, far]);
        assert_eq!(all(&store, &job, 6 * HOUR, far, i64::MAX), [0; 0]);
        assert_eq!(all(&store, &job, 1, 5 * HOUR + 1, 0), [5 * HOUR]);
    }

    #[test]
    fn older_stretches_are_not_listed_before_they_are_needed() {
        let (store, job) = filled((0..100).map(|day| day * 24 * HOUR));
        let mut slots = Slots::between(&store, &job, Wall(0), Wall(i64::MAX), Wall(99 * 24 * HOUR)).unwrap();
        assert_eq!(slots.next_from(Wall(0)).unwrap(), Some(Wall(99 * 24 * HOUR)));
        assert_eq!(slots.next_from(Wall(99 * 24 * HOUR)).unwrap(), None);
        assert_eq!(slots.next_from(Wall(98 * 24 * HOUR)).unwrap(), Some(Wall(98 * 24 * HOUR)));
        assert!(slots.listed_from > Wall(90 * 24 * HOUR));
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let (store, job) = filled([]);
        assert_eq!(all(&store, &job, i64::MIN, i64::MAX, 0), [0; 0]);
        assert_eq!(next_slot(&store, &job, Wall(0)).unwrap(), None);
        let (store, job) = filled([HOUR, 2 * HOUR]);
        assert_eq!(next_slot(&store, &job, Wall(HOUR)).unwrap(), Some(Wall(2 * HOUR)));
        assert_eq!(next_slot(&store, &job, Wall(i64::MAX)).unwrap(), None);
    }
}
