//! The jobs of a store: who holds them, how they last ended, when they are due, where they write.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::lease::Honest;
use fencepost_core::ledger::{Ledger, Outcome, Status};
use fencepost_core::name::Name;
use fencepost_core::plan::CatchUpTerms;
use fencepost_core::record::{Gauge, Identity, Paused, Record, Seal, decode};
use fencepost_core::skips::Skips;
use fencepost_core::slot::{Asked, LeaseState, OnLost, Scheduled};
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::transition::unreadable;
use fencepost_core::zone::Zone;
use fencepost_store::records::skips;
use fencepost_store::{Key, Store, StoreError};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ErrorDetail, JobMistakes, RunAnswer};
use crate::archive::whole;
use crate::time::LocalTime;
use crate::unread::{Unread, each_record, sentences};
use crate::vocabulary::{WordSchema, words};
use crate::{View, ViewError, recorded_schedule, remaining, text};

/// `status`: the store, its jobs, and where they write.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatusAnswer {
    pub v: AnswerVersion,
    pub store: String,
    pub config: Option<String>,
    /// Why no job begins in this store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SealedStore>")]
    pub sealed: Option<Seal>,
    /// Jobs of the configuration that do not run because of mistakes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<JobMistakes>,
    pub jobs: Vec<JobStatus>,
    pub resources: Vec<FenceStatus>,
    /// Records that cannot be read, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Records that cannot be read, with their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorDetail>,
}

/// Stands in the schema for the core's `Seal`.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", rename = "Seal")]
#[expect(dead_code, reason = "only its schema is used")]
enum SealedStore {
    /// The URL of the store that the jobs were moved to.
    MovedTo(String),
    /// Where the store is being filled from.
    FilledFrom(String),
}

/// A resource that a job writes under its tokens.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FenceStatus {
    pub resource: String,
    pub kind: String,
    /// The highest token that the target is known to have accepted.
    pub token: u64,
    pub job: String,
    pub run: String,
    pub at: LocalTime,
    /// How many stale writes were refused.
    pub refused: u64,
}

/// One job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobStatus {
    pub job: String,
    pub token: u64,
    pub grants: u64,
    /// Who holds the lease; null if it is free.
    pub holder: Option<LeaseHolder>,
    pub last: Option<RunAnswer>,
    pub last_ok: Option<RunAnswer>,
    pub next_slot: Option<LocalTime>,
    pub streak: Option<Streak>,
    /// How many runs and skipped triggers ended in each status.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub counts: BTreeMap<&'static str, u64>,
    pub upstreams: Vec<UpstreamGauge>,
    #[serde(skip)]
    pub more: JobDetails,
}

/// What people are shown of a job besides its JSON.
#[derive(Clone, Debug)]
pub struct JobDetails {
    pub state: JobState,
    /// The zone of the job's newest run.
    pub zone: Zone,
    /// One sentence about the holder, if the lease is held.
    pub holder: Option<String>,
    /// The process behind the holder, in a few words.
    pub process: Option<String>,
    /// The run whose lease has ended without a release.
    pub lost_run: Option<String>,
    pub paused: Option<Paused>,
    pub skips: Option<Skips>,
    /// How long the newest run took that has ended.
    pub last_took: Option<Duration>,
}

words! {
    /// How a job stands now.
    JobState {
        Free = "free",
        Paused = "paused",
        /// A run holds it.
        Running = "running",
        /// It is held by hand.
        Held = "held",
        /// Its run did not end properly.
        Lost = "lost",
    }
}

/// The holder of a lease.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LeaseHolder {
    pub run: String,
    pub host: String,
    pub pid: Option<i32>,
    pub since: LocalTime,
    /// When the lease ends unless it is renewed, as far as the store's clock tells.
    pub until: Option<LocalTime>,
}

/// The newest status, and how often in a row.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Streak {
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
    pub count: u64,
}

/// How often an upstream kept a job from working.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UpstreamGauge {
    pub job: String,
    pub halts: u64,
    pub skips: u64,
    pub at: LocalTime,
    pub reason: String,
}

impl UpstreamGauge {
    pub(crate) fn new(job: &str, gauge: &Gauge, zone: &Zone) -> Self {
        let at = LocalTime::new(gauge.at, zone);
        Self { job: job.to_string(), halts: gauge.halts, skips: gauge.skips, at, reason: gauge.reason.clone() }
    }
}

impl View<'_> {
    /// All jobs, or those of one name.
    pub fn status(&self, name: Option<&Name>) -> Result<StatusAnswer, ViewError> {
        let (mut jobs, mut unread) = (Vec::new(), Unread::default());
        each_record(self.store, &mut unread, |unread, record, clock| {
            if name.is_none_or(|name| record.job.name == *name) {
                jobs.push(SeenRecord::of(self, record, clock, unread)?);
            }
            Ok(())
        })?;
        jobs.sort_by(|a, b| a.record.job.cmp(&b.record.job));
        let errors = unread.into_errors();
        Ok(StatusAnswer {
            v: AnswerVersion,
            store: self.store_url.clone(),
            config: self.config.clone(),
            sealed: sealed(self.store)?,
            broken: self.broken_jobs(name).cloned().collect(),
            resources: jobs.iter().flat_map(|job| fences(&job.record, &job.zone())).collect(),
            jobs: jobs.into_iter().map(|job| job.status(self.now)).collect(),
            unreadable: sentences(&errors),
            errors,
        })
    }
}

/// Why no job begins in this store, and where they begin now.
fn sealed(store: &dyn Store) -> Result<Option<Seal>, StoreError> {
    let Some(entry) = store.read(&Key::identity())?.value else { return Ok(None) };
    let identity: Identity = decode(&entry.bytes).map_err(|why| unreadable("the store's identity", &why))?;
    Ok(identity.sealed)
}

fn fences(record: &Record, zone: &Zone) -> Vec<FenceStatus> {
    let fence = record.resources.iter().map(|(resource, known)| FenceStatus {
        resource: resource.clone(),
        kind: known.kind.clone(),
        token: known.token.number(),
        job: record.job.to_string(),
        run: known.run.to_string(),
        at: LocalTime::new(known.at, zone),
        refused: known.refused,
    });
    fence.collect()
}

/// A record with what the store's clock and the host say about it.
struct SeenRecord {
    /// The newest outcome and the newest good one are whole, where the record had to cut them.
    record: Record,
    skips: Option<Skips>,
    remaining: Option<Duration>,
    is_over: bool,
}

impl SeenRecord {
    fn of(
        view: &View<'_>,
        mut record: Record,
        clock: Option<&StoreClock>,
        unread: &mut Unread,
    ) -> Result<Self, StoreError> {
        let Ledger { ring, last_ok, .. } = &mut record.ledger;
        for outcome in ring.last_mut().into_iter().chain(last_ok) {
            // A cut outcome is better than no status at all.
            *outcome = whole(view.store, &record.job, outcome).unwrap_or_else(|_| outcome.clone());
        }
        Ok(Self {
            skips: unread.noted(&Key::skips(&record.job), skips(view.store, &record.job))?.flatten(),
            remaining: remaining(&record, clock),
            is_over: view.is_over(&record, clock),
            record,
        })
    }

    fn is_held(&self) -> bool {
        self.record.lease.is_some() && !self.is_over
    }

    fn state(&self) -> JobState {
        match &self.record.lease {
            None if self.record.paused.is_some() => JobState::Paused,
            None => JobState::Free,
            Some(lease) if self.is_held() && !lease.holder.is_run() => JobState::Held,
            Some(_) if self.is_held() => JobState::Running,
            Some(_) => JobState::Lost,
        }
    }

    fn zone(&self) -> Zone {
        let timing = self.record.timing.as_ref().map(|timing| timing.zone.as_str());
        let last = self.record.ledger.last().map(|last| last.zone.as_str());
        text::zone(self.record.lease.as_ref().map(|lease| lease.zone.as_str()).or(last).or(timing).unwrap_or("UTC"))
    }

    /// When it is due next, if it has run by a schedule. `plan` says the same.
    fn next_slot(&self, now: Wall) -> Option<Wall> {
        let schedule = recorded_schedule(&self.record).filter(|_| self.record.paused.is_none())?;
        let (terms, asked, on_lost) = (CatchUpTerms::default(), Asked::Due, OnLost::default());
        let scheduled = Scheduled { schedule, terms, asked, on_lost, retries: 0 };
        let standing = if self.is_held() { LeaseState::Stands } else { LeaseState::Over };
        scheduled.plan::<Honest>(Some(&self.record), standing, now).1.upcoming(now)
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<_, _> = self.record.ledger.counts.iter().map(|(s, n)| (s.as_str(), *n)).collect();
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

    /// The newest status, or the triggers skipped by a run that is going, and how many in a row.
    fn streak(&self) -> Option<Streak> {
        let skipped = self.skips.as_ref().and_then(|skips| skips.streak(self.record.token));
        let skipped = skipped.filter(|_| self.is_held()).map(|count| (Status::SkippedOverlap, count));
        skipped.or_else(|| self.record.ledger.streak()).map(|(status, count)| Streak { status, count })
    }

    fn holder(&self, now: Wall, zone: &Zone) -> Option<LeaseHolder> {
        let lease = self.record.lease.as_ref().filter(|_| self.is_held())?;
        Some(LeaseHolder {
            run: lease.run.to_string(),
            host: lease.holder.host.clone(),
            pid: lease.holder.pid(),
            since: LocalTime::new(lease.since, zone),
            until: self.remaining.map(|left| LocalTime::new(now + left, zone)),
        })
    }

    fn details(&self, now: Wall, zone: &Zone) -> JobDetails {
        let lease = self.record.lease.as_ref();
        let held = lease.filter(|_| self.is_held());
        let ended = self.record.ledger.ring.iter().rev().find(|outcome| outcome.status.is_of_a_run());
        JobDetails {
            state: self.state(),
            zone: zone.clone(),
            holder: held.map(|lease| text::holder(lease, self.remaining, now)),
            process: held.map(|lease| text::process(&lease.holder)),
            lost_run: lease.filter(|_| self.is_over).map(|lease| lease.run.to_string()),
            paused: self.record.paused.clone(),
            skips: self.skips.clone(),
            last_took: ended.map(Outcome::length),
        }
    }

    fn status(&self, now: Wall) -> JobStatus {
        let (record, zone) = (&self.record, self.zone());
        JobStatus {
            job: record.job.to_string(),
            token: record.token.number(),
            grants: record.grants,
            holder: self.holder(now, &zone),
            last: record.ledger.last().map(|last| RunAnswer::ended(record, last)),
            last_ok: record.ledger.last_ok.as_ref().map(|last| RunAnswer::ended(record, last)),
            next_slot: self.next_slot(now).map(|next| LocalTime::new(next, &zone)),
            streak: self.streak(),
            counts: self.counts(),
            upstreams: record.upstreams.iter().map(|(job, gauge)| UpstreamGauge::new(job, gauge, &zone)).collect(),
            more: self.details(now, &zone),
        }
    }
}
