//! A small HTTP server in front of `git http-backend`, which can lose connections.

use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::http::{self, Request};
use crate::network::Loopback;

/// What happens to the next push.
pub enum Fault {
    /// The connection ends before the server has seen it.
    Unheard,
    /// It is carried out, then something else happens, and then the connection ends without an answer.
    Unanswered(Box<dyn FnOnce() + Send>),
}

pub struct GitServer {
    loopback: Loopback,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    faults: Mutex<Vec<Fault>>,
    /// Requests without this `Authorization` are refused.
    password: Mutex<Option<String>>,
}

impl GitServer {
    /// Serves the repositories of a directory on a free port.
    pub fn start(root: &Path) -> Self {
        let shared =
            Arc::new(Shared { root: root.to_path_buf(), faults: Mutex::default(), password: Mutex::default() });
        let serving = Arc::clone(&shared);
        let loopback = Loopback::start(move |stream| _ = serving.serve(&stream));
        Self { loopback, shared }
    }

    pub fn url(&self, path: &str) -> String {
        self.loopback.url(path)
    }

    /// Has the next pushes go wrong, one after the other.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        let mut faults: Vec<Fault> = faults.into_iter().collect();
        faults.reverse();
        *self.shared.faults.lock().unwrap() = faults;
    }

    pub fn ask_for_a_password(&self) {
        *self.shared.password.lock().unwrap() = Some("Basic bWU6cmlnaHQ=".to_string());
    }
}

impl Shared {
    /// Answers one request and closes the connection. That a client goes away is no failure.
    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let request = Request::read(stream).ok()?;
        let password = self.password.lock().unwrap().clone();
        if password.is_some_and(|password| request.header("authorization") != Some(&password)) {
            return http::answer(stream, 401, "WWW-Authenticate: Basic realm=\"t\"\r\n").ok();
        }
        let is_push = request.method == "POST" && request.path().ends_with("/git-receive-pack");
        match is_push.then(|| self.faults.lock().unwrap().pop()).flatten() {
            Some(Fault::Unheard) => None,
            Some(Fault::Unanswered(then)) => {
                self.backend(&request);
                then();
                None
            }
            None => stream.write_all(&answer(&self.backend(&request))).ok(),
        }
    }

    /// The answer of git's own CGI program.
    fn backend(&self, request: &Request) -> Vec<u8> {
        let mut child = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REQUEST_METHOD", &request.method)
            .env("PATH_INFO", request.path())
            .env("QUERY_STRING", request.query())
            .env("CONTENT_TYPE", request.header("content-type").unwrap_or_default())
            .env("CONTENT_LENGTH", request.body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", request.header("content-encoding").unwrap_or_default())
            .env("GIT_PROTOCOL", request.header("git-protocol").unwrap_or_default())
            .env("REMOTE_USER", "test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("git http-backend is needed for this test: apt-get install git");
        let mut input = child.stdin.take().unwrap();
        let body = request.body.clone();
        let writer = thread::spawn(move || input.write_all(&body));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        output.stdout
    }
}

/// Turns the answer of a CGI program into one of HTTP.
fn answer(cgi: &[u8]) -> Vec<u8> {
    let split = cgi.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("git http-backend gave no answer");
    let (head, body) = (String::from_utf8_lossy(&cgi[..split]), &cgi[split + 4..]);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let headers: String =
        head.lines().filter(|line| !line.starts_with("Status: ")).map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// Runs git, which must succeed, and returns its output without the last newline.
#[track_caller]
pub fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = try_git(directory, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?} in {}: {error}", directory.display());
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

pub fn try_git(directory: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .expect("git is needed for this test: apt-get install git")
}
