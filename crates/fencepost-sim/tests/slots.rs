//! Slots and items of work: everything in bounds is visited, and every known bug is found.

use fencepost_core::lease::Honest;
use fencepost_sim::slots::{mutants, settings};

/// The states and the depth of each setting, so that a change that explores less than it should is caught.
const SIZES: [(&str, usize, usize); 13] = [
    ("never", 57_422, 19),
    ("newest", 91_712, 19),
    ("three", 98_524, 19),
    ("collapse", 41_015, 18),
    ("lossy", 28_649, 15),
    ("paused", 95_151, 21),
    ("crowd", 9_570, 16),
    ("row", 73_468, 26),
    ("early", 5_830, 15),
    ("ahead", 66_197, 19),
    ("once", 15_875, 15),
    ("once-retried", 8_841, 14),
    ("once-unstarted", 8_094, 20),
];

#[test]
fn every_setting_is_sound() {
    let sizes = settings::ALL.map(|setting| {
        let report = setting.explore::<Honest>(None);
        if let Some(found) = report.found {
            panic!("{}: {}:\n{}", setting.name, found.violation, setting.narrate::<Honest>(&found));
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
