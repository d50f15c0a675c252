//! The barrier: everything in bounds is judged as promised, and every known bug is found.

use fencepost_sim::barrier::{Barrier, SETTINGS, mutants};
use fencepost_sim::model::{assert_found, sizes};

/// Catches a change that judges less than it should.
const STATES: usize = 2 * (1 + 27 + 27 * 27) * 10 * 4 * 2 * 6 * 2 * 5 + 39;

#[test]
fn every_scene_is_judged_as_promised() {
    assert_eq!(sizes::<Barrier>(&SETTINGS), [("upstreams", STATES, 1)]);
}

#[test]
fn every_bug_is_found_by_the_promise_it_breaks() {
    mutants::ALL.iter().for_each(assert_found);
}
