//! etcd: one member, or a cluster.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::message;
use crate::network::free_port;
use crate::servers::{own_directory, unprivileged, wait_until};
use crate::{eventually, program};

pub struct Etcd {
    members: Vec<Member>,
    directory: TempDir,
    /// Further arguments of every member.
    settings: Vec<String>,
}

struct Member {
    process: Child,
    port: u16,
    peer: u16,
}

impl Etcd {
    /// One member.
    pub fn start() -> Self {
        Self::with(1, &[])
    }

    pub fn with(members: usize, settings: &[&str]) -> Self {
        let directory = own_directory();
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let ports: Vec<(u16, u16)> = (0..members).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<u16> = ports.iter().map(|(_, peer)| *peer).collect();
        let member = |(port, peer): &(u16, u16)| Member {
            process: spawn(directory.path(), *port, *peer, &peers, &settings),
            port: *port,
            peer: *peer,
        };
        let members = ports.iter().map(member).collect();
        let mut server = Self { members, directory, settings };
        (0..server.members.len()).for_each(|at| server.wait(at));
        server
    }

    /// Until the member has a leader.
    fn wait(&mut self, at: usize) {
        let port = self.members[at].port;
        if self.settings.iter().any(|setting| setting.starts_with("--cert-file")) {
            // What it says is encrypted.
            wait_until(&mut self.members[at].process, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        } else {
            wait_until(&mut self.members[at].process, || {
                ask(port, "GET /health", &Value::Null).is_some_and(|said| said["health"] == "true")
            });
        }
    }

    pub fn port(&self) -> u16 {
        self.members[0].port
    }

    /// Names all members, the first one first.
    pub fn url(&self) -> String {
        let places: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("etcd://{}/fencepost", places.join(","))
    }

    /// Calls the first member as its administrator does, without a login.
    pub fn ask(&self, path: &str, body: &Value) -> Value {
        ask(self.port(), &format!("POST {path}"), body).unwrap_or_else(|| panic!("{path} {body} was not answered"))
    }

    /// The member that leads the others now.
    pub fn leader(&self) -> usize {
        let leads = |member: &Member| {
            let status = ask(member.port, "POST /v3/maintenance/status", &json!({}))?;
            Some(status["leader"].is_string() && status["leader"] == status["header"]["member_id"])
        };
        let mut found = None;
        eventually("the members have a leader", || {
            found = self.members.iter().position(|member| leads(member) == Some(true));
            found.is_some()
        });
        found.expect("a leader")
    }

    pub fn kill(&mut self, at: usize) {
        let _ = self.members[at].process.kill();
        let _ = self.members[at].process.wait();
    }

    pub fn restart(&mut self, at: usize) {
        let peers: Vec<u16> = self.members.iter().map(|member| member.peer).collect();
        let Member { port, peer, .. } = self.members[at];
        self.members[at].process = spawn(self.directory.path(), port, peer, &peers, &self.settings);
        self.wait(at);
    }

    /// Kills the first member where it stands, and starts it again on the same port.
    pub fn kill_and_restart(&mut self) {
        self.kill(0);
        self.restart(0);
    }

    /// Stops a member where it stands, or continues it.
    pub fn signal(&self, at: usize, signal: Signal) {
        kill(Pid::from_raw(self.members[at].process.id().cast_signed()), signal).expect("the member is running");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}

fn spawn(directory: &Path, port: u16, peer: u16, peers: &[u16], settings: &[String]) -> Child {
    let cluster: Vec<String> = peers.iter().map(|peer| format!("m{peer}=http://127.0.0.1:{peer}")).collect();
    let is_tls = settings.iter().any(|setting| setting.starts_with("--cert-file"));
    let clients = format!("{}://127.0.0.1:{port}", if is_tls { "https" } else { "http" });
    let peer_url = format!("http://127.0.0.1:{peer}");
    let mut etcd = unprivileged(program("etcd", "etcd-server"));
    etcd.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH.replace("aarch64", "arm64"));
    etcd.args(["--name", &format!("m{peer}"), "--initial-cluster", &cluster.join(",")]);
    etcd.arg("--data-dir").arg(directory.join(peer.to_string()));
    etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    etcd.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
    // A fifth of the usual times, so that a leader that is gone is replaced within a second.
    etcd.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error"]);
    etcd.args(settings).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcd")
}

fn ask(port: u16, what: &str, body: &Value) -> Option<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    write!(stream, "{what} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
    let answer = String::from_utf8(message(&stream)?).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}
