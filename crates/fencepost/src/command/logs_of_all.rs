//! `fencepost logs` without a job: the newest output of every job.

use std::fs::File;
use std::io::{self, IsTerminal};

use fencepost_core::name::Job;
use fencepost_view::answer::LogAnswer;

use super::logs::{LogDescription, chosen, show_from, show_json};
use crate::args::{Global, LogsOptions};
use crate::exit::{Code, Failure};
use crate::logs::{LogFile, Shelf};
use crate::place::Place;
use crate::show;

/// How many lines are shown of each job, unless the command line says so.
const SHOWN_LINES: usize = 10;

pub fn run(global: &Global, options: &LogsOptions, place: &Place) -> Result<Code, Failure> {
    let store = place.open_to_read()?;
    let (jobs, errors) = super::all_jobs(place, store.as_ref())?;
    let mut logs: Vec<(Job, LogFile)> = Vec::new();
    for job in jobs {
        let keys = place.config.as_ref().map(|config| config.job(&job.name).clone()).unwrap_or_default();
        let shelf = Shelf::of(place, &job, &keys);
        // A job of which nothing is kept has no logs, like one that never ran.
        let files = chosen(&shelf, place, &job, &keys, options).unwrap_or_default();
        let shown = if options.list { files } else { files.into_iter().next_back().into_iter().collect() };
        logs.extend(shown.into_iter().rev().map(|file| (job.clone(), file)));
    }
    if logs.is_empty() && !options.list {
        return Err(Failure::Other(
            "There is no log of any job on this machine. A run of a job in the configuration leaves one if it prints \
             something off a terminal."
                .to_string(),
        ));
    }
    for (number, (job, file)) in logs.iter().enumerate() {
        let answer = LogDescription::of(place, job)?.answer(file);
        match (options.list, global.json) {
            (true, true) => show::json(&answer),
            (true, false) => list(&answer),
            (false, _) => match print(global, options, answer, file, number) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Code::DONE),
                Err(error) => return Err(Failure::Other(format!("Cannot show {}: {error}", file.path.display()))),
                Ok(()) => {}
            },
        }
    }
    Ok(super::report_unread(global, &errors, Code::DONE))
}

fn list(log: &LogAnswer) {
    let end = match (log.running, log.status) {
        (true, _) => "running",
        (false, Some(status)) => status.as_str(),
        (false, None) => "",
    };
    let slot = show::second_in(log.slot.at, &log.slot.zone);
    show::line(format!("{}  {slot}  {}  {:>10}  {end}", log.job, log.run, log.bytes).trim_end());
}

/// Prints the last lines of a log under its heading.
fn print(global: &Global, options: &LogsOptions, answer: LogAnswer, file: &LogFile, number: usize) -> io::Result<()> {
    let mut opened = File::open(&file.path)?;
    let lines = Some(options.lines.unwrap_or(SHOWN_LINES));
    if global.json {
        return show_json(answer, &mut opened, lines);
    }
    if !options.raw {
        let gap = if number == 0 { "" } else { "\n" };
        show::line(&format!("{gap}{}", answer.heading()));
    }
    show_from(&mut opened, lines, !options.raw && io::stdout().is_terminal())
}
