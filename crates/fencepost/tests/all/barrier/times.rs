//! Which slot counts: around midnight, where the clocks change, and where a schedule says when.

use crate::common::{Said, contains};
use crate::desk::{Desk, job};
use fencepost_core::zone::Zone;

/// Every zone with two days in a row whose boundary is worth a look.
const ZONES: [(&str, &str, &str); 9] = [
    ("Asia/Tokyo", "2026-03-10", "2026-03-11"),
    ("America/New_York", "2026-03-07", "2026-03-08"), // 23 hours follow
    ("America/New_York", "2026-03-08", "2026-03-09"),
    ("America/New_York", "2026-10-31", "2026-11-01"), // 25 hours follow
    ("Europe/London", "2026-03-28", "2026-03-29"),
    ("Europe/London", "2026-10-24", "2026-10-25"),
    ("Pacific/Apia", "2011-12-29", "2011-12-31"), // the 30th never was
    ("Pacific/Apia", "2026-03-10", "2026-03-11"),
    ("UTC", "2026-12-31", "2027-01-01"),
];

/// The day is the one of the job's zone, never the machine's.
#[test]
fn a_day_ends_at_its_own_midnight() {
    for (zone, day, next) in ZONES {
        for machine in ["UTC", "Asia/Tokyo", "America/New_York"] {
            let desk = Desk::new();
            let say = |arguments: &[&str]| Said::of(desk.command(arguments).env("TZ", machine).output().unwrap());
            let last = format!("{day}T23:59:59");
            assert_eq!(say(&["record", "up", "ok", "--slot", &last, "--tz", zone]).code, 0);
            assert_eq!(desk.last("up").zone, zone);
            let gate = |rule: &str, how: &str, when: &str| say(&["gate", rule, how, when, "--tz", zone]).code;
            for rule in ["up", "up@same-day"] {
                assert_eq!(gate(rule, "--slot", &format!("{day}T00:00")), 0, "{zone} {day} {rule}");
                assert_eq!(gate(rule, "--date", day), 0, "{zone} {day} {rule}");
                assert_eq!(gate(rule, "--slot", &format!("{next}T00:00")), 15, "{zone} {next} {rule}");
                assert_eq!(gate(rule, "--date", next), 15, "{zone} {next} {rule}");
            }
            // Two seconds later in real time, independent of the calendars.
            assert_eq!(gate("up@within=2s", "--slot", &format!("{next}T00:00:01")), 0, "{zone} {next}");
            assert_eq!(gate("up@within=1s", "--slot", &format!("{next}T00:00:01")), 15, "{zone} {next}");
            // And the first instant of the next day is the next day.
            assert_eq!(say(&["record", "up", "empty", "--slot", &format!("{next}T00:00"), "--tz", zone]).code, 0);
            assert_eq!(gate("up", "--date", next), 14, "{zone} {next}");
            assert_eq!(gate("up", "--date", day), 0, "{zone} {day}");
        }
    }
}

/// What is recorded by date is found by date, and by any moment of that day.
#[test]
fn a_date_means_the_same_to_everybody() {
    for (zone, day, next) in ZONES {
        let desk = Desk::new();
        desk.done(&["record", "up", "ok", "--date", next, "--tz", zone]);
        let slot = desk.last("up").slot;
        let rules = Zone::parse(zone).unwrap();
        assert_eq!(slot, rules.parse_time(next).unwrap(), "{zone} {next}");
        for moment in ["T00:00", "T04:30", "T12:00", "T23:59:59.999"] {
            assert_eq!(desk.say(&["gate", "up", "--slot", &format!("{next}{moment}"), "--tz", zone]).code, 0);
            assert_eq!(desk.say(&["gate", "up", "--slot", &format!("{day}{moment}"), "--tz", zone]).code, 15);
        }
    }
}

/// Hours that come twice or not at all, for an hourly upstream.
#[test]
fn an_hour_that_comes_twice_is_two_slots() {
    let desk = Desk::configured("timezone = \"America/New_York\"\n[job.up]\nschedule = \"0 * * * *\"\n");
    let gate = |slot: &str| desk.say(&["gate", "up", "--slot", slot]).code;
    // 01:00 in summer time, and an hour later 01:00 in winter time.
    desk.done(&["record", "up", "ok", "--slot", "2026-11-01T01:00:00-04:00"]);
    assert_eq!(gate("2026-11-01T01:30:00-04:00"), 0);
    assert_eq!(gate("2026-11-01T01:30:00-05:00"), 15);
    desk.done(&["record", "up", "ok", "--slot", "2026-11-01T01:00:00-05:00"]);
    assert_eq!(gate("2026-11-01T01:30:00-05:00"), 0);
    // 02:00 does not come: what follows 01:00 is 03:00.
    desk.done(&["record", "up", "ok", "--slot", "2026-03-08T01:00:00-05:00"]);
    assert_eq!(gate("2026-03-08T01:59:59-05:00"), 0);
    assert_eq!(gate("2026-03-08T03:00:00-04:00"), 15);
}

#[test]
fn an_hourly_upstream_that_missed_one_hour_halts_the_half_hour_after_it() {
    let desk = Desk::configured("timezone = \"Asia/Tokyo\"\n[job.hourly]\nschedule = \"0 * * * *\"\n");
    desk.done(&["record", "hourly", "ok", "--slot", "2026-03-10T09:00"]);
    let gate = |slot: &str| desk.say(&["gate", "hourly", "--slot", slot]);
    assert_eq!(gate("2026-03-10T09:30").code, 0);
    assert_eq!(gate("2026-03-10T09:59:59").code, 0);
    let said = gate("2026-03-10T10:30");
    assert_eq!(said.code, 15);
    contains(&said.stderr, &["its slot of 2026-03-10 10:00 (Asia/Tokyo)", "did not run", "2026-03-10 09:00"]);
    assert_eq!(desk.say(&["gate", "hourly@same-day", "--slot", "2026-03-10T10:30"]).code, 0, "the day is not the hour");
    desk.done(&["record", "hourly", "ok", "--slot", "2026-03-10T10:00"]);
    assert_eq!(gate("2026-03-10T10:00").code, 0, "at or before mine");
    assert_eq!(gate("2026-03-10T10:30").code, 0);
    assert_eq!(gate("2026-03-10T11:00").code, 15);
}

#[test]
fn a_late_evening_upstream_lets_an_early_morning_job_through() {
    let desk = Desk::configured("timezone = \"Europe/London\"\n[job.evening]\nschedule = \"0 23 * * *\"\n");
    // The night in which the clocks go forward.
    desk.done(&["record", "evening", "ok", "--slot", "2026-03-28T23:00"]);
    assert_eq!(desk.say(&["gate", "evening", "--slot", "2026-03-29T02:00"]).code, 0);
    assert_eq!(desk.say(&["gate", "evening", "--slot", "2026-03-29T22:59"]).code, 0);
    assert_eq!(desk.say(&["gate", "evening", "--slot", "2026-03-29T23:00"]).code, 15);
    assert_eq!(desk.say(&["gate", "evening@same-day", "--slot", "2026-03-29T02:00"]).code, 15, "another day");
    assert_eq!(desk.say(&["gate", "evening@within=6h", "--slot", "2026-03-29T01:00Z"]).code, 0);
}

/// A record by hand of a job with a schedule is for the slot that is due, so that it is found.
#[test]
fn a_record_by_hand_is_for_the_slot_that_is_due() {
    let desk = Desk::configured("[job.up]\nschedule = \"0 0 1 1 *\"\n");
    desk.done(&["record", "up", "ok"]);
    assert_eq!(desk.say(&["gate", "up"]).code, 0);
    desk.done(&["record", "up", "error", "--date", "2025-01-01"]);
    assert_eq!(desk.say(&["gate", "up"]).code, 0, "that was another slot");
    assert_eq!(desk.say(&["gate", "up", "--date", "2025-06-01"]).code, 15);
    desk.done(&["record", "up", "error"]);
    assert_eq!(desk.say(&["gate", "up"]).code, 15);
}

/// A slot that has left the ring is found in the history, and the newest attempt of it counts.
#[test]
fn an_old_slot_is_judged_by_its_newest_attempt() {
    let desk = Desk::new();
    let long = "why ".repeat(200);
    desk.done(&["record", "up", "ok", "--slot", "2026-01-01T00:00Z"]);
    // Too long for the record, and so in the history before the one above it is.
    desk.done(&["record", "up", "error", "--slot", "2026-01-01T00:00Z", "--note", &long]);
    desk.done(&["record", "up", "error", "--slot", "2026-01-02T00:00Z", "--note", &long]);
    desk.done(&["record", "up", "ok", "--slot", "2026-01-02T00:00Z"]);
    for minute in 10..55 {
        desk.done(&["record", "up", "empty", "--slot", &format!("2026-02-01T00:{minute}Z")]);
    }
    let first = Zone::utc().parse_time("2026-01-01").unwrap();
    assert_eq!(desk.history("up", first).len(), 2);
    assert!(desk.record("up").ledger.attempts(first).next().is_none());
    let gate = |slot: &str| desk.say(&["gate", "up@same-slot", "--slot", slot]).code;
    assert_eq!(gate("2026-01-01T00:00Z"), 15);
    assert_eq!(gate("2026-01-02T00:00Z"), 0);
    assert_eq!(gate("2026-01-03T00:00Z"), 15, "never run");
}

/// The newest slot is found in whichever order slots were recorded.
#[test]
fn the_newest_slot_stays_while_older_ones_are_recorded_after_it() {
    let desk = Desk::new();
    desk.done(&["record", "up", "ok", "--slot", "2026-02-01T00:00Z"]);
    desk.done(&["record", "up", "error", "--slot", "2026-02-01T12:00Z"]);
    for minute in 10..59 {
        desk.done(&["record", "up", "ok", "--slot", &format!("2026-01-01T00:{minute}Z")]);
    }
    assert_eq!(desk.record("up").job, job("up"));
    let gate = |need: &str| desk.gate(&[need, "--slot", "2026-02-01T13:00Z"]);
    for need in ["up", "up@any", "up@within=24h"] {
        let (code, json) = gate(need);
        assert_eq!((code, &json["upstreams"][0]["status"]), (15, &"error".into()), "{need}: {json}");
    }
    assert_eq!(desk.say(&["gate", "up@same-slot", "--slot", "2026-02-01T12:00Z"]).code, 15);
}

/// A job that runs over midnight belongs to the day of its slot, for itself and for its downstreams.
#[test]
fn a_run_that_spans_midnight_belongs_to_the_day_of_its_slot() {
    let desk = Desk::new();
    // A midnight that is two seconds away: a zone cannot be made, so that the slot is moved instead.
    let evening = Zone::parse("Asia/Tokyo").unwrap().parse_time("2026-03-10T23:59:59").unwrap();
    let holder = desk.running("up", evening);
    assert_eq!(holder.finish().code, 0);
    let outcome = desk.last("up");
    assert_eq!(outcome.slot, evening);
    assert!(outcome.finished > evening);
    assert_eq!(desk.say(&["gate", "up", "--date", "2026-03-10", "--tz", "Asia/Tokyo"]).code, 0);
    assert_eq!(desk.say(&["gate", "up", "--date", "2026-03-11", "--tz", "Asia/Tokyo"]).code, 15);
}
