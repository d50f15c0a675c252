//! `fencepost why`: what became of a slot and why, step by step, from the ledger.

mod words;

use std::collections::BTreeSet;
use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::name::Job;
use fencepost_core::nearest::nearest;
use fencepost_core::record::{Lease, Record};
use fencepost_core::schedule::Schedule;
use fencepost_core::skips::Skips;
use fencepost_core::slot::Timing;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::zone::Zone;
use fencepost_guard::archive::{Slots, next_slot};
use fencepost_guard::clock;
use fencepost_guard::scout::history_and_details;
use fencepost_guard::transact::{look, skips};
use fencepost_store::Store;
use serde::Serialize;

use crate::args::{Global, WhyOptions};
use crate::calendar;
use crate::exit::{Code, Failure};
use crate::moment::Moment;
use crate::place::Place;
use crate::show::{self, RunJson};

pub fn run(global: &Global, options: &WhyOptions) -> Result<Code, Failure> {
    let at = options.at.as_ref().map(|at| Moment::parse("--at", at)).transpose()?;
    let place = Place::find(global)?;
    let store = place.open_to_read()?;
    let told = match find(store.as_ref(), &place, &options.job)? {
        Found::Known(record, clock) => {
            let zone = zone(options, &place, &record)?;
            let case = Case::of(store.as_ref(), &place, *record, clock.as_ref(), at, zone)?;
            Told { sentences: words::all(&case), case: Some(case), job: options.job.to_string() }
        }
        Found::OnlyConfigured => {
            let path = place.shown_config().unwrap_or_default();
            let text = format!("{} is a job of {path}, but has never run on this store.", options.job);
            Told { sentences: vec![Sentence::new("nothing", text)], case: None, job: options.job.to_string() }
        }
    };
    if global.json {
        show::json(&told.json());
        return Ok(Code::DONE);
    }
    show::line(&format!("store   {}", place.shown_store()));
    show::line("");
    told.sentences.iter().for_each(|sentence| show::line(&sentence.text));
    Ok(Code::DONE)
}

/// One step of the explanation, and what it is about.
#[derive(Debug, Serialize)]
struct Sentence {
    about: &'static str,
    text: String,
}

impl Sentence {
    fn new(about: &'static str, text: impl Into<String>) -> Self {
        Self { about, text: text.into() }
    }
}

/// A slot of a job, and everything that is known of it.
struct Case {
    record: Record,
    /// The zone in which it was asked.
    asked_in: Zone,
    at: Option<Moment>,
    slot: Option<Wall>,
    /// The ended attempts of the slot, in the order of their tokens.
    attempts: Vec<Outcome>,
    /// The run behind the lease, if it is about this slot and has not ended.
    going: Option<Lease>,
    is_over: bool,
    remaining: Option<Duration>,
    /// The triggers that were waved off.
    skips: Option<Skips>,
    now: Wall,
}

impl Case {
    /// The schedule that the job's last trigger went by, and how far it was evaluated.
    fn schedule(&self) -> Option<(Schedule, &Timing)> {
        let timing = self.record.timing.as_ref()?;
        let schedule = Schedule::parse(&timing.schedule, &Zone::parse(&timing.zone).ok()?).ok()?;
        Some((schedule, timing))
    }

    fn of(
        store: &dyn Store,
        place: &Place,
        record: Record,
        clock: Option<&StoreClock>,
        at: Option<Moment>,
        asked_in: Zone,
    ) -> Result<Self, Failure> {
        let is_over = place.is_over(&record, clock);
        let remaining = show::remaining(&record, clock);
        let before = at.as_ref().map_or(Wall(i64::MAX), |at| at.end(&asked_in));
        let slot = newest(store, &record, before)?;
        let attempts = slot.map(|slot| attempts(store, &record, slot)).transpose()?.unwrap_or_default();
        let going = unrecorded(&record).filter(|lease| Some(lease.slot) == slot).cloned();
        let skips = skips(store, &record.job)?;
        Ok(Self { record, asked_in, at, slot, attempts, going, is_over, remaining, skips, now: clock::now().wall })
    }

    /// The zone of the slot.
    fn zone(&self) -> Zone {
        let newest = self.attempts.last().map(|attempt| attempt.zone.as_str());
        let going = self.going.as_ref().map(|lease| lease.zone.as_str());
        going.or(newest).map_or_else(|| self.asked_in.clone(), show::zone)
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

enum Found {
    Known(Box<Record>, Option<StoreClock>),
    /// The configuration names it, the store does not.
    OnlyConfigured,
}

/// The record of the job that was named. A name that nobody knows is a mistake, and the nearest one is said.
fn find(store: &dyn Store, place: &Place, asked: &Job) -> Result<Found, Failure> {
    let job = match asked.host() {
        Some(_) => asked.clone(),
        None => super::job(&asked.name, false, place)?,
    };
    if let (Some(record), clock) = look(store, &job)? {
        return Ok(Found::Known(Box::new(record), clock));
    }
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut same_name = Vec::new();
    // A record that cannot be read is another job's: its own was asked for by its key.
    super::each_record(store, &mut super::Damage::default(), |_, record, _| {
        known.insert(record.job.to_string());
        if record.job.name == asked.name && asked.host().is_none() {
            same_name.push(record.job);
        }
        Ok(())
    })?;
    match same_name.as_slice() {
        [only] => {
            if let (Some(record), clock) = look(store, only)? {
                return Ok(Found::Known(Box::new(record), clock));
            }
        }
        [] => {}
        [first, ..] => {
            let all: Vec<_> = same_name.iter().map(Job::to_string).collect();
            let all = all.join(", ");
            return Err(Failure::Usage(format!("{asked} is each host's own: {all}. Name one, as in: why {first}")));
        }
    }
    let configured = place.config.as_ref().map(|config| &config.jobs);
    if configured.is_some_and(|jobs| jobs.contains_key(&asked.name)) {
        return Ok(Found::OnlyConfigured);
    }
    known.extend(configured.into_iter().flat_map(|jobs| jobs.keys()).map(|name| name.to_string()));
    let near = nearest(&asked.to_string(), known.iter().map(String::as_str));
    let near = near.map_or_else(String::new, |near| format!(" Did you mean {near:?}?"));
    Err(Failure::Usage(format!("No job {asked} is known on {}.{near}", place.shown_store())))
}

/// The zone of what was typed: `--tz`, the configuration's, or the one the job lived in last.
fn zone(options: &WhyOptions, place: &Place, record: &Record) -> Result<Zone, Failure> {
    let name = &options.job.name;
    let config = place.config.as_ref().filter(|config| config.jobs.contains_key(name));
    if options.tz.is_some() || config.is_some() {
        return calendar::zone(options.tz.as_deref(), config, name);
    }
    let lived_in = record.lease.as_ref().map(|lease| &lease.zone).or(record.ledger.last().map(|last| &last.zone));
    Ok(lived_in.map_or_else(Zone::utc, |zone| show::zone(zone)))
}

/// The newest slot before an instant. One that lies later stands for an earlier one if it covers it.
fn newest(store: &dyn Store, record: &Record, before: Wall) -> Result<Option<Wall>, Failure> {
    let last = Wall(before.0.saturating_sub(1));
    let ledger = &record.ledger;
    let known = ledger.ring.iter().chain(&ledger.last_ok);
    let covering = known.clone().find(|outcome| covers(outcome, last)).map(|outcome| outcome.slot);
    let slots = known.map(|outcome| outcome.slot).chain(unrecorded(record).map(|lease| lease.slot));
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
    // The one that follows may have been recorded for all that were missed before it.
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
fn attempts(store: &dyn Store, record: &Record, slot: Wall) -> Result<Vec<Outcome>, Failure> {
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

/// The run behind the lease, if nothing is recorded of it. A lease by hand is not a run.
fn unrecorded(record: &Record) -> Option<&Lease> {
    let lease = record.lease.as_ref()?;
    (lease.holder.is_run() && record.ledger.of_run(lease.run).is_none()).then_some(lease)
}

struct Told {
    job: String,
    case: Option<Case>,
    sentences: Vec<Sentence>,
}

#[derive(Serialize)]
struct WhyJson<'a> {
    v: u32,
    job: String,
    slot: Option<String>,
    date: Option<String>,
    timezone: Option<String>,
    status: Option<&'static str>,
    sentences: &'a [Sentence],
    attempts: Vec<RunJson>,
}

impl Told {
    fn json(&self) -> WhyJson<'_> {
        let case = self.case.as_ref();
        let placed = case.and_then(|case| Some((case.zone(), case.slot?)));
        let ended = case.map(|case| case.attempts.iter().map(|attempt| RunJson::ended(&case.record, attempt)));
        let going = case.filter(|case| case.going.is_some());
        let going = going.and_then(|case| RunJson::unrecorded(&case.record, case.is_over));
        WhyJson {
            v: 1,
            job: case.map_or_else(|| self.job.clone(), |case| case.record.job.to_string()),
            slot: placed.as_ref().map(|(zone, slot)| zone.show(*slot)),
            date: placed.as_ref().map(|(zone, slot)| zone.date(*slot).to_string()),
            timezone: placed.as_ref().map(|(zone, _)| zone.to_string()),
            status: case.and_then(Case::status).map(Status::as_str),
            sentences: &self.sentences,
            attempts: ended.into_iter().flatten().chain(going).collect(),
        }
    }
}
