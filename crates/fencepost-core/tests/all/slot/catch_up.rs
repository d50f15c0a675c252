//! Slots that were missed, edits, pauses and clocks, and what becomes of a claim when the store's answer is lost.

use super::*;

// Catching up.

#[test]
fn what_was_missed_is_one_line_with_a_count_written_once() {
    let mut story = Story::known();
    let came = story.ok(at(9, 30), due(catching_up(0)));
    let Came::Not(NotNow::NotDue { missed, next, .. }) = came else { panic!("{came:?}") };
    assert_eq!(missed.map(|missed| missed.count), Some(9));
    assert_eq!(next, Some(slot(10)));
    for minute in [31, 45] {
        assert!(story.ok(at(9, minute), due(catching_up(0))).is_not_due());
    }
    assert_eq!(story.missed(), [(slot(1), slot(9), 9)]);
    let line = &story.outcomes(Status::Missed)[0];
    assert_eq!((line.slot, line.trigger, line.exit_code), (slot(9), Trigger::Schedule, None));
    assert_eq!(story.evaluated(), Some(slot(9)));
    assert_eq!(story.record().ledger.counts[&Status::Missed], 1, "ten thousand are one line, too");
}

#[test]
fn of_many_missed_slots_as_many_run_as_are_caught_up() {
    for (catch_up, runs, missed) in [(1, vec![9], (1, 8, 8)), (3, vec![7, 8, 9], (1, 6, 6))] {
        let mut story = Story::known();
        let mut ran = Vec::new();
        let mut marks = Vec::new();
        for minute in 30..40 {
            ran.extend(story.ok(at(9, minute), due(catching_up(catch_up))).slot());
            marks.push(story.evaluated());
        }
        assert_eq!(ran, runs.iter().map(|hour| slot(*hour)).collect::<Vec<_>>());
        assert!(marks.is_sorted() && marks.last() == Some(&Some(slot(9))), "{marks:?}");
        let (from, to, count) = missed;
        assert_eq!(story.missed(), [(slot(from), slot(to), count)]);
    }
}

#[test]
fn a_slot_that_is_on_time_runs_without_any_catch_up_and_a_late_one_does_not() {
    let mut story = Story::known();
    assert_eq!(story.ok(at(1, 1), due(catching_up(0))).slot(), Some(slot(1)));
    assert!(story.ok(at(2, 2), due(catching_up(0))).is_not_due());
    assert_eq!(story.missed(), [(slot(2), slot(2), 1)]);
}

#[test]
fn one_run_covers_the_gap_and_accounts_for_it_only_by_ending_well() {
    let mut story = Story::known();
    let collapse =
        || Scheduled { terms: plan::CatchUpTerms { mode: CatchUpMode::Collapse, ..hourly().terms }, ..hourly() };
    let covers = Covered { from: slot(1), to: slot(9), count: 9 };
    let came = story.dies(at(9, 30), due(collapse()));
    assert_eq!(came, Came::Ran { slot: slot(9), trigger: Trigger::CatchUp, covers: Some(covers) });
    assert_eq!(story.evaluated(), Some(slot(0)));
    let came = story.ok(at(9, 40), due(collapse()));
    assert_eq!(came, Came::Ran { slot: slot(9), trigger: Trigger::CatchUp, covers: Some(covers) });
    assert_eq!(story.evaluated(), Some(slot(9)));
    assert_eq!(story.outcomes(Status::Ok).last().unwrap().covers, Some(covers));
    assert!(story.ok(at(9, 50), due(collapse())).is_not_due());
    assert_eq!(story.missed(), []);
}

#[test]
fn what_is_dropped_is_written_down_however_it_is_said_that_nothing_runs() {
    // Slot 3 is done early by hand, so that a trigger at its time is a duplicate. By then slot 1 is too old.
    let mut story = Story::known();
    let within = |asked| {
        let terms = plan::CatchUpTerms { within: Some(Duration::from_secs(90 * 60)), ..catching_up(3).terms };
        Scheduled { terms, asked, ..hourly() }
    };
    assert_eq!(story.ok(at(2, 10), due(within(Asked::Now))).slot(), Some(slot(2)));
    assert_eq!(story.ok(at(2, 25), due(within(Asked::Now))).slot(), Some(slot(3)));
    assert_eq!(story.missed(), []);
    assert_eq!(story.ok(at(3, 0), due(within(Asked::Due))).duplicate(), Some((slot(3), Status::Ok)));
    assert_eq!(story.missed(), [(slot(1), slot(1), 1)]);
    assert_eq!(story.evaluated(), Some(slot(3)));
}

#[test]
fn a_slot_tried_just_now_does_not_keep_the_others_of_its_row_waiting() {
    let mut story = Story::known();
    let newest_first = |asked| {
        let terms = plan::CatchUpTerms { order: CatchUpOrder::NewestFirst, ..catching_up(3).terms };
        Scheduled { terms, asked, ..hourly() }
    };
    assert_eq!(story.fails(at(3, 0), due(newest_first(Asked::Due))).slot(), Some(slot(3)));
    assert_eq!(story.ok(at(3, 1), due(newest_first(Asked::DueAfter(slot(3))))).slot(), Some(slot(2)));
    assert_eq!(story.ok(at(3, 2), due(newest_first(Asked::DueAfter(slot(2))))).slot(), Some(slot(1)));
    let failed = Came::Not(NotNow::Failed { slot: slot(3), state: Status::Error, exit_code: 7 });
    for asked in [Asked::DueAfter(slot(1)), Asked::Due] {
        assert_eq!(story.ok(at(3, 3), due(newest_first(asked))), failed);
    }
}

// Edits, pauses and clocks.

#[test]
fn nothing_from_before_an_edit_is_caught_up() {
    let mut story = Story::known();
    let half_hours = || {
        let text = format!("every 30m from {}", Zone::utc().show(wall(0)));
        Scheduled { schedule: Schedule::parse(&text, &Zone::utc()).unwrap(), ..catching_up(9) }
    };
    let came = story.ok(at(5, 10), due(half_hours()));
    assert!(came.is_not_due(), "{came:?}");
    let timing = story.record().timing.unwrap();
    assert_eq!((timing.since, timing.evaluated), (wall(at(5, 10)), Some(slot(5))));
    assert_eq!(timing.fingerprint, half_hours().schedule.fingerprint());
    assert_eq!(story.missed(), [], "slots of the old schedule are not those of the new one");
    assert_eq!(story.ok(at(5, 30), due(half_hours())).slot(), Some(wall(at(5, 30))));
}

#[test]
fn a_paused_job_does_not_run_and_catches_nothing_up_after_it() {
    let mut story = Story::known();
    let paused = Paused {
        since: wall(1),
        by: "alpha".to_string(),
        note: Some("moving".to_string()),
        unknown: Default::default(),
        until: Default::default(),
    };
    assert!(story.intend(Intent::Pause { paused: paused.clone(), length: None }, at(0, 10)));
    let second = Paused { by: "beta".to_string(), ..paused.clone() };
    for length in [None, Some(Duration::from_secs(60))] {
        assert!(story.intend(Intent::Pause { paused: second.clone(), length }, at(0, 20)));
    }
    for choice in [due(hourly()), due(asking(Asked::Now)), due(asking(Asked::Again)), Choice::At(wall(3))] {
        let came = story.ok(at(1, 0), choice);
        let expected =
            NotNow::Paused { since: wall(1), until: None, by: "alpha".to_string(), note: paused.note.clone() };
        assert_eq!(came, Came::Not(expected));
    }
    assert!(story.intend(Intent::Resume, at(7, 30)));
    assert!(!story.intend(Intent::Resume, at(7, 31)), "it was not paused any more");
    assert!(story.ok(at(7, 40), due(catching_up(9))).is_not_due());
    assert_eq!(story.missed(), []);
    assert_eq!(story.ok(at(8, 0), due(catching_up(9))).slot(), Some(slot(8)));
}

#[test]
fn a_pause_with_an_end_is_over_by_itself_and_nothing_of_it_is_caught_up() {
    let mut story = Story::known();
    let paused = |by: &str| Paused {
        since: wall(at(0, 10)),
        by: by.to_string(),
        note: None,
        unknown: Default::default(),
        until: Default::default(),
    };
    let pause = |by, hours: u64| Intent::Pause { paused: paused(by), length: Some(Duration::from_secs(hours * 3600)) };
    assert!(story.intend(pause("alpha", 1), at(0, 10)));
    // Of two pauses the one that ends later counts.
    assert!(story.intend(pause("beta", 3), at(0, 20)));
    assert!(story.intend(pause("gamma", 1), at(0, 30)));
    let expected =
        NotNow::Paused { since: wall(at(0, 10)), until: Some(wall(at(3, 20))), by: "beta".to_string(), note: None };
    assert_eq!(story.ok(at(3, 0), due(catching_up(9))), Came::Not(expected));
    assert!(story.ok(at(3, 20), due(catching_up(9))).is_not_due());
    assert_eq!(story.missed(), []);
    assert!(!story.intend(Intent::Resume, at(3, 21)), "it is over");
    assert_eq!(story.ok(at(4, 0), due(catching_up(9))).slot(), Some(slot(4)));
    assert_eq!(story.record().paused, None);
}

#[test]
fn a_job_may_be_paused_before_it_is_ever_seen() {
    let mut story = Story::default();
    let paused = Paused {
        since: wall(0),
        by: "alpha".to_string(),
        note: None,
        unknown: Default::default(),
        until: Default::default(),
    };
    assert!(story.intend(Intent::Pause { paused, length: None }, 0));
    assert!(matches!(story.ok(at(1, 0), due(hourly())), Came::Not(NotNow::Paused { .. })));
    assert!(story.intend(Intent::Resume, at(1, 1)));
    assert_eq!(story.ok(at(2, 0), due(hourly())).slot(), Some(slot(2)));
}

#[test]
fn resuming_goes_by_the_clock_that_slots_are_judged_by() {
    let mut story = Story::known();
    let paused = Paused {
        since: wall(0),
        by: "alpha".to_string(),
        note: None,
        unknown: Default::default(),
        until: Default::default(),
    };
    assert!(story.intend(Intent::Pause { paused, length: None }, 1));
    // The machine that resumes is two hours ahead of the store.
    let ahead = Now { boot: boot(at(1, 10)), wall: wall(at(3, 10)) };
    let store = story.store.as_mut().unwrap();
    let mut transition = Transition::<Honest>::new(job(), Intent::Resume, id(77), 0);
    let mut step = transition.begin(ahead);
    while let Step::Call(call) = step {
        step = transition.answered(ahead, Ok(store.answer(call, at(1, 10))));
    }
    assert!(matches!(step, Step::Done(_)));
    assert_eq!(story.record().timing.unwrap().since, wall(at(1, 10)));
}

#[test]
fn a_clock_that_was_ahead_does_not_stop_the_job_for_ever() {
    let mut story = Story::known();
    story.store.as_mut().unwrap().change(|record| {
        record.timing.as_mut().unwrap().evaluated = Some(slot(3));
    });
    // Within an hour it waits; what is in the record is believed.
    assert!(story.ok(at(2, 10), due(catching_up(2))).is_not_due());
    assert_eq!(story.ok(at(4, 0), due(catching_up(2))).slot(), Some(slot(4)));
    // Far ahead, it is put right, once.
    story.store.as_mut().unwrap().change(|record| {
        record.timing.as_mut().unwrap().evaluated = Some(slot(900));
    });
    assert!(story.ok(at(5, 30), due(catching_up(2))).is_not_due());
    assert_eq!(story.record().timing.unwrap().since, wall(at(5, 30)));
    assert_eq!(story.ok(at(6, 0), due(catching_up(2))).slot(), Some(slot(6)));
}

// Lost answers.

#[test]
fn an_account_whose_answer_is_lost_is_written_once() {
    for is_done in [true, false] {
        let mut story = Story::known();
        let terms = story.terms(due(catching_up(0)));
        let mut bench = Bench::new(terms, story.store.take().unwrap());
        bench.at = at(9, 30);
        bench.step(Input::Begin);
        bench.answer();
        bench.answer();
        assert!(is_swap(&bench), "the account: {:?}", bench.call);
        if is_done {
            bench.lose_answer();
        } else {
            bench.fail(timed_out());
        }
        bench.settle();
        let missed = bench.events().into_iter().filter(|event| matches!(event, Event::Missed { .. })).count();
        assert_eq!(missed, 1, "it is said once");
        assert!(matches!(bench.finish(), Finish::NotNow(NotNow::NotDue { .. })));
        story.store = Some(bench.store);
        assert_eq!(story.missed(), [(slot(1), slot(9), 9)], "{is_done}");
    }
}

#[test]
fn a_claim_whose_answer_is_lost_is_claimed_once() {
    for is_done in [true, false] {
        let mut story = Story::known();
        let terms = story.terms(due(catching_up(1)));
        let mut bench = Bench::new(terms, story.store.take().unwrap());
        bench.at = at(9, 30);
        bench.step(Input::Begin);
        bench.answer();
        if is_done {
            bench.lose_answer();
        } else {
            bench.fail(timed_out());
        }
        bench.settle();
        assert!(bench.run.is_running());
        bench.step(Input::Spawned);
        bench.end_child(Exit::Code(0));
        bench.settle();
        assert!(matches!(bench.finish(), Finish::Ended { .. }));
        story.store = Some(bench.store);
        assert_eq!(story.missed(), [(slot(1), slot(8), 8)], "{is_done}");
        assert_eq!(story.times_ok(slot(9)), 1);
    }
}

#[test]
fn what_waits_after_it_was_held_while_it_accounted_does_run() {
    let mut story = Story::known();
    // Nothing runs late, and that is to be written down.
    let terms = Terms { wait: Some(ms(5 * HOUR)), ..story.terms(due(catching_up(0))) };
    let mut bench = Bench::new(terms, story.store.take().unwrap());
    bench.at = at(9, 30);
    bench.step(Input::Begin);
    bench.answer();
    assert!(is_read(&bench), "to account: {:?}", bench.call);
    // Meanwhile another run takes the lease.
    bench.store.change(|record| record.lease = held(1, 55).lease.clone());
    bench.store.change(|record| record.lease.as_mut().unwrap().until = Some(until(99 * HOUR)));
    bench.settle();
    assert!(!bench.run.is_finished(), "it waits");
    bench.store.change(|record| record.lease = None);
    bench.at = at(10, 0);
    bench.wake();
    bench.settle();
    assert!(bench.run.is_running(), "{:?}", bench.out);
    assert_eq!(lease(&bench.store.record()).slot, slot(10));
}

#[test]
fn a_store_that_fails_after_it_said_that_nothing_is_due_is_no_reason_to_run() {
    let mut story = Story::known();
    let terms = Terms { run_without_store: true, ..story.terms(due(catching_up(0))) };
    let mut bench = Bench::new(terms, story.store.take().unwrap());
    bench.at = at(9, 30);
    bench.step(Input::Begin);
    bench.answer();
    bench.fail(unavailable());
    assert!(matches!(bench.finish(), Finish::StoreFailed(_)));
}

#[test]
fn a_second_trigger_does_not_replace_the_run_of_its_own_slot() {
    let mut story = Story::known();
    let going = story.goes(at(1, 0), due(hourly()));
    let terms = Terms { overlap: Overlap::Replace, wait: Some(ms(MINUTE)), ..story.terms(due(hourly())) };
    let mut bench = story.trigger(at(1, 0), terms);
    assert_eq!(Story::came(&mut bench).duplicate(), Some((slot(1), Status::Running)));
    story.store = Some(bench.store);
    story.end(going, at(1, 1));
    assert_eq!(story.times_ok(slot(1)), 1);
}

#[test]
fn a_forgotten_job_keeps_its_token_and_runs_no_slot_again() {
    let mut story = Story::known();
    for hour in 1..=5 {
        assert_eq!(story.ok(at(hour, 0), due(catching_up(9))).slot(), Some(slot(hour)));
    }
    let before = story.record();
    assert!(story.intend(Intent::Forget, at(5, 10)));
    let after = story.record();
    assert_eq!((after.token, after.grants, &after.timing), (before.token, before.grants, &before.timing));
    assert_eq!((after.ledger.last_ok.as_ref(), after.ledger.counts.len()), (None, 0));
    assert!(after.is_hidden() && after.ledger.ring.iter().all(|outcome| after.has_forgotten(outcome)));
    assert_eq!(after.remembered().ledger.ring, []);
    // Of what is kept, only how it ended.
    assert!(after.ledger.ring.len() <= 1 && after.ledger.ring.iter().all(|kept| kept.artifacts.is_empty()));
    assert!(story.ok(at(5, 20), due(catching_up(9))).is_not_due());
    assert_eq!(story.ok(at(6, 0), due(catching_up(9))).slot(), Some(slot(6)));
    let record = story.record();
    assert!(!record.is_hidden() && record.token > before.token);
    assert_eq!(record.remembered().ledger.ring.len(), 1);
}
