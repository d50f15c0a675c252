//! The dependency barrier: whether a job may start, given the outcomes of its upstreams.
//!
//! A job asks for its upstream's outcome of *this* slot. No record or a bad one halts the job, `empty` skips it, and
//! `ok` lets it proceed, on exactly the bytes that the record names.

mod need;
pub(crate) mod words;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::Serialize;

use crate::artifact::Artifact;
use crate::ledger::{Barred, Consumed, Covered, Ledger, Outcome, Status};
use crate::name::Job;
use crate::record::{Lease, Record};
use crate::run::Passage;
use crate::time::Wall;
use crate::zone::Zone;

pub use need::{Need, NeedError, OnEmpty, When};

/// The slot of the job that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub slot: Wall,
    pub zone: Zone,
}

/// Which slots of an upstream count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Exactly this slot.
    Exactly(Wall),
    /// The newest slot in `from..before`.
    Newest { from: Wall, before: Wall },
}

/// The known state of an upstream.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    pub record: Option<Record>,
    /// The lease is over, but was not released.
    pub lease_is_over: bool,
    /// Outcomes read from the history, under the slots that [`slots_in_history`] named, oldest first.
    pub history: Vec<Outcome>,
}

/// The newest slot of an upstream at or before an instant, if its schedule is known.
pub type Calendar<'a> = Option<&'a dyn Fn(Wall) -> Option<Wall>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Proceed,
    Skip,
    Halt,
}

impl Decision {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proceed => "proceed",
            Self::Skip => "skip",
            Self::Halt => "halt",
        }
    }
}

/// The verdict of one upstream on one need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamVerdict {
    pub job: Job,
    pub slot: Option<Wall>,
    /// The slot's status; `None` if nothing is recorded.
    pub status: Option<Status>,
    pub decision: Decision,
    pub reason: String,
    /// The attempt on which the job proceeds.
    pub attempt: Option<Outcome>,
}

/// An upstream's artifact as found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Here {
    Found(Artifact),
    Missing,
    Unreadable(String),
}

/// The rules of the barrier, one method each. The model replaces one at a time by a known bug.
pub trait BarrierRules {
    /// The day of the asking slot in its own zone, never today's and never the machine's.
    fn day_of(asker: &Asker, _now: Wall) -> Wall {
        asker.slot
    }

    /// A slot's own newest attempt is its outcome. An outcome that covers a range counts only if the slot has no
    /// attempt of its own.
    fn outcome_of<'a>(own: &[&'a Outcome], ranges: &[&'a Outcome]) -> Option<&'a Outcome> {
        own.last().or(ranges.last()).copied()
    }

    /// The newest slot of a range within `from..before`. Between its ends a range covers the slots of the schedule and
    /// no other instant.
    fn newest_covered(range: Covered, from: Wall, before: Wall, calendar: Calendar<'_>) -> Option<Wall> {
        let last = range.to.min(Wall(before.0.saturating_sub(1)));
        let inner = calendar.and_then(|due| due(last));
        let slots = [inner, Some(range.to), Some(range.from)].into_iter().flatten();
        slots.filter(|slot| (from.max(range.from)..=last).contains(slot)).max()
    }

    /// A running attempt is the newest of its slot and hides earlier outcomes.
    fn running_counts() -> bool {
        true
    }

    /// Maps a status to proceed, skip or halt.
    fn decision(status: Status, on_empty: OnEmpty) -> Decision {
        match status {
            Status::Ok => Decision::Proceed,
            Status::Empty | Status::SkippedBarrier if on_empty == OnEmpty::Proceed => Decision::Proceed,
            Status::Empty | Status::SkippedBarrier => Decision::Skip,
            _ => Decision::Halt,
        }
    }

    /// Compares the bytes here with the recorded ones. Unrecorded bytes do not pass.
    fn same(recorded: Option<&Artifact>, here: &Here) -> bool {
        match (recorded, here) {
            (Some(recorded), Here::Found(here)) => (recorded.size, recorded.sha256) == (here.size, here.sha256),
            _ => false,
        }
    }

    /// Any halt halts, else any skip skips.
    fn together(decisions: &[Decision]) -> Decision {
        decisions.iter().copied().max().unwrap_or(Decision::Proceed)
    }
}

/// The rules as shipped.
#[derive(Clone, Copy, Debug)]
pub struct StrictBarrier;

impl BarrierRules for StrictBarrier {}

/// The slots of an upstream that a need refers to.
pub fn wanted<R: BarrierRules>(when: When, asker: &Asker, now: Wall, calendar: Calendar<'_>) -> Wanted {
    match (when, calendar) {
        (When::LastDue, Some(due)) => due(asker.slot).map_or(NEVER, Wanted::Exactly),
        (When::LastDue | When::SameDay, _) => {
            let date = asker.zone.date(R::day_of(asker, now));
            let (from, before) = (asker.zone.start_of_day(date), asker.zone.start_of_day(date.tomorrow()));
            Wanted::Newest { from, before }
        }
        (When::SameSlot, _) => Wanted::Exactly(asker.slot),
        (When::Within(length), _) => {
            let from = Wall(asker.slot.0.saturating_sub(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)));
            Wanted::Newest { from, before: after(asker.slot) }
        }
        (When::Any, _) => Wanted::Newest { from: Wall(i64::MIN), before: Wall(i64::MAX) },
    }
}

/// For a schedule that has had no slot yet.
const NEVER: Wanted = Wanted::Newest { from: Wall(0), before: Wall(0) };

fn after(at: Wall) -> Wall {
    at + Duration::from_millis(1)
}

/// Limit for the slots of one window that are looked up in the history.
const HISTORY_LOOKS_MAX: usize = 64;

/// The part of an answer that only the history can give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Older {
    /// The slots to read, in groups: one wanted slot, and the last slots of the ranges that cover it and left the ring. The
    /// newest wanted slot comes first. The first group with an entry in the history decides.
    pub groups: Vec<Vec<Wall>>,
    /// The groups may be incomplete: the schedule is unknown, or the window has more slots than [`HISTORY_LOOKS_MAX`].
    pub is_cut: bool,
}

/// The slots to read from the history besides the record, because their attempts may have left the ring.
pub fn slots_in_history<R: BarrierRules>(wanted: Wanted, record: Option<&Record>, calendar: Calendar<'_>) -> Older {
    let Some(ledger) = record.map(|record| &record.ledger) else { return Older::default() };
    match wanted {
        Wanted::Exactly(slot) => {
            // A slot beyond the newest was never given up.
            let may_be_older = ledger.ring.iter().any(|known| known.slot > slot) || ledger.given_up >= Some(slot);
            let is_read = may_be_older && ledger.attempts(slot).next().is_none();
            Older { groups: is_read.then(|| with_ranges(ledger, slot)).into_iter().collect(), is_cut: false }
        }
        Wanted::Newest { from, before } => older_in_window::<R>(ledger, from, before, calendar),
    }
}

/// The slots of a window that are newer than every slot of it in the ring. The ring evicts outcomes in the order in which
/// they were written, so it may hold only an older slot that was recorded late.
fn older_in_window<R: BarrierRules>(ledger: &Ledger, from: Wall, before: Wall, calendar: Calendar<'_>) -> Older {
    let Some(last) = ledger.given_up.map(|slot| slot.min(Wall(before.0.saturating_sub(1)))) else {
        return Older::default();
    };
    let ring: Vec<&Outcome> = ledger.ring.iter().collect();
    let known = KnownOutcomes::of::<R>(Wanted::Newest { from, before }, &ring, calendar);
    let first = match known.slot {
        Some(slot) if known.own.is_empty() => slot,
        Some(slot) => after(slot),
        None => from,
    };
    if last < first {
        return Older::default();
    }
    let Some(due) = calendar else { return Older { groups: Vec::new(), is_cut: true } };
    let earlier = |slot: &Wall| due(Wall(slot.0.saturating_sub(1)));
    let mut slots = core::iter::successors(due(last), earlier).take_while(|slot| *slot >= first);
    let groups = slots.by_ref().take(HISTORY_LOOKS_MAX).map(|slot| with_ranges(ledger, slot)).collect();
    Older { groups, is_cut: slots.next().is_some() }
}

/// A slot, and the last slots of the ranges that cover it and left the ring.
fn with_ranges(ledger: &Ledger, slot: Wall) -> Vec<Wall> {
    let ranges = ledger.ranges.iter().filter(|range| (range.from..=range.to).contains(&slot));
    let mut slots: Vec<Wall> = ranges.map(|range| range.to).chain([slot]).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// The known outcomes of the wanted slot: its own attempts and the ranges that cover it, each oldest first.
#[derive(Debug, Default)]
struct KnownOutcomes<'a> {
    slot: Option<Wall>,
    own: Vec<&'a Outcome>,
    ranges: Vec<&'a Outcome>,
}

impl<'a> KnownOutcomes<'a> {
    /// Finds the newest wanted slot with an outcome, and all outcomes of it.
    fn of<R: BarrierRules>(wanted: Wanted, outcomes: &[&'a Outcome], calendar: Calendar<'_>) -> Self {
        let newest = |outcome: &Outcome| {
            let own = Some(outcome.slot).filter(|slot| is_attempt(outcome) && wanted.has_slot(*slot));
            own.max(range(outcome).and_then(|range| wanted.newest_covered::<R>(range, calendar)))
        };
        let Some(slot) = outcomes.iter().filter_map(|outcome| newest(outcome)).max() else { return Self::default() };
        let covers = |outcome: &&&Outcome| {
            let covered = |range| Wanted::Exactly(slot).newest_covered::<R>(range, calendar);
            range(outcome).and_then(covered).is_some()
        };
        Self {
            slot: Some(slot),
            own: outcomes.iter().filter(|known| is_attempt(known) && known.slot == slot).copied().collect(),
            ranges: outcomes.iter().filter(covers).copied().collect(),
        }
    }

    /// Whether the lease's run is newer than every recorded outcome of its slot.
    fn is_behind<R: BarrierRules>(&self, lease: &Lease, wanted: Wanted, calendar: Calendar<'_>) -> bool {
        if wanted.has_slot(lease.slot) && self.slot <= Some(lease.slot) {
            return true;
        }
        let covered = lease.covers.and_then(|range| wanted.newest_covered::<R>(range, calendar));
        covered.is_some() && (self.slot < covered || (self.slot == covered && self.own.is_empty()))
    }
}

/// Whether an outcome belongs to a run for its slot. Missed slots are recorded as ranges, even a single one.
fn is_attempt(outcome: &Outcome) -> bool {
    outcome.status != Status::Missed
}

/// The range of slots that an outcome covers.
fn range(outcome: &Outcome) -> Option<Covered> {
    let one = Covered { from: outcome.slot, to: outcome.slot, count: 1 };
    outcome.covers.or((!is_attempt(outcome)).then_some(one))
}

/// Judges one need by its upstream's outcome. [`verify`] compares artifacts afterwards.
pub fn judge<R: BarrierRules>(
    need: &Need,
    wanted: Wanted,
    upstream: &Upstream,
    asker: &Asker,
    calendar: Calendar<'_>,
) -> UpstreamVerdict {
    let Some(record) = &upstream.record else {
        return UpstreamVerdict::halt(need, None, None, words::never_ran(&need.job));
    };
    let outcomes: Vec<&Outcome> = upstream.history.iter().chain(&record.ledger.ring).collect();
    let known = KnownOutcomes::of::<R>(wanted, &outcomes, calendar);
    if let Some(lease) = going::<R>(record).filter(|lease| known.is_behind::<R>(lease, wanted, calendar)) {
        let status = if upstream.lease_is_over { Status::Lost } else { Status::Running };
        let reason = words::going(&need.job, lease, upstream.lease_is_over, &asker.zone);
        return UpstreamVerdict::halt(need, Some(lease.slot), Some(status), reason);
    }
    if upstream.history.is_empty() && slots_in_history::<R>(wanted, Some(record), calendar).is_cut {
        return UpstreamVerdict::halt(need, None, None, words::too_old(&need.job));
    }
    let Some(outcome) = R::outcome_of(&known.own, &known.ranges) else {
        let last_ok = record.ledger.last_ok.as_ref();
        return UpstreamVerdict::halt(need, wanted.exact(), None, words::no_record(&need.job, wanted, last_ok, asker));
    };
    let decision = R::decision(outcome.status, need.on_empty);
    UpstreamVerdict {
        job: need.job.clone(),
        slot: known.slot,
        status: Some(outcome.status),
        decision,
        reason: words::ended(&need.job, known.slot.unwrap_or(outcome.slot), outcome, decision, &asker.zone),
        // After `empty` the job reads the artifacts of the last good run.
        attempt: match outcome.status {
            _ if decision != Decision::Proceed => None,
            Status::Ok => Some(outcome.clone()),
            _ => record.ledger.last_ok.clone(),
        },
    }
}

/// Compares one artifact here with the upstream's record. `shown` is its path for messages.
pub fn verify<R: BarrierRules>(verdict: &mut UpstreamVerdict, path: &str, shown: &str, here: &Here) {
    let artifacts = verdict.attempt.as_ref().map_or(&[][..], |attempt| &attempt.artifacts);
    let recorded = artifacts.iter().find(|artifact| artifact.path == path);
    if !R::same(recorded, here) {
        verdict.reason = words::other_bytes(&verdict.job, path, shown, recorded, here);
        (verdict.decision, verdict.attempt) = (Decision::Halt, None);
    }
}

/// The combined decision of all upstreams.
pub fn together<R: BarrierRules>(verdicts: &[UpstreamVerdict]) -> Decision {
    R::together(&verdicts.iter().map(|verdict| verdict.decision).collect::<Vec<_>>())
}

/// The combined decision as the run receives it, with the upstreams that prevented it.
pub fn passage<R: BarrierRules>(verdicts: &[UpstreamVerdict], needs: &[Need]) -> Passage {
    let barred = |wanted: Decision| {
        let those = verdicts.iter().filter(move |verdict| verdict.decision == wanted);
        those.map(|verdict| verdict.barred()).collect()
    };
    match together::<R>(verdicts) {
        Decision::Halt => Passage::Halt { barred: barred(Decision::Halt) },
        Decision::Skip => Passage::Skip { barred: barred(Decision::Skip) },
        Decision::Proceed => Passage::Proceed {
            upstreams: verdicts.iter().zip(needs).flat_map(|(verdict, need)| verdict.consumed(need)).collect(),
        },
    }
}

impl UpstreamVerdict {
    fn halt(need: &Need, slot: Option<Wall>, status: Option<Status>, reason: String) -> Self {
        Self { job: need.job.clone(), slot, status, decision: Decision::Halt, reason, attempt: None }
    }

    /// A halt because the ledger cannot be read. That is never treated as "no record".
    pub fn unreadable(need: &Need, why: &str) -> Self {
        Self::halt(need, None, None, words::unreadable(&need.job, why))
    }

    pub fn barred(&self) -> Barred {
        Barred {
            job: alloc::string::ToString::to_string(&self.job),
            halt: self.decision == Decision::Halt,
            reason: self.reason.clone(),
        }
    }

    /// The consumed attempt, once per named artifact.
    pub fn consumed(&self, need: &Need) -> Vec<Consumed> {
        let Some(attempt) = &self.attempt else { return Vec::new() };
        let consumed = |sha256| Consumed {
            job: alloc::string::ToString::to_string(&self.job),
            slot: attempt.slot,
            run: attempt.run,
            sha256,
            unknown: Default::default(),
        };
        let named = attempt.artifacts.iter().filter(|artifact| need.artifacts.contains(&artifact.path));
        let named: Vec<Consumed> = named.map(|artifact| consumed(Some(artifact.sha256))).collect();
        if named.is_empty() { Vec::from([consumed(None)]) } else { named }
    }
}

impl Wanted {
    fn has_slot(self, slot: Wall) -> bool {
        match self {
            Self::Exactly(wanted) => slot == wanted,
            Self::Newest { from, before } => (from..before).contains(&slot),
        }
    }

    /// The newest wanted slot of a range.
    fn newest_covered<R: BarrierRules>(self, range: Covered, calendar: Calendar<'_>) -> Option<Wall> {
        match self {
            Self::Exactly(slot) => R::newest_covered(range, slot, after(slot), calendar),
            Self::Newest { from, before } => R::newest_covered(range, from, before, calendar),
        }
    }

    fn exact(self) -> Option<Wall> {
        match self {
            Self::Exactly(slot) => Some(slot),
            Self::Newest { .. } => None,
        }
    }
}

/// The lease's run, if no outcome is recorded for it. A lease by hand is not a run.
fn going<R: BarrierRules>(record: &Record) -> Option<&Lease> {
    let lease = record.lease.as_ref()?;
    let is_run = lease.holder.is_run() && record.ledger.of_run(lease.run).is_none();
    (is_run && R::running_counts()).then_some(lease)
}
