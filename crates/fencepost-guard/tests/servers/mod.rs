//! Throw-away servers on free loopback ports, each in a directory of its own, stopped by its process id when the last
//! test that uses it is done with it, also by a panic.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::unistd::{Pid, User, chown, geteuid};
use tempfile::TempDir;

/// How long a server may take to start, or to end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

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
                env.arg(format!("LD_PRELOAD={}", false_time().display()));
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
        let backends: Vec<i32> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| parent_of(*pid) == Some(self.process.id().cast_signed()))
            .collect();
        let _ = self.process.kill();
        let _ = self.process.wait();
        let started = Instant::now();
        while backends.iter().any(|pid| kill(Pid::from_raw(*pid), None).is_ok()) && started.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        self.process = Self::spawn(self.directory.path(), self.port, &self.settings, self.behind);
        self.wait();
    }

    /// A copy of it as it is now, in a directory of its own, which follows nobody until it is promoted.
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

pub struct Redis {
    process: Child,
    directory: TempDir,
    pub port: u16,
    settings: Vec<String>,
}

impl Redis {
    pub fn start(settings: &[&str]) -> Self {
        let (directory, port) = (own_directory(), free_port());
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let process = Self::spawn(directory.path(), port, &settings);
        let mut server = Self { process, directory, port, settings };
        server.wait();
        server
    }

    fn spawn(directory: &Path, port: u16, settings: &[String]) -> Child {
        let mut redis = unprivileged(program("redis-server", "redis-server"));
        redis.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--loglevel",
            "warning",
            "--dir",
        ]);
        redis.arg(directory).args(settings).stdout(Stdio::null()).spawn().expect("redis-server")
    }

    /// Until it answers, and answers anything but that it is loading.
    fn wait(&mut self) {
        let port = self.port;
        let answers = || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            stream.write_all(b"PING\r\n").ok()?;
            let mut answer = [0; 16];
            stream.read(&mut answer).ok().filter(|&read| read > 0 && !answer.starts_with(b"-LOADING"))
        };
        wait_until(&mut self.process, || answers().is_some());
    }

    /// Kills it where it stands, and starts it again on the same port.
    pub fn kill_and_restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = Self::spawn(self.directory.path(), self.port, &self.settings);
        self.wait();
    }

    /// Stops the server where it stands, or continues it. What was sent to it meanwhile is done then.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).expect("the server is running");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        end(&mut self.process, Signal::SIGTERM);
    }
}

/// The library that tells a process another time.
fn false_time() -> PathBuf {
    let places = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = places.map(|place| place.path().join("faketime/libfaketime.so.1")).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("libfaketime is missing: apt-get install --no-install-recommends faketime"))
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Which half of the exchange is lost when a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The word never reaches the server.
    Before,
    /// The word reaches the server, and its answer is lost.
    After,
    /// Nothing is cut: the word only arrives late.
    Late,
}

type Act = Box<dyn FnOnce() + Send>;

/// Stands between client and server, and cuts the first connection on which the client says `word`.
pub struct Proxy {
    pub port: u16,
    ended: Arc<AtomicBool>,
    pub cut: Arc<AtomicBool>,
    meanwhile: Arc<Mutex<Option<Act>>>,
}

impl Proxy {
    pub fn start(server: u16, word: &'static [u8], how: Cut) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (ended, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let meanwhile = Arc::new(Mutex::new(None::<Act>));
        let proxy = Self { port, ended: ended.clone(), cut: cut.clone(), meanwhile: meanwhile.clone() };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let upstream = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (cut, meanwhile) = (cut.clone(), meanwhile.clone());
                thread::spawn(move || carry(client, upstream, word, how, &cut, &meanwhile));
            }
        });
        proxy
    }

    /// What happens while the connection is being cut.
    pub fn at_cut(&self, act: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(act));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn take(act: &Mutex<Option<Act>>) -> Act {
    act.lock().unwrap().take().unwrap_or_else(|| Box::new(|| {}))
}

fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    word: &[u8],
    how: Cut,
    cut: &AtomicBool,
    meanwhile: &Mutex<Option<Act>>,
) {
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let silent = Arc::new(AtomicBool::new(false));
    let mute = silent.clone();
    let returning = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = answers.read(&mut buffer) {
            if !mute.load(Ordering::SeqCst) && back.write_all(&buffer[..read]).is_err() {
                break;
            }
            if mute.load(Ordering::SeqCst) {
                break;
            }
        }
        let _ = back.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let said = buffer[..read].windows(word.len()).any(|window| window == word);
        let last = said && !cut.swap(true, Ordering::SeqCst);
        if last && how == Cut::Late {
            take(meanwhile)();
            let _ = server.write_all(&buffer[..read]);
            continue;
        }
        silent.store(last, Ordering::SeqCst);
        if !(last && how == Cut::Before) && server.write_all(&buffer[..read]).is_err() {
            break;
        }
        if last {
            break;
        }
    }
    if how == Cut::After && silent.load(Ordering::SeqCst) {
        let _ = returning.join();
    }
    if silent.load(Ordering::SeqCst) {
        take(meanwhile)();
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// A directory that an unprivileged server may write to.
pub fn own_directory() -> TempDir {
    // What a server flushes need not wait for a disk, if there is the memory.
    let memory = Path::new("/dev/shm");
    let free = statvfs(memory).map_or(0, |found| found.blocks_available().saturating_mul(found.fragment_size()));
    let directory = if free > 2 << 30 { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    if geteuid().is_root() {
        let nobody = User::from_name("nobody").unwrap().expect("a user called nobody");
        chown(directory.path(), Some(nobody.uid), Some(nobody.gid)).unwrap();
    }
    directory
}

/// Makes a key and a certificate for `localhost` that vouches for itself, and returns their paths.
pub fn certificate(directory: &Path) -> (PathBuf, PathBuf) {
    let (key, certificate) = (directory.join("server.key"), directory.join("server.crt"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status()
        .expect("openssl is missing: apt-get install openssl");
    assert!(made.success());
    give_away(&[&key, &certificate]);
    (key, certificate)
}

/// Makes files the server's own, and readable by nobody else.
fn give_away(files: &[&Path]) {
    for file in files {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        if geteuid().is_root() {
            let nobody = User::from_name("nobody").unwrap().expect("a user called nobody");
            chown(*file, Some(nobody.uid), Some(nobody.gid)).unwrap();
        }
    }
}

/// PostgreSQL refuses to run as root, and Redis has no reason to.
pub fn unprivileged(program: PathBuf) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(program);
    command
}

/// Debian keeps the programs of a server beside each other by version, outside the path.
fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| program(name, "postgresql"))
}

pub fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is missing: apt-get install --no-install-recommends {package}"))
}

pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

pub fn wait_until(process: &mut Child, ready: impl Fn() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert_eq!(process.try_wait().unwrap(), None, "the server ended at once");
        assert!(started.elapsed() < PATIENCE, "the server does not answer");
        thread::sleep(Duration::from_millis(20));
    }
}

fn end(process: &mut Child, signal: Signal) {
    let _ = kill(Pid::from_raw(process.id().cast_signed()), signal);
    let started = Instant::now();
    while matches!(process.try_wait(), Ok(None)) && started.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = process.kill();
    let _ = process.wait();
}
