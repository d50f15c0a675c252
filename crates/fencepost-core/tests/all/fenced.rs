//! Commands on a fenced resource: the fence is judged in the claim that takes the resource's lease.

use crate::common::*;
use fencepost_core::fence::{Reason, Write, WriteMode};
use fencepost_core::history::Aside;
use fencepost_core::lease::{Cause, Claim, Context, Facts, Honest, Intent, Me, NoTurn, Refusal, Ruling};
use fencepost_core::ledger::{EndedBy, Ending, Status};
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::Record;
use fencepost_core::slot::Choice;
use fencepost_core::token::Nonce;

const RESOURCE: &str = "the live site";

fn write(of: u64) -> Write {
    Write {
        store: store_id(),
        job: job(),
        token: token(of),
        run: id(u128::from(of)),
        digest: "sha256:a".to_string(),
        op: None,
        mode: WriteMode::Many,
        replaces: false,
        adopt: false,
        at: wall(0),
        host: "alpha".to_string(),
    }
}

fn named(of: u64, op: &str) -> Write {
    Write { op: Some(op.to_string()), ..write(of) }
}

fn dead() -> Facts {
    Facts { holder_is_dead: true, ..Facts::default() }
}

/// Decides the claim of `turn` for this write.
fn ask(write: Write, turn: u128, record: Option<&Record>, at_ms: u64, facts: &Facts) -> Result<Ruling, Refusal> {
    let intent = Intent::Claim(Claim { slot: Choice::Fenced(Box::new(write)), ..claim(turn) });
    change(&intent, record, at_ms, facts)
}

fn change(intent: &Intent, record: Option<&Record>, at_ms: u64, facts: &Facts) -> Result<Ruling, Refusal> {
    let reference = reference(at_ms);
    let context = Context {
        job: &Job::of_resource(RESOURCE),
        now: now(at_ms),
        nonce: Nonce { by: id(7), write: 3 },
        reference: Some(&reference),
        date: None,
        facts,
        store: Some(store_id()),
        aside: Aside::default(),
    };
    intent.decide::<Honest>(record, &context)
}

fn taken(write: Write, turn: u128, record: Option<&Record>, at_ms: u64) -> Record {
    written(ask(write, turn, record, at_ms, &Facts::default()))
}

fn no_turn(decision: Result<Ruling, Refusal>) -> NoTurn {
    match decision {
        Err(Refusal::NoTurn(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// The record after the command of `turn` has ended.
fn ended(record: &Record, turn: u128, ending: Ending) -> Record {
    let me = Me { token: record.token, run: Some(id(turn)) };
    written(change(&Intent::Complete { me, ending, escaped: false }, Some(record), 10, &Facts::default()))
}

fn code(code: i32) -> Ending {
    let status = if code == 0 { Status::Ok } else { Status::Error };
    Ending { exit_code: Some(code), ..Ending::new(status, EndedBy::Child) }
}

fn unstarted() -> Ending {
    Ending { exit_code: Some(127), unstarted: true, ..Ending::new(Status::Error, EndedBy::Fencepost) }
}

#[test]
fn a_newer_token_waits_for_the_command_of_an_older_one_and_goes_after_it() {
    let old = taken(write(5), 1, None, 0);
    let waits = ask(write(6), 2, Some(&old), 10, &Facts::default());
    assert!(matches!(waits, Err(Refusal::Held { remaining: Some(left), .. }) if left == ms(TTL_MS - 10)), "{waits:?}");
    let new = taken(write(6), 2, Some(&ended(&old, 1, code(0))), 20);
    let fence = new.fence.as_ref().unwrap();
    assert_eq!((fence.token, fence.seq, lease(&new).run), (token(6), 1, id(2)));
    assert!(new.token > old.token && new.grants == 2, "the lease has tokens of its own");
}

#[test]
fn a_lower_token_is_refused_at_once_whether_a_command_runs_died_or_ended() {
    let new = taken(write(6), 1, None, 0);
    for (seen, facts) in [
        (new.clone(), Facts::default()),
        (new.clone(), dead()),
        (ended(&new, 1, code(0)), Facts::default()),
        (ended(&new, 1, unstarted()), Facts::default()),
    ] {
        let NoTurn::Refused(refused) = no_turn(ask(write(5), 2, Some(&seen), 10, &facts)) else { panic!("{seen:?}") };
        assert_eq!(refused.reason, Reason::Stale);
    }
}

#[test]
fn the_command_of_a_newer_token_takes_over_from_one_that_died() {
    let old = taken(write(5), 1, None, 0);
    let next = written(ask(write(6), 2, Some(&old), 10, &dead()));
    assert_eq!(next.fence.unwrap().token, token(6), "the takeover advances the fence");
    assert!(matches!(ask(write(6), 2, Some(&old), TTL_MS - 1, &Facts::default()), Err(Refusal::Held { .. })));
    assert!(ask(write(6), 2, Some(&old), TTL_MS, &Facts::default()).is_ok());
}

#[test]
fn a_command_without_a_name_is_meant_every_time() {
    let first = ended(&taken(write(5), 1, None, 0), 1, code(0));
    assert_eq!(taken(write(5), 2, Some(&first), 20).fence.unwrap().seq, 2);
}

#[test]
fn a_named_command_runs_once_under_its_token() {
    let first = taken(named(5, "charge"), 1, None, 0);
    let again = |seen: &Record, facts: &Facts| ask(named(5, "charge"), 2, Some(seen), 20, facts);
    assert!(matches!(again(&first, &Facts::default()), Err(Refusal::Held { .. })), "it still runs");
    let done = ended(&first, 1, code(3));
    let fence = done.fence.clone().unwrap();
    assert_eq!(no_turn(again(&done, &Facts::default())), NoTurn::Applied { fence: Box::new(fence), code: 3 });
    assert_eq!(no_turn(again(&first, &dead())), NoTurn::Unknown { cause: Some(Cause::Died) });
    assert!(again(&ended(&first, 1, unstarted()), &Facts::default()).is_ok(), "nothing happened");
    assert!(ask(named(5, "refund"), 2, Some(&done), 20, &Facts::default()).is_ok());
}

/// The lease is gone and the outcome says that the command was lost: that is no proof that it was applied.
#[test]
fn a_command_whose_lease_was_taken_away_stays_unknown() {
    let first = taken(named(5, "charge"), 1, None, 0);
    let freed = written(change(&Intent::ForceRelease, Some(&first), 10, &Facts::default()));
    let again = ask(named(5, "charge"), 2, Some(&freed), 20, &Facts::default());
    assert_eq!(no_turn(again), NoTurn::Unknown { cause: None });
}

#[test]
fn in_mode_once_a_token_is_good_for_one_command() {
    let once = |digest: &str| Write { mode: WriteMode::Once, digest: digest.to_string(), ..write(5) };
    let first = ended(&taken(once("sha256:a"), 1, None, 0), 1, code(0));
    let same = no_turn(ask(once("sha256:a"), 2, Some(&first), 20, &Facts::default()));
    assert!(matches!(same, NoTurn::Applied { code: 0, .. }), "{same:?}");
    let other = no_turn(ask(once("sha256:b"), 2, Some(&first), 20, &Facts::default()));
    assert!(matches!(other, NoTurn::Refused(refused) if refused.reason == Reason::Spent));
}

#[test]
fn only_the_last_command_is_kept_so_that_the_record_stays_small() {
    let mut record = taken(write(5), 1, None, 0);
    for turn in 2..100 {
        record = ended(&record, turn - 1, code(0));
        assert_eq!(record.ledger.ring.len(), 1);
        record = taken(write(5), turn, Some(&record), 20);
    }
    assert_eq!(record.fence.as_ref().unwrap().seq, 99);
    assert!(record.encode().len() < 2_000);
}

// Records of earlier versions, as they were written.

const FENCE: &str = r#""fence":{"v":1,"store":"01a1ec68-fff9-76ef-93b4-575657781e53","job":{"name":"deploy"},"token":1794967666685,"seq":1,"run":"01a1ec68-fff9-76ef-93b4-575657781e53","digest":"sha256:ac7fbc6f09596d42488bce60da2809bab53ac4377139e350b53e8077b43c02aa","op":"charge","at":1794967666721,"host":"vm"},"turn":"01a1ec69-0021-75e3-bf9b-fb91a78738cd""#;
const RUNNING: &str = r#"{"running":{"ttl_ms":300000,"renewals":2,"until":{"era":"one","tick":900300000},"holder":{"host":"vm","processes":{"machine":"3d1219c7c4c5404aaa1f6d2a48adfda4","boot":"80ab46ef-ac47-4990-bb17-0eff0b114c93","pid_namespace":"pid:[4026531836]","wrapper":{"pid":6793,"started":323814},"keeper":{"pid":6794,"started":323815}}},"since":1794967666721}}"#;

fn earlier(format: u32, state: &str) -> Vec<u8> {
    let nonce = r#""nonce":{"by":"01a1ec69-0021-75e3-bf9b-fb91a78738cd","write":1}"#;
    format!(r#"{{"v":{format},"resource":"{RESOURCE}",{nonce},{FENCE},"state":{state}}}"#).into_bytes()
}

/// The write that the recorded fence was left by.
fn recorded(record: &Record) -> Write {
    let fence = record.fence.clone().unwrap();
    Write {
        store: fence.store,
        job: fence.job,
        token: fence.token,
        run: fence.run,
        digest: fence.digest,
        op: fence.op,
        ..write(1)
    }
}

#[test]
fn a_resource_of_an_earlier_version_is_read_and_never_taken_for_a_free_one() {
    let resource = Job::of_resource(RESOURCE);
    for format in [1, 2] {
        let read = |state| Record::decode(&earlier(format, state), &resource).unwrap();
        let newer =
            |record: &Record| Write { token: record.fence.as_ref().unwrap().token.next().unwrap(), ..recorded(record) };

        let running = read(RUNNING);
        assert_eq!((lease(&running).renewals, lease(&running).holder.pid()), (2, Some(6793)));
        let waits = ask(newer(&running), 2, Some(&running), 0, &Facts::default());
        assert!(matches!(waits, Err(Refusal::Held { .. })), "{waits:?}");
        let died = ask(recorded(&running), 2, Some(&running), 0, &dead());
        assert_eq!(no_turn(died), NoTurn::Unknown { cause: Some(Cause::Died) });

        let ended = read(r#"{"ended":{"code":4}}"#);
        let stale = Write { token: token(5), ..recorded(&ended) };
        assert!(matches!(no_turn(ask(stale, 2, Some(&ended), 0, &Facts::default())), NoTurn::Refused(_)));
        let again = no_turn(ask(recorded(&ended), 2, Some(&ended), 0, &Facts::default()));
        assert!(matches!(again, NoTurn::Applied { code: 4, .. }), "{again:?}");

        let not_started = read(r#""not_started""#);
        assert!(ask(recorded(&not_started), 2, Some(&not_started), 0, &Facts::default()).is_ok());

        let next = taken(newer(&ended), 2, Some(&ended), 0);
        assert_eq!(Record::decode(&next.encode(), &resource).unwrap(), next, "it is rewritten as a record");
        assert!(next.encode().starts_with(br#"{"v":2,"store":"#));
    }
}

#[test]
fn what_is_not_the_record_of_this_resource_is_refused() {
    let resource = Job::of_resource(RESOURCE);
    let record = taken(write(5), 1, None, 0);
    assert!(Record::decode(&record.encode(), &Job::of_resource("another")).is_err());
    assert!(Record::decode(&earlier(2, RUNNING), &Job::of_resource("another")).is_err());
    let without_fence = Record { fence: None, ..record.clone() };
    let of_a_job = Record { job: Job::shared(Name::new("live").unwrap()), ..record.clone() };
    for bytes in [without_fence.encode(), of_a_job.encode(), b"{}".to_vec(), earlier(3, RUNNING), earlier(2, "{}")] {
        assert!(Record::decode(&bytes, &resource).is_err(), "{}", String::from_utf8_lossy(&bytes));
    }
    let bytes = record.encode();
    assert!((0..bytes.len()).all(|end| Record::decode(&bytes[..end], &resource).is_err()), "a torn record");
}

#[test]
fn fields_of_a_later_version_are_kept() {
    let record = taken(write(5), 1, None, 0);
    let text = String::from_utf8(record.encode()).unwrap();
    let later = text.replacen(r#""seq":1,"#, r#""seq":1,"colour":"red","#, 1).replacen(
        r#""grants":1,"#,
        r#""grants":1,"later":[1],"#,
        1,
    );
    let read = Record::decode(later.as_bytes(), &Job::of_resource(RESOURCE)).unwrap();
    let next = taken(write(6), 2, Some(&ended(&read, 1, code(0))), 20);
    let text = String::from_utf8(next.encode()).unwrap();
    assert!(text.contains(r#""colour":"red""#) && text.contains(r#""later":[1]"#), "{text}");
}

#[test]
fn a_resource_has_keys_of_its_own() {
    for (text, key) in [("live", "resource/live"), ("hello world", Key::resource("hello world").as_str())] {
        let resource = Job::of_resource(text);
        assert_eq!(Key::job(&resource).as_str(), key);
        assert_eq!(Job::parse(&resource.to_string()), Ok(resource.clone()));
        assert!(Key::histories(&resource).starts_with("resource-history/"));
        assert!(Key::skips(&resource).as_str().starts_with("resource-skips/"));
    }
}
