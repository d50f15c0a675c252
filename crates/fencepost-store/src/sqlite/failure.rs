//! Classifies SQLite's errors.

use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::{Fate, StoreError, Trouble};

/// How far a call had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SqliteStage {
    Open,
    /// Before the commit: everything is rolled back.
    Before,
    /// In the commit itself.
    Commit,
}

/// The fate of a failed call, the kind of trouble, and the next step.
pub(super) fn failure(path: &Path, stage: SqliteStage, error: &rusqlite::Error) -> StoreError {
    let (trouble, step) = meaning(error);
    let limit = file_size_limit(error).map_or(String::new(), |bytes| {
        format!(" No file may grow beyond {bytes} bytes here (ulimit -f); a write beyond that fails with EFBIG, file too large.")
    });
    let fate = fate(stage, error);
    let doing = match stage {
        SqliteStage::Open => "could not be opened",
        SqliteStage::Before => "could not be used",
        SqliteStage::Commit => "could not commit",
    };
    let outcome = fate.outcome();
    StoreError { fate, trouble, detail: format!("{} {doing} ({error}); {outcome}. {step}{limit}", path.display()) }
}

/// The file size limit that a failed write may have hit. SQLite reports only a disk error.
fn file_size_limit(error: &rusqlite::Error) -> Option<u64> {
    let is_io = error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
    let (soft, _) = getrlimit(Resource::RLIMIT_FSIZE).ok().filter(|_| is_io)?;
    (soft != RLIM_INFINITY).then_some(soft)
}

/// The error for a file that fencepost did not write.
pub(super) fn foreign_content(path: &Path, found: &str) -> StoreError {
    let detail = format!(
        "{} is not a sound fencepost store: {found}. Nothing was changed. Restore a backup, or move the file aside \
         by hand and start afresh.",
        path.display()
    );
    StoreError::not_done(Trouble::Corrupt, detail)
}

/// A failed commit is usually rolled back, but not surely: if flushing the log failed, its last frame may be on disk,
/// and the next replay accepts it. Only a commit that never wrote is certain.
fn fate(stage: SqliteStage, error: &rusqlite::Error) -> Fate {
    let never_wrote = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::ReadOnly)
    );
    if stage == SqliteStage::Commit && !never_wrote { Fate::Unknown } else { Fate::NotDone }
}

fn meaning(error: &rusqlite::Error) -> (Trouble, &'static str) {
    const FOREIGN: (Trouble, &str) =
        (Trouble::Corrupt, "Restore a backup, or move the file aside by hand and start afresh.");
    let rusqlite::Error::SqliteFailure(code, _) = error else {
        // The rest are columns of another type or name.
        return FOREIGN;
    };
    if code.extended_code == ffi::SQLITE_READONLY_DBMOVED {
        return (Trouble::Unavailable, "The file was moved or removed: find out by what, and try again.");
    }
    match code.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            (Trouble::Unavailable, "Another process is using it for long: try again, or see which process is stuck.")
        }
        ErrorCode::SystemIoFailure => (Trouble::Unavailable, "See the system's log for the state of the disk."),
        ErrorCode::OutOfMemory | ErrorCode::OperationInterrupted | ErrorCode::OperationAborted => {
            (Trouble::Unavailable, "Try again.")
        }
        ErrorCode::DiskFull => {
            (Trouble::Refused, "Make room on the disk (df -h shows which is full), then run the command again.")
        }
        ErrorCode::ReadOnly
        | ErrorCode::PermissionDenied
        | ErrorCode::AuthorizationForStatementDenied
        | ErrorCode::CannotOpen
        | ErrorCode::NoLargeFileSupport => (
            Trouble::Refused,
            "Both the file and its directory must be writable for the user that runs fencepost: ls -ld shows their owners, findmnt -T whether \
             the disk is mounted read-only.",
        ),
        _ => FOREIGN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn a_full_and_a_read_only_disk_name_the_next_command() {
        let next = |code| meaning(&sqlite(code)).1;
        assert!(next(ffi::SQLITE_FULL).contains("Make room on the disk (df -h"));
        assert!(next(ffi::SQLITE_READONLY).contains("ls -ld") && next(ffi::SQLITE_READONLY).contains("findmnt -T"));
    }

    #[test]
    fn every_failure_says_its_fate_and_its_trouble() {
        use Fate::{NotDone, Unknown};
        use Trouble::{Corrupt, Refused, Unavailable};
        let table = [
            (ffi::SQLITE_BUSY, Unavailable, NotDone),
            (ffi::SQLITE_LOCKED, Unavailable, NotDone),
            (ffi::SQLITE_PROTOCOL, Unavailable, Unknown),
            (ffi::SQLITE_READONLY, Refused, NotDone),
            (ffi::SQLITE_READONLY_DBMOVED, Unavailable, NotDone),
            (ffi::SQLITE_FULL, Refused, Unknown),
            (ffi::SQLITE_CANTOPEN, Refused, Unknown),
            (ffi::SQLITE_PERM, Refused, Unknown),
            (ffi::SQLITE_IOERR, Unavailable, Unknown),
            (ffi::SQLITE_IOERR_FSYNC, Unavailable, Unknown),
            (ffi::SQLITE_NOMEM, Unavailable, Unknown),
            (ffi::SQLITE_CORRUPT, Corrupt, Unknown),
            (ffi::SQLITE_NOTADB, Corrupt, Unknown),
            (ffi::SQLITE_ERROR, Corrupt, Unknown),
        ];
        let path = Path::new("/var/lib/fencepost/store.db");
        for (code, trouble, in_commit) in table {
            for (stage, fate) in
                [(SqliteStage::Open, NotDone), (SqliteStage::Before, NotDone), (SqliteStage::Commit, in_commit)]
            {
                let error = failure(path, stage, &sqlite(code));
                assert_eq!((error.trouble, error.fate), (trouble, fate), "{code} {stage:?}");
                let outcome = if fate == NotDone { "nothing was changed" } else { "may have happened" };
                assert!(error.detail.contains(outcome) && error.detail.contains("store.db"), "{error}");
            }
        }
    }
}
