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
use crate::config::{self, CatchUpMode, CatchUpOrder, Config, JobConfig, Located, Mistake, SlotUnit};
use crate::exit::Failure;

pub use fencepost_view::plan::YEAR;

/// The zone of a job: the one of the command line, the job's, the configuration's, or UTC. Never the machine's.
pub fn zone(given: Option<&str>, config: Option<&Config>, name: &Name) -> Result<Zone, Failure> {
    if let Some(given) = given {
        return Zone::parse(given).map_err(|error| Failure::Usage(format!("--tz: {error}")));
    }
    let Some(config) = config else { return Ok(Zone::utc()) };
    written_zone(config, config.job(name)).map_err(|mistake| config.failure(&mistake))
}

/// The zone that the configuration gives a job.
pub fn written_zone(config: &Config, keys: &JobConfig) -> Result<Zone, Mistake> {
    match keys.timezone.as_ref().or(config.timezone.as_ref()) {
        None => Ok(Zone::utc()),
        Some(written) => Zone::parse(&written.value).map_err(|error| Mistake::at(written, error.to_string(), None)),
    }
}

/// When a job is due, as the configuration writes it.
pub fn written_schedule(keys: &JobConfig, zone: &Zone) -> Result<Option<Schedule>, Mistake> {
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

fn schedule_in(config: &Config, keys: &JobConfig, zone: &Zone) -> Result<Option<Schedule>, Failure> {
    written_schedule(keys, zone).map_err(|mistake| config.failure(&mistake))
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

/// What the command line says about slots, or else the configuration.
pub fn slot_rule(
    options: &RunOptions,
    config: Option<&Config>,
    keys: &JobConfig,
    zone: &Zone,
) -> Result<SlotRule, Failure> {
    let RunOptions { basics, more } = options;
    let on_lost = match more.on_lost.or(keys.on_lost) {
        Some(config::OnLost::Halt) => OnLost::Halt,
        _ => OnLost::Rerun,
    };
    let retries = more.retries.or(keys.retries).unwrap_or(0);
    let given = CatchUp {
        slack: more.slack,
        catch_up: more.catch_up,
        within: more.catch_up_within,
        mode: more.catch_up_mode,
        order: more.catch_up_order,
        spacing: more.catch_up_spacing,
    };
    let repeat = if more.again { Repeat::Again } else { Repeat::No };
    let named = Named { slot: Wall(0), repeat, on_lost, retries, slack: None };
    if let Some(text) = &more.slot {
        return named_slot(text, Named { slack: Some(given.unchecked(keys).slack), ..named }, zone);
    }
    let schedule = match (&more.schedule, more.every) {
        (Some(text), _) => Some(parse(text, zone)?),
        (None, Some(every)) => Some(parse(&every_text(every), zone)?),
        (None, None) => match config.filter(|config| config.jobs.contains_key(&basics.job)) {
            Some(config) => schedule_in(config, keys, zone)?,
            None => None,
        },
    };
    let Some(schedule) = schedule else {
        return match keys.slot {
            Some(unit) => Ok(SlotRule::Unit(unit, named)),
            None if more.now || more.again => Err(Failure::Usage(format!(
                "{} has no schedule and no slots, so that there is nothing to do again or early. Leave --now and \
                 --again out, or give --schedule or --slot.",
                basics.job
            ))),
            None => Ok(SlotRule::None { on_lost, retries }),
        };
    };
    let asked = match (more.now, more.again) {
        (true, _) => Asked::Now,
        (_, true) => Asked::Again,
        _ => Asked::Due,
    };
    Ok(SlotRule::Due(Box::new(Scheduled { schedule, terms: given.terms(keys)?, asked, on_lost, retries })))
}

/// What a command line may say about catching up.
#[derive(Clone, Copy, Debug, Default)]
pub struct CatchUp {
    pub slack: Option<Duration>,
    pub catch_up: Option<u32>,
    pub within: Option<Duration>,
    pub mode: Option<CatchUpMode>,
    pub order: Option<CatchUpOrder>,
    pub spacing: Option<Duration>,
}

impl CatchUp {
    pub fn terms(self, keys: &JobConfig) -> Result<plan::Terms, Failure> {
        let terms = self.unchecked(keys);
        terms.check().map_err(|error| Failure::Usage(format!("--catch-up: {error}")))?;
        Ok(terms)
    }

    /// The same, whether or not it can be kept.
    pub fn unchecked(self, keys: &JobConfig) -> plan::Terms {
        let key = |key: &Option<Located<Duration>>| key.as_ref().map(|key| key.value);
        let built_in = plan::Terms::default();
        plan::Terms {
            catch_up: self.catch_up.or(keys.catch_up.as_ref().map(|key| key.value)).unwrap_or(built_in.catch_up),
            within: self.within.or(key(&keys.catch_up_within)),
            mode: match self.mode.or(keys.catch_up_mode) {
                Some(CatchUpMode::Collapse) => plan::Mode::Collapse,
                _ => plan::Mode::Each,
            },
            order: match self.order.or(keys.catch_up_order) {
                Some(CatchUpOrder::Newest) => plan::Order::NewestFirst,
                _ => plan::Order::OldestFirst,
            },
            spacing: self.spacing.or(key(&keys.catch_up_spacing)).unwrap_or(built_in.spacing),
            slack: self.slack.or(key(&keys.slack)).unwrap_or(built_in.slack),
        }
    }
}

fn named_slot(text: &str, named: Named, zone: &Zone) -> Result<SlotRule, Failure> {
    let unit = match text {
        "day" => Some(SlotUnit::Day),
        "hour" => Some(SlotUnit::Hour),
        "minute" => Some(SlotUnit::Minute),
        _ => None,
    };
    if let Some(unit) = unit {
        // The unit has begun by the clock of this host; other clocks do not matter.
        return Ok(SlotRule::Unit(unit, Named { slack: None, ..named }));
    }
    let slot = zone
        .parse_time(text)
        .map_err(|error| Failure::Usage(format!("--slot is day, hour, minute or a time: {error}")))?;
    Ok(SlotRule::Instant(Named { slot, ..named }))
}

pub fn parse(text: &str, zone: &Zone) -> Result<Schedule, Failure> {
    Schedule::parse(text, zone).map_err(|error| Failure::Usage(format!("--schedule: {error}")))
}
