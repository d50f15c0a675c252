//! Every known bug is found, by the promise that it breaks.

use fencepost_sim::model::{assert_found, named};
use fencepost_sim::mutants;

macro_rules! mutants {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                assert_found(named(&mutants::ALL, stringify!($name)).expect("it is in the list"));
            }
        )*

        #[test]
        fn every_mutant_has_its_test() {
            let names: Vec<&str> = mutants::ALL.iter().map(|mutant| mutant.name).collect();
            assert_eq!([$(stringify!($name)),*].as_slice(), names);
        }
    };
}

mutants! {
    renew_unchecked
    release_unchecked
    release_deletes
    lost_swap_is_lost_lease
    lost_swap_is_won
    unknown_is_won
    unknown_is_lost
    skip_resets_observer
    observer_from_request
    renewals_unseen
    deadline_from_response
    no_margin
    until_from_old_reading
    old_reading
    holders_clock
    fence_outside
    names_ignored
    died_is_applied
    plain_counter
    plain_write
    clock_stops_in_sleep
    blocked_loop
    no_freeze
    keeper_forgotten
    foreign_processes
    early_release
    skips_in_record
    no_sightings
    takeover_keeps_fence
    versions_repeat
}
