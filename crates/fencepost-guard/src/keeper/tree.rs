//! The processes of a job. How they are found differs between systems: [`ProcessControl`].

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::Duration;

use fencepost_core::time::Boot;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::control::ProcessControl;
use super::protocol::NamedProcess;
use super::system::SystemControl;
use crate::sys::{self, ProcessEntry, ProcessState};

/// The processes of one job after another.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The job's process group, while its number is reserved.
    pub(crate) group: Option<Pid>,
    /// Children that existed before the job and do not belong to it.
    pub(crate) bystanders: Vec<i32>,
    pub(crate) control: SystemControl,
}

impl Tree {
    /// Everything alive in the tree.
    pub(crate) fn members(&mut self) -> io::Result<Vec<ProcessEntry>> {
        self.control.members(self.group, &self.bystanders)
    }

    /// Whether the tree is empty, given whether the kernel reports children.
    pub(crate) fn is_empty(&mut self, has_children: bool) -> bool {
        self.control.is_empty(self.group, has_children)
    }

    /// The job's first process has ended.
    pub(crate) fn first_ended(&mut self) {
        if !self.control.keeps_group() {
            self.group = None;
        }
    }

    /// Forgets a job of which no process is left, or none that can be killed.
    pub(crate) fn forget(&mut self) {
        self.control.forget(self.group.take());
    }

    /// Sends the signal once to every process in the tree, including those forked meanwhile.
    pub(crate) fn signal_all(&mut self, signal: Signal) {
        let mut reached = HashSet::new();
        for _ in 0..SIGNAL_ROUNDS {
            let Ok(members) = self.members() else { return self.signal_group(signal) };
            let fresh: Vec<_> = members.iter().filter(|member| reached.insert(member.pid)).collect();
            if fresh.is_empty() {
                return;
            }
            for member in fresh {
                // An ended process needs no signal. One that refuses it is named when it cannot be killed.
                let _ = sys::send(member.pid, signal as i32);
            }
        }
    }

    /// Whether the tree is stopped: at least one process is, and none runs.
    ///
    /// A shell whose child was stopped between vfork and exec is in uninterruptible sleep and stops only after it.
    pub(crate) fn is_stopped(&mut self) -> bool {
        let Ok(members) = self.members() else { return false };
        members.iter().any(|member| member.state == ProcessState::Stopped)
            && members.iter().all(|member| matches!(member.state, ProcessState::Stopped | ProcessState::Deep))
    }

    /// Sends STOP to running processes. Returns the tree and whether all of it is stopped.
    ///
    /// Processes of another user and those in uninterruptible sleep do not count: no signal reaches them now.
    pub(crate) fn stop_runners(&mut self) -> (Vec<i32>, bool) {
        let Ok(members) = self.members() else {
            self.signal_group(Signal::SIGSTOP);
            return (Vec::new(), true);
        };
        let mut still = true;
        for member in members.iter().filter(|member| member.state != ProcessState::Stopped) {
            let sent = sys::send(member.pid, Signal::SIGSTOP as i32).is_ok();
            still &= !sent || member.state == ProcessState::Deep;
        }
        (members.into_iter().map(|member| member.pid).collect(), still)
    }

    /// The fallback where processes cannot be listed.
    fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = sys::send(-group.as_raw(), signal as i32);
        }
    }
}

/// Whether these processes, all stopped when last seen, are still stopped. Stopped processes fork nothing, so there is
/// no need to list every process of the machine.
pub(crate) fn all_still_stopped(pids: &[i32]) -> bool {
    pids.iter().all(|&pid| {
        sys::process(pid).is_none_or(|entry| matches!(entry.state, ProcessState::Stopped | ProcessState::Dead))
    })
}

/// Kills a tree in rounds until it is empty or only unkillable processes remain.
#[derive(Debug, Default)]
pub(crate) struct Killer {
    /// When each process was first sent KILL.
    since: BTreeMap<i32, Boot>,
}

impl Killer {
    /// One round of KILL. Returns the remaining processes when further rounds are useless.
    pub(crate) fn strike(&mut self, tree: &mut Tree, now: Boot) -> Option<Vec<NamedProcess>> {
        // Where the group is most of the tree, one call reaches it, also what is just being forked.
        if tree.control.keeps_group() {
            tree.signal_group(Signal::SIGKILL);
        }
        let Ok(members) = tree.members() else {
            tree.signal_group(Signal::SIGKILL);
            return None;
        };
        let hopeless = members.iter().filter(|member| self.is_hopeless(member, now)).count();
        (!members.is_empty() && hopeless == members.len()).then(|| describe(&members))
    }

    fn is_hopeless(&mut self, member: &ProcessEntry, now: Boot) -> bool {
        let since = *self.since.entry(member.pid).or_insert(now);
        let refused = sys::send(member.pid, Signal::SIGKILL as i32)
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        now.since(since) > if refused { REFUSED } else { UNMOVED }
    }
}

/// The most processes a report names.
pub(crate) fn describe(members: &[ProcessEntry]) -> Vec<NamedProcess> {
    let named =
        |entry: &ProcessEntry| NamedProcess { pid: entry.pid, uid: sys::uid_of(entry.pid), name: entry.name.clone() };
    members.iter().take(NAMED_MAX).map(named).collect()
}

/// The most rounds of one signal: a process may fork between scan and signal. One that always does is left to KILL.
const SIGNAL_ROUNDS: usize = 10;
/// How long another user's process may survive KILL before it counts as escaped: it may still exit with its parent.
const REFUSED: Duration = Duration::from_secs(1);
/// How long a process may take to die of KILL. One that waits for a dead disk never does.
const UNMOVED: Duration = Duration::from_secs(5);
const NAMED_MAX: usize = 100;
