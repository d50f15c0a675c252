//! The Redis store keeps the contract, on a real server: through crashes and over a bad network.

#![cfg(feature = "redis")]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fencepost_store::redis::RedisStore;
use fencepost_store::{Access, Entry, Fate, Key, OpenError, Secret, Soundness, Store, Swapped, Trouble, conformance};
use fencepost_testkit::network::{Proxy, Weather, free_port};
use fencepost_testkit::race::{race, wait_for_lines};
use fencepost_testkit::servers::{self, Redis};
use fencepost_testkit::store::{declared, open_with, put, refused};

const SETTINGS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

#[test]
fn conforms() {
    let server = Redis::start(SETTINGS);
    conformance::run(&|| Ok(Box::new(store(&server.url())))).unwrap();
    let left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut client(&server)).unwrap();
    assert_eq!(left, ["{fencepost}:layout"], "one tag for all, and nothing left but the mark");
}

#[test]
fn one_round_trip_per_call() {
    let server = Redis::start(SETTINGS);
    let proxy = Proxy::start(server.port);
    let store = store(&through(&proxy));
    let mut version = put(&store, &key("a"), None, b"0");
    let before = proxy.messages();
    for _ in 0..10 {
        version = put(&store, &key("a"), Some(&version), &[7; 60_000]);
        store.read(&key("a")).unwrap();
        store.swap(&key("a"), None, Some(b"lost")).unwrap();
        store.scan("probe/", None, 10).unwrap();
    }
    assert_eq!(proxy.messages() - before, 10 * 4, "round trips");
}

#[test]
fn nothing_expires() {
    let server = Redis::start(SETTINGS);
    put(&store(&server.url()), &key("a"), None, b"1");
    let mut client = client(&server);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut client).unwrap();
    assert_eq!(keys.len(), 3, "{keys:?}");
    for name in keys {
        let left: i64 = redis::cmd("TTL").arg(&name).query(&mut client).unwrap();
        assert!(left == -1 && name.starts_with("{fencepost}:"), "{name}: {left}");
    }
}

#[test]
fn nothing_acknowledged_is_lost_over_a_bad_network() {
    let server = Redis::start(SETTINGS);
    let proxy = Proxy::start(server.port);
    let url = through(&proxy);
    proxy.set(Weather::Foul);
    let tally = race(&|| Box::new(store(&url)), &store(&server.url()), &key("lines"), 8, 12);
    assert!(tally.won > 20 && tally.unknown > 10 && tally.happened > 2, "{tally:?}");
    assert!(tally.unknown > tally.happened, "{tally:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let mut server = Redis::start(SETTINGS);
    let url = server.url();
    let tally = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&|| Box::new(store(&url)), &store(&url), &key("lines"), 6, 150));
        for lines in [100, 300, 500] {
            wait_for_lines(&store(&url), &key("lines"), lines);
            server.kill_and_restart();
        }
        racing.join().unwrap()
    });
    assert!(tally.won > 50 && tally.not_done + tally.unknown > 0, "{tally:?}");
    let quick = conformance::checks().filter(|check| !check.slow);
    quick.for_each(|check| check.run(&|| Ok(Box::new(store(&url)))).unwrap());
}

#[test]
fn a_server_that_says_nothing_does_not_hold_a_call_for_ever() {
    let server = Redis::start(SETTINGS);
    let proxy = Proxy::start(server.port);
    let store = store(&through(&proxy));
    let version = put(&store, &key("a"), None, b"1");
    proxy.set(Weather::Silent);
    let begun = Instant::now();
    let error = store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Unavailable), "{error}");
    assert!((9..=60).contains(&begun.elapsed().as_secs()), "10 s for the answer: {:?}", begun.elapsed());
    assert!(error.detail.contains("did not answer within 10 s"), "{error}");
    proxy.set(Weather::Fair);
    assert!(store.read(&key("a")).unwrap().value.is_some(), "it reconnects");
}

#[test]
fn a_replica_is_refused_for_reading_too() {
    let primary = Redis::start(&[SETTINGS, &["--repl-diskless-sync-delay", "0"]].concat());
    let version = put(&store(&primary.url()), &key("a"), None, b"1");
    let follows = ["--replicaof", &format!("127.0.0.1 {}", primary.port)];
    let writable = [&follows[..], &["--replica-read-only", "no"]].concat();
    // The third is one whose user may not ask what it is.
    for (settings, muzzled) in [(&follows[..], false), (&writable, false), (&follows, true)] {
        let replica = Redis::start(settings);
        let arrived = || redis::cmd("EXISTS").arg("{fencepost}:layout").query::<bool>(&mut client(&replica)).unwrap();
        let begun = Instant::now();
        while !arrived() && begun.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(20));
        }
        if muzzled {
            let user = ["SETUSER", "default", "-info"];
            redis::cmd("ACL").arg(&user).query::<()>(&mut client(&replica)).unwrap();
        }
        let store = store(&replica.url());
        refused(store.read(&key("a")), "is a replica");
        refused(store.scan("probe/", None, 1), "is a replica");
        refused(store.swap(&key("a"), Some(&version), Some(b"2")), "is a replica");
    }
}

/// The replica has not seen the last swaps. No version of the lost states is honoured, and the era is the same.
#[test]
fn after_a_failover_no_lost_state_is_built_on() {
    let primary = Redis::start(&[SETTINGS, &["--repl-diskless-sync-delay", "0"]].concat());
    let before = store(&primary.url());
    let first = put(&before, &key("a"), None, b"1");
    let replica = Redis::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    let arrived = || redis::cmd("EXISTS").arg("{fencepost}:layout").query::<bool>(&mut client(&replica)).unwrap();
    let begun = Instant::now();
    while !arrived() && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(20));
    }
    redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).query::<()>(&mut client(&replica)).unwrap();
    let lost = put(&before, &key("a"), Some(&first), b"2");
    let then = before.read(&key("a")).unwrap().clock.unwrap();
    drop(primary);
    let after = store(&replica.url());
    let ended = after.swap(&key("a"), Some(&lost), Some(b"3")).unwrap();
    assert_eq!(ended.value, Swapped::Lost(Some(Entry { bytes: b"1".to_vec(), version: first.clone() })));
    assert_eq!(ended.clock.unwrap().era, then.era, "another era would end every lease");
    put(&after, &key("a"), Some(&first), b"3");
}

#[test]
fn what_the_server_threw_away_is_not_taken_for_fresh() {
    let server = Redis::start(SETTINGS);
    let store = store(&server.url());
    put(&store, &key("a"), None, b"1");
    let corrupt = |command: &[&str], part: &str| {
        let mut words = command.iter();
        redis::cmd(words.next().unwrap()).arg(words.as_slice()).query::<redis::Value>(&mut client(&server)).unwrap();
        let attempts = [store.read(&key("a")).map(|_| ()), store.swap(&key("a"), None, Some(b"1")).map(|_| ())];
        for error in attempts.map(Result::unwrap_err) {
            assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
            assert!(error.detail.contains(part), "{error}");
        }
    };
    corrupt(&["DEL", &format!("{{fencepost}}:entry:{}", key("a"))], "noeviction");
    corrupt(&["SET", &format!("{{fencepost}}:entry:{}", key("a")), "x"], "not fencepost's");
    corrupt(&["SET", "{fencepost}:layout", "fencepost store, layout 2"], "newer fencepost");
    corrupt(&["DEL", "{fencepost}:layout"], "mark is missing");
}

#[test]
fn a_server_that_is_full_refuses_and_has_changed_nothing() {
    let server = Redis::start(SETTINGS);
    let store = store(&server.url());
    let version = put(&store, &key("a"), None, b"1");
    redis::cmd("CONFIG").arg(&["SET", "maxmemory", "1"]).query::<()>(&mut client(&server)).unwrap();
    refused(store.swap(&key("a"), Some(&version), Some(b"2")), "memory is full");
    redis::cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).query::<()>(&mut client(&server)).unwrap();
    put(&store, &key("a"), Some(&version), b"2");
}

#[test]
fn a_node_of_a_cluster_serves_the_tag_it_has() {
    let server = Redis::start(&["--cluster-enabled", "yes"]);
    let ask = |words: &[&str]| redis::cmd("CLUSTER").arg(words).query::<redis::Value>(&mut client(&server)).unwrap();
    ask(&["ADDSLOTSRANGE", "0", "16383"]);
    let begun = Instant::now();
    while store(&server.url()).read(&key("a")).is_err() && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(50));
    }
    let quick = conformance::checks().filter(|check| !check.slow);
    quick.for_each(|check| check.run(&|| Ok(Box::new(store(&server.url())))).unwrap());
}

#[test]
fn passwords() {
    let server = Redis::start(&["--appendonly", "yes", "--requirepass", "s3cret"]);
    let place = format!("127.0.0.1:{}", server.port);
    let given = |password: &str| Access { password: Some(Secret::new(password)), ..Access::default() };
    open_with(&format!("redis://{place}"), &given("s3cret")).unwrap().read(&key("a")).unwrap();
    open_with(&format!("redis://:s3cret@{place}"), &Access::default()).unwrap().read(&key("a")).unwrap();
    let (wrong, none) = (format!("redis://:wr0ng@{place}"), format!("redis://{place}"));
    for url in [wrong, none] {
        let error = open_with(&url, &Access::default()).unwrap().swap(&key("a"), None, Some(b"1")).unwrap_err();
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
        assert!(!error.detail.contains("s3cret") && !error.detail.contains("wr0ng"), "{error}");
        assert!(error.detail.contains("FENCEPOST_STORE_PASSWORD"), "{error}");
    }
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
    let (port, paths) = (free_port().to_string(), [key_file, certificate].map(|path| path.display().to_string()));
    let settings = ["--tls-port", &port, "--tls-key-file", &paths[0], "--tls-cert-file", &paths[1]];
    let settings = [&settings[..], &["--tls-ca-cert-file", &paths[1], "--tls-auth-clients", "no"]].concat();
    let server = Redis::start(&settings);
    let url = format!("rediss://localhost:{port}");
    let mut myself = Command::new(std::env::current_exe().unwrap());
    myself.args(["--exact", "tls"]).env("FENCEPOST_TEST_TLS_URL", &url).env("SSL_CERT_FILE", &paths[1]);
    assert!(myself.output().unwrap().status.success());
    assert!(store(&server.url()).read(&key("a")).unwrap().value.is_some());
    let error = store(&url).read(&key("a")).unwrap_err();
    assert_eq!(error.fate, Fate::NotDone, "without the root: {error}");
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let url = format!("redis://u:s3cret@127.0.0.1:{}", free_port());
    let error = store(&url).swap(&key("a"), None, Some(b"1")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    assert!(!error.detail.contains("s3cret"), "{error}");
    let Err(OpenError::Usage(text)) = RedisStore::open("redis://u:s3cret@h:s3cret", None) else { panic!() };
    assert!(!text.contains("s3cret"), "{text}");
}

/// The server does not send what fencepost cannot have written.
#[test]
fn an_entry_that_is_too_long_is_refused() {
    let server = Redis::start(SETTINGS);
    let store = store(&server.url());
    let version = put(&store, &key("a"), None, &[7; 65_536]);
    assert_eq!(store.read(&key("a")).unwrap().value.map(|entry| entry.bytes.len()), Some(65_536));
    let name = format!("{{fencepost}}:entry:{}", key("a"));
    redis::cmd("HSET").arg(&name).arg("value").arg(vec![7u8; 65_537]).query::<()>(&mut client(&server)).unwrap();
    for error in [store.read(&key("a")).unwrap_err(), store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err()] {
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
        assert!(error.detail.contains("longer than any"), "{error}");
    }
    let long = format!("probe/{}", "x".repeat(5000));
    redis::cmd("ZADD").arg("{fencepost}:keys").arg(0).arg(long).query::<()>(&mut client(&server)).unwrap();
    assert_eq!(store.scan("probe/", None, 10).unwrap_err().trouble, Trouble::Corrupt);
}

#[test]
fn settings_are_declared() {
    let standings = |settings: &[&str]| {
        let server = Redis::start(settings);
        let found = declared(&server.url(), &Access::default()).unwrap();
        found.iter().map(|one| (one.name, one.standing)).take(3).collect::<Vec<_>>()
    };
    let sound = [("durability", Soundness::Sound), ("eviction", Soundness::Sound), ("replication", Soundness::Sound)];
    assert_eq!(standings(SETTINGS), sound);
    let careless = standings(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let unsound =
        [("durability", Soundness::Unsound), ("eviction", Soundness::Unsound), ("replication", Soundness::Sound)];
    assert_eq!(careless, unsound);
}

fn store(url: &str) -> RedisStore {
    RedisStore::open(url, None).unwrap()
}

fn through(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port)
}

fn client(server: &Redis) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

fn key(name: &str) -> Key {
    Key::probe("redis", name)
}
