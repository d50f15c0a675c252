//! One process of an incident, with all its descendants. It reports its progress on standard output and waits for cues
//! on standard input, so the order of events does not depend on the machine's speed.
//!
//! The cues also bound its life: if the demo is killed by SIGKILL, the script's next read returns end of file.
//! [`Waker`] handles processes that are stopped at that time.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::DemoError;
use super::sandbox::{Scenery, failed};

/// Grace period between SIGTERM and SIGKILL when the demo ends early.
const GRACE: Duration = Duration::from_secs(3);

/// Timeout of one step, for the slowest machine. A step waits for a process, never for time to pass.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// Longest sleep between two checks of a process.
const TICK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct Actor<'a> {
    scenery: &'a Scenery<'a>,
    who: &'static str,
    child: Child,
    cues: Option<ChildStdin>,
    output: ChildStdout,
    heard: Vec<u8>,
    errors: PathBuf,
    frozen: Vec<Pid>,
    waker: Option<Waker>,
}

impl<'a> Actor<'a> {
    /// Starts a process in its own process group: ctrl-C reaches only the demo, which then ends its processes.
    pub fn start(scenery: &'a Scenery<'a>, who: &'static str, mut command: Command) -> Result<Self, DemoError> {
        let errors = scenery.directory.join(format!("stderr-{}", uuid::Uuid::now_v7()));
        let file = File::create(&errors).map_err(failed(errors.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file).process_group(0);
        let mut child = command.spawn().map_err(failed("/bin/sh"))?;
        let (cues, output) = (child.stdin.take(), child.stdout.take().expect("standard output is a pipe"));
        Ok(Self { scenery, who, child, cues, output, heard: Vec::new(), errors, frozen: Vec::new(), waker: None })
    }

    /// Waits for the next line of its standard output.
    pub fn hear(&mut self) -> Result<String, DemoError> {
        let until = Instant::now() + STEP_LIMIT;
        loop {
            if let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_string());
            }
            if !self.fill()? {
                return Err(DemoError::Failed(format!("a process ({}) ended too early. {}", self.who, self.said()?)));
            }
            self.check(until)?;
        }
    }

    /// Sends the cue to continue.
    pub fn cue(&mut self) -> Result<(), DemoError> {
        match self.cues.as_mut().map(|cues| cues.write_all(b"go\n")) {
            // A process that has ended takes no cue; its exit code says how it ended.
            Some(Err(error)) if error.kind() != ErrorKind::BrokenPipe => Err(failed(self.who)(error)),
            _ => Ok(()),
        }
    }

    /// Waits until the process and its descendants have ended: end of file on their shared standard output. Shows how
    /// it ended, and returns its exit code as a shell reports it.
    pub fn end(mut self) -> Result<i32, DemoError> {
        let until = Instant::now() + STEP_LIMIT;
        while self.fill()? {
            self.check(until)?;
        }
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(failed(self.who))? {
                break status;
            }
            self.scenery.sandbox.wait(None, TICK)?;
            self.check(until)?;
        };
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        self.scenery.narrator.end(self.who, code, &self.said()?);
        Ok(code)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid is an i32"))
    }

    /// Stops processes with SIGSTOP, like a machine that goes to sleep. Dropping the actor continues them at the
    /// latest.
    pub fn freeze(&mut self, pids: &[Pid]) -> Result<(), DemoError> {
        self.waker = Some(Waker::start(pids).map_err(failed("/bin/sh"))?);
        for &pid in pids {
            let _ = kill(pid, Signal::SIGSTOP);
        }
        self.frozen = pids.to_vec();
        Ok(())
    }

    /// Continues one of the stopped processes.
    pub fn thaw(&mut self, pid: Pid) {
        if let Some(place) = self.frozen.iter().position(|&frozen| frozen == pid) {
            self.frozen.remove(place);
            let _ = kill(pid, Signal::SIGCONT);
        }
    }

    /// Continues all stopped processes.
    pub fn thaw_all(&mut self) {
        for pid in std::mem::take(&mut self.frozen) {
            let _ = kill(pid, Signal::SIGCONT);
        }
        self.waker = None;
    }

    /// Fails if a step takes too long.
    fn check(&self, until: Instant) -> Result<(), DemoError> {
        if Instant::now() < until {
            return Ok(());
        }
        let limit = STEP_LIMIT.as_secs();
        Err(DemoError::Failed(format!("a process ({}) did not go on within {limit} s. {}", self.who, self.said()?)))
    }

    /// Reads its next output, if any comes within a tick. False at end of file.
    fn fill(&mut self) -> Result<bool, DemoError> {
        self.scenery.sandbox.wait(Some(self.output.as_fd()), TICK)?;
        self.take().map_err(failed(self.who))
    }

    /// Reads the output that is available. False at end of file.
    fn take(&mut self) -> std::io::Result<bool> {
        let mut fds = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO)? == 0 {
            return Ok(true);
        }
        let mut bytes = [0; 4096];
        let count = self.output.read(&mut bytes)?;
        self.heard.extend_from_slice(&bytes[..count]);
        Ok(count > 0)
    }

    /// The last line on standard error.
    fn said(&self) -> Result<String, DemoError> {
        let name = self.errors.file_name().unwrap_or_default().to_string_lossy();
        Ok(self.scenery.lines(&name)?.pop().unwrap_or_default())
    }

    /// Waits until the process and its descendants have ended, up to `time`. A signal does not shorten this wait.
    fn is_gone_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let is_silent = !self.take().unwrap_or(false);
            if is_silent && matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return true;
            }
            std::thread::sleep(TICK);
        }
        false
    }
}

/// Ends the process if the demo ends first: SIGTERM, which `fencepost run` forwards to its job, then SIGKILL.
impl Drop for Actor<'_> {
    fn drop(&mut self) {
        self.cues = None;
        self.thaw_all();
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let group = self.pid();
        let _ = killpg(group, Signal::SIGTERM);
        let _ = killpg(group, Signal::SIGCONT);
        if !self.is_gone_within(GRACE) {
            let _ = killpg(group, Signal::SIGKILL);
            self.is_gone_within(GRACE);
        }
    }
}

/// A process that continues the stopped processes if the demo is killed by SIGKILL: its input then ends without a line.
#[derive(Debug)]
struct Waker {
    child: Child,
}

impl Waker {
    fn start(pids: &[Pid]) -> std::io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r _ || kill -CONT \"$@\"", "sh"]).args(pids.iter().map(Pid::to_string));
        Ok(Self { child: command.stdin(Stdio::piped()).process_group(0).spawn()? })
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        let _ = self.child.stdin.take().map(|mut input| input.write_all(b"\n"));
        let _ = self.child.wait();
    }
}
