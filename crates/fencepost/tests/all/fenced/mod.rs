//! Fenced writes of files and trees by the real command: every writer says its token itself, as a run does, so that the
//! fence alone decides.
#![allow(dead_code)]

pub mod faults;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fencepost_core::fence::Fence;
use fencepost_guard::publish::digest;
use tempfile::TempDir;

pub const FENCEPOST: &str = env!("CARGO_BIN_EXE_fencepost");

/// A directory for one test, and a state directory of its own.
pub struct Scene {
    directory: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("work")).expect("a directory to publish in");
        Self { directory }
    }

    /// A place in the directory that is published in, which holds nothing else.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("work").join(name)
    }

    pub fn aside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `fencepost publish` as a run with this token calls it. The store does not exist: the write does not need it.
    pub fn publish(&self, token: u64, arguments: &[&str]) -> Command {
        let mut command = Command::new(FENCEPOST);
        self.as_run(&mut command, token);
        command.arg("publish").args(arguments);
        command
    }

    pub fn as_run(&self, command: &mut Command, token: u64) {
        command
            // Cargo sets it, and the loader would look for every library in every place it names.
            .env_remove("LD_LIBRARY_PATH")
            .env("FENCEPOST_CONFIG", "")
            .env("FENCEPOST_STATE_DIR", self.aside("state"))
            .env("FENCEPOST_STORE", "dir:/not/asked")
            .env("FENCEPOST_STORE_ID", "00000000-0000-0000-0000-000000000001")
            .env("FENCEPOST_JOB", "report")
            .env("FENCEPOST_RUN", format!("00000000-0000-0000-0000-{token:012}"))
            .env("FENCEPOST_TOKEN", token.to_string())
            .env("FENCEPOST_OUTCOME", self.aside("said"))
            .current_dir(self.path(""))
            .stdin(Stdio::null());
    }

    /// Publishes a payload to the file `report`.
    pub fn write(&self, token: u64, payload: &str) -> Output {
        with_input(&mut self.publish(token, &["file", "report"]), payload)
    }

    /// What is in the directory that is published in.
    pub fn names(&self) -> Vec<String> {
        names(&self.path(""))
    }
}

pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_string()).collect();
    names.sort();
    names
}

pub fn with_input(command: &mut Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fencepost starts");
    // A writer that is refused at once does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().expect("fencepost ends")
}

/// The exit code, and what was said to people.
pub fn said(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[track_caller]
pub fn assert_code(output: &Output, expected: i32, contains: &str) {
    let (code, text) = said(output);
    assert!(code == expected && text.contains(contains), "expected {expected} and {contains:?}, got {code}: {text}");
}

/// Reads a fence as the format says, without the code that is tested.
#[track_caller]
pub fn fence(path: &Path) -> Fence {
    let text = fs::read_to_string(path).expect("a fence");
    let (body, sum) = text.trim_end_matches('\n').split_once('\n').expect("two lines");
    assert_eq!(digest::of(body.as_bytes()), sum);
    Fence::decode(body.as_bytes()).expect("a whole fence")
}
