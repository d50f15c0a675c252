//! The barrier: everything in bounds is judged as promised, and every known bug is found.

use fencepost_core::barrier::Strict;
use fencepost_sim::barrier::{explore, mutants};

/// So that a change that judges less than it should is caught.
const STATES: usize = 2 * (1 + 27 + 27 * 27) * 10 * 4 * 2 * 6 * 2 * 5 + 39;

#[test]
fn every_scene_is_judged_as_promised() {
    let report = explore::<Strict>(None);
    if let Some((violation, scene)) = report.found {
        panic!("{violation}: {scene}");
    }
    assert_eq!(report.states, STATES);
}

#[test]
fn every_bug_is_found_by_the_promise_it_breaks() {
    for mutant in mutants::ALL {
        let report = mutant.explore();
        let found = report.found.unwrap_or_else(|| panic!("{} {} states show nothing.", mutant.what, report.states));
        assert_eq!(found.0, mutant.breaks, "{}: {}", mutant.what, found.1);
    }
}
