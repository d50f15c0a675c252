//! A guarded run until its child starts, or does not, fed one input at a time.

use crate::common::*;
use fencepost_core::lease::{Facts, Refusal};
use fencepost_core::ledger::Status;
use fencepost_core::name::Key;
use fencepost_core::record::StopAsked;
use fencepost_core::register::{Answer, Fate, StoreError, Trouble};
use fencepost_core::run::{Event, Exit, Finish, Input, Kept, Output, Overlap, Stages, StopCause, Terms};
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::token::Token;
use fencepost_core::transition::Call;

// Held by another.

#[test]
fn a_held_lease_is_skipped() {
    let mut bench = Bench::begun(terms(2), Memory::with(&held(5, 1)));
    bench.settle();
    let expected = Finish::Held { record: Box::new(held(5, 1)), remaining: Some(ms(TTL_MS)) };
    assert_eq!(bench.finish(), expected);
    assert_eq!(bench.store.calls.len(), 1);
}

#[test]
fn a_run_inside_the_holder_is_an_error_of_its_own() {
    let nested = Terms { inside: vec![id(1), id(7)], wait: Some(ms(9_000)), overlap: Overlap::Replace, ..terms(2) };
    let mut bench = Bench::begun(nested, Memory::with(&held(5, 1)));
    bench.settle();
    assert_eq!(bench.finish(), Finish::Nested);

    let elsewhere = Terms { inside: vec![id(8)], ..terms(2) };
    let mut bench = Bench::begun(elsewhere, Memory::with(&held(5, 1)));
    bench.settle();
    assert!(matches!(bench.finish(), Finish::Held { .. }));
}

/// Else one of them is served each time that all have looked.
#[test]
fn runs_that_wait_together_look_at_different_moments() {
    let next_look = |spread: u128| {
        let waiting = Terms { wait: Some(ms(10_000)), ..terms(2 + (spread << 48)) };
        let mut bench = Bench::begun(waiting, Memory::with(&held(5, 1)));
        bench.settle();
        bench.run.wake_at().unwrap()
    };
    assert!(next_look(255) < next_look(128) && next_look(128) < next_look(0));
    assert!(next_look(255) >= boot(50), "no sooner than after half of the pause");
}

#[test]
fn a_waiting_run_starts_once_the_lease_is_free() {
    let mut bench = Bench::begun(Terms { wait: Some(ms(10_000)), ..terms(2) }, Memory::with(&held(5, 1)));
    bench.settle();
    assert!(matches!(bench.events()[..], [Event::Waiting { .. }]), "{:?}", bench.out);
    for _ in 0..4 {
        bench.wake();
        bench.settle();
    }
    assert_eq!(bench.at, 100 + 200 + 400 + 800, "each pause is twice the one before");
    assert_eq!(bench.out.len(), 1, "said once: {:?}", bench.out);
    bench.store.put(&free(5));
    bench.wake();
    bench.settle();
    assert!(bench.grant().is_some());
}

#[test]
fn a_waiting_run_gives_up_when_its_time_is_over_and_not_before() {
    let mut bench = Bench::begun(Terms { wait: Some(ms(7_000)), ..terms(2) }, Memory::with(&held(5, 1)));
    bench.settle();
    while !bench.run.is_finished() {
        bench.wake();
        bench.settle();
    }
    assert_eq!(bench.at, 7_000);
    assert!(matches!(bench.finish(), Finish::Held { .. }));
}

#[test]
fn a_waiting_run_takes_over_what_expires() {
    let mut bench = Bench::begun(Terms { wait: Some(ms(2 * TTL_MS)), ..terms(2) }, Memory::with(&held(5, 1)));
    bench.settle();
    while bench.run.wake_at().is_some() && !bench.run.is_running() {
        bench.wake();
        bench.settle();
    }
    assert!((TTL_MS..TTL_MS + 2_000).contains(&bench.at), "{}", bench.at);
    assert!(bench.grant().unwrap().record.token > held(5, 1).token);
}

#[test]
fn a_replacing_run_asks_once_and_waits_for_the_release() {
    let mut bench = Bench::begun(Terms { overlap: Overlap::Replace, ..terms(2) }, Memory::with(&held(5, 1)));
    bench.settle();
    assert!(matches!(bench.events()[..], [Event::AskedToStop { .. }]), "{:?}", bench.out);
    let asked = lease(&bench.store.record()).stop_asked.clone();
    assert_eq!(asked, Some(StopAsked { by: id(2), host: "alpha".to_string(), unknown: Default::default() }));
    for _ in 0..3 {
        bench.wake();
        bench.settle();
    }
    let swaps = bench.store.calls.iter().filter(|call| matches!(call, Call::Swap { .. })).count();
    assert_eq!(swaps, 1, "asked once");
    bench.store.put(&free(5));
    bench.wake();
    bench.settle();
    assert!(bench.grant().is_some());
}

#[test]
fn a_replacing_run_whose_holder_released_meanwhile_claims_at_once() {
    let mut bench = Bench::begun(Terms { overlap: Overlap::Replace, ..terms(2) }, Memory::with(&held(5, 1)));
    bench.answer();
    assert!(is_read(&bench), "for the request to stop: {:?}", bench.call);
    bench.store.put(&free(5));
    bench.settle();
    assert!(bench.grant().is_some());
}

#[test]
fn a_replacing_run_gives_up_after_twice_the_holders_time_to_live() {
    let mut bench = Bench::begun(Terms { overlap: Overlap::Replace, ..terms(2) }, Memory::with(&held(5, 1)));
    while !bench.run.is_finished() {
        bench.settle();
        // The holder lives, and ignores what it is asked.
        bench.store.change(|record| record.lease.as_mut().unwrap().until = Some(until(9 * TTL_MS)));
        if !bench.run.is_finished() {
            bench.wake();
        }
    }
    assert_eq!(bench.at, 2 * TTL_MS);
    assert!(matches!(bench.finish(), Finish::Held { .. }));
}

#[test]
fn a_refused_claim_says_why() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.facts = Facts { high_water: Some(Token::MAX), ..Facts::default() };
    bench.settle();
    assert_eq!(bench.finish(), Finish::Refused(Refusal::NoTokenLeft));

    let mut bench = Bench::begun(Terms { run_without_store: true, ..terms(2) }, Memory::with(&free(5)));
    let call = bench.call.take().unwrap();
    let mut answer = bench.store.answer(call, 0);
    answer.clock = Some(StoreClock { wall: wall(25 * 3_600_000), ..clock(0) });
    bench.step(Input::Answered(Ok(answer)));
    assert!(matches!(bench.finish(), Finish::Refused(Refusal::ClocksApart { .. })));
}

/// A store without a clock answers with a date, as a bucket does. Its lease has no end by a clock.
#[test]
fn a_token_is_not_below_the_date_of_a_store_without_a_clock() {
    let granted = |date_ms: i64| {
        let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
        bench.store.without_clock = true;
        let call = bench.call.take().unwrap();
        let answer = Answer { date: Some(Wall(wall(0).0 + date_ms)), ..bench.store.answer(call, 0) };
        bench.step(Input::Answered(Ok(answer)));
        bench
    };
    for (date_ms, at_ms) in [(600_000, 600_000), (-600_000, 0), (0, 0)] {
        let mut bench = granted(date_ms);
        bench.settle();
        let record = bench.store.record();
        assert_eq!(record.token.number(), u64::try_from(wall(at_ms).0).unwrap(), "{date_ms}");
        assert_eq!(record.lease.unwrap().until, None);
    }
    for date_ms in [25 * 3_600_000, -25 * 3_600_000] {
        assert!(matches!(granted(date_ms).finish(), Finish::Refused(Refusal::ClocksApart { .. })), "{date_ms}");
    }
}

// A store that fails at the claim.

#[test]
fn a_store_that_fails_at_the_claim_ends_the_run() {
    for call in 0..2 {
        let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
        (0..call).for_each(|_| bench.answer());
        bench.fail(unavailable());
        assert_eq!(bench.finish(), Finish::StoreFailed(unavailable()));
    }
}

#[test]
fn a_store_that_fails_at_the_claim_is_done_without_where_that_was_asked() {
    let terms = Terms { run_without_store: true, timeout: Some(ms(5_000)), ..terms(2) };
    let mut bench = Bench::begun(terms, Memory::with(&free(5)));
    bench.fail(unavailable());
    let expected = [Output::Tell(Event::WithoutLease { error: unavailable() }), Output::Spawn { grant: None }];
    assert_eq!(bench.take(), expected);
    assert_eq!(bench.run.wake_at(), Some(boot(5_000)), "the timeout holds");
    bench.step(Input::Woke);
    bench.end_child(Exit::Code(4));
    assert!(matches!(bench.finish(), Finish::WithoutLease { exit: Exit::Code(4), .. }));
    assert_eq!(bench.store.calls.len(), 0);
}

#[test]
fn a_claim_without_an_answer_is_given_up_after_half_a_minute() {
    let silent = |terms, answers| {
        let mut bench = Bench::begun(terms, Memory::with(&free(5)));
        (0..answers).for_each(|_| bench.answer());
        bench.wake();
        assert_eq!(bench.at, 30_000);
        bench
    };
    for answers in 0..2 {
        let mut bench = silent(terms(2), answers);
        let Finish::StoreFailed(StoreError { fate, trouble, .. }) = bench.finish() else { panic!() };
        assert_eq!((fate, trouble), (Fate::Unknown, Trouble::Unavailable));
        bench.answer();
        assert_eq!((bench.take(), &bench.call), (Vec::new(), &None), "the answer comes too late");

        let mut bench = silent(Terms { run_without_store: true, ..terms(2) }, answers);
        assert!(bench.put_out(&Output::Spawn { grant: None }));
        bench.take();
        bench.answer();
        assert_eq!((bench.take(), &bench.call), (Vec::new(), &None), "the answer comes too late");
    }
}

#[test]
fn a_claim_whose_answer_is_lost_counts_from_its_own_sending() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.answer();
    bench.wait(100);
    bench.lose_answer();
    bench.wait(8_000);
    bench.settle();
    assert_eq!(bench.grant().unwrap().deadline, boot(BELIEF_MS));
}

#[test]
fn an_answer_so_late_that_the_lease_is_nearly_over_starts_nothing_before_a_renewal() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.answer();
    bench.wait(BELIEF_MS - GRACE_MS - 1);
    let mut in_time = Bench::begun(terms(2), Memory::with(&free(5)));
    in_time.answer();
    in_time.wait(BELIEF_MS - GRACE_MS - 1);
    in_time.answer();
    assert!(in_time.grant().is_some());

    bench.wait(1);
    bench.answer();
    assert_eq!(bench.grant(), None);
    assert!(is_swap(&bench));
    bench.settle();
    assert_eq!(bench.grant().unwrap().deadline, boot(BELIEF_MS - GRACE_MS + BELIEF_MS));
}

#[test]
fn an_answer_so_late_that_another_has_taken_over_claims_anew() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.answer();
    let call = bench.call.take().unwrap();
    let answer = bench.store.answer(call, bench.at);
    bench.wait(BELIEF_MS);
    bench.store.put(&held(Token::MAX.number(), 3));
    bench.step(Input::Answered(Ok(answer)));
    bench.settle();
    assert!(matches!(bench.finish(), Finish::Held { .. }));
}

#[test]
fn an_unreadable_record_ends_the_run() {
    let mut store = Memory::with_identity();
    store.put_bytes(Key::job(&job()), b"{".to_vec());
    let mut bench = Bench::begun(terms(2), store);
    bench.settle();
    let Finish::StoreFailed(error) = bench.finish() else { panic!() };
    assert_eq!(error.trouble, Trouble::Corrupt);
}

/// The first grant expired before its answer came, and the run that took over wrote that run down as lost.
#[test]
fn a_run_that_had_to_claim_twice_is_recorded_and_released() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.answer();
    let call = bench.call.take().unwrap();
    let answer = bench.store.answer(call, bench.at);
    bench.wait(TTL_MS);
    let mut other = Bench::begun(terms(3), std::mem::take(&mut bench.store));
    other.at = bench.at;
    other.settle();
    other.end_child(Exit::Code(0));
    other.settle();
    other.finish();
    bench.store = other.store;
    bench.step(Input::Answered(Ok(answer)));
    bench.settle();
    assert!(bench.grant().is_some());
    bench.end_child(Exit::Code(0));
    bench.settle();
    assert_eq!(bench.finish(), ended(Exit::Code(0)));
    let record = bench.store.record();
    let statuses: Vec<_> = record.ledger.ring.iter().map(|outcome| (outcome.run, outcome.status)).collect();
    assert_eq!(statuses, [(id(2), Status::Lost), (id(3), Status::Ok), (id(2), Status::Ok)]);
    assert_eq!(record.lease, None);
}

#[test]
fn what_never_had_a_lease_is_not_recorded() {
    let without = Terms { run_without_store: true, timeout: Some(ms(5_000)), ..terms(2) };
    let mut bench = Bench::begun(without, Memory::with(&free(5)));
    bench.fail(unavailable());
    bench.wake();
    bench.end_child(Exit::Signal(15));
    assert_eq!(stopped(bench.finish()), (StopCause::Timeout, false));

    let waiting = Terms { wait: Some(ms(10_000)), ..terms(2) };
    for answers in [0, 1] {
        let mut bench = Bench::begun(waiting.clone(), Memory::with(&held(5, 1)));
        (0..answers).for_each(|_| bench.answer());
        bench.step(Input::KeeperDied { escaped: Vec::new() });
        bench.settle();
        assert_eq!(stopped(bench.finish()), (StopCause::KeeperDied, false));
    }
}

#[test]
fn without_a_store_nothing_is_run_under_a_lease_that_is_nearly_over() {
    let mut bench = Bench::begun(Terms { run_without_store: true, ..terms(2) }, Memory::with(&free(5)));
    bench.answer();
    bench.wait(BELIEF_MS);
    bench.answer();
    assert!(is_swap(&bench), "the renewal");
    bench.fail(unavailable());
    assert!(bench.put_out(&Output::Spawn { grant: None }));
    assert_eq!((bench.run.deadline(), bench.run.wake_at()), (None, None));
    bench.take();
    bench.end_child(Exit::Code(0));
    assert!(matches!(bench.finish(), Finish::WithoutLease { exit: Exit::Code(0), .. }));
}

// Interrupted.

#[test]
fn interrupted_while_waiting_nothing_is_run() {
    let mut bench = Bench::begun(Terms { wait: Some(ms(10_000)), ..terms(2) }, Memory::with(&held(5, 1)));
    bench.settle();
    bench.step(Input::Interrupted(2));
    assert_eq!(bench.finish(), Finish::Interrupted(2));
}

#[test]
fn interrupted_while_claiming_the_lease_is_given_back() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.answer();
    bench.step(Input::Interrupted(15));
    assert!(is_swap(&bench) && !bench.run.is_finished(), "the claim may be won");
    bench.settle();
    assert_eq!(bench.finish(), Finish::Interrupted(15));
    let record = bench.store.record();
    assert_eq!((record.lease, record.ledger.last().unwrap().status), (None, Status::Error));
}

#[test]
fn interrupted_while_claiming_a_silent_store_is_given_two_seconds() {
    for run_without_store in [false, true] {
        let mut bench = Bench::begun(Terms { run_without_store, ..terms(2) }, Memory::with(&free(5)));
        bench.wait(1_000);
        bench.step(Input::Interrupted(15));
        bench.wake();
        assert_eq!(bench.at, 3_000);
        assert_eq!(bench.finish(), Finish::Interrupted(15));
    }
}

#[test]
fn interrupted_before_a_held_lease_was_seen() {
    let mut bench = Bench::begun(Terms { wait: Some(ms(10_000)), ..terms(2) }, Memory::with(&held(5, 1)));
    bench.step(Input::Interrupted(2));
    bench.settle();
    assert_eq!(bench.finish(), Finish::Interrupted(2));
}

#[test]
fn interrupted_while_running_the_child_is_told_and_says_how_it_ends() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::Interrupted(15));
    assert_eq!(bench.take(), [Output::Forward(15)]);
    bench.end_child(Exit::Code(0));
    bench.settle();
    assert_eq!(bench.finish(), ended(Exit::Code(0)));
}

#[test]
fn interrupted_before_the_child_could_start() {
    let mut bench = Bench::running(terms(2));
    bench.step(Input::Interrupted(15));
    bench.step(Input::NotSpawned(not_found()));
    bench.settle();
    assert_eq!(bench.finish(), Finish::Interrupted(15));
}

#[test]
fn interrupted_while_completing_it_is_tried_for_two_seconds_only() {
    let mut bench = Bench::running(terms(2));
    bench.end_child(Exit::Code(0));
    bench.fail(unavailable());
    bench.step(Input::Interrupted(2));
    bench.wait(1_999);
    bench.step(Input::Tick);
    assert!(!bench.run.is_finished());
    bench.wait(1);
    bench.step(Input::Tick);
    assert!(matches!(bench.finish(), Finish::Unrecorded { exit: Exit::Code(0), .. }));
}

#[test]
fn an_interrupted_run_starts_nothing_without_a_store() {
    let mut bench = Bench::begun(Terms { run_without_store: true, ..terms(2) }, Memory::with(&free(5)));
    bench.step(Input::Interrupted(15));
    bench.fail(unavailable());
    assert_eq!(bench.finish(), Finish::StoreFailed(unavailable()));
}

#[test]
fn interrupting_again_does_not_put_off_the_end() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.step(Input::Interrupted(2));
    bench.wait(1_500);
    bench.step(Input::Interrupted(2));
    bench.wake();
    assert_eq!(bench.at, 2_000);
    assert_eq!(bench.finish(), Finish::Interrupted(2));

    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.wait(29_500);
    bench.step(Input::Interrupted(2));
    bench.wake();
    assert_eq!(bench.at, 30_000);
}

#[test]
fn interrupted_while_asking_the_holder_to_stop_nothing_is_waited_for() {
    for released in [false, true] {
        let replace = Terms { overlap: Overlap::Replace, ..terms(2) };
        let mut bench = Bench::begun(replace, Memory::with(&held(5, 1)));
        bench.answer();
        bench.answer();
        assert!(is_swap(&bench), "the request to stop");
        bench.step(Input::Interrupted(2));
        if released {
            bench.store.put(&free(5));
        }
        bench.answer();
        assert_eq!(bench.finish(), Finish::Interrupted(2));
    }
}

// Given up by its program, which goes on.

#[test]
fn a_claim_that_is_given_up_waits_for_an_answer_that_is_out_and_releases() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.answer();
    assert!(is_swap(&bench));
    bench.step(Input::GivenUp);
    bench.wait(3_000);
    bench.step(Input::Tick);
    assert!(!bench.run.is_finished(), "the claim may be won");
    bench.settle();
    assert_eq!(bench.finish(), Finish::GivenUp { recorded: Kept::Recorded });
    let record = bench.store.record();
    let last = record.ledger.last().unwrap();
    assert_eq!(
        (record.lease.is_none(), last.status, last.unstarted, last.exit_code),
        (true, Status::Error, true, None)
    );
    assert_eq!(last.note.as_deref(), Some("the program gave up its claim before it began"));
}

#[test]
fn a_claim_that_is_given_up_and_never_answered_is_a_failure_of_the_store() {
    let mut bench = Bench::begun(terms(2), Memory::with(&free(5)));
    bench.answer();
    bench.step(Input::GivenUp);
    bench.wake();
    assert_eq!(bench.at, 30_000);
    assert!(matches!(bench.finish(), Finish::StoreFailed(_)));
}

#[test]
fn a_claim_is_given_up_while_it_waits_looks_or_is_granted() {
    let mut waiting = Bench::begun(Terms { wait: Some(ms(10_000)), ..terms(2) }, Memory::with(&held(5, 1)));
    waiting.settle();
    waiting.step(Input::GivenUp);
    assert_eq!(waiting.finish(), Finish::GivenUp { recorded: Kept::NoLease });
    let inspect = Terms { stages: Stages { inspect: true, ..Stages::default() }, ..terms(2) };
    for terms in [terms(2), inspect] {
        let mut granted = Bench::begun(terms, Memory::with(&free(5)));
        granted.settle();
        granted.step(Input::GivenUp);
        granted.settle();
        assert_eq!(granted.finish(), Finish::GivenUp { recorded: Kept::Recorded });
        assert_eq!(granted.store.record().lease, None);
    }
    let mut unreleased = Bench::running(terms(2));
    unreleased.step(Input::GivenUp);
    unreleased.fail(unavailable());
    while !unreleased.run.is_finished() {
        unreleased.wake();
        if unreleased.call.is_some() {
            unreleased.fail(unavailable());
        }
    }
    assert_eq!(unreleased.finish(), Finish::GivenUp { recorded: Kept::Failed(unavailable()) });
}

#[test]
fn a_run_that_waits_for_the_lease_also_waits_for_the_store() {
    let mut bench = Bench::begun(Terms { wait: Some(ms(10_000)), ..terms(2) }, Memory::with(&free(5)));
    bench.fail(unavailable());
    assert!(!bench.run.is_finished());
    bench.wake();
    bench.settle();
    assert!(bench.grant().is_some());
}

#[test]
fn a_record_that_cannot_be_read_is_no_reason_to_run_without_a_lease() {
    let mut bench = Bench::begun(Terms { run_without_store: true, ..terms(2) }, Memory::with(&free(5)));
    let corrupt = StoreError::not_done(Trouble::Corrupt, "damaged");
    bench.fail(corrupt.clone());
    assert_eq!(bench.finish(), Finish::StoreFailed(corrupt));
}

// Observed only.

/// Whether the job was started though it holds no lease, and the job's own exit code is what comes out.
fn runs_without_lease(mut bench: Bench) {
    assert!(bench.put_out(&Output::Spawn { grant: None }), "{:?}", bench.out);
    bench.end_child(Exit::Code(7));
    assert!(matches!(bench.finish(), Finish::WithoutLease { exit: Exit::Code(7), .. }));
}

fn observing() -> Terms {
    Terms { observe: true, ..terms(2) }
}

#[test]
fn observed_only_a_store_that_fails_stops_nothing() {
    for error in [unavailable(), StoreError::not_done(Trouble::Corrupt, "not a record")] {
        let mut bench = Bench::begun(observing(), Memory::with(&free(5)));
        bench.fail(error);
        runs_without_lease(bench);
    }
}

#[test]
fn observed_only_a_store_that_is_silent_stops_nothing() {
    let mut bench = Bench::begun(observing(), Memory::with(&free(5)));
    bench.wake();
    runs_without_lease(bench);
}

#[test]
fn observed_only_no_refusal_stops_anything() {
    let mut sealed = free(5);
    sealed.moved_to = Some("redis://elsewhere".to_string());
    for record in [sealed, held(5, 1)] {
        let mut bench = Bench::begun(observing(), Memory::with(&record));
        bench.settle();
        runs_without_lease(bench);
    }
}

#[test]
fn observed_only_an_end_that_cannot_be_recorded_keeps_the_exit_code() {
    let mut bench = Bench::running(observing());
    bench.end_child(Exit::Code(7));
    bench.wait(6_000);
    bench.step(Input::Tick);
    assert!(matches!(bench.finish(), Finish::WithoutLease { exit: Exit::Code(7), .. }));
    // Another took the lease over meanwhile.
    let mut bench = Bench::running(observing());
    bench.store.put(&held(9, 3));
    bench.end_child(Exit::Code(7));
    bench.settle();
    assert!(matches!(bench.finish(), Finish::WithoutLease { exit: Exit::Code(7), .. }));
}
