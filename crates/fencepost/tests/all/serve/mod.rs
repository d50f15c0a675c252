//! `fencepost serve` as a real process, asked over sockets.

mod actions;
mod answers;
mod description;
mod limits;
mod per_host;
mod prompt;
mod security;
mod share;
mod shutdown;
mod store_state;
mod storm;
mod tls;
mod tokens;
mod trouble;
mod withheld;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fencepost_testkit::process::{code, send};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::Site;
use crate::desk::Desk;

/// A server that ends with the test.
pub struct Served {
    pub child: Child,
    pub port: u16,
    /// What it printed up to its address.
    pub greeting: String,
    stderr: Arc<Mutex<String>>,
}

impl Served {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut out, mut greeting) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        let (mut err, stderr) = (child.stderr.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let said = Arc::clone(&stderr);
        let listener = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Some(read) = err.read(&mut buffer).ok().filter(|read| *read > 0) {
                said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        while !greeting.contains("listening on") {
            let read = out.read_line(&mut greeting).unwrap();
            if read == 0 {
                listener.join().unwrap();
                panic!("it ended: {greeting} {}", stderr.lock().unwrap());
            }
        }
        let port = greeting.trim().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        // What it prints later is read, so that it never waits for its reader.
        thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        Self { child, port, greeting, stderr }
    }

    /// A server on a free port of this host.
    pub fn of(site: &Site, options: &[&str]) -> Self {
        Self::start(site.command(&[&["serve", "--listen", "127.0.0.1:0"], options].concat()))
    }

    pub fn of_desk(desk: &Desk, options: &[&str]) -> Self {
        Self::start(desk.command(&[&["serve", "--listen", "127.0.0.1:0"], options].concat()))
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What it has said on standard error.
    pub fn said(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "")
    }

    pub fn get_as(&self, token: &str, path: &str) -> Reply {
        self.ask("GET", path, &[("Authorization", &format!("Bearer {token}"))], "")
    }

    pub fn post_as(&self, token: &str, path: &str, form: &str) -> Reply {
        self.ask("POST", path, &[("Authorization", &format!("Bearer {token}")), FORM], form)
    }

    /// Asks on a connection of its own. A `Host` among the headers replaces the right one.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request(self.port, method, path, headers, body).as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Reply::parse(&bytes)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends a signal, and returns the exit code.
    pub fn end(mut self, signal: Signal) -> i32 {
        send(self.child.id() as i32, signal);
        code(self.child.wait().unwrap())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// A request that asks for the connection to be closed after it.
pub fn request(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        let _ = write!(head, "Host: 127.0.0.1:{port}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    format!("{head}\r\n{body}")
}

/// An answer, with its body as text.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not an answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head: head.to_string(), body: body.to_string() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        { lines }.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Adds a client to the token file of a site, and returns its token.
pub fn add_token(site: &Site, name: &str) -> String {
    let file = token_file(site);
    let said = site.say(&["serve", "token", name, "--token-file", &file]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    said.stdout.trim().to_string()
}

pub fn token_file(site: &Site) -> String {
    site.path("tokens").display().to_string()
}

/// What a verb prints with `--json`.
pub fn json(desk: &Desk, arguments: &[&str]) -> Value {
    let said = desk.say(&[arguments, &["--json"]].concat());
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said:?}"))
}
