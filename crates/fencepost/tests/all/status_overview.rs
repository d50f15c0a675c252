//! `fencepost status` as the overview of the morning: what is listed, what comes first, and what `--check` says.

use std::time::Duration;

use crate::common::{Said, Site, contains};
use crate::triggers::Home;
use fencepost_testkit::eventually;
use serde_json::json;

const JOBS: &str = "timezone = 'Asia/Tokyo'\n\
    [job.article]\nschedule = '0 7 * * *'\ncommand = 'exit 3'\n\
    [job.reference]\nschedule = '@hourly'\ncommand = 'true'\n\
    [job.off]\nschedule = '@hourly'\nenabled = false\ncommand = 'true'\n\
    [job.by-hand]\ncommand = 'true'\n";

/// The line of a job in the table, its words apart by one space.
fn row(said: &Said, job: &str) -> String {
    let mut table = said.stdout.lines().skip_while(|line| !line.starts_with("JOB"));
    let row = table.find(|line| line.split_whitespace().next() == Some(job));
    let row = row.unwrap_or_else(|| panic!("no {job} in {said:?}"));
    row.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn configured_jobs_are_listed_before_they_ran_and_the_bad_ones_come_first() {
    let home = Home::new(JOBS);
    let said = home.done(&["status"]);
    contains(&said.stdout, &["times   Asia/Tokyo", "Nothing needs attention."]);
    contains(&row(&said, "article"), &["07:00 never - 0"]);
    contains(&row(&said, "off"), &["off disabled never"]);
    contains(&row(&said, "by-hand"), &["by-hand - never"]);
    assert!(!said.stdout.contains('\x1b'), "{said:?}");
    assert_eq!(home.done(&["status", "--check"]).stdout, "");

    home.done(&["run", "by-hand"]);
    assert_eq!(home.say(&["run", "article", "--now"]).code, 3);
    let said = home.done(&["status"]);
    contains(&said.stdout, &["1 needs attention:", "article failed (exit 3) at ", "Try: fencepost why article"]);
    contains(&row(&said, "article"), &[" error ", " x "]);
    let names: Vec<_> = said.stdout.lines().skip_while(|line| !line.starts_with("JOB")).skip(1).collect();
    let names: Vec<_> = names.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["article", "by-hand", "off", "reference"]);
    let longest = said.stdout.lines().skip_while(|line| !line.starts_with("JOB")).map(|line| line.chars().count());
    assert!(longest.max() <= Some(80), "{said:?}");
}

#[test]
fn check_exits_1_by_the_rule_of_the_list_and_125_without_a_store() {
    let home = Home::new(JOBS);
    assert_eq!(home.say(&["run", "article", "--now"]).code, 3);
    let said = home.say(&["status", "--check"]);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    assert_eq!(said.stdout.lines().count(), 1, "{said:?}");
    contains(&said.stdout, &["article failed (exit 3)", "Try: fencepost why article"]);
    let said = home.say(&["status", "--check", "-q"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    let said = home.say(&["status", "--check", "--json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let status = home.json(&["status"]);
    assert_eq!(status["attention"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(
        (&status["attention"][0]["reason"], &status["attention"][0]["job"]),
        (&json!("error"), &json!("article"))
    );
    // Only the job that is asked about counts.
    assert_eq!(home.say(&["status", "reference", "--check"]).code, 0);
    assert_eq!(home.say(&["status", "article", "--check"]).code, 1);
    let site = Site::new();
    let nowhere = format!("sqlite:{}", site.path("nowhere/store.db").display());
    for json in [false, true] {
        let arguments = ["status", "--check", "--store", nowhere.as_str(), "--json"];
        let said = site.say(&arguments[..if json { 5 } else { 4 }]);
        assert_eq!(said.code, 125, "{said:?}");
    }
}

#[test]
fn a_job_whose_slot_passed_unseen_needs_attention() {
    let home = Home::new("[job.often]\nevery = '2s'\nslack = '1s'\ncommand = 'true'\n");
    home.age(Duration::from_secs(20));
    eventually("it is overdue", || home.say(&["status", "--check"]).code == 1);
    let said = home.say(&["status", "--check"]);
    contains(&said.stdout, &["often: nothing is recorded for its slot", "Try: fencepost validate --installed"]);
    // `overdue` says the same.
    assert_eq!(home.say(&["overdue"]).code, 1);
    assert_eq!(home.say(&["pause", "often", "--for", "0s"]).code, 2);
    home.done(&["pause", "often", "--for", "2h"]);
    contains(&row(&home.done(&["status"]), "often"), &["often paused to "]);
    home.done(&["resume", "often"]);
    home.done(&["pause", "often"]);
    assert_eq!(home.say(&["status", "--check"]).code, 0);
    contains(&row(&home.done(&["status"]), "often"), &["often paused "]);
}

#[test]
fn the_help_has_the_legend() {
    let said = Site::new().say(&["status", "--help"]);
    contains(&said.stdout, &["✓ +  ok", "✗ x  error", "‖ |  halted", "… ~  running", "skipped_duplicate"]);
}

#[test]
fn since_counts_what_happened_and_runs_lists_it() {
    let home = Home::new(JOBS);
    home.done(&["run", "by-hand"]);
    home.done(&["run", "by-hand"]);
    assert_eq!(home.say(&["run", "article", "--now"]).code, 3);
    let said = home.done(&["status", "--since", "12h"]);
    contains(&said.stdout, &["since   20", "+09:00", "1 needs attention:", "Nothing happened to 2 other jobs."]);
    assert_eq!(row(&said, "JOB"), "JOB RAN OK EMPTY FAILED HALTED MISSED FENCED SKIPPED");
    assert_eq!(row(&said, "by-hand"), "by-hand 2 2 - - - - - -");
    assert_eq!(row(&said, "article"), "article 1 - - 1 - - - -");
    assert_eq!(row(&said, "total"), "total 3 2 - 1 - - - -");
    let digest = home.json(&["status", "--since", "12h"])["digest"].clone();
    assert_eq!((&digest["total"]["ran"], &digest["total"]["failed"]), (&json!(3), &json!(1)));
    assert_eq!(digest["jobs"][0]["job"], "article");
    assert!(digest["jobs"][0]["since"].as_str().unwrap().ends_with("+09:00"), "{digest}");
    assert!(home.json(&["status"]).get("digest").is_none());
    for since in ["12h", "yesterday", "2020-01-01"] {
        let listed = home.done(&["runs", "--json", "--since", since]).stdout.lines().count();
        assert_eq!(listed, 3, "{since}");
    }
    assert_eq!(home.done(&["runs", "--json", "--until", "1h"]).stdout, "");
    for arguments in [["status", "--since", "tomorrow"], ["runs", "--since", "24:00"], ["runs", "--until", "12"]] {
        let said = home.say(&arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        contains(&said.stderr, &[arguments[1], "is not a time", "12h", "yesterday", "07:00"]);
    }
}

#[test]
fn watch_shows_changes_survives_a_lost_store_and_restores_the_terminal() {
    let home = Home::new(JOBS);
    home.done(&["run", "by-hand"]);
    let said = home.say(&["status", "--watch"]);
    assert_eq!((said.code, said.stdout.as_str()), (2, ""));
    contains(&said.stderr, &["--watch needs a terminal", "fencepost status"]);

    let mut setsid = home.command(&[]);
    setsid = {
        let mut command = std::process::Command::new("setsid");
        let set = setsid.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        command
            .envs(set.collect::<Vec<_>>())
            .current_dir(setsid.get_current_dir().unwrap_or(std::path::Path::new("/")));
        command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
        command
    };
    let mut shell = fencepost_testkit::terminal::Shell::start(setsid);
    shell.say("\"$BINARY\" status --watch=300ms; echo code-\"is\"-$?\n");
    shell.expect("\x1b[?1049h");
    shell.expect("✓");
    assert_eq!(home.say(&["run", "article", "--now"]).code, 3);
    shell.expect("article failed (exit 3)");
    // The store goes away: the last state stays, with its age.
    let (store, away) = (home.site.database(), home.site.path("away.db"));
    std::fs::rename(&store, &away).unwrap();
    shell.expect("This is the state of ");
    shell.expect("article failed (exit 3)");
    std::fs::rename(&away, &store).unwrap();
    shell.say("\x03");
    shell.expect("\x1b[?25h\x1b[?1049l");
    shell.expect("code-is-0");
}

#[test]
fn one_job_is_shown_in_words() {
    let home = Home::new("[job.poll]\nevery = '10m'\ncommand = 'exit 3'\n");
    contains(&home.done(&["status", "poll"]).stdout, &["  state     never ran\n", "  schedule  every 10m (UTC)\n"]);
    assert_eq!(home.json(&["status", "poll"])["jobs"][0]["schedule"], json!("every 600s"));
    contains(&home.done(&["plan", "poll"]).stdout, &["schedule  every 10m (UTC)"]);
    contains(&home.done(&["why", "poll"]).stdout, &["Its next slot is ", "At once: fencepost run poll --now"]);
    home.done(&["run", "other", "--", "true"]);
    contains(&home.done(&["status", "poll", "--since", "12h"]).stdout, &["\n\nJOB ", "Nothing happened to 1 job."]);
    assert_eq!(home.say(&["run", "poll", "--now"]).code, 3);
    contains(&home.done(&["status", "poll"]).stdout, &["  attention poll failed (exit 3) at "]);
    let why = home.done(&["why", "poll"]).stdout;
    contains(
        &why,
        &["The newest recorded slot of poll is ", "It has used 1 of its 1 attempts (retries = 0). To repeat it"],
    );
}

#[test]
fn a_time_of_day_is_shown_as_typed_if_zones_differ() {
    let job =
        |name: &str, zone: &str| format!("[job.{name}]\nschedule = '@daily'\ntimezone = '{zone}'\ncommand = 'true'\n");
    let home = Home::new(&format!("{}{}", job("a", "Asia/Tokyo"), job("b", "UTC")));
    for name in ["a", "b"] {
        home.done(&["run", name, "--now"]);
    }
    contains(&home.done(&["status", "--since", "07:00"]).stdout, &["since   07:00 in each job's zone\n"]);
}

#[test]
fn of_two_mistakes_one_is_shown_and_the_command_once() {
    let home = Home::new("[job.bad]\nretires = 3\nmail = 4\ncommand = 'true'\n");
    let said = home.done(&["status"]).stdout;
    contains(&said, &["And 1 more mistake. Try: fencepost validate"]);
    assert_eq!(said.matches("fencepost validate").count(), 1, "{said}");
}
