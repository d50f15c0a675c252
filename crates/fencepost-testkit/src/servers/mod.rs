//! Throw-away servers on free loopback ports, each in a directory of its own, stopped by its process id when the last
//! test that uses it is done with it, also by a panic.

mod etcd;
mod git;
mod postgres;
mod redis;
mod s3;
mod worker;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, chown, geteuid};
use tempfile::TempDir;

pub use etcd::Etcd;
pub use git::{Fault, GitServer, git, try_git};
pub use postgres::Postgres;
pub use redis::Redis;
pub use s3::{BUCKET, S3_PASSWORD, S3Server};
pub use worker::{TOKEN, Worker};

use crate::PATIENCE;

/// Whether servers keep their data on the disk.
static IS_ON_DISK: AtomicBool = AtomicBool::new(false);

/// From now on servers keep their data on the disk, for measurements of what they flush, or in memory if there is enough.
pub fn keep_on_disk(is_so: bool) {
    IS_ON_DISK.store(is_so, Ordering::Relaxed);
}

/// A directory that an unprivileged server may write to.
pub fn own_directory() -> TempDir {
    // What a server flushes need not wait for a disk, if there is the memory.
    let memory = Path::new("/dev/shm");
    let free = std::fs::File::open(memory).and_then(|memory| fencepost_sys::free_bytes(&memory)).unwrap_or(0);
    let is_in_memory = free > 2 << 30 && !IS_ON_DISK.load(Ordering::Relaxed);
    let directory = if is_in_memory { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    if geteuid().is_root() {
        let nobody = User::from_name("nobody").unwrap().expect("the unprivileged user exists");
        chown(directory.path(), Some(nobody.uid), Some(nobody.gid)).unwrap();
    }
    directory
}

/// Makes a key and a certificate for `localhost` that vouches for itself, and returns their paths.
pub fn certificate(directory: &Path) -> (PathBuf, PathBuf) {
    let (key, certificate) = (directory.join("server.key"), directory.join("server.crt"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status()
        .expect("openssl is missing: apt-get install openssl");
    assert!(made.success());
    give_away(&[&key, &certificate]);
    (key, certificate)
}

/// Makes an authority, and a key and a certificate for `localhost` that it has signed. Returns the paths of the authority,
/// the certificate and the key, which belong to the user of the test.
pub fn signed_certificate(directory: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let path = |name: &str| directory.join(name);
    let make = |name: &str, subject: &str, options: &[&str]| {
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ]);
        openssl.args(["-subj", subject, "-keyout"]).arg(path(&format!("{name}.key")));
        openssl.arg("-out").arg(path(&format!("{name}.crt"))).args(options).stderr(Stdio::null());
        assert!(openssl.status().expect("openssl is missing: apt-get install openssl").success(), "{openssl:?}");
    };
    let authority = ["ca.crt", "ca.key"].map(|name| path(name).display().to_string());
    make("ca", "/CN=an authority", &["-addext", "basicConstraints=critical,CA:TRUE"]);
    let signed = ["-CA", &authority[0], "-CAkey", &authority[1], "-addext", "subjectAltName=DNS:localhost"];
    make("leaf", "/CN=localhost", &[&signed[..], &["-addext", "basicConstraints=CA:FALSE"]].concat());
    (path("ca.crt"), path("leaf.crt"), path("leaf.key"))
}

/// Gives files to the server's user, with mode 0600.
fn give_away(files: &[&Path]) {
    for file in files {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        if geteuid().is_root() {
            let nobody = User::from_name("nobody").unwrap().expect("the unprivileged user exists");
            chown(*file, Some(nobody.uid), Some(nobody.gid)).unwrap();
        }
    }
}

/// PostgreSQL refuses to run as root, and Redis has no reason to.
pub fn unprivileged(program: PathBuf) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(program);
    command
}

pub fn wait_until(process: &mut Child, ready: impl Fn() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert_eq!(process.try_wait().unwrap(), None, "the server ended at once");
        assert!(started.elapsed() < PATIENCE, "the server does not answer");
        thread::sleep(Duration::from_millis(20));
    }
}

fn end(process: &mut Child, signal: Signal) {
    let _ = kill(Pid::from_raw(process.id().cast_signed()), signal);
    let started = Instant::now();
    while matches!(process.try_wait(), Ok(None)) && started.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = process.kill();
    let _ = process.wait();
}
