//! The driver: one loop that performs what a run decides and tells it what happened.
//!
//! While something is guarded the loop never waits for the store, which is called on a thread of its own. It waits for
//! whichever comes first: an answer, a signal, a word from what is guarded, or the next moment that the run named.

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

/// The longest the loop sleeps. The kernel's timers stand still while the machine does, so that a longer sleep would
/// wake late by as long as the machine slept.
const NAP_MAX: Duration = Duration::from_millis(500);

/// What a lease is held for: a child process, or a program at the other end of standard input.
pub trait GuardedWork {
    /// Does what the run decided, and says what came of it at once.
    fn perform(&mut self, output: Output, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// What has happened, without waiting.
    fn hear(&mut self, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// Passes on a signal that is none of the run's business, or follows one that stops us.
    fn signalled(&mut self, signal: i32, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// Looks whether the deadline was kept.
    fn check(&mut self, deadline: Option<Boot>, now: Boot, tell: &mut dyn FnMut(Note)) -> Vec<Input>;
    /// When that has to be looked at, if there is anything to see.
    fn due(&self, deadline: Boot) -> Option<Boot>;
    /// What becomes readable when there is something to hear.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;
}

/// Something that happened, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Event(Event),
    Spawned {
        pid: i32,
    },
    /// The child ended and left these behind; they are being ended.
    LeftOvers(Vec<String>),
    /// Lines in the job's own file that cannot be trusted, and are not.
    Untrusted(Vec<String>),
}

/// Drives a run to its end.
pub fn drive(
    run: Run,
    store: Callee,
    local: &Local,
    signals: &mut Signals,
    body: &mut dyn GuardedWork,
    tell: &mut dyn FnMut(Note),
) -> Finish {
    let worker = CallWorker::new(store);
    let mut driver = Driver { run, worker, local, signals, body, tell, is_lean: false };
    let mut outputs = VecDeque::from(driver.run.step(clock::now(), Input::Begin));
    loop {
        while let Some(output) = outputs.pop_front() {
            if let Output::Finish(finish) = output {
                return finish;
            }
            let inputs = driver.perform(output);
            outputs.extend(driver.step(inputs));
        }
        driver.nap();
        let inputs = driver.happenings();
        outputs.extend(driver.step(inputs));
        outputs.extend(driver.keep_time());
    }
}

struct Driver<'a> {
    run: Run,
    worker: CallWorker,
    local: &'a Local,
    signals: &'a mut Signals,
    body: &'a mut dyn GuardedWork,
    tell: &'a mut dyn FnMut(Note),
    /// Nothing was done since the code was given back.
    is_lean: bool,
}

impl Driver<'_> {
    fn step(&mut self, inputs: Vec<Input>) -> Vec<Output> {
        inputs.into_iter().flat_map(|input| self.run.step(clock::now(), input)).collect()
    }

    /// Does what the run decided, and says what came of it at once.
    fn perform(&mut self, output: Output) -> Vec<Input> {
        self.is_lean = false;
        match output {
            Output::Call(call) => {
                self.worker.call(call, self.run.is_running());
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
                // Done once the child is on its way, so that it does not wait for it.
                if let Some(record) = record {
                    self.local.remember_grant(&record);
                }
                inputs
            }
            other => self.body.perform(other, self.tell),
        }
    }

    /// Sleeps until something happens or is due. Where that takes long, what is not needed meanwhile is given back.
    fn nap(&mut self) {
        if self.worker.has_answered() {
            return;
        }
        let has_slept_through = nap(&self.run, &self.worker, self.signals, self.body);
        if has_slept_through && !self.is_lean {
            self.is_lean = true;
            sys::give_back_code();
        }
    }

    /// Which signals came, what the body had to say, and what the store answered. The answer is last: a signal that came
    /// while a claim was out, or the death of the keeper, keeps the command from being started.
    fn happenings(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for signal in self.signals.pending() {
            inputs.extend(match signal {
                ReceivedSignal::End(signal) => vec![Input::Interrupted(signal)],
                ReceivedSignal::Continued => vec![Input::Woke],
                ReceivedSignal::Other(signal) => self.body.signalled(signal, self.tell),
            });
        }
        inputs.extend(self.body.hear(self.tell));
        inputs.extend(self.worker.answer().map(Input::Answered));
        inputs
    }

    /// Looks whether the deadline was kept, and whether something is due.
    fn keep_time(&mut self) -> Vec<Output> {
        let now = clock::now();
        let missed = self.body.check(kept_until(&self.run), now.boot, self.tell);
        let mut outputs = self.step(missed);
        if self.run.wake_at().is_some_and(|at| now.boot >= at) {
            outputs.extend(self.run.step(now, Input::Tick));
        }
        outputs
    }
}

/// The deadline, while there is something to keep it.
fn kept_until(run: &Run) -> Option<Boot> {
    run.deadline().filter(|_| run.is_running())
}

/// Sleeps, and says whether nothing happened for as long as it ever sleeps.
fn nap(run: &Run, worker: &CallWorker, signals: &Signals, body: &dyn GuardedWork) -> bool {
    let due = [run.wake_at(), kept_until(run).and_then(|deadline| body.due(deadline))].into_iter().flatten().min();
    let until_due = due.map_or(NAP_MAX, |at| at.since(clock::boot_now()));
    let timeout = PollTimeout::try_from(until_due.min(NAP_MAX)).unwrap_or(PollTimeout::ZERO);
    let fds = worker.fd().into_iter().chain([signals.fd()]).chain(body.fds());
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut fds, timeout) {
        Ok(happened) => return happened == 0 && until_due >= NAP_MAX,
        Err(Errno::EINTR) => {}
        // Nothing can be waited for; a short sleep keeps the loop from spinning, and the deadline is still kept.
        Err(_) => std::thread::sleep(Duration::from_millis(50)),
    }
    false
}
