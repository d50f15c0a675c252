//! Leases per second of one process, each acquired and released, beside two raw swaps of the same store and the locks that people
//! use instead: on the same server, at the same durability, in turn.
//!
//! fencepost reads the record, claims by one swap and releases by another. `lock` is a lease without an outcome, as those of the
//! libraries are. A lease with an outcome also moves one old outcome into the job's history, by a third swap.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fencepost_sdk::Guard;
use fencepost_store::{Key, Store, Version};
use fencepost_testkit::servers::{Etcd, Postgres, Redis, keep_on_disk};
use postgres::{Client, Statement};
use tempfile::TempDir;

use crate::measure::{Subject, interleave};
use crate::stores::{open, swap};

/// How many leases are taken in a row, and how often each contender is asked for so many.
const LEASES: usize = 20;
const ROUNDS: usize = 15;

/// Taken before the measurement: until the ring of outcomes is full, the record grows and the history does not.
const LEASES_FIRST: usize = 60;

const TTL: Duration = Duration::from_secs(60);

/// The least share of the rate of two raw swaps that a lock of the library for Rust has to reach, on a disk.
const SHARE_MIN: f64 = 0.8;

pub fn report(fencepost: &Path) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fetched = Command::new(root.join("tools/fetch-lease-peers")).status().expect("tools/fetch-lease-peers");
    assert!(fetched.success(), "tools/fetch-lease-peers ended with {fetched}");
    let tools = Tools { fencepost: fencepost.to_path_buf(), root };
    for (medium, is_on_disk) in [("on the disk", true), ("in memory", false)] {
        keep_on_disk(is_on_disk);
        println!("\nLeases per second of one process, data {medium}; median of {ROUNDS} batches of {LEASES}");
        for start in [Site::sqlite, Site::redis, Site::postgres, Site::etcd] {
            measure(&start(is_on_disk), &tools);
        }
    }
}

fn measure(site: &Site, tools: &Tools) {
    let subjects = contenders(site, tools);
    let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
    let rates: Vec<f64> = interleave(ROUNDS, subjects).iter().map(|time| LEASES as f64 / time.as_secs_f64()).collect();
    println!("  {}", site.name);
    for (name, rate) in names.iter().zip(&rates) {
        println!("    {name:34} {rate:8.0}  {:5.2}", rate / rates[0]);
    }
    let share = rates[1] / rates[0];
    println!("    {} of two raw swaps: {share:.2} (at least {SHARE_MIN})", names[1]);
}

/// Where the programs are.
struct Tools {
    fencepost: PathBuf,
    root: PathBuf,
}

/// A store with its server.
struct Site {
    name: &'static str,
    url: String,
    /// What the host remembers of the store, on the same medium.
    state: TempDir,
    server: RunningServer,
}

enum RunningServer {
    None,
    Redis(Redis),
    Postgres(Postgres),
    Etcd(Etcd),
}

impl Site {
    fn new(name: &'static str, is_on_disk: bool, server: RunningServer, url: impl FnOnce(&Path) -> String) -> Self {
        let made = if is_on_disk { tempfile::tempdir() } else { tempfile::tempdir_in("/dev/shm") };
        let state = made.expect("a directory for the state");
        Self { name, url: url(state.path()), state, server }
    }

    fn sqlite(is_on_disk: bool) -> Self {
        Self::new("embedded (SQLite, synchronous=FULL)", is_on_disk, RunningServer::None, |state| {
            format!("sqlite:{}", state.join("store.db").display())
        })
    }

    fn redis(is_on_disk: bool) -> Self {
        let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
        let url = server.url();
        Self::new("Redis (appendfsync always)", is_on_disk, RunningServer::Redis(server), |_| url)
    }

    fn postgres(is_on_disk: bool) -> Self {
        let server = Postgres::start(&["fsync=on", "synchronous_commit=on"]);
        let url = server.url(&server.database());
        Self::new("PostgreSQL (fsync, synchronous_commit)", is_on_disk, RunningServer::Postgres(server), |_| url)
    }

    fn etcd(is_on_disk: bool) -> Self {
        let server = Etcd::start();
        let url = server.url();
        Self::new("etcd (one member)", is_on_disk, RunningServer::Etcd(server), |_| url)
    }
}

/// The contenders; the raw swaps come first, then the lock of the library for Rust.
fn contenders<'a>(site: &'a Site, tools: &Tools) -> Vec<Subject<'a>> {
    let guard = Guard::open_at(&site.url, site.state.path()).expect("the store opens");
    for _ in 0..LEASES_FIRST {
        lease(&guard);
    }
    let mut subjects = vec![
        Subject::new("two raw swaps", raw(open(&site.url))),
        Subject::new("fencepost-sdk, lock", {
            let guard = guard.clone();
            move || (0..LEASES).for_each(|_| lock(&guard))
        }),
        Subject::new("fencepost-sdk, with outcome", move || (0..LEASES).for_each(|_| lease(&guard))),
        peer("Python SDK, with outcome", tools.python("fencepost", &site.url, site)),
        peer("TypeScript SDK, with outcome", tools.node("fencepost", &site.url, site)),
    ];
    match &site.server {
        RunningServer::None => {}
        RunningServer::Redis(server) => {
            subjects.push(peer("redis-py Lock", tools.python("redis-py", &server.url(), site)));
            subjects.push(peer("redlock (npm, ioredis)", tools.node("redlock", &server.url(), site)));
        }
        RunningServer::Postgres(server) => {
            let mut shedlock = ShedLock::new(server.client(&server.database()));
            subjects.push(Subject::new("ShedLock's algorithm (Rust)", move || {
                (0..LEASES).for_each(|_| shedlock.take());
            }));
        }
        RunningServer::Etcd(server) => {
            let url = format!("http://127.0.0.1:{}", server.port());
            subjects.push(peer("etcd3 (npm)", tools.node("etcd3", &url, site)));
        }
    }
    subjects
}

fn lease(guard: &Guard) {
    let claimed = guard.job("rust").expect("a name").ttl(TTL).claim().expect("the lease is free");
    claimed.release().expect("it is released");
}

fn lock(guard: &Guard) {
    let claimed = guard.job("rust-lock").expect("a name").ttl(TTL).unrecorded().claim().expect("the lock is free");
    claimed.release().expect("it is released");
}

/// Two swaps for each lease, of a value as long as the record of a lock.
fn raw(store: Arc<dyn Store>) -> impl FnMut() {
    let (key, value) = (Key::probe("bench", "leases"), [b'x'; 512]);
    let mut version: Option<Version> = None;
    move || {
        for _ in 0..2 * LEASES {
            version = Some(swap(store.as_ref(), &key, version.as_ref(), &value));
        }
    }
}

impl Tools {
    fn peers(&self) -> PathBuf {
        self.root.join("target/tools/lease-peers")
    }

    fn python(&self, library: &str, url: &str, site: &Site) -> Command {
        let mut command = Command::new(self.peers().join("python/bin/python"));
        command.env("PYTHONPATH", self.root.join("sdk/python/src")).env("PYTHONDONTWRITEBYTECODE", "1");
        self.program(command, "leases.py", library, url, site)
    }

    fn node(&self, library: &str, url: &str, site: &Site) -> Command {
        let mut command = Command::new("node");
        command.env("LEASE_PEERS", self.peers());
        self.program(command, "leases.mjs", library, url, site)
    }

    fn program(&self, mut command: Command, script: &str, library: &str, url: &str, site: &Site) -> Command {
        command.env("FENCEPOST_BIN", &self.fencepost).env("FENCEPOST_STATE_DIR", site.state.path());
        command.env("FENCEPOST_CONFIG", "").arg(self.root.join("crates/fencepost-bench/peers").join(script));
        command.args([library, url]);
        command
    }
}

/// A program that takes leases as it is told.
struct Peer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn peer(name: &'static str, mut command: Command) -> Subject<'static> {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the peer starts");
    let input = process.stdin.take().expect("its input");
    let output = BufReader::new(process.stdout.take().expect("its output"));
    let mut peer = Peer { process, input, output };
    Subject::new(name, move || peer.take(name))
}

impl Peer {
    fn take(&mut self, name: &str) {
        writeln!(self.input, "{LEASES}").expect("the peer listens");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the peer answers");
        assert_eq!(line, "done\n", "{name} ended");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// ShedLock is a library for Java. This is its algorithm in PostgreSQL, with prepared statements.
struct ShedLock {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl ShedLock {
    fn new(mut client: Client) -> Self {
        client
            .batch_execute(
                "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, \
                 locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL); \
                 INSERT INTO shedlock VALUES ('job', now(), now(), 'bench')",
            )
            .expect("a table");
        let mut prepare = |text: &str| client.prepare(text).expect("a statement");
        let lock = prepare(
            "UPDATE shedlock SET lock_until = now() + interval '1 minute', locked_at = now(), locked_by = 'bench' \
             WHERE name = $1 AND lock_until <= now()",
        );
        let unlock = prepare("UPDATE shedlock SET lock_until = now() WHERE name = $1");
        Self { client, lock, unlock }
    }

    fn take(&mut self) {
        for statement in [&self.lock, &self.unlock] {
            assert_eq!(self.client.execute(statement, &[&"job"]).expect("an update"), 1, "the lock is free");
        }
    }
}
