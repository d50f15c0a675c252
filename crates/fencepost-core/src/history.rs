//! What no longer fits into a job's record, under keys of its own: one per slot, read by its exact key.
//!
//! An attempt is written here before the record gives it up, and never changes afterwards. A slot that was tried very
//! often has several pages.

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::format::{FORMAT, Format, Unknown, Unreadable, decode, encode};
use crate::ledger::{Attempt, Ledger, Outcome};
use crate::name::Job;
use crate::time::Wall;

/// How long the history of a slot is kept at least.
pub const RETENTION: Duration = Duration::from_secs(60 * 24 * 3600);

/// Whether the history of a slot may be given up: it is older by far than the oldest outcome of the record, and than
/// the present.
///
/// The record is what counts, so that one wrong clock erases nothing: it moves one outcome of many. The last good
/// outcome stays whole for ever, for others may still read what it left.
pub fn is_spent(ledger: &Ledger, slot: Wall, now: Wall) -> bool {
    let Some(oldest) = ledger.ring.iter().map(|outcome| outcome.slot).min() else { return false };
    let is_last_ok = ledger.last_ok.as_ref().is_some_and(|last| last.slot == slot);
    !is_last_ok && oldest.min(now).since(slot) > RETENTION
}

/// How far the history is with what the record gives up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside<'a> {
    /// What is there already.
    pub done: &'a [Attempt],
    /// Whether it may be waited for that more than must be is put there.
    pub has_time: bool,
}

/// A page with this many bytes is full. The next attempt begins another.
const PAGE_BYTES_FULL: usize = 32 * 1024;

/// One page of the attempts of one slot, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Page {
    pub v: Format,
    pub job: Job,
    pub attempts: Vec<Outcome>,
    /// The whole of attempts that the record shows in short. What of them counts is for the record to say: it may
    /// never have come to know of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Outcome>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Why an attempt is written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The record gives it up.
    Attempt,
    /// The record keeps it, in short.
    Detail,
}

/// What becomes of a page when an attempt is added to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// Write this.
    Page(Vec<u8>),
    /// It is there already.
    Known,
    /// There is no room left: it belongs on the next page.
    Full,
}

impl Page {
    pub fn decode(bytes: &[u8], job: &Job) -> Result<Self, Unreadable> {
        let page: Self = decode(bytes)?;
        if page.job != *job {
            return Err(Unreadable::OtherJob(page.job));
        }
        Ok(page)
    }

    /// Whether there may be another page behind these bytes of one.
    pub fn is_full(bytes: &[u8]) -> bool {
        bytes.len() >= PAGE_BYTES_FULL
    }

    /// Adds an attempt to the page that stands there now, if there is one.
    pub fn add(bytes: Option<&[u8]>, job: &Job, outcome: &Outcome, kind: Kind) -> Result<Added, Unreadable> {
        let mut page = match bytes {
            None => Self {
                v: FORMAT,
                job: job.clone(),
                attempts: Vec::new(),
                details: Vec::new(),
                unknown: Unknown::default(),
            },
            Some(bytes) => Self::decode(bytes, job)?,
        };
        let is_same = |known: &Outcome| known.attempt() == outcome.attempt();
        if page.attempts.iter().any(is_same) {
            return Ok(Added::Known);
        }
        match (kind, page.details.iter().position(is_same)) {
            (Kind::Detail, Some(_)) => return Ok(Added::Known),
            // It stays whole, unless it ended otherwise in the record: whoever wrote it died before the record did.
            (Kind::Attempt, Some(known)) => {
                let whole = page.details.remove(known);
                page.attempts.push(if whole.status == outcome.status { whole } else { outcome.clone() });
            }
            (_, None) if bytes.is_some_and(Self::is_full) => return Ok(Added::Full),
            (Kind::Attempt, None) => page.attempts.push(outcome.clone()),
            (Kind::Detail, None) => page.details.push(outcome.clone()),
        }
        Ok(Added::Page(encode(&page)))
    }
}
