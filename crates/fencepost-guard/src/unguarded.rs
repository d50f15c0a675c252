//! Runs a command without a lease, and passes on signals that ask it to end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use fencepost_core::run::Exit;
use nix::errno::Errno;
use nix::libc::{SIGHUP, SIGTERM};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::signals::{ReceivedSignal, Signals};
use crate::sys;
use crate::task::BackgroundTask;

/// Runs the command and waits for it. It is in our process group, so it gets the terminal's signals directly.
pub fn run_unguarded(mut command: Command) -> io::Result<Exit> {
    let mut signals = Signals::listen()?;
    let mut child = command.spawn()?;
    let pid = child.id().cast_signed();
    let task = BackgroundTask::start("wait", move || child.wait())?;
    loop {
        if let Some(status) = task.result() {
            let status = status?;
            return Ok(status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or(0)), Exit::Code));
        }
        for received in signals.pending() {
            if let ReceivedSignal::End(signal @ (SIGTERM | SIGHUP)) = received {
                let _ = sys::send(pid, signal);
            }
        }
        let mut fds = [PollFd::new(task.fd(), PollFlags::POLLIN), PollFd::new(signals.fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
