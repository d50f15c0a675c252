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
    fires(&[
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
        // Only a leading star makes an interval. A stepped range is fixed, and so is a star behind a number.
        ("0-40/20 2 * * *", "America/New_York", "2026-03-08", &["03:00-04:00"]),
        ("30 0-4/2 * * *", "America/New_York", "2026-03-08", &["00:30-05:00", "03:00-04:00", "04:30-04:00"]),
        ("7,*/20 2 * * *", "America/New_York", "2026-03-08", &["03:00-04:00"]),
        ("*/20,7 2 * * *", "America/New_York", "2026-03-08", &[]),
        // New York, 2026-11-01: 01:00 to 02:00 comes twice.
        ("30 1 * * *", "America/New_York", "2026-11-01", &["01:30-04:00"]),
        ("30 1,13 * * *", "America/New_York", "2026-11-01", &["01:30-04:00", "13:30-05:00"]),
        ("30 2 * * *", "America/New_York", "2026-11-01", &["02:30-05:00"]),
        ("0 1-2 * * *", "America/New_York", "2026-11-01", &["01:00-04:00", "02:00-05:00"]),
        ("0-30/30 1 * * *", "America/New_York", "2026-11-01", &["01:00-04:00", "01:30-04:00"]),
        ("0 1-3/2 * * *", "America/New_York", "2026-11-01", &["01:00-04:00", "03:00-05:00"]),
        (
            "*/30 1 * * *",
            "America/New_York",
            "2026-11-01",
            &["01:00-04:00", "01:30-04:00", "01:00-05:00", "01:30-05:00"],
        ),
    ]);
}

#[test]
fn fixed_times_and_intervals_follow_the_clocks_of_every_kind_of_zone() {
    fires(&[
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
    ]);
}

/// Each row: a schedule, a zone, a date, and the times it fires on that date.
fn fires(table: &[(&str, &str, &str, &[&str])]) {
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

#[test]
fn what_is_written_is_what_comes() {
    let table: &[(&str, &str, &[&str])] = &[
        ("30 7 * * *", "2026-01-01", &["2026-01-01T07:30:00", "2026-01-02T07:30:00"]),
        ("15 30 7 * * *", "2026-01-01", &["2026-01-01T07:30:15", "2026-01-02T07:30:15"]),
        ("0 0 * * sun", "2026-01-01", &["2026-01-04T00:00:00", "2026-01-11T00:00:00"]),
        ("0 0 * * 7", "2026-01-01", &["2026-01-04T00:00:00", "2026-01-11T00:00:00"]),
        ("0 0 * * FRI-SUN", "2026-01-01", &["2026-01-02T00:00:00", "2026-01-03T00:00:00", "2026-01-04T00:00:00"]),
        ("0 0 * * 5-7", "2026-01-04", &["2026-01-04T00:00:00", "2026-01-09T00:00:00"]),
        ("0 0 1 jan,JUL *", "2026-01-01", &["2026-01-01T00:00:00", "2026-07-01T00:00:00", "2027-01-01T00:00:00"]),
        (
            "20-40/10 8 * * *",
            "2026-01-01",
            &["2026-01-01T08:20:00", "2026-01-01T08:30:00", "2026-01-01T08:40:00", "2026-01-02T08:20:00"],
        ),
        ("0 0 29 2 *", "2026-01-01", &["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        // The last days, and days before them.
        ("0 0 L * *", "2026-01-15", &["2026-01-31T00:00:00", "2026-02-28T00:00:00", "2026-03-31T00:00:00"]),
        ("0 0 L-2 2 *", "2028-01-01", &["2028-02-27T00:00:00", "2029-02-26T00:00:00"]),
        // 2026-02-28 is a Saturday, 2026-05-31 a Sunday.
        (
            "0 0 LW * *",
            "2026-02-01",
            &["2026-02-27T00:00:00", "2026-03-31T00:00:00", "2026-04-30T00:00:00", "2026-05-29T00:00:00"],
        ),
        // 2026-08-15 is a Saturday, 2026-11-15 a Sunday.
        (
            "0 0 15W * *",
            "2026-08-01",
            &["2026-08-14T00:00:00", "2026-09-15T00:00:00", "2026-10-15T00:00:00", "2026-11-16T00:00:00"],
        ),
        // 2026-08-01 is a Saturday: the nearest weekday of the same month. 2026-05-31 is a Sunday.
        ("0 0 1W 8 *", "2026-07-01", &["2026-08-03T00:00:00"]),
        ("0 0 31W * *", "2026-05-01", &["2026-05-29T00:00:00", "2026-07-31T00:00:00"]),
        ("0 0 * * FRI#2", "2026-01-01", &["2026-01-09T00:00:00", "2026-02-13T00:00:00"]),
        ("0 0 * * 5#5", "2026-01-01", &["2026-01-30T00:00:00", "2026-05-29T00:00:00"]),
        ("0 0 * * FRIL", "2026-01-01", &["2026-01-30T00:00:00", "2026-02-27T00:00:00"]),
        ("0 0 * * 5#L", "2026-01-01", &["2026-01-30T00:00:00", "2026-02-27T00:00:00"]),
        // Both days given: either. One of them a star, even with a step: both.
        ("0 0 13 * FRI", "2026-01-01", &["2026-01-02T00:00:00", "2026-01-09T00:00:00", "2026-01-13T00:00:00"]),
        ("0 0 */2 * MON", "2026-01-01", &["2026-01-05T00:00:00", "2026-01-19T00:00:00", "2026-02-09T00:00:00"]),
        ("0 0 ? * MON", "2026-01-01", &["2026-01-05T00:00:00", "2026-01-12T00:00:00"]),
        ("@yearly", "2026-01-02", &["2027-01-01T00:00:00"]),
        ("@weekly", "2026-01-02", &["2026-01-04T00:00:00"]),
        ("@Monthly", "2026-01-02", &["2026-02-01T00:00:00"]),
        ("@hourly", "2026-01-02", &["2026-01-02T00:00:00", "2026-01-02T01:00:00"]),
        ("every 45m", "2026-01-01", &["2026-01-01T00:00:00", "2026-01-01T00:45:00", "2026-01-01T01:30:00"]),
        ("every 1h 30m", "2026-01-01", &["2026-01-01T00:00:00", "2026-01-01T01:30:00"]),
        ("every 1d from 2026-03-08T02:30", "2026-01-01", &["2026-03-08T02:30:00", "2026-03-09T02:30:00"]),
        ("Every 36h from 2026-01-01T01:00:00+09:00", "2026-01-01", &["2026-01-02T04:00:00", "2026-01-03T16:00:00"]),
    ];
    for (text, from, expected) in table {
        let schedule = schedule(text, "UTC");
        let start = Wall(Zone::utc().parse_time(from).unwrap().0 - 1);
        let found: Vec<Wall> = schedule.forward(start).take(expected.len()).collect();
        let shown: Vec<String> = found.iter().map(|slot| Zone::utc().show(*slot).replace("+00:00", "")).collect();
        assert_eq!(shown, *expected, "{text}");
        let mut back: Vec<Wall> = schedule.backward(*found.last().unwrap()).take(expected.len()).collect();
        back.reverse();
        assert_eq!(back, found, "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_field_and_what_was_meant() {
    for (text, part) in [
        ("", "it is empty"),
        ("* * * *", "it has 4 fields"),
        ("* * * * * * 2026", "a year is not supported"),
        ("daily", "a word such as @daily"),
        ("60 * * * *", "the minute is \"60\": expected 0 to 59"),
        ("61 0 0 * * *", "the second is \"61\": expected 0 to 59"),
        ("0 24 * * *", "the hour is \"24\": expected 0 to 23"),
        ("0 0 0 * *", "the day-of-month is \"0\": expected 1 to 31"),
        ("0 0 * 13 *", "the month is \"13\": expected 1 to 12 or JAN to DEC"),
        ("0 0 * JANN *", "did you mean JAN?"),
        ("0 0 * september *", "did you mean SEP?"),
        ("0 0 * * 8", "the day-of-week is \"8\": expected 0 to 7 or SUN to SAT"),
        ("0 0 * * MOM", "did you mean MON?"),
        ("0 0 * * tuesday", "did you mean TUE?"),
        ("0 0 * * MON-FIR", "did you mean FRI?"),
        ("*/0 * * * *", "a step is a number from 1 on"),
        ("*/x * * * *", "a step is a number from 1 on"),
        ("*/90 * * * *", "for every 90m, write: every 90m"),
        ("0 */36 * * *", "for every 36h, write: every 36h"),
        ("5/15 * * * *", "write 5-59/15"),
        ("50/15 * * * *", "write 50"),
        ("0 0 * * 7/2", "write 7"),
        ("0-10/15 * * * *", "write 0"),
        ("0 22-2 * * *", "the range goes backwards; write 22-23,0-2"),
        ("0 23-0 * * *", "the range goes backwards; write 23,0"),
        ("0 22-3/2 * * *", "the range goes backwards; write 22,0,2"),
        ("0 0 * * FRI-MON", "the range goes backwards; write FRI-SAT,SUN-MON"),
        ("0 0 * * 7-1", "the range goes backwards; write 0-1"),
        ("0 0 * * 6-1", "the range goes backwards; write 6,0-1"),
        ("0 0 * * SAT-TUE/2", "the range goes backwards; write SAT,MON"),
        ("0 0 * NOV-FEB *", "the range goes backwards; write NOV-DEC,JAN-FEB"),
        ("0 0 1-7 * */7", "write SUN#1, as in: 0 0 * * SUN#1"),
        ("30 5 8-14 3 */7", "write SUN#2, as in: 30 5 * 3 SUN#2"),
        ("0 0 */100,1-7 * MON", "write MON#1, as in: 0 0 * * MON#1"),
        ("0 0 0 */32,15-21 * 1,FRI", "write 1#3,FRI#3, as in: 0 0 0 * * 1#3,FRI#3"),
        ("0 0 2-9 * */7", "a step of 7 leaves only 0 of 0 to 6"),
        ("1,,2 * * * *", "the minute is \"\""),
        ("-5 * * * *", "the minute is \"-5\""),
        ("+5 * * * *", "the minute is \"+5\""),
        ("H * * * *", "the minute is \"H\": expected 0 to 59"),
        ("0 0 32W * *", "expected 1W to 31W"),
        ("0 0 L-31 * *", "expected L-1 to L-30"),
        ("0 0 * * 5#6", "expected #1 to #5"),
        ("0 0 * * L", "L needs a day"),
        ("@dayly", "did you mean @daily?"),
        ("@reboot", "@reboot names no time"),
        ("@every 5m", "write: every 5m"),
        ("@sometimes", "expected @hourly"),
        ("every", "is not a length of time"),
        ("every day", "did you mean @daily, or every 1d?"),
        ("every month", "did you mean @monthly?"),
        ("every Year", "did you mean @yearly?"),
        ("@every often", "write: every 45m, for example"),
        ("every 45", "is not a length of time"),
        ("every 0s", "not between 1s and 3660d"),
        ("every -5m", "not between 1s and 3660d"),
        ("every 1mo", "has no fixed length"),
        ("every 5m from noon", "\"noon\" is not a time"),
        ("0 0 31 2 *", "it can never fire, for FEB never has the day-of-month \"31\""),
        ("0 0 30,31 2 *", "it can never fire"),
        ("0 0 31 4,6,9,11 *", "it can never fire, for APR, JUN, SEP, NOV never"),
        ("0 0 L-30 2 *", "it can never fire"),
    ] {
        let error = Schedule::parse(text, &Zone::utc()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(error.contains("is not a schedule"), "{text}: {error}");
    }
}

/// What an error tells the user to write is accepted when it is typed, and names the times that were meant.
#[test]
fn hints_are_valid_themselves() {
    let bounds = [("60", 0, 59), ("24", 0, 23), ("dom", 1, 31), ("mon", 1, 12), ("dow", 0, 7)];
    let mut hints = 0;
    for (at, (_, low, high)) in bounds.into_iter().enumerate() {
        for first in low..=high {
            let ranges = (low..first).map(|last| (Some(last), 1)).chain((low..first).map(|last| (Some(last), 3)));
            let steps = [2, 3, 5, 15, 40, 90, 4_000_000_000_u32].map(|step| (None, step));
            for (last, step) in ranges.chain(steps) {
                let item = match last {
                    Some(last) if step == 1 => format!("{first}-{last}"),
                    Some(last) => format!("{first}-{last}/{step}"),
                    None => format!("{first}/{step}"),
                };
                let typed = |item: &str| {
                    let mut fields = ["0", "0", "*", "*", "*"];
                    fields[at] = item;
                    Schedule::parse(&fields.join(" "), &Zone::utc())
                };
                let error = typed(&item).unwrap_err().to_string();
                let Some((_, hint)) = error.split_once("write ") else { panic!("{item}: {error}") };
                let hint = hint.trim_end_matches('.');
                assert!(typed(hint).is_ok(), "{item}: the hint {hint:?} is refused");
                hints += 1;
            }
        }
    }
    assert!(hints > 4000, "{hints}");
    for text in ["*/90 * * * *", "0 */36 * * *", "*/75 0 0 * * *", "*/4000000000 * * * *", "@every 1h 30m"] {
        let error = Schedule::parse(text, &Zone::utc()).unwrap_err().to_string();
        let hint = error.split_once("write: ").map(|(_, hint)| hint.trim_end_matches('.'));
        assert!(hint.is_none_or(|hint| Schedule::parse(hint, &Zone::utc()).is_ok()), "{text}: {error}");
        assert_eq!(hint.is_none(), text.contains("4000000000"), "{text}: {error}");
    }
}

#[test]
fn a_schedule_is_told_in_words() {
    for (text, words) in [
        ("0 7 * * *", "at 07:00 every day"),
        ("30 7,19 * * MON-FRI", "at 07:30 and 19:30 on Monday to Friday"),
        ("* * * * *", "every minute"),
        ("*/10 * * * *", "every 10 minutes"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on Monday to Friday"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("30 9-17 * * *", "every hour from 09:30 to 17:30"),
        ("0 1-4,9-12 * * *", "every hour from 01:00 to 04:00 and from 09:00 to 12:00"),
        ("5,35 8-20 * * *", "at minute 5 and 35 of every hour from 08:05 to 20:35"),
        ("* 22-23 * * *", "every minute from 22:00 to 23:59"),
        ("0 */2 * * *", "every 2 hours"),
        ("0 1-23/2 * * *", "every 2 hours from 01:00 to 23:00"),
        ("0 * * * *", "every hour"),
        ("15 30 * * * *", "every hour from 00:30:15 to 23:30:15"),
        ("*/5 * * * * *", "every 5 seconds"),
        ("30 * * * * *", "at second 30 of every minute"),
        ("*/30 */20 * * * *", "at second 0 and 30 of minute 0, 20 and 40 of every hour"),
        // Either field of days matches where neither is a star: one that holds every day makes it every day.
        ("0 0 1 * 0-6", "at 00:00 every day"),
        ("0 0 1-31 * MON", "at 00:00 every day"),
        ("0 0 L * MON-SUN", "at 00:00 every day"),
        ("0 0 1 6 0-6", "at 00:00 every day in June"),
        ("0 0 */30 * 0-6", "at 00:00 on day 1 and 31"),
        ("0 0 * 6 *", "at 00:00 every day in June"),
        ("0 6 L * *", "at 06:00 on the last day of the month"),
        ("0 6 15W,LW * *", "at 06:00 on the weekday nearest to day 15 and the last weekday of the month"),
        ("0 6 * * FRI#2,MONL", "at 06:00 on the second Friday of the month and the last Monday of the month"),
        ("0 6 13 * FRI", "at 06:00 on day 13 and on Friday"),
        (
            "0 6 */2 * SUN",
            "at 06:00 on Sunday if it is day 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29 and 31",
        ),
        ("0 0 1 1,6-8 *", "at 00:00 on day 1 in January and June to August"),
        ("0 0 * * SAT,SUN", "at 00:00 on Saturday and Sunday"),
    ] {
        assert_eq!(schedule(text, "Asia/Tokyo").describe(), format!("{words}, Asia/Tokyo time"), "{text}");
    }
    assert_eq!(schedule("every 90m", "Asia/Tokyo").describe(), "every 1 hour and 30 minutes");
    assert_eq!(
        schedule("every 1d from 2026-01-01", "Asia/Tokyo").describe(),
        "every 1 day from 2026-01-01T00:00:00+09:00"
    );
}

/// The words against the slots: which days they leave out, and the first and the last time of a day.
#[test]
fn words_agree_with_the_slots() {
    let (from, to) = ("2027-01-01", "2028-12-31");
    let times = ["0 7", "0 9-17", "30 8-20", "*/15 9-17", "7,50 1-5,13-22", "5 1-23/2", "*/7 3-3", "0-50/10 0-22"];
    let days =
        ["* * *", "1 * 0-6", "1-31 * MON", "L * SUN-SAT", "*/2 * 0-6", "13 * FRI", "1-31 2 2", "* * 1-5", "*/30 * *"];
    for (times, days) in times.iter().flat_map(|times| days.iter().map(move |days| (times, days))) {
        let text = format!("{times} {days}");
        let told = schedule(&text, "UTC").describe();
        let slots = slots(&text, "UTC", from, to);
        let mut dates: Vec<&str> = slots.iter().map(|slot| &slot[..10]).collect();
        dates.dedup();
        let whole = if told.contains(" in February") { 28 + 29 } else { 365 + 366 };
        assert_eq!(dates.len() == whole, !told.contains(" on "), "{text}: {told}");
        if told.contains(" from ") {
            let of_day: Vec<&str> = slots.iter().filter(|at| at.starts_with(dates[0])).map(|at| &at[11..16]).collect();
            let told_times: Vec<&str> = told.split([' ', ',']).filter(|word| word.contains(':')).collect();
            assert_eq!(told_times.first(), of_day.first(), "{text}: {told}");
            assert_eq!(told_times.last(), of_day.last(), "{text}: {told}");
        }
    }
}

#[test]
fn a_fingerprint_changes_with_the_instants_and_not_with_the_spelling() {
    let print = |text: &str, zone: &str| schedule(text, zone).fingerprint();
    for (left, right) in [
        ("0 7 * * MON", "0  7 * * 1 "),
        ("@daily", "0 0 * * *"),
        ("0 0 7 * * *", "0 7 * * *"),
        ("0 0 * * 0", "@weekly"),
        ("0 0 1-31 * *", "@daily"),
        ("every 60m", "every 1h"),
    ] {
        assert_eq!(print(left, "UTC"), print(right, "UTC"), "{left} {right}");
    }
    let all = [
        "0 7 * * *",
        "0 8 * * *",
        "0 7 * * 1",
        "0 7 1 * *",
        "0 7 1 * 1",
        "0 7 */30 * 1",
        "0 7 L * *",
        "0 7 LW * *",
        "0 7 1W * *",
        "0 7 * * 1L",
        "0 7 * * 1#1",
        "0 7 * * 1#2",
        "*/2 * * * *",
        "0-59/2 * * * *",
        "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58 0-23 * * *",
        "every 2m",
        "every 2m from 2026-01-01",
    ];
    let mut prints: Vec<String> = all.iter().map(|text| print(text, "UTC")).collect();
    prints.push(print("0 7 * * *", "Asia/Tokyo"));
    assert!(prints.iter().all(|print| print.len() == 16));
    prints.sort();
    prints.dedup();
    // A step over a star and over the same range are one schedule.
    assert_eq!(prints.len(), all.len());
    // It is stored: it must not change from version to version.
    assert_eq!(print("0 7 * * *", "Asia/Tokyo"), "ac151ee73b5f275e");
}

#[test]
fn a_change_of_the_clocks_is_told_before_it_comes() {
    const YEAR: std::time::Duration = std::time::Duration::from_secs(365 * 86_400);
    for (text, zone, words) in [
        (
            "30 2 * * *",
            "America/New_York",
            "on 2026-03-08 the clocks skip 02:00 to 03:00, and what falls into that runs once, at 2026-03-08T03:00:00-04:00",
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "on 2026-11-01 the clocks show 01:00 to 02:00 twice, and what falls into that runs once, the first time, from 2026-11-01T01:30:00-04:00 on",
        ),
        (
            "*/10 * * * *",
            "Europe/London",
            "on 2026-03-29 the clocks skip 01:00 to 02:00, and 6 times of the interval do not come",
        ),
        (
            "0 1 * * *",
            "Europe/London",
            "on 2026-03-29 the clocks skip 01:00 to 02:00, and what falls into that runs once, at 2026-03-29T02:00:00+01:00",
        ),
        (
            "30 23 * * *",
            "America/Nuuk",
            "on 2026-03-28 the clocks skip 23:00 to 00:00, and what falls into that runs once, at 2026-03-28T22:59:59-02:00",
        ),
        ("0 0 1 10-11 *", "Europe/London", ""),
        ("0 7 * * *", "America/New_York", ""),
        ("* * * * *", "Asia/Tokyo", ""),
        ("every 5m", "America/New_York", ""),
    ] {
        let schedule = schedule(text, zone);
        let now = Zone::utc().parse_time("2026-01-01").unwrap();
        let told = schedule.dst_within(now, YEAR).map(|change| change.to_string()).unwrap_or_default();
        assert_eq!(told, words, "{text} {zone}");
    }
    let apia = schedule("0 12 * * *", "Pacific/Apia");
    let told = apia.dst_within(apia.zone().parse_time("2011-12-20").unwrap(), YEAR).unwrap();
    assert!(told.to_string().contains("there is no slot for that day"), "{told}");
    let weekly = schedule("30 2 * * SUN", "America/New_York");
    let from = weekly.zone().parse_time("2026-03-08T03:00").unwrap();
    assert_eq!(weekly.dst_within(from, YEAR), None, "02:30 is not skipped again within the year, nor shown twice");
}
