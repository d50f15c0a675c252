//! `fencepost mcp`: the Model Context Protocol over standard input and output.

mod client;
mod handshake;
mod hostile;
mod trouble;
mod writes;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fencepost_testkit::process::code;
use serde_json::{Value, json};

use crate::common::Site;

/// A place with a configuration, named on the command line.
pub struct Desk {
    pub site: Site,
    config: String,
}

impl Desk {
    pub fn new(config: &str) -> Self {
        let site = Site::new();
        let path = site.path("fencepost.toml");
        fs::write(&path, config).unwrap();
        Self { site, config: path.display().to_string() }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(&[&["--config", &self.config], arguments].concat());
        command.current_dir(self.site.directory());
        command
    }

    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// A client that writes lines, without any library.
pub struct Raw {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Raw {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, next: 1 }
    }

    /// With a session of 2025-11-25.
    pub fn open(command: Command) -> Self {
        let mut raw = Self::start(command);
        let result = raw.ask(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "raw", "version": "0" } }),
        );
        assert_eq!(result["result"]["protocolVersion"], "2025-11-25", "{result}");
        raw.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        raw
    }

    pub fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next message.
    pub fn hear(&mut self) -> Value {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the server ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Sends a request and returns its id.
    pub fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        id
    }

    /// The answer to a request, which is the next message.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.hear();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// The result of a tool.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// Ends the input. Returns what was still said, and the exit code.
    pub fn end(mut self) -> (String, i32) {
        drop(self.input.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        (rest, code(self.child.wait().unwrap()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text for people of a result.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}
