//! What a client may not do: send too much, send nothing, read nothing, come too often.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use fencepost_testkit::eventually;

use super::{FORM, Reply, Served, add_token, request, token_file};
use crate::common::Site;

#[test]
fn a_body_that_is_too_long_is_refused() {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let token = add_token(&site, "laptop");
    let served = Served::of(&site, &["--token-file", &token_file(&site), "--allow-actions"]);
    let long = format!("note={}", "x".repeat(9_000));
    assert_eq!(served.post_as(&token, "/api/v1/jobs/j/pause", &long).status, 413);
    assert_eq!(served.ask("POST", "/login", &[FORM], &long).status, 413);
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
    assert_eq!(served.ask("POST", "/api/v1/jobs/j/pause", &headers, "x=1").status, 415);
    let path = format!("/api/v1/status?{}", "a=b&".repeat(20_000));
    let mut stream = served.connect();
    let _ = stream.write_all(request(served.port, "GET", &path, &[], "").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || [400, 414, 431].contains(&Reply::parse(&answer).status));
    assert_eq!(served.get("/healthz").status, 200);
    assert_eq!(site.job("j")["state"], "free");
}

#[test]
fn a_client_that_sends_nothing_is_closed_and_delays_no_other() {
    let served = Served::of(&Site::new(), &[]);
    let mut idle: Vec<TcpStream> = (0..50).map(|_| served.connect()).collect();
    idle.iter_mut().for_each(|stream| stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap());
    assert_eq!(served.get("/healthz").status, 200);
    // The server gives up after a while, without an answer that matters.
    for stream in &mut idle {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
    }
}

#[test]
fn five_hundred_viewers_get_every_event_and_come_back_to_those_they_missed() {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let served = Served::of(&site, &[]);
    let open = || {
        let mut stream = served.connect();
        stream.write_all(request(served.port, "GET", "/api/v1/events", &[], "").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        until(&mut reader, "id: ");
        reader
    };
    let mut viewers: Vec<BufReader<TcpStream>> = (0..500).map(|_| open()).collect();
    assert_eq!(served.get("/api/v1/status").status, 200, "there is room for others");
    site.say(&["run", "j", "-c", "exit 7"]);
    let ids: Vec<String> = viewers.iter_mut().map(|viewer| until(viewer, "event: job")).collect();
    assert!(ids.iter().all(|id| id == &ids[0]), "every viewer sees the same events");
    drop(viewers);
    eventually("their places are free again", || {
        let mut some: Vec<_> = (0..300).map(|_| open()).collect();
        some.pop().is_some()
    });
    // It comes back and gets what it missed.
    let last = [("Last-Event-ID", ids[0].as_str())];
    site.say(&["run", "j", "--", "true"]);
    assert_eq!(served.get("/api/v1/jobs/j").json()["jobs"][0]["last"]["status"], "ok");
    let mut stream = served.connect();
    stream.write_all(request(served.port, "GET", "/api/v1/events", &last, "").as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let missed = until(&mut reader, "event: job");
    assert_ne!(missed, ids[0]);
    let mut data = String::new();
    reader.read_line(&mut data).unwrap();
    assert!(data.contains("\"last\":{") && data.contains("\"job\":\"j\""), "{data}");
    let mut stream = served.connect();
    let foreign = [("Last-Event-ID", "0000-7")];
    stream.write_all(request(served.port, "GET", "/api/v1/events", &foreign, "").as_bytes()).unwrap();
    until(&mut BufReader::new(stream), "event: reset");
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_delays_no_other() {
    let site = Site::new();
    let mut command = site.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("FENCEPOST_TEST_SERVE_STALL", "200ms");
    let served = Served::start(command);
    let sockets = || {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", served.child.id())).unwrap().flatten();
        let is_socket = |path: std::path::PathBuf| path.to_string_lossy().starts_with("socket:");
        descriptors.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_socket)).count()
    };
    let idle = sockets();
    let page = served.get("/login").body;
    let is_asset = |part: &&str| part.starts_with("/assets/") && part.ends_with(".css");
    let path = page.split('"').find(is_asset).expect("a style sheet");
    eventually("the earlier connection is closed", || sockets() == idle);
    // The answers are more than the buffers of both ends hold.
    let one = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", served.port);
    let mut stalled = served.connect();
    let asked = one.repeat(2_000);
    stalled.set_nonblocking(true).unwrap();
    let mut sent = 0;
    eventually("it is cut off", || {
        // The server stops reading requests whose answers it cannot send.
        sent += stalled.write(&asked.as_bytes()[sent..]).unwrap_or(0);
        assert_eq!(served.get("/healthz").status, 200, "no other client waits");
        sent > 0 && sockets() == idle
    });
    stalled.set_nonblocking(false).unwrap();
    let mut answered = Vec::new();
    let _ = stalled.read_to_end(&mut answered);
    let count = String::from_utf8_lossy(&answered).matches("HTTP/1.1 200").count();
    assert!(count > 0 && count < 2_000, "{count} answers came");
}

#[test]
fn viewers_and_connections_beyond_their_limits_are_turned_away() {
    let site = Site::new();
    let mut command = site.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("FENCEPOST_TEST_SERVE_VIEWERS", "2").env("FENCEPOST_TEST_SERVE_CONNECTIONS", "5");
    let served = Served::start(command);
    let view = || {
        let mut stream = served.connect();
        stream.write_all(request(served.port, "GET", "/api/v1/events", &[], "").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        reader.read_line(&mut head).unwrap();
        (head.contains(" 200 "), reader)
    };
    let viewers = [view(), view()];
    assert!(viewers.iter().all(|(is_taken, _)| *is_taken));
    let full = served.get("/api/v1/events");
    assert!(full.status == 503 && full.body.contains("/api/v1/status"), "{full:?}");
    assert_eq!(served.get("/healthz").status, 200, "there is room for others");
    let is_answered = |mut stream: TcpStream| {
        let _ = stream.write_all(request(served.port, "GET", "/healthz", &[], "").as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        !answer.is_empty()
    };
    let mut idle = Vec::new();
    eventually("every place is taken", || {
        idle.push(served.connect());
        !is_answered(served.connect())
    });
    drop((idle, viewers));
    eventually("there is room again", || is_answered(served.connect()));
}

/// Reads up to a line that begins so, and returns the id before it.
fn until(reader: &mut BufReader<TcpStream>, wanted: &str) -> String {
    let mut id = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream ended before {wanted}");
        if let Some(found) = line.strip_prefix("id: ") {
            id = found.trim().to_string();
        }
        if line.starts_with(wanted) {
            return id;
        }
    }
}
