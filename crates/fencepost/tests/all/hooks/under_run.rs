//! Under a run: refusals of tools that write, fenced commands instead of bare ones, and the report before the end.

use std::fs;

use fencepost_core::record::StopAsked;
use fencepost_testkit::eventually;
use fencepost_testkit::process::send;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{answer, put, reason, stop, tool};
use crate::common::{BINARY, Holder, Said, Site};
use crate::desk::Desk;

/// Runs a script as a job; `$B` is the binary and `$D` the directory of the test.
fn run(site: &Site, options: &[&str], script: &str) -> Said {
    let script = format!("B='{BINARY}'; D='{}'; cd $D; {script}", site.directory().display());
    Said::of(site.command(&[&["run", "agent"], options, &["-c", &script]].concat()).output().unwrap())
}

/// The answers of a hook that is called in a run, one for each input.
fn answers(site: &Site, options: &[&str], inputs: &[Value]) -> (Said, Vec<String>) {
    let mut script = String::new();
    for (number, input) in inputs.iter().enumerate() {
        put(site, &format!("in{number}"), input);
        script += &format!("$B hook claude < in{number} > out{number} || exit 9; ");
    }
    let said = run(site, options, &script);
    let outputs = (0..inputs.len()).map(|n| fs::read_to_string(site.path(&format!("out{n}"))).unwrap_or_default());
    (said, outputs.collect())
}

#[test]
fn the_recorded_inputs_of_each_agent_get_its_own_answer() {
    let site = Site::new();
    let text = format!(
        "fencepost refused `git push`: a bare git push could overwrite the work of a newer run. Nothing of this call was \
         executed. Use this command instead, after the rest of what the call should do: {BINARY} publish git --branch main"
    );
    let fixtures = include_str!("../../fixtures/hook-inputs.jsonl");
    let mut seen = Vec::new();
    for line in fixtures.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let agent = line["agent"].as_str().unwrap();
        put(&site, "in", &line["input"]);
        let said = run(&site, &["--must-record"], &format!("$B hook {agent} < in; r=$?; $B record ok; exit $r"));
        assert_eq!(said.code, 0, "{line}: {said:?}");
        let event = line["input"]["hook_event_name"].as_str().unwrap_or("PreToolUse");
        let expected = match (agent, event) {
            ("claude" | "codex", "PreToolUse") => json!({ "hookSpecificOutput": {
                "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": text } }),
            ("gemini" | "antigravity", _) => json!({ "decision": "deny", "reason": text }),
            (_, "Stop") => json!({ "decision": "block", "reason": reason(&said.stdout).unwrap() }),
            (_, "UserPromptSubmit") => {
                assert_eq!(said.stdout, "");
                continue;
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(serde_json::from_str::<Value>(&said.stdout).unwrap(), expected, "{line}");
        // Outside a run the same input passes.
        let outside = answer(site.command(&["hook", agent]), line["input"].to_string().as_bytes());
        assert!(outside.code == 0 && reason(&outside.stdout).is_none(), "{outside:?}");
        seen.push(agent.to_string());
    }
    assert_eq!(seen, ["claude", "codex", "claude", "gemini", "antigravity"]);
}

#[test]
fn reading_tools_pass_and_the_job_widens_and_narrows_the_list() {
    let site = Site::new();
    fs::write(
        site.path("fencepost.toml"),
        "[defaults]\nwrite_tools = ['Deploy', '!mcp__docs__*']\nguard_commands = ['npm publish']\n[job.agent]\n",
    )
    .unwrap();
    let config = site.path("fencepost.toml");
    let script = format!(
        "cd '{}'; for i in 0 1 2 3; do {BINARY} hook claude < in$i > out$i; done; rm state/store.db*; for i in 4 5 6 7; do \
         {BINARY} hook claude < in$i > out$i; done",
        site.directory().display()
    );
    let inputs = [
        tool("Bash", "git push"),
        tool("Bash", "npm publish --tag next"),
        tool("Read", "x"),
        tool("Bash", "ls"),
        // Without a store it is unknown whether the lease is held: tools that write are refused.
        tool("Deploy", "x"),
        tool("mcp__docs__search", "x"),
        tool("Bash", "ls"),
        tool("Read", "x"),
    ];
    inputs.iter().enumerate().for_each(|(number, input)| put(&site, &format!("in{number}"), input));
    let mut command = site.command(&["run", "agent", "--ttl", "15s", "-c", &script]);
    command.env("FENCEPOST_CONFIG", &config).output().unwrap();
    let refused = |number: usize| reason(&fs::read_to_string(site.path(&format!("out{number}"))).unwrap());
    assert_eq!(refused(0), None);
    assert!(refused(1).unwrap().ends_with("/fencepost publish exec --resource npm-publish -- npm publish --tag next"));
    assert_eq!((refused(2), refused(3), refused(5), refused(7)), (None, None, None, None));
    assert!(refused(4).unwrap().contains("it is unknown whether this run of agent still holds its lease"));
    assert!(refused(6).unwrap().contains("Do not write in another way"));
}

/// A run whose agent calls its hook with these inputs once the file `go` is there.
fn waiting(site: &Site, inputs: &[Value]) -> Holder {
    let mut script =
        format!("cd '{}'; echo ready; while [ ! -e go ]; do sleep 0.02; done; ", site.directory().display());
    for (number, input) in inputs.iter().enumerate() {
        put(site, &format!("in{number}"), input);
        script += &format!("{BINARY} hook claude < in{number} > out{number}; ");
    }
    Holder::start(site.command(&["run", "agent", "-c", &format!("{script} touch answered; exec cat > /dev/null")]))
}

/// Lets the agent call its hook, and returns the reasons of its refusals.
fn answered(site: &Site, count: usize) -> Vec<Option<String>> {
    fs::write(site.path("go"), "").unwrap();
    eventually("the hook has answered", || site.path("answered").exists());
    (0..count).map(|number| reason(&fs::read_to_string(site.path(&format!("out{number}"))).unwrap())).collect()
}

#[test]
fn a_lost_lease_refuses_writes_and_the_run_ends_fenced_although_the_agent_exits_0() {
    let desk = Desk::new();
    // The wrapper renews in more than a minute, and learns of the loss from its agent's hook.
    let holder = waiting(&desk.site, &[tool("Write", ""), tool("Read", "")]);
    desk.edit("agent", |record| record.lease = None);
    let reasons = answered(&desk.site, 2);
    let why = reasons[0].as_ref().expect("it is refused");
    let words = ["has lost its lease: it was released or taken away", "Write nothing more"];
    assert!(words.iter().all(|words| why.contains(words)), "{why}");
    assert_eq!(reasons[1], None);
    let ended = holder.finish();
    assert_eq!(ended.code, 113, "{ended:?}");
    assert!(ended.stderr.contains("Write: it was released or taken away"), "{ended:?}");
}

#[test]
fn a_run_that_is_asked_to_stop_refuses_writes() {
    let site = Site::new();
    put(&site, "write", &tool("Bash", "ls"));
    let script = format!(
        "cd '{}'; trap '{BINARY} hook claude < write > out; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
        site.directory().display()
    );
    let holder = Holder::start(site.command(&["run", "agent", "-c", &script]));
    send(holder.pid(), Signal::SIGTERM);
    holder.wait();
    let why = reason(&fs::read_to_string(site.path("out")).unwrap()).expect("it is refused");
    assert!(why.contains("is ending: the run was asked to stop"), "{why}");
    // Another run asked for the lease.
    let desk = Desk::new();
    let holder = waiting(&desk.site, &[tool("Bash", "ls")]);
    desk.edit("agent", |record| {
        let lease = record.lease.as_mut().unwrap();
        lease.stop_asked = Some(StopAsked { by: lease.run, host: "far".to_string(), unknown: Default::default() });
    });
    let why = answered(&desk.site, 1).remove(0).expect("it is refused");
    assert!(why.contains("another run, on far, asked it to hand over"), "{why}");
    holder.finish();
}

#[test]
fn an_agent_without_a_report_is_sent_back_once() {
    let site = Site::new();
    let (said, outputs) = answers(&site, &["--must-record"], &[stop(false), stop(false)]);
    let why = reason(&outputs[0]).expect("it is sent back");
    assert!(why.contains("fencepost record ok`") && why.contains("record empty --note"), "{why}");
    assert_eq!((outputs[1].as_str(), said.code), ("", 118), "{said:?}");
    assert!(said.stderr.contains("has to report its outcome"), "{said:?}");
    // The agent says itself that a hook sent it back; a report is enough; without the duty there is nothing to report.
    let (_, outputs) = answers(&site, &["--must-record"], &[stop(true)]);
    assert_eq!(outputs, [""]);
    put(&site, "in", &stop(false));
    let said = run(&site, &["--must-record"], "$B record empty; $B hook claude < in");
    assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{said:?}");
    let (said, outputs) = answers(&site, &[], &[stop(false)]);
    assert_eq!((said.code, outputs), (0, vec![String::new()]));
    // A declared artifact is a reason to report, too.
    let (said, outputs) = answers(&site, &["--produces", "page"], &[stop(false)]);
    assert!(reason(&outputs[0]).is_some() && said.code == 118, "{said:?}");
}

#[test]
fn a_redirected_push_succeeds_at_the_second_try_and_the_run_ends_well() {
    let site = Site::new();
    let script = "git init -q --bare origin.git && git init -q -b main work && cd work && git remote add origin ../origin.git && \
                  git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one";
    assert_eq!(site.shell(&format!("cd '{}' && {script}", site.directory().display())).code, 0);
    put(&site, "push", &tool("Bash", "cd work && git push origin main"));
    let script = "cd work; export PATH=\"$(dirname $B):$PATH\"; why=$($B hook claude < ../push); \
                  command=$(printf %s \"$why\" | sed 's/.*should do: //; s/\".*//'); echo \"$command\"; $command";
    let said = run(&site, &[], script);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.starts_with(&format!("{BINARY} publish git --branch main\n")), "{said:?}");
    let pushed = site.shell(&format!("git -C '{}' rev-parse main", site.path("origin.git").display()));
    assert_eq!(pushed.stdout.len(), 41, "{pushed:?}");
    assert_eq!(site.runs(&["agent"])[0]["status"], "ok");
}

#[test]
fn input_that_cannot_be_understood_is_refused_or_passes_as_the_job_says() {
    let site = Site::new();
    let bad =
        "printf '{\"hook_event_name\": \"PreToolUse\"}' | $B hook claude; echo $?; echo '[' | $B hook codex; echo $?";
    let said = run(&site, &[], bad);
    assert_eq!(said.stdout, "2\n2\n", "{said:?}");
    assert!(said.stderr.contains("its tool has no name") && said.stderr.contains("its input is not JSON"), "{said:?}");
    fs::write(site.path("fencepost.toml"), "[job.agent]\non_unknown_input = 'pass'\n").unwrap();
    let script = format!("B='{BINARY}'; {bad}");
    let mut command = site.command(&["run", "agent", "-c", &script]);
    let said = Said::of(command.env("FENCEPOST_CONFIG", site.path("fencepost.toml")).output().unwrap());
    assert_eq!(said.stdout, "0\n0\n", "{said:?}");
    let outside = answer(site.command(&["hook", "claude"]), b"[");
    assert_eq!((outside.code, outside.stdout.as_str()), (0, ""), "{outside:?}");
}

#[test]
fn an_observed_run_is_refused_nothing() {
    let site = Site::new();
    let (said, outputs) = answers(&site, &["--observe", "--must-record"], &[tool("Bash", "git push"), stop(false)]);
    assert_eq!(outputs, ["", ""], "{said:?}");
}
