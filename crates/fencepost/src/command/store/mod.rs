//! `fencepost store …`: checks a store, makes it the default, moves to another, backs it up, recovers after a loss.

mod accept;
mod backup;
pub mod check;
mod choose;
mod copy;
pub mod last;
mod recover;

use fencepost_store::redacted;

use crate::args::Global;
use crate::args::store::{MoveOptions, StoreVerb};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::Voice;

pub fn run(global: &Global, verb: &StoreVerb) -> Result<Code, Failure> {
    if let StoreVerb::Use { url } = verb
        && choose::names_new_file(global)
    {
        return choose::run(global, &one_store(global, &Place::without_configuration(global)?, url)?);
    }
    let place = Place::find(global)?;
    match verb {
        StoreVerb::Check { url } => {
            let place = url.as_ref().map_or_else(|| Ok(place.clone()), |url| one_store(global, &place, url))?;
            check::run(global, &place)
        }
        StoreVerb::Accept { url } => accept::run(global, &one_store(global, &place, url)?),
        StoreVerb::Use { url } => choose::run(global, &one_store(global, &place, url)?),
        StoreVerb::Move(options) => relocate(global, &place, options),
        StoreVerb::Copy(options) => {
            let call = format!("fencepost store move {} {}", redacted(&options.from), redacted(&options.to));
            Voice::of(global).warn(&format!("store copy is called store move now: {call}"));
            relocate(global, &place, options)
        }
        StoreVerb::Export { file } => backup::export(global, &place, file.as_deref()),
        StoreVerb::Import { file, replace_lost } => backup::import(global, &place, file, *replace_lost),
        StoreVerb::Recover { job, fence, above } => recover::run(global, &place, job, fence, *above),
    }
}

fn relocate(global: &Global, place: &Place, options: &MoveOptions) -> Result<Code, Failure> {
    if global.store.is_some() {
        return Err(Failure::Usage("store move takes two stores; leave --store out.".to_string()));
    }
    let from = place.elsewhere(global, &options.from).with_password_file(options.from_password_file.as_deref());
    let to = place.elsewhere(global, &options.to).with_password_file(options.to_password_file.as_deref());
    // One password cannot be meant for two servers.
    let to = if from.properties().is_path { to } else { to.left_alone() };
    copy::run(global, options, &from, &to)
}

fn one_store(global: &Global, place: &Place, url: &str) -> Result<Place, Failure> {
    if global.store.is_some() {
        return Err(Failure::Usage("The store is named twice: leave --store out.".to_string()));
    }
    Ok(place.elsewhere(global, url))
}
