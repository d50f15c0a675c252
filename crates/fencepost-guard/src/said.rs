//! The private file in which a job says of itself what it has to say.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use fencepost_core::said::{SAID_BYTES_MAX, Said, line, read};
use fencepost_core::token::RunId;

/// Adds a line, whole or not at all as far as one write can be: several commands of a job may say something at once.
pub fn append(path: &Path, run: RunId, said: Said) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(&line(run, said))
}

/// Takes everything that was said, and what in the file cannot be trusted. The file is gone afterwards.
pub fn collect(path: &Path, run: RunId) -> (Vec<Said>, Vec<String>) {
    let mut bytes = Vec::new();
    let mut troubles = Vec::new();
    match File::open(path).and_then(|file| file.take(SAID_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)) {
        Ok(length) if length > SAID_BYTES_MAX => troubles.push("it is longer than 1 MiB".to_string()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), Vec::new()),
        Err(error) => troubles.push(format!("it cannot be read: {error}")),
    }
    let _ = fs::remove_file(path);
    let (said, untrusted) = read(&bytes, run);
    troubles.extend(untrusted);
    (said, troubles)
}
