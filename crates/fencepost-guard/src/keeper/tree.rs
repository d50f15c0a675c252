//! The processes that a job consists of: everything descended from this process.
//!
//! On Linux the process is a subreaper, so that nothing gets away: a daemon in its own session, orphaned on purpose,
//! becomes our own child, and the tree is empty when the kernel says that we have no children. macOS has nothing of
//! the kind: there the tree is the job's process group and whatever still descends from it, and what daemonises
//! itself is lost from sight. What differs between the two is at the end of this file.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::Duration;

use fencepost_core::time::Boot;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use super::protocol::Process;
use crate::sys;

pub(crate) use system::{become_subreaper, children, die_with_parent, is_single_threaded, name_process};

/// The descendants of this process.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The job's process group, while its leader has not been reaped: no other group can have the number until then.
    pub(crate) group: Option<Pid>,
    /// Children that were there before the job, and are none of it.
    pub(crate) bystanders: Vec<i32>,
}

impl Tree {
    /// Everything alive in the tree.
    pub(crate) fn members(&self) -> io::Result<Vec<Member>> {
        let all = system::snapshot()?;
        let mut inside: HashSet<i32> = HashSet::from([getpid().as_raw()]);
        // A parent may have a higher number than its child, so that one pass is not enough.
        loop {
            let unseen = |member: &&Member| !inside.contains(&member.pid) && self.belongs(member, &inside);
            let found: Vec<i32> = all.iter().filter(unseen).map(|member| member.pid).collect();
            if found.is_empty() {
                break;
            }
            inside.extend(found);
        }
        inside.remove(&getpid().as_raw());
        Ok(all.into_iter().filter(|member| inside.contains(&member.pid) && member.state != State::Dead).collect())
    }

    /// Whether nothing is left, given whether the kernel knows of any child of ours.
    ///
    /// Looking can miss a process that forks at that moment; the kernel's word is final, where it covers the tree.
    pub(crate) fn is_empty(&self, has_children: bool) -> bool {
        !has_children && (!system::GROUP_IS_TREE || self.members().is_ok_and(|members| members.is_empty()))
    }

    /// Sends the signal to everything in the tree once, and to what it forks meanwhile.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let mut reached = HashSet::new();
        for _ in 0..SIGNAL_ROUNDS {
            let Ok(members) = self.members() else { return self.signal_group(signal) };
            let fresh: Vec<_> = members.iter().filter(|member| reached.insert(member.pid)).collect();
            if fresh.is_empty() {
                return;
            }
            for member in fresh {
                // What has ended meanwhile needs no signal, and what refuses it will be named when it is to be killed.
                let _ = sys::send(member.pid, signal as i32);
            }
        }
    }

    /// Whether the tree was stopped: something in it is, and nothing runs.
    ///
    /// A shell whose child was stopped between vfork and exec waits for it deep in the kernel, and stops after that.
    pub(crate) fn is_stopped(&self) -> bool {
        let Ok(members) = self.members() else { return false };
        members.iter().any(|member| member.state == State::Stopped)
            && members.iter().all(|member| matches!(member.state, State::Stopped | State::Deep))
    }

    /// Stops whatever runs, and says what is in the tree and whether all of it stands still.
    ///
    /// What will not be stopped by us (another user's) and what is deep in the kernel (the signal waits for it there)
    /// does not count: nothing more can be done about either.
    pub(crate) fn stop_runners(&self) -> (Vec<i32>, bool) {
        let Ok(members) = self.members() else {
            self.signal_group(Signal::SIGSTOP);
            return (Vec::new(), true);
        };
        let mut still = true;
        for member in members.iter().filter(|member| member.state != State::Stopped) {
            let sent = sys::send(member.pid, Signal::SIGSTOP as i32).is_ok();
            still &= !sent || member.state == State::Deep;
        }
        (members.into_iter().map(|member| member.pid).collect(), still)
    }

    fn belongs(&self, member: &Member, inside: &HashSet<i32>) -> bool {
        let by_group = system::GROUP_IS_TREE && self.group.is_some_and(|group| group.as_raw() == member.group);
        (inside.contains(&member.parent) || by_group) && !self.bystanders.contains(&member.pid)
    }

    /// The best that can be done where the processes cannot be listed.
    fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = sys::send(-group.as_raw(), signal as i32);
        }
    }
}

/// Whether these, all of them stopped when last seen, still are: stopped processes fork nothing, so that there is
/// no need to look at every process of the machine.
pub(crate) fn all_still_stopped(pids: &[i32]) -> bool {
    pids.iter().all(|&pid| system::state_of(pid).is_none_or(|state| matches!(state, State::Stopped | State::Dead)))
}

/// A process of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    parent: i32,
    group: i32,
    pub(crate) state: State,
    name: String,
}

impl Member {
    pub(crate) fn describe(&self) -> Process {
        Process { pid: self.pid, uid: system::uid_of(self.pid), name: self.name.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Stopped,
    /// In an uninterruptible sleep: signals wait until it ends.
    Deep,
    /// A zombie: nothing of it will run again.
    Dead,
}

/// Kills a tree, round by round, until it is empty or only those are left that cannot be killed.
#[derive(Debug, Default)]
pub(crate) struct Killer {
    /// When each was first sent KILL.
    since: BTreeMap<i32, Boot>,
}

impl Killer {
    /// One round: KILL to everything. Those left are returned when there is no use in going on.
    pub(crate) fn strike(&mut self, tree: &Tree, now: Boot) -> Option<Vec<Process>> {
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

/// As many as a report names.
pub(crate) fn describe(members: &[Member]) -> Vec<Process> {
    members.iter().take(NAMED_MAX).map(Member::describe).collect()
}

/// Between looking and signalling a process may fork; one that always does is left to KILL.
const SIGNAL_ROUNDS: usize = 10;
/// How long another user's process may refuse KILL before it counts as escaped: its parent's end may still end it.
const REFUSED: Duration = Duration::from_secs(1);
/// How long a process may take to die of KILL: one that waits for a dead disk never does.
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

    use super::{Member, State};

    /// The subreaper sees every descendant; a group would add nothing.
    pub(super) const GROUP_IS_TREE: bool = false;

    /// Orphaned descendants become our children instead of init's.
    pub(crate) fn become_subreaper() -> io::Result<()> {
        Ok(prctl::set_child_subreaper(true)?)
    }

    pub(crate) fn name_process(name: &std::ffi::CStr) {
        // A name that could not be set is no reason not to guard the job.
        let _ = prctl::set_name(name);
    }

    /// The calling process is killed when `parent` dies, also if that has happened already.
    pub(crate) fn die_with_parent(parent: Pid) -> io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The error is a number, for nothing may be allocated here.
        if getppid() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(ESRCH)) }
    }

    pub(crate) fn is_single_threaded() -> bool {
        // The directory has a link for itself, one for its parent and one for each thread.
        fs::metadata("/proc/self/task").map_or(true, |task| task.nlink() <= 3)
    }

    /// The children that this process has already; its parent's, if it was started by `exec` in a shell.
    pub(crate) fn children() -> Vec<i32> {
        // Most have none, and the kernel says so sooner than it lists them.
        let any = WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT | WaitPidFlag::WEXITED | WaitPidFlag::__WALL;
        if waitid(Id::All, any) == Err(Errno::ECHILD) {
            return Vec::new();
        }
        let list = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    pub(super) fn snapshot() -> io::Result<Vec<Member>> {
        let names = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        // What ends while we look is gone, and no error.
        Ok(names.filter_map(read).collect())
    }

    pub(super) fn state_of(pid: i32) -> Option<State> {
        read(pid).map(|member| member.state)
    }

    pub(super) fn uid_of(pid: i32) -> u32 {
        fs::metadata(format!("/proc/{pid}")).map_or(0, |entry| entry.uid())
    }

    fn read(pid: i32) -> Option<Member> {
        // A name may be any bytes.
        parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// The name stands in parentheses and may contain any number of them, so that the last one ends it.
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

    fn state(letter: &str, threads: u32) -> State {
        match letter {
            "T" | "t" => State::Stopped,
            "D" => State::Deep,
            // A process whose first thread has ended looks like a zombie while the others go on.
            "Z" if threads > 1 => State::Running,
            "Z" | "X" => State::Dead,
            _ => State::Running,
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::process::{Command, Stdio};

    use nix::unistd::Pid;

    use super::{Member, State};

    /// Orphans go to launchd, and only their group still ties them to the job.
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

    /// Only a subreaper's children need telling apart.
    pub(crate) fn children() -> Vec<i32> {
        Vec::new()
    }

    /// There is no /proc, and `ps` is in the base system.
    pub(super) fn snapshot() -> io::Result<Vec<Member>> {
        list(&["-A"])
    }

    pub(super) fn state_of(pid: i32) -> Option<State> {
        list(&["-p", &pid.to_string()]).ok()?.pop().map(|member| member.state)
    }

    pub(super) fn uid_of(pid: i32) -> u32 {
        let output = ps(&["-p", &pid.to_string(), "-o", "uid="]).unwrap_or_default();
        output.trim().parse().unwrap_or(0)
    }

    fn list(which: &[&str]) -> io::Result<Vec<Member>> {
        let columns = ["-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat=", "-o", "comm="];
        // The listing itself is a child of ours, and is gone by now.
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
            b'T' => State::Stopped,
            b'U' => State::Deep,
            b'Z' => State::Dead,
            _ => State::Running,
        };
        Some(Member { pid, parent, group, state, name: fields.collect::<Vec<_>>().join(" ") })
    }

    const PS: &str = "/bin/ps";
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::State;
    use super::system::parse;

    fn stat(name: &str, state: &str, threads: u32) -> String {
        format!("42 ({name}) {state} 7 41 41 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 12345 6 7")
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read() {
        let member = parse(&stat("a) R 1 (b", "S", 1)).unwrap();
        assert_eq!((member.pid, member.parent, member.group), (42, 7, 41));
        assert_eq!((member.name.as_str(), member.state), ("a) R 1 (b", State::Running));
    }

    #[test]
    fn a_zombie_is_dead_unless_other_threads_go_on() {
        assert_eq!(parse(&stat("x", "Z", 1)).unwrap().state, State::Dead);
        assert_eq!(parse(&stat("x", "Z", 3)).unwrap().state, State::Running);
        assert_eq!(parse(&stat("x", "T", 1)).unwrap().state, State::Stopped);
        assert_eq!(parse(&stat("x", "D", 1)).unwrap().state, State::Deep);
    }
}
