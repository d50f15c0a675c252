//! `fencepost why`: explains what became of a slot and why, step by step, from the ledger.

use fencepost_core::name::Name;
use fencepost_core::schedule::Schedule;
use fencepost_view::why::{WhyAnswer, WhyQuery};

use super::runs::moment;
use crate::args::{Global, WhyOptions};
use crate::calendar;
use crate::config::Config;
use crate::exit::{Code, Failure};
use crate::logs::HostLogs;
use crate::place::Place;
use crate::show;

pub fn run(global: &Global, options: &WhyOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let why = answer(&place, options)?;
    if global.json {
        show::json(&why);
        return Ok(Code::DONE);
    }
    show::line(&format!("store   {}", place.shown_store()));
    show::line("");
    why.sentences.iter().for_each(|sentence| show::line(&sentence.text));
    Ok(Code::DONE)
}

/// Asks the store, the configuration and the logs.
pub fn answer(place: &Place, options: &WhyOptions) -> Result<WhyAnswer, Failure> {
    let at = options.at.as_ref().map(|at| moment("--at", at)).transpose()?;
    let name = &options.job.name;
    let config = place.config.as_ref().filter(|config| config.names(name));
    let is_zone_known = options.tz.is_some() || config.is_some();
    let query = WhyQuery {
        typed: &options.job,
        job: match options.job.host() {
            Some(_) => options.job.clone(),
            None => super::job(name, false, place)?,
        },
        at,
        zone: is_zone_known.then(|| calendar::zone(options.tz.as_deref(), config, name)).transpose()?,
        schedule: schedule(place, name),
        retries: place.config.as_ref().and_then(|config| config.jobs.get(name)).map(|keys| keys.retries()),
        configured: place.config.iter().flat_map(Config::all_names).collect(),
        output: &HostLogs(place),
    };
    let store = place.open_to_read()?;
    Ok(place.ask(store.as_ref(), |view| view.why(&query))?)
}

/// When the job is due by the configuration. One that is disabled waits for no slot.
fn schedule(place: &Place, name: &Name) -> Option<Schedule> {
    let config = place.config.as_ref()?;
    config.jobs.get(name).filter(|keys| keys.enabled())?;
    calendar::schedule(config, name).ok().flatten()
}
