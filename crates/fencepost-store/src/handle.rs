//! The one way to open a store: by its URL and password, with the check that it is the store this host knows, the
//! canary, and the properties of its kind.

use std::path::Path;
use std::sync::Arc;

use fencepost_core::record::Identity;
use fencepost_core::token::StoreId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::conformance::canary;
use crate::known::{Acquaintance, KnownStore, StoreNotes, identity};
use crate::open::{Properties, backend, bare, canonical, is_absent, must_name_a_store, properties, redacted};
use crate::{Access, HostMemory, MemoryStore, OpenError, Property, Store, StoreError, Trouble};

/// A store that can be opened. It owns the URL and the access. Errors hold no password.
#[derive(Clone, Debug)]
pub struct StoreHandle {
    url: String,
    access: Access,
    memory: Option<HostMemory>,
}

/// The result of accepting a store on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The id that this host remembered.
    pub known: Option<StoreId>,
    /// The id that the store has now. If it has none, the first run creates one.
    pub found: Option<StoreId>,
}

impl StoreHandle {
    /// Makes a handle for the store at `url`. It opens nothing, and does not know the store yet: add
    /// [`Self::remembering`] to refuse a store that was lost and recreated.
    pub fn new(url: &str, access: Access) -> Self {
        Self { url: canonical(url), access, memory: None }
    }

    /// Remembers the id of the store in `memory`, and refuses a store with another id or without one.
    pub fn remembering(mut self, memory: HostMemory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Returns the URL without its password, for people.
    pub fn shown(&self) -> String {
        redacted(&self.url)
    }

    pub fn properties(&self) -> Properties {
        properties(&self.url)
    }

    /// Opens the store for changes, and creates it if this host has never used it. Runs the canary on a store that this
    /// host has not tested before.
    pub fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        let Some(acquaintance) = self.acquaintance() else { return self.open_unchecked() };
        let remembered = acquaintance.recall();
        self.must_not_be_missing(&acquaintance, &remembered)?;
        let store = self.backend(remembered.is_used())?;
        if !self.properties().is_embedded && !remembered.is_tried {
            self.try_swaps(store.as_ref())?;
            let _ = acquaintance.note(|remembered| remembered.is_tried = true);
        }
        Ok(Arc::new(KnownStore::new(store, remembered.id, acquaintance, true)))
    }

    /// Opens the store for reading. Creates and writes nothing, neither in the store nor in the memory of this host.
    pub fn open_to_read(&self) -> Result<Arc<dyn Store>, OpenError> {
        if self.is_new()? {
            return Ok(Arc::new(MemoryStore::new()));
        }
        let store = self.backend(true)?;
        Ok(match self.acquaintance() {
            Some(acquaintance) => Arc::new(KnownStore::new(store, acquaintance.recall().id, acquaintance, false)),
            None => Arc::from(store),
        })
    }

    /// Opens the store without the check that this host knows it, and without the canary: for the suite that proves it,
    /// and for replacing a lost store.
    pub fn open_unchecked(&self) -> Result<Arc<dyn Store>, OpenError> {
        Ok(Arc::from(self.backend(false)?))
    }

    /// Whether there is certainly no store yet. Fails if this host has used it before, because then the store is
    /// missing.
    pub fn is_new(&self) -> Result<bool, OpenError> {
        must_name_a_store(&self.url)?;
        if let Some(acquaintance) = self.acquaintance() {
            self.must_not_be_missing(&acquaintance, &acquaintance.recall())?;
        }
        Ok(is_absent(&self.url))
    }

    /// Fails unless this host may use the store.
    pub fn check(&self) -> Result<(), OpenError> {
        if self.is_new()? {
            return Ok(());
        }
        let Some(acquaintance) = self.acquaintance() else { return Ok(()) };
        Ok(KnownStore::new(self.backend(true)?, acquaintance.recall().id, acquaintance, false).check()?)
    }

    /// Returns the properties that follow from the settings of a store that exists, and cannot be proved by calls.
    pub fn declared(&self) -> Result<Vec<Property>, OpenError> {
        let access = Access { must_exist: true, ..self.access.clone() };
        Ok(backend(&self.url, &access)?.declared()?)
    }

    /// Returns the identity of the store, whether or not this host knows it.
    pub fn identity(&self) -> Result<Option<Identity>, OpenError> {
        if is_absent(&self.url) {
            return Ok(None);
        }
        Ok(identity(self.backend(true)?.as_ref())?)
    }

    /// Notes that the suite has proved the store. Its first use then skips the canary.
    pub fn note_proved(&self) {
        if let Some(acquaintance) = self.acquaintance() {
            let _ = acquaintance.note(|remembered| remembered.is_tried = true);
        }
    }

    /// Remembers the result of a check of the store. Without a memory, or if it cannot be written, the result is lost.
    pub fn note_check(&self, check: &impl Serialize) {
        if let Some(acquaintance) = self.acquaintance() {
            let _ = acquaintance.note_check(check);
        }
    }

    /// Returns the result that [`Self::note_check`] has remembered.
    pub fn last_check<T: DeserializeOwned>(&self) -> Option<T> {
        self.acquaintance()?.last_check()
    }

    /// Returns what [`Self::accept`] would do.
    pub fn acceptance(&self) -> Result<Acceptance, OpenError> {
        must_name_a_store(&self.url)?;
        let known = self.acquaintance().and_then(|acquaintance| acquaintance.recall().id);
        Ok(Acceptance { known, found: self.identity()?.map(|identity| identity.store) })
    }

    /// Replaces the remembered id by `found`. Without one, this host forgets the store.
    pub fn accept(&self, found: Option<StoreId>) -> Result<(), OpenError> {
        let Some(acquaintance) = self.acquaintance() else { return Ok(()) };
        let kept = match found {
            // Another server may be behind the URL now, so the canary runs again.
            Some(id) => acquaintance.forget().and_then(|()| acquaintance.note(|remembered| remembered.id = Some(id))),
            None => acquaintance.forget(),
        };
        kept.map_err(|error| {
            let state = self.memory.as_ref().map(|memory| memory.state().display().to_string()).unwrap_or_default();
            let detail = format!(
                "What this host remembers about {} cannot be changed in {state} ({error}); it is refused as before.",
                self.shown()
            );
            OpenError::Store(StoreError::not_done(Trouble::Refused, detail))
        })
    }

    fn acquaintance(&self) -> Option<Acquaintance> {
        self.memory.as_ref().map(|memory| Acquaintance::of(memory, &self.url))
    }

    /// This host writes its memory after it created the store, so the memory is read first.
    fn must_not_be_missing(&self, acquaintance: &Acquaintance, remembered: &StoreNotes) -> Result<(), StoreError> {
        if remembered.is_used() && is_absent(&self.url) { Err(acquaintance.missing()) } else { Ok(()) }
    }

    fn backend(&self, must_exist: bool) -> Result<Box<dyn Store>, OpenError> {
        if let Some(memory) = self.memory.as_ref().filter(|_| !must_exist) {
            self.make_room(memory.state())?;
        }
        let access = Access { must_exist: must_exist || self.access.must_exist, ..self.access.clone() };
        Ok(backend(&self.url, &access)?)
    }

    /// Creates the directories of a store inside the state directory. Elsewhere the user creates them: a missing
    /// directory is a typing mistake or a disk that is not mounted.
    fn make_room(&self, state: &Path) -> Result<(), StoreError> {
        let path = self.url.split_once(':').map_or("", |(_, path)| path);
        let Some(parent) = Path::new(path).parent().filter(|_| self.properties().is_path) else { return Ok(()) };
        if !parent.starts_with(state) || parent.is_dir() {
            return Ok(());
        }
        crate::file_system::create_directories(parent).map_err(|error| {
            let detail = format!(
                "{} cannot be created ({error}); nothing was changed. It must be writable for the user that runs fencepost.",
                parent.display()
            );
            StoreError::not_done(Trouble::Refused, detail)
        })
    }

    fn try_swaps(&self, store: &dyn Store) -> Result<(), StoreError> {
        canary(store).map_err(|violation| match violation.failed {
            Some(error) => error,
            None => {
                let detail = format!(
                    "{} is not used, because it does not keep what a store must: {} Run: fencepost store check {}",
                    self.shown(),
                    violation.detail,
                    bare(&self.url)
                );
                StoreError::not_done(Trouble::Corrupt, detail)
            }
        })
    }
}
