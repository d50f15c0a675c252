//! How soon a change is seen.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use fencepost_testkit::eventually;

use super::{Served, add_token, request, token_file};
use crate::common::Site;

/// A page of a file of this host shows a change within this time.
const PROMPT: Duration = Duration::from_secs(1);

#[test]
fn a_page_after_an_action_or_an_event_comes_at_once() {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let token = add_token(&site, "laptop");
    let served = Served::of(&site, &["--token-file", &token_file(&site), "--allow-actions"]);
    let mut viewer = served.connect();
    viewer.write_all(request(served.port, "GET", "/api/v1/events", &[], "").as_bytes()).unwrap();
    let mut events = BufReader::new(viewer).lines().map(Result::unwrap);
    let is_paused = || served.get("/api/v1/jobs/j").json()["jobs"][0]["paused"].is_object();
    let (mut after_action, mut after_event) = (Vec::new(), Vec::new());
    for (action, paused) in [("pause", true), ("resume", false)].repeat(2) {
        assert_eq!(served.post_as(&token, &format!("/api/v1/jobs/j/{action}"), "").status, 200);
        let asked = Instant::now();
        assert_eq!(is_paused(), paused, "{action}");
        after_action.push(asked.elapsed());
        assert!(events.any(|line| line == "event: board"));
        let asked = Instant::now();
        assert_eq!(is_paused(), paused, "the event");
        after_event.push(asked.elapsed());
    }
    // A busy machine makes single looks longer, and with them the rest between two.
    for took in [after_action, after_event] {
        assert!(took.iter().min().is_some_and(|least| *least < PROMPT), "{took:?}");
    }
}

#[test]
fn a_change_of_a_shared_directory_is_seen_in_the_promised_time() {
    let site = Site::new();
    let url = format!("dir:{}", site.path("shared").display());
    assert_eq!(site.say(&["--store", &url, "run", "j", "--", "true"]).code, 0);
    let token = add_token(&site, "laptop");
    let served = Served::of(&site, &["--store", &url, "--token-file", &token_file(&site), "--allow-actions"]);
    let status = || served.get("/api/v1/jobs/j").json()["jobs"][0].clone();
    assert_eq!(status()["last"]["status"], "ok");
    assert_eq!(served.post_as(&token, "/api/v1/jobs/j/pause", "").status, 200);
    eventually("the action is seen", || status()["paused"].is_object());
    assert_eq!(site.say(&["--store", &url, "resume", "j"]).code, 0);
    let changed = Instant::now();
    eventually("the change is seen", || !status()["paused"].is_object());
    // Each 5 s, and one look.
    assert!(changed.elapsed() < Duration::from_secs(10), "{:?}", changed.elapsed());
}

#[test]
fn the_timeline_has_the_runs_that_have_left_the_record() {
    let site = Site::new();
    let run = || assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    (0..60).for_each(|_| run());
    let served = Served::of(&site, &[]);
    for address in ["/timeline", "/timeline?range=week"] {
        let page = served.get(address).body;
        assert!(page.contains(": 60 attempts on ") && !page.contains("Older runs: "), "{page}");
    }
    run();
    eventually("the new run is on the timeline", || served.get("/timeline").body.contains(": 61 attempts on "));
    assert_eq!(served.get("/api/v1/jobs/j/runs?limit=100").json()["runs"].as_array().map(Vec::len), Some(61));
}
