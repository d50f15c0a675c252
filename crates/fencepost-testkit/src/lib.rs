//! Shared by the test suites of all crates: throw-away servers, networks that lose answers, shells on a terminal, races
//! whose result can be checked, and the looks at processes that all of them need.

#![allow(missing_debug_implementations, reason = "a failed test prints what it looked at, not its harness")]

pub mod fenced;
#[path = "../../fencepost-guard/examples/fenced_server.rs"]
pub mod fenced_server;
pub mod http;
pub mod network;
pub mod process;
pub mod race;
pub mod runner;
pub mod servers;
pub mod signals;
pub mod store;
pub mod terminal;
pub mod web;

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen, on the slowest machine. No test measures time by it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until the condition is true. Panics after [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "still waiting until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A stopwatch that leaves out the processor time which a hypervisor gave to other machines: no process can act then.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Instant,
    stolen: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { started: Instant::now(), stolen: stolen() }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed().saturating_sub(stolen().saturating_sub(self.stolen))
    }
}

/// The time stolen from all processors since the boot: the eighth number of `/proc/stat`, in hundredths of a second.
fn stolen() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let steal = stat.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
    Duration::from_millis(steal.unwrap_or(0_u64) * 10)
}

/// The path of a program that a test calls.
pub fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is missing: apt-get install --no-install-recommends {package}"))
}

/// The library that tells a process another time; `MT` is the variant for programs with threads.
pub fn faketime(variant: &str) -> PathBuf {
    let places = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = places.map(|place| place.path().join(format!("faketime/libfaketime{variant}.so.1")));
    let found = files.find(|path| path.exists());
    found.unwrap_or_else(|| panic!("libfaketime is missing: apt-get install --no-install-recommends faketime"))
}
