//! The slots of a job: which there were, what became of one and why, and what its attempts printed.

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use fencepost_view::answer::{LogAnswer, RunAnswer};
use fencepost_view::text;
use maud::{Markup, html};

use super::{Disclosed, JobPage};
use crate::chart::strip::SLOTS_MAX;
use crate::face::Face;
use crate::layout::command;
use crate::path;
use crate::table::{column, table, wide};
use crate::words::{millis, moment, near, spaced};

/// The most bytes of a run's output on the page: its end.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The slot that is asked about.
pub fn why(job: &JobPage<'_>, now: Wall) -> Markup {
    let why = &job.why;
    html! {
        section #why aria-labelledby="why-title" {
            h2 #why-title { "Why" }
            (slots(job, now))
            form.search method="get" action=(path::job(job.job)) {
                label { "Slot " input name="slot" value=(job.query.slot) placeholder="yesterday, 07:00, 2026-11-18" autocomplete="off"; }
                button { "Explain" }
            }
            @if let (Some(slot), Some(status)) = (&why.slot, why.status) {
                p.slot-line { (Face::of_status(status).whole()) " slot " (near(slot, now)) " " span.calm { (moment(slot)) } }
            }
            ol.story { @for sentence in &why.sentences { li { (text::flat(&sentence.text)) } } }
            (attempts(&why.attempts, now))
        }
    }
}

/// The newest slots as links, oldest first.
fn slots(job: &JobPage<'_>, now: Wall) -> Markup {
    let mut runs: Vec<&RunAnswer> = Vec::new();
    for run in job.runs() {
        if runs.last().is_none_or(|last| last.slot.at != run.slot.at) {
            runs.push(run);
        }
    }
    runs.truncate(SLOTS_MAX);
    let asked = job.why.slot.as_ref().map(|slot| slot.at);
    html! {
        @if !runs.is_empty() {
            ol.slots aria-label="Newest slots, oldest first" {
                @for run in runs.iter().rev() {
                    @let face = Face::of_status(run.status);
                    @let label = format!("{}: {}", text::near(run.slot.at, now, &run.slot.zone), face.word);
                    li { a class=(face.class) href=(path::slot(job.job, &run.slot.zone.show(run.slot.at))) title=(label)
                        aria-label=(label) aria-current=[(asked == Some(run.slot.at)).then_some("true")] { (face.symbol) } }
                }
            }
        }
    }
}

fn attempts(attempts: &[RunAnswer], now: Wall) -> Markup {
    let columns = [
        column("Outcome"),
        column("Started"),
        column("Took"),
        column("Host"),
        column("Trigger"),
        column("Exit"),
        column("Token"),
        wide("Note"),
    ];
    html! { @if !attempts.is_empty() { (table("Attempts of this slot", columns, attempts.iter().map(|run| attempt(run, now)))) } }
}

fn attempt(run: &RunAnswer, now: Wall) -> [Markup; 8] {
    let dash = || "–".to_string();
    [
        Face::of_status(run.status).whole(),
        near(&run.started, now),
        html! { (run.duration_ms.map_or_else(dash, millis)) },
        html! { (text::flat(&run.host)) },
        html! { (spaced(run.trigger.as_str())) },
        html! { (run.exit_code.map_or_else(dash, |code| code.to_string())) },
        html! { span title={ "run " (run.run) } { (run.token) } },
        html! {
            (text::flat(run.note.as_deref().unwrap_or_default()))
            @for artifact in text::artifacts(&run.artifacts) { br; (artifact) }
        },
    ]
}

/// What the attempts of the slot printed, or where that is kept.
pub fn logs(job: &JobPage<'_>) -> Markup {
    html! {
        section #logs aria-labelledby="logs-title" {
            h2 #logs-title { "Output" }
            @match &job.logs {
                Disclosed::Withheld => p.calm { "Output is shown to viewers who have signed in with a token. " a href=(path::LOGIN) { "Sign in" } },
                Disclosed::Absent(why) => p.calm { (why) },
                Disclosed::Shown(list) => {
                    @for log in &list.logs { (log_of(log)) }
                    @for run in elsewhere(job) {
                        p.calm { "The output of run " (run.run) " is on " (text::flat(&run.host)) ". There:" }
                        p { (command(&format!("fencepost logs {} --run {}", job.job, run.run))) }
                    }
                    @if list.logs.is_empty() && elsewhere(job).next().is_none() { p.calm { "Nothing is kept of this slot's output." } }
                }
            }
        }
    }
}

/// The attempts whose output is not kept on this host.
fn elsewhere<'p>(job: &'p JobPage<'_>) -> impl Iterator<Item = &'p RunAnswer> {
    let logs = match &job.logs {
        Disclosed::Shown(list) => list.logs.as_slice(),
        _ => &[],
    };
    let attempts = job.why.attempts.iter().filter(|run| run.status.is_of_a_run() && run.status != Status::Halted);
    attempts.filter(move |run| logs.iter().all(|log| log.run != run.run))
}

fn log_of(log: &LogAnswer) -> Markup {
    let output = log.output.as_deref().unwrap_or_default();
    let start = output.len().saturating_sub(OUTPUT_BYTES_MAX);
    let start = (start..output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or(0);
    html! {
        p.calm { (text::flat(log.heading().trim_matches(['=', '<', '>', ' ']))) }
        @if start > 0 { p.calm { "Only its end is shown. All of it: " code { (text::flat(&log.path)) } } }
        pre.output tabindex="0" role="region" aria-label={ "Output of run " (log.run) } { (text::without_escapes(&output[start..])) }
    }
}
