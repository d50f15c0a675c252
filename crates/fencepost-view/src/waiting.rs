//! Which job waits for which: runs of this host that wait, and the runs that were started inside others.

use fencepost_core::record::{Lease, Record};
use fencepost_core::token::RunId;
use fencepost_core::waiting::WaitingRun;
use fencepost_core::zone::Zone;
use schemars::JsonSchema;
use serde::Serialize;

use crate::text;
use crate::time::LocalTime;
use crate::vocabulary::words;

words! {
    /// What a run waits for.
    WaitReason {
        /// Another run holds the lease.
        Lease = "lease",
        /// An upstream is not good yet.
        Upstream = "upstream",
    }
}

/// A job that waits for another. Only the host of the waiting run knows of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Waiting {
    /// The job that waits. If a run around it waits for it, the job inside.
    pub job: String,
    pub waits_for: String,
    pub reason: WaitReason,
    /// The jobs that run inside the run which is waited for.
    pub held_by: Vec<String>,
    /// The run that waits.
    pub run: String,
    pub host: String,
    pub pid: Option<i32>,
    pub since: LocalTime,
    /// When it gives up.
    pub until: Option<LocalTime>,
}

impl Waiting {
    /// Who waits for what, in a sentence.
    pub fn sentence(&self) -> String {
        let Self { job, waits_for, host, .. } = self;
        let pid = self.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
        let moment = |time: &LocalTime| text::second_in(time.at, &time.zone);
        let until = self.until.as_ref().map_or_else(String::new, |until| format!(", at most until {}", moment(until)));
        let held =
            if self.held_by.is_empty() { String::new() } else { format!(", held by {}", self.held_by.join(", ")) };
        let what = match job == waits_for {
            true => format!("A run of {job} waits for the one that is going"),
            false => format!("{job} waits for {waits_for}"),
        };
        let since = moment(&self.since);
        format!("{what}{held}, since {since}{until} (on {}{pid}).", text::flat(host))
    }
}

/// The leases of all jobs, by which runs inside other runs are found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases(Vec<HeldLease>);

#[derive(Clone, Debug)]
struct HeldLease {
    job: String,
    run: RunId,
    inside: Vec<RunId>,
}

impl Leases {
    pub(crate) fn add(&mut self, record: &Record) {
        let held = |lease: &Lease| {
            let (job, inside) = (record.job.to_string(), lease.holder.inside.clone());
            HeldLease { job, run: lease.run, inside }
        };
        self.0.extend(record.lease.as_ref().map(held));
    }

    /// The jobs whose runs are around the run of this job, the outermost first.
    pub(crate) fn around(&self, job: &str) -> Vec<String> {
        let inside = self.0.iter().find(|held| held.job == job).map(|held| held.inside.as_slice());
        let job_of = |run: &RunId| self.0.iter().find(|held| held.run == *run).map(|held| held.job.clone());
        inside.unwrap_or_default().iter().filter_map(job_of).collect()
    }

    /// The jobs whose runs were started inside the run of this job.
    pub(crate) fn inside(&self, job: &str) -> Vec<String> {
        let Some(outer) = self.0.iter().find(|held| held.job == job) else { return Vec::new() };
        self.0.iter().filter(|held| held.inside.contains(&outer.run)).map(|held| held.job.clone()).collect()
    }
}

/// Which job waits for which, in this store.
pub(crate) fn waits(
    runs: &[WaitingRun],
    store: &str,
    leases: &Leases,
    zone: impl Fn(&str) -> Option<Zone>,
) -> Vec<Waiting> {
    let mut waits = Vec::new();
    for run in runs.iter().filter(|run| run.store == store) {
        let is_for_lease = run.is_for_lease();
        for waits_for in &run.waits_for {
            let job = run.then.as_ref().filter(|_| is_for_lease).unwrap_or(&run.job);
            // A job that waits for its first run has no zone yet.
            let zone = zone(job).or_else(|| zone(waits_for)).unwrap_or_else(Zone::utc);
            waits.push(Waiting {
                job: job.clone(),
                waits_for: waits_for.clone(),
                reason: if is_for_lease { WaitReason::Lease } else { WaitReason::Upstream },
                held_by: leases.inside(waits_for),
                run: run.run.to_string(),
                host: run.holder.host.clone(),
                pid: run.holder.pid(),
                since: LocalTime::new(run.since, &zone),
                until: run.until.map(|until| LocalTime::new(until, &zone)),
            });
        }
    }
    waits
}
