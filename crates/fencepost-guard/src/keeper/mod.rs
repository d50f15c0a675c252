//! The keeper: a separate process that starts the job and enforces its deadline, even if the wrapper fails.
//!
//! The wrapper renews the lease. It may hang, be stopped or be killed meanwhile. So it first forks the keeper, which
//! starts the job, receives each new deadline, and enforces it alone. If the wrapper dies, the keeper terminates the
//! tree. If the keeper dies, the wrapper kills the tree ([`Keeper::sweep`]).
//!
//! What differs between systems is behind one trait (`control.rs`): `linux.rs`, and `portable.rs` for macOS.

mod body;
mod control;
mod protocol;
mod spawn;
#[cfg_attr(all(target_os = "linux", not(feature = "portable-processes")), path = "linux.rs")]
#[cfg_attr(any(not(target_os = "linux"), feature = "portable-processes"), path = "portable.rs")]
mod system;
mod tree;

#[cfg(all(feature = "portable-processes", not(debug_assertions)))]
compile_error!("the feature portable-processes is for tests; build without it");

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fencepost_core::record;
use fencepost_core::time::Boot;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::Pid;

use crate::clock::boot_now;
use crate::host;
use crate::sys;
use control::ProcessControl;
use protocol::{Channel, ChannelRead};
pub use protocol::{JobExit, KeeperOrder, NamedProcess, Report, Spawn, SpawnStep};
use system::SystemControl;
use tree::{Killer, Tree};

/// The wrapper's handle on its keeper.
#[derive(Debug)]
pub struct Keeper {
    pid: Pid,
    /// `None` once closed.
    channel: Option<Channel>,
    /// Another command follows the current one.
    more_to_come: bool,
    /// The tree is empty and the last report was received.
    is_done: bool,
    /// The wrapper's descendants, including the keeper.
    tree: Tree,
}

/// The result of reading from the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Report(Report),
    /// No report is waiting.
    Nothing,
    /// The keeper has exited because the tree is empty.
    Left,
    /// The keeper has died; [`Keeper::sweep`] kills its tree.
    Gone,
}

impl Keeper {
    /// Forks the keeper. Fails unless the process has a single thread: only then is a fork without exec safe.
    ///
    /// The job inherits the signal dispositions and the mask that are in force now, so call this before any handler is
    /// installed.
    pub fn start() -> io::Result<Self> {
        if !sys::is_single_threaded() {
            return Err(io::Error::other("the keeper has to be started before the first thread"));
        }
        let (channel, keepers) = Channel::pair()?;
        SystemControl::adopt_orphans()?;
        let tree = Tree { bystanders: SystemControl::bystanders(), ..Tree::default() };
        // Restores SIGCHLD: if it was inherited as ignored, wait() cannot return the keeper's status.
        let mut ignored = Vec::new();
        if sys::restore_default(Signal::SIGCHLD)? {
            ignored.push(Signal::SIGCHLD);
        }
        // Blocks signals: a ctrl-C before the keeper ignores SIGINT would kill it.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let forked = sys::split();
        if let Ok(None) = forked {
            drop(channel);
            be_keeper(keepers, spawn::Inherited { mask, ignored, env: BTreeMap::new() });
        }
        mask.thread_set_mask()?;
        let pid = forked?.expect("the child does not get here");
        Ok(Self { pid, channel: Some(channel), more_to_come: false, is_done: false, tree })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Identifies the keeper for later observers by pid and start time.
    pub fn mark(&self) -> Option<record::Process> {
        host::process(self.pid())
    }

    /// Tells the keeper to prepare for a job while the wrapper talks to the store.
    pub fn get_ready(&mut self) {
        // A dead keeper is noticed at the next order.
        let _ = self.send(&KeeperOrder::GetReady);
    }

    /// The descriptor to poll for reports. Call [`receive`](Self::receive) until it returns none first: one wake-up may
    /// bring several reports.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel().fd()
    }

    /// Sends an order. Fails if the keeper is gone or does not read for five seconds.
    pub fn send(&mut self, order: &KeeperOrder) -> io::Result<()> {
        if let KeeperOrder::Spawn(job) = order {
            self.more_to_come = job.more_to_come;
        }
        let channel = self.channel.as_mut().expect(OPEN);
        channel.push(order)?;
        let until = boot_now() + SEND_TIMEOUT;
        loop {
            channel.flush()?;
            if channel.backlog() == 0 {
                return Ok(());
            }
            wait_for_room(channel, until)?;
        }
    }

    /// The next report, without waiting.
    pub fn receive(&mut self) -> Heard {
        match self.channel.as_mut().expect(OPEN).receive() {
            ChannelRead::Message(report) => {
                self.note(&report);
                Heard::Report(report)
            }
            ChannelRead::Nothing => Heard::Nothing,
            ChannelRead::Closed if self.is_done => Heard::Left,
            ChannelRead::Closed => Heard::Gone,
        }
    }

    /// Closes the channel and waits for the keeper to exit. The keeper terminates a remaining tree first.
    pub fn close(self) {
        drop(self);
    }

    /// Releases a keeper whose tree is empty. It exits by itself while the wrapper continues.
    pub fn dismiss(mut self) -> Dismissed {
        self.channel = None;
        let _ = sys::send(self.pid(), Signal::SIGCONT as i32);
        Dismissed { pid: self.pid }
    }

    /// Kills the tree of a dead keeper and returns the processes that could not be killed.
    ///
    /// Kills every descendant of the wrapper, including commands that the wrapper itself runs, but not processes that
    /// existed before the keeper.
    pub fn sweep(mut self) -> Vec<NamedProcess> {
        self.end_keeper();
        let mut killer = Killer::default();
        let mut empty_rounds = 0;
        while !self.tree.is_empty(reap_any()) && empty_rounds < 2 {
            if let Some(escaped) = killer.strike(&mut self.tree, boot_now()) {
                return escaped;
            }
            // With bystanders waitpid never answers ECHILD; and a single scan can miss a process that just forked.
            let is_empty = self.tree.members().is_ok_and(|members| members.is_empty());
            empty_rounds = if is_empty { empty_rounds + 1 } else { 0 };
            std::thread::sleep(STRIKE_INTERVAL);
        }
        Vec::new()
    }

    /// Reaps a dead keeper and leaves its job running. Returns the job's pid if the job became a child of this process.
    pub(crate) fn bury(mut self) -> Option<i32> {
        self.end_keeper();
        let of_job = |pid: &i32| !self.tree.bystanders.contains(pid);
        self.tree.group.map(Pid::as_raw).or_else(|| SystemControl::bystanders().into_iter().find(of_job))
    }

    /// Reaps the keeper. It may have closed its end of the channel without dying, or may be stopped.
    fn end_keeper(&mut self) {
        let channel = self.channel.take();
        let _ = sys::send(self.pid(), Signal::SIGKILL as i32);
        sys::wait_for(self.pid);
        if let Some(channel) = channel.filter(|_| SystemControl::HAS_WATCHER) {
            self.await_watcher(channel);
        }
    }

    /// Reads the keeper's last reports and waits until the watcher has killed the tree and closed the channel.
    fn await_watcher(&mut self, mut channel: Channel) {
        let until = boot_now() + WATCHER_TIMEOUT;
        loop {
            match channel.receive() {
                ChannelRead::Message(report) => self.note(&report),
                ChannelRead::Closed => return,
                ChannelRead::Nothing => {
                    let left = until.since(boot_now());
                    if left.is_zero() {
                        return;
                    }
                    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                    let _ = poll(&mut [PollFd::new(channel.fd(), PollFlags::POLLIN)], timeout);
                }
            }
        }
    }

    fn note(&mut self, report: &Report) {
        match report {
            // Without a subreaper, a sweep finds the tree by its process group.
            Report::Spawned { pid } => self.tree.group = Some(Pid::from_raw(*pid)),
            Report::ChildEnded { .. } => self.tree.first_ended(),
            Report::Empty { .. } => {
                self.tree.forget();
                self.is_done = !self.more_to_come;
            }
            _ => {}
        }
    }

    fn channel(&self) -> &Channel {
        self.channel.as_ref().expect(OPEN)
    }
}

/// A keeper that is exiting. Dropping this reaps it: an unreaped zombie would pass to a parent that may never wait.
#[derive(Debug)]
pub struct Dismissed {
    pid: Pid,
}

impl Drop for Dismissed {
    fn drop(&mut self) {
        sys::wait_for(self.pid);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.channel.take().is_some() {
            // A stopped keeper would never notice that the channel closed.
            let _ = sys::send(self.pid(), Signal::SIGCONT as i32);
            sys::wait_for(self.pid);
        }
    }
}

/// The main function of the forked child. It never returns into the wrapper's code, not even by a panic.
fn be_keeper(channel: Channel, inherited: spawn::Inherited) -> ! {
    let done = catch_unwind(AssertUnwindSafe(|| body::run(channel, inherited)));
    sys::exit_now(if matches!(done, Ok(Ok(()))) { 0 } else { 1 })
}

fn wait_for_room(channel: &Channel, until: Boot) -> io::Result<()> {
    let left = until.since(boot_now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the keeper does not answer"));
    }
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(channel.fd(), PollFlags::POLLOUT)], timeout) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reaps ended children; false if there are no children.
fn reap_any() -> bool {
    loop {
        match sys::next_change() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

const OPEN: &str = "the channel is open until the handle is dropped";
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a dead keeper's watcher may take to kill the tree. A watcher that is stopped never does.
const WATCHER_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between two rounds of KILL, in which killed processes disappear.
const STRIKE_INTERVAL: Duration = Duration::from_millis(5);
