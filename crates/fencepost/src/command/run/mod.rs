//! `fencepost run`: guards one run of a command.

pub mod again;
mod attempt;
mod capture;
mod dry;
mod environment;
mod listener;
mod output;
mod rehearse;
mod trace;
mod unguarded;

use std::sync::Arc;

use fencepost_core::lease::Claim;
use fencepost_core::name::Job;
use fencepost_core::run::{Stages, Terms};
use fencepost_core::waiting::WaitingRun;
use fencepost_guard::pin::Pins;
use fencepost_guard::upstream_check::UpstreamCheck;
use fencepost_store::Store;
use fencepost_view::event::{RunEnd, RunEvent};
use fencepost_view::summary::Summary;

use self::again::Again;
pub use self::attempt::{AttemptEnd, RunAttempt, look_after};
use self::environment::environment;
use self::output::OutOfReach;
use self::unguarded::Unguarded;
use crate::args::{Global, RunOptions, Sink};
use crate::events::Events;
use crate::exit::{Code, Failure};
use crate::inside;
use crate::notify::Teller;
use crate::options::{Given, OnStoreError};
use crate::place::Place;
use crate::rehearsal;
use crate::report::Voice;
use crate::settings::Settings;
use crate::upstreams;

pub fn run(global: &Global, options: &RunOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let settings = Settings::of(options, place.config.as_ref(), &place.store)?;
    let job = super::job(&options.job, settings.options.per_host(), &place)?;
    if let Some(remark) = &settings.remark {
        Voice::of(global).tell(remark);
    }
    if options.dry_run {
        return dry::run(global, &place, &job, &settings);
    }
    // Inside a rehearsal a run is one too.
    if options.rehearse || rehearsal::is_on() {
        return rehearse::run(global, &place, &job, &settings);
    }
    let again = Again::from_environment(&settings);
    let run = super::mint_run();
    let sink = options.events.as_ref().map(Sink::parse).transpose().map_err(Failure::Usage)?;
    let mut teller = Teller::of(global, &settings, &place, &job, run);
    let unguarded =
        settings.options.observe().then(|| Unguarded::of(&settings, environment(&place, &settings, &job, run)));
    let label = job.to_string();
    let attempt = RunAttempt { global, settings, place, job, run, again };
    let result = Events::open(sink, label.clone(), run).and_then(|mut events| {
        let result = attempt.guard(&mut events, teller.as_mut());
        result.inspect_err(|failure| events.end(&events.line(RunEvent::Ended(RunEnd::of(&failed(failure))))))
    });
    if let Err(failure) = &result {
        teller.iter_mut().for_each(|teller| teller.fail(&failed(failure)));
    }
    let outcome = match (result, unguarded) {
        (Err(failure), Some(unguarded)) => return Err(unguarded.exec(Voice::of(global), &label, &failure)),
        (result, _) => result?,
    };
    match outcome.next {
        // Another attempt needs a new process: the keeper is forked before there are threads. This one's keeper ends
        // first.
        Some(next) => {
            drop(outcome.child);
            Err(next.exec())
        }
        None => {
            outcome.share_ctrl_c();
            Ok(outcome.code)
        }
    }
}

pub fn terms(settings: &Settings, job: Job, claim: Claim) -> Terms {
    Terms {
        job,
        claim,
        grace: settings.grace,
        overlap: settings.options.overlap(),
        wait: settings.options.wait.value(),
        timeout: settings.options.timeout.value(),
        run_without_store: settings.options.on_store_error() == OnStoreError::Run,
        inside: inside::runs(),
        stages: Stages {
            prepare: settings.options.prepare.is_some(),
            inspect: !settings.needs.is_empty() || !settings.produces.is_empty(),
            survey: !settings.produces.is_empty(),
        },
        observe: settings.options.observe(),
        empty_exit: settings.options.empty_exit.value().map(i32::from),
        must_record: settings.options.must_record(),
        stuck_after: settings.options.stuck_after.value().map(u64::from),
    }
}

/// Checks upstreams and artifacts, if there are any.
pub fn check(
    settings: &Settings,
    place: &Place,
    store: &Arc<dyn Store>,
    pins: Option<&Pins>,
    waiting: Option<WaitingRun>,
) -> Result<Option<UpstreamCheck>, Failure> {
    if settings.needs.is_empty() && settings.produces.is_empty() {
        return Ok(None);
    }
    Ok(Some(UpstreamCheck {
        store: Arc::clone(store),
        local: place.local(),
        base: settings.base.clone(),
        bases: upstreams::bases(&settings.needs, place.config.as_ref()),
        needs: settings.needs.clone(),
        wait: settings.options.needs_wait(),
        due: upstreams::last_due(&settings.needs, place.config.as_ref())?,
        pins: pins.map(Pins::directory),
        produces: settings.produces.clone(),
        waiting,
    }))
}

fn opened(place: &Place, settings: &Settings) -> Result<Arc<dyn Store>, Failure> {
    match (place.open(), settings.options.on_store_error()) {
        (Err(failure), _) if settings.options.observe() => Ok(Arc::new(OutOfReach(failure.into_store_error()))),
        (Err(Failure::Store(error)), OnStoreError::Run) => Ok(Arc::new(OutOfReach(error))),
        (opened, _) => opened,
    }
}

/// The summary of a run that failed before it began.
fn failed(failure: &Failure) -> Summary {
    Summary::failed(failure.code(true).0, failure.reason(), failure.message())
}
