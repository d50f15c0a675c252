//! The user's clone, and the calls of git in it.

use std::io::{IsTerminal, stderr, stdin};
use std::path::Path;
use std::time::Duration;

use fencepost_store::git_runner::{GitAnswer, GitRunner, cannot_run};

use crate::publish::PublishError;

/// Set while fencepost's own push runs: the hook that refuses bare pushes lets it through.
pub const PUSHING: &str = "FENCEPOST_PUSHING";

/// Older clients did not pass `--atomic` on over HTTP.
const VERSION_MIN: (u32, u32) = (2, 25);
/// Since this version a fetch can leave `FETCH_HEAD` alone, which belongs to the user.
const VERSION_KEEPS_FETCH_HEAD: (u32, u32) = (2, 29);

/// A repository of the user.
#[derive(Clone, Debug)]
pub(super) struct LocalClone {
    runner: GitRunner,
    version: (u32, u32),
}

impl LocalClone {
    /// Checks that git is new enough, and that the directory is in a repository.
    pub fn open(directory: &Path, limit: Duration) -> Result<Self, PublishError> {
        if !directory.is_dir() {
            return Err(PublishError::Usage(format!("{} is not a directory.", directory.display())));
        }
        let mut runner = GitRunner::new(directory, limit).with_variable(PUSHING, "1");
        if !(stdin().is_terminal() && stderr().is_terminal()) {
            runner = runner.with_variable("GIT_TERMINAL_PROMPT", "0");
        }
        let (shown, version) = runner.version().map_err(|error| not_run(&error))?;
        if version < VERSION_MIN {
            let (major, minor) = VERSION_MIN;
            return Err(PublishError::Failed(format!(
                "This is {shown}, and a fenced push needs git {major}.{minor} or newer; nothing was pushed. Install a \
                 newer git."
            )));
        }
        let clone = Self { runner, version };
        let inside = clone.run(&["rev-parse", "--git-dir"], "")?;
        if !inside.ok {
            return Err(PublishError::Usage(format!(
                "{} is not in a git repository that can be used ({}). Go there, or give --repo DIR.",
                directory.display(),
                inside.words()
            )));
        }
        Ok(clone)
    }

    /// Runs git and waits for it. A call that does not end in time is an error.
    pub fn run(&self, arguments: &[&str], input: &str) -> Result<GitAnswer, PublishError> {
        let answer = self.call(arguments, input)?;
        if answer.killed_after.is_none() {
            return Ok(answer);
        }
        let what = arguments.iter().find(|word| word.starts_with(char::is_alphabetic)).copied().unwrap_or_default();
        Err(PublishError::Failed(format!(
            "git {what} in {} failed ({}); nothing was pushed. See what it waits for: a prompt, a hook, a credential \
             helper or the server. Then publish again, or allow more time by --timeout.",
            self.directory().display(),
            answer.words()
        )))
    }

    /// Runs git and waits for it, up to the limit.
    pub fn call(&self, arguments: &[&str], input: &str) -> Result<GitAnswer, PublishError> {
        self.runner.run(arguments, input.as_bytes()).map_err(|error| not_run(&error))
    }

    /// Returns the same clone for another work tree.
    pub fn elsewhere(&self, directory: &Path) -> Self {
        Self { runner: self.runner.elsewhere(directory), ..self.clone() }
    }

    pub fn has_work_tree(&self) -> bool {
        self.run(&["rev-parse", "--is-inside-work-tree"], "").is_ok_and(|answer| answer.text().trim() == "true")
    }

    /// Runs a git command that fails only if the repository is damaged, and returns the trimmed answer.
    pub fn ask(&self, arguments: &[&str], input: &str) -> Result<String, PublishError> {
        let answer = self.run(arguments, input)?;
        if answer.ok {
            return Ok(answer.text().trim().to_string());
        }
        let what = arguments.first().copied().unwrap_or_default();
        Err(PublishError::Failed(format!(
            "git {what} failed in {} ({}); nothing was pushed. Look at the repository: git fsck",
            self.directory().display(),
            answer.words()
        )))
    }

    /// Whether a fetch can leave `FETCH_HEAD` alone.
    pub fn keeps_fetch_head(&self) -> bool {
        self.version >= VERSION_KEEPS_FETCH_HEAD
    }

    pub fn directory(&self) -> &Path {
        self.runner.directory()
    }
}

fn not_run(error: &std::io::Error) -> PublishError {
    PublishError::Failed(format!("{}; nothing was pushed. Check: git version", cannot_run(error)))
}
