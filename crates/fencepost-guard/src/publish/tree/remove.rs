//! Removes a tree, including read-only directories. Follows no symbolic link in it.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::publish::folder::Folder;

/// One descriptor is open for each level. A deeper tree stays.
const DEPTH_MAX: usize = 512;

/// Removes as much as possible. The next write tries the rest again.
pub(super) fn tree(folder: &Folder, name: impl AsRef<OsStr>) {
    remove(folder, name.as_ref(), DEPTH_MAX);
}

fn remove(folder: &Folder, name: &OsStr, depth: usize) {
    if depth == 0 || !folder.metadata_of(name).is_ok_and(|found| found.is_dir()) {
        let _ = folder.unlink(name);
        return;
    }
    if let Ok(inner) = open_up(folder, name) {
        for name in inner.names().unwrap_or_default() {
            remove(&inner, &name, depth - 1);
        }
    }
    let _ = folder.remove_dir(name);
}

/// Opens a directory and makes it writable: a published directory keeps its mode, and nothing can be removed from a
/// read-only one.
fn open_up(folder: &Folder, name: &OsStr) -> io::Result<Folder> {
    let inner = match folder.enter(name) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            folder.set_mode(name, 0o700)?;
            folder.enter(name)?
        }
        entered => entered?,
    };
    if inner.metadata()?.mode() & 0o700 != 0o700 {
        let _ = inner.file().set_permissions(Permissions::from_mode(0o700));
    }
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn closed_directories_are_removed_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let inner = directory.path().join("gone/closed/dark");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "").unwrap();
        symlink(&kept, inner.join("link")).unwrap();
        fs::set_permissions(&inner, Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(directory.path().join("gone/closed"), Permissions::from_mode(0o555)).unwrap();
        symlink(&kept, directory.path().join("gone-1")).unwrap();
        let before = fs::metadata(&kept).unwrap().mode();
        let folder = Folder::open(directory.path()).unwrap();
        tree(&folder, "gone");
        tree(&folder, "gone-1");
        assert_eq!(folder.names().unwrap(), ["kept"]);
        assert_eq!(fs::metadata(&kept).unwrap().mode(), before);
        assert!(kept.join("file").exists());
    }
}
