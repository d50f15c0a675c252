//! Who has the terminal: the job, while it runs in the foreground, or the wrapper and whoever started it.
//!
//! The job is in a process group of its own, so that it cannot read from the terminal unless its group is made the
//! foreground group. A shell does the same for its jobs; the wrapper is a small shell in this respect only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getpid, isatty, tcgetpgrp, tcsetpgrp};

use crate::sys;

/// The terminal that controls this session.
#[derive(Debug)]
pub struct Terminal {
    tty: File,
    own: Pid,
    /// The group that has it instead of ours.
    lent: Option<Pid>,
    /// How it was set when we last had it.
    modes: Option<Termios>,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub fn detect() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let mut terminal = Self { tty, own: getpgrp(), lent: None, modes: None };
        if terminal.is_ours() {
            terminal.save_modes();
        }
        Some(terminal)
    }

    /// Whether a job started now belongs in the foreground: standard input is this terminal, and we have it.
    ///
    /// A job whose input comes from elsewhere is lent the terminal when it asks for it, by stopping with SIGTTIN or
    /// SIGTTOU: a password prompt in the middle of a pipeline.
    pub fn is_for_reading(&self) -> bool {
        isatty(sys::stdin()).unwrap_or(false) && tcgetpgrp(sys::stdin()).is_ok_and(|group| group == self.own)
    }

    /// Whether our group is in the foreground.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(self.tty.as_fd()).is_ok_and(|group| group == self.own)
    }

    /// Makes the job's group the foreground group. Also to be told when a foreground job has taken it by itself.
    pub fn lend(&mut self, group: i32) -> io::Result<()> {
        let group = Pid::from_raw(group);
        if self.is_ours() {
            self.save_modes();
        }
        self.lent = Some(group);
        self.hand_to(group)
    }

    /// Makes our group the foreground group again, unless somebody else has taken the terminal from the job meanwhile:
    /// the shell, when we were put in the background.
    ///
    /// With `restore`, for a job that was killed, it is also set as it was before, so that an editor killed in the
    /// middle leaves no terminal that echoes nothing.
    pub fn take_back(&mut self, restore: bool) -> io::Result<()> {
        let lent = self.lent.take();
        let holder = tcgetpgrp(self.tty.as_fd())?;
        if holder != self.own {
            if Some(holder) != lent && exists(holder) {
                return Ok(());
            }
            self.hand_to(self.own)?;
        }
        match &self.modes {
            Some(modes) if restore => Ok(quietly(|| tcsetattr(self.tty.as_fd(), SetArg::TCSADRAIN, modes))?),
            _ => Ok(()),
        }
    }

    /// Whether a group other than ours was given it.
    pub fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    fn save_modes(&mut self) {
        self.modes = tcgetattr(self.tty.as_fd()).ok();
    }

    fn hand_to(&self, group: Pid) -> io::Result<()> {
        Ok(quietly(|| tcsetpgrp(self.tty.as_fd(), group))?)
    }
}

/// Gives our whole process group the signal that the terminal gave to the job's, as it would have done had the job been in
/// ours: ctrl-Z stops the script that we are a part of, and ctrl-C ends it.
///
/// Returns when we are continued; also where nobody could continue us (the group is orphaned), for the kernel does not
/// stop us then.
pub fn share(signal: i32) -> io::Result<()> {
    take(signal, 0)
}

/// Ends by a signal that our whole group has got already: who waits for us tells by our end whether it was dealt with.
pub fn end_by(signal: i32) -> io::Result<()> {
    take(signal, getpid().as_raw())
}

/// Sends the signal, and takes it as anybody would.
fn take(signal: i32, to: i32) -> io::Result<()> {
    // The wrapper has a handler for it, and only the default action stops or ends. SIGSTOP has no other.
    sys::with_default(signal, || {
        let sent = sys::send(to, signal);
        // Another thread may be the one that takes the signal, a moment later.
        std::thread::sleep(TAKE_EFFECT);
        sent
    })
}

/// Changing a terminal from the background stops the caller by SIGTTOU, unless that is blocked.
fn quietly<T>(change: impl FnOnce() -> nix::Result<T>) -> nix::Result<T> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let changed = change();
    before.thread_set_mask()?;
    changed
}

fn exists(group: Pid) -> bool {
    // A group that we may not signal exists all the same.
    group.as_raw() > 1 && killpg(group, None) != Err(Errno::ESRCH)
}

const TAKE_EFFECT: Duration = Duration::from_millis(20);
