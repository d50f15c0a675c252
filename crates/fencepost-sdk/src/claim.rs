//! The terms of a claim, and the claim itself.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::artifact::Fingerprint;
use fencepost_core::lease::{Claim, TTL_MAX, TTL_MIN};
use fencepost_core::ledger::Trigger;
use fencepost_core::name::Job;
use fencepost_core::plan::CatchUpTerms;
use fencepost_core::run::{Overlap, Run, Stages, Terms};
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::{Asked, Choice, Named, OnLost, OnUnknown, Repeat, Scheduled};
use fencepost_core::time::Wall;
use fencepost_core::token::{RunId, Token};
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_guard::pin::Pins;
use fencepost_guard::publish::digest;

use crate::error::GuardError;
use crate::guard::{Guard, needs};
use crate::lease::{ClaimedRun, HeldLease};

/// The ttl that is used unless the program gives another.
const TTL: Duration = Duration::from_secs(300);

/// The grace that is used unless the program gives another, and its largest part of the ttl.
const GRACE: Duration = Duration::from_secs(10);
const GRACES_PER_TTL: u32 = 3;

/// What a lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    Job,
    /// An item of work that is done once.
    Item,
}

/// The terms of a claim. Each method changes one; [`JobClaim::claim`] claims the lease.
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed before claim()"]
pub struct JobClaim {
    guard: Guard,
    job: Job,
    kind: LeaseKind,
    ttl: Option<Duration>,
    grace: Option<Duration>,
    timeout: Option<Duration>,
    wait: Option<Duration>,
    overlap: Overlap,
    schedule: Option<String>,
    timezone: Option<String>,
    asked: Asked,
    slot: Option<String>,
    catch_up: u32,
    retries: u32,
    needs: Vec<String>,
    needs_wait: Duration,
    params: Option<Fingerprint>,
    on_unknown: OnUnknown,
    is_unrecorded: bool,
}

impl JobClaim {
    pub(crate) fn new(guard: &Guard, job: Job, kind: LeaseKind) -> Self {
        Self {
            guard: guard.clone(),
            job,
            kind,
            ttl: None,
            grace: None,
            timeout: None,
            wait: None,
            overlap: Overlap::Skip,
            schedule: None,
            timezone: None,
            asked: Asked::Due,
            slot: None,
            catch_up: 1,
            retries: 0,
            needs: Vec::new(),
            needs_wait: Duration::ZERO,
            params: None,
            on_unknown: OnUnknown::Halt,
            is_unrecorded: false,
        }
    }

    /// How long the lease lasts without a renewal (default: 5 minutes, or as long as the store needs).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long the work needs to stop: [`Lease::lost`](crate::Lease::lost) turns true this much before the lease can pass on
    /// (default: 10 s, or a third of a shorter ttl).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Asks the work to stop if it takes longer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Waits this long for a lease that another run holds.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Asks the run that holds the lease to stop, and takes its place.
    pub fn replace(mut self) -> Self {
        self.overlap = Overlap::Replace;
        self
    }

    /// Claims the slot that is due by a schedule: cron's notation, or `every 45m`. Each slot is done once over all machines.
    pub fn schedule(mut self, schedule: &str) -> Self {
        self.schedule = Some(schedule.to_string());
        self
    }

    /// The zone of the schedule and of the days that count, by its IANA name (default: UTC).
    pub fn timezone(mut self, zone: &str) -> Self {
        self.timezone = Some(zone.to_string());
        self
    }

    /// With a schedule: claims now, for the current slot or before the time of the next.
    pub fn now(mut self) -> Self {
        self.asked = Asked::Now;
        self
    }

    /// Repeats a slot although it is done.
    pub fn again(mut self) -> Self {
        self.asked = Asked::Again;
        self
    }

    /// Without a schedule: claims this slot, an instant such as `2026-11-18T07:00:00Z` or a local time, unless it is done.
    pub fn slot(mut self, slot: &str) -> Self {
        self.slot = Some(slot.to_string());
        self
    }

    /// After a gap, grants at most this many of the newest slots, one per claim (default: 1).
    pub fn catch_up(mut self, slots: u32) -> Self {
        self.catch_up = slots;
        self
    }

    /// How many attempts a slot has after its first (default: none).
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Adds an upstream that must be good: `NAME[@RULE][,artifact=PATH][,on-empty=proceed]`.
    pub fn needs(mut self, upstream: &str) -> Self {
        self.needs.push(upstream.to_string());
        self
    }

    /// Waits this long for upstreams that are not good yet. The lease is renewed meanwhile.
    pub fn needs_wait(mut self, wait: Duration) -> Self {
        self.needs_wait = wait;
        self
    }

    /// Of an item of work: what it is done with. The same key with other bytes is refused.
    pub fn params(mut self, bytes: &[u8]) -> Self {
        self.params = digest::fingerprint(&mut Cursor::new(bytes)).ok().map(|(fingerprint, _)| fingerprint);
        self
    }

    /// Of an item of work: does it again although an earlier attempt may have had its effect.
    pub fn retry_unknown(mut self) -> Self {
        self.on_unknown = OnUnknown::Retry;
        self
    }

    /// Of an item of work: does it again, if no attempt has begun after the one with this token.
    pub fn retry_after(mut self, token: u64) -> Self {
        self.on_unknown = Token::new(token).map_or(OnUnknown::Halt, OnUnknown::RetryAfter);
        self
    }

    /// Uses the lease as a lock: its end records no outcome. One swap claims it, and one releases it.
    pub fn unrecorded(mut self) -> Self {
        self.is_unrecorded = true;
        self
    }

    /// Claims the lease, checks the upstreams and starts to renew.
    ///
    /// # Errors
    ///
    /// [`Error::Skipped`](crate::Error::Skipped) if there is nothing to do, [`Error::Halted`](crate::Error::Halted) if an
    /// upstream is not good. Nothing is held then.
    pub fn claim(self) -> Result<HeldLease, GuardError> {
        let run = RunId(uuid::Uuid::now_v7());
        let zone = self.zone()?;
        let terms = self.terms(run, &zone)?;
        let place = Arc::clone(&self.guard.place);
        let needs = needs(&self.needs)?;
        let failed = |error: std::io::Error| GuardError::Failed(format!("Cannot claim {}: {error}", self.job));
        let pins = (!needs.is_empty()).then(|| Pins::new(&place.state, run)).transpose().map_err(failed)?;
        let directory = pins.as_ref().map(Pins::directory);
        let check = match needs.is_empty() {
            true => None,
            false => Some(place.check(needs, self.needs_wait, directory)?),
        };
        let (kind, is_lock) = (self.kind, self.is_unrecorded);
        let claimed = ClaimedRun { place, kind, is_lock, job: self.job, id: run, run: Run::new(terms), zone, pins };
        HeldLease::claim(claimed, check)
    }

    fn zone(&self) -> Result<Zone, GuardError> {
        let parsed = self.timezone.as_deref().map(Zone::parse).transpose();
        parsed.map(|zone| zone.unwrap_or_else(Zone::utc)).map_err(|error| GuardError::Usage(error.to_string()))
    }

    fn terms(&self, run: RunId, zone: &Zone) -> Result<Terms, GuardError> {
        let ttl_min = self.guard.place.ttl_min.max(TTL_MIN);
        let ttl = self.ttl.unwrap_or(TTL.max(ttl_min));
        if !(ttl_min..=TTL_MAX).contains(&ttl) {
            return Err(GuardError::Usage(format!("A ttl of {ttl:?} is out of bounds: {ttl_min:?} to {TTL_MAX:?}.")));
        }
        let grace = self.grace.unwrap_or(GRACE.min(ttl / GRACES_PER_TTL));
        if grace > ttl / GRACES_PER_TTL {
            return Err(GuardError::Usage(format!("A grace of {grace:?} is more than a third of the ttl, {ttl:?}.")));
        }
        if self.is_unrecorded && (self.kind == LeaseKind::Item || self.schedule.is_some() || self.slot.is_some()) {
            let why = "A lease without a record has no slot: leave out schedule, slot or unrecorded.";
            return Err(GuardError::Usage(why.to_string()));
        }
        let host = &self.guard.place.host;
        let claim = Claim {
            run,
            ttl,
            holder: if self.is_unrecorded { host.holder_by_hand() } else { host.holder_of_program() },
            slot: self.choice(zone)?,
            zone: zone.name().to_string(),
            trigger: Trigger::Manual,
        };
        Ok(Terms {
            job: self.job.clone(),
            claim,
            grace,
            overlap: self.overlap,
            wait: self.wait,
            timeout: self.timeout,
            run_without_store: false,
            inside: Vec::new(),
            stages: Stages { inspect: !self.needs.is_empty(), ..Stages::default() },
            empty_exit: None,
            must_record: false,
            observe: false,
            stuck_after: None,
        })
    }

    fn choice(&self, zone: &Zone) -> Result<Choice, GuardError> {
        let usage = |error: &dyn std::fmt::Display| GuardError::Usage(error.to_string());
        if self.kind == LeaseKind::Item {
            return Ok(Choice::Once { params: self.params, on_unknown: self.on_unknown });
        }
        let (on_lost, retries) = (OnLost::Rerun, self.retries);
        if let Some(text) = &self.schedule {
            let schedule = Schedule::parse(text, zone).map_err(|error| usage(&error))?;
            let terms = CatchUpTerms { catch_up: self.catch_up, ..CatchUpTerms::default() };
            terms.check().map_err(|error| usage(&error))?;
            return Ok(Choice::Due(Box::new(Scheduled { schedule, terms, asked: self.asked, on_lost, retries })));
        }
        let Some(slot) = &self.slot else { return Ok(Choice::At(clock::now().wall)) };
        let slot: Wall = zone.parse_time(slot).map_err(|error| usage(&error))?;
        let repeat = if self.asked == Asked::Again { Repeat::Again } else { Repeat::No };
        let slack = Some(CatchUpTerms::default().slack);
        Ok(Choice::Slot(Named { slot, repeat, on_lost, retries, slack }))
    }
}
