//! One outcome may stand for a range of slots: a collapsed catch-up, or slots that were missed.

use crate::desk::Desk;
use fencepost_core::ledger::{Covered, Outcome, Status};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

const PROCEED: i32 = 0;
const HALT: i32 = 15;

fn at(time: &str) -> Wall {
    Zone::parse("UTC").unwrap().parse_time(time).unwrap()
}

/// An hourly upstream that is ok for one slot, and after it an outcome for a range.
fn hourly(ok: &str, from: &str, to: &str, status: Status) -> Desk {
    let desk = Desk::configured("timezone = \"UTC\"\n[job.up]\nschedule = \"0 * * * *\"\ncommand = \"true\"\n");
    desk.done(&["record", "up", "ok", "--slot", ok]);
    let count = (at(to).0 - at(from).0) / 3_600_000 + 1;
    let covers = Covered { from: at(from), to: at(to), count: count as u64 };
    desk.edit("up", |record| {
        let last = record.ledger.last().unwrap().clone();
        let run = "00000000-0000-0000-0000-00000000000a".parse().unwrap();
        record.ledger.push(Outcome { slot: at(to), covers: Some(covers), status, run, ..last });
    });
    desk
}

#[track_caller]
fn gate(desk: &Desk, need: &str, slot: &str, code: i32) {
    let (ended, json) = desk.gate(&[need, "--slot", slot]);
    assert_eq!(ended, code, "{need} at {slot}: {json}");
}

#[test]
fn the_slots_own_outcome_takes_precedence_over_a_collapsed_run() {
    let desk = hourly("2026-03-10T01:00Z", "2026-03-10T02:00Z", "2026-03-10T07:00Z", Status::Ok);
    gate(&desk, "up", "2026-03-10T04:30Z", PROCEED);
    desk.done(&["record", "up", "error", "--slot", "2026-03-10T04:00Z"]);
    gate(&desk, "up", "2026-03-10T04:30Z", HALT);
    gate(&desk, "up@same-slot", "2026-03-10T04:00Z", HALT);
    gate(&desk, "up", "2026-03-10T05:30Z", PROCEED);
}

#[test]
fn a_missed_range_counts_for_every_rule() {
    let desk = hourly("2026-03-10T20:00Z", "2026-03-10T21:00Z", "2026-03-11T05:00Z", Status::Missed);
    for need in ["up", "up@within=6h", "up@same-day", "up@any"] {
        gate(&desk, need, "2026-03-10T23:30Z", HALT);
    }
    gate(&desk, "up@within=6h", "2026-03-10T20:30Z", PROCEED);
    gate(&desk, "up", "2026-03-10T20:30Z", PROCEED);
}

#[test]
fn a_range_stands_for_no_instant_that_is_not_a_slot() {
    let desk = hourly("2026-03-10T01:00Z", "2026-03-10T02:00Z", "2026-03-10T07:00Z", Status::Ok);
    gate(&desk, "up@same-slot", "2026-03-10T04:00Z", PROCEED);
    gate(&desk, "up@same-slot", "2026-03-10T04:30Z", HALT);
}

#[test]
fn a_missed_slot_that_was_completed_later_lets_the_job_through() {
    let desk = hourly("2026-03-10T01:00Z", "2026-03-10T02:00Z", "2026-03-10T07:00Z", Status::Missed);
    gate(&desk, "up", "2026-03-10T04:30Z", HALT);
    desk.done(&["record", "up", "ok", "--slot", "2026-03-10T04:00Z"]);
    gate(&desk, "up", "2026-03-10T04:30Z", PROCEED);
    gate(&desk, "up@same-slot", "2026-03-10T04:00Z", PROCEED);
    gate(&desk, "up", "2026-03-10T05:30Z", HALT);
}

#[test]
fn a_collapsed_run_is_found_after_it_left_the_ring() {
    let desk = hourly("2026-03-10T01:00Z", "2026-03-10T02:00Z", "2026-03-10T07:00Z", Status::Ok);
    for hour in 0..48 {
        let slot = Zone::parse("UTC").unwrap().show(Wall(at("2026-03-10T08:00Z").0 + hour * 3_600_000)).to_string();
        desk.done(&["record", "up", "ok", "--slot", &slot]);
    }
    let ring = desk.record("up").ledger.ring;
    assert!(ring.iter().all(|outcome| outcome.covers.is_none()), "the range has left the ring: {ring:?}");
    gate(&desk, "up", "2026-03-10T04:30Z", PROCEED);
    gate(&desk, "up@same-slot", "2026-03-10T04:00Z", PROCEED);
    gate(&desk, "up@same-slot", "2026-03-10T04:30Z", HALT);
}
