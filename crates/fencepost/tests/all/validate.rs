//! `fencepost validate`, through the real binary: when jobs are due, and what cannot be meant.

use crate::common::contains;
use crate::triggers::Home;
use serde_json::json;

#[test]
fn the_next_three_slots_are_shown_in_words_and_as_times() {
    let home = Home::new(
        "timezone = 'Asia/Tokyo'\n[job.daily]\nschedule = '0 7 * * *'\ncommand = 'true'\n\
         [job.often]\nevery = '45m'\ncommand = 'true'\n[job.free]\ncommand = 'true'\n",
    );
    let said = home.done(&["validate"]);
    contains(&said.stdout, &["in words   at 07:00 every day, Asia/Tokyo time", "in words   every 45 minutes"]);
    assert_eq!(said.stdout.matches(" 07:00:00+09:00, in ").count(), 3, "{}", said.stdout);
    assert!(!said.stdout.contains("clocks"), "{}", said.stdout);
    let object = home.json(&["validate"]);
    let jobs = object["jobs"].as_array().unwrap();
    assert_eq!(jobs.iter().map(|job| job["next_slots"].as_array().unwrap().len()).collect::<Vec<_>>(), [3, 0, 3]);
    assert_eq!(jobs[0]["in_words"], json!("at 07:00 every day, Asia/Tokyo time"));
    let slots: Vec<&str> =
        jobs[2]["next_slots"].as_array().unwrap().iter().map(|slot| slot.as_str().unwrap()).collect();
    assert!(slots.is_sorted() && slots[0] != slots[1], "{slots:?}");
}

#[test]
fn a_change_of_the_clocks_is_pointed_out() {
    let home = Home::new("timezone = 'America/New_York'\n[job.night]\nschedule = '30 2 * * *'\ncommand = 'true'\n");
    let said = home.done(&["validate"]);
    contains(&said.stdout, &["clocks     on 20", "the clocks skip 02:00 to 03:00", "runs once"]);
    contains(home.json(&["validate"])["jobs"][0]["clock_change"].as_str().unwrap(), &["the clocks skip"]);
}

#[test]
fn all_mistakes_are_shown_at_once_and_nothing_runs() {
    let home = Home::new(
        "timezone = 'Asia/Tokio'\n\
         [job.a]\nschedule = '0 25 * * *'\ncommand = 'true'\n\
         [job.b]\nschedule = '0 7 * *'\ntimezone = 'JST'\ncommand = 'true'\n\
         [job.c]\nevery = '200ms'\ntimezone = 'UTC'\ncommand = 'true'\n\
         [job.d]\nschedule = '0 7 * * *'\ntimezone = 'UTC'\ncatch_up = 5000\nttl = '20s'\ngrace = '10s'\ncommand = 'true'\n\
         [job.e]\ncommand = 'true'\n",
    );
    let said = home.say(&["validate"]);
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stdout, &["Refused: 5 jobs, 7 mistakes"]);
    contains(
        &said.stderr,
        &[
            ":1:12:",
            "Asia/Tokyo",
            ":3:12:",
            "  3 | schedule = '0 25 * * *'\n    |            ^",
            ":6:12:",
            ":7:12:",
            ":10:9:",
            ":16:12:",
            "5000 is more than 1000",
            ":18:9:",
        ],
    );
    // Not even a job that is right.
    let said = home.say(&["run", "e"]);
    assert_eq!(said.code, 125);
    contains(&said.stderr, &["7 mistakes", ":3:12:"]);
}

#[test]
fn needs_that_can_never_be_met_are_warned_about() {
    let home = Home::new(
        "[job.monthly]\nschedule = '0 9 1 * *'\ncommand = 'true'\n[job.noon]\nschedule = '0 12 * * *'\ncommand = 'true'\n\
         [job.slot]\nschedule = '0 7 * * *'\nneeds = ['noon@same-slot']\ncommand = 'true'\n\
         [job.day]\nschedule = '0 7 * * *'\nneeds = ['noon@same-day']\ncommand = 'true'\n\
         [job.within]\nschedule = '0 7 * * *'\nneeds = ['noon@within=2h']\ncommand = 'true'\n\
         [job.instant]\nschedule = '0 12 * * *'\nneeds = ['noon']\ncommand = 'true'\n\
         [job.fine]\nschedule = '0 13 * * *'\nneeds = ['noon@same-day', 'noon@within=2h', 'monthly']\ncommand = 'true'\n\
         [job.waits]\nschedule = '0 12 * * *'\nneeds = ['noon@same-slot']\nneeds_wait = '1h'\ncommand = 'true'\n",
    );
    let said = home.done(&["validate"]);
    contains(
        &said.stderr,
        &[
            "slot can never proceed: noon is never due at the same instant",
            "day can never proceed: noon is never due before it on the same day",
            "within can never proceed: noon is never due so shortly before it",
            "instant is always due at the same instant as noon",
        ],
    );
    contains(&said.stdout, &["no mistakes, 4 warnings"]);
}

#[test]
fn commands_that_tell_somebody_are_looked_for_too() {
    let home = Home::new("[job.a]\ncommand = 'true'\non_error = ['no-such-teller', 'x']\n");
    contains(&home.done(&["validate"]).stderr, &["\"no-such-teller\" is not found in PATH"]);
}
