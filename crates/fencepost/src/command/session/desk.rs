//! Answers the requests of a program. Those that ask a store or write have a thread of their own: none of them delays another.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_core::contract::{Recorded, Word};
use fencepost_core::fence::{Fence, FenceVerdict, Level, StrictFence, WriteMode, judge};
use fencepost_core::ledger::{WHOLE_NOTE_BYTES_MAX, cut};
use fencepost_core::name::Name;
use fencepost_core::said::{Published, Said};
use fencepost_core::spelling::Spelled;
use fencepost_guard::clock;
use fencepost_guard::publish::{WriteRequest, digest, is_damaged};
use fencepost_store::Store;
use fencepost_view::ReasonCode;
use fencepost_view::session::{
    GateRequest, GatedReply, HelloReply, JudgeRequest, JudgedReply, PROTOCOL, PublishRequest, RecordRequest,
    RecordedReply, ReleaseRequest, RequestId, SessionAnswer, SessionReply, SessionRequest,
};

use super::claim::{self, LeaseWanted};
use super::lease::{Granted, ProgramLease, exit};
use super::outlet::{Importance, Outlet};
use super::{reply, request};
use crate::args::{Global, RecordOptions};
use crate::command::gate;
use crate::command::publish::{self, PublishDesk};
use crate::command::record::{self, PutOutcome};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::upstreams;

/// The most requests in progress, besides claims.
const CALLS_MAX: usize = 64;

/// The most leases, together with claims that wait.
const CLAIMS_MAX: usize = 1024;

#[derive(Debug)]
pub struct SessionDesk {
    pub global: Global,
    pub outlet: Arc<Outlet>,
    claims: Mutex<HashMap<RequestId, Arc<ProgramLease>>>,
    calls: Mutex<usize>,
    called: Condvar,
    store: Mutex<Option<OpenStore>>,
}

/// The store that was opened last.
struct OpenStore {
    url: String,
    store: Arc<dyn Store>,
}

impl std::fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenStore").finish_non_exhaustive()
    }
}

impl SessionDesk {
    pub fn new(global: Global, outlet: Arc<Outlet>) -> Arc<Self> {
        Arc::new(Self {
            global,
            outlet,
            claims: Mutex::default(),
            calls: Mutex::default(),
            called: Condvar::new(),
            store: Mutex::default(),
        })
    }

    /// Takes a line. A wrong one ends neither the session nor a lease.
    pub fn take(self: &Arc<Self>, line: &[u8]) {
        let (id, request) = match request::read(line) {
            Ok(read) => read,
            Err(unread) => return self.answer(unread.id, reply::usage(&unread.message)),
        };
        match request {
            SessionRequest::Hello(_) => {
                let version = env!("CARGO_PKG_VERSION").to_string();
                self.answer(Some(id), SessionAnswer::Hello(HelloReply { version, protocol: PROTOCOL }));
            }
            SessionRequest::Claim(request) => self.claim(id, LeaseWanted::Job(request)),
            SessionRequest::Once(request) => self.claim(id, LeaseWanted::Item(request)),
            SessionRequest::Release(request) => self.release(id, request),
            SessionRequest::Judge(request) => {
                let judged = self.lease(&request.claim).and_then(|lease| judged(&lease.working()?, &request));
                self.answer(Some(id), judged.unwrap_or_else(|error| error));
            }
            SessionRequest::Publish(request) => self.call(id, move |desk| desk.publish(&request).map(Some)),
            SessionRequest::Record(request) => self.call(id, move |desk| desk.record(&request).map(Some)),
            SessionRequest::Gate(request) => self.call(id, move |desk| desk.gate(&request).map(Some)),
        }
    }

    pub fn answer(&self, id: Option<RequestId>, answer: SessionAnswer) {
        self.outlet.put(&SessionReply::new(id, answer), Importance::Needed);
    }

    /// Ends the answers to requests that were read, for a limited time.
    pub fn finish(&self, patience: Duration) {
        let calls =
            self.called.wait_timeout_while(lock(&self.calls), patience, |calls| *calls > 0 || self.is_releasing());
        drop(calls);
        self.outlet.finish(patience);
    }

    fn is_releasing(&self) -> bool {
        lock(&self.claims).values().any(|lease| lease.is_releasing())
    }

    /// Opens the place's store, or takes the one that is open.
    pub fn store(&self, place: &Place) -> Result<Arc<dyn Store>, Failure> {
        let mut open = lock(&self.store);
        match &*open {
            Some(open) if open.url == place.store => Ok(Arc::clone(&open.store)),
            _ => {
                let store = place.open()?;
                *open = Some(OpenStore { url: place.store.clone(), store: Arc::clone(&store) });
                Ok(store)
            }
        }
    }

    /// Begins a claim, on a thread of its own.
    fn claim(self: &Arc<Self>, id: RequestId, wanted: LeaseWanted) {
        let lease = Arc::new(ProgramLease::new(id.clone()));
        let refused = {
            let mut claims = lock(&self.claims);
            match claims.len() {
                CLAIMS_MAX.. => Some(format!("A session has at most {CLAIMS_MAX} leases. Start another one.")),
                _ if claims.contains_key(&id) => Some(format!("The id {id} is that of a lease. Use another one.")),
                _ => claims.insert(id.clone(), Arc::clone(&lease)).and(None),
            }
        };
        if let Some(message) = refused {
            return self.answer(Some(id), reply::usage(&message));
        }
        let desk = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("lease".to_string()).spawn(move || {
            claim::claim(&desk, &lease, &wanted);
            let _calls = lock(&desk.calls);
            desk.called.notify_all();
        });
        if let Err(error) = spawned {
            self.forget(&id);
            self.answer(Some(id), no_thread(&error));
        }
    }

    /// Forgets a claim that was not granted, or whose lease is released.
    pub fn forget(&self, id: &RequestId) {
        lock(&self.claims).remove(id);
    }

    fn lease(&self, id: &RequestId) -> Result<Arc<ProgramLease>, SessionAnswer> {
        let known = lock(&self.claims).get(id).cloned();
        known.ok_or_else(|| reply::usage(&format!("There is no claim {id}: it was not granted, or it is released.")))
    }

    /// Computes an answer on a thread of its own. None: the end of a run answers.
    fn call(
        self: &Arc<Self>,
        id: RequestId,
        call: impl FnOnce(&Self) -> Result<Option<SessionAnswer>, SessionAnswer> + Send + 'static,
    ) {
        {
            let mut calls = lock(&self.calls);
            if *calls >= CALLS_MAX {
                drop(calls);
                let message = format!("{CALLS_MAX} requests are in progress. Wait for an answer, then ask again.");
                return self.answer(Some(id), reply::error(Code::FAILED, ReasonCode::Failed, &message));
            }
            *calls += 1;
        }
        let (desk, answered) = (Arc::clone(self), id.clone());
        let spawned = std::thread::Builder::new().name("request".to_string()).spawn(move || {
            if let Some(answer) = call(&desk).unwrap_or_else(Some) {
                desk.answer(Some(answered), answer);
            }
            desk.end_call();
        });
        if let Err(error) = spawned {
            self.end_call();
            self.answer(Some(id), no_thread(&error));
        }
    }

    fn end_call(&self) {
        *lock(&self.calls) -= 1;
        self.called.notify_all();
    }

    fn release(self: &Arc<Self>, id: RequestId, request: ReleaseRequest) {
        // Hashing files may take long.
        if request.artifacts.as_ref().is_none_or(Vec::is_empty) {
            if let Err(error) = self.end_work(&id, &request) {
                self.answer(Some(id), error);
            }
            return;
        }
        let own = id.clone();
        self.call(id, move |desk| desk.end_work(&own, &request).map(|()| None));
    }

    /// Ends the work under a lease, or gives up a claim that is not granted yet. The end of its run answers the request.
    fn end_work(&self, id: &RequestId, request: &ReleaseRequest) -> Result<(), SessionAnswer> {
        let lease = self.lease(&request.claim)?;
        if lease.cancel(id) {
            return Ok(());
        }
        let granted = lease.working().inspect_err(|_| self.forget_lost(&lease))?;
        let word = request.outcome.map(Word::from);
        let is_error = word == Some(Word::Error);
        if word.is_some() && request.exit_code.is_some_and(|code| (code != 0) != is_error) {
            return Err(reply::usage("The exit code of the outcomes ok and empty is 0, and that of error is not."));
        }
        if word.is_none() && (request.note.is_some() || request.artifacts.is_some()) {
            return Err(reply::usage("A note and artifacts need an outcome."));
        }
        let said = word.map(|word| recorded(&granted, word, request.note.as_deref(), request.artifacts.as_deref()));
        let said = said.transpose().map_err(|failure| reply::failed(&failure))?;
        lease.release(id, |handle| {
            said.into_iter().for_each(|said| handle.say(Said::Recorded(said)));
            handle.end(exit(request.exit_code, is_error));
        })
    }

    /// Forgets a lost lease, once its program knows.
    fn forget_lost(&self, lease: &ProgramLease) {
        if lease.is_lost() {
            self.forget(&lease.id);
        }
    }

    fn publish(&self, request: &PublishRequest) -> Result<SessionAnswer, SessionAnswer> {
        let Granted { handle, place, writer, slot, .. } = self.lease(&request.claim)?.working()?;
        let written = request::publish(request).and_then(|verb| {
            let common = verb.common();
            let desk = PublishDesk::of_lease(&self.global, common, (*place).clone(), writer, slot, handle);
            publish::write(&desk, &verb)
        });
        Ok(written.map_or_else(|failure| reply::failed(&failure), reply::published))
    }

    fn record(&self, request: &RecordRequest) -> Result<SessionAnswer, SessionAnswer> {
        let word = Word::from(request.outcome);
        let (note, artifacts) = (request.note.as_deref(), request.artifacts.as_deref());
        let job = match (&request.claim, &request.job) {
            (Some(claim), None) => {
                let granted = self.lease(claim)?.working()?;
                let said = recorded(&granted, word, note, artifacts).map_err(|failure| reply::failed(&failure))?;
                granted.handle.say(Said::Recorded(said));
                granted.job().to_string()
            }
            (None, Some(job)) => self.record_by_hand(request, job, word)?,
            _ => return Err(reply::usage("record takes either claim or job.")),
        };
        Ok(SessionAnswer::Recorded(RecordedReply { job, status: word.status() }))
    }

    fn record_by_hand(&self, request: &RecordRequest, job: &str, word: Word) -> Result<String, SessionAnswer> {
        let put = || {
            let name = Name::new(job).map_err(|error| Failure::Usage(error.to_string()))?;
            let options = RecordOptions {
                words: vec![job.to_string(), word.as_str().to_string()],
                note: request.note.clone(),
                artifact: request.artifacts.clone().unwrap_or_default(),
                slot: request.slot.clone(),
                date: request.date.clone(),
                tz: request.timezone.clone(),
                token: None,
                per_host: request.per_host.unwrap_or_default(),
            };
            record::put(&Place::find(&self.global)?, &options, &name, word)
        };
        match put().map_err(|failure| reply::failed(&failure))? {
            PutOutcome::Recorded { job, .. } => Ok(job.to_string()),
            PutOutcome::Held(text) => Err(reply::error(Code::HELD, ReasonCode::Held, &text)),
        }
    }

    fn gate(&self, request: &GateRequest) -> Result<SessionAnswer, SessionAnswer> {
        let granted = request.claim.as_ref().map(|claim| self.lease(claim)?.working()).transpose()?;
        let check = || {
            let mut options = request::gate(request)?;
            if let Some(granted) = &granted {
                // The slot of the lease asks, unless the request names another.
                let is_own = options.slot.is_none() && options.date.is_none();
                options.slot = options.slot.or_else(|| is_own.then(|| granted.slot.clone()));
                options.tz = options.tz.or_else(|| Some(granted.zone.name().to_string()));
            }
            let place = Place::find(&self.global)?;
            gate::check(&place, &options, granted.as_ref().map(|granted| &granted.job().name), None)
        };
        let checked = check().map_err(|failure| reply::failed(&failure))?;
        if let Some(granted) = &granted {
            granted.handle.say(Said::Gated(checked.gated()));
        }
        let answer = checked.answer;
        let (decision, reason, upstreams) = (answer.decision, answer.reason, answer.upstreams);
        Ok(SessionAnswer::Gated(GatedReply { decision, reason, upstreams }))
    }
}

/// The outcome that a program states, with the state of the files that it names.
fn recorded(
    granted: &Granted,
    word: Word,
    note: Option<&str>,
    artifacts: Option<&[String]>,
) -> Result<Recorded, Failure> {
    let artifacts = match artifacts {
        None | Some([]) => Vec::new(),
        Some(paths) => {
            let base = upstreams::base(granted.place.config.as_ref(), &granted.job().name)?;
            record::artifacts(paths, &base)?
        }
    };
    Ok(Recorded { word, note: note.map(|note| cut(note, WHOLE_NOTE_BYTES_MAX)), artifacts })
}

/// Judges a write that the program makes in a transaction of its own.
fn judged(granted: &Granted, request: &JudgeRequest) -> Result<SessionAnswer, SessionAnswer> {
    let mode = match request.mode.as_deref() {
        None => WriteMode::default(),
        Some(word) => WriteMode::of_word(word)
            .ok_or_else(|| reply::usage(&format!("The mode {word:?} is not known: it is many or once.")))?,
    };
    let seen = match request.fence.as_deref().map(|fence| Fence::decode(fence.as_bytes())) {
        None => None,
        Some(Ok(fence)) => Some(fence),
        Some(Err(why)) if is_damaged(&why) && request.adopt == Some(true) => None,
        Some(Err(why)) => {
            let message = format!(
                "The fence of {} cannot be read: {why}. Roll the transaction back. Restore the fence together with the data.",
                request.resource
            );
            return Err(reply::error(Code::FAILED, ReasonCode::Failed, &message));
        }
    };
    let (writer, op) = (granted.writer.clone(), request.op.clone());
    let adopt = request.adopt.unwrap_or_default();
    let write = WriteRequest { writer, mode, op, adopt, dry_run: false, if_digest: None };
    let digest = request.digest.clone().unwrap_or_else(|| digest::of(b""));
    if !digest.starts_with("sha256:") {
        return Err(reply::usage("A digest begins with \"sha256:\"."));
    }
    let (fence, already_applied) = match judge::<StrictFence>(seen.as_ref(), &write.write(digest, false)) {
        Ok(FenceVerdict::Accept(fence)) => (fence, false),
        Ok(FenceVerdict::AlreadyApplied(fence)) => (fence, true),
        Err(refused) => {
            let (reason, why) = (refused.reason.into(), refused.to_string());
            granted.handle.say(Said::Published(Published {
                resource: request.resource.clone(),
                kind: "sql".to_string(),
                level: Level::Atomic,
                token: granted.writer.token,
                run: granted.writer.run,
                at: clock::wall_now(),
                seen: refused.seen.token,
                refused: Some(why.clone()),
            }));
            let message = format!("{}: {why}. Roll the transaction back.", request.resource);
            return Err(reply::error(Code::FENCED, reason, &message));
        }
    };
    let fence = String::from_utf8(fence.encode()).expect("JSON is UTF-8");
    Ok(SessionAnswer::Judged(JudgedReply { fence, already_applied }))
}

fn no_thread(error: &std::io::Error) -> SessionAnswer {
    let message = format!("Cannot start a thread: {error}. Nothing was done. Try again later.");
    reply::error(Code::FAILED, ReasonCode::Failed, &message)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
