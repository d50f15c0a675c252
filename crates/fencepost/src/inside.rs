//! The run that this command was started from, read from the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use fencepost_core::name::Job;
use fencepost_core::token::RunId;

/// A run inside which this command was called.
#[derive(Debug)]
pub struct Inside {
    pub run: RunId,
    pub job: Job,
    /// The file in which the job reports its outcome.
    pub said: PathBuf,
}

impl Inside {
    pub fn find() -> Option<Self> {
        let run = variable("FENCEPOST_RUN")?.parse().ok()?;
        let job = Job::parse(&variable("FENCEPOST_JOB")?).ok()?;
        Some(Self { run, job, said: variable("FENCEPOST_OUTCOME")?.into() })
    }
}

/// Variable with the runs around that one, the outermost first.
const OUTER_VARIABLE: &str = "FENCEPOST_OUTER_RUNS";

/// All runs inside which this command was called, the innermost last.
pub fn runs() -> Vec<RunId> {
    let outer = variable(OUTER_VARIABLE).unwrap_or_default();
    let innermost = variable("FENCEPOST_RUN").unwrap_or_default();
    outer.split(',').chain([innermost.as_str()]).filter_map(|run| run.parse().ok()).collect()
}

/// The variable that tells a child which runs are around its own.
pub fn around() -> (OsString, Option<OsString>) {
    let runs: Vec<String> = runs().iter().map(RunId::to_string).collect();
    (OUTER_VARIABLE.into(), Some(runs.join(",").into()).filter(|_| !runs.is_empty()))
}

/// A variable that is set to something.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
