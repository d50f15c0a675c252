//! `fencepost overdue`: lists slots that passed without a record from any machine. A dead man's switch in one cron
//! line.

use std::time::SystemTime;

use fencepost_core::time::Wall;
use fencepost_guard::clock;
use fencepost_view::overdue::{Expected, ExpectedJob};

use crate::args::Global;
use crate::args::operate::OverdueOptions;
use crate::calendar;
use crate::config::Config;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::Voice;
use crate::show;

pub fn run(global: &Global, options: &OverdueOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let now = clock::now().wall;
    if place.config.is_none() {
        place.must_exist()?;
    }
    // Opens the store read-only: the database role may have no right to write.
    let store = place.open_to_read()?;
    let expected = Expected {
        jobs: place.config.as_ref().map(|config| jobs(config, &place)).transpose()?,
        grace: options.grace,
        floor: place.config.as_ref().and_then(written_at).unwrap_or(now),
    };
    let answer = place.ask(store.as_ref(), |view| view.overdue(&expected))?;
    if global.json {
        show::json(&answer);
    } else if !global.quiet {
        answer.overdue.iter().for_each(|job| show::line(&job.sentence(now)));
        for job in &answer.paused {
            Voice::of(global).tell(&format!("{job} is paused, and so not overdue."));
        }
    }
    let code = if answer.overdue.is_empty() { Code::DONE } else { Code::REFUSED };
    Ok(super::report_unread(global, &answer.errors, code))
}

/// The jobs of the configuration that are enabled and have a schedule.
fn jobs(config: &Config, place: &Place) -> Result<Vec<ExpectedJob>, Failure> {
    let mut jobs = Vec::new();
    for (name, keys) in config.jobs.iter().filter(|(_, keys)| keys.enabled()) {
        let Some(schedule) = calendar::schedule(config, name)? else { continue };
        jobs.push(ExpectedJob {
            job: super::job(name, false, place)?,
            per_host: keys.per_host(),
            schedule,
            slack: keys.slack(),
        });
    }
    Ok(jobs)
}

/// When the file was last changed. A job without a record is not overdue for earlier slots.
pub fn written_at(config: &Config) -> Option<Wall> {
    let changed = std::fs::metadata(&config.path).ok()?.modified().ok()?;
    let since = changed.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Wall)
}
