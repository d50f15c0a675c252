//! What this host remembers about a job: the highest token it saw granted, and since when it has seen a lease unchanged.

use std::path::Path;

use fencepost_core::lease::{Facts, Honest, Rules, Sighting};
use fencepost_core::name::Key;
use fencepost_core::record::Record;
use fencepost_core::time::Boot;
use fencepost_core::token::Token;
use fencepost_store::HostMemory;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::skip_queue::SkipQueue;
use crate::waiting::WaitingRuns;

/// This host's memory of the jobs of one store or several, in its state directory.
#[derive(Clone, Debug)]
pub struct Local {
    memory: HostMemory,
    host: Host,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    high_water: Option<Token>,
    sighting: Option<StoredSighting>,
}

/// When this host first saw a lease in its current state. Valid for one boot: the boot clock restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredSighting {
    boot: String,
    token: Token,
    renewals: u64,
    since: Boot,
}

impl Local {
    pub fn new(state: &Path, host: Host) -> Self {
        Self { memory: HostMemory::new(state), host }
    }

    /// Returns what this host knows about a record that was read just now. It keeps a sighting only if the store has no
    /// clock: then the lease has no end time.
    pub fn facts(&self, record: Option<&Record>, answered: Boot) -> Facts {
        let Some(record) = record else { return Facts::default() };
        let mut memory = self.recall(record);
        let holder_is_dead = record.lease.as_ref().is_some_and(|lease| self.host.knows_dead(&lease.holder));
        let clockless = record.lease.as_ref().is_some_and(|lease| lease.until.is_none());
        let before = memory.sighting.clone();
        let sighting = if clockless { self.sight(record, &mut memory, answered) } else { None };
        let is_first_sight = sighting.is_some() && memory.sighting != before;
        Facts { holder_is_dead, high_water: memory.high_water, sighting, is_first_sight }
    }

    /// Remembers a grant. A failure is ignored: the date in a token already prevents a lower one.
    pub fn remember_grant(&self, record: &Record) {
        let mut memory = self.recall(record);
        if memory.high_water < Some(record.token) {
            memory.high_water = Some(record.token);
            let _ = self.keep(record, &memory);
        }
    }

    /// The runs of this host that wait.
    pub fn waiting(&self) -> WaitingRuns {
        WaitingRuns::new(self.memory.clone(), self.host.clone())
    }

    /// Waits until no other process of this host is counting a skip.
    pub fn skip_gate(&self) -> SkipQueue {
        SkipQueue::enter(&self.memory.path("skips"))
    }

    fn sight(&self, record: &Record, memory: &mut Memory, answered: Boot) -> Option<Sighting> {
        let boot = self.host.boot();
        let kept = memory.sighting.as_ref().filter(|seen| seen.boot == boot && seen.since <= answered);
        let before = kept.map(|seen| Sighting { token: seen.token, renewals: seen.renewals, since: seen.since });
        let sighting = Honest::sight(before, record, answered)?;
        if before != Some(sighting) {
            let Sighting { token, renewals, since } = sighting;
            memory.sighting = Some(StoredSighting { boot: boot.to_string(), token, renewals, since });
            let _ = self.keep(record, memory);
        }
        Some(sighting)
    }

    fn recall(&self, record: &Record) -> Memory {
        self.memory.recall(&name(record)).unwrap_or_default()
    }

    /// A torn write is unreadable, or at worst yields a token that is too high, which only skips some numbers.
    fn keep(&self, record: &Record, memory: &Memory) -> std::io::Result<()> {
        self.memory.keep(&name(record), memory)
    }
}

/// The file name of a job's memory. Tokens of two stores are not comparable, so each store has a directory.
fn name(record: &Record) -> String {
    let key = Key::job(&record.job);
    format!("{}/{}", record.store, key.as_str().trim_start_matches(Key::JOBS))
}
