//! Servers that speak S3: a good one, and two that do not keep their conditions.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::http::message;
use crate::network::free_port;
use crate::servers::{own_directory, wait_until};

/// The bucket that every server has.
pub const BUCKET: &str = "locks";

/// The credentials that SeaweedFS checks, as a password of the store.
pub const S3_PASSWORD: &str = "AKTESTS:key-of-the-tests";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum S3Kind {
    /// SeaweedFS: a conditional write is one step.
    Seaweed,
    /// moto: it checks the condition and then writes, and threads come between the two.
    Moto,
    /// s3s-fs: the same, and slower between the two.
    S3s,
}

pub struct S3Server {
    process: Child,
    directory: TempDir,
    pub port: u16,
    kind: S3Kind,
    settings: Vec<String>,
    ports: [u16; 7],
}

impl S3Server {
    /// A server that keeps its conditions.
    pub fn good() -> Self {
        Self::start(S3Kind::Seaweed, &[])
    }

    /// The good one, with TLS.
    pub fn with_tls(key: &Path, certificate: &Path) -> Self {
        let settings = [("key", key), ("cert", certificate)];
        let settings = settings.map(|(name, path)| format!("-s3.{name}.file={}", path.display()));
        Self::start(S3Kind::Seaweed, &settings)
    }

    /// A server that compares and then writes.
    pub fn moto() -> Self {
        Self::start(S3Kind::Moto, &[])
    }

    /// Another one, in which hardly a race has one winner.
    pub fn s3s() -> Self {
        Self::start(S3Kind::S3s, &[])
    }

    fn start(kind: S3Kind, settings: &[String]) -> Self {
        let (directory, ports) = (own_directory(), [(); 7].map(|()| free_port()));
        let port = free_port();
        let process = spawn(kind, directory.path(), port, &ports, settings);
        let settings = settings.to_vec();
        let mut server = Self { process, directory, port, kind, settings, ports };
        server.wait();
        server
    }

    /// Until there is a bucket.
    fn wait(&mut self) {
        let (port, filer, kind) = (self.port, self.ports[4], self.kind);
        let makes_bucket = || match kind {
            // The bucket may be there from before. A server with TLS refuses in plain text.
            S3Kind::Seaweed => {
                let made = format!("POST /buckets/{BUCKET}/");
                (says(filer, &made, "HTTP/1.1 201") || says(filer, &made, "HTTP/1.1 409"))
                    && says(port, &format!("GET /{BUCKET}/"), "HTTP/1.")
            }
            S3Kind::Moto => says(port, &format!("PUT /{BUCKET}"), "HTTP/1.1 200"),
            S3Kind::S3s => TcpStream::connect(("127.0.0.1", port)).is_ok(),
        };
        wait_until(&mut self.process, makes_bucket);
    }

    /// The store in the bucket.
    pub fn url(&self) -> String {
        self.url_by(self.port)
    }

    /// The store in the bucket by another port, as of a proxy.
    pub fn url_by(&self, port: u16) -> String {
        format!("s3://{BUCKET}/fencepost?endpoint=http://127.0.0.1:{port}")
    }

    pub fn kill_and_restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = spawn(self.kind, self.directory.path(), self.port, &self.ports, &self.settings);
        self.wait();
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(kind: S3Kind, directory: &Path, port: u16, ports: &[u16; 7], settings: &[String]) -> Child {
    let mut command = match kind {
        S3Kind::Seaweed => seaweed(directory, port, ports),
        S3Kind::Moto => {
            let mut python = Command::new(tool("s3/bin/python"));
            // Threads take turns so often that one comes between another's check and its write.
            let script = "import sys; sys.setswitchinterval(1e-6); from moto.server import main; main(sys.argv[1:])";
            python.args(["-c", script, "-H", "127.0.0.1", "-p", &port.to_string()]);
            python
        }
        S3Kind::S3s => {
            fs::create_dir_all(directory.join(BUCKET)).unwrap();
            let mut server = Command::new(tool("bin/s3s-fs"));
            server.args(["--host", "127.0.0.1", "--port", &port.to_string()]).arg(directory);
            let (id, secret) = S3_PASSWORD.split_once(':').expect("a password");
            server.args(["--access-key", id, "--secret-key", secret]);
            server
        }
    };
    let log = fs::File::create(directory.join("log")).unwrap();
    command.args(settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the server")
}

fn seaweed(directory: &Path, port: u16, ports: &[u16; 7]) -> Command {
    let (id, secret) = S3_PASSWORD.split_once(':').expect("a password");
    let config = format!(
        r#"{{"identities":[{{"name":"t","credentials":[{{"accessKey":"{id}","secretKey":"{secret}"}}],"actions":["Read:{BUCKET}","Write:{BUCKET}","List:{BUCKET}"]}}]}}"#
    );
    fs::write(directory.join("s3.json"), config).unwrap();
    let mut weed = Command::new(tool("s3/bin/weed"));
    weed.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-volume.max=20"]);
    // Small volumes, because a new one takes its whole room at once.
    weed.arg("-master.volumeSizeLimitMB=16");
    weed.arg(format!("-dir={}", directory.display()));
    weed.arg(format!("-s3.config={}", directory.join("s3.json").display()));
    weed.arg(format!("-s3.port={port}"));
    // Servers of other protocols, which would take fixed ports.
    weed.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
    let names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"];
    for (name, port) in names.iter().chain(&["s3.port.grpc"]).zip(ports) {
        weed.arg(format!("-{name}={port}"));
    }
    weed
}

/// A program that `tools/fetch-s3-servers` fetches.
fn tool(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools").join(path);
    assert!(path.exists(), "{} is missing: run tools/fetch-s3-servers", path.display());
    path
}

fn says(port: u16, request: &str, words: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .ok()?;
        message(&stream)
    };
    ask().is_some_and(|answer| answer.starts_with(words.as_bytes()))
}
