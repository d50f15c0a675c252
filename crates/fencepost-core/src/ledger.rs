//! How runs end: the outcome of each, and the ring of the most recent ones in a job's record.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::said::Published;
use crate::time::Wall;
use crate::token::{RunId, Token};

/// How many outcomes a job's record keeps.
pub const RING_OUTCOMES_MAX: usize = 32;

/// The most bytes of a note kept in the record.
pub const NOTE_BYTES_MAX: usize = 256;

/// The state a slot ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Empty,
    Error,
    Timeout,
    /// The run lost its lease, or died without a word.
    Lost,
    Fenced,
    Halted,
    Missed,
    SkippedOverlap,
    SkippedBarrier,
    SkippedDuplicate,
    SkippedPaused,
    Running,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Empty => "empty",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Fenced => "fenced",
            Self::Halted => "halted",
            Self::Missed => "missed",
            Self::SkippedOverlap => "skipped_overlap",
            Self::SkippedBarrier => "skipped_barrier",
            Self::SkippedDuplicate => "skipped_duplicate",
            Self::SkippedPaused => "skipped_paused",
            Self::Running => "running",
        }
    }

    pub const ALL: [Self; 13] = [
        Self::Ok,
        Self::Empty,
        Self::Error,
        Self::Timeout,
        Self::Lost,
        Self::Fenced,
        Self::Halted,
        Self::Missed,
        Self::SkippedOverlap,
        Self::SkippedBarrier,
        Self::SkippedDuplicate,
        Self::SkippedPaused,
        Self::Running,
    ];
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    Schedule,
    CatchUp,
    Manual,
}

impl Trigger {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::CatchUp => "catch_up",
            Self::Manual => "manual",
        }
    }
}

/// Who ended a run: the child by itself, or fencepost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    Child,
    Fencepost,
}

impl EndedBy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Child => "child",
            Self::Fencepost => "fencepost",
        }
    }
}

/// How a run ended, as its wrapper saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ending {
    pub status: Status,
    pub exit_code: Option<i32>,
    pub ended_by: EndedBy,
    pub note: Option<String>,
    /// What the run published, or tried to.
    pub published: Vec<Published>,
}

/// One line of the ledger: a run and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The instant the run was for. Identity is (job, slot).
    pub slot: Wall,
    /// The IANA zone whose civil date the slot belongs to.
    pub zone: String,
    pub status: Status,
    pub token: Token,
    pub run: RunId,
    pub host: String,
    pub trigger: Trigger,
    pub started: Wall,
    pub finished: Wall,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub ended_by: EndedBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The recent outcomes of a job, the last good one, and how many there ever were of each status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// Oldest first, at most [`RING_OUTCOMES_MAX`].
    pub ring: Vec<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ok: Option<Outcome>,
    pub counts: BTreeMap<Status, u64>,
}

impl Ledger {
    /// Writes an outcome down, once: a grant that is in the ring already stays as it is. A run that lost its lease
    /// before it started may have got a second one, and ends under that as well.
    pub fn push(&mut self, mut outcome: Outcome) {
        if self.ring.iter().any(|known| (known.token, known.run) == (outcome.token, outcome.run)) {
            return;
        }
        outcome.note = outcome.note.map(|note| clipped(&note));
        *self.counts.entry(outcome.status).or_default() += 1;
        if outcome.status == Status::Ok {
            self.last_ok = Some(outcome.clone());
        }
        self.ring.push(outcome);
        if self.ring.len() > RING_OUTCOMES_MAX {
            self.ring.remove(0);
        }
    }

    pub fn last(&self) -> Option<&Outcome> {
        self.ring.last()
    }

    pub fn of_run(&self, run: RunId) -> Option<&Outcome> {
        self.ring.iter().rev().find(|outcome| outcome.run == run)
    }

    /// Whether this run is written down with this very ending.
    pub fn shows(&self, token: Token, run: RunId, ending: &Ending) -> bool {
        let note = ending.note.as_deref().map(clipped);
        self.ring.iter().rev().any(|outcome| {
            (outcome.token, outcome.run) == (token, run)
                && (outcome.status, outcome.exit_code) == (ending.status, ending.exit_code)
                && (outcome.ended_by, &outcome.note) == (ending.ended_by, &note)
        })
    }

    /// The status of the last outcome, and how many of it came in a row.
    pub fn streak(&self) -> Option<(Status, u64)> {
        let status = self.last()?.status;
        let count = self.ring.iter().rev().take_while(|outcome| outcome.status == status).count();
        Some((status, count as u64))
    }
}

fn clipped(note: &str) -> String {
    if note.len() <= NOTE_BYTES_MAX {
        return note.to_string();
    }
    let mut end = NOTE_BYTES_MAX - '…'.len_utf8();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    let mut note = note[..end].to_string();
    note.push('…');
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn outcome(number: u128, status: Status) -> Outcome {
        Outcome {
            slot: Wall(0),
            zone: "UTC".to_string(),
            status,
            token: Token::new(1).unwrap(),
            run: RunId(Uuid::from_u128(number)),
            host: "h".to_string(),
            trigger: Trigger::Manual,
            started: Wall(0),
            finished: Wall(0),
            exit_code: None,
            ended_by: EndedBy::Child,
            note: None,
        }
    }

    #[test]
    fn the_ring_is_bounded_and_the_last_good_outcome_stays() {
        let mut ledger = Ledger::default();
        ledger.push(outcome(0, Status::Ok));
        for number in 1..=100 {
            ledger.push(outcome(number, Status::Error));
        }
        assert_eq!(ledger.ring.len(), RING_OUTCOMES_MAX);
        assert_eq!(ledger.last_ok.as_ref().map(|o| o.run), Some(RunId(Uuid::from_u128(0))));
        assert_eq!(ledger.counts[&Status::Error], 100);
        assert_eq!(ledger.streak(), Some((Status::Error, 32)));
    }

    #[test]
    fn a_run_ends_once() {
        let mut ledger = Ledger::default();
        ledger.push(outcome(7, Status::Lost));
        ledger.push(outcome(7, Status::Ok));
        assert_eq!(ledger.ring.len(), 1);
        assert_eq!(ledger.last().map(|o| o.status), Some(Status::Lost));
        assert_eq!(ledger.last_ok, None);
    }

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let mut long = outcome(1, Status::Error);
        long.note = Some("é".repeat(NOTE_BYTES_MAX));
        let mut ledger = Ledger::default();
        ledger.push(long);
        let note = ledger.last().unwrap().note.clone().unwrap();
        assert!(note.len() <= NOTE_BYTES_MAX && note.ends_with('…'), "{note}");
    }

    #[test]
    fn statuses_are_written_as_they_are_shown() {
        for status in Status::ALL {
            assert_eq!(serde_json::to_string(&status).unwrap(), alloc::format!("\"{status}\""));
        }
    }
}
