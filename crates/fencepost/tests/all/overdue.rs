//! `fencepost overdue`, through the real binary: a dead man's switch.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Holder, contains, keys, sorted};
use crate::triggers::Home;
use serde_json::json;

const OFTEN: &str = "[job.often]\nevery = '2s'\nslack = '1s'\ncommand = 'true'\n";

#[test]
fn a_job_that_nothing_starts_any_more_is_overdue() {
    let home = Home::new(OFTEN);
    home.done(&["run", "often"]);
    // On its first sight nothing may have been due yet.
    sleep(Duration::from_secs(2));
    home.done(&["run", "often"]);
    assert_eq!(home.done(&["overdue", "--grace", "1h"]).stdout, "");
    sleep(Duration::from_secs(5));
    let said = home.say(&["overdue"]);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    assert_eq!(said.stdout.lines().count(), 1);
    contains(&said.stdout, &["often: nothing is recorded for its slot 20", " ago)", "last ok 20"]);
    let object = home.json(&["overdue"]);
    assert_eq!(keys(&object), sorted("v store config overdue paused"));
    assert_eq!(keys(&object["overdue"][0]), sorted("job slot slot_to count last_ok schedule timezone"));
    assert_eq!((&object["overdue"][0]["job"], &object["paused"]), (&json!("often"), &json!([])));
    assert!(object["overdue"][0]["count"].as_u64().unwrap() >= 1);
    let said = home.say(&["overdue", "-q"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    // Without a configuration, the record says what it went by.
    let said = home.say(&["overdue", "--config", "/nowhere/fencepost.toml"]);
    assert_eq!(said.code, 2);
    let mut command = home.command(&["overdue", "--grace", "1s"]);
    let said = crate::common::Said::of(command.env("FENCEPOST_CONFIG", "").output().unwrap());
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stdout, &["often: nothing is recorded"]);
    // A run accounts for every earlier slot.
    home.done(&["run", "often"]);
    assert_eq!(home.done(&["overdue", "--grace", "4s"]).stdout, "");
    // A paused job is not overdue.
    home.done(&["pause", "often"]);
    sleep(Duration::from_secs(4));
    let said = home.done(&["overdue", "-v"]);
    assert_eq!(said.stdout, "");
    contains(&said.stderr, &["often is paused, and so not overdue"]);
    assert_eq!(home.json(&["overdue"])["paused"], json!(["often"]));
}

#[test]
fn a_job_that_was_never_seen_is_expected_since_the_configuration_was_written() {
    let home = Home::new(
        "[job.daily]\nschedule = '@hourly'\ncommand = 'true'\n[job.off]\nschedule = '@hourly'\nenabled = false\ncommand = 'true'\n\
         [job.free]\ncommand = 'true'\n",
    );
    home.age(Duration::from_secs(20));
    let said = home.say(&["overdue", "--grace", "1h"]);
    assert_eq!(said.code, 0, "{said:?}");
    home.age(Duration::from_secs(3 * 3600 + 60));
    let said = home.say(&["overdue"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(said.stdout.lines().count(), 1, "{said:?}");
    contains(&said.stdout, &["daily: nothing is recorded", "nor for ", "never ok"]);
    assert!(!home.site.database().exists(), "looking makes no store");
    // By hand is recorded, too.
    home.done(&["record", "daily", "error"]);
    assert_eq!(home.done(&["overdue"]).stdout, "");
}

#[test]
fn a_run_that_is_going_is_accounted_for_and_one_that_died_is_not() {
    let home = Home::new("[job.often]\nevery = '2s'\nslack = '1s'\ncommand = 'echo going; exec cat >/dev/null'\n");
    let start = || {
        let begin = || home.command(&["run", "often", "--now"]);
        Holder::start(begin())
    };
    let holder = start();
    sleep(Duration::from_secs(4));
    assert_eq!(home.done(&["overdue"]).stdout, "");
    holder.finish();
    // What passed meanwhile was overlapped.
    assert_eq!(home.done(&["overdue", "--grace", "1500ms"]).stdout, "");
    start().kill();
    sleep(Duration::from_secs(5));
    let said = home.say(&["overdue"]);
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stdout, &["often: nothing is recorded", "did not end properly"]);
}

#[test]
fn a_store_that_cannot_be_read_is_no_good_news() {
    let home = Home::new(OFTEN);
    fs::create_dir_all(home.site.state()).unwrap();
    fs::write(home.site.database(), "not a database").unwrap();
    let said = home.say(&["overdue"]);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{said:?}");
}

#[test]
fn a_store_that_is_gone_is_no_good_news_either() {
    let home = Home::new("");
    home.done(&["run", "a", "--every", "2s", "--", "true"]);
    let metrics = home.path("metrics.prom").display().to_string();
    home.done(&["status", "--format", "prom", "-o", &metrics]);
    let before = fs::read(&metrics).unwrap();
    fs::rename(home.site.state(), home.site.path("elsewhere")).unwrap();
    for arguments in [&["overdue"][..], &["status", "--format", "prom", "-o", &metrics]] {
        let said = home.say(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{said:?}");
        contains(&said.stderr, &["There is no store at sqlite:"]);
    }
    assert_eq!(fs::read(&metrics).unwrap(), before, "the old file stays as it was");
}
