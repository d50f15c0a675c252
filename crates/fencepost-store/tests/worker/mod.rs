//! The Durable Object of `worker/` in a real workerd, and a network before it that knows where a request ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::servers::{free_port, own_directory, wait_until};

/// What clients of the tests know.
pub const TOKEN: &str = "t0ken-of-the-tests-and-of-nothing-else";

/// A worker of its own, with its storage in a directory of its own.
pub struct Worker {
    process: Child,
    directory: TempDir,
    pub port: u16,
    settings: Vec<(String, String)>,
}

impl Worker {
    /// With a limit that no test reaches.
    pub fn start() -> Self {
        Self::with(&[("FENCEPOST_TOKEN", TOKEN), ("FENCEPOST_RATE", "1000000")])
    }

    pub fn with(settings: &[(&str, &str)]) -> Self {
        Self::start_in(own_directory(), settings, |config| config)
    }

    /// With a key and a certificate instead of plain HTTP.
    pub fn with_tls(key: &Path, certificate: &Path) -> Self {
        let directory = own_directory();
        for (name, path) in [("tls.key", key), ("tls.crt", certificate)] {
            fs::copy(path, directory.path().join(name)).unwrap();
        }
        let https =
            "https = (tlsOptions = (keypair = (privateKey = embed \"tls.key\", certificateChain = embed \"tls.crt\")))";
        let settings = [("FENCEPOST_TOKEN", TOKEN), ("FENCEPOST_RATE", "1000000")];
        Self::start_in(directory, &settings, |config| config.replace("http = ()", https))
    }

    fn start_in(directory: TempDir, settings: &[(&str, &str)], change: impl Fn(String) -> String) -> Self {
        let worker = built();
        let config = change(fs::read_to_string(worker.join("test.capnp")).unwrap());
        fs::write(directory.path().join("test.capnp"), config).unwrap();
        fs::create_dir_all(directory.path().join("dist")).unwrap();
        fs::create_dir_all(directory.path().join("disk")).unwrap();
        fs::copy(worker.join("dist/worker.js"), directory.path().join("dist/worker.js")).unwrap();
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect::<Vec<_>>();
        let port = free_port();
        let process = Self::spawn(directory.path(), port, &settings);
        let mut worker = Self { process, directory, port, settings };
        worker.wait();
        worker
    }

    fn spawn(directory: &Path, port: u16, settings: &[(String, String)]) -> Child {
        let log = fs::File::create(directory.join("log")).unwrap();
        let mut command = Command::new(workerd());
        command.arg("serve").arg("test.capnp").arg("-d").arg(format!("disk={}", directory.join("disk").display()));
        command.arg("-s").arg(format!("http=127.0.0.1:{port}"));
        command.current_dir(directory).env_clear().envs(settings.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("workerd")
    }

    fn wait(&mut self) {
        let port = self.port;
        wait_until(&mut self.process, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Kills it where it stands, and starts it again on the same port.
    pub fn kill_and_restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = Self::spawn(self.directory.path(), self.port, &self.settings);
        self.wait();
    }

    /// Kills it, does something to its one database, and starts it again.
    pub fn meddle(&mut self, statement: &str) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let mut objects =
            fs::read_dir(self.directory.path().join("disk/fencepost")).unwrap().flatten().map(|file| file.path());
        let database =
            |path: &PathBuf| path.extension().is_some_and(|end| end == "sqlite") && !path.ends_with("metadata.sqlite");
        let object = objects.find(database).expect("the database of the object");
        rusqlite::Connection::open(object).unwrap().execute_batch(statement).unwrap();
        self.process = Self::spawn(self.directory.path(), self.port, &self.settings);
        self.wait();
    }

    /// Where it is, without the token.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The directory of the worker, once it is built.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../worker");
        let output = Command::new(directory.join("build")).output().expect("worker/build");
        let said = String::from_utf8_lossy(&output.stderr).to_string() + &String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "worker/build failed; it needs node and npm (apt-get install --no-install-recommends nodejs npm) and npm's registry:\n{said}"
        );
        directory
    })
}

/// The program itself, out of the package for this machine.
fn workerd() -> PathBuf {
    let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let system = if system == "macos" { "darwin" } else { system };
    let machine = if machine == "aarch64" { "arm64" } else { "64" };
    let path = built().join(format!("node_modules/@cloudflare/workerd-{system}-{machine}/bin/workerd"));
    assert!(path.exists(), "workerd is missing at {}: run worker/build", path.display());
    path
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// One of seven is lost before it arrives, one has its answer lost, one has it cut in the middle, one is late.
    Foul,
    /// Nothing is carried any more, and nobody is told.
    Silent,
}

/// Stands between clients and a server, and knows where a message of HTTP ends.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    weather: Mutex<Weather>,
    ended: AtomicBool,
    connections: AtomicU64,
    requests: AtomicU64,
}

impl Proxy {
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let shared = Arc::new(Shared {
            weather: Mutex::new(Weather::Fair),
            ended: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let proxy = Self { port: listener.local_addr().unwrap().port(), shared: shared.clone() };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let shared = shared.clone();
                thread::spawn(move || {
                    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
                    let _ = carry(&shared, &client, &upstream);
                    let _ = (client.shutdown(Shutdown::Both), upstream.shutdown(Shutdown::Both));
                });
            }
        });
        proxy
    }

    pub fn set(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap() = weather;
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Carries requests and their answers one after the other until something is lost.
fn carry(shared: &Shared, mut client: &TcpStream, mut server: &TcpStream) -> Option<()> {
    loop {
        let request = message(client)?;
        let number = shared.requests.fetch_add(1, Ordering::SeqCst);
        let weather = *shared.weather.lock().unwrap();
        // The same order in every run, as far as the threads are.
        let die = if weather == Weather::Foul { (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 7 } else { 6 };
        while weather == Weather::Silent && !shared.ended.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        if die == 0 || weather == Weather::Silent {
            return None;
        }
        if die == 2 {
            thread::sleep(Duration::from_millis(20));
        }
        server.write_all(&request).ok()?;
        let answer = message(server)?;
        match die {
            1 => return None,
            3 => return client.write_all(&answer[..answer.len() - 1 - answer.len() / 3]).ok().and(None),
            _ => client.write_all(&answer).ok()?,
        }
    }
}

/// A whole request or answer: its head, and as much more as the head says.
pub fn message(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let (mut message, mut buffer) = (Vec::new(), [0; 16384]);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        message.extend_from_slice(&buffer[..read]);
        let Some(end) = message.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if message.len() >= end + 4 + length.unwrap_or(0_usize) {
            return Some(message);
        }
    }
}
