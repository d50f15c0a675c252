//! Signals to the wrapper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::libc::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::sys;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedSignal {
    /// A signal that asks this process to end.
    End(i32),
    /// This process was continued after a stop, or is asked to check its lease now.
    Continued,
    Other(i32),
}

/// Received signals, and a descriptor to wait on. A signal that was ignored at start stays ignored, as `nohup` and a
/// shell's background jobs expect.
#[derive(Debug)]
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    asked_to_end: Option<i32>,
}

impl Signals {
    /// Call this on the thread that drives the run: only there does a bus error end the process.
    pub fn listen() -> io::Result<Self> {
        sys::hang_on_bus_error()?;
        Self::listen_to(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGCONT])
    }

    /// Also reports SIGCHLD, for a process that starts others and waits for them.
    pub fn of_daemon() -> io::Result<Self> {
        Self::listen_to(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCONT, SIGCHLD])
    }

    /// Receives the signals that ask a process to end, for a process that outlives them: it ends with its input. A handler,
    /// unlike an ignored signal, is not inherited by the commands that the process starts.
    pub fn outlived() -> io::Result<Self> {
        Self::listen_to(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM])
    }

    fn listen_to(wanted: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let heard = wanted.iter().copied().filter(|&signal| !sys::is_ignored(signal));
        Ok(Self { delivery: SignalDelivery::with_pipe(read, write, SignalOnly, heard)?, asked_to_end: None })
    }

    pub fn pending(&mut self) -> Vec<ReceivedSignal> {
        let received = |signal| match signal {
            SIGHUP | SIGINT | SIGQUIT | SIGTERM => ReceivedSignal::End(signal),
            SIGCONT => ReceivedSignal::Continued,
            other => ReceivedSignal::Other(other),
        };
        let pending: Vec<ReceivedSignal> = self.delivery.pending().map(received).collect();
        for received in &pending {
            if let ReceivedSignal::End(signal) = received {
                self.asked_to_end = Some(*signal);
            }
        }
        pending
    }

    /// The last signal received so far that asks this process to end.
    pub fn asked_to_end(&self) -> Option<i32> {
        self.asked_to_end
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}
