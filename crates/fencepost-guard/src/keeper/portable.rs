//! macOS: no subreaper and no parent-death signal. The tree is the job's process group, and what was seen to descend
//! from it.
//!
//! The keeper does not reap the job's first process until the group is empty, so no other group can get its number.
//! Orphans go to launchd. One that is still in the group is found by the group. One that has left it is found if a look
//! saw it, or on macOS its parent, before: `known` has the marks, and macOS keeps the mark of the process that forked
//! each process. A process that leaves the group and loses its parents between two looks is not found.
//!
//! A watcher process kills the tree if the keeper dies. Tests run this on Linux, with the feature `portable-processes`.

#[path = "watcher.rs"]
mod watcher;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use fencepost_core::time::Boot;
use nix::unistd::{Pid, getpid};

use self::watcher::{Watcher, WatcherOrder};
use super::control::ProcessControl;
use crate::clock::boot_now;
use crate::sys::{self, Change, ProcessAlarm, ProcessEntry, ProcessState};

pub(crate) use self::ProcessGroups as SystemControl;

#[derive(Debug, Default)]
pub(crate) struct ProcessGroups {
    /// In the keeper only.
    watcher: Option<Watcher>,
    /// The processes of the job, by pid and mark. For each, in how many looks since the last sight it was gone.
    known: HashMap<(i32, u64), u32>,
    alarm: ProcessAlarm,
    looked: Option<Boot>,
}

impl ProcessControl for ProcessGroups {
    const LOOK_INTERVAL: Duration = Duration::from_millis(50);
    const HAS_WATCHER: bool = true;

    fn adopt_orphans() -> io::Result<()> {
        Ok(())
    }

    /// They are not in the job's group.
    fn bystanders() -> Vec<i32> {
        Vec::new()
    }

    fn prepare(&mut self, channel: BorrowedFd<'_>) -> io::Result<()> {
        self.watcher = Some(Watcher::start(channel)?);
        Ok(())
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let watcher = self.watcher.as_ref().map(Watcher::descriptor);
        let alarm = self.alarm.fd().map(|fd| std::os::fd::AsRawFd::as_raw_fd(&fd));
        watcher.into_iter().chain(alarm).collect()
    }

    /// Tells the watcher of the job before its program starts. From here on, the death of the keeper is the job's.
    fn tie(&self, keeper: Pid) -> io::Result<()> {
        match &self.watcher {
            Some(watcher) => watcher.tell(WatcherOrder::Begin { group: getpid().as_raw() }),
            None => Ok(()),
        }?;
        watcher::is_parent(keeper)
    }

    fn next_change(&mut self, first: Option<Pid>) -> io::Result<Option<(Pid, Change)>> {
        let Some(first) = first else { return Ok(None) };
        Ok(sys::peek_change(first)?.map(|change| (first, change)))
    }

    fn keeps_group(&self) -> bool {
        true
    }

    fn members(&mut self, group: Option<Pid>, bystanders: &[i32]) -> io::Result<Vec<ProcessEntry>> {
        let all = group.map_or_else(sys::processes, |group| sys::processes_with_group(group.as_raw()))?;
        let inside = self.inside(&all, group.map(Pid::as_raw));
        self.learn(&all, &inside, group.map(Pid::as_raw));
        self.looked = Some(boot_now());
        let lives = |entry: &ProcessEntry| {
            inside.contains(&entry.pid) && entry.state != ProcessState::Dead && !bystanders.contains(&entry.pid)
        };
        Ok(all.into_iter().filter(lives).collect())
    }

    /// Looks twice: one listing can miss a process whose parent ended meanwhile.
    fn is_empty(&mut self, group: Option<Pid>, _: bool) -> bool {
        // Most often the group answers, which is one call on macOS.
        let lives = |entry: &ProcessEntry| entry.state != ProcessState::Dead;
        if group.is_some_and(|group| sys::group_members(group.as_raw()).is_ok_and(|found| found.iter().any(lives))) {
            return false;
        }
        (0..2).all(|_| self.members(group, &[]).is_ok_and(|members| members.is_empty()))
    }

    fn alarm(&self) -> Option<BorrowedFd<'_>> {
        let may_look = self.looked.is_none_or(|looked| boot_now().since(looked) >= LOOK_PAUSE);
        self.alarm.fd().filter(|_| may_look)
    }

    fn look(&mut self, group: Option<Pid>) -> Option<Duration> {
        let waited = self.looked.map_or(LOOK_PAUSE, |looked| boot_now().since(looked));
        if waited >= LOOK_PAUSE {
            self.alarm.clear();
            // A failed listing is tried again at the next look.
            let _ = self.members(group, &[]);
        }
        // An alarm that comes now has to wait for the end of the pause.
        self.alarm.fd().map(|_| LOOK_PAUSE.saturating_sub(waited).max(Duration::from_millis(1)))
    }

    fn forget(&mut self, group: Option<Pid>) {
        if let Some(first) = group {
            sys::reap(first);
        }
        self.known.clear();
        self.alarm = ProcessAlarm::default();
        self.looked = None;
        if let Some(watcher) = &self.watcher {
            let _ = watcher.tell(WatcherOrder::End);
        }
    }

    fn leave(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.dismiss();
        }
    }
}

impl ProcessGroups {
    /// Remembers a process that another process has seen in the tree.
    pub(super) fn remember(&mut self, pid: i32, mark: u64) {
        self.known.insert((pid, mark), 0);
    }

    /// The pids of the tree: of the group, known ones, and what descends from them.
    fn inside(&self, all: &[ProcessEntry], group: Option<i32>) -> HashSet<i32> {
        let mut marks: HashSet<u64> = self.known.keys().map(|(_, mark)| *mark).collect();
        let mut inside = HashSet::new();
        // A parent may have a higher pid than its child, so one pass is not enough.
        loop {
            let before = inside.len();
            for entry in all {
                let is_known = self.known.contains_key(&(entry.pid, entry.mark));
                let by_parent =
                    inside.contains(&entry.parent) || entry.parent_mark.is_some_and(|mark| marks.contains(&mark));
                let by_group = group.is_some_and(|group| entry.group == group || entry.pid == group);
                if (is_known || by_parent || by_group) && inside.insert(entry.pid) && entry.parent_mark.is_some() {
                    marks.insert(entry.mark);
                }
            }
            if inside.len() == before {
                return inside;
            }
        }
    }

    /// Remembers the processes that are in the tree now, and forgets those that have been gone for two looks: their
    /// children have been seen by then.
    fn learn(&mut self, all: &[ProcessEntry], inside: &HashSet<i32>, group: Option<i32>) {
        self.known.values_mut().for_each(|absent| *absent += 1);
        for entry in all.iter().filter(|entry| inside.contains(&entry.pid)) {
            let before = self.known.insert((entry.pid, entry.mark), 0);
            if before.is_some() || entry.state == ProcessState::Dead {
                continue;
            }
            self.alarm.watch(entry.pid);
            if let Some(watcher) = self.watcher.as_ref().filter(|_| Some(entry.group) != group) {
                // Without room in the pipe the watcher knows the group only.
                let _ = watcher.tell(WatcherOrder::Also { pid: entry.pid, mark: entry.mark });
            }
        }
        self.known.retain(|_, absent| *absent <= 2);
    }
}

/// The shortest pause between two looks at a running job: a build forks a thousand processes a second.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32, group: i32, parent_mark: Option<u64>) -> ProcessEntry {
        let (state, name) = (ProcessState::Running, "sh".to_string());
        ProcessEntry { pid, parent, group, state, name, mark: 1000 + pid.cast_unsigned() as u64, parent_mark }
    }

    fn tree(control: &mut ProcessGroups, all: &[ProcessEntry]) -> Vec<i32> {
        let inside = control.inside(all, Some(10));
        control.learn(all, &inside, Some(10));
        let mut inside: Vec<i32> = inside.into_iter().collect();
        inside.sort_unstable();
        inside
    }

    #[test]
    fn the_group_and_its_descendants_are_the_tree() {
        let all = [entry(1, 0, 1, None), entry(10, 5, 10, None), entry(12, 11, 12, None), entry(11, 1, 10, None)];
        assert_eq!(tree(&mut ProcessGroups::default(), &all), [10, 11, 12]);
    }

    /// Linux: the session leader 11 was a child of 10 when it was seen, and is an orphan now.
    #[test]
    fn what_was_seen_once_is_found_again() {
        let mut control = ProcessGroups::default();
        assert_eq!(tree(&mut control, &[entry(10, 5, 10, None), entry(11, 10, 11, None)]), [10, 11]);
        assert_eq!(tree(&mut control, &[entry(11, 1, 11, None)]), [11]);
        let mut reused = entry(11, 1, 11, None);
        reused.mark += 1;
        assert_eq!(tree(&mut control, &[reused]), [0; 0], "another process with its pid");
    }

    /// macOS: 12 was forked by 11, which is gone. Its own parent is launchd.
    #[test]
    fn the_mark_of_a_dead_parent_leads_to_its_child() {
        let mut control = ProcessGroups::default();
        let seen = [entry(10, 5, 10, Some(1005)), entry(11, 10, 11, Some(1010))];
        assert_eq!(tree(&mut control, &seen), [10, 11]);
        let orphan = [entry(12, 1, 11, Some(1011))];
        assert_eq!(tree(&mut control, &orphan), [12]);
        let unseen = [entry(14, 1, 13, Some(1013))];
        assert_eq!(tree(&mut ProcessGroups::default(), &unseen), [0; 0], "its parent was never seen");
    }

    #[test]
    fn the_dead_are_forgotten_after_two_looks() {
        let mut control = ProcessGroups::default();
        tree(&mut control, &[entry(10, 5, 10, None), entry(11, 10, 10, None)]);
        for _ in 0..3 {
            tree(&mut control, &[entry(10, 5, 10, None)]);
        }
        assert_eq!(control.known.keys().copied().collect::<Vec<_>>(), [(10, 1010)]);
    }
}
