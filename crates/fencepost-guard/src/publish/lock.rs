//! The lock that spans check and write of a target in the file system.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::time::Boot;
use fencepost_sys::flush;
use nix::fcntl::OFlag;

use super::folder::Folder;
use super::{PublishError, fence_file, place};
use crate::clock;

/// The default time limit for another write to the same target. Writers hold the lock for a few flushes only.
pub const PATIENCE: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The held lock. Its file is never removed: a lock on a new file would exclude no other process.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    pub fn take(folder: &Folder, name: &OsStr, target: &Path, patience: Duration) -> Result<Self, PublishError> {
        let path = folder.shown(name);
        let failed = |error: io::Error| place::failed("take the lock", &path, &error);
        let give_up = clock::boot_now() + patience;
        loop {
            let file = open(folder, name).map_err(failed)?;
            if !wait_for(&file, give_up).map_err(failed)? {
                return Err(held_too_long(&path, target, patience));
            }
            // If the file was removed in between, the next writer locks another one.
            if has_name(&file, folder, name).map_err(failed)? {
                return Ok(Self { file });
            }
        }
    }

    /// Records that there is a fence from now on. A lost fence then does not count as a first write.
    pub fn mark(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() > 0 {
            return Ok(());
        }
        self.file.write_all(b"fenced\n")?;
        flush(&self.file)
    }
}

/// Whether there ever was a fence, as far as the lock's file shows.
pub(super) fn is_marked(folder: &Folder, name: impl AsRef<OsStr>) -> bool {
    folder.metadata_of(name).is_ok_and(|lock| lock.len() > 0)
}

/// Whether the name still refers to the open file.
pub(super) fn has_name(file: &File, folder: &Folder, name: impl AsRef<OsStr>) -> io::Result<bool> {
    let held = file.metadata()?;
    match folder.metadata_of(name) {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks an entry that a living writer would hold a lock on: success means that it was left behind. The caller holds
/// the lock until it has removed the entry, because its writer may be just about to lock it.
pub(super) fn left_behind(folder: &Folder, name: impl AsRef<OsStr>) -> Option<File> {
    let name = name.as_ref();
    // NFS locks only a file that is open for writing; elsewhere the file's mode may forbid that.
    let opened = folder.open_file(name, OFlag::O_RDWR).or_else(|_| folder.open_file(name, OFlag::O_RDONLY));
    let file = opened.ok()?;
    file.try_lock().is_ok().then_some(file)
}

fn open(folder: &Folder, name: &OsStr) -> io::Result<File> {
    let flags = OFlag::O_RDWR | OFlag::O_APPEND;
    loop {
        match folder.open_file(name, flags) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
        match folder.create(name, flags, 0o600) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                fence_file::share(&file, folder)?;
                return Ok(file);
            }
        }
    }
}

/// Waits for the lock until `give_up`. Polls, because a blocked `flock` has no time limit.
fn wait_for(file: &File, give_up: Boot) -> io::Result<bool> {
    let mut pause = FIRST_PAUSE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if clock::boot_now() >= give_up => return Ok(false),
            Err(TryLockError::WouldBlock) => sleep(pause),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn held_too_long(path: &Path, target: &Path, patience: Duration) -> PublishError {
    PublishError::Failed(format!(
        "Another write to {} has held its lock for {patience:?}; nothing was changed. Find out what hangs: fuser {}",
        target.display(),
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn take(folder: &Folder, patience: Duration) -> Result<Lock, PublishError> {
        Lock::take(folder, OsStr::new("lock"), Path::new("/target"), patience)
    }

    #[test]
    fn a_lock_is_waited_for_and_not_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let held = take(&folder, PATIENCE).unwrap();
        let refused = take(&folder, Duration::from_millis(50)).unwrap_err().to_string();
        assert!(refused.contains("fuser"), "{refused}");
        drop(held);
        take(&folder, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_lock_whose_file_was_removed_is_not_taken_for_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let first = take(&folder, PATIENCE).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take(&folder, PATIENCE).unwrap());
            sleep(Duration::from_millis(30));
            fs::remove_file(directory.path().join("lock")).unwrap();
            drop(first);
            assert!(has_name(&waiting.join().unwrap().file, &folder, "lock").unwrap());
        });
    }

    #[test]
    fn a_link_in_the_locks_place_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let other = directory.path().join("other");
        fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("lock")).unwrap();
        assert!(take(&folder, Duration::ZERO).is_err());
        assert_eq!(fs::read(&other).unwrap(), b"");
    }
}
