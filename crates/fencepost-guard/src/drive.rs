//! The driver: one loop that performs the outputs of a run and feeds it the inputs.
//!
//! While a lease is held, the loop never blocks on the store: calls run on a separate thread. The loop waits for the
//! first of: a store answer, a signal, a report of the guarded work, or the run's next timer.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use fencepost_core::run::{Event, Finish, Input, Output, Run};
use fencepost_core::time::Boot;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock;
use crate::local::Local;
use crate::signals::{ReceivedSignal, Signals};
use crate::sys;
use crate::worker::CallWorker;
pub use crate::worker::Callee;

/// The longest sleep of a loop that keeps a deadline. The kernel's timers stop while the machine is suspended: a longer sleep would end
/// late by the time of the suspension.
pub const NAP_MAX: Duration = Duration::from_millis(500);

/// What a lease is held for: a child process, a program at the other end of standard input, or the program around this code.
pub trait GuardedWork {
    /// Performs an output of the run, and returns the inputs that follow at once.
    fn perform(&mut self, output: Output, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// Returns the inputs that have arrived, without blocking.
    fn hear(&mut self, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// Passes on a signal that the run does not handle, or stops this process along with the child.
    fn signalled(&mut self, signal: i32, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// Checks whether the deadline was kept.
    fn check(&mut self, deadline: Option<Boot>, now: Boot, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// When the next check is due, if one is needed.
    fn due(&self, deadline: Boot) -> Option<Boot>;
    /// Descriptors that become readable when `hear` has an input.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;
    /// Whether this process has little to do besides, and may release its code pages before a long sleep.
    fn is_alone(&self) -> bool {
        true
    }
}

/// A notice for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Event(Event),
    Spawned {
        pid: i32,
    },
    /// Processes that the child left behind, and that are being terminated.
    LeftOvers(Vec<String>),
    /// Lines of the job's report file that cannot be trusted. They are ignored.
    Untrusted(Vec<String>),
    /// Commands inside the run find it by their environment only.
    Unregistered(String),
}

/// A run and the worker that makes its store calls: what one drive leaves to the next.
#[derive(Debug)]
pub struct DrivenRun {
    run: Run,
    worker: CallWorker,
    has_begun: bool,
}

/// Drives a run to its end. Without `signals` the process's signals are not the run's business.
pub fn drive(
    run: Run,
    store: Callee,
    local: &Local,
    mut signals: Option<&mut Signals>,
    body: &mut dyn GuardedWork,
    tell: &mut dyn FnMut(Note),
) -> Finish {
    let mut driven = DrivenRun::new(run, store);
    loop {
        if let Some(finish) = driven.go_on(local, signals.as_deref_mut(), body, tell, |_| false) {
            return finish;
        }
    }
}

impl DrivenRun {
    pub fn new(run: Run, store: Callee) -> Self {
        Self { run, worker: CallWorker::new(store), has_begun: false }
    }

    /// Drives the run to its end, or until it is far enough and waits for something. Then another thread may go on with it.
    pub fn go_on(
        &mut self,
        local: &Local,
        signals: Option<&mut Signals>,
        body: &mut dyn GuardedWork,
        tell: &mut dyn FnMut(Note),
        is_enough: impl Fn(&Run) -> bool,
    ) -> Option<Finish> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let mut driver = Driver { driven: self, local, signals, body, tell, is_lean: false };
        let mut outputs = VecDeque::new();
        if !has_begun {
            outputs.extend(driver.step(vec![Input::Begin]));
        }
        loop {
            while let Some(output) = outputs.pop_front() {
                if let Output::Finish(finish) = output {
                    return Some(finish);
                }
                let inputs = driver.perform(output);
                outputs.extend(driver.step(inputs));
            }
            if is_enough(&driver.driven.run) {
                return None;
            }
            driver.nap();
            let inputs = driver.happenings();
            outputs.extend(driver.step(inputs));
            outputs.extend(driver.keep_time());
        }
    }

    /// When the run has to be driven again, if nothing happens before.
    pub fn due(&self, body: &dyn GuardedWork) -> Option<Boot> {
        [self.run.wake_at(), self.kept_until().and_then(|deadline| body.due(deadline))].into_iter().flatten().min()
    }

    /// The deadline, while a command runs that has to keep it.
    fn kept_until(&self) -> Option<Boot> {
        self.run.deadline().filter(|_| self.run.is_running())
    }
}

struct Driver<'a> {
    driven: &'a mut DrivenRun,
    local: &'a Local,
    signals: Option<&'a mut Signals>,
    body: &'a mut dyn GuardedWork,
    tell: &'a mut dyn FnMut(Note),
    /// Nothing has run since the program's code pages were released.
    is_lean: bool,
}

impl Driver<'_> {
    fn step(&mut self, inputs: Vec<Input>) -> Vec<Output> {
        inputs.into_iter().flat_map(|input| self.driven.run.step(clock::now(), input)).collect()
    }

    /// Performs an output of the run, and returns the inputs that follow at once.
    fn perform(&mut self, output: Output) -> Vec<Input> {
        self.is_lean = false;
        match output {
            Output::Call(call) => {
                self.driven.worker.call(call, self.driven.run.is_running());
                Vec::new()
            }
            Output::Consult(record) => {
                vec![Input::Consulted(self.local.facts(record.as_deref(), clock::boot_now()))]
            }
            Output::Tell(event) => {
                (self.tell)(Note::Event(event));
                Vec::new()
            }
            Output::Prepare { .. } | Output::Inspect { .. } | Output::Spawn { .. } => {
                let record = output.grant().map(|grant| grant.record.clone());
                let inputs = self.body.perform(output, self.tell);
                // Runs after the child was started: the child does not wait for it.
                if let Some(record) = record {
                    self.local.remember_grant(&record);
                }
                inputs
            }
            other => self.body.perform(other, self.tell),
        }
    }

    /// Sleeps until an input arrives or a timer is due. Before a long sleep, releases memory that is not needed
    /// meanwhile.
    fn nap(&mut self) {
        if self.driven.worker.has_answered() {
            return;
        }
        let has_slept_through = nap(self.driven, self.signals.as_deref(), self.body);
        if has_slept_through && !self.is_lean && self.body.is_alone() {
            self.is_lean = true;
            sys::give_back_code();
        }
    }

    /// Collects the inputs: signals, then reports of the guarded work, then the store's answer. The answer comes last:
    /// a signal during a claim, or the death of the keeper, must prevent the start of the command.
    fn happenings(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for signal in self.signals.iter_mut().flat_map(|signals| signals.pending()) {
            inputs.extend(match signal {
                ReceivedSignal::End(signal) => vec![Input::Interrupted(signal)],
                ReceivedSignal::Continued => vec![Input::Woke],
                ReceivedSignal::Other(signal) => self.body.signalled(signal, self.tell),
            });
        }
        inputs.extend(self.body.hear(self.tell));
        inputs.extend(self.driven.worker.answer().map(Input::Answered));
        inputs
    }

    /// Checks the deadline, and fires timers that are due.
    fn keep_time(&mut self) -> Vec<Output> {
        let now = clock::now();
        let missed = self.body.check(self.driven.kept_until(), now.boot, self.tell);
        let mut outputs = self.step(missed);
        if self.driven.run.wake_at().is_some_and(|at| now.boot >= at) {
            outputs.extend(self.driven.run.step(now, Input::Tick));
        }
        outputs
    }
}

/// Sleeps. Returns whether the longest sleep passed without an input.
fn nap(driven: &DrivenRun, signals: Option<&Signals>, body: &dyn GuardedWork) -> bool {
    let until_due = driven.due(body).map_or(NAP_MAX, |at| at.since(clock::boot_now()));
    let timeout = PollTimeout::try_from(until_due.min(NAP_MAX)).unwrap_or(PollTimeout::ZERO);
    let fds = driven.worker.fd().into_iter().chain(signals.map(Signals::fd)).chain(body.fds());
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut fds, timeout) {
        Ok(happened) => return happened == 0 && until_due >= NAP_MAX,
        Err(Errno::EINTR) => {}
        // Polling failed. A short sleep keeps the loop from spinning, and the deadline is still enforced.
        Err(_) => std::thread::sleep(Duration::from_millis(50)),
    }
    false
}
