//! What a record has no room for is in the history before the record gives it up.

use crate::common::*;
use fencepost_core::artifact::{Artifact, Fingerprint};
use fencepost_core::history::{Added, AsideKind, Page};
use fencepost_core::lease::{Claim, Facts, Honest, Intent};
use fencepost_core::ledger::{
    Ending, LISTED_MAX, NOTE_BYTES_MAX, Outcome, RING_OUTCOMES_KEPT, RING_OUTCOMES_MAX, Status,
};
use fencepost_core::name::Key;
use fencepost_core::record::{RECORD_BYTES_MAX, Record};
use fencepost_core::register::{Fate, StoreError, Trouble};
use fencepost_core::slot::Choice;
use fencepost_core::time::Wall;
use fencepost_core::transition::{Call, Done, Step, Transition};

/// Carries an intent to its end on a store in memory, and fails the calls that it is told to.
///
/// A failed call may have landed all the same.
fn carry(
    store: &mut Memory,
    intent: Intent,
    by: u128,
    mut fails: impl FnMut(&Call) -> Option<(StoreError, bool)>,
) -> Box<Done> {
    let mut transition = Transition::<Honest>::new(job(), intent, id(by), 0);
    let mut step = transition.begin(now(0));
    for _ in 0..1_000 {
        step = match step {
            Step::Call(call) => match fails(&call) {
                Some((error, lands)) => {
                    if lands {
                        store.answer(call, 0);
                    }
                    transition.answered(now(0), Err(error))
                }
                None => transition.answered(now(0), Ok(store.answer(call, 0))),
            },
            Step::Consult(_) => transition.consulted(now(0), Facts::default()),
            Step::Failed(_) => transition.again(now(0)),
            Step::Done(done) => return done,
            Step::Refused(refusal) => panic!("{refusal}"),
        };
    }
    panic!("it never ends");
}

fn record(store: &mut Memory, run: u128, slot: i64, ending: Ending) {
    let mut claim = claim(run);
    claim.slot = Choice::At(Wall(slot));
    carry(store, Intent::Record { claim, ending }, run, |_| None);
}

fn attempts(store: &Memory, slot: i64) -> Vec<Outcome> {
    let mut all = Vec::new();
    for page in 0.. {
        let Some(bytes) = store.bytes(&Key::history(&job(), Wall(slot), page)) else { break };
        let page = Page::decode(&bytes, &job()).unwrap();
        all.extend(page.attempts.into_iter().chain(page.details));
    }
    all
}

#[test]
fn what_falls_out_of_the_ring_is_in_the_history() {
    let mut store = Memory::with_identity();
    for run in 1..=100 {
        record(&mut store, run, run as i64 * 1_000, good());
    }
    let ring = store.record().ledger.ring;
    assert!((RING_OUTCOMES_KEPT..=RING_OUTCOMES_MAX).contains(&ring.len()));
    let oldest = 100 - ring.len() as u128;
    for run in 1..=oldest {
        let found: Vec<_> = attempts(&store, run as i64 * 1_000).iter().map(|outcome| outcome.run).collect();
        assert_eq!(found, [id(run)]);
    }
    assert_eq!(ring[0].run, id(oldest + 1));
    assert_eq!(store.record().ledger.counts.values().sum::<u64>(), 100);
}

#[test]
fn every_attempt_of_one_slot_is_kept_over_several_pages() {
    let mut store = Memory::with_identity();
    let long = Ending { note: Some("x".repeat(2_000)), ..good() };
    for run in 1..=120 {
        record(&mut store, run, 7_000, long.clone());
    }
    let mut found: Vec<_> = attempts(&store, 7_000).iter().map(|outcome| outcome.run).collect();
    found.sort();
    assert_eq!(found, (1..=120).map(id).collect::<Vec<_>>());
    assert!(store.bytes(&Key::history(&job(), Wall(7_000), 1)).is_some(), "one page holds them all");
}

#[test]
fn what_the_record_has_no_room_for_is_whole_in_the_history() {
    let mut store = Memory::with_identity();
    let artifacts: Vec<_> = (0..20)
        .map(|number| Artifact {
            path: format!("out/{number}"),
            size: number,
            sha256: Fingerprint([number as u8; 32]),
            unknown: Default::default(),
        })
        .collect();
    let note = "n".repeat(1_000);
    let ending = Ending { artifacts: artifacts.clone(), note: Some(note.clone()), ..good() };
    record(&mut store, 1, 5_000, ending);
    let short = store.record().ledger.ring[0].clone();
    assert!(short.clipped && short.note.unwrap().len() <= NOTE_BYTES_MAX && short.artifacts.len() == LISTED_MAX);
    let whole = attempts(&store, 5_000).remove(0);
    assert_eq!((whole.artifacts, whole.note), (artifacts, Some(note)));
}

/// The token of an outcome by hand comes from the clock, which goes on while the outcome is put into the history.
#[test]
fn a_long_outcome_by_hand_is_recorded_once_while_the_clock_goes_on() {
    let mut store = Memory::with_identity();
    let ending = Ending { note: Some("n".repeat(1_000)), ..good() };
    let mut claim = claim(1);
    claim.slot = Choice::At(Wall(5_000));
    let mut transition = Transition::<Honest>::new(job(), Intent::Record { claim, ending }, id(1), 0);
    let mut step = transition.begin(now(0));
    let mut calls = 0;
    for at in (0..).step_by(7) {
        step = match step {
            Step::Call(call) => {
                calls += 1;
                transition.answered(now(at), Ok(store.answer(call, at)))
            }
            Step::Consult(_) => transition.consulted(now(at), Facts::default()),
            Step::Done(_) => break,
            other => panic!("{other:?}"),
        };
        assert!(calls < 10, "it never ends");
    }
    let whole: Vec<_> = attempts(&store, 5_000).iter().map(Outcome::attempt).collect();
    assert_eq!(whole, [store.record().ledger.ring[0].attempt()]);
}

/// Whether a write into the history fails or its fate is unknown, nothing leaves the record before it is there, and it is there once.
#[test]
fn a_history_that_fails_keeps_the_record_as_it_is() {
    for fate in [Fate::NotDone, Fate::Unknown] {
        for lands in [false, true] {
            let mut store = Memory::with_identity();
            for run in 1..=RING_OUTCOMES_MAX as u128 {
                record(&mut store, run, run as i64 * 1_000, good());
            }
            let mut first = true;
            let mut claim = claim(99);
            claim.slot = Choice::At(Wall(99_000));
            let intent = Intent::Record { claim, ending: good() };
            carry(&mut store, intent, 99, |call| match call {
                Call::Swap { key, .. } if key.as_str().starts_with("history/") && first => {
                    first = false;
                    let error = StoreError { fate, trouble: Trouble::Unavailable, detail: "cut".to_string() };
                    Some((error, lands && fate == Fate::Unknown))
                }
                _ => None,
            });
            assert!(!first, "nothing was written into the history");
            assert_eq!(attempts(&store, 1_000).len(), 1, "{fate:?} {lands}");
            assert_eq!(store.record().ledger.ring.len(), RING_OUTCOMES_KEPT);
            assert_eq!(store.record().ledger.of_run(id(99)).map(|outcome| outcome.slot), Some(Wall(99_000)));
        }
    }
}

/// Time passes while the history is written. What is written there and what the record says is one attempt.
#[test]
fn an_attempt_is_dated_once_however_long_its_history_takes() {
    let mut store = Memory::with_identity();
    let mut at = 0;
    for run in 1..=40 {
        let mut claim = claim(run);
        claim.slot = Choice::At(Wall(5_000));
        let ending = Ending { note: Some("n".repeat(1_000)), ..good() };
        let mut transition = Transition::<Honest>::new(job(), Intent::Record { claim, ending }, id(run), 0);
        let mut step = transition.begin(now(at));
        for calls in 0.. {
            assert!(calls < 50, "it never ends");
            at += 7;
            step = match step {
                Step::Call(call) => {
                    let answer = store.answer(call, at);
                    transition.answered(now(at), Ok(answer))
                }
                Step::Consult(_) => transition.consulted(now(at), Facts::default()),
                Step::Done(_) => break,
                other => panic!("{other:?}"),
            };
        }
    }
    let whole = attempts(&store, 5_000);
    assert_eq!(whole.len(), 40);
    for kept in store.record().ledger.ring {
        let whole = whole.iter().find(|whole| whole.attempt() == kept.attempt()).expect("it is there as a whole");
        assert_eq!((whole.finished, whole.started), (kept.finished, kept.started));
    }
}

/// What the record never came to know of does not count, and what ended otherwise in it is as the record says.
#[test]
fn what_the_record_says_of_an_attempt_is_what_the_history_says_later() {
    let outcome = |status| Outcome { status, ..attempt() };
    let add = |page: Option<&[u8]>, status, kind| Page::add(page, &job(), &outcome(status), kind).unwrap();
    let Added::Page(page) = add(None, Status::Ok, AsideKind::Detail) else { panic!("a first page") };
    assert_eq!(Page::decode(&page, &job()).unwrap().attempts, []);
    assert_eq!(add(Some(&page), Status::Ok, AsideKind::Detail), Added::Known);
    for status in [Status::Ok, Status::Lost] {
        let Added::Page(page) = add(Some(&page), status, AsideKind::Attempt) else { panic!("it is not told") };
        let page = Page::decode(&page, &job()).unwrap();
        assert_eq!((page.attempts, page.details.len()), (vec![outcome(status)], 0));
    }
}

fn attempt() -> Outcome {
    let mut store = Memory::with_identity();
    record(&mut store, 1, 5_000, good());
    store.record().ledger.ring.remove(0)
}

/// What the record keeps in short is in the history as a detail, which no reader counts. Should the record give it up after all,
/// because another has accounted for its slot before the swap, it has to be there as an attempt.
#[test]
fn what_was_kept_in_short_and_is_given_up_after_all_is_an_attempt() {
    let mut before = Record { timing: Some(timing(None)), ..free(5) };
    for number in 0..24 {
        let artifacts = (0..2).map(|part| Artifact {
            path: format!("{part}").repeat(60),
            size: 1,
            sha256: Fingerprint([number as u8; 32]),
            unknown: Default::default(),
        });
        let slot = wall(1_000 + number);
        let run = id(100 + u128::from(number));
        before.ledger.push(Outcome { slot, run, artifacts: artifacts.collect(), ..attempt() });
    }
    while before.encode().len() < RECORD_BYTES_MAX - 200 {
        before.ledger.ring[23].note.get_or_insert_default().push('x');
    }
    assert_eq!(before.clone().fitted().1, [], "it fits, and just so");
    let mut store = Memory::with(&before);
    let claim = Claim { slot: Choice::At(wall(5_000)), ..claim(1) };
    let ending = Ending { note: Some("y".repeat(150)), ..good() };
    let mut transition = Transition::<Honest>::new(job(), Intent::Record { claim, ending }, id(1), 0);
    let mut step = transition.begin(now(6_000));
    let mut swaps = 0;
    loop {
        step = match step {
            Step::Call(call) => {
                let is_swap = matches!(&call, Call::Swap { key, .. } if *key == Key::job(&job()));
                swaps += u32::from(is_swap);
                if is_swap && swaps == 1 {
                    store.change(|record| record.timing = Some(timing(Some(wall(4_000)))));
                }
                transition.answered(now(6_000), Ok(store.answer(call, 6_000)))
            }
            Step::Consult(_) => transition.consulted(now(6_000), Facts::default()),
            Step::Done(_) => break,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(swaps, 2);
    for old in &before.ledger.ring {
        let page = store.bytes(&Key::history(&job(), old.slot, 0)).map(|bytes| Page::decode(&bytes, &job()).unwrap());
        let attempts = page.map(|page| page.attempts).unwrap_or_default();
        let is_attempt = attempts.iter().any(|known| known.attempt() == old.attempt());
        assert!(store.record().ledger.has(old.attempt()) || is_attempt, "{:?} is lost", old.slot);
    }
}
