//! Zones by name, dates in them, and times as people write them.

use fencepost_core::time::Wall;
use fencepost_core::zone::{Date, Zone};

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

#[test]
fn a_zone_is_known_by_its_name_in_any_case() {
    for (text, name) in [("UTC", "UTC"), ("utc", "UTC"), ("asia/tokyo", "Asia/Tokyo"), ("US/Eastern", "US/Eastern")] {
        assert_eq!(zone(text).name(), name);
    }
    assert_eq!(zone("Asia/Tokyo"), zone("ASIA/TOKYO"));
    assert_ne!(zone("Asia/Tokyo"), zone("Asia/Seoul"));
}

#[test]
fn a_wrong_zone_gets_the_nearest_right_name_or_a_reason() {
    for (text, part) in [
        ("Asia/Tokio", "did you mean \"Asia/Tokyo\"?"),
        ("Europe/Londno", "did you mean \"Europe/London\"?"),
        ("New York", "did you mean \"America/New_York\"?"),
        ("Kathmandu", "did you mean \"Asia/Kathmandu\"?"),
        ("+09:00", "a fixed offset does not say when the clocks change"),
        ("UTC+9", "a fixed offset does not say when the clocks change"),
        ("gmt-3", "a fixed offset does not say when the clocks change"),
        ("JST-9", "rules of the form of TZ"),
        ("EST5EDT,M3.2.0,M11.1.0", "rules of the form of TZ"),
        ("<+03>-3", "rules of the form of TZ"),
        (":Asia/Tokyo", "rules of the form of TZ"),
        ("JST", "an abbreviation means different zones"),
        // These are in the database, and mean no more to a reader than those that are not.
        ("EST", "an abbreviation means different zones"),
        ("cet", "an abbreviation means different zones"),
        ("GMT", "an abbreviation means different zones"),
        ("Zulu", "an abbreviation means different zones"),
        ("EST5EDT", "rules of the form of TZ"),
        ("GMT+0", "a fixed offset does not say when the clocks change"),
        ("", "it is empty"),
        ("Etc/Unknown", "is not a time zone"),
        ("Atlantis/Poseidonis", "Write the name of a place"),
        ("日本/東京", "is not a time zone"),
        ("ab日", "is not a time zone"),
    ] {
        let error = Zone::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_zone_is_stored_by_name() {
    assert_eq!(serde_json::to_string(&zone("Asia/Tokyo")).unwrap(), "\"Asia/Tokyo\"");
    assert_eq!(serde_json::from_str::<Zone>("\"Asia/Tokyo\"").unwrap(), zone("Asia/Tokyo"));
    assert!(serde_json::from_str::<Zone>("\"Asia/Tokio\"").unwrap_err().to_string().contains("Asia/Tokyo"));
    assert_eq!(serde_json::to_string(&Date::parse("2026-03-08").unwrap()).unwrap(), "\"2026-03-08\"");
    assert!(serde_json::from_str::<Date>("\"2026-02-30\"").is_err());
}

#[test]
fn a_date_belongs_to_a_zone() {
    let tokyo = zone("Asia/Tokyo");
    let midnight = tokyo.parse_time("2026-11-05T00:00").unwrap();
    assert_eq!(tokyo.date(midnight).to_string(), "2026-11-05");
    assert_eq!(tokyo.date(Wall(midnight.0 - 1)).to_string(), "2026-11-04");
    assert_eq!(Zone::utc().date(midnight).to_string(), "2026-11-04");
    assert_eq!(Date::parse("2024-02-28").unwrap().tomorrow().to_string(), "2024-02-29");
    assert_eq!(Date::parse("2024-03-01").unwrap().yesterday().to_string(), "2024-02-29");
}

#[test]
fn a_day_begins_with_its_first_instant() {
    for (name, date, start) in [
        ("UTC", "2026-01-01", "2026-01-01T00:00:00+00:00"),
        ("Asia/Tokyo", "2026-01-01", "2026-01-01T00:00:00+09:00"),
        ("America/New_York", "2026-03-08", "2026-03-08T00:00:00-05:00"),
        // The clocks go from midnight to one.
        ("Africa/Cairo", "2026-04-24", "2026-04-24T01:00:00+03:00"),
        // The clocks go from midnight back to eleven, which is the day before.
        ("Africa/Cairo", "2026-10-30", "2026-10-30T00:00:00+02:00"),
        // This day was left out.
        ("Pacific/Apia", "2011-12-30", "2011-12-31T00:00:00+14:00"),
        ("Asia/Kathmandu", "2026-01-01", "2026-01-01T00:00:00+05:45"),
    ] {
        let zone = zone(name);
        let date = Date::parse(date).unwrap();
        assert_eq!(zone.show(zone.start_of_day(date)), start, "{name} {date}");
    }
}

#[test]
fn times_are_read_as_people_write_them() {
    let zone = zone("America/New_York");
    for (text, shown) in [
        ("2026-03-08T07:30:00Z", "2026-03-08T03:30:00-04:00"),
        ("2026-03-08T07:30:00.25+00:00", "2026-03-08T03:30:00.25-04:00"),
        ("2026-03-08T01:30-05:00", "2026-03-08T01:30:00-05:00"),
        ("2026-03-08T01:30", "2026-03-08T01:30:00-05:00"),
        ("2026-03-08 01:30:05", "2026-03-08T01:30:05-05:00"),
        ("2026-03-08", "2026-03-08T00:00:00-05:00"),
        // Shown twice: the first.
        ("2026-11-01T01:30", "2026-11-01T01:30:00-04:00"),
    ] {
        assert_eq!(zone.show(zone.parse_time(text).unwrap()), shown, "{text}");
    }
    for text in ["", "soon", "2026-02-30", "07:30", "2026-03-08T25:00", "1772955000"] {
        let error = zone.parse_time(text).unwrap_err().to_string();
        assert!(error.contains("2026-03-08T02:30"), "{text}: {error}");
    }
}

#[test]
fn a_time_that_the_clocks_skip_is_refused_with_the_one_after_it() {
    for (name, text, after) in [
        ("America/New_York", "2026-03-08T02:30", "2026-03-08T03:00:00-04:00"),
        ("America/New_York", "2026-03-08T02:00", "2026-03-08T03:00:00-04:00"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-04T02:30:00+11:00"),
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-31T00:00:00+14:00"),
        ("Pacific/Apia", "2011-12-30", "2011-12-31T00:00:00+14:00"),
        ("Pacific/Kwajalein", "1993-08-21", "1993-08-22T00:00:00+12:00"),
    ] {
        let zone = zone(name);
        let error = zone.parse_time(text).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{text:?} does not exist in {name}: the clocks skip it. The first instant after it is {after}")
        );
        assert_eq!(zone.show(zone.parse_time_or_next(text).unwrap()), after);
    }
    let late = zone("UTC").parse_time("9999-12-31").unwrap_err().to_string();
    assert_eq!(late, "\"9999-12-31\" is too late: times end before this day");
    // A day whose midnight is skipped exists.
    let cairo = zone("Africa/Cairo");
    assert_eq!(cairo.show(cairo.parse_time("2026-04-24").unwrap()), "2026-04-24T01:00:00+03:00");
    assert!(cairo.parse_time("2026-04-24T00:00").is_err());
    assert!(cairo.day(Date::parse("2026-04-24").unwrap()).is_ok());
    assert!(zone("Pacific/Apia").day(Date::parse("2011-12-30").unwrap()).is_err());
}

#[test]
fn a_machine_may_be_set_to_an_abbreviation() {
    for (name, place) in [("EST", "America/Panama"), ("PST8PDT", "America/Los_Angeles"), ("Asia/Tokyo", "Asia/Tokyo")] {
        assert_eq!(Zone::of_machine(name).unwrap(), zone(place));
    }
    for name in Zone::names() {
        assert!(Zone::parse(&name).is_ok(), "{name}");
    }
}

#[test]
fn what_is_shown_is_read_back() {
    for name in ["UTC", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"] {
        let zone = zone(name);
        for hour in 0..24 * 366 {
            let at = Wall(1_767_225_600_000 + hour * 3_600_000);
            assert_eq!(zone.parse_time(&zone.show(at)).unwrap(), at);
        }
    }
}

#[test]
fn instants_beyond_the_calendar_do_no_harm() {
    for at in [Wall(i64::MIN), Wall(i64::MAX)] {
        let zone = zone("America/New_York");
        zone.show(at);
        zone.start_of_day(zone.date(at));
    }
}
