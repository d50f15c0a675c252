//! Slots that passed with nothing recorded by any machine.

use std::time::Duration;

use fencepost_core::name::{Job, Key};
use fencepost_core::overdue::overdue;
use fencepost_core::plan::CatchUpTerms;
use fencepost_core::record::Record;
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::LeaseState;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::zone::Zone;
use fencepost_store::StoreError;
use fencepost_store::records::look;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ErrorDetail, JobMistakes};
use crate::time::LocalTime;
use crate::unread::{Unread, each_whole_record, sentences};
use crate::{View, ViewError, recorded_schedule, text};

/// `overdue`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OverdueAnswer {
    pub v: AnswerVersion,
    pub store: String,
    pub config: Option<String>,
    pub overdue: Vec<OverdueJob>,
    /// Jobs that are paused, and so not overdue.
    pub paused: Vec<String>,
    /// Jobs of the configuration that do not run because of mistakes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<JobMistakes>,
    /// Records that cannot be read, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Records that cannot be read, with their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorDetail>,
}

/// A job whose slots passed with nothing recorded.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OverdueJob {
    pub job: String,
    /// The first slot.
    pub slot: LocalTime,
    /// The last slot.
    pub slot_to: LocalTime,
    pub count: u64,
    pub last_ok: Option<LocalTime>,
    pub schedule: String,
    pub timezone: String,
    /// The host of a run that did not end properly.
    #[serde(skip)]
    pub died_on: Option<String>,
}

impl OverdueJob {
    /// What is overdue, and since when, in a sentence.
    pub fn sentence(&self, now: Wall) -> String {
        let shown = |time: &LocalTime| text::time_for_people(time.at, now, &time.zone);
        let others = match self.count {
            0 | 1 => String::new(),
            2 => ", nor for the one after it".to_string(),
            many => format!(", nor for {} after it", many - 1),
        };
        let died = self.died_on.as_ref().map(|host| format!(" A run of it on {host} did not end properly."));
        let last =
            self.last_ok.as_ref().map_or_else(|| "never ok".to_string(), |last| format!("last ok {}", shown(last)));
        format!(
            "{}: nothing is recorded for its slot {}{others}; {last}.{}",
            self.job,
            shown(&self.slot),
            died.unwrap_or_default()
        )
    }
}

/// The jobs that are expected to run.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The jobs of the configuration. Otherwise every job that has run by a schedule is expected.
    pub jobs: Option<Vec<ExpectedJob>>,
    /// How long after its slot a job is overdue. Otherwise it is the job's slack.
    pub grace: Option<Duration>,
    /// Nothing from before this instant is expected of a job that has no record.
    pub floor: Wall,
}

/// A job of the configuration.
#[derive(Clone, Debug)]
pub struct ExpectedJob {
    pub job: Job,
    /// Each host has a record of its own.
    pub per_host: bool,
    pub enabled: bool,
    /// A job without a schedule is not expected at any time.
    pub schedule: Option<Schedule>,
    pub zone: Zone,
    pub slack: Duration,
    /// So many skips in a row are too many.
    pub on_skips: Option<u64>,
    /// Its configuration has mistakes. By which schedule it is expected, its newest run says first.
    pub is_broken: bool,
}

impl ExpectedJob {
    /// Whether a record is this job's, on this host or another.
    pub(crate) fn is(&self, job: &Job) -> bool {
        if self.per_host { job.name == self.job.name && job.host().is_some() } else { *job == self.job }
    }

    /// Whether it may be expected at some time.
    fn is_expected(&self) -> bool {
        self.enabled && (self.schedule.is_some() || self.is_broken)
    }

    /// The schedule by which it is expected.
    pub(crate) fn schedule(&self, record: Option<&Record>) -> Option<Schedule> {
        let recorded = record.filter(|_| self.is_broken).and_then(recorded_schedule);
        recorded.or_else(|| self.schedule.clone())
    }
}

impl Expected {
    /// The job in the configuration.
    pub(crate) fn find(&self, job: &Job) -> Option<&ExpectedJob> {
        self.jobs.iter().flatten().find(|expected| expected.is(job))
    }

    /// By which schedule a job is expected, with how much slack, and from when on. `found` is the job in the configuration.
    fn terms(
        &self,
        found: Option<&ExpectedJob>,
        record: Option<&Record>,
        now: Wall,
    ) -> Option<(Schedule, Duration, Wall)> {
        if self.jobs.is_none() {
            let schedule = record.filter(|record| !record.job.is_once()).and_then(recorded_schedule)?;
            return Some((schedule, CatchUpTerms::default().slack, now));
        }
        let expected = found.filter(|expected| expected.is_expected())?;
        Some((expected.schedule(record)?, expected.slack, self.floor))
    }

    /// A slot up to here must have a record.
    fn by(&self, now: Wall, slack: Duration) -> Wall {
        Wall(now.0.saturating_sub(millis(self.grace.unwrap_or(slack))))
    }
}

/// The record of a job and the store's clock when it was read.
type Reading = (Job, Option<Record>, Option<StoreClock>);

/// Whether a job is late.
#[derive(Clone)]
pub(crate) enum Lateness {
    /// It is on time, or not expected at any time.
    None,
    /// It is paused, and so not overdue.
    Paused,
    Overdue(Box<OverdueJob>),
}

/// The jobs that are late, and those that are not because they are paused.
#[derive(Default)]
pub(crate) struct LateJobs {
    overdue: Vec<OverdueJob>,
    paused: Vec<String>,
}

impl LateJobs {
    pub(crate) fn add(&mut self, job: &Job, lateness: Lateness) {
        match lateness {
            Lateness::None => {}
            Lateness::Paused => self.paused.push(job.to_string()),
            Lateness::Overdue(overdue) => self.overdue.push(*overdue),
        }
    }
}

impl View<'_> {
    pub fn overdue(&self, expected: &Expected) -> Result<OverdueAnswer, ViewError> {
        let (mut unread, mut late) = (Unread::default(), LateJobs::default());
        let mut judge = |(job, record, clock): Reading| {
            let record = record.map(|record| self.current(record));
            let is_over = record.as_ref().is_some_and(|record| self.is_over(record, clock.as_ref()));
            late.add(&job, self.lateness(&job, record.as_ref(), is_over, expected.find(&job), expected));
        };
        match &expected.jobs {
            Some(jobs) => {
                for job in jobs.iter().filter(|job| job.is_expected()) {
                    self.readings(job, &mut unread)?.into_iter().for_each(&mut judge);
                }
            }
            None => each_whole_record(self.store, Key::JOBS, &mut unread, |_, record, clock| {
                if !record.is_hidden() {
                    judge((record.job.clone(), Some(record), clock.cloned()));
                }
                Ok(())
            })?,
        }
        Ok(self.overdue_of(late, unread.into_errors()))
    }

    /// The answer about jobs that were judged.
    pub(crate) fn overdue_of(&self, late: LateJobs, errors: Vec<ErrorDetail>) -> OverdueAnswer {
        OverdueAnswer {
            v: AnswerVersion,
            store: self.store_url.clone(),
            config: self.config.clone(),
            overdue: late.overdue,
            paused: late.paused,
            broken: self.broken_jobs(None).cloned().collect(),
            unreadable: sentences(&errors),
            errors,
        }
    }

    /// Whether slots of a job passed with nothing recorded. `found` is the job in the configuration.
    pub(crate) fn lateness(
        &self,
        job: &Job,
        record: Option<&Record>,
        is_over: bool,
        found: Option<&ExpectedJob>,
        expected: &Expected,
    ) -> Lateness {
        let Some((schedule, slack, floor)) = expected.terms(found, record, self.now) else { return Lateness::None };
        if record.is_some_and(|record| record.paused.is_some()) {
            return Lateness::Paused;
        }
        let by = expected.by(self.now, slack);
        self.judge(job, &schedule, record, is_over, floor, by)
            .map_or(Lateness::None, |late| Lateness::Overdue(Box::new(late)))
    }

    /// The record of a job, or those of all hosts if each host has its own.
    fn readings(&self, expected: &ExpectedJob, unread: &mut Unread) -> Result<Vec<Reading>, StoreError> {
        let mut found: Vec<Reading> = Vec::new();
        if expected.per_host {
            each_whole_record(self.store, Key::JOBS, unread, |_, record, clock| {
                if record.job.name == expected.job.name && record.job.host().is_some() {
                    found.push((record.job.clone(), Some(record), clock.cloned()));
                }
                Ok(())
            })?;
        }
        let own = &expected.job;
        if !found.iter().any(|(job, ..)| job == own) {
            // If its record cannot be read, it is not known whether the job is overdue.
            if let Some((record, clock)) = unread.noted(&Key::job(own), look(self.store, own))? {
                found.push((own.clone(), record, clock));
            }
        }
        Ok(found)
    }

    fn judge(
        &self,
        job: &Job,
        schedule: &Schedule,
        record: Option<&Record>,
        is_over: bool,
        floor: Wall,
        by: Wall,
    ) -> Option<OverdueJob> {
        let standing = if is_over { LeaseState::Over } else { LeaseState::Stands };
        let gap = overdue(schedule, record, standing, floor, by)?;
        let zone = schedule.zone();
        let last_ok = record.and_then(|record| record.ledger.last_ok.as_ref());
        let died = record.and_then(|record| record.lease.as_ref()).filter(|lease| lease.holder.is_run());
        Some(OverdueJob {
            job: job.to_string(),
            slot: LocalTime::new(gap.from, zone),
            slot_to: LocalTime::new(gap.to, zone),
            count: gap.count,
            last_ok: last_ok.map(|last| LocalTime::new(last.finished, zone)),
            schedule: schedule.text().to_string(),
            timezone: zone.name().to_string(),
            died_on: died.map(|lease| lease.holder.host.clone()),
        })
    }
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
