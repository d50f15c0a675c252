//! The HTTP store keeps the contract, spoken by the Durable Object in a real workerd: through crashes, over a bad network,
//! and before things that only look like a store.

#![cfg(all(feature = "http", feature = "sqlite"))]

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fencepost_store::{
    Access, Fate, HttpStore, Key, Secret, Soundness, Store, StoreError, Swapped, Trouble, conformance,
};
use fencepost_testkit::http::{Request, message};
use fencepost_testkit::network::{Loopback, Proxy, Weather, free_port};
use fencepost_testkit::race::race;
use fencepost_testkit::servers::{self, TOKEN, Worker};
use fencepost_testkit::store::{declared, open_with, put};

#[test]
fn conforms() {
    let worker = Worker::start();
    conformance::run(&|| Ok(Box::new(store(&worker.url())))).unwrap();
    assert_eq!(store(&worker.url()).scan("", None, 10).unwrap().value, [], "nothing is left");
}

#[test]
fn one_request_per_call_and_one_connection_for_all() {
    let worker = Worker::start();
    let proxy = Proxy::of_http(worker.port);
    let store = store(&proxy.url());
    let mut version = put(&store, &key("a"), None, b"0");
    for _ in 0..10 {
        version = put(&store, &key("a"), Some(&version), &[7; 60_000]);
        store.read(&key("a")).unwrap();
        store.swap(&key("a"), None, Some(b"lost")).unwrap();
        store.scan("probe/", None, 10).unwrap();
    }
    assert_eq!((proxy.messages(), proxy.connections()), (1 + 10 * 4, 1));
}

#[test]
fn stores_of_different_paths_are_apart() {
    let worker = Worker::start();
    let [one, other] = ["", "/team-a"].map(|path| store(&format!("{}{path}", worker.url())));
    let version = put(&one, &key("a"), None, b"1");
    assert_eq!(other.read(&key("a")).unwrap().value, None);
    assert!(matches!(other.swap(&key("a"), Some(&version), None).unwrap().value, Swapped::Lost(None)));
    let eras = [one, other].map(|store| store.read(&key("a")).unwrap().clock.unwrap().era);
    assert_ne!(eras[0], eras[1], "each has a clock of its own");
}

#[test]
fn nothing_acknowledged_is_lost_over_a_bad_network() {
    let worker = Worker::start();
    let proxy = Proxy::of_http(worker.port);
    proxy.set(Weather::Foul);
    let tally = race(&|| Box::new(store(&proxy.url())), &store(&worker.url()), &key("lines"), 8, 12);
    assert!(tally.won > 20 && tally.unknown > 10 && tally.happened > 2, "{tally:?}");
    assert!(tally.unknown > tally.happened, "{tally:?}");
}

#[test]
fn a_counter_over_a_bad_network_has_the_exact_sum() {
    let worker = Worker::start();
    let proxy = Proxy::of_http(worker.port);
    proxy.set(Weather::Foul);
    let (threads, times) = (6_u64, 15);
    thread::scope(|scope| {
        for thread in 0..threads {
            let store = store(&proxy.url());
            scope.spawn(move || (0..times).for_each(|time| count_up(&store, thread * 1000 + time)));
        }
    });
    let found = store(&worker.url()).read(&key("counter")).unwrap().value.unwrap();
    assert_eq!(parts(&found.bytes).0, threads * times);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let mut worker = Worker::start();
    let url = worker.url();
    let era = store(&url).read(&key("a")).unwrap().clock.unwrap().era;
    let tally = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&|| Box::new(store(&url)), &store(&url), &key("lines"), 6, 60));
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(300));
            worker.kill_and_restart();
        }
        racing.join().unwrap()
    });
    assert!(tally.won > 50 && tally.not_done + tally.unknown > 0, "{tally:?}");
    let store = store(&url);
    let version = put(&store, &key("a"), None, &[5; 65_536]);
    worker.kill_and_restart();
    let found = store.read(&key("a")).unwrap();
    assert_eq!(found.value.map(|entry| (entry.version, entry.bytes.len())), Some((version, 65_536)));
    assert_eq!(found.clock.unwrap().era, era, "a restart ends no lease");
}

/// The effect of an object that failed is unknown, also to the front that asked it.
#[test]
fn an_object_that_fails_leaves_a_swap_unknown() {
    let mut worker = Worker::start();
    let store = store(&worker.url());
    let version = put(&store, &key("a"), None, b"1");
    worker.meddle("UPDATE layout SET layout = 'fencepost store, layout 2'");
    let error = store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Unavailable), "{error}");
    assert!(error.detail.contains("deploy a newer worker"), "{error}");
    let error = store.read(&key("a")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    worker.meddle("UPDATE layout SET layout = 'fencepost store, layout 1'");
    assert_eq!(store.read(&key("a")).unwrap().value.unwrap().version, version);
}

#[test]
fn a_server_that_says_nothing_does_not_hold_a_call_for_ever() {
    let worker = Worker::start();
    let proxy = Proxy::of_http(worker.port);
    let store = store(&proxy.url());
    let version = put(&store, &key("a"), None, b"1");
    proxy.set(Weather::Silent);
    let begun = Instant::now();
    let error = store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Unavailable), "{error}");
    assert!((14..=18).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(proxy.messages(), 2, "it was tried once");
    proxy.set(Weather::Fair);
    assert!(store.read(&key("a")).unwrap().value.is_some(), "it reconnects");
}

#[test]
fn tokens() {
    let old = "an-old-t0ken-that-is-still-good";
    let worker = Worker::with(&[("FENCEPOST_TOKEN", TOKEN), ("FENCEPOST_TOKEN_OLD", old)]);
    let proxy = Proxy::of_http(worker.port);
    let place = format!("127.0.0.1:{}", proxy.port);
    let given = |token: &str| Access { password: Some(Secret::new(token)), ..Access::default() };
    let good = [
        open_with(&format!("http://{place}"), &given(TOKEN)),
        open_with(&format!("http://{place}"), &given(old)),
        open_with(&format!("http://{TOKEN}@{place}"), &Access::default()),
        open_with(&format!("http://fencepost:{TOKEN}@{place}"), &Access::default()),
        open_with(&format!("http://wr0ng@{place}"), &given(TOKEN)),
    ];
    for store in good {
        store.unwrap().read(&key("a")).unwrap();
    }
    let before = proxy.messages();
    let bad = [
        open_with(&format!("http://{place}"), &Access::default()),
        open_with(&format!("http://wr0ng@{place}"), &Access::default()),
        open_with(&format!("http://{place}"), &given(&format!("{TOKEN}x"))),
        open_with(&format!("http://{TOKEN}@{place}"), &given("wr0ng")),
    ];
    for store in bad.map(Result::unwrap) {
        let error = store.swap(&key("a"), None, Some(b"1")).unwrap_err();
        refused(&error, Fate::NotDone, "The bearer token is missing or wrong");
        assert!(error.detail.contains("FENCEPOST_STORE_PASSWORD") && error.detail.contains("nothing was changed"));
        assert!(!error.detail.contains("t0ken") && !error.detail.contains("wr0ng"), "{error}");
        assert_eq!(store.read(&key("a")).unwrap_err().trouble, Trouble::Refused);
    }
    assert_eq!(proxy.messages() - before, 8, "a refusal is not tried again");
    let shown = format!("{:?}", HttpStore::open(&format!("http://{TOKEN}@{place}"), None).unwrap());
    assert!(!shown.contains("t0ken"), "{shown}");
}

#[test]
fn a_worker_without_a_token_lets_nobody_in() {
    for settings in [&[][..], &[("FENCEPOST_TOKEN", "short"), ("FENCEPOST_TOKEN_OLD", "")]] {
        let worker = Worker::with(settings);
        for token in ["short", "x"] {
            let store = HttpStore::open(&worker.url(), Some(&Secret::new(token))).unwrap();
            refused(&store.read(&key("a")).unwrap_err(), Fate::NotDone, "wrangler secret put FENCEPOST_TOKEN");
        }
    }
}

#[test]
fn who_asks_too_often_is_put_off() {
    let worker = Worker::with(&[("FENCEPOST_TOKEN", TOKEN), ("FENCEPOST_RATE", "4")]);
    let store = store(&worker.url());
    let version = put(&store, &key("a"), None, b"1");
    let ended: Vec<_> = (0..20).map(|_| store.swap(&key("a"), Some(&version), None)).collect();
    let put_off: Vec<&StoreError> = ended.iter().filter_map(|ended| ended.as_ref().err()).collect();
    assert!(put_off.len() >= 8, "{} of 20", put_off.len());
    for error in put_off {
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
        assert!(error.detail.contains("to be asked again after 1 s"), "{error}");
    }
    thread::sleep(Duration::from_millis(1200));
    store.read(&key("a")).unwrap();
}

/// Method, path, headers, body, and the status and code that are the answer.
type Case<'a> = (&'a str, &'a str, &'a [&'a str], &'a [u8], u16, &'a str);

/// Written to the letter of the protocol, and a little beside it.
#[test]
fn the_server_refuses_what_it_must() {
    let worker = Worker::start();
    let (swap, kept) = (["Fencepost-Expect: none", "Fencepost-New: value"], "/v1/keys/job/a");
    let huge = vec![b'x'; 65_537];
    let long_key = format!("/v1/keys/job/{}", "a".repeat(256));
    let table: &[Case<'_>] = &[
        ("POST", kept, &swap, &huge, 413, "too_large"),
        ("POST", kept, &["Fencepost-New: value"], b"x", 400, "bad_request"),
        ("POST", kept, &["Fencepost-Expect: none"], b"x", 400, "bad_request"),
        ("POST", kept, &["Fencepost-Expect: 0G", "Fencepost-New: value"], b"x", 400, "bad_request"),
        ("POST", kept, &["Fencepost-Expect: none", "Fencepost-New: none"], b"x", 400, "bad_request"),
        ("POST", "/v1/keys/job", &swap, b"x", 400, "bad_request"),
        ("POST", "/v1/keys/job/A", &swap, b"x", 400, "bad_request"),
        ("POST", "/v1/keys/job/a/", &swap, b"x", 400, "bad_request"),
        ("POST", "/v1/keys/job/a%2fb", &swap, b"x", 400, "bad_request"),
        ("POST", &long_key, &swap, b"x", 400, "bad_request"),
        ("POST", "/v1/keys", &swap, b"x", 405, "method_not_allowed"),
        ("PUT", kept, &swap, b"x", 405, "method_not_allowed"),
        ("DELETE", kept, &swap, b"", 405, "method_not_allowed"),
        ("GET", "/v1/keys?limit=many", &[], b"", 400, "bad_request"),
        ("GET", "/v2/keys/job/a", &[], b"", 404, "no_such_place"),
        ("GET", "/", &[], b"", 404, "no_such_place"),
    ];
    for (method, path, headers, body, status, code) in table {
        let authorized = format!("Authorization: Bearer {TOKEN}");
        let answer = raw(worker.port, method, path, &[headers, &[authorized.as_str()][..]].concat(), body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
        assert!(answer.contains(&format!(r#"{{"error":{{"code":"{code}","#)), "{method} {path}: {answer}");
        assert!(answer.contains(r#""fate":"not-done""#) && answer.contains("Fencepost-Answer: error"), "{answer}");
        assert!(answer.contains("Fencepost-Request: ab12") && answer.contains("no-store"), "{answer}");
        // Without the token nothing else is told.
        let answer = raw(worker.port, method, path, headers, body);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{method} {path}: {answer}");
    }
    assert_eq!(store(&worker.url()).scan("", None, 10).unwrap().value, [], "nothing was changed");
}

/// A proxy, a login page, another server: none of them is a store in which nothing stands.
#[test]
fn what_only_looks_like_a_store_is_not_believed() {
    let echo = "Fencepost-Request: ECHO\r\n";
    let clock = "Fencepost-Clock: wall=1; tick=1; era=x\r\n";
    let table = [
        ("200 OK", "", Trouble::Refused),
        ("404 Not Found", "", Trouble::Refused),
        ("302 Found", "Location: http://127.0.0.1:1/\r\n", Trouble::Refused),
        ("403 Forbidden", "", Trouble::Refused),
        ("502 Bad Gateway", "", Trouble::Unavailable),
        ("429 Too Many Requests", "", Trouble::Unavailable),
        // A cache gives back what it was once told.
        ("404 Not Found", &format!("Fencepost-Answer: absent\r\nFencepost-Version: none\r\n{clock}"), Trouble::Refused),
        ("200 OK", &format!("Fencepost-Answer: won\r\nFencepost-Version: none\r\n{echo}{clock}"), Trouble::Refused),
        ("200 OK", &format!("Fencepost-Answer: keys\r\n{echo}{clock}"), Trouble::Refused),
        ("401 Unauthorized", &format!("Fencepost-Answer: error\r\n{echo}"), Trouble::Refused),
    ];
    for (status, headers, trouble) in table {
        let server =
            answering(format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: 2\r\n\r\nhi"));
        let store = store(&server.url(""));
        let error = store.swap(&key("a"), None, Some(b"1")).unwrap_err();
        assert_eq!((error.fate, error.trouble), (Fate::Unknown, trouble), "{status} {headers}: {error}");
        let error = store.read(&key("a")).unwrap_err();
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, trouble), "{status} {headers}: {error}");
    }
    let server = answering("SSH-2.0-OpenSSH\r\n".to_string());
    let error = store(&server.url("")).swap(&key("a"), None, None).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Unavailable), "{error}");
}

#[test]
fn an_answer_that_is_longer_than_a_value_is_not_read() {
    let headers = "Fencepost-Answer: entry\r\nFencepost-Version: 00\r\nFencepost-Request: ECHO\r\n";
    let body = "x".repeat(65_537);
    let server = answering(format!("HTTP/1.1 200 OK\r\n{headers}Connection: close\r\n\r\n{body}"));
    let error = store(&server.url("")).read(&key("a")).unwrap_err();
    assert!(error.detail.contains("too long"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let error = store(&format!("http://127.0.0.1:{}", free_port())).swap(&key("a"), None, None).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    let error = store("https://no-such-host.invalid").swap(&key("a"), None, Some(b"1")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    assert!(!error.detail.contains("t0ken"), "{error}");
}

/// The roots come from the environment of the process, so that the test calls itself in another one.
#[test]
fn tls() {
    if let Ok(url) = std::env::var("FENCEPOST_TEST_TLS_URL") {
        put(&store(&url), &key("a"), None, b"1");
        return;
    }
    let directory = servers::own_directory();
    let (key_file, certificate) = servers::certificate(directory.path());
    let worker = Worker::with_tls(&key_file, &certificate);
    let url = format!("https://localhost:{}", worker.port);
    let mut myself = Command::new(std::env::current_exe().unwrap());
    myself.args(["--exact", "tls"]).env("FENCEPOST_TEST_TLS_URL", &url).env("SSL_CERT_FILE", &certificate);
    let output = myself.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let error = store(&url).swap(&key("a"), None, Some(b"1")).unwrap_err();
    refused(&error, Fate::NotDone, "has no certificate that is good for its name");
}

#[test]
fn the_server_declares_what_it_is() {
    let worker = Worker::start();
    let access = Access { password: Some(Secret::new(TOKEN)), ..Access::default() };
    let found = declared(&worker.url(), &access).unwrap();
    let standings: Vec<_> = found.iter().map(|one| (one.name, one.standing)).collect();
    let (sound, weak) = (Soundness::Sound, Soundness::Weak);
    assert_eq!(standings, [("durability", sound), ("replication", sound), ("clock", weak), ("transport", sound)]);
}

/// Adds one to a sum and notes who did it last, so that a swap whose fate is unknown is settled by looking.
fn count_up(store: &dyn Store, mark: u64) {
    let begun = Instant::now();
    let mut doubt = false;
    while begun.elapsed() < Duration::from_secs(60) {
        let Ok(read) = store.read(&key("counter")) else { continue };
        let (sum, marks) = read.value.as_ref().map_or((0, Vec::new()), |entry| parts(&entry.bytes));
        if doubt && marks.contains(&mark) {
            return;
        }
        let marks = marks.iter().chain([&mark]).map(u64::to_string).collect::<Vec<_>>().join(",");
        let next = format!("{}:{marks}", sum + 1);
        match store.swap(&key("counter"), read.value.as_ref().map(|entry| &entry.version), Some(next.as_bytes())) {
            Ok(answer) if matches!(answer.value, Swapped::Won(_)) => return,
            Ok(_) => {}
            Err(error) => doubt |= error.fate == Fate::Unknown,
        }
    }
    panic!("{mark} could not be added");
}

fn parts(bytes: &[u8]) -> (u64, Vec<u64>) {
    let text = std::str::from_utf8(bytes).unwrap();
    let (sum, marks) = text.split_once(':').unwrap();
    (sum.parse().unwrap(), marks.split(',').map(|mark| mark.parse().unwrap()).collect())
}

/// Sends a request as it stands, and returns the whole answer.
fn raw(port: u16, method: &str, path: &str, headers: &[&str], body: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nFencepost-Request: ab12\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // Who is refused by the head alone may be answered before the body is through.
    let _ = stream.write_all(body);
    String::from_utf8(message(&stream).unwrap()).unwrap()
}

/// Answers everything in the same words, and every `ECHO` in them with the number of the request.
fn answering(words: String) -> Loopback {
    Loopback::start(move |mut stream| {
        let Ok(request) = Request::read(&stream) else { return };
        let number = request.header("fencepost-request").unwrap_or_default();
        let _ = stream.write_all(words.replace("ECHO", number).as_bytes());
    })
}

fn store(url: &str) -> HttpStore {
    HttpStore::open(url, Some(&Secret::new(TOKEN))).unwrap()
}

fn key(name: &str) -> Key {
    Key::probe("http", name)
}

fn refused(error: &StoreError, fate: Fate, part: &str) {
    assert_eq!((error.fate, error.trouble), (fate, Trouble::Refused), "{error}");
    assert!(error.detail.contains(part), "{error}");
}
