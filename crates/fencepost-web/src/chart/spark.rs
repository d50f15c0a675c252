//! The durations of a job's newest runs as a line, with lines for the time-to-live and the interval.

use std::fmt::Write;
use std::time::Duration;

use fencepost_core::time::millis;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::JobTerms;
use fencepost_view::text;
use maud::{Markup, html};

use super::{Scale, measured};

/// The most runs of the line.
const POINTS_MAX: usize = 25;

const WIDTH: usize = 96;
const TOP: u64 = 2;
const BOTTOM: u64 = 23;

/// How long runs took, oldest first, of runs that are listed newest first.
pub fn durations(runs: &[RunAnswer], most: usize) -> Vec<u64> {
    let mut took: Vec<_> = measured(runs).filter_map(|run| run.duration_ms).take(most).collect();
    took.reverse();
    took
}

/// The line; nothing if no run has ended.
pub fn spark(runs: &[RunAnswer], terms: JobTerms) -> Markup {
    let took = durations(runs, POINTS_MAX);
    let Some(longest) = took.iter().copied().max() else { return html! {} };
    let scale = Scale::new(longest, terms);
    html! {
        svg.spark viewBox="0 0 96 24" preserveAspectRatio="none" role="img" {
            title { (summary(&took, longest, terms)) }
            (limit(scale, "interval", terms.interval))
            (limit(scale, "ttl", terms.ttl))
            path.line d=(line(&took, scale)) {}
        }
    }
}

/// A limit to scale. The time-to-live is also drawn if it is far above, at the top.
fn limit(scale: Scale, class: &str, limit: Option<Duration>) -> Markup {
    let Some(limit) = limit.map(millis) else { return html! {} };
    let y = if scale.is_far(limit) { 1 } else { y(scale, limit) };
    let is_drawn = class == "ttl" || !scale.is_far(limit);
    html! { @if is_drawn { path class=(class) d={ "M0 " (y) "h96" } {} } }
}

fn y(scale: Scale, length: u64) -> u64 {
    BOTTOM - scale.height(length, BOTTOM - TOP)
}

fn line(took: &[u64], scale: Scale) -> String {
    let step = WIDTH / (POINTS_MAX - 1);
    let first = WIDTH - step * (took.len() - 1);
    let mut path = String::new();
    let mut last = None;
    for length in took {
        let y = i64::try_from(y(scale, *length)).unwrap_or(0);
        match last {
            None => _ = write!(path, "M{first} {y}l"),
            Some(last) => _ = write!(path, "{step} {} ", y - last),
        }
        last = Some(y);
    }
    // A single run is a point: a line of one step.
    if took.len() == 1 {
        path.push_str("-4 0");
    }
    path.trim_end().to_string()
}

fn summary(took: &[u64], longest: u64, terms: JobTerms) -> String {
    let shown = |length: u64| text::length(Duration::from_millis(length));
    let last = took.last().copied().unwrap_or_default();
    let mut words = format!("Took {}, at most {} in {} runs", shown(last), shown(longest), took.len());
    if took.len() == 1 {
        words = format!("Took {}", shown(last));
    }
    for (name, limit) in [("time-to-live", terms.ttl), ("interval", terms.interval)] {
        if let Some(limit) = limit {
            _ = write!(words, "; {name} {}", text::length(limit));
        }
    }
    words
}
