//! `fencepost run`: guard one run of a command.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use fencepost_core::lease::{Claim, Intent};
use fencepost_core::ledger::{Status, Trigger};
use fencepost_core::name::Job;
use fencepost_core::register::StoreError;
use fencepost_core::run::{Event, Finish, Overlap, Run, Stages, Terms};
use fencepost_core::token::RunId;
use fencepost_guard::child::{Child, Environment, Plan, Variables};
use fencepost_guard::drive::{Note, drive};
use fencepost_guard::keeper::Keeper;
use fencepost_guard::pin::Pins;
use fencepost_guard::scout::{PINNED, Pinned, Scout};
use fencepost_guard::signals::Signals;
use fencepost_guard::terminal::Terminal;
use fencepost_guard::transact::{count_skip, look, transact};
use fencepost_guard::{clock, nudge, retention};
use fencepost_store::{Answer, Entry, Key, Store, Swapped, Version};

use crate::args::{Global, OverlapChoice, RunOptions, Sink, StoreErrorChoice};
use crate::config::VARIABLE;
use crate::events::Events;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::{self, Voice};
use crate::settings::Settings;
use crate::show;
use crate::upstreams;

pub fn run(global: &Global, options: &RunOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let settings = Settings::of(options, place.config.as_ref())?;
    let job = super::job(&options.job, options.per_host, &place)?;
    if let Some(remark) = &settings.remark {
        Voice::of(global).tell(remark);
    }
    if options.dry_run {
        return dry_run(&place, &job, &settings);
    }
    let run = super::mint_run();
    let sink = options.events.as_ref().map(Sink::parse).transpose().map_err(Failure::Usage)?;
    let mut events = Events::open(sink, job.to_string(), run.to_string())?;
    let attempt = Attempt { global, settings, place, job, run };
    let result = attempt.guard(&mut events);
    if let Err(failure) = &result {
        events.fail(failure, Code::of(failure, true).0);
    }
    result
}

/// One run, as it was asked for.
struct Attempt<'a> {
    global: &'a Global,
    settings: Settings,
    place: Place,
    job: Job,
    run: RunId,
}

impl Attempt<'_> {
    fn guard(self, events: &mut Events) -> Result<Code, Failure> {
        let Self { global, settings, place, job, run } = self;
        // The keeper is forked before the store is opened: no database handle crosses a fork, and no thread exists yet.
        let keeper = Keeper::start().map_err(|error| Failure::Other(format!("Cannot start the keeper: {error}")))?;
        let terminal = Terminal::detect();
        let mut signals =
            Signals::listen().map_err(|error| Failure::Other(format!("Cannot listen to signals: {error}")))?;
        let store = opened(&place, &settings)?;
        let output = Output::prepare(&settings, &place, run)?;
        let claim = Claim {
            run,
            ttl: settings.ttl,
            holder: place.host.holder(std::process::id() as i32, Some(keeper.pid())),
            slot: clock::now().wall,
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
            stdout: output.as_ref().map(|output| output.stdout.clone().into_os_string()),
            stderr: output.as_ref().map(|output| output.stderr.clone().into_os_string()),
            label: label.clone(),
            run,
            said: place.said(run),
            env: environment(&place, &settings, run),
        };
        let mut child = Child::new(plan, keeper, terminal);
        let voice = Voice::of(global);
        let mut granted = None;
        let mut tell = |note: Note| {
            events.note(&note);
            if let Note::Event(Event::Claimed { grants, .. }) = &note {
                granted = Some(*grants);
            }
            voice.note(&label, &note);
            if let Note::Event(Event::AskedToStop { record }) = &note {
                nudge(&place.host, record);
            }
        };
        let finish = drive(Run::new(terms), Arc::clone(&store), &place.local(), &mut signals, &mut child, &mut tell)
            .map_err(|error| Failure::Other(format!("Cannot start the store's thread: {error}")))?;
        let code = Code::of_run(&finish, Code(settings.skip_exit));
        if let Some(output) = output {
            let was_skipped = matches!(&finish, Finish::Held { .. } | Finish::Barred { halt: false, .. });
            output.show_if(!was_skipped && code != Code::DONE);
        }
        let now = clock::now().wall;
        voice.finish(&label, &finish, now);
        if global.json {
            report::finish_json(code, &label, &finish, now);
        }
        match &finish {
            Finish::Held { record, .. } => skipped(&place, store.as_ref(), &job, run, record, voice),
            Finish::Fenced { refused, recorded: false, .. } => {
                // The lease is another's by now, so that the last swap could not say it. It is counted all the same.
                let _ = transact(store.as_ref(), &place.local(), &job, Intent::NotePublish(*refused.clone()), run);
            }
            _ => {}
        }
        events.end(&finish, status(&finish).as_str(), code.0);
        if granted.is_some_and(retention::is_due) {
            look_after(store.as_ref(), &job, voice, global.verbose);
        }
        Ok(code)
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
        leaves_outcome: true,
        inside: std::env::var("FENCEPOST_RUN").ok().and_then(|run| run.parse().ok()),
        stages: Stages {
            prepare: settings.prepare.is_some(),
            inspect: !settings.needs.is_empty() || !settings.produces.is_empty(),
            survey: !settings.produces.is_empty(),
        },
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
        needs: settings.needs.clone(),
        wait: settings.needs_wait,
        due: upstreams::last_due(&settings.needs, place.config.as_ref())?,
        pins: pins.map(Pins::directory),
        produces: settings.produces.clone(),
    }))
}

/// What the child is told. Whatever an outer run had told us is replaced or removed.
fn environment(place: &Place, settings: &Settings, run: RunId) -> Environment {
    let said = place.said(run).into_os_string();
    let store = place.shown_store();
    let mut configured: Variables =
        settings.environment.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    // What the job itself calls goes by the same configuration, wherever it does so.
    configured.extend(place.config.as_ref().map(|config| (VARIABLE.into(), Some(config.path.clone().into()))));
    let zone = settings.zone.clone();
    Box::new(move |grant, inputs| {
        let lease = grant.and_then(|grant| grant.record.lease.as_ref().map(|lease| (&grant.record, lease)));
        let value = |value: fn(&fencepost_core::record::Record, &fencepost_core::record::Lease) -> String| {
            lease.map(|(record, lease)| value(record, lease))
        };
        let variables = [
            ("FENCEPOST_JOB", value(|record, _| record.job.to_string())),
            ("FENCEPOST_RUN", value(|_, lease| lease.run.to_string())),
            ("FENCEPOST_TOKEN", value(|record, _| record.token.to_string())),
            ("FENCEPOST_SLOT", lease.map(|(_, lease)| zone.show(lease.slot))),
            ("FENCEPOST_DATE", lease.map(|(_, lease)| zone.date(lease.slot).to_string())),
            ("FENCEPOST_TRIGGER", value(|_, lease| lease.trigger.as_str().to_string())),
            ("FENCEPOST_LATE_SECONDS", value(|_, _| "0".to_string())),
            ("FENCEPOST_KEY", value(|record, lease| format!("{}/{}", record.job, show::time(lease.slot)))),
            ("FENCEPOST_STORE", Some(store.clone())),
            ("FENCEPOST_STORE_ID", value(|record, _| record.store.to_string())),
            ("FENCEPOST_STORE_PASSWORD", None),
        ];
        let outcome = (OsString::from("FENCEPOST_OUTCOME"), lease.map(|_| said.clone()));
        let told = variables.into_iter().map(|(name, value)| (name.into(), value.map(OsString::from)));
        configured.iter().cloned().chain(told).chain([outcome]).chain(pinned(inputs)).collect()
    })
}

/// Where the job finds what it reads of its upstreams. What an outer run pinned is none of its business.
fn pinned(inputs: &[Pinned]) -> Variables {
    let outer = std::env::vars_os().map(|(name, _)| name).filter(|name| name.as_bytes().starts_with(PINNED.as_bytes()));
    let mine = inputs.iter().map(|input| (OsString::from(input.variable()), Some(input.path.clone().into_os_string())));
    outer.map(|name| (name, None)).chain(mine).collect()
}

fn opened(place: &Place, settings: &Settings) -> Result<Arc<dyn Store>, Failure> {
    match (place.open(), settings.on_store_error) {
        (Err(Failure::Store(error)), StoreErrorChoice::Run) => Ok(Arc::new(OutOfReach(error))),
        (opened, _) => opened,
    }
}

/// A skip is not a failure: it is counted apart, under its own key.
fn skipped(
    place: &Place,
    store: &dyn Store,
    job: &Job,
    run: RunId,
    record: &fencepost_core::record::Record,
    voice: Voice,
) {
    if let Err(error) = count_skip(store, &place.local(), job, run, &place.host.name, record.token) {
        voice.warn(&format!("{job} was skipped, but the skip could not be counted: {error}"));
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

fn dry_run(place: &Place, job: &Job, settings: &Settings) -> Result<Code, Failure> {
    // Opening a store makes it, which is more than nothing.
    let (record, clock) = if place.is_unmade() { (None, None) } else { look(place.open()?.as_ref(), job)? };
    let Some((record, lease)) = record.as_ref().and_then(|record| record.lease.as_ref().map(|lease| (record, lease)))
    else {
        show::line(&format!("{job} would run: nobody holds it."));
        return Ok(Code::DONE);
    };
    if place.is_over(record, clock.as_ref()) {
        show::line(&format!("{job} would run: the run before ({}) did not end properly.", lease.run));
        return Ok(Code::DONE);
    }
    let holder = show::holder(lease, show::remaining(record, clock.as_ref()), clock::now().wall);
    if settings.overlap == OverlapChoice::Replace {
        show::line(&format!("{job} would ask its holder to stop, and run in its place: it is held by {holder}."));
        return Ok(Code::DONE);
    }
    if let Some(wait) = settings.wait {
        let wait = crate::duration::show(wait);
        show::line(&format!("{job} would wait up to {wait} for its turn: it is held by {holder}."));
        return Ok(Code::DONE);
    }
    show::line(&format!("{job} would be skipped: it is held by {holder}."));
    Ok(Code(settings.skip_exit))
}

fn status(finish: &Finish) -> Status {
    match finish {
        Finish::Ended { judgement, .. } | Finish::WithoutLease { judgement, .. } => judgement.status,
        Finish::Barred { halt: true, .. } => Status::Halted,
        Finish::Barred { halt: false, .. } => Status::SkippedBarrier,
        Finish::Fenced { .. } => Status::Fenced,
        Finish::Stopped { why, .. } => why.status(),
        Finish::Held { .. } => Status::SkippedOverlap,
        _ => Status::Error,
    }
}

/// The command's output, held back until it is known whether anybody needs it.
#[derive(Debug)]
struct Output {
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Output {
    fn prepare(settings: &Settings, place: &Place, run: RunId) -> Result<Option<Self>, Failure> {
        if !settings.output_on_failure {
            return Ok(None);
        }
        let directory = place.state.join("output");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
            Failure::Other(format!("Cannot hold the output back in {}: {error}", directory.display()))
        })?;
        let file = |stream: &str| directory.join(format!("{run}.{stream}"));
        Ok(Some(Self { stdout: file("stdout"), stderr: file("stderr") }))
    }

    fn show_if(self, failed: bool) {
        if failed {
            let copy = |path: &PathBuf, to: &mut dyn io::Write| {
                std::fs::File::open(path).and_then(|mut file| io::copy(&mut file, to))
            };
            let _ = copy(&self.stdout, &mut io::stdout().lock());
            let _ = copy(&self.stderr, &mut io::stderr().lock());
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.stdout);
        let _ = std::fs::remove_file(&self.stderr);
    }
}

/// A store that could not be opened, for a run that goes on without one.
#[derive(Debug)]
struct OutOfReach(StoreError);

impl Store for OutOfReach {
    fn read(&self, _key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        Err(self.0.clone())
    }

    fn swap(&self, _: &Key, _: Option<&Version>, _: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        Err(self.0.clone())
    }

    fn scan(&self, _prefix: &str, _after: Option<&Key>, _limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        Err(self.0.clone())
    }
}
