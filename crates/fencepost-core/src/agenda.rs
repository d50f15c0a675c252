//! The scheduler of `up`: when this machine starts which job.
//!
//! The agenda only triggers. It starts `run JOB` at a slot's time, and the run plans and claims inside its lease, so
//! any number of machines may follow the same schedules. The agenda is told the time and what happened, and returns
//! what to do. It performs no I/O.
//!
//! Any other start (at start-up, after a sleep or a clock step, when the store is back, or after another machine's run)
//! is preceded by a *look*: the record is read, and a run is started only if something is due. However many slots have
//! passed, one run is started; the plan decides which of them are caught up.

mod look;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

pub use look::{LookResult, look};

use crate::lease::Now;
use crate::name::Name;
use crate::plan::AHEAD_MAX;
use crate::schedule::Schedule;
use crate::time::{Boot, Wall, millis};

/// The longest time between two steps. A sleep is noticed at most this long after it ends.
pub const STEP_WITHIN: Duration = Duration::from_secs(2);

/// A longer gap between two steps means that the machine slept or this process was stopped.
const SLEPT: Duration = Duration::from_secs(10);

/// A larger difference between the two clocks means that the wall clock was set, not slewed.
const STEPPED: Duration = Duration::from_secs(1);

/// The most looks at once. They run one after the other; more would delay a probe of the store.
const LOOKS_MAX: usize = 16;

/// The backoff after the store was unavailable: first value and maximum.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Added to a look that is due by the store's clock, against rounding.
const AFTER_DUE: Duration = Duration::from_millis(50);

/// How long to wait before a job that could not be started is tried again.
const START_AGAIN: Duration = Duration::from_secs(5);

/// The properties of a job that decide when it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub name: Name,
    pub schedule: Schedule,
    /// How long another machine's run is left alone before the next look.
    pub ttl: Duration,
    /// A start at most this late counts as on time.
    pub slack: Duration,
    /// The job runs even if the store is unavailable.
    pub runs_without_store: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most runs at once.
    pub max_parallel: usize,
    /// The time over which jobs of the same instant are spread.
    pub spread: Duration,
}

/// Identifies one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartId(pub u64);

/// What the agenda is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgendaInput {
    /// Only time has passed.
    Tick,
    /// A look returned. `next_in`: the time until the next slot, by the clock that judges slots.
    Looked { job: Name, look: Look, next_in: Option<Duration> },
    /// A run has ended, or could not be started.
    Ended { id: StartId, end: End },
    /// A new configuration.
    Reload { tasks: Vec<Task>, limits: Limits },
    /// Start nothing more.
    Stop,
}

/// The result of a look at a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// This slot would run.
    Due(Wall),
    /// Nothing is due.
    Nothing,
    /// The slot has failed, and its attempts are used up.
    Failed { exit_code: i32 },
    /// Another run holds the job, for at least this long.
    Busy { remaining: Duration },
    /// The store is unavailable.
    Away(String),
}

/// How a run ended, as far as the agenda needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran.
    Done,
    /// It ran without a lease, because the store did not answer.
    WithoutLease,
    /// Nothing was due by the clock that judges slots, or the due slot is done.
    NotDue,
    /// Another run holds the job.
    Elsewhere,
    /// It ended without a report.
    Died,
    NotStarted,
    /// The store is unavailable.
    Away(String),
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgendaAction {
    Look(Name),
    Start { job: Name, id: StartId },
    Tell(Told),
}

/// Something to report to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The machine slept this long.
    Slept(Duration),
    /// The wall clock was set by this many milliseconds.
    Stepped(i64),
    StoreAway {
        error: String,
    },
    StoreBack {
        away_for: Duration,
    },
    /// The job waits because `max_parallel` runs are going.
    Queued(Name),
}

/// The schedules of this machine.
#[derive(Debug)]
pub struct Agenda {
    entries: BTreeMap<Name, AgendaEntry>,
    limits: Limits,
    queue: VecDeque<Name>,
    running: BTreeMap<StartId, Name>,
    /// The time of the last step.
    last: Option<Now>,
    away: Option<Away>,
    looks: usize,
    starts: u64,
    once: bool,
    stopping: bool,
    out: Vec<AgendaAction>,
}

#[derive(Debug)]
struct AgendaEntry {
    task: Task,
    /// Every slot up to here was triggered or looked at.
    considered: Wall,
    /// The next slot, and when its run is started.
    next: Option<(Wall, Wall)>,
    /// A look is wanted.
    wants_look: bool,
    is_looked_at: bool,
    look_at: Option<Boot>,
    /// Another clock than this host's judges slots, so every run is followed by a look.
    follows_looks: bool,
    is_queued: bool,
    /// The newest slot that a run was started for.
    started: Option<Wall>,
    /// The newest slot of a run that has ended. That run tried every due slot up to it, so a look does not start it
    /// again: a halted slot would otherwise be tried without a pause.
    tried: Option<Wall>,
}

#[derive(Debug)]
struct Away {
    since: Boot,
    retry_at: Boot,
    backoff: Duration,
    /// The job whose record is read to see whether the store is available again.
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

    /// An agenda that starts each due job once and then ends.
    pub fn once(tasks: Vec<Task>, limits: Limits, now: Now) -> Self {
        let mut agenda = Self::new(tasks, limits, now);
        agenda.once = true;
        agenda.entries.values_mut().for_each(|entry| entry.next = None);
        agenda
    }

    /// Handles one input and returns what to do.
    pub fn step(&mut self, now: Now, input: AgendaInput) -> Vec<AgendaAction> {
        self.keep_time(now);
        match input {
            AgendaInput::Tick => {}
            AgendaInput::Looked { job, look, next_in } => self.looked(&job, look, next_in, now),
            AgendaInput::Ended { id, end } => self.ended(id, end, now),
            AgendaInput::Reload { tasks, limits } => self.load(tasks, limits, now),
            AgendaInput::Stop => self.stop(),
        }
        if !self.stopping {
            self.trigger(now);
            self.look(now);
            self.start();
        }
        core::mem::take(&mut self.out)
    }

    /// When to step next at the latest, if anything is planned.
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

    /// Whether no run and no look is in progress.
    pub fn is_idle(&self) -> bool {
        let waits = |entry: &AgendaEntry| entry.wants_look || entry.is_looked_at;
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

    /// The next due job and its slot.
    pub fn next(&self) -> Option<(&Name, Wall)> {
        let next = self.entries.values().filter_map(|entry| Some((entry.next?.1, entry)));
        next.min_by_key(|(start, _)| *start).and_then(|(_, entry)| Some((&entry.task.name, entry.next?.0)))
    }

    /// Detects sleeps and clock steps. Both are followed by looks before anything is started.
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

    /// Starts due jobs at their time.
    fn trigger(&mut self, now: Now) {
        let due: Vec<Name> = self
            .entries
            .values_mut()
            .filter(|entry| entry.next.is_some_and(|(_, start)| start <= now.wall))
            .map(|entry| {
                let newest = entry.task.schedule.at_or_before(now.wall);
                let slot = entry.next.map(|(slot, _)| slot);
                entry.considered = entry.considered.max(slot.max(newest).unwrap_or(now.wall));
                // If another clock judges slots, only a look knows which slot is due.
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

    /// Queues a job once: its run finds every due slot.
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
            self.out.push(AgendaAction::Start { job, id });
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
        self.out.push(AgendaAction::Look(name.clone()));
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
        // The slot may come earlier by the clock that judges slots. Then the look comes earlier too.
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

    /// Replaces the configuration. Unchanged jobs keep their state.
    fn load(&mut self, tasks: Vec<Task>, limits: Limits, now: Now) {
        let mut before = core::mem::take(&mut self.entries);
        self.limits = limits;
        for task in tasks {
            let mut entry = match before.remove(&task.name) {
                Some(entry) if entry.task.schedule.fingerprint() == task.schedule.fingerprint() => {
                    AgendaEntry { task, ..entry }
                }
                other => AgendaEntry {
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
        self.out.push(AgendaAction::Tell(told));
    }
}

impl AgendaEntry {
    /// Handles a sleep or a clock step: each job whose slot passed gets one look, and nothing is started without it. A
    /// clock that was set back makes no slot due again, unless it had been far ahead. The clock that judges slots may
    /// be another than the one that was set.
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

    /// The delay of a job's start after its slot, constant per job. It stays within the slack and well within the
    /// period.
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
