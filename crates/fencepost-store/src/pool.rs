//! A pool of idle connections.
//!
//! A call takes a connection for itself and returns it if it is still usable, so a call that hangs blocks only its
//! caller. An old connection is not reused: proxies drop idle connections, and a swap on a dropped one has an unknown
//! fate.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection may be idle.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How many idle connections are kept.
const IDLE_CONNECTIONS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Pool<C>(Mutex<Vec<(C, Instant)>>);

impl<C> Pool<C> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The most recently used connection, if it is young enough. Older ones are closed.
    pub(crate) fn take(&self) -> Option<C> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closed: Vec<_> = idle.extract_if(.., |(_, since)| since.elapsed() > IDLE_MAX).collect();
        let taken = idle.pop();
        drop(idle);
        drop(closed);
        taken.map(|(connection, _)| connection)
    }

    pub(crate) fn give_back(&self, connection: C) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let surplus = (idle.len() >= IDLE_CONNECTIONS_MAX).then(|| idle.remove(0));
        idle.push((connection, Instant::now()));
        drop(idle);
        drop(surplus);
    }
}
