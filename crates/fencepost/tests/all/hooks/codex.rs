//! The real `codex exec` against a stand-in for its model. `tools/fetch-codex` fetches the program from npm.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::put;
use crate::common::{BINARY, Holder, Said, Site};
use crate::desk::Desk;

/// A stand-in for the Responses API on loopback: it asks for the given shell commands one after the other, then is done.
struct StandIn {
    port: u16,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl StandIn {
    fn start(commands: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let commands: Vec<String> = commands.iter().map(ToString::to_string).collect();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, commands) = (Arc::clone(&seen), commands.clone());
                std::thread::spawn(move || serve(stream, &seen, &commands));
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, seen: &Mutex<Vec<Value>>, commands: &[String]) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|length| *length > 0)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            if line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (kind, body) = match first.starts_with("POST") {
            false => ("application/json", r#"{"data":[],"models":[]}"#.to_string()),
            true => {
                let mut seen = seen.lock().unwrap();
                seen.push(serde_json::from_slice(&body).unwrap_or_default());
                ("text/event-stream", events(seen.len(), seen.last()?, commands))
            }
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(body.as_bytes())).ok()?;
    }
}

/// One answer of the model: the next command, or the end.
fn events(number: usize, request: &Value, commands: &[String]) -> String {
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    let item = match commands.get(number - 1) {
        Some(command) => {
            let (name, arguments) = match (has("exec_command"), has("shell_command")) {
                (true, _) => ("exec_command", json!({ "cmd": command })),
                (false, true) => ("shell_command", json!({ "command": command })),
                (false, false) => ("shell", json!({ "command": ["bash", "-lc", command] })),
            };
            json!({ "type": "function_call", "call_id": format!("call_{number}"), "name": name,
                    "arguments": arguments.to_string() })
        }
        None => json!({ "type": "message", "role": "assistant", "id": "m1",
                        "content": [{ "type": "output_text", "text": "done" }] }),
    };
    let usage = json!({ "input_tokens": 1, "input_tokens_details": null, "output_tokens": 1,
                        "output_tokens_details": null, "total_tokens": 2 });
    let id = format!("r{number}");
    let events = [
        json!({ "type": "response.created", "response": { "id": id } }),
        json!({ "type": "response.output_item.done", "item": item }),
        json!({ "type": "response.completed", "response": { "id": id, "usage": usage } }),
    ];
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn codex() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/codex/node_modules/.bin/codex");
    assert!(program.exists(), "codex is missing; fetch it by: tools/fetch-codex");
    program
}

/// A project with the hook of Codex, and the command line of `codex exec` in it.
fn project(site: &Site, model: &StandIn, hook: &str) -> Vec<String> {
    for directory in ["work/.codex", "home/.codex"] {
        fs::create_dir_all(site.path(directory)).unwrap();
    }
    let command = format!("{BINARY} hook codex {hook}");
    let group = json!([{ "hooks": [{ "type": "command", "command": command.trim(), "timeout": 10 }] }]);
    let hooks = json!({ "hooks": { "PreToolUse": group, "UserPromptSubmit": group, "Stop": group } });
    put(site, "home/.codex/hooks.json", &hooks);
    let config = format!(
        "model = \"gpt-5\"\nmodel_provider = \"standin\"\n[model_providers.standin]\nname = \"standin\"\n\
         base_url = \"http://127.0.0.1:{}/v1\"\nwire_api = \"responses\"\n",
        model.port
    );
    fs::write(site.path("home/.codex/config.toml"), config).unwrap();
    let words = [
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--dangerously-bypass-hook-trust",
    ];
    let mut line = vec![codex().display().to_string()];
    line.extend(words.map(str::to_string));
    line
}

/// Runs `codex exec` as a job, or by itself.
fn exec(site: &Site, line: &[String], prompt: &str, run: &[&str]) -> Said {
    let own = site.program(&line[0], &[]);
    let mut words: Vec<&str> = line.iter().skip(1).map(String::as_str).collect();
    words.push(prompt);
    let mut command = match run {
        [] => {
            let mut command = own;
            command.args(words);
            command
        }
        run => site.command(&[run, &["--", line[0].as_str()], words.as_slice()].concat()),
    };
    command.current_dir(site.path("work")).env("HOME", site.path("home"));
    Said::of(command.env_remove("CODEX_HOME").output().unwrap())
}

/// What the model was told of the tool call before.
fn told(request: &Value) -> String {
    request["input"].as_array().and_then(|input| input.last()).map(Value::to_string).unwrap_or_default()
}

#[test]
fn a_push_is_redirected_and_the_run_ends_well() {
    let site = Site::new();
    // Called by its path, the hook names itself so: the shell of the agent has a PATH of its own.
    let fenced = format!("{BINARY} publish git --branch main");
    let model = StandIn::start(&["git push origin main", &fenced]);
    let line = project(&site, &model, "");
    let script = "git init -q --bare ../origin.git && git init -q -b main . && git remote add origin ../origin.git && \
                  git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one";
    assert_eq!(site.shell(&format!("cd '{}' && {script}", site.path("work").display())).code, 0);
    let said = exec(&site, &line, "push", &["run", "agent"]);
    assert_eq!(said.code, 0, "{said:?}");
    let requests = model.requests();
    assert_eq!(requests.len(), 3, "{said:?}");
    assert!(told(&requests[1]).contains(&fenced), "{}", told(&requests[1]));
    let pushed = site.shell(&format!("git -C '{}' rev-parse main", site.path("origin.git").display()));
    assert_eq!(pushed.stdout.len(), 41, "{pushed:?} {}", told(&requests[2]));
    assert_eq!(site.runs(&["agent"])[0]["status"], "ok");
}

#[test]
fn after_a_takeover_nothing_more_is_written() {
    let desk = Desk::new();
    let site = &desk.site;
    let model = StandIn::start(&["touch written"]);
    let line = project(site, &model, "");
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    // The agent starts once the lease is another's. Its wrapper has not noticed yet.
    let script =
        format!("echo ready; while [ ! -e ../taken ]; do sleep 0.02; done; {} push < /dev/null", words.join(" "));
    let mut command = site.command(&["run", "agent", "-c", &script]);
    command.current_dir(site.path("work")).env("HOME", site.path("home")).env_remove("CODEX_HOME");
    let holder = Holder::start(command);
    desk.edit("agent", |record| record.lease = None);
    fs::write(site.path("taken"), "").unwrap();
    let said = holder.wait();
    assert_eq!(said.code, 113, "{said:?}");
    assert!(!site.path("work/written").exists());
    let requests = model.requests();
    assert!(told(&requests[1]).contains("has lost its lease"), "{}", told(&requests[1]));
}

#[test]
fn a_duplicate_prompt_makes_no_request_to_the_model() {
    let site = Site::new();
    fs::create_dir_all(site.path("home")).unwrap();
    let model = StandIn::start(&[]);
    let config = site.path("fencepost.toml");
    fs::write(&config, "[job.nightly]\nslot = 'day'\n").unwrap();
    let line = project(&site, &model, &format!("--config '{}' --job nightly", config.display()));
    let first = exec(&site, &line, "go", &[]);
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(model.requests().len(), 1, "{first:?}");
    fencepost_testkit::eventually("the session is recorded", || {
        site.runs(&["nightly"]).first().is_some_and(|run| run["status"] == "ok")
    });
    let second = exec(&site, &line, "go", &[]);
    assert_eq!(model.requests().len(), 1, "{second:?}");
    assert!(second.stderr.contains("UserPromptSubmit Blocked"), "{second:?}");
}
