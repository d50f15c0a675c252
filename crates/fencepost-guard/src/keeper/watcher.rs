//! The watcher: a process that kills the job if its keeper dies, on systems where the kernel does not.
//!
//! The keeper forks it before the first job. The job itself tells it of its process group before the job's program
//! starts, so there is no moment in which the job runs and the watcher does not know of it. The watcher holds a copy of
//! the keeper's end of the channel: the wrapper learns of a dead keeper when the watcher has killed the tree and is
//! gone too. If keeper and watcher are killed together, the wrapper kills the process group that it knows.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::ESRCH;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid, setpgid};

use crate::clock::boot_now;
use crate::keeper::tree::{Killer, Tree};
use crate::keeper::{STRIKE_INTERVAL, spawn};
use crate::sys::{self, ExitWatch};

/// The keeper's handle on the watcher.
#[derive(Debug)]
pub(super) struct Watcher {
    pid: Pid,
    orders: PipeWriter,
}

impl Watcher {
    /// Forks the watcher. The caller has one thread.
    pub(super) fn start(channel: BorrowedFd<'_>) -> io::Result<Self> {
        let (heard, orders) = io::pipe()?;
        for end in [heard.as_fd(), orders.as_fd()] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let keeper = getpid();
        match sys::split()? {
            Some(pid) => Ok(Self { pid, orders }),
            None => {
                drop(orders);
                let _ = catch_unwind(AssertUnwindSafe(|| watch(keeper, heard, channel)));
                sys::exit_now(0)
            }
        }
    }

    /// Sends an order. Neither blocks nor allocates.
    pub(super) fn tell(&self, order: WatcherOrder) -> io::Result<()> {
        (&self.orders).write_all(&order.to_bytes())
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.orders.as_raw_fd()
    }

    /// Ends the watcher of a keeper that has no job.
    pub(super) fn dismiss(self) {
        let _ = sys::send(self.pid.as_raw(), Signal::SIGKILL as i32);
        sys::wait_for(self.pid);
    }
}

/// Fails unless the calling process is a child of `keeper`. The error is a number: nothing may be allocated here.
pub(super) fn is_parent(keeper: Pid) -> io::Result<()> {
    if getppid() == keeper { Ok(()) } else { Err(io::Error::from_raw_os_error(ESRCH)) }
}

/// What the keeper tells the watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatcherOrder {
    /// A job starts, with this process group.
    Begin { group: i32 },
    /// This process is also of the job, though not of its group.
    Also { pid: i32, mark: u64 },
    /// No process of the job is left.
    End,
}

/// A pipe takes so few bytes completely or not at all.
const ORDER_BYTES: usize = 16;

impl WatcherOrder {
    fn to_bytes(self) -> [u8; ORDER_BYTES] {
        let (kind, pid, mark) = match self {
            Self::End => (0_u32, 0, 0),
            Self::Begin { group } => (1, group, 0),
            Self::Also { pid, mark } => (2, pid, mark),
        };
        let mut bytes = [0; ORDER_BYTES];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&pid.to_ne_bytes());
        bytes[8..].copy_from_slice(&mark.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; ORDER_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, mark @ ..] = bytes;
        let pid = i32::from_ne_bytes([e, f, g, h]);
        match u32::from_ne_bytes([a, b, c, d]) {
            1 => Self::Begin { group: pid },
            2 => Self::Also { pid, mark: u64::from_ne_bytes(mark) },
            _ => Self::End,
        }
    }
}

/// The main function of the watcher: waits for the keeper's death, then kills the job that is running, if any.
fn watch(keeper: Pid, mut orders: PipeReader, channel: BorrowedFd<'_>) -> io::Result<()> {
    // A signal to the keeper's group or to the wrapper's does not reach it.
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    spawn::let_go(&[orders.as_raw_fd(), channel.as_raw_fd()])?;
    let exit = ExitWatch::of(keeper.as_raw());
    let mut tree = Tree::default();
    while getppid() == keeper {
        let mut fds = vec![PollFd::new(orders.as_fd(), PollFlags::POLLIN)];
        fds.extend(exit.as_ref().ok().map(|exit| PollFd::new(exit.fd(), PollFlags::POLLIN)));
        // The only error is EINTR, and the loop looks at everything anyway.
        let _ = poll(&mut fds, PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO));
        let has_exited = fds.get(1).and_then(PollFd::any) == Some(true);
        take_orders(&mut orders, &mut tree);
        if has_exited {
            break;
        }
    }
    take_orders(&mut orders, &mut tree);
    if tree.group.is_some() {
        end(&mut tree);
        if is_closed(channel) {
            let line = b"fencepost: the wrapper and the keeper of a job died; the watcher killed the job\n";
            let _ = io::stderr().write_all(line);
        }
    }
    Ok(())
}

fn take_orders(orders: &mut PipeReader, tree: &mut Tree) {
    let mut bytes = [0; ORDER_BYTES];
    while orders.read_exact(&mut bytes).is_ok() {
        match WatcherOrder::from_bytes(bytes) {
            WatcherOrder::Begin { group } => tree.group = Some(Pid::from_raw(group)),
            WatcherOrder::Also { pid, mark } => tree.control.remember(pid, mark),
            WatcherOrder::End => tree.forget(),
        }
    }
}

/// Kills the tree at once: the lease may pass on as soon as wrapper and keeper are gone.
fn end(tree: &mut Tree) {
    let mut killer = Killer::default();
    while !tree.is_empty(true) {
        if killer.strike(tree, boot_now()).is_some() {
            return;
        }
        std::thread::sleep(STRIKE_INTERVAL);
    }
}

/// Whether the wrapper has closed its end of the channel.
fn is_closed(channel: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::POLLIN)];
    let _ = poll(&mut fds, PollTimeout::ZERO);
    fds[0].revents().is_some_and(|found| found.contains(PollFlags::POLLHUP))
}

/// How often to look for the keeper where its exit cannot be watched.
const LOOK: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let also = WatcherOrder::Also { pid: 4711, mark: u64::MAX - 1 };
        for order in [WatcherOrder::Begin { group: 42 }, also, WatcherOrder::End] {
            assert_eq!(WatcherOrder::from_bytes(order.to_bytes()), order);
        }
    }
}
