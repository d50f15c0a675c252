//! `fencepost publish exec`, as a person or a script calls it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use fencepost_testkit::eventually;
use serde_json::Value;

use crate::common::{BINARY, Site};

struct Scene {
    site: Site,
}

impl Scene {
    fn new() -> Self {
        Self { site: Site::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.current_dir(self.site.directory()).env("FENCEPOST", BINARY);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A new token, acquired by hand; the holder of the last one has lost its lease.
    fn token(&self) -> String {
        self.run(&["lease", "release", "deploy", "--force"]);
        let acquired = self.run(&["lease", "acquire", "deploy"]);
        assert!(acquired.status.success(), "{}", text(&acquired.stderr));
        text(&acquired.stdout).trim().to_string()
    }

    fn exec(&self, token: &str, options: &[&str], script: &str) -> Output {
        let common = ["publish", "exec", "--resource", "live", "--job", "deploy", "--token", token];
        self.run(&[&common[..], options, &["--", "sh", "-c", script]].concat())
    }

    fn resource(&self) -> Value {
        let status: Value = serde_json::from_slice(&self.run(&["status", "--json"]).stdout).unwrap();
        status["resources"][0].clone()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_commands_own_code_passes_through_and_it_knows_its_token() {
    let scene = Scene::new();
    let token = scene.token();
    let done = scene.exec(&token, &[], "echo out $FENCEPOST_TOKEN $FENCEPOST_RESOURCE $FENCEPOST_JOB; exit 3");
    assert_eq!(done.status.code(), Some(3));
    assert_eq!(text(&done.stdout), format!("out {token} live deploy\n"));
    assert_eq!(text(&done.stderr), "", "nothing is wrong");
    let killed = scene.exec(&token, &[], "kill -KILL $$");
    assert_eq!(killed.status.code(), Some(137));
    let resource = scene.resource();
    assert_eq!((&resource["resource"], &resource["kind"]), (&"live".into(), &"exec".into()));
    assert_eq!(resource["token"].to_string(), token);
}

#[test]
fn a_stale_token_runs_nothing_and_is_counted() {
    let scene = Scene::new();
    let (old, new) = (scene.token(), scene.token());
    assert!(scene.exec(&new, &[], "true").status.success());
    let refused = scene.exec(&old, &["--json"], "touch ran");
    assert_eq!(refused.status.code(), Some(13));
    assert!(!scene.path("ran").exists());
    let json: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((&json["accepted"], &json["level"], json["seen"].to_string()), (&false.into(), &"gated".into(), new));
    assert_eq!(scene.resource()["refused"], 1);
}

/// Inside a run it needs neither a token nor a job, and a refusal is not to be swallowed by a script.
#[test]
fn inside_a_run_it_is_the_runs_own_token() {
    let scene = Scene::new();
    let script =
        "$FENCEPOST publish exec --resource live -- sh -c 'echo $FENCEPOST_TOKEN > ran'; echo $FENCEPOST_TOKEN > mine";
    let done = scene.run(&["run", "deploy", "--", "sh", "-c", script]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(fs::read(scene.path("ran")).unwrap(), fs::read(scene.path("mine")).unwrap());
    assert_eq!(scene.resource()["kind"], "exec");
    let other = "$FENCEPOST publish exec --resource live -- touch twice || true";
    let refused = scene.run(&["run", "another-job", "--", "sh", "-c", other]);
    assert_eq!(refused.status.code(), Some(113), "{}", text(&refused.stderr));
    assert!(!scene.path("twice").exists());
    assert!(text(&refused.stderr).contains("adopt"), "{}", text(&refused.stderr));
}

#[test]
fn a_newer_token_waits_for_the_older_command_but_not_for_ever() {
    let scene = Scene::new();
    let old = scene.token();
    let script = "echo begin old >> log; while [ ! -e go ]; do sleep 0.02; done; echo end old >> log";
    let common = ["publish", "exec", "--resource", "live", "--job", "deploy", "--token"];
    let mut slow = scene.command(&[&common[..], &[&old, "--", "sh", "-c", script]].concat()).spawn().unwrap();
    eventually("the older command runs", || scene.path("log").exists());
    let new = scene.token();
    let busy = scene.exec(&new, &["--wait", "200ms"], "echo new >> log");
    assert_eq!(busy.status.code(), Some(125));
    assert!(text(&busy.stderr).contains("still busy with a command of token"), "{}", text(&busy.stderr));
    let dry = scene.exec(&new, &["--dry-run", "-v"], "echo new >> log");
    assert_eq!(dry.status.code(), Some(0));
    assert!(text(&dry.stderr).contains("is busy with"), "{}", text(&dry.stderr));
    let waits = scene.command(&[&common[..], &[&new, "--", "sh", "-c", "echo new >> log"]].concat()).spawn().unwrap();
    fs::write(scene.path("go"), "").unwrap();
    assert!(slow.wait().unwrap().success());
    assert!(waits.wait_with_output().unwrap().status.success());
    assert_eq!(fs::read_to_string(scene.path("log")).unwrap(), "begin old\nend old\nnew\n");
}

#[test]
fn a_named_command_runs_once_under_its_token() {
    let scene = Scene::new();
    let token = scene.token();
    for expected in [false, true, true] {
        let done = scene.exec(&token, &["--op", "charge", "--json"], "echo x >> log; exit 4");
        assert_eq!(done.status.code(), Some(4));
        let json: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(json["already_applied"], expected);
    }
    assert_eq!(fs::read_to_string(scene.path("log")).unwrap(), "x\n");
    let next = scene.token();
    assert_eq!(scene.exec(&next, &["--mode", "once"], "echo x >> log").status.code(), Some(0));
    assert_eq!(scene.exec(&next, &["--mode", "once"], "echo y >> log").status.code(), Some(13));
    assert_eq!(fs::read_to_string(scene.path("log")).unwrap(), "x\nx\n");
}

#[test]
fn a_dry_run_runs_nothing_and_says_what_would_come_of_it() {
    let scene = Scene::new();
    let (old, new) = (scene.token(), scene.token());
    let store = || fs::read(scene.path("state/store.db-wal")).or_else(|_| fs::read(scene.path("state/store.db")));
    assert!(scene.exec(&new, &[], "true").status.success());
    let before = store().unwrap();
    assert_eq!(scene.exec(&new, &["--dry-run"], "touch ran").status.code(), Some(0));
    assert_eq!(scene.exec(&old, &["--dry-run"], "touch ran").status.code(), Some(13));
    assert!(!scene.path("ran").exists());
    assert_eq!(store().unwrap(), before, "the store is as it was");
}

#[test]
fn what_cannot_be_meant_is_a_usage_error_and_what_is_not_there_is_127() {
    let scene = Scene::new();
    let token = scene.token();
    let common = ["publish", "exec", "--job", "deploy", "--token", &token];
    assert_eq!(scene.run(&[&common[..], &["--", "true"]].concat()).status.code(), Some(2), "no resource");
    assert_eq!(scene.run(&[&common[..], &["--resource", "live"]].concat()).status.code(), Some(2), "no command");
    assert_eq!(scene.run(&[&common[..], &["--resource", "", "--", "true"]].concat()).status.code(), Some(2));
    let long = "x".repeat(2000);
    assert_eq!(scene.run(&[&common[..], &["--resource", &long, "--", "true"]].concat()).status.code(), Some(2));
    let missing = scene.run(&[&common[..], &["--resource", "live", "--", "/no/such/tool"]].concat());
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("Nothing was run"), "{}", text(&missing.stderr));
    assert_eq!(scene.run(&["publish", "exec", "--resource", "live", "--", "true"]).status.code(), Some(2), "no token");
}

#[test]
fn a_keeper_that_dies_before_the_command_starts_is_reported_as_nothing_run() {
    let scene = Scene::new();
    let token = scene.token();
    let common = ["publish", "exec", "--resource", "live", "--job", "deploy", "--token", &token];
    let script = "touch began; while [ ! -e go ]; do sleep 0.02; done";
    let mut first = scene.command(&[&common[..], &["--", "sh", "-c", script]].concat()).spawn().unwrap();
    eventually("the first command runs", || scene.path("began").exists());
    let mut waits = scene.command(&[&common[..], &["-v", "--", "touch", "ran"]].concat());
    let waits = waits.stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", waits.id());
    let keeper = || fs::read_to_string(&children).ok()?.split_ascii_whitespace().next()?.parse().ok();
    eventually("it has a keeper", || keeper().is_some());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(keeper().unwrap()), nix::sys::signal::Signal::SIGKILL).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    assert!(first.wait().unwrap().success());
    let ended = waits.wait_with_output().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(125), "{said}");
    assert!(said.contains("was not started") && said.contains("Nothing was run"), "{said}");
    assert!(!said.contains("in part") && !scene.path("ran").exists(), "{said}");
    assert!(scene.exec(&token, &[], "true").status.success(), "the resource is free again");
}
