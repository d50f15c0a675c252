//! Which zone a job lives in, and when it is due.

use std::time::Duration;

use fencepost_core::name::Name;
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::{Date, Zone};

use crate::config::{Config, JobConfig};
use crate::exit::Failure;

/// The zone of a job: the one of the command line, the job's, the configuration's, or UTC. Never the machine's.
pub fn zone(given: Option<&str>, config: Option<&Config>, name: &Name) -> Result<Zone, Failure> {
    if let Some(given) = given {
        return Zone::parse(given).map_err(|error| Failure::Usage(format!("--tz: {error}")));
    }
    let Some(config) = config else { return Ok(Zone::utc()) };
    match config.job(name).timezone.as_ref().or(config.timezone.as_ref()) {
        None => Ok(Zone::utc()),
        Some(written) => Zone::parse(&written.value).map_err(|error| config.mistake(written, error.to_string(), None)),
    }
}

/// When a job of the configuration is due, if it says so.
pub fn schedule(config: &Config, name: &Name) -> Result<Option<Schedule>, Failure> {
    let keys: &JobConfig = config.job(name);
    let zone = zone(None, Some(config), name)?;
    if let Some(written) = &keys.schedule {
        let parsed = Schedule::parse(&written.value, &zone);
        return parsed.map(Some).map_err(|error| config.mistake(written, error.to_string(), None));
    }
    let Some(every) = &keys.every else { return Ok(None) };
    let parsed = Schedule::parse(&every_text(every.value), &zone);
    parsed.map(Some).map_err(|error| config.mistake(every, error.to_string(), None))
}

/// An interval as a schedule is written.
pub fn every_text(every: Duration) -> String {
    match every.subsec_millis() {
        0 => format!("every {}s", every.as_secs()),
        _ => format!("every {}ms", every.as_millis()),
    }
}

/// The zone of whoever belongs to no job: the one of the command line, the configuration's, or UTC.
pub fn zone_of_all(given: Option<&str>, config: Option<&Config>) -> Result<Zone, Failure> {
    match (given, config.and_then(|config| Some((config, config.timezone.as_ref()?)))) {
        (Some(given), _) => Zone::parse(given).map_err(|error| Failure::Usage(format!("--tz: {error}"))),
        (None, None) => Ok(Zone::utc()),
        (None, Some((config, written))) => {
            Zone::parse(&written.value).map_err(|error| config.mistake(written, error.to_string(), None))
        }
    }
}

/// The slot that was asked for by `--slot` or `--date`. A date that has not ended yet is asked about as it is now.
pub fn asked_slot(slot: Option<&str>, date: Option<&str>, zone: &Zone, now: Wall) -> Result<Option<Wall>, Failure> {
    match (slot, date) {
        (Some(slot), _) => {
            let parsed = zone.parse_time(slot).map_err(|error| Failure::Usage(format!("--slot: {error}")))?;
            Ok(Some(parsed))
        }
        (None, Some(date)) => {
            let date = Date::parse(date).map_err(|error| Failure::Usage(format!("--date: {error}")))?;
            let end = zone.start_of_day(date.tomorrow());
            Ok(Some(Wall(end.0 - 1).min(now.max(zone.start_of_day(date)))))
        }
        (None, None) => Ok(None),
    }
}

/// The newest slot of a job that is due, if the configuration knows its schedule.
pub fn last_due(config: Option<&Config>, name: &Name, now: Wall) -> Result<Option<Wall>, Failure> {
    let Some(config) = config.filter(|config| config.jobs.contains_key(name)) else { return Ok(None) };
    Ok(schedule(config, name)?.and_then(|schedule| schedule.at_or_before(now)))
}
