//! Claims that the program gives up before they are granted.

use std::net::TcpListener;

use serde_json::{Value, json};

use super::{Client, said};
use crate::common::Site;

/// Gives up a claim, and returns the answers to the claim and to the release.
fn give_up(client: &mut Client, claim: u64) -> (Value, Value) {
    let release = client.send("release", json!({ "claim": claim, "outcome": "error", "exit_code": 1 }));
    (client.answer(&json!(claim)), client.answer(&json!(release)))
}

#[test]
fn a_claim_that_waits_is_given_up_and_nothing_is_recorded() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (held, _) = client.claim(json!({ "job": "j", "ttl": "1h" }));
    for request in ["claim", "once"] {
        let fields = match request {
            "claim" => json!({ "job": "j", "wait": "10m" }),
            _ => json!({ "key": "item", "wait": "10m" }),
        };
        let mut other = Client::of(&site);
        let item = (request == "once").then(|| other.send("once", json!({ "key": "item", "ttl": "1h" })));
        item.map(|item| other.answer(&json!(item)));
        let waiting = client.send(request, fields);
        // Another answer has come meanwhile, so the claim has been read.
        assert_eq!(client.ask("hello", json!({}))["answer"], "hello");
        let (skipped, released) = give_up(&mut client, waiting);
        assert_eq!(said(&skipped), ("skipped", "cancelled"), "{skipped}");
        assert_eq!(said(&released), ("released", "cancelled"), "{released}");
        assert_eq!(said(&client.ask("release", json!({ "claim": waiting }))), ("error", "usage"), "it is forgotten");
    }
    assert_eq!(client.ask("release", json!({ "claim": held, "outcome": "ok" }))["status"], "ok");
    let (next, _) = client.claim(json!({ "job": "j" }));
    assert_eq!(client.ask("release", json!({ "claim": next, "outcome": "ok" }))["status"], "ok");
    assert_eq!(site.runs(&["j"]).len(), 2);
    assert_eq!(site.job("j")["skips"]["overlap"], 0, "what the program gave up is no skipped trigger");
}

#[test]
fn a_claim_that_waits_for_its_upstreams_is_released() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let waiting = client.send("claim", json!({ "job": "j", "ttl": "1h", "needs": ["up@any"], "needs_wait": "10m" }));
    fencepost_testkit::eventually("the lease is held", || site.json(&["lease", "show", "j"])["held"] == true);
    assert_eq!(said(&give_up(&mut client, waiting).0), ("skipped", "cancelled"));
    assert_eq!(site.json(&["lease", "show", "j"])["held"], false);
    assert_eq!(site.runs(&["j"])[0]["note"], "the program gave up its claim before it began");
}

#[test]
fn a_claim_that_is_given_up_while_it_is_granted_leaves_no_lease() {
    let site = Site::new();
    let mut client = Client::of(&site);
    for _ in 0..40 {
        let claim = client.send("claim", json!({ "job": "j", "ttl": "1h" }));
        let (claimed, released) = give_up(&mut client, claim);
        match said(&claimed) {
            ("granted", _) => assert_eq!((said(&released).0, &released["status"]), ("released", &json!("error"))),
            answer => assert_eq!((answer, said(&released)), (("skipped", "cancelled"), ("released", "cancelled"))),
        }
        assert_eq!(site.json(&["lease", "show", "j"])["held"], false);
    }
    assert_eq!(
        site.runs(&["j"]).iter().filter(|run| run["status"] != "error").count(),
        0,
        "no work is recorded as done"
    );
}

#[test]
fn hello_is_answered_at_once_while_the_store_is_down_or_hangs() {
    let site = Site::new();
    let mut client = Client::start(site.command(&["--store", "redis://127.0.0.1:1", "session"]));
    assert_eq!(client.ask("hello", json!({}))["protocol"], 1);
    let failed = client.ask("claim", json!({ "job": "j" }));
    assert_eq!((said(&failed), &failed["code"]), (("error", "store_failed"), &json!(125)), "{failed}");
    // It takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut client = Client::start(site.command(&["--store", &url, "session"]));
    let claim = client.send("claim", json!({ "job": "j", "wait": "10m" }));
    silent.accept().unwrap();
    assert_eq!(client.ask("hello", json!({}))["answer"], "hello");
    assert!(client.answers.is_empty(), "the claim {claim} still waits for its store");
}
