//! A lease that is held. The thread that claims it drives its run, and so does the one that ends it; between the two the
//! run is parked (see [`crate::parked`]), and gets a thread of its own when it has to be renewed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::artifact::Artifact;
use fencepost_core::contract::{Recorded, Word};
use fencepost_core::ledger::{Status, WHOLE_NOTE_BYTES_MAX, cut};
use fencepost_core::name::Job;
use fencepost_core::record::Lease;
use fencepost_core::run::{Event, Exit, Finish, Grant, Run};
use fencepost_core::said::Said;
use fencepost_core::time::Boot;
use fencepost_core::token::RunId;
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::{Base, read};
use fencepost_guard::drive::Note;
use fencepost_guard::pin::Pins;
use fencepost_guard::program::{NewsSink, ProgramHandle, ProgramNews, ProgramRun, ProgramWork};
use fencepost_guard::publish::Writer;
use fencepost_guard::transact::{Unsettled, look, settle};
use fencepost_guard::upstream_check::{Pinned, UpstreamCheck};
use fencepost_guard::{clock, nudge, retention};
use fencepost_view::ReasonCode;
use fencepost_view::run_end::RunContext;
use fencepost_view::summary::Summary;

use crate::claim::LeaseKind;
use crate::error::GuardError;
use crate::guard::GuardPlace;
use crate::parked::{ParkedRuns, Ticket};

/// The exit code that leaves it unknown whether an item of work had its effect.
const UNKNOWN: i32 = 255;

/// A lease that this program holds. Threads of the library renew it until [`HeldLease::done`].
///
/// If it is dropped without `done`, the work is recorded as an error and the lease is released; an item of
/// [`Guard::once`](crate::Guard::once) is recorded as unknown.
#[must_use = "a lease that is dropped is recorded as an error and released"]
pub struct HeldLease {
    kind: LeaseKind,
    pub(crate) handle: ProgramHandle,
    watch: Arc<LeaseWatch>,
    parking: Arc<ParkedRuns>,
    ticket: Ticket,
    is_ended: bool,
    grant: Grant,
    inputs: BTreeMap<String, PathBuf>,
    zone: Zone,
    pub(crate) writer: Writer,
    said: Mutex<Recorded>,
}

impl std::fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldLease").field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// A run that is about to be claimed.
pub(crate) struct ClaimedRun {
    pub(crate) place: Arc<GuardPlace>,
    pub(crate) kind: LeaseKind,
    /// Its end records no outcome.
    pub(crate) is_lock: bool,
    pub(crate) job: Job,
    pub(crate) id: RunId,
    pub(crate) run: Run,
    pub(crate) zone: Zone,
    /// Keeps the copies of the inputs until the run has ended.
    pub(crate) pins: Option<Pins>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct RunOver {
    pub(crate) summary: Summary,
    /// How many claims in a row the run that holds the lease has turned away.
    pub(crate) in_a_row: Option<u64>,
    /// If the effect of an earlier attempt is unknown: its token.
    pub(crate) token: Option<u64>,
}

/// A run with everything that a thread needs to drive it.
pub(crate) struct LeaseRun {
    place: Arc<GuardPlace>,
    job: Job,
    is_lock: bool,
    id: RunId,
    zone: Zone,
    pins: Option<Pins>,
    program: ProgramRun,
    /// The number of the grant, once there is one.
    grants: Option<u64>,
    watch: Arc<LeaseWatch>,
}

impl LeaseRun {
    /// Drives the run until the lease is held. False if it came to nothing: then the program has been told why.
    fn claim(&mut self) -> bool {
        let Self { place, program, grants, .. } = self;
        let finish = program.claim(&place.local, &mut |note| hear(place, grants, note));
        let is_held = finish.is_none();
        finish.into_iter().for_each(|finish| self.tell_end(finish));
        is_held
    }

    /// When the run has to be driven again.
    pub(crate) fn due(&self) -> Boot {
        self.program.due().unwrap_or_default()
    }

    /// Drives the run to its end. Then removes old entries of the job's history, if it is due: the program does not wait for it.
    pub(crate) fn finish(&mut self) {
        let Self { place, program, grants, .. } = self;
        let finish = program.finish(&place.local, &mut |note| hear(place, grants, note));
        self.tell_end(finish);
    }

    /// Drives the run to its end on a thread of its own. If none can be started, the run is dropped, and the program learns that
    /// the lease is lost.
    pub(crate) fn finish_on_a_thread(mut self: Box<Self>) {
        let thread = std::thread::Builder::new().name("fencepost lease".to_string());
        let _ = thread.spawn(move || self.finish());
    }

    fn tell_end(&mut self, finish: Finish) {
        // The copies of the inputs are gone when the program learns of the end.
        self.pins = None;
        let Self { place, job, is_lock, id, zone, grants, .. } = self;
        let context = RunContext { job, skip_exit: 0, now: clock::now().wall, zone };
        let summary = context.summary(finish);
        let store = &place.store;
        let left = Unsettled { refused: summary.unrecorded_refusal(), skip: summary.skip };
        let in_a_row = settle(store.as_ref(), &place.local, job, *id, &place.host.name, left).ok().flatten();
        let is_unknown = summary.is(ReasonCode::Unknown);
        let record = is_unknown.then(|| look(store.as_ref(), job).ok().and_then(|(record, _)| record)).flatten();
        let token = record.map(|record| record.token.number());
        self.watch.change(|state| state.over = Some(RunOver { summary, in_a_row, token }));
        if !*is_lock && grants.is_some_and(retention::is_due) {
            let (store, job) = (Arc::clone(store), job.clone());
            let thread = std::thread::Builder::new().name("fencepost history".to_string());
            // If it fails, a later run removes them.
            let _ = thread.spawn(move || retention::look_after(store.as_ref(), &job));
        }
    }
}

/// Notes the end of a lease's run, however it ends.
impl Drop for LeaseRun {
    fn drop(&mut self) {
        self.watch.end();
    }
}

fn hear(place: &GuardPlace, grants: &mut Option<u64>, note: Note) {
    match note {
        Note::Event(Event::Claimed { grants: number, .. }) => *grants = Some(number),
        Note::Event(Event::AskedToStop { record }) => nudge(&place.host, &record),
        _ => {}
    }
}

/// What is called when a lease is lost.
type LossCallback = Box<dyn FnOnce(&str) + Send>;

/// What the run of a lease tells the program.
#[derive(Default)]
pub(crate) struct LeaseWatch {
    state: Mutex<WatchedLease>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchedLease {
    granted: Option<(Grant, Vec<Pinned>)>,
    over: Option<RunOver>,
    /// The run is driven no more: it is over, or its thread has panicked.
    is_gone: bool,
    loss: Option<String>,
    stop: Option<String>,
    callbacks: Vec<LossCallback>,
}

impl LeaseWatch {
    fn change(&self, change: impl FnOnce(&mut WatchedLease)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn hear(&self, news: ProgramNews) {
        match news {
            ProgramNews::Granted { grant, inputs } => self.change(|state| state.granted = Some((grant, inputs))),
            ProgramNews::Stop { why, .. } => self.change(|state| state.stop = Some(why.note())),
            ProgramNews::Lost { why } => self.lose(why.note()),
            ProgramNews::Renewed { .. } | ProgramNews::RenewalFailed { .. } => {}
        }
    }

    fn lose(&self, why: String) {
        let mut callbacks = Vec::new();
        self.change(|state| {
            state.loss.get_or_insert_with(|| why.clone());
            callbacks = std::mem::take(&mut state.callbacks);
        });
        callbacks.into_iter().for_each(|callback| call(callback, why.clone()));
    }

    /// The run is driven no more. A lease that has not ended by then is not renewed.
    fn end(&self) {
        let is_over = self.state().over.is_some();
        if !is_over {
            self.lose("no thread of fencepost renews it any more".to_string());
        }
        self.change(|state| state.is_gone = true);
    }

    fn wait_while(&self, is_so: impl Fn(&WatchedLease) -> bool) -> MutexGuard<'_, WatchedLease> {
        self.changed.wait_while(self.state(), |state| is_so(state)).unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, WatchedLease> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls a callback on a thread of its own: the thread of the lease must not wait for it.
fn call(callback: LossCallback, why: String) {
    let _ = std::thread::Builder::new().name("fencepost lost".to_string()).spawn(move || callback(&why));
}

impl HeldLease {
    /// Drives a run until it is granted or refused.
    pub(crate) fn claim(claimed: ClaimedRun, check: Option<UpstreamCheck>) -> Result<Self, GuardError> {
        let ClaimedRun { place, kind, is_lock, job, id, run, zone, pins } = claimed;
        let (parking, host) = (Arc::clone(&place.parking), place.host.name.clone());
        let watch = Arc::new(LeaseWatch::default());
        let sink: NewsSink = {
            let watch = Arc::clone(&watch);
            Arc::new(move |news| watch.hear(news))
        };
        let (work, handle) = ProgramWork::new(check, run.grace(), sink)
            .map_err(|error| GuardError::Failed(format!("Cannot open a socket for the lease: {error}")))?;
        let program = ProgramRun::new(work, run, place.callee(is_lock));
        let watch_of_run = Arc::clone(&watch);
        let mut run = Box::new(LeaseRun {
            is_lock,
            place,
            job,
            id,
            zone: zone.clone(),
            pins,
            program,
            grants: None,
            watch: watch_of_run,
        });
        let is_held = run.claim();
        let mut state = watch.state();
        let (granted, over) = (state.granted.take(), state.over.as_ref().and_then(GuardError::of));
        drop(state);
        let Some((grant, inputs)) = granted.filter(|_| is_held) else {
            return Err(over.unwrap_or_else(|| GuardError::Failed("The claim ended without a lease.".to_string())));
        };
        let ticket = parking.park(run).map_err(|(mut run, error)| {
            handle.end(Exit::Code(1));
            run.finish();
            GuardError::Failed(format!("Cannot start a thread to renew the lease: {error}. It was released."))
        })?;
        let Some(lease) = &grant.record.lease else {
            return Err(GuardError::Failed("the record holds no lease".to_string()));
        };
        let writer = Writer {
            store: grant.record.store,
            job: grant.record.job.clone(),
            token: grant.record.token,
            run: lease.run,
            host,
        };
        let inputs = inputs.into_iter().map(|input| (input.upstream.to_string(), input.path)).collect();
        let said = Mutex::new(Recorded { word: Word::Ok, note: None, artifacts: Vec::new() });
        Ok(Self { kind, handle, watch, parking, ticket, is_ended: false, grant, inputs, zone, writer, said })
    }

    fn lease(&self) -> Option<&Lease> {
        self.grant.record.lease.as_ref()
    }

    /// The fencing token, greater than that of every earlier grant of the job.
    pub fn token(&self) -> u64 {
        self.writer.token.number()
    }

    /// The id of this run.
    pub fn run(&self) -> String {
        self.writer.run.to_string()
    }

    /// The job's name, as `fencepost_check` and the fence headers take it.
    pub fn job(&self) -> String {
        self.writer.job.to_string()
    }

    /// The name of this host.
    pub fn host(&self) -> &str {
        &self.writer.host
    }

    /// The identity of the store: with the job's name, the lineage of the token.
    pub fn store_id(&self) -> String {
        self.writer.store.to_string()
    }

    /// The slot that the work is for, as RFC 3339 in the job's zone; of a job without slots, the time of the claim.
    pub fn slot(&self) -> String {
        self.lease().map(|lease| self.zone.show(lease.slot)).unwrap_or_default()
    }

    /// The day of the slot in the job's zone.
    pub fn date(&self) -> String {
        self.lease().map(|lease| self.zone.date(lease.slot).to_string()).unwrap_or_default()
    }

    /// The idempotency key: the same for every attempt at one slot, on every machine. Hand it to providers.
    pub fn key(&self) -> String {
        self.lease().map(|lease| self.grant.record.key_of(lease)).unwrap_or_default()
    }

    /// The pinned copies of what the upstreams left, by the name of the upstream. They are gone when the lease is.
    pub fn inputs(&self) -> &BTreeMap<String, PathBuf> {
        &self.inputs
    }

    /// Whether the lease is lost: it will pass to another run, or has. Do not write any more.
    pub fn lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the lease is lost, if it is.
    pub fn loss(&self) -> Option<String> {
        self.watch.state().loss.clone()
    }

    /// Calls a function once when the lease is lost, with the reason, on a thread of its own. At once if it is lost already.
    pub fn on_lost(&self, callback: impl FnOnce(&str) + Send + 'static) {
        let mut state = self.watch.state();
        match state.loss.clone() {
            Some(why) => call(Box::new(callback), why),
            None => state.callbacks.push(Box::new(callback)),
        }
    }

    /// Waits until the lease is lost, at most this long. Returns whether it is.
    pub fn wait_lost(&self, patience: Duration) -> bool {
        let state = self.watch.state();
        let waited = self.watch.changed.wait_timeout_while(state, patience, |state| state.loss.is_none());
        waited.map_or(true, |(state, _)| state.loss.is_some())
    }

    /// Whether the work is asked to stop: it has reached its timeout, or another run wants to replace it. The lease is lost
    /// one grace later.
    pub fn stop_requested(&self) -> bool {
        let state = self.watch.state();
        state.stop.is_some() || state.loss.is_some()
    }

    /// Says why the work ends as it does. [`HeldLease::done`] records it.
    pub fn note(&self, note: &str) {
        self.said().note = Some(cut(note, WHOLE_NOTE_BYTES_MAX));
    }

    /// Names a file that the work left, as it is now. [`HeldLease::done`] records it.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`](crate::Error::Usage) if it cannot be read.
    pub fn artifact(&self, path: impl AsRef<Path>) -> Result<(), GuardError> {
        let path = path.as_ref();
        let unread = |error: &dyn std::fmt::Display| GuardError::Usage(format!("{}: {error}", path.display()));
        let whole = std::path::absolute(path).map_err(|error| unread(&error))?;
        let here = std::env::current_dir().map_err(|error| unread(&error))?;
        let (size, sha256) = read(&whole).map_err(|error| unread(&error))?;
        let path = Base::new(&here).name_of(&whole, path.is_relative());
        self.said().artifacts.push(Artifact { path, size, sha256, unknown: Default::default() });
        Ok(())
    }

    /// Ends the work: records its outcome and releases the lease, in one swap.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the lease was lost before, [`Error::TimedOut`](crate::Error::TimedOut) if the work
    /// was asked to stop by its timeout and ends in time, [`Error::Stale`](crate::Error::Stale) if a write was
    /// refused, [`Error::Store`](crate::Error::Store) if the store did not confirm the record.
    pub fn done(mut self, outcome: Word) -> Result<(), GuardError> {
        let code = i32::from(outcome.status() == Status::Error);
        let mut said = self.said().clone();
        said.word = outcome;
        self.finish(Some(said), code)
    }

    /// Ends the work well: `done(Outcome::Ok)`.
    ///
    /// # Errors
    ///
    /// As [`HeldLease::done`].
    pub fn release(self) -> Result<(), GuardError> {
        self.done(Word::Ok)
    }

    fn said(&self) -> MutexGuard<'_, Recorded> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&mut self, said: Option<Recorded>, code: i32) -> Result<(), GuardError> {
        if std::mem::replace(&mut self.is_ended, true) {
            return Ok(());
        }
        if let Some(said) = said {
            self.handle.say(Said::Recorded(said));
        }
        self.handle.end(Exit::Code(code));
        // If it is not parked any more, a thread drives it.
        self.parking.take(self.ticket).into_iter().for_each(|mut run| run.finish());
        let state = self.watch.wait_while(|state| state.over.is_none() && !state.is_gone);
        if let Some(why) = &state.loss {
            return Err(GuardError::lost_before_the_end(why));
        }
        match &state.over {
            Some(over) => GuardError::of(over).map_or(Ok(()), Err),
            None => Err(GuardError::Failed("The thread of the lease has died. The lease ends by its ttl.".to_string())),
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        let note = match std::thread::panicking() {
            true => "the program panicked",
            false => "the lease was dropped without an outcome",
        };
        let said = Recorded { word: Word::Error, note: Some(note.to_string()), artifacts: Vec::new() };
        let _ = match self.kind {
            LeaseKind::Job => self.finish(Some(said), 1),
            LeaseKind::Item => self.finish(None, UNKNOWN),
        };
    }
}
