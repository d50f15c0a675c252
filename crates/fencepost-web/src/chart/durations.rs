//! The durations of a job's runs as columns, with lines for the time-to-live and the interval.

use std::time::Duration;

use fencepost_core::time::millis;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::JobTerms;
use maud::{Markup, html};

use crate::face::Face;
use crate::path;
use crate::words::{self, moment};

const RUNS_MAX: usize = 50;
const COLUMN: usize = 20;
const HEIGHT: u64 = 120;
const BASE: u64 = 118;

/// One column for each run, the newest at the right. A click opens its slot.
pub fn chart(runs: &[RunAnswer], terms: JobTerms) -> Markup {
    let ended: Vec<_> =
        runs.iter().filter(|run| run.status.is_of_a_run() && run.duration_ms.is_some()).take(RUNS_MAX).collect();
    let Some(longest) = ended.iter().filter_map(|run| run.duration_ms).max() else { return html! {} };
    let near = |limit: &u64| *limit <= longest.saturating_mul(4);
    let limits = [("ttl", "time-to-live", terms.ttl), ("interval", "interval", terms.interval)];
    let top = limits.iter().filter_map(|(_, _, limit)| limit.map(millis)).filter(near).fold(longest, u64::max).max(1);
    let first = (RUNS_MAX - ended.len()) * COLUMN;
    html! {
        svg.durations viewBox={ "0 0 1000 " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
            @for (place, run) in ended.iter().rev().enumerate() {
                @let height = height(run.duration_ms.unwrap_or_default(), top);
                a href=(path::slot(&run.job, &run.slot.zone.show(run.slot.at))) tabindex="-1" {
                    rect class={ "column " (Face::of_status(run.status).class) } x=(first + place * COLUMN + 2) y=(BASE - height) width=(COLUMN - 4) height=(height) {
                        title { (moment(&run.slot)) ": " (Face::of_status(run.status).word) " after " (words::millis(run.duration_ms.unwrap_or_default())) }
                    }
                }
            }
            @for (class, _, limit) in limits {
                @if let Some(limit) = limit.map(millis).filter(near) { path class=(class) d={ "M0 " (BASE - height(limit, top)) "h1000" } {} }
            }
        }
        p.calm {
            "The longest of " (ended.len()) " took " (words::millis(longest)) "."
            @for (class, name, limit) in limits {
                @if let Some(limit) = limit { " " (limit_words(class, name, limit, near(&millis(limit)))) }
            }
        }
    }
}

fn limit_words(class: &str, name: &str, limit: Duration, is_drawn: bool) -> Markup {
    let shown = words::millis(millis(limit));
    html! {
        @if is_drawn { svg.key viewBox="0 0 20 6" aria-hidden="true" { path class=(class) d="M0 3h20" {} } " " (name) " " (shown) "." }
        @else { "The " (name) ", " (shown) ", is far above." }
    }
}

fn height(length: u64, top: u64) -> u64 {
    let height = u128::from(HEIGHT - 8) * u128::from(length.min(top)) / u128::from(top.max(1));
    u64::try_from(height).unwrap_or(0).max(2)
}
