//! A run that `up` started as a process. It writes its events into a pipe.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::unistd::pipe;

use crate::sys;

/// Maximum length of a line in bytes. No event is longer.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// A running `fencepost run`.
#[derive(Debug)]
pub struct SpawnedRun {
    child: Child,
    events: File,
    /// The start of a line whose end has not arrived.
    rest: Vec<u8>,
}

impl SpawnedRun {
    /// Starts a command in its own process group: a key pressed at a terminal does not signal it. The arguments get the
    /// number of the descriptor for its events.
    pub fn start(mut command: Command, arguments: impl FnOnce(&mut Command, i32)) -> io::Result<Self> {
        let (read, write): (OwnedFd, OwnedFd) = pipe()?;
        fcntl(&read, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        arguments(&mut command, write.as_raw_fd());
        let child = command.process_group(0).spawn()?;
        Ok(Self { child, events: File::from(read), rest: Vec::new() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the lines that have arrived, without blocking.
    pub fn lines(&mut self) -> Vec<String> {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = self.events.read(&mut buffer) {
            self.rest.extend_from_slice(&buffer[..count]);
        }
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        if self.rest.len() > LINE_BYTES_MAX {
            self.rest.clear();
        }
        lines
    }

    /// The exit code as a shell shows it, once the process has ended.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: i32) {
        let _ = i32::try_from(self.child.id()).map(|pid| sys::send(pid, signal));
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
