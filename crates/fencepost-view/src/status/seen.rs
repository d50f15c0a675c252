//! One job as it was found: its record, its place in the configuration, and what follows from both.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::lease::Honest;
use fencepost_core::ledger::{Ledger, Outcome, Status};
use fencepost_core::name::Job;
use fencepost_core::plan::CatchUpTerms;
use fencepost_core::record::{Lease, Record};
use fencepost_core::schedule::Schedule;
use fencepost_core::skips::Skips;
use fencepost_core::slot::{Asked, LeaseState, OnLost, Scheduled};
use fencepost_core::time::{StoreClock, Wall, millis};
use fencepost_core::zone::Zone;
use fencepost_store::records::skips;
use fencepost_store::{Key, StoreError};

use super::{
    FenceStatus, JobDetails, JobState, JobStatus, LeaseHolder, PausedJob, RECENT_MAX, RecentOutcome, SkippedTriggers,
    Streak, UpstreamGauge, fences,
};
use crate::answer::{RunAnswer, unrecorded};
use crate::archive::whole;
use crate::attention::{self, Attention, AttentionCase};
use crate::digest::{DigestCounts, JobDigest};
use crate::moment::{Moment, Range};
use crate::overdue::{Expected, ExpectedJob, LateJobs, Lateness};
use crate::runs::RunsQuery;
use crate::time::LocalTime;
use crate::unread::Unread;
use crate::waiting::Leases;
use crate::{View, recorded_schedule, remaining, text};

/// A job as it is listed. Its record, which may be long, is not part of it.
pub(super) struct ListedJob {
    pub job: Job,
    /// Without the jobs around it and inside it, which follow from all leases.
    pub status: JobStatus,
    pub fences: Vec<FenceStatus>,
    pub attention: Vec<Attention>,
    /// What happened since the moment that was asked about.
    pub digest: Option<JobDigest>,
    schedule: Option<Schedule>,
    /// The time-to-live of its lease, while it is held.
    pub ttl: Option<Duration>,
    /// By the rule of `overdue`.
    lateness: Lateness,
}

impl ListedJob {
    /// The time between two of its slots about now.
    pub(super) fn interval(&self, now: Wall) -> Option<Duration> {
        self.schedule.as_ref()?.period_hint(now)
    }

    pub(super) fn zone(&self) -> Zone {
        self.status.more.zone.clone()
    }

    /// Adds the job if it is late.
    pub(super) fn add_to(&self, late: &mut LateJobs) {
        late.add(&self.job, self.lateness.clone());
    }

    /// Its status, once all leases are known.
    pub(super) fn into_status(mut self, leases: &Leases) -> JobStatus {
        if let Some(holder) = &mut self.status.holder {
            holder.inside = leases.around(&self.status.job);
            holder.around = leases.inside(&self.status.job);
        }
        self.status
    }
}

pub(super) struct SeenJob {
    job: Job,
    /// What is shown. The newest outcome and the newest good one are whole, where the record had to cut them. None if the job
    /// was forgotten and has not run since.
    record: Option<Record>,
    /// What slots are judged by, with outcomes that are forgotten.
    slots: Option<Record>,
    expected: Option<ExpectedJob>,
    skips: Option<Skips>,
    remaining: Option<Duration>,
    is_over: bool,
    lateness: Lateness,
    attention: Vec<Attention>,
}

impl SeenJob {
    pub(super) fn of(
        view: &View<'_>,
        record: Record,
        clock: Option<&StoreClock>,
        expected: &Expected,
        unread: &mut Unread,
    ) -> Result<Self, StoreError> {
        let slots = record.as_of(view.now).into_owned();
        let mut record = slots.remembered().into_owned();
        let Ledger { ring, last_ok, .. } = &mut record.ledger;
        for outcome in ring.last_mut().into_iter().chain(last_ok) {
            // A cut outcome is better than no status at all.
            *outcome = whole(view.store, &record.job, outcome).unwrap_or_else(|_| outcome.clone());
        }
        let seen = Self {
            job: record.job.clone(),
            skips: unread.noted(&Key::skips(&record.job), skips(view.store, &record.job))?.flatten(),
            remaining: remaining(&record, clock),
            is_over: view.is_over(&record, clock),
            expected: expected.find(&record.job).cloned(),
            record: Some(record).filter(|record| !record.is_hidden()),
            slots: Some(slots),
            lateness: Lateness::None,
            attention: Vec::new(),
        };
        Ok(seen.judged(view, expected))
    }

    /// A job of the configuration that has no record in this store.
    pub(super) fn never_ran(view: &View<'_>, configured: &ExpectedJob, expected: &Expected) -> Self {
        let (job, configured) = (configured.job.clone(), Some(configured.clone()));
        let seen = Self {
            job,
            record: None,
            slots: None,
            expected: configured,
            skips: None,
            remaining: None,
            is_over: false,
            lateness: Lateness::None,
            attention: Vec::new(),
        };
        seen.judged(view, expected)
    }

    /// Adds why it needs attention.
    fn judged(mut self, view: &View<'_>, expected: &Expected) -> Self {
        let (slots, found) = (self.slots.as_ref(), self.expected.as_ref());
        self.lateness = view.lateness(&self.job, slots, self.is_over, found, expected);
        let overdue = match &self.lateness {
            Lateness::Overdue(overdue) => Some(overdue.as_ref()),
            Lateness::None | Lateness::Paused => None,
        };
        let (name, zone) = (self.job.to_string(), self.zone());
        self.attention = attention::of_job(&AttentionCase {
            job: &name,
            record: self.record.as_ref(),
            state: self.state(),
            expected: self.expected.as_ref(),
            overdue,
            skips_in_a_row: self.skips_in_a_row(),
            zone: &zone,
            now: view.now,
        });
        if self.expected.as_ref().is_some_and(|expected| expected.is_broken && expected.enabled) {
            let broken = view.broken_jobs(Some(&self.job.name));
            let broken = broken.map(|broken| attention::of_broken(broken, &name, view.config.as_deref()));
            self.attention.splice(0..0, broken);
        }
        self
    }

    fn lease(&self) -> Option<&Lease> {
        self.record.as_ref()?.lease.as_ref()
    }

    fn held(&self) -> Option<&Lease> {
        self.lease().filter(|_| !self.is_over)
    }

    fn state(&self) -> JobState {
        match (&self.record, self.lease()) {
            (None, _) => JobState::NeverRan,
            (Some(record), None) if record.paused.is_some() => JobState::Paused,
            (Some(_), None) => JobState::Free,
            (Some(_), Some(lease)) if !self.is_over && !lease.holder.is_run() => JobState::Held,
            (Some(_), Some(_)) if !self.is_over => JobState::Running,
            (Some(_), Some(_)) => JobState::Lost,
        }
    }

    /// The configuration's zone, or that of the newest run.
    fn zone(&self) -> Zone {
        if let Some(expected) = &self.expected {
            return expected.zone.clone();
        }
        let timing = self.record.as_ref().and_then(|record| record.timing.as_ref()).map(|timing| timing.zone.as_str());
        let last = self.record.as_ref().and_then(|record| record.ledger.last()).map(|last| last.zone.as_str());
        text::zone(self.lease().map(|lease| lease.zone.as_str()).or(last).or(timing).unwrap_or("UTC"))
    }

    /// The schedule of the configuration, or else of the newest run.
    fn schedule(&self) -> Option<Schedule> {
        match &self.expected {
            Some(expected) => expected.schedule(self.record.as_ref()),
            None => self.record.as_ref().and_then(recorded_schedule),
        }
    }

    /// When it is due next, if it has a schedule. `plan` says the same.
    fn next_slot(&self, now: Wall) -> Option<Wall> {
        let is_enabled = self.expected.as_ref().is_none_or(|expected| expected.enabled);
        let schedule = self.schedule().filter(|_| is_enabled)?;
        if let Some(paused) = self.slots.as_ref().and_then(|record| record.paused.as_ref()) {
            return paused.until.and_then(|until| schedule.after(until));
        }
        let (terms, asked, on_lost) = (CatchUpTerms::default(), Asked::Due, OnLost::default());
        let scheduled = Scheduled { schedule, terms, asked, on_lost, retries: 0 };
        let standing = if self.held().is_some() { LeaseState::Stands } else { LeaseState::Over };
        scheduled.plan::<Honest>(self.slots.as_ref(), standing, now).1.upcoming(now)
    }

    /// What is listed of it. With `since`, what happened since then is part of it.
    pub(super) fn listed(
        self,
        view: &View<'_>,
        since: Option<&Moment>,
        unread: &mut Unread,
    ) -> Result<ListedJob, StoreError> {
        Ok(ListedJob {
            digest: since.map(|since| self.digest(view, since, unread)).transpose()?,
            status: self.status(view.now),
            fences: self.fences(),
            schedule: self.schedule(),
            ttl: self.lease().map(|lease| lease.ttl),
            job: self.job,
            attention: self.attention,
            lateness: self.lateness,
        })
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let ended = self.record.iter().flat_map(|record| &record.ledger.counts);
        let mut counts: BTreeMap<_, _> = ended.map(|(status, count)| (status.as_str(), *count)).collect();
        if let Some(skips) = &self.skips {
            let skipped = [
                (Status::SkippedOverlap, skips.overlap),
                (Status::SkippedDuplicate, skips.duplicate),
                (Status::SkippedPaused, skips.paused),
            ];
            counts.extend(skipped.into_iter().filter(|(_, n)| *n > 0).map(|(status, n)| (status.as_str(), n)));
        }
        counts
    }

    /// How many triggers in a row were skipped because of the run that is going.
    fn skips_in_a_row(&self) -> Option<u64> {
        let record = self.record.as_ref().filter(|_| self.held().is_some())?;
        self.skips.as_ref()?.streak(record.token)
    }

    /// The newest status, or the triggers skipped by a run that is going, and how many in a row.
    fn streak(&self) -> Option<Streak> {
        let skipped = self.skips_in_a_row().map(|count| (Status::SkippedOverlap, count));
        let ended = || self.record.as_ref().and_then(|record| record.ledger.streak());
        skipped.or_else(ended).map(|(status, count)| Streak { status, count })
    }

    fn holder(&self, now: Wall, zone: &Zone) -> Option<LeaseHolder> {
        let lease = self.held()?;
        Some(LeaseHolder {
            run: lease.run.to_string(),
            host: lease.holder.host.clone(),
            pid: lease.holder.pid(),
            since: LocalTime::new(lease.since, zone),
            until: self.remaining.map(|left| LocalTime::new(now + left, zone)),
            inside: Vec::new(),
            around: Vec::new(),
        })
    }

    /// The newest outcomes, and the run behind the lease.
    fn recent(&self, now: Wall) -> Vec<RecentOutcome> {
        let Some(record) = &self.record else { return Vec::new() };
        let going = unrecorded(record).map(|lease| {
            let status = if self.is_over { Status::Lost } else { Status::Running };
            let so_far = Some(millis(now.since(lease.since))).filter(|_| !self.is_over);
            let count = lease.covers.map_or(1, |covers| covers.count);
            let slot = LocalTime::new(lease.slot, &text::zone(&lease.zone));
            RecentOutcome { slot, status, duration_ms: so_far, host: lease.holder.host.clone(), count }
        });
        let ring = &record.ledger.ring;
        let room = RECENT_MAX - usize::from(going.is_some());
        let ended = ring[ring.len().saturating_sub(room)..].iter().map(|outcome| RecentOutcome {
            slot: LocalTime::new(outcome.slot, &text::zone(&outcome.zone)),
            status: outcome.status,
            duration_ms: outcome.status.is_of_a_run().then(|| millis(outcome.length())),
            host: outcome.host.clone(),
            count: outcome.covers.map_or(1, |covers| covers.count),
        });
        ended.chain(going).collect()
    }

    /// What happened to it since a moment of its zone.
    fn digest(&self, view: &View<'_>, since: &Moment, unread: &mut Unread) -> Result<JobDigest, StoreError> {
        let zone = self.zone();
        let from = since.first(&zone);
        let mut counts = DigestCounts::default();
        if let Some(record) = &self.record {
            let range = Range { since: Some(since.clone()), until: None, zone: Some(zone.clone()) };
            let query = RunsQuery { job: None, statuses: Vec::new(), range, limit: usize::MAX };
            let runs = view.listed(&query, &[(record, self.is_over)], unread)?;
            runs.iter().for_each(|run| counts.add(run, self.slots_since(run, from)));
        }
        counts.skipped += self.skips.as_ref().map_or(0, |skips| skips.overlaps_since(from));
        Ok(JobDigest { job: self.job.to_string(), since: LocalTime::new(from, &zone), counts })
    }

    /// How many slots an outcome stands for, of those that are not before `from`.
    fn slots_since(&self, run: &RunAnswer, from: Wall) -> u64 {
        let all = run.count.unwrap_or(1);
        match (&run.slot_from, &run.slot_to, self.schedule()) {
            (Some(first), Some(last), Some(schedule)) if first.at < from => {
                schedule.count(Wall(from.0.saturating_sub(1)), last.at).min(all)
            }
            _ => all,
        }
    }

    fn fences(&self) -> Vec<FenceStatus> {
        self.record.as_ref().map(|record| fences(record, &self.zone())).unwrap_or_default()
    }

    fn details(&self, now: Wall, zone: &Zone) -> JobDetails {
        let ring = self.record.iter().flat_map(|record| record.ledger.ring.iter().rev());
        let ended = { ring }.find(|outcome| outcome.status.is_of_a_run());
        JobDetails {
            zone: zone.clone(),
            holder: self.held().map(|lease| text::holder(lease, self.remaining, now)),
            schedule: self.schedule().map(|schedule| schedule.written()),
            process: self.held().map(|lease| text::process(&lease.holder)),
            last_took: ended.map(Outcome::length),
        }
    }

    fn skipped(&self, zone: &Zone) -> SkippedTriggers {
        let grants = self.record.as_ref().map_or(0, |record| record.grants);
        let in_a_row = self.skips_in_a_row().unwrap_or(0);
        self.skips.as_ref().map(|skips| SkippedTriggers::new(skips, grants, in_a_row, zone)).unwrap_or_default()
    }

    fn status(&self, now: Wall) -> JobStatus {
        let (record, zone) = (self.record.as_ref(), self.zone());
        let ended = |outcome: Option<&Outcome>| Some(RunAnswer::ended(record?, outcome?));
        let gauges = record.iter().flat_map(|record| &record.upstreams);
        JobStatus {
            job: self.job.to_string(),
            state: self.state(),
            needs_attention: !self.attention.is_empty(),
            configured: self.expected.is_some(),
            enabled: self.expected.as_ref().is_none_or(|expected| expected.enabled),
            schedule: self.schedule().map(|schedule| schedule.text().to_string()),
            timezone: zone.name().to_string(),
            token: record.map_or(0, |record| record.token.number()),
            grants: record.map_or(0, |record| record.grants),
            holder: self.holder(now, &zone),
            lost_run: self.lease().filter(|_| self.is_over).map(|lease| lease.run.to_string()),
            paused: record.and_then(|record| record.paused.as_ref()).map(|paused| PausedJob::new(paused, &zone)),
            last: ended(record.and_then(|record| record.ledger.last())),
            last_ok: ended(record.and_then(|record| record.ledger.last_ok.as_ref())),
            next_slot: self.next_slot(now).map(|next| LocalTime::new(next, &zone)),
            streak: self.streak(),
            recent: self.recent(now),
            counts: self.counts(),
            skips: self.skipped(&zone),
            upstreams: gauges.map(|(job, gauge)| UpstreamGauge::new(job, gauge, &zone)).collect(),
            more: self.details(now, &zone),
        }
    }
}
