//! `fencepost lease`: by hand, for scripts and other languages.

use std::process::Stdio;

use crate::common::{BINARY, Holder, Said, Site, contains, keys, lines, sorted};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::{Value, json};

const FIELDS: &str = "v job token grants run until remaining_ms held";

fn check_fields(lease: &Value) {
    check_fields_and(lease, "");
}

fn check_fields_and(lease: &Value, more: &str) {
    assert_eq!(keys(lease), sorted(&format!("{FIELDS} {more}")), "{lease}");
    assert_eq!(lease["v"], 1);
}

#[test]
fn acquire_renew_show_and_release_go_by_the_token() {
    let site = Site::new();
    let taken = site.json(&["lease", "acquire", "j", "--ttl", "1h"]);
    check_fields(&taken);
    assert_eq!((&taken["job"], &taken["grants"], &taken["held"]), (&json!("j"), &json!(1), &json!(true)));
    let token = taken["token"].as_u64().unwrap().to_string();
    let left = taken["remaining_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{taken}");
    contains(taken["until"].as_str().unwrap(), &["T", "Z"]);

    let shown = site.json(&["lease", "show", "j"]);
    check_fields(&shown);
    for field in ["job", "token", "grants", "run", "held"] {
        assert_eq!(shown[field], taken[field], "{field}");
    }
    let renewed = site.json(&["lease", "renew", "j", "--token", &token]);
    check_fields(&renewed);
    for field in ["job", "token", "grants", "run", "held"] {
        assert_eq!(renewed[field], taken[field], "{field}");
    }
    let said = site.say(&["lease", "acquire", "j"]);
    assert_eq!((said.code, said.stdout.as_str()), (11, ""));
    contains(&said.stderr, &["j is held by", "by hand", "since", "until"]);

    let released = site.json(&["lease", "release", "j", "--token", &token]);
    check_fields(&released);
    assert_eq!(
        (&released["held"], &released["run"], &released["token"]),
        (&json!(false), &json!(null), &taken["token"])
    );
    assert_eq!((&released["until"], &released["remaining_ms"]), (&json!(null), &json!(null)));
    let again: u64 = site.say(&["lease", "acquire", "j"]).stdout.trim().parse().unwrap();
    assert!(again > taken["token"].as_u64().unwrap());
    assert_eq!(site.runs(&[]), Vec::<Value>::new(), "a lease by hand is not a run");
}

#[test]
fn a_lease_that_was_never_held_is_shown_as_free() {
    let site = Site::new();
    let shown = site.json(&["lease", "show", "never"]);
    check_fields(&shown);
    assert_eq!((&shown["held"], &shown["grants"]), (&json!(false), &json!(0)));
    let said = site.say(&["lease", "show", "never"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "never was never held.\n"));
}

#[test]
fn a_stale_token_is_12_for_renew_and_release_alike() {
    let site = Site::new();
    let stale = site.say(&["lease", "acquire", "j", "--ttl", "1s"]).stdout.trim().to_string();
    // The first one expires, and only then the second is granted.
    let said = site.say(&["lease", "acquire", "j", "--ttl", "1h", "-w", "5m"]);
    assert_eq!(said.code, 0, "{said:?}");
    let token: u64 = said.stdout.trim().parse().unwrap();
    assert!(token > stale.parse().unwrap());
    for verb in ["renew", "release"] {
        let said = site.say(&["lease", verb, "j", "--token", &stale]);
        assert_eq!((said.code, said.stdout.as_str()), (12, ""));
        contains(&said.stderr, &["j: the lease under this token is lost", &token.to_string(), "acquire anew"]);
    }
    let shown = site.json(&["lease", "show", "j"]);
    assert_eq!((&shown["held"], &shown["token"]), (&json!(true), &json!(token)));
    assert_eq!(site.say(&["lease", "release", "j", "--token", &token.to_string()]).code, 0);
    let said = site.say(&["lease", "renew", "j", "--token", &token.to_string()]);
    assert_eq!(said.code, 12, "what was released cannot be renewed");
    contains(&said.stderr, &["it is free"]);
}

#[test]
fn the_outcome_of_a_lease_by_hand_is_recorded_as_it_is_released() {
    let site = Site::new();
    std::fs::write(site.path("left"), "bytes").unwrap();
    let left = site.path("left").display().to_string();
    for (verb, ends) in
        [("record", &["record", "j", "ok"][..]), ("release", &["lease", "release", "j", "--outcome", "ok"])]
    {
        let token = site.say(&["lease", "acquire", "j", "--ttl", "1h"]).stdout.trim().to_string();
        let said = site.say(&[ends, &["--token", &token, "--artifact", &left, "--note", verb]].concat());
        assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""), "{verb}: {said:?}");
        assert_eq!(site.json(&["lease", "show", "j"])["held"], false, "{verb}");
        let runs = site.runs(&["j"]);
        let run = runs.iter().find(|run| run["token"].as_u64() == token.parse().ok()).expect("it is among the runs");
        assert_eq!((&run["status"], &run["note"]), (&json!("ok"), &json!(verb)), "{run}");
        assert_eq!(run["artifacts"][0]["size"], 5, "{run}");
    }
    assert_eq!(site.say(&["gate", "j", "--artifact", &left]).code, 0);
}

#[test]
fn nothing_is_recorded_under_a_token_that_no_longer_holds_the_lease() {
    let site = Site::new();
    let stale = site.say(&["lease", "acquire", "j", "--ttl", "1s"]).stdout.trim().to_string();
    let said = site.say(&["lease", "acquire", "j", "--ttl", "1h", "-w", "5m"]);
    let token = said.stdout.trim().to_string();
    let ways: [&[&str]; 2] = [&["record", "j", "ok"], &["lease", "release", "j", "--outcome", "ok"]];
    for ends in ways {
        let said = site.say(&[ends, &["--token", &stale]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (12, ""), "{said:?}");
        contains(&said.stderr, &["the lease under this token is lost", &token, "Nothing was recorded."]);
        assert_eq!(site.json(&[ends, &["--token", &stale]].concat())["error"]["reason"], "lost");
    }
    assert_eq!(site.runs(&[]), Vec::<Value>::new());
    assert_eq!(site.json(&["lease", "show", "j"])["held"], true);
    // A file that is not there is found out before anything is released.
    let said = site.say(&["record", "j", "ok", "--token", &token, "--artifact", "/no/such/file"]);
    assert_eq!((said.code, &site.json(&["lease", "show", "j"])["held"]), (2, &json!(true)), "{said:?}");
    assert_eq!(site.say(&["lease", "release", "j", "--force", "--outcome", "ok"]).code, 2);
    assert_eq!(site.say(&["lease", "release", "j", "--token", &token, "--artifact", "x"]).code, 2);
}

#[test]
fn the_end_of_a_run_is_not_recorded_by_its_token() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    let token = site.json(&["lease", "show", "j"])["token"].to_string();
    let said = site.say(&["record", "j", "ok", "--token", &token]);
    assert_eq!(said.code, 11, "{said:?}");
    contains(&said.stderr, &["j was not recorded", "when that run has ended"]);
    assert_eq!(site.json(&["lease", "show", "j"])["held"], true);
    drop(holder);
    let said = site.say(&["run", "k", "-c", "$BINARY record k ok --token 1; test $? = 2"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stderr, &["leave --token out"]);
}

#[test]
fn a_lease_by_hand_is_renewed_past_its_first_end() {
    let site = Site::new();
    let token = site.say(&["lease", "acquire", "j", "--ttl", "30s"]).stdout.trim().to_string();
    let first = site.json(&["lease", "show", "j"])["until"].as_str().unwrap().to_string();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let said = site.say(&["lease", "renew", "j", "--token", &token]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""), "cron mails what is printed");
    let renewed = site.json(&["lease", "renew", "j", "--token", &token]);
    assert_eq!(renewed["held"], true);
    let later = site.json(&["lease", "show", "j"])["until"].as_str().unwrap().to_string();
    assert!(later > first, "{later} after {first}");
    // The time that a holder may rely on is a little less than the store's.
    assert!(renewed["until"].as_str().unwrap() < later.as_str(), "{renewed}, {later}");
}

#[test]
fn release_by_force_needs_no_token_and_says_if_there_was_nothing_to_release() {
    let site = Site::new();
    let said = site.say(&["lease", "release", "j", "--force", "-v"]);
    assert_eq!(said.code, 0);
    contains(&said.stderr, &["j is not held."]);
    let token = site.say(&["lease", "acquire", "j"]).stdout.trim().to_string();
    let released = site.json(&["lease", "release", "j", "--force"]);
    check_fields(&released);
    assert_eq!(released["held"], false);
    assert_eq!(site.say(&["lease", "renew", "j", "--token", &token]).code, 12);
}

#[test]
fn a_run_and_a_lease_by_hand_exclude_each_other() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    assert_eq!(site.say(&["lease", "acquire", "j"]).code, 11);
    assert_eq!(site.say(&["lease", "hold", "j"]).code, 11);
    let shown = site.json(&["lease", "show", "j"]);
    assert_eq!((&shown["held"], shown["token"].as_u64()), (&json!(true), Some(holder.token())));
    assert_eq!(holder.finish().code, 0);
    assert_eq!(site.say(&["lease", "acquire", "j"]).code, 0);
    assert_eq!(site.say(&["run", "j", "--", "echo", "ran"]).stdout, "");
}

#[test]
fn a_dead_holder_is_not_shown_as_holding() {
    let site = Site::new();
    let holder = site.holder("j", &["--ttl", "1h"]);
    holder.kill();
    let shown = site.json(&["lease", "show", "j"]);
    check_fields(&shown);
    assert_eq!((&shown["held"], &shown["run"], &shown["until"]), (&json!(false), &json!(null), &json!(null)));
    contains(&site.say(&["lease", "show", "j"]).stdout, &["j is free: the process that held it is dead"]);
}

/// `fencepost lease …` on a store that takes longer for each write than a lease of one second lasts.
fn slowly(site: &Site, arguments: &[&str]) -> Said {
    let strace = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"];
    let inject = ["-e", "inject=fdatasync,fsync:delay_exit=1300000", BINARY, "lease"];
    let mut command = site.program("strace", &[&strace[..], &inject, arguments].concat());
    Said::of(command.output().expect("strace is installed: apt-get install strace"))
}

/// Scripts write `acquire && work`: what cannot be confirmed has no token.
#[test]
fn an_answer_after_the_deadline_is_12_without_a_token() {
    let site = Site::new();
    let token = site.say(&["lease", "acquire", "other", "--ttl", "1s"]).stdout.trim().to_string();
    let said = slowly(&site, &["acquire", "j", "--ttl", "1s"]);
    assert_eq!((said.code, said.stdout.as_str()), (12, ""), "{said:?}");
    contains(&said.stderr, &["not confirmed", "fencepost lease acquire j --ttl"]);
    assert_eq!(site.json(&["lease", "show", "j"])["held"], false, "it was given back");
    for arguments in [&["acquire", "j", "--ttl", "1s"][..], &["renew", "other", "--token", &token]] {
        let said = slowly(&site, &[arguments, &["--json"]].concat());
        assert_eq!(said.code, 12, "{said:?}");
        let shown = lines(&said.stdout).remove(0);
        assert_eq!((&shown["error"]["code"], &shown["error"]["reason"]), (&json!(12), &json!("lost")), "{shown}");
        assert_eq!((shown.get("token"), lines(&said.stdout).len()), (None, 1), "{shown}");
    }
}

#[test]
fn an_answer_after_the_deadline_is_renewed_before_its_token_is_printed() {
    let site = Site::new();
    let token = site.say(&["lease", "acquire", "other", "--ttl", "1s"]).stdout.trim().to_string();
    for arguments in [&["acquire", "j", "--ttl", "1s"][..], &["renew", "other", "--token", &token]] {
        let mut connection = Connection::open(site.database()).unwrap();
        let lock = Transaction::new(&mut connection, TransactionBehavior::Immediate).unwrap();
        let mut command = site.command(&[&["lease"], arguments, &["--json"]].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(3));
        drop(lock);
        let said = Said::of(child.wait_with_output().unwrap());
        assert_eq!(said.code, 0, "{said:?}");
        let left = lines(&said.stdout).remove(0)["remaining_ms"].as_u64().unwrap();
        assert!((1..=950).contains(&left), "{said:?}");
    }
}

fn hold(site: &Site, options: &[&str]) -> (Holder, Value) {
    let holder = Holder::start(site.command(&[&["lease", "hold", "j"], options].concat()));
    let first = lines(&holder.first).remove(0);
    (holder, first)
}

#[test]
fn hold_renews_by_itself_and_releases_at_the_end_of_its_input() {
    let site = Site::new();
    let (mut holder, first) = hold(&site, &["--ttl", "2s"]);
    assert_eq!((&first["event"], &first["job"], &first["held"]), (&json!("held"), &json!("j"), &json!(true)));
    let token = first["token"].as_u64().unwrap();
    for renewals in 1..=4 {
        let line = lines(&holder.next_line()).remove(0);
        assert_eq!((&line["event"], &line["renewals"]), (&json!("renewed"), &json!(renewals)));
    }
    let shown = site.json(&["lease", "show", "j"]);
    assert_eq!((&shown["held"], &shown["token"], &shown["run"]), (&json!(true), &json!(token), &first["run"]));
    let said = holder.finish();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let last = lines(&said.stdout).pop().unwrap();
    assert_eq!((&last["event"], &last["held"]), (&json!("released"), &json!(false)));
    assert_eq!(site.json(&["lease", "show", "j"])["held"], false);
    assert_eq!(site.runs(&[]), Vec::<Value>::new());
}

#[test]
fn hold_ends_with_12_when_its_lease_is_lost() {
    let site = Site::new();
    let (holder, _) = hold(&site, &["--ttl", "2s"]);
    assert_eq!(site.say(&["lease", "release", "j", "--force"]).code, 0);
    let said = holder.wait();
    assert_eq!(said.code, 12);
    let last = lines(&said.stdout).pop().unwrap();
    assert_eq!((&last["event"], &last["held"]), (&json!("lost"), &json!(false)));
    contains(&said.stderr, &["j: lease lost"]);
}

/// There is no keeper: the line and the exit are all that the one behind it has to go by.
#[test]
fn hold_says_that_its_lease_is_lost_before_another_can_have_it_while_the_store_hangs() {
    let site = Site::new();
    // A twentieth of it lies between what its holder relies on and what the store grants.
    let (holder, first) = hold(&site, &["--ttl", "8s"]);
    let until = site.json(&["lease", "show", "j"])["until"].as_str().unwrap().to_string();
    let mut connection = Connection::open(site.database()).unwrap();
    let _lock = Transaction::new(&mut connection, TransactionBehavior::Immediate).unwrap();
    let said = holder.wait();
    assert_eq!(said.code, 12);
    let last = lines(&said.stdout).pop().unwrap();
    assert!(last["at"].as_str().unwrap() < until.as_str(), "{last}, but it may be another's since {until}");
    assert_eq!((&last["event"], &last["held"], &last["token"]), (&json!("lost"), &json!(false), &first["token"]));
    contains(&said.stderr, &["j: lease lost: the lease could not be renewed in time."]);
}

#[test]
fn every_line_of_hold_tells_the_lease() {
    let site = Site::new();
    let (holder, first) = hold(&site, &["--ttl", "30s"]);
    check_fields_and(&first, "event at ttl_ms");
    assert!(first["remaining_ms"].as_u64().unwrap() > 20_000 && first["until"].is_string(), "{first}");
    let last = lines(&holder.finish().stdout).pop().unwrap();
    check_fields_and(&last, "event at reason");
    assert_eq!((&last["token"], &last["until"]), (&first["token"], &json!(null)));
}

/// It is no run, however it ends.
#[test]
fn a_lease_that_was_held_leaves_no_outcome() {
    let site = Site::new();
    let (holder, _) = hold(&site, &["--ttl", "1h"]);
    assert_eq!(site.runs(&[]), Vec::<Value>::new());
    contains(&site.say(&["status"]).stdout, &["held"]);
    drop(holder);
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    let (holder, _) = hold(&site, &["--ttl", "1h"]);
    assert_eq!(site.say(&["lease", "release", "j", "--force"]).code, 0);
    assert_eq!(holder.wait().code, 12);
    let statuses: Vec<_> = site.runs(&["j"]).iter().map(|run| run["status"].clone()).collect();
    assert_eq!(statuses, [json!("ok")]);
}

/// A caller that knows the token may take a run's lease away. The run is still recorded as not ended properly.
#[test]
fn a_run_whose_lease_was_released_by_its_token_is_lost() {
    let site = Site::new();
    let holder = site.holder("j", &["--ttl", "1h"]);
    let token = holder.token().to_string();
    assert_eq!(site.say(&["lease", "release", "j", "--token", &token]).code, 0);
    let said = holder.wait();
    assert_eq!(said.code, 112, "it is stopped at once, and not at its next renewal: {said:?}");
    let runs = site.runs(&["j"]);
    assert_eq!((runs.len(), &runs[0]["status"], runs[0]["token"].to_string()), (1, &json!("lost"), token));
    contains(runs[0]["note"].as_str().unwrap(), &["released by its token"]);
}

#[test]
fn hold_waits_if_asked_and_a_killed_one_is_taken_over_at_once() {
    let site = Site::new();
    let (mut first, line) = hold(&site, &["--ttl", "1h"]);
    let waiting = site.command(&["lease", "hold", "j", "-w", "5m"]);
    let waiting = std::thread::spawn(move || Holder::start(waiting));
    std::thread::sleep(std::time::Duration::from_millis(200));
    first.child.kill().unwrap();
    let second = waiting.join().unwrap();
    let next = lines(&second.first).remove(0);
    assert!(next["token"].as_u64() > line["token"].as_u64());
    assert_eq!(second.finish().code, 0);
}
