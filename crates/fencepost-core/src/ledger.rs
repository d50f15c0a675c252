//! The ledger: the outcome of each run, and the ring of recent outcomes in a job's record.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, Fingerprint};
use crate::definition::DefinitionDigests;
use crate::format::Unknown;
use crate::said::Published;
use crate::time::{Wall, as_millis_if_any};
use crate::token::{RunId, Token};

/// How many outcomes a record keeps after an eviction, if they fit.
pub const RING_OUTCOMES_KEPT: usize = 32;

/// The capacity of the ring. A full ring evicts down to [`RING_OUTCOMES_KEPT`] at once: evicting one at a time would
/// cost every run a write.
pub const RING_OUTCOMES_MAX: usize = 40;

/// The most ranges that a record keeps after their outcomes left the ring.
pub const RANGES_MAX: usize = 16;

/// The most bytes of a note kept in the record.
pub const NOTE_BYTES_MAX: usize = 256;

/// The most artifacts, and the most upstreams, of one outcome kept in the record. All of them are in the history.
pub const LISTED_MAX: usize = 8;

/// The most bytes of a note that are kept at all.
pub const WHOLE_NOTE_BYTES_MAX: usize = 8 * 1024;

/// The state a slot ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Empty,
    Error,
    Timeout,
    /// The run lost its lease, or died without a report.
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

    /// Whether this is the end of a run. `missed` and skips are not.
    pub fn is_of_a_run(self) -> bool {
        let skipped = matches!(self, Self::SkippedOverlap | Self::SkippedDuplicate | Self::SkippedPaused);
        !skipped && self != Self::Missed
    }

    /// Whether this is the end of a command. A halt starts none, and the command of a lost run has an unknown end.
    fn is_of_a_command(self) -> bool {
        matches!(self, Self::Ok | Self::Empty) || self.is_failure()
    }

    /// Whether the job did what it should.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Ok | Self::Empty)
    }

    /// Whether this is a failure of the command.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Error | Self::Timeout | Self::Fenced)
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
    /// The command certainly never started.
    pub unstarted: bool,
    pub ended_by: EndedBy,
    /// How long the run took by its wrapper's boot clock, if a wrapper measured it.
    pub took: Option<Duration>,
    /// The command never started, or its end says nothing about the command: a signal to fencepost or the death of the
    /// keeper ended it.
    pub cut_short: bool,
    pub note: Option<String>,
    pub artifacts: Vec<Artifact>,
    /// The upstream attempts it read.
    pub upstreams: Vec<Consumed>,
    /// The upstreams that halted or skipped it.
    pub barred: Vec<Barred>,
    /// Publishes of the run, accepted or refused.
    pub published: Vec<Published>,
    /// The job's definition, of a run that ended well.
    pub definition: Option<Box<DefinitionDigests>>,
}

impl Ending {
    pub fn new(status: Status, ended_by: EndedBy) -> Self {
        Self {
            status,
            exit_code: None,
            unstarted: false,
            ended_by,
            took: None,
            cut_short: false,
            note: None,
            artifacts: Vec::new(),
            upstreams: Vec::new(),
            barred: Vec::new(),
            published: Vec::new(),
            definition: None,
        }
    }

    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// Whether it uses one of its slot's attempts: the command started, and its own exit, the timeout or the fence ended
    /// it. A record by hand counts as well. A halt, a failed `prepare`, a command that cannot be executed, a run ended by
    /// a signal to fencepost and a run that died use none.
    pub fn is_attempt(&self) -> bool {
        !self.cut_short && self.status.is_of_a_command()
    }
}

/// An upstream attempt on which a run proceeded, and the bytes it was to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Consumed {
    pub job: String,
    pub slot: Wall,
    pub run: RunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Fingerprint>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// An upstream that halted or skipped a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Barred {
    pub job: String,
    /// Whether it halted the run; otherwise it skipped it.
    pub halt: bool,
    pub reason: String,
}

/// One line of the ledger: a run and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// The command certainly never started.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unstarted: bool,
    pub started: Wall,
    pub finished: Wall,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub ended_by: EndedBy,
    /// How many attempts its slot has had, up to and including this one. Absent in outcomes from before attempts were
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// How long the run took by its wrapper's boot clock, if a wrapper measured it.
    #[serde(rename = "took_ms", default, skip_serializing_if = "Option::is_none", with = "as_millis_if_any")]
    pub took: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<Consumed>,
    /// Further slots that this outcome covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covers: Option<Covered>,
    /// The note or a list is shortened here. The history has it in full.
    #[serde(default, skip_serializing_if = "is_false")]
    pub clipped: bool,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A range of slots: missed ones, or those that one run covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Covered {
    pub from: Wall,
    pub to: Wall,
    pub count: u64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Identifies an outcome.
pub type Attempt = (Wall, Token, RunId);

impl Outcome {
    /// Identifies this attempt.
    ///
    /// Slots that a run found missed are recorded under its token too, with another slot.
    pub fn attempt(&self) -> Attempt {
        (self.slot, self.token, self.run)
    }

    /// The duration of the run by the boot clock, or by the wall clock if only that was read.
    pub fn length(&self) -> Duration {
        self.took.unwrap_or_else(|| self.finished.since(self.started))
    }

    /// When the run ended: its start plus its duration. The wall clock may have been wrong at the end.
    pub fn ended(&self) -> Wall {
        self.took.map_or(self.finished, |took| self.started + took)
    }

    /// The exit code of a failed run, never 0.
    pub fn failure_code(&self) -> i32 {
        match (self.status, self.exit_code) {
            (Status::Timeout, _) => 124,
            (Status::Fenced, _) => 113,
            (_, Some(0)) if self.ended_by == EndedBy::Fencepost => 118,
            (_, None | Some(0)) => 1,
            (_, Some(code)) => code,
        }
    }

    /// Whether it covers a slot of this stretch: its own or one of its range.
    pub fn is_within(&self, from: Wall, to: Wall) -> bool {
        let covered = self.covers.is_some_and(|covers| covers.from <= to && from <= covers.to);
        covered || (from..=to).contains(&self.slot)
    }

    /// The attempts it adds if it was written before attempts were counted.
    fn uncounted(&self) -> u32 {
        let never_started = self.ended_by == EndedBy::Fencepost && matches!(self.exit_code, Some(126 | 127));
        u32::from(self.status.is_of_a_command() && !never_started)
    }

    /// The outcome without note, artifacts and upstreams.
    pub fn bare(mut self) -> Self {
        self.clipped |= self.note.is_some() || !self.artifacts.is_empty() || !self.upstreams.is_empty();
        (self.note, self.artifacts, self.upstreams) = (None, Vec::new(), Vec::new());
        self
    }

    /// The outcome shortened for the record.
    pub fn clipped(mut self) -> Self {
        let long_note = self.note.as_ref().is_some_and(|note| note.len() > NOTE_BYTES_MAX);
        self.clipped |= long_note || self.artifacts.len() > LISTED_MAX || self.upstreams.len() > LISTED_MAX;
        self.note = self.note.map(|note| cut(&note, NOTE_BYTES_MAX));
        self.artifacts.truncate(LISTED_MAX);
        self.upstreams.truncate(LISTED_MAX);
        self
    }
}

/// The recent outcomes of a job, the last good one, and the total of each status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ledger {
    /// Oldest first, at most [`RING_OUTCOMES_MAX`].
    pub ring: Vec<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ok: Option<Outcome>,
    /// The newest slot evicted from the ring. For slots up to here that are not in the ring, ask the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<Wall>,
    /// The ranges of slots whose outcomes left the ring, oldest first, at most [`RANGES_MAX`]. The history has each
    /// outcome under the range's last slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<Covered>,
    pub counts: BTreeMap<Status, u64>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Ledger {
    /// Records an outcome once: a grant that is already in the ring stays as it is. A run that lost its lease before it
    /// started may have got a second grant, and ends under that one too.
    ///
    /// Afterwards the ring may exceed [`RING_OUTCOMES_MAX`]. The caller that swaps the record writes the excess to the
    /// history first.
    pub fn push(&mut self, outcome: Outcome) {
        if self.has(outcome.attempt()) {
            return;
        }
        let outcome = outcome.clipped();
        *self.counts.entry(outcome.status).or_default() += 1;
        if outcome.status == Status::Ok {
            self.last_ok = Some(outcome.clone());
        }
        self.ring.push(outcome);
    }

    /// Removes an outcome from the ring. Write it to the history first.
    pub fn give_up(&mut self, place: usize) -> Outcome {
        let outcome = self.ring.remove(place);
        self.given_up = self.given_up.max(Some(outcome.slot));
        if let Some(range) = outcome.covers.filter(|range| range.count > 1) {
            self.ranges.push(range);
            let over = self.ranges.len().saturating_sub(RANGES_MAX);
            self.ranges.drain(..over);
        }
        outcome
    }

    pub fn last(&self) -> Option<&Outcome> {
        self.ring.last()
    }

    /// Whether the ring holds this attempt.
    pub fn has(&self, attempt: Attempt) -> bool {
        self.ring.iter().any(|known| known.attempt() == attempt)
    }

    pub fn of_run(&self, run: RunId) -> Option<&Outcome> {
        self.ring.iter().rev().find(|outcome| outcome.run == run && outcome.status.is_of_a_run())
    }

    /// The attempts of a slot that the ring holds, oldest first. The last of them is the slot's outcome.
    pub fn attempts(&self, slot: Wall) -> impl DoubleEndedIterator<Item = &Outcome> {
        self.ring.iter().filter(move |outcome| outcome.slot == slot && outcome.status != Status::Missed)
    }

    /// The number of attempts made, as counted in the outcomes.
    pub fn tries(&self, counts: impl Fn(&Outcome) -> bool) -> u32 {
        let counted = self.ring.iter().filter(|outcome| outcome.status != Status::Missed && counts(outcome));
        counted.fold(0, |before, outcome| match outcome.tries {
            Some(tries) => before.max(tries),
            None => before + outcome.uncounted(),
        })
    }

    /// How many good runs in a row, up to the newest, left exactly these artifacts.
    pub fn repeats(&self, artifacts: &[Artifact]) -> u64 {
        let good = self.ring.iter().rev().filter(|outcome| outcome.status == Status::Ok);
        good.take_while(|outcome| !artifacts.is_empty() && outcome.artifacts == artifacts).count() as u64
    }

    /// Whether this run is recorded with exactly this ending.
    pub fn shows(&self, token: Token, run: RunId, ending: &Ending) -> bool {
        let note = ending.note.as_deref().map(|note| cut(note, NOTE_BYTES_MAX));
        self.ring.iter().rev().any(|outcome| {
            (outcome.token, outcome.run) == (token, run)
                && (outcome.status, outcome.exit_code) == (ending.status, ending.exit_code)
                && (outcome.ended_by, &outcome.note) == (ending.ended_by, &note)
        })
    }

    /// The status of the last outcome, and how many in a row have it.
    pub fn streak(&self) -> Option<(Status, u64)> {
        let status = self.last()?.status;
        let count = self.ring.iter().rev().take_while(|outcome| outcome.status == status).count();
        Some((status, count as u64))
    }
}

/// The first `bytes_max` bytes of a text, cut at a character boundary.
pub fn cut(note: &str, bytes_max: usize) -> String {
    if note.len() <= bytes_max {
        return note.to_string();
    }
    let mut end = bytes_max - '…'.len_utf8();
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
            unstarted: false,
            started: Wall(0),
            finished: Wall(0),
            exit_code: None,
            ended_by: EndedBy::Child,
            tries: None,
            took: None,
            note: None,
            artifacts: Vec::new(),
            upstreams: Vec::new(),
            covers: None,
            clipped: false,
            unknown: Unknown::default(),
        }
    }

    #[test]
    fn everything_is_counted_and_the_last_good_outcome_stays() {
        let mut ledger = Ledger::default();
        ledger.push(outcome(0, Status::Ok));
        for number in 1..=100 {
            ledger.push(outcome(number, Status::Error));
        }
        assert_eq!(ledger.last_ok.as_ref().map(|o| o.run), Some(RunId(Uuid::from_u128(0))));
        assert_eq!(ledger.counts[&Status::Error], 100);
        assert_eq!(ledger.streak(), Some((Status::Error, 100)));
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
