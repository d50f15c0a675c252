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

pub fn row(board: &Board, night: &Night, axis: &Axis, hosts: &Hosts<'_>, job: &JobStatus, now: Wall) -> Markup {
    let runs: Vec<_> = night.runs(board, &job.job).collect();
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
                (passes(&runs, night))
                @for run in runs.iter().rev() { (bar(run, night, hosts, now)) }
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

fn ticks(runs: &[&RunAnswer], night: &Night) -> String {
    let slots: BTreeSet<u64> = runs.iter().map(|run| night.x(run.slot.at)).collect();
    let mut path = String::new();
    for x in slots {
        _ = write!(path, "M{x} 22v4");
    }
    path
}

/// Lines from an attempt to the next attempt of the same slot, if that is on another host: the lease has passed on.
fn passes(runs: &[&RunAnswer], night: &Night) -> Markup {
    let mut path = String::new();
    for pair in runs.windows(2) {
        let (later, earlier) = (pair[0], pair[1]);
        let is_run = later.status.is_of_a_run() && earlier.status.is_of_a_run();
        if is_run && later.slot.at == earlier.slot.at && later.host != earlier.host {
            let from = earlier.finished.as_ref().map_or(earlier.started.at, |at| at.at).min(later.started.at);
            let (from, to) = (night.x(from), night.x(later.started.at));
            _ = write!(path, "M{} 12H{to}M{to} 2v20", from.saturating_sub(BAR_MIN));
        }
    }
    html! { @if !path.is_empty() { path.pass d=(path) { title { "The lease passed on to another host" } } } }
}

/// An attempt, or slots that were missed.
fn bar(run: &RunAnswer, night: &Night, hosts: &Hosts<'_>, now: Wall) -> Markup {
    let href = path::slot(&run.job, &run.slot.zone.show(run.slot.at));
    let face = Face::of_status(run.status);
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
    html! {
        a href=(href) tabindex="-1" {
            rect class=(class) x=(x) y="5" width=(width) height="14" { title { (details(run)) } }
            @if matches!(face.class, "bad" | "fenced" | "halted") {
                path class={ "mark " (face.class) } d={ "M" (x) " 20h" (width) } {}
            }
        }
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
