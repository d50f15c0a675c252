//! What a store answers: the vocabulary of a linearizable register per key.
//!
//! The trait itself is in `fencepost-store`; its three methods are `read`, `swap` and `scan`.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::time::StoreClock;

/// A store's name for one state of one key. Opaque, and never given twice for the same key, not even after the key
/// was removed and made again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub Vec<u8>);

/// What stands under a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub bytes: Vec<u8>,
    pub version: Version,
}

/// How a swap ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Swapped {
    /// The new value stands, durably, under this version. `None` where the key was removed.
    Won(Option<Version>),
    /// The key was not as expected, nothing was changed, and this is how it is.
    Lost(Option<Entry>),
}

/// Every answer carries the store's clock, where the store has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer<T> {
    pub value: T,
    pub clock: Option<StoreClock>,
}

/// Whether a call that failed may have happened all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It certainly did not happen, and never will.
    NotDone,
    /// It may have happened, or may still happen: a timeout, a broken connection, a failed flush.
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
    /// Out of reach or overloaded now; it may answer later.
    Unavailable,
    /// Reached, but it will not do this: read-only, full, or no permission.
    Refused,
    /// What it holds is not what fencepost wrote. Nothing is repaired or reset behind anyone's back.
    Corrupt,
}

/// A call that failed. `detail` is a sentence for people and names the store without any password.
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
