//! The durations of a job's newest runs as a line, with lines for the time-to-live and the interval.

use std::fmt::Write;
use std::time::Duration;

use fencepost_core::time::millis;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::JobTerms;
use fencepost_view::text;
use maud::{Markup, html};

/// The most runs of the line.
const POINTS_MAX: usize = 25;

const WIDTH: usize = 96;
const TOP: u64 = 3;
const BOTTOM: u64 = 21;

/// A limit further away than this many times the longest run is drawn at the top, and its line is interrupted.
const FAR: u64 = 4;

/// How long runs took, oldest first, of runs that are listed newest first.
pub fn durations(runs: &[RunAnswer], most: usize) -> Vec<u64> {
    let took = runs.iter().filter(|run| run.status.is_of_a_run()).filter_map(|run| run.duration_ms);
    let mut took: Vec<_> = took.take(most).collect();
    took.reverse();
    took
}

/// The line; nothing if no run has ended.
pub fn spark(runs: &[RunAnswer], terms: JobTerms) -> Markup {
    let took = durations(runs, POINTS_MAX);
    let Some(longest) = took.iter().copied().max() else { return html! {} };
    let scale = Scale::new(longest, [terms.ttl, terms.interval]);
    html! {
        svg.spark viewBox="0 0 96 24" preserveAspectRatio="none" role="img" {
            title { (summary(&took, longest, terms)) }
            (limit(&scale, "interval", terms.interval))
            (limit(&scale, "ttl", terms.ttl))
            path.line d=(line(&took, &scale)) {}
        }
    }
}

/// The length of time at the top of the drawing.
struct Scale(u64);

impl Scale {
    /// The longest run fits, and so do the limits that are near it.
    fn new(longest: u64, limits: [Option<Duration>; 2]) -> Self {
        let near = limits.into_iter().flatten().map(millis).filter(|limit| *limit <= longest.saturating_mul(FAR));
        Self(near.fold(longest, u64::max).max(1))
    }

    fn y(&self, length: u64) -> u64 {
        let height = u128::from(BOTTOM - TOP) * u128::from(length.min(self.0)) / u128::from(self.0);
        BOTTOM - u64::try_from(height).unwrap_or(0)
    }
}

fn limit(scale: &Scale, class: &str, limit: Option<Duration>) -> Markup {
    let Some(limit) = limit.map(millis) else { return html! {} };
    let is_far = limit > scale.0;
    let y = if is_far { 1 } else { scale.y(limit) };
    html! { path class={ (class) @if is_far { " far" } } d={ "M0 " (y) "h96" } {} }
}

fn line(took: &[u64], scale: &Scale) -> String {
    let step = WIDTH / (POINTS_MAX - 1);
    let first = WIDTH - step * (took.len() - 1);
    let mut path = String::new();
    let mut last = None;
    for length in took {
        let y = i64::try_from(scale.y(*length)).unwrap_or(0);
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
