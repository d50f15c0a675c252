//! Which slot a run claims, decided from the record inside the claim: first sight, duplicates, overlaps, what died, what
//! failed, and items of work that are done once.

mod catch_up;

use std::time::Duration;

use crate::common::*;
use fencepost_core::artifact::Fingerprint;
use fencepost_core::lease::{Facts, Honest, Intent, Now};
use fencepost_core::ledger::{Covered, Outcome, RING_OUTCOMES_KEPT, RING_OUTCOMES_MAX, Status, Trigger};
use fencepost_core::plan::{self, CatchUpMode, CatchUpOrder};
use fencepost_core::record::{Paused, Record};
use fencepost_core::run::{Event, Exit, Finish, Input, Overlap, Terms};
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::{Asked, Choice, Named, NotNow, OnLost, OnUnknown, Repeat, Scheduled};
use fencepost_core::time::Wall;
use fencepost_core::transition::{Call, Step, Transition};
use fencepost_core::zone::Zone;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// Every hour; a slot is at the start of a test, and at every whole hour of it.
pub fn hourly() -> Scheduled {
    let zone = Zone::utc();
    let schedule = Schedule::parse(&format!("every 1h from {}", zone.show(wall(0))), &zone).unwrap();
    Scheduled { schedule, terms: plan::CatchUpTerms::default(), asked: Asked::Due, on_lost: OnLost::Rerun, retries: 0 }
}

pub fn catching_up(catch_up: u32) -> Scheduled {
    let due = hourly();
    Scheduled { terms: plan::CatchUpTerms { catch_up, ..due.terms.clone() }, ..due }
}

pub fn asking(asked: Asked) -> Scheduled {
    Scheduled { asked, ..hourly() }
}

pub fn due(scheduled: Scheduled) -> Choice {
    Choice::Due(Box::new(scheduled))
}

/// A slot by its instant, without retries.
pub fn named(slot: Wall) -> Named {
    Named { slot, repeat: Repeat::No, on_lost: OnLost::Rerun, retries: 0, slack: None }
}

fn named_slot(slot: Wall, again: bool) -> Choice {
    Choice::Slot(Named { repeat: if again { Repeat::Again } else { Repeat::No }, ..named(slot) })
}

/// Whole hours, and minutes beyond.
pub fn at(hours: u64, minutes: u64) -> u64 {
    hours * HOUR + minutes * MINUTE
}

/// The slot of an hour.
pub fn slot(hour: u64) -> Wall {
    wall(hour * HOUR)
}

/// One job and its triggers, one after the other.
#[derive(Default)]
pub struct Story {
    pub store: Option<Memory>,
    pub runs: u128,
    /// What is told of the run before: that its processes are gone.
    pub is_dead: bool,
}

/// What a trigger came to.
#[derive(Debug, PartialEq)]
pub enum Came {
    Ran { slot: Wall, trigger: Trigger, covers: Option<Covered> },
    Not(NotNow),
    Held,
}

impl Came {
    pub fn slot(&self) -> Option<Wall> {
        if let Self::Ran { slot, .. } = self { Some(*slot) } else { None }
    }

    pub fn duplicate(&self) -> Option<(Wall, Status)> {
        match self {
            Self::Not(NotNow::Duplicate { slot, state, .. }) => Some((*slot, *state)),
            _ => None,
        }
    }

    pub fn is_not_due(&self) -> bool {
        matches!(self, Self::Not(NotNow::NotDue { .. }))
    }
}

impl Story {
    /// A job that has been seen, and has done every slot until the start of the test.
    pub fn known() -> Self {
        let mut story = Self::default();
        assert_eq!(story.ok(0, due(hourly())).slot(), Some(slot(0)));
        story
    }

    pub fn terms(&mut self, choice: Choice) -> Terms {
        self.runs += 1;
        let mut terms = terms(self.runs);
        (terms.claim.slot, terms.claim.trigger) = (choice, Trigger::Manual);
        terms
    }

    /// A trigger, until its child runs or it is clear that none will.
    pub fn trigger(&mut self, at_ms: u64, terms: Terms) -> Bench {
        let mut bench = Bench::new(terms, self.store.take().unwrap_or_else(Memory::with_identity));
        (bench.at, bench.facts) = (at_ms, Facts { holder_is_dead: self.is_dead, ..Facts::default() });
        bench.step(Input::Begin);
        bench.settle();
        bench
    }

    pub fn came(bench: &mut Bench) -> Came {
        if !bench.run.is_finished() {
            let lease = lease(&bench.store.record()).clone();
            bench.step(Input::Spawned);
            return Came::Ran { slot: lease.slot, trigger: lease.trigger, covers: lease.covers };
        }
        match bench.finish() {
            Finish::NotNow(why) => Came::Not(why),
            Finish::Held { .. } => Came::Held,
            other => panic!("{other:?}"),
        }
    }

    /// A trigger whose run, if it comes to one, ends with this code after a while.
    pub fn ends(&mut self, at_ms: u64, choice: Choice, code: i32, took_ms: u64) -> Came {
        let terms = self.terms(choice);
        let mut bench = self.trigger(at_ms, terms);
        let came = Self::came(&mut bench);
        if came.slot().is_some() {
            bench.wait(took_ms);
            bench.end_child(Exit::Code(code));
            bench.settle();
        }
        (self.store, self.is_dead) = (Some(bench.store), false);
        came
    }

    pub fn ok(&mut self, at_ms: u64, choice: Choice) -> Came {
        self.ends(at_ms, choice, 0, 1_000)
    }

    pub fn fails(&mut self, at_ms: u64, choice: Choice) -> Came {
        self.ends(at_ms, choice, 7, 1_000)
    }

    /// A trigger whose run dies without a word.
    pub fn dies(&mut self, at_ms: u64, choice: Choice) -> Came {
        let terms = self.terms(choice);
        let mut bench = self.trigger(at_ms, terms);
        let came = Self::came(&mut bench);
        (self.store, self.is_dead) = (Some(bench.store), came.slot().is_some());
        came
    }

    /// A trigger whose run goes on until it is ended.
    pub fn goes(&mut self, at_ms: u64, choice: Choice) -> Bench {
        let terms = self.terms(choice);
        let mut bench = self.trigger(at_ms, terms);
        assert!(Self::came(&mut bench).slot().is_some());
        self.store = Some(std::mem::take(&mut bench.store));
        bench
    }

    /// What goes on ends well.
    pub fn end(&mut self, mut bench: Bench, at_ms: u64) {
        (bench.store, bench.at) = (self.store.take().unwrap(), at_ms);
        bench.end_child(Exit::Code(0));
        bench.settle();
        self.store = Some(bench.store);
    }

    pub fn intend(&mut self, intent: Intent, at_ms: u64) -> bool {
        self.runs += 1;
        let store = self.store.get_or_insert_with(Memory::with_identity);
        let mut transition = Transition::<Honest>::new(job(), intent, id(self.runs), 0);
        let mut step = transition.begin(now(at_ms));
        loop {
            step = match step {
                Step::Call(call) => transition.answered(now(at_ms), Ok(store.answer(call, at_ms))),
                Step::Consult(_) => transition.consulted(now(at_ms), Facts::default()),
                Step::Done(_) => return true,
                Step::Refused(_) => return false,
                Step::Failed(error) => panic!("{error}"),
            }
        }
    }

    pub fn record(&self) -> Record {
        self.store.as_ref().unwrap().record()
    }

    pub fn evaluated(&self) -> Option<Wall> {
        self.record().timing.unwrap().evaluated
    }

    pub fn outcomes(&self, status: Status) -> Vec<Outcome> {
        self.record().ledger.ring.into_iter().filter(|outcome| outcome.status == status).collect()
    }

    /// The ranges that were missed.
    pub fn missed(&self) -> Vec<(Wall, Wall, u64)> {
        let covers = self.outcomes(Status::Missed).into_iter().map(|outcome| outcome.covers.unwrap());
        covers.map(|covers| (covers.from, covers.to, covers.count)).collect()
    }

    /// How often a slot was completed.
    pub fn times_ok(&self, slot: Wall) -> usize {
        self.outcomes(Status::Ok).iter().filter(|outcome| outcome.slot == slot).count()
    }

    pub fn swaps(&self) -> usize {
        self.store.as_ref().unwrap().calls.iter().filter(|call| matches!(call, Call::Swap { .. })).count()
    }
}

// First sight.

#[test]
fn a_job_seen_for_the_first_time_is_written_down_though_nothing_runs() {
    let mut story = Story::default();
    let came = story.ok(at(0, 30), due(catching_up(3)));
    assert!(came.is_not_due(), "{came:?}");
    let record = story.record();
    let timing = record.timing.clone().unwrap();
    assert_eq!((timing.since, timing.evaluated), (wall(at(0, 30)), Some(slot(0))));
    assert_eq!((timing.schedule.as_str(), timing.zone.as_str()), (hourly().schedule.text(), "UTC"));
    assert_eq!((record.grants, record.ledger.ring.len()), (0, 0), "nothing was granted, and nothing missed");
    // It is known from then on, and nothing is written again.
    let swaps = story.swaps();
    assert!(story.ok(at(0, 40), due(catching_up(3))).is_not_due());
    assert_eq!(story.swaps(), swaps);
    assert_eq!(story.ok(at(1, 0), due(catching_up(3))).slot(), Some(slot(1)));
}

#[test]
fn a_job_seen_for_the_first_time_at_its_slot_runs_it() {
    let mut story = Story::default();
    let came = story.ok(at(5, 1), due(catching_up(3)));
    assert_eq!(came, Came::Ran { slot: slot(5), trigger: Trigger::Schedule, covers: None });
    assert_eq!(story.missed(), []);
}

// Duplicates and overlaps.

#[test]
fn the_second_trigger_of_a_slot_that_is_done_is_a_duplicate_and_later_ones_find_nothing_due() {
    let mut story = Story::known();
    let again = story.ok(at(0, 1), due(hourly()));
    assert_eq!(again.duplicate(), Some((slot(0), Status::Ok)));
    // Who looks every few minutes is no second trigger.
    assert!(story.ok(at(0, 20), due(hourly())).is_not_due());
    assert_eq!(story.times_ok(slot(0)), 1);
}

#[test]
fn the_second_trigger_of_a_slot_that_is_running_is_a_duplicate_and_of_the_next_an_overlap() {
    let mut story = Story::known();
    let going = story.goes(at(1, 0), due(hourly()));
    // Renewed all the while.
    story.store.as_mut().unwrap().change(|record| record.lease.as_mut().unwrap().until = Some(until(9 * HOUR)));
    assert_eq!(story.ok(at(1, 0), due(hourly())).duplicate(), Some((slot(1), Status::Running)));
    assert_eq!(story.ok(at(1, 30), due(hourly())).duplicate(), Some((slot(1), Status::Running)));
    assert_eq!(story.ok(at(2, 0), due(hourly())), Came::Held);
    assert_eq!(story.ok(at(2, 0), named_slot(slot(1), true)).duplicate(), { Some((slot(1), Status::Running)) });
    story.store.as_mut().unwrap().change(|record| record.lease.as_mut().unwrap().until = Some(until(TTL_MS)));
    story.end(going, at(3, 30));
    // Slots 2 and 3 passed while it was going, and that is final, however much is caught up.
    for minute in [30, 40, 58] {
        let came = story.ok(at(3, minute), due(catching_up(9)));
        assert!(came.is_not_due(), "{minute}: {came:?}");
    }
    assert_eq!(story.ok(at(4, 0), due(catching_up(9))).slot(), Some(slot(4)));
    assert_eq!(story.missed(), []);
}

#[test]
fn four_machines_at_one_instant_run_a_slot_once() {
    let mut story = Story::known();
    let mut benches: Vec<Bench> = (0..4)
        .map(|_| {
            let terms = story.terms(due(hourly()));
            let mut bench = Bench::new(terms, Memory::default());
            bench.at = at(1, 0);
            bench.step(Input::Begin);
            bench
        })
        .collect();
    // All have read before the first writes.
    for round in 0..6 {
        for bench in &mut benches {
            if bench.call.is_some() && !(round == 0 && bench.store.has_record()) {
                bench.store = story.store.take().unwrap();
                bench.answer();
                story.store = Some(std::mem::take(&mut bench.store));
            }
        }
    }
    let running = benches.iter().filter(|bench| bench.run.is_running()).count();
    let duplicates = benches.iter_mut().filter(|bench| bench.run.is_finished()).map(|bench| bench.finish());
    let is_duplicate = |finish: &Finish| matches!(finish, Finish::NotNow(NotNow::Duplicate { .. }));
    assert_eq!((running, duplicates.filter(is_duplicate).count()), (1, 3));
}

#[test]
fn a_named_slot_is_run_once() {
    let mut story = Story::default();
    let named = |slot, again| named_slot(slot, again);
    assert_eq!(story.ok(5, named(slot(3), false)).slot(), Some(slot(3)));
    assert_eq!(story.ok(9, named(slot(3), false)).duplicate(), Some((slot(3), Status::Ok)));
    assert_eq!(story.fails(20, named(slot(4), false)).slot(), Some(slot(4)));
    let failed = Came::Not(NotNow::Failed { slot: slot(4), state: Status::Error, exit_code: 7 });
    assert_eq!(story.ok(40, named(slot(4), false)), failed);
    assert_eq!(story.ok(50, named(slot(4), true)).slot(), Some(slot(4)));
    assert_eq!(story.ok(60, named(slot(3), true)).slot(), Some(slot(3)), "it was asked for again");
}

#[test]
fn a_named_slot_that_the_record_may_have_forgotten_is_not_run_by_itself() {
    // Filled in from the newest back, as people do.
    let mut story = Story::default();
    let named = |hour, again| named_slot(slot(hour), again);
    for hour in (1..=48).rev() {
        let may_be_forgotten = hour < 8;
        let came = story.ok(at(50, 0), named(hour, may_be_forgotten));
        assert_eq!(came.slot(), Some(slot(hour)));
    }
    let given_up = RING_OUTCOMES_MAX + 1 - RING_OUTCOMES_KEPT;
    assert_eq!(story.record().ledger.ring.len(), 48 - given_up);
    for hour in 1..=48 {
        let came = story.ok(at(50, 1), named(hour, false));
        let is_known = came.duplicate() == Some((slot(hour), Status::Ok));
        assert!(is_known || came == Came::Not(NotNow::TooOld { slot: slot(hour) }), "{hour}: {came:?}");
    }
    assert_eq!(story.ok(at(50, 2), named(48, true)).slot(), Some(slot(48)));
    assert_eq!(story.ok(at(50, 2), named(49, false)).slot(), Some(slot(49)), "nothing so new was ever given up");
}

#[test]
fn a_slot_stays_done_when_the_ring_has_forgotten_it() {
    let mut story = Story::known();
    assert_eq!(story.ok(at(1, 0), due(hourly())).slot(), Some(slot(1)));
    for number in 0..40 {
        story.ok(at(1, 1) + number, Choice::At(wall(at(1, 1) + number)));
    }
    assert_eq!(story.times_ok(slot(1)), 0, "forgotten");
    let came = story.ok(at(1, 30), due(catching_up(3)));
    assert!(came.is_not_due(), "{came:?}");
}

// What died.

#[test]
fn a_run_that_died_is_tried_again_by_the_next_trigger() {
    let mut story = Story::known();
    story.dies(at(1, 0), due(hourly()));
    let came = story.ok(at(1, 30), due(hourly()));
    assert_eq!(came, Came::Ran { slot: slot(1), trigger: Trigger::CatchUp, covers: None });
    assert_eq!(story.outcomes(Status::Lost)[0].slot, slot(1));
    assert_eq!(story.times_ok(slot(1)), 1);
    assert!(story.ok(at(1, 31), due(hourly())).is_not_due());
}

#[test]
fn a_run_that_died_halts_the_job_if_it_is_to() {
    let mut story = Story::known();
    let halting = || Scheduled { on_lost: OnLost::Halt, ..hourly() };
    story.dies(at(1, 0), due(halting()));
    story.is_dead = true;
    let came = story.ok(at(1, 30), due(halting()));
    assert_eq!(came, Came::Not(NotNow::Lost { slot: slot(1) }));
    story.is_dead = true;
    let came = story.ok(at(1, 31), Choice::Slot(Named { on_lost: OnLost::Halt, ..named(slot(1)) }));
    assert_eq!(came, Came::Not(NotNow::Lost { slot: slot(1) }));
    story.is_dead = true;
    let came = story.ok(at(1, 40), due(Scheduled { asked: Asked::Again, ..halting() }));
    assert_eq!(came.slot(), Some(slot(1)));
    assert!(story.ok(at(1, 50), due(halting())).is_not_due());
}

#[test]
fn what_passed_between_a_death_and_its_discovery_is_caught_up() {
    let mut story = Story::known();
    story.dies(at(1, 0), due(catching_up(3)));
    // The next trigger comes at 9:30. When the run before it died is not known.
    let slots: Vec<_> = (0..4).map(|minute| story.ok(at(9, 30 + minute), due(catching_up(3))).slot()).collect();
    assert_eq!(slots, [Some(slot(7)), Some(slot(8)), Some(slot(9)), None]);
    assert_eq!(story.missed(), [(slot(2), slot(6), 5)]);
    assert_eq!(story.outcomes(Status::Lost)[0].slot, slot(1));
}

// What failed.

#[test]
fn a_slot_that_failed_is_not_tried_again_and_the_next_one_is_run() {
    let mut story = Story::known();
    let failed = |hour| Came::Not(NotNow::Failed { slot: slot(hour), state: Status::Error, exit_code: 7 });
    assert_eq!(story.fails(at(1, 0), due(hourly())).slot(), Some(slot(1)));
    for minute in [1, 10, 20] {
        assert_eq!(story.ok(at(1, minute), due(hourly())), failed(1), "{minute}");
    }
    assert_eq!(story.fails(at(2, 0), due(catching_up(5))).slot(), Some(slot(2)));
    assert_eq!(story.ok(at(2, 10), due(catching_up(5))), failed(2));
    assert_eq!(story.ok(at(3, 0), due(catching_up(5))).slot(), Some(slot(3)));
    assert!(story.ok(at(3, 20), due(catching_up(5))).is_not_due(), "the newest is done");
    assert_eq!(story.missed(), [], "it failed, which is recorded");
}

// By hand.

#[test]
fn a_run_now_satisfies_the_current_slot_if_it_is_open() {
    let mut story = Story::known();
    let came = story.ok(at(1, 20), due(asking(Asked::Now)));
    assert_eq!(came, Came::Ran { slot: slot(1), trigger: Trigger::Manual, covers: None });
    assert!(story.ok(at(1, 30), due(hourly())).is_not_due());
    assert_eq!(story.times_ok(slot(1)), 1);
}

#[test]
fn a_run_now_satisfies_the_next_slot_if_the_current_one_is_done_and_no_further_one() {
    let mut story = Story::known();
    assert_eq!(story.ok(at(0, 20), due(asking(Asked::Now))).slot(), Some(slot(1)));
    assert_eq!(story.ok(at(0, 30), due(asking(Asked::Now))).duplicate(), Some((slot(1), Status::Ok)));
    assert!(story.ok(at(0, 40), due(hourly())).is_not_due());
    assert_eq!(story.ok(at(1, 0), due(hourly())).duplicate(), Some((slot(1), Status::Ok)));
    assert_eq!(story.ok(at(2, 0), due(hourly())).slot(), Some(slot(2)));
    assert_eq!((story.times_ok(slot(1)), story.missed()), (1, vec![]));
}

#[test]
fn a_run_now_takes_the_newest_slot_in_any_order_that_the_others_are_caught_up() {
    for order in [CatchUpOrder::OldestFirst, CatchUpOrder::NewestFirst] {
        let mut story = Story::known();
        let terms = plan::CatchUpTerms { order, ..catching_up(3).terms };
        let now = Scheduled { terms: terms.clone(), ..asking(Asked::Now) };
        assert_eq!(story.ok(at(3, 20), due(now)).slot(), Some(slot(3)), "{order:?}");
        let rest = |story: &mut Story, minute| {
            story.ok(at(3, minute), due(Scheduled { terms: terms.clone(), ..hourly() })).slot()
        };
        let mut slots = [rest(&mut story, 30), rest(&mut story, 31), rest(&mut story, 32)];
        slots.sort();
        assert_eq!(slots, [None, Some(slot(1)), Some(slot(2))], "{order:?}");
    }
}

#[test]
fn a_run_now_just_before_its_slot_takes_it_and_another_does_not_do_it_again() {
    let mut story = Story::known();
    assert_eq!(story.ok(at(0, 59), due(asking(Asked::Now))).slot(), Some(slot(1)), "a minute early");
    assert_eq!(story.ok(at(0, 59) + 5_000, due(asking(Asked::Now))).slot(), Some(slot(2)));
    assert_eq!(story.times_ok(slot(1)), 1);
    assert_eq!(story.ok(at(0, 59) + 9_000, due(asking(Asked::Again))).slot(), Some(slot(1)), "the newest once more");
}

#[test]
fn a_slot_is_repeated_if_that_is_asked_for() {
    let mut story = Story::known();
    assert_eq!(story.ok(at(0, 30), due(asking(Asked::Again))).slot(), Some(slot(0)));
    assert_eq!(story.times_ok(slot(0)), 2);
    assert_eq!(story.ok(at(1, 0), due(hourly())).slot(), Some(slot(1)));
}

// An item of work that is done once.

fn once(on_unknown: OnUnknown) -> Choice {
    Choice::Once { params: None, on_unknown }
}

#[test]
fn what_is_done_replays_its_code_and_what_failed_by_itself_may_be_tried_again() {
    let mut story = Story::default();
    assert!(story.fails(0, once(OnUnknown::Halt)).slot().is_some());
    assert!(story.ok(1, once(OnUnknown::Halt)).slot().is_some());
    let came = story.ok(2, once(OnUnknown::Retry));
    let Came::Not(NotNow::Duplicate { state, exit_code, .. }) = came else { panic!("{came:?}") };
    assert_eq!((state, exit_code), (Status::Ok, Some(0)));
}

#[test]
fn what_died_or_was_ended_is_unknown() {
    let unknown = Came::Not(NotNow::Lost { slot: Wall(0) });
    let mut story = Story::default();
    story.dies(0, once(OnUnknown::Halt));
    for at_ms in [1, 2] {
        story.is_dead = true;
        assert_eq!(story.ok(at_ms, once(OnUnknown::Halt)), unknown);
    }
    for code in [129, 137, 143, 255] {
        let mut story = Story::default();
        story.ends(0, once(OnUnknown::Halt), code, 10);
        assert_eq!(story.ok(20, once(OnUnknown::Halt)), unknown, "{code}");
        assert!(story.ok(20, once(OnUnknown::Retry)).slot().is_some(), "{code}");
    }
}

#[test]
fn what_was_looked_at_is_tried_again_and_not_what_came_after() {
    let mut story = Story::default();
    story.dies(0, once(OnUnknown::Halt));
    let looked_at = story.record().token;
    // Two have looked. The first tries again and dies as well: of that one, no operator has seen anything.
    assert!(story.dies(1, once(OnUnknown::RetryAfter(looked_at))).slot().is_some());
    assert_eq!(story.ok(2, once(OnUnknown::RetryAfter(looked_at))), Came::Not(NotNow::Lost { slot: Wall(0) }));
}

#[test]
fn another_parameter_is_another_item_of_work() {
    let with = |text: &str| Choice::Once {
        params: Some(Fingerprint(text.as_bytes().try_into().unwrap())),
        on_unknown: OnUnknown::Retry,
    };
    let mut story = Story::default();
    story.fails(0, with("the amount is five, in euro cent"));
    assert_eq!(story.ok(10, with("the amount is six!, in euro cent")), Came::Not(NotNow::OtherParameters));
    assert!(story.ok(20, with("the amount is five, in euro cent")).slot().is_some());
    assert_eq!(story.ok(40, with("the amount is six!, in euro cent")), Came::Not(NotNow::OtherParameters));
}
