//! Signals as a test expects them, however the tests were started.

use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::AtomicBool;

use nix::libc::SIGPIPE;

/// Lets what the tests start have its signals, although this process was started with some of them ignored, as by
/// `nohup ./test &`.
///
/// A program inherits ignored signals, but not handlers: a handler that does nothing keeps the signal from this process
/// and gives the default to what it starts. Rust itself ignores SIGPIPE, and restores it for its children.
pub fn reset() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        for signal in ignored().into_iter().filter(|signal| *signal != SIGPIPE) {
            // The kernel refuses some numbers, which then are not ignored by a shell either.
            let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
        }
    });
}

/// The signals that this process ignores.
fn ignored() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    (1..=31).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}
