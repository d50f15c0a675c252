//! `fencepost session`: leases for programs in any language.

mod cancel;
mod claims;
mod hostile;
mod loss;
mod transcripts;
mod writes;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use fencepost_testkit::process::code;
use serde_json::{Value, json};

use crate::common::Site;
use crate::schema::validator::Validator;

/// A session, as a library sees it. Every line is compared with the schema.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    validator: Validator,
    next: u64,
    events: VecDeque<Value>,
    answers: VecDeque<Value>,
}

impl Client {
    fn of(site: &Site) -> Self {
        Self::start(site.command(&["session"]))
    }

    fn start(mut command: Command) -> Self {
        let validator = validator();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        Self { child, input, output, validator, next: 1, events: VecDeque::new(), answers: VecDeque::new() }
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn write(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    /// Sends a request, and returns its id.
    fn send(&mut self, request: &str, mut fields: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        fields["id"] = json!(id);
        fields["request"] = json!(request);
        self.write(fields.to_string().as_bytes());
        id
    }

    /// Sends a request, and waits for its answer.
    fn ask(&mut self, request: &str, fields: Value) -> Value {
        let id = self.send(request, fields);
        self.answer(&json!(id))
    }

    /// Claims a lease that is granted.
    fn claim(&mut self, fields: Value) -> (u64, Value) {
        let id = self.send("claim", fields);
        let granted = self.answer(&json!(id));
        assert_eq!(granted["answer"], "granted", "{granted}");
        (id, granted)
    }

    fn answer(&mut self, id: &Value) -> Value {
        loop {
            if let Some(found) = self.answers.iter().position(|answer| answer["id"] == *id) {
                return self.answers.remove(found).unwrap();
            }
            assert!(self.read_line(), "the session has ended without an answer to {id}");
        }
    }

    /// Waits for an event of this name. Others before it are dropped.
    fn event(&mut self, name: &str) -> Value {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event["event"] == name {
                    return event;
                }
            }
            assert!(self.read_line(), "the session has ended without {name}");
        }
    }

    fn read_line(&mut self) -> bool {
        let mut line = String::new();
        if self.output.read_line(&mut line).unwrap() == 0 {
            return false;
        }
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        match value.get("event").is_some() {
            true => {
                self.validator.check("session, event", &value);
                self.events.push_back(value);
            }
            false => {
                self.validator.check("session, answer", &value);
                self.answers.push_back(value);
            }
        }
        true
    }

    /// Ends the input, and returns the exit code.
    fn close(mut self) -> i32 {
        self.input = None;
        while self.read_line() {}
        code(self.child.wait().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The schema that `fencepost schema` prints.
fn validator() -> Validator {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| serde_json::from_str(&Site::new().say(&["schema"]).stdout).unwrap());
    Validator::new(schema.clone())
}

/// The part of an answer that a test compares.
fn said(answer: &Value) -> (&str, &str) {
    (answer["answer"].as_str().unwrap_or_default(), answer["reason"].as_str().unwrap_or_default())
}
