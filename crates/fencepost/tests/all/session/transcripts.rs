//! The transcripts of the protocol, replayed: each line that the program sent is sent, and each that it got must come.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Client, validator};
use crate::common::Site;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/session/transcripts");

/// Stands for a value that differs from run to run.
const ANY: &str = "<any>";

#[test]
fn every_transcript_can_be_replayed() {
    let mut transcripts: Vec<_> = fs::read_dir(DIRECTORY).unwrap().map(|entry| entry.unwrap().path()).collect();
    transcripts.sort();
    assert!(transcripts.len() >= 5, "{transcripts:?}");
    transcripts.iter().for_each(|path| replay(path));
}

/// Replays a transcript: `{"program": …}` is a line of the program, `{"session": …}` one of the session.
fn replay(path: &Path) {
    let site = Site::new();
    let validator = validator();
    let mut command = site.command(&["session"]);
    command.current_dir(site.directory());
    let mut client = Client::start(command);
    for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
        let step: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let place = format!("{}:{}", path.display(), number + 1);
        match (step.get("program"), step.get("session")) {
            (Some(Value::String(raw)), None) => client.write(raw.as_bytes()),
            (Some(sent), None) => {
                validator.check("session, request", sent);
                client.write(sent.to_string().as_bytes());
            }
            (None, Some(expected)) => {
                let came = match expected.get("event").and_then(Value::as_str) {
                    Some(event) => client.event(event),
                    None => client.answer(&expected["id"]),
                };
                assert!(fits(expected, &came), "{place}: {came}");
            }
            _ => panic!("{place}: a step is of the program or of the session"),
        }
    }
    assert_eq!(client.close(), 0, "{}", path.display());
}

/// Whether a value is as expected, except where anything is.
fn fits(expected: &Value, came: &Value) -> bool {
    match (expected, came) {
        (Value::String(any), _) if any == ANY => true,
        (Value::Object(expected), Value::Object(came)) => {
            expected.len() == came.len()
                && expected.iter().all(|(key, value)| came.get(key).is_some_and(|found| fits(value, found)))
        }
        (Value::Array(expected), Value::Array(came)) => {
            expected.len() == came.len() && expected.iter().zip(came).all(|(expected, came)| fits(expected, came))
        }
        _ => expected == came,
    }
}
