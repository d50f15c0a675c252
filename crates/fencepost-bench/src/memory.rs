//! What a waiting run holds in memory.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::PSS_KIB_MAX;

/// Measures wrapper and keeper while their command sleeps. Proportional, because they share most of their pages.
pub fn report(fencepost: &Path, directory: &Path) {
    let mut wrapper = Command::new(fencepost)
        .env("FENCEPOST_STATE_DIR", directory.join("state"))
        .args(["run", "-q", "waiting", "--", "sleep", "600"])
        .stdin(Stdio::null())
        .spawn()
        .expect("fencepost starts");
    match wait_for_keeper(&wrapper) {
        Some(keeper) => show(pss_kib(wrapper.id()).unwrap_or(0) + pss_kib(keeper).unwrap_or(0)),
        None => println!("\nMemory: not measured (no /proc here)"),
    }
    let _ = Command::new("kill").arg(wrapper.id().to_string()).status();
    let _ = wrapper.wait();
}

fn show(total_kib: u64) {
    println!("\nA waiting wrapper and its keeper together (PSS)");
    println!("  {:28} {:8.2} MB  (at most {} MB)", "fencepost run", total_kib as f64 / 1024.0, PSS_KIB_MAX / 1024);
    println!("  {}", if total_kib <= PSS_KIB_MAX { "within the budget" } else { "OVER THE BUDGET" });
}

/// The keeper, once its command runs.
fn wait_for_keeper(wrapper: &Child) -> Option<u32> {
    for _ in 0..200 {
        let keeper = children(wrapper.id()).first().copied();
        if keeper.is_some_and(|keeper| !children(keeper).is_empty()) {
            // It has given back what it does not need once nothing has happened for half a second.
            sleep(Duration::from_secs(2));
            return keeper;
        }
        sleep(Duration::from_millis(10));
    }
    None
}

fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub fn pss_kib(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}
