//! The private file in which a job says of itself what it has to say.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use fencepost_core::said::{SAID_BYTES_MAX, Said, line, read};
use fencepost_core::token::RunId;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// Adds a line, whole or not at all as far as one write can be: several commands of a job may say something at once.
pub fn append(path: &Path, run: RunId, said: Said) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = open(OpenOptions::new().append(true).create(true).mode(0o600), path)?;
    file.write_all(&line(run, said))
}

/// What a run said of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    pub said: Vec<Said>,
    /// Lines that cannot be trusted, and are not.
    pub troubles: Vec<String>,
    /// Why the file as a whole cannot be relied on, with its path. A refused publish may be missing then.
    pub unreadable: Option<String>,
}

/// Takes everything that was said. The file is gone afterwards, if it can be removed.
///
/// The job may have put anything in its place, so the file is opened without waiting and without following a link, only
/// a regular one is read, and no more than the most that can be trusted.
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

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}
