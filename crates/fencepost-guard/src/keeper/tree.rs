//! The processes of a job: all descendants of this process.
//!
//! On Linux this process is a subreaper: a daemon that was orphaned on purpose becomes its child, and the tree is empty
//! when the kernel says that there are no children. macOS has no subreaper: there the tree is the job's process group
//! and its remaining descendants, and a process that daemonises itself is not found. The system-specific parts are at
//! the end of this file.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::Duration;

use fencepost_core::time::Boot;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use super::protocol::NamedProcess;
use crate::sys;

pub(crate) use system::{become_subreaper, children, die_with_parent, is_single_threaded, name_process};

/// The descendants of this process.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The job's process group, while its leader has not been reaped: no other group can have the number until then.
    pub(crate) group: Option<Pid>,
    /// Children that existed before the job and do not belong to it.
    pub(crate) bystanders: Vec<i32>,
}

impl Tree {
    /// Everything alive in the tree.
    pub(crate) fn members(&self) -> io::Result<Vec<Member>> {
        let all = system::snapshot()?;
        let mut inside: HashSet<i32> = HashSet::from([getpid().as_raw()]);
        // A parent may have a higher pid than its child, so one pass is not enough.
        loop {
            let unseen = |member: &&Member| !inside.contains(&member.pid) && self.belongs(member, &inside);
            let found: Vec<i32> = all.iter().filter(unseen).map(|member| member.pid).collect();
            if found.is_empty() {
                break;
            }
            inside.extend(found);
        }
        inside.remove(&getpid().as_raw());
        Ok(all
            .into_iter()
            .filter(|member| inside.contains(&member.pid) && member.state != ProcessState::Dead)
            .collect())
    }

    /// Whether the tree is empty, given whether the kernel reports children.
    ///
    /// A scan can miss a process that is just forking. The kernel's answer is final where it covers the tree.
    pub(crate) fn is_empty(&self, has_children: bool) -> bool {
        !has_children && (!system::GROUP_IS_TREE || self.members().is_ok_and(|members| members.is_empty()))
    }

    /// Sends the signal once to every process in the tree, including those forked meanwhile.
    pub(crate) fn signal_all(&self, signal: Signal) {
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
    pub(crate) fn is_stopped(&self) -> bool {
        let Ok(members) = self.members() else { return false };
        members.iter().any(|member| member.state == ProcessState::Stopped)
            && members.iter().all(|member| matches!(member.state, ProcessState::Stopped | ProcessState::Deep))
    }

    /// Sends STOP to running processes. Returns the tree and whether all of it is stopped.
    ///
    /// Processes of another user and those in uninterruptible sleep do not count: no signal reaches them now.
    pub(crate) fn stop_runners(&self) -> (Vec<i32>, bool) {
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

    fn belongs(&self, member: &Member, inside: &HashSet<i32>) -> bool {
        let by_group = system::GROUP_IS_TREE && self.group.is_some_and(|group| group.as_raw() == member.group);
        (inside.contains(&member.parent) || by_group) && !self.bystanders.contains(&member.pid)
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
        system::state_of(pid).is_none_or(|state| matches!(state, ProcessState::Stopped | ProcessState::Dead))
    })
}

/// A process of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    parent: i32,
    group: i32,
    pub(crate) state: ProcessState,
    name: String,
}

impl Member {
    pub(crate) fn describe(&self) -> NamedProcess {
        NamedProcess { pid: self.pid, uid: system::uid_of(self.pid), name: self.name.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Running,
    Stopped,
    /// In uninterruptible sleep: signals stay pending.
    Deep,
    /// A zombie.
    Dead,
}

/// Kills a tree in rounds until it is empty or only unkillable processes remain.
#[derive(Debug, Default)]
pub(crate) struct Killer {
    /// When each process was first sent KILL.
    since: BTreeMap<i32, Boot>,
}

impl Killer {
    /// One round of KILL. Returns the remaining processes when further rounds are useless.
    pub(crate) fn strike(&mut self, tree: &Tree, now: Boot) -> Option<Vec<NamedProcess>> {
        let Ok(members) = tree.members() else {
            tree.signal_group(Signal::SIGKILL);
            return None;
        };
        let hopeless = members.iter().filter(|member| self.is_hopeless(member, now)).count();
        (!members.is_empty() && hopeless == members.len()).then(|| describe(&members))
    }

    fn is_hopeless(&mut self, member: &Member, now: Boot) -> bool {
        let since = *self.since.entry(member.pid).or_insert(now);
        let refused = sys::send(member.pid, Signal::SIGKILL as i32)
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        now.since(since) > if refused { REFUSED } else { UNMOVED }
    }
}

/// The most processes a report names.
pub(crate) fn describe(members: &[Member]) -> Vec<NamedProcess> {
    members.iter().take(NAMED_MAX).map(Member::describe).collect()
}

/// The most rounds of one signal: a process may fork between scan and signal. One that always does is left to KILL.
const SIGNAL_ROUNDS: usize = 10;
/// How long another user's process may survive KILL before it counts as escaped: it may still exit with its parent.
const REFUSED: Duration = Duration::from_secs(1);
/// How long a process may take to die of KILL. One that waits for a dead disk never does.
const UNMOVED: Duration = Duration::from_secs(5);
const NAMED_MAX: usize = 100;

#[cfg(target_os = "linux")]
mod system {
    use std::os::unix::fs::MetadataExt;
    use std::{fs, io};

    use nix::errno::Errno;
    use nix::libc::ESRCH;
    use nix::sys::prctl;
    use nix::sys::signal::Signal;
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use nix::unistd::{Pid, getppid};

    use super::{Member, ProcessState};

    /// The subreaper sees every descendant; the group adds none.
    pub(super) const GROUP_IS_TREE: bool = false;

    /// Makes orphaned descendants children of this process instead of init's.
    pub(crate) fn become_subreaper() -> io::Result<()> {
        Ok(prctl::set_child_subreaper(true)?)
    }

    pub(crate) fn name_process(name: &std::ffi::CStr) {
        // The name is for people; a failure does not matter.
        let _ = prctl::set_name(name);
    }

    /// Has the kernel kill the calling process when `parent` dies, or at once if it is already dead.
    pub(crate) fn die_with_parent(parent: Pid) -> io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The error is a number, because nothing may be allocated here.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(ESRCH)) }
    }

    pub(crate) fn is_single_threaded() -> bool {
        // The directory has a link for itself, one for its parent and one for each thread.
        let threads = fs::metadata("/proc/self/task").map_or(1, |task| task.nlink().saturating_sub(2));
        threads <= 1 || (threads == 2 && is_emulated())
    }

    /// Whether qemu-user runs this program. It has one thread of its own, which it brings safely through a fork: it
    /// forks between two translated blocks, with its locks taken, and starts that thread again in the child.
    ///
    /// qemu answers `/proc/self/exe` with the emulated program's path; by any other name the kernel shows qemu.
    fn is_emulated() -> bool {
        match (fs::read_link("/proc/self/exe"), fs::read_link("/proc/thread-self/exe")) {
            (Ok(told), Ok(real)) => told != real,
            _ => false,
        }
    }

    /// The children that this process already has: a shell that used `exec` leaves its own.
    pub(crate) fn children() -> Vec<i32> {
        // Most have none, and ECHILD is faster than a listing.
        let any = WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::WEXITED | WaitPidFlag::__WALL;
        if waitid(Id::All, any) == Err(Errno::ECHILD) {
            return Vec::new();
        }
        let list = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    pub(super) fn snapshot() -> io::Result<Vec<Member>> {
        let names = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        // A process that ends during the scan is not an error.
        Ok(names.filter_map(read).collect())
    }

    pub(super) fn state_of(pid: i32) -> Option<ProcessState> {
        read(pid).map(|member| member.state)
    }

    pub(super) fn uid_of(pid: i32) -> u32 {
        fs::metadata(format!("/proc/{pid}")).map_or(0, |entry| entry.uid())
    }

    fn read(pid: i32) -> Option<Member> {
        // A process name may contain any bytes.
        parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// The name is in parentheses and may contain parentheses: the last one ends it.
    pub(super) fn parse(stat: &str) -> Option<Member> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        let letter = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let threads: u32 = fields.nth(14)?.parse().ok()?;
        Some(Member { pid: pid.parse().ok()?, parent, group, state: state(letter, threads), name: name.into() })
    }

    fn state(letter: &str, threads: u32) -> ProcessState {
        match letter {
            "T" | "t" => ProcessState::Stopped,
            "D" => ProcessState::Deep,
            // A process whose first thread has ended looks like a zombie while its other threads run.
            "Z" if threads > 1 => ProcessState::Running,
            "Z" | "X" => ProcessState::Dead,
            _ => ProcessState::Running,
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::process::{Command, Stdio};

    use nix::unistd::Pid;

    use super::{Member, ProcessState};

    /// Orphans go to launchd; only the process group still links them to the job.
    pub(super) const GROUP_IS_TREE: bool = true;

    pub(crate) fn become_subreaper() -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn name_process(_: &std::ffi::CStr) {}

    pub(crate) fn die_with_parent(_: Pid) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn is_single_threaded() -> bool {
        true
    }

    /// Only a subreaper has to tell its children apart.
    pub(crate) fn children() -> Vec<i32> {
        Vec::new()
    }

    /// Lists processes with `ps`, because macOS has no /proc.
    pub(super) fn snapshot() -> io::Result<Vec<Member>> {
        list(&["-A"])
    }

    pub(super) fn state_of(pid: i32) -> Option<ProcessState> {
        list(&["-p", &pid.to_string()]).ok()?.pop().map(|member| member.state)
    }

    pub(super) fn uid_of(pid: i32) -> u32 {
        let output = ps(&["-p", &pid.to_string(), "-o", "uid="]).unwrap_or_default();
        output.trim().parse().unwrap_or(0)
    }

    fn list(which: &[&str]) -> io::Result<Vec<Member>> {
        let columns = ["-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat=", "-o", "comm="];
        // `ps` itself was a child and has exited.
        let output = ps(&[which, &columns].concat())?;
        Ok(output.lines().filter_map(parse).filter(|member| member.name != PS).collect())
    }

    fn ps(arguments: &[&str]) -> io::Result<String> {
        let output = Command::new(PS).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn parse(line: &str) -> Option<Member> {
        let mut fields = line.split_ascii_whitespace();
        let mut number = || fields.next()?.parse().ok();
        let (pid, parent, group) = (number()?, number()?, number()?);
        let state = match fields.next()?.as_bytes().first()? {
            b'T' => ProcessState::Stopped,
            b'U' => ProcessState::Deep,
            b'Z' => ProcessState::Dead,
            _ => ProcessState::Running,
        };
        Some(Member { pid, parent, group, state, name: fields.collect::<Vec<_>>().join(" ") })
    }

    const PS: &str = "/bin/ps";
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::ProcessState;
    use super::system::parse;

    fn stat(name: &str, state: &str, threads: u32) -> String {
        format!("42 ({name}) {state} 7 41 41 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 12345 6 7")
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read() {
        let member = parse(&stat("a) R 1 (b", "S", 1)).unwrap();
        assert_eq!((member.pid, member.parent, member.group), (42, 7, 41));
        assert_eq!((member.name.as_str(), member.state), ("a) R 1 (b", ProcessState::Running));
    }

    #[test]
    fn a_zombie_is_dead_unless_other_threads_go_on() {
        assert_eq!(parse(&stat("x", "Z", 1)).unwrap().state, ProcessState::Dead);
        assert_eq!(parse(&stat("x", "Z", 3)).unwrap().state, ProcessState::Running);
        assert_eq!(parse(&stat("x", "T", 1)).unwrap().state, ProcessState::Stopped);
        assert_eq!(parse(&stat("x", "D", 1)).unwrap().state, ProcessState::Deep);
    }
}
