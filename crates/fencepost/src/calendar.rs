//! Which zone a job lives in, and when it is due.

use std::time::Duration;

use fencepost_core::artifact::Fingerprint;
use fencepost_core::name::Name;
use fencepost_core::plan;
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::{Asked, Choice, Named, OnLost, OnUnknown, Repeat, Scheduled};
use fencepost_core::time::Wall;
use fencepost_core::zone::{Date, Zone};

use crate::args::RunOptions;
use crate::config::{Config, Mistake};
use crate::exit::Failure;
use crate::options::{Given, JobOptions, SlotUnit, WrittenSlot};

pub use fencepost_view::plan::YEAR;

/// The zone of a job: the one of the command line, the job's, the configuration's, or UTC. Never the machine's.
pub fn zone(given: Option<&str>, config: Option<&Config>, name: &Name) -> Result<Zone, Failure> {
    if let Some(given) = given {
        return Zone::parse(given).map_err(|error| Failure::Usage(format!("--tz: {error}")));
    }
    let Some(config) = config else { return Ok(Zone::utc()) };
    let zone = written_zone(config, config.job(name));
    if zone.is_err() && config.broken.contains_key(name.as_str()) {
        // For people who ask about the job: it does not run.
        return zone_of_all(None, Some(config));
    }
    zone.map_err(|mistake| config.failure(&mistake))
}

/// The zone that the configuration gives a job.
pub fn written_zone(config: &Config, keys: &JobOptions) -> Result<Zone, Mistake> {
    match keys.timezone.as_ref().or(config.top.timezone.as_ref()) {
        None => Ok(Zone::utc()),
        Some(written) => Zone::parse(&written.value).map_err(|error| Mistake::at(written, error.to_string(), None)),
    }
}

/// When a job is due, as the configuration writes it.
pub fn written_schedule(keys: &JobOptions, zone: &Zone) -> Result<Option<Schedule>, Mistake> {
    if let Some(written) = &keys.schedule {
        let parsed = Schedule::parse(&written.value, zone);
        return parsed.map(Some).map_err(|error| Mistake::at(written, error.to_string(), None));
    }
    let Some(every) = &keys.every else { return Ok(None) };
    let parsed = Schedule::parse(&every_text(every.value), zone);
    parsed.map(Some).map_err(|error| Mistake::at(every, error.to_string(), None))
}

/// When a job of the configuration is due, if it says so.
pub fn schedule(config: &Config, name: &Name) -> Result<Option<Schedule>, Failure> {
    let zone = zone(None, Some(config), name)?;
    schedule_in(config, config.job(name), &zone)
}

fn schedule_in(config: &Config, keys: &JobOptions, zone: &Zone) -> Result<Option<Schedule>, Failure> {
    written_schedule(keys, zone).map_err(|mistake| config.failure(&mistake))
}

/// An interval as a schedule is written.
pub fn every_text(every: Duration) -> String {
    match every.subsec_millis() {
        0 => format!("every {}s", every.as_secs()),
        _ => format!("every {}ms", every.as_millis()),
    }
}

/// The zone of a verb that is about no single job: the one of the command line, the configuration's, or UTC.
pub fn zone_of_all(given: Option<&str>, config: Option<&Config>) -> Result<Zone, Failure> {
    match (given, config.and_then(|config| Some((config, config.top.timezone.as_ref()?)))) {
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
            let day = Date::parse(date).and_then(|date| zone.day(date));
            let (first, end) = day.map_err(|error| Failure::Usage(format!("--date: {error}")))?;
            Ok(Some(Wall(end.0 - 1).min(now.max(first))))
        }
        (None, None) => Ok(None),
    }
}

/// The newest slot of a job that is due, if the configuration knows its schedule.
pub fn last_due(config: Option<&Config>, name: &Name, now: Wall) -> Result<Option<Wall>, Failure> {
    let Some(config) = config.filter(|config| config.jobs.contains_key(name)) else { return Ok(None) };
    Ok(schedule(config, name)?.and_then(|schedule| schedule.at_or_before(now)))
}

/// How the slot of a run is found.
#[derive(Clone, Debug)]
pub enum SlotRule {
    /// There are no slots: every run stands for itself.
    None {
        on_lost: OnLost,
        retries: u32,
    },
    /// The day, hour or minute in which it starts takes the place of the slot.
    Unit(SlotUnit, Named),
    Instant(Named),
    Due(Box<Scheduled>),
    /// An item of work that is done once.
    Once {
        params: Option<Fingerprint>,
        on_unknown: OnUnknown,
    },
}

impl SlotRule {
    /// What a run that starts now claims.
    pub fn choice(&self, zone: &Zone, now: Wall) -> Choice {
        match self {
            Self::None { .. } => Choice::At(now),
            Self::Unit(unit, named) => Choice::Slot(Named { slot: begun(*unit, zone, now), ..*named }),
            Self::Instant(named) => Choice::Slot(*named),
            Self::Due(scheduled) => Choice::Due(scheduled.clone()),
            Self::Once { params, on_unknown } => Choice::Once { params: *params, on_unknown: *on_unknown },
        }
    }

    /// The same slot once more, after an attempt failed.
    pub fn retry(&self, slot: Wall) -> Choice {
        let retry = |on_lost, retries, is_again| {
            let repeat = if is_again { Repeat::Again } else { Repeat::Retry };
            Choice::Slot(Named { slot, repeat, on_lost, retries, slack: None })
        };
        match self {
            Self::None { on_lost, retries } => retry(*on_lost, *retries, false),
            Self::Unit(_, named) | Self::Instant(named) => {
                retry(named.on_lost, named.retries, named.repeat == Repeat::Again)
            }
            Self::Due(due) => retry(due.on_lost, due.retries, due.asked == Asked::Again),
            Self::Once { params, on_unknown } => Choice::Once { params: *params, on_unknown: *on_unknown },
        }
    }

    pub fn scheduled(&self) -> Option<&Scheduled> {
        match self {
            Self::Due(scheduled) => Some(scheduled),
            _ => None,
        }
    }
}

/// The start of the day, hour or minute, by the clocks of the zone.
fn begun(unit: SlotUnit, zone: &Zone, now: Wall) -> Wall {
    let day = zone.start_of_day(zone.date(now));
    let unit = match unit {
        SlotUnit::Day => return day,
        SlotUnit::Hour => 3_600_000,
        SlotUnit::Minute => 60_000,
    };
    Wall(now.0 - (now.0 - day.0).rem_euclid(unit))
}

/// How the slot of a run is found: what the command line says, or else the configuration. `merged` has the options of both.
pub fn slot_rule(
    run: &RunOptions,
    config: Option<&Config>,
    merged: &JobOptions,
    zone: &Zone,
) -> Result<SlotRule, Failure> {
    let typed = &run.typed.0;
    let (on_lost, retries) = (merged.on_lost(), merged.retries());
    let repeat = if run.again { Repeat::Again } else { Repeat::No };
    let named = Named { slot: Wall(0), repeat, on_lost, retries, slack: None };
    if let Some(slot) = &typed.slot {
        return named_slot(&slot.value, Named { slack: Some(merged.slack()), ..named }, zone);
    }
    let schedule = match (&typed.schedule, &typed.every) {
        (Some(text), _) => Some(parse(&text.value, zone)?),
        (None, Some(every)) => Some(parse(&every_text(every.value), zone)?),
        (None, None) => match config.filter(|config| config.jobs.contains_key(&run.job)) {
            Some(config) => schedule_in(config, merged, zone)?,
            None => None,
        },
    };
    let Some(schedule) = schedule else {
        return match merged.slot.value() {
            Some(slot) => named_slot(&slot, named, zone),
            None if run.now || run.again => Err(Failure::Usage(format!(
                "{} has no schedule and no slots, so that there is nothing to do again or early. Leave --now and \
                 --again out, or give --schedule or --slot.",
                run.job
            ))),
            None => Ok(SlotRule::None { on_lost, retries }),
        };
    };
    let asked = match (run.now, run.again) {
        (true, _) => Asked::Now,
        (_, true) => Asked::Again,
        _ => Asked::Due,
    };
    Ok(SlotRule::Due(Box::new(Scheduled { schedule, terms: terms(merged)?, asked, on_lost, retries })))
}

/// How much is caught up, and how, if that can be kept.
pub fn terms(options: &JobOptions) -> Result<plan::CatchUpTerms, Failure> {
    let terms = unchecked_terms(options);
    terms.check().map_err(|error| Failure::Usage(format!("--catch-up: {error}")))?;
    Ok(terms)
}

/// How much is caught up, and how, whether or not it can be kept.
pub fn unchecked_terms(options: &JobOptions) -> plan::CatchUpTerms {
    plan::CatchUpTerms {
        catch_up: options.catch_up(),
        within: options.catch_up_within.value(),
        mode: options.catch_up_mode(),
        order: options.catch_up_order(),
        spacing: options.catch_up_spacing(),
        slack: options.slack(),
    }
}

fn named_slot(written: &WrittenSlot, named: Named, zone: &Zone) -> Result<SlotRule, Failure> {
    let text = match written {
        // The unit has begun by the clock of this host; other clocks do not matter.
        WrittenSlot::Unit(unit) => return Ok(SlotRule::Unit(*unit, Named { slack: None, ..named })),
        WrittenSlot::At(text) => text,
    };
    let slot = zone
        .parse_time(text)
        .map_err(|error| Failure::Usage(format!("--slot is day, hour, minute or a time: {error}")))?;
    Ok(SlotRule::Instant(Named { slot, ..named }))
}

pub fn parse(text: &str, zone: &Zone) -> Result<Schedule, Failure> {
    Schedule::parse(text, zone).map_err(|error| Failure::Usage(format!("--schedule: {error}")))
}
