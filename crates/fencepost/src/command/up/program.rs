//! What `up` goes by: the configuration as it was accepted, and a copy of it for the runs.

use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::agenda::{Limits, Task};
use fencepost_core::name::Name;
use fencepost_core::zone::Zone;

use super::line::{Line, UpEvent};
use super::lookout::Request;
use super::tasks::{self, Scheduling};
use crate::args::Global;
use crate::calendar;
use crate::config::{Config, Scope};
use crate::exit::Failure;
use crate::place::Place;

/// How many runs go on at once, if the configuration does not say.
const MAX_PARALLEL: u32 = 64;

pub struct Program {
    place: Arc<Place>,
    scheduling: Scheduling,
    pub zone: Zone,
    stamp: Option<Stamp>,
    copy: Copy,
}

/// Tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// The configuration as it was accepted, in a file of our own: what is being written into the real one meanwhile is
/// nobody's business until it is accepted.
struct Copy {
    path: PathBuf,
    is_ours: bool,
}

impl Program {
    pub fn load(global: &Global, jobs: &[Name]) -> Result<Self, Failure> {
        let place = Place::find(global)?;
        let directory = place.state.join("up");
        let path = directory.join(format!("{}.toml", std::process::id()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
            Failure::Other(format!("Cannot make a place for the configuration in {}: {error}", directory.display()))
        })?;
        Self::of(place, jobs, Copy { path, is_ours: true })
    }

    /// The configuration as it is now, if nothing in it is wrong.
    pub fn reloaded(&mut self, global: &Global, jobs: &[Name]) -> Result<Self, Failure> {
        // Whatever comes of it, this state of the file was seen.
        self.stamp = Stamp::of(self.path());
        let copy = Copy { path: self.copy.path.clone(), is_ours: false };
        let mut program = Self::of(Place::find(global)?, jobs, copy)?;
        self.copy.is_ours = false;
        program.copy.is_ours = true;
        Ok(program)
    }

    fn of(place: Place, jobs: &[Name], copy: Copy) -> Result<Self, Failure> {
        let Some(config) = place.config.as_ref() else {
            return Err(Failure::Usage(
                "There is no fencepost.toml here or above, so that there is nothing to schedule. Write one, or name it \
                 by --config."
                    .to_string(),
            ));
        };
        let stamp = Stamp::of(&config.path);
        let zone = calendar::zone_of_all(None, Some(config))?;
        let scheduling = tasks::scheduling(&place, config, jobs)?;
        copy.write(config.text())?;
        Ok(Self { place: Arc::new(place), scheduling, zone, stamp, copy })
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

    pub fn copy(&self) -> &Path {
        &self.copy.path
    }

    /// Whether the file is another than the one that was last read.
    pub fn is_changed(&self) -> bool {
        Stamp::of(self.path()) != self.stamp
    }

    pub fn tasks(&self) -> Vec<Task> {
        self.scheduling.values().map(|scheduled| scheduled.task.clone()).collect()
    }

    pub fn limits(&self) -> Limits {
        let up = &self.config().up;
        Limits {
            max_parallel: up.max_parallel.unwrap_or(MAX_PARALLEL) as usize,
            spread: up.spread.as_ref().map_or(Duration::ZERO, |spread| spread.value),
        }
    }

    pub fn stop_within(&self) -> Option<Duration> {
        self.config().up.stop_within.as_ref().map(|within| within.value)
    }

    pub fn request(&self, job: &Name, anew: bool) -> Option<Request> {
        let scheduled = self.scheduling.get(job)?;
        Some(Request {
            name: job.clone(),
            job: scheduled.job.clone(),
            claim: scheduled.claim(),
            place: Arc::clone(&self.place),
            local: self.place.local(),
            anew,
        })
    }

    /// Whether what the job prints is kept, so that it is not ours to print.
    pub fn keeps_output(&self, job: &Name) -> bool {
        self.config().job(job).logs.enabled != Some(false)
    }

    pub fn widest_name(&self) -> usize {
        self.scheduling.keys().map(|name| name.as_str().len()).max().unwrap_or(0)
    }

    pub fn introduction(&self, jobs: usize) -> Line {
        Line::of_up(UpEvent::Up {
            jobs,
            store: self.place.shown_store(),
            config: self.path().display().to_string(),
            pid: std::process::id(),
        })
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|file: Metadata| Self {
            inode: (file.dev(), file.ino()),
            size: file.size(),
            changed: (file.ctime(), file.ctime_nsec()),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

impl Copy {
    fn write(&self, text: &str) -> Result<(), Failure> {
        let draft = self.path.with_extension("new");
        let write = || {
            let _ = std::fs::remove_file(&draft);
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(text.as_bytes())?;
            std::fs::rename(&draft, &self.path)
        };
        write().map_err(|error: std::io::Error| {
            Failure::Other(format!("Cannot write a copy of the configuration to {}: {error}", self.path.display()))
        })
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
