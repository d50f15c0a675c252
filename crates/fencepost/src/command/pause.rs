//! `fencepost pause` and `fencepost resume`: stop jobs from starting, and let them start again.

use std::collections::BTreeSet;

use fencepost_core::lease::{Intent, Refusal};
use fencepost_core::name::Job;
use fencepost_core::record::Paused;
use fencepost_guard::clock;
use fencepost_guard::transact::{TransactError, look, transact};
use fencepost_store::Store;
use fencepost_view::answer::{AnswerVersion, ErrorDetail, PauseAllAnswer, PauseAnswer, PauseChange};
use fencepost_view::text;
use fencepost_view::time::LocalTime;

use crate::args::Global;
use crate::args::operate::{JobsArgument, PauseOptions};
use crate::calendar;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::rehearsal;
use crate::report::Voice;
use crate::show;

pub fn pause(global: &Global, options: &PauseOptions) -> Result<Code, Failure> {
    rehearsal::find();
    if options.length.is_some_and(|length| length.is_zero()) {
        return Err(Failure::Usage("--for 0s would pause nothing. Write for example --for 2h.".to_string()));
    }
    let place = Place::find(global)?;
    if rehearsal::is_on() {
        return rehearse(global, &Selected::of(&place, &options.jobs)?, "pause");
    }
    let intent = Intent::Pause {
        paused: Paused {
            since: clock::now().wall,
            by: place.host.name.clone(),
            note: options.note.clone(),
            unknown: Default::default(),
            until: Default::default(),
        },
        length: options.length,
    };
    let selected = Selected::of(&place, &options.jobs)?;
    let store = place.open()?;
    let mut paused = Vec::new();
    for job in &selected.jobs {
        change(&place, store.as_ref(), job, intent.clone())?;
        let job = state(&place, store.as_ref(), job)?;
        let end = match &job.until {
            Some(until) => format!("until {}", text::second_in(until.at, &until.zone)),
            None => "until it is resumed".to_string(),
        };
        let name = &job.job;
        let text =
            format!("{name} is paused {end}. A run in progress continues. End the pause with: fencepost resume {name}");
        Voice::of(global).tell(&text);
        paused.push(job);
    }
    Ok(selected.told(global, paused))
}

pub fn resume(global: &Global, options: &JobsArgument) -> Result<Code, Failure> {
    rehearsal::find();
    let place = Place::find(global)?;
    let selected = Selected::of(&place, options)?;
    if rehearsal::is_on() {
        return rehearse(global, &selected, "resume");
    }
    let store = place.open()?;
    let mut resumed = Vec::new();
    for job in &selected.jobs {
        let text = match change(&place, store.as_ref(), job, Intent::Resume)? {
            true => format!("{job} is resumed. What passed meanwhile is not caught up."),
            // Of all jobs, only those that were paused are worth a line.
            false if selected.is_all => continue,
            false => format!("{job} was not paused."),
        };
        Voice::of(global).tell(&text);
        resumed.push(PauseChange { job: job.to_string(), paused: false, until: None });
    }
    Ok(selected.told(global, resumed))
}

/// Says what would be done.
fn rehearse(global: &Global, selected: &Selected, verb: &str) -> Result<Code, Failure> {
    for job in &selected.jobs {
        rehearsal::tell(global, &format!("{verb} {job}"), None, None);
    }
    Ok(Code::DONE)
}

/// The jobs that are paused or resumed.
struct Selected {
    jobs: BTreeSet<Job>,
    is_all: bool,
    /// Records that cannot be read. Their jobs are left out.
    errors: Vec<ErrorDetail>,
}

impl Selected {
    fn of(place: &Place, named: &JobsArgument) -> Result<Self, Failure> {
        if let Some(name) = &named.job {
            let job = super::job(name, named.per_host, place)?;
            refuse_unknown(place, &job)?;
            return Ok(Self { jobs: BTreeSet::from([job]), is_all: false, errors: Vec::new() });
        }
        let (jobs, errors) = super::all_jobs(place, place.open_to_read()?.as_ref())?;
        Ok(Self { jobs, is_all: true, errors })
    }

    /// Prints the answer and reports the records that could not be read.
    fn told(&self, global: &Global, mut changed: Vec<PauseChange>) -> Code {
        if self.is_all && changed.is_empty() {
            Voice::of(global).tell("No job was changed.");
        }
        match (global.json, self.is_all) {
            (true, true) => show::json(&PauseAllAnswer { v: AnswerVersion, jobs: changed }),
            (true, false) => changed.drain(..).for_each(|job| show::json(&PauseAnswer { v: AnswerVersion, job })),
            (false, _) => {}
        }
        super::report_unread(global, &self.errors, Code::DONE)
    }
}

/// Whether a job is paused now, and until when.
fn state(place: &Place, store: &dyn Store, job: &Job) -> Result<PauseChange, Failure> {
    let paused = look(store, job)?.0.and_then(|record| record.paused);
    let zone = calendar::zone(None, place.config.as_ref(), &job.name)?;
    let until = paused.as_ref().and_then(|paused| paused.until).map(|until| LocalTime::new(until, &zone));
    Ok(PauseChange { job: job.to_string(), paused: paused.is_some(), until })
}

/// Refuses an unknown job: a mistyped name would leave the intended job running.
fn refuse_unknown(place: &Place, job: &Job) -> Result<(), Failure> {
    let store = place.open_to_read()?;
    match look(store.as_ref(), job)?.0 {
        Some(_) => Ok(()),
        None => super::must_be_known(place, store.as_ref(), &job.name),
    }
}

/// Applies the change. False if there was nothing to change.
fn change(place: &Place, store: &dyn Store, job: &Job, intent: Intent) -> Result<bool, Failure> {
    match transact(store, &place.local(), job, intent, super::mint_run()) {
        Ok(_) => Ok(true),
        Err(TransactError::Refused(Refusal::NotHeld)) => Ok(false),
        Err(TransactError::Refused(refusal)) => Err(Failure::Other(format!("{job}: {refusal}"))),
        Err(TransactError::Store(error)) => Err(Failure::Store(error)),
    }
}
