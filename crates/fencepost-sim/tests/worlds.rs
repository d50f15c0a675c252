//! The rules as shipped, explored completely within each bound. The counts are pinned: a change of the rules that
//! changes what can happen is seen here, and one that should not is caught.

use fencepost_sim::model::sizes;
use fencepost_sim::world::LeaseWorld;
use fencepost_sim::worlds;

macro_rules! worlds {
    ($($test:ident: $world:ident has $states:literal states and depth $depth:literal;)*) => {
        $(
            #[test]
            fn $test() {
                assert_eq!(sizes::<LeaseWorld>(&[worlds::$world]), [(worlds::$world.name, $states, $depth)]);
            }
        )*

        #[test]
        fn every_world_has_its_test() {
            let tested = [$(worlds::$world.name),*];
            assert_eq!(tested, worlds::ALL.map(|config| config.name));
        }
    };
}

worlds! {
    slow: SLOW has 118_069 states and depth 38;
    slow_clockless: SLOW_CLOCKLESS has 112_714 states and depth 43;
    hanging: HANGING has 14_544 states and depth 26;
    observed: OBSERVED has 192_847 states and depth 29;
    asleep: ASLEEP has 95_384 states and depth 40;
    asleep_clockless: ASLEEP_CLOCKLESS has 114_396 states and depth 47;
    drift: DRIFT has 99_114 states and depth 47;
    drift_clockless: DRIFT_CLOCKLESS has 27_250 states and depth 37;
    crash: CRASH has 55_000 states and depth 35;
    crash_clockless: CRASH_CLOCKLESS has 64_730 states and depth 36;
    stall: STALL has 182_029 states and depth 37;
    loss: LOSS has 62_385 states and depth 38;
    losses: LOSSES has 106_340 states and depth 29;
    new_store: NEW_STORE has 27_389 states and depth 36;
    foreign: FOREIGN has 114_931 states and depth 38;
    restore: RESTORE has 166_380 states and depth 44;
    restore_clockless: RESTORE_CLOCKLESS has 86_232 states and depth 38;
    wait: WAIT has 223_759 states and depth 51;
    resource: RESOURCE has 143_272 states and depth 42;
    resource_slow: RESOURCE_SLOW has 53_552 states and depth 42;
    resource_named: RESOURCE_NAMED has 67_925 states and depth 31;
    resource_clockless: RESOURCE_CLOCKLESS has 54_384 states and depth 44;
}
