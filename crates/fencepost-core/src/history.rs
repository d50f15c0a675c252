//! Outcomes that no longer fit into a job's record, under one key per slot, read by exact key.
//!
//! An attempt is written here before the record evicts it, and never changes afterwards. A slot with very many attempts
//! has several pages.

use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::format::{FORMAT, Format, Unknown, Unreadable, decode, encode};
use crate::ledger::{Attempt, Ledger, Outcome};
use crate::name::Job;
use crate::time::Wall;

/// The minimum retention of a slot's history.
pub const RETENTION: Duration = Duration::from_secs(60 * 24 * 3600);

/// Whether a slot's history may be deleted: it is much older than the oldest outcome in the record, and than now.
///
/// The record decides, so one wrong clock erases nothing: it moves one outcome of many. The last good outcome is kept
/// whole for ever, because others may still read its artifacts.
pub fn is_spent(ledger: &Ledger, slot: Wall, now: Wall) -> bool {
    let Some(oldest) = ledger.ring.iter().map(|outcome| outcome.slot).min() else { return false };
    let is_last_ok = ledger.last_ok.as_ref().is_some_and(|last| last.slot == slot);
    !is_last_ok && oldest.min(now).since(slot) > RETENTION
}

/// Which evicted outcomes the history already has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside<'a> {
    /// Attempts already in the history.
    pub done: &'a [Attempt],
    /// Whether the caller may wait for more evictions than necessary.
    pub has_time: bool,
}

/// A page with this many bytes is full. The next attempt starts a new page.
const PAGE_BYTES_FULL: usize = 32 * 1024;

/// One page of the attempts of one slot, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Page {
    pub v: Format,
    pub job: Job,
    pub attempts: Vec<Outcome>,
    /// The full form of attempts that the record keeps shortened. The record decides which of them count: it may never
    /// have learned of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Outcome>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Why an attempt is written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsideKind {
    /// The record evicts it.
    Attempt,
    /// The record keeps a shortened form.
    Detail,
}

/// The result of adding an attempt to a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// Write these bytes.
    Page(Vec<u8>),
    /// The page already has it.
    Known,
    /// The page is full; the attempt belongs on the next one.
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

    /// Whether another page may follow this one.
    pub fn is_full(bytes: &[u8]) -> bool {
        bytes.len() >= PAGE_BYTES_FULL
    }

    /// Adds an attempt to the current page, if there is one.
    pub fn add(bytes: Option<&[u8]>, job: &Job, outcome: &Outcome, kind: AsideKind) -> Result<Added, Unreadable> {
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
            (AsideKind::Detail, Some(_)) => return Ok(Added::Known),
            // Keeps the stored form, unless the record has another ending: then the writer died before its swap.
            (AsideKind::Attempt, Some(known)) => {
                let whole = page.details.remove(known);
                page.attempts.push(if whole.status == outcome.status { whole } else { outcome.clone() });
            }
            (_, None) if bytes.is_some_and(Self::is_full) => return Ok(Added::Full),
            (AsideKind::Attempt, None) => page.attempts.push(outcome.clone()),
            (AsideKind::Detail, None) => page.details.push(outcome.clone()),
        }
        Ok(Added::Page(encode(&page)))
    }
}
