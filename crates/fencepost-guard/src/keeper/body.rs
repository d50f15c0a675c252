//! The keeper's loop: wait, look, act.
//!
//! It wakes at least twice a second while there is a deadline. A timer stops while the machine sleeps and would then be
//! late by the length of the sleep.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fencepost_core::time::Boot;
use nix::libc::{SIGCHLD, SIGCONT};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::control::ProcessControl;
use super::protocol::{Channel, ChannelRead, JobExit, KeeperOrder, NamedProcess, Report, Spawn};
use super::spawn::{self, Inherited};
use super::system::SystemControl;
use super::tree::{self, Killer, Tree};
use crate::clock::boot_now;
use crate::sys::{self, Change};

/// Guards one job. Returns when the tree is empty and the wrapper knows it or is gone.
pub(super) fn run(channel: Channel, mut inherited: Inherited) -> io::Result<()> {
    // Waits for the first order. A fork runs behind its parent on the same processor; after a wait the kernel moves it
    // to another one while the wrapper waits for the store.
    let _ = poll(&mut [PollFd::new(channel.fd(), PollFlags::POLLIN)], PollTimeout::NONE);
    inherited.settle()?;
    let mut tree = Tree::default();
    tree.control.prepare(channel.fd())?;
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    let kept = [channel.fd().as_raw_fd(), wake.as_raw_fd(), woken.as_raw_fd()];
    signal_hook::low_level::pipe::register(SIGCHLD, woken)?;
    let mut body = KeeperBody {
        channel,
        wake,
        tree,
        phase: JobPhase::Waiting,
        inherited,
        kept,
        job: KeptJob::default(),
        wrapper_died: false,
        due: boot_now(),
        look_in: None,
    };
    while !body.is_done() {
        body.step();
    }
    body.tree.control.leave();
    body.say_last_words();
    Ok(())
}

#[derive(Debug)]
struct KeeperBody {
    channel: Channel,
    /// Becomes readable when a child changes state.
    wake: UnixStream,
    tree: Tree,
    phase: JobPhase,
    inherited: Inherited,
    /// The keeper's own descriptors.
    kept: [RawFd; 3],
    job: KeptJob,
    wrapper_died: bool,
    /// When the loop expected to wake.
    due: Boot,
    /// When to look at the running job again, if before the next wake-up.
    look_in: Option<Duration>,
}

#[derive(Debug)]
enum JobPhase {
    /// No job was started yet.
    Waiting,
    Running,
    /// The job has ended; left-over processes get a moment to exit.
    Lingering {
        until: Boot,
    },
    Frozen(Frozen),
    /// TERM was sent.
    Ending {
        kill_at: Boot,
    },
    Killing(Killer),
    Empty,
}

#[derive(Debug)]
struct Frozen {
    since: Boot,
    told: bool,
    /// The tree as listed at `looked`.
    members: Vec<i32>,
    looked: Boot,
}

#[derive(Debug, Default)]
struct KeptJob {
    label: String,
    pid: Option<Pid>,
    deadline: Option<Boot>,
    grace: Duration,
    leave_children: bool,
    more_to_come: bool,
    observed: bool,
    /// `ChildStopped` was reported.
    told_stopped: bool,
    /// The tree was terminated because the wrapper died.
    orphaned: bool,
    escaped: Vec<NamedProcess>,
}

impl KeeperBody {
    fn step(&mut self) {
        let late = boot_now().since(self.due) > LATE;
        self.reap();
        self.take_orders();
        self.enforce(late);
        // Reading notices a wrapper that is gone.
        let _ = self.channel.flush();
        if self.is_done() {
            return;
        }
        self.look();
        let pause = self.pause();
        self.due = boot_now() + pause;
        self.sleep(pause);
    }

    /// Looks at a running job, where the kernel does not tell of its processes.
    fn look(&mut self) {
        if matches!(self.phase, JobPhase::Running) && !self.job.observed {
            self.look_in = self.tree.control.look(self.tree.group);
        }
    }

    /// Whether the tree is empty, and the wrapper knows it or is gone.
    fn is_done(&self) -> bool {
        match self.phase {
            JobPhase::Waiting => self.wrapper_died,
            JobPhase::Empty => self.wrapper_died || !self.job.more_to_come && self.channel.backlog() == 0,
            _ => false,
        }
    }

    fn reap(&mut self) {
        let has_children = loop {
            match self.tree.control.next_change(self.job.pid) {
                Ok(Some((pid, change))) if Some(pid) == self.job.pid => self.note(change),
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        let job_has_ended = self.job.pid.is_none();
        match self.phase {
            JobPhase::Waiting | JobPhase::Empty => {}
            _ if job_has_ended && self.tree.is_empty(has_children) => self.finish(Vec::new()),
            JobPhase::Running if job_has_ended && self.job.leave_children => self.finish(Vec::new()),
            JobPhase::Running if job_has_ended => self.phase = JobPhase::Lingering { until: boot_now() + LINGER },
            _ => {}
        }
    }

    /// Handles a state change of the job's first process.
    fn note(&mut self, change: Change) {
        let running = matches!(self.phase, JobPhase::Running);
        match change {
            Change::Exited(code) => self.note_end(JobExit::Code(code)),
            Change::Killed(signal) => self.note_end(JobExit::Signal(signal)),
            // If the keeper stopped the job itself, the wrapper must not stop too.
            Change::Stopped(signal) if running => {
                self.job.told_stopped = true;
                self.report_if_room(&Report::ChildStopped { signal });
            }
            Change::Continued if running && self.job.told_stopped => {
                self.job.told_stopped = false;
                self.report_if_room(&Report::ChildContinued);
            }
            Change::Stopped(_) | Change::Continued => {}
        }
    }

    fn note_end(&mut self, exit: JobExit) {
        self.job.pid = None;
        self.tree.first_ended();
        self.report(&Report::ChildEnded { exit });
    }

    fn take_orders(&mut self) {
        while !self.wrapper_died {
            match self.channel.receive() {
                ChannelRead::Message(order) => self.obey(order),
                ChannelRead::Nothing => return,
                ChannelRead::Closed => self.be_orphaned(),
            }
        }
    }

    fn obey(&mut self, order: KeeperOrder) {
        match order {
            KeeperOrder::Spawn(job) => self.spawn(*job),
            KeeperOrder::Deadline(deadline) => self.job.deadline = self.job.deadline.max(Some(deadline)),
            KeeperOrder::Signal(signal) => self.pass_on(signal),
            KeeperOrder::Stop if self.may_end() => self.end(),
            KeeperOrder::Kill if !matches!(self.phase, JobPhase::Waiting | JobPhase::Killing(_) | JobPhase::Empty) => {
                self.kill();
            }
            KeeperOrder::Freeze if matches!(self.phase, JobPhase::Running | JobPhase::Lingering { .. }) => {
                self.freeze();
            }
            KeeperOrder::Thaw(deadline) => self.thaw(deadline),
            KeeperOrder::GetReady | KeeperOrder::Stop | KeeperOrder::Kill | KeeperOrder::Freeze => {}
        }
    }

    fn spawn(&mut self, job: Spawn) {
        let is_next = matches!(self.phase, JobPhase::Empty) && self.job.more_to_come && self.job.escaped.is_empty();
        if !matches!(self.phase, JobPhase::Waiting) && !is_next {
            return;
        }
        // The wrapper or the keeper was stopped since the claim: the wrapper must confirm the lease first.
        if job.deadline.is_some_and(|deadline| boot_now() >= deadline.before(job.grace)) {
            return self.report(&Report::Stale);
        }
        match spawn::spawn(&job, &self.inherited, &self.tree.control) {
            Ok(pid) => self.begin(pid, job),
            Err(report) => {
                self.tree.forget();
                self.report(&report);
            }
        }
    }

    fn begin(&mut self, pid: Pid, job: Spawn) {
        self.tree.group = Some(pid);
        self.phase = JobPhase::Running;
        self.job = KeptJob {
            label: job.label,
            pid: Some(pid),
            deadline: job.deadline,
            grace: job.grace,
            leave_children: job.leave_children,
            more_to_come: job.more_to_come,
            observed: job.observed,
            ..KeptJob::default()
        };
        self.report(&Report::Spawned { pid: pid.as_raw() });
        if !self.job.more_to_come {
            // An inherited descriptor that stays open only delays readers of the output; the job is guarded anyway.
            let _ = spawn::let_go(&[&self.kept[..], &self.tree.control.descriptors()].concat());
        }
    }

    fn pass_on(&mut self, signal: i32) {
        // Only the wrapper's answer may continue a frozen job.
        if signal == SIGCONT && matches!(self.phase, JobPhase::Frozen(_)) {
            return;
        }
        if let Some(group) = self.tree.group {
            let _ = sys::send(-group.as_raw(), signal);
        }
    }

    fn be_orphaned(&mut self) {
        self.wrapper_died = true;
        if self.job.observed {
            return;
        }
        self.job.orphaned = !matches!(self.phase, JobPhase::Waiting | JobPhase::Empty);
        match self.phase {
            JobPhase::Running | JobPhase::Lingering { .. } => self.end(),
            // Without the wrapper, the lease cannot be confirmed.
            JobPhase::Frozen(_) => self.kill(),
            JobPhase::Ending { kill_at } => self.phase = JobPhase::Ending { kill_at: kill_at.min(self.kill_at()) },
            JobPhase::Waiting | JobPhase::Killing(_) | JobPhase::Empty => {}
        }
    }

    /// Acts on deadlines that have passed.
    fn enforce(&mut self, late: bool) {
        let now = boot_now();
        let act_at = self.act_at();
        match &mut self.phase {
            JobPhase::Running if act_at.is_some_and(|at| now >= at) => {
                // After a sleep, or with the whole tree stopped, the lease may have passed on. The tree stays stopped
                // until the wrapper has read the record.
                if late || self.tree.is_stopped() { self.freeze() } else { self.reach_deadline() }
            }
            JobPhase::Lingering { until } if now >= *until => self.end_left_overs(),
            JobPhase::Frozen(_) => self.keep_frozen(now),
            JobPhase::Ending { kill_at } if now >= *kill_at => self.kill(),
            JobPhase::Killing(killer) => {
                if let Some(escaped) = killer.strike(&mut self.tree, now) {
                    self.finish(escaped);
                }
            }
            _ => {}
        }
    }

    fn reach_deadline(&mut self) {
        self.report(&Report::DeadlineReached);
        self.end();
    }

    fn end_left_overs(&mut self) {
        let processes = self.tree.members().map(|members| tree::describe(&members)).unwrap_or_default();
        if !processes.is_empty() {
            self.report(&Report::LeftOvers { processes });
        }
        self.end();
    }

    fn may_end(&self) -> bool {
        matches!(self.phase, JobPhase::Running | JobPhase::Lingering { .. } | JobPhase::Frozen(_))
    }

    /// Sends TERM to the tree, then CONT: a stopped process handles TERM only when continued.
    fn end(&mut self) {
        let kill_at = self.kill_at();
        self.phase = JobPhase::Ending { kill_at };
        if boot_now() < kill_at {
            self.tree.signal_all(Signal::SIGTERM);
            self.tree.signal_all(Signal::SIGCONT);
        }
    }

    fn kill(&mut self) {
        let mut killer = Killer::default();
        killer.strike(&mut self.tree, boot_now());
        self.phase = JobPhase::Killing(killer);
    }

    fn finish(&mut self, escaped: Vec<NamedProcess>) {
        self.phase = JobPhase::Empty;
        self.tree.forget();
        self.job.escaped.clone_from(&escaped);
        self.report(&Report::Empty { escaped });
    }

    fn freeze(&mut self) {
        let now = boot_now();
        self.phase = JobPhase::Frozen(Frozen { since: now, told: false, members: Vec::new(), looked: now });
        self.keep_frozen(now);
    }

    /// Sends STOP to running processes, and reports `Frozen` once all are stopped.
    fn keep_frozen(&mut self, now: Boot) {
        let JobPhase::Frozen(frozen) = &mut self.phase else { return };
        if frozen.told && now.since(frozen.looked) < LOOK_INTERVAL && tree::all_still_stopped(&frozen.members) {
            return;
        }
        let (members, still) = self.tree.stop_runners();
        frozen.members = members;
        frozen.looked = now;
        if !frozen.told && (still || now.since(frozen.since) > FREEZE_MAX) {
            frozen.told = true;
            self.report(&Report::Frozen);
        }
    }

    fn thaw(&mut self, deadline: Boot) {
        self.job.deadline = Some(deadline);
        if matches!(self.phase, JobPhase::Frozen(_)) {
            self.phase = JobPhase::Running;
            self.tree.signal_all(Signal::SIGCONT);
        }
    }

    /// When the deadline next needs action.
    fn act_at(&self) -> Option<Boot> {
        self.job.deadline.map(|deadline| deadline.before(self.job.grace))
    }

    /// When to send KILL to a tree that gets TERM now: early enough that it is dead at the deadline.
    fn kill_at(&self) -> Boot {
        let patience = boot_now() + self.job.grace;
        let margin = KILL_MARGIN_MAX.min(self.job.grace / 5);
        self.job.deadline.map_or(patience, |deadline| patience.min(deadline.before(margin)))
    }

    fn pause(&self) -> Duration {
        let until = |at: Boot| at.since(boot_now()).min(PAUSE_MAX);
        match &self.phase {
            JobPhase::Waiting | JobPhase::Empty => PAUSE_MAX,
            JobPhase::Running => self.act_at().map_or(PAUSE_MAX, until).min(self.look_in.unwrap_or(PAUSE_MAX)),
            JobPhase::Lingering { until: at } | JobPhase::Ending { kill_at: at } => {
                until(*at).min(SystemControl::LOOK_INTERVAL)
            }
            JobPhase::Frozen(frozen) if frozen.told => FROZEN_INTERVAL,
            JobPhase::Frozen(_) | JobPhase::Killing(_) => super::STRIKE_INTERVAL,
        }
    }

    fn sleep(&mut self, pause: Duration) {
        let waiting = if self.channel.backlog() > 0 { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        // poll() would report a closed channel for ever.
        if !self.wrapper_died {
            fds.push(PollFd::new(self.channel.fd(), PollFlags::POLLIN | waiting));
        }
        let alarm = self.tree.control.alarm().filter(|_| matches!(self.phase, JobPhase::Running));
        fds.extend(alarm.map(|alarm| PollFd::new(alarm, PollFlags::POLLIN)));
        // The only error is EINTR, and the loop checks everything anyway.
        let _ = poll(&mut fds, PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO));
        while self.wake.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
    }

    fn report(&mut self, report: &Report) {
        // A report is small and always serialises.
        let _ = self.channel.push(report);
    }

    /// Drops stop and continue reports for a wrapper that has not read for long.
    fn report_if_room(&mut self, report: &Report) {
        if self.channel.backlog() < BACKLOG_MAX_BYTES {
            self.report(report);
        }
    }

    /// Writes what happened to standard error, because the wrapper is dead.
    fn say_last_words(&self) {
        if !self.job.orphaned {
            return;
        }
        let mut line = format!("fencepost: the wrapper of {} died; the job was stopped", self.job.label);
        for process in &self.job.escaped {
            line += &format!(", but {} (pid {}) could not be killed", process.name, process.pid);
        }
        line.push('\n');
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// The longest sleep of the loop: a wake-up from suspend is noticed within a second.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A wake-up this late means that the machine slept or the keeper was stopped.
const LATE: Duration = Duration::from_secs(1);
/// How long left-over processes get to exit by themselves: the end of a pipeline may outlive its shell by a moment.
const LINGER: Duration = Duration::from_millis(200);
/// How often a frozen tree is checked.
const FROZEN_INTERVAL: Duration = Duration::from_millis(100);
/// How often the processes of a frozen tree are listed again.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// After this the tree counts as frozen, even if a process has not stopped yet.
const FREEZE_MAX: Duration = Duration::from_secs(2);
/// KILL is sent this long before the deadline, so the tree is dead at the deadline.
const KILL_MARGIN_MAX: Duration = Duration::from_millis(250);
const BACKLOG_MAX_BYTES: usize = 64 << 10;
