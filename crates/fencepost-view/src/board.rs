//! All jobs at once, for a server with many viewers: several answers from one walk over the records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::barrier::Need;
use fencepost_core::name::{Job, Key, Name};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::RunAnswer;
use crate::graph::{Graph, GraphAnswer};
use crate::overdue::OverdueAnswer;
use crate::runs::runs_of_record;
use crate::status::{JobStatus, SeenJobs, StatusAnswer, StatusQuery};
use crate::unread::{Unread, each_whole_record};
use crate::{View, ViewError};

/// How many of the newest runs of a job a board has at most.
pub const BOARD_RUNS_MAX: usize = 50;

/// What the store says of all jobs at one moment.
#[derive(Clone, Debug)]
pub struct Board {
    pub status: StatusAnswer,
    pub overdue: OverdueAnswer,
    pub graph: GraphAnswer,
    /// The runs that each job's record holds, newest first. A run that is going is the first of them. Boards share those of
    /// a job whose runs are the same.
    pub runs: BTreeMap<String, Arc<[RunAnswer]>>,
    /// By job, for those of `status.jobs`.
    pub terms: BTreeMap<String, JobTerms>,
}

/// What the durations of a job are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTerms {
    /// The time-to-live of its lease, as the configuration says, or as it is held now.
    pub ttl: Option<Duration>,
    /// The time between two slots about now.
    pub interval: Option<Duration>,
}

/// What a server tells its viewers when a board differs from the one before.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum BoardEvent<'a> {
    /// The new status of a job.
    Job(&'a JobStatus),
    /// A job that is no more.
    Gone { job: &'a str },
    /// The store cannot be read.
    Trouble { message: &'a str },
    /// Everything that changed has been told.
    Board {
        /// How many jobs there are, if the store can be read.
        #[serde(skip_serializing_if = "Option::is_none")]
        jobs: Option<usize>,
    },
    /// Events are missing: a client reads everything anew.
    Reset {},
}

impl BoardEvent<'_> {
    /// The name of the event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Job(_) => "job",
            Self::Gone { .. } => "gone",
            Self::Trouble { .. } => "trouble",
            Self::Board { .. } => "board",
            Self::Reset {} => "reset",
        }
    }
}

/// What the caller knows of the jobs besides the store.
#[derive(Clone, Debug)]
pub struct BoardQuery {
    pub status: StatusQuery,
    /// The configured needs of each job.
    pub needs: Vec<(Job, Vec<Need>)>,
    /// The configured time-to-live of each job.
    pub ttls: BTreeMap<Name, Duration>,
}

impl Board {
    /// The runs that a job's record holds, newest first.
    pub fn runs_of(&self, job: &str) -> &[RunAnswer] {
        self.runs.get(job).map_or(&[], |runs| runs)
    }
}

impl View<'_> {
    /// Answers about all jobs, each record read once. Runs that are the same as before are kept once for both boards.
    pub fn board(&self, query: &BoardQuery, before: Option<&Board>) -> Result<Board, ViewError> {
        let (mut unread, mut seen, mut graph) = (Unread::default(), SeenJobs::default(), Graph::of(&query.needs));
        let mut runs = BTreeMap::new();
        each_whole_record(self.store, Key::JOBS, &mut unread, |unread, record, clock| {
            if !record.is_hidden() {
                let shown = record.remembered();
                graph.add(&shown);
                let of_job = runs_of_record(&shown, self.is_over(&shown, clock), BOARD_RUNS_MAX);
                let job = shown.job.to_string();
                let known = before.and_then(|before| before.runs.get(&job)).filter(|known| known[..] == of_job);
                let of_job = known.cloned().unwrap_or_else(|| of_job.into());
                runs.insert(job, of_job);
            }
            seen.add(self, &query.status, record, clock, unread)
        })?;
        seen.add_never_ran(self, &query.status, &mut unread)?;
        let terms = seen.terms(self.now, &query.ttls);
        let late = seen.late();
        let status = self.status_of(&query.status, seen, unread)?;
        Ok(Board {
            overdue: self.overdue_of(late, status.errors.clone()),
            graph: graph.answer(status.errors.clone()),
            runs,
            terms,
            status,
        })
    }
}
