//! `fencepost advise`: shows how long runs take, and suggests settings with their reasons.

use fencepost_core::advice::RUNS_MIN;
use fencepost_view::advise::{AdviseAnswer, JobAdvice};

use crate::args::{AdviseOptions, Global};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;

pub fn run(global: &Global, options: &AdviseOptions) -> Result<Code, Failure> {
    let answer = answer(&Place::find(global)?, options)?;
    match global.json {
        true => show::json(&answer),
        false => answer.jobs.iter().for_each(describe),
    }
    Ok(super::report_unread(global, &answer.errors, Code::DONE))
}

/// Asks the store.
pub fn answer(place: &Place, options: &AdviseOptions) -> Result<AdviseAnswer, Failure> {
    let store = place.open_to_read()?;
    Ok(place.ask(store.as_ref(), |view| view.advise(options.job.as_ref()))?)
}

fn describe(advice: &JobAdvice) {
    show::line(&advice.job);
    match &advice.sentences {
        None => show::line(&format!("  Too few runs ended well to say anything: it takes {RUNS_MIN}.")),
        Some(sentences) => sentences.iter().for_each(|sentence| show::line(&format!("  {sentence}"))),
    }
}
