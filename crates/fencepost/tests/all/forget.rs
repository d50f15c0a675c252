//! `forget JOB` and `once list|show|forget`: what goes, and what stays.

use std::time::Duration;

use crate::common::{Holder, Site, contains};
use crate::triggers::Home;
use serde_json::json;

const JOBS: &str = "[job.a]\nschedule = '@yearly'\nproduces = ['made']\ncommand = 'echo >> made; echo >> ran'\n\
                    [job.down]\nneeds = ['a@any']\ncommand = 'true'\n";

#[test]
fn a_forgotten_job_is_hidden_and_none_of_its_slots_runs_again() {
    let home = Home::new(JOBS);
    // More runs than the record keeps, so there is a history.
    for day in 1..=45 {
        let slot = format!("2026-{:02}-{:02}T00:00", 1 + day / 28, 1 + day % 28);
        home.done(&["record", "a", "ok", "--slot", &slot]);
    }
    home.done(&["run", "a", "--now"]);
    home.done(&["run", "down"]);
    let before = home.json(&["status", "a"])["jobs"][0].clone();
    let forgotten = home.json(&["forget", "a", "--yes"]);
    assert_eq!((&forgotten["job"], &forgotten["forgotten"]), (&json!("a"), &json!(true)));
    assert!(forgotten["history"].as_u64().unwrap() >= 5, "{forgotten}");
    assert_eq!(home.done(&["runs", "a", "--json"]).stdout, "");
    contains(&home.done(&["why", "a"]).stdout, &["has never run on this store"]);
    let status = home.json(&["status", "a"])["jobs"][0].clone();
    assert_eq!((&status["last"], &status["last_ok"], &status["recent"]), (&json!(null), &json!(null), &json!([])));
    // Its slots are still accounted for, however old the configuration is.
    home.age(Duration::from_secs(3 * 366 * 24 * 3600));
    assert_eq!(home.json(&["status", "a"])["attention"], json!([]));
    assert_eq!(home.done(&["overdue"]).stdout, "");
    // Its downstream has no outcome to go by.
    let said = home.say(&["run", "down"]);
    assert_eq!(said.code, 115, "{said:?}");
    // The slot that ran ahead of its time does not run again, nor does one that is named.
    let ran = std::fs::read_to_string(home.path("ran")).unwrap();
    home.done(&["run", "a"]);
    home.done(&["run", "a", "--now"]);
    assert_eq!(home.say(&["run", "a", "--slot", "2026-01-05T00:00"]).code, 125);
    assert_eq!(std::fs::read_to_string(home.path("ran")).unwrap(), ran);
    // A second time finds nothing left.
    assert_eq!(home.json(&["forget", "a", "--yes"])["history"], json!(0));
    // It is shown again when it runs again, with a higher token and only what came after.
    home.done(&["run", "a", "--again"]);
    let after = home.json(&["status", "a"])["jobs"][0].clone();
    assert!(after["token"].as_u64() > before["token"].as_u64(), "{before} {after}");
    assert_eq!(home.done(&["runs", "a", "--json"]).stdout.lines().count(), 1);
    home.done(&["run", "down"]);
}

#[test]
fn what_is_held_is_not_forgotten_and_without_a_terminal_yes_is_required() {
    let site = Site::new();
    let holder = Holder::start(site.command(&["run", "a", "--", "sh", "-c", "echo going; exec cat >/dev/null"]));
    let said = site.say(&["forget", "a", "--yes"]);
    assert_eq!(said.code, 11, "{said:?}");
    contains(&said.stderr, &["a was not forgotten: it is held by "]);
    assert_eq!(site.json(&["forget", "a", "--yes"])["error"]["reason"], json!("held"));
    drop(holder);
    site.say(&["run", "backup", "--", "true"]);
    let said = site.say(&["forget", "backup"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["Nothing was changed", "Pass --yes"]);
    assert_eq!(site.json(&["status", "backup"])["jobs"].as_array().unwrap().len(), 1);
    let said = site.say(&["forget", "bakcup", "--yes"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["No job bakcup is known", "Did you mean backup?"]);
    assert_eq!(site.say(&["forget", "backup", "--yes"]).code, 0);
    assert_eq!(site.json(&["status", "backup"])["jobs"], json!([]));
}

#[test]
fn items_of_work_are_listed_shown_and_forgotten() {
    let site = Site::new();
    let ran = site.path("ran");
    let charge = format!("echo >> '{}'", ran.display());
    assert_eq!(site.say(&["once", "pay/alice", "-c", &charge]).code, 0);
    assert_eq!(site.say(&["once", "pay/bob", "--", "sh", "-c", "exit 3"]).code, 3);
    let list = site.json(&["once", "list"]);
    let states: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| (&item["key"], &item["state"])).collect();
    assert_eq!(states, [(&json!("pay/alice"), &json!("done")), (&json!("pay/bob"), &json!("failed"))]);
    contains(&site.say(&["once", "list"]).stdout, &["KEY", "pay/alice", "done", "pay/bob", "failed"]);
    let shown = site.json(&["once", "show", "pay/bob"]);
    assert_eq!((&shown["state"], &shown["exit_code"]), (&json!("failed"), &json!(3)));
    let holder = Holder::start(site.command(&["once", "busy", "--", "sh", "-c", "echo going; exec cat >/dev/null"]));
    let busy = site.json(&["once", "show", "busy"]);
    assert_eq!(busy["state"], json!("in_progress"));
    assert!(busy["holder"]["pid"].is_i64(), "{busy}");
    assert_eq!(site.say(&["once", "forget", "busy", "--yes"]).code, 11);
    drop(holder);
    // Done means done, until it is forgotten.
    assert_eq!(site.say(&["once", "pay/alice", "-c", &charge]).code, 0);
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "\n");
    assert_eq!(site.say(&["once", "forget", "pay/alice"]).code, 2);
    let token = site.json(&["once", "show", "pay/alice"])["token"].as_u64();
    assert_eq!(site.json(&["once", "forget", "pay/alice", "--yes"])["key"], json!("pay/alice"));
    assert_eq!(site.say(&["once", "show", "pay/alice"]).code, 2);
    let params = site.path("params");
    std::fs::write(&params, "x").unwrap();
    let again = ["once", "pay/alice", "--params", params.to_str().unwrap(), "-c", &charge];
    assert_eq!(site.say(&again).code, 0);
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "\n\n");
    assert!(site.json(&["once", "show", "pay/alice"])["token"].as_u64() > token);
}

#[test]
fn with_a_command_the_verbs_are_ordinary_keys() {
    let site = Site::new();
    for key in ["list", "show", "forget"] {
        assert_eq!(site.say(&["once", key, "--", "true"]).code, 0);
    }
    assert_eq!(site.json(&["once", "list"])["items"].as_array().unwrap().len(), 3);
    for (arguments, code) in [(&["once", "show"][..], 2), (&["once", "forget"], 2), (&["once", "list", "x"], 2)] {
        assert_eq!(site.say(arguments).code, code, "{arguments:?}");
    }
    assert_eq!(site.say(&["once", "a", "b", "--", "true"]).code, 125);
    assert_eq!(site.json(&["once", "show", "list"])["state"], json!("done"));
}
