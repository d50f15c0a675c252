//! Calling git: in one repository, in an environment that means nothing else, and without a password in what it said.

use std::io::{ErrorKind, IsTerminal, Write as _, stderr, stdin};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::limit;
use crate::publish::PublishError;
use fencepost_store::{bare, redacted, redacted_text};

/// Set while our own push runs, so that the hook which refuses bare pushes lets it through.
pub const PUSHING: &str = "FENCEPOST_PUSHING";

/// Older clients did not pass `--atomic` on over HTTP.
const VERSION_MIN: (u32, u32) = (2, 25);
/// Since this one a fetch can leave `FETCH_HEAD` alone, which belongs to the user.
const VERSION_KEEPS_FETCH_HEAD: (u32, u32) = (2, 29);

/// What a hook or an alias of git leaves in the environment of its children, and what would point us to another
/// repository, other objects or another date. Configuration by environment stays: credentials are passed that way.
const FOREIGN: [&str; 20] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_CONFIG",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_DATE",
    "GIT_LITERAL_PATHSPECS",
    "GIT_REF_PARANOIA",
    "GIT_EDITOR",
];

/// The store's password, and its URL, which may hold one. Hooks, credential helpers and ssh are none of the store's.
const STORE_PASSWORD: &str = "FENCEPOST_STORE_PASSWORD";
const STORE: &str = "FENCEPOST_STORE";

/// The lines of an answer that are shown. A server may say much more.
const WORDS_LINES_MAX: usize = 6;

/// Lines that only say that something went wrong.
const NOTHING_NEW: [&str; 2] = ["hint:", "error: failed to push some refs"];

/// A repository that git can be asked about.
#[derive(Clone, Debug)]
pub(super) struct Git {
    directory: PathBuf,
    version: (u32, u32),
    /// How long one call may take, with the hooks and credential helpers that git runs.
    limit: Duration,
}

/// What git said.
#[derive(Debug)]
pub(super) struct Answer {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
    /// Git was killed because it did not end in time.
    pub timed_out: bool,
}

impl Git {
    /// Finds git itself, and makes sure that the directory is in a repository.
    pub fn open(directory: &Path, limit: Duration) -> Result<Self, PublishError> {
        if !directory.is_dir() {
            return Err(PublishError::Usage(format!("{} is not a directory.", directory.display())));
        }
        let git = Self { directory: directory.to_path_buf(), version: (0, 0), limit };
        let said = git.run(&["version"], "")?.stdout;
        let version = version(&said).unwrap_or_default();
        if version < VERSION_MIN {
            return Err(PublishError::Failed(format!(
                "This is {}, and a fenced push needs git {}.{} or newer; nothing was pushed. Install a newer git.",
                said.trim(),
                VERSION_MIN.0,
                VERSION_MIN.1
            )));
        }
        let git = Self { version, ..git };
        let inside = git.run(&["rev-parse", "--git-dir"], "")?;
        if !inside.ok {
            return Err(PublishError::Usage(format!(
                "{} is not in a git repository that can be used ({}). Go there, or give --repo DIR.",
                directory.display(),
                inside.words()
            )));
        }
        Ok(git)
    }

    /// Calls git and waits for it. A call that did not end in time is an error.
    pub fn run(&self, arguments: &[&str], input: &str) -> Result<Answer, PublishError> {
        let answer = self.call(arguments, input)?;
        if !answer.timed_out {
            return Ok(answer);
        }
        let what = arguments.iter().find(|word| word.starts_with(char::is_alphabetic)).copied().unwrap_or_default();
        Err(PublishError::Failed(format!(
            "git {what} in {} failed ({}); nothing was pushed. See what it waits for: a prompt, a hook, a credential \
             helper or the server. Then publish again, or allow more time by --timeout.",
            self.directory.display(),
            answer.words()
        )))
    }

    /// Calls git and waits for it, no longer than the limit.
    pub fn call(&self, arguments: &[&str], input: &str) -> Result<Answer, PublishError> {
        let cannot = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => PublishError::Failed(
                "git is not installed, or not on PATH; nothing was pushed. Install it.".to_string(),
            ),
            _ => PublishError::Failed(format!("Cannot run git ({error}); nothing was pushed.")),
        };
        let mut child = self.command().args(arguments).spawn().map_err(cannot)?;
        if let Some(mut pipe) = child.stdin.take() {
            // Git may end without reading; what it says then is more use than the broken pipe.
            let _ = pipe.write_all(input.as_bytes());
        }
        let ended = limit::wait(child, self.limit).map_err(cannot)?;
        let mut stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        if ended.timed_out {
            stderr += &format!(
                "\nerror: git did not end within {:?} and was killed, with its hooks and helpers\n",
                self.limit
            );
        }
        let stdout = String::from_utf8_lossy(&ended.stdout).into_owned();
        Ok(Answer { ok: ended.ok, stdout, stderr, timed_out: ended.timed_out })
    }

    /// The same in another work tree.
    pub fn elsewhere(&self, directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), ..self.clone() }
    }

    pub fn directory_has_work_tree(&self) -> bool {
        self.run(&["rev-parse", "--is-inside-work-tree"], "").is_ok_and(|answer| answer.stdout.trim() == "true")
    }

    /// Calls git for something that only fails if the repository is not in order, and returns the trimmed answer.
    pub fn ask(&self, arguments: &[&str], input: &str) -> Result<String, PublishError> {
        let answer = self.run(arguments, input)?;
        if answer.ok {
            return Ok(answer.stdout.trim().to_string());
        }
        let what = arguments.first().copied().unwrap_or_default();
        Err(PublishError::Failed(format!(
            "git {what} failed in {} ({}); nothing was pushed. Look at the repository: git fsck",
            self.directory.display(),
            answer.words()
        )))
    }

    /// Whether a fetch can leave `FETCH_HEAD` alone.
    pub fn keeps_fetch_head(&self) -> bool {
        self.version >= VERSION_KEEPS_FETCH_HEAD
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.current_dir(&self.directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.env_remove(STORE_PASSWORD);
        if let Ok(url) = std::env::var(STORE)
            && redacted(&url) != url
        {
            command.env(STORE, bare(&url));
        }
        // The answers are read by a program, and a replaced object must not stand in for a fence.
        command.env("LC_ALL", "C").env("GIT_NO_REPLACE_OBJECTS", "1").env(PUSHING, "1");
        if !(stdin().is_terminal() && stderr().is_terminal()) {
            command.env("GIT_TERMINAL_PROMPT", "0");
        }
        command
    }
}

impl Answer {
    /// What people should read of it: the complaints, without passwords.
    pub fn words(&self) -> String {
        let says_more = |line: &&str| !line.is_empty() && !NOTHING_NEW.iter().any(|words| line.starts_with(words));
        let lines: Vec<&str> = self.stderr.lines().map(str::trim).filter(says_more).collect();
        let complains = |line: &&str| ["fatal:", "error:", "remote:"].iter().any(|kind| line.starts_with(kind));
        let mut chosen: Vec<&str> = lines.iter().copied().filter(complains).collect();
        if chosen.is_empty() {
            chosen = lines;
        }
        chosen.truncate(WORDS_LINES_MAX);
        if chosen.is_empty() { "git gave no reason".to_string() } else { redacted_text(&chosen.join("; ")) }
    }
}

fn version(said: &str) -> Option<(u32, u32)> {
    let number = said.strip_prefix("git version ")?.split_whitespace().next()?;
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_git_writes_them() {
        assert_eq!(version("git version 2.47.3\n"), Some((2, 47)));
        assert_eq!(version("git version 2.39.5 (Apple Git-154)\n"), Some((2, 39)));
        assert_eq!(version("git version 2.9.0.windows.1\n"), Some((2, 9)));
        assert_eq!(version("hub version 2"), None);
        assert!((2, 9) < VERSION_MIN);
    }
}
