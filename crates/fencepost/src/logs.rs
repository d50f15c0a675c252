//! Logs of the jobs' output: directory, file names and retention.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fencepost_core::name::{Job, Key};
use fencepost_core::time::Wall;
use fencepost_core::token::RunId;
use fencepost_view::output::{self, KeptOutput};
use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};

use crate::options::{Given, JobOptions};
use crate::place::Place;
use crate::settings::Settings;

/// The logs of one job.
#[derive(Clone, Debug)]
pub struct Shelf {
    pub directory: PathBuf,
    pub max_bytes: u64,
    max_age: Duration,
    max_job_bytes: u64,
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
    /// Whether a run's output is kept. If no `logs` key says so, the output of a configured job is kept unless it goes
    /// to a terminal: a command on a terminal must keep it.
    pub fn is_wanted(settings: &Settings) -> bool {
        let is_on_terminal = || io::stdout().is_terminal() || io::stderr().is_terminal();
        let by_default = || settings.by_up || settings.is_configured && !is_on_terminal();
        settings.options.logs().enabled.value().unwrap_or_else(by_default)
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
            max_job_bytes: logs.max_job_bytes(),
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

    /// Deletes old logs after one was written: each run those that are too many, and all if the oldest is too old. Only a run
    /// that left more than its share, and one run of sixteen, measure all logs: a hundred calls would cost each run as much
    /// as its own log.
    pub fn tidy(&self, written: &Path) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().filter_map(Result::ok);
        let mut names: Vec<OsString> =
            entries.map(|entry| entry.file_name()).filter(|name| is_log_name(name)).collect();
        // Names sort by slot, and within a slot in the order of the runs.
        names.sort_unstable();
        let paths: Vec<PathBuf> = names.iter().map(|name| self.directory.join(name)).collect();
        let (surplus, kept) = paths.split_at(paths.len().saturating_sub(self.keep));
        surplus.iter().cloned().filter_map(LogFile::of).for_each(LogFile::remove);
        let share = self.max_job_bytes / self.keep.max(1) as u64;
        let is_large = || fs::metadata(written).is_ok_and(|log| log.len() > share);
        let is_old = |path: &PathBuf| fs::metadata(path).is_ok_and(|log| self.is_too_old(&log));
        let is_one_of_sixteen = written.as_os_str().as_encoded_bytes().ends_with(b"0.log");
        if is_one_of_sixteen || is_large() || kept.first().is_some_and(is_old) {
            self.tidy_by_size();
        }
    }

    fn is_too_old(&self, log: &fs::Metadata) -> bool {
        let age = log.modified().ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
        age.is_some_and(|age| age > self.max_age)
    }

    /// Deletes logs that are too old, or too large together, oldest first. The newest log, and one that is being written,
    /// are kept.
    fn tidy_by_size(&self) {
        let mut bytes = 0;
        for (number, file) in self.files().into_iter().rev().enumerate() {
            let Ok(known) = fs::metadata(&file.path) else { continue };
            bytes += known.len();
            if self.is_too_old(&known) || number > 0 && bytes > self.max_job_bytes {
                file.remove();
            }
        }
    }

    /// The last lines of a run's log; none if there is no log of it.
    pub fn last_lines(&self, slot: Wall, run: RunId) -> Vec<String> {
        let read = || {
            let mut file = File::open(self.path(slot, run))?;
            let length = file.metadata()?.len();
            let start = length.saturating_sub(output::TAIL_BYTES as u64);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.take(output::TAIL_BYTES as u64).read_to_end(&mut bytes)?;
            io::Result::Ok(output::last_lines(&bytes, start > 0))
        };
        read().unwrap_or_default()
    }
}

/// The logs of all jobs on this host, for answers that quote them.
pub struct HostLogs<'a>(pub &'a Place);

impl KeptOutput for HostLogs<'_> {
    fn host(&self) -> &str {
        &self.0.host.name
    }

    fn last_lines(&self, job: &Job, slot: Wall, run: &str) -> Vec<String> {
        let keys = self.0.config.as_ref().map(|config| config.job(&job.name).clone()).unwrap_or_default();
        let shelf = Shelf::of(self.0, job, &keys);
        run.parse().map(|run| shelf.last_lines(slot, RunId(run))).unwrap_or_default()
    }
}

impl LogFile {
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".log")?;
        let (slot, run) = name.split_once('.')?;
        let slot = unstem(slot)?;
        Some(Self { slot, run: run.to_string(), path })
    }

    /// Deletes the log, unless a run is writing it.
    fn remove(self) {
        if !self.is_being_written() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Whether a run is writing the log: it holds a lock on the file, which the kernel releases when the process ends.
    pub fn is_being_written(&self) -> bool {
        File::open(&self.path).is_ok_and(is_locked)
    }
}

/// Whether a file name has the form of a log's, such as `20261118T070000Z.RUN.log`.
fn is_log_name(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.get(8) == Some(&b'T') && bytes.iter().take(8).all(u8::is_ascii_digit) && bytes.ends_with(b".log")
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
