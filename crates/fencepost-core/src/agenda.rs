//! When jobs are started, for whoever schedules them on this machine.
//!
//! An agenda is only a trigger: it starts `run JOB` at a slot's time, and the run plans and claims inside the lease, so
//! that any number of machines may follow the same schedules. The agenda is told the time and what happened, and says
//! what to do. It touches nothing.
//!
//! Before a start that is not at a slot's very time (when it begins, after a sleep or a step of the clock, when the store
//! is back, when another machine was at it) it *looks*: it has the record read, and starts a run only if something is due.
//! However many slots have passed, that is one run: what of them is caught up is the plan's to say.

mod look;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

pub use look::{Seen, look};

use crate::lease::Now;
use crate::name::Name;
use crate::plan::AHEAD_MAX;
use crate::schedule::Schedule;
use crate::time::{Boot, Wall, millis};

/// Whoever drives an agenda steps it at least this often, so that a sleep is noticed soon after it is over.
pub const STEP_WITHIN: Duration = Duration::from_secs(2);

/// Two steps further apart than this have a sleep between them, of the machine's or of ours.
const SLEPT: Duration = Duration::from_secs(10);

/// Clocks that come apart by more than this between two steps were not slewed: the wall clock was set.
const STEPPED: Duration = Duration::from_secs(1);

/// How many looks are out at once. They are made one after the other; more would only be in the way of a probe.
const LOOKS_MAX: usize = 16;

/// How long a store that is away is left alone at first, and at most.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// A look that is due by the store's clock comes this much later, so that it is not early by a rounding.
const AFTER_DUE: Duration = Duration::from_millis(50);

/// How long a job that could not be started is left alone.
const START_AGAIN: Duration = Duration::from_secs(5);

/// A job, as far as it matters for when it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub name: Name,
    pub schedule: Schedule,
    /// How long another machine's run is left alone before it is looked at again.
    pub ttl: Duration,
    /// A start this much late is still on time.
    pub slack: Duration,
    /// It runs even if there is no store to claim it in.
    pub runs_without_store: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many runs go on at once.
    pub max_parallel: usize,
    /// Over how long jobs of the same instant are spread.
    pub spread: Duration,
}

/// Tells one start from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing but that time has passed.
    Tick,
    /// The record was read. The next slot comes in this time, by the clock that slots are judged by.
    Looked { job: Name, look: Look, next_in: Option<Duration> },
    /// A run has ended, or was not started at all.
    Ended { id: StartId, end: End },
    /// The configuration was read anew.
    Reload { tasks: Vec<Task>, limits: Limits },
    /// Nothing more is started.
    Stop,
}

/// What a look at a record came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// This slot would run.
    Due(Wall),
    /// Nothing is due.
    Nothing,
    /// The slot has failed, and its attempts are used up.
    Failed { exit_code: i32 },
    /// Somebody is at it, and cannot be gone before this time is over.
    Busy { remaining: Duration },
    /// The store did not answer.
    Away(String),
}

/// How a run ended, as far as it matters for what comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran.
    Done,
    /// It ran without a lease, because the store did not answer.
    WithoutLease,
    /// There was nothing to run, by the clock that slots are judged by: nothing is due, or what is due is done.
    NotDue,
    /// Another run is at it.
    Elsewhere,
    /// It ended without a word.
    Died,
    NotStarted,
    /// The store did not answer.
    Away(String),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Look(Name),
    Start { job: Name, id: StartId },
    Tell(Told),
}

/// What is worth a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// There was a sleep of this length.
    Slept(Duration),
    /// The wall clock was set by so many milliseconds.
    Stepped(i64),
    StoreAway {
        error: String,
    },
    StoreBack {
        away_for: Duration,
    },
    /// As many jobs run as may.
    Queued(Name),
}

/// The schedules of this machine.
#[derive(Debug)]
pub struct Agenda {
    entries: BTreeMap<Name, Entry>,
    limits: Limits,
    queue: VecDeque<Name>,
    running: BTreeMap<StartId, Name>,
    /// When it was last stepped.
    last: Option<Now>,
    away: Option<Away>,
    looks: usize,
    starts: u64,
    once: bool,
    stopping: bool,
    out: Vec<Output>,
}

#[derive(Debug)]
struct Entry {
    task: Task,
    /// Every slot up to here was triggered, or looked at.
    considered: Wall,
    /// The next slot, and when it is started.
    next: Option<(Wall, Wall)>,
    /// To be looked at as soon as may be.
    wants_look: bool,
    is_looked_at: bool,
    look_at: Option<Boot>,
    /// The clock that slots are judged by is another than ours, so that it is looked again after each run.
    follows_looks: bool,
    is_queued: bool,
    /// The newest slot that a run was started for.
    started: Option<Wall>,
    /// The same, once such a run has ended. It has tried every slot up to there that was due, and a look does not start
    /// it again. A halted slot would be tried without a pause otherwise.
    tried: Option<Wall>,
}

#[derive(Debug)]
struct Away {
    since: Boot,
    retry_at: Boot,
    backoff: Duration,
    /// The job whose record is read to see whether the store is back.
    probe: Option<Name>,
}

impl Agenda {
    pub fn new(tasks: Vec<Task>, limits: Limits, now: Now) -> Self {
        let mut agenda = Self {
            entries: BTreeMap::new(),
            limits,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            last: None,
            away: None,
            looks: 0,
            starts: 0,
            once: false,
            stopping: false,
            out: Vec::new(),
        };
        agenda.load(tasks, limits, now);
        agenda
    }

    /// Only what is due now, each job once.
    pub fn once(tasks: Vec<Task>, limits: Limits, now: Now) -> Self {
        let mut agenda = Self::new(tasks, limits, now);
        agenda.once = true;
        agenda.entries.values_mut().for_each(|entry| entry.next = None);
        agenda
    }

    /// Takes note of what happened, and says what to do.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Output> {
        self.keep_time(now);
        match input {
            Input::Tick => {}
            Input::Looked { job, look, next_in } => self.looked(&job, look, next_in, now),
            Input::Ended { id, end } => self.ended(id, end, now),
            Input::Reload { tasks, limits } => self.load(tasks, limits, now),
            Input::Stop => self.stop(),
        }
        if !self.stopping {
            self.trigger(now);
            self.look(now);
            self.start();
        }
        core::mem::take(&mut self.out)
    }

    /// When it wants to be stepped at the latest, if anything is to come.
    pub fn wake_at(&self, now: Now) -> Option<Boot> {
        if self.stopping {
            return None;
        }
        let at = |wall: Wall| now.boot + wall.since(now.wall);
        let retry = self.away.as_ref().filter(|away| away.probe.is_none()).map(|away| away.retry_at);
        let entries = self.entries.values();
        let moments = entries.flat_map(|entry| [entry.next.map(|(_, start)| at(start)), entry.look_at]);
        moments.flatten().chain(retry).min()
    }

    /// Whether nothing is going on.
    pub fn is_idle(&self) -> bool {
        let waits = |entry: &Entry| entry.wants_look || entry.is_looked_at;
        self.running.is_empty() && self.queue.is_empty() && (self.stopping || !self.entries.values().any(waits))
    }

    pub fn is_store_away(&self) -> bool {
        self.away.is_some()
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn tasks(&self) -> usize {
        self.entries.len()
    }

    /// The job that is due next, and its slot.
    pub fn next(&self) -> Option<(&Name, Wall)> {
        let next = self.entries.values().filter_map(|entry| Some((entry.next?.1, entry)));
        next.min_by_key(|(start, _)| *start).and_then(|(_, entry)| Some((&entry.task.name, entry.next?.0)))
    }

    /// Notices sleeps and steps of the clock. Afterwards it is looked before anything is started.
    fn keep_time(&mut self, now: Now) {
        let Some(last) = self.last.replace(now) else { return };
        let passed = now.boot.since(last.boot);
        let by_wall = now.wall.0.saturating_sub(last.wall.0);
        let stepped = by_wall.saturating_sub(i64::try_from(millis(passed)).unwrap_or(i64::MAX));
        if stepped.unsigned_abs() > millis(STEPPED) {
            self.tell(Told::Stepped(stepped));
        } else if passed > SLEPT {
            self.tell(Told::Slept(passed));
        } else {
            return;
        }
        let is_stepped = stepped.unsigned_abs() > millis(STEPPED);
        for entry in self.entries.values_mut().filter(|_| !self.once) {
            entry.woke(now.wall, is_stepped, self.limits.spread);
        }
    }

    /// Starts what is due, at its time.
    fn trigger(&mut self, now: Now) {
        let due: Vec<Name> = self
            .entries
            .values_mut()
            .filter(|entry| entry.next.is_some_and(|(_, start)| start <= now.wall))
            .map(|entry| {
                let newest = entry.task.schedule.at_or_before(now.wall);
                let slot = entry.next.map(|(slot, _)| slot);
                entry.considered = entry.considered.max(slot.max(newest).unwrap_or(now.wall));
                // Where another clock judges slots, only a look knows which one is due.
                if !entry.follows_looks {
                    entry.started = entry.started.max(slot.max(newest));
                }
                entry.plan_next(self.limits.spread);
                entry.task.name.clone()
            })
            .collect();
        for name in due {
            self.enqueue(&name);
        }
    }

    /// A job that is already in the queue is not put there again: its run finds whatever is due.
    fn enqueue(&mut self, name: &Name) {
        let is_away = self.away.is_some();
        let is_full = self.running.len() + self.queue.len() >= self.limits.max_parallel;
        let Some(entry) = self.entries.get_mut(name) else { return };
        if is_away && !entry.task.runs_without_store {
            entry.wants_look = true;
            return;
        }
        entry.wants_look = false;
        entry.look_at = None;
        if !core::mem::replace(&mut entry.is_queued, true) {
            self.queue.push_back(name.clone());
            if is_full {
                self.tell(Told::Queued(name.clone()));
            }
        }
    }

    fn start(&mut self) {
        while self.running.len() < self.limits.max_parallel {
            let Some(job) = self.queue.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&job) else { continue };
            entry.is_queued = false;
            if self.away.is_some() && !entry.task.runs_without_store {
                entry.wants_look = true;
                continue;
            }
            self.starts += 1;
            let id = StartId(self.starts);
            self.running.insert(id, job.clone());
            self.out.push(Output::Start { job, id });
        }
    }

    fn look(&mut self, now: Now) {
        for entry in self.entries.values_mut() {
            if entry.look_at.is_some_and(|at| at <= now.boot) {
                entry.look_at = None;
                entry.wants_look = true;
            }
        }
        if let Some(away) = &mut self.away {
            if away.probe.is_some() || now.boot < away.retry_at {
                return;
            }
            let free = || self.entries.values().filter(|entry| !entry.is_looked_at);
            let probed = free().find(|entry| entry.wants_look).or_else(|| free().next());
            let Some(name) = probed.map(|entry| entry.task.name.clone()) else { return };
            away.probe = Some(name.clone());
            self.look_at(&name);
            return;
        }
        let wanted = self.entries.values().filter(|entry| entry.wants_look && !entry.is_looked_at);
        let room = LOOKS_MAX.saturating_sub(self.looks);
        let names: Vec<Name> = wanted.take(room).map(|entry| entry.task.name.clone()).collect();
        names.iter().for_each(|name| self.look_at(name));
    }

    fn look_at(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.wants_look = false;
        entry.is_looked_at = true;
        self.looks += 1;
        self.out.push(Output::Look(name.clone()));
    }

    fn looked(&mut self, job: &Name, look: Look, next_in: Option<Duration>, now: Now) {
        self.looks = self.looks.saturating_sub(1);
        match &look {
            Look::Away(error) => self.store_failed(error, Some(job), now),
            _ => self.store_answered(now),
        }
        let is_running = self.running.values().any(|name| name == job);
        let once = self.once;
        let Some(entry) = self.entries.get_mut(job) else { return };
        entry.is_looked_at = false;
        // The clock that slots are judged by may be another than ours. Where it comes first, it is looked then.
        let by_us = entry.next.map(|(slot, _)| slot.since(now.wall));
        let next_in = next_in.filter(|_| !once);
        let sooner = next_in.filter(|next_in| by_us.is_none_or(|by_us| *next_in + STEPPED < by_us));
        let later = by_us.filter(|by_us| next_in.is_some_and(|next_in| *by_us + STEPPED < next_in));
        if !matches!(look, Look::Away(_)) {
            entry.follows_looks = sooner.is_some() || later.is_some();
        }
        let look_at = sooner.map(|next_in| now.boot + next_in + AFTER_DUE);
        match look {
            Look::Due(slot) if entry.tried >= Some(slot) => entry.look_at = look_at,
            Look::Due(slot) => {
                entry.started = entry.started.max(Some(slot));
                self.enqueue(job);
            }
            Look::Busy { .. } if is_running || once => {}
            Look::Busy { remaining } => entry.look_at = Some(now.boot + remaining + AFTER_DUE),
            Look::Nothing | Look::Failed { .. } => entry.look_at = look_at,
            Look::Away(_) => entry.wants_look = true,
        }
    }

    fn ended(&mut self, id: StartId, end: End, now: Now) {
        let Some(job) = self.running.remove(&id) else { return };
        match &end {
            End::Away(error) => self.store_failed(error, None, now),
            End::Done | End::NotDue | End::Elsewhere => self.store_answered(now),
            End::WithoutLease | End::Died | End::NotStarted => {}
        }
        let is_running = self.running.values().any(|name| *name == job);
        let once = self.once;
        let Some(entry) = self.entries.get_mut(&job) else { return };
        if matches!(end, End::Done | End::WithoutLease) {
            entry.tried = entry.started;
        }
        match end {
            _ if once => {}
            End::Done | End::WithoutLease => entry.wants_look |= entry.follows_looks,
            End::NotDue => entry.wants_look = true,
            End::Elsewhere if is_running => {}
            End::Elsewhere | End::Died => entry.look_at = Some(now.boot + entry.task.ttl + AFTER_DUE),
            End::NotStarted => entry.look_at = Some(now.boot + START_AGAIN),
            End::Away(_) => entry.wants_look = true,
        }
    }

    fn store_failed(&mut self, error: &str, looked_at: Option<&Name>, now: Now) {
        match &mut self.away {
            None => {
                let (since, backoff) = (now.boot, BACKOFF_MIN);
                self.away = Some(Away { since, retry_at: now.boot + backoff, backoff, probe: None });
                self.tell(Told::StoreAway { error: error.into() });
            }
            Some(away) if away.probe.is_some() && away.probe.as_ref() == looked_at => {
                away.probe = None;
                away.backoff = (away.backoff * 2).min(BACKOFF_MAX);
                away.retry_at = now.boot + away.backoff;
            }
            Some(_) => {}
        }
    }

    fn store_answered(&mut self, now: Now) {
        if let Some(away) = self.away.take() {
            self.tell(Told::StoreBack { away_for: now.boot.since(away.since) });
        }
    }

    /// Takes a configuration over. What it has in common with the one before goes on as it was.
    fn load(&mut self, tasks: Vec<Task>, limits: Limits, now: Now) {
        let mut before = core::mem::take(&mut self.entries);
        self.limits = limits;
        for task in tasks {
            let mut entry = match before.remove(&task.name) {
                Some(entry) if entry.task.schedule.fingerprint() == task.schedule.fingerprint() => {
                    Entry { task, ..entry }
                }
                other => Entry {
                    task,
                    considered: now.wall,
                    next: None,
                    wants_look: true,
                    is_looked_at: other.as_ref().is_some_and(|entry| entry.is_looked_at),
                    look_at: None,
                    follows_looks: false,
                    is_queued: other.is_some_and(|entry| entry.is_queued),
                    started: None,
                    tried: None,
                },
            };
            entry.plan_next(limits.spread);
            self.entries.insert(entry.task.name.clone(), entry);
        }
        self.queue.retain(|name| self.entries.contains_key(name));
        if let Some(away) = &mut self.away {
            away.probe = away.probe.take().filter(|name| self.entries.contains_key(name));
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.queue.clear();
    }

    fn tell(&mut self, told: Told) {
        self.out.push(Output::Tell(told));
    }
}

impl Entry {
    /// After a sleep or a step of the clock. What came due is looked at, once, and nothing is started for it unseen. A
    /// clock that went back does not make a slot due again, unless it had been far ahead. A clock that was set may be
    /// another than the one that slots are judged by.
    fn woke(&mut self, now: Wall, is_stepped: bool, spread: Duration) {
        self.wants_look |= is_stepped;
        (self.started, self.tried) = (None, None);
        if self.considered > now + AHEAD_MAX {
            self.considered = now;
        }
        if self.task.schedule.at_or_before(now).is_some_and(|newest| newest > self.considered) {
            self.wants_look = true;
        }
        self.considered = self.considered.max(now);
        self.plan_next(spread);
    }

    fn plan_next(&mut self, spread: Duration) {
        let next = self.task.schedule.after(self.considered);
        self.next = next.map(|slot| (slot, slot + self.offset(slot, spread)));
    }

    /// How long after its slot the job is started: always the same for the same job. It stays on time, and well within
    /// its period.
    fn offset(&self, slot: Wall, spread: Duration) -> Duration {
        if spread.is_zero() {
            return Duration::ZERO;
        }
        let period = self.task.schedule.after(slot).map_or(spread, |next| next.since(slot) / 4);
        let within = spread.min(self.task.slack / 2).min(period);
        Duration::from_millis(hash(self.task.name.as_str()) % (millis(within) + 1))
    }
}

/// FNV-1a, the same on every machine and in every version.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
