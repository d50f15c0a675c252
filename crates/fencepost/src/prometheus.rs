//! The state of the jobs as Prometheus reads it: the text exposition format, version 0.0.4.

use std::fmt::Write as _;
use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::time::Wall;

use crate::command::status::JobState;
use crate::show;

/// All that is known of the jobs. Counters stand at zero before they count, so that the first event is seen as one.
pub fn exposition(jobs: &[JobState], unreadable: usize) -> String {
    let families = [
        Family::counter("fencepost_runs_total", "Runs of a job by the status they ended in.").fill(jobs, runs),
        Family::gauge("fencepost_streak", "How many runs in a row, up to the newest, ended in this status.")
            .fill(jobs, |job| job.streak().map(|(status, count)| (vec![("status", status.to_string())], count as f64))),
        Family::gauge("fencepost_held", "Whether the lease of a job is held now.")
            .fill(jobs, |job| [(Vec::new(), if job.is_held() { 1.0 } else { 0.0 })]),
        Family::gauge("fencepost_last_ok_timestamp_seconds", "When the last good run of a job ended.")
            .fill(jobs, |job| job.record.ledger.last_ok.as_ref().map(|last| (Vec::new(), seconds(last.finished)))),
        Family::gauge("fencepost_duration_seconds", "How long the last run of a job took.")
            .fill(jobs, |job| last_run(job).map(|last| (Vec::new(), length(last.length())))),
        Family::counter("fencepost_refused_writes_total", "Stale writes of a job that its target refused.")
            .fill(jobs, refused),
        Family::counter(
            "fencepost_skipped_overlap_total",
            "Triggers of a job that were skipped because a run was going.",
        )
        .fill(jobs, |job| [(Vec::new(), job.skips.as_ref().map_or(0, |skips| skips.overlap) as f64)]),
        Family::counter("fencepost_upstream_halts_total", "Runs of a job that were halted because of an upstream.")
            .fill(jobs, |job| upstreams(job, |halts, _| halts)),
        Family::counter(
            "fencepost_upstream_skips_total",
            "Runs of a job that were skipped because an upstream had nothing.",
        )
        .fill(jobs, |job| upstreams(job, |_, skips| skips)),
    ];
    let mut damage = Family::gauge("fencepost_unreadable_records", "Records of the store that cannot be read.");
    if !jobs.is_empty() || unreadable > 0 {
        damage.samples.push((Vec::new(), unreadable as f64));
    }
    families.iter().chain([&damage]).map(Family::text).collect()
}

type Labels = Vec<(&'static str, String)>;

fn runs(job: &JobState) -> Vec<(Labels, f64)> {
    let counts = job.counts();
    let ended = Status::ALL.into_iter().filter(|status| *status != Status::Running);
    let count = |status: Status| counts.get(status.as_str()).copied().unwrap_or_default() as f64;
    ended.map(|status| (vec![("status", status.to_string())], count(status))).collect()
}

/// The last outcome that a run left.
fn last_run(job: &JobState) -> Option<&Outcome> {
    job.record.ledger.ring.iter().rev().find(|outcome| outcome.status.is_of_a_run())
}

fn refused(job: &JobState) -> Vec<(Labels, f64)> {
    let resources = job.record.resources.iter();
    resources.map(|(resource, known)| (vec![("resource", resource.clone())], known.refused as f64)).collect()
}

fn upstreams(job: &JobState, which: fn(u64, u64) -> u64) -> Vec<(Labels, f64)> {
    let gauges = job.record.upstreams.iter();
    let count = |gauge: &fencepost_core::record::Gauge| which(gauge.halts, gauge.skips) as f64;
    gauges.map(|(upstream, gauge)| (vec![("upstream", upstream.clone())], count(gauge))).collect()
}

fn seconds(at: Wall) -> f64 {
    at.0 as f64 / 1000.0
}

fn length(length: Duration) -> f64 {
    length.as_millis() as f64 / 1000.0
}

/// One metric and its samples, each about a job.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    samples: Vec<(Labels, f64)>,
}

impl Family {
    fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: "counter", samples: Vec::new() }
    }

    fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: "gauge", samples: Vec::new() }
    }

    fn fill<S: IntoIterator<Item = (Labels, f64)>>(mut self, jobs: &[JobState], of: impl Fn(&JobState) -> S) -> Self {
        for job in jobs {
            let named = |(labels, value): (Labels, f64)| {
                // Prometheus itself sets the label `job` when it scrapes.
                let name = ("job_name", job.record.job.to_string());
                ([vec![name], labels].concat(), value)
            };
            self.samples.extend(of(job).into_iter().map(named));
        }
        self
    }

    /// A metric without samples is left out.
    fn text(&self) -> String {
        let Self { name, help, kind, samples } = self;
        if samples.is_empty() {
            return String::new();
        }
        let mut text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let labels: Vec<_> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
        }
        text
    }
}

/// A label's value: cleaned, and without the three characters that it may not hold as they are.
fn escaped(value: &str) -> String {
    show::clean(value).replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut family = Family::gauge("m", "What it is.");
        family.samples.push((vec![("a", "x\"y\\z\nw\té".to_string()), ("b", String::new())], 1.5));
        family.samples.push((Vec::new(), 1_700_000_000_123.0 / 1000.0));
        assert_eq!(
            family.text(),
            "# HELP m What it is.\n# TYPE m gauge\nm{a=\"x\\\"y\\\\z\\nw\té\",b=\"\"} 1.5\nm{} 1700000000.123\n"
        );
        assert_eq!(Family::gauge("m", "Nothing.").text(), "");
    }
}
