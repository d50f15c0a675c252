//! Fenced objects in a real S3 server.
#![cfg(feature = "s3")]

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use fencepost_core::fence::{Level, Reason, WriteMode};
use fencepost_core::token::StoreId;
use fencepost_guard::publish::payload::{Payload, UNLIMITED};
use fencepost_guard::publish::s3::{S3Destination, publish};
use fencepost_guard::publish::{PublishError, Receipt, WriteRequest};
use fencepost_store::Secret;
use fencepost_store::s3::{S3Bucket, S3Place};
use fencepost_testkit::fenced::{failure, refusal, request, storm, winner};
use fencepost_testkit::http::Request;
use fencepost_testkit::network::{Cut, Loopback, Scissors};
use fencepost_testkit::servers::{BUCKET, S3_PASSWORD, S3Server};
use uuid::Uuid;

const ROUNDS: u64 = 60;
const SILENCE: Duration = Duration::from_secs(30);

/// AWS's answer to a request whose signature has ended.
const LATE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code><Message>Request has expired\
    </Message><X-Amz-Expires>60</X-Amz-Expires><RequestId>0</RequestId></Error>";

/// The credentials come from the environment of the process, so that the tests run in a process of their own.
fn in_own_process(name: &str, test: impl FnOnce()) {
    if std::env::var_os("AWS_ACCESS_KEY_ID").is_some_and(|id| id == "AKTESTS") {
        return test();
    }
    let (id, secret) = S3_PASSWORD.split_once(':').unwrap();
    let mut myself = Command::new(std::env::current_exe().unwrap());
    myself.args(["--exact", name, "--nocapture"]).env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
    let output = myself.output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn url(port: u16) -> String {
    format!("s3://{BUCKET}/site/report.txt?endpoint=http://127.0.0.1:{port}")
}

fn target(port: u16) -> S3Destination {
    S3Destination::parse(&url(port), SILENCE).unwrap()
}

fn write(request: &WriteRequest, to: &S3Destination) -> Result<Receipt, PublishError> {
    write_bytes(request, to, request.writer.token.to_string().as_bytes())
}

fn write_bytes(request: &WriteRequest, to: &S3Destination, mut bytes: &[u8]) -> Result<Receipt, PublishError> {
    publish(request, to, &Payload::of_stream(&mut bytes, UNLIMITED).unwrap())
}

/// The content as a reader sees it.
fn content(port: u16) -> Option<String> {
    let bucket = S3Bucket::open(S3Place::parse(&url(port)).unwrap(), Some(&Secret::new(S3_PASSWORD))).unwrap();
    let found = bucket.read_object("site/report.txt", 1 << 20).unwrap().value;
    found.map(|object| String::from_utf8(object.bytes).unwrap())
}

#[test]
fn no_old_token_wins_a_storm() {
    in_own_process("no_old_token_wins_a_storm", || {
        let server = S3Server::good();
        let writer = || {
            let to = target(server.port);
            move |request: &WriteRequest| write(request, &to)
        };
        let read = || content(server.port).unwrap().parse::<u64>().unwrap();
        let (first, refused, contents) = storm(ROUNDS, writer(), writer(), read);
        let winners: Vec<u64> = (0..ROUNDS).map(winner).collect();
        assert_eq!(contents, winners, "the content does not belong to the highest token");
        println!("s3: {ROUNDS} rounds, the older one came first in {first} and was refused in {refused}, stale wins 0");
        assert!(refused > 0, "nothing was put to the test");
    });
}

#[test]
fn the_rule_holds() {
    in_own_process("the_rule_holds", || {
        let server = S3Server::good();
        let to = target(server.port);
        let dry = write(&WriteRequest { dry_run: true, ..request(5) }, &to).unwrap();
        assert_eq!((dry.fence.seq, content(server.port)), (1, None), "a dry run wrote something");

        let receipt = write(&request(5), &to).unwrap();
        assert_eq!((receipt.level, receipt.fence.seq), (Level::Gated, 1));
        assert!(receipt.remarks[0].contains("two objects"), "{receipt:?}");
        assert_eq!(refusal(write(&request(4), &to)), Reason::Stale);
        assert!(write(&request(5), &to).unwrap().already_applied, "the same content under the same token");
        assert_eq!(write_bytes(&request(5), &to, b"more").unwrap().fence.seq, 2);
        let once = WriteRequest { mode: WriteMode::Once, ..request(6) };
        assert!(!write(&once, &to).unwrap().already_applied);
        assert!(write(&once, &to).unwrap().already_applied);
        assert_eq!(refusal(write_bytes(&once, &to, b"other")), Reason::Spent);
        let mut other = request(99);
        other.writer.store = StoreId(Uuid::from_u128(2));
        assert_eq!(refusal(write(&other, &to)), Reason::OtherLineage);
        assert_eq!(content(server.port).as_deref(), Some("6"));
        write(&WriteRequest { adopt: true, ..other }, &to).unwrap();
        assert_eq!(content(server.port).as_deref(), Some("99"));
    });
}

/// Equal contents have the same ETag. Token 1 has read the ETag and stops; token 2 publishes the bytes that were there before;
/// token 1 goes on with other bytes.
#[test]
fn an_etag_that_returns_lets_no_old_token_through() {
    in_own_process("an_etag_that_returns_lets_no_old_token_through", || {
        let server = S3Server::good();
        write_bytes(&request(1), &target(server.port), b"same").unwrap();
        // Token 2 stops before its fence arrives. It has read the ETag of the content by then.
        let scissors = Scissors::start(server.port, b"if-match", Cut::Late);
        let (port, (done, wait)) = (server.port, channel());
        scissors.at_cut(move || {
            write_bytes(&request(3), &target(port), b"same").unwrap();
            done.send(()).unwrap();
        });
        let stale = write_bytes(&request(2), &target(scissors.port), b"other");
        wait.recv().unwrap();
        assert_eq!(refusal(stale), Reason::Stale);
        assert_eq!(content(server.port).as_deref(), Some("same"));
    });
}

/// Token 2 has swapped the fence, and its content is on the way. Token 3 publishes the bytes that were there before, so the ETag
/// is that which token 2 expects. It waits until the server refuses token 2 by its signature. The test
/// in which the process of token 2 is stopped is one of the command.
#[test]
fn a_delayed_content_does_not_replace_bytes_that_are_published_again() {
    in_own_process("a_delayed_content_does_not_replace_bytes_that_are_published_again", || {
        let server = S3Server::good();
        // A stall of the server must not outlast the signature, which lasts twice as long.
        let quick = |port| S3Destination::parse(&url(port), Duration::from_secs(4)).unwrap();
        write_bytes(&request(1), &quick(server.port), b"same").unwrap();
        let scissors = Scissors::start(server.port, b"x-amz-meta-fencepost-write", Cut::Late);
        let (port, (done, newer)) = (server.port, channel());
        scissors.at_cut(move || done.send(write_bytes(&request(3), &quick(port), b"same")).unwrap());
        // Its second try arrives at once, before token 3, which is in order.
        write_bytes(&request(2), &quick(scissors.port), b"other").unwrap();
        let receipt = newer.recv().unwrap().unwrap();
        assert!(receipt.remarks[1].contains("waited for its end"), "{receipt:?}");
        let answer = String::from_utf8(scissors.late.recv().unwrap()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(content(server.port).as_deref(), Some("same"));
    });
}

/// Token 2 has swapped the fence and stops; token 3 publishes other bytes. The condition on the content refuses token 2.
#[test]
fn a_write_that_stops_between_fence_and_content_does_not_overwrite_a_newer_one() {
    in_own_process("a_write_that_stops_between_fence_and_content_does_not_overwrite_a_newer_one", || {
        let server = S3Server::good();
        write(&request(1), &target(server.port)).unwrap();
        let scissors = Scissors::start(server.port, b"x-amz-meta-fencepost-write", Cut::Late);
        let port = server.port;
        scissors.at_cut(move || drop(write(&request(3), &target(port)).unwrap()));
        assert_eq!(refusal(write(&request(2), &target(scissors.port))), Reason::Stale);
        assert_eq!(content(server.port).as_deref(), Some("3"));
    });
}

/// The clock of the server is ahead, or it rounds: it refuses the content by its signature before the end is reached here.
#[test]
fn a_content_that_the_server_refuses_as_late_is_sent_again() {
    in_own_process("a_content_that_the_server_refuses_as_late_is_sent_again", || {
        let late_contents = |late: usize| {
            let contents = AtomicUsize::new(0);
            Loopback::start(move |mut stream| {
                let Ok(request) = Request::read(&stream) else { return };
                let is_content = request.header("x-amz-meta-fencepost-write").is_some();
                let is_late = is_content && contents.fetch_add(1, Ordering::SeqCst) < late;
                let (head, body) = match request.method.as_str() {
                    "PUT" if is_late => ("403 Forbidden", LATE),
                    "PUT" => ("200 OK\r\nETag: \"new\"", ""),
                    _ => ("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>"),
                };
                let (body, length) = (if request.method == "HEAD" { "" } else { body }, body.len());
                let end = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
                let _ = write!(stream, "HTTP/1.1 {head}\r\n{end}");
            })
        };
        assert_eq!(write(&request(1), &target(late_contents(1).port)).unwrap().fence.seq, 1);
        let text = failure(write(&request(1), &target(late_contents(2).port)));
        assert!(text.contains("took longer than 60 s, twice") && !text.contains("s3:PutObject"), "{text}");
    });
}

#[test]
fn a_lost_reply_is_settled() {
    in_own_process("a_lost_reply_is_settled", || {
        let server = S3Server::good();
        let mut token = 0;
        // The bodies of the fence and of the content, without which neither is written.
        for word in [&b"\"token\":"[..], b"content of"] {
            for cut in [Cut::Before, Cut::After] {
                token += 1;
                let scissors = Scissors::start(server.port, word, cut);
                let bytes = format!("content of {token}");
                let receipt = write_bytes(&request(token), &target(scissors.port), bytes.as_bytes()).unwrap();
                assert_eq!((receipt.fence.seq, content(server.port)), (1, Some(bytes)), "{token}");
                assert!(scissors.cut.load(Ordering::SeqCst), "nothing was cut");
            }
        }
    });
}

/// The server dies after the fence and before the content: the old object stays in place, and the next try completes it.
#[test]
fn a_failed_upload_leaves_the_old_object() {
    in_own_process("a_failed_upload_leaves_the_old_object", || {
        let server = S3Server::good();
        write(&request(1), &target(server.port)).unwrap();
        let scissors = Scissors::start(server.port, b"x-amz-meta-fencepost-write", Cut::Before);
        let (sender, receiver) = channel();
        let port = server.port;
        scissors.at_cut(move || sender.send(content(port)).unwrap());
        let writing = thread::spawn(move || write(&request(2), &target(scissors.port)).map(|_| scissors));
        assert_eq!(receiver.recv().unwrap().as_deref(), Some("1"), "the old object is in place");
        let _scissors = writing.join().unwrap().unwrap();
        assert_eq!(content(server.port).as_deref(), Some("2"), "the second try wrote it");
    });
}

#[test]
fn a_server_that_is_gone_and_wrong_arguments_are_errors() {
    in_own_process("a_server_that_is_gone_and_wrong_arguments_are_errors", || {
        let nowhere = target(fencepost_testkit::network::free_port());
        assert!(failure(write(&request(1), &nowhere)).contains("could not be reached"));
        for (url, part) in [
            ("s3://locks?region=r", "names no object"),
            ("s3://locks/a.fencepost?region=r", "a fence's own name"),
            ("s3://locks/a", "region"),
        ] {
            let Err(PublishError::Usage(text)) = S3Destination::parse(url, SILENCE) else { panic!("{url}") };
            assert!(text.contains(part), "{text}");
        }
        assert!(target(1).with_header("cache-control", "a\nb").is_err());
        assert!(target(1).with_metadata("fencepost-write", "x").is_err());
        assert!(target(1).with_metadata("owner", "jobs").is_ok());
    });
}
