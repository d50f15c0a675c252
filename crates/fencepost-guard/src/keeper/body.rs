//! What the keeper does all its life: wait, look, and act when the time has come.
//!
//! It wakes at least twice a second while there is a deadline, because a timer that was set before the machine went
//! to sleep counts on from where it stood, and it would otherwise be late by as long as the machine slept.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fencepost_core::time::Boot;
use nix::libc::{SIGCHLD, SIGCONT};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::protocol::{Channel, Exit, Order, Process, Received, Report, Spawn};
use super::spawn::{self, Inherited};
use super::tree::{self, Killer, Tree};
use crate::clock::boot_now;
use crate::sys::{self, Change};

/// Keeps one job, and returns when there is nothing left to keep and nobody to tell.
pub(super) fn run(channel: Channel, mut inherited: Inherited) -> io::Result<()> {
    // Whoever forks goes on where it is, and the fork waits for its turn behind it. Once it has waited for something, it
    // is given a processor of its own, while the wrapper waits for the store.
    let _ = poll(&mut [PollFd::new(channel.fd(), PollFlags::POLLIN)], PollTimeout::NONE);
    inherited.settle()?;
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    let kept = [channel.fd().as_raw_fd(), wake.as_raw_fd(), woken.as_raw_fd()];
    signal_hook::low_level::pipe::register(SIGCHLD, woken)?;
    let mut body = Body {
        channel,
        wake,
        tree: Tree::default(),
        phase: Phase::Waiting,
        inherited,
        kept,
        job: Job::default(),
        is_new: false,
        wrapper_died: false,
        due: boot_now(),
    };
    while !body.is_done() {
        body.step();
    }
    body.say_last_words();
    Ok(())
}

#[derive(Debug)]
struct Body {
    channel: Channel,
    /// Readable when a child has changed.
    wake: UnixStream,
    tree: Tree,
    phase: Phase,
    inherited: Inherited,
    /// The descriptors that are the keeper's own.
    kept: [RawFd; 3],
    job: Job,
    /// The job was started just now, and the wrapper was not told yet.
    is_new: bool,
    wrapper_died: bool,
    /// When the loop meant to be back at its beginning.
    due: Boot,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was spawned yet.
    Waiting,
    Running,
    /// The job has ended, and what it left has a moment to end too.
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
    /// All of the tree when last looked at, at `looked`.
    members: Vec<i32>,
    looked: Boot,
}

#[derive(Debug, Default)]
struct Job {
    label: String,
    pid: Option<Pid>,
    deadline: Option<Boot>,
    grace: Duration,
    leave_children: bool,
    more_to_come: bool,
    observed: bool,
    /// The wrapper was told that the job is stopped.
    told_stopped: bool,
    /// The wrapper's death was what ended it.
    orphaned: bool,
    escaped: Vec<Process>,
}

impl Body {
    fn step(&mut self) {
        let late = boot_now().since(self.due) > LATE;
        let was_new = self.tell_of_new();
        self.reap();
        self.take_orders();
        self.enforce(late);
        // A wrapper that is gone is noticed by reading.
        let _ = self.channel.flush();
        if self.is_done() {
            return;
        }
        if was_new && !self.job.more_to_come {
            // A descriptor too many only delays whoever waits for the output to end; the job is guarded all the same.
            let _ = spawn::let_go(&self.kept);
        }
        let pause = self.pause();
        self.due = boot_now() + pause;
        self.sleep(pause);
    }

    /// Whether there is nothing left to keep, and the wrapper knows it or is gone.
    fn is_done(&self) -> bool {
        match self.phase {
            Phase::Waiting => self.wrapper_died,
            Phase::Empty => self.wrapper_died || !self.job.more_to_come && self.channel.backlog() == 0,
            _ => false,
        }
    }

    fn reap(&mut self) {
        let has_children = loop {
            match sys::next_change() {
                Ok(Some((pid, change))) if Some(pid) == self.job.pid => self.note(change),
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        let job_has_ended = self.job.pid.is_none();
        match self.phase {
            Phase::Waiting | Phase::Empty => {}
            _ if job_has_ended && self.tree.is_empty(has_children) => self.finish(Vec::new()),
            Phase::Running if job_has_ended && self.job.leave_children => self.finish(Vec::new()),
            Phase::Running if job_has_ended => self.phase = Phase::Lingering { until: boot_now() + LINGER },
            _ => {}
        }
    }

    /// What became of the job's first process.
    fn note(&mut self, change: Change) {
        let running = matches!(self.phase, Phase::Running);
        match change {
            Change::Exited(code) => self.note_end(Exit::Code(code)),
            Change::Killed(signal) => self.note_end(Exit::Signal(signal)),
            // Otherwise it was the keeper that stopped it, and the wrapper must not follow suit.
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

    fn note_end(&mut self, exit: Exit) {
        self.job.pid = None;
        self.tree.group = None;
        self.report(&Report::ChildEnded { exit });
    }

    fn take_orders(&mut self) {
        while !self.wrapper_died {
            match self.channel.receive() {
                Received::Message(order) => self.obey(order),
                Received::Nothing => return,
                Received::Closed => self.be_orphaned(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Spawn(job) => self.spawn(*job),
            Order::Deadline(deadline) => self.job.deadline = self.job.deadline.max(Some(deadline)),
            Order::Signal(signal) => self.pass_on(signal),
            Order::Stop if self.may_end() => self.end(),
            Order::Kill if !matches!(self.phase, Phase::Waiting | Phase::Killing(_) | Phase::Empty) => self.kill(),
            Order::Freeze if matches!(self.phase, Phase::Running | Phase::Lingering { .. }) => self.freeze(),
            Order::Thaw(deadline) => self.thaw(deadline),
            Order::GetReady | Order::Stop | Order::Kill | Order::Freeze => {}
        }
    }

    fn spawn(&mut self, job: Spawn) {
        let is_next = matches!(self.phase, Phase::Empty) && self.job.more_to_come && self.job.escaped.is_empty();
        if !matches!(self.phase, Phase::Waiting) && !is_next {
            return;
        }
        // If the wrapper or this process stood still since the lease was won, the wrapper has to confirm it first.
        if job.deadline.is_some_and(|deadline| boot_now() >= deadline.before(job.grace)) {
            return self.report(&Report::Stale);
        }
        match spawn::spawn(&job, &self.inherited) {
            Ok(pid) => self.begin(pid, job),
            Err(report) => self.report(&report),
        }
    }

    fn begin(&mut self, pid: Pid, job: Spawn) {
        self.tree.group = Some(pid);
        self.phase = Phase::Running;
        self.job = Job {
            label: job.label,
            pid: Some(pid),
            deadline: job.deadline,
            grace: job.grace,
            leave_children: job.leave_children,
            more_to_come: job.more_to_come,
            observed: job.observed,
            ..Job::default()
        };
        self.is_new = true;
    }

    /// Tells the wrapper of a job that was started, and says whether there was one. That has waited for a moment: the
    /// kernel has put the keeper back onto the job's own processor, and whatever it does there the job waits for.
    fn tell_of_new(&mut self) -> bool {
        let is_new = std::mem::take(&mut self.is_new);
        if let Some(pid) = self.job.pid.filter(|_| is_new) {
            self.report(&Report::Spawned { pid: pid.as_raw() });
        }
        is_new
    }

    fn pass_on(&mut self, signal: i32) {
        // Whoever continues a frozen job has to ask the wrapper.
        if signal == SIGCONT && matches!(self.phase, Phase::Frozen(_)) {
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
        self.job.orphaned = !matches!(self.phase, Phase::Waiting | Phase::Empty);
        match self.phase {
            Phase::Running | Phase::Lingering { .. } => self.end(),
            // Nobody is left to say whether the lease is still ours.
            Phase::Frozen(_) => self.kill(),
            Phase::Ending { kill_at } => self.phase = Phase::Ending { kill_at: kill_at.min(self.kill_at()) },
            Phase::Waiting | Phase::Killing(_) | Phase::Empty => {}
        }
    }

    /// What the clock demands.
    fn enforce(&mut self, late: bool) {
        let now = boot_now();
        let act_at = self.act_at();
        match &mut self.phase {
            Phase::Running if act_at.is_some_and(|at| now >= at) => {
                // Having slept, or with everything stopped for who knows how long, the lease may have passed to
                // another or not: the tree stands still until the wrapper has found out.
                if late || self.tree.is_stopped() { self.freeze() } else { self.reach_deadline() }
            }
            Phase::Lingering { until } if now >= *until => self.end_left_overs(),
            Phase::Frozen(_) => self.keep_frozen(now),
            Phase::Ending { kill_at } if now >= *kill_at => self.kill(),
            Phase::Killing(killer) => {
                if let Some(escaped) = killer.strike(&self.tree, now) {
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
        matches!(self.phase, Phase::Running | Phase::Lingering { .. } | Phase::Frozen(_))
    }

    /// TERM to the tree, and CONT so that what is stopped hears it.
    fn end(&mut self) {
        let kill_at = self.kill_at();
        self.phase = Phase::Ending { kill_at };
        if boot_now() < kill_at {
            self.tree.signal_all(Signal::SIGTERM);
            self.tree.signal_all(Signal::SIGCONT);
        }
    }

    fn kill(&mut self) {
        let mut killer = Killer::default();
        killer.strike(&self.tree, boot_now());
        self.phase = Phase::Killing(killer);
    }

    fn finish(&mut self, escaped: Vec<Process>) {
        self.phase = Phase::Empty;
        self.job.escaped.clone_from(&escaped);
        self.report(&Report::Empty { escaped });
    }

    fn freeze(&mut self) {
        let now = boot_now();
        self.phase = Phase::Frozen(Frozen { since: now, told: false, members: Vec::new(), looked: now });
        self.keep_frozen(now);
    }

    /// Stops whatever runs, and tells the wrapper once nothing does.
    fn keep_frozen(&mut self, now: Boot) {
        let Phase::Frozen(frozen) = &mut self.phase else { return };
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
        if matches!(self.phase, Phase::Frozen(_)) {
            self.phase = Phase::Running;
            self.tree.signal_all(Signal::SIGCONT);
        }
    }

    /// When something has to be done about the deadline.
    fn act_at(&self) -> Option<Boot> {
        self.job.deadline.map(|deadline| deadline.before(self.job.grace))
    }

    /// When a tree that is sent TERM now is to be killed: early enough to be dead at the deadline.
    fn kill_at(&self) -> Boot {
        let patience = boot_now() + self.job.grace;
        let margin = KILL_MARGIN_MAX.min(self.job.grace / 5);
        self.job.deadline.map_or(patience, |deadline| patience.min(deadline.before(margin)))
    }

    fn pause(&self) -> Duration {
        let until = |at: Boot| at.since(boot_now()).min(PAUSE_MAX);
        match &self.phase {
            _ if self.is_new => LEFT_ALONE,
            Phase::Waiting | Phase::Empty => PAUSE_MAX,
            Phase::Running => self.act_at().map_or(PAUSE_MAX, until),
            Phase::Lingering { until: at } | Phase::Ending { kill_at: at } => until(*at),
            Phase::Frozen(frozen) if frozen.told => FROZEN_INTERVAL,
            Phase::Frozen(_) | Phase::Killing(_) => super::STRIKE_INTERVAL,
        }
    }

    fn sleep(&mut self, pause: Duration) {
        let waiting = if self.channel.backlog() > 0 { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.channel.fd(), PollFlags::POLLIN | waiting),
        ];
        // The end of a closed channel would be reported for ever.
        let count = if self.wrapper_died { 1 } else { 2 };
        // An error is a signal, and the loop looks at everything anyway.
        let _ = poll(&mut fds[..count], PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO));
        while self.wake.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
    }

    fn report(&mut self, report: &Report) {
        // Reports are small, and nothing in them can fail to be written as JSON.
        let _ = self.channel.push(report);
    }

    /// A wrapper that has read nothing for so long does not need to hear of every stop in between.
    fn report_if_room(&mut self, report: &Report) {
        if self.channel.backlog() < BACKLOG_MAX_BYTES {
            self.report(report);
        }
    }

    /// With the wrapper dead, nobody else is there to say what happened.
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

/// How long the keeper leaves a new job alone. Elsewhere than on Linux orphans do not come to the wrapper: it has to know
/// the job's group at once, for the case that the keeper dies.
const LEFT_ALONE: Duration = if cfg!(target_os = "linux") { Duration::from_millis(2) } else { Duration::ZERO };
/// Checked this often, so that a machine that wakes from sleep is noticed within a second.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Later than asked for by this much means that the machine slept, or that we were stopped.
const LATE: Duration = Duration::from_secs(1);
/// The end of a pipeline may outlive the shell that started it by a moment; TERM would cost its last lines.
const LINGER: Duration = Duration::from_millis(200);
/// How often a frozen tree is looked at.
const FROZEN_INTERVAL: Duration = Duration::from_millis(100);
/// How often a frozen tree is looked for among all processes.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// The tree counts as frozen after this even if something in it has not stopped yet.
const FREEZE_MAX: Duration = Duration::from_secs(2);
/// Killing takes a few milliseconds, and everything is to be dead at the deadline.
const KILL_MARGIN_MAX: Duration = Duration::from_millis(250);
const BACKLOG_MAX_BYTES: usize = 64 << 10;
