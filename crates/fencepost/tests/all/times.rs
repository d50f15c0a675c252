//! Times and zones as they are typed, through the real binary.

use crate::common::{Site, contains};
use crate::triggers::Home;

/// A job ran at a slot that does not exist, under the identity of another slot.
#[test]
fn a_time_that_the_clocks_skip_is_no_slot() {
    let site = Site::new();
    let new_york = ["--tz", "America/New_York"];
    let apia = ["--tz", "Pacific/Apia"];
    let (gap, day) = (["--slot", "2026-03-08T02:30"], ["--date", "2011-12-30"]);
    for (arguments, code, after) in [
        ([&["record", "j", "ok"], &gap[..], &new_york].concat(), 2, "2026-03-08T03:00:00-04:00"),
        ([&["record", "j", "ok"], &day[..], &apia].concat(), 2, "2011-12-31T00:00:00+14:00"),
        ([&["gate", "u"], &gap[..], &new_york].concat(), 2, "2026-03-08T03:00:00-04:00"),
        ([&["gate", "u"], &day[..], &apia].concat(), 2, "2011-12-31T00:00:00+14:00"),
        ([&["gate", "u", "--slot", "2011-12-30"], &apia[..]].concat(), 2, "2011-12-31T00:00:00+14:00"),
        ([&["run", "j"], &gap[..], &new_york, &["--", "true"]].concat(), 125, "2026-03-08T03:00:00-04:00"),
        (
            [&["plan", "j", "--schedule", "@daily", "--at", "2026-03-08T02:30"], &new_york[..]].concat(),
            2,
            "2026-03-08T03:00:00-04:00",
        ),
    ] {
        let said = site.say(&arguments);
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        contains(&said.stderr, &["does not exist in", "the clocks skip it", after]);
    }
    assert!(site.runs(&[]).is_empty());
    // The instants around the gap, and a day whose midnight is skipped.
    for arguments in [
        [&["record", "j", "ok", "--slot", "2026-03-08T03:00"], &new_york[..]].concat(),
        vec!["record", "j", "ok", "--date", "2026-04-24", "--tz", "Africa/Cairo"],
    ] {
        let said = site.say(&arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
    }
}

/// The database has some abbreviations, and other zones for them than people mean.
#[test]
fn an_abbreviation_is_refused_wherever_a_zone_is_read() {
    let reason = "an abbreviation means different zones to different people. Write the name of a place in the IANA \
                  database, such as Asia/Tokyo, or UTC.";
    for zone in ["EST", "CET", "GMT", "JST"] {
        let config = |top: &str, job: &str| format!("{top}[job.j]\nschedule = '0 7 * * *'\n{job}command = 'true'\n");
        let line = format!("timezone = '{zone}'\n");
        let message = format!("\"{zone}\" is not a time zone: {reason}");
        let of_job = Home::new(&config("", &line));
        for home in [Home::new(&config(&line, "")), Home::new(&config(&format!("[defaults]\n{line}"), ""))] {
            contains(&home.say(&["validate"]).stderr, &[&message]);
        }
        contains(&of_job.say(&["validate"]).stderr, &[&message]);
        contains(&of_job.say(&["run", "j"]).stderr, &[&message]);
        let home = Home::new(&config("", ""));
        for (arguments, code) in [
            (&["run", "j", "--tz", zone][..], 125),
            (&["record", "j", "ok", "--tz", zone], 2),
            (&["gate", "j", "--tz", zone], 2),
            (&["plan", "j", "--tz", zone], 2),
            (&["runs", "--since", "2026-01-01", "--tz", zone], 2),
        ] {
            let said = home.say(arguments);
            assert_eq!(said.code, code, "{arguments:?}: {said:?}");
            contains(&said.stderr, &[&message]);
        }
    }
}
