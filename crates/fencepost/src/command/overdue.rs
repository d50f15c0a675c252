//! `fencepost overdue`: slots that passed with nothing recorded by any machine. A dead man's switch in one cron line.

use std::time::{Duration, SystemTime};

use fencepost_core::name::{Job, Name};
use fencepost_core::overdue::overdue;
use fencepost_core::plan::Gap;
use fencepost_core::record::Record;
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::Standing;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_guard::clock;
use fencepost_guard::transact::look;
use fencepost_store::Store;
use serde::Serialize;

use super::Damage;
use crate::args::Global;
use crate::args::operate::OverdueOptions;
use crate::calendar::{self, CatchUp};
use crate::config::{Config, JobConfig};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::Voice;
use crate::show;
use crate::upstreams::recorded_schedule;

pub fn run(global: &Global, options: &OverdueOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let now = clock::now().wall;
    if place.config.is_none() {
        place.must_exist()?;
    }
    // It may run under a database role that can only read, so it opens the store to read.
    let store = place.open_to_read()?;
    let desk = Desk { place: &place, store: store.as_ref(), grace: options.grace, now };
    let mut damage = Damage::default();
    let findings = match &place.config {
        Some(config) => desk.of_config(config, &mut damage)?,
        None => desk.of_records(&mut damage)?,
    };
    let voice = Voice::of(global);
    if global.json {
        print_json(&place, &findings, &damage);
    } else if !global.quiet {
        findings.iter().filter_map(|finding| finding.sentence(now)).for_each(|sentence| show::line(&sentence));
        for finding in findings.iter().filter(|finding| finding.paused) {
            voice.tell(&format!("{} is paused, and so not overdue.", finding.job));
        }
    }
    let is_overdue = findings.iter().any(|finding| finding.gap.is_some());
    Ok(damage.report(global, if is_overdue { Code::REFUSED } else { Code::DONE }))
}

/// Where is looked, and as of when.
struct Desk<'a> {
    place: &'a Place,
    store: &'a dyn Store,
    grace: Option<Duration>,
    now: Wall,
}

/// A job that is overdue, or would be if it were not paused.
#[derive(Debug)]
struct Finding {
    job: Job,
    schedule: Schedule,
    gap: Option<Gap>,
    paused: bool,
    last_ok: Option<Wall>,
    /// The host on which a run of it began that nobody has heard of since.
    died_on: Option<String>,
}

impl Desk<'_> {
    fn of_config(&self, config: &Config, damage: &mut Damage) -> Result<Vec<Finding>, Failure> {
        let floor = written_at(config).unwrap_or(self.now);
        let mut findings = Vec::new();
        for (name, keys) in config.jobs.iter().filter(|(_, keys)| keys.is_enabled()) {
            let Some(schedule) = calendar::schedule(config, name)? else { continue };
            for (job, record, clock) in self.records(name, keys, damage)? {
                let grace = self.grace.unwrap_or_else(|| CatchUp::default().unchecked(keys).slack);
                findings.extend(self.judge(job, &schedule, record.as_ref(), clock.as_ref(), floor, grace));
            }
        }
        Ok(findings)
    }

    /// The record of a job, or those of all hosts if it is each host's own.
    fn records(&self, name: &Name, keys: &JobConfig, damage: &mut Damage) -> Result<Vec<Known>, Failure> {
        let own = super::job(name, false, self.place)?;
        let mut found = Vec::new();
        if keys.per_host == Some(true) {
            super::each_record(self.store, damage, |_, record, clock| {
                if record.job.name == *name && record.job.host().is_some() {
                    found.push((record.job.clone(), Some(record), clock.cloned()));
                }
                Ok(())
            })?;
        }
        if !found.iter().any(|(job, ..)| *job == own) {
            // Of a record that cannot be read it is not known whether the job is overdue.
            if let Some((record, clock)) = damage.noted(look(self.store, &own))? {
                found.push((own, record, clock));
            }
        }
        Ok(found)
    }

    /// Every job that once ran by a schedule.
    fn of_records(&self, damage: &mut Damage) -> Result<Vec<Finding>, Failure> {
        let mut findings = Vec::new();
        super::each_record(self.store, damage, |_, record, clock| {
            let schedule = recorded_schedule(&record).filter(|_| !record.job.is_once());
            if let Some(schedule) = schedule {
                let grace = self.grace.unwrap_or_else(|| fencepost_core::plan::Terms::default().slack);
                findings.extend(self.judge(record.job.clone(), &schedule, Some(&record), clock, self.now, grace));
            }
            Ok(())
        })?;
        Ok(findings)
    }

    fn judge(
        &self,
        job: Job,
        schedule: &Schedule,
        record: Option<&Record>,
        clock: Option<&StoreClock>,
        floor: Wall,
        grace: Duration,
    ) -> Option<Finding> {
        let is_over = record.is_some_and(|record| self.place.is_over(record, clock));
        let standing = if is_over { Standing::Over } else { Standing::Stands };
        let by = Wall(self.now.0.saturating_sub(i64::try_from(grace.as_millis()).unwrap_or(i64::MAX)));
        let gap = overdue(schedule, record, standing, floor, by);
        let paused = record.is_some_and(|record| record.paused.is_some());
        if gap.is_none() && !paused {
            return None;
        }
        let died = record.and_then(|record| record.lease.as_ref()).filter(|lease| lease.holder.is_run());
        Some(Finding {
            job,
            schedule: schedule.clone(),
            gap: gap.filter(|_| !paused),
            paused,
            last_ok: record.and_then(|record| record.ledger.last_ok.as_ref()).map(|last| last.finished),
            died_on: died.map(|lease| lease.holder.host.clone()),
        })
    }
}

type Known = (Job, Option<Record>, Option<StoreClock>);

/// When the file was last changed: nothing is expected of a job from before that which was never seen.
pub fn written_at(config: &Config) -> Option<Wall> {
    let changed = std::fs::metadata(&config.path).ok()?.modified().ok()?;
    let since = changed.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Wall)
}

impl Finding {
    fn sentence(&self, now: Wall) -> Option<String> {
        let gap = self.gap?;
        let zone = self.schedule.zone();
        let others = match gap.count {
            0 | 1 => String::new(),
            2 => ", nor for the one after it".to_string(),
            many => format!(", nor for {} after it", many - 1),
        };
        let died = self.died_on.as_ref().map(|host| format!(" A run of it on {host} did not end properly."));
        let last = match self.last_ok {
            None => "never ok".to_string(),
            Some(last) => format!("last ok {}", show::time_for_people(last, now, zone)),
        };
        Some(format!(
            "{}: nothing is recorded for its slot {}{others}; {last}.{}",
            self.job,
            show::time_for_people(gap.from, now, zone),
            died.unwrap_or_default()
        ))
    }

    fn json(&self, gap: Gap) -> FindingJson {
        let zone = self.schedule.zone();
        FindingJson {
            job: self.job.to_string(),
            slot: zone.show(gap.from),
            slot_to: zone.show(gap.to),
            count: gap.count,
            last_ok: self.last_ok.map(|last| zone.show(last)),
            schedule: self.schedule.text().to_string(),
            timezone: zone.name().to_string(),
        }
    }
}

fn print_json(place: &Place, findings: &[Finding], damage: &Damage) {
    show::json(&OverdueJson {
        v: 1,
        store: place.shown_store(),
        config: place.shown_config(),
        overdue: findings.iter().filter_map(|finding| finding.gap.map(|gap| finding.json(gap))).collect(),
        paused: findings.iter().filter(|finding| finding.paused).map(|finding| finding.job.to_string()).collect(),
        unreadable: damage.sentences(),
    });
}

#[derive(Serialize)]
struct OverdueJson {
    v: u32,
    store: String,
    config: Option<String>,
    overdue: Vec<FindingJson>,
    paused: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct FindingJson {
    job: String,
    slot: String,
    slot_to: String,
    count: u64,
    last_ok: Option<String>,
    schedule: String,
    timezone: String,
}
