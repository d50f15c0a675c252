//! The durations of a job's runs as columns, with lines for the time-to-live and the interval.

use fencepost_core::time::millis;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::JobTerms;
use maud::{Markup, html};

use super::{Scale, measured};
use crate::face::Face;
use crate::path;
use crate::words::{self, counted, moment};

const RUNS_MAX: usize = 50;
const COLUMN: usize = 20;
const BASE: u64 = 118;
const TOP: u64 = 6;

/// One column for each run, the newest at the right. A click opens its slot.
pub fn chart(runs: &[RunAnswer], terms: JobTerms) -> Markup {
    let ended: Vec<_> = measured(runs).take(RUNS_MAX).collect();
    let Some(longest) = ended.iter().filter_map(|run| run.duration_ms).max() else { return html! {} };
    let scale = Scale::new(longest, terms);
    let limits = [("ttl", "time-to-live", terms.ttl), ("interval", "interval", terms.interval)];
    let limits = limits.into_iter().filter_map(|(class, name, limit)| Some((class, name, millis(limit?))));
    let first = (RUNS_MAX - ended.len()) * COLUMN;
    html! {
        svg.durations viewBox="0 0 1000 120" preserveAspectRatio="none" aria-hidden="true" {
            @for (place, run) in ended.iter().rev().enumerate() { (column(run, first + place * COLUMN, scale)) }
            @for (class, _, limit) in limits.clone().filter(|(_, _, limit)| !scale.is_far(*limit)) {
                path class=(class) d={ "M0 " (BASE - scale.height(limit, BASE - TOP)) "h1000" } {}
            }
        }
        p.calm {
            "The longest of " (counted(ended.len(), "run")) " took " (words::millis(longest)) "."
            @for (class, name, limit) in limits {
                @if scale.is_far(limit) {
                    " The " (name) ", " (words::millis(limit)) ", is far above."
                } @else {
                    " " svg.key viewBox="0 0 20 6" aria-hidden="true" { path class=(class) d="M0 3h20" {} }
                    " " (name) " " (words::millis(limit)) "."
                }
            }
        }
    }
}

fn column(run: &RunAnswer, x: usize, scale: Scale) -> Markup {
    let (took, face) = (run.duration_ms.unwrap_or_default(), Face::of_status(run.status));
    let height = scale.height(took, BASE - TOP).max(2);
    html! {
        a href=(path::slot(&run.job, &run.slot.zone.show(run.slot.at))) tabindex="-1" {
            rect class={ "column " (face.class) } x=(x + 2) y=(BASE - height) width=(COLUMN - 4) height=(height) {
                title { (moment(&run.slot)) ": " (face.word) " after " (words::millis(took)) }
            }
        }
    }
}
