//! `fencepost publish s3` from the outside.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use fencepost_store::Secret;
use fencepost_store::s3::{S3Bucket, S3Head, S3Place};
use fencepost_testkit::network::{Cut, Scissors, free_port};
use fencepost_testkit::process::send;
use fencepost_testkit::servers::{S3_PASSWORD, S3Server};
use nix::sys::signal::Signal;

use crate::common::{Said, Site, contains};

const KEY: &str = "site/report.json";

/// The request for a content has this header.
const MARK: &[u8] = b"x-amz-meta-fencepost-write";

struct Scene {
    site: Site,
    server: S3Server,
}

impl Scene {
    fn new() -> Self {
        Self { site: Site::new(), server: S3Server::good() }
    }

    fn url(&self, port: u16) -> String {
        self.server.url_by(port).replace("/fencepost", &format!("/{KEY}"))
    }

    /// A command with the credentials.
    fn command(&self, arguments: &[&str]) -> Command {
        let (id, secret) = S3_PASSWORD.split_once(':').unwrap();
        let mut command = self.site.command(arguments);
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
        command
    }

    fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    /// A new token, acquired by hand; the holder of the last one has lost its lease.
    fn token(&self) -> String {
        self.say(&["lease", "release", "daily", "--force"]);
        let acquired = self.say(&["lease", "acquire", "daily", "--ttl", "1h"]);
        assert_eq!(acquired.code, 0, "{acquired:?}");
        acquired.stdout.trim().to_string()
    }

    /// The command that publishes this content under this token.
    fn publish(&self, port: u16, token: &str, content: &[u8], options: &[&str]) -> Command {
        let from = self.site.path(token);
        fs::write(&from, content).unwrap();
        let (url, from) = (self.url(port), from.display().to_string());
        let common = ["publish", "s3", &url, "--job", "daily", "--token", token, "--from", &from, "--json"];
        self.command(&[&common[..], options].concat())
    }

    fn published(&self, token: &str, content: &[u8], options: &[&str]) -> Said {
        let said = Said::of(self.publish(self.server.port, token, content, options).output().unwrap());
        assert_eq!(said.code, 0, "{said:?}");
        said
    }

    fn bucket(&self) -> S3Bucket {
        S3Bucket::open(S3Place::parse(&self.url(self.server.port)).unwrap(), Some(&Secret::new(S3_PASSWORD))).unwrap()
    }

    /// The content as a reader sees it.
    fn content(&self) -> Vec<u8> {
        self.bucket().read_object(KEY, 1 << 23).unwrap().value.unwrap().bytes
    }

    fn head(&self) -> S3Head {
        self.bucket().look_at(KEY).unwrap().unwrap()
    }
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

#[test]
fn an_object_is_written_under_its_fence() {
    let scene = Scene::new();
    let token = scene.token();
    let dry = scene.published(&token, b"{}", &["--dry-run"]);
    assert!(scene.bucket().look_at(KEY).unwrap().is_none(), "a dry run wrote something");
    let headers = ["--content-type", "application/json", "--cache-control", "max-age=60", "--metadata", "owner=jobs"];
    let written = scene.published(&token, b"{}", &headers);
    contains(&written.stdout, &[r#""level":"gated""#, r#""already_applied":false"#, "s3://locks/site/report.json"]);
    let head = scene.head();
    let found = ["content-type", "cache-control", "x-amz-meta-owner"].map(|name| head.header(name));
    assert_eq!(found, [Some("application/json"), Some("max-age=60"), Some("jobs")]);
    contains(&scene.published(&token, b"{}", &[]).stdout, &[r#""already_applied":true"#]);
    let wrong = scene.publish(scene.server.port, &token, b"{}", &["--metadata", "owner"]);
    let wrong = Said::of({ wrong }.output().unwrap());
    assert_eq!(wrong.code, 2, "{wrong:?}");
    contains(&scene.say(&["status", "--json"]).stdout, &["s3://locks/site/report.json"]);
    let (_, secret) = S3_PASSWORD.split_once(':').unwrap();
    for said in [dry, written, wrong] {
        assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret), "{said:?}");
    }
}

/// Equal contents have the same ETag. The first run has read it, has raised the fence and is stopped. The second run publishes the
/// bytes that were there before. The first one goes on, with other bytes.
#[test]
fn a_run_that_was_stopped_before_its_content_is_refused() {
    let scene = Scene::new();
    // The signature of a content ends after twice this time. A stall of the server must not outlast it.
    let quick = ["--timeout", "4s"];
    scene.published(&scene.token(), b"same", &quick);
    let scissors = Scissors::start(scene.server.port, MARK, Cut::Late);
    let (tell, stopped) = channel();
    let (go, gate) = channel::<()>();
    let (hand_over, child) = channel::<i32>();
    scissors.at_cut(move || {
        let pid = child.recv().unwrap();
        send(pid, Signal::SIGSTOP);
        tell.send(pid).unwrap();
        gate.recv().unwrap();
    });
    let older = spawn(scene.publish(scissors.port, &scene.token(), b"other", &quick));
    hand_over.send(pid(&older)).unwrap();
    let older_pid = stopped.recv().unwrap();
    let newer = scene.published(&scene.token(), b"same", &quick);
    contains(&newer.stderr, &["waited for its end"]);
    // The request of the older one arrives now, and then it goes on itself.
    go.send(()).unwrap();
    let answer = String::from_utf8(scissors.late.recv().unwrap()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    send(older_pid, Signal::SIGCONT);
    let refused = Said::of(older.wait_with_output().unwrap());
    assert_eq!(refused.code, 13, "{refused:?}");
    contains(&refused.stderr, &["is stale"]);
    assert_eq!(scene.content(), b"same");
}

/// A publisher is killed after it has raised the fence, and in the middle of its upload. The old object stays whole, and the
/// next run publishes.
#[test]
fn a_publisher_that_is_killed_leaves_the_old_object() {
    let scene = Scene::new();
    let large = b"in the middle of the upload ".repeat(40_000);
    scene.published(&scene.token(), b"old", &[]);
    let mut old = b"old".to_vec();
    for word in [MARK, b"in the middle of the upload"] {
        let scissors = Scissors::start(scene.server.port, word, Cut::Before);
        let (hand_over, child) = channel::<i32>();
        scissors.at_cut(move || send(child.recv().unwrap(), Signal::SIGKILL));
        let killed = spawn(scene.publish(scissors.port, &scene.token(), &large, &[]));
        hand_over.send(pid(&killed)).unwrap();
        let said = Said::of(killed.wait_with_output().unwrap());
        assert_eq!((said.code, scene.content()), (137, old), "{said:?}");
        let token = scene.token();
        scene.published(&token, token.as_bytes(), &[]);
        old = token.into_bytes();
        assert_eq!(scene.content(), old);
    }
}

/// The file would take hours to read, and there is no server.
#[test]
fn more_than_five_gibibytes_are_refused_unread() {
    let site = Site::new();
    let large = site.path("large");
    File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let url = format!("s3://locks/{KEY}?endpoint=http://127.0.0.1:{}", free_port());
    let from = large.display().to_string();
    let token = site.say(&["lease", "acquire", "daily"]).stdout;
    let said = site.say(&["publish", "s3", &url, "--job", "daily", "--token", token.trim(), "--from", &from]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &[&from, "more than 5 GiB", "nothing was changed"]);
}
