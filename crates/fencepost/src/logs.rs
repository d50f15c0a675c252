//! Logs of the jobs' output: directory, file names and retention.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fencepost_core::name::{Job, Key};
use fencepost_core::time::Wall;
use fencepost_core::token::RunId;
use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};

use crate::options::{Given, JobOptions, Logs};
use crate::place::Place;

/// The logs of one job.
#[derive(Clone, Debug)]
pub struct Shelf {
    pub directory: PathBuf,
    pub max_bytes: u64,
    max_age: Duration,
    keep: usize,
}

/// The log of one run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogFile {
    pub slot: Timestamp,
    pub run: String,
    pub path: PathBuf,
}

impl Shelf {
    /// Whether a job's output is kept. Under `up` there is no terminal to see it, so it is kept unless the
    /// configuration says otherwise.
    pub fn is_wanted(logs: &Logs, by_up: bool) -> bool {
        logs.enabled.value().unwrap_or(by_up)
    }

    pub fn of(place: &Place, job: &Job, keys: &JobOptions) -> Self {
        let logs = keys.logs();
        let all = logs.directory.value().unwrap_or_else(|| place.state.join("logs"));
        let key = Key::job(job);
        let name = key.as_str().split_once('/').map_or(key.as_str(), |(_, name)| name);
        Self {
            directory: all.join(name),
            max_bytes: logs.max_bytes(),
            max_age: logs.max_age(),
            keep: logs.keep() as usize,
        }
    }

    /// The path of a run's log. Names sort by slot.
    pub fn path(&self, slot: Wall, run: RunId) -> PathBuf {
        let slot = Timestamp::from_millisecond(slot.0).map_or_else(|_| slot.0.to_string(), stem);
        self.directory.join(format!("{slot}.{run}.log"))
    }

    /// The existing logs, oldest slot first, and within a slot in the order of the runs.
    pub fn files(&self) -> Vec<LogFile> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().filter_map(Result::ok);
        let mut files: Vec<LogFile> = entries.filter_map(|entry| LogFile::of(entry.path())).collect();
        files.sort();
        files
    }

    /// Deletes logs that are too old or too many. A log that is being written is kept.
    pub fn tidy(&self) {
        let files = self.files();
        let surplus = files.len().saturating_sub(self.keep);
        for (number, file) in files.iter().enumerate() {
            let age = fs::metadata(&file.path).and_then(|file| file.modified()).ok();
            let age = age.and_then(|modified| SystemTime::now().duration_since(modified).ok());
            if (number < surplus || age.is_some_and(|age| age > self.max_age)) && !file.is_being_written() {
                let _ = fs::remove_file(&file.path);
            }
        }
    }
}

impl LogFile {
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".log")?;
        let (slot, run) = name.split_once('.')?;
        let slot = unstem(slot)?;
        Some(Self { slot, run: run.to_string(), path })
    }

    /// Whether a run is writing the log: it holds a lock on the file, which the kernel releases when the process ends.
    pub fn is_being_written(&self) -> bool {
        File::open(&self.path).is_ok_and(is_locked)
    }
}

/// Whether another process holds the file's lock.
pub fn is_locked(file: File) -> bool {
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, error)) if error == nix::errno::Errno::EWOULDBLOCK)
}

/// Creates the file for a log, and its directory, readable only by its owner.
pub fn create(path: &Path) -> io::Result<Flock<File>> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

/// An instant in the form used in file names.
fn stem(slot: Timestamp) -> String {
    let whole = format!("{slot:.3}").replace(['-', ':'], "");
    whole.replace(".000Z", "Z").replace('.', "_")
}

fn unstem(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('_').unwrap_or((time, "0"));
    let part = |text: &str, from: usize, to: usize| text.get(from..to).map(str::to_string);
    let written = format!(
        "{}-{}-{}T{}:{}:{}.{fraction}Z",
        part(date, 0, 4)?,
        part(date, 4, 6)?,
        part(date, 6, 8)?,
        part(time, 0, 2)?,
        part(time, 2, 4)?,
        part(time, 4, 6)?
    );
    written.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_comes_back_from_a_name() {
        for text in ["2026-11-15T22:00:00Z", "2026-11-15T22:00:00.125Z", "1999-01-02T03:04:05Z"] {
            let slot: Timestamp = text.parse().unwrap();
            assert_eq!(unstem(&stem(slot)), Some(slot), "{}", stem(slot));
        }
        assert_eq!(stem("2026-11-15T22:00:00Z".parse().unwrap()), "20261115T220000Z");
        for wrong in ["", "Z", "2026Z", "20261115T2200Z", "20261315T220000Z", "2026é115T220000Z"] {
            assert_eq!(unstem(wrong), None, "{wrong}");
        }
    }
}
