use super::*;
use crate::fence::{Mode, Reason};
use crate::lease::Now;
use crate::name::{Job, Name};
use crate::register::{Answer, Entry as Stored, StoreError, Swapped, Trouble, Version};
use crate::time::Era;
use crate::token::{StoreId, Token};
use crate::transition::{Call, Reply};
use alloc::string::ToString;
use alloc::vec::Vec;
use uuid::Uuid;

const TTL: Duration = Duration::from_secs(60);

fn id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

fn entry(token: u64, turn: u128) -> Entry {
    let write = Write {
        store: StoreId(Uuid::from_u128(1)),
        job: Job::shared(Name::new("deploy").unwrap()),
        token: Token::new(token).unwrap(),
        run: id(u128::from(token)),
        digest: "sha256:a".to_string(),
        op: None,
        mode: Mode::Many,
        replaces: false,
        adopt: false,
        at: Wall(0),
        host: "h".to_string(),
    };
    let holder = Holder { host: "h".to_string(), processes: None, by_hand: true, unknown: Default::default() };
    Entry { resource: "live".to_string(), turn: id(turn), write, ttl: TTL, holder }
}

fn named(token: u64, turn: u128, op: &str) -> Entry {
    let plain = entry(token, turn);
    Entry { write: Write { op: Some(op.to_string()), ..plain.write }, ..plain }
}

fn clock(tick: u64) -> Reference {
    let clock = StoreClock { wall: Wall(0), era: Era("e".to_string()), tick };
    Reference { clock, asked: Boot(tick) }
}

fn decide(entry: &Entry, busy: Option<&Busy>, at: u64) -> Turn {
    decide_knowing(entry, busy, at, &Evidence::default())
}

fn decide_knowing(entry: &Entry, busy: Option<&Busy>, at: u64, evidence: &Evidence) -> Turn {
    let reference = clock(at);
    let nonce = Nonce { by: entry.turn, write: 0 };
    entry.decide(busy, evidence, &Moment { now: Boot(at), wall: Wall(0), reference: Some(&reference), nonce })
}

fn taken(entry: &Entry, busy: Option<&Busy>, at: u64) -> Busy {
    match decide(entry, busy, at) {
        Turn::Take(busy) => *busy,
        other => panic!("{other:?}"),
    }
}

fn over(busy: &Busy, state: State) -> Busy {
    Busy { state, ..busy.clone() }
}

#[test]
fn a_newer_token_waits_for_the_command_of_an_older_one_and_goes_after_it() {
    let old = taken(&entry(5, 1), None, 0);
    assert_eq!(decide(&entry(6, 2), Some(&old), 10), Turn::Wait(Some(TTL - Duration::from_millis(10))));
    let new = taken(&entry(6, 2), Some(&over(&old, State::Ended { code: 0 })), 20);
    assert_eq!((new.fence.token, new.fence.seq, new.turn), (Token::new(6).unwrap(), 1, id(2)));
}

#[test]
fn a_lower_token_is_refused_at_once_whether_a_command_runs_or_not() {
    let new = taken(&entry(6, 1), None, 0);
    for seen in [new.clone(), over(&new, State::Ended { code: 0 }), over(&new, State::NotStarted)] {
        let Turn::Refused(refused) = decide(&entry(5, 2), Some(&seen), 10) else { panic!("{seen:?}") };
        assert_eq!(refused.reason, Reason::Stale);
    }
    // Not even the death of the newer command lets the older one in.
    let dead = Evidence { is_dead: true, watched: None };
    assert!(matches!(decide_knowing(&entry(5, 2), Some(&new), 10, &dead), Turn::Refused(_)));
}

#[test]
fn a_command_that_died_is_in_nobodys_way() {
    let old = taken(&entry(5, 1), None, 0);
    let dead = Evidence { is_dead: true, watched: None };
    assert!(matches!(decide_knowing(&entry(6, 2), Some(&old), 10, &dead), Turn::Take(_)));
    assert!(matches!(decide(&entry(6, 2), Some(&old), 59_999), Turn::Wait(_)));
    assert!(matches!(decide(&entry(6, 2), Some(&old), 60_000), Turn::Take(_)));
}

#[test]
fn without_a_clock_a_command_is_over_when_it_was_watched_for_a_whole_time_to_live() {
    let nonce = Nonce { by: id(1), write: 0 };
    let moment = |now| Moment { now: Boot(now), wall: Wall(0), reference: None, nonce };
    let Turn::Take(old) = entry(5, 1).decide(None, &Evidence::default(), &moment(0)) else { panic!() };
    let watched = old.watch(None, Boot(100));
    let evidence = Evidence { is_dead: false, watched };
    assert_eq!(entry(6, 2).decide(Some(&old), &evidence, &moment(63_099)), Turn::Wait(None));
    assert!(matches!(entry(6, 2).decide(Some(&old), &evidence, &moment(63_100)), Turn::Take(_)));
    let renewed = old.renewed(id(1), &moment(50)).unwrap();
    assert_eq!(renewed.watch(watched, Boot(200)).unwrap().since, Boot(200), "a renewal starts it again");
    assert_eq!(entry(6, 2).decide(Some(&renewed), &evidence, &moment(63_100)), Turn::Wait(None));
}

#[test]
fn a_command_without_a_name_is_meant_every_time() {
    let first = over(&taken(&entry(5, 1), None, 0), State::Ended { code: 0 });
    assert_eq!(taken(&entry(5, 2), Some(&first), 10).fence.seq, 2);
}

#[test]
fn a_named_command_runs_once_under_its_token() {
    let first = taken(&named(5, 1, "charge"), None, 0);
    let again = |seen: &Busy| decide(&named(5, 2, "charge"), Some(seen), 10);
    assert!(matches!(again(&first), Turn::Wait(_)), "it still runs");
    assert_eq!(again(&over(&first, State::Ended { code: 3 })), Turn::Ran { code: 3 });
    assert!(matches!(again(&over(&first, State::NotStarted)), Turn::Take(_)), "nothing happened");
    let dead = Evidence { is_dead: true, watched: None };
    assert_eq!(decide_knowing(&named(5, 2, "charge"), Some(&first), 10, &dead), Turn::Unknown(Cause::Died));
    assert!(matches!(decide(&named(5, 2, "refund"), Some(&over(&first, State::Ended { code: 0 })), 10), Turn::Take(_)));
}

#[test]
fn in_mode_once_a_token_is_good_for_one_command() {
    let once = |token, turn, digest: &str| {
        let plain = entry(token, turn);
        Entry { write: Write { mode: Mode::Once, digest: digest.to_string(), ..plain.write }, ..plain }
    };
    let first = over(&taken(&once(5, 1, "sha256:a"), None, 0), State::Ended { code: 0 });
    assert_eq!(decide(&once(5, 2, "sha256:a"), Some(&first), 10), Turn::Ran { code: 0 });
    let Turn::Refused(refused) = decide(&once(5, 2, "sha256:b"), Some(&first), 10) else { panic!() };
    assert_eq!(refused.reason, Reason::Spent);
}

#[test]
fn only_its_own_turn_is_renewed_or_ended() {
    let busy = taken(&entry(5, 1), None, 0);
    let reference = clock(30_000);
    let nonce = Nonce { by: id(1), write: 1 };
    let moment = Moment { now: Boot(30_000), wall: Wall(0), reference: Some(&reference), nonce };
    let renewed = busy.renewed(id(1), &moment).unwrap();
    let State::Running(running) = &renewed.state else { panic!() };
    assert_eq!((running.renewals, running.until.as_ref().unwrap().tick), (1, 90_000));
    let end = State::Ended { code: 0 };
    assert_eq!(busy.ended(id(1), &end, &moment).unwrap().state, end);
    assert_eq!((busy.renewed(id(2), &moment), busy.ended(id(2), &end, &moment)), (None, None));
    let ended = over(&busy, end.clone());
    assert_eq!((ended.renewed(id(1), &moment), ended.ended(id(1), &end, &moment)), (None, None));
}

#[test]
fn a_record_is_read_back_strictly_and_for_its_own_resource() {
    let busy = taken(&entry(5, 1), None, 0);
    let bytes = busy.encode();
    assert_eq!(Busy::decode(&bytes, "live"), Ok(busy));
    assert!(Busy::decode(&bytes, "other").is_err());
    for end in 0..bytes.len() {
        assert!(Busy::decode(&bytes[..end], "live").is_err(), "torn at {end}");
    }
}

/// A register and what becomes of the calls to it, one after another.
#[derive(Default)]
struct Register {
    value: Option<Stored>,
    versions: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    LostRequest,
    LostAnswer,
}

impl Register {
    fn perform(&mut self, call: &Call, fault: Fault) -> Result<Answer<Reply>, StoreError> {
        let unknown = StoreError::unknown(Trouble::Unavailable, "cut");
        let value = match call {
            Call::Read(_) => Reply::Read(self.value.clone()),
            Call::Swap { .. } if fault == Fault::LostRequest => return Err(unknown),
            Call::Swap { expected, new, .. } => {
                let current = self.value.as_ref().map(|stored| stored.version.clone());
                if current == *expected {
                    self.versions += 1;
                    let version = Version(Vec::from([self.versions]));
                    self.value = Some(Stored { bytes: new.clone(), version: version.clone() });
                    Reply::Swap(Swapped::Won(Some(version)))
                } else {
                    Reply::Swap(Swapped::Lost(self.value.clone()))
                }
            }
        };
        if fault == Fault::LostAnswer && matches!(call, Call::Swap { .. }) {
            return Err(unknown);
        }
        Ok(Answer { value, clock: None })
    }

    fn carry(&mut self, change: &mut Change, faults: &[Fault]) -> Outcome {
        let mut swaps = faults.iter().copied();
        let mut boot = 0;
        let mut now = || {
            boot += 1;
            Now { boot: Boot(boot), wall: Wall(0) }
        };
        let mut step = change.begin(now());
        loop {
            step = match step {
                Step::Call(call) => {
                    let fault = if matches!(call, Call::Swap { .. }) { swaps.next() } else { None };
                    let answer = self.perform(&call, fault.unwrap_or(Fault::None));
                    change.answered(now(), answer, &mut |_| Evidence::default())
                }
                Step::Done(outcome) => return outcome,
                Step::Failed(error) => panic!("{error}"),
            };
        }
    }
}

#[test]
fn every_change_survives_lost_requests_and_lost_answers() {
    use Fault::{LostAnswer, LostRequest};
    let scripts: [&[Fault]; 5] = [&[], &[LostRequest], &[LostAnswer], &[LostRequest, LostAnswer], &[LostRequest; 3]];
    for faults in scripts {
        let mut register = Register::default();
        let enter = Intent::Enter(Box::new(entry(5, 1)));
        let mut change = Change::new("live", id(1), enter, 0);
        let Outcome::Stands { busy, .. } = register.carry(&mut change, faults) else { panic!("{faults:?}") };
        assert_eq!((busy.turn, busy.fence.seq), (id(1), 1), "{faults:?}: taken once");
        let mut change = Change::new("live", id(1), Intent::Renew, change.writes());
        assert!(matches!(register.carry(&mut change, faults), Outcome::Stands { .. }), "{faults:?}");
        let end = Intent::End(State::Ended { code: 7 });
        let mut change = Change::new("live", id(1), end, change.writes());
        assert!(matches!(register.carry(&mut change, faults), Outcome::Stands { .. }), "{faults:?}");
        let stored = Busy::decode(&register.value.unwrap().bytes, "live").unwrap();
        assert_eq!(stored.state, State::Ended { code: 7 });
    }
}

#[test]
fn a_deadline_counts_from_before_the_first_swap_that_may_have_landed() {
    let mut register = Register::default();
    let mut change = Change::new("live", id(1), Intent::Enter(Box::new(entry(5, 1))), 0);
    let Outcome::Stands { sent, .. } = register.carry(&mut change, &[Fault::LostAnswer]) else { panic!() };
    assert_eq!(sent, Boot(2), "the swap was the second call");
}

#[test]
fn a_turn_that_passed_on_is_lost_and_its_end_changes_nothing() {
    let mut register = Register::default();
    register.carry(&mut Change::new("live", id(1), Intent::Enter(Box::new(entry(5, 1))), 0), &[]);
    let over = register.value.clone().map(|stored| {
        let busy = Busy::decode(&stored.bytes, "live").unwrap();
        Stored { bytes: over(&busy, State::Ended { code: 0 }).encode(), version: stored.version }
    });
    register.value = over;
    register.carry(&mut Change::new("live", id(2), Intent::Enter(Box::new(entry(6, 2))), 0), &[]);
    let before = register.value.clone();
    for intent in [Intent::Renew, Intent::End(State::Ended { code: 0 })] {
        let outcome = register.carry(&mut Change::new("live", id(1), intent, 1), &[]);
        assert!(matches!(outcome, Outcome::Lost { busy: Some(_) }), "{outcome:?}");
    }
    assert_eq!(register.value, before);
}
