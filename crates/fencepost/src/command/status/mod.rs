//! `fencepost status`: the overview of all jobs, and everything about one.

mod digest;
mod job;
mod overview;
mod style;
mod watch;

use fencepost_core::time::Wall;
use fencepost_view::prometheus;
use fencepost_view::status::{StatusAnswer, StatusQuery};

use self::style::Style;
use super::overdue::expected;
use super::runs::moment;
use crate::args::{Global, StatusFormat, StatusOptions};
use crate::exit::{Code, Failure};
use crate::file;
use crate::place::Place;
use crate::report::Voice;
use crate::show;

pub fn run(global: &Global, options: &StatusOptions) -> Result<Code, Failure> {
    let format = format(global, options)?;
    if let Some(every) = options.watch {
        return watch::run(global, options, every);
    }
    let (status, now) = answer(global, options)?;
    match (format, &options.output) {
        (StatusFormat::Prom, Some(path)) => file::replace(path, &prometheus::exposition(&status))?,
        (StatusFormat::Prom, None) => show::text(&prometheus::exposition(&status)),
        (StatusFormat::Json, _) => show::json(&status),
        (StatusFormat::Table, _) if options.check => check(global, &status),
        (StatusFormat::Table, _) => show::write(&page(&status, options, &Style::detect(global), now)),
    }
    let is_refused = options.check && !status.attention.is_empty();
    Ok(super::report_unread(global, &status.errors, if is_refused { Code::REFUSED } else { Code::DONE }))
}

/// Asks the store and the configuration. With the answer comes the time it is about.
pub fn answer(global: &Global, options: &StatusOptions) -> Result<(StatusAnswer, Wall), Failure> {
    let since = options.since.as_deref().map(|text| moment("--since", text)).transpose()?;
    let place = Place::find(global)?;
    if options.output.is_some() || (options.check && place.config.is_none()) {
        place.must_exist()?;
    }
    let store = place.open_to_read()?;
    let query = StatusQuery { job: options.job.clone(), expected: expected(&place, None)?, since };
    let (status, now) = place.ask(store.as_ref(), |view| view.status(&query).map(|status| (status, view.now)))?;
    // A job that waits for its first run has no record yet. An unreadable record may be the job's.
    let is_empty = status.jobs.is_empty() && status.waiting.is_empty() && status.errors.is_empty();
    if let Some(name) = options.job.as_ref().filter(|_| is_empty) {
        super::must_be_known(&place, store.as_ref(), name)?;
    }
    Ok((status, now))
}

fn format(global: &Global, options: &StatusOptions) -> Result<StatusFormat, Failure> {
    let format = match (options.format, global.json) {
        (Some(StatusFormat::Json) | None, true) => StatusFormat::Json,
        (Some(_), true) => return Err(Failure::Usage("--json and another --format cannot both be meant.".to_string())),
        (format, false) => format.unwrap_or(StatusFormat::Table),
    };
    if format == StatusFormat::Prom && (options.since.is_some() || options.watch.is_some()) {
        return Err(Failure::Usage("--since and --watch do not go with --format prom.".to_string()));
    }
    match &options.output {
        Some(_) if format != StatusFormat::Prom => {
            Err(Failure::Usage("--output goes with --format prom; anything else can be redirected.".to_string()))
        }
        _ => Ok(format),
    }
}

/// Prints only what needs attention: a cron job that checks sends no mail while all is well.
fn check(global: &Global, status: &StatusAnswer) {
    if global.quiet {
        return;
    }
    status.attention.iter().for_each(|attention| show::line(&overview::attention_line(attention)));
    if status.attention.is_empty() {
        Voice::of(global).tell(&format!("Nothing needs attention. Jobs: {}.", status.jobs.len()));
    }
}

/// The whole answer for people. Foreign text in it is cleaned.
fn page(status: &StatusAnswer, options: &StatusOptions, style: &Style, now: Wall) -> String {
    let mut lines = vec![
        format!("store   {}", show::flat(&status.store)),
        format!("config  {}", show::clean(status.config.as_deref().unwrap_or("none"))),
    ];
    let typed = options.since.as_deref().unwrap_or_default();
    lines.extend(status.digest.iter().map(|digest| digest::since(digest, typed)));
    lines.extend(status.sealed.iter().map(|seal| format!("sealed  {}", show::flat(&seal.to_string()))));
    match (&options.job, status.jobs.as_slice()) {
        // An unreadable record does not tell whether its job has run.
        (_, []) if !status.errors.is_empty() => {}
        (_, []) if !status.broken.is_empty() => lines.extend(overview::lines(status, style, now)),
        (Some(name), []) => {
            lines.extend([String::new(), format!("{name} has never run on this store.")]);
            lines.extend(status.waiting.iter().map(|wait| show::flat(&wait.sentence())));
        }
        (None, []) => lines.extend([
            String::new(),
            "No job has run on this store yet. Try: fencepost run hello -- echo hello".to_string(),
        ]),
        (Some(_), jobs) => {
            lines.push(String::new());
            if let Some(digest) = &status.digest {
                lines.extend(digest::lines(digest, style));
                lines.push(String::new());
            }
            jobs.iter().for_each(|job| lines.extend(job::lines(job, status, style, now)));
        }
        (None, _) => lines.extend(overview::lines(status, style, now)),
    }
    if status.digest.is_none() {
        lines.extend(overview::fences(status, style, now));
    }
    lines.push(String::new());
    lines.join("\n")
}
