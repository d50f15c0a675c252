//! Links the C library into what is built for use, and places the program at a fixed address: finding, mapping and
//! binding the library and moving eight thousand pointers took a fifth of a short run.
//!
//! docs/INSTALL.md says what else changes with it. `FENCEPOST_LINK` set to `static` or `dynamic` decides otherwise. Where
//! the C compiler does not have the library as archives, it is loaded when the program starts, as everywhere.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each library that Rust asks the linker for, and the archive that stands in for it.
const ARCHIVES: [(&str, &str); 7] = [
    ("c", "libc.a"),
    ("m", "libm.a"),
    ("dl", "libdl.a"),
    ("rt", "librt.a"),
    ("util", "libutil.a"),
    ("pthread", "libpthread.a"),
    ("gcc_s", "libgcc_eh.a"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rerun-if-env-changed=FENCEPOST_LINK");
    println!("cargo::rustc-check-cfg=cfg(linked_statically)");
    if !is_wanted() {
        return;
    }
    let found = ARCHIVES.iter().map(|(name, file)| Some((name, path_of(file)?)));
    match found.collect::<Option<Vec<_>>>().filter(|_| is_possible()) {
        Some(archives) => link_statically(&archives),
        None if is("FENCEPOST_LINK", "static") => println!(
            "cargo::warning=FENCEPOST_LINK=static has no effect: that is for x86_64 Linux with the archives of glibc, which \
             Debian has in libc6-dev and Fedora in glibc-static"
        ),
        None => {}
    }
}

/// What is built for use is linked statically; what is built for tests takes what a test preloads, such as another time.
fn is_wanted() -> bool {
    match env::var("FENCEPOST_LINK").as_deref() {
        Err(_) | Ok("") => is("PROFILE", "release"),
        Ok("static") => true,
        Ok("dynamic") => false,
        Ok(other) => panic!("FENCEPOST_LINK is {other:?}, and must be static or dynamic"),
    }
}

/// Whether this was ever tried.
fn is_possible() -> bool {
    let is_for_here = env::var("HOST") == env::var("TARGET");
    is_for_here
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
}

fn is(name: &str, value: &str) -> bool {
    env::var(name).is_ok_and(|is| is == value)
}

/// Where the C compiler has the file. It repeats the bare name of one that it does not have.
fn path_of(file: &str) -> Option<PathBuf> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let asked = Command::new(compiler).arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    path.is_absolute().then_some(path).filter(|path| path.exists())
}

/// The linker is asked for libraries in any form, and takes each from the first directory that has it: one which has
/// nothing but archives comes first.
///
/// All of this is for the program alone. Its tests are linked as ever, and must not find the archives.
fn link_statically(archives: &[(&&str, PathBuf)]) {
    let directory = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("archives");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).expect("a directory in OUT_DIR");
    for (name, path) in archives {
        symlink(path, directory.join(format!("lib{name}.a"))).expect("a link in OUT_DIR");
    }
    println!("cargo::rustc-link-arg-bins=-L{}", directory.display());
    println!("cargo::rustc-link-arg-bins=-no-pie");
    println!("cargo::rustc-link-arg-bins=-static");
    // They need each other, and not every linker looks at an archive twice without being told.
    println!("cargo::rustc-link-arg-bins=-Wl,--start-group,-lgcc_s,-lgcc,-lc,--end-group");
    println!("cargo::rustc-cfg=linked_statically");
}
