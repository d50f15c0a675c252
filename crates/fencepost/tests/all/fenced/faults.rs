//! Faults in system calls, by strace: killed, failed or stopped at the N-th of a kind.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fencepost_testkit::process::{children_of, send, state};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Scene;

/// Calls that change something. To be killed before any other is to be killed before the next of these.
pub const CHANGING: &[&str] = &[
    "openat",
    "write",
    "fsync",
    "fdatasync",
    "renameat",
    "renameat2",
    "fchmod",
    "fchown",
    "fchownat",
    "flock",
    "unlinkat",
    "ftruncate",
    "mkdirat",
    "symlinkat",
    "copy_file_range",
    "utimensat",
];

/// Calls that can fail, besides.
pub const LOOKING: &[&str] = &["read", "statx", "readlinkat", "getdents64", "statfs", "lseek", "close"];

/// Runs the command once for every call of these kinds, each time with the fault at another one, and hands every result
/// to `judge`. Returns how many faults there were.
pub fn at_every(
    scene: &Scene,
    calls: &[&str],
    fault: &str,
    mut run: impl FnMut(&mut Command) -> Output,
    mut judge: impl FnMut(&str, &Output),
) -> usize {
    let mut faults = 0;
    for call in calls {
        for number in 1.. {
            let log = scene.aside("strace.log");
            let mut strace = strace(&format!("inject={call}:{fault}:when={number}"), call);
            strace.arg("-o").arg(&log);
            let output = run(&mut strace);
            let log = fs::read_to_string(&log).expect("strace is installed and may trace: apt-get install strace");
            let happened = log.contains("(INJECTED)") || log.contains("+++ killed by SIGKILL");
            judge(&format!("{fault} at {call} {number}"), &output);
            if !happened {
                break;
            }
            assert!(number < 500, "{call} never ends");
            faults += 1;
        }
    }
    println!("{fault}: {faults} faults");
    faults
}

/// The flushes and renames of a command in their order, each with the last two parts of the names it speaks of. What is
/// random in a name is left out.
pub fn order(scene: &Scene, token: u64, arguments: &[&str]) -> Vec<String> {
    let log = scene.aside("order.log");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-y", "-s", "4096", "-e", "trace=fsync,fdatasync,renameat,renameat2", "-o"]).arg(&log);
    scene.as_run(&mut strace, token);
    let output = strace.arg(super::FENCEPOST).arg("publish").args(arguments).output().expect("strace is installed");
    assert!(output.status.success(), "{output:?}");
    let log = fs::read_to_string(log).expect("what was traced");
    log.lines().map(|line| shown(line.split_once(' ').expect("a pid first").1.trim_start())).collect()
}

fn shown(call: &str) -> String {
    let (name, rest) = call.split_once('(').expect("a call");
    // A directory is shown as `5</path>`, and a name in it as `5</path>, "name"`.
    let rest = rest.replace(">, \"", "/").replace('"', ">");
    let paths = rest.split(['<', '>']).filter(|part| part.starts_with('/'));
    let short = paths.map(|path| {
        let parts: Vec<_> = path.rsplit('/').take(2).map(without_digits).collect();
        parts.into_iter().rev().collect::<Vec<_>>().join("/")
    });
    format!("{name} {}", short.collect::<Vec<_>>().join(" "))
}

/// Cuts a name off where its random part begins.
fn without_digits(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((start, random)) if random.len() >= 8 && random.chars().all(|c| c.is_ascii_hexdigit()) => start,
        _ => name,
    }
}

fn strace(inject: &str, trace: &str) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", &format!("trace={trace}"), "-e", inject]);
    strace
}

/// A command that is stopped at a system call, until it is told to go on.
pub struct Stopped {
    strace: Option<Child>,
    pid: i32,
}

impl Stopped {
    /// Starts `fencepost publish` with these arguments and waits until it has stopped just behind the N-th call of a kind.
    pub fn at(scene: &Scene, call: &str, number: usize, token: u64, arguments: &[&str]) -> Self {
        let mut strace = strace(&format!("inject={call}:signal=SIGSTOP:when={number}"), call);
        scene.as_run(&mut strace, token);
        strace.arg("-o").arg(scene.aside("stopped.log")).arg(super::FENCEPOST).arg("publish").args(arguments);
        let strace = strace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("strace is installed");
        let mut stopped = Self { pid: 0, strace: Some(strace) };
        let until = Instant::now() + Duration::from_secs(30);
        while stopped.pid == 0 || !is_stopped(stopped.pid) {
            assert!(Instant::now() < until, "it never stopped");
            sleep(Duration::from_millis(5));
            let strace = stopped.strace.as_ref().map_or(0, Child::id).cast_signed();
            stopped.pid = children_of(strace).first().copied().unwrap_or(0);
        }
        stopped
    }

    pub fn go_on(mut self) -> Output {
        send(self.pid, Signal::SIGCONT);
        self.strace.take().expect("it goes on once").wait_with_output().expect("strace ends")
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(mut strace) = self.strace.take() {
            if self.pid != 0 {
                let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            }
            let _ = strace.kill();
            let _ = strace.wait();
        }
    }
}

/// Whether the signal stopped it. A tracer also stops it for a moment at every call, so that it must stay so.
fn is_stopped(pid: i32) -> bool {
    (0..20).all(|_| {
        sleep(Duration::from_millis(5));
        matches!(state(pid), Some('T' | 't'))
    })
}
