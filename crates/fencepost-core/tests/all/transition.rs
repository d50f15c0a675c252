//! One change of a record through lost swaps, unknown fates and failures.

use crate::common::*;
use fencepost_core::lease::{Claim, Facts, Honest, Intent, Me, Refusal};
use fencepost_core::ledger::Status;
use fencepost_core::name::Key;
use fencepost_core::record::{FORMAT, Identity, encode};
use fencepost_core::register::{Answer, Fate, StoreError, Swapped, Trouble};
use fencepost_core::slot::{Choice, NotNow, OnUnknown};
use fencepost_core::time::Reference;
use fencepost_core::token::{Nonce, StoreId};
use fencepost_core::transition::{Call, Done, Known, Reply, Step, Transition};

fn transition(intent: Intent, by: u128) -> Transition<Honest> {
    Transition::new(job(), intent, id(by), 0)
}

/// A transition and its store. Consultations are answered with `facts`.
struct Change {
    transition: Transition<Honest>,
    store: Memory,
    facts: Facts,
    consulted: usize,
}

impl Change {
    fn new(intent: Intent, by: u128, store: Memory) -> Self {
        Self { transition: transition(intent, by), store, facts: Facts::default(), consulted: 0 }
    }

    fn begin(&mut self) -> Step {
        let step = self.transition.begin(now(0));
        self.consult(step, 0)
    }

    fn again(&mut self, at_ms: u64) -> Step {
        let step = self.transition.again(now(at_ms));
        self.consult(step, at_ms)
    }

    /// The store performs the call at `at_ms` and its answer arrives then.
    fn answer(&mut self, step: Step, at_ms: u64) -> Step {
        let answer = self.store.answer(call(step), at_ms);
        self.hear(Ok(answer), at_ms)
    }

    fn hear(&mut self, answer: Result<Answer<Reply>, StoreError>, at_ms: u64) -> Step {
        let step = self.transition.answered(now(at_ms), answer);
        self.consult(step, at_ms)
    }

    fn consult(&mut self, step: Step, at_ms: u64) -> Step {
        match step {
            Step::Consult(_) => {
                self.consulted += 1;
                self.transition.consulted(now(at_ms), self.facts.clone())
            }
            other => other,
        }
    }

    /// The store answers everything, one call each millisecond from `at_ms` on.
    fn settle(&mut self, mut step: Step, at_ms: u64) -> Step {
        for at_ms in at_ms..at_ms + 100 {
            if !matches!(step, Step::Call(_)) {
                return step;
            }
            step = self.answer(step, at_ms);
        }
        panic!("it asks for ever: {step:?}");
    }
}

fn call(step: Step) -> Call {
    match step {
        Step::Call(call) => call,
        other => panic!("no call: {other:?}"),
    }
}

fn done(step: Step) -> Done {
    match step {
        Step::Done(done) => *done,
        other => panic!("not done: {other:?}"),
    }
}

fn failed(step: Step) -> StoreError {
    match step {
        Step::Failed(error) => error,
        other => panic!("not failed: {other:?}"),
    }
}

fn read() -> Step {
    Step::Call(Call::Read(Key::job(&job())))
}

fn is_swap(step: &Step) -> bool {
    matches!(step, Step::Call(Call::Swap { key, .. }) if *key == Key::job(&job()))
}

/// A claim of a free record whose swap is out, sent at 10 ms.
fn claim_sent() -> (Change, Step) {
    let mut change = Change::new(Intent::Claim(claim(1)), 1, Memory::with(&free(5)));
    let step = change.begin();
    let step = change.answer(step, 10);
    assert!(is_swap(&step), "{step:?}");
    (change, step)
}

// Identity.

#[test]
fn a_first_claim_reads_the_stores_identity() {
    let mut change = Change::new(Intent::Claim(claim(1)), 1, Memory::with_identity());
    let step = change.begin();
    assert_eq!(step, read());
    let step = change.answer(step, 1);
    assert_eq!(step, Step::Call(Call::Read(Key::identity())));
    let done = done(change.settle(step, 2));
    assert_eq!(change.store.record().store, store_id());
    assert_eq!(*done.held.unwrap().record, change.store.record());
    assert_eq!(change.store.calls.len(), 3);
}

#[test]
fn a_store_without_an_identity_gets_one() {
    let mut change = Change::new(Intent::Claim(claim(1)), 1, Memory::default());
    let step = change.begin();
    done(change.settle(step, 1));
    assert_eq!(change.store.record().store, StoreId(id(1).0));
    assert_eq!(change.store.calls.len(), 4);
}

#[test]
fn a_client_that_loses_the_race_for_the_identity_takes_the_winners() {
    let mut change = Change::new(Intent::Claim(claim(1)), 1, Memory::default());
    let step = change.begin();
    let step = change.answer(step, 1);
    let step = change.answer(step, 2);
    change.store.put_bytes(
        Key::identity(),
        encode(&Identity { v: FORMAT, store: store_id(), sealed: None, unknown: Default::default() }),
    );
    done(change.settle(step, 3));
    assert_eq!(change.store.record().store, store_id());
}

/// It may have become the store's identity, or another may have: only the store knows.
#[test]
fn an_identity_of_unknown_fate_is_read_again() {
    for lands in [false, true] {
        let mut change = Change::new(Intent::Claim(claim(1)), 1, Memory::default());
        let step = change.begin();
        let step = change.answer(step, 1);
        let new = call(change.answer(step, 2));
        if lands {
            change.store.answer(new, 3);
        }
        failed(change.hear(Err(timed_out()), 3));
        let step = change.again(4);
        assert_eq!(step, Step::Call(Call::Read(Key::identity())));
        done(change.settle(step, 5));
        assert_eq!(change.store.record().store, StoreId(id(1).0));
    }
}

#[test]
fn a_damaged_identity_is_no_missing_one() {
    let mut store = Memory::default();
    store.put_bytes(Key::identity(), b"{}".to_vec());
    let mut change = Change::new(Intent::Claim(claim(1)), 1, store);
    let step = change.begin();
    assert_eq!(failed(change.settle(step, 1)).trouble, Trouble::Corrupt);
}

// The plain way.

#[test]
fn a_claim_reads_asks_what_is_known_and_swaps() {
    let (mut change, step) = claim_sent();
    let done = done(change.answer(step, 30));
    assert_eq!(done.sent, boot(10), "before the swap was sent");
    assert_eq!(done.reference, Some(Reference { clock: clock(30), asked: boot(10) }));
    let held = done.held.unwrap();
    assert_eq!(*held.record, change.store.record());
    assert_eq!(lease(&held.record).until, Some(until(10 + 10 + TTL_MS)), "10 ms may have passed since the reading");
    assert_eq!((change.store.calls.len(), change.consulted, change.transition.writes()), (2, 1, 1));
}

#[test]
fn what_is_known_needs_no_read() {
    let mut store = Memory::default();
    let version = store.put_bytes(Key::job(&job()), held(5, 1).encode());
    let known = Known { record: held(5, 1).into(), version };
    let renewal = Transition::<Honest>::new(job(), Intent::Renew(me(5, 1)), id(1), 8);
    let mut renewal = renewal.from_known(known, Some(reference(0)));
    let swap = call(renewal.begin(now(20_000)));
    let answer = store.answer(swap, 20_001);
    let done = done(renewal.answered(now(20_002), Ok(answer)));
    assert_eq!((store.calls.len(), renewal.writes()), (1, 9));
    assert_eq!(store.record().nonce, Nonce { by: id(1), write: 8 });
    assert_eq!(lease(&store.record()).until, Some(until(20_000 + TTL_MS)));
    assert_eq!(done.sent, boot(20_000));
}

/// Clocks drift apart while a host sleeps, and the margin of a lease covers one time-to-live of it.
#[test]
fn a_renewal_does_not_rest_on_an_old_reading_of_the_stores_clock() {
    for (at_ms, reads) in [(TTL_MS, false), (TTL_MS + 1, true)] {
        let mut change = Change::new(Intent::Renew(me(5, 1)), 1, Memory::default());
        let version = change.store.put_bytes(Key::job(&job()), held(5, 1).encode());
        let known = Known { record: held(5, 1).into(), version };
        change.transition = change.transition.from_known(known, Some(reference(0)));
        let step = change.transition.begin(now(at_ms));
        assert_eq!(step == read(), reads, "after {at_ms} ms: {step:?}");
        done(change.settle(step, at_ms));
        assert_eq!(lease(&change.store.record()).until, Some(until(at_ms + TTL_MS)));
    }
}

#[test]
fn a_renewal_that_failed_before_a_sleep_reads_after_it() {
    let mut change = Change::new(Intent::Renew(me(5, 1)), 1, Memory::with(&held(5, 1)));
    let step = change.begin();
    let step = change.answer(step, 0);
    assert!(is_swap(&step), "{step:?}");
    failed(change.hear(Err(StoreError::not_done(Trouble::Unavailable, "gone")), 1));
    assert_eq!(change.again(TTL_MS + 1), read());
}

#[test]
fn a_refusal_changes_nothing() {
    let mut change = Change::new(Intent::Claim(claim(2)), 2, Memory::with(&held(5, 1)));
    let step = change.begin();
    let step = change.settle(step, 1);
    assert!(matches!(step, Step::Refused(Refusal::Held { .. })), "{step:?}");
    assert_eq!(change.store.calls.len(), 1);
}

// Lost swaps.

#[test]
fn a_swap_lost_while_the_lease_is_ours_is_made_again_on_top() {
    let mut change = Change::new(Intent::Renew(me(5, 1)), 1, Memory::with(&held(5, 1)));
    let step = change.begin();
    let step = change.answer(step, 1);
    let asked = match ask_to_stop(2) {
        Intent::AskToStop(asked) => asked,
        _ => unreachable!(),
    };
    change.store.change(|record| record.lease.as_mut().unwrap().stop_asked = Some(asked.clone()));
    let step = change.answer(step, 2);
    assert!(is_swap(&step), "without another read: {step:?}");
    let done = done(change.answer(step, 3));
    assert_eq!(done.sent, boot(2), "the swap that won");
    let record = done.held.unwrap().record;
    assert_eq!((lease(&record).renewals, lease(&record).stop_asked.clone()), (1, Some(asked)));
    assert_eq!(record.nonce.write, 1, "every write has its own number");
}

#[test]
fn a_swap_lost_to_another_holder_is_refused() {
    for intent in [Intent::Renew(me(5, 1)), Intent::Release(me(5, 1)), complete(me(5, 1))] {
        let mut change = Change::new(intent, 1, Memory::with(&held(5, 1)));
        let step = change.begin();
        let step = change.answer(step, 1);
        change.store.put(&held(6, 2));
        let step = change.answer(step, 2);
        assert_eq!(step, Step::Refused(Refusal::NotHolder { record: Some(Box::new(held(6, 2))) }));
    }
}

/// What was known about the holder before says nothing about the one after.
#[test]
fn a_claim_lost_to_another_asks_again_what_is_known() {
    let (mut change, step) = claim_sent();
    change.store.put(&held(6, 2));
    let step = change.answer(step, 20);
    assert!(matches!(step, Step::Refused(Refusal::Held { .. })), "{step:?}");
    assert_eq!(change.consulted, 2);
}

// Unknown fates.

#[test]
fn an_unknown_claim_that_landed_is_recognised_and_counts_from_its_own_sending() {
    let (mut change, step) = claim_sent();
    change.store.answer(call(step), 20);
    let step = change.hear(Err(timed_out()), 5_000);
    assert_eq!(step, read());
    let done = done(change.answer(step, 6_000));
    assert_eq!(done.sent, boot(10));
    assert_eq!(*done.held.unwrap().record, change.store.record());
    assert_eq!(change.store.calls.len(), 3);
}

#[test]
fn an_unknown_claim_that_did_not_land_is_sent_again() {
    let (mut change, _) = claim_sent();
    let step = change.hear(Err(timed_out()), 5_000);
    let step = change.answer(step, 6_000);
    assert!(is_swap(&step), "{step:?}");
    let done = done(change.answer(step, 7_000));
    assert_eq!(done.sent, boot(6_000));
    assert_eq!(change.store.record().grants, 2);
}

/// The first swap was still on its way when the record was read back, and overtakes the second.
#[test]
fn an_unknown_claim_that_lands_late_is_recognised() {
    let (mut change, first) = claim_sent();
    let step = change.hear(Err(timed_out()), 5_000);
    let second = change.answer(step, 6_000);
    change.store.answer(call(first), 6_500);
    let done = done(change.answer(second, 7_000));
    assert_eq!(done.sent, boot(10), "the one that landed");
    assert_eq!(change.store.record().grants, 2, "granted once");
}

#[test]
fn an_unknown_claim_lost_to_another_is_refused() {
    let (mut change, _) = claim_sent();
    let step = change.hear(Err(timed_out()), 20);
    change.store.put(&held(6, 2));
    let step = change.answer(step, 30);
    assert!(matches!(step, Step::Refused(Refusal::Held { .. })), "{step:?}");
}

#[test]
fn an_unknown_renewal_is_renewed_again_whether_or_not_it_landed() {
    for lands in [false, true] {
        let mut change = Change::new(Intent::Renew(me(5, 1)), 1, Memory::with(&held(5, 1)));
        let step = change.begin();
        let swap = call(change.answer(step, 1));
        if lands {
            change.store.answer(swap, 2);
        }
        let step = change.hear(Err(timed_out()), 5_000);
        let step = change.answer(step, 6_000);
        let done = done(change.answer(step, 7_000));
        assert_eq!(done.sent, boot(6_000));
        assert_eq!(lease(&change.store.record()).renewals, 1 + u64::from(lands));
    }
}

#[test]
fn an_unknown_completion_that_landed_is_recognised() {
    let mut change = Change::new(complete(me(5, 1)), 1, Memory::with(&held(5, 1)));
    let step = change.begin();
    let swap = call(change.answer(step, 1));
    change.store.answer(swap, 2);
    let step = change.hear(Err(timed_out()), 3);
    done(change.answer(step, 4));
    assert_eq!(change.store.record().ledger.counts[&Status::Ok], 1);

    // Even if another has claimed since.
    let mut change = Change::new(complete(me(5, 1)), 1, Memory::with(&held(5, 1)));
    let step = change.begin();
    let swap = call(change.answer(step, 1));
    change.store.answer(swap, 2);
    let mut next = Change::new(Intent::Claim(claim(2)), 2, change.store);
    let step = next.begin();
    done(next.settle(step, 3));
    change.store = next.store;
    let step = change.hear(Err(timed_out()), 9);
    done(change.answer(step, 10));
    assert_eq!(lease(&change.store.record()).run, id(2));
}

/// A release leaves no outcome to be recognised by, but the record still says who wrote it last.
#[test]
fn an_unknown_release_that_landed_is_recognised() {
    let by_hand = with_lease(held(5, 1), |lease| lease.holder = by_hand());
    for (intent, record) in
        [(Intent::Release(me(5, 1)), held(5, 1)), (Intent::ForceRelease, held(5, 1)), (complete(me(5, 1)), by_hand)]
    {
        let mut change = Change::new(intent, 1, Memory::with(&record));
        let step = change.begin();
        let swap = call(change.answer(step, 1));
        change.store.answer(swap, 2);
        let step = change.hear(Err(timed_out()), 3);
        assert_eq!(done(change.answer(step, 4)).held.unwrap().record.lease, None);
    }
}

#[test]
fn an_unknown_conclusion_is_recognised_if_it_landed_and_refused_if_another_overtook_it() {
    let record = with_lease(held(5, 1), |lease| lease.holder = by_hand());
    for landed in [true, false] {
        let me = Me { token: token(5), run: None };
        let conclude = Intent::Conclude { me, slot: wall(0), zone: "UTC".to_string(), ending: good() };
        let mut change = Change::new(conclude, 3, Memory::with(&record));
        let step = change.begin();
        let swap = call(change.answer(step, 1));
        if landed {
            change.store.answer(swap, 2);
        }
        // Another claims it, and the answer to the swap never comes.
        let mut next = Change::new(Intent::Claim(claim(2)), 2, change.store);
        let step = next.begin();
        done(next.settle(step, TTL_MS + 1));
        change.store = next.store;
        let step = change.hear(Err(timed_out()), TTL_MS + 9);
        let step = change.answer(step, TTL_MS + 10);
        let after = change.store.record();
        assert_eq!((lease(&after).run, after.ledger.ring.len()), (id(2), usize::from(landed)));
        if landed {
            done(step);
        } else {
            assert_eq!(step, Step::Refused(Refusal::NotHolder { record: Some(Box::new(after)) }));
        }
    }
}

#[test]
fn an_unknown_release_that_another_overtook_is_refused() {
    for record in [free(5), held(6, 2)] {
        let mut change = Change::new(Intent::Release(me(5, 1)), 1, Memory::with(&held(5, 1)));
        let step = change.begin();
        change.answer(step, 1);
        change.store.put(&record);
        let step = change.hear(Err(timed_out()), 3);
        let step = change.answer(step, 4);
        assert_eq!(step, Step::Refused(Refusal::NotHolder { record: Some(Box::new(record)) }));
    }
}

// Failures.

#[test]
fn a_call_that_was_not_done_fails_and_goes_on_from_what_is_known() {
    let (mut change, _) = claim_sent();
    assert_eq!(failed(change.hear(Err(unavailable()), 20)), unavailable());
    let step = change.again(5_000);
    assert!(is_swap(&step), "without another read: {step:?}");
    assert_eq!(done(change.answer(step, 5_001)).sent, boot(5_000));
    assert_eq!(change.consulted, 2, "what is known may have changed");
}

#[test]
fn a_failed_read_is_read_again() {
    let mut change = Change::new(Intent::Claim(claim(1)), 1, Memory::with(&free(5)));
    change.begin();
    assert_eq!(failed(change.hear(Err(unavailable()), 1)), unavailable());
    assert_eq!(change.again(2), read());
}

#[test]
fn a_swap_stays_unsettled_until_it_could_be_read_back() {
    let (mut change, step) = claim_sent();
    change.store.answer(call(step), 20);
    change.hear(Err(timed_out()), 5_000);
    let error = failed(change.hear(Err(unavailable()), 6_000));
    assert_eq!(error.fate, Fate::Unknown, "that the read was not done says nothing about the swap");
    let step = change.again(8_000);
    assert_eq!(step, read());
    assert_eq!(done(change.answer(step, 8_001)).sent, boot(10));
}

#[test]
fn a_store_that_fails_every_write_is_not_asked_for_ever() {
    let (mut change, _) = claim_sent();
    let step = change.hear(Err(timed_out()), 20);
    let step = change.answer(step, 30);
    assert!(is_swap(&step), "{step:?}");
    assert_eq!(failed(change.hear(Err(timed_out()), 40)), timed_out());
    let step = change.again(2_000);
    assert_eq!(step, read(), "either swap may have landed");
    let step = change.answer(step, 2_001);
    assert!(is_swap(&step), "{step:?}");
    assert_eq!(failed(change.hear(Err(timed_out()), 2_010)), timed_out());
}

#[test]
fn an_unreadable_record_is_never_an_absent_one() {
    let newer = br#"{"v":2,"anything":1}"#.to_vec();
    let mut other = free(5);
    other.job = fencepost_core::name::Job::shared(fencepost_core::name::Name::new("other").unwrap());
    for bytes in [Vec::new(), b"{".to_vec(), newer, other.encode()] {
        let mut store = Memory::with_identity();
        store.put_bytes(Key::job(&job()), bytes);
        let mut change = Change::new(Intent::Claim(claim(1)), 1, store);
        let step = change.begin();
        let error = failed(change.answer(step, 1));
        assert_eq!((error.trouble, error.fate), (Trouble::Corrupt, Fate::NotDone));
        assert_eq!(change.again(2), read());
    }
}

#[test]
fn a_record_that_became_unreadable_is_not_overwritten() {
    let (mut change, step) = claim_sent();
    change.store.put_bytes(Key::job(&job()), b"{".to_vec());
    assert_eq!(failed(change.answer(step, 20)).trouble, Trouble::Corrupt);
    let step = change.again(30);
    assert_eq!(failed(change.settle(step, 31)).trouble, Trouble::Corrupt);
}

#[test]
fn an_answer_to_another_question_is_a_failure() {
    let (mut change, _) = claim_sent();
    let answer = Answer::new(Reply::Read(None), None);
    assert_eq!(failed(change.hear(Ok(answer), 20)).fate, Fate::Unknown);

    let mut change = Change::new(Intent::Claim(claim(1)), 1, Memory::default());
    change.begin();
    let answer = Answer::new(Reply::Swap(Swapped::Won(None)), None);
    assert_eq!(failed(change.hear(Ok(answer), 20)).trouble, Trouble::Corrupt);
}

#[test]
fn without_a_clock_nothing_is_made_up() {
    let mut store = Memory::with(&free(5));
    store.without_clock = true;
    let mut change = Change::new(Intent::Claim(claim(1)), 1, store);
    let step = change.begin();
    let done = done(change.settle(step, 1));
    assert_eq!(done.reference, None);
    let record = done.held.unwrap().record;
    assert_eq!(lease(&record).until, None);
}

/// The holder completes after the record was read, and ends. Found dead then, it looks as if it had died at its work.
#[test]
fn a_holder_that_completed_after_the_read_is_not_taken_for_dead() {
    let once = |run| Claim { slot: Choice::Once { params: None, on_unknown: OnUnknown::Halt }, ..claim(run) };
    let before = with_lease(held(5, 1), |lease| lease.slot = fencepost_core::slot::ONCE);
    let mut change = Change::new(Intent::Claim(once(2)), 2, Memory::with(&before));
    change.facts.holder_is_dead = true;
    let read = change.begin();
    let answer = change.store.answer(call(read), 0);
    let mut holder = Change::new(complete(me(5, 1)), 1, core::mem::take(&mut change.store));
    let step = holder.begin();
    let step = holder.answer(step, 0);
    assert!(matches!(holder.answer(step, 0), Step::Done(_)));
    change.store = holder.store;
    let again = change.hear(Ok(answer), 1);
    change.facts.holder_is_dead = false;
    let refused = change.answer(again, 2);
    assert!(
        matches!(&refused, Step::Refused(Refusal::NotNow { why: NotNow::Duplicate { state: Status::Ok, .. }, .. })),
        "{refused:?}"
    );

    // One that is dead indeed is refused after the second read.
    let mut change = Change::new(Intent::Claim(once(2)), 2, Memory::with(&before));
    change.facts.holder_is_dead = true;
    let read = change.begin();
    let again = change.answer(read, 0);
    let refused = change.answer(again, 1);
    assert!(matches!(&refused, Step::Refused(Refusal::NotNow { why: NotNow::Lost { .. }, .. })), "{refused:?}");
}
