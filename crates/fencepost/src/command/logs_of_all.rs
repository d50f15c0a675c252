//! `fencepost logs` without a job: the newest output of every job.

use std::fs::File;
use std::io::{self, IsTerminal};

use fencepost_view::answer::{ErrorDetail, LogAnswer};

use super::logs::{JobLogs, LogDescription, show_from};
use crate::args::{Global, LogsOptions};
use crate::exit::{Code, Failure};
use crate::logs::{LogFile, Shelf};
use crate::place::Place;
use crate::show;

/// How many lines are shown of each job, unless the command line says so.
pub const SHOWN_LINES: usize = 10;

pub fn run(global: &Global, options: &LogsOptions, place: &Place) -> Result<Code, Failure> {
    let (chosen, errors) = chosen(place, options)?;
    let mut number = 0;
    for JobLogs { job, files } in &chosen {
        let described = LogDescription::of(place, job)?;
        for file in files {
            let answer = described.answer(file);
            if options.list {
                list(&answer);
                continue;
            }
            match print(options, &answer, file, number) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Code::DONE),
                Err(error) => return Err(Failure::Other(format!("Cannot show {}: {error}", file.path.display()))),
                Ok(()) => number += 1,
            }
        }
    }
    Ok(super::report_unread(global, &errors, Code::DONE))
}

/// The logs of each job that the options ask for, and the records that cannot be read.
pub fn chosen(place: &Place, options: &LogsOptions) -> Result<(Vec<JobLogs>, Vec<ErrorDetail>), Failure> {
    let store = place.open_to_read()?;
    let (jobs, errors) = super::all_jobs(place, store.as_ref())?;
    let logs = jobs.into_iter().filter_map(|job| {
        let keys = place.config.as_ref().map(|config| config.job(&job.name).clone()).unwrap_or_default();
        let shelf = Shelf::of(place, &job, &keys);
        // A job of which nothing is kept has no logs, like one that never ran.
        JobLogs::on(&shelf, place, job, &keys, options).ok()
    });
    let logs: Vec<JobLogs> = logs.filter(|logs| !logs.files.is_empty()).collect();
    if logs.is_empty() && !options.list {
        return Err(Failure::Other(
            "There is no log of any job on this machine. A run of a job in the configuration leaves one if it prints \
             something off a terminal."
                .to_string(),
        ));
    }
    Ok((logs, errors))
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
fn print(options: &LogsOptions, answer: &LogAnswer, file: &LogFile, number: usize) -> io::Result<()> {
    let mut opened = File::open(&file.path)?;
    if !options.raw {
        let gap = if number == 0 { "" } else { "\n" };
        show::line(&format!("{gap}{}", answer.heading()));
    }
    let is_clean = !options.raw && io::stdout().is_terminal();
    show_from(&mut opened, Some(options.lines.unwrap_or(SHOWN_LINES)), is_clean)
}
