//! The commands, one file per verb.

pub mod advise;
pub mod completions;
pub mod demo;
pub mod forget;
pub mod gate;
pub mod hook;
pub mod init;
pub mod install;
pub mod lease;
pub mod logs;
mod logs_of_all;
pub mod mcp;
pub mod notifier;
pub mod notify;
pub mod once;
mod once_items;
pub mod overdue;
pub mod pause;
pub mod plan;
pub mod publish;
pub mod record;
pub mod run;
pub mod runs;
pub mod schema;
pub mod serve;
pub mod session;
pub mod status;
pub mod store;
pub mod up;
pub mod validate;
pub mod why;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Parser;
use fencepost_core::lease::{TTL_MAX, TTL_MIN};
use fencepost_core::name::{Job, Name};
use fencepost_core::nearest::nearest;
use fencepost_core::token::RunId;
use fencepost_store::{Store, properties, redacted};
use fencepost_view::answer::ErrorDetail;
use fencepost_view::text::unknown_job;
use fencepost_view::unread::{Unread, each_record, has_record, job_names};

use crate::args::{Arguments, Global, Verb};
use crate::config::{Config, TTL};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report;
use fencepost_core::duration;

/// Generates a run id: random, sortable by time.
pub fn mint_run() -> RunId {
    RunId(uuid::Uuid::now_v7())
}

/// Parses the words as the command line of a verb, for a request that stands for one. The grammar explains what is wrong
/// with a value.
pub fn parsed(words: &[String]) -> Result<Verb, Failure> {
    let line = std::iter::once("fencepost".to_string()).chain(words.iter().cloned());
    Arguments::try_parse_from(line).map(|arguments| arguments.verb).map_err(|error| {
        let text = error.to_string();
        // The usage of the command line does not help a program.
        let what = text.split("\n\n").next().unwrap_or_default();
        Failure::Usage(what.trim_start_matches("error: ").trim().to_string())
    })
}

/// Returns the named job, on this host or on all. The configuration may set `per_host` for every verb.
pub fn job(name: &Name, per_host: bool, place: &Place) -> Result<Job, Failure> {
    if let Some(config) = &place.config
        && let Some(broken) = config.broken.get(name.as_str()).filter(|broken| broken.is_place_unknown)
    {
        return Err(config.failure_of(name.as_str(), broken));
    }
    let is_configured = place.config.as_ref().is_some_and(|config| config.job(name).per_host());
    if !per_host && !is_configured {
        return Ok(Job::shared(name.clone()));
    }
    Job::of_host(name.clone(), &place.host.name).map_err(|error| Failure::Usage(error.to_string()))
}

/// All jobs of the configuration and of the store, and the records that cannot be read.
pub fn all_jobs(place: &Place, store: &dyn Store) -> Result<(BTreeSet<Job>, Vec<ErrorDetail>), Failure> {
    let mut jobs = BTreeSet::new();
    for name in place.config.iter().flat_map(Config::all_names) {
        // The record of a job whose `per_host` cannot be read is found in the store.
        jobs.extend(job(&name, false, place).ok());
    }
    let mut unread = Unread::default();
    each_record(store, &mut unread, |_, record, _| {
        jobs.insert(record.job);
        Ok(())
    })?;
    Ok((jobs, unread.into_errors()))
}

/// Refuses a job that neither the configuration nor the store knows, and names the nearest one: it is probably mistyped.
pub fn must_be_known(place: &Place, store: &dyn Store, name: &Name) -> Result<(), Failure> {
    if place.config.as_ref().is_some_and(|config| config.names(name)) {
        return Ok(());
    }
    let configured: Vec<String> =
        place.config.iter().flat_map(Config::all_names).map(|name| name.to_string()).collect();
    let recorded = job_names(store)?;
    let of_all_hosts = |job: &str| job.split('@').next().unwrap_or(job).to_string();
    let known: Vec<String> = configured.into_iter().chain(recorded.iter().map(|job| of_all_hosts(job))).collect();
    if known.iter().any(|known| known == name.as_str()) || has_record(store, name)? {
        return Ok(());
    }
    let near = nearest(name.as_str(), known.iter().map(String::as_str));
    let (config, store) = (place.shown_config(), place.shown_store());
    Err(Failure::Usage(unknown_job(name.as_str(), config.as_deref(), Some(&store), near)))
}

/// Refuses a ttl outside the limits.
pub fn check_ttl(ttl: Duration) -> Result<(), Failure> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--ttl {} is out of bounds: a lease lasts from {} to {}.",
        duration::show(ttl),
        duration::show(TTL_MIN),
        duration::show(TTL_MAX)
    )))
}

/// Returns the requested ttl if the store supports it; by default the usual one, raised to the store's minimum.
pub fn ttl(asked: Option<Duration>, store: &str) -> Result<Duration, Failure> {
    let least = least_ttl(store);
    let Some(asked) = asked else { return Ok(TTL.max(least)) };
    check_ttl(asked)?;
    if asked >= least {
        return Ok(asked);
    }
    Err(Failure::Usage(format!(
        "A ttl of {} is too short for {}: its calls are slow or rate-limited. The shortest ttl for this store is {}.",
        duration::show(asked),
        redacted(store),
        duration::show(least)
    )))
}

fn least_ttl(store: &str) -> Duration {
    // Tests cannot wait ten minutes. Release builds do not read this variable.
    #[cfg(debug_assertions)]
    if let Some(least) = std::env::var("FENCEPOST_TEST_TTL_MIN").ok().and_then(|text| duration::parse(&text).ok()) {
        return least;
    }
    properties(store).minimum_ttl
}

/// Reports the records that could not be read, after all other output. Returns `code` if there are none.
pub fn report_unread(global: &Global, errors: &[ErrorDetail], code: Code) -> Code {
    if errors.is_empty() {
        return code;
    }
    if !global.quiet {
        for error in errors {
            let message = error.message.trim_end_matches('.');
            report::say(&format!("{message}. Everything else is shown. Nothing was changed."));
        }
    }
    Code::FAILED
}
