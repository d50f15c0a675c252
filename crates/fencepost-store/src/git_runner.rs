//! Runs git with a clean environment, a time limit and an output limit, and redacts passwords in its messages.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::{bare, redacted, redacted_text};

/// How long to wait for the rest of the output after git has ended. A process that git left behind, such as an ssh that
/// keeps a connection open, may hold the pipe.
const LINGER: Duration = Duration::from_secs(3);

/// The most bytes read from each output stream. The listing of all refs of a store is the longest answer.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most lines of an answer that a message shows. A server may send many more.
const WORDS_LINES_MAX: usize = 6;

/// Prefixes of lines that say what failed.
const COMPLAINTS: [&str; 4] = ["fatal:", "error:", "remote:", "ssh:"];

/// What ssh says if it refuses a login or a host. git adds only that it could not read.
const OF_SSH: [&str; 3] = ["Permission denied", "Host key verification failed", "Connection refused"];

/// Prefixes of lines that only repeat that something failed.
const NOTHING_NEW: [&str; 2] = ["hint:", "error: failed to push some refs"];

/// Variables that a hook or an alias of git leaves in the environment of its children, and those that select another
/// repository, other objects or another date. Configuration by environment stays: users pass credentials that way.
const FOREIGN: [&str; 21] = [
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
    "GIT_LITERAL_PATHSPECS",
    "GIT_REF_PARANOIA",
    "GIT_EDITOR",
];

/// The store's password, and its URL, which may contain one. Hooks, credential helpers and ssh must not see them.
const STORE_PASSWORD: &str = "FENCEPOST_STORE_PASSWORD";
const STORE: &str = "FENCEPOST_STORE";

/// Runs git in one directory.
#[derive(Clone)]
pub struct GitRunner {
    directory: PathBuf,
    /// The time limit of one call, including the hooks and credential helpers that git runs.
    limit: Duration,
    /// Options that precede the subcommand.
    options: Vec<String>,
    variables: Vec<(OsString, OsString)>,
    /// Git leads its own process group: a ctrl-C at the terminal does not reach it, and it cannot prompt there.
    is_own_group: bool,
}

/// The output and exit status of one call.
#[derive(Clone, Debug)]
pub struct GitAnswer {
    pub ok: bool,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// Git had not ended after this time and was killed.
    pub killed_after: Option<Duration>,
}

/// One ref in the answer to `git push --porcelain`: a flag, `from:to` and a summary, with tabs between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushLine<'a> {
    pub flag: char,
    pub to: &'a str,
    pub summary: &'a str,
}

impl GitRunner {
    pub fn new(directory: &Path, limit: Duration) -> Self {
        let directory = directory.to_path_buf();
        let mut runner = Self { directory, limit, options: Vec::new(), variables: Vec::new(), is_own_group: false };
        // Answers are parsed, so they are in the C locale; a replacement object must not stand in for another.
        runner = runner.with_variable("LC_ALL", "C").with_variable("GIT_NO_REPLACE_OBJECTS", "1");
        match std::env::var(STORE) {
            Ok(url) if redacted(&url) != url => runner.with_variable(STORE, bare(&url)),
            _ => runner,
        }
    }

    /// Adds `-c SETTING` to every call.
    pub fn with_setting(mut self, setting: &str) -> Self {
        self.options.extend(["-c".to_string(), setting.to_string()]);
        self
    }

    pub fn with_variable(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_os_string(), value.as_ref().to_os_string()));
        self
    }

    /// Puts git into a process group of its own, away from the terminal.
    pub fn in_own_group(mut self) -> Self {
        self.is_own_group = true;
        self
    }

    /// Returns the same runner for another directory.
    pub fn elsewhere(&self, directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), ..self.clone() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs git and waits for it, up to the limit.
    pub fn run(&self, arguments: &[&str], input: &[u8]) -> io::Result<GitAnswer> {
        finish(self.command().args(arguments).spawn()?, input, self.limit)
    }

    /// Returns the version as git prints it, and its first two numbers.
    pub fn version(&self) -> io::Result<(String, (u32, u32))> {
        let said = self.run(&["version"], b"")?.text();
        let numbers = version(&said).unwrap_or_default();
        Ok((said.trim().to_string(), numbers))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.current_dir(&self.directory).args(&self.options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.env_remove(STORE_PASSWORD).envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.is_own_group {
            command.process_group(0);
        }
        command
    }
}

/// Leaves out the variables, which may hold a password.
impl fmt::Debug for GitRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, limit, is_own_group, .. } = self;
        let mut shown = f.debug_struct("GitRunner");
        shown.field("directory", directory).field("limit", limit).field("is_own_group", is_own_group);
        shown.finish_non_exhaustive()
    }
}

impl GitAnswer {
    /// Returns the standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the part of the error output that explains the failure, without passwords.
    pub fn words(&self) -> String {
        let says_more = |line: &&str| !line.is_empty() && !NOTHING_NEW.iter().any(|words| line.starts_with(words));
        let lines: Vec<&str> = self.stderr.lines().map(str::trim).filter(says_more).collect();
        let complains = |line: &&str| {
            COMPLAINTS.iter().any(|kind| line.starts_with(kind)) || OF_SSH.iter().any(|words| line.contains(words))
        };
        let mut chosen: Vec<&str> = lines.iter().copied().filter(complains).collect();
        if chosen.is_empty() && self.killed_after.is_none() {
            chosen = lines;
        }
        chosen.truncate(WORDS_LINES_MAX);
        let killed = self
            .killed_after
            .map(|limit| format!("error: git did not end within {limit:?} and was killed, with its hooks and helpers"));
        chosen.extend(killed.as_deref());
        if chosen.is_empty() { "git gave no reason".to_string() } else { redacted_text(&chosen.join("; ")) }
    }
}

/// Parses the lines that `git push --porcelain` prints about each ref.
pub fn push_lines(stdout: &str) -> impl Iterator<Item = PushLine<'_>> {
    stdout.lines().filter_map(|line| {
        let mut columns = line.splitn(3, '\t');
        let (flag, refs, summary) = (columns.next()?, columns.next()?, columns.next()?);
        let (_, to) = refs.split_once(':')?;
        Some(PushLine { flag: flag.chars().next()?, to, summary })
    })
}

/// Explains why git could not be started.
pub fn cannot_run(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "git is not installed, or not on PATH".to_string(),
        _ => format!("git cannot be run ({error})"),
    }
}

fn version(said: &str) -> Option<(u32, u32)> {
    let number = said.strip_prefix("git version ")?.split_whitespace().next()?;
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

enum GitProcessEvent {
    Closed,
    Ended,
}

/// Sends the input, reads both outputs, and kills the process with its descendants at the time limit.
fn finish(mut child: Child, input: &[u8], limit: Duration) -> io::Result<GitAnswer> {
    if let Some(mut pipe) = child.stdin.take().filter(|_| !input.is_empty()) {
        let input = input.to_vec();
        // Git may end without reading its input; its answer says more than the broken pipe.
        thread::spawn(move || pipe.write_all(&input));
    }
    let (tell, heard) = channel();
    let stdout = collect(child.stdout.take(), tell.clone());
    let stderr = collect(child.stderr.take(), tell.clone());
    let pid = Pid::from_raw(child.id().cast_signed());
    // The process is not reaped here, so its pid is not reused.
    thread::spawn(move || {
        fencepost_sys::wait_until_ended(pid);
        let _ = tell.send(GitProcessEvent::Ended);
    });
    let mut give_up = Instant::now() + limit;
    let (mut open, mut ended) = (2, false);
    while open > 0 || !ended {
        match heard.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
            Ok(GitProcessEvent::Closed) => open -= 1,
            Ok(GitProcessEvent::Ended) => {
                ended = true;
                give_up = Instant::now() + LINGER;
            }
            Err(_) => break,
        }
    }
    if !ended {
        end_tree(pid);
    }
    let ok = child.wait()?.success() && ended;
    let taken = |output: Arc<Mutex<Vec<u8>>>| output.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let stderr = String::from_utf8_lossy(&taken(stderr)).into_owned();
    Ok(GitAnswer { ok, stdout: taken(stdout), stderr, killed_after: (!ended).then_some(limit) })
}

/// Reads an output on a thread, to its end or to the limit. The caller can see the part read so far at any time.
fn collect(from: Option<impl Read + Send + 'static>, tell: Sender<GitProcessEvent>) -> Arc<Mutex<Vec<u8>>> {
    let output = Arc::new(Mutex::new(Vec::new()));
    let shared = output.clone();
    thread::spawn(move || {
        let mut chunk = [0; 16 * 1024];
        // At the limit the pipe is closed, which ends git.
        let mut from = from.map(|from| from.take(OUTPUT_BYTES_MAX));
        while let Some(from) = &mut from {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => shared.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = tell.send(GitProcessEvent::Closed);
    });
    output
}

/// Kills a process, its descendants, and the process group that it leads. If processes cannot be listed, the
/// descendants are unknown.
fn end_tree(pid: Pid) {
    let mut ahead = vec![pid];
    while let Some(pid) = ahead.pop() {
        // A stopped process starts no other one while its children are listed.
        let _ = kill(pid, Signal::SIGSTOP);
        ahead.extend(children(pid));
        let _ = kill(pid, Signal::SIGKILL);
    }
    // The process is not reaped yet, so the group with this number is its own.
    let _ = killpg(pid, Signal::SIGKILL);
}

fn children(pid: Pid) -> Vec<Pid> {
    let all = fencepost_sys::processes().unwrap_or_default();
    all.into_iter().filter(|entry| entry.parent == pid.as_raw()).map(|entry| Pid::from_raw(entry.pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, input: &[u8], limit: Duration, own_group: bool) -> GitAnswer {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if own_group {
            shell.process_group(0);
        }
        finish(shell.spawn().unwrap(), input, limit).unwrap()
    }

    #[test]
    fn versions_as_git_writes_them() {
        assert_eq!(version("git version 2.47.3\n"), Some((2, 47)));
        assert_eq!(version("git version 2.39.5 (Apple Git-154)\n"), Some((2, 39)));
        assert_eq!(version("git version 2.9.0.windows.1\n"), Some((2, 9)));
        assert_eq!(version("hub version 2"), None);
    }

    #[test]
    fn the_output_of_a_process_that_ends_is_complete() {
        let ended = run("cat; echo err >&2; exit 3", b"out\n", Duration::from_secs(60), false);
        assert!(!ended.ok && ended.killed_after.is_none());
        assert_eq!((ended.stdout, ended.stderr.as_str()), (b"out\n".to_vec(), "err\n"));
        // More than a pipe holds, in both directions at once.
        let long = vec![b'x'; 1 << 20];
        assert_eq!(run("cat", &long, Duration::from_secs(60), false).stdout, long);
    }

    #[test]
    fn a_process_that_hangs_is_killed_with_its_children() {
        for own_group in [false, true] {
            let begun = Instant::now();
            let script = "echo $$; sh -c 'echo $$; sleep 600; :'; :";
            let ended = run(script, b"", Duration::from_millis(500), own_group);
            assert!(ended.killed_after.is_some() && !ended.ok && begun.elapsed() < Duration::from_secs(60));
            assert!(ended.words().contains("did not end within 500ms"), "{}", ended.words());
            let pids = String::from_utf8(ended.stdout).unwrap();
            assert_eq!(pids.lines().count(), 2, "{pids}");
            for pid in pids.lines() {
                // The signal is sent; the system ends the process when it is next scheduled.
                let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                while !(state().is_empty() || state().contains(") Z ")) {
                    assert!(begun.elapsed() < Duration::from_secs(60), "{}", state());
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    #[test]
    fn a_background_process_that_holds_the_output_is_not_waited_for() {
        let begun = Instant::now();
        let ended = run("sleep 30 & echo $!; echo done", b"", Duration::from_secs(600), false);
        assert!(ended.ok && begun.elapsed() < Duration::from_secs(25));
        let text = ended.text();
        let (background, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, "done\n");
        kill(Pid::from_raw(background.parse().unwrap()), Signal::SIGKILL).unwrap();
    }

    #[test]
    fn the_words_are_the_complaints_without_passwords() {
        let answer =
            |stderr: &str| GitAnswer { ok: false, stdout: Vec::new(), stderr: stderr.to_string(), killed_after: None };
        let long = "To https://u:s3cret@h/r\nhint: no\nfatal: unable to access 'https://u:s3cret@h/r'\nerror: failed to push some refs";
        assert_eq!(answer(long).words(), "fatal: unable to access 'https://***@h/r'");
        assert_eq!(answer("ssh: no route").words(), "ssh: no route");
        let of_ssh =
            "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.\n\nPlease make sure";
        assert_eq!(
            answer(of_ssh).words(),
            "git@h: Permission denied (publickey).; fatal: Could not read from remote repository."
        );
        assert_eq!(answer("").words(), "git gave no reason");
    }
}
