//! Deletes old entries of a job's history. The record is never touched: the last good outcome is kept forever.

use fencepost_core::history::is_spent;
use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_core::register::{StoreError, Swapped};
use fencepost_core::time::Wall;
use fencepost_store::Store;
use fencepost_store::records::look;

use crate::clock;

/// A run prunes the history if its grant number is a multiple of this. No two runs have the same grant number, so no
/// two prune at once, and no state is needed.
const GRANTS_BETWEEN: u64 = 16;

/// Maximum number of keys deleted at a time. A grant adds at most two, so pruning keeps up with any job.
const KEYS_MAX: usize = 48;

/// Whether the run with this grant prunes the history.
pub fn is_due(grants: u64) -> bool {
    grants.is_multiple_of(GRANTS_BETWEEN)
}

/// Reads the record of a job, and deletes the oldest expired part of its history.
pub fn look_after(store: &dyn Store, job: &Job) -> Result<usize, StoreError> {
    let (record, clock) = look(store, job)?;
    let here = clock::now().wall;
    let now = clock.map_or(here, |clock| clock.wall.min(here));
    record.map_or(Ok(0), |record| prune(store, &record, now))
}

/// Deletes the oldest expired part of a job's history, and returns the number of deleted keys.
pub fn prune(store: &dyn Store, record: &Record, now: Wall) -> Result<usize, StoreError> {
    // Lists one key more than may be deleted: the last good outcome may be among the oldest, and is kept.
    let keys = store.scan(&Key::histories(&record.job), None, KEYS_MAX + 1)?.value;
    let is_spent = |key: &Key| key.slot().is_some_and(|slot| is_spent(&record.ledger, slot, now));
    let mut pruned = 0;
    for key in keys.iter().filter(|key| is_spent(key)).take(KEYS_MAX) {
        let Some(entry) = store.read(key)?.value else { continue };
        if let Swapped::Won(_) = store.swap(key, Some(&entry.version), None)?.value {
            pruned += 1;
        }
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::ledger::{EndedBy, Outcome, Status, Trigger};
    use fencepost_core::name::Name;
    use fencepost_core::record::FORMAT;
    use fencepost_core::token::{Nonce, RunId, StoreId, Token};
    use fencepost_store::MemoryStore;

    const DAY: i64 = 24 * 3_600_000;
    const NOW: i64 = 20_000 * DAY;

    fn job() -> Job {
        Job::shared(Name::new("j").unwrap())
    }

    fn outcome(slot: i64, status: Status) -> Outcome {
        Outcome {
            slot: Wall(slot),
            zone: "UTC".to_string(),
            status,
            token: Token::new(slot as u64).unwrap(),
            run: RunId(uuid::Uuid::from_u128(slot as u128)),
            host: "h".to_string(),
            trigger: Trigger::Schedule,
            unstarted: false,
            started: Wall(slot),
            finished: Wall(slot),
            exit_code: None,
            ended_by: EndedBy::Child,
            tries: None,
            took: None,
            note: None,
            artifacts: Vec::new(),
            upstreams: Vec::new(),
            covers: None,
            clipped: false,
            unknown: Default::default(),
        }
    }

    /// A daily job with the given ring and a history of the 200 days before it.
    fn kept(ring: &[i64], last_ok: Option<i64>, now: i64) -> (MemoryStore, Vec<i64>) {
        let store = MemoryStore::new();
        let slots = (32..232).map(|day| NOW - day * DAY);
        for slot in slots {
            store.swap(&Key::history(&job(), Wall(slot), 0), None, Some(b"{}")).unwrap();
        }
        let run = RunId(uuid::Uuid::nil());
        let record = Record {
            v: FORMAT,
            store: StoreId(uuid::Uuid::nil()),
            job: job(),
            token: Token::new(1).unwrap(),
            grants: 16,
            nonce: Nonce { by: run, write: 0 },
            lease: None,
            ledger: fencepost_core::ledger::Ledger {
                ring: ring.iter().map(|slot| outcome(*slot, Status::Error)).collect(),
                last_ok: last_ok.map(|slot| outcome(slot, Status::Ok)),
                ..Default::default()
            },
            resources: Default::default(),
            upstreams: Default::default(),
            timing: None,
            paused: None,
            forgotten: None,
            definition: None,
            params: None,
            fence: None,
            moved_to: None,
            unknown: Default::default(),
        };
        let key = Key::job(&record.job);
        store.swap(&key, None, Some(&record.encode())).unwrap();
        while prune(&store, &record, Wall(now)).unwrap() > 0 {}
        assert_eq!(store.read(&key).unwrap().value.unwrap().bytes, record.encode());
        let keys = store.scan(&Key::histories(&record.job), None, 1000).unwrap().value;
        (store, keys.iter().filter_map(Key::slot).map(|slot| (NOW - slot.0) / DAY).collect())
    }

    fn ring() -> Vec<i64> {
        (0..32).rev().map(|day| NOW - day * DAY).collect()
    }

    #[test]
    fn what_is_sixty_days_older_than_the_ring_goes_and_the_rest_stays() {
        let (_, days) = kept(&ring(), None, NOW);
        assert_eq!((days.first(), days.last(), days.len()), (Some(&(31 + 60)), Some(&32), 60));
    }

    #[test]
    fn the_last_good_outcome_stays_whole_however_old() {
        let (store, days) = kept(&ring(), Some(NOW - 200 * DAY), NOW);
        assert_eq!((days.first(), days.get(1)), (Some(&200), Some(&91)));
        assert!(store.read(&Key::history(&job(), Wall(NOW - 200 * DAY), 0)).unwrap().value.is_some());
    }

    #[test]
    fn a_wrong_clock_erases_nothing() {
        let in_2099 = 47_200 * DAY;
        // One outcome of a host whose clock is wrong, with that host's own time as now.
        let mut ring = ring();
        ring.push(in_2099);
        assert_eq!(kept(&ring, None, in_2099).1.first(), Some(&91));
        // Only such outcomes, after the clock was corrected.
        assert_eq!(kept(&[in_2099, in_2099 + DAY], None, NOW).1.first(), Some(&60));
        // One outcome far in the past keeps everything.
        assert_eq!(kept(&[DAY, NOW], None, NOW).1.len(), 200);
        // A record without outcomes deletes nothing.
        assert_eq!(kept(&[], None, NOW).1.len(), 200);
    }

    #[test]
    fn little_is_done_at_a_time() {
        assert_eq!((1..=64).filter(|grants| is_due(*grants)).count(), 4);
        assert!(!is_due(1), "the first run costs no more than any other");
    }
}
