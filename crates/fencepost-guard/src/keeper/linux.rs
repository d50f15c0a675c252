//! Linux: the keeper is a subreaper, and the kernel kills the job with it.
//!
//! A daemon that was orphaned on purpose becomes the keeper's child, and the tree is empty when the kernel says that
//! there are no children.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::ESRCH;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, getpid, getppid};

use super::control::ProcessControl;
use crate::sys::{self, Change, ProcessEntry, ProcessState};

pub(crate) use self::Subreaper as SystemControl;

#[derive(Debug, Default)]
pub(crate) struct Subreaper;

impl ProcessControl for Subreaper {
    /// SIGCHLD tells the end of every process.
    const LOOK_INTERVAL: Duration = Duration::MAX;
    const HAS_WATCHER: bool = false;

    fn adopt_orphans() -> io::Result<()> {
        Ok(prctl::set_child_subreaper(true)?)
    }

    fn bystanders() -> Vec<i32> {
        // Most have none, and ECHILD is faster than a listing.
        let any = WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::WEXITED | WaitPidFlag::__WALL;
        if waitid(Id::All, any) == Err(Errno::ECHILD) {
            return Vec::new();
        }
        let list = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    fn prepare(&mut self, _: BorrowedFd<'_>) -> io::Result<()> {
        // The name is for people; a failure does not matter.
        let _ = prctl::set_name(c"fencepost-keep");
        Ok(())
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// Has the kernel kill the job when the keeper dies, or at once if it is already dead.
    fn tie(&self, keeper: Pid) -> io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The error is a number, because nothing may be allocated here.
        if getppid() == keeper { Ok(()) } else { Err(io::Error::from_raw_os_error(ESRCH)) }
    }

    fn next_change(&mut self, _: Option<Pid>) -> io::Result<Option<(Pid, Change)>> {
        sys::next_change()
    }

    fn keeps_group(&self) -> bool {
        false
    }

    /// All descendants of this process.
    fn members(&mut self, _: Option<Pid>, bystanders: &[i32]) -> io::Result<Vec<ProcessEntry>> {
        let all = sys::processes()?;
        let own = getpid().as_raw();
        let mut inside = HashSet::from([own]);
        // A parent may have a higher pid than its child, so one pass is not enough.
        loop {
            let is_new = |entry: &&ProcessEntry| {
                !inside.contains(&entry.pid) && inside.contains(&entry.parent) && !bystanders.contains(&entry.pid)
            };
            let found: Vec<i32> = all.iter().filter(is_new).map(|entry| entry.pid).collect();
            if found.is_empty() {
                break;
            }
            inside.extend(found);
        }
        inside.remove(&own);
        let lives = |entry: &ProcessEntry| inside.contains(&entry.pid) && entry.state != ProcessState::Dead;
        Ok(all.into_iter().filter(lives).collect())
    }

    /// A scan can miss a process that is just forking. The kernel's answer is final.
    fn is_empty(&mut self, _: Option<Pid>, has_children: bool) -> bool {
        !has_children
    }

    fn alarm(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn look(&mut self, _: Option<Pid>) -> Option<Duration> {
        None
    }

    fn forget(&mut self, _: Option<Pid>) {}

    fn leave(&mut self) {}
}
