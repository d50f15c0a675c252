//! A run between its claim and the start of its command, and what is known of a command that never started.

use crate::common::*;
use fencepost_core::ledger::{EndedBy, Outcome, Status};
use fencepost_core::register::Fate;
use fencepost_core::run::{Exit, Finish, Input, Kept, Output, Passage, Stages, StopCause, Terms};

fn last(bench: &Bench) -> Outcome {
    bench.store.record().ledger.last().expect("an outcome").clone()
}

/// A run whose keeper received the order to start the command long after the deadline of the first lease.
fn stale(after_ms: u64) -> Bench {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(1)));
    bench.settle();
    bench.grant().expect("a grant");
    bench.wait(after_ms);
    bench.step(Input::Stale);
    bench
}

#[test]
fn a_stale_order_is_given_again_once_the_lease_is_confirmed() {
    let mut bench = stale(TTL_MS + 1);
    assert!(bench.grant().is_none(), "nothing starts before the lease is confirmed");
    bench.settle();
    let grant = bench.grant().expect("the order is given again");
    assert_eq!(grant.deadline, boot(TTL_MS + 1 + BELIEF_MS));
    bench.end_child(Exit::Code(0));
    bench.settle();
    assert_eq!(bench.finish(), ended(Exit::Code(0)));
}

#[test]
fn a_stale_order_is_given_again_at_once_if_the_lease_was_renewed_meanwhile() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(1)));
    bench.settle();
    bench.grant().expect("a grant");
    bench.wake();
    bench.settle();
    bench.take();
    bench.step(Input::Stale);
    assert!(bench.grant().is_some(), "{:?}", bench.out);
}

#[test]
fn a_stale_order_under_a_lease_that_passed_on_is_lost() {
    let mut bench = stale(TTL_MS + 1);
    bench.store.put(&held(9, 3));
    bench.settle();
    let finish = bench.finish();
    assert!(matches!(&finish, Finish::Stopped { why: StopCause::Taken { .. }, started: false, .. }), "{finish:?}");
}

#[test]
fn a_stale_order_whose_lease_cannot_be_confirmed_is_lost_after_the_grace() {
    let mut bench = stale(TTL_MS + 1);
    bench.wait(GRACE_MS);
    bench.step(Input::Tick);
    assert!(!bench.out.iter().any(|output| matches!(output, Output::Spawn { .. })));
    bench.settle();
    let finish = bench.finish();
    let recorded = Kept::Recorded;
    let expected =
        Finish::Stopped { why: StopCause::WokeLate, started: false, exit: None, recorded, escaped: Vec::new() };
    assert_eq!(finish, expected);
    let outcome = last(&bench);
    assert_eq!((outcome.status, outcome.unstarted, outcome.exit_code), (Status::Lost, true, None));
    assert_eq!(outcome.note.as_deref(), Some("not started: its lease could not be confirmed in time"));
}

/// The claim may land, and a lease that it leaves behind would look like a command that died.
#[test]
fn a_keeper_that_dies_before_the_start_releases_what_was_claimed() {
    for answered in [0, 1] {
        let mut bench = Bench::begun(terms(2), Memory::with(&free(1)));
        (0..answered).for_each(|_| bench.answer());
        bench.step(Input::KeeperDied { escaped: Vec::new() });
        bench.settle();
        assert!(!bench.out.iter().any(|output| matches!(output, Output::Spawn { .. })));
        let finish = bench.finish();
        assert!(
            matches!(
                &finish,
                Finish::Stopped { why: StopCause::KeeperDied, started: false, recorded: Kept::Recorded, .. }
            ),
            "{finish:?}"
        );
        assert_eq!(bench.store.record().lease, None);
        let outcome = last(&bench);
        assert_eq!((outcome.status, outcome.unstarted), (Status::Error, true));
        assert_eq!(outcome.note.as_deref(), Some("not started: its keeper died"));
    }
}

#[test]
fn a_keeper_that_dies_while_the_lease_is_waited_for_ends_the_wait() {
    let mut bench = Bench::begun(Terms { wait: Some(ms(60_000)), ..terms(2) }, Memory::with(&held(5, 1)));
    bench.settle();
    bench.step(Input::KeeperDied { escaped: Vec::new() });
    let finish = bench.finish();
    assert!(matches!(
        finish,
        Finish::Stopped { why: StopCause::KeeperDied, started: false, recorded: Kept::NoLease, .. }
    ));
}

#[test]
fn a_keeper_that_dies_starts_nothing_without_a_store() {
    let mut bench = Bench::begun(Terms { run_without_store: true, ..terms(2) }, Memory::with(&free(1)));
    bench.step(Input::KeeperDied { escaped: Vec::new() });
    bench.fail(unavailable());
    assert!(matches!(bench.finish(), Finish::StoreFailed(_)));
}

#[test]
fn an_interrupted_wait_is_recorded_with_its_signal() {
    let stages = Stages { inspect: true, ..Stages::default() };
    let mut bench = Bench::begun(Terms { stages, ..terms(2) }, Memory::with(&free(1)));
    bench.settle();
    bench.step(Input::Interrupted(15));
    bench.settle();
    assert_eq!(bench.finish(), Finish::Interrupted(15));
    let outcome = last(&bench);
    assert_eq!((outcome.status, outcome.exit_code, outcome.ended_by), (Status::Error, Some(143), EndedBy::Fencepost));
    assert!(outcome.unstarted);
}

#[test]
fn interrupted_while_its_artifacts_are_looked_at_the_command_has_run() {
    let stages = Stages { inspect: true, survey: true, ..Stages::default() };
    let mut bench = Bench::begun(Terms { stages, ..terms(2) }, Memory::with(&free(1)));
    bench.settle();
    bench.step(Input::Inspected(Passage::Proceed { upstreams: Vec::new() }));
    bench.end_child(Exit::Code(0));
    bench.step(Input::Interrupted(15));
    bench.settle();
    assert!(matches!(bench.finish(), Finish::Ended { exit: Exit::Signal(15), .. }));
    let outcome = last(&bench);
    assert_eq!((outcome.status, outcome.exit_code, outcome.unstarted), (Status::Error, Some(143), false));
    assert!(outcome.note.unwrap().contains("while its artifacts were looked at"));
}

#[test]
fn a_command_whose_words_cannot_be_read_has_not_ended_well() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::ChildEnded(Exit::Code(0)));
    bench.step(Input::Said { said: Vec::new(), unreadable: Some("it is a FIFO".to_string()), definition: None });
    bench.step(Input::TreeEmpty { escaped: Vec::new() });
    bench.settle();
    let outcome = last(&bench);
    assert_eq!((outcome.status, outcome.ended_by), (Status::Error, EndedBy::Fencepost));
    assert_eq!(outcome.note.as_deref(), Some("it is a FIFO"));
}

// What the store knows once the last swap is given up.

fn fate(bench: &mut Bench) -> Fate {
    match bench.finish() {
        Finish::Unrecorded { error, .. } => error.fate,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_last_swap_whose_answer_is_lost_may_be_recorded() {
    let mut bench = Bench::running(terms(2));
    bench.end_child(Exit::Code(0));
    bench.lose_answer();
    while !bench.run.is_finished() {
        if bench.call.is_some() {
            bench.fail(unavailable());
        }
        bench.wake();
    }
    assert_eq!((fate(&mut bench), last(&bench).status), (Fate::Unknown, Status::Ok), "the ledger has it as ok");
}

#[test]
fn a_last_swap_that_was_never_sent_is_not_recorded() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    // A renewal is out and stays so.
    bench.end_child(Exit::Code(0));
    bench.wake();
    assert_eq!(fate(&mut bench), Fate::NotDone);
}
