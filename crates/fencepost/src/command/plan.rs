//! `fencepost plan`: which slots would run now, which are dropped, and why.

use fencepost_core::lease::Honest;
use fencepost_core::plan::Plan;
use fencepost_core::record::Record;
use fencepost_core::slot::{Asked, OnLost, Scheduled, Standing};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_guard::transact::look;
use serde::Serialize;

use crate::args::{Global, PlanOptions};
use crate::calendar::{self, CatchUp, YEAR};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;
use crate::upstreams;

pub fn run(global: &Global, options: &PlanOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let job = super::job(&options.job, options.per_host, &place)?;
    let (record, clock) = look(place.open_to_read()?.as_ref(), &job)?;
    let is_over = record.as_ref().is_some_and(|record| place.is_over(record, clock.as_ref()));
    let scheduled = scheduled(options, &place, record.as_ref())?;
    let zone = scheduled.schedule.zone();
    let now = match &options.at {
        None => clock::now().wall,
        Some(at) => zone.parse_time(at).map_err(|error| Failure::Usage(format!("--at: {error}")))?,
    };
    let standing = if is_over { Standing::Over } else { Standing::Stands };
    let (_, plan) = scheduled.plan::<Honest>(record.as_ref(), standing, now);
    let reason = reason(&plan, &scheduled, record.as_ref());
    match global.json {
        true => show::json(&PlanJson::of(&plan, reason, zone, now)),
        false => describe(&scheduled, &plan, &reason, now),
    }
    Ok(Code::DONE)
}

/// What the command line says, or else the configuration, or else what the job's last run said.
fn scheduled(options: &PlanOptions, place: &Place, record: Option<&Record>) -> Result<Scheduled, Failure> {
    let config = place.config.as_ref();
    let keys = config.map(|config| config.job(&options.job).clone()).unwrap_or_default();
    let zone = calendar::zone(options.tz.as_deref(), config, &options.job)?;
    let configured = config.filter(|config| config.jobs.contains_key(&options.job));
    let schedule = match (&options.schedule, configured) {
        (Some(text), _) => Some(calendar::parse(text, &zone)?),
        (None, Some(config)) => calendar::schedule(config, &options.job)?,
        (None, None) => None,
    };
    let Some(schedule) = schedule.or_else(|| record.and_then(upstreams::recorded_schedule)) else {
        return Err(Failure::Usage(format!(
            "{} has no schedule, so that there is nothing to plan. Give --schedule, or write it in fencepost.toml.",
            options.job
        )));
    };
    let given = CatchUp {
        slack: options.slack,
        catch_up: options.catch_up,
        within: options.catch_up_within,
        mode: options.catch_up_mode,
        ..CatchUp::default()
    };
    let (terms, retries) = (given.terms(&keys)?, keys.retries.unwrap_or(0));
    Ok(Scheduled { schedule, terms, asked: Asked::Due, on_lost: OnLost::default(), retries })
}

fn reason(plan: &Plan, scheduled: &Scheduled, record: Option<&Record>) -> String {
    let reason = plan.reason(&scheduled.terms, scheduled.schedule.zone());
    match record.and_then(|record| record.paused.as_ref()) {
        None => reason,
        Some(paused) => format!("The job is paused, from {}: no trigger runs it. {reason}", paused.by),
    }
}

fn describe(scheduled: &Scheduled, plan: &Plan, reason: &str, now: Wall) {
    let zone = scheduled.schedule.zone();
    show::line(&format!("schedule  {} ({zone}): {}", scheduled.schedule.text(), scheduled.schedule.describe()));
    for due in &plan.run {
        let late = match due.late.as_secs() {
            0 => String::new(),
            _ => format!(", {} late", crate::duration::show(due.late)),
        };
        let covers = due
            .covers
            .map_or_else(String::new, |gap| format!(", for {} slots since {}", gap.count, zone.show(gap.from)));
        show::line(&format!("run       {} ({}{late}{covers})", zone.show(due.slot), due.trigger.as_str()));
    }
    if let Some(gap) = plan.dropped {
        show::line(&format!("dropped   {} from {} to {}", gap.count, zone.show(gap.from), zone.show(gap.to)));
    }
    show::line(&format!(
        "next      {}",
        plan.upcoming(now).map_or_else(|| "never".to_string(), |next| zone.show(next))
    ));
    show::line(&format!("why       {reason}"));
    if let Some(change) = scheduled.schedule.dst_within(now, YEAR) {
        show::line(&format!("clocks    {change}"));
    }
}

#[derive(Serialize)]
struct PlanJson {
    v: u32,
    run: Vec<String>,
    dropped: Option<DroppedJson>,
    next_slot: Option<String>,
    reason: String,
}

#[derive(Serialize)]
struct DroppedJson {
    count: u64,
    from: String,
    to: String,
}

impl PlanJson {
    fn of(plan: &Plan, reason: String, zone: &Zone, now: Wall) -> Self {
        Self {
            v: 1,
            run: plan.run.iter().map(|due| zone.show(due.slot)).collect(),
            dropped: plan.dropped.map(|gap| DroppedJson {
                count: gap.count,
                from: zone.show(gap.from),
                to: zone.show(gap.to),
            }),
            next_slot: plan.upcoming(now).map(|next| zone.show(next)),
            reason,
        }
    }
}
