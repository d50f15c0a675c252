//! Slots that passed with nothing recorded: which are, and which are accounted for.

use crate::common::{free, held, id, token};
use fencepost_core::ledger::{Covered, EndedBy, Outcome, Status, Trigger};
use fencepost_core::overdue::overdue;
use fencepost_core::record::Record;
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::{LeaseState, Timing};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

fn at(time: &str) -> Wall {
    Zone::utc().parse_time(&format!("2026-08-01T{time}:00Z")).unwrap()
}

fn hourly() -> Schedule {
    Schedule::parse("0 * * * *", &Zone::utc()).unwrap()
}

/// A job that was first seen at 05:30.
fn seen(evaluated: Option<&str>) -> Record {
    let timing = Timing {
        schedule: "0 * * * *".to_string(),
        zone: "UTC".to_string(),
        fingerprint: hourly().fingerprint(),
        since: at("05:30"),
        evaluated: evaluated.map(at),
        settles: None,
        unknown: Default::default(),
    };
    Record { timing: Some(timing), ..free(1) }
}

fn outcome(number: u128, slot: &str, started: &str, finished: &str, status: Status) -> Outcome {
    Outcome {
        slot: at(slot),
        zone: "UTC".to_string(),
        status,
        token: token(1),
        run: id(number),
        host: "alpha".to_string(),
        trigger: Trigger::Schedule,
        unstarted: false,
        started: at(started),
        finished: at(finished),
        exit_code: None,
        ended_by: EndedBy::Child,
        tries: None,
        took: None,
        note: None,
        artifacts: Vec::new(),
        upstreams: Vec::new(),
        covers: None,
        clipped: false,
        unknown: Default::default(),
    }
}

/// The first overdue slot at 10:20, the last, and how many there are.
fn judged(record: Option<&Record>, standing: LeaseState) -> Option<(String, String, u64)> {
    let time = |slot: Wall| Zone::utc().show_time(slot);
    overdue(&hourly(), record, standing, at("09:30"), at("10:20")).map(|gap| (time(gap.from), time(gap.to), gap.count))
}

fn gap(from: &str, to: &str, count: u64) -> Option<(String, String, u64)> {
    Some((from.to_string(), to.to_string(), count))
}

#[test]
fn nothing_is_expected_from_before_a_job_was_seen() {
    assert_eq!(judged(None, LeaseState::Stands), gap("10:00", "10:00", 1));
    assert_eq!(judged(Some(&free(1)), LeaseState::Stands), gap("10:00", "10:00", 1));
    assert_eq!(judged(Some(&seen(None)), LeaseState::Stands), gap("06:00", "10:00", 5));
    assert_eq!(judged(Some(&seen(Some("08:00"))), LeaseState::Stands), gap("09:00", "10:00", 2));
    assert_eq!(judged(Some(&seen(Some("10:00"))), LeaseState::Stands), None);
}

#[test]
fn however_a_slot_ended_it_is_accounted_for() {
    for status in Status::ALL.into_iter().filter(|status| *status != Status::Running) {
        let mut record = seen(Some("08:00"));
        record.ledger.push(outcome(1, "09:00", "09:00", "09:01", status));
        assert_eq!(judged(Some(&record), LeaseState::Stands), gap("10:00", "10:00", 1), "{status}");
        record.ledger.push(outcome(2, "10:00", "10:00", "10:01", status));
        assert_eq!(judged(Some(&record), LeaseState::Stands), None, "{status}");
    }
}

#[test]
fn a_range_that_was_missed_and_slots_that_were_overlapped_are_accounted_for() {
    let mut record = seen(None);
    let covers = Some(Covered { from: at("06:00"), to: at("09:00"), count: 4 });
    record.ledger.push(Outcome { covers, ..outcome(1, "06:00", "09:30", "09:30", Status::Missed) });
    assert_eq!(judged(Some(&record), LeaseState::Stands), gap("10:00", "10:00", 1));
    let mut record = seen(None);
    record.ledger.push(outcome(1, "07:00", "07:00", "10:10", Status::Ok));
    assert_eq!(judged(Some(&record), LeaseState::Stands), None);
}

#[test]
fn a_run_at_no_slot_accounts_for_none() {
    let mut record = seen(Some("08:00"));
    record.ledger.push(outcome(1, "10:15", "10:15", "10:16", Status::Ok));
    assert_eq!(judged(Some(&record), LeaseState::Stands), gap("09:00", "10:00", 2));
}

#[test]
fn a_run_that_is_going_accounts_for_everything_and_one_that_died_for_nothing() {
    let lease = held(1, 7).lease;
    let record = Record { lease, ..seen(Some("08:00")) };
    assert_eq!(judged(Some(&record), LeaseState::Stands), None);
    assert_eq!(judged(Some(&record), LeaseState::Over), gap("09:00", "10:00", 2));
}

#[test]
fn another_schedule_and_a_clock_that_was_wrong_say_nothing() {
    let mut edited = seen(Some("10:00"));
    edited.timing.as_mut().unwrap().fingerprint = "other".to_string();
    assert_eq!(judged(Some(&edited), LeaseState::Stands), gap("10:00", "10:00", 1));
    // Half an hour is a difference of clocks, half a day is a wrong one.
    assert_eq!(judged(Some(&seen(Some("11:00"))), LeaseState::Stands), None);
    assert_eq!(judged(Some(&seen(Some("22:00"))), LeaseState::Stands), gap("06:00", "10:00", 5));
}
