//! The state directory: where it is, and whether it may be trusted.
//!
//! It holds tokens, the ids of known stores and the files by which a job reports its outcome. A user who can write it can
//! forge them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fencepost_store::User;
use nix::libc::{ELOOP, ENOTDIR, O_DIRECTORY, O_NOFOLLOW};
use nix::unistd::geteuid;
use thiserror::Error;

use crate::trust::{self, Distrust};

/// Why there is no state directory to work with.
#[derive(Debug, Error)]
pub enum StateDirectoryError {
    /// The directory must not be used.
    #[error("{0}")]
    Refused(String),
    /// It is not known where the directory is.
    #[error("{0}")]
    Unknown(String),
}

const VARIABLE: &str = "FENCEPOST_STATE_DIR";

/// The state directory of this user. Its default comes from the passwd entry and not from `$HOME`: cron, sudo and a login
/// shell disagree about that, and a lock whose place depends on the environment is no lock.
pub fn state_directory() -> Result<PathBuf, StateDirectoryError> {
    let path = place()?;
    must_be_trusted(&path)?;
    Ok(path)
}

/// The home directory in the user's passwd entry: cron, sudo and a login shell disagree about `$HOME`.
pub fn home() -> Option<PathBuf> {
    User::current().map(|user| user.home.clone()).filter(|home| home.is_absolute())
}

fn place() -> Result<PathBuf, StateDirectoryError> {
    if let Some(directory) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        let wrong = |why: &str| StateDirectoryError::Refused(format!("{VARIABLE}={}: {why}", directory.display()));
        let path = std::path::absolute(&directory).map_err(|error| wrong(&error.to_string()))?;
        return if path.to_str().is_some() { Ok(path) } else { Err(wrong("the path is not UTF-8 text")) };
    }
    let user = geteuid();
    if user.is_root() {
        return Ok(PathBuf::from("/var/lib/fencepost"));
    }
    home().map(|home| home.join(".local/state/fencepost")).ok_or_else(|| {
        StateDirectoryError::Unknown(format!(
            "Cannot find the home directory of user {user} in the passwd database. Set {VARIABLE} to a directory of your \
             own that every run of this job uses."
        ))
    })
}

/// Refuses a state directory that another user owns or can change, by the rule for configurations. One that does not exist
/// is created later, private to this user. One that cannot be looked at fails where it is used.
fn must_be_trusted(path: &Path) -> Result<(), StateDirectoryError> {
    if let Err(error) = open_directory(path)
        && is_link(path, &error)
    {
        let target = std::fs::canonicalize(path).map_or("its target".to_string(), |to| to.display().to_string());
        return Err(refused(path, "it is a symbolic link", &format!("Set {VARIABLE} to {target}.")));
    }
    if trust::is_open_to_all(path) {
        return Err(refused(path, "every user can write it", &format!("Set {VARIABLE} to a directory of your own.")));
    }
    let Some(nearest) = path.ancestors().find(|at| at.symlink_metadata().is_ok()) else { return Ok(()) };
    match trust::check(nearest) {
        Ok(_) | Err(Distrust::Unreadable(_)) => Ok(()),
        Err(Distrust::Owner { path: at, owner }) => {
            let why = format!("{} belongs to user {owner}, who is neither root nor you", at.display());
            Err(refused(path, &why, &format!("Set {VARIABLE} to a directory of your own.")))
        }
        Err(Distrust::File { path: at } | Distrust::Directory { path: at }) => {
            let why = format!("other users can write {}", at.display());
            Err(refused(path, &why, &format!("Run: chmod go-w {}", at.display())))
        }
    }
}

fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_DIRECTORY).open(path)
}

fn is_link(path: &Path, error: &io::Error) -> bool {
    let may_be = matches!(error.raw_os_error(), Some(ELOOP | ENOTDIR));
    may_be && std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn refused(path: &Path, why: &str, way_out: &str) -> StateDirectoryError {
    StateDirectoryError::Refused(format!(
        "The state directory {} is refused, because {why}. Nothing was done. {way_out}",
        path.display()
    ))
}
