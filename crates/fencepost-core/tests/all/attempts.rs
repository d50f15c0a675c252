//! How many attempts a slot has, what uses one, and when a trigger makes one.

use std::time::Duration;

use crate::common::*;
use crate::slot::*;
use fencepost_core::ledger::{Covered, EndedBy, Ending, Outcome, Status, Trigger};
use fencepost_core::plan::{self, CatchUpMode, CatchUpOrder};
use fencepost_core::run::{Event, Exit, Finish, Input, NotSpawned, Stages, Terms};
use fencepost_core::slot::{Asked, Choice, Named, NotNow, Repeat, Scheduled};
use fencepost_core::time::Wall;

fn failed(hour: u64) -> Came {
    Came::Not(NotNow::Failed { slot: slot(hour), state: Status::Error, exit_code: 7 })
}

fn retried(retries: u32) -> Scheduled {
    Scheduled { retries, ..hourly() }
}

fn collapse() -> Scheduled {
    Scheduled { terms: plan::CatchUpTerms { mode: CatchUpMode::Collapse, ..hourly().terms }, ..hourly() }
}

fn covering(from: u64, to: u64) -> Option<Covered> {
    Some(Covered { from: slot(from), to: slot(to), count: to - from + 1 })
}

fn tries(story: &Story) -> Vec<Option<u32>> {
    story.record().ledger.ring.iter().map(|outcome| outcome.tries).collect()
}

#[test]
fn a_slot_has_as_many_attempts_as_its_retries_allow_over_all_triggers() {
    let mut story = Story::known();
    for minute in 0..3 {
        assert_eq!(story.fails(at(1, minute), due(retried(2))).slot(), Some(slot(1)), "{minute}");
    }
    assert_eq!(story.ok(at(1, 10), due(retried(2))), failed(1));
    assert_eq!(tries(&story), [Some(1), Some(1), Some(2), Some(3)]);
    // More of them are allowed by now.
    assert_eq!(story.fails(at(1, 20), due(retried(3))).slot(), Some(slot(1)));
    assert_eq!(story.ok(at(1, 30), due(Scheduled { asked: Asked::Again, ..hourly() })).slot(), Some(slot(1)));
    assert!(story.ok(at(1, 40), due(hourly())).is_not_due(), "it is done");
}

#[test]
fn what_was_recorded_before_attempts_were_counted_is_counted_by_how_it_ended() {
    let mut story = Story::known();
    story.fails(at(1, 0), due(hourly()));
    story.store.as_mut().unwrap().change(|record| {
        record.ledger.ring.iter_mut().for_each(|outcome| outcome.tries = None);
    });
    assert_eq!(story.ok(at(1, 10), due(hourly())), failed(1));
    assert_eq!(story.fails(at(1, 20), due(retried(1))).slot(), Some(slot(1)));
    assert_eq!(tries(&story).last(), Some(&Some(2)));
    // A command that could not be executed used none.
    let mut story = Story::known();
    story.fails(at(1, 0), due(hourly()));
    story.store.as_mut().unwrap().change(|record| {
        let last = record.ledger.ring.last_mut().unwrap();
        (last.tries, last.exit_code, last.ended_by) = (None, Some(127), EndedBy::Fencepost);
    });
    assert_eq!(story.ok(at(1, 10), due(hourly())).slot(), Some(slot(1)));
}

#[test]
fn an_ending_counts_if_the_command_came_to_it() {
    for status in Status::ALL {
        let ending = Ending::new(status, EndedBy::Child);
        let counts = matches!(status, Status::Ok | Status::Empty | Status::Error | Status::Timeout | Status::Fenced);
        assert_eq!(ending.is_attempt(), counts, "{status}");
        assert!(!Ending { cut_short: true, ..ending }.is_attempt(), "{status}");
    }
}

/// How often the slot was attempted, and how it ended, after this happened to a run that was claimed.
fn after(stages: Stages, happens: impl FnOnce(&mut Bench)) -> (Status, Option<u32>) {
    let mut story = Story::known();
    let terms = Terms { stages, timeout: Some(ms(5_000)), ..story.terms(due(hourly())) };
    let mut bench = story.trigger(at(1, 0), terms);
    happens(&mut bench);
    bench.settle();
    let last = bench.store.record().ledger.ring.last().cloned().unwrap();
    assert!(bench.run.is_finished(), "{:?}", bench.out);
    (last.status, last.tries)
}

#[test]
fn only_a_command_that_started_and_ended_uses_an_attempt() {
    let none = Stages::default();
    let prepare = Stages { prepare: true, ..none };
    let started = |bench: &mut Bench| bench.step(Input::Spawned);
    assert_eq!(after(none, |bench| (started(bench), bench.end_child(Exit::Code(1))).1), (Status::Error, Some(1)));
    assert_eq!(after(none, |bench| (started(bench), bench.end_child(Exit::Signal(9))).1), (Status::Error, Some(1)));
    let timeout = |bench: &mut Bench| {
        started(bench);
        bench.wake();
        bench.end_child(Exit::Signal(15));
    };
    assert_eq!(after(none, timeout), (Status::Timeout, Some(1)));
    assert_eq!(after(prepare, |bench| bench.end_child(Exit::Code(1))), (Status::Error, Some(0)));
    let not_found = |bench: &mut Bench| {
        bench.step(Input::NotSpawned(NotSpawned { not_found: true, text: "no such file".into() }));
    };
    assert_eq!(after(none, not_found), (Status::Error, Some(0)));
    for exit in [Exit::Signal(15), Exit::Code(1)] {
        let shut_down = |bench: &mut Bench| {
            started(bench);
            bench.step(Input::Interrupted(15));
            bench.end_child(exit);
        };
        assert_eq!(after(none, shut_down), (Status::Error, Some(0)), "{exit:?}");
    }
    let given_up = |bench: &mut Bench| bench.step(Input::GivenUp);
    assert_eq!(after(none, given_up), (Status::Error, Some(0)));
    // At a terminal ctrl-C goes to the command alone.
    let ctrl_c = |bench: &mut Bench| (started(bench), bench.end_child(Exit::Signal(2))).1;
    assert_eq!(after(none, ctrl_c), (Status::Error, Some(0)));
    // A signal after the command has ended changes nothing.
    let too_late = |bench: &mut Bench| {
        started(bench);
        bench.end_child(Exit::Code(1));
        bench.step(Input::Interrupted(15));
    };
    assert_eq!(after(none, too_late), (Status::Error, Some(1)));
    let keeper = |bench: &mut Bench| (started(bench), bench.step(Input::KeeperDied { escaped: Vec::new() })).1;
    assert_eq!(after(none, keeper), (Status::Error, Some(0)));
}

#[test]
fn a_collapsed_attempt_counts_for_each_slot_that_it_covers() {
    let mut story = Story::known();
    let came = story.fails(at(9, 30), due(collapse()));
    assert_eq!(came, Came::Ran { slot: slot(9), trigger: Trigger::CatchUp, covers: covering(1, 9) });
    assert_eq!(story.ok(at(9, 40), due(collapse())), failed(9));
    assert_eq!(story.ok(at(9, 50), due(catching_up(5))), failed(9), "nor is any of them caught up");
    let named = Choice::Slot(named(slot(4)));
    assert_eq!(story.ok(at(9, 55), named), failed(4));
    assert_eq!(story.ok(at(10, 0), due(collapse())), {
        Came::Ran { slot: slot(10), trigger: Trigger::Schedule, covers: None }
    });
    assert_eq!((story.evaluated(), story.missed()), (Some(slot(10)), vec![]));
}

#[test]
fn a_collapse_after_one_that_did_not_end_covers_the_same_slots_and_the_new_ones() {
    let retrying = || Scheduled { retries: 1, ..collapse() };
    for dies in [true, false] {
        let mut story = Story::known();
        match dies {
            true => story.dies(at(9, 30), due(retrying())),
            false => story.fails(at(9, 30), due(retrying())),
        };
        let came = story.fails(at(10, 0), due(retrying()));
        assert_eq!(came, Came::Ran { slot: slot(10), trigger: Trigger::Schedule, covers: covering(1, 10) }, "{dies}");
        let came = story.ok(at(10, 10), due(retrying()));
        let more = Came::Ran { slot: slot(10), trigger: Trigger::CatchUp, covers: covering(1, 10) };
        assert_eq!(came, if dies { more } else { failed(10) });
    }
}

#[test]
fn a_retry_has_the_trigger_and_the_slots_of_the_attempt_before() {
    let mut story = Story::known();
    let retry = |slot| Choice::Slot(Named { repeat: Repeat::Retry, retries: 1, ..named(slot) });
    story.fails(at(1, 0), due(retried(1)));
    let came = story.fails(at(1, 30), retry(slot(1)));
    assert_eq!(came, Came::Ran { slot: slot(1), trigger: Trigger::Schedule, covers: None });
    assert_eq!(story.ok(at(1, 40), retry(slot(1))), failed(1));
    story.fails(at(4, 30), due(Scheduled { retries: 1, ..collapse() }));
    let came = story.ok(at(4, 40), retry(slot(4)));
    assert_eq!(came, Came::Ran { slot: slot(4), trigger: Trigger::CatchUp, covers: covering(2, 4) });
    assert_eq!(story.evaluated(), Some(slot(4)));
}

#[test]
fn one_trigger_goes_from_slot_to_slot_and_tries_none_twice() {
    for order in [CatchUpOrder::OldestFirst, CatchUpOrder::NewestFirst] {
        let mut story = Story::known();
        let mut asked = Asked::Due;
        let mut tried = Vec::new();
        for minute in 0..9 {
            let terms = plan::CatchUpTerms { order, ..catching_up(3).terms };
            let came = story.dies(at(3, minute), due(Scheduled { terms, asked, ..hourly() }));
            let Some(slot) = came.slot() else { break };
            asked = Asked::DueAfter(slot);
            tried.push(slot);
        }
        tried.sort_unstable();
        assert_eq!(tried, [slot(1), slot(2), slot(3)], "{order:?}");
    }
}

#[test]
fn an_early_trigger_waits_until_its_slot_and_then_claims() {
    let mut story = Story::known();
    let early = at(0, 59) + 1_000;
    let terms = story.terms(due(hourly()));
    let mut bench = story.trigger(early, terms);
    let waits = Event::Early { slot: slot(1), wait: ms(59_000) };
    assert_eq!(bench.events(), [&waits]);
    assert_eq!(bench.run.wake_at(), Some(boot(at(1, 0))));
    bench.at = at(1, 0);
    bench.wake();
    bench.settle();
    assert_eq!(lease(&bench.store.record()).slot, slot(1));
    assert_eq!(lease(&bench.store.record()).trigger, Trigger::Schedule);
    // Earlier than the slack nothing is due, and a run that waits can be interrupted.
    let mut story = Story::known();
    assert!(story.ok(at(0, 58), due(hourly())).is_not_due());
    let terms = story.terms(due(hourly()));
    let mut bench = story.trigger(early, terms);
    bench.step(Input::Interrupted(15));
    assert_eq!(bench.finish(), Finish::Interrupted(15));
}

#[test]
fn an_early_trigger_waits_while_the_run_before_is_going() {
    let mut story = Story::known();
    let going = story.goes(at(0, 30), Choice::At(wall(at(0, 30))));
    story.store.as_mut().unwrap().change(|record| record.lease.as_mut().unwrap().until = Some(until(99 * 3_600_000)));
    let terms = story.terms(due(hourly()));
    let mut bench = story.trigger(at(0, 59) + 30_000, terms);
    assert!(!bench.run.is_finished(), "{:?}", bench.out);
    drop(going);
    bench.store.change(|record| record.lease = None);
    bench.at = at(1, 0);
    bench.wake();
    bench.settle();
    assert_eq!(lease(&bench.store.record()).slot, slot(1));
}

#[test]
fn a_named_slot_in_the_future_is_waited_for_if_it_is_near() {
    let named = |hour| Choice::Slot(Named { slack: Some(ms(60_000)), ..named(slot(hour)) });
    let mut story = Story::known();
    let far = story.ok(at(0, 30), named(1));
    assert!(far.is_not_due(), "{far:?}");
    let terms = story.terms(named(1));
    let mut bench = story.trigger(at(0, 59), terms);
    assert!(!bench.run.is_finished(), "{:?}", bench.out);
    bench.at = at(1, 0);
    bench.wake();
    bench.settle();
    assert_eq!(lease(&bench.store.record()).slot, slot(1));
}

#[test]
fn a_clock_that_was_ahead_when_a_run_ended_makes_no_slot_done() {
    let mut story = Story::known();
    story.ok(at(1, 0), due(hourly()));
    let day = 24 * 3_600_000;
    story.store.as_mut().unwrap().change(|record| {
        let last: &mut Outcome = record.ledger.ring.last_mut().unwrap();
        assert_eq!(last.took, Some(Duration::from_millis(1_000)));
        last.finished = Wall(last.finished.0 + day);
    });
    for hour in 2..8 {
        assert_eq!(story.ok(at(hour, 0), due(hourly())).slot(), Some(slot(hour)), "{hour}");
    }
    // While a run is going, what passes is passed.
    story.ends(at(8, 0), due(hourly()), 0, at(2, 30));
    assert!(story.ok(at(10, 40), due(catching_up(5))).is_not_due());
}
