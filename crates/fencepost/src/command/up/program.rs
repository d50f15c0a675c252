//! The accepted configuration of `up`, and the excerpts of it that the runs read.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::agenda::{Limits, StartId, Task};
use fencepost_core::name::Name;
use fencepost_core::zone::Zone;
use fencepost_view::up::UpEvent;

use super::line::UpLine;
use super::lookout::LookRequest;
use super::tasks::{self, ScheduledJob, Scheduling, UnscheduledJob};
use crate::args::Global;
use crate::calendar;
use crate::config::{Config, Scope, Sections};
use crate::exit::Failure;
use crate::file;
use crate::options::Given;
use crate::place::Place;

pub struct Program {
    place: Arc<Place>,
    scheduling: Scheduling,
    /// Jobs that run by their last good settings, because the file has mistakes in them now.
    kept: BTreeMap<Name, KeptJob>,
    pub zone: Zone,
    stamp: Option<ConfigStamp>,
    sections: Sections,
    /// The directory of the excerpts.
    directory: PathBuf,
}

/// A job's last good settings.
#[derive(Clone)]
struct KeptJob {
    scheduled: ScheduledJob,
    /// The part of the configuration that was accepted last.
    excerpt: String,
    keeps_output: bool,
}

/// Identifies a state of the file, to detect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConfigStamp {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// A private file with the part of the accepted configuration that one run needs. It is removed when the run has ended,
/// because a retry is another process that reads it again.
pub struct Excerpt {
    pub path: PathBuf,
}

impl Program {
    pub fn load(global: &Global, jobs: &[Name]) -> Result<Self, Failure> {
        let place = Place::find(global)?;
        let directory = place.state.join("up");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
            Failure::Other(format!(
                "Cannot create the directory for configuration excerpts in {}: {error}",
                directory.display()
            ))
        })?;
        file::forget_old(&directory);
        Self::of(place, jobs, directory)
    }

    /// Reads the configuration again, and fails if it has mistakes outside its jobs. A job with mistakes keeps its last good
    /// settings, if it has any.
    pub fn reloaded(&mut self, global: &Global, jobs: &[Name]) -> Result<Self, Failure> {
        // This state of the file counts as seen even if it is refused.
        self.stamp = ConfigStamp::of(self.path());
        let mut program = Self::of(Place::find(global)?, jobs, self.directory.clone())?;
        // Settings from before another store was named would run the job there.
        if program.place.store == self.place.store {
            program.kept = program.scheduling.broken.keys().filter_map(|key| self.last_good(key)).collect();
        }
        Ok(program)
    }

    /// The last good settings of a job.
    fn last_good(&self, key: &str) -> Option<(Name, KeptJob)> {
        let name = Name::new(key).ok()?;
        let kept = match self.scheduling.jobs.get(&name) {
            Some(scheduled) => KeptJob {
                scheduled: ScheduledJob::clone(scheduled),
                excerpt: self.config().excerpt(&self.sections, &name),
                keeps_output: self.keeps_output(&name),
            },
            None => self.kept.get(&name)?.clone(),
        };
        Some((name, kept))
    }

    /// Whether a job is not scheduled because of its mistakes.
    pub fn has_broken(&self) -> bool {
        !self.scheduling.broken.is_empty()
    }

    /// A line for each job with mistakes that `before` did not have.
    pub fn broken(&self, before: Option<&Self>) -> Vec<UpLine> {
        let is_told = |key: &String, job: &UnscheduledJob| {
            before.and_then(|before| before.scheduling.broken.get(key)).is_some_and(|told| told.what == job.what)
        };
        let told = self.scheduling.broken.iter().filter(|(key, job)| !is_told(key, job)).map(|(key, job)| {
            let name = Name::new(key).ok();
            let runs_as_before = name.as_ref().is_some_and(|name| self.kept.contains_key(name));
            let event = UpEvent::Broken { runs_as_before, message: job.shown.clone() };
            match name {
                Some(name) => UpLine::of_job(&name, event),
                None => UpLine::of_up(event),
            }
        });
        told.collect()
    }

    fn of(place: Place, jobs: &[Name], directory: PathBuf) -> Result<Self, Failure> {
        let Some(config) = place.config.as_ref() else {
            return Err(Failure::Usage(
                "There is no fencepost.toml in this directory or above it: nothing to schedule. Write one with fencepost \
                 init, or name one with --config."
                    .to_string(),
            ));
        };
        let stamp = ConfigStamp::of(&config.path);
        let zone = calendar::zone_of_all(None, Some(config))?;
        let scheduling = tasks::scheduling(&place, config, jobs)?;
        let sections = config.sections();
        let kept = BTreeMap::new();
        Ok(Self { place: Arc::new(place), scheduling, kept, zone, stamp, sections, directory })
    }

    fn config(&self) -> &Config {
        self.place.config.as_ref().expect("there is no program without a configuration")
    }

    pub fn path(&self) -> &Path {
        &self.config().path
    }

    /// Whether the configuration was found by search.
    pub fn is_found(&self) -> bool {
        self.config().scope == Scope::NamedJobs
    }

    /// Writes the part of the configuration that a run of the job needs.
    pub fn excerpt(&self, job: &Name, id: StartId) -> io::Result<Excerpt> {
        let path = self.directory.join(format!("{}-{}.toml", std::process::id(), id.0));
        // Left by a killed process with the same pid.
        let _ = std::fs::remove_file(&path);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let excerpt = Excerpt { path };
        let text = match self.kept.get(job) {
            Some(kept) => kept.excerpt.clone(),
            None => self.config().excerpt(&self.sections, job),
        };
        file.write_all(text.as_bytes())?;
        Ok(excerpt)
    }

    /// Whether the file has changed since it was last read.
    pub fn is_changed(&self) -> bool {
        ConfigStamp::of(self.path()) != self.stamp
    }

    pub fn tasks(&self) -> Vec<Task> {
        self.scheduled().map(|scheduled| scheduled.task()).collect()
    }

    fn scheduled(&self) -> impl Iterator<Item = &ScheduledJob> {
        self.scheduling.jobs.values().map(Box::as_ref).chain(self.kept.values().map(|kept| &kept.scheduled))
    }

    pub fn limits(&self) -> Limits {
        let up = &self.config().up;
        Limits { max_parallel: up.max_parallel() as usize, spread: up.spread() }
    }

    pub fn stop_within(&self) -> Option<Duration> {
        self.config().up.stop_within.value()
    }

    pub fn request(&self, job: &Name, anew: bool) -> Option<LookRequest> {
        let kept = || self.kept.get(job).map(|kept| &kept.scheduled);
        let scheduled = self.scheduling.jobs.get(job).map(Box::as_ref).or_else(kept)?;
        Some(LookRequest {
            name: job.clone(),
            job: scheduled.job.clone(),
            claim: scheduled.claim(),
            place: Arc::clone(&self.place),
            local: self.place.local(),
            anew,
        })
    }

    /// Whether the job's output goes to its log, so `up` does not print it.
    pub fn keeps_output(&self, job: &Name) -> bool {
        let kept = self.kept.get(job).map(|kept| kept.keeps_output);
        kept.unwrap_or_else(|| self.config().job(job).logs().enabled.value() != Some(false))
    }

    pub fn widest_name(&self) -> usize {
        self.scheduled().map(|scheduled| scheduled.job.name.as_str().len()).max().unwrap_or(0)
    }

    pub fn introduction(&self, jobs: usize) -> UpLine {
        UpLine::of_up(UpEvent::Up {
            jobs,
            store: self.place.shown_store(),
            config: self.path().display().to_string(),
            pid: std::process::id(),
        })
    }
}

impl ConfigStamp {
    fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|file: Metadata| Self {
            inode: (file.dev(), file.ino()),
            size: file.size(),
            changed: (file.ctime(), file.ctime_nsec()),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

impl Drop for Excerpt {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
