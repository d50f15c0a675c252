//! Small builders, a store in memory and a bench for one run. Time is in milliseconds from the start of a test.

// Every test file is a crate of its own and uses another part of this.
#![allow(dead_code, unused_imports)]

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::history::Aside;
use fencepost_core::lease::{Claim, Context, Facts, Honest, Intent, Me, Now, Refusal, Ruling};
use fencepost_core::ledger::{EndedBy, Ending, Status, Trigger};
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::{FORMAT, Holder, Identity, Lease, Process, Processes, Record, StopAsked, Until, encode};
use fencepost_core::register::{Answer, Entry, StoreError, Swapped, Trouble, Version};
use fencepost_core::slot::{Choice, Timing};
use fencepost_core::time::{Boot, Era, Reference, StoreClock, Wall};
use fencepost_core::token::{Nonce, RunId, StoreId, Token};
use fencepost_core::transition::{Call, Reply};
use uuid::Uuid;

mod bench;
pub use bench::*;

/// The time-to-live of every lease here, and the deadline it gives: a twentieth less.
pub const TTL_MS: u64 = 60_000;
pub const BELIEF_MS: u64 = 57_000;
pub const GRACE_MS: u64 = 10_000;

/// The date, the boot clock and the store's clock when a test starts. No two of them are alike.
pub const DATE_MS: i64 = 1_790_000_000_000;
pub const BOOT_MS: u64 = 5_000_000;
pub const TICK_MS: u64 = 900_000_000;

pub fn ms(length: u64) -> Duration {
    Duration::from_millis(length)
}

pub fn boot(at_ms: u64) -> Boot {
    Boot(BOOT_MS + at_ms)
}

pub fn wall(at_ms: u64) -> Wall {
    Wall(DATE_MS + at_ms as i64)
}

pub fn now(at_ms: u64) -> Now {
    Now { boot: boot(at_ms), wall: wall(at_ms) }
}

pub fn era(name: &str) -> Era {
    Era(name.to_string())
}

pub fn clock(at_ms: u64) -> StoreClock {
    StoreClock { wall: wall(at_ms), era: era("one"), tick: TICK_MS + at_ms }
}

pub fn until(at_ms: u64) -> Until {
    Until { era: era("one"), tick: TICK_MS + at_ms }
}

/// A reading that was asked for and shown at the same moment.
pub fn reference(at_ms: u64) -> Reference {
    Reference { clock: clock(at_ms), asked: boot(at_ms) }
}

pub fn job() -> Job {
    Job::shared(Name::new("report").unwrap())
}

pub fn id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

pub fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

pub fn store_id() -> StoreId {
    StoreId(Uuid::from_u128(0x5709e))
}

pub fn me(of: u64, run: u128) -> Me {
    Me { token: token(of), run: Some(id(run)) }
}

pub fn by_hand() -> Holder {
    Holder {
        host: "alpha".to_string(),
        processes: None,
        by_hand: true,
        inside: Vec::new(),
        unknown: Default::default(),
    }
}

pub fn holder() -> Holder {
    let processes = Processes {
        machine: "machine".to_string(),
        boot: "boot".to_string(),
        pid_namespace: "pid:[1]".to_string(),
        wrapper: Process { pid: 10, started: 100 },
        keeper: Some(Process { pid: 11, started: 101 }),
        time_namespace: Default::default(),
        unknown: Default::default(),
    };
    Holder {
        host: "alpha".to_string(),
        processes: Some(processes),
        by_hand: false,
        inside: Vec::new(),
        unknown: Default::default(),
    }
}

pub fn claim(run: u128) -> Claim {
    Claim {
        run: id(run),
        ttl: ms(TTL_MS),
        holder: holder(),
        slot: Choice::At(wall(0)),
        zone: "UTC".to_string(),
        trigger: Trigger::Schedule,
    }
}

/// A record without a lease, last granted with this token.
pub fn free(last: u64) -> Record {
    Record {
        v: FORMAT,
        store: store_id(),
        job: job(),
        token: token(last),
        grants: 1,
        nonce: Nonce { by: id(99), write: 0 },
        lease: None,
        ledger: Default::default(),
        resources: Default::default(),
        upstreams: Default::default(),
        timing: None,
        paused: None,
        forgotten: None,
        definition: None,
        params: None,
        fence: None,
        moved_to: None,
        unknown: Default::default(),
    }
}

/// A record held by `run` until one time-to-live after the start.
/// A schedule of which so much is accounted for.
pub fn timing(evaluated: Option<Wall>) -> Timing {
    Timing {
        schedule: "every 5s".to_string(),
        zone: "UTC".to_string(),
        fingerprint: "f".to_string(),
        since: wall(0),
        evaluated,
        settles: None,
        unknown: Default::default(),
    }
}

pub fn held(of: u64, run: u128) -> Record {
    let lease = Lease {
        run: id(run),
        ttl: ms(TTL_MS),
        renewals: 0,
        until: Some(until(TTL_MS)),
        holder: holder(),
        slot: wall(0),
        zone: "UTC".to_string(),
        trigger: Trigger::Schedule,
        covers: None,
        since: wall(0),
        stop_asked: None,
        unknown: Default::default(),
    };
    Record { lease: Some(lease), ..free(of) }
}

pub fn with_lease(mut record: Record, change: impl FnOnce(&mut Lease)) -> Record {
    change(record.lease.as_mut().expect("a lease"));
    record
}

pub fn lease(record: &Record) -> &Lease {
    record.lease.as_ref().expect("a lease")
}

pub fn good() -> Ending {
    Ending { exit_code: Some(0), ..Ending::new(Status::Ok, EndedBy::Child) }
}

pub fn complete(me: Me) -> Intent {
    Intent::Complete { me, ending: good(), escaped: false }
}

pub fn ask_to_stop(by: u128) -> Intent {
    Intent::AskToStop(StopAsked { by: id(by), host: "beta".to_string(), unknown: Default::default() })
}

/// Decides with the store's clock at the same moment and nothing else known.
pub fn decide(intent: &Intent, record: Option<&Record>, at_ms: u64) -> Result<Ruling, Refusal> {
    decide_with(intent, record, at_ms, Some(&reference(at_ms)), &Facts::default())
}

pub fn decide_with(
    intent: &Intent,
    record: Option<&Record>,
    at_ms: u64,
    reference: Option<&Reference>,
    facts: &Facts,
) -> Result<Ruling, Refusal> {
    let nonce = Nonce { by: id(7), write: 3 };
    let context = Context {
        job: &job(),
        now: now(at_ms),
        nonce,
        reference,
        date: None,
        facts,
        store: Some(store_id()),
        aside: Aside::default(),
    };
    intent.decide::<Honest>(record, &context)
}

/// The record that a decision writes.
pub fn written(decision: Result<Ruling, Refusal>) -> Record {
    match decision {
        Ok(Ruling::Write { record, .. }) => *record,
        other => panic!("nothing was written: {other:?}"),
    }
}

pub fn unavailable() -> StoreError {
    StoreError::not_done(Trouble::Unavailable, "The store is away.")
}

pub fn timed_out() -> StoreError {
    StoreError::unknown(Trouble::Unavailable, "The store did not answer.")
}

/// A linearizable register per key, and everything that was asked of it.
#[derive(Debug, Default)]
pub struct Memory {
    entries: BTreeMap<Key, Entry>,
    versions: u64,
    pub calls: Vec<Call>,
    pub without_clock: bool,
}

impl Memory {
    /// A store that has its identity and this record.
    pub fn with(record: &Record) -> Self {
        let mut memory = Self::with_identity();
        memory.put(record);
        memory
    }

    pub fn with_identity() -> Self {
        let mut memory = Self::default();
        memory.put_bytes(
            Key::identity(),
            encode(&Identity { v: FORMAT, store: store_id(), sealed: None, unknown: Default::default() }),
        );
        memory
    }

    pub fn put(&mut self, record: &Record) {
        self.put_bytes(Key::job(&job()), record.encode());
    }

    pub fn put_bytes(&mut self, key: Key, bytes: Vec<u8>) -> Version {
        self.versions += 1;
        let version = Version(self.versions.to_be_bytes().to_vec());
        self.entries.insert(key, Entry { bytes, version: version.clone() });
        version
    }

    pub fn record(&self) -> Record {
        Record::decode(&self.entries[&Key::job(&job())].bytes, &job()).unwrap()
    }

    pub fn bytes(&self, key: &Key) -> Option<Vec<u8>> {
        self.entries.get(key).map(|entry| entry.bytes.clone())
    }

    pub fn has_record(&self) -> bool {
        self.entries.contains_key(&Key::job(&job()))
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Record)) {
        let mut record = self.record();
        change(&mut record);
        self.put(&record);
    }

    pub fn answer(&mut self, call: Call, at_ms: u64) -> Answer<Reply> {
        self.calls.push(call.clone());
        let value = match call {
            Call::Read(key) => Reply::Read(self.entries.get(&key).cloned()),
            Call::Swap { key, expected, new } => Reply::Swap(self.swap(key, expected, new)),
        };
        Answer::new(value, (!self.without_clock).then(|| clock(at_ms)))
    }

    fn swap(&mut self, key: Key, expected: Option<Version>, new: Vec<u8>) -> Swapped {
        let current = self.entries.get(&key).cloned();
        if current.as_ref().map(|entry| &entry.version) != expected.as_ref() {
            return Swapped::Lost(current);
        }
        Swapped::Won(Some(self.put_bytes(key, new)))
    }
}
