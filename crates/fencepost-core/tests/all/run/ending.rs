//! How a guarded run ends: it wakes late, the store fails, the keeper dies, or a publish was refused.

use super::*;

// Waking late.

/// A run that slept past its deadline, its tree frozen by the keeper and a renewal out.
fn frozen() -> Bench {
    let mut bench = Bench::running(terms(2));
    bench.wait(2 * TTL_MS);
    bench.step(Input::Frozen);
    assert_eq!(bench.take(), [Output::Tell(Event::Frozen)]);
    assert!(is_read(&bench), "what it knows of the store's clock is old");
    bench
}

#[test]
fn a_frozen_tree_goes_on_once_the_lease_is_renewed() {
    let mut bench = frozen();
    bench.settle();
    let deadline = boot(2 * TTL_MS + BELIEF_MS);
    let renewed = Output::Tell(Event::Renewed { renewals: 1, deadline });
    assert_eq!(bench.take(), [renewed, Output::Tell(Event::Thawed), Output::Thaw(deadline)]);
    assert_eq!(bench.run.wake_at(), Some(boot(2 * TTL_MS + TTL_MS / 3)));
}

#[test]
fn a_frozen_tree_whose_lease_was_taken_is_killed() {
    let mut bench = frozen();
    bench.store.put(&held(Token::MAX.number(), 3));
    bench.settle();
    assert!(bench.put_out(&Output::Kill));
    assert!(!bench.out.iter().any(|output| matches!(output, Output::Thaw(_))));
    bench.wake();
    bench.end_child(Exit::Signal(9));
    assert!(matches!(stopped(bench.finish()), (StopCause::Taken { .. }, true)));
}

#[test]
fn a_frozen_tree_is_killed_when_the_store_is_silent_for_the_grace() {
    let mut bench = frozen();
    assert_eq!(bench.run.wake_at(), Some(boot(2 * TTL_MS + GRACE_MS)));
    bench.wake();
    assert_eq!(bench.take(), [Output::Tell(Event::Stopping(StopCause::WokeLate)), Output::Kill]);
    bench.end_child(Exit::Signal(9));
    bench.settle();
    assert_eq!(stopped(bench.finish()), (StopCause::WokeLate, true));
    assert_eq!(last_status(&bench), Status::Lost);
}

#[test]
fn a_frozen_tree_is_killed_when_the_store_fails_for_the_grace() {
    let mut bench = frozen();
    while !bench.put_out(&Output::Kill) {
        bench.fail(unavailable());
        bench.wake();
    }
    assert_eq!(bench.at, 2 * TTL_MS + GRACE_MS);
}

/// The swap had been sent before the sleep: that it was won says nothing about now.
#[test]
fn an_answer_from_before_the_sleep_thaws_nothing() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.wait(2 * TTL_MS);
    bench.step(Input::Frozen);
    bench.answer();
    assert!(!bench.out.iter().any(|output| matches!(output, Output::Thaw(_))), "{:?}", bench.out);
    assert!(is_read(&bench), "renewed again, from a fresh reading");
    bench.settle();
    assert!(bench.put_out(&Output::Thaw(boot(20_000 + 2 * TTL_MS + BELIEF_MS))));
}

// The end, and a store that fails then.

#[test]
fn a_child_that_ends_while_a_renewal_is_out_waits_for_its_answer() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.end_child(Exit::Code(0));
    assert!(is_swap(&bench));
    bench.settle();
    bench.finish();
    let record = bench.store.record();
    assert_eq!((record.lease, record.ledger.last().unwrap().status), (None, Status::Ok));
}

#[test]
fn a_child_that_ends_while_a_renewal_fails_is_completed_all_the_same() {
    for error in [unavailable(), timed_out()] {
        let mut bench = Bench::running(terms(2));
        bench.wake();
        bench.end_child(Exit::Code(0));
        bench.fail(error);
        bench.settle();
        assert_eq!(bench.finish(), ended(Exit::Code(0)));
        assert_eq!(last_status(&bench), Status::Ok);
    }
}

#[test]
fn a_child_that_ends_between_two_tries_of_a_renewal_is_completed_at_once() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.fail(unavailable());
    bench.end_child(Exit::Code(0));
    assert!(is_swap(&bench));
    bench.settle();
    bench.finish();
    assert_eq!(last_status(&bench), Status::Ok);
}

#[test]
fn a_completion_is_tried_until_the_deadline_and_then_given_up() {
    let mut bench = Bench::running(terms(2));
    bench.wait(1_000);
    bench.end_child(Exit::Code(0));
    let mut tries = 0;
    while !bench.run.is_finished() {
        bench.fail(unavailable());
        bench.wake();
        tries += 1;
    }
    assert_eq!((bench.at, tries), (BELIEF_MS, 28));
    assert_eq!(bench.events(), [&Event::CompletionFailed { error: unavailable() }]);
    let expected = Finish::Unrecorded { exit: Exit::Code(0), error: unavailable(), escaped: Vec::new() };
    assert_eq!(bench.finish(), expected);
}

#[test]
fn a_completion_that_gets_no_answer_is_given_up_at_the_deadline() {
    let mut bench = Bench::running(terms(2));
    bench.end_child(Exit::Code(0));
    bench.wake();
    assert_eq!(bench.at, BELIEF_MS);
    let Finish::Unrecorded { error, .. } = bench.finish() else { panic!("it was not recorded") };
    assert_eq!(error.fate, Fate::Unknown, "it may have landed");
}

#[test]
fn a_completion_past_the_deadline_is_tried_for_five_seconds() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.fail(unavailable());
    bench.wait(TTL_MS);
    bench.step(Input::DeadlineReached);
    bench.end_child(Exit::Signal(9));
    bench.wake();
    assert_eq!(bench.at, 20_000 + TTL_MS + 5_000);
    assert_eq!(stopped(bench.finish()), (StopCause::Deadline, false));
}

#[test]
fn a_completion_that_succeeds_later_is_recorded() {
    let mut bench = Bench::running(terms(2));
    bench.end_child(Exit::Code(0));
    bench.fail(unavailable());
    bench.wake();
    bench.settle();
    assert_eq!(bench.finish(), ended(Exit::Code(0)));
}

#[test]
fn a_completion_whose_answer_is_lost_is_recognised() {
    let mut bench = Bench::running(terms(2));
    bench.end_child(Exit::Code(0));
    bench.lose_answer();
    bench.settle();
    assert_eq!(bench.finish(), ended(Exit::Code(0)));
    assert_eq!(bench.store.record().ledger.counts[&Status::Ok], 1);
}

#[test]
fn a_child_that_ends_after_its_lease_was_taken_over_has_not_ended_well() {
    let mut bench = Bench::running(terms(2));
    let mut next = Bench::begun(terms(3), std::mem::take(&mut bench.store));
    next.facts = Facts { holder_is_dead: true, ..Facts::default() };
    next.settle();
    assert!(next.grant().is_some());
    bench.store = next.store;
    bench.end_child(Exit::Code(0));
    bench.settle();
    assert!(matches!(stopped(bench.finish()), (StopCause::Taken { .. }, true)));
    assert_eq!((last_status(&bench), lease(&bench.store.record()).run), (Status::Lost, id(3)));
}

#[test]
fn a_release_whose_answer_is_lost_is_not_a_lost_lease() {
    let mut bench = Bench::running(holding(2));
    bench.end_child(Exit::Code(0));
    bench.lose_answer();
    bench.settle();
    assert_eq!(bench.finish(), ended(Exit::Code(0)));
}

// The keeper.

#[test]
fn a_keeper_that_dies_while_the_child_runs_is_an_error() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::KeeperDied { escaped: Vec::new() });
    bench.settle();
    assert_eq!(stopped(bench.finish()), (StopCause::KeeperDied, true));
    let record = bench.store.record();
    assert_eq!((record.lease, record.ledger.last().unwrap().status), (None, Status::Error));
}

#[test]
fn a_keeper_that_dies_and_leaves_something_keeps_the_lease() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::KeeperDied { escaped: vec!["sleep (9)".to_string()] });
    bench.settle();
    assert_eq!(stopped(bench.finish()), (StopCause::KeeperDied, true));
    assert!(bench.store.record().lease.is_some());
}

#[test]
fn a_keeper_that_dies_while_a_renewal_is_out_waits_for_its_answer() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.step(Input::KeeperDied { escaped: Vec::new() });
    bench.settle();
    assert_eq!(stopped(bench.finish()), (StopCause::KeeperDied, true));
    assert_eq!(bench.store.record().lease, None);
}

/// The keeper's own end, seen while the last swap is out, used to make an error of a run that is recorded as good.
#[test]
fn what_the_keeper_says_after_the_tree_is_gone_changes_nothing() {
    for fails_first in [false, true] {
        for late in [
            Input::KeeperDied { escaped: Vec::new() },
            Input::KeeperDied { escaped: vec!["sleep (9)".to_string()] },
            Input::TreeEmpty { escaped: vec!["sleep (9)".to_string()] },
            Input::DeadlineReached,
            Input::Frozen,
            Input::NotSpawned(not_found()),
        ] {
            let mut bench = Bench::running(terms(2));
            bench.end_child(Exit::Code(0));
            let give_up_at = BELIEF_MS;
            if fails_first {
                bench.fail(unavailable());
                bench.take();
            }
            bench.step(late.clone());
            assert_eq!(bench.take(), [], "{late:?}");
            assert!(bench.run.wake_at().unwrap() <= boot(give_up_at));
            if fails_first {
                bench.wake();
            }
            bench.settle();
            assert_eq!(bench.finish(), ended(Exit::Code(0)), "{late:?}");
            assert_eq!((last_status(&bench), bench.store.record().lease), (Status::Ok, None));

            bench.step(late);
            bench.step(Input::Interrupted(2));
            bench.step(Input::Tick);
            assert_eq!((bench.take(), bench.call), (Vec::new(), None), "it has finished");
        }
    }
}

// What the job published.

fn published(refused: Option<&str>) -> Said {
    Said::Published(Published {
        resource: "out.txt".to_string(),
        kind: "file".to_string(),
        level: Level::Atomic,
        token: token(BOOT_MS),
        run: id(2),
        at: wall(0),
        seen: token(BOOT_MS),
        refused: refused.map(str::to_string),
    })
}

#[test]
fn a_refused_publish_makes_the_run_fenced_even_if_the_child_succeeded() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::ChildEnded(Exit::Code(0)));
    bench.step(said(vec![published(None), published(Some("stale"))]));
    bench.step(Input::TreeEmpty { escaped: Vec::new() });
    bench.settle();
    assert!(matches!(bench.finish(), Finish::Fenced { exit: Some(Exit::Code(0)), recorded: Kept::Recorded, .. }));
    let record = bench.store.record();
    assert_eq!(record.ledger.last().unwrap().status, Status::Fenced);
    assert_eq!(record.resources["out.txt"].refused, 1);
}

#[test]
fn what_was_published_is_noted_in_the_last_swap() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::ChildEnded(Exit::Code(0)));
    bench.step(said(vec![published(None)]));
    bench.step(Input::TreeEmpty { escaped: Vec::new() });
    bench.settle();
    assert!(matches!(bench.finish(), Finish::Ended { exit: Exit::Code(0), .. }));
    let record = bench.store.record();
    assert_eq!(record.ledger.last().unwrap().status, Status::Ok);
    assert_eq!(record.resources["out.txt"].refused, 0);
}
