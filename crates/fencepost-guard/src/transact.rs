//! Performs single changes of a record, for the verbs that are used by hand.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::lease::{Honest, Intent, Me, Refusal, Rules};
use fencepost_core::name::{Job, Key};
use fencepost_core::record::{Record, decode};
use fencepost_core::register::{StoreError, Trouble};
use fencepost_core::said::Published;
use fencepost_core::skips::{Skip, Skips};
use fencepost_core::time::Boot;
use fencepost_core::token::{Nonce, RunId};
use fencepost_core::transition::{Done, Step, Transition, unreadable};
use fencepost_store::{Answer, Store, Swapped};
use thiserror::Error;

use crate::clock;
use crate::local::Local;
use crate::worker::perform;

pub use fencepost_store::records::look;

/// Maximum number of attempts at a contended counter.
const SKIP_TRIES_MAX: u32 = 200;

#[derive(Debug, Error)]
pub enum TransactError {
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Store(StoreError),
}

/// Why a lease could not be taken.
#[derive(Debug, Error)]
pub enum TakeError {
    #[error(transparent)]
    Transact(#[from] TransactError),
    /// Every answer of the store arrived after the deadline of the lease that it granted.
    #[error("the store answered only after the deadline of the lease")]
    Late(Me),
}

/// A lease that this process holds, with its deadline.
#[derive(Clone, Debug)]
pub struct Held {
    pub record: Arc<Record>,
    pub deadline: Boot,
}

impl Held {
    fn of(done: Done) -> Option<Self> {
        let record = done.held?.record;
        let ttl = record.lease.as_ref()?.ttl;
        Some(Self { deadline: Honest::deadline(done.sent, ttl), record })
    }

    /// How long the holder may still rely on the lease.
    pub fn remaining(&self) -> Duration {
        self.deadline.since(clock::boot_now())
    }

    /// The holder's identity.
    pub fn me(&self) -> Me {
        Me { token: self.record.token, run: self.record.lease.as_ref().map(|lease| lease.run) }
    }
}

/// Claims or renews a lease, and confirms that it is still valid when the answer arrives.
///
/// After the deadline another process may hold the lease. A late answer is therefore followed by one renewal, which has
/// to be answered in time.
pub fn take(store: &dyn Store, local: &Local, job: &Job, intent: Intent, by: RunId) -> Result<Held, TakeError> {
    let not_held = || TransactError::Refused(Refusal::NotHolder { record: None });
    let held = Held::of(*transact(store, local, job, intent, by)?).ok_or_else(not_held)?;
    if !held.remaining().is_zero() {
        return Ok(held);
    }
    let me = held.me();
    let held = Held::of(*transact(store, local, job, Intent::Renew(me), by)?).ok_or_else(not_held)?;
    if held.remaining().is_zero() { Err(TakeError::Late(me)) } else { Ok(held) }
}

/// Performs an intent to its end: done, refused, or failed with the store's error.
pub fn transact(
    store: &dyn Store,
    local: &Local,
    job: &Job,
    intent: Intent,
    by: RunId,
) -> Result<Box<Done>, TransactError> {
    let mut transition = Transition::<Honest>::new(job.clone(), intent, by, 0);
    let mut step = transition.begin(clock::now());
    loop {
        step = match step {
            Step::Call(call) => {
                let answer = perform(store, &call);
                transition.answered(clock::now(), answer)
            }
            Step::Consult(record) => {
                let now = clock::now();
                transition.consulted(now, local.facts(record.as_deref(), now.boot))
            }
            Step::Done(done) => return Ok(done),
            Step::Refused(refusal) => return Err(TransactError::Refused(refusal)),
            Step::Failed(error) => return Err(TransactError::Store(error)),
        }
    }
}

/// What the last swap of a run could not record.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled<'a> {
    /// A write of the run that was refused after another run had taken the lease.
    pub refused: Option<&'a Published>,
    pub skip: Option<Skip>,
}

/// Writes what the last swap of a run could not record. Returns how many triggers in a row the going run has caused to skip.
pub fn settle(
    store: &dyn Store,
    local: &Local,
    job: &Job,
    by: RunId,
    host: &str,
    left: Unsettled<'_>,
) -> Result<Option<u64>, StoreError> {
    if let Some(refused) = left.refused {
        let _ = transact(store, local, job, Intent::NotePublish(refused.clone()), by);
    }
    // A skip is not a failure: it has a counter under its own key.
    let Some(skip) = left.skip else { return Ok(None) };
    let skips = count_skip(store, local, job, by, host, skip)?;
    Ok(skips.last.map(|last| last.in_a_row))
}

/// Counts a skipped trigger.
pub fn count_skip(
    store: &dyn Store,
    local: &Local,
    job: &Job,
    by: RunId,
    host: &str,
    skip: Skip,
) -> Result<Skips, StoreError> {
    let _gate = local.skip_gate();
    let key = Key::skips(job);
    let mut entry = store.read(&key)?.value;
    for write in 0..SKIP_TRIES_MAX {
        let before = entry.as_ref().map(|entry| decode::<Skips>(&entry.bytes)).transpose();
        let before = before.map_err(|why| unreadable(&format!("the skips of {job}"), &why))?;
        let nonce = Nonce { by, write };
        let next = Skips::add(before.as_ref(), nonce, clock::now().wall, host.to_string(), skip);
        let expected = entry.as_ref().map(|entry| &entry.version);
        match store.swap(&key, expected, Some(&fencepost_core::record::encode(&next)))? {
            Answer { value: Swapped::Won(_), .. } => return Ok(next),
            Answer { value: Swapped::Lost(current), .. } => entry = current,
        }
    }
    Err(StoreError::not_done(Trouble::Unavailable, format!("Too many triggers of {job} were skipped at one instant.")))
}
