//! A day of several machines on one store, simulated by a virtual clock: the clocks change, machines sleep for nine hours,
//! crash and have their clocks set, and the store goes away. The agendas, the plan and the claims are the shipped code.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fencepost_core::agenda::{Agenda, AgendaAction, AgendaInput, End, Limits, Look, StartId, Task, look};
use fencepost_core::history::Aside;
use fencepost_core::lease::{Claim, Context, Facts, Honest, Intent, Me, Now, Refusal, Rules, Ruling, Sighting};
use fencepost_core::ledger::{EndedBy, Ending, Outcome, Status, Trigger};
use fencepost_core::name::{Job, Name};
use fencepost_core::plan::CatchUpTerms;
use fencepost_core::record::{Holder, Process, Processes, Record};
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::{Asked, Choice, NotNow, OnLost, Scheduled};
use fencepost_core::time::{Boot, Era, Reference, StoreClock, Wall};
use fencepost_core::token::{Nonce, RunId, StoreId, Token};
use fencepost_core::zone::Zone;
use uuid::Uuid;

const SEEDS: u64 = 1_000;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// What is disturbed ends here, and the rest of the time everything is well.
const DAY: u64 = 26 * HOUR;
const CALM: u64 = 3 * HOUR;

const TTL: u64 = 5 * MINUTE;

/// Days on which the clocks change, or do not.
const DAYS: [(&str, &str); 5] = [
    ("America/New_York", "2026-03-07T23:00:00"),
    ("America/New_York", "2026-10-31T23:00:00"),
    ("Europe/London", "2026-03-28T23:00:00"),
    ("Australia/Lord_Howe", "2026-10-03T23:00:00"),
    ("Asia/Tokyo", "2026-11-15T23:00:00"),
];

/// A job each: when it is due, how much is caught up, and how long it runs at most, in seconds.
const JOBS: [(&str, &str, u32, u64); 4] = [
    ("nightly", "30 2 * * *", 1, 600),
    ("hourly", "0 * * * *", 3, 5_000),
    ("half-hourly", "*/30 * * * *", 1, 120),
    ("office", "15 8-17 * * *", 0, 60),
];

#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The store: one record per job, and everything that was ever written down.
struct Shop {
    records: BTreeMap<Name, Record>,
    outcomes: BTreeMap<Name, Vec<Outcome>>,
    seen: BTreeSet<(Name, RunId, Wall, &'static str)>,
    has_clock: bool,
    away: (u64, u64),
}

struct Machine {
    agenda: Option<Agenda>,
    /// What its wall clock is wrong by.
    skew: i64,
    sightings: BTreeMap<Name, Sighting>,
    runs: Vec<Run>,
    /// Looks and starts that are under way: when they are done.
    looks: Vec<(u64, Name)>,
    stepped: u64,
    asleep_until: u64,
    down_until: u64,
}

struct Run {
    job: Name,
    id: StartId,
    run: RunId,
    at: u64,
    /// How many slots may follow, and whether one has.
    more: u32,
    goes_on: bool,
    holds: Option<Held>,
}

struct Held {
    token: Token,
    deadline: u64,
    ends: u64,
    status: Status,
}

struct World {
    seed: u64,
    random: Random,
    t: u64,
    begin: i64,
    tasks: Vec<(Task, Scheduled, u64)>,
    shop: Shop,
    machines: Vec<Machine>,
    faults: Vec<(u64, usize, Fault)>,
    runs: u128,
    /// What the agendas started, by machine and job.
    starts: BTreeMap<(u64, Name), Vec<u64>>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Sleep(u64),
    Crash(u64),
    Step(i64),
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let (zone, begin) = DAYS[(seed % DAYS.len() as u64) as usize];
        let zone = Zone::parse(zone).unwrap();
        let begin = zone.parse_time(begin).unwrap().0;
        // Of the two that come often, one a seed.
        let left_out = 1 + (seed % 2) as usize;
        let jobs = JOBS.iter().enumerate().filter(|(number, _)| *number != left_out).map(|(_, job)| job);
        let tasks = jobs.map(|(name, text, catch_up, longest)| {
            let schedule = Schedule::parse(text, &zone).unwrap();
            let terms = CatchUpTerms { catch_up: *catch_up, ..CatchUpTerms::default() };
            let task = Task {
                name: Name::new(name).unwrap(),
                schedule: schedule.clone(),
                ttl: Duration::from_millis(TTL),
                slack: terms.slack,
                runs_without_store: false,
            };
            (task, Scheduled { schedule, terms, asked: Asked::Due, on_lost: OnLost::Rerun, retries: 0 }, *longest)
        });
        let count = 1 + random.below(3);
        let has_clock = random.chance(50);
        let mut faults = Vec::new();
        // One machine sleeps for nine hours, and sometimes all of them do.
        let asleep = random.below(DAY - 9 * HOUR);
        for machine in 0..count as usize {
            if machine == 0 || random.chance(40) {
                faults.push((asleep + random.below(MINUTE), machine, Fault::Sleep(9 * HOUR)));
            }
            for _ in 0..random.below(4) {
                let at = random.below(DAY);
                let fault = match random.below(3) {
                    0 => Fault::Sleep(random.below(40 * MINUTE)),
                    1 => Fault::Crash(random.below(40 * MINUTE)),
                    // Without a clock of the store's, a clock that is wrong by more than an hour is beyond help.
                    _ if has_clock => Fault::Step(random.below(6 * HOUR) as i64 - 3 * HOUR as i64),
                    _ => Fault::Step(random.below(50 * MINUTE) as i64 - 25 * MINUTE as i64),
                };
                faults.push((at, machine, fault));
            }
        }
        faults.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        let away = random.below(DAY);
        let away = if random.chance(50) { (away, away + random.below(30 * MINUTE)) } else { (0, 0) };
        let machine = |number: u64| Machine {
            agenda: None,
            skew: 0,
            sightings: BTreeMap::new(),
            runs: Vec::new(),
            looks: Vec::new(),
            stepped: 0,
            asleep_until: 0,
            down_until: number * 700,
        };
        Self {
            seed,
            random,
            t: 0,
            begin,
            tasks: tasks.collect(),
            shop: Shop { records: BTreeMap::new(), outcomes: BTreeMap::new(), seen: BTreeSet::new(), has_clock, away },
            machines: (0..count).map(machine).collect(),
            faults,
            runs: 0,
            starts: BTreeMap::new(),
        }
    }

    fn now(&self, machine: usize) -> Now {
        let wall = Wall(self.begin + self.t as i64 + self.machines[machine].skew);
        Now { boot: Boot(1_000_000 * (machine as u64 + 1) + self.t), wall }
    }

    fn live(&mut self) {
        while self.t < DAY + CALM {
            let next = (0..self.machines.len()).map(|machine| self.next_of(machine)).min().unwrap();
            let fault = self.faults.last().map(|(at, ..)| *at).unwrap_or(u64::MAX);
            self.t = self.t.max(next.min(fault));
            if fault <= self.t {
                let (_, machine, fault) = self.faults.pop().unwrap();
                self.disturb(machine, fault);
            }
            for machine in 0..self.machines.len() {
                if self.next_of(machine) <= self.t {
                    self.go_on(machine);
                }
            }
        }
    }

    /// When the machine does something next.
    fn next_of(&self, number: usize) -> u64 {
        let machine = &self.machines[number];
        let held_up = machine.asleep_until.max(machine.down_until);
        let Some(agenda) = &machine.agenda else { return held_up };
        let now = self.now(number);
        let woken = agenda.wake_at(now).map_or(u64::MAX, |at| self.t + at.since(now.boot).as_millis() as u64);
        let runs = machine.runs.iter().map(Run::next).chain(machine.looks.iter().map(|(at, _)| *at));
        let next = runs.chain([woken, machine.stepped + 9 * SECOND]).min().unwrap();
        next.max(held_up)
    }

    fn disturb(&mut self, number: usize, fault: Fault) {
        let machine = &mut self.machines[number];
        match fault {
            Fault::Sleep(length) => machine.asleep_until = machine.asleep_until.max((self.t + length).min(DAY)),
            Fault::Crash(length) => {
                machine.agenda = None;
                machine.runs.clear();
                machine.looks.clear();
                machine.down_until = machine.down_until.max((self.t + length).min(DAY));
            }
            Fault::Step(by) => {
                let mend = machine.skew != 0;
                machine.skew = if mend { 0 } else { by };
            }
        }
    }

    fn go_on(&mut self, number: usize) {
        let now = self.now(number);
        if self.machines[number].agenda.is_none() {
            let tasks = self.tasks.iter().map(|(task, ..)| task.clone()).collect();
            let limits = Limits { max_parallel: 2, spread: Duration::from_secs(self.seed % 40) };
            self.machines[number].agenda = Some(Agenda::new(tasks, limits, now));
        }
        self.step(number, AgendaInput::Tick);
        let (due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.machines[number].looks).into_iter().partition(|(at, _)| *at <= self.t);
        self.machines[number].looks = rest;
        for (_, job) in due {
            let (look, next_in) = self.look(number, &job);
            self.step(number, AgendaInput::Looked { job, look, next_in });
        }
        let mut at = 0;
        while at < self.machines[number].runs.len() {
            if self.machines[number].runs[at].next() > self.t {
                at += 1;
                continue;
            }
            match self.run(number, at) {
                None => at += 1,
                Some(end) => {
                    let run = self.machines[number].runs.remove(at);
                    self.step(number, AgendaInput::Ended { id: run.id, end });
                }
            }
        }
    }

    fn step(&mut self, number: usize, input: AgendaInput) {
        let now = self.now(number);
        let t = self.t;
        let machine = &mut self.machines[number];
        machine.stepped = t;
        let outputs = machine.agenda.as_mut().unwrap().step(now, input);
        for output in outputs {
            match output {
                AgendaAction::Look(job) => {
                    let at = t + self.random.below(200);
                    self.machines[number].looks.push((at, job));
                }
                AgendaAction::Start { job, id } => {
                    self.runs += 1;
                    let run = RunId(Uuid::from_u128(self.runs));
                    let at = t + 10 + self.random.below(300);
                    self.starts.entry((number as u64, job.clone())).or_default().push(t);
                    let (_, scheduled, _) = self.tasks.iter().find(|(task, ..)| task.name == job).unwrap();
                    let more = scheduled.terms.catch_up.saturating_sub(1);
                    self.machines[number].runs.push(Run { job, id, run, at, more, goes_on: false, holds: None });
                    assert!(self.machines[number].runs.len() <= 2, "seed {}: more run than may", self.seed);
                }
                AgendaAction::Tell(_) => {}
            }
        }
    }

    fn is_away(&self) -> bool {
        (self.shop.away.0..self.shop.away.1).contains(&self.t)
    }

    fn claim(&self, number: usize, job: &Name, run: RunId) -> Claim {
        let (_, scheduled, _) = self.tasks.iter().find(|(task, ..)| task.name == *job).unwrap();
        let process = Process { pid: 1 + run.0.as_u128() as i32, started: 1 };
        let processes = Processes {
            machine: number.to_string(),
            boot: "boot".to_string(),
            pid_namespace: "pid:[1]".to_string(),
            wrapper: process,
            keeper: None,
            time_namespace: Default::default(),
            unknown: Default::default(),
        };
        Claim {
            run,
            ttl: Duration::from_millis(TTL),
            holder: Holder {
                host: number.to_string(),
                processes: Some(processes),
                by_hand: false,
                inside: Vec::new(),
                unknown: Default::default(),
            },
            zone: scheduled.schedule.zone().name().to_string(),
            slot: Choice::Due(Box::new(scheduled.clone())),
            trigger: Trigger::Schedule,
        }
    }

    /// Decides as the machine would, and writes what comes of it in the same instant.
    fn transact<T>(
        &mut self,
        number: usize,
        job: &Name,
        decide: impl FnOnce(Option<&Record>, &Context<'_>) -> (Option<Box<Record>>, T),
    ) -> T {
        let now = self.now(number);
        let record = self.shop.records.get(job).cloned();
        let lease = record.as_ref().and_then(|record| record.lease.as_ref());
        let machine = &mut self.machines[number];
        let is_dead = lease.is_some_and(|lease| {
            lease.holder.host == number.to_string() && !machine.runs.iter().any(|run| run.run == lease.run)
        });
        let before = machine.sightings.get(job).copied();
        let sighting = record.as_ref().and_then(|record| Honest::sight(before, record, now.boot));
        match sighting {
            Some(sighting) => machine.sightings.insert(job.clone(), sighting),
            None => machine.sightings.remove(job),
        };
        let facts = Facts { holder_is_dead: is_dead, high_water: None, sighting, is_first_sight: false };
        let clock = StoreClock { wall: Wall(self.begin + self.t as i64), era: Era("one".to_string()), tick: self.t };
        let reference = self.shop.has_clock.then_some(Reference { clock, asked: now.boot });
        self.runs += 1;
        let nonce = Nonce { by: RunId(Uuid::from_u128(self.runs)), write: 0 };
        let whole = Job::shared(job.clone());
        let store = Some(StoreId(Uuid::from_u128(7)));
        let context = Context {
            job: &whole,
            now,
            nonce,
            reference: reference.as_ref(),
            date: None,
            facts: &facts,
            store,
            aside: Aside::default(),
        };
        let (written, result) = decide(record.as_ref(), &context);
        if let Some(record) = written {
            for outcome in &record.ledger.ring {
                if self.shop.seen.insert((job.clone(), outcome.run, outcome.slot, outcome.status.as_str())) {
                    self.shop.outcomes.entry(job.clone()).or_default().push(outcome.clone());
                }
            }
            self.shop.records.insert(job.clone(), *record);
        }
        result
    }

    fn intent(&mut self, number: usize, job: &Name, intent: &Intent) -> Result<Option<Record>, Refusal> {
        self.transact(number, job, |record, context| match intent.decide::<Honest>(record, context) {
            Ok(Ruling::Write { record, .. }) => (Some(record.clone()), Ok(Some(*record))),
            Ok(Ruling::AlreadyDone) => (None, Ok(record.cloned())),
            Err(refusal) => (None, Err(refusal)),
        })
    }

    fn look(&mut self, number: usize, job: &Name) -> (Look, Option<Duration>) {
        if self.is_away() {
            return (Look::Away("away".to_string()), None);
        }
        self.runs += 1;
        let claim = self.claim(number, job, RunId(Uuid::from_u128(self.runs)));
        let seen = self.transact(number, job, |record, context| (None, look::<Honest>(&claim, record, context)));
        if seen.accounts {
            let _ = self.intent(number, job, &Intent::Account(claim));
        }
        (seen.look, seen.next_in)
    }

    /// Brings a run a step further, and says how it ended if it has.
    fn run(&mut self, number: usize, at: usize) -> Option<End> {
        match self.machines[number].runs[at].holds {
            None if self.is_away() => Some(End::Away("away".to_string())),
            None => self.try_to_claim(number, at),
            Some(_) => self.hold(number, at),
        }
    }

    /// A run without a lease claims one, or ends.
    fn try_to_claim(&mut self, number: usize, at: usize) -> Option<End> {
        let run = &self.machines[number].runs[at];
        let (job, id) = (run.job.clone(), run.run);
        let claim = self.claim(number, &job, id);
        let clock = if self.shop.has_clock { Wall(self.begin + self.t as i64) } else { self.now(number).wall };
        match self.intent(number, &job, &Intent::Claim(claim)) {
            Ok(record) => {
                let record = record.unwrap();
                self.check_claim(&job, &record, clock);
                let longest = self.tasks.iter().find(|(task, ..)| task.name == job).unwrap().2;
                let length = self.random.below(longest * SECOND);
                let status = if self.random.chance(90) { Status::Ok } else { Status::Error };
                let (deadline, ends) = (self.t + TTL * 19 / 20, self.t + length);
                let held = Held { token: record.token, deadline, ends, status };
                self.machines[number].runs[at].holds = Some(held);
                self.machines[number].runs[at].at = (self.t + length).min(self.t + TTL / 3);
                None
            }
            Err(Refusal::Held { .. }) => Some(End::Elsewhere),
            // The trigger came early, and waits for its slot.
            Err(Refusal::NotNow { why: NotNow::Early { wait, .. }, .. }) => {
                self.machines[number].runs[at].at = self.t + wait.as_millis() as u64;
                None
            }
            Err(Refusal::NotNow { why, account }) => {
                if account {
                    let claim = self.claim(number, &job, id);
                    let _ = self.intent(number, &job, &Intent::Account(claim));
                }
                Some(match why {
                    _ if self.machines[number].runs[at].goes_on => End::Done,
                    NotNow::Duplicate { state: Status::Running, .. } => End::Elsewhere,
                    _ => End::NotDue,
                })
            }
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
    }

    /// A run with a lease completes, renews, or loses it.
    fn hold(&mut self, number: usize, at: usize) -> Option<End> {
        let run = &self.machines[number].runs[at];
        let (job, id) = (run.job.clone(), run.run);
        let held = run.holds.as_ref().expect("a run that holds");
        let me = Me { token: held.token, run: Some(id) };
        let (is_late, is_over) = (self.t >= held.deadline, self.t >= held.ends);
        let status = held.status;
        if self.is_away() {
            // Tried again until the deadline; then the job is ended, and nothing is recorded.
            self.machines[number].runs[at].at = self.t + 5 * SECOND;
            return is_late.then_some(End::Done);
        }
        if is_over && !is_late {
            let code = if status == Status::Ok { 0 } else { 1 };
            let ending = Ending { exit_code: Some(code), ..Ending::new(status, EndedBy::Child) };
            let _ = self.intent(number, &job, &Intent::Complete { me, ending, escaped: false });
            self.runs += 1;
            let next = RunId(Uuid::from_u128(self.runs));
            let run = &mut self.machines[number].runs[at];
            if run.more == 0 {
                return Some(End::Done);
            }
            // What else is caught up is run by the same process, one after the other.
            *run = Run { job, id: run.id, run: next, at: self.t + 50, more: run.more - 1, goes_on: true, holds: None };
            return None;
        }
        // After a sleep one swap says whose the lease is.
        match self.intent(number, &job, &Intent::Renew(me)) {
            Err(_) => Some(End::Done),
            Ok(_) => {
                let t = self.t;
                let held = self.machines[number].runs[at].holds.as_mut().unwrap();
                held.deadline = t + TTL * 19 / 20;
                let ends = held.ends.max(t);
                self.machines[number].runs[at].at = ends.min(t + TTL / 3);
                None
            }
        }
    }

    /// Catch-up is bounded: nothing runs but the newest slots, as many as were asked for.
    fn check_claim(&self, job: &Name, record: &Record, now: Wall) {
        let lease = record.lease.as_ref().unwrap();
        let (_, scheduled, _) = self.tasks.iter().find(|(task, ..)| task.name == *job).unwrap();
        let newer = scheduled.schedule.count(Wall(lease.slot.0 - 1), now);
        let most = u64::from(scheduled.terms.catch_up.max(1));
        let seed = self.seed;
        assert!(newer <= most, "seed {seed}: {job} ran {:?}, {newer} slots ago", lease.slot);
        if scheduled.terms.catch_up == 0 {
            assert!(now.since(lease.slot) <= scheduled.terms.slack, "seed {seed}: {job} ran {:?} late", lease.slot);
        }
    }

    fn check(&self) {
        let seed = self.seed;
        let horizon = Wall(self.begin + (DAY + CALM - 2 * HOUR) as i64);
        for (task, ..) in &self.tasks {
            let outcomes = self.shop.outcomes.get(&task.name).map_or(&[][..], Vec::as_slice);
            let mut completed = BTreeSet::new();
            for outcome in outcomes.iter().filter(|outcome| outcome.status == Status::Ok) {
                assert!(
                    completed.insert(outcome.slot),
                    "seed {seed}: {} {:?} was completed twice",
                    task.name,
                    outcome.slot
                );
                assert_eq!(task.schedule.at_or_before(outcome.slot), Some(outcome.slot), "seed {seed}: it is no slot");
            }
            let going = self.shop.records[&task.name].lease.as_ref().map(|lease| lease.slot.min(lease.since));
            let seen = self.shop.records[&task.name].timing.as_ref().unwrap().since;
            let seen = seen.max(Wall(self.begin + MINUTE as i64));
            for slot in task.schedule.forward(seen).take_while(|slot| *slot <= horizon) {
                // A run that is still going stands for its slot and for those that it overlaps.
                if going.is_some_and(|going| slot >= going) {
                    continue;
                }
                let is_accounted_for = outcomes.iter().any(|outcome| {
                    let is_own = outcome.slot == slot;
                    let is_covered = outcome.covers.is_some_and(|covers| (covers.from..=covers.to).contains(&slot));
                    let is_overlapped = outcome.status.is_of_a_run()
                        && (outcome.started..=outcome.finished).contains(&slot)
                        && slot > outcome.slot;
                    is_own || is_covered || is_overlapped
                });
                let zone = task.schedule.zone();
                assert!(is_accounted_for, "seed {seed}: {} {} is not accounted for", task.name, zone.show(slot));
            }
        }
        // No burst: a machine that wakes starts a job once for all that it slept through.
        for ((machine, job), starts) in &self.starts {
            for pair in starts.windows(4) {
                let within = pair[3] - pair[0];
                assert!(within > 10 * SECOND, "seed {seed}: machine {machine} started {job} four times in {within} ms");
            }
        }
    }
}

impl Run {
    fn next(&self) -> u64 {
        self.at
    }
}

#[test]
fn a_day_with_sleeps_crashes_and_wrong_clocks_keeps_the_promises() {
    let mut completed = 0;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4) as u64;
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                scope.spawn(move || {
                    let mut completed = 0;
                    for seed in (0..SEEDS).filter(|seed| seed % threads == part) {
                        let mut world = World::new(seed);
                        world.live();
                        world.check();
                        completed += world.shop.outcomes.values().flatten().filter(|o| o.status == Status::Ok).count();
                    }
                    completed
                })
            })
            .collect();
        for part in parts {
            completed += part.join().unwrap();
        }
    });
    assert!(completed > 25 * SEEDS as usize, "{completed} runs is not much of a day");
}
