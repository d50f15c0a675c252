//! Every rule of the lease, each as a question to a pure function.

use std::time::Duration;

use crate::common::*;
use fencepost_core::lease::{
    CLOCK_GAP_MAX, Cause, Facts, Honest, Intent, Me, Refusal, Rules, Ruling, Sighting, Standing,
};
use fencepost_core::ledger::{EndedBy, Ending, Status};
use fencepost_core::record::{Record, StopAsked};
use fencepost_core::time::{Boot, Reference, StoreClock, Wall};
use fencepost_core::token::{Nonce, Token};

// Deadlines.

#[test]
fn a_deadline_counts_from_before_sending_and_leaves_a_twentieth_for_drift() {
    assert_eq!(Honest::deadline(boot(1_000), ms(TTL_MS)), boot(1_000 + BELIEF_MS));
}

#[test]
fn a_lease_ends_one_time_to_live_after_the_latest_the_store_can_show() {
    let asked = Reference { clock: clock(700), asked: boot(500) };
    assert_eq!(Honest::until(Some(&asked), boot(2_500), ms(TTL_MS)), Some(until(700 + 2_000 + TTL_MS)));
    assert_eq!(Honest::until(None, boot(2_500), ms(TTL_MS)), None);
}

/// For any age of the reading and any delay of the answer, the holder stops believing before the store ends the lease.
#[test]
fn no_lease_ends_before_its_holder_stops_believing() {
    for (asked, read, sent) in [(0, 0, 0), (0, 900, 1_000), (0, 0, 20_000), (5_000, 5_400, 5_400)] {
        let reading = Reference { clock: clock(read), asked: boot(asked) };
        let until = Honest::until(Some(&reading), boot(sent), ms(TTL_MS)).unwrap();
        let deadline = Honest::deadline(boot(sent), ms(TTL_MS));
        assert!(deadline.0 - BOOT_MS < until.tick - TICK_MS, "{asked} {read} {sent}");
    }
}

// Standing.

fn standing(record: &Record, clock: Option<&StoreClock>, facts: &Facts, at_ms: u64) -> Standing {
    Honest::standing(record, clock, facts, boot(at_ms))
}

#[test]
fn a_lease_stands_by_the_stores_clock() {
    let stands = |at_ms| standing(&held(5, 1), Some(&clock(at_ms)), &Facts::default(), 0);
    assert_eq!(standing(&free(5), Some(&clock(0)), &Facts::default(), 0), Standing::Free);
    assert_eq!(stands(0), Standing::Held { remaining: Some(ms(TTL_MS)) });
    assert_eq!(stands(TTL_MS - 1), Standing::Held { remaining: Some(ms(1)) });
    assert_eq!(stands(TTL_MS), Standing::Over(Cause::Expired));
}

#[test]
fn our_own_clock_says_nothing_where_the_store_has_one() {
    let seen = Sighting { token: token(5), renewals: 0, since: boot(0) };
    let facts = Facts { sighting: Some(seen), ..Facts::default() };
    let stands = standing(&held(5, 1), Some(&clock(0)), &facts, 10 * TTL_MS);
    assert_eq!(stands, Standing::Held { remaining: Some(ms(TTL_MS)) });
}

#[test]
fn a_lease_of_another_era_is_over() {
    let restarted = StoreClock { era: era("two"), ..clock(0) };
    let stands = standing(&held(5, 1), Some(&restarted), &Facts::default(), 0);
    assert_eq!(stands, Standing::Over(Cause::Rebooted));
}

#[test]
fn a_dead_holder_holds_nothing_and_a_free_record_has_no_holder() {
    let dead = Facts { holder_is_dead: true, ..Facts::default() };
    assert_eq!(standing(&held(5, 1), Some(&clock(0)), &dead, 0), Standing::Over(Cause::Died));
    assert_eq!(standing(&held(5, 1), None, &dead, 0), Standing::Over(Cause::Died));
    assert_eq!(standing(&free(5), Some(&clock(0)), &dead, 0), Standing::Free);
}

/// Neither side may lack the clock: a reading without `until` says as little as `until` without a reading.
#[test]
fn without_a_clock_a_lease_is_over_once_it_was_seen_unchanged_for_long_enough() {
    let timeless = with_lease(held(5, 1), |lease| lease.until = None);
    let whole = TTL_MS + TTL_MS / 20;
    for (record, reading) in [(&timeless, None), (&held(5, 1), None), (&timeless, Some(clock(99 * TTL_MS)))] {
        let stands = |seen: Option<Sighting>, at_ms| {
            let facts = Facts { sighting: seen, ..Facts::default() };
            standing(record, reading.as_ref(), &facts, at_ms)
        };
        let seen = Sighting { token: token(5), renewals: 0, since: boot(100) };
        let held = Standing::Held { remaining: None };
        assert_eq!(stands(None, 99 * TTL_MS), held);
        assert_eq!(stands(Some(seen), 100 + whole - 1), held);
        assert_eq!(stands(Some(seen), 100 + whole), Standing::Over(Cause::Expired));
        assert_eq!(stands(Some(Sighting { token: token(4), ..seen }), 99 * TTL_MS), held);
        assert_eq!(stands(Some(Sighting { renewals: 1, ..seen }), 99 * TTL_MS), held);
    }
}

#[test]
fn a_sighting_begins_after_the_read_and_only_a_renewal_begins_it_anew() {
    let sight = |before, record: &Record, at_ms: u64| Honest::sight(before, record, boot(at_ms + 10));
    let first = sight(None, &held(5, 1), 100).unwrap();
    assert_eq!(first, Sighting { token: token(5), renewals: 0, since: boot(110) });

    let asked = Some(StopAsked { by: id(2), host: "beta".to_string(), unknown: Default::default() });
    let disturbed = with_lease(held(5, 1), |lease| lease.stop_asked = asked);
    assert_eq!(sight(Some(first), &disturbed, 900), Some(first), "what others write disturbs nothing");

    let renewed = with_lease(held(5, 1), |lease| lease.renewals = 1);
    assert_eq!(sight(Some(first), &renewed, 900).unwrap().since, boot(910));
    assert_eq!(sight(Some(first), &held(6, 1), 900).unwrap().since, boot(910));
    assert_eq!(sight(Some(first), &free(5), 900), None);
}

// Tokens.

#[test]
fn a_token_is_above_the_last_the_date_and_what_this_host_has_seen() {
    let mint = |last, date, high| Honest::mint(last, Wall(date), high).map(Token::number);
    assert_eq!(mint(None, 1_000, None), Some(1_000));
    assert_eq!(mint(Some(token(7)), 1_000, None), Some(1_000));
    assert_eq!(mint(Some(token(1_000)), 1_000, None), Some(1_001), "two grants in one millisecond");
    assert_eq!(mint(Some(token(7)), 1_000, Some(token(5_000))), Some(5_001));
    assert_eq!(mint(Some(token(7)), -1, None), Some(8), "a date before 1970 counts for nothing");
}

#[test]
fn a_token_never_reaches_two_to_the_53() {
    let mint = |last, date, high| Honest::mint(last, Wall(date), high);
    let last_but_one = token((1 << 53) - 2);
    assert_eq!(mint(Some(last_but_one), 0, None), Some(Token::MAX));
    assert_eq!(mint(Some(Token::MAX), 0, None), None);
    assert_eq!(mint(None, 0, Some(Token::MAX)), None);
    assert_eq!(mint(None, 1 << 53, None), None);
    assert_eq!(Token::new(1 << 53), None);
}

/// A store that was restored from a copy has forgotten grants. The date is ahead of all of them.
#[test]
fn a_record_that_was_rolled_back_still_gets_a_higher_token() {
    let first = written(decide(&Intent::Claim(claim(1)), Some(&free(5)), 0)).token;
    let second = written(decide(&Intent::Claim(claim(2)), Some(&free(5)), 1)).token;
    assert!(second > first);
}

// Claims.

#[test]
fn a_first_claim_makes_the_record() {
    let record = written(decide(&Intent::Claim(claim(1)), None, 0));
    assert_eq!((record.store, record.job.clone(), record.grants), (store_id(), job(), 1));
    assert_eq!(record.token, token(DATE_MS as u64));
    assert_eq!(record.nonce, Nonce { by: id(7), write: 3 });
    assert_eq!((lease(&record).run, lease(&record).renewals), (id(1), 0));
    assert_eq!(lease(&record).until, Some(until(TTL_MS)));
    assert!(record.ledger.ring.is_empty());
}

#[test]
fn a_held_lease_is_not_claimed() {
    let held = held(5, 1);
    let refusal = Refusal::Held { record: Box::new(held.clone()), remaining: Some(ms(1)) };
    assert_eq!(decide(&Intent::Claim(claim(2)), Some(&held), TTL_MS - 1), Err(refusal));
}

#[test]
fn a_takeover_writes_the_earlier_run_down_as_lost() {
    let dead = Facts { holder_is_dead: true, ..Facts::default() };
    let rebooted = Reference { clock: StoreClock { era: era("two"), ..clock(9) }, asked: boot(9) };
    let takes = |at_ms, reference: Reference, facts: &Facts| {
        written(decide_with(&Intent::Claim(claim(2)), Some(&held(5, 1)), at_ms, Some(&reference), facts))
    };
    for (record, note) in [
        (takes(TTL_MS, reference(TTL_MS), &Facts::default()), "its lease expired"),
        (takes(9, reference(9), &dead), "its processes died"),
        (takes(9, rebooted, &Facts::default()), "the machine was restarted"),
    ] {
        let [lost] = record.ledger.ring.as_slice() else { panic!("{:?}", record.ledger) };
        assert_eq!((lost.status, lost.run, lost.token), (Status::Lost, id(1), token(5)));
        assert_eq!((lost.ended_by, lost.exit_code), (EndedBy::Fencepost, None));
        let text = lost.note.clone().unwrap();
        assert!(text.starts_with(note) && text.ends_with("took over"), "{text}");
        assert_eq!((lease(&record).run, record.grants), (id(2), 2));
        assert!(record.token > token(5));
    }
}

#[test]
fn clocks_more_than_a_day_apart_grant_nothing() {
    let day = CLOCK_GAP_MAX.as_millis() as i64;
    let at = |gap: i64| {
        let clock = StoreClock { wall: Wall(DATE_MS + gap), ..clock(0) };
        decide_with(
            &Intent::Claim(claim(1)),
            Some(&free(5)),
            0,
            Some(&Reference { clock, asked: boot(0) }),
            &Facts::default(),
        )
    };
    for gap in [day, -day] {
        assert_eq!(written(at(gap)).token, token((DATE_MS + gap) as u64), "the store's date counts");
    }
    for gap in [day + 1, -day - 1] {
        assert_eq!(at(gap), Err(Refusal::ClocksApart { store_ms: DATE_MS + gap, here_ms: DATE_MS }));
    }
}

#[test]
fn without_a_store_clock_the_date_is_ours() {
    let record = written(decide_with(&Intent::Claim(claim(1)), Some(&free(5)), 77, None, &Facts::default()));
    assert_eq!(record.token, token(DATE_MS as u64 + 77));
    assert_eq!(lease(&record).until, None);
}

#[test]
fn a_claim_that_is_there_already_is_done() {
    assert_eq!(decide(&Intent::Claim(claim(1)), Some(&held(5, 1)), 9), Ok(Ruling::AlreadyDone));
    let over = decide(&Intent::Claim(claim(1)), Some(&held(5, 1)), 2 * TTL_MS);
    assert_eq!(over, Ok(Ruling::AlreadyDone), "no other run has taken it");
}

#[test]
fn no_claim_is_granted_without_a_token() {
    let facts = Facts { high_water: Some(Token::MAX), ..Facts::default() };
    let refused = decide_with(&Intent::Claim(claim(1)), Some(&free(5)), 0, Some(&reference(0)), &facts);
    assert_eq!(refused, Err(Refusal::NoTokenLeft));
}

// Renewals.

#[test]
fn a_renewal_counts_and_moves_the_end() {
    let renewed = written(decide(&Intent::Renew(me(5, 1)), Some(&held(5, 1)), 20_000));
    assert_eq!(lease(&renewed).renewals, 1);
    assert_eq!(lease(&renewed).until, Some(until(20_000 + TTL_MS)));
    assert_eq!((renewed.token, renewed.grants), (token(5), 1));
    assert_eq!(renewed.nonce, Nonce { by: id(7), write: 3 });
}

#[test]
fn a_lease_that_expired_but_was_not_taken_is_renewed() {
    let renewed = written(decide(&Intent::Renew(me(5, 1)), Some(&held(5, 1)), 2 * TTL_MS));
    assert_eq!(lease(&renewed).until, Some(until(3 * TTL_MS)));
}

#[test]
fn a_renewal_keeps_what_others_asked() {
    let asked = written(decide(&ask_to_stop(2), Some(&held(5, 1)), 0));
    let renewed = written(decide(&Intent::Renew(me(5, 1)), Some(&asked), 0));
    assert_eq!(lease(&renewed).stop_asked, lease(&asked).stop_asked);
}

/// Ownership is token and run together; by hand, the token alone.
#[test]
fn only_the_holder_renews_completes_and_releases() {
    let intents: [fn(Me) -> Intent; 3] = [Intent::Renew, Intent::Release, complete];
    let strangers = [(held(5, 1), me(4, 1)), (held(5, 1), me(6, 1)), (held(5, 1), me(5, 2)), (free(5), me(5, 1))];
    for intent in intents {
        for (record, me) in &strangers {
            let refusal = Refusal::NotHolder { record: Some(Box::new(record.clone())) };
            assert_eq!(decide(&intent(*me), Some(record), 0), Err(refusal), "{me:?}");
        }
        assert_eq!(decide(&intent(me(5, 1)), None, 0), Err(Refusal::NotHolder { record: None }));
        let by_hand = Me { token: token(5), run: None };
        assert!(decide(&intent(by_hand), Some(&held(5, 1)), 0).is_ok());
        assert!(decide(&intent(Me { token: token(4), run: None }), Some(&held(5, 1)), 0).is_err());
    }
}

// Ends.

#[test]
fn a_completion_writes_the_outcome_and_releases_in_one() {
    let record = written(decide(&complete(me(5, 1)), Some(&held(5, 1)), 900));
    assert_eq!(record.lease, None);
    assert_eq!((record.token, record.grants), (token(5), 1), "a release keeps the token");
    let outcome = record.ledger.last().unwrap();
    assert_eq!((outcome.status, outcome.run, outcome.token), (Status::Ok, id(1), token(5)));
    assert_eq!((outcome.slot, outcome.started, outcome.finished), (wall(0), wall(0), wall(900)));
    assert_eq!(record.ledger.last_ok.as_ref(), Some(outcome));
    assert_eq!(decide(&complete(me(5, 1)), Some(&record), 950), Ok(Ruling::AlreadyDone));
}

/// The one that took over has written `lost` for the earlier run, which is no sign that its own ending landed.
#[test]
fn a_completion_after_a_take_over_is_refused() {
    let taken = written(decide(&Intent::Claim(claim(2)), Some(&held(5, 1)), TTL_MS));
    let forced = written(decide(&Intent::ForceRelease, Some(&held(5, 1)), 900));
    let stopped =
        Ending::new(Status::Lost, EndedBy::Fencepost).with_note("stopped: the lease could not be renewed in time");
    for record in [taken, forced] {
        for ending in [good(), stopped.clone()] {
            let complete = Intent::Complete { me: me(5, 1), ending, escaped: false };
            let refusal = Refusal::NotHolder { record: Some(Box::new(record.clone())) };
            assert_eq!(decide(&complete, Some(&record), TTL_MS + 1), Err(refusal));
        }
    }
}

#[test]
fn a_long_note_is_recognised_as_it_was_cut() {
    let ending = Ending { note: Some("é".repeat(500)), ..good() };
    let complete = Intent::Complete { me: me(5, 1), ending, escaped: false };
    let record = written(decide(&complete, Some(&held(5, 1)), 900));
    assert_eq!(decide(&complete, Some(&record), 950), Ok(Ruling::AlreadyDone));
}

#[test]
fn what_escaped_keeps_its_lease() {
    let escaped = Intent::Complete { me: me(5, 1), ending: good(), escaped: true };
    let record = written(decide(&escaped, Some(&held(5, 1)), 900));
    assert_eq!((lease(&record).run, lease(&record).until.clone()), (id(1), Some(until(TTL_MS))));
    assert_eq!(record.ledger.ring.len(), 1);
    assert_eq!(decide(&escaped, Some(&record), 950), Ok(Ruling::AlreadyDone));

    assert_eq!(lease(&record).holder.processes, None, "the death of its wrapper proves nothing");

    let taken = written(decide(&Intent::Claim(claim(2)), Some(&record), TTL_MS));
    assert_eq!(taken.ledger.ring.len(), 1, "how it ended was known already");
}

#[test]
fn a_release_keeps_the_record_and_is_the_end_of_a_run() {
    let release = Intent::Release(me(5, 1));
    let mut by_hand = held(5, 1);
    by_hand.lease.as_mut().unwrap().holder.by_hand = true;
    for (record, statuses) in [(held(5, 1), &[Status::Lost][..]), (by_hand, &[])] {
        let record = written(decide(&release, Some(&record), 900));
        assert_eq!((record.lease, record.token, record.grants), (None, token(5), 1));
        assert_eq!(record.ledger.ring.iter().map(|outcome| outcome.status).collect::<Vec<_>>(), statuses);
    }
}

#[test]
fn a_release_by_force_asks_no_holder_and_says_so() {
    let record = written(decide(&Intent::ForceRelease, Some(&held(5, 1)), 900));
    assert_eq!((record.lease.clone(), record.token, record.grants), (None, token(5), 1));
    let outcome = record.ledger.last().unwrap();
    assert_eq!((outcome.status, outcome.note.as_deref()), (Status::Lost, Some("its lease was released by force")));
    for unheld in [Some(&free(5)), None] {
        assert_eq!(decide(&Intent::ForceRelease, unheld, 0), Err(Refusal::NotHeld));
    }
}

#[test]
fn a_holder_is_asked_to_stop_once() {
    let record = written(decide(&ask_to_stop(2), Some(&held(5, 1)), 0));
    assert_eq!(lease(&record).stop_asked.as_ref().map(|asked| asked.by), Some(id(2)));
    assert_eq!(decide(&ask_to_stop(3), Some(&record), 0), Ok(Ruling::AlreadyDone));
    for unheld in [Some(&free(5)), None] {
        assert_eq!(decide(&ask_to_stop(2), unheld, 0), Err(Refusal::NotHeld));
    }
}

#[test]
fn a_lease_by_hand_leaves_no_outcome() {
    let record = with_lease(held(5, 1), |lease| lease.holder = by_hand());
    let taken = written(decide(&Intent::Claim(claim(2)), Some(&record), TTL_MS));
    let completed = written(decide(&complete(me(5, 1)), Some(&record), 0));
    let forced = written(decide(&Intent::ForceRelease, Some(&record), 0));
    for record in [taken, completed, forced] {
        assert!(record.ledger.ring.is_empty(), "{:?}", record.ledger);
    }
}

fn conclude(of: u64) -> Intent {
    let me = Me { token: token(of), run: None };
    Intent::Conclude { me, slot: wall(300), zone: "Asia/Tokyo".to_string(), ending: good() }
}

#[test]
fn a_lease_by_hand_is_concluded_with_its_outcome_in_one() {
    let record = with_lease(held(5, 1), |lease| lease.holder = by_hand());
    // Also after it expired, as long as no other holder took it.
    for at_ms in [900, 2 * TTL_MS] {
        let ended = written(decide(&conclude(5), Some(&record), at_ms));
        assert_eq!((ended.lease.clone(), ended.token, ended.grants), (None, token(5), 1));
        let outcome = ended.ledger.last().unwrap();
        assert_eq!((outcome.status, outcome.run, outcome.token), (Status::Ok, id(1), token(5)));
        assert_eq!((outcome.slot, outcome.started, outcome.finished), (wall(300), wall(0), wall(at_ms)));
        assert_eq!(outcome.zone, "Asia/Tokyo");
        assert_eq!(ended.ledger.last_ok.as_ref(), Some(outcome));
        let again = Refusal::NotHolder { record: Some(Box::new(ended.clone())) };
        assert_eq!(decide(&conclude(5), Some(&ended), at_ms), Err(again), "the lease was given back");
    }
}

#[test]
fn nothing_is_concluded_under_a_token_that_holds_nothing_or_is_a_runs() {
    let record = with_lease(held(5, 1), |lease| lease.holder = by_hand());
    let taken = written(decide(&Intent::Claim(claim(2)), Some(&record), TTL_MS));
    for record in [taken, free(5)] {
        let refusal = Refusal::NotHolder { record: Some(Box::new(record.clone())) };
        assert_eq!(decide(&conclude(5), Some(&record), TTL_MS + 1), Err(refusal));
    }
    assert_eq!(decide(&conclude(5), None, 0), Err(Refusal::NotHolder { record: None }));
    let of_a_run = Refusal::Held { record: Box::new(held(5, 1)), remaining: None };
    assert_eq!(decide(&conclude(5), Some(&held(5, 1)), 0), Err(of_a_run));
}

#[test]
fn lengths_of_time_never_overflow() {
    let ttl = Duration::from_millis(u64::MAX);
    assert_eq!(Honest::deadline(Boot(u64::MAX), ttl), Boot(u64::MAX));
    assert_eq!(Honest::until(Some(&reference(0)), boot(0), ttl).unwrap().tick, u64::MAX);
    let endless = with_lease(held(5, 1), |lease| (lease.ttl, lease.until) = (ttl, None));
    let seen = Sighting { token: token(5), renewals: 0, since: boot(0) };
    let facts = Facts { sighting: Some(seen), ..Facts::default() };
    assert_eq!(standing(&endless, None, &facts, TTL_MS), Standing::Held { remaining: None });
}
