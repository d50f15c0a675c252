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

/// Every verb that prints a time for people prints it in the job's zone.
#[test]
fn times_are_in_the_zone_of_the_job() {
    let home = Home::new(
        "timezone = 'Asia/Tokyo'\n[job.j]\nschedule = '@hourly'\ncommand = 'echo hello; exit 3'\nlogs = true\n\
         [job.often]\nevery = '2s'\nslack = '1s'\ncommand = 'true'\n",
    );
    home.age(std::time::Duration::from_secs(20));
    let early = home.say(&["run", "j", "--now", "-v"]);
    assert_eq!(early.code, 3, "{early:?}");
    contains(&early.stderr, &["j takes the slot 20", "+09:00 before its time"]);
    let again = home.say(&["run", "j", "--now", "-v"]);
    home.done(&["pause", "j", "--for", "2h"]);
    home.done(&["lease", "acquire", "by-hand"]);
    home.done(&["once", "mail/42", "--", "true"]);
    fencepost_testkit::eventually("it is overdue", || home.say(&["overdue"]).code == 1);
    let mut checked = 0;
    for arguments in [
        &["status"][..],
        &["status", "j"],
        &["status", "--since", "12h"],
        &["status", "--check"],
        &["runs"],
        &["why", "j"],
        &["plan", "j"],
        &["plan"],
        &["overdue"],
        &["logs", "j"],
        &["logs", "j", "--list"],
        &["pause", "j", "--for", "3h"],
        &["advise", "j"],
        &["once", "show", "mail/42"],
        &["lease", "show", "by-hand"],
        &["lease", "acquire", "by-hand"],
    ] {
        let said = home.say(arguments);
        let text = format!("{}{}{}", said.stdout, said.stderr, again.stderr);
        let times = text.matches("+09:00").count() + text.matches("(Asia/Tokyo)").count();
        let of_utc = text.matches("+00:00").count() + text.matches("(UTC)").count();
        let ends_in_z = |word: &str| {
            let word = word.trim_end_matches([',', '.', ';', ')', ':']);
            word.ends_with('Z') && word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit())
        };
        assert!(of_utc == 0 && !text.split_whitespace().any(ends_in_z), "{arguments:?}: {text}");
        checked += usize::from(times > 0);
    }
    assert!(checked >= 12, "only {checked} verbs show a time");
    let item = home.json(&["once", "show", "mail/42"]);
    for (field, said) in [("next_slot", home.json(&["status"])), ("slot", home.json(&["runs", "j"])), ("started", item)]
    {
        let time = match field {
            "slot" | "started" => said[field].clone(),
            _ => said["jobs"][1]["next_slot"].clone(),
        };
        assert!(time.as_str().is_some_and(|time| time.ends_with("+09:00")), "{field}: {said}");
    }
}
