//! Checks that a store is the one this host has used before: a lost store is not recreated.
//!
//! Every job record carries the id of its store, so a run on a healthy store needs no extra call. Where there is no
//! record, the identity of the store decides.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fencepost_core::record::Identity;
use fencepost_core::token::StoreId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host_memory::{HostMemory, Recalled};
use crate::open::{bare, redacted};
use crate::{Answer, Entry, Key, Store, StoreError, Swapped, Trouble, Version};

/// This host's memory of one store. Its key is the URL without a password, because the store's id is not known before
/// the store answers.
#[derive(Clone, Debug)]
pub(crate) struct Acquaintance {
    memory: HostMemory,
    name: String,
    url: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreNotes {
    /// For people who read the file.
    store: String,
    #[serde(default)]
    pub(crate) id: Option<StoreId>,
    /// The canary has shown that its swap compares.
    #[serde(default)]
    pub(crate) is_tried: bool,
    /// This host has used the store and does not know its id: earlier versions kept none.
    #[serde(skip)]
    is_used: bool,
}

impl StoreNotes {
    /// Whether this host has used the store, which must then not be created again.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used || self.id.is_some()
    }
}

impl Acquaintance {
    pub(crate) fn of(memory: &HostMemory, url: &str) -> Self {
        let key = Key::resource(&bare(url));
        let name = format!("stores/{}", key.as_str().replace('/', "-"));
        Self { memory: memory.clone(), name, url: url.to_string() }
    }

    pub(crate) fn recall(&self) -> StoreNotes {
        match self.memory.look_up(&self.name) {
            Recalled::Value(remembered) => remembered,
            Recalled::Nothing => StoreNotes::default(),
            Recalled::Unreadable => StoreNotes { is_used: true, ..StoreNotes::default() },
        }
    }

    /// Changes this memory. If the change cannot be written, a later loss of the store would go unnoticed; nothing else
    /// depends on it.
    pub(crate) fn note(&self, change: impl FnOnce(&mut StoreNotes)) -> std::io::Result<()> {
        let before = self.recall();
        let mut next = before.clone();
        change(&mut next);
        next.store = redacted(&self.url);
        if next == before { Ok(()) } else { self.memory.keep(&self.name, &next) }
    }

    pub(crate) fn forget(&self) -> std::io::Result<()> {
        // Another store may be behind the URL from now on.
        self.memory.forget(&self.check_name())?;
        self.memory.forget(&self.name)
    }

    pub(crate) fn note_check(&self, check: &impl Serialize) -> std::io::Result<()> {
        self.memory.keep(&self.check_name(), check)
    }

    pub(crate) fn last_check<T: DeserializeOwned>(&self) -> Option<T> {
        self.memory.recall(&self.check_name())
    }

    /// Where the last check of the store is kept. Every run reads the notes, and none reads this.
    fn check_name(&self) -> String {
        format!("{}.check", self.name)
    }

    /// Makes the error for a store that this host has used and that is missing.
    pub(crate) fn missing(&self) -> StoreError {
        let detail = format!(
            "The store {} is missing, and this host has used it before. Nothing was changed. A run that began before may \
             still be going. Mount its disk or restore it from a backup. {}",
            redacted(&self.url),
            self.way_out()
        );
        StoreError::not_done(Trouble::Unavailable, detail)
    }

    /// Makes the error for a store whose id is not the one this host knows, or that has none.
    fn replaced(&self, known: StoreId, found: Option<StoreId>) -> StoreError {
        let found = found.map_or("it has no id".to_string(), |id| format!("it has the id {id}"));
        let detail = format!(
            "{} is not the store that this host has used: {found}, and this host knows {known}. It was wiped, recreated or \
             replaced. Nothing was changed. Restore it from a backup. {}",
            redacted(&self.url),
            self.way_out()
        );
        StoreError::not_done(Trouble::Corrupt, detail)
    }

    fn way_out(&self) -> String {
        let url = bare(&self.url);
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-._:/@,%=~".contains(c);
        let url = if url.chars().all(plain) { url } else { format!("'{}'", url.replace('\'', r"'\''")) };
        format!("If a new store is meant to take its place, run: fencepost store accept {url}")
    }
}

/// A store that answers only while its id is the one this host knows.
#[expect(missing_debug_implementations, reason = "a store shows nothing worth seeing")]
pub struct KnownStore<S> {
    inner: S,
    acquaintance: Acquaintance,
    /// Whether an id that is seen for the first time is remembered. Commands that only read remember nothing.
    remembers: bool,
    checked: Mutex<Checked>,
}

#[derive(Debug)]
struct Checked {
    id: Option<StoreId>,
    /// The id was compared after the store was opened.
    is_done: bool,
    /// The identity that the previous call has read. It answers a read of the identity that follows immediately.
    identity: Option<Answer<Option<Entry>>>,
}

impl<S: Store> KnownStore<S> {
    /// Wraps a store that is already open. [`StoreHandle`](crate::StoreHandle) opens and checks in one step.
    pub fn remembering(inner: S, memory: &HostMemory, url: &str) -> Self {
        let acquaintance = Acquaintance::of(memory, url);
        Self::new(inner, acquaintance.recall().id, acquaintance, true)
    }

    /// Wraps a store whose id must be `id`, if this host knows one.
    pub(crate) fn new(inner: S, id: Option<StoreId>, acquaintance: Acquaintance, remembers: bool) -> Self {
        Self { inner, acquaintance, remembers, checked: Mutex::new(Checked { id, is_done: false, identity: None }) }
    }

    fn checked(&self) -> MutexGuard<'_, Checked> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the identity and compares it.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let answer = self.inner.read(&Key::identity())?;
        self.judge(answer.value.as_ref())?;
        self.checked().identity = Some(answer);
        Ok(())
    }

    /// Checks the store's id in the entry that was found under a key.
    fn judge_by(&self, key: &Key, entry: Option<&Entry>) -> Result<(), StoreError> {
        if *key == Key::identity() {
            return self.judge(entry);
        }
        if key.is_probe() {
            return Ok(());
        }
        let of_record = entry.filter(|_| key.is_record());
        match of_record {
            Some(_) => self.judge(of_record),
            None if key.is_record() || !self.checked().is_done => self.check(),
            None => Ok(()),
        }
    }

    /// Compares the id in an identity or a record with the remembered one. Ignores a value that cannot be decoded: the
    /// caller that decodes it reports the error.
    fn judge(&self, entry: Option<&Entry>) -> Result<(), StoreError> {
        let found = match entry.map(|entry| id_in(&entry.bytes)) {
            Some(None) => return Ok(()),
            found => found.flatten(),
        };
        let mut checked = self.checked();
        match (checked.id, found) {
            (Some(known), found) if found != Some(known) => return Err(self.acquaintance.replaced(known, found)),
            (None, Some(id)) => self.learn(&mut checked, id),
            _ => {}
        }
        checked.is_done = true;
        Ok(())
    }

    fn learn(&self, checked: &mut Checked, id: StoreId) {
        checked.id = Some(id);
        if self.remembers {
            let _ = self.acquaintance.note(|remembered| remembered.id = Some(id));
        }
    }
}

impl<S: Store> Store for KnownStore<S> {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let just_read = self.checked().identity.take();
        if let Some(answer) = just_read.filter(|_| *key == Key::identity()) {
            return Ok(answer);
        }
        let answer = self.inner.read(key)?;
        self.judge_by(key, answer.value.as_ref())?;
        Ok(answer)
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        self.checked().identity = None;
        let answer = self.inner.swap(key, expected, new)?;
        match &answer.value {
            // This host gave the store its id.
            Swapped::Won(_) if *key == Key::identity() => {
                if let Some(id) = new.and_then(id_in) {
                    self.learn(&mut self.checked(), id);
                }
            }
            Swapped::Won(_) => {}
            Swapped::Lost(current) => self.judge_by(key, current.as_ref())?,
        }
        Ok(answer)
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let is_done = {
            let mut checked = self.checked();
            checked.identity = None;
            checked.is_done
        };
        if !is_done {
            self.check()?;
        }
        self.inner.scan(prefix, after, limit)
    }
}

/// Extracts the id of the store from an identity or a job's record.
fn id_in(bytes: &[u8]) -> Option<StoreId> {
    #[derive(Deserialize)]
    struct Stored {
        store: StoreId,
    }
    serde_json::from_slice::<Stored>(bytes).ok().map(|stored| stored.store)
}

/// Reads the identity of a store, if it has one.
pub(crate) fn identity(store: &dyn Store) -> Result<Option<Identity>, StoreError> {
    let Some(entry) = store.read(&Key::identity())?.value else { return Ok(None) };
    let decoded = fencepost_core::record::decode(&entry.bytes);
    decoded.map(Some).map_err(|why| fencepost_core::transition::unreadable("the store's identity", &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::layer::Trace;

    const URL: &str = "https://store.example.org";

    fn id(number: u8) -> Vec<u8> {
        format!(r#"{{"v":1,"store":"00000000-0000-0000-0000-{number:012}"}}"#).into_bytes()
    }

    fn put(store: &dyn Store, key: &Key, bytes: &[u8]) {
        let found = store.read(key).unwrap().value.map(|entry| entry.version);
        assert!(matches!(store.swap(key, found.as_ref(), Some(bytes)).unwrap().value, Swapped::Won(_)));
    }

    fn job() -> Key {
        Key::from_stored("job/a").unwrap()
    }

    /// A host that has used the store with the id 1.
    fn host_of_one() -> (tempfile::TempDir, HostMemory) {
        let directory = tempfile::tempdir().unwrap();
        let memory = HostMemory::new(directory.path());
        put(&KnownStore::remembering(MemoryStore::new(), &memory, URL), &Key::identity(), &id(1));
        (directory, memory)
    }

    fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
        let error = answer.unwrap_err();
        assert_eq!((error.fate, error.trouble), (crate::Fate::NotDone, Trouble::Corrupt), "{error}");
        assert!(error.detail.contains("fencepost store accept https://store.example.org"), "{error}");
    }

    #[test]
    fn every_call_on_another_store_is_refused() {
        let (_directory, memory) = host_of_one();
        for content in [None, Some(id(2))] {
            let open = || {
                let store = MemoryStore::new();
                if let Some(content) = &content {
                    put(&store, &Key::identity(), content);
                    put(&store, &job(), content);
                }
                KnownStore::remembering(store, &memory, URL)
            };
            refused(open().read(&job()));
            refused(open().read(&Key::identity()));
            refused(open().read(&Key::from_stored("skips/a").unwrap()));
            refused(open().scan("", None, 9));
            refused(open().swap(&job(), Some(&Version(vec![1])), Some(b"1")));
            assert!(open().read(&Key::probe("a", "b")).is_ok());
        }
    }

    #[test]
    fn a_record_of_the_known_store_costs_no_call_more() {
        let (_directory, memory) = host_of_one();
        let store = std::sync::Arc::new(Trace::new(MemoryStore::new()));
        put(&*store, &job(), &id(1));
        store.clear();
        let known = KnownStore::remembering(std::sync::Arc::clone(&store), &memory, URL);
        assert!(known.read(&job()).is_ok());
        assert_eq!(store.calls().len(), 1);
    }

    #[test]
    fn a_command_that_reads_keeps_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let memory = HostMemory::new(directory.path());
        let store = MemoryStore::new();
        put(&store, &Key::identity(), &id(1));
        let known = KnownStore::new(store, None, Acquaintance::of(&memory, URL), false);
        assert!(known.read(&job()).is_ok());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
