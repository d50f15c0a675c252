//! A wrapper, its keeper and a job in a directory of their own, and the means to watch them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use fencepost_core::time::Boot;
use fencepost_guard::clock::boot_now;
use fencepost_guard::keeper::{KeeperOrder, Report, Spawn};
use fencepost_testkit::process::{TREE_FILES, all_pids, is_alive, tree_script};
use fencepost_testkit::{PATIENCE, eventually};
use tempfile::TempDir;

use crate::wrapper::{ARGUMENT, Line};

/// The keeper controls processes as on macOS.
pub const PORTABLE: bool = cfg!(any(feature = "portable-processes", not(target_os = "linux")));

pub struct Scene {
    pub dir: TempDir,
    pub wrapper: i32,
    pub keeper: i32,
    pub start_micros: u128,
    process: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<Line>,
}

impl Scene {
    pub fn new() -> Self {
        Self::started_by(Command::new(std::env::current_exe().unwrap()))
    }

    /// With another program in front, `nohup` for example.
    pub fn started_by(mut command: Command) -> Self {
        let dir = TempDir::new().unwrap();
        let stderr = fs::File::create(dir.path().join("stderr")).unwrap();
        command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut process = command.spawn().unwrap();
        let output = process.stdout.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let line = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let Ok(Line::Started { wrapper, keeper, micros }) = lines.recv_timeout(PATIENCE) else {
            panic!("the wrapper did not start")
        };
        let orders = process.stdin.take();
        Self { dir, wrapper, keeper, start_micros: micros, process, orders, lines }
    }

    /// A job that runs this shell script in the scene's directory.
    pub fn job(&self, script: &str) -> Spawn {
        Spawn {
            label: "nightly".into(),
            argv: vec!["sh".into(), "-c".into(), script.into()],
            cwd: Some(self.dir.path().into()),
            stdout: Some(self.path("stdout").into()),
            stderr: Some(self.path("job-stderr").into()),
            grace: Duration::from_secs(2),
            ..Spawn::default()
        }
    }

    /// Starts the job and returns its pid.
    pub fn spawn(&mut self, job: Spawn) -> i32 {
        self.order(&KeeperOrder::Spawn(Box::new(job)));
        match self.report() {
            Report::Spawned { pid } => pid,
            other => panic!("not spawned: {other:?}"),
        }
    }

    pub fn order(&mut self, order: &KeeperOrder) {
        let mut line = serde_json::to_string(order).unwrap();
        line.push('\n');
        self.orders.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    pub fn line(&self) -> Line {
        self.lines.recv_timeout(PATIENCE).expect("the wrapper said nothing")
    }

    pub fn report(&self) -> Report {
        match self.line() {
            Line::Report(report) => report,
            other => panic!("not a report: {other:?}"),
        }
    }

    /// No report for this long.
    pub fn stays_silent(&self, length: Duration) {
        if let Ok(line) = self.lines.recv_timeout(length) {
            panic!("unexpected: {line:?}");
        }
    }

    /// The tree is gone, and nothing escaped.
    pub fn expect_empty(&self) {
        assert_eq!(self.report(), Report::Empty { escaped: Vec::new() });
    }

    /// The wrapper ends, and its keeper with it.
    pub fn close(&mut self) {
        drop(self.orders.take());
        assert!(self.process.wait().unwrap().success());
        eventually("the keeper has gone", || !is_alive(self.keeper));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits for the file, complete with its last newline, and returns its text.
    pub fn text(&self, name: &str) -> String {
        let path = self.path(name);
        eventually(&format!("{name} is written"), || read(&path).ends_with('\n'));
        read(&path)
    }

    /// The pids in the files that `TREE` writes, once all are there.
    pub fn tree(&self) -> Vec<i32> {
        TREE_FILES.map(|name| self.pid_in(name)).to_vec()
    }

    pub fn pid_in(&self, name: &str) -> i32 {
        self.text(name).trim().parse().unwrap()
    }

    /// What the keeper and the wrapper wrote to standard error.
    pub fn stderr(&self) -> String {
        read(&self.path("stderr"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Living processes whose working directory is this one.
pub fn inhabitants(directory: &Path) -> Vec<i32> {
    let directory = fs::canonicalize(directory).unwrap();
    if !cfg!(target_os = "linux") {
        let mut lsof = Command::new("lsof");
        let listed = lsof.args(["-t", "-a", "-d", "cwd"]).arg(&directory).output().unwrap().stdout;
        return String::from_utf8(listed).unwrap().lines().map(|pid| pid.parse().unwrap()).collect();
    }
    let is_here = |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory);
    all_pids().into_iter().filter(is_here).filter(|&pid| is_alive(pid)).collect()
}

/// `TREE`, or a variation of it, as a job: the script has to be a file, because it runs itself.
pub fn tree_job(scene: &Scene, prelude: &str) -> Spawn {
    fs::write(scene.path("tree.sh"), format!("{prelude}\n{}", tree_script(PORTABLE))).unwrap();
    let mut job = scene.job("");
    job.argv = vec!["sh".into(), "tree.sh".into()];
    job
}

pub fn deadline_in(length: Duration) -> Option<Boot> {
    Some(boot_now() + length)
}

/// None of the processes runs.
#[track_caller]
pub fn all_dead(pids: &[i32]) {
    for &pid in pids {
        assert!(!is_alive(pid), "{pid} is alive, of {pids:?}");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
