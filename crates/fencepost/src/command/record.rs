//! `fencepost record`: writes an outcome to the ledger by hand, or states the outcome of the surrounding run.

use std::path::Path;
use std::sync::Arc;

use fencepost_core::artifact::Artifact;
use fencepost_core::contract::{Recorded, Word, fits};
use fencepost_core::lease::{Claim, Intent, Refusal, TTL_MIN};
use fencepost_core::ledger::{EndedBy, Ending, Trigger, WHOLE_NOTE_BYTES_MAX, cut};
use fencepost_core::name::{Job, Name};
use fencepost_core::nearest::nearest;
use fencepost_core::record::Record;
use fencepost_core::said::Said;
use fencepost_core::slot::Choice;
use fencepost_core::time::Wall;
use fencepost_core::token::Token;
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::{Base, FingerprintError, read};
use fencepost_guard::transact::{TransactError, look, transact};
use fencepost_guard::{clock, nudge, report_file};
use fencepost_store::Store;
use fencepost_view::answer::{AnswerVersion, RunAnswer, SaidAnswer};
use fencepost_view::{ReasonCode, recorded_schedule};

use super::lease;
use crate::args::{Global, RecordOptions};
use crate::exit::{Code, Failure};
use crate::inside::Inside;
use crate::place::Place;
use crate::rehearsal;
use crate::report::Voice;
use crate::show;
use crate::{calendar, upstreams};

pub fn run(global: &Global, options: &RecordOptions) -> Result<Code, Failure> {
    let (name, word) = what(options)?;
    let inside = match Inside::find() {
        // A job and a token given by hand name the lease, also if it is unclear which run is around this command.
        Err(_) if options.token.is_some() && name.is_some() => None,
        found => found?,
    };
    match (name, inside) {
        (None, Some(inside)) => say(global, options, word, &inside),
        (Some(name), Some(inside)) if is_same(&name, options.per_host, &inside.job) => {
            say(global, options, word, &inside)
        }
        (Some(name), _) if rehearsal::is_on() => {
            rehearsal::tell(global, &format!("record {name} as {}", word.as_str()), None, None);
            Ok(Code::DONE)
        }
        (Some(name), _) => match options.token {
            Some(token) => under_token(global, options, &name, word, token),
            None => by_hand(global, options, &name, word),
        },
        (None, None) => Err(Failure::Usage(format!(
            "Which job? Outside a run its name comes first, as in: fencepost record JOB {}",
            word.as_str()
        ))),
    }
}

/// Parses the one or two words of the command line.
pub(super) fn what(options: &RecordOptions) -> Result<(Option<Name>, Word), Failure> {
    let word = |text: &str| {
        let known = Word::ALL.into_iter().find(|word| word.as_str() == text);
        known.ok_or_else(|| {
            let near = nearest(text, Word::ALL.map(Word::as_str));
            let near = near.map_or_else(String::new, |near| format!(" Is it {near:?}?"));
            Failure::Usage(format!("{text:?} is not how a job may end: it is ok, empty or error.{near}"))
        })
    };
    match options.words.as_slice() {
        [only] => Ok((None, word(only)?)),
        [name, said] => {
            let name = Name::new(name).map_err(|error| Failure::Usage(error.to_string()))?;
            Ok((Some(name), word(said)?))
        }
        _ => Err(Failure::Usage("It takes a job and how it ended, as in: fencepost record report ok".to_string())),
    }
}

/// Whether the named job is the job of the surrounding run.
fn is_same(name: &Name, per_host: bool, job: &Job) -> bool {
    job.name == *name && (job.host().is_some() || !per_host)
}

/// Inside a run, the wrapper commits the outcome with its last swap.
fn say(global: &Global, options: &RecordOptions, word: Word, inside: &Inside) -> Result<Code, Failure> {
    if options.slot.is_some() || options.date.is_some() {
        return Err(Failure::Usage(format!(
            "Inside a run of {} the slot is the run's own: leave --slot and --date out.",
            inside.job
        )));
    }
    if options.token.is_some() {
        return Err(Failure::Usage(format!(
            "Inside a run of {} the run holds the lease and records its own end: leave --token out.",
            inside.job
        )));
    }
    // Without artifacts no configuration is read: an edit of the file must not fail a run in progress.
    let artifacts = match options.artifact.as_slice() {
        [] => Vec::new(),
        paths => artifacts(paths, &upstreams::base(Place::find(global)?.config.as_ref(), &inside.job.name)?)?,
    };
    let note = options.note.as_ref().map(|note| cut(note, WHOLE_NOTE_BYTES_MAX));
    let recorded = Recorded { word, note, artifacts };
    report_file::append(&inside.said, inside.run, Said::Recorded(recorded)).map_err(|error| {
        Failure::Other(format!(
            "Cannot write down {:?} for the run of {} ({}): {error}. The run will be judged by its exit code alone.",
            word.as_str(),
            inside.job,
            inside.said.display()
        ))
    })?;
    if global.json {
        let (job, run) = (inside.job.to_string(), inside.run.to_string());
        show::json(&SaidAnswer { v: AnswerVersion, job, run, status: word.status() });
    }
    Ok(Code::DONE)
}

fn by_hand(global: &Global, options: &RecordOptions, name: &Name, word: Word) -> Result<Code, Failure> {
    match put(&Place::find(global)?, options, name, word)? {
        PutOutcome::Recorded { job, record, slot } => {
            told(global, &job, word, record.as_deref(), &slot).map(|()| Code::DONE)
        }
        PutOutcome::Held(text) => Ok(held(global, &text)),
    }
}

/// What came of a record by hand.
#[derive(Debug)]
pub(super) enum PutOutcome {
    Recorded {
        job: Job,
        record: Option<Arc<Record>>,
        slot: String,
    },
    /// A run holds the job, as the sentence says. Nothing was recorded.
    Held(String),
}

/// Claims and completes in one swap.
pub(super) fn put(place: &Place, options: &RecordOptions, name: &Name, word: Word) -> Result<PutOutcome, Failure> {
    if let Some(config) = &place.config {
        // The date and the paths of the record depend on the job's settings.
        config.refuse_broken(name)?;
    }
    let job = super::job(name, options.per_host, place)?;
    let zone = calendar::zone(options.tz.as_deref(), place.config.as_ref(), name)?;
    let now = clock::now().wall;
    let store = place.open()?;
    let slot = slot(options, place, store.as_ref(), &job, &zone, now)?;
    let ending = ending(options, place, name, word)?;
    let run = super::mint_run();
    let claim = Claim {
        run,
        ttl: TTL_MIN,
        holder: place.host.holder_by_hand(),
        slot: Choice::At(slot),
        zone: zone.name().to_string(),
        trigger: Trigger::Manual,
    };
    match transact(store.as_ref(), &place.local(), &job, Intent::Record { claim, ending }, run) {
        Ok(done) => {
            let record = done.held.map(|known| known.record);
            Ok(PutOutcome::Recorded { job, record, slot: zone.show(slot) })
        }
        Err(TransactError::Store(error)) => Err(Failure::Store(error)),
        Err(TransactError::Refused(Refusal::Held { record, remaining })) => {
            Ok(PutOutcome::Held(held_text(&job, &record, remaining)))
        }
        Err(TransactError::Refused(refusal)) => {
            Err(Failure::Other(format!("{job} was not recorded as {}: {refusal}", word.as_str())))
        }
    }
}

/// Completes and releases a lease held by hand, in one swap.
fn under_token(
    global: &Global,
    options: &RecordOptions,
    name: &Name,
    word: Word,
    token: Token,
) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let job = super::job(name, options.per_host, &place)?;
    let store = place.open()?;
    let (intent, slot) = conclusion(options, &place, store.as_ref(), &job, word, token)?;
    let (before, _) = look(store.as_ref(), &job)?;
    match transact(store.as_ref(), &place.local(), &job, intent, super::mint_run()) {
        Ok(done) => {
            if let Some(record) = &before {
                nudge(&place.host, record);
            }
            let record = done.held.map(|known| known.record);
            told(global, &job, word, record.as_deref(), &slot).map(|()| Code::DONE)
        }
        Err(TransactError::Store(error)) => Err(Failure::Store(error)),
        Err(TransactError::Refused(Refusal::NotHolder { record })) => {
            let text = format!("{} Nothing was recorded.", lease::lost(&job, record.as_deref()));
            if global.json {
                crate::report::error_json(Code::LOST, ReasonCode::Lost, &text);
            }
            Voice::of(global).warn(&text);
            Ok(Code::LOST)
        }
        Err(TransactError::Refused(Refusal::Held { record, remaining })) => {
            Ok(held(global, &held_text(&job, &record, remaining)))
        }
        Err(TransactError::Refused(refusal)) => {
            Err(Failure::Other(format!("{job} was not recorded as {}: {refusal}", word.as_str())))
        }
    }
}

/// The end of a lease held by hand: its outcome, and the slot in the job's zone.
pub(super) fn conclusion(
    options: &RecordOptions,
    place: &Place,
    store: &dyn Store,
    job: &Job,
    word: Word,
    token: Token,
) -> Result<(Intent, String), Failure> {
    let zone = calendar::zone(options.tz.as_deref(), place.config.as_ref(), &job.name)?;
    let slot = slot(options, place, store, job, &zone, clock::now().wall)?;
    let ending = ending(options, place, &job.name, word)?;
    let intent = Intent::Conclude { me: lease::me(token), slot, zone: zone.name().to_string(), ending };
    Ok((intent, zone.show(slot)))
}

/// Returns how the job ended, with the current state of the named files.
fn ending(options: &RecordOptions, place: &Place, name: &Name, word: Word) -> Result<Ending, Failure> {
    let base = upstreams::base(place.config.as_ref(), name)?;
    Ok(Ending {
        artifacts: artifacts(&options.artifact, &base)?,
        note: options.note.clone(),
        ..Ending::new(word.status(), EndedBy::Child)
    })
}

/// Returns the slot to record. A job with a schedule needs one of its slots, otherwise no plan would find the outcome.
/// A day means its first instant.
fn slot(
    options: &RecordOptions,
    place: &Place,
    store: &dyn Store,
    job: &Job,
    zone: &Zone,
    now: Wall,
) -> Result<Wall, Failure> {
    let asked = calendar::asked_slot(options.slot.as_deref(), options.date.as_deref(), zone, now)?;
    let last_due = |at: Wall| last_due(place, store, job, at);
    match (asked, &options.date) {
        (Some(slot), None) => Ok(slot),
        (Some(within), Some(_)) => {
            let day = zone.start_of_day(zone.date(within));
            let last = Wall(zone.start_of_day(zone.date(within).tomorrow()).0 - 1);
            let due = last_due(last)?.filter(|due| *due >= day);
            Ok(due.unwrap_or(day))
        }
        (None, _) => Ok(last_due(now)?.unwrap_or(now)),
    }
}

/// The newest slot of a job up to `at`, by the configuration or by the schedule of its last run.
fn last_due(place: &Place, store: &dyn Store, job: &Job, at: Wall) -> Result<Option<Wall>, Failure> {
    let config = place.config.as_ref();
    if config.is_some_and(|config| config.jobs.contains_key(&job.name)) {
        return calendar::last_due(config, &job.name, at);
    }
    let (record, _) = look(store, job)?;
    Ok(record.as_ref().and_then(recorded_schedule).and_then(|schedule| schedule.at_or_before(at)))
}

fn told(global: &Global, job: &Job, word: Word, record: Option<&Record>, slot: &str) -> Result<(), Failure> {
    if global.json {
        show::json(&recorded(job, word, record, slot)?);
    } else {
        Voice::of(global).tell(&format!("{job} is recorded as {} for {slot}.", word.as_str()));
    }
    Ok(())
}

/// The outcome as the record shows it.
fn recorded(job: &Job, word: Word, record: Option<&Record>, slot: &str) -> Result<RunAnswer, Failure> {
    let ended = record.and_then(|record| record.ledger.last().map(|last| RunAnswer::ended(record, last)));
    ended.ok_or_else(|| {
        let word = word.as_str();
        Failure::Other(format!(
            "{job} is recorded as {word} for {slot}, but its record shows no outcome. Look: fencepost runs {job}"
        ))
    })
}

/// Explains that a run holds the job and will record its own outcome.
fn held_text(job: &Job, record: &Record, remaining: Option<std::time::Duration>) -> String {
    let now = clock::now().wall;
    let holder = record.lease.as_ref().map(|lease| show::holder(lease, remaining, now)).unwrap_or_default();
    format!("{job} was not recorded: it is held by {holder}. Record it when that run has ended.")
}

fn held(global: &Global, text: &str) -> Code {
    if global.json {
        crate::report::error_json(Code::HELD, ReasonCode::Held, text);
    }
    Voice::of(global).warn(text);
    Code::HELD
}

/// Hashes the named files.
pub(super) fn artifacts(paths: &[String], base: &Base) -> Result<Vec<Artifact>, Failure> {
    let directory = upstreams::working_directory()?;
    let artifacts = paths.iter().map(|path| {
        let whole = directory.join(path);
        match read(&whole) {
            Ok((size, sha256)) => Ok(Artifact {
                path: base.name_of(&whole, Path::new(path).is_relative()),
                size,
                sha256,
                unknown: Default::default(),
            }),
            Err(error @ FingerprintError::Unsteady) => Err(Failure::Other(format!(
                "--artifact {path}: {error}. Nothing was recorded. Repeat the command when no process writes the file."
            ))),
            Err(error) => Err(Failure::Usage(format!("--artifact {path}: {error}."))),
        }
    });
    let artifacts: Vec<Artifact> = artifacts.collect::<Result<_, _>>()?;
    if fits(&artifacts) {
        return Ok(artifacts);
    }
    Err(Failure::Usage(format!("{} artifacts are too many to record; record one that lists them.", artifacts.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_an_outcome_is_a_failure() {
        let job = Job::shared(Name::new("report").unwrap());
        let failed = recorded(&job, Word::Ok, None, "2026-11-18T07:00:00Z").unwrap_err();
        assert_eq!((failed.reason(), failed.code(false)), (ReasonCode::Failed, Code::FAILED));
        assert!(failed.message().ends_with("fencepost runs report"), "{}", failed.message());
    }
}
