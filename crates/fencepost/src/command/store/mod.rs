//! `fencepost store …`: prove a store, make it the default, move to another, recover after a loss.

mod check;
mod choose;
mod copy;
mod recover;

use crate::args::Global;
use crate::args::store::StoreVerb;
use crate::exit::{Code, Failure};
use crate::place::Place;

pub fn run(global: &Global, verb: &StoreVerb) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    match verb {
        StoreVerb::Check { url } => {
            let place = url.as_ref().map_or_else(|| Ok(place.clone()), |url| one_store(global, &place, url))?;
            Ok(check::run(global, &place)?.code())
        }
        StoreVerb::Use { url } => choose::run(global, &one_store(global, &place, url)?),
        StoreVerb::Copy { from, to, from_password_file, to_password_file } => {
            if global.store.is_some() {
                return Err(Failure::Usage("store copy takes two stores; leave --store out.".to_string()));
            }
            let from = place.elsewhere(global, from).with_password_file(from_password_file.as_deref());
            let to = place.elsewhere(global, to).with_password_file(to_password_file.as_deref());
            // One password cannot be meant for two servers.
            let to = if from.is_path() { to } else { to.left_alone() };
            copy::run(global, &from, &to)
        }
        StoreVerb::Recover { job, fence, above } => recover::run(global, &place, job, fence, *above),
    }
}

fn one_store(global: &Global, place: &Place, url: &str) -> Result<Place, Failure> {
    if global.store.is_some() {
        return Err(Failure::Usage("The store is named twice: leave --store out.".to_string()));
    }
    Ok(place.elsewhere(global, url))
}
