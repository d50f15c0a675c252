//! Actions: run now, pause, resume, release.

use fencepost_testkit::eventually;

use super::{Served, add_token, json, token_file};
use crate::desk::Desk;

const JOBS: &str = "[job.report]
schedule = '@daily'
command = 'echo made'
[job.idle]
schedule = '@daily'
[job.'a/b']
command = 'sleep 100'
";

fn started(options: &[&str]) -> (Desk, String, Served) {
    let desk = Desk::configured(JOBS);
    let token = add_token(&desk.site, "laptop");
    let file = token_file(&desk.site);
    let served = Served::of_desk(&desk, &[&["--token-file", &file], options].concat());
    (desk, token, served)
}

#[test]
fn each_is_the_verb_and_is_recorded_with_the_clients_name() {
    let (desk, token, served) = started(&["--allow-actions"]);
    let post = |path: &str, form: &str| served.post_as(&token, &format!("/api/v1/jobs/{path}"), form);
    let ran = post("report/run_now", "");
    assert_eq!((ran.status, &ran.json()["state"]), (200, &"ended".into()), "{ran:?}");
    assert_eq!(served.get("/api/v1/jobs/report").json()["jobs"][0]["last"]["status"], "ok");
    let paused = post("report/pause", "for=2h&note=disk+full");
    assert_eq!((paused.status, &paused.json()["paused"]), (200, &true.into()), "{paused:?}");
    let status = served.get("/api/v1/jobs/report").json();
    assert_eq!(status["jobs"][0]["paused"]["note"], "disk full (by laptop)");
    assert_eq!(post("report/resume", "").status, 200);
    assert_eq!(json(&desk, &["status", "report"])["jobs"][0]["state"], "free");
    let record = std::fs::read_to_string(desk.site.state().join("serve-actions.jsonl")).unwrap();
    let actions: Vec<serde_json::Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        actions.iter().map(|line| line["action"].as_str().unwrap()).collect::<Vec<_>>(),
        ["run_now", "pause", "resume"]
    );
    assert!(actions.iter().all(|line| line["client"] == "laptop" && line["at"].is_string() && line["job"] == "report"));
}

#[test]
fn a_run_that_goes_on_is_released_and_a_second_one_is_held() {
    let (_desk, token, served) = started(&["--allow-actions"]);
    let post = |path: &str| served.post_as(&token, &format!("/api/v1/jobs/{path}"), "");
    let ran = post("a%2Fb/run_now");
    assert_eq!((ran.status, &ran.json()["state"]), (200, &"running".into()), "{ran:?}");
    assert_eq!(post("a%2Fb/run_now").status, 409);
    assert_eq!(post("a%2Fb/release").status, 200);
    eventually("the run is stopped", || served.get("/api/v1/jobs/a%2Fb").json()["jobs"][0]["state"] != "running");
}

#[test]
fn what_is_not_allowed_is_refused() {
    let (desk, token, served) = started(&["--allow-actions"]);
    let post = |path: &str, form: &str| served.post_as(&token, &format!("/api/v1/jobs/{path}"), form).status;
    assert_eq!(post("idle/run_now", ""), 403, "it has no command");
    assert_eq!(post("none/pause", ""), 404);
    assert_eq!(post("report/pause", "for=nonsense"), 400);
    assert_eq!(post("report/pause", "x=1"), 400);
    assert_eq!(post("report/explode", ""), 404);
    assert_eq!(served.ask("POST", "/api/v1/jobs/report/pause", &[], "").status, 401);
    assert_eq!(served.get("/api/v1/jobs/report/pause").status, 405);
    drop(served);
    let reading = Served::of_desk(&desk, &["--token-file", &token_file(&desk.site)]);
    assert_eq!(reading.post_as(&token, "/api/v1/jobs/report/pause", "").status, 403);
    assert_eq!(json(&desk, &["status", "report"])["jobs"][0]["paused"], serde_json::Value::Null);
}
