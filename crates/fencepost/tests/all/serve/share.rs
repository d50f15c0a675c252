//! A store for other machines: the protocol, through bad networks and kills.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use fencepost_store::{HttpStore, Key, Secret, Store, Swapped, conformance};
use fencepost_testkit::eventually;
use fencepost_testkit::network::{Proxy, Weather, free_port};
use fencepost_testkit::race::race;
use fencepost_testkit::store::put;

use super::{Reply, Served, add_token, token_file};
use crate::common::Site;

/// A server on a port that stays the same when it is started again.
pub struct Shared {
    site: Site,
    pub token: String,
    port: u16,
    burst: Option<&'static str>,
    served: Option<Served>,
}

impl Shared {
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// A server that takes so many requests of a client at once.
    fn start_with(burst: Option<&'static str>) -> Self {
        let site = Site::new();
        let token = add_token(&site, "laptop");
        let mut shared = Self { site, token, port: free_port(), burst, served: None };
        shared.restart();
        shared
    }

    fn restart(&mut self) {
        self.served = None;
        let (file, address) = (token_file(&self.site), format!("127.0.0.1:{}", self.port));
        let options = ["serve", "--listen", &address, "--share", "--token-file", &file];
        let mut command = self.site.command(&options);
        command.envs(self.burst.map(|burst| ("FENCEPOST_TEST_SHARE_BURST", burst)));
        self.served = Some(Served::start(command));
    }

    pub fn kill_and_restart(&mut self) {
        // Dropping it kills it.
        self.restart();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn store(&self) -> HttpStore {
        store_at(&self.url(), &self.token)
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let own = [("Authorization", bearer.as_str()), ("Fencepost-Request", "5f1c")];
        self.served.as_ref().unwrap().ask(method, path, &[&own, headers].concat(), body)
    }
}

fn store_at(url: &str, token: &str) -> HttpStore {
    HttpStore::open(url, Some(&Secret::new(token))).unwrap()
}

fn key(name: &str) -> Key {
    Key::from_stored(&format!("probe/{name}")).unwrap()
}

#[test]
fn conforms() {
    let shared = Shared::start();
    conformance::run(&|| Ok(Box::new(shared.store()))).unwrap();
    assert_eq!(shared.store().scan("", None, 10).unwrap().value, [], "nothing is left");
    let said = shared
        .site
        .command(&["store", "check", &shared.url()])
        .env("FENCEPOST_STORE_PASSWORD", &shared.token)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("One server with one disk"), "{text}");
}

#[test]
fn nothing_acknowledged_is_lost_over_a_bad_network() {
    let shared = Shared::start();
    let proxy = Proxy::of_http(shared.port);
    proxy.set(Weather::Foul);
    let open = || Box::new(store_at(&proxy.url(), &shared.token)) as Box<dyn Store>;
    let tally = race(&open, &shared.store(), &key("lines"), 8, 12);
    assert!(tally.won > 20 && tally.unknown > 10 && tally.happened > 2, "{tally:?}");
    assert!(tally.unknown > tally.happened, "{tally:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let mut shared = Shared::start();
    let (url, token) = (shared.url(), shared.token.clone());
    let first = shared.store().read(&key("a")).unwrap().clock.unwrap();
    let tally = thread::scope(|scope| {
        let racing =
            scope.spawn(|| race(&|| Box::new(store_at(&url, &token)), &store_at(&url, &token), &key("lines"), 6, 40));
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(300));
            shared.kill_and_restart();
        }
        racing.join().unwrap()
    });
    assert!(tally.won > 50 && tally.not_done + tally.unknown > 0, "{tally:?}");
    let version = put(&shared.store(), &key("a"), None, &[5; 65_536]);
    shared.kill_and_restart();
    let found = shared.store().read(&key("a")).unwrap();
    assert_eq!(found.value.map(|entry| (entry.version, entry.bytes.len())), Some((version, 65_536)));
    let clock = found.clock.unwrap();
    assert!(clock.era == first.era && clock.tick > first.tick, "a restart ends no lease");
}

#[test]
fn two_machines_run_a_job_once_and_a_reboot_of_the_server_ends_no_lease() {
    let mut shared = Shared::start();
    let machines = [Site::new(), Site::new()];
    let (url, token) = (shared.url(), shared.token.clone());
    let command = |site: &Site, arguments: &[&str]| {
        let mut command = site.command(&[&["--store", &url], arguments].concat());
        command.env("FENCEPOST_STORE_PASSWORD", &token);
        command
    };
    let held = crate::common::Holder::start(command(
        &machines[0],
        &["run", "j", "--ttl", "10m", "-c", "echo $FENCEPOST_TOKEN; exec cat >/dev/null"],
    ));
    // Another boot of the server: as after a reboot, the boot id in the database is another one.
    shared.served = None;
    let database = rusqlite::Connection::open(shared.site.state().join("shared.db")).unwrap();
    assert_eq!(database.execute("UPDATE clock SET boot = 'another boot'", []).unwrap(), 1);
    drop(database);
    shared.restart();
    for machine in [&machines[1], &shared.site] {
        let said = command(machine, &["run", "j", "-E", "11", "--", "true"]).output().unwrap();
        assert_eq!(said.status.code(), Some(11), "the lease is held by another machine: {said:?}");
    }
    // A local run that opens the file itself is refused.
    let path = format!("sqlite:{}", shared.site.state().join("shared.db").display());
    let said = shared.site.say(&["run", "j", "--store", &path, "--", "true"]);
    assert!(said.code == 125 && said.stderr.contains("serve --share"), "{said:?}");
    drop(held);
    eventually("the lease is free", || {
        command(&machines[1], &["run", "j", "-E", "11", "--", "true"]).status().unwrap().success()
    });
}

#[test]
fn the_token_is_looked_at_first() {
    let shared = Shared::start();
    let served = shared.served.as_ref().unwrap();
    for path in ["/v1/about", "/v1/keys", "/v1/keys/probe/a", "/v1/nothing"] {
        for headers in [&[("Fencepost-Request", "1")][..], &[("Authorization", "Bearer wrong")]] {
            let reply = served.ask("GET", path, headers, "");
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (401, &"unauthorized".into()), "{path}");
            assert_eq!(reply.header("fencepost-answer"), Some("error"));
        }
    }
    assert!(store_at(&shared.url(), "wrong").read(&key("a")).is_err());
    std::fs::write(token_file(&shared.site), "\n").unwrap();
    assert!(shared.store().read(&key("a")).is_err(), "a revoked token");
}

#[test]
fn requests_that_are_wrong_change_nothing_and_say_so() {
    let shared = Shared::start();
    let swap = [("Fencepost-Expect", "none"), ("Fencepost-New", "value")];
    let long = "x".repeat(65_537);
    for (method, path, headers, body, status, code) in [
        ("GET", "/v1/nothing", &[][..], "", 404, "no_such_place"),
        ("PUT", "/v1/keys/probe/a", &swap, "x", 405, "method_not_allowed"),
        ("GET", "/v1/keys/probe", &[], "", 400, "bad_request"),
        ("GET", "/v1/keys/Probe/a", &[], "", 400, "bad_request"),
        ("GET", "/v1/keys/probe%2Fa", &[], "", 400, "bad_request"),
        ("GET", "/v1/keys?limit=x", &[], "", 400, "bad_request"),
        ("POST", "/v1/keys/probe/a", &swap[..1], "x", 400, "bad_request"),
        ("POST", "/v1/keys/probe/a", &swap[1..], "x", 400, "bad_request"),
        ("POST", "/v1/keys/probe/a", &[("Fencepost-Expect", "zz"), swap[1]], "x", 400, "bad_request"),
        ("POST", "/v1/keys/probe/a", &[swap[0], ("Fencepost-New", "none")], "x", 400, "bad_request"),
        ("POST", "/v1/keys/probe/a", &swap, &long, 413, "too_large"),
    ] {
        let reply = shared.ask(method, path, headers, body);
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, error["code"].as_str(), error["fate"].as_str()),
            (status, Some(code), Some("not-done")),
            "{path} {reply:?}"
        );
        assert_eq!(reply.header("fencepost-request"), Some("5f1c"));
    }
    assert_eq!(shared.ask("GET", "/v1/keys/probe/a", &[], "").status, 404);
    let made = shared.ask("POST", "/v1/keys/probe/a", &swap, "");
    assert_eq!((made.status, made.header("fencepost-answer")), (200, Some("won")), "an empty value is a value");
    assert_eq!(made.header("cache-control"), Some("no-store, no-transform"));
    let served = shared.served.as_ref().unwrap();
    let bearer = format!("Bearer {}", shared.token);
    let unnumbered = served.ask("GET", "/v1/about", &[("Authorization", &bearer)], "");
    assert_eq!(unnumbered.status, 400);
}

#[test]
fn a_body_that_is_cut_is_not_carried_out() {
    use std::io::Write;
    let shared = Shared::start();
    let mut stream = TcpStream::connect(("127.0.0.1", shared.port)).unwrap();
    let head = format!(
        "POST /v1/keys/probe/cut HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nFencepost-Request: 1\r\n\
         Fencepost-Expect: none\r\nFencepost-New: value\r\nContent-Length: 10\r\n\r\nhalf",
        shared.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    drop(stream);
    let version = put(&shared.store(), &key("other"), None, b"1");
    assert!(matches!(shared.store().swap(&key("other"), Some(&version), None).unwrap().value, Swapped::Won(None)));
    assert_eq!(shared.store().read(&key("cut")).unwrap().value, None);
}

#[test]
fn a_client_that_asks_too_often_is_put_off() {
    let shared = Shared::start_with(Some("5"));
    let statuses = pipelined(&shared, 40);
    assert_eq!(statuses[..5], [404; 5], "{statuses:?}");
    assert!(statuses[5..].contains(&429), "{statuses:?}");
}

/// Sends many requests at once on one connection, and returns the statuses of the answers.
fn pipelined(shared: &Shared, count: usize) -> Vec<u16> {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(("127.0.0.1", shared.port)).unwrap();
    let head = format!(
        "GET /v1/keys/probe/a HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nFencepost-Request: 1\r\n",
        shared.token
    );
    let one = format!("{head}\r\n");
    let last = format!("{head}Connection: close\r\n\r\n");
    let mut reader = stream.try_clone().unwrap();
    let writer = thread::spawn(move || {
        (1..count).for_each(|_| stream.write_all(one.as_bytes()).unwrap());
        stream.write_all(last.as_bytes()).unwrap();
    });
    let mut text = Vec::new();
    reader.read_to_end(&mut text).unwrap();
    writer.join().unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect()
}
