//! `fencepost runs`: how recent runs ended, newest first.

use fencepost_core::time::Wall;

use crate::args::{Global, RunsOptions};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::length;
use crate::show::{self, RunJson};

pub fn run(global: &Global, options: &RunsOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let store = place.open()?;
    let mut runs: Vec<(Wall, RunJson)> = Vec::new();
    super::each_record(store.as_ref(), |record, clock| {
        if options.job.as_ref().is_none_or(|name| record.job.name == *name) {
            let since = record.lease.as_ref().map(|lease| lease.since);
            runs.extend(since.zip(RunJson::unrecorded(&record, place.is_over(&record, clock))));
            runs.extend(record.ledger.ring.iter().map(|outcome| (outcome.started, RunJson::ended(&record, outcome))));
        }
        Ok(())
    })?;
    runs.retain(|(_, run)| options.status.is_empty() || options.status.iter().any(|s| s.as_str() == run.status));
    runs.sort_by_key(|(started, _)| std::cmp::Reverse(*started));
    runs.truncate(options.limit);
    if global.json {
        runs.iter().for_each(|(_, run)| show::json(run));
        return Ok(Code::DONE);
    }
    show::line(&format!("store   {}", place.shown_store()));
    show::line("");
    if runs.is_empty() {
        show::line("No runs.");
        return Ok(Code::DONE);
    }
    let heading = ["STARTED", "JOB", "STATUS", "TOOK", "EXIT", "TOKEN", "HOST", "NOTE"];
    show::table(&heading, &runs.iter().map(|(started, run)| row(*started, run)).collect::<Vec<_>>());
    Ok(Code::DONE)
}

fn row(started: Wall, run: &RunJson) -> Vec<String> {
    let dash = || "-".to_string();
    vec![
        show::second(started),
        run.job.clone(),
        run.status.to_string(),
        run.duration_ms.map_or_else(dash, |millis| length(std::time::Duration::from_millis(millis))),
        run.exit_code.map_or_else(dash, |code| code.to_string()),
        run.token.to_string(),
        run.host.clone(),
        run.note.clone().unwrap_or_default(),
    ]
}
