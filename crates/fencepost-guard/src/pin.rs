//! Pinned inputs: copies made before the job starts. The job reads exactly the bytes that were checked, even if the
//! file changes.
//!
//! They are copies (with shared blocks where the file system supports it), never hard links: a rewrite in place changes
//! a link.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencepost_core::token::RunId;

use crate::artifact::open_regular;

/// The pinned files of one run. They are gone when this is.
#[derive(Debug)]
pub struct Pins {
    directory: PathBuf,
    /// Held for as long as the files are in use, so that another run can tell what was left over.
    _lock: File,
}

impl Pins {
    /// A place for the files of a run, below the state directory. What runs that were killed left there is removed.
    pub fn new(state: &Path, run: RunId) -> io::Result<Self> {
        let all = state.join("inputs");
        DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
        // Held from the creation of a directory until its own lock is held. A directory without a held lock is left
        // over.
        let making = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(all.join(LOCK))?;
        making.lock()?;
        sweep(&all);
        let directory = all.join(run.to_string());
        DirBuilder::new().mode(0o700).create(&directory)?;
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(LOCK))?;
        lock.lock()?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where they go.
    pub fn directory(&self) -> PathBuf {
        self.directory.clone()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Copies a file into the private directory and makes the copy read-only.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(parent) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let mut from = open_regular(from)?;
    let mut copied = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    // It shares the blocks where the file system can.
    io::copy(&mut from, &mut copied)?;
    copied.set_permissions(Permissions::from_mode(0o400))
}

const LOCK: &str = ".lock";

/// Removes the directories of dead runs: their locks are not held.
fn sweep(all: &Path) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    for directory in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let is_left = match File::open(directory.join(LOCK)) {
            Ok(lock) => lock.try_lock().is_ok(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_left {
            let _ = fs::remove_dir_all(&directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u128) -> RunId {
        format!("{number:032x}").parse().unwrap()
    }

    #[test]
    fn a_pinned_copy_does_not_follow_its_file_and_is_gone_afterwards() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "one").unwrap();
        let pins = Pins::new(place.path(), run(1)).unwrap();
        let copied = pins.directory().join("up").join("file");
        copy(&file, &copied).unwrap();
        fs::write(&file, "two").unwrap();
        assert_eq!(fs::read(&copied).unwrap(), b"one");
        drop(pins);
        assert!(!copied.exists());
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_in_use_is_not() {
        let place = tempfile::tempdir().unwrap();
        let used = Pins::new(place.path(), run(1)).unwrap();
        let killed = Pins::new(place.path(), run(2)).unwrap();
        let left = killed.directory.clone();
        let lock = killed._lock.try_clone().unwrap();
        std::mem::forget(killed);
        lock.unlock().unwrap();
        // Killed before it had its lock, or ended while a thread was still copying.
        let unlocked = used.directory.with_file_name("unlocked");
        fs::create_dir(&unlocked).unwrap();
        let _another = Pins::new(place.path(), run(3)).unwrap();
        assert!(used.directory.exists());
        assert!(!left.exists() && !unlocked.exists());
    }
}
