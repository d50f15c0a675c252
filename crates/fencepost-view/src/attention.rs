//! What needs a person's attention, and which command tells more: one rule for `status`, `status --check`, pages and
//! endpoints.
//!
//! A job needs attention while its newest outcome is bad, also while another run of it is going: only a good outcome
//! ends it. A job that is paused or disabled, had nothing to do, or was skipped now and then, does not.

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::record::{Record, Seal};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{ErrorDetail, JobMistakes};
use crate::overdue::{ExpectedJob, OverdueJob};
use crate::status::JobState;
use crate::text;
use crate::vocabulary::words;

/// So many skips in a row need attention, unless the job's `on_skips` names another number.
pub const SKIPS_IN_A_ROW: u64 = 10;

/// The most characters of a note that a sentence repeats.
const NOTE_CHARACTERS_MAX: usize = 80;

words! {
    /// Why something needs attention, the most urgent first.
    AttentionReason {
        /// No job begins in this store.
        Sealed = "sealed",
        /// A record cannot be read.
        Unreadable = "unreadable",
        /// The job does not run because of a mistake in its configuration.
        Misconfigured = "misconfigured",
        /// Its newest run had a stale write refused.
        Fenced = "fenced",
        /// Its newest run died, or lost its lease.
        Lost = "lost",
        /// Its newest run failed.
        Error = "error",
        /// Its newest run exceeded its timeout.
        Timeout = "timeout",
        /// A slot passed with nothing recorded.
        Overdue = "overdue",
        /// An upstream halted it.
        Halted = "halted",
        /// Its newest slots were missed.
        Missed = "missed",
        /// Many triggers in a row were skipped because one run is still going.
        Skips = "skips",
    }
}

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Attention {
    pub reason: AttentionReason,
    /// The job; null if it is about the store.
    pub job: Option<String>,
    /// Why, in a sentence.
    pub sentence: String,
    /// The command that tells more.
    pub command: Option<String>,
}

/// What the rule has to know of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionCase<'a> {
    pub job: &'a str,
    pub record: Option<&'a Record>,
    pub state: JobState,
    /// The job in the configuration, if it is there.
    pub expected: Option<&'a ExpectedJob>,
    pub overdue: Option<&'a OverdueJob>,
    /// How many triggers in a row the run that is going has caused to skip.
    pub skips_in_a_row: Option<u64>,
    pub zone: &'a Zone,
    pub now: Wall,
}

/// Why a job needs attention, the most urgent reason first.
pub(crate) fn of_job(case: &AttentionCase<'_>) -> Vec<Attention> {
    if case.expected.is_some_and(|expected| !expected.enabled) {
        return Vec::new();
    }
    let mut found: Vec<Attention> = [ended_badly(case), overdue(case), skipped(case)].into_iter().flatten().collect();
    found.sort_by_key(|attention| attention.reason);
    found
}

/// Why the store itself needs attention.
pub(crate) fn of_store(sealed: Option<&Seal>, errors: &[ErrorDetail]) -> Vec<Attention> {
    let of_store =
        |reason, sentence: String| Attention { reason, job: None, sentence: closed(sentence), command: None };
    let sealed = sealed.map(|seal| of_store(AttentionReason::Sealed, seal.to_string()));
    let unread = errors.iter().map(|error| of_store(AttentionReason::Unreadable, text::flat(&error.message)));
    sealed.into_iter().chain(unread).collect()
}

/// A job that does not run because of its mistakes.
pub(crate) fn of_broken(broken: &JobMistakes, job: &str, config: Option<&str>) -> Attention {
    let (reason, sentence) = (AttentionReason::Misconfigured, closed(text::flat(&broken.sentence(config))));
    Attention { reason, job: Some(job.to_string()), sentence, command: Some("fencepost validate".to_string()) }
}

impl AttentionCase<'_> {
    fn attention(&self, reason: AttentionReason, sentence: String, command: String) -> Attention {
        Attention { reason, job: Some(self.job.to_string()), sentence, command: Some(command) }
    }

    fn why(&self) -> String {
        format!("fencepost why {}", self.job)
    }

    /// A moment that is not an age: the same question has the same answer a second later.
    fn moment(&self, at: Wall) -> String {
        text::near(at, self.now, self.zone)
    }
}

/// The newest outcome is bad, or the newest run did not end properly.
fn ended_badly(case: &AttentionCase<'_>) -> Option<Attention> {
    let (record, job) = (case.record?, case.job);
    if let Some(lease) = record.lease.as_ref().filter(|lease| case.state == JobState::Lost && lease.holder.is_run()) {
        let (host, begun) = (text::flat(&lease.holder.host), case.moment(lease.since));
        let sentence =
            format!("A run of {job} on {host}, begun at {begun}, did not end properly; the next run takes over.");
        return Some(case.attention(AttentionReason::Lost, sentence, case.why()));
    }
    let last = newest(record)?;
    let at = case.moment(last.finished);
    let (reason, what) = match last.status {
        Status::Error => (AttentionReason::Error, format!("{job} failed{} at {at}", exit(last))),
        Status::Timeout => (AttentionReason::Timeout, format!("{job} ran into its timeout at {at}")),
        Status::Lost => (AttentionReason::Lost, format!("{job} died or lost its lease at {at}")),
        Status::Fenced => (AttentionReason::Fenced, format!("{job} had a stale write refused at {at}")),
        Status::Halted => (AttentionReason::Halted, format!("{job} was halted at {at}")),
        Status::Missed => {
            let slots = last.covers.map_or(1, |covers| covers.count);
            let slots = if slots == 1 { "a slot".to_string() } else { format!("{slots} slots") };
            (AttentionReason::Missed, format!("{job} missed {slots}, found at {at}"))
        }
        Status::Ok | Status::Empty | Status::Running => return None,
        Status::SkippedOverlap | Status::SkippedBarrier | Status::SkippedDuplicate | Status::SkippedPaused => {
            return None;
        }
    };
    let in_a_row = record.ledger.ring.iter().rev().take_while(|outcome| outcome.status == last.status).count();
    let often = if in_a_row > 1 { format!(", {in_a_row} times in a row") } else { String::new() };
    let barred = || record.upstreams.values().filter(|gauge| gauge.halts > 0).max_by_key(|gauge| gauge.at);
    let barred = || barred().filter(|_| last.status == Status::Halted).map(|gauge| gauge.reason.as_str());
    let note = last.note.as_deref().or_else(barred);
    let note = note.map_or_else(String::new, |note| format!(": {}", shortened(note)));
    let going = if case.state == JobState::Running { " A run of it is going now." } else { "" };
    let sentence = format!("{}{going}", closed(format!("{what}{often}{note}")));
    Some(case.attention(reason, sentence, case.why()))
}

/// The newest outcome that says how the job is. A skipped trigger says nothing of it.
fn newest(record: &Record) -> Option<&Outcome> {
    let is_skip = |status| matches!(status, Status::SkippedOverlap | Status::SkippedDuplicate | Status::SkippedPaused);
    record.ledger.ring.iter().rev().find(|outcome| !is_skip(outcome.status))
}

fn exit(outcome: &Outcome) -> String {
    outcome.exit_code.map_or_else(String::new, |code| format!(" (exit {code})"))
}

fn overdue(case: &AttentionCase<'_>) -> Option<Attention> {
    let overdue = case.overdue?;
    let sentence = overdue.sentence(case.now);
    Some(case.attention(AttentionReason::Overdue, sentence, "fencepost validate --installed".to_string()))
}

fn skipped(case: &AttentionCase<'_>) -> Option<Attention> {
    let limit = case.expected.and_then(|expected| expected.on_skips).unwrap_or(SKIPS_IN_A_ROW);
    let count = case.skips_in_a_row.filter(|count| *count >= limit)?;
    let lease = case.record?.lease.as_ref()?;
    let (host, since) = (text::flat(&lease.holder.host), case.moment(lease.since));
    let sentence = format!(
        "{count} triggers of {} in a row were skipped: its run on {host} has been going since {since}.",
        case.job
    );
    Some(case.attention(AttentionReason::Skips, sentence, case.why()))
}

fn shortened(note: &str) -> String {
    let flat = text::flat(note);
    match flat.char_indices().nth(NOTE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", flat[..end].trim_end()),
        None => flat,
    }
}

/// A sentence ends.
fn closed(text: String) -> String {
    if text.ends_with(['.', '!', '?', '…']) { text } else { format!("{text}.") }
}
