//! A job that each host has its own of: the server's own is asked about and acted on, another host's is asked about only.

use super::{FORM, Reply, Served, add_token, token_file};
use crate::desk::Desk;

const JOBS: &str = "[job.ph]
schedule = '@daily'
per_host = true
command = 'true'
";

const ACTIONS: [&str; 4] = ["run_now", "pause", "resume", "release"];

fn started() -> (Desk, String, Served) {
    let desk = Desk::configured(JOBS);
    for host in ["vm", "box"] {
        let mut command = desk.command(&["run", "ph", "--now"]);
        assert!(command.env("FENCEPOST_TEST_HOST", host).status().unwrap().success());
    }
    // Another host's own, which this configuration does not know.
    let mut command = desk.command(&["run", "other", "--per-host", "--", "true"]);
    assert!(command.env("FENCEPOST_TEST_HOST", "vm").status().unwrap().success());
    let token = add_token(&desk.site, "laptop");
    let file = token_file(&desk.site);
    let mut command = desk.command(&["serve", "--listen", "127.0.0.1:0", "--token-file", &file, "--allow-actions"]);
    command.env("FENCEPOST_TEST_HOST", "vm");
    (desk, token, Served::start(command))
}

fn page(served: &Served, token: &str, job: &str) -> String {
    let host = format!("127.0.0.1:{}", served.port);
    let signed_in = served.ask("POST", "/login", &[("Host", &host), FORM], &format!("token={token}"));
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_string();
    served.ask("GET", &format!("/jobs/{job}"), &[("Host", &host), ("Cookie", &cookie)], "").body
}

#[test]
fn the_servers_own_takes_every_action_and_question() {
    let (desk, token, served) = started();
    let post = |path: &str| served.post_as(&token, &format!("/api/v1/jobs/{path}"), "");
    for action in ACTIONS {
        let reply = post(&format!("ph%40vm/{action}"));
        assert_eq!(reply.status, 200, "{action}: {reply:?}");
        if action == "pause" {
            let paused = |job: &str| served.get(&format!("/api/v1/jobs/{job}")).json()["jobs"][0]["paused"].is_object();
            assert!(paused("ph%40vm") && !paused("ph%40box"));
        }
    }
    assert_eq!(post("other%40vm/pause").status, 200, "the configuration does not know it");
    let unknown = post("other%40vm/run_now");
    assert!(unknown.status == 403 && unknown.body.contains("fencepost run other --per-host --now"), "{unknown:?}");
    for question in ["runs", "why", "plan", "advise"] {
        for host in ["vm", "box"] {
            let reply = served.get(&format!("/api/v1/jobs/ph%40{host}/{question}"));
            assert_eq!(reply.status, 200, "{question}: {reply:?}");
        }
    }
    let hosts = |job: &str| -> Vec<String> {
        let runs = served.get(&format!("/api/v1/jobs/{job}/runs")).json();
        runs["runs"].as_array().unwrap().iter().map(|run| run["job"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(hosts("ph%40box"), ["ph@box"]);
    assert!(hosts("ph%40vm").iter().all(|job| job == "ph@vm") && hosts("ph").contains(&"ph@box".to_string()));
    let shown = page(&served, &token, "ph%40vm");
    for part in ["/api/v1/jobs/ph%40vm/run_now", "fencepost run ph --per-host --now", "fencepost runs ph@vm -n 50"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The commands that the page offers are accepted.
    for command in ["runs ph@vm -n 50", "plan ph@vm", "advise ph@vm", "why ph@vm", "pause ph --per-host"] {
        let said = desk.say(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(said.code, 0, "{command}: {said:?}");
    }
}

#[test]
fn another_hosts_takes_none_and_says_where() {
    let (desk, token, served) = started();
    for action in ACTIONS {
        let Reply { status, body, .. } = served.post_as(&token, &format!("/api/v1/jobs/ph%40box/{action}"), "");
        assert!(status == 403 && body.contains("On box: fencepost"), "{action}: {body}");
    }
    assert!(!desk.site.state().join("serve-actions.jsonl").exists(), "no action was taken");
    let shown = page(&served, &token, "ph%40box");
    assert!(!shown.contains("action=\"/api/v1/jobs"), "{shown}");
    assert!(shown.contains("Run it at once, on box") && shown.contains("released on its host, box"), "{shown}");
}
