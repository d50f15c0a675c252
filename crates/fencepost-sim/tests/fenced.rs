//! Fenced writes: everything in bounds is visited, and every known bug is found.

use fencepost_sim::fenced::invariants::Violation;
use fencepost_sim::fenced::{mutants, settings};

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
    let sizes = settings::ALL.map(|setting| {
        let report = setting.explore(None);
        if let Some(found) = report.found {
            panic!("{}: {}:\n{}", setting.name, found.violation, setting.narrate(&found));
        }
        (setting.name, report.states, report.depth)
    });
    assert_eq!(sizes, SIZES);
}

#[test]
fn every_bug_is_found_by_the_promise_it_breaks() {
    let is_missed = |mutant: &mutants::Mutant| mutant.explore().found.is_none();
    let missed: Vec<&str> = mutants::ALL.iter().filter(|mutant| is_missed(mutant)).map(|mutant| mutant.name).collect();
    assert_eq!(missed, [""; 0]);
}

/// A fence behind its content is no harm in itself: this is what it leads to.
#[test]
fn what_leaves_the_fence_behind_lets_stale_content_land() {
    for name in ["content_first", "fence_not_durable", "arrival_unflushed"] {
        let mutant = mutants::named(name).unwrap();
        assert_eq!(mutant.breaks, Violation::FenceBehind);
        assert!(mutant.setting.explore(Some(Violation::StaleLanded)).found.is_some(), "{name}");
    }
}

#[test]
fn a_write_that_is_found_arrived_and_not_flushed_is_lost_after_it_was_reported() {
    let mutant = mutants::named("arrival_unflushed").unwrap();
    assert!(mutant.setting.explore(Some(Violation::ReportedLost)).found.is_some());
}
