//! The git store's repository on this host, and the calls of git on it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use fencepost_core::hex;

use super::remote::GitRemote;
use crate::git_runner::{GitAnswer, GitRunner, cannot_run};

/// The time limit of one call of git.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Since this version a fetch can leave `FETCH_HEAD` alone.
const VERSION_MIN: (u32, u32) = (2, 29);

/// Settings that override the user's configuration in these calls.
const SETTINGS: [&str; 9] = [
    "core.hooksPath=/dev/null",
    "push.gpgSign=false",
    "push.followTags=false",
    "maintenance.auto=false",
    "gc.auto=0",
    "fetch.fsckObjects=false",
    // Git streams an object longer than fencepost's to the disk instead of holding it in memory.
    "core.bigFileThreshold=1m",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=30",
];

/// A credential helper that prints variables from git's environment, where `ps` does not show them.
const HELPER: &str = "credential.helper=!f() { test \"$1\" = get || exit 0; echo \"username=$FENCEPOST_GIT_USER\"; \
                      test -z \"$FENCEPOST_GIT_PASSWORD\" || echo \"password=$FENCEPOST_GIT_PASSWORD\"; }; f";

/// A bare repository for objects that can be fetched again.
#[derive(Debug)]
pub(super) struct LocalRepository {
    directory: PathBuf,
    remote: GitRemote,
    /// Set at the first call, which asks git for the ssh command.
    runner: OnceLock<GitRunner>,
}

impl LocalRepository {
    pub(super) fn new(directory: PathBuf, remote: GitRemote) -> Self {
        Self { directory, remote, runner: OnceLock::new() }
    }

    pub(super) fn remote(&self) -> &GitRemote {
        &self.remote
    }

    /// Creates the repository if it is missing, and checks that git is new enough.
    pub(super) fn prepare(&self) -> Result<(), String> {
        if self.directory.join("HEAD").exists() {
            return Ok(());
        }
        let parent = self.directory.parent().unwrap_or(Path::new("/"));
        let unusable = |error: io::Error| format!("{} cannot be used ({error}).", self.directory.display());
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(unusable)?;
        let outside = self.runner().elsewhere(parent);
        let (shown, version) = outside.version().map_err(|error| cannot_run(&error))?;
        if version < VERSION_MIN {
            let (major, minor) = VERSION_MIN;
            return Err(format!("This is {shown:?}, and git {major}.{minor} or newer is needed."));
        }
        // Of several processes that create the repository at once one renames its draft first; the others remove
        // theirs.
        let draft = tempdir(parent).map_err(unusable)?;
        let path = draft.to_string_lossy().into_owned();
        let made = outside.run(&["init", "--quiet", "--bare", "--template=", &path], b"");
        let made = made.map_err(|error| cannot_run(&error))?;
        let moved = if made.ok { std::fs::rename(&draft, &self.directory) } else { Ok(()) };
        let _ = std::fs::remove_dir_all(&draft);
        match moved {
            _ if self.directory.join("HEAD").exists() => Ok(()),
            Err(error) => Err(unusable(error)),
            Ok(()) => Err(format!("{} could not be made ({}).", self.directory.display(), made.words())),
        }
    }

    /// Runs git on the repository. Names it explicitly, because the setting `safe.bareRepository` forbids git to
    /// discover it.
    pub(super) fn run(&self, arguments: &[&str], input: &[u8]) -> io::Result<GitAnswer> {
        self.runner().run(&[&["--git-dir=."], arguments].concat(), input)
    }

    fn runner(&self) -> &GitRunner {
        self.runner.get_or_init(|| {
            let mut runner = GitRunner::new(&self.directory, CALL_LIMIT).in_own_group();
            for setting in SETTINGS {
                runner = runner.with_setting(setting);
            }
            if let Some(login) = self.remote.login() {
                // The empty helper clears the helpers of the user's configuration.
                runner = runner.with_setting("credential.helper=").with_setting(HELPER);
                let password = login.password.as_ref().map_or("", |password| password.reveal());
                runner = runner.with_variable("FENCEPOST_GIT_USER", &login.user);
                runner = runner.with_variable("FENCEPOST_GIT_PASSWORD", password);
            }
            if self.remote.is_ssh() && !is_ssh_chosen() {
                runner = runner.with_variable("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=20");
            }
            for (name, value) in [("NAME", "fencepost"), ("EMAIL", "fencepost@localhost")] {
                for role in ["AUTHOR", "COMMITTER"] {
                    runner = runner.with_variable(format!("GIT_{role}_{name}"), value);
                }
            }
            runner.with_variable("GIT_TERMINAL_PROMPT", "0")
        })
    }
}

/// Whether the user has configured an ssh command. If not, fencepost sets one that never prompts.
fn is_ssh_chosen() -> bool {
    let configured = || Command::new("git").args(["config", "--get", "core.sshCommand"]).output();
    ["GIT_SSH_COMMAND", "GIT_SSH"].iter().any(|name| std::env::var_os(name).is_some())
        || configured().is_ok_and(|answer| answer.status.success())
}

fn tempdir(parent: &Path) -> io::Result<PathBuf> {
    let random = crate::fresh_version().map_err(|error| io::Error::other(error.detail))?;
    let path = parent.join(format!("new-{}", hex::encode(&random.0)));
    DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}
