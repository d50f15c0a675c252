//! Calling git: in a repository of our own, in an environment that means nothing else, within a time, and without a
//! password in its arguments or in what it said.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::remote::Remote;
use crate::redacted_text;

/// How long git may take, whatever it does.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Since this one a fetch can leave `FETCH_HEAD` alone.
const VERSION_MIN: (u32, u32) = (2, 29);

/// How long the output of a process that has ended may lag behind.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The longest answer of git. A listing of all refs of a store is the longest.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The lines of an answer that are shown. A server may say much more.
const WORDS_LINES_MAX: usize = 6;

/// The store's password and its URL, which may hold one: what git starts has no use for them.
const STORE_VARIABLES: [&str; 2] = ["FENCEPOST_STORE_PASSWORD", "FENCEPOST_STORE"];

/// What a hook or an alias of git leaves in the environment of its children, and what would point us to another
/// repository or other objects. Configuration by environment stays: credentials are passed that way.
const FOREIGN: [&str; 18] = [
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
    "GIT_DEFAULT_HASH",
];

/// What the user's configuration may not add to our calls.
const SETTINGS: [&str; 9] = [
    "core.hooksPath=/dev/null",
    "push.gpgSign=false",
    "push.followTags=false",
    "maintenance.auto=false",
    "gc.auto=0",
    "fetch.fsckObjects=false",
    // A longer object than we write is streamed to the disk instead of being held in memory.
    "core.bigFileThreshold=1m",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=30",
];

/// A helper that says what stands in the environment of git, where `ps` does not show it.
const HELPER: &str = "credential.helper=!f() { test \"$1\" = get || exit 0; echo \"username=$FENCEPOST_GIT_USER\"; \
                      test -z \"$FENCEPOST_GIT_PASSWORD\" || echo \"password=$FENCEPOST_GIT_PASSWORD\"; }; f";

/// A bare repository that holds what can be fetched again.
#[derive(Debug)]
pub(super) struct Git {
    directory: PathBuf,
    remote: Remote,
    /// Asked once, and only by who needs it: the ssh that never asks a person.
    ssh: OnceLock<Option<String>>,
}

/// What git said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) ok: bool,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    /// It was ended because it took too long.
    pub(super) overdue: bool,
}

impl Git {
    pub(super) fn new(directory: PathBuf, remote: Remote) -> Self {
        Self { directory, remote, ssh: OnceLock::new() }
    }

    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Makes the repository where there is none, and makes sure that git is new enough.
    pub(super) fn prepare(&self) -> Result<(), String> {
        if self.directory.join("HEAD").exists() {
            return Ok(());
        }
        let parent = self.directory.parent().unwrap_or(Path::new("/"));
        let unusable = |error: io::Error| format!("{} cannot be used ({error}).", self.directory.display());
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(unusable)?;
        let said = self.start(Path::new("/"), &["version"], b"").map_err(cannot)?;
        let text = String::from_utf8_lossy(&said.stdout).trim().to_string();
        if version(&text).unwrap_or_default() < VERSION_MIN {
            let (major, minor) = VERSION_MIN;
            return Err(format!("This is {text:?}, and git {major}.{minor} or newer is needed."));
        }
        // Of several that make it at once one is first, and the others throw theirs away.
        let draft = tempdir(parent).map_err(unusable)?;
        let path = draft.to_string_lossy().into_owned();
        let said = self.start(parent, &["init", "--quiet", "--bare", "--template=", &path], b"").map_err(cannot)?;
        let moved = if said.ok { std::fs::rename(&draft, &self.directory) } else { Ok(()) };
        let _ = std::fs::remove_dir_all(&draft);
        match moved {
            _ if self.directory.join("HEAD").exists() => Ok(()),
            Err(error) => Err(unusable(error)),
            Ok(()) => Err(format!("{} could not be made ({}).", self.directory.display(), said.words())),
        }
    }

    /// Calls git on the repository. It is named, because some do not let git find bare repositories by itself.
    pub(super) fn run(&self, arguments: &[&str], input: &[u8]) -> io::Result<Said> {
        self.start(&self.directory, &[&["--git-dir=."], arguments].concat(), input)
    }

    fn start(&self, directory: &Path, arguments: &[&str], input: &[u8]) -> io::Result<Said> {
        finish(self.command(directory).args(arguments).spawn()?, input, PATIENCE)
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new("git");
        command.current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What it starts in turn is ended with it.
        command.process_group(0);
        for name in FOREIGN.iter().chain(&STORE_VARIABLES) {
            command.env_remove(name);
        }
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        if let Some(login) = self.remote.login() {
            // The first one forgets the helpers that the user has, the second one is ours.
            command.args(["-c", "credential.helper=", "-c", HELPER]);
            command.env("FENCEPOST_GIT_USER", &login.user);
            command.env("FENCEPOST_GIT_PASSWORD", login.password.as_ref().map_or("", |password| password.reveal()));
        }
        if let Some(ssh) = self.ssh() {
            command.env("GIT_SSH_COMMAND", ssh);
        }
        // The answers are read by a program, and a replaced object must not stand in for another.
        command.env("LC_ALL", "C").env("GIT_NO_REPLACE_OBJECTS", "1").env("GIT_TERMINAL_PROMPT", "0");
        for (who, value) in [("NAME", "fencepost"), ("EMAIL", "fencepost@localhost")] {
            command.env(format!("GIT_AUTHOR_{who}"), value).env(format!("GIT_COMMITTER_{who}"), value);
        }
        command
    }

    /// An ssh that asks nobody, unless the user has said which one to use.
    fn ssh(&self) -> Option<&str> {
        let find = || {
            let chosen = ["GIT_SSH_COMMAND", "GIT_SSH"].iter().any(|name| std::env::var_os(name).is_some());
            if chosen || !self.remote.is_ssh() {
                return None;
            }
            let configured = Command::new("git").args(["config", "--get", "core.sshCommand"]).output();
            let is_configured = configured.is_ok_and(|answer| answer.status.success());
            (!is_configured).then(|| "ssh -o BatchMode=yes -o ConnectTimeout=20".to_string())
        };
        self.ssh.get_or_init(find).as_deref()
    }
}

impl Said {
    /// What people should read of it: the complaints, without passwords.
    pub(super) fn words(&self) -> String {
        if self.overdue {
            return format!("git took longer than {} s", PATIENCE.as_secs());
        }
        let lines = self.stderr.lines().map(str::trim);
        let says_more = |line: &&str| !line.is_empty() && !line.starts_with("hint:");
        let mut chosen: Vec<&str> = lines.filter(says_more).collect();
        chosen.truncate(WORDS_LINES_MAX);
        if chosen.is_empty() { "git gave no reason".to_string() } else { redacted_text(&chosen.join("; ")) }
    }
}

pub(super) fn cannot(error: io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "git is not installed, or not on PATH.".to_string(),
        _ => format!("git cannot be run ({error})."),
    }
}

/// Feeds git, reads all it says, and ends it and all it started when the time is over. What it left running, such as an
/// ssh that keeps a connection for the next one, may hold on to its output; nobody waits for that.
fn finish(mut child: Child, input: &[u8], patience: Duration) -> io::Result<Said> {
    if let Some(mut pipe) = child.stdin.take() {
        let input = input.to_vec();
        // Git may end without reading; what it says then is more use than the broken pipe.
        thread::spawn(move || pipe.write_all(&input));
    }
    let (answer, errors) = (child.stdout.take().map(listen), child.stderr.take().map(listen));
    let (status, overdue) = wait(&mut child, patience)?;
    let until = Instant::now() + LAST_WORDS;
    let heard = |pieces| heard(&pieces, until);
    let stdout = answer.map(heard).unwrap_or_default();
    let stderr = String::from_utf8_lossy(&errors.map(heard).unwrap_or_default()).into_owned();
    Ok(Said { ok: status.success() && !overdue, stdout, stderr, overdue })
}

/// Reads what git says as it says it, up to the longest answer. Git is told to stop by a closed pipe.
fn listen(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let mut pipe = pipe.take(ANSWER_BYTES_MAX as u64);
    thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            if sender.send(buffer[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// All that was said by a process that has ended, as far as it comes in time.
fn heard(pieces: &Receiver<Vec<u8>>, until: Instant) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Ok(piece) = pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
        whole.extend(piece);
    }
    whole
}

fn wait(child: &mut Child, patience: Duration) -> io::Result<(ExitStatus, bool)> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false));
        }
        if begun.elapsed() > patience {
            let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
            return Ok((child.wait()?, true));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn tempdir(parent: &Path) -> io::Result<PathBuf> {
    let random = crate::fresh_version().map_err(|error| io::Error::other(error.detail))?;
    let name: String = random.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = parent.join(format!("new-{name}"));
    DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
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
        assert!((2, 25) < VERSION_MIN);
    }

    #[test]
    fn who_takes_too_long_is_ended_with_all_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let said = finish(command.spawn().unwrap(), b"", Duration::from_millis(100)).unwrap();
        assert!(said.overdue && !said.ok && begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[test]
    fn nobody_waits_for_what_stays_behind() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo answer; sleep 30 & exit 0"]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (child, begun) = (command.spawn().unwrap(), Instant::now());
        let group = Pid::from_raw(child.id().cast_signed());
        let said = finish(child, b"", Duration::from_secs(20)).unwrap();
        assert!(said.ok && said.stdout == b"answer\n" && begun.elapsed() < Duration::from_secs(15), "{said:?}");
        let _ = killpg(group, Signal::SIGKILL);
    }
}
