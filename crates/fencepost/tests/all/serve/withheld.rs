//! Without a token nothing of the configuration's contents is told, not even by a mistake in it.

use std::io::{BufRead, BufReader, Write};

use fencepost_testkit::eventually;

use super::{Served, add_token, request, token_file};
use crate::desk::Desk;

/// Each mistake quotes its value.
const JOBS: &str = "[job.good]
schedule = '@daily'
command = 'true'
[job.bad]
schedule = '@daily'
ttl = 's3cret-of-ttl'
command = 'true'
[job.worse]
schedule = 's3cret-of-schedule'
command = 'echo s3cret-of-command'
";

const PLACES: [&str; 22] = [
    "/",
    "/timeline",
    "/graph",
    "/fences",
    "/stores",
    "/jobs/good",
    "/jobs/bad",
    "/jobs/worse",
    "/metrics",
    "/status/bad",
    "/status/worse",
    "/api/v1/status",
    "/api/v1/overdue",
    "/api/v1/graph",
    "/api/v1/store",
    "/api/v1/jobs/bad",
    "/api/v1/jobs/bad/why",
    "/api/v1/jobs/bad/plan",
    "/api/v1/jobs/bad/runs",
    "/api/v1/jobs/bad/advise",
    "/api/v1/jobs/worse/plan",
    "/api/v1/jobs/good/plan",
];

fn nothing_is_told(served: &Served) {
    for path in PLACES {
        let reply = served.get(path);
        assert!(!reply.body.contains("s3cret") && !reply.head.contains("s3cret"), "{path}: {reply:?}");
    }
}

#[test]
fn a_mistake_is_named_by_its_place_only() {
    let desk = Desk::configured(JOBS);
    desk.say(&["run", "good", "--now"]);
    assert!(desk.say(&["status", "--json"]).stdout.contains("s3cret-of-ttl"), "the verb itself quotes it");
    let token = add_token(&desk.site, "laptop");
    let served = Served::of_desk(&desk, &["--token-file", &token_file(&desk.site)]);
    nothing_is_told(&served);
    let status = served.get("/api/v1/status").json();
    let mistake = &status["broken"][0]["mistakes"][0];
    assert_eq!((&status["broken"][0]["job"], &mistake["line"]), (&"bad".into(), &6.into()), "{status}");
    assert!(mistake["message"].as_str().unwrap().contains("without a token"), "{mistake}");
    assert!(served.get_as(&token, "/api/v1/jobs/bad/why").body.contains("s3cret-of-ttl"));

    // The whole file is wrong from now on. Who listens to events is told no more than who asks.
    let mut events = served.connect();
    events.write_all(request(served.port, "GET", "/api/v1/events", &[], "").as_bytes()).unwrap();
    let mut lines = BufReader::new(events).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("id: ")).unwrap();
    for text in ["timezone = 's3cret/zone'\n", "store = s3cret\n", "[job.good]\nx = 's3cret-of-x\n"] {
        desk.write("fencepost.toml", &format!("{text}{JOBS}"));
        eventually("it is noticed", || served.get("/api/v1/status").status == 503);
        nothing_is_told(&served);
        desk.write("fencepost.toml", JOBS);
        eventually("it is read again", || served.get("/api/v1/status").status == 200);
    }
    let told = lines.find(|line| line.starts_with("data: {\"message\"")).unwrap();
    assert!(told.contains("fencepost.toml") && !told.contains("s3cret"), "{told}");
}

#[test]
fn a_caller_with_a_token_is_told_everything_where_each_needs_one() {
    let desk = Desk::configured(JOBS);
    let token = add_token(&desk.site, "laptop");
    let file = token_file(&desk.site);
    let served = Served::of_desk(&desk, &["--token-file", &file, "--behind-proxy", "--public-host", "127.0.0.1"]);
    assert!(served.get_as(&token, "/api/v1/status").body.contains("s3cret-of-ttl"));
    let refused = served.get("/api/v1/status");
    assert!(refused.status == 401 && !refused.body.contains("s3cret"), "{refused:?}");
}
