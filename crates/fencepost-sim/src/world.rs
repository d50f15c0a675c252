//! The world as a value: true time, a store, two hosts with their processes, and what has happened so far.
//!
//! The wrappers are the shipped machines. Everything around them is as small as it can be: a keeper that does what
//! the real one promises, a child that only runs or does not, and a store that performs calls whenever the adversary
//! lets them arrive.

use std::rc::Rc;
use std::time::Duration;

use fencepost_core::fence::{Write, WriteMode};
use fencepost_core::lease::{Claim, Now, Sighting};
use fencepost_core::ledger::{Status, Trigger};
use fencepost_core::name::{Job, Name};
use fencepost_core::record::{Holder, Process, Processes};
use fencepost_core::register::Answer;
use fencepost_core::run::{Input, Overlap, Run, Stages, Terms};
use fencepost_core::slot::Choice;
use fencepost_core::time::{Boot, Era, StoreClock, Wall};
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_core::transition::{Call, Reply};

use crate::config::{Fenced, HostClock, LeaseBudget, LeaseSetting};
use crate::explore::StateSpace;
use crate::invariants::LeaseViolation;
use crate::rulebook::ChosenRules;
use crate::steps::LeaseStep;
use crate::store::{EPOCH, ModelStore, job};

#[derive(Clone, Debug, Hash)]
pub struct LeaseWorld {
    /// True milliseconds since the beginning.
    pub now_ms: u64,
    pub store: ModelStore,
    pub hosts: [ModelHost; 2],
    /// Requests whose runs no longer wait for them. They may still arrive.
    pub strays: Vec<Stray>,
    pub budget: LeaseBudget,
    pub ghost: LeaseGhost,
    /// How many runs there were.
    pub runs: u8,
}

#[derive(Clone, Debug, Hash)]
pub struct ModelHost {
    pub processes: Vec<Rc<ModelProcess>>,
    pub asleep: bool,
    pub memory: ModelMemory,
    /// How often it was started: what ran before a restart is not looked for among the processes.
    pub boots: u8,
    /// Time that its clock has missed, and since when it misses more, where a clock stops in sleep.
    pub missed_ms: u64,
    pub slept_at_ms: u64,
}

/// What a host keeps on its disk.
#[derive(Clone, Debug, Default, Hash)]
pub struct ModelMemory {
    pub high_water: Option<Token>,
    pub sighting: Option<Sighting>,
}

/// A wrapper with its keeper. It is gone when both are.
#[derive(Clone, Debug, Hash)]
pub struct ModelProcess {
    pub run: u8,
    /// `None` once it has ended or was killed.
    pub wrapper: Option<Run<ChosenRules>>,
    /// Stopped, while the rest of its host goes on.
    pub stalled: bool,
    /// What it has not been able to read yet.
    pub inbox: Vec<Input>,
    pub flight: Option<Flight>,
    /// The call that is out takes its time.
    pub slow: bool,
    /// The host's clock before its last call was sent.
    pub asked: Boot,
    /// The keeper and the child: there is no child without one.
    pub keeper: Option<ModelKeeper>,
    /// Something happened to it that may cost a holder its lease: a fault, a pause, or a store that let it wait.
    pub hurt: bool,
}

/// A store call that is out.
#[derive(Clone, Debug, Hash)]
pub enum Flight {
    /// On its way to the store.
    Sent(Call),
    /// Performed, and the answer is on its way back.
    Done(Answer<Reply>),
    /// Cut off when the store was restored.
    Broken,
}

#[derive(Clone, Debug, Hash)]
pub struct Stray {
    pub run: u8,
    pub call: Call,
}

#[derive(Clone, Debug, Hash)]
pub struct ModelKeeper {
    pub deadline: Boot,
    pub phase: KeeperPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeeperPhase {
    Running,
    Frozen,
    /// TERM was sent; the child may take no notice until it is killed.
    Ending {
        kill_at: Boot,
    },
}

/// What has happened, for the invariants only: no process sees any of it.
#[derive(Clone, Debug, Default, Hash)]
pub struct LeaseGhost {
    /// The highest token ever granted.
    pub highest: Token,
    pub grants: u8,
    pub rolled_back: bool,
    /// The highest token of a command that was let at the resource.
    pub admitted: u64,
    /// The named commands that were started on the resource, and those whose end their wrapper has seen.
    pub started: Vec<Fenced>,
    pub ended: Vec<Fenced>,
    /// Outcomes that a wrapper reported as recorded.
    pub acknowledged: Vec<(u8, Status)>,
    pub violation: Option<LeaseViolation>,
}

/// The name of a run. Zero is no run of the model.
pub fn run_id(number: u8) -> RunId {
    format!("{number:032x}").parse().expect("32 hexadecimal digits are a run")
}

impl StateSpace for LeaseWorld {
    const TITLE: &'static str = "leases";
    type Setting = LeaseSetting;
    type Step = LeaseStep;
    type Violation = LeaseViolation;

    fn name(config: &LeaseSetting) -> &'static str {
        config.name
    }

    fn begin(config: &LeaseSetting) -> Self {
        Self::new(config)
    }

    fn next(&self, config: &LeaseSetting) -> Vec<LeaseStep> {
        self.steps(config)
    }

    fn take(&self, config: &LeaseSetting, step: LeaseStep) -> Self {
        self.after(config, step)
    }

    fn wrong(&self, config: &LeaseSetting) -> impl Iterator<Item = LeaseViolation> {
        self.violations(config)
    }

    /// With the true time at which it happens, the holder and the children that run.
    fn tell(&self, _config: &LeaseSetting, step: LeaseStep) -> String {
        let seconds = self.now_ms as f64 / 1000.0;
        let running: Vec<u8> = self.running().map(|process| process.run).collect();
        let lease = self.store.record().and_then(|record| record.lease.as_ref());
        let lease = lease.map_or("free".to_string(), |lease| format!("held by {}", lease.run.0.as_u128()));
        format!("{seconds:>8.2} s  {step:<50}  {lease:<12} running: {running:?}")
    }
}

impl LeaseWorld {
    pub fn new(config: &LeaseSetting) -> Self {
        let host = || ModelHost {
            processes: Vec::new(),
            asleep: false,
            memory: ModelMemory::default(),
            boots: 0,
            missed_ms: 0,
            slept_at_ms: 0,
        };
        Self {
            now_ms: 0,
            store: ModelStore::new(config),
            hosts: [host(), host()],
            strays: Vec::new(),
            budget: config.budget,
            ghost: LeaseGhost::default(),
            runs: 0,
        }
    }

    /// What the clocks of a host show.
    pub fn now(&self, config: &LeaseSetting, host: usize) -> Now {
        let HostClock { boot_ms, rate } = config.clocks[host];
        let boot = Boot(boot_ms + (self.now_ms - self.hosts[host].missed_ms) * rate / 1000);
        Now { boot, wall: self.date() }
    }

    /// The true moment at which a host's clock shows `due`.
    pub fn moment(&self, config: &LeaseSetting, host: usize, due: Boot) -> u64 {
        let HostClock { boot_ms, rate } = config.clocks[host];
        self.hosts[host].missed_ms + (due.0.saturating_sub(boot_ms) * 1000).div_ceil(rate)
    }

    pub fn store_clock(&self, config: &LeaseSetting) -> Option<StoreClock> {
        config.store_has_clock.then(|| StoreClock { wall: self.date(), era: Era::default(), tick: self.now_ms })
    }

    /// The host of a run, if anything of it is left.
    pub fn host_of(&self, run: u8) -> Option<usize> {
        self.hosts.iter().position(|host| host.processes.iter().any(|process| process.run == run))
    }

    pub fn process(&self, run: u8) -> Option<&ModelProcess> {
        self.processes().map(|(_, process)| process).find(|process| process.run == run)
    }

    pub fn process_mut(&mut self, run: u8) -> Option<&mut ModelProcess> {
        let all = self.hosts.iter_mut().flat_map(|host| host.processes.iter_mut());
        all.into_iter().find(|process| process.run == run).map(Rc::make_mut)
    }

    /// All processes, each with its host.
    pub fn processes(&self) -> impl Iterator<Item = (usize, &ModelProcess)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.flat_map(|(number, host)| host.processes.iter().map(move |process| (number, &**process)))
    }

    /// The runs whose child is executing instructions at this very moment.
    pub fn running(&self) -> impl Iterator<Item = &ModelProcess> {
        self.processes()
            .filter(|(host, process)| !self.hosts[*host].asleep && process.child_runs())
            .map(|(_, process)| process)
    }

    /// Whether the run that holds the lease is this one.
    pub fn is_held_by(&self, run: u8) -> bool {
        let lease = self.store.record().and_then(|record| record.lease.as_ref());
        lease.is_some_and(|lease| lease.run == run_id(run))
    }

    /// Starts a wrapper, which makes its first call.
    pub fn admit(&mut self, config: &LeaseSetting, host: usize) -> u8 {
        self.runs += 1;
        let run = self.runs;
        let wrapper = Run::new(terms(config, host, self.hosts[host].boots, run));
        self.hosts[host].processes.push(Rc::new(ModelProcess {
            run,
            wrapper: Some(wrapper),
            stalled: false,
            inbox: vec![Input::Begin],
            flight: None,
            slow: false,
            asked: Boot(0),
            keeper: None,
            hurt: false,
        }));
        run
    }

    /// The true date, which all wall clocks show.
    pub fn date(&self) -> Wall {
        EPOCH + Duration::from_millis(self.now_ms)
    }
}

impl ModelProcess {
    /// Whether time can pass only if the call that is out takes its time.
    pub fn is_in_a_hurry(&self, asleep: bool) -> bool {
        let deaf = asleep || self.stalled;
        match &self.flight {
            Some(Flight::Sent(_)) => !self.slow,
            Some(Flight::Done(_) | Flight::Broken) => !self.slow && !deaf,
            None => false,
        }
    }

    /// Whether the child is neither frozen nor gone.
    pub fn child_runs(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.phase != KeeperPhase::Frozen)
    }
}

/// The write that a command's claim is judged by.
pub fn write(command: Fenced) -> Write {
    Write {
        store: StoreId(run_id(0).0),
        job: Job::shared(Name::new("j").expect("one letter is a name")),
        token: Token::new(command.token).expect("a small number is a token"),
        run: run_id(u8::try_from(command.token).expect("a small number")),
        digest: "sha256:".to_string(),
        op: command.is_named.then(|| "op".to_string()),
        mode: WriteMode::Many,
        replaces: false,
        adopt: false,
        at: EPOCH,
        host: String::new(),
    }
}

fn terms(config: &LeaseSetting, host: usize, boots: u8, run: u8) -> Terms {
    let pid = |pid: u8| Process { pid: i32::from(pid), started: 0 };
    let processes = Processes {
        machine: host.to_string(),
        boot: boots.to_string(),
        pid_namespace: String::new(),
        wrapper: pid(run),
        keeper: None,
        time_namespace: Default::default(),
        unknown: Default::default(),
    };
    let claim = Claim {
        run: run_id(run),
        ttl: config.ttl,
        holder: Holder {
            host: host.to_string(),
            processes: Some(processes),
            by_hand: false,
            inside: Vec::new(),
            unknown: Default::default(),
        },
        slot: config.command(run).map_or(Choice::At(EPOCH), |command| Choice::Fenced(Box::new(write(command)))),
        zone: String::new(),
        trigger: Trigger::Schedule,
    };
    Terms {
        job: job(config),
        claim,
        grace: config.grace,
        overlap: Overlap::Skip,
        wait: config.wait,
        timeout: None,
        run_without_store: false,
        inside: Vec::new(),
        stages: Stages::default(),
        empty_exit: None,
        must_record: false,
        observe: false,
        stuck_after: None,
    }
}
