//! The one record per job: its token, its lease and how its recent runs ended.
//!
//! Claim, renew and complete-and-release are one swap of it each, so that there is no instant between "done" and
//! "released". It is never deleted: a release keeps the token.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::artifact::Fingerprint;
use crate::definition::GoodDefinition;
use crate::fence::Fence;
use crate::format::Unknown;
use crate::history::Aside;
use crate::ledger::{Barred, Covered, Ledger, Outcome, RING_OUTCOMES_KEPT, RING_OUTCOMES_MAX, Trigger, cut};
use crate::name::Job;
use crate::said::Published;
use crate::slot::Timing;
use crate::time::{Era, Wall, as_millis};
use crate::token::{Nonce, RunId, StoreId, Token};
use crate::zone::Zone;

mod earlier;
mod forget;

pub use self::forget::Forgotten;
pub use crate::format::{FORMAT, Format, Unreadable, decode, encode};

/// The most bytes a record may have. The ring gives way before it.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// The most resources that a record remembers, and the most upstreams.
pub const RESOURCES_MAX: usize = 16;
pub const UPSTREAMS_MAX: usize = 16;

/// The most bytes of the last reason for which an upstream kept a job from working.
const REASON_BYTES_MAX: usize = 160;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    pub v: Format,
    pub store: StoreId,
    pub job: Job,
    /// The highest token ever granted.
    pub token: Token,
    /// How many times the lease was granted: the number people like to read.
    pub grants: u64,
    pub nonce: Nonce,
    pub ledger: Ledger,
    /// Where the job writes under its tokens: the last publish to each resource, and how many were refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Resource>,
    /// How often each upstream kept the job from working: the gauge of who is unstable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub upstreams: BTreeMap<String, Gauge>,
    /// How far its schedule has been evaluated, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Triggers are skipped until the job is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// The parameters of an item of work that is done once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Fingerprint>,
    /// The fence of a resource that commands are run on: the last write that was let at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// When the job was forgotten, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<Forgotten>,
    /// The job's definition at its last good run, if that run knew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<GoodDefinition>,
    /// The store that the job was moved to. Nothing is granted here any more, and nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    #[serde(flatten)]
    pub unknown: Unknown,
    /// Written last: it comes and goes with every run, and what precedes it then stays in place in the store's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Paused {
    pub since: Wall,
    /// The host it was paused from.
    pub by: String,
    /// When the job resumes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Wall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Paused {
    /// Whether this pause ends later than another. One without an end lasts for ever.
    pub fn outlasts(&self, other: &Self) -> bool {
        match (self.until, other.until) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(mine), Some(others)) => mine > others,
        }
    }
}

/// How often one upstream kept a job from working.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gauge {
    pub halts: u64,
    pub skips: u64,
    pub at: Wall,
    pub reason: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What is known of a resource from the publishes of one job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resource {
    pub kind: String,
    /// The highest token that the target is known to have accepted.
    pub token: Token,
    pub run: RunId,
    pub at: Wall,
    pub refused: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Ownership for a limited time. It belongs to the record's token and this run, together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    pub run: RunId,
    #[serde(rename = "ttl_ms", with = "as_millis")]
    pub ttl: Duration,
    /// How many times it was renewed: an observer that sees the same number for a whole time-to-live knows enough.
    pub renewals: u64,
    /// When it ends by the store's clock, where the store has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    pub holder: Holder,
    /// What the run is for; the outcome takes it over.
    pub slot: Wall,
    pub zone: String,
    pub trigger: Trigger,
    /// More slots that the run stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<Covered>,
    /// For people only.
    pub since: Wall,
    /// Another run asked the holder to stop and hand over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_asked: Option<StopAsked>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The end of a lease on the store's clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    pub era: Era,
    pub tick: u64,
}

/// Who holds a lease: shown to people, and used to decide whether the holder can still be alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub host: String,
    /// The processes behind it. Without any it ends by its time-to-live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Processes>,
    /// The lease was taken by hand and belongs to no run: its end leaves no outcome.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub by_hand: bool,
    /// The runs inside which it was started, the outermost first. For people only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<RunId>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Holder {
    /// Whether a run holds the lease, so that an outcome is due. Process evidence does not matter: a run whose processes
    /// cannot be looked up is still a run.
    pub fn is_run(&self) -> bool {
        !self.by_hand
    }

    /// The process people look for.
    pub fn pid(&self) -> Option<i32> {
        self.processes.as_ref().map(|processes| processes.wrapper.pid)
    }
}

/// Processes, told apart from any that later get the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Processes {
    pub machine: String,
    pub boot: String,
    /// Containers share a boot but not their process ids.
    pub pid_namespace: String,
    /// Start times are shifted between time namespaces. Absent where it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_namespace: Option<String>,
    pub wrapper: Process,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Process>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub pid: i32,
    /// When it started, in the kernel's own unit: a process id alone is used again.
    pub started: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StopAsked {
    pub by: RunId,
    pub host: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The store's own record, under [`Key::identity`](crate::name::Key::identity).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub v: Format,
    pub store: StoreId,
    /// No job begins here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<Seal>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Why a store takes no job that it does not have. URLs in it hold no password.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Error)]
#[serde(rename_all = "snake_case")]
pub enum Seal {
    #[error(
        "this store was moved to {0}, and nothing is granted here any more. Use that one, by: fencepost store use {0}"
    )]
    MovedTo(String),
    #[error(
        "this store is being filled from {0}, and has not everything yet. Repeat the fencepost store move or fencepost store import that fills it"
    )]
    FilledFrom(String),
}

impl Record {
    /// The idempotency key of a lease: the same for every attempt at one slot, on every machine.
    pub fn key_of(&self, lease: &Lease) -> String {
        match self.job.is_once() {
            true => self.job.name.to_string(),
            false => format!("{}/{}", self.job, Zone::utc().show(lease.slot)),
        }
    }

    /// The record as it stands at an instant: a pause whose time is over has ended. Slots that passed during the pause
    /// are not caught up.
    pub fn as_of(&self, now: Wall) -> Cow<'_, Self> {
        match self.paused.as_ref().and_then(|paused| paused.until).filter(|until| *until <= now) {
            None => Cow::Borrowed(self),
            Some(until) => {
                let mut resumed = self.clone();
                resumed.resume(until);
                Cow::Owned(resumed)
            }
        }
    }

    /// Skips triggers from now on. Of two pauses the one that ends later counts, since the first of them.
    pub fn pause(&mut self, pause: Paused) {
        let (since, stays) = match &self.paused {
            None => (pause.since, false),
            Some(paused) => (paused.since, !pause.outlasts(paused)),
        };
        if !stays {
            self.paused = Some(Paused { since, ..pause });
        }
    }

    /// Lets triggers through again from this instant on.
    pub fn resume(&mut self, from: Wall) {
        self.paused = None;
        if let Some(timing) = &mut self.timing {
            (timing.since, timing.evaluated, timing.settles) = (from, None, None);
        }
    }

    /// Takes note of a publish. The resource that was silent for longest gives way to a new one.
    pub fn note_publish(&mut self, published: &Published) {
        let full = self.resources.len() >= RESOURCES_MAX && !self.resources.contains_key(&published.resource);
        if let Some(oldest) = self.resources.iter().min_by_key(|(_, known)| known.at).map(|(name, _)| name.clone())
            && full
        {
            self.resources.remove(&oldest);
        }
        let known = self.resources.entry(published.resource.clone()).or_insert_with(|| Resource {
            kind: published.kind.clone(),
            token: published.seen,
            run: published.run,
            at: published.at,
            refused: 0,
            unknown: Unknown::default(),
        });
        match published.refused {
            Some(_) => known.refused += 1,
            None => (known.run, known.at) = (published.run, published.at),
        }
        known.token = known.token.max(published.seen);
    }

    /// Takes note of an upstream that kept the job from working.
    pub fn note_barred(&mut self, barred: &Barred, at: Wall) {
        let full = self.upstreams.len() >= UPSTREAMS_MAX && !self.upstreams.contains_key(&barred.job);
        if let Some(oldest) = self.upstreams.iter().min_by_key(|(_, known)| known.at).map(|(name, _)| name.clone())
            && full
        {
            self.upstreams.remove(&oldest);
        }
        let fresh = || Gauge { halts: 0, skips: 0, at, reason: String::new(), unknown: Unknown::default() };
        let gauge = self.upstreams.entry(barred.job.clone()).or_insert_with(fresh);
        match barred.halt {
            true => gauge.halts += 1,
            false => gauge.skips += 1,
        }
        (gauge.at, gauge.reason) = (at, cut(&barred.reason, REASON_BYTES_MAX));
    }

    /// Gives up its oldest outcomes if they are too many, and returns them: they belong into the history first. Where one
    /// has to go and there is time, all go that it does not keep; where there is none, those that are there already.
    pub fn slim(&mut self, aside: Aside<'_>) -> Vec<Outcome> {
        let mut given_up = Vec::new();
        if self.must_go() {
            while self.must_go() || self.may_go(aside) {
                given_up.push(self.give_up_oldest());
            }
        }
        given_up.retain(|outcome| !self.has_forgotten(outcome));
        given_up
    }

    fn must_go(&self) -> bool {
        self.ledger.ring.len() > RING_OUTCOMES_MAX
    }

    fn may_go(&self, aside: Aside<'_>) -> bool {
        let is_aside = || aside.done.contains(&self.ledger.ring[self.oldest()].attempt());
        self.ledger.ring.len() > RING_OUTCOMES_KEPT && (aside.has_time || is_aside())
    }

    /// Writes it down, in as many bytes as it may have: its oldest outcomes give way, and belong into the history first.
    /// Those that are needed here give up all but how their slots ended, and only then their places.
    pub fn fitted(&mut self) -> (Vec<u8>, Vec<Outcome>) {
        let mut aside = Vec::new();
        loop {
            let bytes = self.encode();
            if bytes.len() <= RECORD_BYTES_MAX || self.ledger.ring.is_empty() {
                aside.retain(|outcome| !self.has_forgotten(outcome));
                return (bytes, aside);
            }
            match self.long_and_needed() {
                Some(place) => {
                    let bare = self.ledger.ring[place].clone().bare();
                    let whole = core::mem::replace(&mut self.ledger.ring[place], bare);
                    // One that was clipped before stands in the history as it was.
                    aside.extend(Some(whole).filter(|whole| !whole.clipped));
                }
                None => aside.push(self.give_up_oldest()),
            }
        }
    }

    /// The first outcome that can be made shorter, if one has to be because all are needed.
    fn long_and_needed(&self) -> Option<usize> {
        let ring = &self.ledger.ring;
        let long = || ring.iter().position(|outcome| *outcome != outcome.clone().bare());
        if self.is_needed(&ring[self.oldest()]) { long() } else { None }
    }

    /// Whether nothing but the ring tells that the slot needs no run any more: those up to it are not all accounted for.
    fn is_needed(&self, outcome: &Outcome) -> bool {
        self.timing.as_ref().is_some_and(|timing| timing.evaluated < Some(outcome.slot))
    }

    fn give_up_oldest(&mut self) -> Outcome {
        let oldest = self.oldest();
        self.ledger.give_up(oldest)
    }

    /// The place of the outcome that is given up next. The outcome of the newest slot stays while there is any other:
    /// readers look for it here, and older slots may be recorded after it. Outcomes that are needed stay as well.
    fn oldest(&self) -> usize {
        let ring = &self.ledger.ring;
        if let Some(place) = ring.iter().position(|outcome| !self.is_needed(outcome)).filter(|place| *place > 0) {
            return place;
        }
        let newest = ring.iter().map(|outcome| outcome.slot).max();
        let last = ring.iter().rposition(|outcome| Some(outcome.slot) == newest);
        // Only the last attempt of the newest slot is worth more than its age.
        if last == Some(0) && ring.len() > 1 { 1 } else { 0 }
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Advances the fence of a resource. Only its last command counts, so the outcomes of earlier ones are dropped: what a
    /// job has published is in the job's own record.
    pub fn advance_fence(&mut self, fence: Fence) {
        self.fence = Some(fence);
        self.ledger = Ledger::default();
    }

    /// Reads the record of a resource back, also as earlier versions wrote it. A record that cannot be read, or that has no
    /// fence, is never taken for a free resource.
    pub fn decode_resource(bytes: &[u8]) -> Result<Self, Unreadable> {
        let record = earlier::decode_resource(bytes)?;
        match (&record.fence, record.job.resource()) {
            (Some(_), Some(_)) => Ok(record),
            _ => Err(Unreadable::Damaged("it is not the record of a resource".into())),
        }
    }

    /// Reads a record back, for this job and no other.
    pub fn decode(bytes: &[u8], job: &Job) -> Result<Self, Unreadable> {
        let mut record = if job.resource().is_some() { Self::decode_resource(bytes)? } else { decode(bytes)? };
        if record.job != *job {
            return Err(Unreadable::OtherJob(record.job));
        }
        if record.v.is_old() {
            record.upgrade();
        }
        Ok(record)
    }

    /// In format 1 a lease without processes was never a run.
    fn upgrade(&mut self) {
        self.v = FORMAT;
        if let Some(lease) = &mut self.lease {
            lease.holder.by_hand |= lease.holder.processes.is_none();
        }
    }
}
