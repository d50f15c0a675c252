//! Stores that fail or hang, passwords, and foreign text.

use std::net::TcpListener;
use std::process::Stdio;

use fencepost_testkit::servers::Redis;
use serde_json::json;

use super::{Desk, Raw, text};
use crate::common::contains;

const PASSWORD: &str = "hunter2-secret";

#[test]
fn a_store_that_cannot_be_reached_is_an_error_of_the_tool() {
    let desk = Desk::new("[job.report]\nschedule = '@daily'\ncommand = 'true'\n");
    let url = format!("redis://:{PASSWORD}@127.0.0.1:1/");
    let mut command = desk.command(&["mcp", "--allow-writes"]);
    command.env("FENCEPOST_STORE", &url).stderr(Stdio::piped());
    let mut raw = Raw::open(command);
    let mut said = String::new();
    for (tool, arguments) in [
        ("status", json!({})),
        ("runs", json!({})),
        ("why", json!({ "job": "a" })),
        ("plan", json!({ "job": "a", "schedule": "@daily" })),
        ("logs", json!({})),
        ("overdue", json!({})),
        ("advise", json!({})),
        ("record", json!({ "job": "a", "status": "ok" })),
        ("pause", json!({ "job": "a" })),
        ("once", json!({ "key": "a", "command": ["true"], "wait_seconds": 600 })),
    ] {
        let failed = raw.call(tool, arguments);
        assert_eq!(failed["isError"], true, "{tool}: {failed}");
        assert!(text(&failed).len() > 20, "{tool}: {failed}");
        said.push_str(&failed.to_string());
    }
    // A ledger that cannot be read is a halt.
    let gate = raw.call("gate", json!({ "upstreams": ["a"] }));
    assert_eq!(gate["structuredContent"]["decision"], "halt", "{gate}");
    for (method, params) in [("resources/list", json!({})), ("resources/read", json!({ "uri": "fencepost://job/a" }))] {
        let failed = raw.ask(method, params);
        assert_eq!(failed["error"]["code"], -32603, "{failed}");
        said.push_str(&failed.to_string());
    }
    said.push_str(&gate.to_string());
    let mut errors = raw.child.stderr.take().unwrap();
    assert_eq!(raw.end().1, 0);
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert!(!said.contains(PASSWORD), "{said}");
    contains(&said, &["127.0.0.1:1"]);
}

#[test]
fn the_password_of_a_store_that_works_is_in_no_answer() {
    let redis = Redis::start(&["--requirepass", PASSWORD]);
    let url = redis.url().replacen("redis://", &format!("redis://:{PASSWORD}@"), 1);
    let desk = Desk::new("[job.report]\ncommand = 'echo $FENCEPOST_STORE $FENCEPOST_STORE_PASSWORD'\n");
    let mut command = desk.command(&["mcp", "--allow-writes"]);
    command.env("FENCEPOST_STORE", &url);
    let mut raw = Raw::open(command);
    let ran = raw.call("run_now", json!({ "job": "report", "wait_seconds": 600 }));
    assert_eq!(ran["structuredContent"]["end"]["status"], "ok", "{ran}");
    let status = raw.call("status", json!({}));
    contains(status["structuredContent"]["store"].as_str().unwrap(), &["redis://"]);
    let state = raw.ask("resources/read", json!({ "uri": "fencepost://job/report" }));
    assert!(state["result"].is_object(), "{state}");
    let answers = [
        ran,
        status,
        state,
        raw.call("logs", json!({ "job": "report" })),
        raw.call("why", json!({ "job": "report" })),
        raw.call("runs", json!({})),
        raw.call("gate", json!({ "upstreams": ["report@any"] })),
        raw.call("once", json!({ "key": "a", "shell": "env", "wait_seconds": 600 })),
    ];
    for answer in answers {
        assert!(!answer.to_string().contains(PASSWORD), "{answer}");
    }
}

#[test]
fn a_store_that_hangs_delays_no_other_answer_and_a_cancelled_call_gets_none() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let desk = Desk::new("");
    let mut command = desk.command(&["mcp"]);
    command.env("FENCEPOST_STORE", format!("redis://{}", silent.local_addr().unwrap()));
    command.env("FENCEPOST_TEST_MCP_PATIENCE", "3s");
    let mut raw = Raw::open(command);
    let hanging = raw.begin("tools/call", json!({ "name": "status", "arguments": {} }));
    assert_eq!(raw.ask("ping", json!({}))["result"], json!({}));
    let answer = raw.hear();
    assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(hanging), &json!(true)), "{answer}");
    contains(text(&answer["result"]), &["did not answer within 3", "fencepost store check"]);
    let cancelled = raw.begin("tools/call", json!({ "name": "status", "arguments": {} }));
    raw.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": cancelled } })
            .to_string(),
    );
    let later = raw.begin("tools/call", json!({ "name": "status", "arguments": {} }));
    assert_eq!(raw.hear()["id"], later, "the call that was cancelled is not answered");
}

#[test]
fn foreign_text_holds_no_control_characters_and_answers_have_a_limit() {
    let desk = Desk::new(
        "[job.loud]\ncommand = 'printf \"\\033[31mred\\033[0m\\007 \\342\\200\\256back\\n\"; head -c 600000 /dev/zero | tr \"\\\\0\" x'\n",
    );
    desk.done(&["record", "odd", "ok", "--note", "a\u{1b}]0;title\u{7}b\u{202e}c\nd"]);
    desk.done(&["run", "loud"]);
    let mut raw = Raw::open(desk.command(&["mcp"]));
    let runs = raw.call("runs", json!({ "job": "odd" }));
    let note = runs["structuredContent"]["runs"][0]["note"].as_str().unwrap();
    assert!(!note.contains(['\u{1b}', '\u{7}', '\u{202e}']) && note.starts_with('a'), "{note:?}");
    let log = raw.call("logs", json!({ "job": "loud" }));
    let output = log["structuredContent"]["logs"][0]["output"].as_str().unwrap();
    assert_eq!(output.len(), 256 * 1024, "only the end of a long line is read");
    let whole = raw.call("logs", json!({ "job": "loud", "list": true }));
    assert!(whole["structuredContent"]["logs"][0]["bytes"].as_u64().unwrap() > 600_000, "{whole}");
    assert!(!log.to_string().contains('\u{1b}'));
}
