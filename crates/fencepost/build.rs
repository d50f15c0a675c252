//! Tells the program its target and, in a release build from a git checkout, its commit. `FENCEPOST_COMMIT` names the
//! commit of sources that were unpacked from an archive. The same commit gives the same program.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FENCEPOST_COMMIT");
    println!("cargo::rustc-env=FENCEPOST_TARGET={}", env::var("TARGET").unwrap_or_default());
    let named = env::var("FENCEPOST_COMMIT").ok().filter(|commit| !commit.is_empty());
    // A build for development would be made again after every commit.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if let Some(commit) = named.or_else(packed).or_else(|| is_release.then(commit).flatten()) {
        println!("cargo::rustc-env=FENCEPOST_COMMIT={commit}");
    }
}

/// The commit that `cargo package` noted in a packed crate.
fn packed() -> Option<String> {
    let note = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let digits = note.split("\"sha1\"").nth(1)?.split('"').nth(1)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| digits.to_string())
}

/// The commit of the checkout that this file belongs to, with a mark if files were changed since.
fn commit() -> Option<String> {
    // Sources from an archive may lie in a repository of other things.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    for path in [git(&["rev-parse", "--git-path", "HEAD"])?, git(&["rev-parse", "--git-path", "logs/HEAD"])?] {
        println!("cargo::rerun-if-changed={path}");
    }
    git(&["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}
