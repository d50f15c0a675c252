//! What happened since a moment: how many runs of each job ended well, failed, were halted, missed or skipped.

use fencepost_core::ledger::Status;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::RunAnswer;
use crate::time::LocalTime;

/// What happened since a moment, by slot: what `runs --since` lists, counted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Digest {
    /// The jobs, by name.
    pub jobs: Vec<JobDigest>,
    pub total: DigestCounts,
}

/// What happened to one job since a moment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobDigest {
    pub job: String,
    /// The moment in the job's zone.
    pub since: LocalTime,
    #[serde(flatten)]
    pub counts: DigestCounts,
}

/// How many runs and slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DigestCounts {
    /// Runs whose command started, as far as that is known. A run that is going counts.
    pub ran: u64,
    pub ok: u64,
    pub empty: u64,
    /// Runs that ended in an error, exceeded their timeout, died or lost their lease.
    pub failed: u64,
    /// Runs that an upstream halted.
    pub halted: u64,
    /// Slots that nothing ran for in time.
    pub missed: u64,
    /// Runs that had a stale write refused.
    pub fenced: u64,
    /// Slots skipped because an upstream had nothing, and triggers skipped because a run was going. The latter are known
    /// to the hour, for the last three days.
    pub skipped: u64,
}

impl DigestCounts {
    /// Counts a run, or slots that no run was for.
    pub(crate) fn add(&mut self, run: &RunAnswer, slots: u64) {
        let counter = match run.status {
            Status::Ok => &mut self.ok,
            Status::Empty => &mut self.empty,
            Status::Error | Status::Timeout | Status::Lost => &mut self.failed,
            Status::Fenced => &mut self.fenced,
            Status::Halted => &mut self.halted,
            Status::Missed => &mut self.missed,
            Status::SkippedBarrier | Status::SkippedOverlap => &mut self.skipped,
            // Nothing is wrong with these, and there may be many: one for each further machine, or each trigger.
            Status::SkippedDuplicate | Status::SkippedPaused => return,
            Status::Running => {
                self.ran += 1;
                return;
            }
        };
        *counter += if run.status == Status::Missed { slots } else { 1 };
        let has_run = matches!(run.status, Status::Ok | Status::Empty | Status::Fenced | Status::Lost);
        self.ran += u64::from(has_run || matches!(run.status, Status::Error | Status::Timeout));
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn plus(self, other: Self) -> Self {
        Self {
            ran: self.ran + other.ran,
            ok: self.ok + other.ok,
            empty: self.empty + other.empty,
            failed: self.failed + other.failed,
            halted: self.halted + other.halted,
            missed: self.missed + other.missed,
            fenced: self.fenced + other.fenced,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl Digest {
    pub(crate) fn of(jobs: Vec<JobDigest>) -> Self {
        let total = jobs.iter().fold(DigestCounts::default(), |total, job| total.plus(job.counts));
        Self { jobs, total }
    }
}
