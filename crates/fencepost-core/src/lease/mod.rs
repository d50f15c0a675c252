//! The lease of a record: its rules, the changes that can be made to it, and what each change writes.
//!
//! * `rules`: who may hold, renew and release, and when a lease ends.
//! * `intent`: the changes that a caller can ask for, and how each is decided.
//! * `claim`: the change that chooses a slot and takes the lease.
//! * `fenced`: the same for a command on a fenced resource.
//! * `outcome`: what a change writes into the ledger.

mod claim;
mod fenced;
mod intent;
mod outcome;
mod rules;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use thiserror::Error;

use crate::history::Aside;
use crate::ledger::Outcome;
use crate::name::Job;
use crate::record::{FORMAT, Record, Seal};
use crate::slot::NotNow;
use crate::time::{Boot, Reference, Wall};
use crate::token::{Nonce, RunId, StoreId, Token};
use crate::zone::Zone;

pub use claim::Claim;
pub use fenced::NoTurn;
pub use intent::Intent;
pub use rules::{Cause, Honest, Rules, Sighting, Standing, TTL_MAX, TTL_MIN};

/// A store's date this far from ours is wrong, or ours is: tokens made from it could not be trusted.
pub const CLOCK_GAP_MAX: Duration = Duration::from_secs(24 * 3600);

/// What this process's own clocks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    pub boot: Boot,
    pub wall: Wall,
}

/// Who is asking. A lease by hand is known by its token alone: that is what `lease acquire` printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Me {
    pub token: Token,
    pub run: Option<RunId>,
}

/// What this host knows about a record, apart from its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The holder's processes ran on this very system, and are gone.
    pub holder_is_dead: bool,
    /// The highest token of this job that this host ever saw granted.
    pub high_water: Option<Token>,
    /// Since when this host has seen the lease unchanged, for stores without a clock.
    pub sighting: Option<Sighting>,
    /// The sighting is the first of this state of the lease: no process of this host has watched it so far.
    pub is_first_sight: bool,
}

/// Everything that a decision may rest on, besides the record.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    pub job: &'a Job,
    pub now: Now,
    pub nonce: Nonce,
    pub reference: Option<&'a Reference>,
    /// The latest date that a store without a clock has answered with.
    pub date: Option<Wall>,
    pub facts: &'a Facts,
    /// The store's identity, needed for a job's first record.
    pub store: Option<StoreId>,
    pub aside: Aside<'a>,
}

/// The result of an intent that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Swap the record for this one, once the outcomes in `aside` are in the history: the record has no room for them.
    Write { record: Box<Record>, aside: Vec<Outcome> },
    /// The record shows that it was done already: an earlier try landed.
    AlreadyDone,
}

/// Why an intent is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refusal {
    #[error("it is held by another")]
    Held { record: Box<Record>, remaining: Option<Duration> },
    /// The lease is not the asker's, or no longer.
    #[error("the lease is no longer ours")]
    NotHolder { record: Option<Box<Record>> },
    #[error("it is not held")]
    NotHeld,
    /// There is no slot to run.
    #[error("there is nothing to run")]
    NotNow {
        why: NotNow,
        /// Whether an account of the schedule is to be written.
        account: bool,
    },
    #[error(
        "the store's clock and this host's are more than 24 hours apart (store {}, here {}), so no token can be trusted and \
         none was granted. Compare both clocks (here: date -u; the store's: fencepost store check), set the wrong one, then \
         try again.",
        date(*store_ms),
        date(*here_ms)
    )]
    ClocksApart { store_ms: i64, here_ms: i64 },
    #[error("there is no token left below 2^53")]
    NoTokenLeft,
    #[error("{0}")]
    Sealed(Seal),
    /// A command does not get its turn at a fenced resource.
    #[error("{0}")]
    NoTurn(NoTurn),
}

impl Refusal {
    /// Whether the trigger is skipped by it. Otherwise something is wrong.
    pub fn is_a_skip(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::NotNow { .. })
    }

    /// Whether an account of the schedule is to be written before the trigger is skipped.
    pub fn accounts(&self) -> bool {
        matches!(self, Self::NotNow { account: true, .. })
    }
}

fn date(at_ms: i64) -> String {
    Zone::utc().show(Wall(at_ms - at_ms.rem_euclid(1000)))
}

/// The date for a token: the store's where it has a clock, else the later of this host's and the store's date; and only if
/// it can be true.
fn trusted_date(context: &Context<'_>) -> Result<Wall, Refusal> {
    let here = context.now.wall;
    let (store, date) = match (context.reference, context.date) {
        (Some(reference), _) => (reference.clock.wall, reference.clock.wall),
        (None, Some(store)) => (store, store.max(here)),
        (None, None) => return Ok(here),
    };
    if store.since(here).max(here.since(store)) > CLOCK_GAP_MAX {
        return Err(Refusal::ClocksApart { store_ms: store.0, here_ms: here.0 });
    }
    Ok(date)
}

/// The date that slots are judged by: the store's where it has a clock, so that all machines agree on what is due.
pub fn slot_clock(context: &Context<'_>) -> Wall {
    context.reference.map_or(context.now.wall, |reference| reference.at_most(context.now.boot).wall)
}

fn known_or_first(record: Option<&Record>, context: &Context<'_>) -> Record {
    match (record, context.store) {
        (Some(record), _) => record.clone(),
        (None, Some(store)) => first_record(store, context),
        (None, None) => unreachable!("the store's identity is asked for before a first record"),
    }
}

fn first_record(store: StoreId, context: &Context<'_>) -> Record {
    Record {
        v: FORMAT,
        store,
        job: context.job.clone(),
        token: Token::default(),
        grants: 0,
        nonce: context.nonce,
        lease: None,
        ledger: Default::default(),
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
    }
}

/// Puts the nonce of this change into the record and lets it give up outcomes that it has no room for.
fn written(mut record: Record, mut aside: Vec<Outcome>, context: &Context<'_>) -> Ruling {
    record.nonce = context.nonce;
    aside.extend(record.slim(context.aside));
    Ruling::Write { record: Box::new(record), aside }
}
