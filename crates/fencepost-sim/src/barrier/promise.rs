//! P4, written down without the code that keeps it: a job works only on the right slot's newest record, and where an
//! artifact is named on exactly the bytes which that record names.

use fencepost_core::barrier::Decision;

use super::{ArtifactHere, DAY, Minute, PastEnding, Rule, SLOTS, Scene, WITHIN};

/// What has to come of a scene.
pub fn of(scene: &Scene) -> Decision {
    let Some(slot) = right_slot(scene) else { return Decision::Halt };
    if scene.going.is_some_and(|going| going.last == slot) {
        return Decision::Halt;
    }
    let own = scene.attempts.iter().rev().find(|past| past.is_own(slot));
    if own.is_none() && scene.going.is_some_and(|going| has(scene, going.first, going.last, slot)) {
        return Decision::Halt;
    }
    let range = || scene.attempts.iter().rev().find(|past| past.is_range() && has(scene, past.first, past.last, slot));
    let newest = own.or_else(range).map(|past| past.ended);
    match newest {
        Some(PastEnding::Ok(_) | PastEnding::OkBare) if is_here(newest, scene.found) => Decision::Proceed,
        // Where there was nothing new, what is read is what was good last.
        Some(PastEnding::Empty) if scene.proceed_on_empty && is_here(last_good(scene), scene.found) => {
            Decision::Proceed
        }
        Some(PastEnding::Empty) if !scene.proceed_on_empty => Decision::Skip,
        _ => Decision::Halt,
    }
}

/// Whether a slot lies in a range. Where the schedule is not known, only the ends of a range are.
fn has(scene: &Scene, first: usize, last: usize, slot: usize) -> bool {
    if scene.knows_schedule() { (first..=last).contains(&slot) } else { slot == first || slot == last }
}

/// Any halt halts, else any skip skips.
pub fn of_several(decisions: &[Decision]) -> Decision {
    let any = |wanted: Decision| decisions.contains(&wanted);
    match (any(Decision::Halt), any(Decision::Skip)) {
        (true, _) => Decision::Halt,
        (false, true) => Decision::Skip,
        (false, false) => Decision::Proceed,
    }
}

/// The number of the slot that the scene asks about, if anything is known of such a one.
fn right_slot(scene: &Scene) -> Option<usize> {
    let is_touched = |slot: usize| {
        scene
            .attempts
            .iter()
            .any(|past| past.is_own(slot) || past.is_range() && has(scene, past.first, past.last, slot))
            || scene.going.is_some_and(|going| has(scene, going.first, going.last, slot))
    };
    let newest =
        |counts: &dyn Fn(Minute) -> bool| (0..SLOTS.len()).rev().find(|&slot| counts(SLOTS[slot]) && is_touched(slot));
    let asker = scene.asker;
    match scene.rule {
        // The one that was due, touched or not.
        Rule::LastDueOfSchedule => (0..SLOTS.len()).rev().find(|&slot| SLOTS[slot] <= asker),
        Rule::LastDue | Rule::SameDay => newest(&|slot| slot / DAY == asker / DAY),
        Rule::SameSlot => newest(&|slot| slot == asker),
        Rule::Within => newest(&|slot| slot <= asker && asker - slot <= WITHIN),
        Rule::Any => newest(&|_| true),
    }
}

fn last_good(scene: &Scene) -> Option<PastEnding> {
    let good = |ended: &PastEnding| matches!(ended, PastEnding::Ok(_) | PastEnding::OkBare);
    scene.attempts.iter().rev().map(|past| past.ended).find(good)
}

/// Whether what is here is what was recorded.
fn is_here(recorded: Option<PastEnding>, found: ArtifactHere) -> bool {
    match found {
        ArtifactHere::Unnamed => true,
        ArtifactHere::Bytes(here) => recorded == Some(PastEnding::Ok(here)),
        ArtifactHere::Missing | ArtifactHere::Unreadable => false,
    }
}
