//! What the requests of a program know of one of its leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fencepost_core::name::Job;
use fencepost_core::run::Exit;
use fencepost_core::time::Boot;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_guard::program::ProgramHandle;
use fencepost_guard::publish::Writer;
use fencepost_view::session::{RequestId, SessionAnswer};

use super::reply;
use crate::place::Place;

/// A claim, from its request until the program has released it.
#[derive(Debug)]
pub struct ProgramLease {
    pub id: RequestId,
    state: Mutex<LeaseProgress>,
}

#[derive(Debug, Default)]
struct LeaseProgress {
    /// The way to the thread of the run, from the moment that it claims.
    handle: Option<ProgramHandle>,
    granted: Option<Granted>,
    /// Until when the lease may be relied on.
    deadline: Option<Boot>,
    /// Why the lease is lost.
    loss: Option<String>,
    /// The request that released it, and is to be answered.
    release: Option<RequestId>,
    /// The program gave the claim up before it was granted.
    is_cancelled: bool,
}

/// A lease that was granted.
#[derive(Clone, Debug)]
pub struct Granted {
    pub handle: ProgramHandle,
    pub place: Arc<Place>,
    pub writer: Writer,
    pub zone: Zone,
    /// The slot in the job's zone.
    pub slot: String,
}

impl Granted {
    pub fn job(&self) -> &Job {
        &self.writer.job
    }
}

impl ProgramLease {
    pub fn new(id: RequestId) -> Self {
        Self { id, state: Mutex::default() }
    }

    pub fn begin(&self, handle: ProgramHandle) {
        let mut state = self.state();
        if state.is_cancelled {
            handle.cancel();
        }
        state.handle = Some(handle);
    }

    /// Notes the grant. Returns whether the program is still waiting for it.
    pub fn grant(&self, granted: impl FnOnce(ProgramHandle) -> Granted, deadline: Boot) -> bool {
        let mut state = self.state();
        (state.granted, state.deadline) = (state.handle.take().map(granted), Some(deadline));
        !state.is_cancelled
    }

    /// Gives up the claim if it is not granted yet, and returns whether it did. The end of the run answers the request.
    pub fn cancel(&self, id: &RequestId) -> bool {
        let mut state = self.state();
        if state.granted.is_some() || state.is_cancelled || state.loss.is_some() {
            return false;
        }
        (state.is_cancelled, state.release) = (true, Some(id.clone()));
        if let Some(handle) = &state.handle {
            handle.cancel();
        }
        true
    }

    pub fn extend(&self, deadline: Boot) {
        self.state().deadline = Some(deadline);
    }

    /// Notes that the lease is lost. Returns whether the program has to be told.
    pub fn lose(&self, why: String) -> bool {
        let mut state = self.state();
        let is_news = state.granted.is_some() && state.loss.is_none();
        state.loss.get_or_insert(why);
        is_news
    }

    pub fn is_lost(&self) -> bool {
        self.state().loss.is_some()
    }

    /// The lease, if work may go on under it.
    pub fn working(&self) -> Result<Granted, SessionAnswer> {
        self.state().working(&self.id)
    }

    /// Ends the work. The end of the run answers the request.
    pub fn release(&self, id: &RequestId, end: impl FnOnce(&ProgramHandle)) -> Result<(), SessionAnswer> {
        let mut state = self.state();
        let granted = state.working(&self.id)?;
        state.release = Some(id.clone());
        end(&granted.handle);
        Ok(())
    }

    /// Notes that the run has ended, and returns the request that is to be answered and whether the lease was ever granted.
    pub fn ended(&self) -> RunPassed {
        let mut state = self.state();
        let passed = RunPassed {
            was_granted: state.granted.is_some(),
            was_cancelled: state.is_cancelled,
            loss: state.loss.clone(),
            release: state.release.take(),
        };
        state.loss.get_or_insert_with(|| "its run has ended".to_string());
        passed
    }

    pub fn is_releasing(&self) -> bool {
        self.state().release.is_some()
    }

    fn state(&self) -> MutexGuard<'_, LeaseProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a run went through that has ended.
#[derive(Debug)]
pub struct RunPassed {
    pub was_granted: bool,
    pub was_cancelled: bool,
    pub loss: Option<String>,
    pub release: Option<RequestId>,
}

impl LeaseProgress {
    fn working(&self, id: &RequestId) -> Result<Granted, SessionAnswer> {
        let Some(granted) = &self.granted else {
            return Err(reply::usage(&format!("The claim {id} is not granted. Wait for its answer.")));
        };
        if let Some(why) = &self.loss {
            return Err(reply::lost(why));
        }
        if self.deadline.is_none_or(|deadline| clock::boot_now() >= deadline) {
            return Err(reply::lost("its deadline has passed without a renewal"));
        }
        if self.release.is_some() {
            return Err(reply::usage(&format!("The claim {id} is being released.")));
        }
        Ok(granted.clone())
    }
}

/// The exit of work that ended with an outcome.
pub fn exit(code: Option<u8>, is_error: bool) -> Exit {
    Exit::Code(code.map_or_else(|| i32::from(is_error), i32::from))
}
