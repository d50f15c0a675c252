//! The run that this command was started from: by its environment, by the run's private entry, or by its ancestors.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fencepost_core::name::Job;
use fencepost_core::token::RunId;
use fencepost_guard::host::Host;
use fencepost_guard::registry::{self, RunVariables};

use crate::exit::Failure;

const JOB: &str = "FENCEPOST_JOB";
const RUN: &str = "FENCEPOST_RUN";
const OUTCOME: &str = "FENCEPOST_OUTCOME";
const TOKEN: &str = "FENCEPOST_TOKEN";

/// A run inside which this command was called.
#[derive(Debug)]
pub struct Inside {
    pub run: RunId,
    pub job: Job,
    /// The file in which the job reports its outcome.
    pub said: PathBuf,
}

impl Inside {
    /// Finds the run, and restores those of its variables that the environment has lost. Fails if two sources name
    /// different runs.
    ///
    /// Call it before a thread exists, and before the store or the state directory is looked for: an agent may have
    /// stripped the variables that name them.
    pub fn find() -> Result<Option<Self>, Failure> {
        let around = registry::of_ancestors(&Host::this());
        let leading = variable(OUTCOME).as_deref().and_then(run_of_file).or_else(|| parsed(variable(RUN)));
        let named = leading.and_then(registry::of_id);
        let sources = [
            Source::of("the environment", variable),
            named
                .as_ref()
                .and_then(|named| Source::of("the file of FENCEPOST_OUTCOME", |name| named.get(name).cloned())),
            around
                .as_ref()
                .and_then(|around| Source::of("the process that started it", |name| around.get(name).cloned())),
        ];
        agree(&sources)?;
        for found in named.iter().chain(&around) {
            restore(found);
        }
        Ok(Self::of_environment())
    }

    /// A run of this user on this host, by its id, if it has not ended. Sets its variables.
    pub fn of_run(run: RunId) -> Option<Self> {
        registry::of_id(run)?.iter().for_each(|(name, value)| fencepost_guard::set_variable(name, value));
        Self::of_environment()
    }

    fn of_environment() -> Option<Self> {
        let run = parsed(variable(RUN))?;
        let job = Job::parse(&variable(JOB)?).ok()?;
        Some(Self { run, job, said: variable(OUTCOME)?.into() })
    }
}

/// One way to find the run, and what it found.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    what: &'static str,
    run: RunId,
    job: Option<String>,
    token: Option<String>,
}

impl Source {
    fn of(what: &'static str, value: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self { what, run: parsed(value(RUN))?, job: value(JOB), token: value(TOKEN) })
    }

    /// Whether both can be the same run. A variable that is missing contradicts nothing.
    fn fits(&self, other: &Self) -> bool {
        let same = |mine: &Option<String>, its: &Option<String>| mine.is_none() || its.is_none() || mine == its;
        self.run == other.run && same(&self.token, &other.token) && same(&self.job, &other.job)
    }

    fn shown(&self) -> String {
        let job = self.job.as_deref().unwrap_or("an unnamed job");
        let token = self.token.as_ref().map_or_else(String::new, |token| format!(", token {token}"));
        format!("{} names run {} of {job}{token}", self.what, self.run)
    }
}

/// Refuses two sources that name different runs.
fn agree(sources: &[Option<Source>]) -> Result<(), Failure> {
    let found: Vec<&Source> = sources.iter().flatten().collect();
    let Some(pair) = found.windows(2).find(|pair| !pair[0].fits(pair[1])) else { return Ok(()) };
    Err(Failure::Usage(format!(
        "It is unclear which run this command belongs to: {}, but {}. Nothing was written. Start it inside one run only, or \
         name the run: for publish --job JOB --token T, for record the job and --token T.",
        pair[0].shown(),
        pair[1].shown()
    )))
}

/// Sets the variables that are missing here.
fn restore(variables: &RunVariables) {
    for (name, value) in variables.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
        fencepost_guard::set_variable(name, value);
    }
}

/// The run whose report a file is.
fn run_of_file(path: &str) -> Option<RunId> {
    Path::new(path).file_name()?.to_str()?.parse().ok()
}

fn parsed(run: Option<String>) -> Option<RunId> {
    run?.parse().ok()
}

/// Variable with the runs around that one, the outermost first.
const OUTER_VARIABLE: &str = "FENCEPOST_OUTER_RUNS";

/// Whether the nearest run around this process is that of an agent's session. The agent may have several.
pub fn is_in_session() -> bool {
    variable(RUN).is_none()
        && registry::of_ancestors(&Host::this()).is_some_and(|found| registry::is_of_session(&found))
}

/// Keeps the run around this process from a run that is not inside it.
pub fn forget_run(command: &mut std::process::Command) {
    for name in [JOB, RUN, OUTCOME, TOKEN, OUTER_VARIABLE] {
        command.env_remove(name);
    }
}

/// All runs inside which this command was called, the innermost last.
pub fn runs() -> Vec<RunId> {
    let outer = variable(OUTER_VARIABLE).unwrap_or_default();
    let innermost = variable(RUN).unwrap_or_default();
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
