//! What the tools that write do, and what they refuse.

use std::fs;

use serde_json::{Value, json};

use super::{Desk, Raw, text};
use crate::common::{BINARY, contains};
use crate::fenced::fence;

#[test]
fn a_job_is_started_under_its_lease_and_its_output_goes_to_its_log() {
    let desk = Desk::new(
        "[job.report]\ncommand = 'echo {\\\"jsonrpc\\\":1}; echo oh no >&2; exit 3'\n[job.idle]\nschedule = '@daily'\n\
         [job.slow]\ncommand = 'while [ ! -e go ]; do sleep 0.05; done'\n",
    );
    let mut raw = Raw::open(desk.command(&["mcp", "--allow-writes"]));
    let failed = raw.call("run_now", json!({ "job": "report", "wait_seconds": 600 }));
    assert_eq!(failed["isError"], true, "{failed}");
    let end = &failed["structuredContent"]["end"];
    assert_eq!((&end["status"], &end["exit_code"]), (&json!("error"), &json!(3)), "{failed}");
    contains(text(&failed), &["report ended: error (exit 3).", "oh no", "why"]);
    let logs = raw.call("logs", json!({ "job": "report" }));
    contains(logs["structuredContent"]["logs"][0]["output"].as_str().unwrap(), &["{\"jsonrpc\":1}\n", "oh no\n"]);
    for (job, why) in [("idle", "has no command"), ("repor", "Did you mean report?"), ("..", "..")] {
        let refused = raw.call("run_now", json!({ "job": job }));
        assert_eq!(refused["isError"], true, "{refused}");
        contains(text(&refused), &[why]);
    }
    // A run that takes longer than the call goes on.
    let going = raw.call("run_now", json!({ "job": "slow", "wait_seconds": 0 }));
    assert_eq!(
        (&going["isError"], &going["structuredContent"]["state"]),
        (&json!(false), &json!("running")),
        "{going}"
    );
    fencepost_testkit::eventually("the run holds its lease", || {
        let status = raw.call("status", json!({ "job": "slow" }));
        status["structuredContent"]["jobs"][0]["holder"].is_object()
    });
    // A second one is skipped, as by any other trigger.
    let skipped = raw.call("run_now", json!({ "job": "slow", "wait_seconds": 600 }));
    contains(skipped["structuredContent"]["end"]["status"].as_str().unwrap(), &["skipped_"]);
    // It outlives the server.
    assert_eq!(raw.end().1, 0);
    fs::write(desk.site.path("go"), "").unwrap();
    fencepost_testkit::eventually("the run has ended", || desk.done(&["runs", "slow", "--json"]).contains("\"ok\""));
}

#[test]
fn a_write_under_a_stale_token_is_refused_with_the_reason() {
    let desk = Desk::new("");
    let lease = |job: &str| desk.done(&["lease", "acquire", job]).trim().parse::<u64>().unwrap();
    let old = lease("alpha");
    desk.done(&["lease", "release", "alpha", "--force"]);
    let new = lease("alpha");
    let file = desk.site.path("page").display().to_string();
    let mut raw = Raw::open(desk.command(&["mcp", "--allow-writes"]));
    let write = |raw: &mut Raw, token: u64, content: &str| {
        raw.call("publish_file", json!({ "path": file, "content": content, "job": "alpha", "token": token }))
    };
    assert_eq!(write(&mut raw, new, "new")["isError"], false);
    let refused = write(&mut raw, old, "old");
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(refused["structuredContent"]["accepted"], false, "{refused}");
    contains(text(&refused), &["refused", "Nothing was changed"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    for wrong in [json!({ "path": file }), json!({ "path": file, "content": "x", "from": "/dev/null" })] {
        let answer = raw.ask("tools/call", json!({ "name": "publish_file", "arguments": wrong }));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let outside = raw.call("publish_file", json!({ "path": file, "content": "x" }));
    contains(text(&outside), &["There is no token to write under"]);
    // A job that is held records its own end.
    let held = raw.call("record", json!({ "job": "alpha", "status": "ok" }));
    assert_eq!(
        (&held["isError"], &held["structuredContent"]["error"]["reason"]),
        (&json!(true), &json!("held")),
        "{held}"
    );
    contains(text(&held), &["Record it when that run has ended"]);
    let unknown = raw.call("pause", json!({ "job": "alhpa" }));
    assert_eq!(unknown["structuredContent"]["error"]["reason"], "usage", "{unknown}");
    contains(text(&unknown), &["Did you mean alpha?"]);
}

#[test]
fn an_item_of_work_is_done_once_and_a_long_one_goes_on() {
    let desk = Desk::new("");
    let mut raw = Raw::open(desk.command(&["mcp", "--allow-writes"]));
    let failed = raw.call("once", json!({ "key": "bad", "shell": "echo tried; exit 3", "wait_seconds": 600 }));
    let answer = &failed["structuredContent"];
    assert_eq!((&answer["state"], &answer["exit_code"]), (&json!("failed"), &json!(3)), "{failed}");
    assert_eq!(failed["isError"], true, "{failed}");
    contains(text(&failed), &["tried"]);
    let slow =
        json!({ "key": "slow", "shell": "while [ ! -e go ]; do sleep 0.05; done; echo x >> done", "wait_seconds": 0 });
    for _ in 0..2 {
        let going = raw.call("once", slow.clone());
        assert_eq!(going["structuredContent"]["state"], "in_progress", "{going}");
    }
    // The answers may come before the command in the background has claimed the item.
    fencepost_testkit::eventually("it is claimed", || {
        desk.site.say(&["once", "show", "slow", "--json"]).stdout.contains("in_progress")
    });
    fs::write(desk.site.path("go"), "").unwrap();
    fencepost_testkit::eventually("it is done", || {
        let answer = raw.call("once", json!({ "key": "slow", "shell": "echo y >> done", "wait_seconds": 600 }));
        answer["structuredContent"]["state"] == "done" && answer["structuredContent"]["replayed"] == true
    });
    assert_eq!(fs::read_to_string(desk.site.path("done")).unwrap(), "x\n");
    let answer = raw.ask("tools/call", json!({ "name": "once", "arguments": { "key": "list" } }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

/// Codex starts MCP servers without the variables of the run.
#[test]
fn inside_a_run_a_server_without_variables_writes_under_that_run() {
    let desk = Desk::new("");
    desk.done(&["record", "up", "ok"]);
    let request = |id: u64, tool: &str, arguments: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": arguments,
            "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                       "io.modelcontextprotocol/clientCapabilities": {} } } })
    };
    let page = desk.site.path("page").display().to_string();
    let requests = [
        request(1, "publish_file", json!({ "path": page, "content": "x" })),
        request(2, "record", json!({ "status": "empty", "note": "by mcp" })),
        request(3, "gate", json!({ "upstreams": ["up@any"] })),
    ];
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    fs::write(desk.site.path("requests"), format!("{}\n", lines.join("\n"))).unwrap();
    let script = format!(
        "echo $FENCEPOST_TOKEN > token; : > out; \
         (cat requests; while [ $(wc -l < out) -lt 3 ]; do sleep 0.05; done) | env -i PATH=\"$PATH\" {BINARY} mcp --allow-writes > out"
    );
    desk.done(&["run", "agent", "-c", &script]);
    let said = fs::read_to_string(desk.site.path("out")).unwrap();
    for answer in crate::common::lines(&said) {
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    let token: u64 = fs::read_to_string(desk.site.path("token")).unwrap().trim().parse().unwrap();
    let written = fence(&desk.site.path(".page.fencepost-fence"));
    assert_eq!((written.job.to_string().as_str(), written.token.number()), ("agent", token));
    let run = &desk.site.runs(&["agent"])[0];
    assert_eq!((&run["status"], &run["note"]), (&json!("empty"), &json!("by mcp")), "{run}");
    // The tool only asks: unlike the verb it adds nothing to the run.
    assert_eq!(run["upstreams"], json!([]), "{run}");
}
