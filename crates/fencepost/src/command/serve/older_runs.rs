//! Runs that have left their job's record, for the timeline: read from the history when a page shows the job, and kept for all viewers
//! until the job has another run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use fencepost_core::name::Job;
use fencepost_core::time::Wall;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::Board;
use fencepost_web::{MoreRuns, TimelineQuery, cut_jobs};

use super::poller::TimedBoard;
use crate::args::Global;
use crate::exit::Failure;
use crate::place::Place;

/// The most runs of a job on the timeline.
const RUNS_OF_JOB_MAX: usize = 500;

/// The most runs that are kept.
const RUNS_MAX: usize = 6_000;

/// How long a page waits for runs that are not kept yet. The next page goes on.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a look may take besides its reads, on a busy machine.
const LOOK_BESIDES: Duration = Duration::from_millis(500);

/// A job, and since when its runs are wanted, as the page's address says it.
type Wanted = (String, &'static str);

#[derive(Debug, Default)]
pub struct OlderRuns {
    known: Mutex<BTreeMap<Wanted, KnownRuns>>,
    /// Held by the page that reads. The others show what is kept.
    reading: Mutex<()>,
}

#[derive(Debug)]
struct KnownRuns {
    /// The runs of the board that they were read for.
    newest: Arc<[RunAnswer]>,
    all: Arc<[RunAnswer]>,
}

impl OlderRuns {
    /// All runs of the jobs on a page of the timeline whose records do not reach back far enough, as far as they are known.
    /// Reads nothing without `global`: the store cannot be asked now.
    pub fn of(&self, timed: &TimedBoard, query: &TimelineQuery, now: Wall, global: Option<&Global>) -> MoreRuns {
        let board = &timed.board;
        let (since, cut) = cut_jobs(board, now, query);
        let range = query.range.as_str();
        let (mut more, mut missing) = (MoreRuns::new(), Vec::new());
        for job in cut {
            match self.kept(&(job.to_string(), range), board) {
                Some(all) => drop(more.insert(job.to_string(), all)),
                None => missing.push(job),
            }
        }
        let alone = match self.reading.try_lock() {
            Err(TryLockError::WouldBlock) => return more,
            alone => alone,
        };
        if let Some(global) = global.filter(|_| !missing.is_empty()) {
            // If the store cannot be read, the page says so, and shows what the records had.
            let _ = self.read(&mut more, timed, &missing, (range, since), global);
        }
        drop(alone);
        more
    }

    fn kept(&self, wanted: &Wanted, board: &Board) -> Option<Arc<[RunAnswer]>> {
        let known = self.known();
        let (runs, newest) = (known.get(wanted)?, board.runs.get(&wanted.0)?);
        let runs = Some(runs).filter(|runs| Arc::ptr_eq(&runs.newest, newest))?;
        Some(Arc::clone(&runs.all))
    }

    fn read(
        &self,
        more: &mut MoreRuns,
        timed: &TimedBoard,
        missing: &[&str],
        (range, since): (&'static str, Wall),
        global: &Global,
    ) -> Result<(), Failure> {
        let (begun, place) = (Instant::now(), Place::find(global)?);
        let store = place.open_to_read()?;
        let limit = runs_in_patience(timed);
        for job in missing.iter().map(|job| job.to_string()) {
            if begun.elapsed() > PATIENCE {
                break;
            }
            let (Ok(name), Some(newest)) = (Job::parse(&job), timed.board.runs.get(&job).cloned()) else { continue };
            let all = place.ask(store.as_ref(), |view| view.runs_since(&name, since, limit))?;
            let all: Arc<[RunAnswer]> = all.into();
            more.insert(job.clone(), Arc::clone(&all));
            self.keep((job, range), KnownRuns { newest, all });
        }
        Ok(())
    }

    fn keep(&self, wanted: Wanted, runs: KnownRuns) {
        let mut known = self.known();
        let kept: usize = known.values().map(|runs| runs.all.len()).sum();
        if kept + runs.all.len() > RUNS_MAX {
            known.clear();
        }
        known.insert(wanted, runs);
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Wanted, KnownRuns>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many runs of a job are wanted. A look reads each job's record, so it shows how long a read takes: of a slow store fewer
/// are read, so that one job does not take longer than a page waits.
fn runs_in_patience(timed: &TimedBoard) -> usize {
    let reads = u128::try_from(timed.board.status.jobs.len()).unwrap_or(1).max(1);
    let reading = timed.took.saturating_sub(LOOK_BESIDES);
    let possible = PATIENCE.as_nanos() * reads / reading.as_nanos().max(1);
    usize::try_from(possible).unwrap_or(usize::MAX).min(RUNS_OF_JOB_MAX)
}
