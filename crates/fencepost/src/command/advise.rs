//! `fencepost advise`: shows how long runs take, and suggests settings with their reasons.

use fencepost_core::advice::RUNS_MIN;
use fencepost_view::advise::{AdviseAnswer, JobAdvice};

use crate::args::{AdviseOptions, Global};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;

pub fn run(global: &Global, options: &AdviseOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let answer = answer(&place, options)?;
    match global.json {
        true => show::json(&answer),
        false if answer.jobs.is_empty() && answer.errors.is_empty() => none(&place, options),
        false => answer.jobs.iter().for_each(describe),
    }
    Ok(super::report_unread(global, &answer.errors, Code::DONE))
}

/// Asks the store.
pub fn answer(place: &Place, options: &AdviseOptions) -> Result<AdviseAnswer, Failure> {
    let store = place.open_to_read()?;
    let answer = place.ask(store.as_ref(), |view| view.advise(options.job.as_ref()))?;
    let is_empty = answer.jobs.is_empty() && answer.errors.is_empty();
    if let Some(job) = options.job.as_ref().filter(|_| is_empty) {
        super::must_be_known(place, store.as_ref(), &job.name)?;
    }
    Ok(answer)
}

/// Says why there is no advice.
fn none(place: &Place, options: &AdviseOptions) {
    let what = options.job.as_ref().map_or_else(|| "No job".to_string(), ToString::to_string);
    let has = if options.job.is_some() { "has never run" } else { "has run" };
    show::line(&format!("{what} {has} on {}. Advice takes {RUNS_MIN} runs that ended well.", place.shown_store()));
}

fn describe(advice: &JobAdvice) {
    show::line(&advice.job);
    match &advice.sentences {
        None => show::line(&format!("  Too few runs ended well to say anything: it takes {RUNS_MIN}.")),
        Some(sentences) => sentences.iter().for_each(|sentence| show::line(&format!("  {sentence}"))),
    }
}
