//! A lease that is held, and renewed by a thread of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fencepost_core::contract::{Recorded, Word};
use fencepost_core::fence::WriteMode;
use fencepost_core::ledger::Status;
use fencepost_core::run::{Exit, Finish, Grant, Run};
use fencepost_core::said::{Published, Said};
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_guard::pin::Pins;
use fencepost_guard::program::{NewsSink, ProgramHandle, ProgramNews, ProgramWork};
use fencepost_guard::publish::{PublishError, WriteRequest, Writer, file};
use fencepost_guard::upstream_check::{Pinned, UpstreamCheck};

use crate::claim::LeaseKind;
use crate::error::GuardError;
use crate::guard::GuardPlace;

/// The exit code that leaves it unknown whether an item of work had its effect.
const UNKNOWN: i32 = 255;

/// A lease that this program holds. A thread renews it until [`HeldLease::done`].
///
/// If it is dropped without `done`, the work is recorded as an error and the lease is released; an item of
/// [`Guard::once`](crate::Guard::once) is recorded as unknown.
#[must_use = "a lease that is dropped is recorded as an error and released"]
pub struct HeldLease {
    kind: LeaseKind,
    handle: ProgramHandle,
    watch: Arc<LeaseWatch>,
    thread: Option<JoinHandle<()>>,
    grant: Grant,
    inputs: BTreeMap<String, PathBuf>,
    zone: Zone,
    writer: Writer,
    said: Mutex<Recorded>,
}

impl std::fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldLease").field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// What the thread of a lease tells the program.
#[derive(Debug, Default)]
struct LeaseWatch {
    state: Mutex<WatchedLease>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WatchedLease {
    granted: Option<(Grant, Vec<Pinned>)>,
    finish: Option<Finish>,
    loss: Option<String>,
    stop: Option<String>,
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
            ProgramNews::Lost { why } => self.change(|state| state.loss = Some(why.note())),
            ProgramNews::Renewed { .. } | ProgramNews::RenewalFailed { .. } => {}
        }
    }

    fn wait_while(&self, is_so: impl Fn(&WatchedLease) -> bool) -> MutexGuard<'_, WatchedLease> {
        self.changed.wait_while(self.state(), |state| is_so(state)).unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, WatchedLease> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldLease {
    /// Drives a run on a thread of its own, and waits until it is granted or refused.
    pub(crate) fn claim(
        place: Arc<GuardPlace>,
        kind: LeaseKind,
        run: Run,
        check: Option<UpstreamCheck>,
        zone: Zone,
        pins: Option<Pins>,
        refused: impl FnOnce(&GuardPlace, Finish) -> GuardError,
    ) -> Result<Self, GuardError> {
        let failed =
            |error: std::io::Error| GuardError::Failed(format!("Cannot start a thread for the lease: {error}"));
        let watch = Arc::new(LeaseWatch::default());
        let sink: NewsSink = {
            let watch = Arc::clone(&watch);
            Arc::new(move |news| watch.hear(news))
        };
        let (work, handle) = ProgramWork::new(check, run.grace(), sink).map_err(failed)?;
        let thread = {
            let (place, watch) = (Arc::clone(&place), Arc::clone(&watch));
            let drive = move || {
                let finish = work.drive(run, place.callee(), &place.local, &mut |_| {});
                drop(pins);
                watch.change(|state| state.finish = Some(finish));
            };
            std::thread::Builder::new().name("fencepost lease".to_string()).spawn(drive).map_err(failed)?
        };
        let mut state = watch.wait_while(|state| state.granted.is_none() && state.finish.is_none());
        let (granted, finish) =
            (state.granted.take(), if state.granted.is_none() { state.finish.take() } else { None });
        drop(state);
        let Some((grant, inputs)) = granted else {
            let _ = thread.join();
            return Err(
                finish.map_or_else(|| GuardError::Failed("the claim ended".to_string()), |end| refused(&place, end))
            );
        };
        let Some(lease) = &grant.record.lease else {
            return Err(GuardError::Failed("the record holds no lease".to_string()));
        };
        let writer = Writer {
            store: grant.record.store,
            job: grant.record.job.clone(),
            token: grant.record.token,
            run: lease.run,
            host: place.host.name.clone(),
        };
        let inputs = inputs.into_iter().map(|input| (input.upstream.to_string(), input.path)).collect();
        let said = Mutex::new(Recorded { word: Word::Ok, note: None, artifacts: Vec::new() });
        Ok(Self { kind, handle, watch, thread: Some(thread), grant, inputs, zone, writer, said })
    }

    /// The fencing token, greater than that of every earlier grant of the job.
    pub fn token(&self) -> u64 {
        self.writer.token.number()
    }

    /// The id of this run.
    pub fn run(&self) -> String {
        self.writer.run.to_string()
    }

    /// The identity of the store: with the job's name, the lineage of the token.
    pub fn store_id(&self) -> String {
        self.writer.store.to_string()
    }

    /// The slot that the work is for, as RFC 3339 in the job's zone; of a job without slots, the time of the claim.
    pub fn slot(&self) -> String {
        self.grant.record.lease.as_ref().map(|lease| self.zone.show(lease.slot)).unwrap_or_default()
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
        self.said.lock().unwrap_or_else(PoisonError::into_inner).note = Some(note.to_string());
    }

    /// Replaces a file, unless a newer run has written it.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`](crate::Error::Stale) if the fence refuses the write, and [`Error::Lost`](crate::Error::Lost) if the
    /// lease is lost. Nothing is changed then.
    pub fn publish_file(&self, path: impl AsRef<Path>, mut content: &[u8]) -> Result<(), GuardError> {
        if let Some(why) = self.loss() {
            return Err(GuardError::Lost(why));
        }
        let path = path.as_ref();
        let writer = self.writer.clone();
        let request =
            WriteRequest { writer, mode: WriteMode::Many, op: None, adopt: false, dry_run: false, if_digest: None };
        let written = file::publish(&request, path, &mut content, file::PATIENCE);
        let refusal = match &written {
            Ok(receipt) => Some((receipt.level, receipt.fence.token, None)),
            Err(PublishError::Refused { refused, level }) => {
                Some((*level, refused.seen.token, Some(refused.to_string())))
            }
            Err(_) => None,
        };
        if let Some((level, seen, refused)) = refusal {
            let resource = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string();
            let Writer { token, run, .. } = self.writer;
            let (kind, at) = ("file".to_string(), clock::wall_now());
            self.handle.say(Said::Published(Published { resource, kind, level, token, run, at, seen, refused }));
        }
        written.map(drop).map_err(GuardError::from)
    }

    /// Ends the work: records its outcome and releases the lease, in one swap.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if the lease was lost before, [`Error::Stale`](crate::Error::Stale) if a write was
    /// refused, [`Error::Store`](crate::Error::Store) if the store did not confirm the record.
    pub fn done(mut self, outcome: Word) -> Result<(), GuardError> {
        let code = i32::from(outcome.status() == Status::Error);
        let said = self.said.get_mut().unwrap_or_else(PoisonError::into_inner);
        said.word = outcome;
        let said = said.clone();
        self.finish(Some(said), code)
    }

    fn finish(&mut self, said: Option<Recorded>, code: i32) -> Result<(), GuardError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        if let Some(said) = said {
            self.handle.say(Said::Recorded(said));
        }
        self.handle.end(Exit::Code(code));
        let _ = thread.join();
        let mut state = self.watch.state();
        if let Some(why) = &state.loss {
            return Err(GuardError::Lost(why.clone()));
        }
        match state.finish.take() {
            Some(finish) => GuardError::of_end(finish).map_or(Ok(()), Err),
            None => Err(GuardError::Failed("the thread of the lease has died; the lease ends by its ttl".to_string())),
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if self.thread.is_none() {
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
