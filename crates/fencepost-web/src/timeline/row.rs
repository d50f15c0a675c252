//! One job on the timeline.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::Board;
use fencepost_view::status::JobStatus;
use fencepost_view::text::flat;
use maud::{Markup, html};

use super::Hosts;
use super::night::{Axis, Night, WIDTH};
use crate::face::Face;
use crate::path;
use crate::words::{counted, millis, moment};

const HEIGHT: u64 = 28;

/// The least width of a bar: a run of a second in a day would not be seen.
const BAR_MIN: u64 = 4;

/// How far the mark of a bad end stands out on both sides.
const MARK_MORE: u64 = 3;

pub fn row(board: &Board, night: &Night<'_>, axis: &Axis, hosts: &Hosts<'_>, job: &JobStatus, now: Wall) -> Markup {
    let runs: Vec<_> = night.runs(board, &job.job).collect();
    let attempts = attempts(&runs);
    let unlisted = night.unlisted_until(board, job).map(|until| night.x(until));
    html! {
        div.row id={ "row-" (path::segment(&job.job)) } {
            a.name href=(path::job(&job.job)) { (job.job) span.hidden { ": " (summary(&runs)) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                path.grid d=(axis.grid(HEIGHT)) {}
                @if let Some(until) = unlisted {
                    rect.unlisted x="0" y="5" width=(until) height="14" { title { "Older runs: fencepost runs " (job.job) } }
                }
                path.ticks d=(ticks(&runs, night)) {}
                @for attempt in &attempts { (bar(attempt, night, hosts, now)) }
                (passes(&attempts, night))
            }
        }
    }
}

/// `6 attempts on macbook: 5 ok, 1 lost`.
fn summary(runs: &[&RunAnswer]) -> String {
    let attempts: Vec<_> = runs.iter().filter(|run| run.status != Status::Missed).collect();
    let hosts: BTreeSet<_> = attempts.iter().map(|run| run.host.as_str()).collect();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for run in runs {
        *counts.entry(Face::of_status(run.status).word).or_default() += run.count.unwrap_or(1);
    }
    let counts: Vec<_> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let hosts = hosts.into_iter().map(flat).collect::<Vec<_>>().join(", ");
    let on = if hosts.is_empty() { String::new() } else { format!(" on {hosts}") };
    format!("{}{on}: {}", counted(attempts.len(), "attempt"), counts.join(", "))
}

fn ticks(runs: &[&RunAnswer], night: &Night<'_>) -> String {
    let slots = runs.iter().filter(|run| night.contains(run.slot.at));
    let slots: BTreeSet<u64> = slots.map(|run| night.x(run.slot.at)).collect();
    let mut path = String::new();
    for x in slots {
        _ = write!(path, "M{x} 22v4");
    }
    path
}

/// An attempt, and its lane if the slot had several: attempts of two hosts may overlap.
struct AttemptBar<'b> {
    run: &'b RunAnswer,
    lane: Option<usize>,
}

/// The runs, oldest first. Those of one slot take turns in two lanes.
fn attempts<'b>(runs: &[&'b RunAnswer]) -> Vec<AttemptBar<'b>> {
    let mut sorted = runs.to_vec();
    sorted.sort_by_key(|run| (run.slot.at, run.token, run.started.at));
    let mut attempts: Vec<AttemptBar<'_>> = Vec::new();
    for slot in sorted.chunk_by(|a, b| a.slot.at == b.slot.at) {
        let lane = |place: usize| (slot.len() > 1).then_some(place % 2);
        attempts.extend(slot.iter().enumerate().map(|(place, run)| AttemptBar { run, lane: lane(place) }));
    }
    attempts
}

impl AttemptBar<'_> {
    /// The top of its bar, and its height.
    fn lane(&self) -> (u64, u64) {
        match self.lane {
            None => (5, 14),
            Some(0) => (3, 8),
            Some(_) => (12, 8),
        }
    }
}

/// Lines from an attempt to the next one of the same slot, if that is on another host: the lease has passed on.
fn passes(attempts: &[AttemptBar<'_>], night: &Night<'_>) -> Markup {
    let mut path = String::new();
    for pair in attempts.windows(2) {
        let (earlier, later) = (pair[0].run, pair[1].run);
        let is_run = later.status.is_of_a_run() && earlier.status.is_of_a_run();
        if is_run && later.slot.at == earlier.slot.at && later.host != earlier.host {
            let from = earlier.finished.as_ref().map_or(earlier.started.at, |at| at.at).min(later.started.at);
            let middle = |attempt: &AttemptBar<'_>| attempt.lane().0 + 4;
            _ = write!(
                path,
                "M{} {}H{}V{}",
                night.x(from),
                middle(&pair[0]),
                night.x(later.started.at),
                middle(&pair[1])
            );
        }
    }
    html! { @if !path.is_empty() { path.pass d=(path) {} } }
}

/// An attempt, or slots that were missed.
fn bar(attempt: &AttemptBar<'_>, night: &Night<'_>, hosts: &Hosts<'_>, now: Wall) -> Markup {
    let run = attempt.run;
    let (class, from, to) = match run.status {
        Status::Missed => {
            let from = run.slot_from.as_ref().map_or(run.slot.at, |from| from.at);
            ("gap".to_string(), from, run.slot_to.as_ref().map_or(run.slot.at, |to| to.at))
        }
        _ => {
            let end = run.finished.as_ref().map_or(now, |at| at.at);
            let host = format!("bar host-{}", hosts.colour(&run.host));
            (if run.status == Status::Running { format!("{host} going") } else { host }, run.started.at, end)
        }
    };
    let width = (night.x(to) - night.x(from).min(night.x(to))).max(BAR_MIN);
    let x = night.x(from).min(WIDTH - width.min(WIDTH));
    let (top, height) = attempt.lane();
    html! {
        a href=(path::slot(&run.job, &run.slot.zone.show(run.slot.at))) tabindex="-1" {
            rect class=(class) x=(x) y=(top) width=(width) height=(height) { title { (details(run)) } }
            (mark(run.status, x, width, if attempt.lane == Some(0) { top } else { top + height }))
        }
    }
}

/// A line at the edge of a bar that ended badly, wide enough to be seen.
fn mark(status: Status, x: u64, width: u64, y: u64) -> Markup {
    let class = Face::of_status(status).class;
    let (x, width) = (x.saturating_sub(MARK_MORE), width + 2 * MARK_MORE);
    html! {
        @if matches!(class, "bad" | "fenced" | "halted") { path class={ "mark " (class) } d={ "M" (x) " " (y) "h" (width) } {} }
    }
}

/// What a bar is, in words.
fn details(run: &RunAnswer) -> String {
    let word = Face::of_status(run.status).word;
    if run.status == Status::Missed {
        let slots = usize::try_from(run.count.unwrap_or(1)).unwrap_or(usize::MAX);
        return format!(
            "{}: {} missed from {}",
            run.job,
            counted(slots, "slot"),
            moment(run.slot_from.as_ref().unwrap_or(&run.slot))
        );
    }
    let took = run.duration_ms.map_or_else(String::new, |took| format!(" after {}", millis(took)));
    let slot = moment(&run.slot);
    format!("{} on {}: {word}{took}\nslot {slot}\nstarted {}", run.job, flat(&run.host), moment(&run.started))
}
