//! Windows of slots that left the record: only the history knows what became of them.

use crate::desk::Desk;
use fencepost_core::ledger::{Covered, Outcome, Status};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

const PROCEED: i32 = 0;
const HALT: i32 = 15;

fn at(time: &str) -> Wall {
    Zone::parse("UTC").unwrap().parse_time(time).unwrap()
}

fn hourly() -> Desk {
    Desk::configured("timezone = \"UTC\"\n[job.up]\nschedule = \"0 * * * *\"\ncommand = \"true\"\n")
}

/// Records `ok` for this many hourly slots from `first` on.
fn record_hours(desk: &Desk, first: &str, count: i64) {
    for hour in 0..count {
        let slot = Zone::parse("UTC").unwrap().show(Wall(at(first).0 + hour * 3_600_000)).to_string();
        desk.done(&["record", "up", "ok", "--slot", &slot]);
    }
}

fn is_in_ring(desk: &Desk, slot: &str) -> bool {
    desk.record("up").ledger.ring.iter().any(|outcome| outcome.slot == at(slot) && outcome.covers.is_none())
}

#[track_caller]
fn gate(desk: &Desk, need: &str, slot: &str, code: i32) {
    let (ended, json) = desk.gate(&[need, "--slot", slot]);
    assert_eq!(ended, code, "{need} at {slot}: {json}");
}

/// An older slot of the window that was recorded late is still in the ring, the failure of the newest is not.
#[test]
fn a_failure_that_only_the_history_knows_halts() {
    let desk = hourly();
    desk.done(&["record", "up", "error", "--slot", "2026-03-10T23:00Z"]);
    record_hours(&desk, "2026-03-11T00:00Z", 40);
    desk.done(&["record", "up", "ok", "--slot", "2026-03-10T20:00Z"]);
    assert!(!is_in_ring(&desk, "2026-03-10T23:00Z") && is_in_ring(&desk, "2026-03-10T20:00Z"));
    for need in ["up", "up@within=6h", "up@same-day"] {
        gate(&desk, need, "2026-03-10T23:30Z", HALT);
    }
    gate(&desk, "up@within=6h", "2026-03-10T22:30Z", PROCEED);
}

#[test]
fn a_window_that_left_the_ring_is_found() {
    let desk = hourly();
    record_hours(&desk, "2026-03-10T01:00Z", 41);
    assert!(!is_in_ring(&desk, "2026-03-10T04:00Z"));
    for need in ["up", "up@within=2h"] {
        gate(&desk, need, "2026-03-10T04:30Z", PROCEED);
    }
    gate(&desk, "up@within=20m", "2026-03-10T04:30Z", HALT);
}

#[test]
fn an_outcome_in_the_history_takes_precedence_over_a_range_in_the_ring() {
    let desk = hourly();
    desk.done(&["record", "up", "error", "--slot", "2026-03-10T04:00Z"]);
    record_hours(&desk, "2026-03-09T01:00Z", 10);
    desk.edit("up", |record| {
        let covers = Covered { from: at("2026-03-10T02:00Z"), to: at("2026-03-10T07:00Z"), count: 6 };
        let last = record.ledger.last().unwrap().clone();
        let run = "00000000-0000-0000-0000-00000000000a".parse().unwrap();
        let collapsed = Outcome { slot: covers.to, covers: Some(covers), status: Status::Ok, run, ..last };
        record.ledger.push(collapsed);
    });
    record_hours(&desk, "2026-03-10T08:00Z", 30);
    assert!(!is_in_ring(&desk, "2026-03-10T04:00Z"));
    assert!(desk.record("up").ledger.ring.iter().any(|outcome| outcome.covers.is_some()), "the range is in the ring");
    for need in ["up", "up@within=6h"] {
        gate(&desk, need, "2026-03-10T04:30Z", HALT);
        gate(&desk, need, "2026-03-10T05:30Z", PROCEED);
    }
}

/// Without a schedule the slots between are not known, so the history cannot be looked up.
#[test]
fn without_a_schedule_a_window_that_the_record_cannot_tell_halts() {
    let desk = Desk::configured("timezone = \"UTC\"\n");
    desk.done(&["record", "up", "error", "--slot", "2026-03-10T23:00Z"]);
    record_hours(&desk, "2026-03-11T00:00Z", 40);
    desk.done(&["record", "up", "ok", "--slot", "2026-03-10T20:00Z"]);
    let (ended, json) = desk.gate(&["up@within=6h", "--slot", "2026-03-10T23:30Z"]);
    assert_eq!(ended, HALT, "{json}");
    assert!(json["reason"].as_str().unwrap().contains("up@same-slot"), "{json}");
    gate(&desk, "up@same-slot", "2026-03-10T23:00Z", HALT);
    gate(&desk, "up@any", "2026-03-12T00:00Z", PROCEED);
}
