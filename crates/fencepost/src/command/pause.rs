//! `fencepost pause` and `fencepost resume`: stop a job from starting, and let it start again.

use fencepost_core::lease::{Intent, Refusal};
use fencepost_core::name::Job;
use fencepost_core::record::Paused;
use fencepost_guard::clock;
use fencepost_guard::transact::{TransactError, look, transact};
use fencepost_view::answer::{AnswerVersion, PauseAnswer};

use crate::args::{Global, JobArgument, PauseOptions};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::Voice;
use crate::show;

pub fn pause(global: &Global, options: &PauseOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let job = super::job(&options.job.job, options.job.per_host, &place)?;
    refuse_unknown(&place, &job)?;
    let paused = Paused {
        since: clock::now().wall,
        by: place.host.name.clone(),
        note: options.note.clone(),
        unknown: Default::default(),
        until: Default::default(),
    };
    change(&place, &job, Intent::Pause(paused))?;
    told(
        global,
        &job,
        true,
        &format!("{job} is paused. A run in progress continues. End the pause with: fencepost resume {job}"),
    );
    Ok(Code::DONE)
}

pub fn resume(global: &Global, options: &JobArgument) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let job = super::job(&options.job, options.per_host, &place)?;
    refuse_unknown(&place, &job)?;
    let text = match change(&place, &job, Intent::Resume)? {
        true => format!("{job} is resumed. What passed meanwhile is not caught up."),
        false => format!("{job} was not paused."),
    };
    told(global, &job, false, &text);
    Ok(Code::DONE)
}

/// Refuses an unknown job: a mistyped name would leave the intended job running.
fn refuse_unknown(place: &Place, job: &Job) -> Result<(), Failure> {
    let is_configured = place.config.as_ref().is_some_and(|config| config.names(&job.name));
    if is_configured || look(place.open_to_read()?.as_ref(), job)?.0.is_some() {
        return Ok(());
    }
    let near = place.config.as_ref().and_then(|config| config.near(&job.name));
    let hint = near.map_or_else(String::new, |near| format!(" Did you mean {near}?"));
    Err(Failure::Usage(format!("{job} is not in the configuration and has never run on this store.{hint}")))
}

/// Applies the change. False if there was nothing to change.
fn change(place: &Place, job: &Job, intent: Intent) -> Result<bool, Failure> {
    match transact(place.open()?.as_ref(), &place.local(), job, intent, super::mint_run()) {
        Ok(_) => Ok(true),
        Err(TransactError::Refused(Refusal::NotHeld)) => Ok(false),
        Err(TransactError::Refused(refusal)) => Err(Failure::Other(format!("{job}: {refusal}"))),
        Err(TransactError::Store(error)) => Err(Failure::Store(error)),
    }
}

fn told(global: &Global, job: &Job, is_paused: bool, text: &str) {
    if global.json {
        show::json(&PauseAnswer { v: AnswerVersion, job: job.to_string(), paused: is_paused });
    }
    Voice::of(global).tell(text);
}
