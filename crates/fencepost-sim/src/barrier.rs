//! A third world, of one job that asks its upstream: everything that can have become of the upstream, and every way to
//! ask, around a midnight.
//!
//! Nothing moves here, so that it is enumerated instead of explored: every scene within the bounds is judged by the
//! shipped rules, and by the promise written down once more in minutes.

pub mod mutants;
mod promise;

use std::fmt;
use std::time::Duration;

use fencepost_core::artifact::{Artifact, Fingerprint};
use fencepost_core::barrier::{
    Asker, BarrierRules, Decision, Here, Need, OnEmpty, StrictBarrier, Upstream, When, judge, together, verify, wanted,
};
use fencepost_core::ledger::{Covered, EndedBy, Ledger, Outcome, Status, Trigger};
use fencepost_core::name::{Job, Name};
use fencepost_core::record::{FORMAT, Holder, Lease, Process, Processes, Record};
use fencepost_core::time::Wall;
use fencepost_core::token::{Nonce, RunId, StoreId, Token};
use fencepost_core::zone::Zone;

use crate::model::{Counterexample, Model, ModelReport};

/// Minutes since the midnight that the first of the two days begins with.
pub type Minute = i64;

pub const DAY: Minute = 24 * 60;

/// The upstream's slots: one in the day, one before midnight and one after it.
pub const SLOTS: [Minute; 3] = [12 * 60, DAY - 15, DAY + 15];

/// Who asks: before the last slot of the day, at it, right at midnight, and after the first slot of the next day.
pub const ASKERS: [Minute; 4] = [DAY - 30, DAY - 15, DAY, DAY + 30];

/// How late it asks. The longer one crosses midnight.
pub const LATE: [Minute; 2] = [0, 60];

/// What `@within` allows.
pub const WITHIN: Minute = 40;

/// Each with its first midnight: one east and one west of Greenwich, so that the days of UTC are others.
const ZONES: [(&str, &str); 2] = [("Asia/Tokyo", "2026-06-10"), ("America/New_York", "2026-06-10")];

const PATH: &str = "data";

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastEnding {
    /// With these bytes of the artifact.
    Ok(Bytes),
    /// Without a word of any artifact.
    OkBare,
    Empty,
    Error,
    /// No run was started for it, and it is too late. Always recorded as a range.
    Missed,
}

/// One outcome in the ledger, for the slots of these numbers: a run for the last of them that stands for the others too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    pub first: usize,
    pub last: usize,
    pub ended: PastEnding,
}

impl Past {
    /// Whether a run was made for this very slot.
    pub fn is_own(self, slot: usize) -> bool {
        self.last == slot && self.ended != PastEnding::Missed
    }

    /// Whether it is a range of slots: several, or missed ones.
    pub fn is_range(self) -> bool {
        self.first < self.last || self.ended == PastEnding::Missed
    }
}

/// Two contents of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    A,
    B,
}

const ENDINGS: [PastEnding; 5] =
    [PastEnding::Ok(Bytes::A), PastEnding::Ok(Bytes::B), PastEnding::OkBare, PastEnding::Empty, PastEnding::Error];

/// A run whose outcome is not recorded yet, for the slots of these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRun {
    pub first: usize,
    pub last: usize,
    pub going: Going,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    Running,
    Lost,
}

/// Which rule is asked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    LastDue,
    /// The upstream's schedule is known: its slots are [`SLOTS`].
    LastDueOfSchedule,
    SameDay,
    SameSlot,
    Within,
    Any,
}

const RULES: [Rule; 6] =
    [Rule::LastDue, Rule::LastDueOfSchedule, Rule::SameDay, Rule::SameSlot, Rule::Within, Rule::Any];

/// What lies here in the artifact's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactHere {
    /// No artifact is named.
    Unnamed,
    Bytes(Bytes),
    Missing,
    Unreadable,
}

const FOUND: [ArtifactHere; 5] = [
    ArtifactHere::Unnamed,
    ArtifactHere::Bytes(Bytes::A),
    ArtifactHere::Bytes(Bytes::B),
    ArtifactHere::Missing,
    ArtifactHere::Unreadable,
];

/// One question, and everything it may rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    pub zone: &'static str,
    /// In the order in which they were recorded.
    pub attempts: Vec<Past>,
    pub going: Option<OpenRun>,
    pub asker: Minute,
    pub late: Minute,
    pub rule: Rule,
    pub proceed_on_empty: bool,
    pub found: ArtifactHere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierViolation {
    /// It works on what it must not work on: P4.
    Proceeded,
    /// It keeps still where a person has to look.
    Hushed,
    /// It halts where there is no reason to.
    Halted,
}

impl fmt::Display for BarrierViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proceeded => "the job works on what is not the right slot's record",
            Self::Hushed => "the job keeps still where it must halt",
            Self::Halted => "the job halts for no reason",
        })
    }
}

/// What was judged, and the first scene or set of decisions that was judged wrongly: a path of one step.
pub type Judged = ModelReport<String, BarrierViolation>;

/// One set of rules, by which every scene is judged.
#[derive(Clone, Copy, Debug)]
pub struct RuleSet {
    name: &'static str,
    judge_all: fn(Option<BarrierViolation>) -> Judged,
}

impl RuleSet {
    pub const fn of<R: BarrierRules>() -> Self {
        Self { name: "upstreams", judge_all: judge_all::<R> }
    }
}

pub const SETTINGS: [RuleSet; 1] = [RuleSet::of::<StrictBarrier>()];

/// The model of the barrier.
#[derive(Clone, Copy, Debug)]
pub struct Barrier;

impl Model for Barrier {
    const TITLE: &'static str = "barrier";
    type Setting = RuleSet;
    type Step = String;
    type Violation = BarrierViolation;

    fn name(setting: &RuleSet) -> &'static str {
        setting.name
    }

    fn explore(setting: &RuleSet, sought: Option<BarrierViolation>) -> Judged {
        (setting.judge_all)(sought)
    }

    fn narrate(_setting: &RuleSet, path: &[String]) -> String {
        path.iter().map(|scene| format!("{scene}\n")).collect()
    }
}

/// Judges everything within the bounds, or up to the first violation: of the one that is sought, or of any.
fn judge_all<R: BarrierRules>(sought: Option<BarrierViolation>) -> Judged {
    let mut report = ModelReport { states: 0, depth: 1, found: None };
    let mut see = |decided: Decision, right: Decision, what: &dyn Fn() -> String| {
        report.states += 1;
        let violation = match (decided, right) {
            (Decision::Proceed, Decision::Skip | Decision::Halt) => Some(BarrierViolation::Proceeded),
            (Decision::Skip, Decision::Halt) => Some(BarrierViolation::Hushed),
            (Decision::Skip | Decision::Halt, _) if decided != right => Some(BarrierViolation::Halted),
            _ => None,
        };
        let is_sought = |violation: &BarrierViolation| sought.is_none_or(|sought| sought == *violation);
        report.found = violation.filter(is_sought).map(|violation| Counterexample { violation, path: vec![what()] });
        report.found.is_none()
    };
    let alone = scenes(&mut |scene, world| {
        let decided = scene.decide::<R>(world);
        see(decided, promise::of(scene), &|| format!("{scene:?}: {decided:?}"))
    });
    if alone {
        several(&mut |decisions| {
            let decided = R::together(decisions);
            see(decided, promise::of_several(decisions), &|| format!("{decisions:?}: {decided:?}"))
        });
    }
    report
}

/// Up to three upstreams, in every combination of their decisions.
fn several(see: &mut dyn FnMut(&[Decision]) -> bool) {
    const ALL: [Decision; 3] = [Decision::Proceed, Decision::Skip, Decision::Halt];
    let longer = |lists: &[Vec<Decision>]| -> Vec<Vec<Decision>> {
        lists.iter().flat_map(|list| ALL.map(|one| [list.as_slice(), &[one]].concat())).collect()
    };
    let mut lists = vec![Vec::new()];
    for _ in 0..3 {
        lists = longer(&lists);
        if !lists.iter().all(|list| see(list)) {
            return;
        }
    }
}

/// What stands in the store for an upstream, made once for all who ask.
struct BarrierWorld {
    zone: Zone,
    midnight: Wall,
    upstream: Upstream,
}

/// Every scene, until `see` has seen enough. Says whether it saw all.
fn scenes(see: &mut dyn FnMut(&Scene, &BarrierWorld) -> bool) -> bool {
    for (zone, first_day) in ZONES {
        let rules = Zone::parse(zone).expect("a zone");
        let midnight = rules.parse_time(first_day).expect("a day");
        for attempts in histories() {
            for going in goings() {
                let upstream = upstream(&attempts, going, zone, midnight);
                let world = BarrierWorld { zone: rules.clone(), midnight, upstream };
                if !asked(zone, &attempts, going, &mut |scene| see(scene, &world)) {
                    return false;
                }
            }
        }
    }
    true
}

/// Every way to ask about one upstream.
fn asked(zone: &'static str, attempts: &[Past], going: Option<OpenRun>, see: &mut dyn FnMut(&Scene) -> bool) -> bool {
    for (asker, late, rule) in ASKERS
        .iter()
        .flat_map(|&asker| LATE.iter().map(move |&late| (asker, late)))
        .flat_map(|(asker, late)| RULES.iter().map(move |&rule| (asker, late, rule)))
    {
        for (proceed_on_empty, found) in
            [false, true].iter().flat_map(|&on| FOUND.iter().map(move |&found| (on, found)))
        {
            let attempts = attempts.to_vec();
            let scene = Scene { zone, attempts, going, asker, late, rule, proceed_on_empty, found };
            if !see(&scene) {
                return false;
            }
        }
    }
    true
}

/// Pairs of numbers of slots, the first below the second.
const STRETCHES: [(usize, usize); 3] = [(0, 1), (0, 2), (1, 2)];

/// Up to two outcomes of any slots and ranges in any order.
fn histories() -> Vec<Vec<Past>> {
    let alone = (0..SLOTS.len()).flat_map(|slot| ENDINGS.map(|ended| Past { first: slot, last: slot, ended }));
    let missed = (0..SLOTS.len()).map(|slot| Past { first: slot, last: slot, ended: PastEnding::Missed });
    let endings = [PastEnding::Ok(Bytes::A), PastEnding::Error, PastEnding::Missed];
    let ranges = STRETCHES.iter().flat_map(|&(first, last)| endings.map(|ended| Past { first, last, ended }));
    let ones: Vec<_> = alone.chain(missed).chain(ranges).collect();
    let mut all = vec![Vec::new()];
    all.extend(ones.iter().map(|&one| vec![one]));
    all.extend(ones.iter().flat_map(|&one| ones.iter().map(move |&two| vec![one, two])));
    all
}

fn goings() -> Vec<Option<OpenRun>> {
    let alone = (0..SLOTS.len())
        .flat_map(|slot| [Going::Running, Going::Lost].map(|going| Some(OpenRun { first: slot, last: slot, going })));
    let ranges = STRETCHES.iter().map(|&(first, last)| Some(OpenRun { first, last, going: Going::Running }));
    [None].into_iter().chain(alone).chain(ranges).collect()
}

impl Scene {
    /// Whether the shell that asks knows the upstream's schedule.
    pub fn knows_schedule(&self) -> bool {
        self.rule != Rule::LastDue
    }

    /// What the rules say, as a shell asks them.
    fn decide<R: BarrierRules>(&self, world: &BarrierWorld) -> Decision {
        let at = |minute: Minute| Wall(world.midnight.0 + minute * 60_000);
        let asker = Asker { slot: at(self.asker), zone: world.zone.clone() };
        let due = |when: Wall| SLOTS.iter().map(|&slot| at(slot)).filter(|&slot| slot <= when).max();
        let when = match self.rule {
            Rule::LastDue | Rule::LastDueOfSchedule => When::LastDue,
            Rule::SameDay => When::SameDay,
            Rule::SameSlot => When::SameSlot,
            Rule::Within => When::Within(Duration::from_secs(WITHIN as u64 * 60)),
            Rule::Any => When::Any,
        };
        let calendar = self.knows_schedule().then_some(&due as &dyn Fn(Wall) -> Option<Wall>);
        let on_empty = if self.proceed_on_empty { OnEmpty::Proceed } else { OnEmpty::Skip };
        let artifacts = if self.found == ArtifactHere::Unnamed { Vec::new() } else { vec![PATH.to_string()] };
        let need = Need { job: job(), when, artifacts, on_empty };
        let wanted = wanted::<R>(when, &asker, at(self.asker + self.late), calendar);
        let mut verdict = judge::<R>(&need, wanted, &world.upstream, &asker, calendar);
        if verdict.decision == Decision::Proceed {
            match self.found {
                ArtifactHere::Unnamed => {}
                ArtifactHere::Bytes(bytes) => verify::<R>(&mut verdict, PATH, PATH, &Here::Found(artifact(bytes))),
                ArtifactHere::Missing => verify::<R>(&mut verdict, PATH, PATH, &Here::Missing),
                ArtifactHere::Unreadable => verify::<R>(&mut verdict, PATH, PATH, &Here::Unreadable(String::new())),
            }
        }
        together::<R>(&[verdict])
    }
}

fn upstream(attempts: &[Past], going: Option<OpenRun>, zone: &str, midnight: Wall) -> Upstream {
    let slot = |number: usize| Wall(midnight.0 + SLOTS[number] * 60_000);
    let mut ledger = Ledger::default();
    let range = |first, last| Covered { from: slot(first), to: slot(last), count: (last - first) as u64 + 1 };
    for (number, past) in attempts.iter().enumerate() {
        let covers = past.is_range().then(|| range(past.first, past.last));
        ledger.push(Outcome { covers, ..outcome(number as u64 + 1, slot(past.last), past.ended, zone) });
    }
    let token = attempts.len() as u64 + 1;
    let lease = going.map(|OpenRun { first, last, .. }| Lease {
        covers: (first < last).then(|| range(first, last)),
        ..lease(token, slot(last), zone)
    });
    let lease_is_over = going.is_some_and(|current| current.going == Going::Lost);
    if attempts.is_empty() && going.is_none() {
        return Upstream::default();
    }
    let record = Record {
        v: FORMAT,
        store: StoreId(run(0).0),
        job: job(),
        token: Token::new(token).expect("a token"),
        grants: token,
        nonce: Nonce { by: run(0), write: 0 },
        lease,
        ledger,
        resources: Default::default(),
        upstreams: Default::default(),
        timing: Default::default(),
        paused: Default::default(),
        forgotten: Default::default(),
        definition: None,
        params: Default::default(),
        fence: None,
        moved_to: Default::default(),
        unknown: Default::default(),
    };
    Upstream { record: Some(record), lease_is_over, history: Vec::new() }
}

fn outcome(number: u64, slot: Wall, ended: PastEnding, zone: &str) -> Outcome {
    let (status, artifacts) = match ended {
        PastEnding::Ok(bytes) => (Status::Ok, vec![artifact(bytes)]),
        PastEnding::OkBare => (Status::Ok, Vec::new()),
        PastEnding::Empty => (Status::Empty, Vec::new()),
        PastEnding::Error => (Status::Error, Vec::new()),
        PastEnding::Missed => (Status::Missed, Vec::new()),
    };
    Outcome {
        slot,
        zone: zone.to_string(),
        status,
        token: Token::new(number).expect("a token"),
        run: run(number),
        host: String::new(),
        trigger: Trigger::Schedule,
        unstarted: false,
        started: slot,
        finished: slot,
        exit_code: Some(0),
        ended_by: EndedBy::Child,
        tries: None,
        took: None,
        note: None,
        artifacts,
        upstreams: Vec::new(),
        covers: None,
        clipped: false,
        unknown: Default::default(),
    }
}

fn lease(number: u64, slot: Wall, zone: &str) -> Lease {
    let processes = Processes {
        machine: String::new(),
        boot: String::new(),
        pid_namespace: String::new(),
        wrapper: Process { pid: 1, started: 1 },
        keeper: None,
        time_namespace: Default::default(),
        unknown: Default::default(),
    };
    Lease {
        run: run(number),
        ttl: Duration::from_secs(60),
        renewals: 0,
        until: None,
        holder: Holder {
            host: String::new(),
            processes: Some(processes),
            by_hand: false,
            inside: Vec::new(),
            unknown: Default::default(),
        },
        slot,
        covers: None,
        zone: zone.to_string(),
        trigger: Trigger::Schedule,
        since: slot,
        stop_asked: None,
        unknown: Default::default(),
    }
}

fn artifact(bytes: Bytes) -> Artifact {
    Artifact { path: PATH.to_string(), size: 1, sha256: Fingerprint([bytes as u8; 32]), unknown: Default::default() }
}

fn run(number: u64) -> RunId {
    format!("{number:032x}").parse().expect("a run")
}

fn job() -> Job {
    Job::shared(Name::new("up").expect("a name"))
}
