//! `fencepost plan`: which slots would run now, which are dropped, and why.

use fencepost_core::name::Job;
use fencepost_core::plan::Due;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_guard::transact::look;
use fencepost_store::Store;
use fencepost_view::answer::AnswerVersion;
use fencepost_view::plan::{PlanAllAnswer, PlanAnswer, PlanQuery, PlannedJob};
use fencepost_view::text::length;
use fencepost_view::time::LocalTime;

use crate::args::{Global, PlanOptions};
use crate::calendar;
use crate::config::Config;
use crate::exit::{Code, Failure};
use crate::options::{Given, OptionSet};
use crate::place::Place;
use crate::show;

pub fn run(global: &Global, options: &PlanOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let answer = answer(&place, options)?;
    match (&answer, global.json) {
        (Planned::One(plan), true) => show::json(plan.as_ref()),
        (Planned::All(all), true) => show::json(all),
        (Planned::One(plan), false) => describe(plan),
        (Planned::All(all), false) => describe_all(all, &place),
    }
    Ok(match &answer {
        Planned::One(_) => Code::DONE,
        Planned::All(all) => super::report_unread(global, &all.errors, Code::DONE),
    })
}

/// The plan of one job, or of all.
pub enum Planned {
    One(Box<PlanAnswer>),
    All(PlanAllAnswer),
}

/// Asks the store and the configuration.
pub fn answer(place: &Place, options: &PlanOptions) -> Result<Planned, Failure> {
    match &options.job {
        Some(job) => one(options, place, job).map(|plan| Planned::One(Box::new(plan))),
        None => all(options, place).map(Planned::All),
    }
}

fn one(options: &PlanOptions, place: &Place, asked: &Job) -> Result<PlanAnswer, Failure> {
    let (name, job) = (&asked.name, asked.host().is_some().then(|| asked.clone()));
    let job = job.map_or_else(|| super::job(name, options.typed.0.per_host(), place), Ok)?;
    let query = query(options, place, job)?;
    let store = place.open_to_read()?;
    if let Some(plan) = plan(options, place, store.as_ref(), query)? {
        return Ok(plan);
    }
    super::must_be_known(place, store.as_ref(), name)?;
    Err(Failure::Usage(format!(
        "{name} has no schedule: there is nothing to plan. Pass --schedule, or set one in fencepost.toml."
    )))
}

/// Plans every job that has a schedule, by the configuration or by its last run.
fn all(options: &PlanOptions, place: &Place) -> Result<PlanAllAnswer, Failure> {
    if options.typed.0.schedule.is_some() || options.typed.0.per_host() {
        return Err(Failure::Usage(
            "--schedule and --per-host are about one job. Name it, as in: fencepost plan report --schedule @daily"
                .into(),
        ));
    }
    let store = place.open_to_read()?;
    let (jobs, errors) = super::all_jobs(place, store.as_ref())?;
    let broken = place.config.iter().flat_map(Config::broken_answers).collect();
    let mut answer = PlanAllAnswer { v: AnswerVersion, jobs: Vec::new(), broken, errors };
    for job in jobs {
        let is_broken = |config: &Config| config.broken.contains_key(job.name.as_str());
        // Its record cannot be read: that is in the answer already.
        if place.config.as_ref().is_some_and(is_broken) || look(store.as_ref(), &job).is_err() {
            continue;
        }
        let name = job.to_string();
        if let Some(plan) = plan(options, place, store.as_ref(), query(options, place, job)?)? {
            answer.jobs.push(PlannedJob { job: name, plan });
        }
    }
    Ok(answer)
}

fn plan(
    options: &PlanOptions,
    place: &Place,
    store: &dyn Store,
    query: PlanQuery,
) -> Result<Option<PlanAnswer>, Failure> {
    let Some(planner) = place.ask(store, |view| view.planner(query))? else { return Ok(None) };
    let now = match &options.at {
        None => clock::now().wall,
        Some(at) => planner.zone().parse_time(at).map_err(|error| Failure::Usage(format!("--at: {error}")))?,
    };
    Ok(Some(planner.plan(now)))
}

/// Reads the settings from the command line, or else from the configuration.
fn query(options: &PlanOptions, place: &Place, job: Job) -> Result<PlanQuery, Failure> {
    let (config, typed, name) = (place.config.as_ref(), &options.typed.0, &job.name);
    if let Some(config) = config {
        config.refuse_broken(name)?;
    }
    let keys = config.map(|config| config.job(name).clone()).unwrap_or_default();
    let merged = typed.clone().over(&keys);
    let zone = calendar::zone(typed.timezone.value().as_deref(), config, name)?;
    let configured = config.filter(|config| config.jobs.contains_key(name));
    let schedule = match (&typed.schedule, configured) {
        (Some(text), _) => Some(calendar::parse(&text.value, &zone)?),
        (None, Some(config)) => calendar::schedule(config, name)?,
        (None, None) => None,
    };
    Ok(PlanQuery { job, schedule, terms: calendar::terms(&merged)?, retries: merged.retries() })
}

fn describe_all(answer: &PlanAllAnswer, place: &Place) {
    for (number, planned) in answer.jobs.iter().enumerate() {
        if number > 0 {
            show::line("");
        }
        show::line(&planned.job);
        describe(&planned.plan);
    }
    if answer.jobs.is_empty() {
        show::line("No job has a schedule. Try: fencepost plan report --schedule '0 7 * * *'");
    }
    for broken in &answer.broken {
        show::line("");
        show::line(&show::flat(&broken.sentence(place.shown_config().as_deref())));
    }
}

fn describe(plan: &PlanAnswer) {
    let shown = |time: &LocalTime| show::second_in(time.at, &time.zone);
    let (schedule, zone) = (&plan.more.schedule, plan.more.schedule.zone());
    show::line(&format!("schedule  {} ({zone}): {}", schedule.written(), schedule.describe()));
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
    let covers = due
        .covers
        .map_or_else(String::new, |gap| format!(", for {} slots since {}", gap.count, show::second_in(gap.from, zone)));
    show::line(&format!("run       {} ({}{late}{covers})", show::second_in(due.slot, zone), due.trigger.as_str()));
}
