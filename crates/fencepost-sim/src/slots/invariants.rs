//! What must be true of slots and of items of work, in words of their own: nothing here asks the planner.

use std::fmt;
use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::plan::CatchUpMode;
use fencepost_core::record::{Paused, Record};
use fencepost_core::slot::{NotNow, OnUnknown};
use fencepost_core::time::Wall;

use super::{Purpose, SLACK, START, SlotSetting, SlotWork, TRIGGERS_MAX};

const MINUTE: Duration = Duration::from_secs(60);

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotViolation {
    DoneTwice,
    /// A slot is accounted for, and nothing says how it ended.
    Silent,
    /// A slot was run after it was written down as missed, or is in two ranges.
    MissedAndRun,
    Miscounted,
    TooLate,
    /// A slot was attempted more often than its retries allow.
    TriedTooOften,
    /// One trigger tried a slot twice.
    TriedTwice,
    /// A run started before its slot.
    TooEarly,
    /// A slot that is due was taken for done, and nothing says how it ended.
    Silenced,
    RunWhilePaused,
    PausedTooLong,
    TokenWentBack,
    TwoEffects,
    /// An item of work is reported as unknown, although no process died at it.
    UnknownForNothing,
    /// The record goes back.
    Forgotten,
}

impl fmt::Display for SlotViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoneTwice => "a slot was completed twice",
            Self::Silent => "a slot is accounted for, and nothing says how it ended",
            Self::MissedAndRun => "a slot was run after it was written down as missed, or was missed twice",
            Self::Miscounted => "what was missed is miscounted",
            Self::TooLate => "a slot ran that was too late",
            Self::TriedTooOften => "a slot was attempted more often than its retries allow",
            Self::TriedTwice => "one trigger tried a slot twice",
            Self::TooEarly => "a run started before its slot",
            Self::Silenced => "a slot that was due was not run, and nothing says why",
            Self::RunWhilePaused => "a paused job ran",
            Self::PausedTooLong => "a job stayed paused after the end of its pause",
            Self::TokenWentBack => "the token went back",
            Self::TwoEffects => "an item of work had its effect twice",
            Self::UnknownForNothing => "an item of work is unknown, although no process died at it",
            Self::Forgotten => "an outcome disappeared",
        })
    }
}

/// What has happened, for the invariants only: no host sees it.
#[derive(Clone, Debug, Default, Hash)]
pub struct SlotGhost {
    /// The slots, as the commands were told, whose completion is in the record.
    completed: Vec<Wall>,
    /// What each trigger has tried, where triggers go on from slot to slot.
    tried: Vec<(u8, Wall)>,
    effects: u8,
    paused: Option<Paused>,
    /// Until when the job was forgotten.
    forgotten: Option<Wall>,
    /// The slots whose attempts are used up, where the record may have forgotten them.
    failed: Vec<Wall>,
    pub(super) violation: Option<SlotViolation>,
}

impl SlotGhost {
    fn note(&mut self, wrong: bool, violation: SlotViolation) {
        if wrong {
            self.violation = Some(violation);
        }
    }

    pub(super) fn note_effect(&mut self, setting: &SlotSetting) {
        self.effects += 1;
        let may_repeat = setting.work == SlotWork::Once(OnUnknown::Retry);
        self.note(self.effects > 1 && !may_repeat, SlotViolation::TwoEffects);
    }

    /// A record was written: as it should be, and as it is.
    pub(super) fn note_landing(
        &mut self,
        setting: &SlotSetting,
        purpose: Purpose,
        before: Option<&Record>,
        honest: &Record,
        written: &Record,
    ) {
        let had = before.map_or(0, |before| before.ledger.ring.len());
        let is_forgotten = purpose == Purpose::Forget;
        self.note(written.ledger.ring.len() < had && !is_forgotten, SlotViolation::Forgotten);
        self.note(before.is_some_and(|before| written.token < before.token), SlotViolation::TokenWentBack);
        self.forgotten = honest.forgotten.as_ref().map(|forgotten| forgotten.at);
        match purpose {
            Purpose::Claim { run, .. } => self.note_claim(setting, run, before, honest),
            Purpose::Complete { slot, well: true, .. } if matches!(setting.work, SlotWork::Slots { .. }) => {
                let slot = slot_of(slot);
                self.note(self.completed.contains(&slot), SlotViolation::DoneTwice);
                self.completed.push(slot);
                self.completed.sort_unstable();
            }
            Purpose::Complete { slot, .. } if setting.budget.forgets > 0 => {
                let is_failure = honest.ledger.last().is_some_and(|last| last.status == Status::Error);
                self.failed.extend(is_failure.then_some(slot));
                self.failed.sort_unstable();
            }
            _ => {}
        }
        self.paused = honest.paused.clone();
        self.note_accounts(written);
    }

    fn note_claim(&mut self, setting: &SlotSetting, run: u8, before: Option<&Record>, honest: &Record) {
        let Some(lease) = &honest.lease else { return };
        let is_paused = |paused: &Paused| paused.until.is_none_or(|until| lease.since < until);
        self.note(self.paused.as_ref().is_some_and(is_paused), SlotViolation::RunWhilePaused);
        let SlotWork::Slots { catch_up, mode } = setting.work else { return };
        // It was decided before it landed.
        let now = lease.since;
        let newest = slot_of(now);
        self.note(now < lease.slot, SlotViolation::TooEarly);
        if setting.rows {
            let attempt = (run % TRIGGERS_MAX, lease.slot);
            self.note(self.tried.contains(&attempt), SlotViolation::TriedTwice);
            self.tried.push(attempt);
            self.tried.sort_unstable();
        }
        self.note(self.failed.contains(&lease.slot), SlotViolation::TriedTooOften);
        let is_late = now.since(lease.slot) > SLACK;
        let rank = newest.since(lease.slot).as_secs() / MINUTE.as_secs() + 1;
        let is_allowed = catch_up > 0 && (rank <= u64::from(catch_up) || mode == CatchUpMode::Collapse);
        self.note(is_late && !is_allowed, SlotViolation::TooLate);
        let Some(before) = before else { return };
        let last = before.ledger.ring.iter().rfind(|outcome| is_attempt(outcome, lease.slot));
        let (from, to) = lease.covers.map_or((lease.slot, lease.slot), |covers| (covers.from, covers.to));
        let mut slot = from;
        while slot <= to {
            let is_failure = |outcome: &&Outcome| outcome.status == Status::Error && stands_for(outcome, slot);
            let failures = before.ledger.ring.iter().filter(is_failure).count();
            let is_done = |outcome: &Outcome| outcome.slot == slot && outcome.status == Status::Ok;
            self.note(failures > 0 && !before.ledger.ring.iter().any(is_done), SlotViolation::TriedTooOften);
            slot = slot + MINUTE;
        }
        let was_missed = missed(before).any(|outcome| is_within(outcome, lease.slot));
        self.note(last.is_none() && was_missed, SlotViolation::MissedAndRun);
    }

    /// A trigger at the time of a slot was told that there is nothing to run.
    pub(super) fn note_refusal(&mut self, setting: &SlotSetting, record: Option<&Record>, why: &NotNow, now: Wall) {
        let until = self.paused.as_ref().and_then(|paused| paused.until);
        let is_over = until.is_some_and(|until| until <= now);
        self.note(is_over && matches!(why, NotNow::Paused { .. }), SlotViolation::PausedTooLong);
        let is_unknown = matches!((setting.work, why), (SlotWork::Once(_), NotNow::Lost { .. }));
        self.note(is_unknown && setting.budget.crashes == 0, SlotViolation::UnknownForNothing);
        let slot = slot_of(now);
        let is_slots = matches!(setting.work, SlotWork::Slots { .. }) && now.since(slot) <= SLACK;
        let is_about_slots = matches!(why, NotNow::NotDue { .. } | NotNow::Duplicate { .. });
        let (true, true, Some(record)) = (is_slots, is_about_slots && !setting.rows, record) else { return };
        let is_told = record.ledger.ring.iter().any(|outcome| stands_for(outcome, slot));
        let is_running = record.lease.as_ref().is_some_and(|lease| lease.slot == slot || covers(lease.covers, slot));
        let is_forgotten = self.forgotten.is_some_and(|forgotten| slot <= forgotten);
        self.note(!is_told && !is_running && !is_forgotten && !passed(record, slot), SlotViolation::Silenced);
    }

    /// Every slot that is accounted for ended in one way.
    fn note_accounts(&mut self, record: &Record) {
        let Some(timing) = &record.timing else { return };
        let Some(evaluated) = timing.evaluated else { return };
        let first = Wall(timing.since.0.max(START.0)).max(self.forgotten.unwrap_or(START));
        let mut slot = START;
        while slot <= evaluated {
            let attempts = record.ledger.ring.iter().filter(|outcome| is_attempt(outcome, slot)).count();
            let running = record.lease.as_ref().is_some_and(|lease| lease.slot == slot || covers(lease.covers, slot));
            let is_covered = |outcome: &Outcome| outcome.status != Status::Missed && covers(outcome.covers, slot);
            let covered = record.ledger.ring.iter().any(is_covered);
            let ranges = missed(record).filter(|outcome| is_within(outcome, slot)).count();
            let has_ended = attempts > 0 || running || covered || passed(record, slot);
            self.note(slot > first && !has_ended && ranges == 0, SlotViolation::Silent);
            self.note(!has_ended && ranges > 1, SlotViolation::MissedAndRun);
            slot = slot + MINUTE;
        }
        for outcome in missed(record) {
            let Some(range) = outcome.covers else { continue };
            let slots = range.to.since(range.from).as_secs() / MINUTE.as_secs() + 1;
            self.note(range.count == 0 || range.count > slots || outcome.slot != range.to, SlotViolation::Miscounted);
        }
    }
}

fn covers(covered: Option<fencepost_core::ledger::Covered>, slot: Wall) -> bool {
    covered.is_some_and(|covered| (covered.from..=covered.to).contains(&slot))
}

fn stands_for(outcome: &Outcome, slot: Wall) -> bool {
    outcome.slot == slot || covers(outcome.covers, slot)
}

fn is_attempt(outcome: &Outcome, slot: Wall) -> bool {
    outcome.slot == slot && outcome.status != Status::Missed
}

fn missed(record: &Record) -> impl Iterator<Item = &Outcome> {
    record.ledger.ring.iter().filter(|outcome| outcome.status == Status::Missed)
}

fn is_within(outcome: &Outcome, slot: Wall) -> bool {
    covers(outcome.covers, slot)
}

/// Whether the slot passed while a run was going that came to an end of its own.
fn passed(record: &Record, slot: Wall) -> bool {
    let ran = record.ledger.ring.iter().filter(|outcome| !matches!(outcome.status, Status::Missed | Status::Lost));
    let ended = |outcome: &Outcome| outcome.started + outcome.took.unwrap_or_default();
    ran.into_iter().any(|outcome| outcome.started < slot && slot < ended(outcome) && slot > outcome.slot)
}

/// The newest slot at a moment. A run that is recorded for the moment it began at was for the slot before.
fn slot_of(at: Wall) -> Wall {
    Wall(at.0 - at.since(START).as_millis() as i64 % MINUTE.as_millis() as i64)
}
