//! What is answered: the verbs' own answers, unchanged.

use std::process::Command;

use fencepost_testkit::eventually;

use super::{Served, add_token, json, token_file};
use crate::common::{Said, Site};
use crate::desk::Desk;
use crate::prometheus;
use crate::schema::validator::Validator;

const JOBS: &str = "timezone = 'Asia/Tokyo'
[job.report]
schedule = '@daily'
needs = ['feed/in']
command = 'echo made'
[job.'feed/in']
schedule = '@hourly'
command = 'exit 3'
[job.noisy]
command = 'echo s3cret-output; exit 4'
";

fn desk() -> Desk {
    let desk = Desk::configured(JOBS);
    desk.say(&["run", "feed/in", "--now"]);
    desk
}

#[test]
fn answers_are_those_of_the_verbs() {
    let desk = desk();
    let served = Served::of_desk(&desk, &[]);
    let schema = desk.site.say(&["schema"]).stdout;
    let validator = Validator::new(serde_json::from_str(&schema).unwrap());
    for (path, verb, answer) in [
        ("/api/v1/status", &["status"][..], "status"),
        ("/api/v1/jobs/feed%2Fin", &["status", "feed/in"], "status"),
        ("/api/v1/jobs/feed%2Fin/why", &["why", "feed/in"], "why"),
        ("/api/v1/jobs/report/plan", &["plan", "report"], "plan"),
        ("/api/v1/jobs/feed%2Fin/advise", &["advise", "feed/in"], "advise"),
        ("/api/v1/overdue", &["overdue"], "overdue"),
    ] {
        let reply = served.get(path);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{path}: {reply:?}");
        let found = reply.json();
        validator.check(answer, &found);
        let mut told = json(&desk, verb);
        if answer == "why" {
            // Without a token nothing is told of what a job printed.
            told.as_object_mut().unwrap().remove("last_output");
            let sentences = told["sentences"].as_array_mut().unwrap();
            sentences.retain(|sentence| sentence["about"] != "output");
        }
        assert_eq!(found, told, "{path}");
    }
    let runs = served.get("/api/v1/jobs/feed%2Fin/runs").json();
    validator.check("runs, as one object", &runs);
    assert_eq!(runs["runs"][0], desk.site.runs(&["feed/in"])[0]);
    let graph = served.get("/api/v1/graph").json();
    validator.check("graph", &graph);
    assert_eq!(graph["edges"][0]["upstream"], "feed/in");
}

#[test]
fn a_configuration_that_is_not_that_of_the_last_good_run_says_so() {
    let desk = Desk::configured("[job.j]\ncommand = 'true'\n");
    assert_eq!(desk.say(&["run", "j"]).code, 0);
    let token = add_token(&desk.site, "laptop");
    let served = Served::of_desk(&desk, &["--token-file", &token_file(&desk.site)]);
    let page = || served.get_as(&token, "/jobs/j").body;
    assert!(!page().contains("Changed since"), "{}", page());
    desk.write("fencepost.toml", "[job.j]\ncommand = 'true; true'\n");
    assert!(page().contains("Changed since: j has another value of command than at the last good run"), "{}", page());
    assert!(!served.get("/jobs/j").body.contains("Changed since"), "it is withheld without a token");
}

#[test]
fn a_job_is_known_at_once_after_it_ran() {
    let site = Site::new();
    let served = Served::of(&site, &[]);
    assert_eq!(served.get("/api/v1/jobs/new").status, 404);
    site.say(&["run", "new", "--", "true"]);
    assert_eq!(served.get("/api/v1/jobs/new").json()["jobs"][0]["last"]["status"], "ok");
    site.say(&["run", "new", "-c", "exit 1"]);
    assert_eq!(served.get("/api/v1/jobs/new").json()["jobs"][0]["last"]["status"], "error");
}

#[test]
fn an_answer_that_has_not_changed_is_not_sent_again() {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let served = Served::of(&site, &[]);
    let first = served.get("/api/v1/status");
    let tag = first.header("etag").unwrap().to_string();
    let second = served.ask("GET", "/api/v1/status", &[("If-None-Match", &tag)], "");
    assert_eq!((second.status, second.body.as_str()), (304, ""));
    site.say(&["run", "j", "--", "true"]);
    assert_eq!(served.ask("GET", "/api/v1/status", &[("If-None-Match", &tag)], "").status, 200);
    let head = served.ask("HEAD", "/api/v1/status", &[], "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn long_lists_come_in_parts_without_a_gap() {
    let site = Site::new();
    for round in 0..7 {
        site.say(&["run", "j", "-c", &format!("exit {round}")]);
    }
    ["a", "b", "c"].iter().for_each(|job| drop(site.say(&["run", job, "--", "true"])));
    let served = Served::of(&site, &[]);
    let mut next = Some("/api/v1/jobs/j/runs?limit=3".to_string());
    let mut codes = Vec::new();
    while let Some(path) = next {
        let reply = served.get(&path);
        codes.extend(reply.json()["runs"].as_array().unwrap().iter().map(|run| run["exit_code"].as_i64().unwrap()));
        next = linked(&reply);
    }
    assert_eq!(codes, [6, 5, 4, 3, 2, 1, 0]);
    let (mut next, mut jobs) = (Some("/api/v1/status?limit=3".to_string()), Vec::new());
    while let Some(path) = next {
        let reply = served.get(&path);
        jobs.extend(
            reply.json()["jobs"].as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap().to_string()),
        );
        next = linked(&reply);
    }
    assert_eq!(jobs, ["a", "b", "c", "j"]);
}

fn linked(reply: &super::Reply) -> Option<String> {
    let link = reply.header("link")?;
    Some(link.strip_prefix('<')?.split_once(">; rel=\"next\"")?.0.to_string())
}

#[test]
fn mistakes_have_the_status_of_their_kind() {
    let desk = desk();
    let served = Served::of_desk(&desk, &[]);
    for (path, status) in [
        ("/nothing", 404),
        ("/api/v1/jobs/none", 404),
        ("/api/v1/jobs/none/why", 404),
        ("/api/v1/jobs/report/why?at=nonsense", 400),
        ("/api/v1/jobs/report/runs?limit=0", 400),
        ("/api/v1/jobs/report/runs?limit=x", 400),
        ("/api/v1/jobs/report/runs?cursor=x", 400),
        ("/api/v1/jobs/report/runs?job=feed/in", 400),
        ("/api/v1/jobs/report/runs?status=weird", 400),
        ("/api/v1/jobs/report?x=1", 400),
        ("/api/v1/status?limit=%ff", 400),
        ("/api/v1/overdue?grace=1h", 400),
        ("/api/v1/jobs/report/logs", 401),
    ] {
        let reply = served.get(path);
        let error = &reply.json()["error"];
        assert!(reply.status == status && error["message"].is_string() && error["code"].is_u64(), "{path}: {reply:?}");
    }
    let reply = served.ask("DELETE", "/api/v1/status", &[], "");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")));
}

#[test]
fn monitors_get_a_line_and_a_status() {
    let desk = desk();
    let served = Served::of_desk(&desk, &[]);
    assert_eq!((served.get("/healthz").status, served.get("/healthz").body.as_str()), (200, "ok\n"));
    let failed = served.get("/status/feed%2Fin");
    assert!(failed.status == 503 && failed.body.starts_with("error: feed/in failed (exit 3)"), "{failed:?}");
    assert_eq!(served.get("/status/report").status, 200);
    assert_eq!(served.get("/status/none").status, 404);
    desk.say(&["run", "calm", "--", "true"]);
    desk.say(&["pause", "calm"]);
    let paused = served.get("/status/calm");
    assert_eq!((paused.status, paused.body.as_str()), (200, "ok: calm is paused\n"));
}

#[test]
fn metrics_come_in_both_formats() {
    let desk = desk();
    let served = Served::of_desk(&desk, &[]);
    let text = served.get("/metrics");
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for part in [
        "fencepost_runs_total{job_name=\"feed/in\",status=\"error\"} 1\n",
        "fencepost_needs_attention{job_name=\"feed/in\"} 1\n",
        "fencepost_overdue_slots{job_name=\"report\"} 0\n",
        "fencepost_next_slot_timestamp_seconds{job_name=\"report\"} ",
        "fencepost_run_duration_seconds_bucket{job_name=\"feed/in\",le=\"+Inf\"} 1\n",
        "fencepost_run_duration_seconds_count{job_name=\"feed/in\"} 1\n",
        "fencepost_store_up{} 1\n",
    ] {
        assert!(text.body.contains(part), "{part}\n{}", text.body);
    }
    assert!(
        text.body.starts_with(&desk.say(&["status", "--format", "prom"]).stdout),
        "the names are those of `status`"
    );
    let accept = [("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let open = served.ask("GET", "/metrics", &accept, "");
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(open.body.ends_with("\n# EOF\n") && open.body.contains("# TYPE fencepost_runs counter\n"), "{}", open.body);
    prometheus::check(&text.body);
    is_open_metrics(&desk.site, &open.body);
    desk.say(&["run", "feed/in", "--again"]);
    eventually("both runs are counted, each once", || {
        served.get("/metrics").body.contains("fencepost_run_duration_seconds_count{job_name=\"feed/in\"} 2\n")
    });
}

/// Has Prometheus' own reader of OpenMetrics read a text. It wants a time with every sample.
fn is_open_metrics(site: &Site, text: &str) {
    let timed = text
        .lines()
        .map(|line| if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1700000000\n") });
    std::fs::write(site.path("metrics"), timed.collect::<String>()).unwrap();
    let mut promtool = Command::new(prometheus::promtool());
    promtool.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(site.path("metrics")).arg(site.path("blocks"));
    let said = Said::of(promtool.output().unwrap());
    assert_eq!(said.code, 0, "{said:?}\n{text}");
}

#[test]
fn logs_and_the_configuration_are_shown_with_a_token_only() {
    let desk = desk();
    let token = add_token(&desk.site, "laptop");
    let served = Served::of_desk(&desk, &["--token-file", &token_file(&desk.site)]);
    desk.say(&["run", "noisy"]);
    let logs = served.get_as(&token, "/api/v1/jobs/noisy/logs");
    assert!(logs.status == 200 && logs.body.contains("s3cret-output"), "{logs:?}");
    assert_eq!(served.get("/api/v1/jobs/noisy/logs").status, 401);
    assert!(served.get_as(&token, "/api/v1/jobs/noisy/why").body.contains("s3cret-output"));
    assert!(served.get_as(&token, "/jobs/noisy").body.contains("echo s3cret"), "the configuration");
    for path in ["/api/v1/jobs/noisy/why", "/jobs/noisy", "/", "/api/v1/status"] {
        let reply = served.get(path);
        assert!(reply.status == 200 && !reply.body.contains("s3cret-output"), "{path}");
        assert!(!reply.body.contains("echo s3cret"), "{path}");
    }
}

#[test]
fn the_api_describes_itself() {
    let served = Served::of(&Site::new(), &[]);
    let document = served.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(
        document["paths"]["/api/v1/status"]["get"]["responses"]["200"]["content"]["application/json"]["schema"],
        serde_json::json!({ "$ref": "#/components/schemas/StatusAnswer" })
    );
}

#[test]
fn pages_are_served_compressed_to_those_that_ask() {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let served = Served::of(&site, &[]);
    for path in ["/", "/timeline", "/jobs/j", "/graph", "/fences", "/stores", "/login"] {
        let reply = served.get(path);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html; charset=utf-8")), "{path}");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
    let short = served.ask("GET", "/", &[("Accept-Encoding", "gzip")], "");
    assert_eq!(short.header("content-encoding"), Some("gzip"));
    assert_eq!(served.get("/jobs/none").status, 404);
}
