//! Fenced writes to an HTTP endpoint, against the example server, which is real.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use fencepost_core::fence::{Level, Reason, WriteMode};
use fencepost_core::token::{RunId, StoreId};
use fencepost_guard::publish::http::{BearerToken, Endpoint, EndpointUrl, publish};
use fencepost_guard::publish::payload::{Payload, UNLIMITED};
use fencepost_guard::publish::{PublishError, Receipt, WriteRequest};
use fencepost_testkit::fenced::{failure, request, server_in};
use fencepost_testkit::fenced_server::{self, Fault, Server};
use fencepost_testkit::http::message;
use fencepost_testkit::web::Web;
use tempfile::TempDir;
use uuid::Uuid;

/// A server in a directory of its own.
struct Scene {
    server: Arc<Server>,
    url: String,
    _directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let (server, address) = server_in(directory.path());
        let url = format!("http://{address}/report");
        Self { server, url, _directory: directory }
    }

    fn put(&self, request: &WriteRequest, text: &str) -> Result<Receipt, PublishError> {
        send(request, &endpoint(&self.url), text)
    }

    fn keys(&self) -> Vec<String> {
        let key = |seen: fenced_server::Seen| {
            seen.headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("idempotency-key")).unwrap().1
        };
        self.server.seen().into_iter().map(key).collect()
    }

    fn content(&self) -> String {
        String::from_utf8(self.server.content("report").unwrap_or_default()).unwrap()
    }
}

fn named(token: u64, op: &str) -> WriteRequest {
    WriteRequest { op: Some(op.to_string()), ..request(token) }
}

fn endpoint(url: &str) -> Endpoint {
    Endpoint {
        url: EndpointUrl::new(url).unwrap(),
        method: "PUT",
        resource: "report".to_string(),
        content_type: "text/plain".to_string(),
        headers: Vec::new(),
        bearer: None,
        slot: None,
        timeout: Duration::from_secs(20),
    }
}

fn send(request: &WriteRequest, endpoint: &Endpoint, text: &str) -> Result<Receipt, PublishError> {
    publish(request, endpoint, &Payload::of_stream(&mut text.as_bytes(), UNLIMITED).unwrap())
}

fn reason(result: Result<Receipt, PublishError>) -> (Reason, u64) {
    match result {
        Err(PublishError::Refused { refused, .. }) => (refused.reason, refused.seen.token.number()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_lands_with_its_token_and_a_lower_one_is_refused() {
    let scene = Scene::new();
    let receipt = scene.put(&request(6), "six").unwrap();
    assert_eq!((receipt.level, receipt.fence.token.number(), receipt.already_applied), (Level::Atomic, 6, false));
    assert_eq!(receipt.remarks, Vec::<String>::new());
    let Err(PublishError::Refused { refused, level }) = scene.put(&request(5), "five") else { panic!() };
    assert_eq!((refused.reason, refused.seen.token.number(), level), (Reason::Stale, 6, Level::Atomic));
    assert_eq!((refused.seen.host.as_str(), refused.seen.run), ("here", request(6).writer.run));
    assert_eq!(scene.content(), "six");
    scene.put(&request(6), "six again").unwrap();
    assert_eq!(scene.content(), "six again");
}

/// The server's own check decides: both writers send at the same moment, hundreds of times.
#[test]
fn of_an_old_and_a_new_token_that_race_the_stale_one_never_wins() {
    const ROUNDS: u64 = 500;
    let scene = Scene::new();
    let gate = Barrier::new(2);
    let place = |round: u64| Endpoint { resource: format!("report-{}", round / 50), ..endpoint(&scene.url) };
    let refused = thread::scope(|scope| {
        let writer = |is_new: u64| {
            let (gate, place) = (&gate, &place);
            move || {
                let mut refused = 0;
                for round in 0..ROUNDS {
                    let token = round * 2 + 1 + is_new;
                    gate.wait();
                    match send(&request(token), &place(round), &format!("token {token}")) {
                        Ok(receipt) => assert_eq!(receipt.level, Level::Atomic),
                        Err(PublishError::Refused { refused: why, .. }) if is_new == 0 => {
                            assert_eq!((why.reason, why.seen.token.number()), (Reason::Stale, token + 1));
                            refused += 1;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                    gate.wait();
                }
                refused
            }
        };
        let old = scope.spawn(writer(0));
        let new = scope.spawn(writer(1));
        new.join().unwrap();
        old.join().unwrap()
    });
    let applied = scene.server.applied();
    for group in 0..ROUNDS / 50 {
        let resource = format!("report-{group}");
        let tokens: Vec<u64> = applied.iter().filter(|(name, _)| *name == resource).map(|(_, token)| *token).collect();
        assert!(tokens.is_sorted(), "{tokens:?}");
        let newest = (group * 50 + 49) * 2 + 2;
        assert_eq!(scene.server.content(&resource).unwrap(), format!("token {newest}").into_bytes());
    }
    assert_eq!(applied.len() as u64, ROUNDS * 2 - refused);
    assert!(refused > 0, "they never raced");
    println!("{ROUNDS} rounds, {refused} stale writes refused, 0 won");
}

/// A request that was held up on its way arrives after a newer write.
#[test]
fn a_request_that_arrives_late_is_refused() {
    let scene = Scene::new();
    let (url, on_its_way, let_go) = slow_road(&scene.url);
    let late = thread::spawn(move || send(&request(5), &endpoint(&url), "late"));
    on_its_way.recv_timeout(Duration::from_secs(30)).expect("the request was sent");
    scene.put(&request(6), "newer").unwrap();
    let_go.send(()).unwrap();
    assert_eq!(reason(late.join().unwrap()), (Reason::Stale, 6));
    assert_eq!(scene.content(), "newer");
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again_under_the_same_key() {
    for fault in [Fault::CutAfter, Fault::TornAfter, Fault::StatusAfter(500), Fault::StatusAfter(502)] {
        for request in [request(5), named(5, "charge"), WriteRequest { mode: WriteMode::Once, ..request(5) }] {
            let scene = Scene::new();
            scene.server.script(&[fault]);
            let receipt = scene.put(&request, "x").unwrap();
            assert!(receipt.already_applied, "{fault:?}");
            assert_eq!(scene.server.applied().len(), 1, "{fault:?}: applied once");
            let keys = scene.keys();
            assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].starts_with("\"report/5/"), "{keys:?}");
        }
    }
}

/// What the first try did is told even if a newer token has written meanwhile: it did happen.
#[test]
fn a_write_that_landed_and_was_overwritten_is_not_called_refused() {
    let scene = Scene::new();
    let (url, on_its_way, let_go) = slow_road(&scene.url);
    scene.server.script(&[Fault::CutAfter]);
    let first = Endpoint { timeout: Duration::from_secs(30), ..endpoint(&url) };
    let writer = thread::spawn(move || send(&request(5), &first, "five"));
    on_its_way.recv_timeout(Duration::from_secs(30)).unwrap();
    let_go.send(()).unwrap();
    on_its_way.recv_timeout(Duration::from_secs(30)).expect("the second try");
    scene.put(&request(6), "six").unwrap();
    let_go.send(()).unwrap();
    let receipt = writer.join().unwrap().unwrap();
    assert!(receipt.already_applied);
    assert_eq!((receipt.fence.token.number(), scene.content().as_str()), (6, "six"));
    assert_eq!(scene.server.applied().len(), 2);
}

#[test]
fn a_request_that_was_cut_before_its_effect_takes_effect_once() {
    let scene = Scene::new();
    scene.server.script(&[Fault::CutBefore, Fault::Status(503), Fault::Status(409)]);
    let receipt = scene.put(&request(5), "x").unwrap();
    assert!(!receipt.already_applied);
    assert_eq!((scene.server.applied().len(), scene.keys().len()), (1, 4));
}

#[test]
fn a_deliberate_second_write_is_made_and_a_named_one_is_not() {
    let scene = Scene::new();
    for _ in 0..2 {
        assert!(!scene.put(&request(5), "x + 1").unwrap().already_applied);
    }
    assert_eq!(scene.server.applied().len(), 2);
    assert!(!scene.put(&named(5, "charge"), "x + 1").unwrap().already_applied);
    assert!(scene.put(&named(5, "charge"), "x + 1").unwrap().already_applied);
    let once = WriteRequest { mode: WriteMode::Once, ..request(6) };
    assert!(!scene.put(&once, "x + 1").unwrap().already_applied);
    assert!(scene.put(&once, "x + 1").unwrap().already_applied);
    assert_eq!(reason(scene.put(&once, "other")), (Reason::Spent, 6));
    assert_eq!(scene.server.applied().len(), 4);
}

/// The work item of a slot is done once, whichever run does it; a stale run is refused all the same.
#[test]
fn a_named_operation_is_done_once_in_its_slot() {
    let scene = Scene::new();
    let place = Endpoint { slot: Some("2026-11-15T07:00:00Z".to_string()), ..endpoint(&scene.url) };
    assert!(!send(&named(6, "charge"), &place, "x").unwrap().already_applied);
    assert!(send(&named(7, "charge"), &place, "x").unwrap().already_applied);
    assert_eq!(reason(send(&named(5, "charge"), &place, "x")), (Reason::Stale, 6));
    assert!(failure(send(&named(7, "charge"), &place, "y")).contains("another payload"));
    let tomorrow = Endpoint { slot: Some("2026-11-16T07:00:00Z".to_string()), ..place };
    assert!(!send(&named(7, "charge"), &tomorrow, "x").unwrap().already_applied);
    assert_eq!(scene.server.applied().len(), 2);
}

#[test]
fn another_lineage_or_run_is_refused_until_it_is_adopted() {
    let scene = Scene::new();
    scene.put(&request(5), "x").unwrap();
    let mut other = request(9);
    other.writer.store = StoreId(Uuid::from_u128(2));
    assert_eq!(reason(scene.put(&other, "y")), (Reason::OtherLineage, 5));
    let mut twin = request(5);
    twin.writer.run = RunId(Uuid::from_u128(99));
    assert_eq!(reason(scene.put(&twin, "y")), (Reason::OtherRun, 5));
    scene.put(&WriteRequest { adopt: true, ..other }, "y").unwrap();
    assert_eq!(scene.content(), "y");
}

#[test]
fn every_status_has_its_meaning() {
    for (status, tries, words) in [
        (400, 1, "does not get better"),
        (401, 1, "does not let us"),
        (403, 1, "--bearer-file"),
        (404, 1, "does not get better"),
        (412, 1, "not the token"),
        (413, 1, "does not get better"),
        (422, 1, "another payload"),
        (429, 1, "does not get better"),
        (307, 1, "not sent on"),
        (409, 6, "still in progress"),
        (500, 6, "may have happened"),
        (503, 6, "may have happened"),
    ] {
        let scene = Scene::new();
        scene.server.script(&[Fault::Status(status); 6]);
        let text = failure(scene.put(&request(5), "x"));
        assert!(text.contains(words) && text.contains(&scene.url), "{status}: {text}");
        assert_eq!(scene.keys().len(), tries, "{status}");
        assert!(tries == 1 || text.contains(&scene.keys()[0]), "{status}: {text}");
        assert_eq!(scene.server.applied(), [], "{status}");
    }
}

#[test]
fn a_server_that_is_silent_may_have_done_it() {
    let scene = Scene::new();
    scene.server.script(&[Fault::Delay(1500); 6]);
    let hasty = Endpoint { timeout: Duration::from_millis(100), ..endpoint(&scene.url) };
    let text = failure(send(&request(5), &hasty, "x"));
    assert!(text.contains("did not answer in time") && text.contains("may have happened"), "{text}");
    let keys = scene.keys();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn where_nobody_listens_nothing_was_sent() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = failure(send(&request(5), &endpoint(&format!("http://{address}/")), "x"));
    assert!(text.contains("refused") && text.contains("Nothing was sent"), "{text}");
}

#[test]
fn a_server_that_does_not_check_is_gated_and_said_so() {
    let web = Web::answering(200);
    let receipt = send(&request(5), &endpoint(&web.url("/")), "x").unwrap();
    assert_eq!(receipt.level, Level::Gated);
    assert!(receipt.remarks.iter().any(|remark| remark.contains("without saying that it checked")));
}

#[test]
fn a_redirect_is_not_followed() {
    let scene = Scene::new();
    let web = Web::redirecting(307, scene.url.clone());
    let text = failure(send(&request(5), &endpoint(&web.url("/")), "x"));
    assert!(text.contains(&scene.url) && text.contains("not sent on"), "{text}");
    assert_eq!((web.seen().len(), scene.keys().len()), (1, 0));
}

#[test]
fn a_dry_run_says_what_would_come_of_it_and_writes_nothing() {
    let scene = Scene::new();
    let dry = |token| WriteRequest { dry_run: true, ..request(token) };
    assert_eq!(scene.put(&dry(5), "x").unwrap().level, Level::Atomic);
    scene.put(&request(6), "six").unwrap();
    assert_eq!(reason(scene.put(&dry(5), "x")), (Reason::Stale, 6));
    assert_eq!(scene.put(&dry(7), "x").unwrap().fence.token.number(), 7);
    assert_eq!((scene.server.applied().len(), scene.content().as_str()), (1, "six"));
    let methods: Vec<String> = scene.server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["HEAD", "PUT", "HEAD", "HEAD"]);
    let web = Web::answering(405);
    let receipt = send(&dry(5), &endpoint(&web.url("/")), "x").unwrap();
    assert_eq!(receipt.level, Level::Gated);
    assert!(receipt.remarks[0].contains("not known before the write"), "{:?}", receipt.remarks);
}

#[test]
fn a_secret_is_sent_and_never_shown() {
    let secret = "s3cret-bearer";
    let answer = format!("HTTP/1.1 400 No\r\nConnection: close\r\n\r\n{{\"detail\":\"I got {secret}\"}}");
    let web = Web::start(move |mut stream| drop(stream.write_all(answer.as_bytes())));
    let bearer = Some(BearerToken::new(&format!("{secret}\n")).unwrap());
    let place = Endpoint { bearer, ..endpoint(&web.url("/")) };
    let text = failure(send(&request(5), &place, "x"));
    assert!(!text.contains(secret) && text.contains("I got ***"), "{text}");
    assert_eq!(web.seen()[0].header("authorization"), Some(format!("Bearer {secret}").as_str()));
    assert!(!format!("{place:?}").contains(secret));
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = endpoint(&format!("http://user:{secret}@{address}/"));
    let text = failure(send(&request(5), &place, "x"));
    assert!(!text.contains(secret) && !format!("{place:?}").contains(secret), "{text}");
}

/// Twice as large as what the process may grow by.
#[test]
fn a_large_payload_is_streamed() {
    let scene = Scene::new();
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("large");
    fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let before = peak_kib();
    let payload = Payload::of_file(fs::File::open(&path).unwrap(), UNLIMITED).unwrap();
    scene.server.script(&[Fault::CutAfter]);
    let receipt = publish(&request(5), &endpoint(&scene.url), &payload).unwrap();
    assert!(receipt.already_applied);
    assert_eq!(payload.length, 64 << 20);
    let grown = peak_kib() - before;
    assert!(grown < 32 << 10, "it took {grown} KiB");
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A network on which each request stands still, complete, until it is let go.
fn slow_road(url: &str) -> (String, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let target = url.trim_start_matches("http://").split('/').next().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let road = format!("http://{}/report", listener.local_addr().unwrap());
    let (arrived, on_its_way) = mpsc::channel();
    let (let_go, go) = mpsc::channel::<()>();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let request = message(&connection).unwrap();
            let _ = arrived.send(());
            if go.recv().is_err() {
                return;
            }
            let mut onward = TcpStream::connect(&target).unwrap();
            onward.write_all(&request).unwrap();
            let mut answer = Vec::new();
            let _ = onward.read_to_end(&mut answer);
            let _ = connection.write_all(&answer);
        }
    });
    (road, on_its_way, let_go)
}
