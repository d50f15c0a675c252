//! `fencepost why`: the chain of decisions for a slot, in plain sentences.

use std::fs;

use crate::common::{Said, Site, contains, keys, sorted};
use crate::ledger::{Past, ended};
use fencepost_core::ledger::{Covered, Ending, Status};
use serde_json::json;

const WHY: &str = "v job slot date timezone status sentences attempts";

fn why(site: &Site, arguments: &[&str]) -> String {
    let said = site.say(&[&["why"], arguments].concat());
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    said.stdout
}

#[test]
fn a_good_run_is_explained_from_its_trigger_to_what_it_left() {
    let site = Site::new();
    let file = site.path("reference.md");
    let file = file.to_str().unwrap();
    let made = format!("echo hello > {file}");
    assert_eq!(site.say(&["run", "reference", "--produces", file, "-c", &made]).code, 0);
    let need = format!("reference@any,artifact={file}");
    assert_eq!(site.say(&["run", "article", "--tz", "Asia/Tokyo", "--needs", &need, "--", "true"]).code, 0);

    let text = why(&site, &["reference"]);
    contains(&text, &["store   sqlite:", "The newest recorded slot of reference is ", "(UTC); it belongs to the day "]);
    contains(&text, &["Attempt 1 was triggered by a direct call at ", "under token ", "exit code 0"]);
    contains(&text, &["It left ", "(6 bytes, SHA-256 5891b5b522d5…).", "It ended as ok at ", "So the slot is done"]);

    let text = why(&site, &["article"]);
    contains(&text, &["(Asia/Tokyo)", "The barrier let it through on reference: run ", "SHA-256 5891b5b522d5…"]);

    fs::write(file, "something else").unwrap();
    assert_eq!(site.say(&["run", "article", "--tz", "Asia/Tokyo", "--needs", &need, "--", "true"]).code, 115);
    let text = why(&site, &["article"]);
    contains(
        &text,
        &["The barrier halted it, and nothing was run: ", "is not what reference left", "It ended as halted"],
    );
    contains(&text, &["the next trigger asks the upstreams again", "The last good run was for "]);
}

#[test]
fn a_failure_says_what_the_job_said_and_what_follows() {
    let site = Site::new();
    site.say(&[
        "run",
        "j",
        "-c",
        r#"$BINARY record error --note 'no
        disk'; exit 3"#,
    ]);
    let text = why(&site, &["j"]);
    contains(
        &text,
        &["The job said: no disk.", "ended with exit code 3;", "It ended as error", "j has never ended well."],
    );
    contains(&text, &["jobs that need it halt. The next trigger runs it again."]);
    site.say(&["run", "j", "-c", "kill -9 $$"]);
    contains(&why(&site, &["j"]), &["exit code 137 (signal 9)"]);
    site.say(&["run", "j", "--empty-exit", "75", "-c", "exit 75"]);
    contains(&why(&site, &["j"]), &["It ended as empty", "there was nothing", "no failure"]);
}

#[test]
fn a_run_that_is_going_one_that_died_and_one_that_took_over() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    let (pid, token) = (holder.pid(), holder.token());
    let text = why(&site, &["j"]);
    contains(
        &text,
        &["is running under token", &token.to_string(), &format!("(pid {pid})"), "not known yet how it ends"],
    );
    holder.kill();
    let text = why(&site, &["j"]);
    contains(&text, &["did not end properly", "the next trigger takes over"]);
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    contains(
        &why(&site, &["j"]),
        &["It took over from run ", "did not end properly: its processes died.", "ended as ok"],
    );
    let lost = site.runs(&["--status", "lost"]).remove(0);
    let text = why(&site, &["j", "--at", lost["slot"].as_str().unwrap()]);
    contains(&text, &["fencepost noted: its processes died; run ", "It ended as lost", "Since then it was good again"]);

    let token = site.say(&["lease", "acquire", "j"]).stdout;
    contains(&why(&site, &["j"]), &["At present its lease is held by ", "(by hand)"]);
    site.say(&["lease", "release", "j", "--token", token.trim()]);
    site.say(&["pause", "j"]);
    contains(&why(&site, &["j"]), &["It is paused since "]);
}

#[test]
fn a_slot_is_found_by_a_day_or_a_time_in_the_record_and_in_the_history() {
    let site = Site::new();
    let past = Past::of(&site, "j", "Asia/Tokyo");
    for day in 1..=31 {
        for hour in ["07", "23"] {
            let note = Some(format!("note of {day} {hour}"));
            past.record(&format!("2026-07-{day:02}T{hour}:30"), Ending { note, ..ended(Status::Error) });
        }
    }
    past.record("2026-07-03T23:30", ended(Status::Ok));
    assert!(past.history() > 0);
    let slot = |at: &str| site.json(&["why", "j", "--at", at])["slot"].as_str().unwrap().to_string();
    assert_eq!(slot("2026-07-03"), "2026-07-03T23:30:00+09:00");
    assert_eq!(slot("2026-07-03T12:00"), "2026-07-03T07:30:00+09:00");
    assert_eq!(slot("2026-07-03T14:30:00Z"), "2026-07-03T23:30:00+09:00");
    assert_eq!(slot("2026-07-03T14:29:59Z"), "2026-07-03T07:30:00+09:00");
    assert_eq!(slot("2026-07-31"), "2026-07-31T23:30:00+09:00");
    assert_eq!(slot("2030-01-01"), "2026-07-31T23:30:00+09:00");
    let json = site.json(&["why", "j", "--at", "2026-07-03", "--tz", "UTC"]);
    assert_eq!(json["slot"], "2026-07-04T07:30:00+09:00", "which is 22:30 of the day before in UTC");

    let json = site.json(&["why", "j", "--at", "2026-07-03"]);
    assert_eq!(keys(&json), sorted(WHY));
    assert_eq!(
        (&json["date"], &json["timezone"], &json["status"]),
        (&json!("2026-07-03"), &json!("Asia/Tokyo"), &json!("ok"))
    );
    let attempts: Vec<_> =
        json["attempts"].as_array().unwrap().iter().map(|attempt| attempt["status"].clone()).collect();
    assert_eq!(attempts, ["error", "ok"], "both attempts, in order");
    assert_eq!(keys(&json["sentences"][0]), ["about", "text"]);
    let text = why(&site, &["j", "--at", "2026-07-03"]);
    contains(&text, &["at or before the end of 2026-07-03 (Asia/Tokyo)", "Attempt 1 was triggered", "by its schedule"]);
    contains(&text, &["note of 3 23.", "Attempt 2 was triggered", "after its slot", "It ended as ok"]);
}

#[test]
fn what_was_never_recorded_is_said_to_be_so() {
    let site = Site::new();
    let past = Past::of(&site, "j", "Asia/Tokyo");
    past.record("2026-07-03T07:30", ended(Status::Ok));
    let text = why(&site, &["j", "--at", "2026-07-05"]);
    contains(&text, &["Nothing is recorded of j for 2026-07-05 (Asia/Tokyo)", "is 2026-07-03 07:30 (Asia/Tokyo)"]);
    let text = why(&site, &["j", "--at", "2026-07-02"]);
    contains(
        &text,
        &["Nothing is recorded of j at or before the end of 2026-07-02", "The last good run was for 2026-07-03 07:30"],
    );
    let json = site.json(&["why", "j", "--at", "2026-07-02"]);
    assert_eq!((&json["slot"], &json["status"], &json["attempts"]), (&json!(null), &json!(null), &json!([])));
}

#[test]
fn one_line_may_stand_for_several_slots() {
    let site = Site::new();
    let past = Past::of(&site, "j", "Asia/Tokyo");
    past.record("2026-08-05T07:00", ended(Status::Missed));
    let covers = Covered { from: past.at("2026-08-02T07:00"), to: past.at("2026-08-05T07:00"), count: 4 };
    past.change_last(|outcome| outcome.covers = Some(covers));
    for arguments in [&["j"][..], &["j", "--at", "2026-08-05"], &["j", "--at", "2026-08-03"]] {
        let text = why(&site, arguments);
        contains(
            &text,
            &["found that it was missed", "stands for 4 slots, from 2026-08-02 07:00", "jobs that need it halt"],
        );
    }
    contains(&why(&site, &["j", "--at", "2026-08-01"]), &["Nothing is recorded of j at or before"]);
}

#[test]
fn a_long_note_and_many_artifacts_are_told_in_full() {
    let site = Site::new();
    let script = format!(
        "mkdir d; for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > d/$i; done; $BINARY record ok --note '{} end'",
        "x".repeat(600)
    );
    let mut command = site.command(&["run", "j", "--produces", "d/*", "-c", &script]);
    let said = Said::of(command.current_dir(site.path("")).output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    contains(&why(&site, &["j"]), &["xxx end.", "and 2 more"]);
    assert_eq!(site.json(&["why", "j"])["attempts"][0]["artifacts"].as_array().map(Vec::len), Some(10));
}

#[test]
fn a_name_that_nobody_knows_is_a_mistake_and_the_nearest_is_named() {
    let site = Site::new();
    site.say(&["run", "reference", "--", "true"]);
    let said = site.say(&["why", "referense"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["No job referense is known: ", "it has never run on sqlite:", "Did you mean reference?"]);
    let said = site.say(&["why", "something"]);
    assert_eq!(said.code, 2);
    assert!(!said.stderr.contains("Did you mean"), "{said:?}");
    let said = site.say(&["why", "reference", "--at", "noon"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["--at", "2026-03-08"]);

    fs::write(site.path("fencepost.toml"), "[job.article]\ncommand = 'true'\n").unwrap();
    let config = site.path("fencepost.toml");
    let said = site.say(&["why", "article", "--config", config.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["article is a job of ", "never run on this store"]);

    site.say(&["run", "own", "--per-host", "--", "true"]);
    contains(&why(&site, &["own"]), &["The newest recorded slot of own@"]);
}
