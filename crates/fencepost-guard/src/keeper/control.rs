//! What the keeper asks of the system, and what differs between systems.

use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use nix::unistd::Pid;

use crate::sys::{Change, ProcessEntry};

/// Finds the processes of a job and ties them to the keeper. The wrapper has one too, for the case that the keeper dies.
pub(crate) trait ProcessControl: Debug + Default {
    /// How often to look at a tree that is ending, if no signal tells of its end.
    const LOOK_INTERVAL: Duration;
    /// Another process kills the tree when the keeper dies, and closes its copy of the keeper's channel afterwards.
    const HAS_WATCHER: bool;

    /// Has orphaned descendants become children of the calling process, where the system can.
    fn adopt_orphans() -> io::Result<()>;

    /// The children that the calling process already has. A shell that used `exec` leaves its own.
    fn bystanders() -> Vec<i32>;

    /// Prepares the keeper before its first job.
    fn prepare(&mut self, channel: BorrowedFd<'_>) -> io::Result<()>;

    /// The descriptors that the keeper has to keep open for this.
    fn descriptors(&self) -> Vec<RawFd>;

    /// Ties the job to its keeper. Runs in the new process, in its own group: it must neither allocate nor lock.
    fn tie(&self, keeper: Pid) -> io::Result<()>;

    /// The next state change of a child, without blocking: of the job's first process, or of any other.
    fn next_change(&mut self, first: Option<Pid>) -> io::Result<Option<(Pid, Change)>>;

    /// Whether the group's number stays reserved after the job's first process has ended.
    fn keeps_group(&self) -> bool;

    /// The living processes of the job.
    fn members(&mut self, group: Option<Pid>, bystanders: &[i32]) -> io::Result<Vec<ProcessEntry>>;

    /// Whether no process of the job is left, given whether the kernel reports children.
    fn is_empty(&mut self, group: Option<Pid>, has_children: bool) -> bool;

    /// Becomes readable when processes of the job forked or ended.
    fn alarm(&self) -> Option<BorrowedFd<'_>>;

    /// Looks at the running job and remembers its processes. Returns when to look again, at the latest.
    fn look(&mut self, group: Option<Pid>) -> Option<Duration>;

    /// Forgets a job of which no process is left, or none that can be killed.
    fn forget(&mut self, group: Option<Pid>);

    /// The keeper leaves and has no job.
    fn leave(&mut self);
}
