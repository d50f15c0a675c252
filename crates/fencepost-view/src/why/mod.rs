//! What became of a slot and why, step by step, from the ledger.

mod words;

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::name::{Job, Name};
use fencepost_core::nearest::nearest;
use fencepost_core::record::{Lease, Record};
use fencepost_core::schedule::Schedule;
use fencepost_core::skips::Skips;
use fencepost_core::slot::Timing;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::waiting::WaitingRun;
use fencepost_core::zone::Zone;
use fencepost_store::records::{history_and_details, look, skips};
use fencepost_store::{Key, Store, StoreError};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, RunAnswer};
use crate::archive::{Slots, next_slot};
use crate::moment::Moment;
use crate::output::KeptOutput;
use crate::time::LocalTime;
use crate::unread::{Unread, each_record, each_whole_record};
use crate::vocabulary::WordSchema;
use crate::waiting::{self, Leases};
use crate::{View, ViewError, recorded_schedule, remaining, text};

/// `why`: the newest slot of a job at or before an instant, its attempts, and the explanation in sentences.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WhyAnswer {
    pub v: AnswerVersion,
    pub job: String,
    pub slot: Option<LocalTime>,
    pub date: Option<String>,
    pub timezone: Option<String>,
    #[schemars(with = "Option<WordSchema<Status>>")]
    pub status: Option<Status>,
    pub sentences: Vec<Sentence>,
    /// All attempts of the slot, in the order of their tokens.
    pub attempts: Vec<RunAnswer>,
    /// The last lines that the slot's last attempt printed, if they are kept on this host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_output: Vec<String>,
}

/// The subject of a sentence that shows what a run printed, or where that is kept.
pub const OUTPUT: &str = "output";

impl WhyAnswer {
    /// Removes what jobs printed.
    pub fn withhold_output(&mut self) {
        if !self.last_output.is_empty() {
            self.last_output.clear();
            self.sentences.retain(|sentence| sentence.about != OUTPUT);
        }
    }
}

/// One step of the explanation, and its subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sentence {
    pub about: &'static str,
    pub text: String,
}

impl Sentence {
    fn new(about: &'static str, text: impl Into<String>) -> Self {
        Self { about, text: text.into() }
    }
}

/// Which slot of which job is asked about.
#[derive(Clone)]
pub struct WhyQuery<'a> {
    /// The job as it was typed.
    pub typed: &'a Job,
    /// The job that is looked up first: this host's own, where the configuration says so.
    pub job: Job,
    pub at: Option<Moment>,
    /// The zone of `at`. Otherwise it is the zone of the job's newest run.
    pub zone: Option<Zone>,
    /// The jobs of the configuration.
    pub configured: Vec<Name>,
    /// When the job is due by the configuration, if it is enabled.
    pub schedule: Option<Schedule>,
    /// `retries` of the job in the configuration.
    pub retries: Option<u32>,
    /// The output of runs on this host.
    pub output: &'a dyn KeptOutput,
}

impl std::fmt::Debug for WhyQuery<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WhyQuery").field("job", &self.job).field("at", &self.at).finish_non_exhaustive()
    }
}

impl View<'_> {
    /// Explains a slot. A job that neither the store nor the configuration knows is an error that names the nearest one.
    pub fn why(&self, query: &WhyQuery<'_>) -> Result<WhyAnswer, ViewError> {
        let Some((record, clock)) = self.find(query)? else {
            let is_configured = query.configured.contains(&query.typed.name);
            let text = match self.config.as_deref().filter(|_| is_configured) {
                Some(path) => format!("{} is a job of {path}, but has never run on this store.", query.typed),
                None => format!("{} has never run on this store.", query.typed),
            };
            let waits = self.waits_of(&query.job, query.zone.as_ref().unwrap_or(&Zone::utc()))?;
            let mistakes = self.mistakes(query).collect::<Vec<_>>();
            let can_run = is_configured && mistakes.is_empty();
            let first = can_run.then(|| words::first_run(&query.typed.name, query.schedule.as_ref(), self.now));
            let nothing = Sentence::new("nothing", text);
            let sentences = mistakes.into_iter().chain([nothing]).chain(first).chain(waits).collect();
            return Ok(WhyAnswer {
                v: AnswerVersion,
                job: query.typed.to_string(),
                slot: None,
                date: None,
                timezone: None,
                status: None,
                sentences,
                attempts: Vec::new(),
                last_output: Vec::new(),
            });
        };
        let zone = query.zone.clone().unwrap_or_else(|| newest_zone(&record));
        let waits = self.waits_of(&record.job, &zone)?;
        let mut case = Case::of(self, record, clock.as_ref(), query.at.clone(), zone)?;
        case.retries = query.retries;
        case.printed = case.last_run().map(|(host, slot, run)| Printed {
            lines: query.output.last_lines(&case.record.job, slot, &run),
            is_elsewhere: host != query.output.host(),
            run,
            host,
        });
        let mut answer = case.answer();
        answer.sentences.splice(0..0, self.mistakes(query));
        answer.sentences.extend(waits);
        Ok(answer)
    }

    /// Says for which job this one waits, and which wait for it.
    fn waits_of(&self, job: &Job, zone: &Zone) -> Result<Vec<Sentence>, StoreError> {
        let mut leases = Leases::default();
        if !self.waiting.is_empty() {
            // The job that is waited for may run others inside it: all leases are needed to name them.
            each_whole_record(self.store, Key::JOBS, &mut Unread::default(), |_, record, _| {
                leases.add(&record);
                Ok(())
            })?;
        }
        let name = job.to_string();
        let waits = waiting::waits(&self.waiting, &self.store_url, &leases, |_| Some(zone.clone()));
        let of_job = waits.into_iter().filter(|wait| wait.job == name || wait.waits_for == name);
        Ok(of_job.map(|wait| Sentence::new("waiting", wait.sentence())).collect())
    }

    /// Says that the configuration's mistakes keep the job from running.
    fn mistakes(&self, query: &WhyQuery<'_>) -> impl Iterator<Item = Sentence> {
        let broken = self.broken_jobs(Some(&query.typed.name));
        broken.map(|broken| Sentence::new("configuration", broken.sentence(self.config.as_deref())))
    }

    /// The record of the job; `None` if only the configuration names it, or it waits for its first run.
    fn find(&self, query: &WhyQuery<'_>) -> Result<Option<(Record, Option<StoreClock>)>, ViewError> {
        let typed = query.typed;
        if let (Some(record), clock) = look(self.store, &query.job)?
            && !record.is_hidden()
        {
            return Ok(Some((record.remembered().into_owned(), clock)));
        }
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut same_name = Vec::new();
        // An unreadable record belongs to another job: this one's was read by its key.
        each_record(self.store, &mut Unread::default(), |_, record, _| {
            known.insert(record.job.to_string());
            if record.job.name == typed.name && typed.host().is_none() {
                same_name.push(record.job);
            }
            Ok(())
        })?;
        match same_name.as_slice() {
            [only] => {
                if let (Some(record), clock) = look(self.store, only)? {
                    return Ok(Some((record, clock)));
                }
            }
            [] => {}
            [first, ..] => {
                let all: Vec<_> = same_name.iter().map(Job::to_string).collect();
                let all = all.join(", ");
                let text = format!("{typed} is each host's own: {all}. Name one, as in: why {first}");
                return Err(ViewError::Question(text));
            }
        }
        let name = Some(query.job.to_string());
        let waits = |run: &WaitingRun| Some(&run.job) == name.as_ref() || run.then == name;
        let is_waiting = self.waiting.iter().any(|run| run.store == self.store_url && waits(run));
        if is_waiting || query.configured.contains(&typed.name) {
            return Ok(None);
        }
        known.extend(query.configured.iter().map(Name::to_string));
        let typed = typed.to_string();
        let near = nearest(&typed, known.iter().map(String::as_str));
        let text = text::unknown_job(&typed, self.config.as_deref(), Some(&self.store_url), near);
        Err(ViewError::Question(text))
    }
}

/// The zone of the job's newest run.
fn newest_zone(record: &Record) -> Zone {
    let zone = record.lease.as_ref().map(|lease| &lease.zone).or(record.ledger.last().map(|last| &last.zone));
    zone.map_or_else(Zone::utc, |zone| text::zone(zone))
}

/// A slot of a job, and everything that is known of it.
struct Case {
    record: Record,
    /// The zone of the question.
    asked_in: Zone,
    at: Option<Moment>,
    slot: Option<Wall>,
    /// The ended attempts of the slot, in the order of their tokens.
    attempts: Vec<Outcome>,
    /// The lease of a run for this slot that has not ended.
    going: Option<Lease>,
    is_over: bool,
    remaining: Option<Duration>,
    /// The triggers that were skipped.
    skips: Option<Skips>,
    /// `retries` of the job in the configuration.
    retries: Option<u32>,
    /// The output of the last attempt.
    printed: Option<Printed>,
    now: Wall,
}

/// What is known of the output of a run.
struct Printed {
    run: String,
    host: String,
    lines: Vec<String>,
    is_elsewhere: bool,
}

impl Case {
    fn of(
        view: &View<'_>,
        record: Record,
        clock: Option<&StoreClock>,
        at: Option<Moment>,
        asked_in: Zone,
    ) -> Result<Self, StoreError> {
        let record = view.current(record);
        let is_over = view.is_over(&record, clock);
        let remaining = remaining(&record, clock);
        let before = at.as_ref().map_or(Wall(i64::MAX), |at| at.end(&asked_in));
        let slot = newest(view.store, &record, before)?;
        let attempts = slot.map(|slot| attempts(view.store, &record, slot)).transpose()?.unwrap_or_default();
        let going = crate::answer::unrecorded(&record).filter(|lease| Some(lease.slot) == slot).cloned();
        let skips = skips(view.store, &record.job)?;
        Ok(Self {
            record,
            asked_in,
            at,
            slot,
            attempts,
            going,
            is_over,
            remaining,
            skips,
            retries: None,
            printed: None,
            now: view.now,
        })
    }

    fn answer(&self) -> WhyAnswer {
        let (zone, record) = (self.zone(), &self.record);
        let ended = self.attempts.iter().map(|attempt| RunAnswer::ended(record, attempt));
        let going = self.going.as_ref().and_then(|_| RunAnswer::unrecorded(record, self.is_over));
        WhyAnswer {
            v: AnswerVersion,
            job: record.job.to_string(),
            slot: self.slot.map(|slot| LocalTime::new(slot, &zone)),
            date: self.slot.map(|slot| zone.date(slot).to_string()),
            timezone: self.slot.map(|_| zone.to_string()),
            status: self.status(),
            sentences: words::all(self),
            attempts: ended.chain(going).collect(),
            last_output: self.printed.as_ref().map(|printed| printed.lines.clone()).unwrap_or_default(),
        }
    }

    /// The host, the slot and the id of the run that ended last, or is going.
    fn last_run(&self) -> Option<(String, Wall, String)> {
        let going = self.going.as_ref().map(|lease| (&lease.holder.host, lease.slot, lease.run));
        let ended = self.attempts.last().filter(|attempt| attempt.status != Status::Missed);
        let (host, slot, run) = going.or(ended.map(|attempt| (&attempt.host, attempt.slot, attempt.run)))?;
        Some((host.clone(), slot, run.to_string()))
    }

    /// The schedule of the job's newest trigger, and how far it was evaluated.
    fn schedule(&self) -> Option<(Schedule, &Timing)> {
        Some((recorded_schedule(&self.record)?, self.record.timing.as_ref()?))
    }

    /// The zone of the slot.
    fn zone(&self) -> Zone {
        let newest = self.attempts.last().map(|attempt| attempt.zone.as_str());
        let going = self.going.as_ref().map(|lease| lease.zone.as_str());
        going.or(newest).map_or_else(|| self.asked_in.clone(), text::zone)
    }

    /// What became of the slot.
    fn status(&self) -> Option<Status> {
        let ended = self.attempts.last().map(|attempt| attempt.status);
        match &self.going {
            Some(_) if self.is_over => Some(Status::Lost),
            Some(_) => Some(Status::Running),
            None => ended,
        }
    }

    /// The run that an attempt took over from, because it had not ended properly.
    fn taken_over(&self, attempt: &Outcome) -> Option<&Outcome> {
        let words = format!("run {} took over", attempt.run);
        let known = self.attempts.iter().chain(&self.record.ledger.ring);
        let mut lost = known.filter(|known| known.status == Status::Lost);
        lost.find(|lost| lost.note.as_ref().is_some_and(|note| note.contains(&words)))
    }
}

/// The newest slot before an instant. A later slot stands for an earlier one if it covers it.
fn newest(store: &dyn Store, record: &Record, before: Wall) -> Result<Option<Wall>, StoreError> {
    let last = Wall(before.0.saturating_sub(1));
    let ledger = &record.ledger;
    let known = ledger.ring.iter().chain(&ledger.last_ok);
    let covering = known.clone().find(|outcome| covers(outcome, last)).map(|outcome| outcome.slot);
    let going = crate::answer::unrecorded(record).map(|lease| lease.slot);
    let slots = known.map(|outcome| outcome.slot).chain(going);
    let in_record = slots.filter(|slot| *slot < before).max();
    if covering.is_some() && in_record != Some(last) {
        return Ok(covering);
    }
    let from = in_record.unwrap_or(Wall(i64::MIN));
    let older = Slots::between(store, &record.job, from, before, in_record.unwrap_or(before))?.next_from(from)?;
    let newest = older.max(in_record);
    if newest == Some(last) {
        return Ok(newest);
    }
    // The slot that follows may be recorded for all that were missed before it.
    if let Some(next) = next_slot(store, &record.job, last)?
        && history_and_details(store, record, next)?.iter().any(|outcome| covers(outcome, last))
    {
        return Ok(Some(next));
    }
    Ok(newest)
}

fn covers(outcome: &Outcome, slot: Wall) -> bool {
    outcome.slot > slot && outcome.covers.is_some_and(|covers| (covers.from..=covers.to).contains(&slot))
}

/// All attempts of a slot, in the order of their tokens. Where the record cut one short, the history has it whole.
fn attempts(store: &dyn Store, record: &Record, slot: Wall) -> Result<Vec<Outcome>, StoreError> {
    let mut attempts = history_and_details(store, record, slot)?;
    let last_ok = record.ledger.last_ok.iter().filter(|last| last.slot == slot);
    let in_ring = record.ledger.ring.iter().filter(|outcome| outcome.slot == slot);
    for outcome in in_ring.chain(last_ok) {
        if attempts.iter().all(|known| known.attempt() != outcome.attempt()) {
            attempts.push(outcome.clone());
        }
    }
    attempts.sort_by_key(Outcome::attempt);
    Ok(attempts)
}
