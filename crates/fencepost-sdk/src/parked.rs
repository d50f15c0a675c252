//! Leases between their claim and their end. One thread for all of them waits until the run of one has to be driven: its
//! renewal is due. From then on that run has a thread of its own. A lease that ends before needs none.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fencepost_core::time::Boot;
use fencepost_guard::clock;
use fencepost_guard::drive::NAP_MAX;

use crate::lease::LeaseRun;

/// How often in a row the thread finds no lease before it ends.
const EMPTY_LOOKS_MAX: u32 = 10;

/// The place of a parked run: when it is due, and a number.
pub(crate) type Ticket = (Boot, u64);

#[derive(Default)]
pub(crate) struct ParkedRuns {
    state: Mutex<Parking>,
    changed: Condvar,
}

#[derive(Default)]
struct Parking {
    runs: BTreeMap<Ticket, Box<LeaseRun>>,
    tickets: u64,
    /// When the thread looks again. None: there is no thread.
    looks_at: Option<Boot>,
}

impl ParkedRuns {
    /// Parks a run until it is due. If no thread can be started for that, gives it back.
    pub(crate) fn park(self: &Arc<Self>, run: Box<LeaseRun>) -> Result<Ticket, (Box<LeaseRun>, io::Error)> {
        let mut state = self.state();
        let ticket = (run.due(), state.tickets);
        match state.looks_at {
            Some(looks_at) if looks_at <= ticket.0 => {}
            Some(_) => self.changed.notify_one(),
            None => {
                let parked = Arc::clone(self);
                let thread = std::thread::Builder::new().name("fencepost leases".to_string());
                if let Err(error) = thread.spawn(move || parked.watch()) {
                    return Err((run, error));
                }
                state.looks_at = Some(clock::boot_now());
            }
        }
        state.tickets += 1;
        state.runs.insert(ticket, run);
        Ok(ticket)
    }

    /// Takes a run out, unless it has a thread already.
    pub(crate) fn take(&self, ticket: Ticket) -> Option<Box<LeaseRun>> {
        self.state().runs.remove(&ticket)
    }

    fn watch(&self) {
        let mut empty_looks = 0;
        let mut state = self.state();
        loop {
            let now = clock::boot_now();
            while let Some(first) = state.runs.first_entry().filter(|first| first.key().0 <= now) {
                first.remove().finish_on_a_thread();
            }
            empty_looks = if state.runs.is_empty() { empty_looks + 1 } else { 0 };
            if empty_looks > EMPTY_LOOKS_MAX {
                state.looks_at = None;
                return;
            }
            let first = state.runs.first_key_value().map(|(ticket, _)| ticket.0.since(now));
            let rest = first.unwrap_or(NAP_MAX).min(NAP_MAX);
            state.looks_at = Some(now + rest);
            let woken = self.changed.wait_timeout(state, rest);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, Parking> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
