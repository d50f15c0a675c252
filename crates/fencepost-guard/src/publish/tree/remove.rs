//! Removes a tree, also one whose directories nobody may write to.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes as much as can be removed. What stays is tried again by the next write.
pub(super) fn tree(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path)
        && error.kind() == ErrorKind::PermissionDenied
    {
        open_up(path);
        let _ = fs::remove_dir_all(path);
    }
}

/// A published directory keeps the mode it had, and without the right to write nothing in it can be removed.
fn open_up(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
