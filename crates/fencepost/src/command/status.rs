//! `fencepost status`: lists the jobs, their holders and how they last ended.

use std::time::Duration;

use fencepost_core::time::Wall;
use fencepost_view::answer::RunAnswer;
use fencepost_view::prometheus;
use fencepost_view::status::{JobState, JobStatus, StatusAnswer};
use fencepost_view::text::{artifacts, flat, length, second_in, time_for_people};
use fencepost_view::time::LocalTime;

use crate::args::{Global, StatusFormat, StatusOptions};
use crate::exit::{Code, Failure};
use crate::file;
use crate::place::Place;
use crate::report::percent;
use crate::show;

/// Maximum number of jobs with mistakes that are listed.
const SHOWN_BROKEN_MAX: usize = 10;

pub fn run(global: &Global, options: &StatusOptions) -> Result<Code, Failure> {
    let format = format(global, options)?;
    let place = Place::find(global)?;
    if options.output.is_some() {
        place.must_exist()?;
    }
    let store = place.open_to_read()?;
    let (status, now) =
        place.ask(store.as_ref(), |view| view.status(options.job.as_ref()).map(|status| (status, view.now)))?;
    match (format, &options.output) {
        (StatusFormat::Prom, Some(path)) => file::replace(path, &prometheus::exposition(&status))?,
        (StatusFormat::Prom, None) => show::text(&prometheus::exposition(&status)),
        (StatusFormat::Json, _) => show::json(&status),
        (StatusFormat::Table, _) => describe(&status, options, now),
    }
    Ok(super::report_unread(global, &status.errors, Code::DONE))
}

fn format(global: &Global, options: &StatusOptions) -> Result<StatusFormat, Failure> {
    let format = match (options.format, global.json) {
        (Some(StatusFormat::Json) | None, true) => StatusFormat::Json,
        (Some(_), true) => return Err(Failure::Usage("--json and another --format cannot both be meant.".to_string())),
        (format, false) => format.unwrap_or(StatusFormat::Table),
    };
    match &options.output {
        Some(_) if format != StatusFormat::Prom => {
            Err(Failure::Usage("--output goes with --format prom; anything else can be redirected.".to_string()))
        }
        _ => Ok(format),
    }
}

fn describe(status: &StatusAnswer, options: &StatusOptions, now: Wall) {
    show::line(&format!("store   {}", status.store));
    show::line(&format!("config  {}", status.config.as_deref().unwrap_or("none")));
    if let Some(seal) = &status.sealed {
        show::line(&format!("sealed  {seal}"));
    }
    show_broken(status);
    show::line("");
    match (&options.job, status.jobs.as_slice()) {
        // An unreadable record does not tell whether its job has run.
        (_, []) if !status.errors.is_empty() => {}
        (Some(name), []) => show::line(&format!("{name} has never run on this store.")),
        (None, []) => show::line("No job has run on this store yet. Try: fencepost run hello -- echo hello"),
        (Some(_), jobs) => jobs.iter().for_each(|job| describe_job(job, now)),
        (None, jobs) => {
            show_jobs(jobs, now);
            show_upstreams(jobs, now);
        }
    }
    show_fences(status, now);
}

/// Lists the jobs that do not run because of mistakes in the configuration.
fn show_broken(status: &StatusAnswer) {
    for broken in status.broken.iter().take(SHOWN_BROKEN_MAX) {
        show::line(&format!("broken  {}", flat(&broken.sentence(status.config.as_deref()))));
    }
    if let Some(more @ 1..) = status.broken.len().checked_sub(SHOWN_BROKEN_MAX) {
        show::line(&format!("broken  {more} more jobs. See them with: fencepost validate"));
    }
}

fn show_jobs(jobs: &[JobStatus], now: Wall) {
    let dash = || "-".to_string();
    let row = |job: &JobStatus| {
        let last = job.last.as_ref();
        let ended = last.and_then(|last| last.finished.as_ref());
        vec![
            job.job.clone(),
            job.more.state.to_string(),
            holder_cell(job),
            job.token.to_string(),
            job.grants.to_string(),
            last.map_or_else(dash, |last| last.status.to_string()),
            last.map_or_else(dash, took),
            ended.map_or_else(dash, |ended| ago(ended, now)),
            skips_cell(job),
        ]
    };
    let heading = ["JOB", "STATE", "HOLDER", "TOKEN", "GRANTS", "LAST", "TOOK", "ENDED", "SKIPPED"];
    show::table(&heading, &jobs.iter().map(row).collect::<Vec<_>>());
}

/// Lists the resources that the jobs write under their tokens, and how often a stale write was refused.
fn show_fences(status: &StatusAnswer, now: Wall) {
    let rows = status.resources.iter().map(|fence| {
        vec![
            fence.resource.clone(),
            fence.kind.clone(),
            fence.token.to_string(),
            fence.job.clone(),
            ago(&fence.at, now),
            fence.refused.to_string(),
        ]
    });
    show_more(&["RESOURCE", "KIND", "TOKEN", "JOB", "WRITTEN", "REFUSED"], rows.collect());
}

/// Lists the upstreams that keep jobs from running.
fn show_upstreams(jobs: &[JobStatus], now: Wall) {
    let rows = jobs.iter().flat_map(|job| {
        job.upstreams.iter().map(|gauge| {
            vec![
                gauge.job.clone(),
                job.job.clone(),
                gauge.halts.to_string(),
                gauge.skips.to_string(),
                ago(&gauge.at, now),
                flat(&gauge.reason),
            ]
        })
    });
    show_more(&["UPSTREAM", "JOB", "HALTS", "SKIPS", "LAST", "REASON"], rows.collect());
}

/// Prints another table, if it has rows.
fn show_more(heading: &[&str], rows: Vec<Vec<String>>) {
    if !rows.is_empty() {
        show::line("");
        show::table(heading, &rows);
    }
}

fn ago(time: &LocalTime, now: Wall) -> String {
    format!("{} ago", length(now.since(time.at)))
}

fn holder_cell(job: &JobStatus) -> String {
    match (&job.holder, &job.more.process) {
        (Some(holder), Some(process)) => format!("{} ({process})", holder.host),
        _ => "-".to_string(),
    }
}

fn skips_cell(job: &JobStatus) -> String {
    match &job.more.skips {
        None => "0".to_string(),
        Some(skips) => format!("{} ({})", skips.overlap, percent(skips.rate(job.grants))),
    }
}

/// Prints everything about one job, one line each.
fn describe_job(job: &JobStatus, now: Wall) {
    let say = |what: &str, text: &str| show::line(&format!("  {what:8} {}", flat(text)));
    let zone = &job.more.zone;
    show::line(&job.job);
    say("state", &state(job));
    if let Some(paused) = &job.more.paused {
        let note = paused.note.as_ref().map_or_else(String::new, |note| format!(": {}", flat(note)));
        say("paused", &format!("since {}, from {}{note}", time_for_people(paused.since, now, zone), paused.by));
    }
    if let Some(next) = &job.next_slot {
        say("next", &second_in(next.at, &next.zone));
    }
    say("token", &format!("{} (grant {})", job.token, job.grants));
    if let Some(last) = &job.last {
        say("last", &sentence(last, now));
    }
    if let Some(ok) = &job.last_ok {
        say("last ok", &sentence(ok, now));
        artifacts(&ok.artifacts).iter().for_each(|artifact| say("left", artifact));
    }
    if let Some(streak) = job.streak.filter(|streak| streak.count > 1) {
        say("streak", &format!("{} × {}", streak.status, streak.count));
    }
    if let Some(skips) = &job.more.skips {
        let last = |at| format!(", last {}", time_for_people(at, now, zone));
        let last = skips.last.as_ref().map_or_else(String::new, |skip| last(skip.at));
        say("skipped", &format!("{}{last}", skips_cell(job)));
    }
    for gauge in &job.upstreams {
        let last = time_for_people(gauge.at.at, now, &gauge.at.zone);
        let often = format!("halted it {} ×, skipped it {} ×", gauge.halts, gauge.skips);
        say("upstream", &format!("{} {often}, last {last}: {}", gauge.job, flat(&gauge.reason)));
    }
    let counts: Vec<_> = job.counts.iter().map(|(status, count)| format!("{status} {count}")).collect();
    if !counts.is_empty() {
        say("counts", &counts.join(", "));
    }
}

fn state(job: &JobStatus) -> String {
    match (&job.more.holder, &job.more.lost_run) {
        (Some(holder), _) => format!("{}: {holder}", job.more.state),
        (None, Some(run)) => format!("lost: run {run} did not end properly; the next run takes over"),
        (None, None) => JobState::Free.to_string(),
    }
}

fn took(run: &RunAnswer) -> String {
    length(Duration::from_millis(run.duration_ms.unwrap_or_default()))
}

fn sentence(run: &RunAnswer, now: Wall) -> String {
    let exit = run.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    let note = run.note.as_ref().map_or_else(String::new, |note| format!(": {}", flat(note)));
    let ended = run.finished.as_ref().map(|ended| time_for_people(ended.at, now, &ended.zone));
    format!("{} {}, took {}{exit}{note}", run.status, ended.unwrap_or_default(), took(run))
}
