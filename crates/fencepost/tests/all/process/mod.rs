//! The real binary in a place of its own, and the means to watch, stop and kill it and all that it starts.
#![allow(dead_code, reason = "every file of tests uses a part of it")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fencepost_testkit::process::{TREE_FILES, all_pids, children_of, is_alive, name, send, tree_script};
use fencepost_testkit::{PATIENCE, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{BINARY, Site};

/// The binary controls processes as on macOS.
pub const PORTABLE: bool = cfg!(any(feature = "portable-processes", not(target_os = "linux")));

/// The time-to-live of the leases that are lost here, with its options.
pub const TTL: Duration = Duration::from_secs(3);
pub const SHORT: [&str; 4] = ["--ttl", "3s", "--grace", "500ms"];

/// A site in which commands work in the directory itself. Every process that was started in it ends with it.
pub struct Place {
    site: Site,
}

impl Place {
    pub fn new() -> Self {
        let place = Self { site: Site::new() };
        let tree = tree_script(PORTABLE);
        fs::write(place.path("tree.sh"), &tree).unwrap();
        fs::write(place.path("stubborn.sh"), format!("trap '' TERM HUP INT\n{tree}")).unwrap();
        place
    }

    /// Any program, with the environment of this place.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.site.program(program, &[]);
        command.current_dir(self.directory());
        command
    }

    pub fn fencepost(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(BINARY);
        command.args(arguments);
        command
    }

    /// `fencepost run`, in the background, with its output in files. The first word is the job.
    pub fn run(&self, options: &[&str], command: &[&str]) -> Running {
        let arguments = [&["run"], options, &["--"], command].concat();
        self.start(self.fencepost(&arguments))
    }

    pub fn start(&self, mut command: Command) -> Running {
        let number = fs::read_dir(self.directory()).unwrap().count();
        let (stdout, stderr) = (self.path(&format!("stdout.{number}")), self.path(&format!("stderr.{number}")));
        command.stdout(File::create_new(&stdout).unwrap()).stderr(File::create_new(&stderr).unwrap());
        Running { child: command.spawn().unwrap(), stdout, stderr }
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.fencepost(arguments).output().unwrap()
    }

    /// Runs the job at once, whose lease must be free, and returns its token.
    pub fn next_token(&self, job: &str) -> u64 {
        let output = self.output(&["run", job, "-E", "99", "-c", "echo $FENCEPOST_TOKEN"]);
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(output.status.code(), Some(0), "{text} {}", String::from_utf8_lossy(&output.stderr));
        text.parse().unwrap()
    }

    /// How the job's runs ended, newest first.
    pub fn statuses(&self, job: &str) -> Vec<String> {
        // Of all jobs: asking for one that has no record yet is an error.
        let runs = self.runs(&["-n", "1000"]);
        let own = runs.iter().filter(|run| run["job"].as_str().is_some_and(|name| name.split('@').next() == Some(job)));
        own.map(|run| run["status"].as_str().unwrap().to_owned()).collect()
    }

    /// Everything alive that was started here, however far it has run from its parents.
    pub fn processes(&self) -> Vec<i32> {
        let mark = format!("{STATE_VARIABLE}={}\0", self.state().display()).into_bytes();
        let marked = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark) && is_alive(*pid)
        };
        all_pids().into_iter().filter(marked).collect()
    }

    /// Whether nothing is left. A process in the middle of an exec shows no environment, so that one look is not enough.
    pub fn is_deserted(&self) -> bool {
        (0..3).all(|_| self.processes().is_empty())
    }

    /// The pids of `TREE`, once all are there.
    pub fn tree(&self) -> Vec<i32> {
        TREE_FILES.map(|name| self.text(name).trim().parse().unwrap()).to_vec()
    }

    /// Waits for the file, complete with its last newline, and returns its text.
    pub fn text(&self, name: &str) -> String {
        let path = self.path(name);
        eventually(&format!("{name} is written"), || read(&path).ends_with('\n'));
        read(&path)
    }

    /// When `TREE` last said that it lives, in nanoseconds since 1970.
    pub fn last_beat(&self) -> u128 {
        let text = self.text("beats");
        text.lines().filter_map(|line| line.parse().ok()).max().unwrap()
    }

    pub fn beats_again(&self) {
        let since = wall_nanos();
        eventually("the job goes on", || self.last_beat() > since);
    }

    /// Lets `TREE` end by itself.
    pub fn let_go(&self) {
        fs::write(self.path("go"), "").unwrap();
    }

    /// A job that takes the lease over as soon as it can, and says whether anything of the tree runs at that moment. A
    /// shell whose child was stopped between vfork and exec waits for it in an uninterruptible sleep.
    pub fn successor(&self, job: &str) -> Running {
        let script = r#"for pid in $(cat child grandchild daemon 2>/dev/null); do
                            state=$(sed 's/.*) //; s/ .*//' /proc/$pid/stat 2>/dev/null)
                            case $state in ''|Z|T|D) ;; *) echo $pid is $state;; esac
                        done; echo $FENCEPOST_TOKEN"#;
        self.start(self.fencepost(&["run", job, "-w", "30s", "-E", "99", "-c", script]))
    }
}

impl Deref for Place {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let begun = Instant::now();
        while !self.is_deserted() && begun.elapsed() < PATIENCE {
            for pid in self.processes() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

/// A wrapper in the background, with its output in files.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The wrapper's keeper, once it is one.
    pub fn keeper(&self) -> i32 {
        // Without a name, a keeper is recognised by its watcher.
        let is_ready =
            |pid: &i32| if PORTABLE { !children_of(*pid).is_empty() } else { name(*pid) == "fencepost-keep" };
        let find = || children_of(self.pid()).into_iter().find(is_ready);
        eventually("there is a keeper", || find().is_some());
        find().unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// How it ended: the exit code, or 1000 more than the signal.
    pub fn wait(&mut self) -> i32 {
        eventually("the wrapper ends", || !self.is_running());
        let status = self.child.wait().unwrap();
        status.code().or(std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 1000 + signal)).unwrap()
    }

    pub fn ends_with(&mut self, code: i32) {
        let ended = self.wait();
        assert_eq!(ended, code, "{}", self.stderr());
    }

    pub fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// A successor ran and found nothing of the run before it running.
    pub fn succeeded_alone(&mut self) -> u64 {
        self.ends_with(0);
        self.stdout().trim().parse().unwrap_or_else(|_| panic!("{}", self.stdout()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wall_nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

const STATE_VARIABLE: &str = "FENCEPOST_STATE_DIR";
