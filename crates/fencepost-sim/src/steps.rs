//! Everything that can happen next. The adversary picks; the exploration lets it pick everything.

use std::fmt;
use std::rc::Rc;

use fencepost_core::history::Aside;
use fencepost_core::lease::{Context, Facts, Honest, Intent, Rules, Ruling};
use fencepost_core::record::{Record, StopAsked};
use fencepost_core::register::{Answer, StoreError, Swapped, Trouble, Version};
use fencepost_core::run::{Exit, Input};
use fencepost_core::token::Nonce;
use fencepost_core::transition::{Call, Reply};

use crate::config::{LeaseFlaw, LeaseSetting};
use crate::invariants::LeaseViolation;
use crate::store::job;
use crate::world::{Flight, LeaseWorld, ModelProcess, run_id, write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Time passes, to the next timer or the next quantum.
    Advance,
    Trigger {
        host: u8,
    },
    /// The store performs a run's call.
    Perform {
        run: u8,
    },
    /// The answer arrives.
    Answer {
        run: u8,
    },
    /// The answer is lost: the call was performed, and the run hears that its fate is unknown.
    LoseAnswer {
        run: u8,
    },
    /// The request is late: the run hears that its fate is unknown, and it may arrive yet.
    Delay {
        run: u8,
    },
    /// The call certainly did not happen.
    Refuse {
        run: u8,
    },
    /// A late request arrives.
    Arrive {
        stray: u8,
    },
    KillWrapper {
        run: u8,
    },
    KillKeeper {
        run: u8,
    },
    CrashHost {
        host: u8,
    },
    Sleep {
        host: u8,
    },
    Wake {
        host: u8,
    },
    Stall {
        run: u8,
    },
    Resume {
        run: u8,
    },
    ChildEnds {
        run: u8,
    },
    /// Another client swaps the record without touching the lease.
    Touch,
    /// Another client asks the holder to stop.
    AskToStop,
    /// The store is restored from a backup.
    Restore {
        index: u8,
    },
}

impl fmt::Display for LeaseStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advance => write!(f, "time passes"),
            Self::Trigger { host } => write!(f, "host {host} starts a run"),
            Self::Perform { run } => write!(f, "the store performs the call of run {run}"),
            Self::Answer { run } => write!(f, "run {run} hears the answer"),
            Self::LoseAnswer { run } => write!(f, "the answer to run {run} is lost: fate unknown"),
            Self::Delay { run } => write!(f, "the request of run {run} is late: fate unknown"),
            Self::Refuse { run } => write!(f, "the store refuses the call of run {run}: not done"),
            Self::Arrive { stray } => write!(f, "late request {stray} arrives"),
            Self::KillWrapper { run } => write!(f, "the wrapper of run {run} is killed"),
            Self::KillKeeper { run } => write!(f, "the keeper of run {run} is killed"),
            Self::CrashHost { host } => write!(f, "host {host} crashes and starts again"),
            Self::Sleep { host } => write!(f, "host {host} falls asleep"),
            Self::Wake { host } => write!(f, "host {host} wakes up"),
            Self::Stall { run } => write!(f, "the wrapper of run {run} is stopped"),
            Self::Resume { run } => write!(f, "the wrapper of run {run} is continued"),
            Self::ChildEnds { run } => write!(f, "the child of run {run} ends"),
            Self::Touch => write!(f, "another client swaps the record"),
            Self::AskToStop => write!(f, "another client asks the holder to stop"),
            Self::Restore { index } => write!(f, "the store is restored to state {index}"),
        }
    }
}

impl LeaseWorld {
    /// Every step that is possible now.
    pub fn steps(&self, config: &LeaseSetting) -> Vec<LeaseStep> {
        let mut steps = Vec::new();
        let hurried = self.in_a_hurry().len();
        if self.next_moment(config) <= config.horizon_ms && hurried <= usize::from(self.budget.delays) {
            steps.push(LeaseStep::Advance);
        }
        for (host, process) in self.processes() {
            self.steps_of(config, host, process, &mut steps);
        }
        steps.extend((0..self.strays.len() as u8).map(|stray| LeaseStep::Arrive { stray }));
        self.steps_of_hosts(&mut steps);
        let held = self.store.record().is_some_and(|record| record.lease.is_some());
        if self.budget.foreign > 0 && held {
            steps.extend([LeaseStep::Touch, LeaseStep::AskToStop]);
        }
        // A restore takes time: no token is granted in the very millisecond it goes back behind.
        if self.budget.rollbacks > 0 && self.date().0.unsigned_abs() > self.ghost.highest.number() {
            steps.extend((0..self.store.restorable() as u8).map(|index| LeaseStep::Restore { index }));
        }
        steps
    }

    /// The world after a step.
    pub fn after(&self, config: &LeaseSetting, step: LeaseStep) -> Self {
        let mut world = self.clone();
        world.take(config, step);
        for host in 0..world.hosts.len() {
            world.run_due(config, host, false);
            world.bury(host);
        }
        world
    }

    fn steps_of(&self, config: &LeaseSetting, host: usize, process: &ModelProcess, steps: &mut Vec<LeaseStep>) {
        let run = process.run;
        let awake = !self.hosts[host].asleep;
        let hears = awake && process.wrapper.is_some() && !process.stalled;
        match &process.flight {
            Some(Flight::Sent(call)) => {
                steps.push(LeaseStep::Perform { run });
                if hears && self.budget.refusals > 0 {
                    steps.push(LeaseStep::Refuse { run });
                }
                if hears && self.budget.losses > 0 && matches!(call, Call::Swap { .. }) {
                    steps.push(LeaseStep::Delay { run });
                }
            }
            Some(Flight::Done(answer)) if hears => {
                steps.push(LeaseStep::Answer { run });
                if self.budget.losses > 0 && matches!(answer.value, Reply::Swap(_)) {
                    steps.push(LeaseStep::LoseAnswer { run });
                }
            }
            Some(Flight::Broken) if hears => steps.push(LeaseStep::Answer { run }),
            _ => {}
        }
        if awake && config.children_end && process.child_runs() {
            steps.push(LeaseStep::ChildEnds { run });
        }
        if process.wrapper.is_some() && self.budget.crashes > 0 && awake {
            steps.push(LeaseStep::KillWrapper { run });
            if process.keeper.is_some() {
                steps.push(LeaseStep::KillKeeper { run });
            }
        }
        if process.stalled {
            steps.push(LeaseStep::Resume { run });
        } else if hears && self.budget.stalls > 0 {
            steps.push(LeaseStep::Stall { run });
        }
    }

    fn steps_of_hosts(&self, steps: &mut Vec<LeaseStep>) {
        for (number, host) in self.hosts.iter().enumerate() {
            let host_number = number as u8;
            let has_processes = !host.processes.is_empty();
            if host.asleep {
                steps.push(LeaseStep::Wake { host: host_number });
                continue;
            }
            // The hosts are alike, so that it is enough to begin with the first.
            if self.budget.triggers > 0 && (self.runs > 0 || number == 0) {
                steps.push(LeaseStep::Trigger { host: host_number });
            }
            if self.budget.sleeps > 0 && has_processes {
                steps.push(LeaseStep::Sleep { host: host_number });
            }
            if self.budget.crashes > 0 && has_processes {
                steps.push(LeaseStep::CrashHost { host: host_number });
            }
        }
    }

    fn take(&mut self, config: &LeaseSetting, step: LeaseStep) {
        match step {
            LeaseStep::Advance => self.advance(config),
            LeaseStep::Trigger { host } => {
                self.budget.triggers -= 1;
                let run = self.admit(config, usize::from(host));
                if self.is_refused_outside(config, run) {
                    self.lose_wrapper(config, run);
                }
                self.drain(config, run);
            }
            LeaseStep::Perform { run } => self.perform_call(config, run),
            LeaseStep::Answer { run } => self.answer(config, run),
            LeaseStep::LoseAnswer { run } => {
                self.budget.losses -= 1;
                self.lose(config, run);
            }
            LeaseStep::Delay { run } => {
                self.budget.losses -= 1;
                if let Some(Flight::Sent(call)) = self.process_mut(run).and_then(|process| process.flight.take()) {
                    self.set_adrift(run, call);
                }
                self.lose(config, run);
            }
            LeaseStep::Refuse { run } => {
                self.budget.refusals -= 1;
                self.fail(config, run, StoreError::not_done(Trouble::Unavailable, "refused"));
            }
            LeaseStep::Arrive { stray } => {
                let stray = self.strays.remove(usize::from(stray));
                self.land(config, &stray.call);
            }
            LeaseStep::ChildEnds { run } => self.end_child(config, run, Exit::Code(0)),
            LeaseStep::Touch => self.touch(),
            LeaseStep::AskToStop => self.ask_to_stop(config),
            LeaseStep::Restore { index } => self.restore(config, usize::from(index)),
            LeaseStep::KillWrapper { run } => {
                self.budget.crashes -= 1;
                self.lose_wrapper(config, run);
            }
            LeaseStep::KillKeeper { run } => self.kill_keeper(config, run),
            LeaseStep::CrashHost { host } => self.crash(config, usize::from(host)),
            LeaseStep::Sleep { host } => self.sleep(config, usize::from(host)),
            LeaseStep::Wake { host } => self.wake(config, usize::from(host)),
            LeaseStep::Stall { run } => {
                self.budget.stalls -= 1;
                self.hurt(run);
                self.set_stalled(run, true);
            }
            LeaseStep::Resume { run } => {
                self.set_stalled(run, false);
                self.feed(config, run, Input::Woke);
            }
        }
    }

    /// The bug of judging the fence once, when a command is started.
    fn is_refused_outside(&self, config: &LeaseSetting, run: u8) -> bool {
        let Some(command) = config.command(run).filter(|_| config.has(LeaseFlaw::FenceOutside)) else { return false };
        let seen = self.store.record().and_then(|record| record.fence.as_ref());
        Honest::judge(seen, &write(command)).is_err()
    }

    /// Time stops at every timer, at every quantum, and whenever a judgement about the lease can change.
    fn next_moment(&self, config: &LeaseSetting) -> u64 {
        let quantum = (self.now_ms / config.quantum_ms + 1) * config.quantum_ms;
        let lease = self.store.record().and_then(|record| record.lease.as_ref());
        let until = lease.and_then(|lease| lease.until.as_ref()).map(|until| until.tick);
        let timers = (0..self.hosts.len()).filter_map(|host| self.next_due(config, host));
        let seen = (0..self.hosts.len()).filter_map(|host| self.seen_at(config, host));
        timers.chain(seen).chain(until).filter(|at| *at > self.now_ms).fold(quantum, u64::min)
    }

    /// When a host that goes by its sightings will have seen the lease for long enough.
    fn seen_at(&self, config: &LeaseSetting, host: usize) -> Option<u64> {
        let sighting = self.hosts[host].memory.sighting.filter(|_| !config.store_has_clock)?;
        Some(self.moment(config, host, sighting.since + (config.ttl + config.ttl / 20)))
    }

    fn in_a_hurry(&self) -> Vec<u8> {
        let waits = |(host, process): &(usize, &ModelProcess)| process.is_in_a_hurry(self.hosts[*host].asleep);
        self.processes().filter(waits).map(|(_, process)| process.run).collect()
    }

    fn advance(&mut self, config: &LeaseSetting) {
        let next_ms = self.next_moment(config);
        // A store that lets a run wait may cost the run its lease.
        for run in self.in_a_hurry() {
            self.budget.delays -= 1;
            self.hurt(run);
            if let Some(process) = self.process_mut(run) {
                process.slow = true;
            }
        }
        self.now_ms = next_ms;
    }

    fn perform_call(&mut self, config: &LeaseSetting, run: u8) {
        let Some(Flight::Sent(call)) = self.process_mut(run).and_then(|process| process.flight.take()) else { return };
        let answer = self.land(config, &call);
        if let Some(process) = self.process_mut(run) {
            process.flight = Some(Flight::Done(answer));
        }
    }

    /// A request reaches the store, in time or late.
    fn land(&mut self, config: &LeaseSetting, call: &Call) -> Answer<Reply> {
        let before = self.holder();
        let value = match call {
            Call::Swap { .. } if config.has(LeaseFlaw::PlainWrite) && is_claim(config, call) => {
                self.store.write_plainly(call)
            }
            Call::Swap { .. } if config.has(LeaseFlaw::ReleaseDeletes) && is_release(config, call) => {
                self.store.remove(call)
            }
            Call::Swap { .. } if config.has(LeaseFlaw::TakeoverKeepsFence) && before.is_some() => {
                self.store.perform(&self.with_old_fence(config, call))
            }
            _ => self.store.perform(call),
        };
        if matches!(value, Reply::Swap(Swapped::Won(_))) && self.holder().is_some() && self.holder() != before {
            self.note_grant(config);
        }
        Answer::new(value, self.store_clock(config))
    }

    fn note_grant(&mut self, config: &LeaseSetting) {
        let Some(token) = self.store.record().map(|record| record.token) else { return };
        if token <= self.ghost.highest {
            self.blame(LeaseViolation::TokenNotGreater);
        }
        self.ghost.highest = self.ghost.highest.max(token);
        self.ghost.grants += 1;
        let run = self.holder().map_or(0, |run| run.0.as_u128() as u8);
        if let Some(command) = config.command(run) {
            if command.token < self.ghost.admitted {
                self.blame(LeaseViolation::StaleRan);
            }
            self.ghost.admitted = self.ghost.admitted.max(command.token);
        }
    }

    /// The swap of a takeover, which leaves the fence as it is in the store.
    fn with_old_fence(&self, config: &LeaseSetting, call: &Call) -> Call {
        let fence = self.store.record().and_then(|record| record.fence.clone());
        match (call, written_by(config, call)) {
            (Call::Swap { key, expected, .. }, Some(record)) => {
                let new = Record { fence, ..record }.encode();
                Call::Swap { key: key.clone(), expected: expected.clone(), new }
            }
            _ => call.clone(),
        }
    }

    fn holder(&self) -> Option<fencepost_core::token::RunId> {
        self.store.record().and_then(|record| record.lease.as_ref()).map(|lease| lease.run)
    }

    fn answer(&mut self, config: &LeaseSetting, run: u8) {
        match self.process_mut(run).and_then(|process| process.flight.take()) {
            Some(Flight::Done(answer)) => self.feed(config, run, Input::Answered(Ok(falsified(config, answer)))),
            Some(_) => self.fail(config, run, StoreError::unknown(Trouble::Unavailable, "lost")),
            None => {}
        }
    }

    /// The run hears that the fate of its swap is unknown: two bugs of a driver say that they know it.
    fn lose(&mut self, config: &LeaseSetting, run: u8) {
        let known = match config.flaw {
            Some(LeaseFlaw::UnknownIsWon) => Some(Swapped::Won(Some(Version(Vec::new())))),
            Some(LeaseFlaw::UnknownIsLost) => Some(Swapped::Lost(None)),
            _ => None,
        };
        let answer = known.map(|known| Answer::new(Reply::Swap(known), None));
        self.hear(config, run, answer.ok_or_else(|| StoreError::unknown(Trouble::Unavailable, "lost")));
    }

    fn fail(&mut self, config: &LeaseSetting, run: u8, error: StoreError) {
        self.hear(config, run, Err(error));
    }

    /// The run hears something else than the store's own answer.
    fn hear(&mut self, config: &LeaseSetting, run: u8, answer: Result<Answer<Reply>, StoreError>) {
        self.hurt(run);
        if let Some(process) = self.process_mut(run) {
            process.flight = None;
        }
        self.feed(config, run, Input::Answered(answer));
    }

    fn hurt(&mut self, run: u8) {
        if let Some(process) = self.process_mut(run) {
            process.hurt = true;
        }
    }

    fn set_stalled(&mut self, run: u8, stalled: bool) {
        if let Some(process) = self.process_mut(run) {
            process.stalled = stalled;
        }
    }

    fn touch(&mut self) {
        let Some(mut record) = self.store.record().cloned() else { return };
        record.nonce = self.foreign_nonce();
        self.store.replace(record);
    }

    fn ask_to_stop(&mut self, config: &LeaseSetting) {
        let nonce = self.foreign_nonce();
        let (job, facts) = (job(config), Facts::default());
        let now = self.now(config, 1);
        let context = Context {
            job: &job,
            now,
            nonce,
            reference: None,
            date: None,
            facts: &facts,
            store: None,
            aside: Aside::default(),
        };
        let intent = Intent::AskToStop(StopAsked { by: run_id(0), host: String::new(), unknown: Default::default() });
        if let Ok(Ruling::Write { record, .. }) = intent.decide::<Honest>(self.store.record(), &context) {
            self.store.replace(*record);
        }
    }

    fn foreign_nonce(&mut self) -> Nonce {
        self.budget.foreign -= 1;
        Nonce { by: run_id(0), write: u32::from(self.budget.foreign) + 1 }
    }

    /// A restore cuts every connection: what was on its way is lost, and its fate unknown. This is an assumption. A claim
    /// that rests on a reading from before the restore would be granted a token from before it, too.
    fn restore(&mut self, config: &LeaseSetting, index: usize) {
        self.budget.rollbacks -= 1;
        self.store.restore(index, config.has(LeaseFlaw::VersionsRepeat));
        self.strays.clear();
        self.ghost.rolled_back = true;
        self.ghost.acknowledged.clear();
        let waiting: Vec<u8> = self.processes().filter(|(_, p)| p.flight.is_some()).map(|(_, p)| p.run).collect();
        for run in waiting {
            if let Some(process) = self.process_mut(run) {
                process.flight = Some(Flight::Broken);
            }
        }
    }

    /// The driver ends the tree itself when the keeper dies.
    fn kill_keeper(&mut self, config: &LeaseSetting, run: u8) {
        self.budget.crashes -= 1;
        self.hurt(run);
        if let Some(process) = self.process_mut(run) {
            process.keeper = None;
        }
        self.feed(config, run, Input::KeeperDied { escaped: Vec::new() });
    }

    fn crash(&mut self, config: &LeaseSetting, number: usize) {
        self.budget.crashes -= 1;
        let runs: Vec<u8> = self.hosts[number].processes.iter().map(|process| process.run).collect();
        for run in runs {
            self.lose_wrapper(config, run);
        }
        let host = &mut self.hosts[number];
        host.processes.clear();
        host.boots += 1;
        // Its boot clock has begun anew, so that what it saw before says nothing.
        host.memory.sighting = None;
    }

    fn sleep(&mut self, config: &LeaseSetting, number: usize) {
        self.budget.sleeps -= 1;
        let now_ms = self.now_ms;
        let host = &mut self.hosts[number];
        host.asleep = true;
        if config.has(LeaseFlaw::ClockStopsInSleep) {
            host.slept_at_ms = now_ms;
        }
        for process in &mut host.processes {
            Rc::make_mut(process).hurt = true;
        }
    }

    /// The keeper looks at the clock before anything else runs.
    fn wake(&mut self, config: &LeaseSetting, number: usize) {
        let now_ms = self.now_ms;
        let host = &mut self.hosts[number];
        host.asleep = false;
        if config.has(LeaseFlaw::ClockStopsInSleep) {
            host.missed_ms += now_ms - host.slept_at_ms;
        }
        self.run_due(config, number, true);
    }
}

/// The answer as the run hears it: two bugs of a driver say something else about a lost swap.
fn falsified(config: &LeaseSetting, answer: Answer<Reply>) -> Answer<Reply> {
    let value = match answer.value {
        Reply::Swap(Swapped::Lost(_)) if config.has(LeaseFlaw::LostSwapIsLostLease) => Reply::Swap(Swapped::Lost(None)),
        Reply::Swap(Swapped::Lost(entry)) if config.has(LeaseFlaw::LostSwapIsWon) => {
            Reply::Swap(Swapped::Won(entry.map(|entry| entry.version)))
        }
        other => other,
    };
    Answer { value, ..answer }
}

fn is_claim(config: &LeaseSetting, call: &Call) -> bool {
    written_by(config, call).and_then(|record| record.lease).is_some_and(|lease| lease.renewals == 0)
}

fn is_release(config: &LeaseSetting, call: &Call) -> bool {
    written_by(config, call).is_some_and(|record| record.lease.is_none())
}

/// The job's record that a swap writes.
fn written_by(config: &LeaseSetting, call: &Call) -> Option<Record> {
    let Call::Swap { new, .. } = call else { return None };
    Record::decode(new, &job(config)).ok()
}
