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
use crate::ledger::{Barred, Consumed, Outcome, Status};
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
    /// The attempts of the wanted slot that its record has no room for, oldest first.
    pub history: Vec<Outcome>,
}

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

    /// What became of a slot is what became of its newest attempt.
    fn outcome_of<'a>(attempts: &[&'a Outcome]) -> Option<&'a Outcome> {
        attempts.last().copied()
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

/// Which slots of an upstream a need is about. `due` finds the upstream's newest slot at or before an instant, where
/// its schedule is known.
pub fn wanted<R: BarrierRules>(
    when: When,
    asker: &Asker,
    now: Wall,
    due: Option<&dyn Fn(Wall) -> Option<Wall>>,
) -> Wanted {
    match (when, due) {
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

/// The slot whose history has to be read besides the record: it is older than everything the record holds.
pub fn slot_in_history(wanted: Wanted, record: Option<&Record>) -> Option<Wall> {
    let (Wanted::Exactly(slot), Some(record)) = (wanted, record) else { return None };
    let is_known = record.ledger.attempts(slot).next().is_some();
    // Without a full ring nothing was ever given up; a slot beyond the newest was not either.
    let may_be_older = record.ledger.ring.iter().any(|known| known.slot > slot);
    (!is_known && may_be_older).then_some(slot)
}

/// Judges one need by what became of its upstream. Artifacts are compared afterwards, by [`verify`].
pub fn judge<R: BarrierRules>(need: &Need, wanted: Wanted, upstream: &Upstream, asker: &Asker) -> Verdict {
    let Some(record) = &upstream.record else {
        return Verdict::halt(need, None, None, words::never_ran(&need.job));
    };
    let known: Vec<&Outcome> = upstream.history.iter().chain(&record.ledger.ring).collect();
    let recorded = known.iter().filter(|known| wanted.has(known)).map(|known| known.slot).max();
    if let Some(lease) = going::<R>(record, wanted).filter(|lease| recorded <= Some(lease.slot)) {
        let status = if upstream.lease_is_over { Status::Lost } else { Status::Running };
        let reason = words::going(&need.job, lease, upstream.lease_is_over, &asker.zone);
        return Verdict::halt(need, Some(lease.slot), Some(status), reason);
    }
    let attempts: Vec<&Outcome> =
        known.into_iter().filter(|known| Some(known.slot) == recorded && wanted.has(known)).collect();
    let Some(outcome) = R::outcome_of(&attempts) else {
        let last_ok = record.ledger.last_ok.as_ref();
        return Verdict::halt(need, wanted.exact(), None, words::no_record(&need.job, wanted, last_ok, asker));
    };
    let decision = R::decision(outcome.status, need.on_empty);
    Verdict {
        job: need.job.clone(),
        slot: Some(outcome.slot),
        status: Some(outcome.status),
        decision,
        reason: words::ended(&need.job, outcome, decision, &asker.zone),
        // Where there was nothing new, what the job reads is what the last good run left.
        attempt: match outcome.status {
            _ if decision != Decision::Proceed => None,
            Status::Ok => Some(outcome.clone()),
            _ => record.ledger.last_ok.clone(),
        },
    }
}

/// Compares one artifact, as it is here, with what the upstream recorded of it.
pub fn verify<R: BarrierRules>(verdict: &mut Verdict, path: &str, here: &Here) {
    let artifacts = verdict.attempt.as_ref().map_or(&[][..], |attempt| &attempt.artifacts);
    let recorded = artifacts.iter().find(|artifact| artifact.path == path);
    if !R::same(recorded, here) {
        verdict.reason = words::other_bytes(&verdict.job, path, recorded, here);
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

    /// Whether an outcome is about such a slot. One run may stand for several.
    fn has(self, outcome: &Outcome) -> bool {
        let covered = |slot: Wall| outcome.covers.is_some_and(|covers| (covers.from..=covers.to).contains(&slot));
        self.has_slot(outcome.slot) || self.exact().is_some_and(covered)
    }

    fn exact(self) -> Option<Wall> {
        match self {
            Self::Exactly(slot) => Some(slot),
            Self::Newest { .. } => None,
        }
    }
}

/// The run behind the lease, if it is about such a slot and nothing is recorded of it. A lease by hand is not a run.
fn going<R: BarrierRules>(record: &Record, wanted: Wanted) -> Option<&Lease> {
    let lease = record.lease.as_ref()?;
    let is_run = lease.holder.is_run() && record.ledger.of_run(lease.run).is_none();
    (is_run && R::running_counts() && wanted.has_slot(lease.slot)).then_some(lease)
}
