//! Bad input ends neither the session nor a lease.

use serde_json::{Value, json};

use super::{Client, said};
use crate::common::Site;

const GOOD: [&str; 8] = [
    r#"{"id":"h","request":"hello","client":"x"}"#,
    r#"{"id":"c","request":"claim","job":"other","ttl":"1h","needs":["a@any"],"retries":1,"now":false}"#,
    r#"{"id":"o","request":"once","key":"k","params":"p","retry_after":7}"#,
    r#"{"id":"p","request":"publish","claim":1,"kind":"file","path":"/no/such/directory/x","data":"d"}"#,
    r#"{"id":"r","request":"record","outcome":"ok","claim":"none"}"#,
    r#"{"id":"e","request":"release","claim":"none","outcome":"error","exit_code":1}"#,
    r#"{"id":"g","request":"gate","upstreams":["a@any"],"on_empty_proceed":true}"#,
    r#"{"id":"j","request":"judge","claim":"none","resource":"r","fence":"{}"}"#,
];

/// A line with one byte changed, removed or doubled; the numbers come from a fixed generator.
fn mutated(line: &str, seed: &mut u64) -> Vec<u8> {
    let mut number = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*seed >> 33).unwrap()
    };
    let mut bytes = line.as_bytes().to_vec();
    let at = number() % bytes.len();
    match number() % 4 {
        0 => bytes[at] = (number() % 256) as u8,
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, bytes[at]),
        _ => bytes.truncate(at),
    }
    bytes.retain(|byte| *byte != b'\n');
    bytes
}

#[test]
fn mutated_requests_are_answered_and_the_lease_stays() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, granted) = client.claim(json!({ "job": "j", "ttl": "1h" }));
    let mut seed = 20_261_118;
    for line in GOOD.iter().cycle().take(400) {
        let mut line = mutated(line, &mut seed);
        // A mutation may make another claim, which must not take the ids of the rest of the test.
        line.truncate(line.len().min(4096));
        client.write(&line);
    }
    client.next = 1_000_000;
    assert_eq!(client.ask("hello", json!({}))["answer"], "hello");
    assert_eq!(site.json(&["lease", "show", "j"])["token"], granted["token"]);
    assert_eq!(client.ask("release", json!({ "claim": claim, "outcome": "ok" }))["status"], "ok");
    let errors = client.answers.iter().filter(|answer| answer["answer"] == "error").count();
    assert!(errors > 200, "{errors}");
}

#[test]
fn each_kind_of_wrong_line_is_explained() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let long = format!(r#"{{"id":1,"request":"hello","client":"{}"}}"#, "x".repeat(5 << 20));
    for (line, id, part) in [
        ("nonsense", json!(null), "not JSON"),
        ("[]", json!(null), "JSON object"),
        (r#"{"request":"hello"}"#, json!(null), "has an id"),
        (r#"{"id":7,"request":"fly"}"#, json!(7), "unknown variant `fly`"),
        (r#"{"id":7,"request":"claim"}"#, json!(7), "missing field `job`"),
        (r#"{"id":7,"request":"claim","job":"j","ttl":5}"#, json!(7), "in the field \"ttl\""),
        (r#"{"id":7,"request":"claim","job":"j","ttl":"x"}"#, json!(7), "--ttl"),
        (r#"{"id":7,"request":"claim","job":"-j"}"#, json!(7), "begins with a dash"),
        (r#"{"id":7,"request":"claim","job":"j","schedule":"@daily","every":"1h"}"#, json!(7), "cannot be used with"),
        (r#"{"id":7,"request":"claim","job":"a b"}"#, json!(7), "name"),
        (r#"{"id":7,"request":"release","claim":"none"}"#, json!(7), "There is no claim"),
        (r#"{"id":7,"request":"publish","claim":"none","kind":"file"}"#, json!(7), "There is no claim"),
        (r#"{"id":7,"request":"record","outcome":"ok"}"#, json!(7), "either claim or job"),
        (r#"{"id":7,"request":"gate","upstreams":[]}"#, json!(7), "required"),
        (long.as_str(), json!(null), "bytes"),
    ] {
        client.write(line.as_bytes());
        let answer = client.answer(&id);
        let shown: String = line.chars().take(80).collect();
        assert_eq!((said(&answer), &answer["code"]), (("error", "usage"), &json!(2)), "{shown}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(part), "{shown}: {answer}");
    }
    client.write(b"");
    assert_eq!(client.ask("hello", json!({}))["answer"], "hello");
}

#[test]
fn an_id_names_one_lease_at_a_time() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let claim = |job: &str| json!({ "id": "same", "request": "claim", "job": job }).to_string();
    client.write(claim("a").as_bytes());
    assert_eq!(client.answer(&json!("same"))["answer"], "granted");
    client.write(claim("b").as_bytes());
    assert_eq!(said(&client.answer(&json!("same"))), ("error", "usage"));
    let released = client.ask("release", json!({ "claim": "same", "outcome": "ok" }));
    assert_eq!(released["status"], "ok");
    client.write(claim("b").as_bytes());
    assert_eq!(client.answer(&json!("same"))["answer"], "granted");
}

#[test]
fn a_store_that_cannot_be_opened_is_an_error_of_the_claim() {
    let site = Site::new();
    let mut client = Client::start(site.command(&["--store", "sqlite:/proc/no/such/store.db", "session"]));
    let failed: Value = client.ask("claim", json!({ "job": "j" }));
    assert_eq!((said(&failed), &failed["code"]), (("error", "store_failed"), &json!(125)), "{failed}");
    assert_eq!(client.ask("hello", json!({}))["answer"], "hello");
}
