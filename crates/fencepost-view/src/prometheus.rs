//! The status as Prometheus reads it: the text exposition format, version 0.0.4, or OpenMetrics 1.0.

use std::fmt::Write as _;

use fencepost_core::ledger::Status;

use crate::board::Board;
use crate::durations::{BUCKETS_SECONDS, RunDurations};
use crate::status::{JobStatus, StatusAnswer, UpstreamGauge};
use crate::text;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text exposition format, version 0.0.4.
    Text,
    OpenMetrics,
}

/// What only a server knows.
#[derive(Clone, Copy, Debug)]
pub struct ServerMetrics<'a> {
    pub board: &'a Board,
    pub durations: &'a RunDurations,
    pub version: &'a str,
    /// Whether the store could be read at the last look.
    pub is_store_up: bool,
    /// How often it was read.
    pub store_polls: u64,
}

/// The status of all jobs as metrics. A counter is exposed at zero before its first event, so that a rate sees that event.
pub fn exposition(status: &StatusAnswer) -> String {
    families(status).iter().map(|family| family.text(MetricsFormat::Text)).collect()
}

/// The same, and what a server knows besides.
pub fn server_exposition(metrics: &ServerMetrics<'_>, format: MetricsFormat) -> String {
    let mut all = families(&metrics.board.status);
    all.extend(server_families(metrics));
    let mut text: String = all.iter().map(|family| family.text(format)).collect();
    if format == MetricsFormat::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn families(status: &StatusAnswer) -> Vec<Family> {
    let jobs = &status.jobs;
    vec![
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
    ]
}

fn server_families(metrics: &ServerMetrics<'_>) -> Vec<Family> {
    let Board { status, overdue, .. } = metrics.board;
    let jobs = &status.jobs;
    let overdue_slots =
        |job: &JobStatus| overdue.overdue.iter().find(|late| late.job == job.job).map_or(0, |late| late.count);
    let mut build = Family::gauge("fencepost_build_info", "The version of the server; always 1.");
    build.push("", vec![("version", metrics.version.to_string())], 1.0);
    let mut up = Family::gauge("fencepost_store_up", "Whether the store could be read at the last look.");
    up.push("", Vec::new(), if metrics.is_store_up { 1.0 } else { 0.0 });
    let mut polls = Family::counter("fencepost_store_polls_total", "How many looks of the server have read the store.");
    polls.push("", Vec::new(), metrics.store_polls as f64);
    let mut tokens = Family::gauge("fencepost_fence_token", "The highest token that a target has accepted.");
    for fence in &status.resources {
        let labels = vec![("resource", fence.resource.clone()), ("kind", fence.kind.clone())];
        tokens.push("", named(&fence.job, labels), fence.token as f64);
    }
    vec![
        Family::gauge("fencepost_needs_attention", "Whether a job needs attention.")
            .fill(jobs, |job| [(Vec::new(), if job.needs_attention { 1.0 } else { 0.0 })]),
        Family::gauge("fencepost_overdue_slots", "Slots of a job that passed with nothing recorded.")
            .fill(jobs, |job| [(Vec::new(), overdue_slots(job) as f64)]),
        Family::gauge("fencepost_next_slot_timestamp_seconds", "When a job is due next.")
            .fill(jobs, |job| job.next_slot.as_ref().map(|next| (Vec::new(), next.at.0 as f64 / 1000.0))),
        durations(metrics.durations),
        tokens,
        build,
        up,
        polls,
    ]
}

fn durations(durations: &RunDurations) -> Family {
    let mut family = Family {
        name: "fencepost_run_duration_seconds",
        help: "How long runs of a job took, of those that the server has seen.",
        kind: "histogram",
        samples: Vec::new(),
    };
    for (job, histogram) in durations.jobs() {
        for (count, bound) in histogram.counts.iter().zip(BUCKETS_SECONDS) {
            family.push("_bucket", named(job, vec![("le", format!("{bound}.0"))]), *count as f64);
        }
        family.push("_bucket", named(job, vec![("le", "+Inf".to_string())]), histogram.count as f64);
        family.push("_sum", named(job, Vec::new()), histogram.sum_ms as f64 / 1000.0);
        family.push("_count", named(job, Vec::new()), histogram.count as f64);
    }
    family
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
    samples.for_each(|(labels, value)| family.push("", labels, value));
    family
}

fn unreadable(status: &StatusAnswer) -> Family {
    let mut family = Family::gauge("fencepost_unreadable_records", "Records of the store that cannot be read.");
    if !status.jobs.is_empty() || !status.errors.is_empty() {
        family.push("", Vec::new(), status.errors.len() as f64);
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
    /// What follows the name, the labels and the value.
    samples: Vec<(&'static str, Labels, f64)>,
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
            of(job).into_iter().for_each(|(labels, value)| self.push("", named(&job.job, labels), value));
        }
        self
    }

    fn push(&mut self, suffix: &'static str, labels: Labels, value: f64) {
        self.samples.push((suffix, labels, value));
    }

    /// A metric without samples is left out. OpenMetrics names a counter without its suffix.
    fn text(&self, format: MetricsFormat) -> String {
        let Self { name, help, kind, samples } = self;
        if samples.is_empty() {
            return String::new();
        }
        let described = match format {
            MetricsFormat::Text => name,
            MetricsFormat::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let mut text = format!("# HELP {described} {help}\n# TYPE {described} {kind}\n");
        for (suffix, labels, value) in samples {
            let labels: Vec<_> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(text, "{name}{suffix}{{{}}} {value}", labels.join(","));
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
        family.push("", vec![("a", "x\"y\\z\nw\té".to_string()), ("b", String::new())], 1.5);
        family.push("", Vec::new(), 1_700_000_000_123.0 / 1000.0);
        assert_eq!(
            family.text(MetricsFormat::Text),
            "# HELP m What it is.\n# TYPE m gauge\nm{a=\"x\\\"y\\\\z\\nw\té\",b=\"\"} 1.5\nm{} 1700000000.123\n"
        );
        assert_eq!(Family::gauge("m", "Nothing.").text(MetricsFormat::Text), "");
        let mut counter = Family::counter("m_total", "Events.");
        counter.push("", Vec::new(), 2.0);
        assert_eq!(counter.text(MetricsFormat::OpenMetrics), "# HELP m Events.\n# TYPE m counter\nm_total{} 2\n");
    }
}
