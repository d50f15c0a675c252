//! Links a small library into the program: finding, mapping and binding it took a tenth of the program's start.
//!
//! All that is used of it is the backtrace of a panic. Where the C compiler does not have it as an archive, it is loaded
//! when the program starts, as everywhere.

use std::env;
use std::path::Path;
use std::process::Command;

const LIBRARY: &str = "gcc_eh";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|is| is == value);
    let is_for_here = env::var("HOST") == env::var("TARGET");
    if !(is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && is_for_here) {
        return;
    }
    if let Some(directory) = directory_of(LIBRARY) {
        println!("cargo::rustc-link-search=native={directory}");
        println!("cargo::rustc-link-lib=static:-bundle={LIBRARY}");
    }
}

/// Where the C compiler has the library as an archive. It repeats the bare name of one that it does not have.
fn directory_of(library: &str) -> Option<String> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let asked = Command::new(compiler).arg(format!("-print-file-name=lib{library}.a")).output().ok()?;
    let answer = String::from_utf8(asked.stdout).ok()?;
    let path = Path::new(answer.trim());
    let directory = path.parent().filter(|_| path.is_absolute() && path.exists())?;
    directory.to_str().map(str::to_string)
}
