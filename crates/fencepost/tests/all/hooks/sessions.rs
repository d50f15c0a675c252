//! Sessions that no `run` wraps: the first prompt claims, the end records, a dead agent's lease runs out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use fencepost_testkit::eventually;
use fencepost_testkit::process::send;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{prompt, put, reason, tool};
use crate::common::{BINARY, Site};

/// The process of an agent: a shell under another name, which calls its hook as an agent does.
struct FakeAgent<'a> {
    site: &'a Site,
    child: Child,
    count: usize,
}

impl<'a> FakeAgent<'a> {
    fn start(site: &'a Site, name: &str) -> Self {
        let program = site.path(name);
        // A process has the name of the link. A copy could be busy: another test's child may still have it open for writing.
        std::os::unix::fs::symlink("/bin/bash", &program).unwrap();
        let directory = site.path(&format!("{name}.d"));
        fs::create_dir_all(&directory).unwrap();
        // It does one command after the other, in the order of their numbers.
        let script = "n=0; while :; do if [ -e $n.ready ]; then . ./$n.sh > $n.out 2>&1; echo $? > $n.code.new; mv $n.code.new \
                      $n.code; n=$((n+1)); else sleep 0.02; fi; done";
        let mut command = site.program(program, &["-c", script]);
        command.current_dir(&directory).env("FENCEPOST_CONFIG", site.path("fencepost.toml")).stdin(Stdio::null());
        Self { site, child: command.spawn().unwrap(), count: 0 }.named(directory)
    }

    fn named(self, directory: PathBuf) -> Self {
        fs::write(self.site.path("directory"), directory.to_str().unwrap()).unwrap();
        self
    }

    fn shell(&mut self, directory: &Path, script: &str) -> (String, String) {
        let file = |end: &str| directory.join(format!("{}.{end}", self.count));
        fs::write(file("sh"), script).unwrap();
        fs::write(file("ready"), "").unwrap();
        eventually("the agent has done it", || file("code").exists());
        let result = (fs::read_to_string(file("out")).unwrap(), fs::read_to_string(file("code")).unwrap());
        self.count += 1;
        result
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from(fs::read_to_string(self.site.path("directory")).unwrap())
    }

    /// The reason of the hook's refusal, if it refused.
    fn hook(&mut self, options: &str, input: &Value) -> Option<String> {
        put(self.site, "input", input);
        let input = self.site.path("input");
        let directory = self.directory();
        let script = format!("{BINARY} hook claude --job nightly {options} < '{}'", input.display());
        let (output, code) = self.shell(&directory, &script);
        assert_eq!(code, "0\n", "{output}");
        reason(&output)
    }
}

impl Drop for FakeAgent<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn site(keys: &str) -> Site {
    let site = Site::new();
    fs::create_dir_all(site.state()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(site.state(), mode).unwrap();
    fs::write(site.path("fencepost.toml"), format!("[job.nightly]\n{keys}\n")).unwrap();
    site
}

fn end(session: &str) -> Value {
    json!({ "session_id": session, "hook_event_name": "SessionEnd" })
}

fn stopped(session: &str) -> Value {
    json!({ "session_id": session, "hook_event_name": "Stop", "stop_hook_active": false })
}

fn lease(site: &Site) -> Value {
    site.json(&["lease", "show", "nightly"])
}

#[test]
fn the_first_prompt_claims_and_the_end_of_the_session_records() {
    let site = site("slot = 'day'");
    let mut agent = FakeAgent::start(&site, "agent");
    assert_eq!(agent.hook("", &prompt("a", "go")), None);
    assert_eq!(lease(&site)["held"], true);
    // A second session is a duplicate: it is blocked before any call of the model.
    let mut other = FakeAgent::start(&site, "other");
    let why = other.hook("", &prompt("b", "go")).expect("it is blocked");
    assert!(why.contains("did not let this session of nightly begin") && why.contains("is going"), "{why}");
    fs::write(site.path("directory"), site.path("agent.d").to_str().unwrap()).unwrap();
    // The commands of the agent's shell belong to the run, also without any variable.
    let directory = agent.directory();
    let script = format!("echo x > payload; env -i PATH=\"$PATH\" {BINARY} publish file page --from payload");
    let (output, code) = agent.shell(&directory, &script);
    assert_eq!(code, "0\n", "{output}");
    assert_eq!(
        agent.hook("", &json!({ "session_id": "a", "hook_event_name": "PreToolUse", "tool_name": "Read" })),
        None
    );
    assert_eq!(agent.hook("", &stopped("a")), None);
    assert_eq!(agent.hook("", &end("a")), None);
    eventually("it is released", || lease(&site)["held"] == false);
    assert_eq!(site.runs(&["nightly"])[0]["status"], "ok");
    let left = fs::read_dir(site.path("state/sessions")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("-a.")).collect();
    assert!(left.is_empty(), "{left:?}");
    let why = agent.hook("", &prompt("c", "go")).expect("the slot is done");
    assert!(why.contains("done already"), "{why}");
}

#[test]
fn a_person_at_work_is_left_alone() {
    let site = site("");
    let mut agent = FakeAgent::start(&site, "agent");
    let options = "--match-prompt '^nightly:'";
    assert_eq!(agent.hook(options, &prompt("p", "what is nightly: about?")), None);
    let push = json!({ "session_id": "p", "hook_event_name": "PreToolUse", "tool_name": "Bash",
                       "tool_input": { "command": "git push" } });
    assert_eq!(agent.hook(options, &push), None);
    assert_eq!(agent.hook(options, &prompt("p", "nightly: now")), None, "the first prompt counts");
    assert!(site.runs(&[]).is_empty());
    assert_eq!(agent.hook(options, &end("p")), None);
    // The same process begins a scheduled session: that one is guarded.
    assert_eq!(agent.hook(options, &prompt("q", "nightly: now")), None);
    assert_eq!(lease(&site)["held"], true);
    let push = json!({ "session_id": "q", "hook_event_name": "PreToolUse", "tool_name": "Bash",
                       "tool_input": { "command": "git push" } });
    assert!(agent.hook(options, &push).is_some_and(|why| why.contains("fencepost publish git")));
    assert_eq!(agent.hook(options, &end("q")), None);
}

#[test]
fn a_lost_lease_refuses_the_writes_of_its_session() {
    let site = site("ttl = '6s'");
    let mut agent = FakeAgent::start(&site, "agent");
    assert_eq!(agent.hook("", &prompt("s1", "go")), None);
    assert_eq!(site.say(&["lease", "release", "nightly", "--force"]).code, 0);
    let why = agent.hook("", &tool("Write", "")).expect("it is refused");
    assert!(why.contains("Write nothing more"), "{why}");
    eventually("the run has ended", || agent.hook("", &tool("Write", "")).is_some_and(|why| why.contains("has ended")));
    assert_eq!(agent.hook("", &tool("Read", "")), None);
}

#[test]
fn the_lease_of_a_session_that_dies_in_a_turn_runs_out_and_one_that_ends_idle_is_recorded() {
    let site = site("ttl = '10s'");
    let mut agent = FakeAgent::start(&site, "agent");
    assert_eq!(agent.hook("", &prompt("a", "go")), None);
    // It is renewed for longer than its time-to-live while the agent lives.
    let begun = std::time::Instant::now();
    let until = || lease(&site)["until"].as_str().unwrap_or_default().to_string();
    let first = until();
    eventually("it is renewed", || begun.elapsed() > Duration::from_secs(11) && until() > first);
    assert_eq!(lease(&site)["held"], true);
    send(agent.child.id() as i32, Signal::SIGKILL);
    agent.child.wait().unwrap();
    // No other process of this host takes it over at once: the agent's children may be at work.
    let early = site.say(&["run", "nightly", "-E", "7", "--", "true"]);
    assert_eq!(early.code, 7, "{early:?}");
    let late = site.say(&["run", "nightly", "-w", "1m", "--", "true"]);
    assert_eq!(late.code, 0, "{late:?}");
    assert_eq!(site.runs(&["nightly"])[1]["status"], "lost");
    let mut agent = FakeAgent::start(&site, "second");
    assert_eq!(agent.hook("", &prompt("b", "go")), None);
    assert_eq!(agent.hook("", &stopped("b")), None);
    send(agent.child.id() as i32, Signal::SIGKILL);
    agent.child.wait().unwrap();
    eventually("it is recorded", || site.runs(&["nightly"])[0]["status"] == "ok" && lease(&site)["held"] == false);
}

#[test]
fn commands_of_a_process_with_two_sessions_belong_to_no_run() {
    let site = site("");
    fs::write(site.path("fencepost.toml"), "[job.nightly]\n[job.weekly]\n").unwrap();
    let mut agent = FakeAgent::start(&site, "agent");
    assert_eq!(agent.hook("", &prompt("a", "go")), None);
    let directory = agent.directory();
    put(&site, "second", &prompt("b", "go"));
    let script = format!("{BINARY} hook claude --job weekly < '{}'", site.path("second").display());
    assert_eq!(agent.shell(&directory, &script), (String::new(), "0\n".to_string()));
    let script = format!("echo x > payload; env -i PATH=\"$PATH\" {BINARY} publish file page --from payload");
    let (output, code) = agent.shell(&directory, &script);
    assert_eq!(code, "2\n", "{output}");
    assert!(!directory.join("page").exists());
    // Each session's hook still knows its own run.
    assert_eq!(site.say(&["lease", "release", "weekly", "--force"]).code, 0);
    let write = |session| json!({ "session_id": session, "hook_event_name": "PreToolUse", "tool_name": "Write" });
    assert_eq!(agent.hook("", &write("a")), None);
    put(&site, "second", &write("b"));
    let script = format!("{BINARY} hook claude --job weekly < '{}'", site.path("second").display());
    assert!(reason(&agent.shell(&directory, &script).0).is_some());
    assert_eq!(agent.hook("", &end("a")), None);
}

#[test]
fn a_halted_or_broken_job_blocks_its_prompt_with_the_reason() {
    let site = site("needs = ['reference']");
    let mut agent = FakeAgent::start(&site, "agent");
    let why = agent.hook("", &prompt("a", "go")).expect("it is halted");
    assert!(why.contains("reference"), "{why}");
    fs::write(site.path("fencepost.toml"), "[job.nightly]\nttl = 5\n").unwrap();
    let why = agent.hook("", &prompt("b", "go")).expect("its settings are wrong");
    assert!(why.contains("ttl"), "{why}");
}

#[test]
fn tool_calls_at_one_instant_claim_once_where_there_is_no_prompt() {
    let site = site("");
    let mut agent = FakeAgent::start(&site, "agent");
    let directory = agent.directory();
    let call = json!({ "conversationId": "c", "toolCall": { "name": "run_command", "args": { "CommandLine": "ls" } } });
    put(&site, "call", &call);
    let hook = format!("{BINARY} hook antigravity --job nightly < '{}'", site.path("call").display());
    let script = format!("for i in 1 2 3 4; do {hook} > said$i & done; wait; cat said1 said2 said3 said4");
    let (output, code) = agent.shell(&directory, &script);
    assert_eq!((output.as_str(), code.as_str()), ("{}\n{}\n{}\n{}\n", "0\n"));
    assert_eq!(lease(&site)["grants"], 1);
    // Without an event for the end, the end of the process is the end of the session.
    send(agent.child.id() as i32, Signal::SIGKILL);
    agent.child.wait().unwrap();
    eventually("it is recorded", || site.runs(&["nightly"]).first().is_some_and(|run| run["status"] == "ok"));
}
