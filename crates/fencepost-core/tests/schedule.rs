//! The instants of schedules: syntax, the calendar, and what happens when the clocks change.

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::{Date, Zone};

fn schedule(text: &str, zone: &str) -> Schedule {
    Schedule::parse(text, &Zone::parse(zone).unwrap()).unwrap()
}

/// The slots of a schedule from the beginning of one day to the end of another, as local times with offsets.
fn slots(text: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let schedule = schedule(text, zone);
    let zone = schedule.zone();
    let start = zone.start_of_day(Date::parse(from).unwrap());
    let end = zone.start_of_day(Date::parse(to).unwrap().tomorrow());
    let forward: Vec<Wall> = schedule.forward(Wall(start.0 - 1)).take_while(|slot| *slot < end).collect();
    let mut backward: Vec<Wall> = schedule.backward(Wall(end.0 - 1)).take_while(|slot| *slot >= start).collect();
    backward.reverse();
    assert_eq!(forward, backward, "{text} {zone}");
    assert_eq!(schedule.count(Wall(start.0 - 1), Wall(end.0 - 1)), forward.len() as u64, "{text} {zone}");
    forward.iter().map(|slot| zone.show(*slot)).collect()
}

/// The slots of one day, without the date if it is that day.
fn day(text: &str, zone: &str, date: &str) -> Vec<String> {
    slots(text, zone, date, date)
        .iter()
        .map(|slot| {
            slot.strip_prefix(date)
                .and_then(|rest| rest.strip_prefix('T'))
                .unwrap_or(slot)
                .replace(":00-", "-")
                .replace(":00+", "+")
        })
        .collect()
}

#[test]
fn when_the_clocks_change_fixed_times_come_once_and_intervals_follow_real_time() {
    let table: &[(&str, &str, &str, &[&str])] = &[
        // New York, 2026-03-08: 02:00 to 03:00 is skipped.
        ("30 2 * * *", "America/New_York", "2026-03-08", &["03:00-04:00"]),
        ("0 2 * * *", "America/New_York", "2026-03-08", &["03:00-04:00"]),
        ("30 1 * * *", "America/New_York", "2026-03-08", &["01:30-05:00"]),
        ("30 3 * * *", "America/New_York", "2026-03-08", &["03:30-04:00"]),
        ("30 2,14 * * *", "America/New_York", "2026-03-08", &["03:00-04:00", "14:30-04:00"]),
        ("0,30 2,3 * * *", "America/New_York", "2026-03-08", &["03:00-04:00", "03:30-04:00"]),
        ("15 1-3 * * *", "America/New_York", "2026-03-08", &["01:15-05:00", "03:00-04:00", "03:15-04:00"]),
        (
            "*/30 1-3 * * *",
            "America/New_York",
            "2026-03-08",
            &["01:00-05:00", "01:30-05:00", "03:00-04:00", "03:30-04:00"],
        ),
        (
            "0 */2 8 3 *",
            "America/New_York",
            "2026-03-08",
            &[
                "00:00-05:00",
                "04:00-04:00",
                "06:00-04:00",
                "08:00-04:00",
                "10:00-04:00",
                "12:00-04:00",
                "14:00-04:00",
                "16:00-04:00",
                "18:00-04:00",
                "20:00-04:00",
                "22:00-04:00",
            ],
        ),
        ("*/20 2 * * *", "America/New_York", "2026-03-08", &[]),
        // New York, 2026-11-01: 01:00 to 02:00 comes twice.
        ("30 1 * * *", "America/New_York", "2026-11-01", &["01:30-04:00"]),
        ("30 1,13 * * *", "America/New_York", "2026-11-01", &["01:30-04:00", "13:30-05:00"]),
        ("30 2 * * *", "America/New_York", "2026-11-01", &["02:30-05:00"]),
        ("0 1-2 * * *", "America/New_York", "2026-11-01", &["01:00-04:00", "02:00-05:00"]),
        (
            "*/30 1 * * *",
            "America/New_York",
            "2026-11-01",
            &["01:00-04:00", "01:30-04:00", "01:00-05:00", "01:30-05:00"],
        ),
        // London, 2026-03-29: 01:00 to 02:00 is skipped; 2026-10-25: it comes twice.
        ("30 1 * * *", "Europe/London", "2026-03-29", &["02:00+01:00"]),
        ("30 0 * * *", "Europe/London", "2026-03-29", &["00:30+00:00"]),
        ("30 1 * * *", "Europe/London", "2026-10-25", &["01:30+01:00"]),
        ("30 1,13 * * *", "Europe/London", "2026-10-25", &["01:30+01:00", "13:30+00:00"]),
        // Tokyo's clocks do not change.
        ("30 2 * * *", "Asia/Tokyo", "2026-03-08", &["02:30+09:00"]),
        // Cairo, 2026-04-24: midnight to 01:00 is skipped; 2026-10-29: 23:00 to midnight comes twice.
        ("30 0 * * *", "Africa/Cairo", "2026-04-24", &["01:00+03:00"]),
        ("0 0 * * *", "Africa/Cairo", "2026-04-24", &["01:00+03:00"]),
        ("@daily", "Africa/Cairo", "2026-04-24", &["01:00+03:00"]),
        ("30 23 * * *", "Africa/Cairo", "2026-04-23", &["23:30+02:00"]),
        ("30 23 * * *", "Africa/Cairo", "2026-10-29", &["23:30+03:00"]),
        ("*/30 23 * * *", "Africa/Cairo", "2026-10-29", &["23:00+03:00", "23:30+03:00", "23:00+02:00", "23:30+02:00"]),
        // Lord Howe changes by half an hour: 2026-10-04 02:00 to 02:30, 2026-04-05 01:30 to 02:00.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", &["02:30+11:00"]),
        ("45 2 * * *", "Australia/Lord_Howe", "2026-10-04", &["02:45+11:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", &["01:45+11:00"]),
        ("*/30 1 * * *", "Australia/Lord_Howe", "2026-04-05", &["01:00+11:00", "01:30+11:00", "01:30+10:30"]),
        // Nuuk, 2026-03-28: 23:00 to midnight is skipped. A slot does not leave its day.
        ("30 23 * * *", "America/Nuuk", "2026-03-28", &["22:59:59-02:00"]),
        ("0 0 * * *", "America/Nuuk", "2026-03-29", &["00:00-01:00"]),
        // Apia left out 2011-12-30.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29", &["12:00-10:00"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-31", &["12:00+14:00"]),
        ("0 0 * * *", "Pacific/Apia", "2011-12-31", &["00:00+14:00"]),
        ("30 7 * * *", "Asia/Kathmandu", "2026-03-08", &["07:30+05:45"]),
        ("30 2 * * *", "UTC", "2026-03-08", &["02:30+00:00"]),
    ];
    for (text, zone, date, expected) in table {
        assert_eq!(day(text, zone, date), *expected, "{text} {zone} {date}");
    }
}

#[test]
fn a_day_that_was_left_out_has_no_slot() {
    let noon = slots("0 12 * * *", "Pacific/Apia", "2011-12-29", "2012-01-01");
    assert_eq!(noon, ["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00", "2012-01-01T12:00:00+14:00"]);
    let friday = schedule("0 12 * * FRI", "Pacific/Apia");
    let before = friday.zone().parse_time("2011-12-24").unwrap();
    assert_eq!(friday.zone().show(friday.after(before).unwrap()), "2012-01-06T12:00:00+14:00");
}
