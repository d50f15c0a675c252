//! The targets that need a server or a repository: a current lease writes, and a stale one is refused.

use std::process::Command;
use std::time::Duration;

use fencepost_core::lease::Intent;
use fencepost_core::name::Job;
use fencepost_core::token::RunId;
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_guard::transact::transact;
use fencepost_sdk::{Error, Guard, Lease, Level, Published};
use fencepost_testkit::fenced::server_in;
use fencepost_testkit::servers::{BUCKET, S3_PASSWORD, S3Server, git};

/// A lease that has passed on without its program knowing, and the one that came after it.
struct Scene {
    stale: Lease,
    newer: Lease,
    /// Removed after the leases have ended.
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let guard = Guard::open_in(&state).unwrap();
        // Its next renewal is twenty minutes away.
        let claim = || guard.job("publisher").unwrap().ttl(Duration::from_secs(3600)).claim().unwrap();
        let stale = claim();
        let store = fencepost_testkit::store::open(&format!("sqlite:{}", state.join("store.db").display())).unwrap();
        let (local, job) = (Local::new(&state, Host::this()), Job::parse("publisher").unwrap());
        transact(store.as_ref(), &local, &job, Intent::ForceRelease, RunId(uuid::Uuid::now_v7())).unwrap();
        let newer = claim();
        Self { stale, newer, directory }
    }

    /// Both write, the newer one first.
    fn write(&self, level: Level, write: impl Fn(&Lease, &str) -> Result<Published, Error>) {
        assert_eq!(write(&self.newer, "new").unwrap().level, level);
        let refused = write(&self.stale, "old");
        assert!(matches!(refused, Err(Error::Stale(_))), "{refused:?}");
        assert!(!self.stale.lost(), "the fence refused it, and not the library");
    }
}

#[test]
fn an_endpoint_is_written_behind_its_fence() {
    let scene = Scene::new();
    let (server, address) = server_in(scene.directory.path());
    let url = format!("http://{address}/report");
    scene.write(Level::Atomic, |lease, text| lease.publish_http(&url, None, "text/plain", text.as_bytes()));
    assert_eq!(server.content(&url).unwrap(), b"new");
}

#[test]
fn a_repository_is_written_behind_its_fence() {
    let scene = Scene::new();
    let (remote, clone) = (scene.directory.path().join("remote.git"), scene.directory.path().join("clone"));
    git(scene.directory.path(), &["init", "-q", "--bare", "-b", "main", "remote.git"]);
    git(scene.directory.path(), &["clone", "-q", "remote.git", "clone"]);
    let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    let commit = |text: &str| git(&clone, &[&who[..], &["commit", "-q", "--allow-empty", "-m", text]].concat());
    git(&clone, &["checkout", "-q", "-B", "main"]);
    scene.write(Level::Atomic, |lease, text| {
        commit(text);
        lease.publish_git(&clone, "origin", &["main"])
    });
    assert_eq!(git(&remote, &["log", "-1", "--format=%s", "main"]), "new");
}

/// The credentials come from the environment of the process, so the test calls itself in another one.
#[test]
fn an_object_is_written_behind_its_fence() {
    let (id, secret) = S3_PASSWORD.split_once(':').unwrap();
    if std::env::var_os("AWS_ACCESS_KEY_ID").is_none_or(|known| known != id) {
        let mut myself = Command::new(std::env::current_exe().unwrap());
        myself.args(["--exact", "an_object_is_written_behind_its_fence", "--nocapture"]);
        let output = myself.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret).output().unwrap();
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        return;
    }
    let (scene, server) = (Scene::new(), S3Server::good());
    let url = format!("s3://{BUCKET}/site/report.txt?endpoint=http://127.0.0.1:{}", server.port);
    scene.write(Level::Gated, |lease, text| lease.publish_s3(&url, "text/plain", text.as_bytes()));
}
