//! What stands between a run and its world: the driver that performs what the run decides, and the keeper.
//!
//! A host that is awake is prompt. Its keeper acts at the very moment of its timers, its wrapper a moment later;
//! slow wrappers and slow stores are the adversary's business.

use std::time::Duration;

use fencepost_core::lease::{Facts, NoTurn, Refusal, Rules};
use fencepost_core::record::Record;
use fencepost_core::run::{Event, Exit, Finish, Input, Kept, Output, StopCause};
use fencepost_core::time::Boot;
use fencepost_core::transition::Call;

use crate::config::{Fenced, LeaseFlaw, LeaseSetting};
use crate::invariants::LeaseViolation;
use crate::rulebook::{self, ChosenRules};
use crate::world::{Flight, KeeperPhase, LeaseWorld, ModelKeeper, Stray, run_id};

/// Killing takes a moment, and everything is to be dead at the deadline.
const KILL_MARGIN: Duration = Duration::from_millis(250);

/// More rounds than this at one moment, and a real driver would never come to rest.
const ROUNDS_MAX: usize = 8;

impl LeaseWorld {
    /// Does everything that is due on a host now. `late` says that the host has just woken up.
    pub fn run_due(&mut self, config: &LeaseSetting, host: usize, late: bool) {
        if self.hosts[host].asleep {
            return;
        }
        for run in self.runs_on(host) {
            self.enforce(config, run, late);
            self.drain(config, run);
            let mut rounds = 0;
            while self.is_tick_due(config, host, run) {
                rounds += 1;
                if rounds > ROUNDS_MAX {
                    self.blame(LeaseViolation::Spins);
                    break;
                }
                self.feed(config, run, Input::Tick);
            }
        }
        self.bury(host);
    }

    /// The next true moment at which something on a host is due by its clock.
    pub fn next_due(&self, config: &LeaseSetting, host: usize) -> Option<u64> {
        if self.hosts[host].asleep {
            return None;
        }
        let of = |run: u8| {
            let process = self.process(run)?;
            let wrapper = process.wrapper.as_ref().filter(|_| !process.stalled).and_then(|run| run.wake_at());
            let keeper = process.keeper.as_ref().filter(|_| !is_blocked(config, process.flight.as_ref()));
            let keeper = keeper.and_then(|keeper| keeper.acts_at(config));
            [wrapper, keeper].into_iter().flatten().min()
        };
        let due = self.runs_on(host).into_iter().filter_map(of).min()?;
        Some(self.moment(config, host, due))
    }

    /// Tells a wrapper what happened, now or as soon as it can read it.
    pub fn feed(&mut self, config: &LeaseSetting, run: u8, input: Input) {
        if let Some(process) = self.process_mut(run) {
            process.inbox.push(input);
            self.drain(config, run);
        }
    }

    /// Lets a wrapper read everything it was told.
    pub fn drain(&mut self, config: &LeaseSetting, run: u8) {
        while let Some(host) = self.host_of(run) {
            let now = self.now(config, host);
            let asleep = self.hosts[host].asleep;
            let Some(process) = self.process_mut(run) else { return };
            if asleep || process.stalled || process.inbox.is_empty() {
                return;
            }
            let input = process.inbox.remove(0);
            let Some(wrapper) = &mut process.wrapper else { return process.inbox.clear() };
            rulebook::set_moment(now.boot);
            for output in wrapper.step(now, input) {
                self.perform(config, host, run, output);
            }
        }
    }

    /// The wrapper ended or was killed. Its keeper ends the tree, and a request that it had sent may still arrive.
    pub fn lose_wrapper(&mut self, config: &LeaseSetting, run: u8) {
        let Some(host) = self.host_of(run) else { return };
        let now = self.now(config, host).boot;
        let Some(process) = self.process_mut(run) else { return };
        process.wrapper = None;
        process.stalled = false;
        process.inbox.clear();
        if let Some(keeper) = &mut process.keeper {
            match keeper.phase {
                // Only the wrapper could have said whether the lease is still its own.
                KeeperPhase::Frozen => process.keeper = None,
                KeeperPhase::Running | KeeperPhase::Ending { .. } => keeper.end(config, now),
            }
        }
        if let Some(Flight::Sent(call)) = process.flight.take() {
            self.set_adrift(run, call);
        }
    }

    /// Keeps a request whose run no longer waits for it. Reads change nothing, so only swaps are kept.
    pub fn set_adrift(&mut self, run: u8, call: Call) {
        if matches!(call, Call::Swap { .. }) {
            self.strays.push(Stray { run, call });
        }
    }

    /// The tree is gone, and the wrapper hears of it.
    pub fn end_child(&mut self, config: &LeaseSetting, run: u8, exit: Exit) {
        self.note_end(config, run);
        if let Some(process) = self.process_mut(run) {
            process.keeper = None;
            process.inbox.extend([Input::ChildEnded(exit), Input::TreeEmpty { escaped: Vec::new() }]);
            self.drain(config, run);
        }
    }

    /// Forgets the processes of which nothing is left.
    pub fn bury(&mut self, host: usize) {
        self.hosts[host].processes.retain(|process| process.wrapper.is_some() || process.keeper.is_some());
    }

    /// Notes the first thing that must never happen.
    pub fn blame(&mut self, violation: LeaseViolation) {
        self.ghost.violation.get_or_insert(violation);
    }

    fn runs_on(&self, host: usize) -> Vec<u8> {
        self.hosts[host].processes.iter().map(|process| process.run).collect()
    }

    fn is_tick_due(&self, config: &LeaseSetting, host: usize, run: u8) -> bool {
        let now = self.now(config, host).boot;
        let Some(process) = self.process(run).filter(|process| !process.stalled) else { return false };
        let wake_at = process.wrapper.as_ref().and_then(|wrapper| wrapper.wake_at());
        wake_at.is_some_and(|at| now >= at)
    }

    /// What the clock demands of the keeper.
    fn enforce(&mut self, config: &LeaseSetting, run: u8, late: bool) {
        let Some(host) = self.host_of(run) else { return };
        let now = self.now(config, host).boot;
        let Some(process) = self.process_mut(run) else { return };
        let blocked = is_blocked(config, process.flight.as_ref());
        let Some(keeper) = process.keeper.as_mut().filter(|_| !blocked) else { return };
        if keeper.acts_at(config).is_none_or(|at| now < at) {
            return;
        }
        match keeper.phase {
            KeeperPhase::Running if late => {
                if !config.has(LeaseFlaw::NoFreeze) {
                    keeper.phase = KeeperPhase::Frozen;
                }
                process.inbox.push(Input::Frozen);
            }
            KeeperPhase::Running => {
                keeper.end(config, now);
                process.inbox.push(Input::DeadlineReached);
                if config.has(LeaseFlaw::EarlyRelease) {
                    process.inbox.push(Input::TreeEmpty { escaped: Vec::new() });
                }
            }
            KeeperPhase::Ending { .. } => self.end_child(config, run, Exit::Signal(9)),
            KeeperPhase::Frozen => {}
        }
    }

    fn perform(&mut self, config: &LeaseSetting, host: usize, run: u8, output: Output) {
        let now = self.now(config, host).boot;
        let Some(process) = self.process_mut(run) else { return };
        match output {
            Output::Call(call) => {
                process.asked = now;
                process.slow = false;
                let before = process.flight.replace(Flight::Sent(call));
                if before.is_some() {
                    self.blame(LeaseViolation::TwoCalls);
                }
            }
            Output::Consult(record) => {
                let facts = self.facts(config, host, run, record.as_deref());
                self.reply(run, Input::Consulted(facts));
            }
            // The model's jobs neither prepare nor look at files, and leave fewer outcomes than a record holds.
            Output::Prepare { .. } | Output::Inspect { .. } | Output::Survey => {}
            Output::Spawn { grant } => {
                let Some(grant) = grant else { return };
                process.keeper = Some(ModelKeeper { deadline: grant.deadline, phase: KeeperPhase::Running });
                process.inbox.insert(0, Input::Spawned);
                let high_water = &mut self.hosts[host].memory.high_water;
                *high_water = (*high_water).max(Some(grant.record.token));
                self.note_start(config, run);
            }
            Output::Extend(deadline) => {
                if let Some(keeper) = &mut process.keeper {
                    keeper.deadline = keeper.deadline.max(deadline);
                }
            }
            Output::Thaw(deadline) => {
                if let Some(keeper) = &mut process.keeper {
                    keeper.deadline = deadline;
                    if keeper.phase == KeeperPhase::Frozen {
                        keeper.phase = KeeperPhase::Running;
                    }
                }
            }
            Output::Stop => {
                let early = config.has(LeaseFlaw::EarlyRelease);
                if let Some(keeper) = process.keeper.as_mut().filter(|k| !matches!(k.phase, KeeperPhase::Ending { .. }))
                {
                    keeper.end(config, now);
                    process.inbox.extend(early.then(|| Input::TreeEmpty { escaped: Vec::new() }));
                }
            }
            Output::Kill => {
                if process.keeper.take().is_some() {
                    let escaped = Vec::new();
                    process.inbox.extend([Input::ChildEnded(Exit::Signal(9)), Input::TreeEmpty { escaped }]);
                    self.note_end(config, run);
                }
            }
            Output::Tell(Event::Stopping(why)) => self.judge_stop(run, &why),
            Output::Forward(_) | Output::Tell(_) => {}
            Output::Finish(finish) => self.finish(config, run, &finish),
        }
    }

    /// An answer that the driver gives at once comes before everything else.
    fn reply(&mut self, run: u8, input: Input) {
        if let Some(process) = self.process_mut(run) {
            process.inbox.insert(0, input);
        }
    }

    /// What this host knows about a record that a run has just read.
    fn facts(&mut self, config: &LeaseSetting, host: usize, run: u8, record: Option<&Record>) -> Facts {
        let Some(record) = record else { return Facts::default() };
        let now = self.now(config, host).boot;
        let asked = self.process(run).map_or(now, |process| process.asked);
        let holder_is_dead = self.is_dead(config, host, record);
        let memory = &mut self.hosts[host].memory;
        let clockless = record.lease.as_ref().is_some_and(|lease| lease.until.is_none());
        let before = memory.sighting;
        let seen_at = if config.has(LeaseFlaw::ObserverFromRequest) { asked } else { now };
        let sighting = if clockless { ChosenRules::sight(memory.sighting, record, seen_at) } else { None };
        if sighting.is_some() && !config.has(LeaseFlaw::NoSightings) {
            memory.sighting = sighting;
        }
        let is_first_sight = sighting.is_some() && sighting != before;
        Facts { holder_is_dead, high_water: memory.high_water, sighting, is_first_sight }
    }

    /// Whether the holder's processes ran on this very host and are gone.
    fn is_dead(&self, config: &LeaseSetting, host: usize, record: &Record) -> bool {
        let Some(processes) = record.lease.as_ref().and_then(|lease| lease.holder.processes.as_ref()) else {
            return false;
        };
        let here = (host.to_string(), self.hosts[host].boots.to_string());
        if (&processes.machine, &processes.boot) != (&here.0, &here.1) && !config.has(LeaseFlaw::ForeignProcesses) {
            return false;
        }
        let left = self.hosts[host].processes.iter().find(|process| i32::from(process.run) == processes.wrapper.pid);
        left.is_none_or(|process| config.has(LeaseFlaw::KeeperForgotten) && process.wrapper.is_none())
    }

    /// A holder may be stopped only if its lease is gone or something went wrong on the way to the store.
    fn judge_stop(&mut self, run: u8, why: &StopCause) {
        if self.ghost.rolled_back || !self.is_held_by(run) {
            return;
        }
        let hurt = self.process(run).is_some_and(|process| process.hurt);
        match why {
            StopCause::Replaced(_) => {}
            StopCause::Taken { .. } => self.blame(LeaseViolation::HolderStopped),
            _ if !hurt => self.blame(LeaseViolation::HolderStopped),
            _ => {}
        }
    }

    fn finish(&mut self, config: &LeaseSetting, run: u8, finish: &Finish) {
        let child_lives = self.process(run).is_some_and(|process| process.keeper.is_some());
        if child_lives {
            self.blame(LeaseViolation::ChildAbandoned);
        }
        match config.command(run) {
            Some(command) => self.note_applied(command, finish),
            None => self.note_recorded(run, finish),
        }
        self.lose_wrapper(config, run);
        if config.has(LeaseFlaw::SkipsInRecord) && matches!(finish, Finish::Held { .. }) {
            let mut record = self.store.record().cloned();
            if let Some(lease) = record.as_mut().and_then(|record| record.lease.as_mut()) {
                lease.renewals += 1;
            }
            self.store.replace(record.expect("what is held has a record"));
        }
    }

    /// A named command is started at most once under its token.
    fn note_start(&mut self, config: &LeaseSetting, run: u8) {
        let Some(command) = config.command(run).filter(|command| command.is_named) else { return };
        if self.ghost.started.contains(&command) {
            self.blame(LeaseViolation::RanTwice);
        }
        self.ghost.started.push(command);
    }

    /// The wrapper sees the end of a named command.
    fn note_end(&mut self, config: &LeaseSetting, run: u8) {
        let Some(command) = config.command(run).filter(|command| command.is_named) else { return };
        if self.process(run).is_some_and(|process| process.wrapper.is_some()) {
            self.ghost.ended.push(command);
        }
    }

    /// A command is reported as applied only if its end was seen.
    fn note_applied(&mut self, command: Fenced, finish: &Finish) {
        let is_applied = matches!(finish, Finish::Refused(Refusal::NoTurn(NoTurn::Applied { .. })));
        if is_applied && !self.ghost.ended.contains(&command) {
            self.blame(LeaseViolation::AppliedUnseen);
        }
    }

    /// What a wrapper reports as recorded is in the ledger, from then on for ever.
    fn note_recorded(&mut self, run: u8, finish: &Finish) {
        let by_itself = matches!(finish, Finish::Ended { .. });
        if !by_itself && !matches!(finish, Finish::Stopped { recorded: Kept::Recorded, .. }) {
            return;
        }
        let outcome = self.store.record().and_then(|record| record.ledger.of_run(run_id(run)));
        match outcome.map(|outcome| (run, outcome.status)) {
            Some(outcome) => self.ghost.acknowledged.push(outcome),
            // A restore may have forgotten the very lease that this run lost.
            None if self.ghost.rolled_back => {}
            None => self.blame(LeaseViolation::OutcomeLost),
        }
    }
}

impl ModelKeeper {
    /// TERM now, KILL after the grace or just before the deadline, whichever comes first.
    pub fn end(&mut self, config: &LeaseSetting, now: Boot) {
        let kill_at = (now + config.grace).min(self.deadline.before(KILL_MARGIN));
        let kill_at = match self.phase {
            KeeperPhase::Ending { kill_at: before } => before.min(kill_at),
            KeeperPhase::Running | KeeperPhase::Frozen => kill_at,
        };
        self.phase = KeeperPhase::Ending { kill_at };
    }

    fn acts_at(&self, config: &LeaseSetting) -> Option<Boot> {
        match self.phase {
            KeeperPhase::Running => Some(self.deadline.before(config.grace)),
            KeeperPhase::Frozen => None,
            KeeperPhase::Ending { kill_at } => Some(kill_at),
        }
    }
}

/// Whether one loop both waits for the store and watches the deadline, and is waiting now.
fn is_blocked(config: &LeaseSetting, flight: Option<&Flight>) -> bool {
    config.has(LeaseFlaw::BlockedLoop) && flight.is_some()
}
