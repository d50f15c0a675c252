//! The upstreams and artifacts of a job, from the command line and from the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fencepost_core::barrier::Need;
use fencepost_core::name::Name;
use fencepost_core::schedule::Schedule;
use fencepost_guard::artifact::{Base, DeclaredArtifact};
use fencepost_guard::upstream_check::{LastDue, variable};
use fencepost_view::recorded_schedule;

use crate::calendar;
use crate::config::{Config, Located};
use crate::exit::Failure;
use crate::options::JobOptions;

/// The directory that a job's artifacts are named from: its working directory.
pub fn base(config: Option<&Config>, job: &Name) -> Result<Base, Failure> {
    known_base(config, job).map_or_else(|| working_directory().map(|directory| Base::new(&directory)), Ok)
}

/// The same, if the configuration names the job.
fn known_base(config: Option<&Config>, job: &Name) -> Option<Base> {
    let config = config.filter(|config| config.names(job))?;
    Some(Base::new(&config.working_directory(config.job(job))))
}

/// The directories that artifacts of upstreams are named from, where the configuration knows them.
pub fn bases(needs: &[Need], config: Option<&Config>) -> Vec<(Name, Base)> {
    let known = |need: &Need| known_base(config, &need.job.name).map(|base| (need.job.name.clone(), base));
    needs.iter().filter_map(known).collect()
}

/// The name under which an upstream records a file. The path is written as seen from `base`, the reader's directory.
pub fn artifact_name(config: Option<&Config>, upstream: &Name, base: &Base, path: &str) -> String {
    let is_relative = Path::new(path).is_relative();
    let upstream = known_base(config, upstream);
    upstream.as_ref().unwrap_or(base).name_of(&base.locate(path), is_relative)
}

/// Converts a path of the command line, relative to the current directory, to one relative to `base`.
pub fn typed(base: &Base, path: &str) -> Result<String, Failure> {
    let whole = working_directory()?.join(path);
    Ok(base.name_of(&whole, Path::new(path).is_relative()))
}

/// The needs of a job. Paths of the command line start in the current directory, those of the configuration in the
/// job's.
pub fn needs(options: &JobOptions, config: Option<&Config>, base: &Base) -> Result<Vec<Need>, Failure> {
    let needs = options.needed().iter().map(|need| {
        let upstream = &need.job.value;
        let name = |path: &Located<String>| {
            let path = if path.is_typed() { typed(base, &path.value)? } else { path.value.clone() };
            Ok(artifact_name(config, &upstream.name, base, &path))
        };
        let artifacts = need.artifacts.iter().map(name).collect::<Result<_, Failure>>()?;
        Ok(Need { job: upstream.clone(), when: need.rule(), artifacts, on_empty: need.on_empty })
    });
    needs.collect()
}

/// Refuses two needs whose inputs would use the same variable.
pub fn check_inputs(needs: &[Need]) -> Result<(), Failure> {
    let named: Vec<&Need> = needs.iter().filter(|need| !need.artifacts.is_empty()).collect();
    for (number, need) in named.iter().enumerate() {
        let variable = variable(&need.job);
        let Some(other) = named[..number].iter().find(|other| self::variable(&other.job) == variable) else { continue };
        return Err(Failure::Usage(match other.job == need.job {
            true => format!("{} is needed twice with artifacts. Name all of them in one place.", need.job),
            false => format!("{} and {} would both be handed over as {variable}. Rename one.", other.job, need.job),
        }));
    }
    Ok(())
}

/// Refuses a job that needs itself: its own run would be the newest one, and still running.
pub fn check_self(needs: &[Need], name: &Name) -> Result<(), Failure> {
    match needs.iter().any(|need| need.job.name == *name && need.job.host().is_none()) {
        true => Err(Failure::Usage(format!("{name} needs itself: while it runs, it is not done."))),
        false => Ok(()),
    }
}

/// The artifacts that a job declares.
pub fn produces(options: &JobOptions, base: &Base) -> Result<Vec<DeclaredArtifact>, Failure> {
    let declared = options.produced().iter().map(|file| {
        let path = match file.path.is_typed() {
            true => typed(base, &file.path.value)?,
            false => base.name(Path::new(&file.path.value)),
        };
        let declared = DeclaredArtifact { path, min_bytes: file.min_bytes.unwrap_or(1) };
        declared.check().map_err(|error| Failure::Usage(format!("produces: {error}")))?;
        Ok(declared)
    });
    declared.collect()
}

/// Finds when the upstreams are due: by the configuration, or else by the schedule of their last run. An upstream with
/// mistakes either does not run or runs by its last good settings, so its record tells when it is due.
pub fn last_due(needs: &[Need], config: Option<&Config>) -> Result<LastDue, Failure> {
    let mut schedules: BTreeMap<Name, Schedule> = BTreeMap::new();
    for need in needs {
        let known = config.filter(|config| config.jobs.contains_key(&need.job.name));
        if let Some(schedule) = known.map(|config| calendar::schedule(config, &need.job.name)).transpose()?.flatten() {
            schedules.insert(need.job.name.clone(), schedule);
        }
    }
    Ok(Arc::new(move |job, record, at| match schedules.get(&job.name) {
        Some(schedule) => Some(schedule.at_or_before(at)),
        None => recorded_schedule(record?).map(|schedule| schedule.at_or_before(at)),
    }))
}

pub fn working_directory() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| Failure::Other(format!("Cannot tell the working directory: {error}")))
}
