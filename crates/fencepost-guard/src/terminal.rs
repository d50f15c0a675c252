//! Terminal control: the job's process group or the wrapper's is the foreground group.
//!
//! The job has its own process group, and only the foreground group can read from the terminal. The wrapper moves the
//! terminal between the groups, as a shell does for its jobs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getpid, isatty, tcgetpgrp, tcsetpgrp};

use crate::sys;

/// The controlling terminal of this session.
#[derive(Debug)]
pub struct Terminal {
    tty: File,
    own: Pid,
    /// The foreground group, if it is not the wrapper's.
    lent: Option<Pid>,
    /// The terminal's settings when the wrapper last had it.
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

    /// Whether a job started now belongs in the foreground: standard input is this terminal, and the wrapper's group is
    /// in its foreground.
    ///
    /// A job whose input comes from elsewhere gets the terminal when it asks for it by stopping with SIGTTIN or
    /// SIGTTOU, for example a password prompt in the middle of a pipeline.
    pub fn is_for_reading(&self) -> bool {
        isatty(sys::stdin()).unwrap_or(false) && tcgetpgrp(sys::stdin()).is_ok_and(|group| group == self.own)
    }

    /// Whether the wrapper's group is in the foreground.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(self.tty.as_fd()).is_ok_and(|group| group == self.own)
    }

    /// Makes the job's group the foreground group. Also call it when a foreground job has taken the terminal itself.
    pub fn lend(&mut self, group: i32) -> io::Result<()> {
        let group = Pid::from_raw(group);
        if self.is_ours() {
            self.save_modes();
        }
        self.lent = Some(group);
        self.hand_to(group)
    }

    /// Makes the wrapper's group the foreground group again, unless another group has taken the terminal from the job:
    /// the shell does so when it puts the wrapper in the background.
    ///
    /// With `restore`, for a job that was killed, also restores the terminal's settings. A killed editor would
    /// otherwise leave a terminal without echo.
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

    /// Whether another group was given the terminal.
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

/// Sends the wrapper's whole process group the signal that the terminal sent to the job's group: ctrl-Z stops the
/// script around the wrapper, and ctrl-C ends it.
///
/// Returns when this process is continued. In an orphaned group it returns at once, because the kernel does not stop
/// the process there.
pub fn share(signal: i32) -> io::Result<()> {
    take(signal, 0)
}

/// Ends this process by a signal that its whole group has received. A shell that waits for it checks how it ended.
pub fn end_by(signal: i32) -> io::Result<()> {
    take(signal, getpid().as_raw())
}

/// Sends the signal and takes its default action.
fn take(signal: i32, to: i32) -> io::Result<()> {
    // Removes the wrapper's handler: only the default action stops or ends the process. SIGSTOP has no handler.
    sys::with_default(signal, || {
        let sent = sys::send(to, signal);
        // The kernel may deliver the signal to another thread, a moment later.
        std::thread::sleep(TAKE_EFFECT);
        sent
    })
}

/// Blocks SIGTTOU: changing a terminal from the background would stop the caller.
fn quietly<T>(change: impl FnOnce() -> nix::Result<T>) -> nix::Result<T> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let changed = change();
    before.thread_set_mask()?;
    changed
}

fn exists(group: Pid) -> bool {
    // EPERM means that the group exists.
    group.as_raw() > 1 && killpg(group, None) != Err(Errno::ESRCH)
}

const TAKE_EFFECT: Duration = Duration::from_millis(20);
