//! `fencepost run`: guard one run of a command.

pub mod again;
mod capture;
mod dry;
mod environment;
mod output;
mod unguarded;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fencepost_core::lease::{Claim, Honest, Intent};
use fencepost_core::ledger::{Status, Trigger};
use fencepost_core::name::Job;
use fencepost_core::run::{Event, Exit, Finish, Overlap, Run, Stages, Terms};
use fencepost_core::skips::Skip;
use fencepost_core::slot::{Choice, Standing};
use fencepost_core::token::RunId;
use fencepost_guard::child::{Child, Plan};
use fencepost_guard::drive::{Note, drive};
use fencepost_guard::keeper::Keeper;
use fencepost_guard::pin::Pins;
use fencepost_guard::scout::Scout;
use fencepost_guard::signals::Signals;
use fencepost_guard::terminal::Terminal;
use fencepost_guard::transact::{count_skip, look, transact};
use fencepost_guard::{clock, nudge, retention};
use fencepost_store::Store;
use nix::libc::SIGINT;

use self::again::{Again, Ended, Next};
use self::capture::{Capture, keep_files};
use self::environment::environment;
use self::output::{OutOfReach, Output};
use self::unguarded::Unguarded;
use crate::args::{Global, OverlapChoice, RunOptions, Sink, StoreErrorChoice};
use crate::config;
use crate::events::Events;
use crate::exit::{Code, Failure};
use crate::inside;
use crate::notify::{self, Teller};
use crate::place::Place;
use crate::report::{self, Voice};
use crate::settings::Settings;
use crate::upstreams;

pub fn run(global: &Global, options: &RunOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let settings = Settings::of(options, place.config.as_ref(), &place.store)?;
    let job = super::job(&options.basics.job, options.more.per_host, &place)?;
    if let Some(remark) = &settings.remark {
        Voice::of(global).tell(remark);
    }
    if options.more.dry_run {
        return dry::run(global, &place, &job, &settings);
    }
    let again = Again::from_environment(&settings);
    let run = super::mint_run();
    let sink = options.more.events.as_ref().map(Sink::parse).transpose().map_err(Failure::Usage)?;
    let mut teller = Teller::of(global, &settings, &place, &job, run);
    let unguarded = settings.observe.then(|| Unguarded::of(&settings, environment(&place, &settings, &job, run)));
    let label = job.to_string();
    let attempt = Attempt { global, settings, place, job, run, again };
    let result = Events::open(sink, label.clone(), run.to_string()).and_then(|mut events| {
        let result = attempt.guard(&mut events);
        result.inspect_err(|failure| events.fail(failure, Code::of(failure, true).0))
    });
    if let Err(failure) = &result {
        teller.iter_mut().for_each(|teller| teller.fail(failure, Code::of(failure, true)));
    }
    let outcome = match (result, unguarded) {
        (Err(failure), Some(unguarded)) => return Err(unguarded.exec(Voice::of(global), &label, &failure)),
        (result, _) => result?,
    };
    match outcome.next {
        // Another attempt is another process: the keeper is forked before there are threads. This one's is gone first.
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

/// One run, as it was asked for.
pub struct Attempt<'a> {
    pub global: &'a Global,
    pub settings: Settings,
    pub place: Place,
    pub job: Job,
    pub run: RunId,
    pub again: Again,
}

/// How an attempt came out, for whoever made it.
pub struct Outcome {
    pub code: Code,
    pub finish: Finish,
    next: Option<Next>,
    child: Child,
    is_interrupted: bool,
}

impl Outcome {
    /// Ends by ctrl-C if that ended the run. For when everything is done and said.
    pub fn share_ctrl_c(&self) {
        if self.is_interrupted {
            report::flush();
            self.child.end_like_ctrl_c();
        }
    }
}

/// Whether SIGINT ended the command, or the run before it had one.
fn is_interrupted(finish: &Finish) -> bool {
    match finish {
        Finish::Ended { exit, .. } | Finish::WithoutLease { exit, .. } | Finish::Unrecorded { exit, .. } => {
            *exit == Exit::Signal(SIGINT)
        }
        Finish::Interrupted(signal) => *signal == SIGINT,
        _ => false,
    }
}

impl Attempt<'_> {
    pub fn guard(self, events: &mut Events) -> Result<Outcome, Failure> {
        let Self { global, settings, place, job, run, again } = self;
        // The keeper is forked before the store is opened: no database handle crosses a fork, and no thread exists yet.
        let keeper = Keeper::start().map_err(|error| Failure::Other(format!("Cannot start the keeper: {error}")))?;
        let terminal = Terminal::detect();
        let begun = Instant::now();
        let mut signals =
            Signals::listen().map_err(|error| Failure::Other(format!("Cannot listen to signals: {error}")))?;
        let store = opened(&place, &settings)?;
        let output = Output::prepare(&settings, &place, run)?;
        let voice = Voice::of(global);
        let capture = Capture::prepare(&settings, &place, &job, run).unwrap_or_else(|error| {
            voice.warn(&format!("{job}: what it prints cannot be kept: {error}. It runs all the same."));
            None
        });
        let kept =
            |path: fn(&Capture) -> &PathBuf| capture.as_ref().map(|capture| path(capture).clone().into_os_string());
        let held_back =
            |path: fn(&Output) -> &PathBuf| output.as_ref().map(|output| path(output).clone().into_os_string());
        let claim = Claim {
            run,
            ttl: settings.ttl,
            holder: place.host.holder(std::process::id() as i32, keeper.mark()),
            slot: again.choice(&settings, clock::now().wall),
            zone: settings.zone.name().to_string(),
            trigger: Trigger::Manual,
        };
        let terms = terms(&settings, job.clone(), claim);
        let label = job.to_string();
        let pins = (!settings.needs.is_empty()).then(|| Pins::new(&place.state, run)).transpose().map_err(|error| {
            Failure::Other(format!("Cannot make a place for what the job reads in {}: {error}", place.state.display()))
        })?;
        let plan = Plan {
            argv: settings.argv.clone(),
            prepare: settings.prepare.clone(),
            scout: scout(&settings, &place, &store, pins.as_ref())?,
            cwd: settings.working_directory.clone().map(PathBuf::into_os_string),
            grace: settings.grace,
            leave_children: settings.leave_children,
            observe: settings.observe,
            ends_when_asked: config::is_under_up(),
            stdout: held_back(|output| &output.stdout).or_else(|| kept(|capture| &capture.stdout)),
            stderr: held_back(|output| &output.stderr).or_else(|| kept(|capture| &capture.stderr)),
            label: label.clone(),
            run,
            said: place.said(run),
            env: environment(&place, &settings, &job, run),
        };
        let mut child = Child::new(plan, keeper, terminal);
        let (mut claimed_slot, mut granted) = (None, None);
        let mut teller = Teller::of(global, &settings, &place, &job, run);
        let mut tell = |note: Note| {
            if let (Note::Event(event), Some(teller)) = (&note, &mut teller) {
                teller.note(event);
            }
            match &note {
                Note::Event(Event::Claimed { slot, grants, .. }) => {
                    (claimed_slot, granted) = (Some(*slot), Some(*grants));
                    if let Some(capture) = &capture {
                        capture.claimed(*slot);
                    }
                }
                Note::Event(Event::WithoutLease { .. }) => {
                    if let Some(capture) = &capture {
                        capture.claimed(clock::now().wall);
                    }
                }
                Note::Event(Event::Observed { status, .. }) => {
                    if let Some(skip) = skip_of(*status).or_else(|| overlap(*status, store.as_ref(), &job)) {
                        let _ = count_skip(store.as_ref(), &place.local(), &job, run, &place.host.name, skip);
                    }
                }
                _ => {}
            }
            events.note(&note);
            voice.note(&label, &note);
            if let Note::Event(Event::AskedToStop { record }) = &note {
                nudge(&place.host, record);
            }
        };
        let callee = place.callee(&store);
        let finish = drive(Run::new(terms), callee, &place.local(), &mut signals, &mut child, &mut tell);
        let code = Code::of_run(&finish, Code(settings.skip_exit));
        if let Some(capture) = capture {
            capture.finish();
        }
        if let Some(output) = output {
            if let Some(slot) = claimed_slot {
                keep_files(&settings, &place, &job, run, slot, [&output.stdout, &output.stderr]);
            }
            let was_skipped =
                matches!(&finish, Finish::Held { .. } | Finish::NotNow(_) | Finish::Barred { halt: false, .. });
            output.show_if(!was_skipped && code != Code::DONE);
        }
        let now = clock::now().wall;
        voice.finish(&label, &finish, now);
        if global.json {
            report::finish_json(code, &label, &finish, now);
        }
        let mut in_a_row = None;
        match &finish {
            Finish::Held { record, .. } => {
                in_a_row = skipped(&place, store.as_ref(), &job, run, Skip::Overlap(record.token), voice);
            }
            Finish::NotNow(why) => {
                if let Some(skip) = skip_of(why.status()) {
                    skipped(&place, store.as_ref(), &job, run, skip, voice);
                }
            }
            Finish::Fenced { refused, recorded, .. } if !recorded.is_recorded() => {
                // The lease is another's by now, so that the last swap could not say it. It is counted all the same.
                let _ = transact(store.as_ref(), &place.local(), &job, Intent::NotePublish(*refused.clone()), run);
            }
            _ => {}
        }
        let status = status(&finish);
        events.end(&finish, status.as_str(), code.0);
        let ended = Ended { finish: &finish, status, code, slot: claimed_slot, took: begun.elapsed() };
        let is_interrupted = is_interrupted(&finish);
        let next = match is_interrupted || signals.asked_to_end().is_some() {
            true => None,
            false => again.next(&settings, &ended, |choice| would_run(store.as_ref(), &job, choice)),
        };
        match &mut teller {
            Some(teller) if next.as_ref().is_some_and(Next::is_retry) => teller.retry(),
            Some(teller) => {
                let (slot, retries, message) = (claimed_slot, again.retries_done(), String::new());
                teller.end(&finish, notify::Ended { status, code: code.0, message, slot, retries, in_a_row });
            }
            None => {}
        }
        if granted.is_some_and(retention::is_due) {
            look_after(store.as_ref(), &job, voice, global.verbose);
        }
        let code = again.code(code, &finish);
        // All that was written is flushed, and the system closes its files faster than a database does.
        std::mem::forget(store);
        match next.as_ref().map(|next| next.wait(&mut signals)) {
            Some(Err(signal)) => {
                let (code, is_interrupted) = (Code::of_signal(signal), signal == SIGINT);
                Ok(Outcome { code, finish, next: None, child, is_interrupted })
            }
            _ => Ok(Outcome { code, finish, next, child, is_interrupted }),
        }
    }
}

fn terms(settings: &Settings, job: Job, claim: Claim) -> Terms {
    Terms {
        job,
        claim,
        grace: settings.grace,
        overlap: match settings.overlap {
            OverlapChoice::Skip => Overlap::Skip,
            OverlapChoice::Replace => Overlap::Replace,
        },
        wait: settings.wait,
        timeout: settings.timeout,
        run_without_store: settings.on_store_error == StoreErrorChoice::Run,
        inside: inside::runs(),
        stages: Stages {
            prepare: settings.prepare.is_some(),
            inspect: !settings.needs.is_empty() || !settings.produces.is_empty(),
            survey: !settings.produces.is_empty(),
        },
        observe: settings.observe,
        empty_exit: settings.empty_exit.map(i32::from),
        stuck_after: settings.stuck_after.map(u64::from),
    }
}

/// Looks at upstreams and artifacts, if there are any.
fn scout(
    settings: &Settings,
    place: &Place,
    store: &Arc<dyn Store>,
    pins: Option<&Pins>,
) -> Result<Option<Scout>, Failure> {
    if settings.needs.is_empty() && settings.produces.is_empty() {
        return Ok(None);
    }
    Ok(Some(Scout {
        store: Arc::clone(store),
        local: place.local(),
        base: settings.base.clone(),
        bases: upstreams::bases(&settings.needs, place.config.as_ref()),
        needs: settings.needs.clone(),
        wait: settings.needs_wait,
        due: upstreams::last_due(&settings.needs, place.config.as_ref())?,
        pins: pins.map(Pins::directory),
        produces: settings.produces.clone(),
    }))
}

fn opened(place: &Place, settings: &Settings) -> Result<Arc<dyn Store>, Failure> {
    match (place.open(), settings.on_store_error) {
        (Err(failure), _) if settings.observe => Ok(Arc::new(OutOfReach(failure.into_store_error()))),
        (Err(Failure::Store(error)), StoreErrorChoice::Run) => Ok(Arc::new(OutOfReach(error))),
        (opened, _) => opened,
    }
}

/// A skip is not a failure: it is counted apart, under its own key. Says how many overlaps there were in a row.
fn skipped(place: &Place, store: &dyn Store, job: &Job, run: RunId, skip: Skip, voice: Voice) -> Option<u64> {
    match count_skip(store, &place.local(), job, run, &place.host.name, skip) {
        Ok(skips) => skips.last.map(|last| last.in_a_row),
        Err(error) => {
            voice.warn(&format!("{job} was skipped, but the skip could not be counted: {error}"));
            None
        }
    }
}

/// Gives up what is old in the job's history, now that everything is said. That is housekeeping: if it cannot be done
/// today, a later run does it.
fn look_after(store: &dyn Store, job: &Job, voice: Voice, aloud: bool) {
    let pruned = look(store, job).and_then(|(record, clock)| {
        let here = clock::now().wall;
        let now = clock.map_or(here, |clock| clock.wall.min(here));
        record.map_or(Ok(0), |record| retention::prune(store, &record, now))
    });
    match pruned {
        _ if !aloud => {}
        Ok(0) => {}
        Ok(count) => voice.tell(&format!("{job}: gave up {count} old entries of its history.")),
        Err(error) => voice.tell(&format!("{job}: old entries of its history could not be given up: {error}")),
    }
}

/// What a skip is counted as, if it is. A trigger that finds nothing due is not.
fn skip_of(status: Status) -> Option<Skip> {
    match status {
        Status::SkippedDuplicate => Some(Skip::Duplicate),
        Status::SkippedPaused => Some(Skip::Paused),
        _ => None,
    }
}

/// An overlap that was only observed, by the run that was in the way.
fn overlap(status: Status, store: &dyn Store, job: &Job) -> Option<Skip> {
    let (record, _) = look(store, job).ok().filter(|_| status == Status::SkippedOverlap)?;
    record.map(|record| Skip::Overlap(record.token))
}

/// Whether a choice comes to a run now, or soon. Nothing if the store does not answer.
fn would_run(store: &dyn Store, job: &Job, choice: &Choice) -> Option<bool> {
    let (record, clock) = look(store, job).ok()?;
    let now = clock.map_or_else(|| clock::now().wall, |clock| clock.wall);
    Some(choice.choose::<Honest>(record.as_ref(), Standing::Stands, now).is_ok())
}

fn status(finish: &Finish) -> Status {
    match finish {
        Finish::Ended { judgement, .. } | Finish::WithoutLease { judgement, .. } => judgement.status,
        Finish::Barred { halt: true, .. } => Status::Halted,
        Finish::Barred { halt: false, .. } => Status::SkippedBarrier,
        Finish::Fenced { .. } => Status::Fenced,
        Finish::Stopped { why, .. } => why.status(),
        Finish::Held { .. } => Status::SkippedOverlap,
        Finish::NotNow(why) => why.status(),
        _ => Status::Error,
    }
}
