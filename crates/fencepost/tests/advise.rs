//! `fencepost advise` and what `why` says about slots: what can be read from the ledger, in sentences.

mod common;
mod ledger;

use common::{Site, contains, keys, sorted};
use fencepost_core::ledger::Status;
use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_store::{Swapped, open};
use ledger::{Past, ended};
use serde_json::{Value, json};

const FIELDS: &str = "job runs times renewed unrenewed skip_rate halt_rate period_ms is_interval_too_tight sentences";

fn change(site: &Site, job: &str, change: impl FnOnce(&mut Record)) {
    let store = open(&format!("sqlite:{}", site.database().display())).unwrap();
    let job = Job::parse(job).unwrap();
    let entry = store.read(&Key::job(&job)).unwrap().value.unwrap();
    let mut record = Record::decode(&entry.bytes, &job).unwrap();
    change(&mut record);
    let swapped = store.swap(&Key::job(&job), Some(&entry.version), Some(&record.encode())).unwrap().value;
    assert!(matches!(swapped, Swapped::Won(_)));
}

/// A job whose runs took so many seconds each, and ended so.
fn ran(site: &Site, job: &str, runs: &[(u64, Status)]) {
    let past = Past::of(site, job, "UTC");
    for (number, (seconds, status)) in runs.iter().enumerate() {
        past.record(&format!("2026-11-{:02}T{:02}:00", 1 + number / 24, number % 24), ended(*status));
        past.change_last(|last| last.finished = Wall(last.started.0 + *seconds as i64 * 1000));
    }
}

fn advice(site: &Site, job: &str) -> Value {
    let advised = site.json(&["advise", job]);
    assert_eq!(keys(&advised), sorted("v jobs"));
    let advice = advised["jobs"][0].clone();
    assert_eq!(keys(&advice), sorted(FIELDS));
    advice
}

fn words(advice: &Value) -> String {
    let sentences = advice["sentences"].as_array().unwrap().iter();
    sentences.map(|sentence| sentence.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn from_too_few_runs_nothing_is_learnt_and_that_is_said() {
    let site = Site::new();
    ran(&site, "a", &[(60, Status::Ok), (60, Status::Ok), (60, Status::Error)]);
    let advice = advice(&site, "a");
    assert_eq!((&advice["runs"], &advice["times"], &advice["renewed"]), (&json!(2), &Value::Null, &Value::Null));
    contains(&words(&advice), &["2 of its runs ended well", "too few to learn from: wait for 5"]);
    let said = site.say(&["advise", "nobody"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["No job nobody is known"]);
}

#[test]
fn how_long_runs_take_says_which_time_to_live_suits() {
    let site = Site::new();
    // Twenty good ones, and one that hung: that is not how long a healthy run takes.
    let mut runs: Vec<(u64, Status)> = (1..=20).map(|number| (number * 10, Status::Ok)).collect();
    runs.push((9000, Status::Timeout));
    ran(&site, "a", &runs);
    let advice = advice(&site, "a");
    assert_eq!(advice["times"], json!({ "median_ms": 100_000, "p95_ms": 190_000, "worst_ms": 200_000 }));
    assert_eq!(advice["unrenewed"], json!({ "ttl_ms": 400_000, "renew_every_ms": null }), "twice the worst");
    assert_eq!(advice["renewed"]["ttl_ms"], 100_000, "{advice}");
    let (ttl, every) = (advice["renewed"]["ttl_ms"].as_u64(), advice["renewed"]["renew_every_ms"].as_u64());
    assert_eq!(every, ttl.map(|ttl| ttl / 3));
    contains(&words(&advice), &["half took up to 1m40s", "the worst 3m20s", "With renewal", "Without renewal"]);
    contains(&words(&advice), &["never below 5m00s"]);
    contains(&site.say(&["advise"]).stdout, &["store   sqlite:", "\na\n", "  Of 20 runs"]);
}

#[test]
fn more_outcomes_than_the_record_holds_are_found_in_the_history() {
    let site = Site::new();
    ran(&site, "a", &[(10, Status::Ok); 60]);
    assert_eq!(advice(&site, "a")["runs"], 60);
}

#[test]
fn an_interval_that_is_too_tight_is_pointed_out() {
    for (every, is_tight, words_of) in [("10m", true, "too tight"), ("1h", false, "wide enough")] {
        let site = Site::new();
        site.say(&["run", "a", "--schedule", &format!("every {every}"), "--", "true"]);
        ran(&site, "a", &[(9 * 60, Status::Ok); 10]);
        let advice = advice(&site, "a");
        assert_eq!(advice["is_interval_too_tight"], is_tight, "{every}: {advice}");
        contains(&words(&advice), &[words_of]);
    }
}

#[test]
fn rates_are_held_against_what_a_healthy_job_sees() {
    let site = Site::new();
    ran(&site, "a", &[(10, Status::Ok); 10]);
    contains(&words(&advice(&site, "a")), &["0.0 % of its triggers were skipped", "0.0 % of its runs were halted"]);
    let holder = site.holder("a", &[]);
    for _ in 0..2 {
        assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    }
    holder.finish();
    ran(&site, "b", &[(10, Status::Ok), (1, Status::Halted), (10, Status::Ok), (10, Status::Ok), (10, Status::Ok)]);
    let a = advice(&site, "a");
    assert!(a["skip_rate"].as_f64().unwrap() > 0.1, "{a}");
    contains(&words(&a), &["skipped because a run was going; a healthy job sees up to 2.0 %", "--timeout"]);
    let b = advice(&site, "b");
    assert_eq!(b["halt_rate"], 0.2, "{b}");
    contains(&words(&b), &["20.0 % of its runs were halted by the barrier; a healthy job", "--needs-wait"]);
}

// What why says about slots.

fn utc(at: Wall) -> String {
    Zone::utc().show(at)
}

/// Every hour, the last slot half an hour ago.
fn hourly() -> (String, Wall) {
    let last = Wall(clock::now().wall.0 / 1000 * 1000 - 1_800_000);
    (format!("every 1h from {}", utc(Wall(last.0 - 9 * 3_600_000))), last)
}

fn why(site: &Site, arguments: &[&str]) -> (String, Vec<String>) {
    let told = site.json(&[&["why"], arguments].concat());
    let sentences = told["sentences"].as_array().unwrap();
    let about = sentences.iter().map(|sentence| sentence["about"].as_str().unwrap().to_string()).collect();
    (site.say(&[&["why"], arguments].concat()).stdout, about)
}

#[test]
fn why_begins_with_the_schedule() {
    let site = Site::new();
    let (schedule, _) = hourly();
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    let (text, about) = why(&site, &["a"]);
    assert_eq!(about[..2], ["schedule", "catch_up"], "{text}");
    contains(&text, &["By its schedule, every 1 hour", "the newest slot was ", "and the next is "]);
    contains(&text, &["is from before the job was first seen, resumed or edited: it is not caught up."]);
}

#[test]
fn why_says_what_was_caught_up_and_what_was_missed() {
    let site = Site::new();
    let (schedule, last) = hourly();
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    change(&site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), Some(Wall(last.0 - 5 * 3_600_000)));
    });
    let (text, _) = why(&site, &["a"]);
    contains(&text, &["is open: no trigger has come for it", "fencepost plan a"]);
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    let (text, about) = why(&site, &["a"]);
    contains(&text, &["triggered by the catch-up of a slot that was missed", "30m", "after its slot"]);
    contains(&text, &["Its trigger found 4 slots missed, from ", "too late to be caught up."]);
    assert!(about.contains(&"catch_up".to_string()), "{about:?}");
    // The missed ones by themselves.
    let (text, _) = why(&site, &["a", "--at", &utc(Wall(last.0 - 2 * 3_600_000))]);
    contains(&text, &["missed"]);
}

#[test]
fn why_says_which_run_was_in_the_way() {
    let site = Site::new();
    let (schedule, last) = hourly();
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    site.say(&["run", "a", "--slot", &utc(Wall(last.0 - 3_600_000)), "--", "true"]);
    change(&site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), Some(Wall(last.0 - 3_600_000)));
        let run = record.ledger.ring.last_mut().unwrap();
        (run.started, run.finished) = (Wall(last.0 - 3_600_000), Wall(last.0 + 60_000));
    });
    let (text, about) = why(&site, &["a"]);
    contains(&text, &[" passed while run ", " was going, for ", "and that is final."]);
    assert_eq!(about[..2], ["schedule", "overlap"]);
}

#[test]
fn why_counts_the_triggers_that_were_waved_off() {
    let site = Site::new();
    let slot = ["run", "a", "--slot", "2026-11-05T07:00Z", "--", "true"];
    (0..3).for_each(|_| assert_eq!(site.say(&slot).code, 0));
    let holder = site.holder("a", &[]);
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    let (text, about) = why(&site, &["a"]);
    contains(&text, &["So far 2 of its triggers found the slot done already, or a run at it"]);
    contains(&text, &["So far 1 of its triggers came while a run for another slot was going"]);
    assert!(about.ends_with(&["duplicate".to_string(), "overlap".to_string()]), "{about:?}");
    holder.finish();
}
