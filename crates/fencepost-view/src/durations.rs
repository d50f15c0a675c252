//! How long runs took, as histograms: counted as runs are seen to end, each once.

use std::collections::{BTreeMap, HashSet};

use crate::answer::RunAnswer;
use crate::board::Board;

/// The upper bounds of the buckets, in seconds.
pub const BUCKETS_SECONDS: [u64; 10] = [1, 5, 15, 60, 300, 900, 3_600, 14_400, 43_200, 86_400];

/// The durations of the runs that one process has seen, by job. The counts only grow.
#[derive(Clone, Debug, Default)]
pub struct RunDurations {
    jobs: BTreeMap<String, DurationHistogram>,
}

/// Counts of durations, each bucket with those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    pub counts: [u64; BUCKETS_SECONDS.len()],
    pub count: u64,
    pub sum_ms: u64,
}

impl RunDurations {
    /// Counts the runs of a board that had not ended in the board before.
    pub fn note(&mut self, board: &Board, before: Option<&Board>) {
        self.jobs.retain(|job, _| board.runs.contains_key(job));
        for (job, runs) in &board.runs {
            let known = before.map_or(&[][..], |before| before.runs_of(job));
            let histogram = self.jobs.entry(job.clone()).or_default();
            if std::ptr::eq(known, &**runs) {
                continue;
            }
            let had_ended: HashSet<&str> = ended(known).map(|run| run.run.as_str()).collect();
            for run in ended(runs).filter(|run| !had_ended.contains(run.run.as_str())) {
                histogram.add(run.duration_ms.unwrap_or(0));
            }
        }
    }

    pub fn jobs(&self) -> impl Iterator<Item = (&String, &DurationHistogram)> {
        self.jobs.iter()
    }
}

impl DurationHistogram {
    fn add(&mut self, ms: u64) {
        for (count, bound) in self.counts.iter_mut().zip(BUCKETS_SECONDS) {
            *count += u64::from(ms <= bound * 1000);
        }
        self.count += 1;
        self.sum_ms += ms;
    }
}

fn ended(runs: &[RunAnswer]) -> impl Iterator<Item = &RunAnswer> {
    runs.iter().filter(|run| run.finished.is_some() && run.status.is_of_a_run())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_counts_everything_up_to_its_bound() {
        let mut histogram = DurationHistogram::default();
        [0, 1_000, 1_001, 90_000_000].into_iter().for_each(|ms| histogram.add(ms));
        assert_eq!(histogram.counts, [2, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!((histogram.count, histogram.sum_ms), (4, 90_002_001));
    }
}
