//! A layer that records every call, for tests that count them.

use std::sync::{Mutex, PoisonError};

use crate::{Answer, Entry, Fate, Key, Store, StoreError, Swapped, Version};

/// Records every call in the order in which they ended. Share it by `Arc` to query it while other code uses it.
#[derive(Debug)]
pub struct Trace<S> {
    inner: S,
    calls: Mutex<Vec<TraceCall>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCall {
    pub verb: TraceVerb,
    /// The key, or the prefix of a scan.
    pub on: String,
    pub ended: TraceEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceVerb {
    Read,
    Swap,
    Scan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd {
    /// A read or a scan that was answered.
    Answered,
    Won,
    Lost,
    Failed(Fate),
}

impl<S> Trace<S> {
    pub fn new(inner: S) -> Self {
        Self { inner, calls: Mutex::default() }
    }

    pub fn calls(&self) -> Vec<TraceCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn count(&self, verb: TraceVerb) -> usize {
        self.calls().iter().filter(|call| call.verb == verb).count()
    }

    /// Returns how many swaps were won: the durable commits.
    pub fn won(&self) -> usize {
        self.calls().iter().filter(|call| call.ended == TraceEnd::Won).count()
    }

    /// Forgets the calls so far.
    pub fn clear(&self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn note<T>(
        &self,
        verb: TraceVerb,
        on: &str,
        result: Result<Answer<T>, StoreError>,
        ended: impl FnOnce(&T) -> TraceEnd,
    ) -> Result<Answer<T>, StoreError> {
        let ended = match &result {
            Ok(answer) => ended(&answer.value),
            Err(error) => TraceEnd::Failed(error.fate),
        };
        let call = TraceCall { verb, on: on.to_string(), ended };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        result
    }
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Trace<S> {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        self.note(TraceVerb::Read, key.as_str(), self.inner.read(key), |_| TraceEnd::Answered)
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        self.note(TraceVerb::Swap, key.as_str(), self.inner.swap(key, expected, new), |swapped| match swapped {
            Swapped::Won(_) => TraceEnd::Won,
            Swapped::Lost(_) => TraceEnd::Lost,
        })
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        self.note(TraceVerb::Scan, prefix, self.inner.scan(prefix, after, limit), |_| TraceEnd::Answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn every_call_is_listed_with_how_it_ended() {
        let store = Trace::new(MemoryStore::new());
        let key = Key::probe("trace", "a");
        store.read(&key).unwrap();
        store.swap(&key, None, Some(b"1")).unwrap();
        store.swap(&key, None, Some(b"2")).unwrap();
        store.swap(&key, None, Some(&[0; crate::VALUE_BYTES_MAX + 1])).unwrap_err();
        store.scan("probe/", None, 1).unwrap();
        let ended: Vec<TraceEnd> = store.calls().iter().map(|call| call.ended).collect();
        let failed = TraceEnd::Failed(Fate::NotDone);
        assert_eq!(ended, [TraceEnd::Answered, TraceEnd::Won, TraceEnd::Lost, failed, TraceEnd::Answered]);
        assert_eq!((store.count(TraceVerb::Swap), store.won()), (3, 1));
        store.clear();
        assert_eq!(store.calls(), []);
    }
}
