//! The payload, in a file: fencepost reads it once for its digest and again for every try, and it may be larger than
//! memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Take};
use std::os::unix::fs::OpenOptionsExt;

use crate::publish::digest;

/// The limit of a target that has none.
pub const UNLIMITED: u64 = u64::MAX;

#[derive(Debug)]
pub struct Payload {
    file: File,
    pub digest: String,
    pub length: u64,
}

impl Payload {
    /// Uses the caller's file if it can be read twice; otherwise copies its content. A file of more than `limit` bytes is
    /// refused before it is read.
    pub fn of_file(mut file: File, limit: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Self::of_stream(&mut file, limit);
        }
        if metadata.len() > limit {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let start = file.stream_position()?;
        let (digest, length) = digest::copy(&mut file, &mut io::sink())?;
        if start != 0 {
            return Err(io::Error::other("the file was read in part already"));
        }
        Ok(Self { file, digest, length })
    }

    /// Reads a stream to its end, into an unnamed file. Of a longer one than `limit` bytes it reads no more than that.
    pub fn of_stream(from: &mut dyn Read, limit: u64) -> io::Result<Self> {
        let mut file = unnamed()?;
        let (digest, length) = digest::copy(&mut from.take(limit.saturating_add(1)), &mut file)?;
        if length > limit {
            return Err(ErrorKind::FileTooLarge.into());
        }
        Ok(Self { file, digest, length })
    }

    /// Reads the payload from its beginning, and no further than it was hashed.
    pub(crate) fn reader(&self) -> io::Result<Take<&File>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        Ok(file.take(self.length))
    }
}

/// Creates an unlinked temporary file, which disappears with this process.
fn unnamed() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("fencepost-payload-{}", uuid::Uuid::now_v7().simple()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
