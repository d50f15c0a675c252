//! A bare repository, clones of it, and writers with any token.

use std::fs;
use std::path::PathBuf;

use fencepost_core::fence::Fence;
use fencepost_core::name::{Job, Name};
use fencepost_guard::publish::git::{Outgoing, Tip, Wish, publish};
use fencepost_guard::publish::{PublishError, Receipt};
pub use fencepost_testkit::fenced::request;
use fencepost_testkit::servers::GitServer;
pub use fencepost_testkit::servers::{git, try_git};
use tempfile::TempDir;

/// The fence's ref of the job that all scenes are about.
pub const FENCE: &str = "refs/fencepost/fence/report";

pub struct Scene {
    pub directory: TempDir,
    pub remote: PathBuf,
    pub server: Option<GitServer>,
}

impl Scene {
    /// A remote with one commit on `main`, reached by its path.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let remote = directory.path().join("remote.git");
        git(directory.path(), &["init", "--quiet", "--bare", "remote.git"]);
        git(&remote, &["symbolic-ref", "HEAD", "refs/heads/main"]);
        git(&remote, &["config", "http.receivepack", "true"]);
        git(&remote, &["config", "gc.auto", "0"]);
        let scene = Self { directory, remote, server: None };
        let seed = scene.clone("seed");
        seed.commit("seed");
        git(&seed.path, &["push", "--quiet", "origin", "HEAD:refs/heads/main"]);
        scene
    }

    /// The same, reached over smart HTTP.
    pub fn over_http() -> Self {
        let scene = Self::new();
        let server = GitServer::start(scene.directory.path());
        Self { server: Some(server), ..scene }
    }

    /// One of each sort.
    pub fn both() -> [Self; 2] {
        [Self::new(), Self::over_http()]
    }

    pub fn server(&self) -> &GitServer {
        self.server.as_ref().unwrap()
    }

    pub fn url(&self) -> String {
        match &self.server {
            None => self.remote.display().to_string(),
            Some(server) => server.url("/remote.git"),
        }
    }

    pub fn clone(&self, name: &str) -> Clone {
        let path = self.directory.path().join(name);
        git(self.directory.path(), &["clone", "--quiet", &self.url(), name]);
        for (key, value) in [("user.name", name), ("user.email", "a@b.example"), ("gc.auto", "0")] {
            git(&path, &["config", key, value]);
        }
        git(&path, &["symbolic-ref", "HEAD", "refs/heads/main"]);
        Clone { path }
    }

    /// Where a ref of the remote is.
    pub fn at(&self, name: &str) -> Option<String> {
        let found = try_git(&self.remote, &["rev-parse", "--verify", "--quiet", name]);
        found.status.success().then(|| text(&found.stdout))
    }

    /// Every ref of the remote with its commit.
    pub fn refs(&self) -> String {
        git(&self.remote, &["for-each-ref", "--format=%(refname) %(objectname)"])
    }

    /// The tokens of the fence's ref, oldest first, as they were accepted.
    pub fn fence_tokens(&self) -> Vec<u64> {
        let log = git(&self.remote, &["log", "--reverse", "--format=%H", FENCE]);
        let read = |commit: &str| {
            let raw = try_git(&self.remote, &["cat-file", "commit", commit]).stdout;
            let raw = String::from_utf8(raw).unwrap();
            match Tip::read(raw.split_once("\n\n").unwrap().1).unwrap() {
                Tip::Unwritten => None,
                Tip::Written(fence) => Some(fence.token.number()),
            }
        };
        log.lines().filter_map(read).collect()
    }

    /// The subjects of a branch of the remote, oldest first.
    pub fn subjects(&self, branch: &str) -> Vec<String> {
        git(&self.remote, &["log", "--reverse", "--format=%s", branch]).lines().map(String::from).collect()
    }
}

pub struct Clone {
    pub path: PathBuf,
}

impl Clone {
    /// Makes a commit on `main` with nothing but a subject.
    pub fn commit(&self, subject: &str) -> String {
        git(&self.path, &["commit", "--quiet", "--allow-empty", "-m", subject]);
        git(&self.path, &["rev-parse", "HEAD"])
    }

    pub fn target(&self, branches: &[&str]) -> Outgoing {
        self.try_target("origin", branches).unwrap()
    }

    pub fn try_target(&self, remote: &str, branches: &[&str]) -> Result<Outgoing, PublishError> {
        let branches: Vec<String> = branches.iter().map(ToString::to_string).collect();
        Outgoing::find(&self.path, &Wish { remote, branches: &branches, fence_ref: None, ..Wish::default() }, &job())
    }

    pub fn publish(&self, token: u64) -> Result<Receipt, PublishError> {
        self.publish_to(token, &["main"])
    }

    pub fn publish_to(&self, token: u64, branches: &[&str]) -> Result<Receipt, PublishError> {
        publish(&request(token), &self.target(branches))
    }

    /// Has the push stop after it heard where the remote's refs are, and another command run meanwhile.
    pub fn meanwhile(&self, script: &str) {
        self.hook(&format!("#!/bin/sh\n{script}\n"));
    }

    pub fn hook(&self, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let hook = self.path.join(".git/hooks/pre-push");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, text).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

pub fn job() -> Job {
    Job::shared(Name::new("report").unwrap())
}

/// A fence such as a publish under this token would leave.
pub fn fence(token: u64) -> Fence {
    use fencepost_core::fence::{FenceVerdict, StrictFence, judge};
    match judge::<StrictFence>(None, &request(token).write("sha256:0".to_string(), true)) {
        Ok(FenceVerdict::Accept(fence)) => fence,
        other => panic!("{other:?}"),
    }
}

pub fn failed<T: std::fmt::Debug>(result: Result<T, PublishError>) -> String {
    match result {
        Err(PublishError::Failed(why)) => why,
        other => panic!("{other:?}"),
    }
}

pub fn refused<T: std::fmt::Debug>(result: Result<T, PublishError>) -> String {
    match result {
        Err(PublishError::Refused { refused, .. }) => refused.reason.as_str().to_string(),
        other => panic!("{other:?}"),
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_string()
}
