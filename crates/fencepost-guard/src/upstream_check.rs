//! Checks the upstreams of a job and the artifacts it left: ledgers of other jobs, and files.
//!
//! A check may take long, so it runs on its own thread while the driver renews the lease.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::artifact::Artifact;
use fencepost_core::barrier::{
    self, Asker, Calendar, Decision, Here, Need, StrictBarrier, Upstream, UpstreamVerdict, judge, slots_in_history,
    together, verify, wanted,
};
use fencepost_core::contract::Produced;
use fencepost_core::lease::{Honest, Rules, Standing};
use fencepost_core::ledger::Outcome;
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::Record;
use fencepost_core::register::StoreError;
use fencepost_core::run::Passage;
use fencepost_core::time::Wall;
use fencepost_core::transition::Known;
use fencepost_core::waiting::WaitingRun;
use fencepost_store::Store;
use fencepost_store::records::{details, history};

use crate::artifact::{Base, DeclaredArtifact, FingerprintError, Snapshot, read, survey};
use crate::clock;
use crate::local::Local;
use crate::pin;
use crate::waiting::WaitingMark;

/// The pause between two checks of an upstream that is not good yet, at first and at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(200);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Finds the newest slot of a job at or before an instant; `None` if its schedule is unknown.
pub type LastDue = Arc<dyn Fn(&Job, Option<&Record>, Wall) -> Option<Option<Wall>> + Send + Sync>;

/// The needs and artifacts of a job, and where they are found.
#[derive(Clone)]
pub struct UpstreamCheck {
    pub store: Arc<dyn Store>,
    pub local: Local,
    pub base: Base,
    /// The known working directories of upstreams. Artifact names of such an upstream are relative to its directory.
    pub bases: Vec<(Name, Base)>,
    pub needs: Vec<Need>,
    /// How long to wait for upstreams that are not good yet.
    pub wait: Duration,
    pub due: LastDue,
    /// The directory for copies of the artifacts. Without it, artifacts are only compared.
    pub pins: Option<PathBuf>,
    pub produces: Vec<DeclaredArtifact>,
    /// The run that waits, for those who ask what it waits for.
    pub waiting: Option<WaitingRun>,
}

impl std::fmt::Debug for UpstreamCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamCheck")
            .field("needs", &self.needs)
            .field("produces", &self.produces)
            .finish_non_exhaustive()
    }
}

/// The verdicts of the upstreams, and the copies of their artifacts.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub verdicts: Vec<UpstreamVerdict>,
    pub inputs: Vec<Pinned>,
}

/// The inputs that a job reads from one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    pub upstream: Job,
    /// A file if one artifact was named, a directory if several were.
    pub path: PathBuf,
}

/// Prefix of the variables that tell a job where its inputs are.
pub const PINNED: &str = "FENCEPOST_IN_";

/// The variable that tells a job where the inputs of an upstream are.
pub fn variable(upstream: &Job) -> String {
    let name = upstream.to_string().to_ascii_uppercase();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{PINNED}{name}")
}

impl Pinned {
    /// The name of the variable that holds this path.
    pub fn variable(&self) -> String {
        variable(&self.upstream)
    }
}

impl UpstreamCheck {
    /// Checks all upstreams, repeatedly while there is time and one of them is not good.
    pub fn inspect(&self, asker: &Asker) -> Inspection {
        let until = clock::boot_now() + self.wait;
        let (mut pause, mut mark) = (LOOK_PAUSE_MIN, None);
        loop {
            let inspection = self.look(asker);
            let left = until.since(clock::boot_now());
            if inspection.decision() != Decision::Halt || left.is_zero() {
                return inspection;
            }
            if mark.is_none() {
                mark = self.announce(&inspection, left);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    }

    /// Notes which upstreams are waited for.
    fn announce(&self, inspection: &Inspection, left: Duration) -> Option<WaitingMark> {
        let halting = inspection.verdicts.iter().filter(|verdict| verdict.decision == Decision::Halt);
        let waits_for: Vec<_> = halting.map(|verdict| verdict.job.to_string()).collect();
        let since = clock::now().wall;
        let waiting = WaitingRun { waits_for, since, until: Some(since + left), ..self.waiting.clone()? };
        Some(self.local.waiting().note(&waiting))
    }

    /// The declared artifacts before the job.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.produces, &self.base)
    }

    /// The declared artifacts as the job left them.
    pub fn survey(&self, before: &Snapshot) -> Vec<Produced> {
        survey(&self.produces, &self.base, before)
    }

    fn look(&self, asker: &Asker) -> Inspection {
        let mut seen: Vec<(Job, Result<Upstream, StoreError>)> = Vec::new();
        let mut verdicts = Vec::new();
        let mut inputs = Vec::new();
        for need in &self.needs {
            if !seen.iter().any(|(job, _)| *job == need.job) {
                seen.push((need.job.clone(), self.upstream(&need.job)));
            }
            let upstream = seen.iter().find(|(job, _)| *job == need.job).map(|(_, upstream)| upstream.clone());
            let verdict = match upstream {
                Some(Ok(upstream)) => self.judge(need, upstream, asker, &mut inputs),
                Some(Err(error)) => UpstreamVerdict::unreadable(need, &error.detail),
                None => unreachable!("every upstream was asked"),
            };
            verdicts.push(verdict);
        }
        Inspection { verdicts, inputs }
    }

    /// An upstream's record, and whether its lease is still held.
    fn upstream(&self, job: &Job) -> Result<Upstream, StoreError> {
        let answer = self.store.read(&Key::job(job))?;
        let Some(record) = answer.value.map(|entry| Known::of(entry, job)).transpose()?.map(|known| known.record)
        else {
            return Ok(Upstream::default());
        };
        let now = clock::boot_now();
        let facts = self.local.facts(Some(&record), now);
        let standing = Honest::standing(&record, answer.clock.as_ref(), &facts, now);
        let lease_is_over = matches!(standing, Standing::Over(_));
        // A job that was forgotten has no outcome: its downstreams halt.
        Ok(Upstream { record: Some(record.remembered().into_owned()), lease_is_over, history: Vec::new() })
    }

    fn judge(&self, need: &Need, upstream: Upstream, asker: &Asker, inputs: &mut Vec<Pinned>) -> UpstreamVerdict {
        let record = upstream.record.as_ref();
        let known = (self.due)(&need.job, record, asker.slot).is_some();
        let due = |at: Wall| (self.due)(&need.job, upstream.record.as_ref(), at).flatten();
        let calendar: Calendar<'_> = if known { Some(&due) } else { None };
        let wanted = wanted::<StrictBarrier>(need.when, asker, clock::now().wall, calendar);
        let older = match self.older(need, record, &slots_in_history::<StrictBarrier>(wanted, record, calendar).groups)
        {
            Ok(older) => older,
            Err(error) => return UpstreamVerdict::unreadable(need, &error.detail),
        };
        let upstream = Upstream { history: older, ..upstream.clone() };
        let mut verdict = judge::<StrictBarrier>(need, wanted, &upstream, asker, calendar);
        if let Err(error) = self.complete(need, &mut verdict) {
            return UpstreamVerdict::unreadable(need, &error.detail);
        }
        self.compare(need, &mut verdict, inputs);
        verdict
    }

    /// Reads the groups in order, up to the first with an entry in the history.
    fn older(&self, need: &Need, record: Option<&Record>, groups: &[Vec<Wall>]) -> Result<Vec<Outcome>, StoreError> {
        for group in groups {
            let mut older = Vec::new();
            for slot in group {
                older.extend(history(self.store.as_ref(), &need.job, *slot).map_err(|failed| failed.error)?);
            }
            older.retain(|outcome| record.is_none_or(|record| !record.has_forgotten(outcome)));
            if !older.is_empty() {
                return Ok(older);
            }
        }
        Ok(Vec::new())
    }

    /// Reads the whole list of artifacts from the history if the record has no room for it.
    fn complete(&self, need: &Need, verdict: &mut UpstreamVerdict) -> Result<(), StoreError> {
        let Some(attempt) = verdict.attempt.as_mut().filter(|attempt| attempt.clipped) else { return Ok(()) };
        if need.artifacts.iter().all(|path| attempt.artifacts.iter().any(|artifact| artifact.path == *path)) {
            return Ok(());
        }
        if let Some(details) = details(self.store.as_ref(), &need.job, attempt)? {
            *attempt = details;
        }
        Ok(())
    }

    /// Hashes the file that the job will read: its copy, if it gets one.
    fn compare(&self, need: &Need, verdict: &mut UpstreamVerdict, inputs: &mut Vec<Pinned>) {
        if verdict.decision != Decision::Proceed || need.artifacts.is_empty() {
            return;
        }
        let place = self.pins.as_ref().map(|pins| pins.join(Key::job(&need.job).as_str().replace('/', "_")));
        for path in &need.artifacts {
            let base = self.base_of(&need.job);
            let here = base.locate(path);
            let (here, read_from) = match &place {
                None => (here.clone(), here),
                Some(place) => (here, place.join(file_name(path, need.artifacts.len() > 1))),
            };
            let found = found(base, path, &here, &read_from);
            verify::<StrictBarrier>(verdict, &base.name(Path::new(path)), &base.shown(path), &found);
            if verdict.decision == Decision::Halt {
                return;
            }
        }
        if let Some(place) = place {
            let path = match need.artifacts.as_slice() {
                [only] => place.join(file_name(only, false)),
                _ => place,
            };
            inputs.push(Pinned { upstream: need.job.clone(), path });
        }
    }

    fn base_of(&self, upstream: &Job) -> &Base {
        let known = self.bases.iter().find(|(name, _)| *name == upstream.name);
        known.map_or(&self.base, |(_, base)| base)
    }
}

fn found(base: &Base, path: &str, here: &Path, read_from: &Path) -> Here {
    if here != read_from {
        // An earlier check may have left a copy, which is read-only.
        let _ = std::fs::remove_file(read_from);
        match pin::copy(here, read_from) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Here::Missing,
            Err(error) => return Here::Unreadable(format!("it cannot be copied: {error}")),
        }
    }
    match read(read_from) {
        Ok((size, sha256)) => {
            Here::Found(Artifact { path: base.name(Path::new(path)), size, sha256, unknown: Default::default() })
        }
        Err(FingerprintError::Missing) => Here::Missing,
        Err(FingerprintError::Unsteady) => Here::Unreadable("it changes while it is read".to_string()),
        Err(FingerprintError::Failed(error)) => Here::Unreadable(error.to_string()),
    }
}

impl Inspection {
    pub fn decision(&self) -> Decision {
        together::<StrictBarrier>(&self.verdicts)
    }

    /// The result in the form that the run takes as input.
    pub fn passage(&self, needs: &[Need]) -> Passage {
        barrier::passage::<StrictBarrier>(&self.verdicts, needs)
    }
}

/// The name of a copy: the file's own name, or for several files the recorded path without `.` and `..`.
fn file_name(path: &str, several: bool) -> PathBuf {
    if several {
        let parts = Path::new(path).components().filter_map(|part| match part {
            Component::Normal(part) if is_dots(part) => Some(PathBuf::from(format!("{}.", part.to_string_lossy()))),
            Component::Normal(part) => Some(PathBuf::from(part)),
            // Keeps a copy inside its directory. `..` becomes `...`, and longer names of dots get one dot more, so no
            // two files share a name.
            Component::ParentDir => Some(PathBuf::from("...")),
            _ => None,
        });
        return parts.collect();
    }
    Path::new(path).file_name().map_or_else(|| PathBuf::from("input"), PathBuf::from)
}

fn is_dots(part: &OsStr) -> bool {
    part.as_encoded_bytes().iter().all(|byte| *byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_several_files_stay_below_their_place_and_apart() {
        let names = ["../x", "x", "/x/y", ".../x", "..../x", "../../x"].map(|path| file_name(path, true));
        let expected = [".../x", "x", "x/y", "..../x", "...../x", ".../.../x"].map(PathBuf::from);
        assert_eq!(names, expected);
    }
}
