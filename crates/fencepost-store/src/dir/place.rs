//! Checks and creates the directory of a store.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencepost_core::hex;
use fencepost_sys::flush;

use super::DirStore;
use super::versions::{DRAFT, DirDraft, read_regular};
use crate::file_system::{shared_file_system, sync_folder};
use crate::{StoreError, Trouble, fresh_version};

/// The mark of a store. A directory without it is not the one that was set up; the file server may not be mounted.
const MARK: &str = "FENCEPOST";
const LAYOUT: &str = "fencepost store, layout 1";

/// More bytes than a mark has.
const MARK_BYTES_MAX: usize = 4096;

/// The modes of files and directories: for the owner alone, or for all users with access to the store's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) file: u32,
    directory: u32,
}

impl Modes {
    fn of(mode: u32) -> Self {
        Self { file: mode & 0o660 | 0o600, directory: mode & 0o770 | 0o700 }
    }

    /// Sets the mode, because the process's umask may have removed bits.
    pub(super) fn give(&self, file: &File) -> io::Result<()> {
        if self.file == 0o600 { Ok(()) } else { file.set_permissions(Permissions::from_mode(self.file)) }
    }
}

pub(super) struct DirPlace {
    pub(super) root: PathBuf,
    pub(super) shared: Option<&'static str>,
    pub(super) modes: Modes,
}

/// Refuses a text that is no path of a directory.
pub(super) fn check(path: &str) -> Result<(), String> {
    let example = "for example dir:/mnt/shared/fencepost";
    if path.is_empty() {
        return Err(format!("dir: lacks the path of a directory, {example}."));
    }
    if path.starts_with('~') {
        return Err(format!("The shell leaves the ~ in dir:{path} as it is: write the whole path, {example}."));
    }
    if path.starts_with("//") && !path.starts_with("///") {
        let path = path.trim_start_matches('/');
        return Err(format!("dir:{path} names a host: write dir:{path} or dir:/{path}."));
    }
    Ok(())
}

/// Ensures that there is a store, at a path that is safe to use. With `must_exist` it creates none.
pub(super) fn prepare(path: &Path, must_exist: bool) -> Result<DirPlace, StoreError> {
    let path = &std::path::absolute(path).map_err(|error| unusable(path, &error))?;
    refuse_carried(path)?;
    if !path.exists() && !must_exist {
        make_root(path).map_err(|error| unusable(path, &error))?;
    }
    let root = match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(gone(path)),
        root => root.map_err(|error| unusable(path, &error))?,
    };
    refuse_carried(&root)?;
    let found = fs::metadata(&root).map_err(|error| unusable(&root, &error))?;
    if !found.is_dir() {
        let detail = format!("{} is not a directory; nothing was changed.", root.display());
        return Err(StoreError::not_done(Trouble::Refused, detail));
    }
    let shared = shared_file_system(&root).map_err(|error| unusable(&root, &error))?;
    let modes = Modes::of(found.mode());
    match read_mark(&root)? {
        Some(_) => {}
        None if must_exist => return Err(gone(path)),
        None => drop(make_mark(&root, &modes)?),
    }
    Ok(DirPlace { root, shared, modes })
}

impl DirStore {
    /// Checks the mark before every call: the file system may have been unmounted, and an empty directory would look
    /// like a store in which no lease was ever held.
    pub(super) fn still_there(&self) -> Result<(), StoreError> {
        match fs::symlink_metadata(self.root.join(MARK)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(gone(&self.root)),
            Err(error) => Err(unusable(&self.root, &error)),
        }
    }
}

/// Creates a directory and its missing parents below `root`. Flushes each new name.
pub(super) fn make_directories(directory: &Path, root: &Path, modes: &Modes) -> io::Result<()> {
    if directory.is_dir() || directory == root {
        return Ok(());
    }
    let parent = directory.parent().unwrap_or(root);
    make_directories(parent, root, modes)?;
    match DirBuilder::new().mode(modes.directory).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            if modes.directory != 0o700 {
                // Keeps the setgid bit, by which new files inherit the group.
                let mode = fs::metadata(directory)?.mode() & 0o7000 | modes.directory;
                fs::set_permissions(directory, Permissions::from_mode(mode))?;
            }
            flush(&File::open(parent)?)
        }
    }
}

pub(super) fn meaning(error: &io::Error) -> (Trouble, &'static str) {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            (Trouble::Refused, "It must be writable for the user that runs fencepost.")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (Trouble::Refused, "Make room and try again."),
        ErrorKind::InvalidFilename => (Trouble::Refused, "The file system does not take so long a name."),
        _ => (Trouble::Unavailable, "Look at the file server."),
    }
}

/// Creates the store's own directory. Its parent must exist: a file server that is not mounted has none.
fn make_root(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => path.parent().map_or(Ok(()), |parent| flush(&File::open(parent)?)),
    }
}

fn read_mark(root: &Path) -> Result<Option<String>, StoreError> {
    let text = match read_regular(&root.join(MARK), MARK_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| unusable(root, &error))?,
    };
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    if text.starts_with(&format!("{LAYOUT}\n")) {
        return Ok(Some(text));
    }
    let layout = text.lines().next().unwrap_or_default();
    let what = if layout.starts_with("fencepost store, layout ") {
        format!(
            "was made by a newer fencepost ({layout:?}; this one knows {LAYOUT:?}). Upgrade fencepost on this machine."
        )
    } else {
        format!("is not a sound fencepost store: the mark {MARK} is damaged. Restore a backup.")
    };
    Err(StoreError::not_done(Trouble::Corrupt, format!("{} {what} Nothing was changed.", root.display())))
}

/// Makes a store of an empty directory. Of several processes at once one creates it, and the others find it.
pub(super) fn make_mark(root: &Path, modes: &Modes) -> Result<String, StoreError> {
    let failed = |error: io::Error| unusable(root, &error);
    for entry in fs::read_dir(root).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name != MARK && !name.to_string_lossy().starts_with(DRAFT) {
            let detail = format!(
                "{} holds {name:?} and no fencepost store. Nothing was changed. Name an empty directory, or restore a backup.",
                root.display()
            );
            // Another process may have created the store, and written to it, since the mark was looked for. The mark
            // decides.
            return read_mark(root)?.ok_or(StoreError::not_done(Trouble::Corrupt, detail));
        }
    }
    let id = hex::encode(&fresh_version()?.0);
    let draft = DirDraft::write(root, modes, format!("{LAYOUT}\n{id}\n").as_bytes()).map_err(failed)?;
    match fs::hard_link(draft.path(), root.join(MARK)) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(error)),
        _ => File::open(root).and_then(|directory| flush(&directory)).map_err(failed),
    }?;
    drop(draft);
    read_mark(root)?.ok_or_else(|| gone(root))
}

fn refuse_carried(path: &Path) -> Result<(), StoreError> {
    let Some((service, sign)) = sync_folder(path).or_else(|| file_provider(path)) else { return Ok(()) };
    let detail = format!(
        "{} is in a folder that {service} carries to other machines by itself (by the sign of {}): two machines would both \
         win, and find out later. Nothing was changed. Use git+ssh://… with any git host, postgres://…, redis://…, or dir:PATH \
         on a file server.",
        path.display(),
        sign.display()
    );
    Err(StoreError::not_done(Trouble::Refused, detail))
}

/// On macOS a folder of any file provider, iCloud's Documents and Desktop included, says so.
fn file_provider(path: &Path) -> Option<(&'static str, PathBuf)> {
    let folder = path.ancestors().find(|above| fencepost_sys::is_provided_by_cloud(above))?;
    Some(("a cloud provider", folder.to_path_buf()))
}

fn gone(path: &Path) -> StoreError {
    let detail = format!(
        "{} is not the store used before: its marker file {MARK} is missing. Nothing was changed. Is the file server mounted?",
        path.display()
    );
    StoreError::not_done(Trouble::Unavailable, detail)
}

fn unusable(path: &Path, error: &io::Error) -> StoreError {
    let (trouble, step) = match error.kind() {
        ErrorKind::NotFound => (Trouble::Unavailable, "The directory above it must exist. Is the file server mounted?"),
        _ => meaning(error),
    };
    let detail = format!("{} cannot be used ({error}); nothing was changed. {step}", path.display());
    StoreError::not_done(trouble, detail)
}
