//! Slots and items of work: everything in bounds is visited, and every known bug is found.

use fencepost_sim::model::{assert_found, sizes};
use fencepost_sim::slots::{SlotWorld, mutants, settings};

/// The states and the depth of each setting, so that a change that explores less than it should is caught.
const SIZES: [(&str, usize, usize); 15] = [
    ("never", 57_422, 19),
    ("newest", 91_712, 19),
    ("three", 98_524, 19),
    ("collapse", 41_015, 18),
    ("lossy", 28_649, 15),
    ("paused", 95_151, 21),
    ("paused-for", 102_768, 21),
    ("forgotten", 69_089, 19),
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
    assert_eq!(sizes::<SlotWorld>(&settings::ALL), SIZES);
}

#[test]
fn every_bug_is_found_by_the_promise_it_breaks() {
    mutants::ALL.iter().for_each(assert_found);
}
