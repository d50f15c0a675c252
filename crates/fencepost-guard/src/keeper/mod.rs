//! The keeper: a process of its own that runs the job and ends it by its deadline, whatever becomes of the wrapper.
//!
//! The wrapper renews the lease and may hang, be stopped or be killed while it does. So it forks, first thing, a
//! process that does nothing but watch: it spawns the job, is told each deadline, and needs nobody's help to keep it.
//! If the wrapper dies, the keeper ends the tree. If the keeper dies, the tree falls to the wrapper, which ends it
//! ([`Keeper::sweep`]).

mod body;
mod protocol;
mod spawn;
mod tree;

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
use protocol::{Channel, Received};
pub use protocol::{Exit, Order, Process, Report, Spawn, SpawnStep};
use tree::{Killer, Tree};

/// The wrapper's hold on its keeper.
#[derive(Debug)]
pub struct Keeper {
    pid: Pid,
    /// `None` once closed.
    channel: Option<Channel>,
    /// When it started, as far as that is known without asking.
    started: Option<u64>,
    /// Another command comes after the one that it keeps.
    more_to_come: bool,
    /// It has nothing left to keep, and nothing more to say.
    is_done: bool,
    /// The wrapper's own descendants, of which the keeper is one.
    tree: Tree,
}

/// What the keeper had to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Report(Report),
    /// Nothing for now.
    Nothing,
    /// It has left, because nothing is left to keep.
    Left,
    /// The keeper has died: [`Keeper::sweep`] ends what it kept.
    Gone,
}

impl Keeper {
    /// Forks the keeper. Refused unless the process has a single thread: nothing else makes a fork without exec safe.
    ///
    /// The keeper gives the job the signal dispositions and the mask of this moment, so that it is to be started
    /// before any handler is installed.
    pub fn start() -> io::Result<Self> {
        if !tree::is_single_threaded() {
            return Err(io::Error::other("the keeper has to be started before the first thread"));
        }
        let (channel, keepers) = Channel::pair()?;
        tree::become_subreaper()?;
        let tree = Tree { bystanders: tree::children(), ..Tree::default() };
        // Nobody learns how the keeper ended where whoever started us had SIGCHLD ignored.
        let mut ignored = Vec::new();
        if sys::restore_default(Signal::SIGCHLD)? {
            ignored.push(Signal::SIGCHLD);
        }
        // A ctrl-C at this moment is the wrapper's; the keeper must not die of it before it ignores it.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let before = host::tick(boot_now());
        let forked = sys::split();
        if let Ok(None) = forked {
            drop(channel);
            be_keeper(keepers, spawn::Inherited { mask, ignored, env: BTreeMap::new() });
        }
        // The kernel counts by the same clock. Only where it went on in between can it have taken either tick.
        let started = before.filter(|_| host::tick(boot_now()) == before);
        mask.thread_set_mask()?;
        let pid = forked?.expect("the child does not get here");
        Ok(Self { pid, channel: Some(channel), started, more_to_come: false, is_done: false, tree })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// The keeper as whoever comes later can tell it from others. It is not looked up if that can be helped: so young a
    /// process is slow to look up.
    pub fn mark(&self) -> Option<record::Process> {
        let known = self.started.map(|started| record::Process { pid: self.pid(), started });
        known.or_else(|| host::process(self.pid()))
    }

    /// Has it get ready for a job, while the wrapper has other things to do.
    pub fn get_ready(&mut self) {
        // One that is gone is noticed when it is needed.
        let _ = self.send(&Order::GetReady);
    }

    /// What to poll for reports, once [`receive`](Self::receive) has nothing more: reports may come several at once.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel().fd()
    }

    /// Sends an order. Fails if the keeper is gone, or takes nothing for as long as five seconds.
    pub fn send(&mut self, order: &Order) -> io::Result<()> {
        if let Order::Spawn(job) = order {
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

    /// What the keeper has to say, without waiting for it.
    pub fn receive(&mut self) -> Heard {
        match self.channel.as_mut().expect(OPEN).receive() {
            Received::Message(report) => {
                self.note(&report);
                Heard::Report(report)
            }
            Received::Nothing => Heard::Nothing,
            Received::Closed if self.is_done => Heard::Left,
            Received::Closed => Heard::Gone,
        }
    }

    /// Lets the keeper go, and waits until it has. If there is still a tree, the keeper ends it first.
    pub fn close(self) {
        drop(self);
    }

    /// Lets a keeper go that has nothing left to keep. It leaves by itself, while the wrapper has other things to do.
    pub fn dismiss(mut self) -> Dismissed {
        self.channel = None;
        let _ = sys::send(self.pid(), Signal::SIGCONT as i32);
        Dismissed { pid: self.pid }
    }

    /// Kills what a dead keeper left behind, and returns what could not be killed.
    ///
    /// Everything descended from the wrapper is killed, commands that it runs itself at this moment included, but not
    /// what was there before the keeper.
    pub fn sweep(mut self) -> Vec<Process> {
        self.channel = None;
        // It may have closed its end without dying; nothing of it is to be left.
        let _ = sys::send(self.pid(), Signal::SIGKILL as i32);
        sys::wait_for(self.pid);
        let mut killer = Killer::default();
        let mut empty_rounds = 0;
        while !self.tree.is_empty(reap_any()) && empty_rounds < 2 {
            if let Some(escaped) = killer.strike(&self.tree, boot_now()) {
                return escaped;
            }
            // Only bystanders keep the kernel from saying so itself; one look can miss a process that just forked.
            let is_empty = self.tree.members().is_ok_and(|members| members.is_empty());
            empty_rounds = if is_empty { empty_rounds + 1 } else { 0 };
            std::thread::sleep(STRIKE_INTERVAL);
        }
        Vec::new()
    }

    /// Buries a dead keeper and leaves the job alone that it kept. Returns the job's process, if it fell to this one.
    pub(crate) fn bury(mut self) -> Option<i32> {
        self.channel = None;
        let _ = sys::send(self.pid(), Signal::SIGKILL as i32);
        sys::wait_for(self.pid);
        let of_job = |pid: &i32| !self.tree.bystanders.contains(pid);
        self.tree.group.map(Pid::as_raw).or_else(|| tree::children().into_iter().find(of_job))
    }

    fn note(&mut self, report: &Report) {
        match report {
            // Where orphans do not come to the wrapper, the group is all that a sweep can go by.
            Report::Spawned { pid } => self.tree.group = Some(Pid::from_raw(*pid)),
            Report::ChildEnded { .. } => self.tree.group = None,
            Report::Empty { .. } => self.is_done = !self.more_to_come,
            _ => {}
        }
    }

    fn channel(&self) -> &Channel {
        self.channel.as_ref().expect(OPEN)
    }
}

/// A keeper on its way out. Dropping this waits until it has gone, for a zombie could be left to somebody who never asks.
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
            // A keeper that somebody has stopped would never notice.
            let _ = sys::send(self.pid(), Signal::SIGCONT as i32);
            sys::wait_for(self.pid);
        }
    }
}

/// The rest of the forked child's life. It never returns into what the wrapper was doing, not even by a panic.
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

/// Reaps what has ended; false if there are no children at all.
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
/// Between two rounds of killing: long enough for the killed to be gone, short enough not to matter.
const STRIKE_INTERVAL: Duration = Duration::from_millis(5);
