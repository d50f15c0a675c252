//! Drawings in SVG, written by hand. Geometry is in attributes and colours are in the style sheet.

pub mod durations;
pub mod spark;
pub mod strip;

use fencepost_core::ledger::Status;
use fencepost_core::time::millis;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::JobTerms;

/// A limit further away than this many times the longest run is not drawn to scale.
const FAR: u64 = 4;

/// The runs whose command ended by itself or by its timeout, newest first: how long the others took says nothing.
pub fn measured(runs: &[RunAnswer]) -> impl Iterator<Item = &RunAnswer> {
    let is_measured = |status: Status| matches!(status, Status::Ok | Status::Empty) || status.is_failure();
    runs.iter().filter(move |run| is_measured(run.status) && run.duration_ms.is_some())
}

/// The length of time, in milliseconds, at the top of a drawing of durations.
#[derive(Clone, Copy, Debug)]
struct Scale(u64);

impl Scale {
    /// The longest run fits, and so do the limits that are near it.
    fn new(longest: u64, terms: JobTerms) -> Self {
        let limits = [terms.ttl, terms.interval].into_iter().flatten().map(millis);
        let near = limits.filter(|limit| *limit <= longest.saturating_mul(FAR)).max();
        Self(near.unwrap_or(0).max(longest.saturating_mul(3) / 2).max(1))
    }

    fn is_far(self, length: u64) -> bool {
        length > self.0
    }

    /// How high a length is drawn, if the top is this high.
    fn height(self, length: u64, top: u64) -> u64 {
        let height = u128::from(top) * u128::from(length.min(self.0)) / u128::from(self.0);
        u64::try_from(height).unwrap_or(top)
    }
}
