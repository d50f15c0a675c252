//! `fencepost overdue`: lists slots that passed without a record from any machine. A dead man's switch in one cron
//! line.

use std::time::SystemTime;

use fencepost_core::name::{Job, Name};
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_guard::clock;
use fencepost_guard::transact::look;
use fencepost_store::Store;
use fencepost_view::overdue::{Expected, ExpectedJob};
use fencepost_view::recorded_schedule;

use crate::args::Global;
use crate::args::operate::OverdueOptions;
use crate::calendar;
use crate::config::Config;
use crate::exit::{Code, Failure};
use crate::options::JobOptions;
use crate::place::Place;
use crate::report::Voice;
use crate::show;

/// Maximum number of jobs with mistakes that are listed.
const SHOWN_BROKEN_MAX: usize = 10;

pub fn run(global: &Global, options: &OverdueOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let now = clock::now().wall;
    if place.config.is_none() {
        place.must_exist()?;
    }
    // Opens the store read-only: the database role may have no right to write.
    let store = place.open_to_read()?;
    let expected = Expected {
        jobs: place.config.as_ref().map(|config| jobs(config, &place, store.as_ref())).transpose()?,
        grace: options.grace,
        floor: place.config.as_ref().and_then(written_at).unwrap_or(now),
    };
    let answer = place.ask(store.as_ref(), |view| view.overdue(&expected))?;
    if global.json {
        show::json(&answer);
    } else if !global.quiet {
        answer.overdue.iter().for_each(|job| show::line(&job.sentence(now)));
        for job in answer.broken.iter().take(SHOWN_BROKEN_MAX) {
            Voice::of(global).warn(&job.sentence(answer.config.as_deref()));
        }
        for job in &answer.paused {
            Voice::of(global).tell(&format!("{job} is paused, and so not overdue."));
        }
    }
    let code = if answer.overdue.is_empty() { Code::DONE } else { Code::REFUSED };
    Ok(super::report_unread(global, &answer.errors, code))
}

/// The jobs of the configuration that are enabled and have a schedule.
fn jobs(config: &Config, place: &Place, store: &dyn Store) -> Result<Vec<ExpectedJob>, Failure> {
    let mut jobs = Vec::new();
    for (name, keys) in config.jobs.iter().filter(|(_, keys)| keys.enabled()) {
        let Some(schedule) = calendar::schedule(config, name)? else { continue };
        jobs.push(expected(super::job(name, false, place)?, keys, schedule));
    }
    let broken = config.broken.iter().filter(|(_, broken)| broken.options.enabled());
    for name in broken.filter_map(|(key, _)| Name::new(key).ok()) {
        let Ok(job) = super::job(&name, false, place) else { continue };
        if let Some(schedule) = broken_schedule(config, store, &job) {
            jobs.push(expected(job, config.job(&name), schedule));
        }
    }
    Ok(jobs)
}

fn expected(job: Job, keys: &JobOptions, schedule: Schedule) -> ExpectedJob {
    ExpectedJob { job, per_host: keys.per_host(), schedule, slack: keys.slack() }
}

/// When a job with mistakes is due: by its last run, or else by the configuration, if that can be read.
fn broken_schedule(config: &Config, store: &dyn Store, job: &Job) -> Option<Schedule> {
    let recorded = look(store, job).ok().and_then(|(record, _)| recorded_schedule(&record?));
    recorded.or_else(|| calendar::schedule(config, &job.name).ok().flatten())
}

/// When the file was last changed. A job without a record is not overdue for earlier slots.
pub fn written_at(config: &Config) -> Option<Wall> {
    let changed = std::fs::metadata(&config.path).ok()?.modified().ok()?;
    let since = changed.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Wall)
}
