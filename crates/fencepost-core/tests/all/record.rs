//! Records as bytes.

use crate::common::*;
use fencepost_core::artifact::{Artifact, Fingerprint};
use fencepost_core::ledger::{EndedBy, Outcome, RING_OUTCOMES_MAX, Status, Trigger};
use fencepost_core::name::{Job, Name};
use fencepost_core::record::{FORMAT, Identity, RECORD_BYTES_MAX, Record, StopAsked, Unreadable, decode, encode};

/// A record with every field set.
fn full() -> Record {
    let mut record = with_lease(held(5, 1), |lease| {
        lease.renewals = 3;
        lease.stop_asked = Some(StopAsked { by: id(2), host: "beta".to_string(), unknown: Default::default() });
    });
    record.ledger.push(outcome(8, Status::Ok, None));
    record.ledger.push(outcome(9, Status::Lost, Some("its lease expired")));
    record
}

fn outcome(run: u128, status: Status, note: Option<&str>) -> Outcome {
    Outcome {
        slot: wall(0),
        zone: "Europe/Berlin".to_string(),
        status,
        token: token(4),
        run: id(run),
        host: "alpha".to_string(),
        trigger: Trigger::CatchUp,
        unstarted: false,
        started: wall(10),
        finished: wall(20),
        exit_code: (status == Status::Ok).then_some(0),
        ended_by: EndedBy::Child,
        tries: None,
        took: None,
        note: note.map(str::to_string),
        artifacts: Vec::new(),
        upstreams: Vec::new(),
        covers: None,
        clipped: false,
        unknown: Default::default(),
    }
}

#[test]
fn a_record_comes_back_as_it_was() {
    for record in [free(5), held(5, 1), full(), with_lease(held(5, 1), |lease| lease.holder = by_hand())] {
        assert_eq!(Record::decode(&record.encode(), &job()), Ok(record));
    }
}

/// Other versions of fencepost read these bytes. A change here, but for the order, is a change of the format and needs its
/// number.
#[test]
fn the_format_is_this() {
    let golden = concat!(
        r#"{"v":2,"store":"00000000-0000-0000-0000-00000005709e","job":{"name":"report"},"token":5,"grants":1,"#,
        r#""nonce":{"by":"00000000-0000-0000-0000-000000000063","write":0},"#,
        r#""ledger":{"ring":[{"slot":1790000000000,"zone":"Europe/Berlin","status":"ok","token":4,"#,
        r#""run":"00000000-0000-0000-0000-000000000008","host":"alpha","trigger":"catch_up","#,
        r#""started":1790000000010,"finished":1790000000020,"exit_code":0,"ended_by":"child"},"#,
        r#"{"slot":1790000000000,"zone":"Europe/Berlin","status":"lost","token":4,"#,
        r#""run":"00000000-0000-0000-0000-000000000009","host":"alpha","trigger":"catch_up","#,
        r#""started":1790000000010,"finished":1790000000020,"ended_by":"child","note":"its lease expired"}],"#,
        r#""last_ok":{"slot":1790000000000,"zone":"Europe/Berlin","status":"ok","token":4,"#,
        r#""run":"00000000-0000-0000-0000-000000000008","host":"alpha","trigger":"catch_up","#,
        r#""started":1790000000010,"finished":1790000000020,"exit_code":0,"ended_by":"child"},"#,
        r#""counts":{"ok":1,"lost":1}},"#,
        r#""lease":{"run":"00000000-0000-0000-0000-000000000001","ttl_ms":60000,"renewals":3,"#,
        r#""until":{"era":"one","tick":900060000},"#,
        r#""holder":{"host":"alpha","processes":{"machine":"machine","boot":"boot","pid_namespace":"pid:[1]","#,
        r#""wrapper":{"pid":10,"started":100},"keeper":{"pid":11,"started":101}}},"#,
        r#""slot":1790000000000,"zone":"UTC","trigger":"schedule","since":1790000000000,"#,
        r#""stop_asked":{"by":"00000000-0000-0000-0000-000000000002","host":"beta"}}}"#,
    );
    assert_eq!(String::from_utf8(full().encode()).unwrap(), golden);
    assert_eq!(Record::decode(golden.as_bytes(), &job()), Ok(full()));

    let free = concat!(
        r#"{"v":2,"store":"00000000-0000-0000-0000-00000005709e","job":{"name":"report"},"token":5,"grants":1,"#,
        r#""nonce":{"by":"00000000-0000-0000-0000-000000000063","write":0},"ledger":{"ring":[],"counts":{}}}"#,
    );
    assert_eq!(String::from_utf8(crate::common::free(5).encode()).unwrap(), free);

    let identity = Identity { v: FORMAT, store: store_id(), sealed: None, unknown: Default::default() };
    let golden = r#"{"v":2,"store":"00000000-0000-0000-0000-00000005709e"}"#;
    assert_eq!(String::from_utf8(encode(&identity)).unwrap(), golden);
}

#[test]
fn a_newer_format_is_reported_as_one_in_any_shape() {
    for bytes in [&br#"{"v":3}"#[..], br#"{"shape":["new"],"v":3,"lease":7}"#] {
        assert_eq!(Record::decode(bytes, &job()), Err(Unreadable::Newer(3)));
    }
}

#[test]
fn a_record_of_format_1_is_read_and_rewritten_in_format_2() {
    let new = String::from_utf8(full().encode()).unwrap();
    let old = new.replacen(r#"{"v":2"#, r#"{"v":1"#, 1);
    let read = Record::decode(old.as_bytes(), &job()).unwrap();
    assert_eq!(read, full());
    assert_eq!(String::from_utf8(read.encode()).unwrap(), new);
}

/// In format 1 a lease without processes had no run behind it, and its end left no outcome.
#[test]
fn a_lease_of_format_1_without_processes_is_by_hand() {
    let record = with_lease(held(5, 1), |lease| lease.holder.processes = None);
    let new = String::from_utf8(record.encode()).unwrap();
    let is_run = |text: &str| Record::decode(text.as_bytes(), &job()).unwrap().lease.unwrap().holder.is_run();
    assert!(is_run(&new));
    assert!(!is_run(&new.replacen(r#"{"v":2"#, r#"{"v":1"#, 1)));
}

/// A later version may add a field to any part of a record. A swap by this version must not lose it.
#[test]
fn unknown_fields_survive_in_every_part_of_a_record() {
    let mut record = full();
    record.timing = Some(timing(None));
    record.ledger.ring[0].artifacts =
        vec![Artifact { path: "a".into(), size: 1, sha256: Fingerprint([1; 32]), unknown: Default::default() }];
    let text = String::from_utf8(record.encode()).unwrap();
    for part in [
        r#"{"v":2,"#,
        r#""ledger":{"#,
        r#""ring":[{"#,
        r#""artifacts":[{"#,
        r#""last_ok":{"#,
        r#""timing":{"#,
        r#""lease":{"#,
        r#""holder":{"#,
        r#""processes":{"#,
        r#""stop_asked":{"#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
        let later = text.replacen(part, &format!(r#"{part}"from_later":[1,{{"a":null}}],"#), 1);
        let mut read = Record::decode(later.as_bytes(), &job()).unwrap_or_else(|why| panic!("{part}: {why}"));
        read.ledger.push(outcome(77, Status::Error, None));
        let written = String::from_utf8(read.encode()).unwrap();
        assert_eq!(written.matches(r#""from_later":[1,{"a":null}]"#).count(), 1, "{part}: {written}");
    }
}

#[test]
fn a_record_of_another_job_is_refused() {
    let name = Name::new("report").unwrap();
    let hosts_own = Job::of_host(name, "alpha").unwrap();
    assert_eq!(Record::decode(&free(5).encode(), &hosts_own), Err(Unreadable::OtherJob(job())));
}

#[test]
fn every_torn_record_is_damaged() {
    let bytes = full().encode();
    for end in 0..bytes.len() {
        let torn = Record::decode(&bytes[..end], &job());
        assert!(matches!(torn, Err(Unreadable::Damaged(_))), "{end}: {torn:?}");
    }
}

#[test]
fn what_we_never_write_is_damaged() {
    let good = String::from_utf8(held(5, 1).encode()).unwrap();
    for (from, to) in [
        (r#""v":2,"#, ""),
        (r#""v":2"#, r#""v":-1"#),
        (r#""v":2"#, r#""v":"2""#),
        (r#""token":5"#, r#""token":9007199254740992"#),
        (r#""token":5"#, r#""token":-5"#),
        (r#""token":5"#, r#""token":5.0"#),
        (r#""token":5"#, r#""token":5,"token":6"#),
        (r#""grants":1"#, r#""grants":1,"grants":2"#),
        (r#""pid":10"#, r#""pid":10,"extra":0"#),
        (r#""report""#, r#""../report""#),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let read = Record::decode(bad.as_bytes(), &job());
        assert!(matches!(read, Err(Unreadable::Damaged(_))), "{to}: {read:?}");
    }
    for bytes in [&b""[..], b"null", b"[]", b"\0\0\0\0", b"\xff\xfe"] {
        assert!(matches!(decode::<Record>(bytes), Err(Unreadable::Damaged(_))), "{bytes:?}");
    }
    let trailing = good + "x";
    assert!(matches!(decode::<Record>(trailing.as_bytes()), Err(Unreadable::Damaged(_))));
}

#[test]
fn a_full_ring_of_ordinary_outcomes_fits() {
    let mut record = held(5, 1);
    for run in 0..RING_OUTCOMES_MAX as u128 {
        record.ledger.push(outcome(run, Status::Error, Some("stopped: the lease could not be renewed in time")));
    }
    assert_eq!(Record::decode(&record.encode(), &job()).unwrap().ledger.ring.len(), RING_OUTCOMES_MAX);
}

/// Control characters take six bytes each in JSON, the worst a note can be.
#[test]
fn long_notes_push_the_oldest_outcomes_out_and_nothing_else() {
    for note in ["x", "\u{1}", "é"] {
        let mut record = held(5, 1);
        record.ledger.push(outcome(1_000, Status::Ok, None));
        for run in 0..RING_OUTCOMES_MAX as u128 {
            record.ledger.push(outcome(run, Status::Error, Some(&note.repeat(5_000))));
        }
        let whole = record.ledger.ring.clone();
        let (bytes, given_up) = record.fitted();
        assert!(bytes.len() <= RECORD_BYTES_MAX, "{note:?}: {}", bytes.len());
        let read = Record::decode(&bytes, &job()).unwrap();
        assert_eq!(
            (&read.lease, read.token, &read.ledger.counts),
            (&record.lease, record.token, &record.ledger.counts)
        );
        assert_eq!(read.ledger.last_ok, record.ledger.last_ok);
        let kept = read.ledger.ring.len();
        assert!(kept >= 7, "{note:?}: {kept}");
        assert_eq!([given_up, read.ledger.ring].concat(), whole);
    }
}

/// Until all slots before it are accounted for, the ring alone knows that one is done: what made it long goes, and not it.
#[test]
fn what_is_not_accounted_for_yet_is_kept_in_short_however_long_it_was() {
    let long = |number: u64, status| Outcome {
        slot: wall(1_000 + number),
        artifacts: (0..8)
            .map(|part| Artifact {
                path: format!("{part}").repeat(150),
                size: 1,
                sha256: Fingerprint([number as u8; 32]),
                unknown: Default::default(),
            })
            .collect(),
        ..outcome(u128::from(number), status, Some("a note"))
    };
    for (evaluated, kept) in [(None, 24), (Some(wall(1_003)), 20), (Some(wall(2_000)), 0)] {
        let mut record = Record { timing: Some(timing(evaluated)), ..held(5, 1) };
        // The newest first, as they are caught up.
        (0..24).rev().for_each(|number| record.ledger.push(long(number, Status::Error)));
        let (bytes, aside) = record.fitted();
        assert!(bytes.len() <= RECORD_BYTES_MAX, "{}", bytes.len());
        let needed = |outcome: &&Outcome| evaluated < Some(outcome.slot);
        assert_eq!(record.ledger.ring.iter().filter(needed).count(), kept, "{evaluated:?}");
        for outcome in record.ledger.ring.iter().filter(|outcome| outcome.clipped) {
            let whole = aside.iter().find(|whole| whole.attempt() == outcome.attempt()).expect("it is in the history");
            assert_eq!((whole.artifacts.len(), whole.status, outcome.artifacts.len()), (8, outcome.status, 0));
        }
        assert_eq!(record.fitted().1, [], "once is enough");
    }
}
