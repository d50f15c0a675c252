//! The store of the model: two linearizable registers, and the states they were ever in.

use std::hash::{Hash, Hasher};
use std::rc::Rc;

use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::{FORMAT, Identity, Record, encode};
use fencepost_core::register::{Entry, Swapped, Version};
use fencepost_core::time::Wall;
use fencepost_core::token::{Nonce, StoreId, Token};
use fencepost_core::transition::{Call, Reply};

use crate::config::LeaseSetting;
use crate::world::run_id;

/// The date at the beginning of every world. Tokens are made from it.
pub const EPOCH: Wall = Wall(1_700_000_000_000);

#[derive(Clone, Debug)]
pub struct ModelStore {
    job: Job,
    state: StoreState,
    next_version: u64,
    /// Every state there was, oldest first, where a restore may bring one back.
    history: Option<Rc<Vec<StoreState>>>,
}

#[derive(Clone, Debug, Default)]
struct StoreState {
    job: Option<Entry>,
    /// What `job` says, so that it is not decoded again and again.
    record: Option<Rc<Record>>,
    identity: Option<Entry>,
}

// The decoded record says nothing that its bytes do not.
impl Hash for StoreState {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.job, &self.identity).hash(hasher);
    }
}

impl Hash for ModelStore {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.state, self.next_version, &self.history).hash(hasher);
    }
}

/// The one job of the model, or its one resource.
pub fn job(config: &LeaseSetting) -> Job {
    match config.commands {
        [] => Job::shared(Name::new("j").expect("one letter is a name")),
        _ => Job::of_resource("r"),
    }
}

impl ModelStore {
    pub fn new(config: &LeaseSetting) -> Self {
        let keeps_history = config.budget.rollbacks > 0;
        let history = keeps_history.then(|| Rc::new(Vec::new()));
        let mut store = Self { job: job(config), state: StoreState::default(), next_version: 1, history };
        if !config.store_is_new {
            let id = StoreId(run_id(0).0);
            let identity = encode(&Identity { v: FORMAT, store: id, sealed: None, unknown: Default::default() });
            store.put(false, Some(identity), None);
            if config.commands.is_empty() {
                let record = unused_record(id, store.job.clone());
                store.put(true, Some(record.encode()), Some(Rc::new(record)));
            }
            store.history = keeps_history.then(|| Rc::new(Vec::new()));
        }
        store
    }

    /// The job's record as it truly is.
    pub fn record(&self) -> Option<&Record> {
        self.state.record.as_deref()
    }

    /// Performs a call.
    pub fn perform(&mut self, call: &Call) -> Reply {
        match call {
            Call::Read(key) => Reply::Read(self.register(*key == Key::identity()).clone()),
            Call::Swap { key, expected, new } => {
                let identity = *key == Key::identity();
                let current = self.register(identity);
                let matches = current.as_ref().map(|entry| &entry.version) == expected.as_ref();
                if !matches {
                    return Reply::Swap(Swapped::Lost(current.clone()));
                }
                Reply::Swap(Swapped::Won(self.write(identity, Some(new.clone()))))
            }
        }
    }

    /// The bug of writing without comparing versions.
    pub fn write_plainly(&mut self, call: &Call) -> Reply {
        let Call::Swap { key, new, .. } = call else { return self.perform(call) };
        Reply::Swap(Swapped::Won(self.write(*key == Key::identity(), Some(new.clone()))))
    }

    /// The bug of removing a record that is to be replaced.
    pub fn remove(&mut self, call: &Call) -> Reply {
        match self.perform(call) {
            Reply::Swap(Swapped::Won(_)) => Reply::Swap(Swapped::Won(self.write(false, None))),
            other => other,
        }
    }

    /// Replaces the record unnoticed by the runs, as another client's won swap does.
    pub fn replace(&mut self, record: Record) {
        self.write(false, Some(record.encode()));
    }

    /// How many earlier states a restore could bring back.
    pub fn restorable(&self) -> usize {
        self.history.as_ref().map_or(0, |history| history.len())
    }

    /// Brings back an earlier state. `versions_repeat` is the bug of counting versions from there again.
    pub fn restore(&mut self, index: usize, versions_repeat: bool) {
        let Some(history) = self.history.take() else { return };
        let back = history.len() - index;
        self.state = history[index].clone();
        if versions_repeat {
            self.next_version -= back as u64;
        }
    }

    fn register(&self, identity: bool) -> &Option<Entry> {
        if identity { &self.state.identity } else { &self.state.job }
    }

    fn write(&mut self, identity: bool, bytes: Option<Vec<u8>>) -> Option<Version> {
        let record = match &bytes {
            Some(bytes) if !identity => Some(Record::decode(bytes, &self.job).expect("a run writes what it can read")),
            _ => None,
        };
        self.put(!identity, bytes, record.map(Rc::new))
    }

    fn put(&mut self, is_job: bool, bytes: Option<Vec<u8>>, record: Option<Rc<Record>>) -> Option<Version> {
        if let Some(history) = &mut self.history {
            Rc::make_mut(history).push(self.state.clone());
        }
        let version = Version(vec![u8::try_from(self.next_version).expect("no path makes so many writes")]);
        self.next_version += 1;
        let entry = bytes.map(|bytes| Entry { bytes, version: version.clone() });
        let gone = entry.is_none();
        if is_job {
            self.state.job = entry;
            self.state.record = record;
        } else {
            self.state.identity = entry;
        }
        (!gone).then_some(version)
    }
}

/// A job that ran long ago and is free.
fn unused_record(store: StoreId, job: Job) -> Record {
    Record {
        v: FORMAT,
        store,
        job,
        token: Token::new(1_000).expect("a small number is a token"),
        grants: 1,
        nonce: Nonce { by: run_id(0), write: 0 },
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
