//! The etcd store keeps the contract, on a real server and on a cluster of three: through crashes, changes of the leader,
//! and over a bad network.

#![cfg(feature = "etcd")]

use std::io::Write;
use std::thread;
use std::time::Instant;

use fencepost_store::{Access, Fate, Key, Secret, Soundness, Store, Swapped, Trouble, conformance};
use fencepost_testkit::http::Request;
use fencepost_testkit::network::{Loopback, Proxy, Weather, free_port};
use fencepost_testkit::race::{race, wait_for_lines};
use fencepost_testkit::servers::{self, Etcd};
use fencepost_testkit::store::{declared, open, open_with, put, refused};
use nix::sys::signal::Signal;
use serde_json::json;

#[test]
fn conforms() {
    let server = Etcd::start();
    conformance::run(&|| Ok(store(&server.url()))).unwrap();
    assert_eq!(store(&server.url()).scan("", None, 10).unwrap().value, [], "nothing is left");
}

#[test]
fn one_request_per_call_and_one_connection_for_all() {
    let server = Etcd::start();
    let proxy = Proxy::of_http(server.port());
    let store = store(&through(&proxy));
    let before = proxy.messages();
    let mut version = put(&*store, &key("a"), None, b"0");
    for _ in 0..10 {
        version = put(&*store, &key("a"), Some(&version), &[7; 60_000]);
        store.read(&key("a")).unwrap();
        store.swap(&key("a"), None, Some(b"lost")).unwrap();
        store.scan("probe/", None, 10).unwrap();
    }
    assert_eq!((proxy.messages() - before, proxy.connections()), (1 + 10 * 4, 1));
}

#[test]
fn stores_of_different_prefixes_are_apart() {
    let server = Etcd::start();
    let [one, other] = ["team", "team-a"].map(|prefix| store(&format!("etcd://127.0.0.1:{}/{prefix}", server.port())));
    let version = put(&*one, &key("a"), None, b"1");
    assert_eq!(other.read(&key("a")).unwrap().value, None);
    assert_eq!(other.scan("", None, 10).unwrap().value, []);
    assert!(matches!(other.swap(&key("a"), Some(&version), None).unwrap().value, Swapped::Lost(None)));
}

#[test]
fn nothing_acknowledged_is_lost_over_a_bad_network() {
    let server = Etcd::start();
    let proxy = Proxy::of_http(server.port());
    let url = through(&proxy);
    proxy.set(Weather::Foul);
    let tally = race(&|| store(&url), &*store(&server.url()), &key("lines"), 8, 12);
    assert!(tally.won > 20 && tally.unknown > 10 && tally.happened > 2, "{tally:?}");
    assert!(tally.unknown > tally.happened, "{tally:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let mut server = Etcd::start();
    let url = server.url();
    let tally = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&|| store(&url), &*store(&url), &key("lines"), 6, 100));
        for lines in [50, 150, 300] {
            wait_for_lines(&*store(&url), &key("lines"), lines);
            server.kill_and_restart();
        }
        racing.join().unwrap()
    });
    assert!(tally.won > 50 && tally.not_done + tally.unknown > 0, "{tally:?}");
    let quick = conformance::checks().filter(|check| !check.slow);
    quick.for_each(|check| check.run(&|| Ok(store(&url))).unwrap());
}

/// The stopped leader keeps its connections and its clients' requests. When it continues, it must not answer for the
/// cluster that has gone on without it.
#[test]
fn nothing_acknowledged_is_lost_when_the_leader_is_killed_or_stopped() {
    let mut cluster = Etcd::with(3, &[]);
    let url = cluster.url();
    let tally = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&|| store(&url), &*store(&url), &key("lines"), 6, 100));
        let lines = |lines: usize| wait_for_lines(&*store(&url), &key("lines"), lines);
        lines(60);
        let leader = cluster.leader();
        cluster.kill(leader);
        lines(160);
        cluster.restart(leader);
        let leader = cluster.leader();
        cluster.signal(leader, Signal::SIGSTOP);
        lines(320);
        cluster.signal(leader, Signal::SIGCONT);
        racing.join().unwrap()
    });
    assert!(tally.won > 300 && tally.unknown > 0, "{tally:?}");
}

#[test]
fn the_next_endpoint_is_asked_only_if_nothing_was_sent() {
    let server = Etcd::start();
    let proxy = Proxy::of_http(server.port());
    let second = format!("127.0.0.1:{}/fencepost", proxy.port);
    let dead = format!("etcd://127.0.0.1:{},{second}", free_port());
    let version = put(&*store(&dead), &key("a"), None, b"1");
    let before = proxy.messages();
    // It takes the whole request and says nothing.
    let deaf = Loopback::start(|stream| drop(Request::read(&stream)));
    let handle = store(&format!("etcd://127.0.0.1:{},{second}", deaf.port));
    let error = handle.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Unavailable), "{error}");
    assert_eq!(proxy.messages(), before, "it was tried once");
    put(&*handle, &key("a"), Some(&version), b"3");
    assert_eq!(proxy.messages(), before + 1, "the next call begins with the other");
}

#[test]
fn a_server_that_says_nothing_does_not_hold_a_call_for_ever() {
    let server = Etcd::start();
    let proxy = Proxy::of_http(server.port());
    let store = store(&through(&proxy));
    let version = put(&*store, &key("a"), None, b"1");
    let before = proxy.messages();
    proxy.set(Weather::Silent);
    let begun = Instant::now();
    let error = store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Unavailable), "{error}");
    assert!((14..=60).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(proxy.messages() - before, 1, "it was tried once");
    proxy.set(Weather::Fair);
    assert!(store.read(&key("a")).unwrap().value.is_some(), "it reconnects");
}

#[test]
fn compaction_is_survived() {
    let server = Etcd::start();
    let store = store(&server.url());
    let mut old = put(&*store, &key("a"), None, b"0");
    for round in 1..20_u8 {
        let next = put(&*store, &key("a"), Some(&old), &[round]);
        let now = server.ask("/v3/kv/range", &json!({"key": "YQ=="}))["header"]["revision"].clone();
        server.ask("/v3/kv/compaction", &json!({"revision": now, "physical": true}));
        assert!(matches!(store.swap(&key("a"), Some(&old), None).unwrap().value, Swapped::Lost(Some(_))));
        assert_eq!(store.read(&key("a")).unwrap().value.unwrap().version, next);
        old = next;
    }
}

/// A cluster that was restored counts its revisions again: the same key has the same revision and another content.
#[test]
fn a_revision_that_comes_again_is_another_version() {
    let (before, after) = (Etcd::start(), Etcd::start());
    let [forgotten, found] = [&before, &after].map(|server| put(&*store(&server.url()), &key("a"), None, b"same"));
    assert_eq!(forgotten.0[..8], found.0[..8], "the revision is the same");
    let ended = store(&after.url()).swap(&key("a"), Some(&forgotten), Some(b"stale")).unwrap().value;
    assert!(matches!(ended, Swapped::Lost(Some(entry)) if entry.version == found));
}

#[test]
fn users() {
    let mut server = Etcd::start();
    for (path, body) in [
        ("user/add", json!({"name": "root", "password": "r00t"})),
        ("user/grant", json!({"user": "root", "role": "root"})),
        ("user/add", json!({"name": "jobs", "password": "s3cret"})),
        ("role/add", json!({"name": "jobs"})),
        // From "fencepost/" up to "fencepost0".
        (
            "role/grant",
            json!({"name": "jobs", "perm": {"permType": "READWRITE", "key": "ZmVuY2Vwb3N0Lw==", "range_end": "ZmVuY2Vwb3N0MA=="}}),
        ),
        ("user/grant", json!({"user": "jobs", "role": "jobs"})),
        ("enable", json!({})),
    ] {
        server.ask(&format!("/v3/auth/{path}"), &body);
    }
    let place = format!("127.0.0.1:{}/fencepost", server.port());
    let given = |password: &str| Access { password: Some(Secret::new(password)), ..Access::default() };
    let store = open_with(&format!("etcd://jobs@{place}"), &given("s3cret")).unwrap();
    let version = put(&*store, &key("a"), None, b"1");
    open(&format!("etcd://jobs:s3cret@{place}")).unwrap().read(&key("a")).unwrap();
    let elsewhere = format!("etcd://jobs:s3cret@127.0.0.1:{}/other", server.port());
    for (refusing, part) in [
        (open_with(&format!("etcd://jobs@{place}"), &given("wr0ng")), "FENCEPOST_STORE_PASSWORD"),
        (open(&format!("etcd://{place}")), "etcd://USER@HOST"),
        (open(&elsewhere), "etcdctl role grant-permission"),
    ] {
        let error = refusing.unwrap().swap(&key("b"), None, Some(b"1")).unwrap_err();
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
        assert!(error.detail.contains(part), "{error}");
        assert!(!error.detail.contains("s3cret") && !error.detail.contains("wr0ng"), "{error}");
    }
    // The server forgets its tokens; the handle logs in again.
    server.kill_and_restart();
    put(&*store, &key("a"), Some(&version), b"2");
}

#[test]
fn a_server_without_users_is_not_given_a_password() {
    let server = Etcd::start();
    let error = store(&format!("etcd://me:s3cret@127.0.0.1:{}", server.port())).read(&key("a")).unwrap_err();
    assert!(error.detail.contains("It has no users") && !error.detail.contains("s3cret"), "{error}");
}

#[test]
fn tls_with_and_without_a_certificate_of_the_client() {
    let directory = servers::own_directory();
    let (key_file, certificate) = servers::certificate(directory.path());
    let [key_file, certificate] = [key_file, certificate].map(|path| path.display().to_string());
    let flags = [format!("--cert-file={certificate}"), format!("--key-file={key_file}")];
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Etcd::with(1, &flags);
    let url = |port: u16, options: &str| format!("etcd://localhost:{port}/x?tls=1{options}");
    let trusted = format!("&ca={certificate}");
    put(&*store(&url(server.port(), &trusted)), &key("a"), None, b"1");
    refused(store(&url(server.port(), "")).swap(&key("a"), None, Some(b"1")), "has no certificate that is good");
    let both = format!("--trusted-ca-file={certificate}");
    flags.extend(["--client-cert-auth", &both]);
    let strict = Etcd::with(1, &flags);
    put(&*store(&url(strict.port(), &format!("{trusted}&cert={certificate}&key={key_file}"))), &key("a"), None, b"1");
    assert!(store(&url(strict.port(), &trusted)).read(&key("a")).is_err(), "without a certificate of its own");
}

#[test]
fn what_only_looks_like_etcd_is_not_believed() {
    let header = r#""header":{"cluster_id":"1","member_id":"1","revision":"2","raft_term":"2"}"#;
    let table = [
        ("200 OK", String::from("{}")),
        ("200 OK", String::from("<html>login</html>")),
        ("200 OK", format!("{{{header}}}")),
        ("200 OK", format!(r#"{{{header},"succeeded":true}}"#)),
        ("200 OK", format!(r#"{{{header},"succeeded":true,"responses":[{{"response_range":{{}}}}]}}"#)),
        ("200 OK", format!(r#"{{{header},"responses":[{{"response_put":{{}}}}]}}"#)),
        ("302 Found", String::new()),
        ("403 Forbidden", String::from("no")),
        ("502 Bad Gateway", String::from(r#"{"error":"etcdserver: request timed out","code":14}"#)),
    ];
    for (status, body) in table {
        let words = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        let server = Loopback::start(move |mut stream| {
            let _ = Request::read(&stream).map(|_| stream.write_all(words.as_bytes()));
        });
        let error = store(&format!("etcd://127.0.0.1:{}", server.port)).swap(&key("a"), None, Some(b"1")).unwrap_err();
        assert_eq!(error.fate, Fate::Unknown, "{status} {body}: {error}");
    }
}

#[test]
fn what_fencepost_did_not_write_is_refused() {
    let server = Etcd::start();
    let store = store(&server.url());
    // "fencepost/" and a name that is no key, and a value that is too short.
    server.ask("/v3/kv/put", &json!({"key": "ZmVuY2Vwb3N0L1g=", "value": "eA=="}));
    let error = store.scan("", None, 10).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    let name = base64_of(&format!("fencepost/{}", key("a")));
    server.ask("/v3/kv/put", &json!({"key": name, "value": "eA=="}));
    for error in [store.read(&key("a")).unwrap_err(), store.swap(&key("a"), None, Some(b"1")).unwrap_err()] {
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    }
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let error = store(&format!("etcd://u:s3cret@127.0.0.1:{}", free_port())).swap(&key("a"), None, None).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    assert!(!error.detail.contains("s3cret"), "{error}");
}

#[test]
fn the_cluster_declares_what_it_is() {
    for (members, part) in [(1, "One member"), (3, "3 members agree")] {
        let server = Etcd::with(members, &[]);
        let found = declared(&server.url(), &Access::default()).unwrap();
        let standings: Vec<_> = found.iter().map(|one| (one.name, one.standing)).collect();
        let sound = ["durability", "replication", "clock", "transport"].map(|name| (name, Soundness::Sound));
        assert_eq!(standings, sound);
        assert!(found[1].detail.contains(part), "{found:?}");
    }
}

fn store(url: &str) -> Box<dyn Store> {
    open(url).unwrap()
}

fn through(proxy: &Proxy) -> String {
    format!("etcd://127.0.0.1:{}/fencepost", proxy.port)
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn key(name: &str) -> Key {
    Key::probe("etcd", name)
}
