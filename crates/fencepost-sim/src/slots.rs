//! The fourth world: slots, and items of work that are done once.
//!
//! Hosts trigger one job around a few slots of a toy schedule, or one item of work. The decisions are the shipped ones:
//! the claim, the plan inside it, the account and the completion, each carried by the shipped [`Transition`]. That a
//! lease is sound is another world's business: here every host knows at once whose processes are gone.

mod flaw;
pub mod invariants;
pub mod mutants;
pub mod settings;
mod step;

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use fencepost_core::lease::{Claim, Facts, Honest, Intent, Me, Now, Refusal};
use fencepost_core::ledger::{EndedBy, Ending, Status, Trigger};
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::plan::{CatchUpMode, CatchUpTerms};
use fencepost_core::record::{FORMAT, Holder, Identity, Paused, Process, Processes, Record, encode};
use fencepost_core::register::{Answer, Entry, StoreError, Swapped, Trouble, Version};
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::{Asked, Choice, Named, NotNow, OnLost, OnUnknown, Repeat, Scheduled};
use fencepost_core::time::{Boot, Wall};
use fencepost_core::token::{StoreId, Token};
use fencepost_core::transition::{Call, Reply, Step, Transition};
use fencepost_core::zone::Zone;

use crate::explore::StateSpace;
use crate::rulebook::ChosenRules;
use crate::world::run_id;
pub use flaw::SlotFlaw;
use invariants::SlotViolation;
pub use step::SlotStep;

/// The first slot.
pub const START: Wall = Wall(1_790_000_000_000);
const SLACK: Duration = Duration::from_secs(10);

/// How far a clock is ahead that is ahead.
const AHEAD: Duration = Duration::from_secs(600);

/// The most triggers. The runs of one trigger have numbers that differ by this.
const TRIGGERS_MAX: u8 = 40;

/// The bounds of one exploration.
#[derive(Clone, Copy, Debug)]
pub struct SlotSetting {
    pub name: &'static str,
    pub work: SlotWork,
    pub hosts: u8,
    /// How many triggers there are, on all hosts.
    pub triggers: u8,
    /// How far the clock goes, in how long steps, and how long after the first slot it begins.
    pub ticks: u8,
    pub tick: Duration,
    pub begins: Duration,
    /// A trigger goes on with the next slot that is due, until there is none.
    pub rows: bool,
    pub budget: SlotBudget,
    /// How long a pause lasts; otherwise until the job is resumed.
    pub pause_for: Option<Duration>,
    pub flaw: Option<SlotFlaw>,
}

/// What is triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotWork {
    /// Every minute, of which so many are caught up.
    Slots {
        catch_up: u32,
        mode: CatchUpMode,
    },
    Once(OnUnknown),
}

/// How often each kind of misfortune may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotBudget {
    /// Processes that die, anywhere.
    pub crashes: u8,
    /// Swaps whose answer is lost.
    pub losses: u8,
    /// Commands that fail by themselves.
    pub failures: u8,
    /// Pauses, each of which may be ended.
    pub pauses: u8,
    /// How often the job may be forgotten.
    pub forgets: u8,
    /// Runs that end before their command starts: by the barrier, or for an item of work by the death of the keeper.
    pub halts: u8,
    /// Clocks that are ahead for a moment when a command ends.
    pub leaps: u8,
}

impl SlotSetting {
    fn has(&self, flaw: SlotFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn schedule() -> Schedule {
        let zone = Zone::utc();
        Schedule::parse(&format!("every 1m from {}", zone.show(START)), &zone).expect("it is a schedule")
    }

    fn choice(&self, after: Option<Wall>) -> Choice {
        match self.work {
            SlotWork::Once(on_unknown) => Choice::Once { params: None, on_unknown },
            SlotWork::Slots { catch_up, mode } => {
                let terms = CatchUpTerms { catch_up, mode, slack: SLACK, ..CatchUpTerms::default() };
                let (schedule, on_lost) = (Self::schedule(), OnLost::Rerun);
                let asked = after.map_or(Asked::Due, Asked::DueAfter);
                Choice::Due(Box::new(Scheduled { schedule, terms, asked, on_lost, retries: 0 }))
            }
        }
    }
}

/// What a swap that is out is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    /// The first slot that is due, or the first after one that the same trigger has tried.
    Claim {
        run: u8,
        after: Option<Wall>,
    },
    Account,
    Forget,
    /// The command of this run ended well, or not.
    Complete {
        run: u8,
        slot: Wall,
        well: bool,
    },
}

/// What a host is at.
#[derive(Clone, Debug, Hash)]
enum HostStage {
    Idle,
    /// The trigger is early, and waits for its slot.
    Waiting {
        run: u8,
        slot: Wall,
    },
    /// A swap is on its way.
    Swapping {
        run: u8,
        purpose: Purpose,
        transition: Rc<Transition<ChosenRules>>,
        swap: Rc<Call>,
    },
    Running {
        run: u8,
        token: Token,
        /// As the command was told.
        slot: Wall,
        began: Wall,
        /// The item of work has been done.
        effect: bool,
    },
}

/// The record as it stands in the store. Its bytes say it all.
#[derive(Debug)]
struct SlotRecord {
    bytes: Vec<u8>,
    number: u64,
    record: Record,
}

impl Hash for SlotRecord {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.bytes, self.number).hash(state);
    }
}

/// The world.
#[derive(Clone, Debug, Hash)]
pub struct SlotWorld {
    ticks: u8,
    /// The clock is ahead, for the length of one step.
    is_ahead: bool,
    stored: Option<Rc<SlotRecord>>,
    hosts: Vec<HostStage>,
    runs: u8,
    budget: SlotBudget,
    ghost: invariants::SlotGhost,
}

impl StateSpace for SlotWorld {
    const TITLE: &'static str = "slots";
    type Setting = SlotSetting;
    type Step = SlotStep;
    type Violation = SlotViolation;

    fn name(setting: &SlotSetting) -> &'static str {
        setting.name
    }

    /// With the time at which it happens and how far the slots are accounted for.
    fn tell(&self, setting: &SlotSetting, step: SlotStep) -> String {
        let since = |at: Wall| at.since(START).as_secs();
        let timing = self.record().and_then(|record| record.timing.as_ref()).and_then(|timing| timing.evaluated);
        let mark = timing.map_or("-".to_string(), |mark| since(mark).to_string());
        format!("{:>4} s  {:<44}  accounted for up to {mark}", since(self.wall(setting)), step.to_string())
    }

    fn begin(setting: &SlotSetting) -> Self {
        Self {
            ticks: 0,
            is_ahead: false,
            stored: None,
            hosts: vec![HostStage::Idle; usize::from(setting.hosts)],
            runs: 0,
            budget: setting.budget,
            ghost: Default::default(),
        }
    }

    fn next(&self, setting: &SlotSetting) -> Vec<SlotStep> {
        let mut steps = Vec::new();
        // Hosts that do nothing are all alike.
        let idle = self.hosts.iter().position(|stage| matches!(stage, HostStage::Idle));
        for (host, stage) in (0..).zip(&self.hosts) {
            match stage {
                HostStage::Idle if idle == Some(usize::from(host)) && self.runs < setting.triggers => {
                    steps.push(SlotStep::Trigger { host });
                }
                HostStage::Idle => continue,
                HostStage::Waiting { slot, .. } => {
                    steps.extend((self.wall(setting) >= *slot).then_some(SlotStep::Wake { host }));
                    continue;
                }
                HostStage::Swapping { .. } => {
                    steps.push(SlotStep::Serve { host });
                    if self.budget.losses > 0 {
                        steps.extend([true, false].map(|landed| SlotStep::Lose { host, landed }));
                    }
                }
                HostStage::Running { effect, .. } => {
                    let is_item = matches!(setting.work, SlotWork::Once(_));
                    if is_item && !effect {
                        steps.push(SlotStep::Effect { host });
                    } else {
                        steps.push(SlotStep::End { host, well: true });
                    }
                    if self.budget.failures > 0 && !effect {
                        steps.push(SlotStep::End { host, well: false });
                    }
                    steps.extend((self.budget.halts > 0 && !effect).then_some(SlotStep::Halt { host }));
                    steps.extend((self.budget.leaps > 0).then_some(SlotStep::EndAhead { host }));
                }
            }
            if self.budget.crashes > 0 && !matches!(stage, HostStage::Idle) {
                steps.push(SlotStep::Crash { host });
            }
        }
        if self.ticks < setting.ticks {
            steps.push(SlotStep::Tick);
        }
        let is_at_rest = self.record().is_some_and(|record| record.lease.is_none());
        steps.extend((self.budget.forgets > 0 && is_at_rest).then_some(SlotStep::Forget));
        match self.record() {
            Some(record) if record.paused.is_some() => steps.push(SlotStep::Resume),
            Some(_) if self.budget.pauses > 0 => steps.push(SlotStep::Pause),
            _ => {}
        }
        steps
    }

    fn take(&self, setting: &SlotSetting, step: SlotStep) -> Self {
        let mut next = self.clone();
        match step {
            SlotStep::Trigger { host } => {
                next.runs += 1;
                next.trigger(setting, host, self.runs + 1, None);
            }
            SlotStep::Wake { host } => {
                if let HostStage::Waiting { run, .. } = self.hosts[usize::from(host)] {
                    next.trigger(setting, host, run, None);
                }
            }
            SlotStep::Serve { host } => next.answer(setting, host, true, true),
            SlotStep::Lose { host, landed } => {
                next.budget.losses -= 1;
                next.answer(setting, host, landed, false);
            }
            SlotStep::Crash { host } => {
                next.budget.crashes -= 1;
                next.hosts[usize::from(host)] = HostStage::Idle;
            }
            SlotStep::Effect { host } => {
                if let HostStage::Running { effect, .. } = &mut next.hosts[usize::from(host)] {
                    *effect = true;
                }
                next.ghost.note_effect(setting);
            }
            SlotStep::End { host, well } => {
                next.budget.failures -= u8::from(!well);
                next.complete(setting, host, if well { Status::Ok } else { Status::Error });
            }
            SlotStep::Halt { host } => {
                next.budget.halts -= 1;
                next.complete(setting, host, Status::Halted);
            }
            SlotStep::EndAhead { host } => {
                next.budget.leaps -= 1;
                next.is_ahead = true;
                next.complete(setting, host, Status::Ok);
                next.is_ahead = false;
            }
            SlotStep::Tick => next.ticks += 1,
            SlotStep::Pause => {
                next.budget.pauses -= 1;
                next.at_once(
                    setting,
                    Intent::Pause {
                        paused: Paused {
                            since: self.wall(setting),
                            by: String::new(),
                            note: None,
                            unknown: Default::default(),
                            until: Default::default(),
                        },
                        length: setting.pause_for,
                    },
                    Purpose::Account,
                );
            }
            SlotStep::Resume => next.at_once(setting, Intent::Resume, Purpose::Account),
            SlotStep::Forget => {
                next.budget.forgets -= 1;
                next.at_once(setting, Intent::Forget, Purpose::Forget);
            }
        }
        next
    }

    fn wrong(&self, _setting: &SlotSetting) -> impl Iterator<Item = SlotViolation> {
        self.ghost.violation.into_iter()
    }
}

impl SlotWorld {
    fn wall(&self, setting: &SlotSetting) -> Wall {
        START + setting.begins + setting.tick * u32::from(self.ticks)
    }

    fn now(&self, setting: &SlotSetting) -> Now {
        let wall = self.wall(setting);
        let boot = Boot(u64::from(self.ticks) * setting.tick.as_millis() as u64);
        Now { boot, wall: if self.is_ahead { wall + AHEAD } else { wall } }
    }

    fn record(&self) -> Option<&Record> {
        self.stored.as_deref().map(|stored| &stored.record)
    }

    fn trigger(&mut self, setting: &SlotSetting, host: u8, run: u8, after: Option<Wall>) {
        let mut claim = self.claim_of(setting, run, after);
        if setting.has(SlotFlaw::PlanOutside) {
            let standing = fencepost_core::slot::LeaseState::Stands;
            match claim.slot.choose::<ChosenRules>(self.record(), standing, self.wall(setting)) {
                Ok(chosen) => {
                    let (repeat, on_lost) = (Repeat::Again, OnLost::Rerun);
                    let slot = Named { slot: chosen.slot, repeat, on_lost, retries: 0, slack: None };
                    claim.slot = Choice::Slot(slot);
                }
                Err(_) => return,
            }
        }
        self.start(setting, host, run, Purpose::Claim { run, after }, Intent::Claim(claim));
    }

    fn complete(&mut self, setting: &SlotSetting, host: u8, status: Status) {
        let HostStage::Running { run, token, slot, began, .. } = self.hosts[usize::from(host)] else { return };
        let well = status == Status::Ok;
        let took = Some(self.wall(setting).since(began));
        let ending = match (setting.work, status) {
            (SlotWork::Once(_), Status::Halted) => {
                Ending { unstarted: true, ..Ending::new(Status::Error, EndedBy::Fencepost) }
            }
            _ => Ending { exit_code: Some(i32::from(!well)), took, ..Ending::new(status, EndedBy::Child) },
        };
        let me = Me { token, run: Some(run_id(run)) };
        let purpose = Purpose::Complete { run, slot, well };
        self.start(setting, host, run, purpose, Intent::Complete { me, ending, escaped: false });
    }

    /// What a host is at once its change is done: a claim is followed by the command, and a command by the next slot.
    fn go_on_after(&mut self, setting: &SlotSetting, host: u8, purpose: Purpose, record: Option<&Record>) {
        self.hosts[usize::from(host)] = running(purpose, record);
        let Purpose::Complete { run, slot, .. } = purpose else { return };
        let SlotWork::Slots { catch_up, .. } = setting.work else { return };
        if setting.rows && u32::from(run / TRIGGERS_MAX) + 1 < catch_up {
            self.trigger(setting, host, run + TRIGGERS_MAX, Some(slot));
        }
    }

    fn start(&mut self, setting: &SlotSetting, host: u8, run: u8, purpose: Purpose, intent: Intent) {
        let writes = if matches!(purpose, Purpose::Claim { .. }) { 0 } else { 100 * u32::from(run) };
        let mut transition = Transition::new(job(), intent, run_id(run), writes);
        let next = transition.begin(self.now(setting));
        self.go_on(setting, host, run, purpose, transition, next);
    }

    /// Reads at once, and stops where a swap is to be made.
    fn go_on(
        &mut self,
        setting: &SlotSetting,
        host: u8,
        run: u8,
        purpose: Purpose,
        mut transition: Transition<ChosenRules>,
        mut next: Step,
    ) {
        loop {
            next = match next {
                Step::Call(Call::Read(key)) => {
                    let reply = Reply::Read(self.read(&key));
                    transition.answered(self.now(setting), Ok(Answer::new(reply, None)))
                }
                Step::Call(swap) => {
                    let (transition, swap) = (Rc::new(transition), Rc::new(swap));
                    self.hosts[usize::from(host)] = HostStage::Swapping { run, purpose, transition, swap };
                    return;
                }
                Step::Consult(record) => transition.consulted(self.now(setting), self.facts(record.as_deref())),
                Step::Done(done) => {
                    let record = done.held.as_ref().map(|known| known.record.as_ref());
                    return self.go_on_after(setting, host, purpose, record);
                }
                Step::Refused(Refusal::NotNow { why: NotNow::Early { slot, .. }, .. }) => {
                    self.hosts[usize::from(host)] = HostStage::Waiting { run, slot };
                    return;
                }
                Step::Refused(Refusal::NotNow { why, account }) if matches!(purpose, Purpose::Claim { .. }) => {
                    self.hosts[usize::from(host)] = HostStage::Idle;
                    let (record, now) = (self.stored.clone(), self.wall(setting));
                    self.ghost.note_refusal(setting, record.as_deref().map(|stored| &stored.record), &why, now);
                    if let (Purpose::Claim { after, .. }, true) = (purpose, account) {
                        let claim = self.claim_of(setting, run, after);
                        self.start(setting, host, run, Purpose::Account, Intent::Account(claim));
                    }
                    return;
                }
                // Nothing is due, or another is at it; or what it would complete is another's by now.
                Step::Refused(_) | Step::Failed(_) => {
                    self.hosts[usize::from(host)] = HostStage::Idle;
                    return;
                }
            }
        }
    }

    fn claim_of(&self, setting: &SlotSetting, run: u8, after: Option<Wall>) -> Claim {
        Claim {
            run: run_id(run),
            ttl: Duration::from_secs(60),
            holder: holder(run),
            slot: setting.choice(after),
            zone: "UTC".to_string(),
            trigger: Trigger::Manual,
        }
    }

    fn read(&self, key: &Key) -> Option<Entry> {
        if *key == Key::identity() {
            let bytes = encode(&Identity {
                v: FORMAT,
                store: StoreId(run_id(255).0),
                sealed: None,
                unknown: Default::default(),
            });
            return Some(Entry { bytes, version: version(0) });
        }
        let stored = self.stored.as_deref()?;
        Some(Entry { bytes: stored.bytes.clone(), version: version(stored.number) })
    }

    /// Every host knows whose processes are gone.
    fn facts(&self, record: Option<&Record>) -> Facts {
        let lease = record.and_then(|record| record.lease.as_ref());
        let is_alive = |run| {
            self.hosts.iter().any(|stage| match stage {
                HostStage::Idle | HostStage::Waiting { .. } => false,
                HostStage::Swapping { run: own, .. } | HostStage::Running { run: own, .. } => run_id(*own) == run,
            })
        };
        Facts { holder_is_dead: lease.is_some_and(|lease| !is_alive(lease.run)), ..Facts::default() }
    }

    /// The swap of a host arrives, or not, and its answer comes back, or not.
    fn answer(&mut self, setting: &SlotSetting, host: u8, arrives: bool, answered: bool) {
        let HostStage::Swapping { run, purpose, transition, swap } = self.hosts[usize::from(host)].clone() else {
            return;
        };
        let swapped = arrives.then(|| self.swap(setting, purpose, &swap));
        let answer = match swapped.filter(|_| answered) {
            Some(swapped) => Ok(Answer::new(Reply::Swap(swapped), None)),
            None => Err(StoreError::unknown(Trouble::Unavailable, "The store did not answer.")),
        };
        let mut transition = Transition::clone(&transition);
        let next = transition.answered(self.now(setting), answer);
        self.go_on(setting, host, run, purpose, transition, next);
    }

    fn swap(&mut self, setting: &SlotSetting, purpose: Purpose, swap: &Call) -> Swapped {
        let Call::Swap { key, expected, new } = swap else { unreachable!("only swaps are kept") };
        let current = self.read(key);
        if current.as_ref().map(|entry| &entry.version) != expected.as_ref() {
            return Swapped::Lost(current);
        }
        let number = self.stored.as_deref().map_or(1, |stored| stored.number + 1);
        let honest = Record::decode(new, &job()).expect("what is written can be read");
        let written = self.flawed(setting, purpose, honest.clone());
        self.ghost.note_landing(
            setting,
            purpose,
            self.stored.as_deref().map(|stored| &stored.record),
            &honest,
            &written,
        );
        self.stored = Some(Rc::new(SlotRecord { bytes: written.encode(), number, record: written }));
        Swapped::Won(Some(version(number)))
    }

    fn at_once(&mut self, setting: &SlotSetting, intent: Intent, purpose: Purpose) {
        let writes = u32::from(self.budget.pauses + self.budget.forgets) * 2;
        let mut transition = Transition::<Honest>::new(job(), intent, run_id(200), writes);
        let mut next = transition.begin(self.now(setting));
        loop {
            next = match next {
                Step::Call(Call::Read(key)) => {
                    let reply = Reply::Read(self.read(&key));
                    transition.answered(self.now(setting), Ok(Answer::new(reply, None)))
                }
                Step::Call(swap) => {
                    let swapped = self.swap(setting, purpose, &swap);
                    transition.answered(self.now(setting), Ok(Answer::new(Reply::Swap(swapped), None)))
                }
                Step::Consult(_) => transition.consulted(self.now(setting), Facts::default()),
                Step::Done(_) | Step::Refused(_) | Step::Failed(_) => return,
            }
        }
    }
}

fn running(purpose: Purpose, record: Option<&Record>) -> HostStage {
    let lease = record.and_then(|record| record.lease.as_ref());
    match (purpose, record, lease) {
        (Purpose::Claim { run, .. }, Some(record), Some(lease)) if lease.run == run_id(run) => {
            let (token, slot, began) = (record.token, lease.slot, lease.since);
            HostStage::Running { run, token, slot, began, effect: false }
        }
        _ => HostStage::Idle,
    }
}

fn job() -> Job {
    Job::shared(Name::new("report").expect("it is a name"))
}

fn holder(run: u8) -> Holder {
    let processes = Processes {
        machine: String::new(),
        boot: String::new(),
        pid_namespace: String::new(),
        wrapper: Process { pid: i32::from(run), started: 0 },
        keeper: None,
        time_namespace: Default::default(),
        unknown: Default::default(),
    };
    Holder {
        host: String::new(),
        processes: Some(processes),
        by_hand: false,
        inside: Vec::new(),
        unknown: Default::default(),
    }
}

fn version(number: u64) -> Version {
    Version(number.to_be_bytes().to_vec())
}
