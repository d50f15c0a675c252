//! A layer that fails as a test demands.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::{Answer, Entry, Key, Store, StoreError, Swapped, Trouble, Version};

/// The fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// None: the call passes. For scripts in which a later call fails.
    Pass,
    /// The call fails before its effect and reports that.
    NotDone,
    /// The request is lost: no effect, and the caller cannot know.
    LostRequest,
    /// The answer is lost: the call takes effect, and the caller cannot know.
    LostAnswer,
    /// The call passes after this time.
    Delay(Duration),
    /// The call hangs until [`Faulty::release`], then passes.
    Hang,
}

/// Fails by a script. Reads and swaps have a script each; a call takes the next fault of its script and passes when
/// there is none. Share it by `Arc` to add to the scripts while other code uses it.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    script: Mutex<Script>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Script {
    reads: VecDeque<InjectedFault>,
    swaps: VecDeque<InjectedFault>,
    hanging: usize,
    /// How many times `release` was called: a hanging call waits for the next one.
    releases: u64,
}

impl<S> Faulty<S> {
    pub fn new(inner: S) -> Self {
        Self { inner, script: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds faults for the next reads.
    pub fn on_reads(&self, faults: impl IntoIterator<Item = InjectedFault>) {
        self.script().reads.extend(faults);
    }

    /// Adds faults for the next swaps.
    pub fn on_swaps(&self, faults: impl IntoIterator<Item = InjectedFault>) {
        self.script().swaps.extend(faults);
    }

    /// Returns how many calls hang now.
    pub fn hanging(&self) -> usize {
        self.script().hanging
    }

    /// Releases every call that hangs now.
    pub fn release(&self) {
        self.script().releases += 1;
        self.changed.notify_all();
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn perform<T>(
        &self,
        fault: Option<InjectedFault>,
        call: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match fault {
            None | Some(InjectedFault::Pass) => call(),
            Some(InjectedFault::NotDone) => {
                Err(StoreError::not_done(Trouble::Unavailable, "The store failed as scripted; nothing was changed."))
            }
            Some(InjectedFault::LostRequest) => Err(lost()),
            Some(InjectedFault::LostAnswer) => call().and_then(|_| Err(lost())),
            Some(InjectedFault::Delay(time)) => {
                thread::sleep(time);
                call()
            }
            Some(InjectedFault::Hang) => {
                self.hang();
                call()
            }
        }
    }

    fn hang(&self) {
        let mut script = self.script();
        let before = script.releases;
        script.hanging += 1;
        let mut script =
            self.changed.wait_while(script, |script| script.releases == before).unwrap_or_else(PoisonError::into_inner);
        script.hanging -= 1;
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Faulty<S> {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let fault = self.script().reads.pop_front();
        self.perform(fault, || self.inner.read(key))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        let fault = self.script().swaps.pop_front();
        self.perform(fault, || self.inner.swap(key, expected, new))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        self.inner.scan(prefix, after, limit)
    }
}

fn lost() -> StoreError {
    StoreError::unknown(Trouble::Unavailable, "The connection was lost as scripted; the call may have happened.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fate, MemoryStore};
    use std::sync::Arc;

    fn store() -> (Arc<Faulty<MemoryStore>>, Key) {
        (Arc::new(Faulty::new(MemoryStore::new())), Key::probe("faulty", "a"))
    }

    #[test]
    fn each_fault_has_its_fate_and_its_effect() {
        let cases = [
            (InjectedFault::NotDone, Fate::NotDone, false),
            (InjectedFault::LostRequest, Fate::Unknown, false),
            (InjectedFault::LostAnswer, Fate::Unknown, true),
        ];
        for (fault, fate, effect) in cases {
            let (store, key) = store();
            store.on_swaps([InjectedFault::Pass, fault]);
            store.swap(&Key::probe("faulty", "other"), None, Some(b"1")).unwrap();
            assert_eq!(store.swap(&key, None, Some(b"1")).unwrap_err().fate, fate, "{fault:?}");
            assert_eq!(store.read(&key).unwrap().value.is_some(), effect, "{fault:?}");
        }
    }

    #[test]
    fn reads_have_a_script_of_their_own() {
        let (store, key) = store();
        store.on_reads([InjectedFault::NotDone, InjectedFault::Delay(Duration::from_millis(1))]);
        store.swap(&key, None, Some(b"1")).unwrap();
        assert_eq!(store.read(&key).unwrap_err().fate, Fate::NotDone);
        assert!(store.read(&key).unwrap().value.is_some());
    }

    #[test]
    fn a_hanging_call_hangs_until_it_is_released() {
        let (store, key) = store();
        store.on_swaps([InjectedFault::Hang]);
        let (handle, other) = (Arc::clone(&store), key.clone());
        let hanging = thread::spawn(move || handle.swap(&other, None, Some(b"1")).unwrap());
        while store.hanging() == 0 {
            thread::yield_now();
        }
        assert!(store.read(&key).unwrap().value.is_none(), "only its caller hangs");
        store.release();
        assert!(matches!(hanging.join().unwrap().value, Swapped::Won(_)));
        assert_eq!(store.hanging(), 0);
    }
}
