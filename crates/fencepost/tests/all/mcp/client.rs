//! An independent client, the official SDK for Rust, lists and calls every tool.

use std::process::Stdio;

use rmcp::model::{
    CallToolRequestParams, ClientConfig, ProtocolVersion, ReadResourceRequestParams, ResourceContents, Tool,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::{RoleClient, ServiceError};
use serde_json::{Value, json};

use super::Desk;
use crate::schema::validator::Validator;

const JOBS: &str = "timezone = 'Asia/Tokyo'
[job.report]
schedule = '@daily'
command = 'echo made'
[job.idle]
schedule = '@daily'
";

const READS: [&str; 8] = ["status", "runs", "why", "plan", "gate", "logs", "overdue", "advise"];
const WRITES: [&str; 6] = ["record", "publish_file", "pause", "resume", "run_now", "once"];

/// A connected client, and the process of the server.
struct Connected {
    client: RunningService<RoleClient, ClientConfig>,
    child: tokio::process::Child,
    tools: Vec<Tool>,
}

impl Connected {
    async fn open(desk: &Desk, arguments: &[&str], lifecycle: ClientLifecycleMode, version: ProtocolVersion) -> Self {
        let mut command = tokio::process::Command::from(desk.command(&[&["mcp"], arguments].concat()));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("the server starts");
        let transport = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let mut info = ClientConfig::default();
        info.protocol_version = version;
        let client = info.serve_with_lifecycle(transport, lifecycle).await.expect("a handshake");
        let tools = client.list_all_tools().await.expect("tools");
        Self { client, child, tools }
    }

    /// Calls a tool, and compares its answer with the schema that the tool declares.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let params =
            CallToolRequestParams::new(tool.to_string()).with_arguments(arguments.as_object().unwrap().clone());
        let result = self.client.call_tool(params).await.unwrap_or_else(|error| panic!("{tool}: {error}"));
        let answer = result.structured_content.clone().unwrap_or_else(|| panic!("{tool}: {result:?}"));
        let declared = self.tools.iter().find(|known| known.name == tool).expect("the tool is listed");
        let schema = Value::Object((**declared.output_schema.as_ref().unwrap()).clone());
        let answers = json!({ tool: { "anyOf": schema["anyOf"] } });
        Validator::new(json!({ "answers": answers, "$defs": schema["$defs"] })).check(tool, &answer);
        assert_eq!(result.is_error.unwrap_or_default(), answer["error"].is_object(), "{tool}: {answer}");
        // Clients that know no structured content read the same as text.
        let texts: Vec<Value> = serde_json::to_value(&result.content).unwrap().as_array().unwrap().clone();
        let last = texts.last().unwrap()["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(last).unwrap(), answer, "{tool}");
        answer
    }

    async fn close(mut self) {
        self.client.cancel().await.expect("the client ends");
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0));
    }
}

fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn session() -> ClientLifecycleMode {
    ClientLifecycleMode::Initialize
}

fn stateless() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

async fn reads(connected: &Connected) {
    let status = connected.call("status", json!({})).await;
    assert!(status["jobs"].as_array().unwrap().len() >= 3, "{status}");
    let status = connected.call("status", json!({ "job": "report", "since": "1h" })).await;
    assert_eq!(status["jobs"][0]["last"]["status"], "ok", "{status}");
    let runs = connected.call("runs", json!({ "status": ["ok", "empty"], "limit": 1 })).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    let why = connected.call("why", json!({ "job": "report" })).await;
    assert!(why["sentences"].as_array().unwrap().len() > 1, "{why}");
    let plan = connected.call("plan", json!({ "job": "report" })).await;
    assert!(plan["next_slot"].as_str().unwrap().ends_with("+09:00"), "{plan}");
    let plan = connected.call("plan", json!({})).await;
    assert_eq!(plan["jobs"].as_array().unwrap().len(), 2, "{plan}");
    let gate = connected.call("gate", json!({ "upstreams": ["hand@any"] })).await;
    assert_eq!(gate["decision"], "proceed", "{gate}");
    let gate = connected.call("gate", json!({ "upstreams": ["hand@any", "idle"] })).await;
    assert_eq!(gate["decision"], "halt", "{gate}");
    let logs = connected.call("logs", json!({ "job": "report", "lines": 5 })).await;
    assert_eq!(logs["logs"][0]["output"], "made\n", "{logs}");
    let logs = connected.call("logs", json!({ "list": true })).await;
    assert!(logs["logs"][0].get("output").is_none() && logs["logs"][0]["bytes"] == 5, "{logs}");
    let overdue = connected.call("overdue", json!({ "grace": "1h" })).await;
    assert!(overdue["overdue"].is_array(), "{overdue}");
    let advice = connected.call("advise", json!({ "job": "report" })).await;
    assert_eq!(advice["jobs"][0]["job"], "report", "{advice}");
}

fn desk() -> Desk {
    let desk = Desk::new(JOBS);
    desk.done(&["run", "report", "--now"]);
    desk.done(&["record", "hand", "ok"]);
    desk
}

#[test]
fn the_client_calls_every_tool_that_reads_in_each_version() {
    let desk = desk();
    for (lifecycle, version) in [
        (session(), ProtocolVersion::V_2025_06_18),
        (session(), ProtocolVersion::V_2025_11_25),
        (stateless(), ProtocolVersion::V_2026_07_28),
    ] {
        wait_for(async {
            let connected = Connected::open(&desk, &[], lifecycle, version.clone()).await;
            let names: Vec<&str> = connected.tools.iter().map(|tool| tool.name.as_ref()).collect();
            assert_eq!(names, READS);
            for tool in &connected.tools {
                assert_eq!(tool.annotations.as_ref().unwrap().read_only_hint, Some(true), "{}", tool.name);
                assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            }
            assert_eq!(connected.client.peer_info().unwrap().protocol_version, version);
            reads(&connected).await;
            connected.close().await;
        });
    }
}

#[test]
fn the_client_calls_every_tool_that_writes_where_they_are_allowed() {
    let desk = desk();
    let token: u64 = desk.done(&["lease", "acquire", "held"]).trim().parse().unwrap();
    let file = desk.site.path("page").display().to_string();
    wait_for(async {
        let connected = Connected::open(&desk, &["--allow-writes"], stateless(), ProtocolVersion::V_2026_07_28).await;
        let names: Vec<&str> = connected.tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, [&READS[..], &WRITES].concat());
        for tool in connected.tools.iter().filter(|tool| WRITES.contains(&tool.name.as_ref())) {
            assert_eq!(tool.annotations.as_ref().unwrap().read_only_hint, Some(false), "{}", tool.name);
        }
        let recorded = connected.call("record", json!({ "job": "other", "status": "empty", "note": "no news" })).await;
        assert_eq!((&recorded["status"], &recorded["note"]), (&json!("empty"), &json!("no news")));
        let published =
            json!({ "path": file, "content": "line one\nline two\n", "job": "held", "token": token, "mode": "once" });
        let answer = connected.call("publish_file", published).await;
        assert_eq!((&answer["accepted"], &answer["token"]), (&json!(true), &json!(token)), "{answer}");
        let paused = connected.call("pause", json!({ "job": "report", "for": "1h", "note": "-- a dash" })).await;
        assert_eq!(paused["paused"], true, "{paused}");
        let resumed = connected.call("resume", json!({ "all": true })).await;
        assert_eq!(resumed["jobs"][0]["job"], "report", "{resumed}");
        let ran = connected.call("run_now", json!({ "job": "report", "wait_seconds": 600 })).await;
        assert_eq!((&ran["state"], &ran["end"]["exit_code"]), (&json!("ended"), &json!(0)), "{ran}");
        let once = json!({ "key": "item", "command": ["sh", "-c", "printf done"], "wait_seconds": 600 });
        for replayed in [false, true] {
            let answer = connected.call("once", once.clone()).await;
            assert_eq!((&answer["state"], &answer["replayed"]), (&json!("done"), &json!(replayed)), "{answer}");
        }
        reads(&connected).await;
        connected.close().await;
    });
    assert_eq!(std::fs::read_to_string(desk.site.path("page")).unwrap(), "line one\nline two\n");
}

#[test]
fn the_client_reads_the_state_of_a_job_as_a_resource() {
    let desk = desk();
    desk.done(&["run", "news/daily", "--", "true"]);
    wait_for(async {
        let connected = Connected::open(&desk, &[], session(), ProtocolVersion::V_2025_11_25).await;
        let listed = connected.client.list_all_resources().await.unwrap();
        let uris: Vec<&str> = listed.iter().map(|resource| resource.uri.as_str()).collect();
        let name = |name: &str| format!("fencepost://job/{name}");
        assert_eq!(uris, ["hand", "idle", "news%2Fdaily", "report"].map(name));
        let templates = connected.client.list_all_resource_templates().await.unwrap();
        assert_eq!(templates[0].uri_template, "fencepost://job/{name}");
        for uri in ["fencepost://job/news%2Fdaily", "fencepost://job/news/daily", "fencepost://job/report"] {
            let read = connected.client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
            let [ResourceContents::TextResourceContents { text, .. }] = &read.contents[..] else { panic!("{read:?}") };
            let state: Value = serde_json::from_str(text).unwrap();
            assert_eq!(state["jobs"][0]["last"]["status"], "ok", "{state}");
        }
        let unknown = connected.client.read_resource(ReadResourceRequestParams::new("fencepost://job/none")).await;
        assert!(matches!(&unknown, Err(ServiceError::McpError(error)) if error.code.0 == -32002), "{unknown:?}");
        connected.close().await;
    });
}
