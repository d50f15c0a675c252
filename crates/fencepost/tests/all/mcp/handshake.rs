//! The three versions, message by message.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Desk, Raw};
use crate::common::contains;

const JOBS: &str = "[job.report]\nschedule = '@daily'\ncommand = 'echo made'\n";

fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[test]
fn a_session_is_opened_in_each_version_that_has_one() {
    let desk = Desk::new(JOBS);
    for version in ["2025-06-18", "2025-11-25"] {
        let mut raw = Raw::start(desk.command(&["mcp"]));
        let hello = raw.ask(
            "initialize",
            json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "raw", "version": "0" } }),
        );
        let result = &hello["result"];
        assert_eq!(result["protocolVersion"], version, "{hello}");
        assert_eq!(result["serverInfo"]["name"], "fencepost");
        assert!(result["capabilities"]["tools"].is_object() && result["capabilities"]["resources"].is_object());
        raw.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(raw.ask("ping", json!({}))["result"], json!({}));
        let tools = raw.ask("tools/list", json!({}));
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 8, "{tools}");
        // The fields of the later version are absent.
        assert_eq!(tools["result"].as_object().unwrap().len(), 1);
        let status = raw.call("status", json!({ "job": "report" }));
        assert_eq!(status["structuredContent"]["jobs"][0]["job"], "report", "{status}");
        assert!(status.get("resultType").is_none());
        assert_eq!(raw.end(), (String::new(), 0));
    }
}

#[test]
fn without_a_session_each_request_names_its_version() {
    let desk = Desk::new(JOBS);
    let mut raw = Raw::start(desk.command(&["mcp"]));
    let found = raw.ask("server/discover", json!({ "_meta": meta("2026-07-28") }));
    let result = &found["result"];
    assert_eq!(result["supportedVersions"], json!(["2026-07-28", "2025-11-25", "2025-06-18"]), "{found}");
    assert_eq!((&result["resultType"], &result["cacheScope"]), (&json!("complete"), &json!("private")));
    assert!(result["ttlMs"].is_u64() && result["capabilities"]["tools"].is_object());
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "fencepost");
    let tools = raw.ask("tools/list", json!({ "_meta": meta("2026-07-28") }));
    assert_eq!(tools["result"]["resultType"], "complete");
    assert!(tools["result"]["ttlMs"].is_u64(), "{tools}");
    let called = json!({ "name": "plan", "arguments": { "job": "report" }, "_meta": meta("2026-07-28") });
    let plan = raw.ask("tools/call", called);
    assert_eq!(plan["result"]["resultType"], "complete");
    assert!(plan["result"]["structuredContent"]["next_slot"].is_string(), "{plan}");
    assert!(plan["result"].get("ttlMs").is_none(), "a call is not cached: {plan}");
    let read = json!({ "uri": "fencepost://job/report", "_meta": meta("2026-07-28") });
    let read = raw.ask("resources/read", read);
    assert_eq!((&read["result"]["ttlMs"], &read["result"]["resultType"]), (&json!(0), &json!("complete")), "{read}");
    // The version has no ping, and its error for a resource that does not exist is that of a wrong parameter.
    assert_eq!(raw.ask("ping", json!({ "_meta": meta("2026-07-28") }))["error"]["code"], -32601);
    let unknown = raw.ask("resources/read", json!({ "uri": "fencepost://job/none", "_meta": meta("2026-07-28") }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    // Nothing is remembered from request to request.
    assert_eq!(raw.ask("tools/list", json!({}))["error"]["code"], -32602);
    let incomplete = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
    assert_eq!(raw.ask("tools/list", incomplete)["error"]["code"], -32602);
}

#[test]
fn any_other_version_gets_the_error_of_the_protocol() {
    let desk = Desk::new(JOBS);
    let mut raw = Raw::start(desk.command(&["mcp"]));
    let supported = json!(["2026-07-28", "2025-11-25", "2025-06-18"]);
    for version in ["2024-11-05", "2025-03-26", "2027-01-01", "", "nonsense"] {
        let refused = raw.ask("initialize", json!({ "protocolVersion": version, "capabilities": {} }));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert_eq!(refused["error"]["data"], json!({ "supported": supported, "requested": version }));
        for method in ["server/discover", "tools/list"] {
            let refused = raw.ask(method, json!({ "_meta": meta(version) }));
            assert_eq!(refused["error"]["code"], -32022, "{refused}");
            assert_eq!(refused["error"]["data"], json!({ "supported": supported, "requested": version }));
        }
    }
    assert_eq!(raw.ask("initialize", json!({}))["error"]["code"], -32602);
    assert_eq!(raw.ask("initialize", json!({ "protocolVersion": 3 }))["error"]["code"], -32602);
    // A refused handshake opens nothing.
    assert_eq!(raw.ask("tools/list", json!({}))["error"]["code"], -32602);
}

#[test]
fn what_is_wrong_with_a_message_is_an_error_of_json_rpc() {
    let desk = Desk::new(JOBS);
    let mut raw = Raw::open(desk.command(&["mcp"]));
    for (line, code) in [
        ("{", -32700),
        (r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#, -32600),
        ("true", -32600),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[1]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"prompts/list"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"no_such"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"status","arguments":[]}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"status","arguments":{"x":1}}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"why","arguments":{}}}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"why","arguments":{"job":"--help"}}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"runs","arguments":{"limit":501}}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"pause","arguments":{"job":"report"}}}"#,
            -32602,
        ),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"x"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}"#, -32002),
        (r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"fencepost://job/..%2Fx"}}"#, -32002),
    ] {
        raw.send(line);
        let answer = raw.hear();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    }
    // A line may be empty, a notification unknown, and an answer to nothing: none of them is answered.
    for line in
        ["", "  ", r#"{"jsonrpc":"2.0","method":"notifications/none"}"#, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]
    {
        raw.send(line);
    }
    assert_eq!(raw.ask("ping", json!({}))["result"], json!({}));
    // A value that only the verb can judge is an error of the tool, which an agent reads and corrects.
    let wrong = raw.call("runs", json!({ "status": ["okay"] }));
    assert_eq!(wrong["isError"], true, "{wrong}");
    contains(super::text(&wrong), &["\"okay\" is not a status; there are ok, empty"]);
    assert_eq!(wrong["structuredContent"]["error"]["reason"], "usage");
    let wrong = raw.call("runs", json!({ "since": "--store=x" }));
    contains(super::text(&wrong), &["--since: "]);
    let wrong = raw.call("why", json!({ "job": "reprot" }));
    contains(super::text(&wrong), &["report"]);
    assert_eq!(wrong["isError"], true, "{wrong}");
}

#[test]
fn the_end_of_the_input_ends_the_server_and_so_does_a_signal() {
    let desk = Desk::new(JOBS);
    let mut raw = Raw::open(desk.command(&["mcp"]));
    // What was asked before is answered.
    let id = raw.begin("tools/call", json!({ "name": "status", "arguments": {} }));
    let (rest, code) = raw.end();
    let answer: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!((&answer["id"], code), (&json!(id), 0), "{rest}");
    let raw = Raw::open(desk.command(&["mcp"]));
    fencepost_testkit::process::send(raw.child.id() as i32, Signal::SIGTERM);
    let mut raw = raw;
    assert_eq!(fencepost_testkit::process::code(raw.child.wait().unwrap()), 128 + 15);
}
