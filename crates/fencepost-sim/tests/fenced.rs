//! Fenced writes: everything in bounds is visited, and every known bug is found.

use fencepost_sim::fenced::invariants::FenceViolation;
use fencepost_sim::fenced::{FenceWorld, mutants, settings};
use fencepost_sim::model::{assert_found, named, sizes};

/// The states and the depth of each setting, so that a change that explores less than it should is caught.
const SIZES: [(&str, usize, usize); 8] = [
    ("many", 72_847, 43),
    ("once", 52_481, 37),
    ("many-damaged", 53_768, 42),
    ("once-damaged", 39_710, 36),
    ("many-lineages", 16_279, 31),
    ("once-lineages", 13_434, 29),
    ("many-runs", 34_020, 33),
    ("once-runs", 24_588, 31),
];

#[test]
fn every_setting_is_sound() {
    assert_eq!(sizes::<FenceWorld>(&settings::ALL), SIZES);
}

#[test]
fn every_bug_is_found_by_the_promise_it_breaks() {
    mutants::ALL.iter().for_each(assert_found);
}

/// A fence behind its content is no harm in itself: this is what it leads to.
#[test]
fn what_leaves_the_fence_behind_lets_stale_content_land() {
    for name in ["content_first", "fence_not_durable", "arrival_unflushed"] {
        let mutant = named(&mutants::ALL, name).unwrap();
        assert_eq!(mutant.breaks, FenceViolation::FenceBehind);
        assert!(mutant.explore_for(FenceViolation::StaleLanded).found.is_some(), "{name}");
    }
}

#[test]
fn a_write_that_is_found_arrived_and_not_flushed_is_lost_after_it_was_reported() {
    let mutant = named(&mutants::ALL, "arrival_unflushed").unwrap();
    assert!(mutant.explore_for(FenceViolation::ReportedLost).found.is_some());
}
