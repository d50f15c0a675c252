//! Messages that no client should send: the server answers what can be answered, and goes on.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::Desk;

/// A small generator of numbers: the same ones in every run, so a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Messages that are right.
fn seeds(writes: bool) -> Vec<Value> {
    let call = |tool: &str, arguments: Value| json!({ "name": tool, "arguments": arguments });
    let mut seeds = vec![
        (
            "initialize",
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "x", "version": "0" } }),
        ),
        (
            "server/discover",
            json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {} } }),
        ),
        ("ping", json!({})),
        ("tools/list", json!({ "cursor": null })),
        ("resources/read", json!({ "uri": "fencepost://job/report" })),
        ("resources/templates/list", json!({})),
        ("notifications/cancelled", json!({ "requestId": 3 })),
        ("tools/call", call("runs", json!({ "job": "report", "status": ["ok"], "limit": 2, "since": "yesterday" }))),
        ("tools/call", call("plan", json!({ "job": "report", "at": "2026-11-18T07:00", "tz": "UTC" }))),
        ("tools/call", call("gate", json!({ "upstreams": ["report@within=2h,artifact=x"], "date": "2026-11-18" }))),
        ("tools/call", call("logs", json!({ "job": "report", "lines": 3, "run": "0" }))),
    ];
    if writes {
        seeds.push((
            "tools/call",
            call("record", json!({ "job": "report", "status": "ok", "slot": "2026-11-18T07:00" })),
        ));
        seeds.push(("tools/call", call("pause", json!({ "job": "report", "for": "1h" }))));
    }
    let message = |(id, (method, params)): (usize, (&str, Value))| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    seeds.into_iter().enumerate().map(message).collect()
}

/// A value that does not belong where it stands.
fn odd(dice: &mut Dice) -> Value {
    match dice.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(1e300),
        4 => json!(u64::MAX),
        5 => json!(""),
        6 => json!("\u{0}\u{1b}[2J\u{202e}"),
        7 => json!("--help"),
        8 => json!("x".repeat(dice.below(2000))),
        9 => json!([[], {}, [null]]),
        10 => json!({ "job": { "job": [] }, "_meta": 7 }),
        _ => json!(["../../etc/passwd", "a\nb", "%s%n"]),
    }
}

/// Replaces a random value inside another.
fn replace(value: &mut Value, dice: &mut Dice) {
    let inner: Vec<&mut Value> = match value {
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    };
    let count = inner.len();
    match inner.into_iter().nth(dice.below(count)) {
        Some(chosen) if dice.below(4) > 0 => replace(chosen, dice),
        _ => *value = odd(dice),
    }
}

/// A line that is not quite right, without a newline in it.
fn mutated(seeds: &[Value], dice: &mut Dice) -> Vec<u8> {
    let mut value = seeds[dice.below(seeds.len())].clone();
    if dice.below(3) == 0 {
        (0..=dice.below(2)).for_each(|_| replace(&mut value, dice));
        return value.to_string().into_bytes();
    }
    let mut bytes = value.to_string().into_bytes();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, dice.next() as u8),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 => bytes.splice(at..at, b"[{\"".repeat(dice.below(300))).for_each(drop),
            4 => bytes = (0..dice.below(200)).map(|_| dice.next() as u8).collect(),
            _ if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
            _ => {}
        }
    }
    bytes.retain(|byte| *byte != b'\n');
    bytes
}

/// Sends so many mutated messages, and asks at the end whether the server is still there.
fn storm(desk: &Desk, arguments: &[&str], seeds: &[Value], count: usize) {
    let mut command = desk.command(&[&["mcp"], arguments].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let reader = std::thread::spawn(move || {
        let mut codes = BTreeSet::new();
        for line in output.lines() {
            let line = line.expect("only UTF-8 is written");
            let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
            assert!(answer["result"].is_object() != answer["error"].is_object(), "{answer}");
            codes.insert(answer["error"]["code"].as_i64().unwrap_or(0));
            if answer["id"] == "the last one" {
                assert_eq!(answer["result"], json!({}), "{answer}");
                return codes;
            }
        }
        panic!("the server ended before it answered")
    });
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for _ in 0..count {
        let mut line = mutated(seeds, &mut dice);
        line.push(b'\n');
        input.write_all(&line).expect("the server reads");
    }
    input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"the last one\",\"method\":\"ping\"}\n").unwrap();
    let codes = reader.join().unwrap();
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // The messages were wrong in different ways, and some were right.
    for code in [0, -32700, -32600, -32601, -32602] {
        assert!(codes.contains(&code), "{code}: {codes:?}");
    }
}

#[test]
fn ten_thousand_mutated_messages_do_no_harm() {
    let desk = Desk::new("[job.report]\nschedule = '@daily'\ncommand = 'echo made'\n");
    desk.done(&["run", "report", "--now"]);
    storm(&desk, &[], &seeds(false), 9_500);
    storm(&desk, &["--allow-writes"], &seeds(true), 500);
}

#[test]
fn a_message_that_is_too_long_is_refused_and_the_next_is_read() {
    let desk = Desk::new("");
    let mut raw = super::Raw::open(desk.command(&["mcp"]));
    let long = "x".repeat(5 * 1024 * 1024);
    raw.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": long }).to_string());
    assert_eq!(raw.hear()["error"]["code"], -32600);
    assert_eq!(raw.ask("ping", json!({}))["result"], json!({}));
}
