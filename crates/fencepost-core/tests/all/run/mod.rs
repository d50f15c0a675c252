//! A guarded run once its child has started, fed one input at a time.

mod ending;

use crate::common::*;
use fencepost_core::fence::Level;
use fencepost_core::history::Page;
use fencepost_core::lease::Facts;
use fencepost_core::ledger::{EndedBy, RING_OUTCOMES_KEPT, RING_OUTCOMES_MAX, Status};
use fencepost_core::name::Key;
use fencepost_core::record::StopAsked;
use fencepost_core::register::Fate;
use fencepost_core::run::{Event, Exit, Finish, Input, Kept, Output, StopCause, Terms, TookOver};
use fencepost_core::said::{Published, Said};
use fencepost_core::slot::Choice;
use fencepost_core::token::Token;

// The plain way.

#[test]
fn an_uncontended_run_makes_three_calls() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.settle();
    let grant = bench.grant().unwrap();
    assert_eq!(grant.deadline, boot(BELIEF_MS));
    assert_eq!(*grant.record, bench.store.record());
    bench.step(Input::Spawned);
    bench.wait(500);
    bench.end_child(Exit::Code(0));
    bench.settle();
    assert_eq!(bench.finish(), ended(Exit::Code(0)));
    assert_eq!(bench.store.calls.len(), 3, "{:?}", bench.store.calls);
    let record = bench.store.record();
    assert_eq!((record.lease, record.grants, record.ledger.last().unwrap().status), (None, 2, Status::Ok));
}

#[test]
fn a_jobs_first_run_makes_one_call_more_and_a_stores_first_run_two() {
    for (store, calls) in [(Memory::with_identity(), 4), (Memory::default(), 5)] {
        let mut bench = Bench::begun(terms(2), store);
        bench.settle();
        bench.end_child(Exit::Code(0));
        bench.settle();
        bench.finish();
        assert_eq!(bench.store.calls.len(), calls, "{:?}", bench.store.calls);
    }
}

/// Where one outcome has to go, all go that are not kept, so that the runs after it make no call more than three.
#[test]
fn of_nine_runs_on_a_full_record_one_writes_into_the_history() {
    let mut store = full_store();
    let mut calls = Vec::new();
    for run in 1_000..1_018 {
        store.calls.clear();
        let mut bench = Bench::begun(at_slot(run), store);
        bench.settle();
        bench.end_child(Exit::Code(0));
        bench.settle();
        store = bench.store;
        calls.push(store.calls.len());
    }
    assert_eq!(calls, [[3 + TO_GO].as_slice(), &[3; TO_GO - 1]].concat().repeat(2));
    assert_eq!(store.record().ledger.ring.len(), RING_OUTCOMES_MAX);
}

/// A store that is far is not waited for longer than it takes to make room for one, and nothing is written in vain.
#[test]
fn the_end_of_a_run_waits_only_so_long_for_the_history() {
    for (each_ms, given_up) in [(0, TO_GO), (5, TO_GO), (20, 3), (49, 2), (50, 1), (3_000, 1)] {
        let mut bench = Bench::begun(at_slot(1_000), full_store());
        let oldest = bench.store.record().ledger.ring[..TO_GO].to_vec();
        bench.settle();
        bench.end_child(Exit::Code(0));
        bench.store.calls.clear();
        while bench.call.is_some() {
            bench.wait(each_ms);
            bench.answer();
        }
        assert_eq!(bench.finish(), ended(Exit::Code(0)));
        assert_eq!(bench.store.calls.len(), given_up + 1, "{each_ms} ms: {:?}", bench.store.calls);
        let record = bench.store.record();
        assert_eq!(record.ledger.ring.len(), RING_OUTCOMES_MAX + 1 - given_up);
        for (number, outcome) in oldest.into_iter().enumerate() {
            assert_eq!(record.ledger.has(outcome.attempt()), number >= given_up);
            let page = bench.store.bytes(&Key::history(&job(), outcome.slot, 0));
            let attempts = page.map(|page| Page::decode(&page, &job()).unwrap().attempts);
            assert_eq!(attempts, (number < given_up).then(|| vec![outcome]));
        }
    }
}

/// How many outcomes go where one has to.
const TO_GO: usize = RING_OUTCOMES_MAX + 1 - RING_OUTCOMES_KEPT;

fn full_store() -> Memory {
    let mut store = Memory::with(&free(5));
    for run in 0..RING_OUTCOMES_MAX as u128 {
        let mut bench = Bench::begun(at_slot(run), store);
        bench.settle();
        bench.end_child(Exit::Code(0));
        bench.settle();
        store = bench.store;
    }
    store
}

fn at_slot(run: u128) -> Terms {
    let mut terms = terms(run);
    terms.claim.slot = Choice::At(wall(run as u64));
    terms
}

#[test]
fn a_claim_says_what_was_granted_and_whom_it_took_over() {
    let mut bench = Bench::begun(terms(2), Memory::with(&held(5, 1)));
    bench.facts = Facts { holder_is_dead: true, ..Facts::default() };
    bench.settle();
    let record = bench.store.record();
    let note = format!("its processes died; run {} took over", id(2));
    let took_over = Some(TookOver { run: id(1), note });
    assert_eq!(
        bench.events(),
        [&Event::Claimed { token: record.token, grants: 2, slot: wall(0), took_over, deadline: boot(BELIEF_MS) }]
    );
}

#[test]
fn a_child_that_fails_is_an_error_by_its_own_hand() {
    for (exit, code) in [(Exit::Code(3), 3), (Exit::Signal(9), 137)] {
        let mut bench = Bench::running(terms(2));
        bench.end_child(exit);
        bench.settle();
        assert_eq!(bench.finish(), ended(exit));
        let outcome = bench.store.record().ledger.last().cloned().unwrap();
        assert_eq!((outcome.status, outcome.exit_code, outcome.ended_by), (Status::Error, Some(code), EndedBy::Child));
    }
}

#[test]
fn a_child_that_does_not_start_is_written_down() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.settle();
    bench.step(Input::NotSpawned(not_found()));
    bench.settle();
    assert_eq!(bench.finish(), Finish::NotSpawned(not_found()));
    let outcome = bench.store.record().ledger.last().cloned().unwrap();
    assert_eq!((outcome.status, outcome.ended_by), (Status::Error, EndedBy::Fencepost));
    assert_eq!(outcome.note, Some(not_found().text));
}

#[test]
fn what_escaped_is_named_and_keeps_the_lease() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::ChildEnded(Exit::Code(0)));
    bench.step(Input::TreeEmpty { escaped: vec!["sudo (77)".to_string()] });
    bench.settle();
    assert_eq!(bench.finish(), ended_leaving(Exit::Code(0), vec!["sudo (77)".to_string()]));
    assert_eq!(lease(&bench.store.record()).run, id(2));
    let note = bench.store.record().ledger.last().unwrap().note.clone().unwrap();
    assert!(note.contains("sudo (77)"), "{note}");
}

#[test]
fn a_lease_that_is_only_held_leaves_no_outcome() {
    let mut bench = Bench::running(holding(2));
    bench.end_child(Exit::Code(0));
    bench.settle();
    bench.finish();
    let record = bench.store.record();
    assert_eq!((record.lease, record.ledger.ring.len()), (None, 0));
}

/// The client that it was held for has to know before another can have it.
#[test]
fn a_lease_that_is_only_held_is_given_up_at_its_deadline_without_the_store() {
    for hears_an_answer in [true, false] {
        let mut bench = Bench::running(holding(2));
        bench.wake();
        if hears_an_answer {
            bench.fail(unavailable());
        }
        let calls = bench.store.calls.len();
        bench.step(Input::DeadlineReached);
        bench.end_child(Exit::Code(0));
        assert_eq!(stopped(bench.finish()), (StopCause::Deadline, false));
        assert_eq!(bench.store.calls.len(), calls);
    }
}

// Renewals.

#[test]
fn a_renewal_is_due_after_a_third_and_extends_the_deadline() {
    let mut bench = Bench::running(terms(2));
    assert_eq!(bench.run.wake_at(), Some(boot(TTL_MS / 3)));
    bench.wake();
    bench.wait(5_000);
    bench.answer();
    let deadline = boot(20_000 + BELIEF_MS);
    assert_eq!(bench.take(), [Output::Tell(Event::Renewed { renewals: 1, deadline }), Output::Extend(deadline)]);
    assert_eq!(bench.run.deadline(), Some(boot(20_000 + BELIEF_MS)));
    assert_eq!(bench.run.wake_at(), Some(boot(40_000)), "from before it was sent");
    assert_eq!(bench.store.calls.len(), 3, "without a read");
}

#[test]
fn while_a_renewal_is_out_nothing_is_due() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    assert_eq!(bench.run.wake_at(), None, "the keeper has the deadline");
    bench.step(Input::Tick);
    bench.step(Input::Woke);
    assert_eq!(bench.take(), []);
}

#[test]
fn a_failed_renewal_is_said_once_and_tried_again() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.fail(unavailable());
    assert_eq!(bench.take(), [Output::Tell(Event::RenewalFailed { error: unavailable() })]);
    for _ in 0..3 {
        bench.wake();
        bench.fail(unavailable());
    }
    assert_eq!((bench.at, bench.take()), (20_000 + 3 * 2_000, Vec::new()));
    bench.wake();
    bench.settle();
    assert_eq!(bench.run.deadline(), Some(boot(28_000 + BELIEF_MS)));
    bench.wake();
    bench.fail(unavailable());
    assert_eq!(bench.events().last(), Some(&&Event::RenewalFailed { error: unavailable() }), "said anew");
}

#[test]
fn a_renewal_whose_answer_is_lost_extends_nothing_until_it_is_confirmed() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.lose_answer();
    assert!(is_read(&bench));
    assert_eq!(bench.run.deadline(), Some(boot(BELIEF_MS)));
    bench.wait(4_000);
    bench.settle();
    assert_eq!(bench.run.deadline(), Some(boot(24_000 + BELIEF_MS)));
}

#[test]
fn being_woken_renews_at_once() {
    let mut bench = Bench::running(terms(2));
    bench.wait(3_000);
    bench.step(Input::Woke);
    bench.settle();
    assert_eq!(bench.run.deadline(), Some(boot(3_000 + BELIEF_MS)));
    bench.wake();
    bench.fail(unavailable());
    bench.step(Input::Woke);
    assert!(is_swap(&bench), "without waiting for the next try");
}

#[test]
fn a_lease_that_is_anothers_ends_the_tree_at_once() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.store.put(&held(Token::MAX.number(), 3));
    bench.settle();
    let record = Some(Box::new(bench.store.record()));
    let why = StopCause::Taken { record };
    assert_eq!(bench.take(), [Output::Tell(Event::Stopping(why.clone())), Output::Kill]);
    assert_eq!(bench.run.wake_at(), None, "nothing is left to renew");
    bench.end_child(Exit::Signal(9));
    assert_eq!(stopped(bench.finish()), (why, true));
    assert_eq!(bench.store.record(), held(Token::MAX.number(), 3));
}

#[test]
fn a_holder_that_was_asked_stops_and_hands_over() {
    let mut bench = Bench::running(terms(2));
    let asked = StopAsked { by: id(3), host: "beta".to_string(), unknown: Default::default() };
    bench.store.change(|record| record.lease.as_mut().unwrap().stop_asked = Some(asked.clone()));
    bench.wake();
    bench.settle();
    assert!(bench.put_out(&Output::Stop));
    bench.end_child(Exit::Signal(15));
    bench.settle();
    assert_eq!(stopped(bench.finish()), (StopCause::Replaced(asked), true));
    let record = bench.store.record();
    assert_eq!((record.lease, record.ledger.last().unwrap().status), (None, Status::Lost));
}

/// It used to be renewed and refused again without a pause, until the tree was gone.
#[test]
fn a_lease_that_is_anothers_is_let_go_even_while_the_child_is_being_stopped() {
    let mut bench = Bench::running(Terms { timeout: Some(ms(5_000)), ..terms(2) });
    bench.wake();
    bench.wake();
    bench.store.put(&held(Token::MAX.number(), 3));
    bench.settle();
    assert!(bench.put_out(&Output::Kill));
    assert_eq!(bench.run.wake_at(), None);
    bench.end_child(Exit::Signal(9));
    assert!(matches!(stopped(bench.finish()), (StopCause::Taken { .. }, true)));
}

#[test]
fn a_child_that_is_being_stopped_is_not_stopped_again_by_every_renewal() {
    let mut bench = Bench::running(terms(2));
    let asked = StopAsked { by: id(3), host: "beta".to_string(), unknown: Default::default() };
    bench.store.change(|record| record.lease.as_mut().unwrap().stop_asked = Some(asked));
    for _ in 0..3 {
        bench.wake();
        bench.settle();
    }
    let stops = bench.take().into_iter().filter(|output| *output == Output::Stop).count();
    assert_eq!(stops, 1);
}

// Ends that are not the child's.

#[test]
fn a_timeout_stops_the_child() {
    let mut bench = Bench::running(Terms { timeout: Some(ms(5_000)), ..terms(2) });
    assert_eq!(bench.run.wake_at(), Some(boot(5_000)));
    bench.wake();
    assert_eq!(bench.take(), [Output::Tell(Event::Stopping(StopCause::Timeout)), Output::Stop]);
    bench.end_child(Exit::Signal(15));
    bench.settle();
    assert_eq!(stopped(bench.finish()), (StopCause::Timeout, true));
    let outcome = bench.store.record().ledger.last().cloned().unwrap();
    assert_eq!((outcome.status, outcome.ended_by), (Status::Timeout, EndedBy::Fencepost));
}

#[test]
fn a_deadline_that_was_reached_is_lost_and_released() {
    let mut bench = Bench::running(terms(2));
    bench.wake();
    bench.wait(BELIEF_MS - GRACE_MS - 20_000);
    bench.step(Input::DeadlineReached);
    assert_eq!(bench.take(), [Output::Tell(Event::Stopping(StopCause::Deadline))], "the keeper does it");
    bench.end_child(Exit::Signal(15));
    assert!(is_swap(&bench), "the renewal is still out");
    bench.settle();
    assert_eq!(stopped(bench.finish()), (StopCause::Deadline, true));
    assert_eq!((last_status(&bench), bench.store.record().lease), (Status::Lost, None));
}
