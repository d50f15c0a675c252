//! A file that others read at any moment: they find the old one or the new one, never half of either.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencepost_core::history::RETENTION;
use fencepost_sys::flush;
use serde::Serialize;

use crate::exit::Failure;

/// World-readable: the scraper of metrics usually runs as another user.
const MODE: u32 = 0o644;

const PRIVATE_MODE: u32 = 0o600;

/// Replaces a file by a whole new one that all may read. What is not a file is left alone.
pub fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    replace_with_mode(path, text, MODE)
}

/// Replaces a file by a whole new one that only its owner may read.
pub fn replace_private(path: &Path, text: &str) -> Result<(), Failure> {
    replace_with_mode(path, text, PRIVATE_MODE)
}

/// Keeps a note as JSON in a private file, in a directory that only its owner may enter.
pub fn keep_note(path: &Path, note: &impl Serialize) -> Result<(), Failure> {
    if let Some(directory) = path.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| Failure::Other(format!("Cannot make the directory {}: {error}.", directory.display())))?;
    }
    replace_private(path, &serde_json::to_string(note).unwrap_or_default())
}

fn replace_with_mode(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let place = match fs::metadata(path) {
        Ok(known) if known.is_dir() => {
            return Err(Failure::Usage(format!("{} is a directory. Name a file in it.", path.display())));
        }
        Ok(known) if !known.is_file() => {
            return Err(Failure::Usage(format!("{} is not a file, and is left alone.", path.display())));
        }
        // A link stays one: what it points to is replaced.
        Ok(_) => fs::canonicalize(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(path.to_path_buf()),
        Err(error) => Err(error),
    };
    place.and_then(|place| swap_in(&place, text, mode)).map_err(|error| {
        Failure::Other(format!("Cannot write {}: {error}. What was there before is as it was.", path.display()))
    })
}

fn swap_in(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Hidden, and with another ending: the node exporter reads everything that ends in .prom.
    let draft = directory.join(format!(".{}.{}.draft", name.display(), std::process::id()));
    // Left by a process of the same number that died.
    let _ = fs::remove_file(&draft);
    let written = write(&draft, text, mode).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written.and_then(|()| settle(directory.to_path_buf()))
}

fn write(draft: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    // The umask may have taken bits away.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    flush(&file)
}

/// The new name outlives a crash. A file system that cannot promise it has the new file all the same.
fn settle(directory: PathBuf) -> io::Result<()> {
    let _ = File::open(directory).and_then(|directory| flush(&directory));
    Ok(())
}

/// Removes files that a killed process left behind: those that were not written for as long as the outcome of a run is kept. A file
/// that cannot be removed now is removed by a later run.
pub fn forget_old(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let written = entry.metadata().and_then(|file| file.modified());
        if written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > RETENTION)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_new_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.prom");
        for text in ["one\n", "two\n"] {
            replace(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, MODE);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_a_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(replace(directory.path(), "x"), Err(Failure::Usage(_))));
        assert!(matches!(replace(Path::new("/dev/null"), "x"), Err(Failure::Usage(_))));
        assert!(matches!(replace(&directory.path().join("no/such/a.prom"), "x"), Err(Failure::Other(_))));
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }
}
