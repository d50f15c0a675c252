//! The payload, in a file: it is read once for its digest and again for every try, and may be larger than memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Take};
use std::os::unix::fs::OpenOptionsExt;

use crate::publish::digest;

#[derive(Debug)]
pub struct Payload {
    file: File,
    pub digest: String,
    pub length: u64,
}

impl Payload {
    /// A file of the caller's, if it can be read twice; otherwise a copy of what it holds.
    pub fn of_file(mut file: File) -> io::Result<Self> {
        if !file.metadata()?.is_file() {
            return Self::of_stream(&mut file);
        }
        let start = file.stream_position()?;
        let (digest, length) = digest::copy(&mut file, &mut io::sink())?;
        if start != 0 {
            return Err(io::Error::other("the file was read in part already"));
        }
        Ok(Self { file, digest, length })
    }

    /// Everything there is to read, kept in a file without a name.
    pub fn of_stream(from: &mut dyn Read) -> io::Result<Self> {
        let mut file = unnamed()?;
        let (digest, length) = digest::copy(from, &mut file)?;
        Ok(Self { file, digest, length })
    }

    /// The payload from its beginning, and no more of it than was hashed.
    pub(super) fn reader(&self) -> io::Result<Take<&File>> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        Ok(file.take(self.length))
    }
}

/// An unlinked temporary file, which disappears with this process.
fn unnamed() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("fencepost-payload-{}", uuid::Uuid::now_v7().simple()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
