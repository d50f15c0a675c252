//! 16 processes on two hosts whose clocks are ten minutes apart, at one job, over each store. What they wrote down is
//! judged afterwards by P1 to P3. `FENCEPOST_SOAK_SECONDS` makes it longer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_testkit::servers::{Etcd, Postgres, Redis, S3_PASSWORD, S3Server, TOKEN, Worker};

use crate::common::{Site, lines};
use crate::stores::{POSTGRES, REDIS, on_host, say};

/// Processes at any time, half of them on each host.
const PROCESSES: usize = 16;

/// A storm goes on until there is something to judge, however slow the machine is today.
const RUNS_MIN: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// Each of these fills the machine by itself.
pub static MACHINE: Mutex<()> = Mutex::new(());

fn length() -> Duration {
    let asked = std::env::var("FENCEPOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(4))
}

/// Gives a command a wall clock of its own, if that can be had. Clocks that measure lengths are left alone.
pub fn skew(command: &mut Command, seconds: &str) -> bool {
    let libraries = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let paths = libraries.map(|machine| format!("/usr/lib/{machine}/faketime/libfaketime.so.1"));
    let Some(library) = paths.iter().find(|path| Path::new(path).exists()) else { return false };
    command.env("LD_PRELOAD", library).env("FAKETIME", seconds);
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    true
}

/// What a run of the job does: says that it begins, writes under its token, says that it ends.
pub const SCRIPT: &str = r#"echo "$FENCEPOST_TOKEN $FENCEPOST_RUN begin" >>"$LOG"
echo "$FENCEPOST_TOKEN" | "$BINARY" publish file "$OUT" || exit 9
echo "$FENCEPOST_TOKEN $FENCEPOST_RUN end" >>"$LOG""#;

fn storm(url: &str, password: &str, ttl: &str) {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let site = Site::new();
    let (log, out) = (site.path("log"), site.path("out"));
    let skewed = skew(&mut Command::new("true"), "+600");
    if !skewed {
        println!("the clocks are not skewed: libfaketime is not installed");
    }
    let command = |host: &str, arguments: &[&str]| {
        let mut command = on_host(&site, host, &[&["--store", url], arguments].concat());
        command.env("LOG", &log).env("OUT", &out).env("FENCEPOST_STORE_PASSWORD", password);
        if host == "beta" {
            skew(&mut command, "+600");
        }
        command
    };
    let (going, ran, skipped) = (AtomicBool::new(true), AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        let running: Vec<_> = (0..PROCESSES)
            .map(|number| {
                let (command, ran, skipped) = (&command, &ran, &skipped);
                scope.spawn(move || {
                    let host = if number % 2 == 0 { "alpha" } else { "beta" };
                    let enough = || begun.elapsed() >= length() && ran.load(Ordering::Relaxed) >= RUNS_MIN;
                    while !enough() && begun.elapsed() < length() + PATIENCE {
                        // Every fourth does not wait for its turn.
                        let wait = if number % 4 == 3 { &[][..] } else { &["--wait", "2s"] };
                        let arguments = [&["run", "j", "--ttl", ttl, "-E", "99"], wait, &["-c", SCRIPT]].concat();
                        let said = say(command(host, &arguments));
                        match said.code {
                            0 => ran.fetch_add(1, Ordering::Relaxed),
                            99 => skipped.fetch_add(1, Ordering::Relaxed),
                            _ => panic!("{url}: {said:?}"),
                        };
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| watch(&out, &going));
        let ended: Vec<_> = running.into_iter().map(|thread| thread.join().is_ok()).collect();
        going.store(false, Ordering::Relaxed);
        assert!(watcher.join().is_ok() && ended.iter().all(|ok| *ok));
    });
    let (ran, skipped) = (ran.into_inner(), skipped.into_inner());
    let runs = say(command("alpha", &["runs", "--json", "-n", "100000"]));
    judge(url, &fs::read_to_string(&log).unwrap(), &lines(&runs.stdout), ran);
    println!("{url}: {ran} runs, {skipped} skips, clocks skewed: {skewed}");
    assert!(ran >= RUNS_MIN, "{url}: only {ran} runs");
}

/// P2: what is published never goes back.
pub fn watch(out: &Path, going: &AtomicBool) {
    let mut last = 0;
    while going.load(Ordering::Relaxed) {
        if let Ok(text) = fs::read_to_string(out) {
            let token: u64 = text.trim().parse().unwrap_or_else(|_| panic!("half a file: {text:?}"));
            assert!(token >= last, "{token} was published after {last}");
            last = token;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// P1 and P5: in the order in which they began, tokens increase, and no run begins before the previous one has ended.
/// Returns the token of each run.
pub fn in_order(url: &str, log: &str) -> BTreeMap<String, u64> {
    let mut last = (0, "end");
    let mut begun = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[token, run, what] = words.as_slice() else { panic!("{url}: {line:?}") };
        let token: u64 = token.parse().unwrap();
        match (last, what) {
            ((before, "end"), "begin") => assert!(token > before, "{url}: {token} began after {before}"),
            ((before, "begin"), "end") => assert_eq!(token, before, "{url}: {log}"),
            _ => panic!("{url}: two at a time at {line:?}"),
        }
        if what == "begin" {
            assert_eq!(begun.insert(run.to_string(), token), None, "{url}: {run} began twice");
        }
        last = (token, if what == "begin" { "begin" } else { "end" });
    }
    begun
}

fn judge(url: &str, log: &str, runs: &[serde_json::Value], ran: u64) {
    let begun = in_order(url, log);
    // P3: every run has one outcome, and it is the one that its wrapper ended with.
    let mut recorded = BTreeMap::new();
    for run in runs {
        assert_eq!(run["status"], "ok", "{url}: {run}");
        let (id, token) = (run["run"].as_str().unwrap().to_string(), run["token"].as_u64().unwrap());
        assert_eq!(recorded.insert(id, token), None, "{url}: {run} is there twice");
    }
    assert_eq!(begun.len() as u64, ran, "{url}");
    assert_eq!(begun, recorded, "{url}");
}

#[test]
fn sqlite() {
    let directory = tempfile::tempdir().unwrap();
    storm(&format!("sqlite:{}", directory.path().join("store.db").display()), "", "30s");
}

#[test]
fn a_directory() {
    let directory = tempfile::tempdir().unwrap();
    storm(&format!("dir:{}", directory.path().join("shared").display()), "", "30s");
}

#[test]
fn a_git_repository() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.git");
    assert!(Command::new("git").args(["init", "-q", "--bare"]).arg(&path).status().unwrap().success());
    storm(&format!("git+file://{}", path.display()), "", "60s");
}

#[test]
fn postgresql() {
    let server = Postgres::start(POSTGRES);
    storm(&server.url(&server.database()), "", "30s");
}

#[test]
fn redis() {
    let server = Redis::start(REDIS);
    storm(&server.url(), "", "30s");
}

#[test]
fn etcd() {
    let cluster = Etcd::with(3, &[]);
    storm(&cluster.url(), "", "30s");
}

#[test]
fn a_bucket() {
    let server = S3Server::good();
    storm(&server.url(), S3_PASSWORD, "60s");
}

#[test]
fn the_worker() {
    let worker = Worker::start();
    storm(&worker.url(), TOKEN, "30s");
}
