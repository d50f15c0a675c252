//! Hooks of agents: what `fencepost hook` answers under a run, for sessions of its own, and to the real Codex.

mod codex;
mod hostile;
mod plugin;
mod sessions;
mod settings;
mod under_run;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::{Said, Site};

/// Gives a command its standard input, and returns what it said.
fn answer(mut command: Command, input: &[u8]) -> Said {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Said::of(child.wait_with_output().unwrap())
}

/// The reason of a refusal in any of the agents' forms.
fn reason(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let specific = &answer["hookSpecificOutput"];
    let reason = match specific["permissionDecision"].as_str() {
        Some("deny") => &specific["permissionDecisionReason"],
        Some(other) => panic!("an explicit {other} skips the agent's own question"),
        None if answer.get("decision").is_some() => &answer["reason"],
        None => return None,
    };
    reason.as_str().map(str::to_string)
}

fn tool(name: &str, command: &str) -> Value {
    json!({ "session_id": "s1", "hook_event_name": "PreToolUse", "tool_name": name, "tool_input": { "command": command } })
}

fn prompt(session: &str, text: &str) -> Value {
    json!({ "session_id": session, "hook_event_name": "UserPromptSubmit", "prompt": text })
}

fn stop(again: bool) -> Value {
    json!({ "session_id": "s1", "hook_event_name": "Stop", "stop_hook_active": again })
}

/// Writes an input where a job's script finds it.
fn put(site: &Site, name: &str, input: &Value) {
    fs::write(site.path(name), input.to_string()).unwrap();
}
