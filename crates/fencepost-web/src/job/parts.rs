//! The other parts of a job's page.

use fencepost_core::time::{Wall, millis as to_millis};
use fencepost_view::graph::GraphEdge;
use fencepost_view::text;
use maud::{Markup, html};

use super::{Disclosed, JobPage};
use crate::chart::durations;
use crate::layout::{Frame, command};
use crate::path;
use crate::query::JobAction;
use crate::words::{age, countdown, counted, millis, moment, near};

/// How long runs take.
pub fn durations(job: &JobPage<'_>) -> Markup {
    let advice = job.advice.as_ref();
    html! {
        section #durations aria-labelledby="durations-title" {
            h2 #durations-title { "Durations" }
            (durations::chart(job.runs(), job.terms()))
            @if let Some(advice) = advice.filter(|advice| advice.runs.is_some()) {
                dl.facts {
                    @for (label, length) in [("Median", advice.median_ms), ("95 %", advice.p95_ms), ("Longest", advice.worst_ms)] {
                        @if let Some(length) = length { div { dt { (label) } dd { (millis(length)) } } }
                    }
                    @if let Some(ttl) = job.terms().ttl { div { dt { "Time-to-live" } dd { (millis(to_millis(ttl))) } } }
                    @if let Some(interval) = job.terms().interval { div { dt { "Interval" } dd { (millis(to_millis(interval))) } } }
                }
                @for sentence in advice.sentences.iter().flatten() { p { (text::flat(sentence)) } }
            } @else {
                p.calm { "Too few runs ended well for percentiles." }
            }
        }
    }
}

/// What a trigger would do now, and when the clocks change.
pub fn plan(job: &JobPage<'_>, now: Wall) -> Markup {
    html! {
        @if let Some(plan) = &job.plan {
            section #plan aria-labelledby="plan-title" {
                h2 #plan-title { "Plan" }
                p { (text::flat(&plan.reason)) }
                dl.facts {
                    @if let Some(next) = &plan.next_slot { div { dt { "Next slot" } dd { (countdown(next, now)) ", " (moment(next)) } } }
                    @if !plan.run.is_empty() {
                        div { dt { "Would run now" } dd { @for (place, slot) in plan.run.iter().enumerate() { @if place > 0 { ", " } (near(slot, now)) } } }
                    }
                    @if let Some(dropped) = &plan.dropped {
                        div { dt { "Never run" } dd { (counted(usize::try_from(dropped.count).unwrap_or(usize::MAX), "slot")) ", " (near(&dropped.from, now)) " to " (near(&dropped.to, now)) } }
                    }
                    div { dt { "In words" } dd { (plan.more.schedule.describe()) } }
                    div { dt { "Clocks" } dd { (plan.more.clock_change.as_deref().unwrap_or("No change of the clocks meets the schedule within a year.")) } }
                }
            }
        }
    }
}

/// Upstreams and downstreams.
pub fn neighbours(job: &JobPage<'_>, now: Wall) -> Markup {
    let edges = &job.board.graph.edges;
    let upstreams: Vec<_> = edges.iter().filter(|edge| edge.job == job.job).collect();
    let downstreams: Vec<_> = edges.iter().filter(|edge| edge.upstream == job.job).collect();
    html! {
        @if !upstreams.is_empty() || !downstreams.is_empty() {
            section #neighbours aria-labelledby="neighbours-title" {
                h2 #neighbours-title { "Needs and is needed by" }
                ul.list {
                    @for edge in upstreams { (neighbour("needs", &edge.upstream, edge, now)) }
                    @for edge in downstreams { (neighbour("is needed by", &edge.job, edge, now)) }
                }
                p { a href=(path::GRAPH) { "Graph of all jobs" } }
            }
        }
    }
}

fn neighbour(relation: &str, other: &str, edge: &GraphEdge, now: Wall) -> Markup {
    html! {
        li {
            (relation) " " a.job href=(path::job(other)) { (other) }
            @if let Some(when) = &edge.when { " (" (when) ")" }
            @if let Some(last) = &edge.last { ", last read " (near(&last.slot, now)) }
            @if let Some(gauge) = &edge.gauge {
                @if gauge.halts > 0 {
                    ": " span.word.halted { (counted(usize::try_from(gauge.halts).unwrap_or(usize::MAX), "halt")) } ", " (age(&gauge.at, now)) ": " (text::flat(&gauge.reason))
                }
            }
        }
    }
}

/// The resources that the job writes.
pub fn fences(job: &JobPage<'_>, now: Wall) -> Markup {
    let fences: Vec<_> = job.board.status.resources.iter().filter(|fence| fence.job == job.job).collect();
    html! {
        @if !fences.is_empty() {
            section #fences aria-labelledby="fences-title" {
                h2 #fences-title { "Fences" }
                ul.list {
                    @for fence in fences {
                        li {
                            code { (text::flat(&fence.resource)) } " (" (fence.kind) "): token " (fence.token) ", written " (age(&fence.at, now))
                            @if fence.refused > 0 { ", " span.word.fenced { (counted(usize::try_from(fence.refused).unwrap_or(usize::MAX), "stale write")) " refused" } }
                        }
                    }
                }
            }
        }
    }
}

/// The job as the server's configuration has it.
pub fn configuration(job: &JobPage<'_>, frame: &Frame) -> Markup {
    html! {
        section #configuration aria-labelledby="configuration-title" {
            h2 #configuration-title { "Configuration" }
            @match &job.config {
                Disclosed::Withheld => p.calm { "The configuration is shown to viewers who have signed in with a token. " a href=(path::LOGIN) { "Sign in" } },
                Disclosed::Absent(why) => p.calm { (why) },
                Disclosed::Shown(config) => {
                    @if let Some(path) = &frame.config { p.calm { "From " code { (path) } } }
                    @for sentence in &job.changed { p.note { "Changed since: " (text::flat(sentence)) } }
                    dl.keys {
                        @for (key, value) in config.keys.iter().filter(|(_, value)| !value.is_null()) {
                            div { dt { code { (key) } } dd { code { (value_text(value)) } } }
                        }
                        div { dt { code { "working_directory" } } dd { code { (config.working_directory) } } }
                    }
                }
            }
        }
    }
}

fn value_text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// The commands that answer the same on a terminal.
pub fn commands(job: &JobPage<'_>, frame: &Frame) -> Markup {
    let name = job.job;
    let there = job.other_host(frame).map_or_else(String::new, |host| format!(", on {host}"));
    let at = job.why.slot.as_ref().map_or_else(String::new, |slot| format!(" --at {}", slot.zone.show(slot.at)));
    html! {
        section #commands aria-labelledby="commands-title" {
            h2 #commands-title { "Commands" }
            ul.commands {
                @for (meaning, text) in [
                    ("What became of this slot".to_string(), format!("fencepost why {name}{at}")),
                    ("Its newest runs".to_string(), format!("fencepost runs {name} -n 50")),
                    (format!("What its newest run printed{there}"), format!("fencepost logs {name}")),
                    ("What would run now".to_string(), format!("fencepost plan {name}")),
                    ("How long it takes, and which terms suit".to_string(), format!("fencepost advise {name}")),
                    (format!("Run it at once{there}"), JobAction::RunNow.command(name)),
                    (format!("Stop it from starting{there}"), JobAction::Pause.command(name)),
                ] {
                    li { span { (meaning) } span { (command(&text)) } }
                }
            }
        }
    }
}
