//! Leases that are lost, or that the program is asked to give up.

use fencepost_testkit::process::{is_stopped, send};
use fencepost_testkit::{Stopwatch, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{Client, said};
use crate::common::{Holder, Site};

#[test]
fn a_session_that_was_stopped_past_its_deadline_says_that_the_lease_is_lost() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, granted) = client.claim(json!({ "job": "j", "ttl": "1s" }));
    let file = site.path("page").display().to_string();
    let write = json!({ "claim": claim, "kind": "file", "path": file, "data": "stale" });
    send(client.pid(), Signal::SIGSTOP);
    eventually("it is stopped", || is_stopped(client.pid()));
    let said_by_other = site.say(&["lease", "acquire", "j", "--ttl", "1h", "-w", "5m"]);
    let other: u64 = said_by_other.stdout.trim().parse().unwrap();
    assert!(Some(other) > granted["token"].as_u64());
    let written = site.shell(&format!("echo new | $BINARY publish file {file} --job j --token {other}"));
    assert_eq!(written.code, 0, "{written:?}");
    send(client.pid(), Signal::SIGCONT);
    let lost = client.event("lost");
    assert_eq!((&lost["claim"], &lost["reason"]), (&json!(claim), &json!("deadline")));
    for (request, fields) in [
        ("publish", write),
        ("judge", json!({ "claim": claim, "resource": "sql:x" })),
        ("record", json!({ "claim": claim, "outcome": "ok" })),
        ("gate", json!({ "claim": claim, "upstreams": ["j@any"] })),
        ("release", json!({ "claim": claim, "outcome": "ok" })),
    ] {
        let refused = client.ask(request, fields);
        assert_eq!((said(&refused), &refused["code"]), (("error", "lost"), &json!(12)), "{request}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
    let shown = site.json(&["lease", "show", "j"]);
    assert_eq!((&shown["token"], &shown["held"]), (&json!(other), &json!(true)), "the other lease is not touched");
    let lost_run = site.runs(&["j"]).into_iter().find(|run| run["token"] == granted["token"]);
    assert_eq!(lost_run.expect("it is recorded")["status"], "lost");
    assert_eq!(said(&client.ask("claim", json!({ "job": "j" }))), ("skipped", "held"), "the session goes on");
}

#[test]
fn a_write_under_a_token_that_is_not_known_to_be_stale_is_refused_by_the_fence() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, _) = client.claim(json!({ "job": "j", "ttl": "1h" }));
    let file = site.path("page").display().to_string();
    let write = json!({ "claim": claim, "kind": "file", "path": file, "data": "content" });
    assert_eq!(client.ask("publish", write.clone())["answer"], "published");
    // The next renewal is twenty minutes away, so the session does not know yet.
    assert_eq!(site.say(&["lease", "release", "j", "--force"]).code, 0);
    assert_eq!(site.say(&["lease", "acquire", "j", "--ttl", "1h"]).code, 0);
    let refused = client.ask("publish", write);
    assert_eq!((said(&refused), &refused["code"]), (("error", "stale"), &json!(13)));
    let released = client.ask("release", json!({ "claim": claim, "outcome": "ok" }));
    assert_eq!((said(&released), &released["code"]), (("error", "fenced"), &json!(13)), "{released}");
}

#[test]
fn a_run_that_replaces_it_asks_the_program_to_stop() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, _) = client.claim(json!({ "job": "j", "ttl": "2s" }));
    let replacer = std::thread::scope(|scope| {
        let other = scope.spawn(|| site.say(&["run", "j", "--overlap", "replace", "--", "echo", "next"]));
        let stop = client.event("stop");
        assert_eq!((&stop["claim"], &stop["reason"]), (&json!(claim), &json!("replaced")));
        let released = client.ask("release", json!({ "claim": claim, "outcome": "ok" }));
        assert_eq!((said(&released), &released["status"]), (("released", "lost"), &json!("lost")));
        other.join().unwrap()
    });
    assert_eq!((replacer.code, replacer.stdout.as_str()), (0, "next\n"));
}

#[test]
fn a_program_that_hangs_does_not_hold_its_lease_for_ever() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, granted) = client.claim(json!({ "job": "j", "ttl": "1s", "timeout": "200ms" }));
    assert_eq!(client.event("stop")["reason"], "timeout");
    assert_eq!(client.event("lost")["reason"], "not_stopped");
    assert_eq!(said(&client.ask("release", json!({ "claim": claim, "outcome": "ok" }))), ("error", "lost"));
    eventually("the timeout is recorded", || site.runs(&["j"])[0]["status"] == "timeout");
    assert_eq!(site.json(&["lease", "show", "j"])["token"], granted["token"]);
    assert_eq!(site.say(&["lease", "acquire", "j", "-w", "5m"]).code, 0, "the lease ends by its ttl");
}

#[test]
fn the_end_of_input_leaves_the_lease_to_its_ttl() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (_, granted) = client.claim(json!({ "job": "j", "ttl": "2s" }));
    let begun = Stopwatch::start();
    assert_eq!(client.close(), 0);
    let shown = site.json(&["lease", "show", "j"]);
    if begun.elapsed().as_secs() < 1 {
        assert_eq!((&shown["held"], &shown["token"]), (&json!(true), &granted["token"]), "it is not released");
    }
    let runs = || site.runs(&["j"]);
    assert_eq!(runs()[0]["status"], "running");
    assert_eq!(site.say(&["run", "j", "-w", "5m", "--", "true"]).code, 0);
    assert_eq!(runs()[1]["status"], "lost");
}

#[test]
fn a_killed_session_leaves_the_lease_to_its_ttl() {
    let site = Site::new();
    let mut client = Client::of(&site);
    client.claim(json!({ "job": "j", "ttl": "1s" }));
    send(client.pid(), Signal::SIGKILL);
    client.child.wait().unwrap();
    let mut next = Holder::start(site.command(&["run", "j", "-w", "5m", "-c", "echo on; exec cat >/dev/null"]));
    assert!(next.is_running());
    assert_eq!(next.finish().code, 0);
}

#[test]
fn a_stalled_reader_does_not_stop_the_renewals() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, granted) = client.claim(json!({ "job": "j", "ttl": "1s" }));
    // More answers than a pipe holds, which are not read.
    let asked: Vec<u64> = (0..4000).map(|_| client.send("hello", json!({}))).collect();
    let begun = Stopwatch::start();
    eventually("three times the ttl has passed", || begun.elapsed().as_secs() >= 3);
    let shown = site.json(&["lease", "show", "j"]);
    assert_eq!((&shown["held"], &shown["token"]), (&json!(true), &granted["token"]));
    for id in asked {
        assert_eq!(client.answer(&json!(id))["answer"], "hello");
    }
    assert_eq!(client.ask("release", json!({ "claim": claim, "outcome": "ok" }))["status"], "ok");
    assert!(client.events.iter().all(|event| event["event"] != "lost"));
}
