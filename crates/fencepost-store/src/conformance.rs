//! The suite that proves a store: every sentence of the contract is a check.
//!
//! A store's test is one call of [`run`]. `fencepost store check` goes through [`checks`] itself, because it reports
//! each of them. All keys are probes under a random name and are removed afterwards, so the suite may run against a
//! store that is in use.

mod canary;
mod clock;
mod keys;
mod races;
mod register;
mod scan;
mod values;
mod versions;

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use canary::canary;

use crate::{Answer, Entry, Fate, Key, Store, StoreError, Swapped, Trouble, Version};

/// Opens a handle. Each call must return an independent handle of the same store, as another process would have.
pub type Opener<'a> = &'a (dyn Fn() -> Result<Box<dyn Store>, StoreError> + Sync);

/// Runs every check, up to the first that fails.
pub fn run(open: Opener<'_>) -> Result<(), BrokenContract> {
    checks().try_for_each(|check| check.run(open))
}

/// All checks in the order of their chapters, the cheap ones first.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let chapters = [register::CHECKS, versions::CHECKS, values::CHECKS, keys::CHECKS, scan::CHECKS, clock::CHECKS];
    chapters.into_iter().chain([races::CHECKS]).flatten()
}

/// One sentence of the contract and the test for it.
#[derive(Debug)]
pub struct Check {
    /// A short name for reports.
    pub name: &'static str,
    /// The sentence of the contract.
    pub sentence: &'static str,
    /// Whether it makes hundreds of swaps, which is slow over a network.
    pub slow: bool,
    body: fn(&Bench<'_>) -> CheckOutcome,
}

/// How often the races are run, and with how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Often enough to find a rare mistake: for the tests of a store.
    Thorough,
    /// Often enough, over a network, to find a store that does not compare at all: for a check of a store in use.
    Brief,
}

impl Check {
    pub fn run(&self, open: Opener<'_>) -> Result<(), BrokenContract> {
        self.run_with(open, Effort::Thorough)
    }

    pub fn run_with(&self, open: Opener<'_>, effort: Effort) -> Result<(), BrokenContract> {
        let violated = |wrong: Wrong| BrokenContract {
            check: self.name,
            sentence: self.sentence,
            detail: wrong.detail,
            failed: wrong.failed,
        };
        let bench = Bench::new(open, effort).map_err(violated)?;
        let outcome = (self.body)(&bench);
        bench.clear_away();
        outcome.map_err(violated)
    }
}

/// A sentence of the contract that a store does not keep.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("The store breaks the contract ({check}): {sentence:?} {detail}")]
pub struct BrokenContract {
    pub check: &'static str,
    pub sentence: &'static str,
    pub detail: String,
    /// Set if the store failed instead of answering wrongly: the sentence is then not disproved.
    pub failed: Option<StoreError>,
}

type CheckOutcome = Result<(), Wrong>;

/// What went wrong in a check.
#[derive(Debug)]
struct Wrong {
    detail: String,
    failed: Option<StoreError>,
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Self {
        Self { detail: format!("It could not be tried, because the store failed: {error}"), failed: Some(error) }
    }
}

impl From<String> for Wrong {
    fn from(detail: String) -> Self {
        Self { detail, failed: None }
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> CheckOutcome {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}

/// A handle, unique keys, and the questions that most checks ask.
struct Bench<'a> {
    open: Opener<'a>,
    store: Box<dyn Store>,
    space: String,
    used: Mutex<Vec<Key>>,
    effort: Effort,
}

impl<'a> Bench<'a> {
    fn new(open: Opener<'a>, effort: Effort) -> Result<Self, Wrong> {
        Ok(Self { open, store: open()?, space: fresh_space()?, used: Mutex::default(), effort })
    }

    fn key(&self, name: &str) -> Key {
        let key = Key::probe(&self.space, name);
        self.used.lock().unwrap_or_else(PoisonError::into_inner).push(key.clone());
        key
    }

    /// Returns the prefix of all keys of this bench, which no others have.
    fn prefix(&self) -> String {
        let key = Key::probe(&self.space, "x");
        key.as_str().trim_end_matches('x').to_string()
    }

    fn read(&self, key: &Key) -> Result<Option<Entry>, Wrong> {
        Ok(self.store.read(key)?.value)
    }

    /// Makes a swap that must be won, and returns its version.
    fn put(&self, key: &Key, expected: Option<&Version>, bytes: &[u8]) -> Result<Version, Wrong> {
        match self.store.swap(key, expected, Some(bytes))?.value {
            Swapped::Won(Some(version)) => Ok(version),
            other => Err(format!("A swap of {key} that expected its very state ended as {other:?}.").into()),
        }
    }

    fn remove(&self, key: &Key, expected: &Version) -> CheckOutcome {
        let ended = self.store.swap(key, Some(expected), None)?.value;
        ensure(ended == Swapped::Won(None), || {
            format!("A removal of {key} that expected its state ended as {ended:?}.")
        })
    }

    /// Makes a swap that must be lost, to exactly `current`, and must not have changed anything.
    fn refused(
        &self,
        key: &Key,
        expected: Option<&Version>,
        new: Option<&[u8]>,
        current: Option<&Entry>,
    ) -> CheckOutcome {
        let ended = self.store.swap(key, expected, new)?.value;
        ensure(ended == Swapped::Lost(current.cloned()), || {
            format!("{key} was {current:?}, and a swap that expected {expected:?} ended as {ended:?}.")
        })?;
        self.stands(key, current)
    }

    fn stands(&self, key: &Key, current: Option<&Entry>) -> CheckOutcome {
        let found = self.read(key)?;
        ensure(found.as_ref() == current, || format!("{key} should be {current:?} and is {found:?}."))
    }

    /// Removes the keys of the check. Errors are ignored: the check has already reported them.
    fn clear_away(&self) {
        for key in self.used.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if let Ok(Answer { value: Some(entry), .. }) = self.store.read(key) {
                let _ = self.store.swap(key, Some(&entry.version), None);
            }
        }
    }
}

/// Returns a unique prefix for the keys of a check.
fn fresh_space() -> Result<String, Wrong> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| format!("The system gives no random numbers: {error}."))?;
    Ok(format!("check-{:016x}", u64::from_be_bytes(random)))
}

/// How long a busy store may delay a race, and how long a scan may lag.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats a call that certainly did not happen because the store was busy. The caller may do that, the store never.
fn patiently<T>(call: impl Fn() -> Result<Answer<T>, StoreError>) -> Result<T, Wrong> {
    let begun = Instant::now();
    loop {
        match call() {
            Ok(answer) => return Ok(answer.value),
            Err(error)
                if error.fate == Fate::NotDone
                    && error.trouble == Trouble::Unavailable
                    && begun.elapsed() < PATIENCE =>
            {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
