//! The status as Prometheus reads it: the text exposition format, version 0.0.4.

use std::fmt::Write as _;

use fencepost_core::ledger::Status;

use crate::status::{JobStatus, StatusAnswer, UpstreamGauge};
use crate::text;

/// The status of all jobs as metrics. A counter is exposed at zero before its first event, so that a rate sees that event.
pub fn exposition(status: &StatusAnswer) -> String {
    let jobs = &status.jobs;
    let families = [
        Family::counter("fencepost_runs_total", "Runs of a job by the status they ended in.").fill(jobs, runs),
        Family::gauge("fencepost_streak", "How many runs in a row, up to the newest, ended in this status.")
            .fill(jobs, |job| {
                job.streak.map(|streak| (vec![("status", streak.status.to_string())], streak.count as f64))
            }),
        Family::gauge("fencepost_held", "Whether the lease of a job is held now.")
            .fill(jobs, |job| [(Vec::new(), if job.holder.is_some() { 1.0 } else { 0.0 })]),
        Family::gauge("fencepost_last_ok_timestamp_seconds", "When the last good run of a job ended.")
            .fill(jobs, last_ok),
        Family::gauge("fencepost_duration_seconds", "How long the last run of a job took.")
            .fill(jobs, |job| job.more.last_took.map(|took| (Vec::new(), took.as_millis() as f64 / 1000.0))),
        refused(status),
        Family::counter(
            "fencepost_skipped_overlap_total",
            "Triggers of a job that were skipped because a run was going.",
        )
        .fill(jobs, |job| [(Vec::new(), job.skips.overlap as f64)]),
        Family::counter("fencepost_upstream_halts_total", "Runs of a job that were halted because of an upstream.")
            .fill(jobs, |job| upstreams(job, |gauge| gauge.halts)),
        Family::counter(
            "fencepost_upstream_skips_total",
            "Runs of a job that were skipped because an upstream had nothing.",
        )
        .fill(jobs, |job| upstreams(job, |gauge| gauge.skips)),
        unreadable(status),
    ];
    families.iter().map(Family::text).collect()
}

type Labels = Vec<(&'static str, String)>;

/// Prometheus itself sets the label `job` when it scrapes, so a job's name has another one.
fn named(job: &str, labels: Labels) -> Labels {
    [vec![("job_name", job.to_string())], labels].concat()
}

fn runs(job: &JobStatus) -> Vec<(Labels, f64)> {
    let ended = Status::ALL.into_iter().filter(|status| *status != Status::Running);
    let count = |status: Status| job.counts.get(status.as_str()).copied().unwrap_or_default() as f64;
    ended.map(|status| (vec![("status", status.to_string())], count(status))).collect()
}

fn last_ok(job: &JobStatus) -> Option<(Labels, f64)> {
    let finished = job.last_ok.as_ref()?.finished.as_ref()?;
    Some((Vec::new(), finished.at.0 as f64 / 1000.0))
}

fn refused(status: &StatusAnswer) -> Family {
    let mut family =
        Family::counter("fencepost_refused_writes_total", "Stale writes of a job that its target refused.");
    let samples = status
        .resources
        .iter()
        .map(|fence| (named(&fence.job, vec![("resource", fence.resource.clone())]), fence.refused as f64));
    family.samples.extend(samples);
    family
}

fn unreadable(status: &StatusAnswer) -> Family {
    let mut family = Family::gauge("fencepost_unreadable_records", "Records of the store that cannot be read.");
    if !status.jobs.is_empty() || !status.errors.is_empty() {
        family.samples.push((Vec::new(), status.errors.len() as f64));
    }
    family
}

fn upstreams(job: &JobStatus, which: fn(&UpstreamGauge) -> u64) -> Vec<(Labels, f64)> {
    let sample = |gauge: &UpstreamGauge| (vec![("upstream", gauge.job.clone())], which(gauge) as f64);
    job.upstreams.iter().map(sample).collect()
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

    fn fill<S: IntoIterator<Item = (Labels, f64)>>(mut self, jobs: &[JobStatus], of: impl Fn(&JobStatus) -> S) -> Self {
        for job in jobs {
            self.samples.extend(of(job).into_iter().map(|(labels, value)| (named(&job.job, labels), value)));
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

/// A label's value: cleaned, with the three characters escaped that the format reserves.
fn escaped(value: &str) -> String {
    text::clean(value).replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
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
