//! The jobs of the configuration that `up` schedules on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::agenda::Task;
use fencepost_core::lease::Claim;
use fencepost_core::ledger::Trigger;
use fencepost_core::name::{Job, Name};
use fencepost_core::record::Holder;
use fencepost_core::slot::{Asked, Choice, Scheduled};

use super::unknown;
use crate::calendar;
use crate::command::{job, mint_run};
use crate::config::{Config, Mistake, TTL};
use crate::exit::Failure;
use crate::options::{Given, OnStoreError};
use crate::place::Place;

/// The jobs that are scheduled, and those that are not because of mistakes.
#[derive(Default)]
pub struct Scheduling {
    pub jobs: BTreeMap<Name, Box<ScheduledJob>>,
    pub broken: BTreeMap<String, UnscheduledJob>,
}

/// A job that is not scheduled because of its mistakes.
pub struct UnscheduledJob {
    /// What is wrong, without its place: an edit above the job moves it.
    pub what: Vec<String>,
    /// The mistakes as people read them.
    pub shown: String,
}

/// A job with a schedule.
#[derive(Clone)]
pub struct ScheduledJob {
    pub job: Job,
    ttl: Duration,
    runs_without_store: bool,
    scheduled: Scheduled,
    /// The same for all jobs.
    holder: Arc<Holder>,
}

impl ScheduledJob {
    /// The job as the agenda sees it.
    pub fn task(&self) -> Task {
        Task {
            name: self.job.name.clone(),
            schedule: self.scheduled.schedule.clone(),
            ttl: self.ttl,
            slack: self.scheduled.terms.slack,
            runs_without_store: self.runs_without_store,
        }
    }

    /// The claim of a run that starts now.
    pub fn claim(&self) -> Claim {
        Claim {
            run: mint_run(),
            ttl: self.ttl,
            holder: Holder::clone(&self.holder),
            slot: Choice::Due(Box::new(self.scheduled.clone())),
            zone: self.scheduled.schedule.zone().name().to_string(),
            trigger: Trigger::Schedule,
        }
    }
}

/// Reads all schedules. A job named on the command line must have one. A job with mistakes does not keep the others from
/// running.
pub fn scheduling(place: &Place, config: &Config, names: &[Name]) -> Result<Scheduling, Failure> {
    let all: BTreeSet<Name> = config.all_names().collect();
    if let Some(name) = unknown(names, &all) {
        return Err(config.unknown(&name));
    }
    let mut scheduling = Scheduling::default();
    let holder = Arc::new(place.host.holder(std::process::id().cast_signed(), None));
    for (key, broken) in &config.broken {
        let is_named = names.iter().any(|name| name.as_str() == key);
        if is_named || (names.is_empty() && broken.options.enabled()) {
            scheduling.broken.insert(key.clone(), UnscheduledJob::of(config, &broken.mistakes));
        }
    }
    for (name, keys) in &config.jobs {
        let is_named = names.contains(name);
        if !is_named && (!names.is_empty() || !keys.enabled()) {
            continue;
        }
        let Some(schedule) = calendar::schedule(config, name)? else {
            if is_named {
                let hint = Some("Write when it runs: schedule = \"0 7 * * *\", or every = \"45m\".".to_string());
                return Err(config.mistake(&keys.at, format!("The job {name} has no schedule."), hint));
            }
            continue;
        };
        if keys.command.is_none() {
            let hint = Some("Write what it runs: command = \"./report.sh\".".to_string());
            let mistake = Mistake::at(&keys.at, format!("The job {name} has no command."), hint);
            scheduling.broken.insert(name.to_string(), UnscheduledJob::of(config, &[mistake]));
            continue;
        }
        let terms = calendar::terms(keys)?;
        let ttl = keys.ttl.value().unwrap_or(TTL);
        let runs_without_store = keys.on_store_error() == OnStoreError::Run;
        let (on_lost, retries) = (keys.on_lost(), keys.retries());
        let scheduled = Scheduled { schedule, terms, asked: Asked::Due, on_lost, retries };
        let job = job(name, false, place)?;
        let holder = Arc::clone(&holder);
        scheduling
            .jobs
            .insert(name.clone(), Box::new(ScheduledJob { job, ttl, runs_without_store, scheduled, holder }));
    }
    if scheduling.jobs.is_empty() && !scheduling.broken.is_empty() {
        let all: Vec<&str> = scheduling.broken.values().map(|job| job.shown.as_str()).collect();
        return Err(Failure::Usage(format!("No job can be scheduled.\n\n{}", all.join("\n\n"))));
    }
    Ok(scheduling)
}

impl UnscheduledJob {
    fn of(config: &Config, mistakes: &[Mistake]) -> Self {
        let what = mistakes.iter().map(|mistake| mistake.message.clone()).collect();
        Self { what, shown: config.render_all(mistakes) }
    }
}
