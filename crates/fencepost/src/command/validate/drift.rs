//! `validate --drift`: compares the jobs with their definitions, with what is installed here, and with their runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencepost_core::name::{Job, Name};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::transact::look;
use fencepost_store::Store;
use fencepost_view::answer::InstalledDifference;
use fencepost_view::drift::{DriftAnswer, DriftDifference, DriftLayer, DriftedJob};
use fencepost_view::time::LocalTime;

use crate::args::Global;
use crate::calendar;
use crate::command::{self, install, mint_run, notifier};
use crate::config::Config;
use crate::drift::{DriftTerms, unknown};
use crate::exit::Failure;
use crate::file;
use crate::notify::Brief;
use crate::place::Place;
use crate::report::Voice;

/// The differences of all jobs of the configuration.
pub fn look_at_all(global: &Global, now: Wall) -> Result<DriftAnswer, Failure> {
    let place = Place::find(global)?;
    let mut answer = DriftAnswer::default();
    let Some(config) = &place.config else { return Ok(answer) };
    let store = match place.open_to_read() {
        Ok(store) => Some(store),
        Err(failure) => {
            for layer in [DriftLayer::Definition, DriftLayer::Runs] {
                answer.unknown.push(unknown(layer, None, failure.message().to_string()));
            }
            None
        }
    };
    for name in config.jobs.keys() {
        if let Some(store) = &store {
            look_at_job(&place, config, store, name, now, &mut answer)?;
        }
    }
    look_at_host(&place, store.as_ref(), now, &mut answer);
    date(&place, &mut answer, now, Voice::of(global));
    Ok(answer)
}

/// What the configuration of a job and the files of its command have not as its last good run had them, a sentence each.
pub fn redefinitions(place: &Place, job: &Job, now: Wall) -> Result<Vec<String>, Failure> {
    let is_configured = |config: &&Config| config.jobs.contains_key(&job.name);
    let Some(config) = place.config.as_ref().filter(is_configured) else { return Ok(Vec::new()) };
    if command::job(&job.name, config.job(&job.name).per_host(), place)? != *job {
        return Ok(Vec::new());
    }
    let store = place.open_to_read()?;
    let Ok((Some(record), _)) = look(store.as_ref(), job) else { return Ok(Vec::new()) };
    let zone = calendar::zone(None, Some(config), &job.name)?;
    let drifted = DriftedJob { job: job.name.as_str(), zone: &zone };
    let answer = DriftTerms::of(config, &job.name, now).definition_since(&drifted, &record.remembered());
    Ok(answer.differences.iter().map(DriftDifference::sentence).collect())
}

fn look_at_job(
    place: &Place,
    config: &Config,
    store: &Arc<dyn Store>,
    name: &Name,
    now: Wall,
    answer: &mut DriftAnswer,
) -> Result<(), Failure> {
    let job = command::job(name, config.job(name).per_host(), place)?;
    let zone = calendar::zone(None, Some(config), name)?;
    let drifted = DriftedJob { job: name.as_str(), zone: &zone };
    match look(store.as_ref(), &job) {
        Ok((Some(record), _)) => {
            let found = DriftTerms::of(config, name, now).compare(&drifted, &record, &place.host.name, now);
            answer.differences.extend(found.differences);
            answer.unknown.extend(found.unknown);
            answer.no_good_run.extend(found.no_good_run);
        }
        Ok((None, _)) => answer.no_good_run.push(name.to_string()),
        Err(error) => {
            for layer in [DriftLayer::Definition, DriftLayer::Runs] {
                answer.unknown.push(unknown(layer, Some(name.as_str()), error.detail.clone()));
            }
        }
    }
    Ok(())
}

/// The triggers, hooks and MCP settings of this host.
fn look_at_host(place: &Place, store: Option<&Arc<dyn Store>>, now: Wall, answer: &mut DriftAnswer) {
    let mut found = install::settings_differences();
    match install::drift(place, &|| Ok(store.cloned()), now) {
        Ok(triggers) => found.extend(triggers),
        Err(failure) => answer.unknown.push(unknown(DriftLayer::Installed, None, failure.message().to_string())),
    }
    let unread = install::unread_settings();
    answer.unknown.extend(unread.into_iter().map(|message| unknown(DriftLayer::Installed, None, message)));
    answer.differences.extend(found.into_iter().map(|found| of_installed(found, now)));
}

fn of_installed(found: InstalledDifference, now: Wall) -> DriftDifference {
    let InstalledDifference { job, kind, message, place, since } = found;
    DriftDifference {
        layer: DriftLayer::Installed,
        kind,
        job,
        subject: place,
        since: LocalTime::new(since.unwrap_or(now), &Zone::utc()),
        since_is_exact: true,
        message,
        is_undated: since.is_none(),
    }
}

/// Dates the differences whose beginning nothing tells: by when this host first saw them, which it remembers.
fn date(place: &Place, answer: &mut DriftAnswer, now: Wall, voice: Voice) {
    let path = place.state.join("drift.json");
    let known = std::fs::read_to_string(&path).ok();
    let before: BTreeMap<String, Wall> =
        known.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut seen = BTreeMap::new();
    for difference in answer.differences.iter_mut().filter(|difference| difference.is_undated) {
        difference.since.at = before.get(&difference.id()).copied().unwrap_or(now);
        seen.insert(difference.id(), difference.since.at);
    }
    if seen != before
        && let Err(failure) = file::keep_note(&path, &seen)
    {
        voice.warn(&format!("The day of a difference is not remembered: {}", failure.message()));
    }
}

/// Tells the recipients of `on_drift` about the differences of their jobs. Those of the host alone go to the first of them.
pub fn tell(global: &Global, answer: &DriftAnswer) -> Result<(), Failure> {
    let place = Place::find(global)?;
    let Some(config) = &place.config else { return Ok(()) };
    let layers = answer.compared(&[DriftLayer::Definition, DriftLayer::Installed, DriftLayer::Runs]);
    let told = config.jobs.iter().filter(|(_, options)| options.on_drift.is_some());
    for (number, (name, options)) in told.enumerate() {
        let job = command::job(name, options.per_host(), &place)?;
        let zone = calendar::zone(None, Some(config), name)?;
        let brief = Brief::of(&place, options, &zone, &job, mint_run(), global.verbose);
        let is_mine = |found: &&DriftDifference| found.job.as_deref().map_or(number == 0, |job| job == name.as_str());
        let mine: Vec<DriftDifference> = answer.differences.iter().filter(is_mine).cloned().collect();
        notifier::tell_drift(brief, &mine, &layers);
    }
    Ok(())
}
