//! `fencepost publish http`, as a person or a script calls it, against the example server.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use fencepost_testkit::eventually;
use fencepost_testkit::fenced::server_in;
use fencepost_testkit::fenced_server::{Fault, Server};
use fencepost_testkit::network::free_port;
use fencepost_testkit::servers::certificate;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{BINARY, Site};

const SECRET: &str = "s3cret-of-this-test";

struct Scene {
    site: Site,
    server: Arc<Server>,
    host: String,
}

impl Scene {
    fn new() -> Self {
        let site = Site::new();
        let (server, address) = server_in(&site.path("served"));
        Self { site, server, host: address.to_string() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }

    fn url(&self) -> String {
        format!("http://{}/report", self.host)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.current_dir(self.site.directory()).env("FENCEPOST", BINARY).env("URL", self.url());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A new token, acquired by hand; the holder of the last one has lost its lease.
    fn token(&self) -> String {
        self.run(&["lease", "release", "report", "--force"]);
        let acquired = self.run(&["lease", "acquire", "report"]);
        assert!(acquired.status.success(), "{}", text(&acquired.stderr));
        text(&acquired.stdout).trim().to_string()
    }

    fn arguments<'a>(&self, url: &'a str, token: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["publish", "http", url, "--job", "report", "--token", token, "--resource", "r"][..], more].concat()
    }

    fn publish(&self, token: &str, more: &[&str], payload: &str) -> Output {
        fs::write(self.path("payload"), payload).unwrap();
        let url = self.url();
        self.run(&[&self.arguments(&url, token, more)[..], &["--from", "payload"]].concat())
    }

    fn content(&self) -> String {
        text(&self.server.content("r").unwrap_or_default())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn inside_a_run_it_is_the_runs_own_token() {
    let scene = Scene::new();
    let script = "echo hello | $FENCEPOST publish http $URL --method post --content-type text/plain; echo $FENCEPOST_TOKEN > token";
    let done = scene.run(&["run", "report", "--", "sh", "-c", script]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(text(&done.stderr), "", "nothing is wrong");
    let token = fs::read_to_string(scene.path("token")).unwrap();
    assert_eq!(scene.server.applied(), [(scene.url(), token.trim().parse().unwrap())]);
    let seen = &scene.server.seen()[0];
    let header =
        |name: &str| seen.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).unwrap().1.clone();
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/report"));
    assert_eq!((header("fencepost-job").as_str(), header("content-type").as_str()), ("report", "text/plain"));
    let status: Value = serde_json::from_slice(&scene.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["resources"][0]["resource"], scene.url());
    assert_eq!(status["resources"][0]["kind"], "http");
}

#[test]
fn a_refusal_inside_a_run_makes_it_fenced_whatever_the_script_does() {
    let scene = Scene::new();
    let other = "echo x | $FENCEPOST publish http $URL --resource r";
    assert!(scene.run(&["run", "owner", "--", "sh", "-c", other]).status.success());
    let refused = scene.run(&["run", "report", "--", "sh", "-c", &format!("{other} || true")]);
    assert_eq!(refused.status.code(), Some(113), "{}", text(&refused.stderr));
    assert_eq!(scene.server.applied().len(), 1);
}

/// The writer is past its early check, and stopped; a newer token writes; then it goes on.
#[test]
fn a_writer_that_is_stopped_before_it_sends_is_refused_after_a_newer_write() {
    let scene = Scene::new();
    let old = scene.token();
    let url = scene.url();
    let mut stopped =
        scene.command(&scene.arguments(&url, &old, &[])).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = stopped.id().cast_signed();
    // The file for the payload is there once the early check is behind it.
    eventually("it reads its payload", || has_unnamed_file(&stopped));
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    let new = scene.token();
    assert_eq!(scene.publish(&new, &[], "new").status.code(), Some(0));
    stopped.stdin.take().unwrap().write_all(b"old").unwrap();
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    let done = stopped.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(13), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains(&format!("token {old} is stale: token {new}")), "{}", text(&done.stderr));
    assert_eq!(scene.content(), "new");
    let status: Value = serde_json::from_slice(&scene.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["resources"][0]["refused"], 1);
}

#[test]
fn json_says_what_became_of_it() {
    let scene = Scene::new();
    let token = scene.token();
    for expected in [false, true] {
        let done = scene.publish(&token, &["--op", "charge", "--json"], "x");
        let json: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!((&json["accepted"], &json["level"]), (&true.into(), &"atomic".into()));
        assert_eq!(json["already_applied"], expected);
        assert_eq!(json["seen"].to_string(), token);
    }
    let reused = scene.publish(&token, &["--op", "charge"], "y");
    assert_eq!(reused.status.code(), Some(125));
    assert!(text(&reused.stderr).contains("another payload"), "{}", text(&reused.stderr));
    let dry = scene.publish(&token, &["--dry-run", "-v"], "z");
    assert_eq!(dry.status.code(), Some(0));
    assert_eq!(scene.content(), "x");
}

#[test]
fn a_secret_is_in_no_list_of_processes_no_error_and_no_status() {
    let scene = Scene::new();
    let token = scene.token();
    fs::write(scene.path("bearer"), format!("{SECRET}\n")).unwrap();
    fs::write(scene.path("payload"), "x").unwrap();
    let url = scene.url();
    let more = ["--bearer-file", "bearer", "--from", "payload"];
    scene.server.script(&[Fault::Delay(1000)]);
    let mut slow = scene.command(&scene.arguments(&url, &token, &more)).spawn().unwrap();
    eventually("it has sent", || !scene.server.seen().is_empty());
    let command_line = fs::read(format!("/proc/{}/cmdline", slow.id())).unwrap();
    assert!(!text(&command_line).contains(SECRET));
    assert!(slow.wait().unwrap().success());
    let sent = format!("Bearer {SECRET}");
    assert!(scene.server.seen()[0].headers.iter().any(|(_, value)| *value == sent), "it was sent");

    let with_user = format!("http://user:{SECRET}@{}/report", scene.host);
    let by_url = scene.run(&["publish", "http", &with_user, "--job", "report", "--token", &token, "--from", "payload"]);
    assert_eq!(by_url.status.code(), Some(0), "{}", text(&by_url.stderr));
    assert!(text(&by_url.stderr).contains("every user who lists processes"), "{}", text(&by_url.stderr));
    scene.server.script(&[Fault::Status(500); 6]);
    let mut failing = scene.command(&["publish", "http", &with_user, "--job", "report", "--token", &token, "--json"]);
    let failed = failing.env("FENCEPOST_HTTP_BEARER", "").output().unwrap();
    assert_eq!(failed.status.code(), Some(125));
    let status = scene.run(&["status", "--json"]);
    for output in [&by_url, &failed, &status, &scene.run(&["status"])] {
        assert!(!text(&output.stdout).contains(SECRET) && !text(&output.stderr).contains(SECRET), "{output:?}");
    }
    assert!(text(&status.stdout).contains("***@"), "the resource is named without its password");
}

#[test]
fn what_cannot_be_meant_is_a_usage_error_and_sends_nothing() {
    let scene = Scene::new();
    let token = scene.token();
    for more in [
        &["--header", "Authorization: Bearer x"][..],
        &["--header", "Fencepost-Token: 99"],
        &["--header", "no colon"],
        &["--method", "DELETE"],
        &["--bearer-file", "/no/such/file"],
    ] {
        assert_eq!(scene.publish(&token, more, "x").status.code(), Some(2), "{more:?}");
    }
    for url in ["ftp://h/x", "h/x", "http://", "http://user:s3cret-of-this-test@/x"] {
        let wrong = scene.run(&["publish", "http", url, "--job", "report", "--token", &token]);
        assert_eq!(wrong.status.code(), Some(2), "{url}");
        assert!(!text(&wrong.stderr).contains(SECRET), "{}", text(&wrong.stderr));
    }
    assert_eq!(scene.server.seen().len(), 0);
    let traced = scene.publish(&token, &["--header", "X-Trace: 7"], "x");
    assert_eq!(traced.status.code(), Some(0));
    assert!(scene.server.seen()[0].headers.contains(&("x-trace".to_string(), "7".to_string())));
}

fn has_unnamed_file(child: &Child) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", child.id())) else { return false };
    let is_payload = |path: PathBuf| {
        let name = path.to_string_lossy().into_owned();
        name.contains("fencepost-payload-") && name.ends_with("(deleted)")
    };
    entries.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(is_payload))
}

/// `openssl s_server` sends what is written to its standard input to the client.
#[test]
fn a_tls_failure_is_not_done_and_ssl_cert_file_is_honoured() {
    let scene = Scene::new();
    let token = scene.token();
    let (key, certificate) = certificate(scene.site.directory());
    let port = free_port();
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-accept", &format!("127.0.0.1:{port}"), "-key"])
        .arg(&key)
        .arg("-cert")
        .arg(&certificate)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let url = format!("https://localhost:{port}/report");
    let publish = |payload: &str, file: Option<&PathBuf>| {
        let arguments = ["publish", "http", &url, "--job", "report", "--token", &token, "--from", "payload"];
        fs::write(scene.path("payload"), payload).unwrap();
        let mut command = scene.command(&arguments);
        command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        command.envs(file.map(|file| ("SSL_CERT_FILE", file))).output().unwrap()
    };
    for payload in ["a payload", ""] {
        let refused = publish(payload, None);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{said}");
        assert!(said.contains("TLS failed") && said.contains("Nothing was sent"), "{said}");
        assert!(said.contains("SSL_CERT_FILE") && !said.contains("may have happened"), "{said}");
    }
    server.stdin.as_mut().unwrap().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    let accepted = publish("a payload", Some(&certificate));
    let _ = (server.kill(), server.wait());
    assert_eq!(accepted.status.code(), Some(0), "{}", text(&accepted.stderr));
}
