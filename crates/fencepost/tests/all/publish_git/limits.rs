//! Calls of git that do not end: the server, a hook, a credential helper. And what their children do not inherit.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_guard::publish::PublishError;
use fencepost_guard::publish::git::{Outgoing, Wish, publish};

use fencepost_testkit::http::answer;
use fencepost_testkit::web::Web;

use super::scene::{Clone, Scene, failed, git, job, request};
use crate::fenced::FENCEPOST;

/// Long enough for git to start on a busy machine.
const LIMIT: Duration = Duration::from_secs(4);

fn limited(clone: &Clone, remote: &str) -> Result<Outgoing, PublishError> {
    let branches = ["main".to_string()];
    Outgoing::find(&clone.path, &Wish { remote, branches: &branches, limit: LIMIT, ..Wish::default() }, &job())
}

#[test]
fn a_hook_that_hangs_is_killed_and_the_fate_is_said() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.publish(4).unwrap();
    let (refs, pid) = (scene.refs(), scene.directory.path().join("pid"));
    clone.commit("one");
    clone.hook(&format!("#!/bin/sh\necho $$ > {}\nsleep 600\n", pid.display()));
    let begun = Instant::now();
    let why = failed(publish(&request(5), &limited(&clone, "origin").unwrap()));
    assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
    for part in ["did not end in time", "4s", "nothing has landed so far", "is not known", "--timeout"] {
        assert!(why.contains(part), "{part} in {why}");
    }
    assert_eq!(scene.refs(), refs);
    let pid = fs::read_to_string(pid).unwrap();
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "the hook lives: {state}");
}

#[test]
fn a_silent_server_and_a_credential_helper_that_hangs_push_nothing() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/remote.git", silent.local_addr().unwrap());
    let why = failed(publish(&request(5), &limited(&clone, &url).unwrap()));
    assert!(why.contains("did not end within 4s") && why.contains("nothing was pushed"), "{why}");
    let login = Web::start(|stream| drop(answer(stream, 401, "WWW-Authenticate: Basic realm=\"x\"\r\n")));
    let url = login.url("/remote.git");
    git(&clone.path, &["config", "credential.helper", "!sleep 600; :"]);
    let why = failed(publish(&request(5), &limited(&clone, &url).unwrap()));
    assert!(why.contains("did not end within 4s") && why.contains("nothing was pushed"), "{why}");
}

#[test]
fn hooks_get_no_password_of_the_store() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    let seen = scene.directory.path().join("environment");
    clone.hook(&format!("#!/bin/sh\nenv > {}\n", seen.display()));
    clone.commit("one");
    let output = Command::new(FENCEPOST)
        .args(["publish", "git"])
        .current_dir(&clone.path)
        .env("FENCEPOST_CONFIG", "")
        .env("FENCEPOST_STATE_DIR", scene.directory.path().join("state"))
        .env("FENCEPOST_STORE", "postgres://user:s3cret-a@127.0.0.1:1/none")
        .env("FENCEPOST_STORE_PASSWORD", "s3cret-b")
        .env("FENCEPOST_STORE_ID", "00000000-0000-0000-0000-000000000001")
        .env("FENCEPOST_JOB", "report")
        .env("FENCEPOST_RUN", "00000000-0000-0000-0000-000000000005")
        .env("FENCEPOST_TOKEN", "5")
        .env("FENCEPOST_OUTCOME", scene.directory.path().join("said"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("FENCEPOST_JOB=report") && !seen.contains("s3cret"), "{seen}");
}

#[test]
fn a_branch_that_looks_like_an_option_is_refused() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    for name in ["main:-x", "main:refs/heads/-x", "-x", "main:--force"] {
        match clone.try_target("origin", &[name]) {
            Err(PublishError::Usage(why)) => assert!(why.contains(name), "{why}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}
