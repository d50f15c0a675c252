//! `fencepost overdue`: lists slots that passed without a record from any machine. A dead man's switch in one cron
//! line.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fencepost_core::name::{Job, Name};
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_guard::clock;
use fencepost_view::overdue::{Expected, ExpectedJob, OverdueAnswer};

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
    let now = clock::now().wall;
    let answer = answer(&Place::find(global)?, options)?;
    if global.json {
        show::json(&answer);
    } else if !global.quiet {
        answer.overdue.iter().for_each(|job| show::line(&job.sentence(now)));
        let is_well = answer.overdue.is_empty() && answer.errors.is_empty();
        if is_well && std::io::stdout().is_terminal() {
            show::line("Nothing is overdue.");
        }
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

/// Asks the store and the configuration.
pub fn answer(place: &Place, options: &OverdueOptions) -> Result<OverdueAnswer, Failure> {
    if place.config.is_none() {
        place.must_exist()?;
    }
    // Opens the store read-only: the database role may have no right to write.
    let store = place.open_to_read()?;
    let expected = expected(place, options.grace)?;
    Ok(place.ask(store.as_ref(), |view| view.overdue(&expected))?)
}

/// The jobs that are expected to run: those of the configuration, if there is one.
pub fn expected(place: &Place, grace: Option<Duration>) -> Result<Expected, Failure> {
    let config = place.config.as_ref();
    let floor = config.and_then(written_at).unwrap_or_else(|| clock::now().wall);
    Ok(Expected { jobs: config.map(|config| jobs(config, place)).transpose()?, grace, floor })
}

fn jobs(config: &Config, place: &Place) -> Result<Vec<ExpectedJob>, Failure> {
    let mut jobs = Vec::new();
    for (name, keys) in &config.jobs {
        let schedule = calendar::schedule(config, name)?;
        jobs.push(expected_job(super::job(name, false, place)?, config, keys, schedule, false)?);
    }
    for (name, broken) in config.broken.iter().filter_map(|(key, broken)| Some((Name::new(key).ok()?, broken))) {
        let Ok(job) = super::job(&name, false, place) else { continue };
        let schedule = calendar::schedule(config, &name).ok().flatten();
        jobs.push(expected_job(job, config, &broken.options, schedule, true)?);
    }
    Ok(jobs)
}

fn expected_job(
    job: Job,
    config: &Config,
    keys: &JobOptions,
    schedule: Option<Schedule>,
    is_broken: bool,
) -> Result<ExpectedJob, Failure> {
    Ok(ExpectedJob {
        zone: calendar::zone(None, Some(config), &job.name)?,
        per_host: keys.per_host(),
        enabled: keys.enabled(),
        slack: keys.slack(),
        on_skips: keys.on_skips.as_ref().map(|on| u64::from(on.value.count)),
        job,
        schedule,
        is_broken,
    })
}

/// When the file was last changed. A job without a record is not overdue for earlier slots.
pub fn written_at(config: &Config) -> Option<Wall> {
    changed_at(&config.path)
}

/// When a file was last changed.
pub fn changed_at(path: &Path) -> Option<Wall> {
    let changed = std::fs::metadata(path).ok()?.modified().ok()?;
    let since = changed.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Wall)
}
