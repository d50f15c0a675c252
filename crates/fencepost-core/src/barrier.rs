//! The dependency barrier: whether a job may work on what its upstreams left.
//!
//! A job asks what became of its upstream for *this* slot. No record, or anything but a good one, halts it; a record of
//! nothing skips it; a good one lets it through, on exactly the bytes that the record names.

mod need;
mod words;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::Serialize;

use crate::artifact::Artifact;
use crate::ledger::{Barred, Consumed, Covered, Outcome, Status};
use crate::name::Job;
use crate::record::{Lease, Record};
use crate::run::Passage;
use crate::time::Wall;
use crate::zone::Zone;

pub use need::{Need, NeedError, OnEmpty, When};

/// The slot that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub slot: Wall,
    pub zone: Zone,
}

/// Which slots of an upstream count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This one and no other.
    Exactly(Wall),
    /// The newest from the first of these instants to just before the second.
    Newest { from: Wall, before: Wall },
}

/// What is known of an upstream.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    pub record: Option<Record>,
    /// Its lease is over though nobody released it.
    pub lease_is_over: bool,
    /// What the history has under the slots that [`slots_in_history`] named, oldest first.
    pub history: Vec<Outcome>,
}

/// The newest slot of an upstream at or before an instant, where its schedule is known.
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

/// What one upstream says to one need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub job: Job,
    pub slot: Option<Wall>,
    /// What became of that slot; `None` if nothing is recorded.
    pub status: Option<Status>,
    pub decision: Decision,
    pub reason: String,
    /// The attempt that lets the job through.
    pub attempt: Option<Outcome>,
}

/// An artifact of an upstream, as it is found here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Here {
    Found(Artifact),
    Missing,
    Unreadable(String),
}

/// The rules of the barrier, one method each, so that the model can replace one at a time by a known bug.
pub trait BarrierRules {
    /// The day is that of the slot that asks, in its own zone: never today's, never the machine's.
    fn day_of(asker: &Asker, _now: Wall) -> Wall {
        asker.slot
    }

    /// What became of a slot is what became of its own newest attempt. A range of slots that one outcome stands for
    /// counts only where the slot has no attempt of its own.
    fn outcome_of<'a>(own: &[&'a Outcome], ranges: &[&'a Outcome]) -> Option<&'a Outcome> {
        own.last().or(ranges.last()).copied()
    }

    /// The newest slot of a range that lies from the first instant to just before the second. Between its ends a range
    /// stands for the slots of the schedule and for no other instant.
    fn newest_covered(range: Covered, from: Wall, before: Wall, calendar: Calendar<'_>) -> Option<Wall> {
        let last = range.to.min(Wall(before.0.saturating_sub(1)));
        let inner = calendar.and_then(|due| due(last));
        let slots = [inner, Some(range.to), Some(range.from)].into_iter().flatten();
        slots.filter(|slot| (from.max(range.from)..=last).contains(slot)).max()
    }

    /// A run that is going is the newest attempt of its slot, whatever an earlier one left.
    fn running_counts() -> bool {
        true
    }

    /// Whether a status lets a job through, keeps it still, or is a reason for alarm.
    fn decision(status: Status, on_empty: OnEmpty) -> Decision {
        match status {
            Status::Ok => Decision::Proceed,
            Status::Empty | Status::SkippedBarrier if on_empty == OnEmpty::Proceed => Decision::Proceed,
            Status::Empty | Status::SkippedBarrier => Decision::Skip,
            _ => Decision::Halt,
        }
    }

    /// The bytes here are those that were recorded. What was not recorded cannot be compared, and does not pass.
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
pub struct Strict;

impl BarrierRules for Strict {}

/// Which slots of an upstream a need is about.
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

/// A schedule that has not had a slot yet.
const NEVER: Wanted = Wanted::Newest { from: Wall(0), before: Wall(0) };

fn after(at: Wall) -> Wall {
    at + Duration::from_millis(1)
}

/// The slots whose history has to be read besides the record: the wanted one if the ring may have given its attempts up,
/// and those of ranges that stand for it and left the ring.
pub fn slots_in_history(wanted: Wanted, record: Option<&Record>) -> Vec<Wall> {
    let (Wanted::Exactly(slot), Some(record)) = (wanted, record) else { return Vec::new() };
    let ledger = &record.ledger;
    // A slot beyond the newest was never given up.
    let may_be_older = ledger.ring.iter().any(|known| known.slot > slot) || ledger.given_up >= Some(slot);
    if ledger.attempts(slot).next().is_some() || !may_be_older {
        return Vec::new();
    }
    let ranges = ledger.ranges.iter().filter(|range| (range.from..=range.to).contains(&slot));
    let mut slots: Vec<Wall> = ranges.map(|range| range.to).chain([slot]).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// What is known of the wanted slot: its own attempts and the ranges that stand for it, each oldest first.
#[derive(Debug, Default)]
struct Known<'a> {
    slot: Option<Wall>,
    own: Vec<&'a Outcome>,
    ranges: Vec<&'a Outcome>,
}

impl<'a> Known<'a> {
    /// Finds the newest wanted slot that any of the outcomes is about, and everything they say about it.
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

    /// Whether the run behind this lease is newer than everything that is recorded about the slot it is at.
    fn is_behind<R: BarrierRules>(&self, lease: &Lease, wanted: Wanted, calendar: Calendar<'_>) -> bool {
        if wanted.has_slot(lease.slot) && self.slot <= Some(lease.slot) {
            return true;
        }
        let covered = lease.covers.and_then(|range| wanted.newest_covered::<R>(range, calendar));
        covered.is_some() && (self.slot < covered || (self.slot == covered && self.own.is_empty()))
    }
}

/// Whether an outcome is of a run for its slot. Missed slots are recorded as a range, also where it is only one.
fn is_attempt(outcome: &Outcome) -> bool {
    outcome.status != Status::Missed
}

/// The range of slots that an outcome stands for.
fn range(outcome: &Outcome) -> Option<Covered> {
    let one = Covered { from: outcome.slot, to: outcome.slot, count: 1 };
    outcome.covers.or((!is_attempt(outcome)).then_some(one))
}

/// Judges one need by what became of its upstream. Artifacts are compared afterwards, by [`verify`].
pub fn judge<R: BarrierRules>(
    need: &Need,
    wanted: Wanted,
    upstream: &Upstream,
    asker: &Asker,
    calendar: Calendar<'_>,
) -> Verdict {
    let Some(record) = &upstream.record else {
        return Verdict::halt(need, None, None, words::never_ran(&need.job));
    };
    let outcomes: Vec<&Outcome> = upstream.history.iter().chain(&record.ledger.ring).collect();
    let known = Known::of::<R>(wanted, &outcomes, calendar);
    if let Some(lease) = going::<R>(record).filter(|lease| known.is_behind::<R>(lease, wanted, calendar)) {
        let status = if upstream.lease_is_over { Status::Lost } else { Status::Running };
        let reason = words::going(&need.job, lease, upstream.lease_is_over, &asker.zone);
        return Verdict::halt(need, Some(lease.slot), Some(status), reason);
    }
    let Some(outcome) = R::outcome_of(&known.own, &known.ranges) else {
        let last_ok = record.ledger.last_ok.as_ref();
        return Verdict::halt(need, wanted.exact(), None, words::no_record(&need.job, wanted, last_ok, asker));
    };
    let decision = R::decision(outcome.status, need.on_empty);
    Verdict {
        job: need.job.clone(),
        slot: known.slot,
        status: Some(outcome.status),
        decision,
        reason: words::ended(&need.job, known.slot.unwrap_or(outcome.slot), outcome, decision, &asker.zone),
        // Where there was nothing new, the job reads what the last good run left.
        attempt: match outcome.status {
            _ if decision != Decision::Proceed => None,
            Status::Ok => Some(outcome.clone()),
            _ => record.ledger.last_ok.clone(),
        },
    }
}

/// Compares one artifact, as it is here, with what the upstream recorded of it. `shown` is where it lies here, for people.
pub fn verify<R: BarrierRules>(verdict: &mut Verdict, path: &str, shown: &str, here: &Here) {
    let artifacts = verdict.attempt.as_ref().map_or(&[][..], |attempt| &attempt.artifacts);
    let recorded = artifacts.iter().find(|artifact| artifact.path == path);
    if !R::same(recorded, here) {
        verdict.reason = words::other_bytes(&verdict.job, path, shown, recorded, here);
        (verdict.decision, verdict.attempt) = (Decision::Halt, None);
    }
}

/// What all upstreams together let the job do.
pub fn together<R: BarrierRules>(verdicts: &[Verdict]) -> Decision {
    R::together(&verdicts.iter().map(|verdict| verdict.decision).collect::<Vec<_>>())
}

/// The same, as a run is told it. What did not let it through is why.
pub fn passage<R: BarrierRules>(verdicts: &[Verdict], needs: &[Need]) -> Passage {
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

impl Verdict {
    fn halt(need: &Need, slot: Option<Wall>, status: Option<Status>, reason: String) -> Self {
        Self { job: need.job.clone(), slot, status, decision: Decision::Halt, reason, attempt: None }
    }

    /// The ledger cannot be read, which is never taken for "no record".
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

    /// Which attempt was consumed, once for each artifact that was named.
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

    /// The newest slot of a range that counts.
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

/// The run behind the lease, if nothing is recorded of it. A lease by hand is not a run.
fn going<R: BarrierRules>(record: &Record) -> Option<&Lease> {
    let lease = record.lease.as_ref()?;
    let is_run = lease.holder.is_run() && record.ledger.of_run(lease.run).is_none();
    (is_run && R::running_counts()).then_some(lease)
}
