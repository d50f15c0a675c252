//! `fencepost plan`: which slots would run now, which are dropped, and why.

use fencepost_core::plan::Due;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_view::plan::{PlanAnswer, PlanQuery};
use fencepost_view::text::length;
use fencepost_view::time::LocalTime;

use crate::args::{Global, PlanOptions};
use crate::calendar;
use crate::exit::{Code, Failure};
use crate::options::{Given, OptionSet};
use crate::place::Place;
use crate::show;

pub fn run(global: &Global, options: &PlanOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let query = query(options, &place)?;
    let store = place.open_to_read()?;
    let Some(planner) = place.ask(store.as_ref(), |view| view.planner(query))? else {
        return Err(Failure::Usage(format!(
            "{} has no schedule: there is nothing to plan. Pass --schedule, or set one in fencepost.toml.",
            options.job
        )));
    };
    let now = match &options.at {
        None => clock::now().wall,
        Some(at) => planner.zone().parse_time(at).map_err(|error| Failure::Usage(format!("--at: {error}")))?,
    };
    let plan = planner.plan(now);
    match global.json {
        true => show::json(&plan),
        false => describe(&plan),
    }
    Ok(Code::DONE)
}

/// Reads the settings from the command line, or else from the configuration.
fn query(options: &PlanOptions, place: &Place) -> Result<PlanQuery, Failure> {
    let (config, typed) = (place.config.as_ref(), &options.typed.0);
    if let Some(config) = config {
        config.refuse_broken(&options.job)?;
    }
    let keys = config.map(|config| config.job(&options.job).clone()).unwrap_or_default();
    let merged = typed.clone().over(&keys);
    let zone = calendar::zone(typed.timezone.value().as_deref(), config, &options.job)?;
    let configured = config.filter(|config| config.jobs.contains_key(&options.job));
    let schedule = match (&typed.schedule, configured) {
        (Some(text), _) => Some(calendar::parse(&text.value, &zone)?),
        (None, Some(config)) => calendar::schedule(config, &options.job)?,
        (None, None) => None,
    };
    let job = super::job(&options.job, typed.per_host(), place)?;
    Ok(PlanQuery { job, schedule, terms: calendar::terms(&merged)?, retries: merged.retries() })
}

fn describe(plan: &PlanAnswer) {
    let shown = |time: &LocalTime| time.zone.show(time.at);
    let (schedule, zone) = (&plan.more.schedule, plan.more.schedule.zone());
    show::line(&format!("schedule  {} ({zone}): {}", schedule.text(), schedule.describe()));
    plan.more.due.iter().for_each(|due| describe_due(due, zone));
    if let Some(dropped) = &plan.dropped {
        show::line(&format!("dropped   {} from {} to {}", dropped.count, shown(&dropped.from), shown(&dropped.to)));
    }
    show::line(&format!("next      {}", plan.next_slot.as_ref().map_or_else(|| "never".to_string(), shown)));
    show::line(&format!("why       {}", plan.reason));
    if let Some(change) = &plan.more.clock_change {
        show::line(&format!("clocks    {change}"));
    }
}

fn describe_due(due: &Due, zone: &Zone) {
    let late = match due.late.as_secs() {
        0 => String::new(),
        _ => format!(", {} late", length(due.late)),
    };
    let covers =
        due.covers.map_or_else(String::new, |gap| format!(", for {} slots since {}", gap.count, zone.show(gap.from)));
    show::line(&format!("run       {} ({}{late}{covers})", zone.show(due.slot), due.trigger.as_str()));
}
