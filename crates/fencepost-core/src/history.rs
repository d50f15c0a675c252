//! What no longer fits into a job's record, under keys of its own: one per slot, read by its exact key.
//!
//! An attempt is written here before the record gives it up, and never changes afterwards. A slot that was tried very
//! often has several pages.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ledger::Outcome;
use crate::name::Job;
use crate::record::{FORMAT, Unreadable, decode, encode};

/// A page with this many bytes is full. The next attempt begins another.
const PAGE_BYTES_FULL: usize = 32 * 1024;

/// One page of the attempts of one slot, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    pub v: u32,
    pub job: Job,
    pub attempts: Vec<Outcome>,
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
    pub fn add(bytes: Option<&[u8]>, job: &Job, outcome: &Outcome) -> Result<Added, Unreadable> {
        let mut page = match bytes {
            None => Self { v: FORMAT, job: job.clone(), attempts: Vec::new() },
            Some(bytes) => Self::decode(bytes, job)?,
        };
        // What was written here before the record, and then ended otherwise in it, is as the record says.
        if let Some(known) = page.attempts.iter_mut().find(|known| known.attempt() == outcome.attempt()) {
            if known.status == outcome.status {
                return Ok(Added::Known);
            }
            *known = outcome.clone();
            return Ok(Added::Page(encode(&page)));
        }
        if bytes.is_some_and(Self::is_full) {
            return Ok(Added::Full);
        }
        page.attempts.push(outcome.clone());
        Ok(Added::Page(encode(&page)))
    }
}
