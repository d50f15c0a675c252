//! The suite can fail: each of these stores breaks one sentence of the contract, and the check for it finds out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fencepost_store::{
    Answer, Entry, Era, Key, SCAN_KEYS_MAX, Store, StoreClock, StoreError, Swapped, Trouble, VALUE_BYTES_MAX, Version,
    Wall, conformance,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    ReadsNothing,
    IgnoresTheCondition,
    IgnoresTheConditionOfRemovals,
    LosesToNothing,
    NeverRemoves,
    KeepsWhatItRead,
    KeepsWritesToItself,
    HashesForVersions,
    CountsVersionsPerLife,
    LosesUpdates,
    ScansUnordered,
    ScansAfterInclusively,
    ScansWithoutPrefix,
    ScansWithoutLimit,
    ScansWithoutTheMost,
    ScansRemovedKeys,
    FoldsCase,
    CutsLongKeys,
    CutsValues,
    DropsEmptyValues,
    RefusesTheLargest,
    TakesAnyLength,
    ClockOnReadsOnly,
    ClockOfEachHandle,
}

const FOUND_BY: &[(Bug, &str)] = &[
    (Bug::ReadsNothing, "read"),
    (Bug::IgnoresTheCondition, "create"),
    (Bug::IgnoresTheCondition, "stale swap"),
    (Bug::IgnoresTheConditionOfRemovals, "stale swap"),
    (Bug::LosesToNothing, "create"),
    (Bug::NeverRemoves, "remove"),
    (Bug::KeepsWhatItRead, "other handles"),
    (Bug::KeepsWritesToItself, "reopen"),
    (Bug::HashesForVersions, "versions"),
    (Bug::CountsVersionsPerLife, "versions after removal"),
    (Bug::LosesUpdates, "create race"),
    (Bug::LosesUpdates, "counter race"),
    (Bug::LosesUpdates, "shared handle"),
    (Bug::ScansUnordered, "scan"),
    (Bug::ScansAfterInclusively, "scan"),
    (Bug::ScansWithoutPrefix, "scan"),
    (Bug::ScansWithoutLimit, "scan"),
    (Bug::ScansWithoutTheMost, "scan limit"),
    (Bug::ScansRemovedKeys, "scan removed"),
    (Bug::FoldsCase, "keys"),
    (Bug::CutsLongKeys, "keys"),
    (Bug::CutsValues, "values"),
    (Bug::DropsEmptyValues, "values"),
    (Bug::RefusesTheLargest, "largest value"),
    (Bug::TakesAnyLength, "too large a value"),
    (Bug::ClockOnReadsOnly, "clock on every answer"),
    (Bug::ClockOfEachHandle, "clock"),
];

#[test]
fn the_store_without_a_bug_conforms() {
    let shared = Arc::new(Shared::default());
    conformance::run(&|| Ok(Box::new(Broken::new(Bug::None, &shared)))).unwrap();
}

#[test]
fn every_bug_is_found_by_its_check() {
    for (bug, name) in FOUND_BY {
        let shared = Arc::new(Shared::default());
        let check = conformance::checks().find(|check| check.name == *name).expect(name);
        let violation = check.run(&|| Ok(Box::new(Broken::new(*bug, &shared)))).expect_err(&format!("{bug:?}: {name}"));
        assert_eq!(violation.check, *name);
        assert!(violation.to_string().contains(check.sentence), "{violation}");
    }
}

#[test]
fn every_check_finds_a_bug() {
    let with_a_bug: BTreeSet<&str> = FOUND_BY.iter().map(|(_, name)| *name).collect();
    let all: BTreeSet<&str> = conformance::checks().map(|check| check.name).collect();
    assert_eq!(with_a_bug, all);
}

#[test]
fn a_store_that_fails_is_not_called_wrong() {
    let error = StoreError::not_done(Trouble::Refused, "The disk is full.");
    let violation = conformance::run(&|| Err(error.clone())).unwrap_err();
    assert_eq!(violation.failed, Some(error));
}

#[test]
fn the_suite_leaves_nothing_behind() {
    let shared = Arc::new(Shared::default());
    conformance::run(&|| Ok(Box::new(Broken::new(Bug::None, &shared)))).unwrap();
    assert_eq!(shared.entries.lock().unwrap().len(), 0);
}

#[derive(Default)]
struct Shared {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Every key there ever was.
    history: Mutex<BTreeSet<String>>,
    counter: AtomicU64,
}

/// One handle of a store with a bug.
struct Broken {
    bug: Bug,
    shared: Arc<Shared>,
    /// What the handle has read or written, for the bugs that keep it.
    own: Mutex<BTreeMap<String, Option<Entry>>>,
    started: u64,
}

impl Broken {
    fn new(bug: Bug, shared: &Arc<Shared>) -> Self {
        let started = shared.counter.fetch_add(1, Ordering::Relaxed);
        Self { bug, shared: Arc::clone(shared), own: Mutex::default(), started }
    }

    fn name(&self, key: &Key) -> String {
        match self.bug {
            Bug::FoldsCase => key.as_str().replace('=', ""),
            Bug::CutsLongKeys => key.as_str().chars().take(100).collect(),
            _ => key.as_str().to_string(),
        }
    }

    fn current(&self, name: &str) -> Option<Entry> {
        let keeps = matches!(self.bug, Bug::KeepsWhatItRead | Bug::KeepsWritesToItself);
        let kept = self.own.lock().unwrap().get(name).filter(|_| keeps).cloned();
        let found = kept.unwrap_or_else(|| self.shared.entries.lock().unwrap().get(name).cloned());
        if self.bug == Bug::KeepsWhatItRead {
            self.own.lock().unwrap().insert(name.to_string(), found.clone());
        }
        found
    }

    fn version(&self, bytes: &[u8], current: Option<&Entry>) -> Version {
        let next = self.shared.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes().to_vec();
        Version(match self.bug {
            Bug::HashesForVersions => bytes.to_vec(),
            Bug::CountsVersionsPerLife => vec![current.map_or(1, |entry| entry.version.0[0] + 1)],
            _ => next,
        })
    }

    /// What is stored of the bytes given, or why nothing is.
    fn stored(&self, new: Option<&[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        let most = match self.bug {
            Bug::RefusesTheLargest => VALUE_BYTES_MAX - 1,
            Bug::TakesAnyLength => usize::MAX,
            _ => VALUE_BYTES_MAX,
        };
        if new.is_some_and(|bytes| bytes.len() > most) {
            return Err(StoreError::not_done(Trouble::Refused, "too long"));
        }
        Ok(new.map(|bytes| match self.bug {
            Bug::CutsValues => bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
            _ => bytes.to_vec(),
        }))
    }

    fn write(&self, name: &str, entry: Option<Entry>) {
        if self.bug == Bug::KeepsWritesToItself {
            self.own.lock().unwrap().insert(name.to_string(), entry);
            return;
        }
        let mut entries = self.shared.entries.lock().unwrap();
        self.shared.history.lock().unwrap().insert(name.to_string());
        match entry {
            Some(entry) if self.bug == Bug::DropsEmptyValues && entry.bytes.is_empty() => entries.remove(name),
            Some(entry) => entries.insert(name.to_string(), entry),
            None if self.bug == Bug::NeverRemoves => None,
            None => entries.remove(name),
        };
    }

    fn answer<T>(&self, value: T, read: bool) -> Result<Answer<T>, StoreError> {
        let clock = |tick| StoreClock { wall: Wall(0), era: Era::default(), tick };
        let clock = match self.bug {
            Bug::ClockOnReadsOnly => read.then(|| clock(1)),
            Bug::ClockOfEachHandle => Some(clock(1000 - self.started)),
            _ => None,
        };
        Ok(Answer::new(value, clock))
    }
}

impl Store for Broken {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let found = self.current(&self.name(key)).filter(|_| self.bug != Bug::ReadsNothing);
        self.answer(found, true)
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let stored = self.stored(new)?;
        let name = self.name(key);
        let guard = (self.bug != Bug::LosesUpdates).then(|| ONE_AT_A_TIME.lock().unwrap());
        let current = self.current(&name);
        let ignores =
            self.bug == Bug::IgnoresTheCondition || (self.bug == Bug::IgnoresTheConditionOfRemovals && new.is_none());
        if !ignores && current.as_ref().map(|entry| &entry.version) != expected {
            let told = current.filter(|_| self.bug != Bug::LosesToNothing);
            return self.answer(Swapped::Lost(told), false);
        }
        if guard.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        let entry = stored.map(|bytes| Entry { version: self.version(&bytes, current.as_ref()), bytes });
        let version = entry.as_ref().map(|entry| entry.version.clone());
        self.write(&name, entry);
        drop(guard);
        self.answer(Swapped::Won(version), false)
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let names: Vec<String> = match self.bug {
            Bug::ScansRemovedKeys => self.shared.history.lock().unwrap().iter().cloned().collect(),
            _ => self.shared.entries.lock().unwrap().keys().cloned().collect(),
        };
        let prefix = if self.bug == Bug::ScansWithoutPrefix { "" } else { prefix };
        let limit = match self.bug {
            Bug::ScansWithoutLimit => SCAN_KEYS_MAX,
            Bug::ScansWithoutTheMost => limit,
            _ => limit.min(SCAN_KEYS_MAX),
        };
        let follows = |key: &Key| match after {
            Some(after) if self.bug == Bug::ScansAfterInclusively => key >= after,
            Some(after) => key > after,
            None => true,
        };
        let keys = names.iter().filter(|name| name.starts_with(prefix)).filter_map(|name| Key::from_stored(name));
        let mut keys: Vec<Key> = keys.filter(follows).take(limit).collect();
        if self.bug == Bug::ScansUnordered {
            keys.reverse();
        }
        self.answer(keys, false)
    }
}
