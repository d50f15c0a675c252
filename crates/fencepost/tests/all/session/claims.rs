//! Claims: granted, skipped, halted, and how they end.

use std::fs;

use fencepost_testkit::eventually;
use fencepost_testkit::process::send;
use fencepost_testkit::servers::{Postgres, Redis};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Client, said};
use crate::common::{Site, contains};
use crate::desk::Desk;
use crate::slots::{HOUR, MINUTE, ago, asleep, hourly};

#[test]
fn a_claim_is_granted_renewed_and_released_with_its_outcome() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let hello = client.ask("hello", json!({ "client": "test", "unknown_field": [1] }));
    assert_eq!((&hello["protocol"], &hello["version"]), (&json!(1), &json!(env!("CARGO_PKG_VERSION"))));
    let (claim, granted) = client.claim(json!({ "job": "nightly", "ttl": "1s" }));
    assert_eq!((&granted["job"], &granted["grants"], &granted["ttl_ms"]), (&json!("nightly"), &json!(1), &json!(1000)));
    assert_eq!(client.event("renewed")["claim"], claim);
    let shown = site.json(&["lease", "show", "nightly"]);
    assert_eq!((&shown["token"], &shown["run"], &shown["held"]), (&granted["token"], &granted["run"], &json!(true)));
    let released =
        client.ask("release", json!({ "claim": claim, "outcome": "empty", "note": "no news", "exit_code": 0 }));
    assert_eq!((released["answer"].as_str(), &released["status"]), (Some("released"), &json!("empty")));
    let runs = site.runs(&["nightly"]);
    assert_eq!((&runs[0]["status"], &runs[0]["note"], runs.len()), (&json!("empty"), &json!("no news"), 1));
    assert_eq!(runs[0]["token"], granted["token"]);
    assert_eq!(site.json(&["lease", "show", "nightly"])["held"], false);
    assert_eq!(said(&client.ask("release", json!({ "claim": claim, "outcome": "ok" }))), ("error", "usage"));
    assert_eq!(client.close(), 0);
}

#[test]
fn what_was_recorded_counts_unless_the_release_says_otherwise() {
    let site = Site::new();
    fs::write(site.path("made"), "bytes").unwrap();
    let made = site.path("made").display().to_string();
    let mut client = Client::of(&site);
    for (record, release, status) in [
        (json!({ "outcome": "empty" }), json!({}), "empty"),
        (json!({ "outcome": "empty" }), json!({ "outcome": "ok", "artifacts": [made] }), "ok"),
        (json!({ "outcome": "ok" }), json!({ "exit_code": 3 }), "error"),
        (json!({ "outcome": "ok" }), json!({ "outcome": "error", "note": "last line" }), "error"),
    ] {
        let (claim, _) = client.claim(json!({ "job": "j" }));
        let with = |mut fields: Value| {
            fields["claim"] = json!(claim);
            fields
        };
        assert_eq!(client.ask("record", with(record))["answer"], "recorded");
        assert_eq!(client.ask("release", with(release.clone()))["status"], status, "{release}");
    }
    let runs = site.runs(&["j"]);
    assert_eq!((&runs[0]["note"], &runs[2]["artifacts"][0]["size"]), (&json!("last line"), &json!(5)));
    let (claim, _) = client.claim(json!({ "job": "j" }));
    let wrong = client.ask("release", json!({ "claim": claim, "outcome": "ok", "exit_code": 1 }));
    assert_eq!(said(&wrong), ("error", "usage"));
    let wrong = client.ask("release", json!({ "claim": claim, "outcome": "ok", "artifacts": ["no-such-file"] }));
    assert_eq!(said(&wrong), ("error", "usage"));
    assert_eq!(client.ask("release", json!({ "claim": claim }))["status"], "ok");
}

#[test]
fn several_leases_of_one_session_and_a_job_that_another_holds() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (first, _) = client.claim(json!({ "job": "a", "ttl": "1h" }));
    let (second, _) = client.claim(json!({ "job": "b" }));
    let skipped = client.ask("claim", json!({ "job": "a" }));
    assert_eq!(said(&skipped), ("skipped", "held"));
    contains(skipped["message"].as_str().unwrap(), &["a skipped", "it is held by"]);
    assert_eq!(site.say(&["run", "a", "--skip-exit", "9", "--", "true"]).code, 9);
    let waiting = client.send("claim", json!({ "job": "a", "wait": "1m" }));
    client.ask("release", json!({ "claim": first, "outcome": "error" }));
    assert_eq!(client.answer(&json!(waiting))["answer"], "granted");
    for claim in [waiting, second] {
        assert_eq!(client.ask("release", json!({ "claim": claim, "outcome": "ok" }))["status"], "ok");
    }
    assert_eq!(site.job("a")["skips"]["overlap"], 2, "a claim is counted as a trigger");
}

#[test]
fn a_job_of_the_configuration_keeps_its_settings_unless_the_claim_has_others() {
    let desk = Desk::configured(
        "timezone = 'Asia/Tokyo'\n[job.report]\nschedule = '@daily'\nttl = '20m'\nneeds = ['source@any']\n\
         on_error = 'echo $FENCEPOST_JOB >> told'\n",
    );
    let mut client = Client::start(desk.command(&["session"]));
    let halted = client.ask("claim", json!({ "job": "report", "now": true }));
    assert_eq!(said(&halted), ("halted", "halted"));
    contains(halted["message"].as_str().unwrap(), &["source has never run"]);
    desk.write("input.md", "bytes");
    let path = desk.path("input.md").display().to_string();
    let recorded = client.ask("record", json!({ "job": "source", "outcome": "ok", "artifacts": [path] }));
    assert_eq!(recorded["answer"], "recorded", "{recorded}");
    let (claim, granted) =
        client.claim(json!({ "job": "report", "again": true, "needs": ["source@any,artifact=input.md"] }));
    assert_eq!((&granted["ttl_ms"], &granted["timezone"]), (&json!(1_200_000), &json!("Asia/Tokyo")));
    contains(granted["slot"].as_str().unwrap(), &["T00:00:00+09:00"]);
    desk.write("input.md", "other bytes");
    assert_eq!(fs::read_to_string(granted["inputs"]["source"].as_str().unwrap()).unwrap(), "bytes");
    assert_eq!(client.ask("release", json!({ "claim": claim, "outcome": "error" }))["status"], "error");
    let not_due = client.ask("claim", json!({ "job": "report", "ttl": "30m" }));
    assert_eq!(said(&not_due).0, "skipped", "{not_due}");
    let (claim, granted) = client.claim(json!({ "job": "report", "ttl": "30m", "again": true }));
    assert_eq!(granted["ttl_ms"], 1_800_000);
    client.ask("release", json!({ "claim": claim, "outcome": "ok" }));
    assert_eq!(said(&client.ask("claim", json!({ "job": "report" }))).0, "skipped");
    eventually("the failure was told", || desk.read("told").lines().count() == 1);
}

#[test]
fn missed_slots_are_granted_one_per_claim() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "j", &schedule, &ago(9 * HOUR + 30 * MINUTE - MINUTE));
    let planned = site.json(&["plan", "j", "--catch-up", "3"])["run"].as_array().unwrap().clone();
    let mut client = Client::of(&site);
    let due = json!({ "job": "j", "schedule": schedule, "catch_up": 3 });
    let mut granted = Vec::new();
    for outcome in ["ok", "error", "empty"] {
        let (claim, grant) = client.claim(due.clone());
        assert_eq!(grant["trigger"], "catch_up", "{grant}");
        granted.push(grant["slot"].clone());
        client.ask("release", json!({ "claim": claim, "outcome": outcome }));
    }
    assert_eq!((granted.len(), &granted), (3, &planned), "the newest three, the oldest of them first");
    let again = client.ask("claim", due);
    assert_eq!(said(&again), ("skipped", "not_due"), "{again}");
    let runs = site.runs(&["j"]);
    let missed = runs.iter().find(|run| run["status"] == "missed").expect("the older ones are recorded as missed");
    assert_eq!((runs.len(), &missed["count"]), (4, &json!(6)));
}

#[test]
fn an_item_of_work_is_done_once() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let item = |params: &str| json!({ "key": "invoice/7", "params": params, "ttl": "1s" });
    let first = client.send("once", item("a"));
    assert_eq!(client.answer(&json!(first))["key"], "invoice/7");
    assert_eq!(said(&client.ask("once", item("a"))), ("skipped", "held"));
    client.ask("release", json!({ "claim": first, "exit_code": 3 }));
    let second = client.send("once", item("a"));
    client.answer(&json!(second));
    // Another session dies under the claim: whether the effect happened is not known.
    client.ask("release", json!({ "claim": second, "exit_code": 255 }));
    let unknown = client.ask("once", item("a"));
    assert_eq!((said(&unknown), &unknown["code"]), (("error", "unknown"), &json!(17)));
    assert!(unknown["next_step"].is_string());
    let retry = json!({ "key": "invoice/7", "retry_after": unknown["token"] });
    let third = client.send("once", retry);
    assert_eq!(client.answer(&json!(third))["answer"], "granted");
    assert_eq!(client.ask("release", json!({ "claim": third, "outcome": "ok" }))["status"], "ok");
    let done = client.ask("once", item("a"));
    assert_eq!((said(&done), &done["exit_code"]), (("skipped", "done"), &json!(0)));
    assert_eq!(said(&client.ask("once", item("b"))), ("error", "other_parameters"));
    fs::write(site.path("params"), "a").unwrap();
    let params = site.path("params").display().to_string();
    assert_eq!(site.say(&["once", "invoice/7", "--params", &params, "--", "false"]).code, 0, "the same bytes and key");
}

#[test]
fn of_32_sessions_one_gets_the_lease() {
    let site = Site::new();
    let mut clients: Vec<Client> = (0..32).map(|_| Client::of(&site)).collect();
    let ids: Vec<u64> = clients.iter_mut().map(|client| client.send("claim", json!({ "job": "race" }))).collect();
    let answers: Vec<Value> = clients.iter_mut().zip(ids).map(|(client, id)| client.answer(&json!(id))).collect();
    let granted = answers.iter().filter(|answer| answer["answer"] == "granted").count();
    let skipped = answers.iter().filter(|answer| said(answer) == ("skipped", "held")).count();
    assert_eq!((granted, skipped), (1, 31), "{answers:?}");
}

#[test]
fn signals_of_the_terminal_do_not_end_a_session() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, _) = client.claim(json!({ "job": "j" }));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        send(client.pid(), signal);
    }
    assert_eq!(client.ask("release", json!({ "claim": claim, "outcome": "ok" }))["status"], "ok");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_session_speaks_to_a_store_of_several_machines() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let postgres = Postgres::start(&["fsync=on"]);
    for url in [redis.url(), postgres.url(&postgres.database())] {
        two_machines(&url);
    }
}

fn two_machines(url: &str) {
    let sites = [Site::new(), Site::new()];
    let mut clients = sites.each_ref().map(|site| Client::start(site.command(&["--store", url, "session"])));
    let (claim, first) = clients[0].claim(json!({ "job": "j", "ttl": "10s" }));
    assert_eq!(said(&clients[1].ask("claim", json!({ "job": "j" }))), ("skipped", "held"));
    assert_eq!(clients[0].ask("release", json!({ "claim": claim, "outcome": "ok" }))["status"], "ok");
    let (claim, second) = clients[1].claim(json!({ "job": "j", "ttl": "9s" }));
    assert!(second["token"].as_u64() > first["token"].as_u64() && second["store"] == first["store"]);
    let waiting = clients[0].send("claim", json!({ "job": "j", "wait": "10m" }));
    assert_eq!(clients[1].event("renewed")["claim"], claim);
    clients[0].send("release", json!({ "claim": waiting, "outcome": "error" }));
    assert_eq!(said(&clients[0].answer(&json!(waiting))), ("skipped", "cancelled"));
    let file = sites[1].path("page").display().to_string();
    let write = json!({ "claim": claim, "kind": "file", "path": file, "data": "content" });
    assert_eq!(clients[1].ask("publish", write)["answer"], "published");
    assert_eq!(clients[1].ask("release", json!({ "claim": claim, "outcome": "empty" }))["status"], "empty");
    let item = clients[0].send("once", json!({ "key": "invoice/7" }));
    assert_eq!(clients[0].answer(&json!(item))["answer"], "granted");
    assert_eq!(clients[0].ask("release", json!({ "claim": item, "exit_code": 0 }))["status"], "ok");
    assert_eq!(said(&clients[1].ask("once", json!({ "key": "invoice/7" }))), ("skipped", "done"));
}
