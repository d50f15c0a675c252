//! The private file in which a job reports its outcome.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use fencepost_core::said::{SAID_BYTES_MAX, Said, line, read};
use fencepost_core::token::RunId;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// Appends a line in one write: several commands of a job may report at the same time.
pub fn append(path: &Path, run: RunId, said: Said) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = open(OpenOptions::new().append(true).create(true).mode(0o600), path)?;
    file.write_all(&line(run, said))
}

/// The report of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    pub said: Vec<Said>,
    /// Lines that cannot be trusted. They are ignored.
    pub troubles: Vec<String>,
    /// Why the file as a whole is unreliable, with its path. A refused publish may then be missing from the report.
    pub unreadable: Option<String>,
}

/// Reads the report and removes the file.
///
/// The job may have replaced the file. So it is opened without blocking and without following a link, only a regular
/// file is read, and only up to the size limit.
pub fn collect(path: &Path, run: RunId) -> JobReport {
    let mut bytes = Vec::new();
    let opened = open(OpenOptions::new().read(true), path);
    let unreadable = match opened.and_then(|file| file.take(SAID_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)) {
        Ok(length) if length > SAID_BYTES_MAX => Some("it is longer than 1 MiB".to_string()),
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return JobReport::default(),
        Err(error) => Some(error.to_string()),
    };
    let _ = fs::remove_file(path);
    let (said, troubles) = read(&bytes, run);
    let unreadable = unreadable.map(|why| {
        format!("what the job said of itself cannot be read: {} (FENCEPOST_OUTCOME): {why}", path.display())
    });
    JobReport { said, troubles, unreadable }
}

/// Reads the report of a run that goes on. What cannot be read is left out.
pub fn peek(path: &Path, run: RunId) -> Vec<Said> {
    let mut bytes = Vec::new();
    let opened = open(OpenOptions::new().read(true), path);
    let _ = opened.and_then(|file| file.take(SAID_BYTES_MAX as u64).read_to_end(&mut bytes));
    read(&bytes, run).0
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}
