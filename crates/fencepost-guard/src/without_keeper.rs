//! A command without a keeper: the fallback of an observed run whose keeper has died.
//!
//! Nothing terminates such a command. The wrapper only waits for it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use fencepost_core::run::Exit;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use crate::keeper::Spawn;
use crate::sys::{self, Change, ExitWatch};
use crate::task::BackgroundTask;

#[derive(Debug)]
pub(crate) struct CommandWithoutKeeper {
    pid: i32,
    ended: BackgroundTask<Option<Exit>>,
}

impl CommandWithoutKeeper {
    /// Starts the command, in this process's own group: there is no keeper to hand the terminal to another.
    pub(crate) fn start(job: &Spawn) -> io::Result<Self> {
        let program = job.argv.first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.args(&job.argv[1..]);
        for (name, value) in &job.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &job.cwd {
            command.current_dir(directory);
        }
        // If the output file cannot be opened, the output goes to the wrapper's own.
        let append = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path).ok();
        if let Some(file) = job.stdout.as_ref().and_then(append) {
            command.stdout(file);
        }
        if let Some(file) = job.stderr.as_ref().and_then(append) {
            command.stderr(file);
        }
        Self::adopt(command.spawn()?.id().cast_signed())
    }

    /// Waits for a command that its keeper left to this process.
    pub(crate) fn adopt(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, ended: BackgroundTask::start("wait", move || exit_of(pid))? })
    }

    pub(crate) fn send(&self, signal: i32) {
        // A command that has ended needs no signal.
        let _ = sys::send(self.pid, signal);
    }

    /// How the command ended, once it has. The inner `None`: it had ended before it could be waited for.
    pub(crate) fn ended(&self) -> Option<Option<Exit>> {
        self.ended.result()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ended.fd()
    }
}

fn exit_of(pid: i32) -> Option<Exit> {
    match sys::wait_for(Pid::from_raw(pid)) {
        Some(Change::Exited(code)) => Some(Exit::Code(code)),
        Some(Change::Killed(signal)) => Some(Exit::Signal(signal)),
        Some(Change::Stopped(_) | Change::Continued) => None,
        // Without a subreaper the orphan is init's child. Only the moment of its end can be learnt.
        None => {
            if let Ok(exit) = ExitWatch::of(pid) {
                while poll(&mut [PollFd::new(exit.fd(), PollFlags::POLLIN)], PollTimeout::NONE) == Err(Errno::EINTR) {}
            }
            None
        }
    }
}
