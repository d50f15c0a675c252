//! Answers about jobs: typed, serialisable, and read only through the store contract.
//!
//! This crate prints nothing, starts nothing and asks no clock. A caller passes in what the store does not know: the time,
//! the configured jobs, whether a holder's processes are dead. Text, JSON, Prometheus metrics, HTTP and MCP are renderings
//! of the same answers.
//!
//! * [`View`]: a store and the caller's knowledge; one method per question.
//! * [`answer`]: the answers of the other verbs, and the pieces that several answers share.
//! * [`status`], [`runs`], [`why`], [`plan`], [`overdue`], [`advise`], [`gate`], [`graph`], [`items`]: a module per question.
//! * [`event`], [`run_end`], [`summary`], [`up`]: what happens in a run, how it ends, and what `up` prints. [`exit_code`]: the numbers.
//! * [`prometheus`]: the status as metrics. [`durations`]: how long runs took, as histograms.
//! * [`schema`]: the JSON Schema of every answer.
//! * [`unread`]: records that cannot be read, which are part of an answer.
//! * [`archive`]: the history of a job, newest first.
//! * [`waiting`]: which job waits for which.
//! * [`board`]: the status, the runs, the graph and what is overdue, of one walk over the records.
//! * [`attention`]: which jobs need attention, and why. [`digest`]: what happened since a moment.
//! * [`drift`]: how a job differs from its definition, its settings on this host and its own past.
//! * [`notice`]: which ends of runs are worth a notification.
//! * [`output`]: the last lines that a command printed.
//! * [`text`], [`moment`], [`time`], [`vocabulary`], [`percent`]: words, times and names.

pub mod advise;
pub mod answer;
pub mod archive;
pub mod attention;
pub mod board;
pub mod digest;
pub mod drift;
pub mod durations;
pub mod event;
pub mod exit_code;
pub mod gate;
pub mod graph;
pub mod items;
pub mod moment;
pub mod notice;
pub mod output;
pub mod overdue;
pub mod plan;
pub mod prometheus;
pub mod run_end;
pub mod runs;
pub mod schema;
pub mod session;
pub mod status;
#[cfg(test)]
mod status_tests;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod text;
pub mod time;
pub mod unread;
pub mod up;
pub mod vocabulary;
pub mod waiting;
pub mod why;

use std::borrow::Cow;
use std::time::Duration;

use fencepost_core::lease::{Facts, Honest, Rules, Standing};
use fencepost_core::name::Name;
use fencepost_core::record::{Holder, Record};
use fencepost_core::schedule::Schedule;
use fencepost_core::time::{Boot, StoreClock, Wall};
use fencepost_core::waiting::WaitingRun;
use fencepost_core::zone::Zone;
use fencepost_store::{Store, StoreError};
use thiserror::Error;

use crate::answer::JobMistakes;
pub use fencepost_store::percent;
pub use vocabulary::ReasonCode;

/// A store, and what the caller knows besides it.
pub struct View<'a> {
    pub store: &'a dyn Store,
    /// The store's URL without its password.
    pub store_url: String,
    /// The configuration's path, if there is one.
    pub config: Option<String>,
    /// The jobs of the configuration that do not run because of mistakes.
    pub broken: Vec<JobMistakes>,
    pub now: Wall,
    /// The runs of this host that wait.
    pub waiting: Vec<WaitingRun>,
    /// Whether the processes of a holder are known to be dead.
    pub is_dead: &'a dyn Fn(&Holder) -> bool,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("store", &self.store_url).field("now", &self.now).finish_non_exhaustive()
    }
}

impl View<'_> {
    /// A record as it stands now: a pause whose time is over has ended.
    pub fn current(&self, record: Record) -> Record {
        match record.as_of(self.now) {
            Cow::Borrowed(_) => record,
            Cow::Owned(resumed) => resumed,
        }
    }

    /// Whether the lease in a record has ended without a release.
    pub fn is_over(&self, record: &Record, clock: Option<&StoreClock>) -> bool {
        let is_dead = record.lease.as_ref().is_some_and(|lease| (self.is_dead)(&lease.holder));
        is_dead || remaining(record, clock) == Some(Duration::ZERO)
    }
}

impl View<'_> {
    /// The jobs that do not run because of mistakes: all, or the one of this name.
    pub(crate) fn broken_jobs(&self, name: Option<&Name>) -> impl Iterator<Item = &JobMistakes> {
        self.broken.iter().filter(move |broken| name.is_none_or(|name| broken.job == name.as_str()))
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ViewError {
    #[error("{}", .0.detail)]
    Store(StoreError),
    /// The question is about a job that does not exist, or about one that is not told apart from others.
    #[error("{0}")]
    Question(String),
}

impl From<StoreError> for ViewError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// How long a lease lasts at least, as far as the store's clock tells.
pub fn remaining(record: &Record, clock: Option<&StoreClock>) -> Option<Duration> {
    match Honest::standing(record, clock, &Facts::default(), Boot(0)) {
        Standing::Held { remaining } => remaining,
        Standing::Over(_) => Some(Duration::ZERO),
        Standing::Free => None,
    }
}

/// The schedule of a job's last run.
pub fn recorded_schedule(record: &Record) -> Option<Schedule> {
    let timing = record.timing.as_ref()?;
    Schedule::parse(&timing.schedule, &Zone::parse(&timing.zone).ok()?).ok()
}
