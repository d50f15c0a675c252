//! The store that a program shares with other programs and machines.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::barrier::{Asker, Decision, Need};
use fencepost_core::duration;
use fencepost_core::name::{Job, Name};
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::Base;
use fencepost_guard::drive::Callee;
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_guard::upstream_check::UpstreamCheck;
use fencepost_guard::{clock, password, state};
use fencepost_store::{Access, HostMemory, Store, StoreHandle, absolute, properties};
use fencepost_view::{ReasonCode, recorded_schedule};

use crate::claim::{JobClaim, LeaseKind};
use crate::error::GuardError;
use crate::free_records::FreeRecords;
use crate::parked::ParkedRuns;

/// Variable that names the store.
const STORE_VARIABLE: &str = "FENCEPOST_STORE";

/// The store that a program shares with other programs and machines, opened once and used by any number of threads.
#[derive(Clone, Debug)]
pub struct Guard {
    pub(crate) place: Arc<GuardPlace>,
}

/// What every claim of a guard uses.
pub(crate) struct GuardPlace {
    pub(crate) store: Arc<dyn Store>,
    /// The same store, for locks.
    pub(crate) locks: Arc<dyn Store>,
    /// A call of the store ends within seconds, so a claim makes it on its own thread: the program waits for it anyway.
    pub(crate) is_prompt: bool,
    /// The shortest ttl that the store can keep.
    pub(crate) ttl_min: Duration,
    pub(crate) host: Host,
    pub(crate) local: Local,
    pub(crate) state: PathBuf,
    pub(crate) parking: Arc<ParkedRuns>,
}

impl std::fmt::Debug for GuardPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardPlace").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Guard {
    /// Opens the store that `FENCEPOST_STORE` names, or the embedded one of this user.
    pub fn open() -> Result<Self, GuardError> {
        let state = state_directory()?;
        let named = std::env::var(STORE_VARIABLE).ok().filter(|url| !url.is_empty());
        let url = named.unwrap_or_else(|| embedded(&state));
        Self::open_at(&url, state)
    }

    /// Opens the store at `url`, such as `postgres://user@host/database`.
    pub fn open_url(url: &str) -> Result<Self, GuardError> {
        Self::open_at(url, state_directory()?)
    }

    /// Opens the embedded store of another state directory.
    pub fn open_in(state: impl Into<PathBuf>) -> Result<Self, GuardError> {
        let state = state.into();
        Self::open_at(&embedded(&state), state)
    }

    /// Opens the store at `url`, and keeps what this host remembers of it in the directory `state`.
    pub fn open_at(url: &str, state: impl Into<PathBuf>) -> Result<Self, GuardError> {
        let state = state.into();
        let url = std::env::current_dir().map_or(url.to_string(), |here| absolute(url, &here));
        let known = properties(&url);
        let password = if known.is_path { None } else { password::from_environment().map_err(GuardError::Usage)? };
        let access = Access { password, cache: Some(state.join("cache")), must_exist: false };
        let store = StoreHandle::new(&url, access).remembering(HostMemory::new(&state)).open()?;
        let is_prompt = known.is_embedded || known.minimum_ttl.is_zero();
        Ok(Self { place: Arc::new(GuardPlace::new(store, is_prompt, known.minimum_ttl, state)) })
    }

    #[cfg(test)]
    pub(crate) fn on(store: Arc<dyn Store>, state: &Path) -> Self {
        Self { place: Arc::new(GuardPlace::new(store, true, Duration::ZERO, state.to_path_buf())) }
    }

    /// Names a job to claim. The name is the same on every machine that may do it.
    pub fn job(&self, name: &str) -> Result<JobClaim, GuardError> {
        Ok(JobClaim::new(self, Job::shared(self::name(name)?), LeaseKind::Job))
    }

    /// Names a job that is this host's own: only runs on this host exclude each other.
    pub fn job_of_host(&self, name: &str) -> Result<JobClaim, GuardError> {
        let job = Job::of_host(self::name(name)?, &self.place.host.name);
        Ok(JobClaim::new(self, job.map_err(|error| GuardError::Usage(error.to_string()))?, LeaseKind::Job))
    }

    /// Names an item of work that is done once, such as `invoices/2026-11/alice`. A claim of an item that is done is
    /// [`Error::Skipped`](crate::Error::Skipped) with the reason `done`.
    pub fn once(&self, key: &str) -> Result<JobClaim, GuardError> {
        Ok(JobClaim::new(self, Job::once(self::name(key)?), LeaseKind::Item))
    }

    /// Checks that upstreams are good: `NAME[@RULE][,artifact=PATH][,on-empty=proceed]`, as `fencepost gate` takes them.
    pub fn gate(&self, upstreams: &[&str]) -> Result<(), GuardError> {
        let asker = Asker { slot: clock::now().wall, zone: Zone::utc() };
        let inspection = self.place.check(needs(upstreams)?, Duration::ZERO, None)?.inspect(&asker);
        let reasons = |decision| {
            let deciding = inspection.verdicts.iter().filter(|verdict| verdict.decision == decision);
            deciding.map(|verdict| verdict.reason.as_str()).collect::<Vec<_>>().join(" ")
        };
        match inspection.decision() {
            Decision::Proceed => Ok(()),
            Decision::Skip => Err(GuardError::Skipped {
                reason: ReasonCode::Barred.as_str(),
                message: reasons(Decision::Skip),
                in_a_row: 0,
            }),
            Decision::Halt => Err(GuardError::Halted(reasons(Decision::Halt))),
        }
    }
}

impl GuardPlace {
    fn new(store: Arc<dyn Store>, is_prompt: bool, ttl_min: Duration, state: PathBuf) -> Self {
        let locks = Arc::new(FreeRecords::new(Arc::clone(&store)));
        let host = Host::known_in(&state);
        let local = Local::new(&state, host.clone());
        Self { store, locks, is_prompt, ttl_min, host, local, state, parking: Arc::default() }
    }

    pub(crate) fn callee(&self, is_lock: bool) -> Callee {
        let store = if is_lock { &self.locks } else { &self.store };
        Callee { store: Arc::clone(store), is_prompt: self.is_prompt }
    }

    /// The check of upstreams. Artifacts are named from the working directory.
    pub(crate) fn check(
        &self,
        needs: Vec<Need>,
        wait: Duration,
        pins: Option<PathBuf>,
    ) -> Result<UpstreamCheck, GuardError> {
        let here = std::env::current_dir()
            .map_err(|error| GuardError::Failed(format!("Cannot tell the working directory: {error}")))?;
        Ok(UpstreamCheck {
            store: Arc::clone(&self.store),
            local: self.local.clone(),
            base: Base::new(&here),
            bases: Vec::new(),
            needs,
            wait,
            due: Arc::new(|_, record, at| recorded_schedule(record?).map(|schedule| schedule.at_or_before(at))),
            pins,
            produces: Vec::new(),
            waiting: None,
        })
    }
}

/// The upstreams of a claim or a gate.
pub(crate) fn needs(texts: &[impl AsRef<str>]) -> Result<Vec<Need>, GuardError> {
    let parse = |text: &str| Need::parse(text, duration::parse).map_err(|error| GuardError::Usage(error.to_string()));
    texts.iter().map(|text| parse(text.as_ref())).collect()
}

fn name(text: &str) -> Result<Name, GuardError> {
    Name::new(text).map_err(|error| GuardError::Usage(error.to_string()))
}

fn state_directory() -> Result<PathBuf, GuardError> {
    state::state_directory().map_err(|error| GuardError::Usage(error.to_string()))
}

fn embedded(state: &Path) -> String {
    format!("sqlite:{}", state.join("store.db").display())
}
