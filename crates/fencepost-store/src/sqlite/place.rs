//! Where a database may live, and its creation.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::failure::foreign_content;
use crate::file_system::shared_file_system;
use crate::{StoreError, Trouble};

/// A file's device and inode: what a path names at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

/// What `path` names now. Does not open the file: closing any descriptor of a database drops all of this process's
/// SQLite locks on it.
pub(super) fn file_id(path: &Path) -> Option<FileId> {
    let metadata = fs::metadata(path).ok()?;
    Some(FileId { device: metadata.dev(), inode: metadata.ino() })
}

/// The path of the database's write-ahead log.
pub(super) fn log_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push("-wal");
    PathBuf::from(name)
}

/// Ensures that a file exists in a place with reliable locks, and returns its real path: SQLite names the log after it,
/// not after a symbolic link.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, StoreError> {
    let path = &std::path::absolute(path).map_err(|error| unusable(path, &error))?;
    // One creation at a time: closing a new file in another thread would drop this thread's locks (see `create`).
    let _one_at_a_time = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
    let real = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            refuse_shared(nearest_directory(path))?;
            create(path).and_then(|()| fs::canonicalize(path))
        }
        found => found,
    }
    .map_err(|error| unusable(path, &error))?;
    refuse_shared(real.parent().unwrap_or(&real))?;
    refuse_unfit(&real)?;
    Ok(real)
}

/// The error of a call whose database file was replaced.
pub(super) fn replaced(path: &Path) -> StoreError {
    let detail = format!(
        "{} or its log was removed or replaced since it was opened; nothing was changed. Find out what removes it, \
         and start again.",
        path.display()
    );
    StoreError::not_done(Trouble::Unavailable, detail)
}

static CREATION: Mutex<()> = Mutex::new(());

/// Creates the empty file with mode 0600; the log and the index inherit its mode.
fn create(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created.map(|_| ()),
    }
}

fn nearest_directory(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(path)
}

/// Refuses a file that is not regular, has two names, is a mount point, or has lost its content.
fn refuse_unfit(path: &Path) -> Result<(), StoreError> {
    let stat = || fs::metadata(path).map_err(|error| unusable(path, &error));
    let found = stat()?;
    if !found.is_file() {
        let detail = format!("{} is not a regular file, as a database is. Name another path.", path.display());
        return Err(StoreError::not_done(Trouble::Refused, detail));
    }
    if found.nlink() > 1 {
        let detail = format!(
            "{} has {} names (hard links), and SQLite would keep a log beside each of them. Remove all names but one.",
            path.display(),
            found.nlink()
        );
        return Err(StoreError::not_done(Trouble::Refused, detail));
    }
    if is_mount_point(path) {
        return Err(mounted(path));
    }
    // A new store has content before it has a log. A log beside an empty file means that the database was lost. SQLite
    // would delete the log.
    if found.len() == 0 && log_path(path).exists() && stat()?.len() == 0 {
        return Err(foreign_content(path, "it is empty, but there is a write-ahead log beside it"));
    }
    // An empty file that others can access would become a store with that mode.
    if found.len() == 0 && found.mode() & 0o077 != 0 {
        return fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(|error| unusable(path, &error));
    }
    Ok(())
}

/// The error for a database that is bind-mounted without its directory: SQLite keeps the log beside the path, so each
/// name of the file would have its own log.
fn mounted(path: &Path) -> StoreError {
    let directory = path.parent().unwrap_or(path);
    let detail = format!(
        "{} is a mount point (a bind mount of one file, as by docker -v FILE:FILE). SQLite would keep a second \
         write-ahead log beside it and corrupt the database; nothing was changed. Mount the directory that holds the \
         database instead of the file, for example on {}.",
        path.display(),
        directory.display()
    );
    StoreError::not_done(Trouble::Refused, detail)
}

/// Whether the file itself is a mount point. Kernels before 5.8, and sandboxes that forbid `statx`, do not say; there
/// the mount list is searched.
#[cfg(target_os = "linux")]
fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    match statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE) {
        Ok(found) if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        }
        _ => fs::read("/proc/self/mountinfo").is_ok_and(|mounts| is_among_mounts(&mounts, path)),
    }
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(_: &Path) -> bool {
    false
}

/// Searches the fifth field of every line of `mountinfo`, in which space, tab, newline and backslash are octal.
#[cfg(target_os = "linux")]
fn is_among_mounts(mounts: &[u8], path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            _ => escaped.push(*byte),
        }
    }
    mounts.split(|byte| *byte == b'\n').any(|line| line.split(|byte| *byte == b' ').nth(4) == Some(&escaped))
}

fn refuse_shared(directory: &Path) -> Result<(), StoreError> {
    match shared_file_system(directory).map_err(|error| unusable(directory, &error))? {
        None => Ok(()),
        Some(kind) => {
            let detail = format!(
                "{} is on {kind}, where SQLite's locks and shared memory cannot be trusted; nothing was changed. Use \
                 dir:PATH for a directory that machines share, or postgres://… or redis://…, or a local path.",
                directory.display()
            );
            Err(StoreError::not_done(Trouble::Refused, detail))
        }
    }
}

fn unusable(path: &Path, error: &io::Error) -> StoreError {
    let trouble = match error.kind() {
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::OutOfMemory => Trouble::Unavailable,
        _ => Trouble::Refused,
    };
    let directory = path.parent().unwrap_or(path);
    let next = match error.kind() {
        ErrorKind::NotFound if !directory.exists() => {
            format!("Create the directory {} first, or name another path.", directory.display())
        }
        _ => "Its directory must be writable for the user that runs fencepost.".to_string(),
    };
    let detail = format!("{} cannot be used ({error}); nothing was changed. {next}", path.display());
    StoreError::not_done(trouble, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_disk_of_this_machine_is_accepted() {
        assert_eq!(refuse_shared(&std::env::temp_dir()), Ok(()));
    }

    #[test]
    fn for_a_store_to_be_made_the_nearest_directory_is_asked() {
        assert_eq!(nearest_directory(Path::new("/proc/no/such/store.db")), Path::new("/proc"));
        assert_eq!(nearest_directory(Path::new("/store.db")), Path::new("/"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn mounts_are_found_by_their_escaped_path() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n97 22 8:1 /a /srv/my\\040store.db rw - ext4 /dev/sda1 rw\n";
        assert!(is_among_mounts(mounts, Path::new("/srv/my store.db")));
        assert!(!is_among_mounts(mounts, Path::new("/srv/my")) && !is_among_mounts(mounts, Path::new("/a")));
        assert!(is_mount_point(Path::new("/proc")) && !is_mount_point(Path::new("/proc/self")));
    }
}
