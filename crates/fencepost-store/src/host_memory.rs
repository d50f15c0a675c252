//! This host's memory of stores and jobs: small private files in its state directory.
//!
//! A lost file costs caution or waiting time, never a wrong grant. So no write here is flushed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most bytes of one file. No value that is kept here comes near it.
const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// The memory of this host, which all its runs share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemory {
    state: PathBuf,
}

/// The result of looking up a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recalled<T> {
    Nothing,
    Value(T),
    /// The file exists and does not contain the value.
    Unreadable,
}

impl HostMemory {
    /// Makes the memory in the state directory `state`. Creates nothing before the first [`Self::keep`].
    pub fn new(state: &Path) -> Self {
        Self { state: state.to_path_buf() }
    }

    /// Returns the state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Returns the path of the file for a name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.state.join("memory").join(name)
    }

    /// Reads the value under `name`. A value that cannot be read counts as absent.
    pub fn recall<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        match self.look_up(name) {
            Recalled::Value(value) => Some(value),
            Recalled::Nothing | Recalled::Unreadable => None,
        }
    }

    pub(crate) fn look_up<T: DeserializeOwned>(&self, name: &str) -> Recalled<T> {
        // Room for all of it: a vector without room is read into in steps of 32 bytes.
        let mut bytes = Vec::with_capacity(1024);
        let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(self.path(name));
        match file.and_then(|file| file.take(MEMORY_BYTES_MAX).read_to_end(&mut bytes)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Recalled::Nothing,
            Err(_) => Recalled::Unreadable,
            Ok(_) => serde_json::from_slice(&bytes).map_or(Recalled::Unreadable, Recalled::Value),
        }
    }

    /// Keeps a value under `name`. Overwrites the file in one write: a new file and a rename cost more than the rest of
    /// a grant.
    pub fn keep<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        let mut file = self.open_to_write(name)?;
        let bytes = serde_json::to_vec(value).map_err(|error| io::Error::other(error.to_string()))?;
        file.write_all(&bytes)?;
        if file.metadata()?.len() != bytes.len() as u64 { file.set_len(bytes.len() as u64) } else { Ok(()) }
    }

    /// Removes the value under `name`. A missing value is no error.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn open_to_write(&self, name: &str) -> io::Result<File> {
        let path = self.path(name);
        let open = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW | O_NONBLOCK);
            options.open(&path)
        };
        match (open(), path.parent()) {
            (Err(error), Some(directory)) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                open()
            }
            (opened, _) => opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_replaced_and_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let memory = HostMemory::new(&directory.path().join("state"));
        assert_eq!(memory.recall::<String>("a/b"), None);
        memory.keep("a/b", &"a long value").unwrap();
        memory.keep("a/b", &"short").unwrap();
        assert_eq!(memory.recall::<String>("a/b").as_deref(), Some("short"));
        fs::write(memory.path("a/b"), "torn").unwrap();
        assert_eq!(memory.look_up::<String>("a/b"), Recalled::Unreadable);
        memory.forget("a/b").unwrap();
        memory.forget("a/b").unwrap();
        assert_eq!(memory.look_up::<String>("a/b"), Recalled::Nothing);
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let memory = HostMemory::new(directory.path());
        let victim = directory.path().join("victim");
        fs::write(&victim, "\"mine\"").unwrap();
        fs::create_dir_all(memory.path("")).unwrap();
        std::os::unix::fs::symlink(&victim, memory.path("a")).unwrap();
        assert_eq!(memory.recall::<String>("a"), None);
        assert!(memory.keep("a", &"yours").is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "\"mine\"");
    }
}
