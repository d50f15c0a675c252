//! The jobs of a store and of the configuration: who holds them, how they last ended, when they are due, where they
//! write, and which of them need attention.

mod order;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fencepost_core::ledger::Status;
use fencepost_core::name::{Job, Name};
use fencepost_core::record::{Gauge, Identity, Paused, Record, Seal, decode};
use fencepost_core::skips::Skips;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::transition::unreadable;
use fencepost_core::zone::Zone;
use fencepost_store::{Key, Store, StoreError};
use schemars::JsonSchema;
use serde::Serialize;

use self::seen::{ListedJob, SeenJob};
use crate::answer::{AnswerVersion, ErrorDetail, JobMistakes, RunAnswer};
use crate::attention::{self, Attention};
use crate::board::JobTerms;
use crate::digest::Digest;
use crate::moment::Moment;
use crate::overdue::{Expected, ExpectedJob, LateJobs};
use crate::time::LocalTime;
use crate::unread::{Unread, each_whole_record, sentences};
use crate::vocabulary::{WordSchema, words};
use crate::waiting::{self, Leases, Waiting};
use crate::{View, ViewError};

/// How many of the newest outcomes the status of a job has at most.
pub const RECENT_MAX: usize = 20;

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
    /// What needs attention, the most urgent first. `status --check` exits 1 if there is anything.
    pub attention: Vec<Attention>,
    /// Which job waits for which, as far as this host knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// What happened since the moment that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The jobs that have run and those of the configuration, by name.
    pub jobs: Vec<JobStatus>,
    pub resources: Vec<FenceStatus>,
    /// Records that cannot be read, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Records that cannot be read, with their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorDetail>,
}

impl StatusAnswer {
    /// The part about one job: `NAME`, on this host and on others, or `NAME@HOST`.
    pub fn only(&self, job: &str) -> Self {
        let is_it = |known: &str| known == job || known.split_once('@').is_some_and(|(name, _)| name == job);
        let is_about = |about: &Option<String>| about.as_deref().is_some_and(is_it);
        Self {
            v: AnswerVersion,
            store: self.store.clone(),
            config: self.config.clone(),
            sealed: self.sealed.clone(),
            broken: self.broken.iter().filter(|broken| is_it(&broken.job)).cloned().collect(),
            attention: self.attention.iter().filter(|attention| is_about(&attention.job)).cloned().collect(),
            waiting: self.waiting.iter().filter(|wait| is_it(&wait.job) || is_it(&wait.waits_for)).cloned().collect(),
            digest: None,
            jobs: self.jobs.iter().filter(|known| is_it(&known.job)).cloned().collect(),
            resources: self.resources.iter().filter(|fence| is_it(&fence.job)).cloned().collect(),
            unreadable: self.unreadable.clone(),
            errors: self.errors.clone(),
        }
    }
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
    pub state: JobState,
    pub needs_attention: bool,
    /// The configuration names it.
    pub configured: bool,
    /// False if the configuration says so.
    pub enabled: bool,
    /// The schedule of the configuration, or else of its newest run.
    pub schedule: Option<String>,
    /// The zone of its times.
    pub timezone: String,
    /// The highest token ever granted; 0 if it never ran.
    pub token: u64,
    pub grants: u64,
    /// Who holds the lease; null if it is free.
    pub holder: Option<LeaseHolder>,
    /// The run whose lease has ended without a release.
    pub lost_run: Option<String>,
    pub paused: Option<PausedJob>,
    pub last: Option<RunAnswer>,
    pub last_ok: Option<RunAnswer>,
    pub next_slot: Option<LocalTime>,
    pub streak: Option<Streak>,
    /// Its newest outcomes, the oldest first, at most 20. A run that is going is the last of them.
    pub recent: Vec<RecentOutcome>,
    /// How many runs and skipped triggers ended in each status.
    #[schemars(with = "BTreeMap<String, u64>")]
    pub counts: BTreeMap<&'static str, u64>,
    pub skips: SkippedTriggers,
    pub upstreams: Vec<UpstreamGauge>,
    #[serde(skip)]
    pub more: JobDetails,
}

/// What people are shown of a job besides its JSON.
#[derive(Clone, Debug)]
pub struct JobDetails {
    /// The zone of the job: the configuration's, or that of its newest run.
    pub zone: Zone,
    /// One sentence about the holder, if the lease is held.
    pub holder: Option<String>,
    /// The process behind the holder, in a few words.
    pub process: Option<String>,
    /// The schedule as a person writes it.
    pub schedule: Option<String>,
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
        /// It is configured and has no record in this store.
        NeverRan = "never_ran",
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
    /// The jobs inside whose runs it was started, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<String>,
    /// The jobs whose runs were started inside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub around: Vec<String>,
}

/// A pause of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PausedJob {
    pub since: LocalTime,
    /// When it resumes by itself.
    pub until: Option<LocalTime>,
    /// The host it was paused from.
    pub by: String,
    pub note: Option<String>,
}

impl PausedJob {
    fn new(paused: &Paused, zone: &Zone) -> Self {
        let local = |at| LocalTime::new(at, zone);
        let (since, until) = (local(paused.since), paused.until.map(local));
        Self { since, until, by: paused.by.clone(), note: paused.note.clone() }
    }
}

/// One of the newest outcomes of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecentOutcome {
    pub slot: LocalTime,
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
    /// How long it took, or has taken so far; null if nothing ran.
    pub duration_ms: Option<u64>,
    pub host: String,
    /// How many slots it stands for.
    pub count: u64,
}

/// Triggers that were skipped, over all time.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SkippedTriggers {
    /// Another run was going.
    pub overlap: u64,
    /// The slot was done, or another run was working on it.
    pub duplicate: u64,
    pub paused: u64,
    /// Overlaps among all triggers, from 0 to 1.
    pub rate: f64,
    /// How many triggers in a row the run that is going has caused to skip.
    pub in_a_row: u64,
    /// The newest overlap.
    pub last: Option<LocalTime>,
}

impl SkippedTriggers {
    fn new(skips: &Skips, grants: u64, in_a_row: u64, zone: &Zone) -> Self {
        Self {
            overlap: skips.overlap,
            duplicate: skips.duplicate,
            paused: skips.paused,
            rate: skips.rate(grants),
            in_a_row,
            last: skips.last.as_ref().map(|last| LocalTime::new(last.at, zone)),
        }
    }
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

/// Which jobs are asked about.
#[derive(Clone, Debug)]
pub struct StatusQuery {
    /// All jobs, or those of one name.
    pub job: Option<Name>,
    pub expected: Expected,
    /// The digest counts what happened since then.
    pub since: Option<Moment>,
}

impl StatusQuery {
    fn wants(&self, job: &Job) -> bool {
        self.job.as_ref().is_none_or(|name| job.name == *name)
    }

    /// The configured jobs that are asked about.
    fn configured(&self) -> impl Iterator<Item = &ExpectedJob> {
        self.expected.jobs.iter().flatten().filter(|expected| self.wants(&expected.job))
    }
}

/// The jobs of a store, gathered while their records are read.
#[derive(Default)]
pub(crate) struct SeenJobs {
    jobs: Vec<ListedJob>,
    leases: Leases,
}

impl SeenJobs {
    /// Adds a job if it is asked about.
    pub(crate) fn add(
        &mut self,
        view: &View<'_>,
        query: &StatusQuery,
        record: Record,
        clock: Option<&StoreClock>,
        unread: &mut Unread,
    ) -> Result<(), StoreError> {
        self.leases.add(&record);
        let is_listed = !record.is_hidden() || query.expected.find(&record.job).is_some();
        if query.wants(&record.job) && is_listed {
            let seen = SeenJob::of(view, record, clock, &query.expected, unread)?;
            self.jobs.push(seen.listed(view, query.since.as_ref(), unread)?);
        }
        Ok(())
    }

    /// Adds the jobs of the configuration that have no record, after all records. The jobs are then in the order of their
    /// names.
    pub(crate) fn add_never_ran(
        &mut self,
        view: &View<'_>,
        query: &StatusQuery,
        unread: &mut Unread,
    ) -> Result<(), StoreError> {
        for seen in view.never_ran(query, &self.jobs, unread) {
            self.jobs.push(seen.listed(view, query.since.as_ref(), unread)?);
        }
        self.jobs.sort_by(|a, b| a.job.cmp(&b.job));
        Ok(())
    }

    /// What the durations of each job are compared with.
    pub(crate) fn terms(&self, now: Wall, ttls: &BTreeMap<Name, Duration>) -> BTreeMap<String, JobTerms> {
        let terms = |seen: &ListedJob| JobTerms {
            ttl: ttls.get(&seen.job.name).copied().or(seen.ttl),
            interval: seen.interval(now),
        };
        self.jobs.iter().map(|seen| (seen.job.to_string(), terms(seen))).collect()
    }

    pub(crate) fn late(&self) -> LateJobs {
        let mut late = LateJobs::default();
        self.jobs.iter().for_each(|seen| seen.add_to(&mut late));
        late
    }
}

impl View<'_> {
    /// The jobs that have a record, and those of the configuration that have none.
    pub fn status(&self, query: &StatusQuery) -> Result<StatusAnswer, ViewError> {
        let (mut seen, mut unread) = (SeenJobs::default(), Unread::default());
        each_whole_record(self.store, Key::JOBS, &mut unread, |unread, record, clock| {
            seen.add(self, query, record, clock, unread)
        })?;
        seen.add_never_ran(self, query, &mut unread)?;
        self.status_of(query, seen, unread)
    }

    /// The status of jobs that the caller has gathered.
    pub(crate) fn status_of(
        &self,
        query: &StatusQuery,
        seen: SeenJobs,
        unread: Unread,
    ) -> Result<StatusAnswer, ViewError> {
        let SeenJobs { mut jobs, leases } = seen;
        let digest =
            query.since.is_some().then(|| Digest::of(jobs.iter_mut().filter_map(|job| job.digest.take()).collect()));
        let (sealed, errors) = (sealed(self.store)?, unread.into_errors());
        let mut attention = attention::of_store(sealed.as_ref(), &errors);
        attention.extend(jobs.iter_mut().flat_map(|job| std::mem::take(&mut job.attention)));
        attention.extend(self.unlisted(query, &jobs));
        attention.sort_by_key(|attention| attention.reason);
        Ok(StatusAnswer {
            v: AnswerVersion,
            store: self.store_url.clone(),
            config: self.config.clone(),
            sealed,
            broken: self.broken_jobs(query.job.as_ref()).cloned().collect(),
            attention,
            digest,
            waiting: self.waits(query, &jobs, &leases),
            resources: jobs.iter_mut().flat_map(|job| std::mem::take(&mut job.fences)).collect(),
            jobs: jobs.into_iter().map(|job| job.into_status(&leases)).collect(),
            unreadable: sentences(&errors),
            errors,
        })
    }
}

impl View<'_> {
    /// The jobs of the configuration that have no record. One that has mistakes is listed with these.
    fn never_ran(&self, query: &StatusQuery, recorded: &[ListedJob], unread: &Unread) -> Vec<SeenJob> {
        let is_known = |expected: &ExpectedJob| {
            let key = Key::job(&expected.job).to_string();
            let is_unread = unread.errors().iter().any(|error| error.key.as_deref() == Some(key.as_str()));
            is_unread || recorded.iter().any(|seen| expected.is(&seen.job))
        };
        let never_ran = query.configured().filter(|expected| !expected.is_broken && !is_known(expected));
        never_ran.map(|expected| SeenJob::never_ran(self, expected, &query.expected)).collect()
    }

    /// Which job waits for which, of those that are asked about.
    fn waits(&self, query: &StatusQuery, jobs: &[ListedJob], leases: &Leases) -> Vec<Waiting> {
        let zone = |name: &str| jobs.iter().find(|seen| seen.job.to_string() == name).map(ListedJob::zone);
        let mut waits = waiting::waits(&self.waiting, &self.store_url, leases, zone);
        let is_asked = |name: &String| Job::parse(name).is_ok_and(|job| query.wants(&job));
        waits.retain(|wait| is_asked(&wait.job) || is_asked(&wait.waits_for));
        waits
    }

    /// The jobs with mistakes that have no record.
    fn unlisted(&self, query: &StatusQuery, jobs: &[ListedJob]) -> Vec<Attention> {
        let listed: BTreeSet<&str> = jobs.iter().map(|seen| seen.job.name.as_str()).collect();
        let unlisted = self.broken_jobs(query.job.as_ref()).filter(|broken| !listed.contains(broken.job.as_str()));
        unlisted.map(|broken| attention::of_broken(broken, &broken.job, self.config.as_deref())).collect()
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
