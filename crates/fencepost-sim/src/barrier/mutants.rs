//! The known bugs of the barrier: each replaces one rule by what looks right and is not.

use fencepost_core::artifact::Artifact;
use fencepost_core::barrier::{Asker, BarrierRules, Calendar, Decision, Here, OnEmpty, StrictBarrier};
use fencepost_core::ledger::{Covered, Outcome, Status};
use fencepost_core::time::Wall;

use super::BarrierViolation::{self, *};
use super::{Barrier, RuleSet};
use crate::model;
use crate::rulebook::Rulebook;

pub type BarrierMutant = model::Mutant<Barrier>;

/// Declares a set of rules with one of them replaced.
macro_rules! bug {
    ($name:ident { $($rule:item)* }) => {
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl BarrierRules for $name {
            $($rule)*
        }
    };
}

bug!(Today {
    fn day_of(_asker: &Asker, now: Wall) -> Wall {
        now
    }
});

bug!(OlderOk {
    fn outcome_of<'a>(own: &[&'a Outcome], ranges: &[&'a Outcome]) -> Option<&'a Outcome> {
        let good = own.iter().rev().find(|attempt| attempt.status == Status::Ok);
        good.or(own.last()).or(ranges.last()).copied()
    }
});

bug!(FirstAttempt {
    fn outcome_of<'a>(own: &[&'a Outcome], ranges: &[&'a Outcome]) -> Option<&'a Outcome> {
        own.first().or(ranges.first()).copied()
    }
});

bug!(RangeBeatsOwn {
    fn outcome_of<'a>(own: &[&'a Outcome], ranges: &[&'a Outcome]) -> Option<&'a Outcome> {
        ranges.last().or(own.last()).copied()
    }
});

bug!(MissedBeatsOwn {
    fn outcome_of<'a>(own: &[&'a Outcome], ranges: &[&'a Outcome]) -> Option<&'a Outcome> {
        let missed = ranges.iter().rev().find(|range| range.status == Status::Missed);
        missed.or(own.last()).or(ranges.last()).copied()
    }
});

bug!(RangesOnlyExact {
    fn newest_covered(range: Covered, from: Wall, before: Wall, calendar: Calendar<'_>) -> Option<Wall> {
        (before.0 - from.0 == 1).then(|| StrictBarrier::newest_covered(range, from, before, calendar))?
    }
});

bug!(RangeCoversInstants {
    fn newest_covered(range: Covered, from: Wall, before: Wall, _calendar: Calendar<'_>) -> Option<Wall> {
        let last = range.to.min(Wall(before.0.saturating_sub(1)));
        (from.max(range.from) <= last).then_some(last)
    }
});

bug!(RunningIgnored {
    fn running_counts() -> bool {
        false
    }
});

bug!(NoDigestPasses {
    fn same(recorded: Option<&Artifact>, here: &Here) -> bool {
        match (recorded, here) {
            (Some(recorded), Here::Found(here)) => recorded.sha256 == here.sha256,
            (None, Here::Found(_)) => true,
            _ => false,
        }
    }
});

bug!(LengthOnly {
    fn same(recorded: Option<&Artifact>, here: &Here) -> bool {
        matches!((recorded, here), (Some(recorded), Here::Found(here)) if recorded.size == here.size)
    }
});

bug!(ExistenceOnly {
    fn same(recorded: Option<&Artifact>, here: &Here) -> bool {
        recorded.is_some() && !matches!(here, Here::Missing)
    }
});

bug!(SkipBeatsHalt {
    fn together(decisions: &[Decision]) -> Decision {
        let any = |wanted: Decision| decisions.contains(&wanted).then_some(wanted);
        any(Decision::Skip).or(any(Decision::Halt)).unwrap_or(Decision::Proceed)
    }
});

bug!(EmptyPasses {
    fn decision(status: Status, _on_empty: OnEmpty) -> Decision {
        match status {
            Status::Ok | Status::Empty | Status::SkippedBarrier => Decision::Proceed,
            _ => Decision::Halt,
        }
    }
});

bug!(EmptyHalts {
    fn decision(status: Status, on_empty: OnEmpty) -> Decision {
        match status {
            Status::Ok => Decision::Proceed,
            Status::Empty if on_empty == OnEmpty::Proceed => Decision::Proceed,
            _ => Decision::Halt,
        }
    }
});

pub const ALL: [BarrierMutant; 14] = [
    rule::<Today>("today", "The day is the one on the clock, and not the one of the slot that asks.", Proceeded),
    rule::<OlderOk>(
        "older_ok",
        "An older success counts, although a later attempt of the same slot failed.",
        Proceeded,
    ),
    rule::<FirstAttempt>("first_attempt", "The first attempt of a slot counts, and not its newest.", Proceeded),
    rule::<RangeBeatsOwn>(
        "range_beats_own",
        "A range that covers a slot counts, and not the slot's own attempt.",
        Proceeded,
    ),
    rule::<MissedBeatsOwn>("missed_beats_own", "A missed slot stays missed, although it was completed later.", Halted),
    rule::<RangesOnlyExact>("ranges_only_exact", "A range counts only where one exact slot is asked for.", Proceeded),
    rule::<RangeCoversInstants>(
        "range_covers_instants",
        "A range stands for every instant in it, slot or not.",
        Proceeded,
    ),
    rule::<RunningIgnored>("running_ignored", "A run that is going or died does not count as an attempt.", Proceeded),
    rule::<NoDigestPasses>("no_digest_passes", "What was not recorded is not compared.", Proceeded),
    rule::<LengthOnly>("length_only", "Files of one length are taken for the same.", Proceeded),
    rule::<ExistenceOnly>("existence_only", "A file that is there is taken for the right one.", Proceeded),
    rule::<SkipBeatsHalt>("skip_beats_halt", "One upstream with nothing hushes another that failed.", Hushed),
    rule::<EmptyPasses>("empty_passes", "An upstream that had nothing lets the job through unasked.", Proceeded),
    rule::<EmptyHalts>("empty_halts", "A quiet holiday is an alarm.", Halted),
];

const fn rule<R: BarrierRules>(name: &'static str, what: &'static str, breaks: BarrierViolation) -> BarrierMutant {
    BarrierMutant { name, what, breaks, setting: RuleSet::of::<R>(), rules: Rulebook::HONEST }
}
