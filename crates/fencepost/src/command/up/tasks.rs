//! The jobs of the configuration that are scheduled here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fencepost_core::agenda::Task;
use fencepost_core::lease::Claim;
use fencepost_core::ledger::Trigger;
use fencepost_core::name::{Job, Name};
use fencepost_core::record::Holder;
use fencepost_core::slot::{Asked, Choice, OnLost, Scheduled};

use super::unknown;
use crate::args::StoreErrorChoice;
use crate::calendar::{self, CatchUp};
use crate::command::{job, mint_run};
use crate::config::{self, Config, Located, TTL};
use crate::exit::Failure;
use crate::place::Place;

pub type Scheduling = BTreeMap<Name, ScheduledJob>;

/// A job that has a schedule.
pub struct ScheduledJob {
    pub task: Task,
    pub job: Job,
    scheduled: Scheduled,
    holder: Holder,
}

impl ScheduledJob {
    /// What a run that started now would claim.
    pub fn claim(&self) -> Claim {
        Claim {
            run: mint_run(),
            ttl: self.task.ttl,
            holder: self.holder.clone(),
            slot: Choice::Due(Box::new(self.scheduled.clone())),
            zone: self.scheduled.schedule.zone().name().to_string(),
            trigger: Trigger::Schedule,
        }
    }
}

/// Reads all schedules. A job that was asked for by name has to have one.
pub fn scheduling(place: &Place, config: &Config, names: &[Name]) -> Result<Scheduling, Failure> {
    let all: BTreeSet<Name> = config.jobs.keys().cloned().collect();
    if let Some(name) = unknown(names, &all) {
        let near = config.near(&name).map_or_else(String::new, |near| format!(" Did you mean {near}?"));
        return Err(Failure::Usage(format!("There is no job {name} in {}.{near}", config.path.display())));
    }
    let mut scheduling = Scheduling::new();
    for (name, keys) in &config.jobs {
        let is_named = names.contains(name);
        if !is_named && (!names.is_empty() || !keys.is_enabled()) {
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
            return Err(config.mistake(&keys.at, format!("The job {name} has no command."), hint));
        }
        let terms = CatchUp::default().terms(keys)?;
        let value = |key: &Option<Located<Duration>>| key.as_ref().map(|key| key.value);
        let on_lost = match keys.on_lost {
            Some(config::OnLost::Halt) => OnLost::Halt,
            _ => OnLost::Rerun,
        };
        let task = Task {
            name: name.clone(),
            schedule: schedule.clone(),
            ttl: value(&keys.ttl).unwrap_or(TTL),
            slack: terms.slack,
            runs_without_store: keys.on_store_error == Some(StoreErrorChoice::Run),
        };
        let retries = keys.retries.unwrap_or(0);
        let scheduled = Scheduled { schedule, terms, asked: Asked::Due, on_lost, retries };
        let job = job(name, false, place)?;
        let holder = place.host.holder(std::process::id().cast_signed(), None);
        scheduling.insert(name.clone(), ScheduledJob { task, job, scheduled, holder });
    }
    Ok(scheduling)
}
