//! The Durable Object of `worker/` in a real workerd.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::network::free_port;
use crate::servers::{own_directory, wait_until};

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
