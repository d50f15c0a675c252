//! PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::network::free_port;
use crate::process::children_of;
use crate::servers::{end, own_directory, unprivileged, wait_until};
use crate::{eventually, faketime, program};

pub struct Postgres {
    process: Child,
    directory: TempDir,
    pub port: u16,
    settings: Vec<String>,
    behind: Option<Duration>,
    databases: AtomicU32,
}

impl Postgres {
    /// The server that the tests of one process share, as long as one of them needs it.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start(&[]));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    pub fn start(settings: &[&str]) -> Self {
        let directory = own_directory();
        let data = directory.path().join("data");
        let mut initdb = unprivileged(postgres_program("initdb"));
        initdb.env("HOME", directory.path()).current_dir(directory.path()).stdout(Stdio::null());
        let made = initdb.args(["-U", "fencepost", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N", "-D"]);
        assert!(made.arg(&data).status().expect("initdb").success(), "initdb failed");
        Self::start_in(directory, settings)
    }

    /// Starts the server that was prepared in a directory.
    pub fn start_in(directory: TempDir, settings: &[&str]) -> Self {
        Self::start_behind(directory, settings, None)
    }

    /// Starts it with a clock that is behind.
    pub fn start_behind(directory: TempDir, settings: &[&str], behind: Option<Duration>) -> Self {
        let (port, settings) = (free_port(), settings.iter().map(ToString::to_string).collect::<Vec<_>>());
        let process = Self::spawn(directory.path(), port, &settings, behind);
        let mut server = Self { process, directory, port, settings, behind, databases: AtomicU32::new(0) };
        server.wait();
        server
    }

    fn spawn(directory: &Path, port: u16, settings: &[String], behind: Option<Duration>) -> Child {
        let server = postgres_program("postgres");
        let mut postgres = match behind {
            None => unprivileged(server),
            Some(behind) => {
                // The library must not see the program that gives up the rights.
                let mut env = unprivileged(program("env", "coreutils"));
                env.arg(format!("LD_PRELOAD={}", faketime("").display()));
                env.arg(format!("FAKETIME=-{}s", behind.as_secs())).arg(server);
                env
            }
        };
        postgres.arg("-D").arg(directory.join("data")).arg("-k").arg(directory);
        postgres.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "fsync=off", "-c", "max_connections=50"]);
        for setting in settings {
            postgres.args(["-c", setting]);
        }
        let log = std::fs::File::create(directory.join("log")).unwrap();
        postgres.current_dir(directory).stdout(Stdio::null()).stderr(log).spawn().expect("postgres")
    }

    fn wait(&mut self) {
        let url = self.url("postgres");
        wait_until(&mut self.process, || postgres::Client::connect(&url, postgres::NoTls).is_ok());
    }

    /// Kills it where it stands, and starts it again on the same port once the last of its processes is gone.
    pub fn kill_and_restart(&mut self) {
        let backends = children_of(self.process.id().cast_signed());
        let _ = self.process.kill();
        let _ = self.process.wait();
        eventually("the backends are gone", || !backends.iter().any(|pid| kill(Pid::from_raw(*pid), None).is_ok()));
        self.process = Self::spawn(self.directory.path(), self.port, &self.settings, self.behind);
        self.wait();
    }

    /// A copy of it as it is now, in a directory of its own: a standby that follows no server until it is promoted.
    pub fn copy(&self) -> TempDir {
        let directory = own_directory();
        let mut backup = unprivileged(postgres_program("pg_basebackup"));
        backup.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-U",
            "fencepost",
            "-c",
            "fast",
            "-X",
            "stream",
            "-D",
        ]);
        let made = backup.arg(directory.path().join("data")).current_dir(directory.path()).status();
        assert!(made.expect("pg_basebackup").success(), "pg_basebackup failed");
        std::fs::write(directory.path().join("data/standby.signal"), "").unwrap();
        directory
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://fencepost@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn client(&self, database: &str) -> postgres::Client {
        postgres::Client::connect(&self.url(database), postgres::NoTls).unwrap()
    }

    /// A new database.
    pub fn database(&self) -> String {
        let name = format!("shop{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.client("postgres").batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
        name
    }

    /// A directory in which a server was prepared.
    pub fn prepare(settings: &[&str]) -> TempDir {
        Self::start(settings).stop()
    }

    /// Stops it and hands its directory on.
    pub fn stop(mut self) -> TempDir {
        end(&mut self.process, Signal::SIGINT);
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        end(&mut self.process, Signal::SIGQUIT);
        if self.behind.is_some() {
            // What the library leaves behind when its process is not ended gently.
            for name in ["faketime_shm_", "sem.faketime_sem_"] {
                let _ = std::fs::remove_file(format!("/dev/shm/{name}{}", self.process.id()));
            }
        }
    }
}

/// Debian keeps the programs of a server beside each other by version, outside the path.
fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| program(name, "postgresql"))
}
