//! All jobs at a glance: what needs attention, then a line for each job.

use std::time::Duration;

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use fencepost_view::attention::Attention;
use fencepost_view::status::{JobState, JobStatus, PausedJob, StatusAnswer};
use fencepost_view::text::{flat, length, near, short, width};
use fencepost_view::time::LocalTime;

use super::digest;
use super::style::{Style, is_bad};
use crate::show::{Cell, aligned, wrapped};

/// The fewest outcomes that a narrow terminal shows.
const STRIP_MIN: usize = 5;

/// The fewest columns that a narrow terminal leaves for the names.
const NAME_MIN: usize = 24;

/// The most sentences about what needs attention.
const SENTENCES_MAX: usize = 20;

/// The most jobs that the table lists.
const ROWS_MAX: usize = 1_000;

/// The overview without its heading.
pub fn lines(status: &StatusAnswer, style: &Style, now: Wall) -> Vec<String> {
    let jobs = status.by_urgency();
    let mut lines = Vec::new();
    let zone = one_zone(&jobs);
    lines.extend(zone.map(|zone| format!("times   {zone}")));
    lines.push(String::new());
    lines.extend(attention(status, style));
    if let Some(digest) = &status.digest {
        lines.extend(digest::lines(digest, style));
        return lines;
    }
    let shown = &jobs[..jobs.len().min(ROWS_MAX)];
    if !shown.is_empty() {
        lines.extend(table(shown, zone.is_none(), style, now));
    }
    if let Some(more @ 1..) = jobs.len().checked_sub(ROWS_MAX) {
        lines.push(format!("{more} more jobs. See them with: fencepost status --json"));
    }
    lines.extend(waiting(status, style));
    lines.extend(upstreams(&jobs, style, now));
    lines
}

/// The zone of all jobs, if they share one.
fn one_zone<'a>(jobs: &[&'a JobStatus]) -> Option<&'a str> {
    let first = jobs.first()?.timezone.as_str();
    jobs.iter().all(|job| job.timezone == first).then_some(first)
}

/// What needs attention, one sentence for each job.
fn attention(status: &StatusAnswer, style: &Style) -> Vec<String> {
    let first: Vec<&Attention> =
        status.attention_by_job().into_iter().filter_map(|(_, of_job)| of_job.first().copied()).collect();
    let heading = match first.len() {
        0 => return vec!["Nothing needs attention.".to_string(), String::new()],
        1 => "1 needs attention:".to_string(),
        many => format!("{many} need attention:"),
    };
    let mut lines = vec![style.bold(&heading)];
    for attention in first.iter().take(SENTENCES_MAX) {
        lines.extend(sentence(attention, style));
    }
    if let Some(more @ 1..) = first.len().checked_sub(SENTENCES_MAX) {
        lines.push(format!("  {more} more. See them with: fencepost status --check"));
    }
    lines.push(String::new());
    lines
}

/// A sentence and its command, wrapped at the terminal's width. A command stays on one line, to be copied.
fn sentence(attention: &Attention, style: &Style) -> Vec<String> {
    let whole = format!("  {}", attention_line(attention));
    let Some(columns) = style.columns.filter(|columns| width(&whole) > *columns) else { return vec![whole] };
    let mut lines = wrapped(&format!("  {}", flat(&attention.sentence)), columns, 4);
    lines.extend(attention.command.iter().map(|command| format!("    Try: {}", flat(command))));
    lines
}

/// A sentence, and the command that tells more.
pub fn attention_line(attention: &Attention) -> String {
    let command = attention.command.as_ref().map_or_else(String::new, |command| format!(" Try: {command}"));
    flat(&format!("{}{command}", attention.sentence))
}

fn table(jobs: &[&JobStatus], with_zone: bool, style: &Style, now: Wall) -> Vec<String> {
    let mut heading = vec!["JOB", "NEXT", "LAST", "RECENT", "HOST", "SKIPS"];
    heading.extend(with_zone.then_some("ZONE"));
    if style.verbose {
        heading.extend(["STATE", "PROCESS", "TOKEN", "GRANTS", "TOOK"]);
    }
    let whole = Room {
        name: jobs.iter().map(|job| width(&job.job)).max().unwrap_or(0),
        symbols: jobs.iter().map(|job| job.recent.len()).max().unwrap_or(0),
    };
    let rows = |room: Room, style: &Style| jobs.iter().map(|job| row(job, room, with_zone, style, now)).collect();
    let widest = aligned(&heading, rows(whole, &style.without_colours())).iter().map(|line| width(line)).max();
    let over = style.columns.map_or(0, |columns| widest.unwrap_or(0).saturating_sub(columns));
    aligned(&heading, rows(whole.without(over), style))
}

/// How many columns the names and the symbols have.
#[derive(Clone, Copy)]
struct Room {
    name: usize,
    symbols: usize,
}

impl Room {
    /// The room that is left if the table is too wide by so many columns. Long names give way first.
    fn without(self, over: usize) -> Self {
        let from_names = over.min(self.name.saturating_sub(NAME_MIN));
        let from_symbols = (over - from_names).min(self.symbols.saturating_sub(STRIP_MIN));
        Self { name: self.name - from_names, symbols: self.symbols - from_symbols }
    }
}

fn row(job: &JobStatus, room: Room, with_zone: bool, style: &Style, now: Wall) -> Vec<Cell> {
    let (strip, painted) = style.strip(&job.recent[job.recent.len().saturating_sub(room.symbols)..]);
    let name = style.cut(&job.job, room.name);
    let mut cells = vec![
        match job.needs_attention {
            true => Cell::painted(&name, |text| style.red(text)),
            false => Cell::plain(&name),
        },
        Cell::plain(&next_cell(job, now)),
        last_cell(job, style, now),
        Cell::painted(&strip, |_| painted),
        Cell::plain(&host_cell(job)),
        Cell::plain(&skips_cell(job)),
    ];
    cells.extend(with_zone.then(|| Cell::plain(&job.timezone)));
    if style.verbose {
        let dash = || "-".to_string();
        let more = [
            state_in_words(job.state),
            job.more.process.clone().unwrap_or_else(dash),
            job.token.to_string(),
            job.grants.to_string(),
            job.more.last_took.map_or_else(dash, length),
        ];
        cells.extend(more.iter().map(|text| Cell::plain(text)));
    }
    cells
}

/// When it is due next, or why that is not the question.
fn next_cell(job: &JobStatus, now: Wall) -> String {
    let since = |time: &LocalTime| short(now.since(time.at));
    match (job.state, &job.holder, &job.paused) {
        _ if !job.enabled => "disabled".to_string(),
        (JobState::Running, Some(holder), _) => format!("running {}", since(&holder.since)),
        (JobState::Held, Some(holder), _) => format!("held {}", since(&holder.since)),
        (_, _, Some(PausedJob { until: Some(until), .. })) => format!("paused to {}", near(until.at, now, &until.zone)),
        (_, _, Some(paused)) => format!("paused {}", since(&paused.since)),
        _ => job.next_slot.as_ref().map_or_else(|| "-".to_string(), |next| near(next.at, now, &next.zone)),
    }
}

/// How it last ended, and how long ago.
fn last_cell(job: &JobStatus, style: &Style, now: Wall) -> Cell {
    if job.state == JobState::Lost && job.recent.last().is_some_and(|last| last.status == Status::Lost) {
        return Cell::painted("lost", |text| style.red(text));
    }
    let Some(last) = &job.last else { return Cell::plain("never") };
    let word = last.status.as_str();
    let word = if word.starts_with("skipped") { "skipped" } else { word };
    let ended = last.finished.as_ref().map_or_else(String::new, |ended| format!(" {}", short(now.since(ended.at))));
    match is_bad(last.status) {
        true => Cell::painted(&format!("{word}{ended}"), |text| style.red(text)),
        false => Cell::plain(&format!("{word}{ended}")),
    }
}

/// The word of the JSON as people read it.
pub fn state_in_words(state: JobState) -> String {
    state.as_str().replace('_', " ")
}

/// Where it runs, or ran last.
fn host_cell(job: &JobStatus) -> String {
    job.host().unwrap_or("-").to_string()
}

fn skips_cell(job: &JobStatus) -> String {
    match job.skips.overlap {
        0 => "0".to_string(),
        many => format!("{many} ({:.0}%)", job.skips.rate * 100.0),
    }
}

/// Says which job waits for which.
fn waiting(status: &StatusAnswer, style: &Style) -> Vec<String> {
    let sentences = status.waiting.iter().map(|wait| flat(&wait.sentence()));
    let lines = sentences.flat_map(|text| wrapped(&text, style.columns.unwrap_or(usize::MAX), 2));
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { lines } else { [vec![String::new()], lines].concat() }
}

/// Lists the upstreams that keep jobs from running.
fn upstreams(jobs: &[&JobStatus], style: &Style, now: Wall) -> Vec<String> {
    let rows = jobs.iter().flat_map(|job| {
        job.upstreams.iter().map(|gauge| {
            let reason = flat(&gauge.reason);
            [&gauge.job, &job.job, &gauge.halts.to_string(), &gauge.skips.to_string(), &ago(&gauge.at, now), &reason]
                .map(|text| Cell::plain(text))
                .to_vec()
        })
    });
    more(&["UPSTREAM", "JOB", "HALTS", "SKIPS", "LAST", "REASON"], rows.collect(), style)
}

/// Lists the resources that the jobs write under their tokens, and how often a stale write was refused.
pub fn fences(status: &StatusAnswer, style: &Style, now: Wall) -> Vec<String> {
    let rows = status.resources.iter().map(|fence| {
        let (token, refused) = (fence.token.to_string(), fence.refused.to_string());
        [&fence.resource, &fence.kind, &token, &fence.job, &ago(&fence.at, now), &refused]
            .map(|text| Cell::plain(text))
            .to_vec()
    });
    more(&["RESOURCE", "KIND", "TOKEN", "JOB", "WRITTEN", "REFUSED"], rows.collect(), style)
}

/// Another table, if it has rows. A terminal shows of each line what fits.
fn more(heading: &[&str], rows: Vec<Vec<Cell>>, style: &Style) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let lines = aligned(heading, rows);
    let cut = |line: String| match style.columns {
        Some(columns) if !style.verbose => style.cut(&line, columns),
        _ => line,
    };
    std::iter::once(String::new()).chain(lines.into_iter().map(cut)).collect()
}

fn ago(time: &LocalTime, now: Wall) -> String {
    format!("{} ago", length(now.since(time.at)))
}

/// How long a run took.
pub fn took(millis: Option<u64>) -> String {
    length(Duration::from_millis(millis.unwrap_or_default()))
}
