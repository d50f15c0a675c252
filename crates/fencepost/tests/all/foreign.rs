//! Text from a store, a job or another host: printed without what a terminal would obey. A damaged record hides no other.

use std::fs;

use crate::common::{Site, contains};
use crate::desk::Desk;
use crate::ledger::{Past, ended};
use fencepost_core::fence::Level;
use fencepost_core::lease::Intent;
use fencepost_core::ledger::{Barred, Ending, Status};
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::said::Published;
use fencepost_core::time::Wall;
use fencepost_core::token::{RunId, Token};
use fencepost_store::{SqliteStore, Store};
use serde_json::Value;

const EVIL: &str = "e\x1b]0;x\x07v\u{202e}i\u{9b}2Jl\nnext line";

#[track_caller]
fn is_harmless(text: &str) {
    let is_obeyed = |c: char| (c.is_control() && c != '\n' && c != '\t') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(is_obeyed), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("next line")), "a foreign line break starts no line: {text:?}");
}

/// A site whose record of the job `j` holds hostile text wherever another host, job or store can put it.
fn hostile() -> Site {
    let site = Site::new();
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    let past = Past::of(&site, "j", "UTC");
    let barred = vec![Barred { job: EVIL.to_string(), halt: true, reason: EVIL.to_string() }];
    let note = Some(EVIL.to_string());
    past.record("2026-08-01T07:00", Ending { barred, note, ..ended(Status::Halted) });
    let token = Token::new(7).unwrap();
    past.intend(Intent::NotePublish(Published {
        resource: EVIL.to_string(),
        kind: EVIL.to_string(),
        level: Level::Atomic,
        token,
        run: RunId(uuid::Uuid::now_v7()),
        at: Wall(0),
        seen: token,
        refused: Some(EVIL.to_string()),
    }));
    assert_eq!(site.say(&["pause", "j", "--note", EVIL]).code, 0);
    site
}

#[test]
fn nothing_from_a_store_makes_a_terminal_obey() {
    let site = hostile();
    for arguments in [
        &["status"][..],
        &["status", "j"],
        &["status", "--format", "prom"],
        &["runs"],
        &["why", "j"],
        &["run", "j", "-v", "--", "true"],
        &["advise"],
        &["overdue"],
        &["plan", "j"],
    ] {
        let said = site.say(arguments);
        is_harmless(&said.stdout);
        is_harmless(&said.stderr);
    }
    contains(&site.say(&["status"]).stdout, &["e ]0;x v i 2Jl next line"]);
    // Programs get the same text, escaped.
    let said = site.say(&["status", "--json"]);
    is_harmless(&said.stdout);
    let status: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(status["resources"][0]["resource"], EVIL);
}

#[test]
fn nothing_that_was_typed_or_that_a_job_left_makes_a_terminal_obey() {
    let site = Site::new();
    for arguments in [
        &["run", "--bad\x1b]0;x\x07\u{202e}"][..],
        &["x\x1b[2Jy"],
        &["run", "j", "x\x1b[2Jy"],
        &["status", "e\u{9b}2J"],
    ] {
        let said = site.say(arguments);
        assert_ne!(said.code, 0, "{said:?}");
        is_harmless(&said.stderr);
        is_harmless(&site.say(&[&["--json"], arguments].concat()).stdout);
    }
    // A process that the job leaves behind, under a name of its own choice.
    let script = "cp /bin/sleep \"$1\" && \"$1\" 600 & until [ -e \"$1\" ]; do sleep 0.01; done; sleep 0.3";
    let program = site.path("a\x1b[2Jb");
    let said = site.say(&["run", "j", "--", "sh", "-c", script, "sh", program.to_str().unwrap()]);
    is_harmless(&said.stderr);
    contains(&said.stderr, &["left 1 process running: "]);
}

/// Damages what stands under a key.
fn damage(site: &Site, key: &Key) {
    let store = SqliteStore::open(&site.database()).unwrap();
    let entry = store.read(key).unwrap().value.unwrap();
    store.swap(key, Some(&entry.version), Some(b"not a record")).unwrap();
}

#[test]
fn one_unreadable_record_hides_no_other() {
    let desk =
        Desk::configured("[job.good]\nevery = '1h'\ncommand = 'true'\n[job.bad]\nevery = '1h'\ncommand = 'true'\n");
    let site = &desk.site;
    for job in ["good", "bad"] {
        assert_eq!(site.say(&["run", job, "--", "true"]).code, 0);
    }
    let bad = Job::shared(Name::new("bad").unwrap());
    damage(site, &Key::job(&bad));
    for (arguments, part) in [
        (&["status"][..], "good"),
        (&["status", "--json"], "\"job\":\"good\""),
        (&["status", "--format", "prom"], "fencepost_unreadable_records{} 1\n"),
        (&["status", "--format", "prom"], "fencepost_held{job_name=\"good\"} 0\n"),
        (&["runs"], "good"),
        (&["runs", "--json"], "\"job\":\"good\""),
        (&["advise"], "good"),
        (&["advise", "--json"], "\"job\":\"good\""),
        (&["overdue"], ""),
    ] {
        let said = site.say(arguments);
        assert_eq!(said.code, 125, "{arguments:?}: {said:?}");
        contains(&said.stdout, &[part]);
        contains(&said.stderr, &["Cannot read the record under ", "bad", ". Everything else is shown."]);
        assert!(!arguments.contains(&"--json") || said.stdout.contains("Cannot read the record"), "{said:?}");
    }
    for verb in ["status", "runs"] {
        let said = site.say(&[verb, "bad"]);
        assert_eq!(said.code, 125, "{said:?}");
        assert!(!said.stdout.contains("never run") && !said.stdout.contains("No runs"), "{said:?}");
    }
    // By the configuration, and into a file.
    assert_eq!(desk.say(&["overdue"]).code, 125);
    let file = site.path("x.prom");
    assert_eq!(site.say(&["status", "--format", "prom", "-o", file.to_str().unwrap()]).code, 125);
    contains(&fs::read_to_string(file).unwrap(), &["{job_name=\"good\"}"]);
    // A job's own record is still an error for the verbs that need it.
    assert_eq!(site.say(&["run", "bad", "--", "true"]).code, 125);
    assert_eq!(site.say(&["run", "good", "--", "true"]).code, 0);
}

#[test]
fn unreadable_skips_hide_no_job() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    assert_eq!(holder.finish().code, 0);
    damage(&site, &Key::skips(&Job::shared(Name::new("j").unwrap())));
    for arguments in [&["status"][..], &["advise"]] {
        let said = site.say(arguments);
        assert_eq!(said.code, 125, "{said:?}");
        contains(&said.stdout, &["j"]);
        contains(&said.stderr, &["Cannot read the skips of j"]);
    }
}
