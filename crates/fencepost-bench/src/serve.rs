//! What a server with 1,000 jobs costs: memory, the first byte and the weight of its pages, and how often it reads the store.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fencepost_core::ledger::Ledger;
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::{FORMAT, Record, encode};
use fencepost_core::slot::Timing;
use fencepost_core::time::Wall;
use fencepost_core::token::{Nonce, RunId, StoreId, Token};
use fencepost_store::{Access, Store, StoreHandle, Swapped};

use crate::ledger::outcome;
use crate::measure::{median, millis};
use crate::memory::pss_kib;

const JOBS: u64 = 1_000;
const OUTCOMES: u64 = 40;
const PERIOD_MS: i64 = 3_600_000;

/// Viewers of events.
const VIEWERS: usize = 500;

/// How long the polls of the store are counted.
const COUNTED: Duration = Duration::from_secs(60);

/// What the server may hold in memory.
const PSS_KIB_MAX: u64 = 80 * 1024;

const ROUNDS: usize = 15;

pub fn report(fencepost: &Path, directory: &Path) {
    let state = directory.join("serve");
    let filled = FilledStore::at(fencepost, &state);
    let server = BenchServer::start(fencepost, &state, &[]);
    println!("\nA server with {JOBS} jobs of {OUTCOMES} outcomes each");
    for path in ["/", "/timeline", "/jobs/job-0500", "/graph", "/api/v1/status", "/metrics"] {
        server.weigh(path);
    }
    for (viewers, name) in [(0, "no viewer"), (VIEWERS, "500 viewers")] {
        let streams: Vec<TcpStream> = (0..viewers).map(|_| server.view()).collect();
        let polls = filled.while_changing(|| server.polls_in(COUNTED));
        let rate = polls as f64 * 60.0 / COUNTED.as_secs_f64();
        println!("  {name:28} {rate:8.1} polls of the store a minute, while it changes each second");
        drop(streams);
    }
    match pss_kib(server.child.id()) {
        None => println!("  memory: not measured (no /proc here)"),
        Some(kib) => {
            println!(
                "  {:28} {:8.2} MB  (at most {} MB)",
                "memory (PSS), after all this",
                kib as f64 / 1024.0,
                PSS_KIB_MAX / 1024
            );
            println!("  {}", if kib <= PSS_KIB_MAX { "within the budget" } else { "OVER THE BUDGET" });
        }
    }
}

/// A store full of jobs.
struct FilledStore {
    store: std::sync::Arc<dyn Store>,
    id: StoreId,
}

impl FilledStore {
    fn at(fencepost: &Path, state: &Path) -> Self {
        let mut command = Command::new(fencepost);
        command.env("FENCEPOST_STATE_DIR", state).env("FENCEPOST_CONFIG", "").args(["record", "first", "ok"]);
        assert!(command.stdin(Stdio::null()).status().expect("fencepost starts").success(), "{command:?}");
        let handle = StoreHandle::new(&format!("sqlite:{}", state.join("store.db").display()), Access::default());
        let id = handle.identity().expect("the store answers").expect("an identity").store;
        let filled = Self { store: handle.open_unchecked().expect("the store"), id };
        (0..JOBS).for_each(|number| filled.write(number, 0));
        filled
    }

    /// Writes the record of a job, whose newest outcome is this many periods old.
    fn write(&self, number: u64, round: u64) {
        let job = Job::shared(Name::new(&format!("job-{number:04}")).expect("a name"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date after 1970").as_millis() as i64;
        let hour = now / PERIOD_MS * PERIOD_MS;
        let mut ledger = Ledger::default();
        for age in (0..OUTCOMES).rev() {
            let slot = Wall(hour - age as i64 * PERIOD_MS);
            ledger.push(outcome(number * 1_000_000 + round * OUTCOMES + OUTCOMES - age, slot));
        }
        let key = Key::job(&job);
        let last = ledger.last().map_or(1, |last| last.token.number());
        let record = Record {
            v: FORMAT,
            store: self.id,
            job,
            token: Token::new(last).expect("a token"),
            grants: OUTCOMES,
            nonce: Nonce { by: RunId(uuid::Uuid::from_u128(u128::from(number))), write: 0 },
            ledger,
            resources: Default::default(),
            upstreams: Default::default(),
            timing: Some(timing(hour)),
            paused: None,
            params: None,
            fence: None,
            forgotten: None,
            definition: None,
            moved_to: None,
            unknown: Default::default(),
            lease: None,
        };
        let known = self.store.read(&key).expect("a read").value.map(|entry| entry.version);
        let swapped = self.store.swap(&key, known.as_ref(), Some(&encode(&record))).expect("a swap").value;
        assert!(matches!(swapped, Swapped::Won(_)), "{key}");
    }

    /// Does something while another job changes each second.
    fn while_changing<T>(&self, act: impl FnOnce() -> T) -> T {
        let is_going = AtomicBool::new(true);
        scope(|scope| {
            scope.spawn(|| {
                for round in 1.. {
                    if !is_going.load(Ordering::Relaxed) {
                        return;
                    }
                    self.write(round % JOBS, round);
                    sleep(Duration::from_secs(1));
                }
            });
            let done = act();
            is_going.store(false, Ordering::Relaxed);
            done
        })
    }
}

/// Every hour, evaluated up to now.
fn timing(hour: i64) -> Timing {
    Timing {
        schedule: "0 * * * *".to_string(),
        zone: "Europe/London".to_string(),
        fingerprint: String::new(),
        since: Wall(hour - OUTCOMES as i64 * PERIOD_MS),
        evaluated: Some(Wall(hour)),
        settles: None,
        unknown: Default::default(),
    }
}

/// A server that ends with the measurement.
pub struct BenchServer {
    pub child: Child,
    pub port: u16,
}

impl BenchServer {
    pub fn start(fencepost: &Path, state: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(fencepost);
        command.env("FENCEPOST_STATE_DIR", state).env("FENCEPOST_CONFIG", "");
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(options).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("fencepost starts");
        let mut greeting = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        while !greeting.contains("listening on") {
            assert_ne!(out.read_line(&mut greeting).expect("its greeting"), 0, "the server ended");
        }
        let port = greeting.trim().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let server = Self { child, port };
        // Until the store has been read once, pages say so.
        while !server.answer("/api/v1/status", "").1.starts_with(b"HTTP/1.1 200") {
            sleep(Duration::from_millis(100));
        }
        server
    }

    /// Sends a request, and returns the connection.
    fn ask(&self, path: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n{headers}\r\n", self.port);
        stream.write_all(request.as_bytes()).expect("a request");
        stream
    }

    /// The time to the first byte, and the whole answer.
    fn answer(&self, path: &str, headers: &str) -> (Duration, Vec<u8>) {
        let begun = Instant::now();
        let mut stream = self.ask(path, headers);
        let mut answer = vec![0];
        stream.read_exact(&mut answer).expect("an answer");
        let took = begun.elapsed();
        stream.read_to_end(&mut answer).expect("an answer");
        (took, answer)
    }

    /// The time to the first byte, and the bytes of the body.
    fn get(&self, path: &str, headers: &str) -> (Duration, Vec<u8>) {
        let (took, mut answer) = self.answer(path, headers);
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&answer[..head]));
        (took, answer.split_off(head))
    }

    fn weigh(&self, path: &str) {
        let gzip = "Accept-Encoding: gzip\r\n";
        let plain = self.get(path, "").1.len();
        let short = self.get(path, gzip).1.len();
        let first = median((0..ROUNDS).map(|_| self.get(path, gzip).0).collect());
        let kilobytes = |bytes: usize| bytes as f64 / 1000.0;
        println!(
            "  {path:28} {:8.2} ms to the first byte, {:7.1} KB compressed, {:8.1} KB plain",
            millis(first),
            kilobytes(short),
            kilobytes(plain)
        );
    }

    /// A viewer of events, which has been greeted.
    fn view(&self) -> TcpStream {
        let mut stream = self.ask("/api/v1/events", "");
        stream.read_exact(&mut [0; 64]).expect("an event");
        stream
    }

    fn polls_in(&self, length: Duration) -> u64 {
        let before = self.polls();
        sleep(length);
        self.polls() - before
    }

    fn polls(&self) -> u64 {
        let metrics = String::from_utf8_lossy(&self.get("/metrics", "").1).into_owned();
        let line = metrics.lines().find_map(|line| line.strip_prefix("fencepost_store_polls_total{} "));
        line.and_then(|count| count.parse().ok()).expect("a number of polls")
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
