//! The answers of a store: the vocabulary of a linearizable register per key.
//!
//! The trait is in `fencepost-store`; its three methods are `read`, `swap` and `scan`.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::time::{StoreClock, Wall};

/// A store's identifier for one state of one key. Opaque, and never reused for the key, not even after it was removed
/// and created again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub Vec<u8>);

/// The value under a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub bytes: Vec<u8>,
    pub version: Version,
}

/// The result of a swap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Swapped {
    /// The new value is stored, durably, under this version. `None` if the key was removed.
    Won(Option<Version>),
    /// The key was not as expected and nothing was changed. Contains the current entry.
    Lost(Option<Entry>),
}

/// An answer with the store's clock, if the store has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer<T> {
    pub value: T,
    pub clock: Option<StoreClock>,
    /// The date by a server without a clock that leases could be judged by. A new token is not below it.
    pub date: Option<Wall>,
}

impl<T> Answer<T> {
    pub fn new(value: T, clock: Option<StoreClock>) -> Self {
        Self { value, clock, date: None }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer { value: change(self.value), clock: self.clock, date: self.date }
    }
}

/// Whether a failed call may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It did not take effect and never will.
    NotDone,
    /// It may have taken effect, or may still: a timeout, a broken connection, a failed flush.
    Unknown,
}

impl Fate {
    /// The clause that ends the sentence about a failed call.
    pub fn outcome(self) -> &'static str {
        match self {
            Self::NotDone => "nothing was changed",
            Self::Unknown => "the write may have happened",
        }
    }
}

/// Why a call failed, as far as a person's next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Unreachable or overloaded; it may answer later.
    Unavailable,
    /// Reached, but it refuses: read-only, full, or no permission.
    Refused,
    /// It contains data that fencepost did not write. Nothing is repaired or reset.
    Corrupt,
}

/// A failed call. `detail` is a sentence for people and names the store without any password.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[error("{detail}")]
pub struct StoreError {
    pub fate: Fate,
    pub trouble: Trouble,
    pub detail: String,
}

impl StoreError {
    pub fn not_done(trouble: Trouble, detail: impl Into<String>) -> Self {
        Self { fate: Fate::NotDone, trouble, detail: detail.into() }
    }

    pub fn unknown(trouble: Trouble, detail: impl Into<String>) -> Self {
        Self { fate: Fate::Unknown, trouble, detail: detail.into() }
    }
}
