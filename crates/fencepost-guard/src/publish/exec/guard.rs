//! One command with its turn: renewed while it runs, given up when its tree is dead.
//!
//! The store has its own thread, so that a call that hangs delays nothing here; the keeper keeps the deadline.

use std::thread::sleep;
use std::time::Duration;

use fencepost_core::busy::{Change, Intent, Outcome, State, Step};
use fencepost_core::lease::{Honest, Rules};
use fencepost_core::run::{Exit, Input, NotSpawned, Output};
use fencepost_core::time::Boot;
use fencepost_core::token::RunId;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::PublishError;
use super::{Desk, Ran, Taken, Task, carry, evidence, receipt};
use crate::child::Child;
use crate::clock;
use crate::drive::{Body, Note};
use crate::signals::{Received, Signals};
use crate::worker::{Answered, Callee, Worker};

/// The longest the loop sleeps: the kernel's timers stand still while the machine does.
const NAP_MAX: Duration = Duration::from_millis(500);
/// Between two tries of a call that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// It is renewed this many times in a time-to-live, so that one lost renewal costs nothing.
const RENEWALS_PER_TTL: u32 = 3;

pub(super) struct Guard<'a> {
    desk: &'a Desk<'a>,
    task: &'a Task,
    turn: RunId,
    taken: Taken,
    child: Child,
    signals: Signals,
    worker: Worker,
    /// The renewal that is out.
    renewal: Option<Change>,
    renew_at: Boot,
    frozen_since: Option<Boot>,
    seen: Seen,
    remarks: Vec<String>,
}

/// What was seen of the command so far.
#[derive(Default)]
struct Seen {
    exit: Option<Exit>,
    not_spawned: Option<NotSpawned>,
    /// Why it was ended by us, if it was.
    ended: Option<&'static str>,
    /// Nothing is left of the tree but what is named.
    empty: Option<Vec<String>>,
    /// Whether the keeper was told to start the command.
    ordered: bool,
}

impl<'a> Guard<'a> {
    pub(super) fn new(
        desk: &'a Desk<'a>,
        task: &'a Task,
        turn: RunId,
        taken: Taken,
        child: Child,
    ) -> Result<Self, PublishError> {
        let failed = |what: &str, error: std::io::Error| {
            PublishError::Failed(format!(
                "Cannot {what}: {error}. Nothing was run; {} is free again once this process is gone.",
                task.resource
            ))
        };
        let signals = Signals::listen().map_err(|error| failed("listen to signals", error))?;
        let worker = Worker::new(Callee { store: desk.store.clone(), is_embedded: false });
        let renew_at = taken.sent + task.ttl / RENEWALS_PER_TTL;
        Ok(Self {
            desk,
            task,
            turn,
            taken,
            child,
            signals,
            worker,
            renewal: None,
            renew_at,
            frozen_since: None,
            seen: Seen::default(),
            remarks: Vec::new(),
        })
    }

    /// Runs the command to its end, and lets the next one in.
    pub(super) fn watch(mut self) -> Result<Ran, PublishError> {
        // The keeper may have died while this process waited for its turn. Then nothing is started.
        let heard = self.child.hear(&mut |_| {});
        self.take(heard);
        if self.seen.empty.is_none() {
            self.seen.ordered = true;
            let begun = self.child.spawn_until(self.taken.deadline);
            self.take(begun);
        }
        while self.seen.empty.is_none() && self.seen.not_spawned.is_none() {
            self.nap();
            self.round();
        }
        self.finish()
    }

    fn round(&mut self) {
        if let Some(answer) = self.worker.answer() {
            self.answered(answer);
        }
        for signal in self.signals.pending() {
            let inputs = match signal {
                Received::End(signal) => self.child.perform(Output::Forward(signal), &mut |_| {}),
                Received::Continued => vec![Input::Woke],
                Received::Other(signal) => self.child.signalled(signal, &mut |_| {}),
            };
            self.take(inputs);
        }
        let mut left = Vec::new();
        let heard = self.child.hear(&mut |note| {
            if let Note::LeftOvers(processes) = note {
                left = processes;
            }
        });
        if !left.is_empty() {
            self.remarks.push(format!(
                "The command left these running on {}, and they were ended: {}.",
                self.task.resource,
                left.join(", ")
            ));
        }
        self.take(heard);
        let now = clock::boot_now();
        let checked = self.child.check(Some(self.taken.deadline), now, &mut |_| {});
        self.take(checked);
        if self.frozen_since.is_some_and(|since| now.since(since) >= self.task.grace) {
            self.kill("it woke past the end of its turn and could not confirm it");
        }
        if self.renewal.is_none() && now >= self.renew_at {
            self.renew();
        }
    }

    fn take(&mut self, inputs: Vec<Input>) {
        for input in inputs {
            match input {
                Input::ChildEnded(exit) => self.seen.exit = Some(exit),
                Input::TreeEmpty { escaped } => self.seen.empty = Some(escaped),
                Input::NotSpawned(why) => self.seen.not_spawned = Some(why),
                Input::Stale => {
                    let text = "Its turn ran out before the command could be started".to_string();
                    self.seen.not_spawned = Some(NotSpawned { not_found: false, text });
                }
                Input::DeadlineReached => {
                    self.seen.ended.get_or_insert("its turn could not be renewed in time");
                }
                Input::Frozen => {
                    self.frozen_since = Some(clock::boot_now());
                    self.renew_at = clock::boot_now();
                }
                Input::Woke => self.renew_at = clock::boot_now(),
                Input::KeeperDied { escaped } => {
                    self.seen.ended.get_or_insert("its keeper process died");
                    self.seen.empty = Some(escaped);
                }
                Input::Begin
                | Input::Answered(_)
                | Input::Consulted(_)
                | Input::Tick
                | Input::Spawned
                | Input::Said { .. }
                | Input::Inspected(_)
                | Input::Surveyed(_)
                | Input::Interrupted(_) => {}
            }
        }
    }

    fn renew(&mut self) {
        let mut change = Change::new(&self.task.resource, self.turn, Intent::Renew, self.taken.writes);
        let step = change.begin(clock::now());
        self.proceed(change, step);
    }

    fn answered(&mut self, answer: Answered) {
        let Some(mut change) = self.renewal.take() else { return };
        let host = self.desk.host;
        let step = change.answered(clock::now(), answer, &mut |busy| evidence(host, busy, None));
        self.proceed(change, step);
    }

    fn proceed(&mut self, change: Change, step: Step) {
        self.taken.writes = change.writes();
        match step {
            Step::Call(call) => {
                self.worker.call(call, true);
                self.renewal = Some(change);
            }
            Step::Done(Outcome::Stands { sent, .. }) => self.renewed(sent),
            Step::Done(_) => self.kill("its turn had passed to another"),
            // The keeper ends the command if no try succeeds before the deadline.
            Step::Failed(_) => self.renew_at = clock::boot_now() + RETRY_PAUSE,
        }
    }

    fn renewed(&mut self, sent: Boot) {
        let deadline = Honest::deadline(sent, self.task.ttl);
        (self.taken.deadline, self.taken.sent) = (deadline, sent);
        self.renew_at = sent + self.task.ttl / RENEWALS_PER_TTL;
        let order = match self.frozen_since.take() {
            Some(_) => Output::Thaw(deadline),
            None => Output::Extend(deadline),
        };
        let inputs = self.child.perform(order, &mut |_| {});
        self.take(inputs);
    }

    fn kill(&mut self, why: &'static str) {
        self.frozen_since = None;
        self.renew_at = Boot(u64::MAX);
        self.seen.ended.get_or_insert(why);
        let inputs = self.child.perform(Output::Kill, &mut |_| {});
        self.take(inputs);
    }

    fn nap(&self) {
        let until_due = if self.renewal.is_none() { self.renew_at.since(clock::boot_now()) } else { NAP_MAX };
        let timeout = PollTimeout::try_from(until_due.min(NAP_MAX)).unwrap_or(PollTimeout::ZERO);
        let fds = self.worker.fd().into_iter().chain([self.signals.fd()]).chain(self.child.fds());
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // An error is a signal, and the loop looks at everything anyway.
        let _ = poll(&mut fds, timeout);
    }

    fn finish(mut self) -> Result<Ran, PublishError> {
        let escaped = self.seen.empty.take().unwrap_or_default();
        let code = match (&self.seen.not_spawned, self.seen.exit) {
            (Some(why), _) if why.not_found => 127,
            (Some(_), _) => 126,
            (None, exit) => exit.map_or(128 + 9, Exit::code),
        };
        if !escaped.is_empty() {
            self.remarks.push(format!(
                "{} could not be ended, so that {} stays busy until the turn ends by itself. End it by hand.",
                escaped.join(", "),
                self.task.resource
            ));
        } else {
            let not_started = self.seen.not_spawned.is_some() || !self.seen.ordered;
            let end = if not_started { State::NotStarted } else { State::Ended { code } };
            self.give_back(end);
        }
        if let (Some(why), false) = (self.seen.ended, self.seen.ordered) {
            return Err(PublishError::Failed(format!(
                "The command on {} was not started, because {why} before that. Nothing was run. Publish again.",
                self.task.resource
            )));
        }
        if let Some(why) = self.seen.ended {
            return Err(PublishError::Failed(format!(
                "The command on {} was stopped because {why}. It may have happened in part. Look at {}, then run it \
                 again under a new token.",
                self.task.resource, self.task.resource
            )));
        }
        if let Some(why) = &self.seen.not_spawned {
            self.remarks.push(format!("{}. Nothing was run.", why.text));
        }
        Ok(Ran { receipt: receipt(self.taken.fence, false, self.remarks), code })
    }

    /// Lets the next command in. Nothing of this one is left, so that a failure costs the next one patience only.
    fn give_back(&mut self, end: State) {
        loop {
            let mut change = Change::new(&self.task.resource, self.turn, Intent::End(end.clone()), self.taken.writes);
            let outcome = carry(self.desk, &mut change, &mut None);
            self.taken.writes = change.writes();
            let why = match outcome {
                Ok(Outcome::Lost { .. }) => {
                    self.seen.ended.get_or_insert("its turn had passed to another");
                    return;
                }
                Ok(_) => return,
                Err(error) => error,
            };
            if clock::boot_now() >= self.taken.deadline {
                self.remarks.push(format!(
                    "The command ended, but that could not be written down: {why} {} stays busy until the turn ends by \
                     itself.",
                    self.task.resource
                ));
                return;
            }
            sleep(RETRY_PAUSE);
        }
    }
}
