//! What happened since a moment, a line for each job that anything happened to.

use fencepost_view::digest::{Digest, DigestCounts};
use fencepost_view::text::{flat, second_in};

use super::style::Style;
use crate::show::{Cell, aligned};

/// Since when: one instant for all jobs, or the time as it was typed, which each job's zone has at another instant.
pub fn since(digest: &Digest, typed: &str) -> String {
    let first = digest.jobs.first().map(|job| &job.since);
    match first.filter(|first| digest.jobs.iter().all(|job| job.since.at == first.at)) {
        Some(first) => format!("since   {}", second_in(first.at, &first.zone)),
        None => format!("since   {} in each job's zone", flat(typed)),
    }
}

pub fn lines(digest: &Digest, style: &Style) -> Vec<String> {
    let happened: Vec<_> = digest.jobs.iter().filter(|job| !job.counts.is_empty()).collect();
    let mut rows: Vec<_> = happened.iter().map(|job| row(&job.job, &job.counts, style)).collect();
    rows.push(row("total", &digest.total, style));
    let mut lines = aligned(&["JOB", "RAN", "OK", "EMPTY", "FAILED", "HALTED", "MISSED", "FENCED", "SKIPPED"], rows);
    match digest.jobs.len() - happened.len() {
        0 => {}
        rest => {
            let other = if happened.is_empty() { "" } else { "other " };
            let jobs = if rest == 1 { "job" } else { "jobs" };
            lines.push(format!("Nothing happened to {rest} {other}{jobs}."));
        }
    }
    lines
}

fn row(name: &str, counts: &DigestCounts, style: &Style) -> Vec<Cell> {
    let DigestCounts { ran, ok, empty, failed, halted, missed, fenced, skipped } = *counts;
    let number = |count: u64| if count == 0 { "-".to_string() } else { count.to_string() };
    let fine = |count: u64| Cell::plain(&number(count));
    let bad = |count: u64| match count {
        0 => fine(0),
        count => Cell::painted(&number(count), |text| style.red(text)),
    };
    let name = Cell::plain(name);
    vec![name, fine(ran), fine(ok), fine(empty), bad(failed), bad(halted), bad(missed), bad(fenced), fine(skipped)]
}
