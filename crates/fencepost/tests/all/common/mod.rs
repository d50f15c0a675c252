//! A place of its own for each test, and the real binary in it.
#![allow(dead_code, reason = "each file of tests uses its part")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use fencepost_testkit::eventually;
use fencepost_testkit::process::{children_of, code, is_alive, send};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_fencepost");

/// A directory that belongs to one test, with a state directory in it.
#[derive(Debug)]
pub struct Site {
    directory: TempDir,
}

/// What a command said, and its exit code as a shell shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Site {
    pub fn new() -> Self {
        fencepost_testkit::signals::reset();
        Self { directory: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub fn database(&self) -> PathBuf {
        self.path("state/store.db")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.program(BINARY, arguments)
    }

    /// Another program with the environment of this place, for example a shell that calls fencepost.
    pub fn program(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FENCEPOST_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).env("FENCEPOST_STATE_DIR", self.state()).env("BINARY", BINARY).stdin(Stdio::null());
        // No configuration, unless a test names one: neither the user's nor one above the working directory.
        command.env("FENCEPOST_CONFIG", "");
        command
    }

    pub fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    /// What a shell says to a script, which finds the binary as `$BINARY`.
    pub fn shell(&self, script: &str) -> Said {
        Said::of(self.program("/bin/sh", &["-c", script]).output().unwrap())
    }

    /// The one object that a command prints with `--json`, with any exit code.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let said = self.say(&[arguments, &["--json"]].concat());
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said:?}"))
    }

    /// The one job that `status --json JOB` shows.
    pub fn job(&self, job: &str) -> Value {
        let status = self.json(&["status", job]);
        assert_eq!(status["jobs"].as_array().map(Vec::len), Some(1), "{status}");
        status["jobs"][0].clone()
    }

    /// What `runs --json` shows, newest first.
    pub fn runs(&self, arguments: &[&str]) -> Vec<Value> {
        let said = self.say(&[&["runs", "--json"], arguments].concat());
        assert_eq!(said.code, 0, "{said:?}");
        lines(&said.stdout)
    }

    /// A run that goes on until it is told to end, or is ended.
    pub fn holder(&self, job: &str, options: &[&str]) -> Holder {
        let script = r#"echo "$FENCEPOST_TOKEN"; exec cat >/dev/null"#;
        Holder::start(self.command(&[&["run", job], options, &["-c", script]].concat()))
    }
}

impl Said {
    pub fn of(output: Output) -> Self {
        Self {
            code: code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A process that has said its first line, and waits for the end of its input.
#[derive(Debug)]
pub struct Holder {
    pub child: Child,
    pub first: String,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Holder {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        let mut holder = Self { child, first, input, output };
        if holder.first.is_empty() {
            panic!("it ended before it said anything: {:?}", holder.rest());
        }
        holder
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The token, of a run that `Site::holder` started.
    pub fn token(&self) -> u64 {
        self.first.trim().parse().unwrap()
    }

    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends its input, and says how it ended.
    pub fn finish(mut self) -> Said {
        self.input = None;
        self.rest()
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> Said {
        self.rest()
    }

    /// Ends wrapper and keeper at one instant, as far as either can tell.
    pub fn kill(mut self) {
        let keeper = children_of(self.pid());
        assert_eq!(keeper.len(), 1, "the wrapper has one child, its keeper");
        send(self.pid(), Signal::SIGSTOP);
        send(keeper[0], Signal::SIGKILL);
        send(self.pid(), Signal::SIGKILL);
        self.child.wait().unwrap();
        eventually("the keeper is dead", || !is_alive(keeper[0]));
    }

    fn rest(&mut self) -> Said {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.output.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Said { code: code(self.child.wait().unwrap()), stdout, stderr }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// JSON lines.
pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"))).collect()
}

/// The keys of an object, sorted, to be compared with all that the contract names.
pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Words, sorted, as [`keys`] are.
pub fn sorted(words: &str) -> Vec<&str> {
    let mut words: Vec<_> = words.split_whitespace().collect();
    words.sort_unstable();
    words
}

/// Checks a text for every part that it must have.
#[track_caller]
pub fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}
