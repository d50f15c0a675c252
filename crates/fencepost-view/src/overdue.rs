//! Slots that passed with nothing recorded by any machine.

use std::time::Duration;

use fencepost_core::name::{Job, Key};
use fencepost_core::overdue::overdue;
use fencepost_core::plan::CatchUpTerms;
use fencepost_core::record::Record;
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::LeaseState;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_store::StoreError;
use fencepost_store::records::look;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ErrorDetail, JobMistakes};
use crate::time::LocalTime;
use crate::unread::{Unread, each_record, sentences};
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
#[derive(Clone, Debug)]
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
    pub schedule: Schedule,
    pub slack: Duration,
}

/// The record of a job and the store's clock when it was read.
type Reading = (Job, Option<Record>, Option<StoreClock>);

impl View<'_> {
    pub fn overdue(&self, expected: &Expected) -> Result<OverdueAnswer, ViewError> {
        let mut unread = Unread::default();
        let (mut overdue, mut paused) = (Vec::new(), Vec::new());
        let mut judge = |reading: &Reading, schedule: &Schedule, floor: Wall, slack: Duration| {
            let (job, record, clock) = reading;
            if record.as_ref().is_some_and(|record| record.paused.is_some()) {
                paused.push(job.to_string());
            } else {
                let by = self.now.0.saturating_sub(millis(expected.grace.unwrap_or(slack)));
                overdue.extend(self.judge(job, schedule, record.as_ref(), clock.as_ref(), floor, Wall(by)));
            }
        };
        match &expected.jobs {
            Some(jobs) => {
                for job in jobs {
                    for reading in self.readings(job, &mut unread)? {
                        judge(&reading, &job.schedule, expected.floor, job.slack);
                    }
                }
            }
            None => each_record(self.store, &mut unread, |_, record, clock| {
                if let Some(schedule) = recorded_schedule(&record).filter(|_| !record.job.is_once()) {
                    let reading = (record.job.clone(), Some(record), clock.cloned());
                    judge(&reading, &schedule, self.now, CatchUpTerms::default().slack);
                }
                Ok(())
            })?,
        }
        let errors = unread.into_errors();
        Ok(OverdueAnswer {
            v: AnswerVersion,
            store: self.store_url.clone(),
            config: self.config.clone(),
            overdue,
            paused,
            broken: self.broken_jobs(None).cloned().collect(),
            unreadable: sentences(&errors),
            errors,
        })
    }

    /// The record of a job, or those of all hosts if each host has its own.
    fn readings(&self, expected: &ExpectedJob, unread: &mut Unread) -> Result<Vec<Reading>, StoreError> {
        let mut found: Vec<Reading> = Vec::new();
        if expected.per_host {
            each_record(self.store, unread, |_, record, clock| {
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
        clock: Option<&StoreClock>,
        floor: Wall,
        by: Wall,
    ) -> Option<OverdueJob> {
        let is_over = record.is_some_and(|record| self.is_over(record, clock));
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
