//! An item of work that is done once, for programs that do it themselves.
//!
//! It is the same record, claim and rule as `fencepost once`, so that a program and a script may share a key.
//!
//! ```
//! use std::time::Duration;
//!
//! use fencepost_core::name::Name;
//! use fencepost_core::slot::OnUnknown;
//! use fencepost_guard::host::Host;
//! use fencepost_guard::local::Local;
//! use fencepost_guard::once::{Begun, Once};
//! use fencepost_store::MemoryStore;
//!
//! # fn charge(key: &str) -> bool { !key.is_empty() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(); // or StoreHandle::new("postgres://…", Access::default()).open()
//! let host = Host::this();
//! let local = Local::new(&std::env::temp_dir().join("fencepost-example"), host.clone());
//! let invoice = || Once {
//!     store: &store,
//!     local: &local,
//!     host: &host,
//!     key: Name::new("invoices/2026-11/alice").unwrap(),
//!     params: None,
//!     on_unknown: OnUnknown::Halt,
//!     ttl: Duration::from_secs(60),
//! };
//! match invoice().begin()? {
//!     Begun::Run(claimed) => {
//!         // The provider is given the same key, in case this process dies between here and `done`.
//!         let code = if charge(claimed.key()) { 0 } else { 1 };
//!         claimed.done(code)?;
//!     }
//!     Begun::Done { exit_code } => println!("done before, with {exit_code}"),
//!     Begun::InProgress { host, .. } => println!("{host} is doing it"),
//!     Begun::Unknown { .. } => println!("a person has to check whether it was charged"),
//!     Begun::OtherParameters => println!("this key means something else"),
//! }
//! assert!(matches!(invoice().begin()?, Begun::Done { exit_code: 0 }));
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::time::Duration;

use fencepost_core::artifact::Fingerprint;
use fencepost_core::lease::{Claim, Intent, Refusal};
use fencepost_core::ledger::{EndedBy, Ending, Status, Trigger};
use fencepost_core::name::{Job, Name};
use fencepost_core::register::StoreError;
use fencepost_core::slot::{Choice, NotNow, OnUnknown};
use fencepost_core::token::{RunId, Token};
use fencepost_store::Store;
use thiserror::Error;

use crate::host::Host;
use crate::local::Local;
use crate::transact::{Held, TakeError, TransactError, take, transact};

/// An item of work, and the terms of its claim.
pub struct Once<'a> {
    pub store: &'a dyn Store,
    pub local: &'a Local,
    pub host: &'a Host,
    /// The key: the same for every attempt at this item, and used for no other.
    pub key: Name,
    /// The fingerprint of its parameters. The same key with another fingerprint is refused.
    pub params: Option<Fingerprint>,
    pub on_unknown: OnUnknown,
    /// How long the claim lasts without [`Claimed::renew`].
    pub ttl: Duration,
}

impl fmt::Debug for Once<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The state of an item of work.
#[derive(Debug)]
pub enum Begun<'a> {
    /// This process may do the work. No other process does it meanwhile.
    Run(Claimed<'a>),
    /// It was done before, with this code.
    Done { exit_code: i32 },
    /// Another process is doing it.
    InProgress { host: String, remaining: Option<Duration> },
    /// The attempt with this token ended between its effect and its record. After checking that there was no effect,
    /// retry with [`OnUnknown::RetryAfter`] and this token.
    Unknown { token: Token },
    /// The key was used with other parameters.
    OtherParameters,
}

/// Why an item of work could not be claimed, renewed or completed.
#[derive(Debug, Error)]
pub enum OnceError {
    #[error(transparent)]
    Store(StoreError),
    /// The claim expired. Another process may be doing the work, and a person has to check whether this one's effect
    /// happened.
    #[error("the claim of {0} is no longer ours")]
    Lost(Name),
    #[error("{0}: {1}")]
    Refused(Name, Refusal),
    /// An attempt that died cannot be told from one that never began.
    #[error(
        "this system does not tell when a process began (is /proc mounted?), so that nothing can be done once here"
    )]
    NoProcess,
}

impl<'a> Once<'a> {
    /// Claims the item of work, or returns its state.
    pub fn begin(self) -> Result<Begun<'a>, OnceError> {
        let holder = self.host.holder(std::process::id().cast_signed(), None);
        if holder.processes.is_none() {
            return Err(OnceError::NoProcess);
        }
        let run = RunId(uuid::Uuid::now_v7());
        let claim = Claim {
            run,
            ttl: self.ttl,
            holder,
            slot: Choice::Once { params: self.params, on_unknown: self.on_unknown },
            zone: "UTC".to_string(),
            trigger: Trigger::Manual,
        };
        let job = Job::once(self.key.clone());
        match take(self.store, self.local, &job, Intent::Claim(claim), run) {
            Ok(held) => {
                self.local.remember_grant(&held.record);
                Ok(Begun::Run(Claimed { store: self.store, local: self.local, job, run, held }))
            }
            Err(TakeError::Late(me)) => {
                // No work was done under this claim. Without an outcome, the next attempt would find it unknown.
                let ending = never_started("the store granted the claim too late");
                let _ = transact(self.store, self.local, &job, Intent::Complete { me, ending, escaped: false }, run);
                Err(OnceError::Lost(self.key))
            }
            Err(TakeError::Transact(TransactError::Store(error))) => Err(OnceError::Store(error)),
            Err(TakeError::Transact(TransactError::Refused(refusal))) => self.refused(&job, refusal),
        }
    }

    fn refused(self, job: &Job, refusal: Refusal) -> Result<Begun<'a>, OnceError> {
        match refusal {
            Refusal::Held { record, remaining } => {
                let host = record.lease.map(|lease| lease.holder.host).unwrap_or_default();
                Ok(Begun::InProgress { host, remaining })
            }
            Refusal::NotNow { why: NotNow::Duplicate { exit_code, .. }, .. } => {
                Ok(Begun::Done { exit_code: exit_code.unwrap_or(0) })
            }
            // The claim was granted too late: another process had taken it by then.
            Refusal::NotHolder { .. } => Err(OnceError::Lost(self.key)),
            Refusal::NotNow { why: NotNow::OtherParameters, .. } => Ok(Begun::OtherParameters),
            Refusal::NotNow { why: NotNow::Lost { .. }, .. } => {
                let (record, _) = crate::transact::look(self.store, job).map_err(OnceError::Store)?;
                Ok(Begun::Unknown { token: record.map(|record| record.token).unwrap_or_default() })
            }
            other => Err(OnceError::Refused(self.key, other)),
        }
    }
}

/// An item of work claimed by this process. Dropping it without [`Claimed::done`] leaves it unknown.
#[must_use = "what is not said to be done is unknown"]
pub struct Claimed<'a> {
    store: &'a dyn Store,
    local: &'a Local,
    job: Job,
    run: RunId,
    held: Held,
}

impl fmt::Debug for Claimed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed").field("job", &self.job).field("held", &self.held).finish_non_exhaustive()
    }
}

impl Claimed<'_> {
    /// The key, for the provider's own idempotency check.
    pub fn key(&self) -> &str {
        self.job.name.as_str()
    }

    /// The fencing token of this attempt, greater than that of every earlier one.
    pub fn token(&self) -> Token {
        self.held.record.token
    }

    /// How long the claim stays exclusive without a renewal.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Extends the claim by a time-to-live from now.
    pub fn renew(&mut self) -> Result<(), OnceError> {
        let intent = Intent::Renew(self.held.me());
        self.held = take(self.store, self.local, &self.job, intent, self.run).map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Records the end: 0 is done, for good. 1 to 128 is a failure without an effect, which may be retried. Any other
    /// code leaves the item unknown.
    pub fn done(self, exit_code: i32) -> Result<(), OnceError> {
        let status = if exit_code == 0 { Status::Ok } else { Status::Error };
        let ending = Ending { exit_code: Some(exit_code), ..Ending::new(status, EndedBy::Child) };
        let intent = Intent::Complete { me: self.held.me(), ending, escaped: false };
        let done = transact(self.store, self.local, &self.job, intent, self.run);
        done.map(|_| ()).map_err(|error| self.failed(error.into()))
    }

    fn failed(&self, error: TakeError) -> OnceError {
        let key = self.job.name.clone();
        match error {
            TakeError::Transact(TransactError::Store(error)) => OnceError::Store(error),
            TakeError::Late(_) => OnceError::Lost(key),
            TakeError::Transact(TransactError::Refused(Refusal::NotHolder { .. })) => OnceError::Lost(key),
            TakeError::Transact(TransactError::Refused(other)) => OnceError::Refused(key, other),
        }
    }
}

/// The ending of a claim under which no work was done.
fn never_started(note: &str) -> Ending {
    Ending { unstarted: true, ..Ending::new(Status::Error, EndedBy::Fencepost).with_note(note) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::name::Key;
    use fencepost_core::record::{Process, Record};
    use fencepost_store::{MemoryStore, Swapped};

    struct Scene {
        store: MemoryStore,
        local: Local,
        host: Host,
        _directory: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::TempDir::new().unwrap();
            let host = Host::this();
            let local = Local::new(directory.path(), host.clone());
            Self { store: MemoryStore::new(), local, host, _directory: directory }
        }

        fn begin(&self, params: Option<u8>, on_unknown: OnUnknown) -> Begun<'_> {
            let once = Once {
                store: &self.store,
                local: &self.local,
                host: &self.host,
                key: Name::new("invoice").unwrap(),
                params: params.map(|byte| Fingerprint([byte; 32])),
                on_unknown,
                ttl: Duration::from_secs(60),
            };
            once.begin().unwrap()
        }

        fn claim(&self, on_unknown: OnUnknown) -> Claimed<'_> {
            match self.begin(None, on_unknown) {
                Begun::Run(claimed) => claimed,
                other => panic!("{other:?}"),
            }
        }

        /// Makes the process behind the claim look dead.
        fn bury(&self) {
            let job = Job::once(Name::new("invoice").unwrap());
            let entry = self.store.read(&Key::job(&job)).unwrap().value.unwrap();
            let mut record = Record::decode(&entry.bytes, &job).unwrap();
            let processes = record.lease.as_mut().unwrap().holder.processes.as_mut().unwrap();
            processes.wrapper = Process { started: processes.wrapper.started + 1, ..processes.wrapper };
            let swapped = self.store.swap(&Key::job(&job), Some(&entry.version), Some(&record.encode())).unwrap();
            assert!(matches!(swapped.value, Swapped::Won(_)));
        }
    }

    #[test]
    fn what_is_done_is_not_begun_again() {
        let scene = Scene::new();
        scene.claim(OnUnknown::Halt).done(0).unwrap();
        for on_unknown in [OnUnknown::Halt, OnUnknown::Retry] {
            assert!(matches!(scene.begin(None, on_unknown), Begun::Done { exit_code: 0 }));
        }
    }

    #[test]
    fn what_failed_by_itself_may_be_begun_again_and_what_was_ended_may_not() {
        let scene = Scene::new();
        scene.claim(OnUnknown::Halt).done(3).unwrap();
        scene.claim(OnUnknown::Halt).done(137).unwrap();
        assert!(matches!(scene.begin(None, OnUnknown::Halt), Begun::Unknown { .. }));
        scene.claim(OnUnknown::Retry).done(0).unwrap();
    }

    #[test]
    fn one_at_a_time() {
        let scene = Scene::new();
        let mut claimed = scene.claim(OnUnknown::Halt);
        assert!(matches!(scene.begin(None, OnUnknown::Retry), Begun::InProgress { .. }));
        claimed.renew().unwrap();
        assert!(claimed.remaining() > Duration::from_secs(30));
        assert_eq!(claimed.key(), "invoice");
        claimed.done(0).unwrap();
    }

    #[test]
    fn of_what_died_nobody_knows_until_somebody_has_looked() {
        let scene = Scene::new();
        let dead = scene.claim(OnUnknown::Halt);
        scene.bury();
        let Begun::Unknown { token } = scene.begin(None, OnUnknown::Halt) else { panic!("it is not known") };
        assert_eq!(token, dead.token());
        // Two callers have seen the unknown attempt. The first retries and dies. The second's token is older than that
        // attempt.
        let again = scene.claim(OnUnknown::RetryAfter(token));
        scene.bury();
        assert!(matches!(scene.begin(None, OnUnknown::RetryAfter(token)), Begun::Unknown { .. }));
        assert!(again.token() > dead.token());
        // A claim that was taken over reports that it is lost.
        scene.claim(OnUnknown::Retry).done(0).unwrap();
        assert!(matches!(dead.done(0), Err(OnceError::Lost(_))));
    }

    #[test]
    fn another_parameter_is_another_item_of_work() {
        let scene = Scene::new();
        let Begun::Run(claimed) = scene.begin(Some(1), OnUnknown::Halt) else { panic!("it is new") };
        claimed.done(0).unwrap();
        assert!(matches!(scene.begin(Some(2), OnUnknown::Retry), Begun::OtherParameters));
        assert!(matches!(scene.begin(Some(1), OnUnknown::Halt), Begun::Done { .. }));
    }

    #[test]
    fn of_many_threads_one_does_it() {
        let scene = Scene::new();
        let began = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    if let Begun::Run(claimed) = scene.begin(None, OnUnknown::Halt) {
                        began.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        claimed.done(0).unwrap();
                    }
                });
            }
        });
        assert_eq!(began.into_inner(), 1);
    }
}
