//! Measures what a guarded run costs, interleaved in one run with what people use instead.
//!
//! Medians and ratios: machines are noisy, and a busy neighbour multiplies every flush by ten. So each round measures
//! everything once, in a new order.

mod file;
mod leases;
mod ledger;
mod measure;
mod memory;
mod serve;
mod share;
mod stores;
mod up;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use measure::{Subject, interleave, millis};
use rusqlite::Connection;

/// The most milliseconds of a guarded `true` beyond `flock -n` and the two durable commits it makes. The released build is
/// static; the plain one loads the C library.
const ALLOWANCE_MS_MUSL: u64 = 2;
const ALLOWANCE_MS_PLAIN: u64 = 3;

/// What a waiting wrapper and its keeper may hold in memory together.
const PSS_KIB_MAX: u64 = 6 * 1024;

const PARTS: [&str; 6] = ["true", "memory", "file", "ledger", "up", "serve"];
/// Measured only if they are named: they start the servers of the tests.
const SERVERS: [&str; 2] = ["stores", "leases"];
const USAGE: &str = "usage: fencepost-bench FENCEPOST [ROUNDS [true|memory|file|ledger|up|serve|stores|leases]…]";

fn main() {
    let fencepost = PathBuf::from(std::env::args_os().nth(1).expect(USAGE));
    let rounds = std::env::args().nth(2).map_or(200, |rounds| rounds.parse().expect("ROUNDS is a number"));
    let asked: Vec<String> = std::env::args().skip(3).collect();
    let is_part = |part: &String| PARTS.contains(&part.as_str()) || SERVERS.contains(&part.as_str());
    assert!(asked.iter().all(is_part), "{USAGE}");
    let directory = tempfile::tempdir().expect("a directory to work in");
    let fencepost = installed(&fencepost, directory.path());
    for part in SERVERS.into_iter().filter(|part| asked.iter().any(|asked| asked == part)) {
        match part {
            "stores" => stores::report(),
            _ => leases::report(&fencepost),
        }
    }
    for part in PARTS.into_iter().filter(|part| asked.is_empty() || asked.iter().any(|asked| asked == part)) {
        match part {
            "true" => wrapped_true(&fencepost, directory.path(), rounds),
            "memory" => memory::report(&fencepost, directory.path()),
            "file" => file::report(directory.path(), rounds),
            "ledger" => ledger::report(&fencepost, directory.path(), rounds.min(50)),
            "serve" => {
                serve::report(&fencepost, directory.path());
                share::report(&fencepost, directory.path());
            }
            _ => up::report(&fencepost, directory.path()),
        }
    }
}

/// A copy of the program, as people install it. What a linker has just written lies in the system's cache in single
/// pages, and costs a fifth more page faults than it will ever again.
fn installed(fencepost: &Path, directory: &Path) -> PathBuf {
    let path = directory.join("fencepost");
    std::fs::copy(fencepost, &path).expect("a copy of the program");
    path
}

fn wrapped_true(fencepost: &Path, directory: &Path, rounds: usize) {
    let state = directory.join("state");
    let lock = directory.join("lock");
    let commits = two_commits(directory.join("commits.db"));
    let run = |command: &mut Command| {
        let status = command.stdin(Stdio::null()).status().expect("the command starts");
        assert!(status.success(), "{command:?} ended with {status}");
    };
    let medians = interleave(
        rounds,
        vec![
            Subject::new("true", || run(&mut Command::new("true"))),
            Subject::new("flock -n", || run(Command::new("flock").arg("-n").arg(&lock).arg("true"))),
            Subject::new("two SQLite commits", commits),
            Subject::new("fencepost run -q", || {
                run(Command::new(fencepost).env("FENCEPOST_STATE_DIR", &state).args(["run", "-q", "j", "--", "true"]));
            }),
        ],
    );
    let [bare, flock, commits, guarded] = medians[..] else { unreachable!("four subjects have four medians") };
    println!("A guarded `true`, median of {rounds} rounds");
    for (name, median) in
        [("true", bare), ("flock -n", flock), ("two durable SQLite commits", commits), ("fencepost run -q", guarded)]
    {
        println!("  {name:28} {:8.2} ms", millis(median));
    }
    let allowance = if is_musl(fencepost) { ALLOWANCE_MS_MUSL } else { ALLOWANCE_MS_PLAIN };
    let budget = flock + commits + Duration::from_millis(allowance);
    println!("  {:28} {:8.2} ms  (flock -n + two commits + {allowance} ms)", "budget", millis(budget));
    println!("  {}", if guarded <= budget { "within the budget" } else { "OVER THE BUDGET" });
}

/// Whether the program was built for musl, by its own word.
fn is_musl(fencepost: &Path) -> bool {
    let version = Command::new(fencepost).args(["--version", "--verbose"]).output().expect("the program starts");
    String::from_utf8_lossy(&version.stdout).lines().any(|line| line.starts_with("target: ") && line.contains("musl"))
}

/// Two commits as a run makes them: a value of the size of a record, flushed. It is another one each time, for SQLite
/// writes and flushes nothing where a row stays as it was.
fn two_commits(path: PathBuf) -> impl FnMut() {
    let database = Connection::open(path).expect("a database");
    database
        .execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID",
        )
        .expect("a table");
    let mut value = vec![0; 4096];
    move || {
        for _ in 0..2 {
            value[0] = u8::wrapping_add(value[0], 1);
            database.execute("INSERT OR REPLACE INTO t VALUES ('k', ?1)", [&value]).expect("a commit");
        }
    }
}
