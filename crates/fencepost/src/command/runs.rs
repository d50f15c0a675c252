//! `fencepost runs`: lists how runs ended, newest slot first.

use std::time::Duration;

use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_view::answer::{ErrorAnswer, RunAnswer};
use fencepost_view::moment::{Moment, Range};
use fencepost_view::runs::{RunList, RunsQuery};
use fencepost_view::text::{flat, length, second_in};

use crate::args::{Global, RunsOptions};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;

pub fn run(global: &Global, options: &RunsOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let list = answer(&place, options)?;
    if global.json {
        list.runs.iter().for_each(show::json);
        list.errors.iter().cloned().map(ErrorAnswer::from).for_each(|error| show::json(&error));
    } else {
        show::line(&format!("store   {}", place.shown_store()));
        show::line("");
        // An unreadable record may hold runs.
        if !list.runs.is_empty() || list.errors.is_empty() {
            describe(&list.runs);
        }
    }
    Ok(super::report_unread(global, &list.errors, Code::DONE))
}

/// Asks the store.
pub fn answer(place: &Place, options: &RunsOptions) -> Result<RunList, Failure> {
    let query = RunsQuery {
        job: options.job.clone(),
        statuses: options.status.clone(),
        range: range(options)?,
        limit: options.limit,
    };
    let store = place.open_to_read()?;
    let list = place.ask(store.as_ref(), |view| view.runs(&query))?;
    if let Some(job) = options.job.as_ref().filter(|_| list.runs.is_empty() && list.errors.is_empty()) {
        super::must_be_known(place, store.as_ref(), &job.name)?;
    }
    Ok(list)
}

fn describe(runs: &[RunAnswer]) {
    if runs.is_empty() {
        return show::line("No runs.");
    }
    let heading = ["SLOT", "JOB", "STATUS", "TOOK", "EXIT", "TOKEN", "HOST", "NOTE"];
    show::table(&heading, &runs.iter().map(row).collect::<Vec<_>>());
}

fn range(options: &RunsOptions) -> Result<Range, Failure> {
    let moment = |option: &str, text: &Option<String>| text.as_deref().map(|text| moment(option, text)).transpose();
    let zone = options.tz.as_ref().map(|zone| Zone::parse(zone)).transpose();
    Ok(Range {
        since: moment("--since", &options.since)?,
        until: moment("--until", &options.until)?,
        zone: zone.map_err(|error| Failure::Usage(format!("--tz: {error}")))?,
    })
}

/// Parses a moment from the command line, for every option that takes one.
pub fn moment(option: &str, text: &str) -> Result<Moment, Failure> {
    Moment::parse(text, clock::now().wall).map_err(|error| Failure::Usage(format!("{option}: {error}.")))
}

fn row(run: &RunAnswer) -> Vec<String> {
    let dash = || "-".to_string();
    let covers = run.count.map(|count| format!("× {count}"));
    let note = run.note.as_deref().map(flat);
    vec![
        second_in(run.slot.at, &run.slot.zone),
        run.job.clone(),
        run.status.to_string(),
        run.duration_ms.map_or_else(dash, |millis| length(Duration::from_millis(millis))),
        run.exit_code.map_or_else(dash, |code| code.to_string()),
        run.token.to_string(),
        run.host.clone(),
        covers.into_iter().chain(note).collect::<Vec<_>>().join(" "),
    ]
}
