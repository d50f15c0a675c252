//! The embedded store: one SQLite database on one machine, for any number of its processes.
//!
//! Every run that cron starts opens it, so opening takes a handful of system calls, and a swap takes the fewest flushes
//! that survive a power cut: the write-ahead log with `synchronous=FULL`. The log stays when a process ends, because a
//! checkpoint at every exit costs three more flushes. A process that finds it longer than [`LOG_FRAMES_MAX`]
//! checkpoints it and starts it over. The file keeps its size: overwriting is flushed in half the time that a growing
//! file takes.

mod failure;
mod place;
mod setup;
mod shared;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::declared::{Declaring, Property, Soundness};
use crate::{
    Answer, Entry, Key, SCAN_KEYS_MAX, Store, StoreError, Swapped, Trouble, Version, fresh_version, host_clock,
    refuse_unsound,
};
use failure::{SqliteStage, failure, foreign_content};
use place::{FileId, file_id};
pub use shared::SharedStore;

/// How long a call waits for other processes before it fails. It holds no lock meanwhile.
const WAIT: Duration = Duration::from_secs(5);

/// The log starts over past this many frames. The first process to open the database replays it, so it must stay short.
const LOG_FRAMES_MAX: u64 = 64;

/// The file size of a log with so many frames. A shorter log is not counted. A much longer one, left by a long reader,
/// is truncated.
const LOG_BYTES: u64 = log_bytes(LOG_FRAMES_MAX);
const LOG_BYTES_MAX: u64 = log_bytes(LOG_FRAMES_MAX * 3 / 2);

const fn log_bytes(frames: u64) -> u64 {
    32 + frames * (24 + 4096)
}

/// A database file on a local file system.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    log_path: PathBuf,
    /// The identity of the opened files. If the path is replaced, a swap into the removed file would be lost.
    opened: OpenedFiles,
    connection: Mutex<Connection>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenedFiles {
    database: FileId,
    log: FileId,
}

impl SqliteStore {
    /// Opens the database at `path`, creating it and its directory if missing. A file that fencepost did not write is
    /// refused and left as it is.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_as(path, setup::DatabaseKind::Embedded)
    }

    fn open_as(path: &Path, kind: setup::DatabaseKind) -> Result<Self, StoreError> {
        let path = place::prepare(path)?;
        let connection = setup::connect(&path, kind)?;
        let log_path = place::log_path(&path);
        let opened = OpenedFiles::at(&path, &log_path).ok_or_else(|| place::replaced(&path))?;
        if setup::has_moved(&connection, &path)? {
            return Err(place::replaced(&path));
        }
        Ok(Self { path, log_path, opened, connection: Mutex::new(connection) })
    }

    /// The connection, if the path still names the opened files.
    fn connection(&self) -> Result<MutexGuard<'_, Connection>, StoreError> {
        // A panic rolls a transaction back, so the connection behind a poisoned lock is usable.
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_replaced() { Err(place::replaced(&self.path)) } else { Ok(connection) }
    }

    fn is_replaced(&self) -> bool {
        OpenedFiles::at(&self.path, &self.log_path) != Some(self.opened)
    }

    fn failed(&self, stage: SqliteStage) -> impl FnOnce(rusqlite::Error) -> StoreError {
        move |error| failure(&self.path, stage, &error)
    }

    /// Commits. The fate of a commit whose files were replaced meanwhile is `Unknown`.
    fn commit(&self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        transaction.commit().map_err(self.failed(SqliteStage::Commit))?;
        if self.is_replaced() {
            let detail = format!(
                "{} was removed or replaced while it was being written; the write may have happened in the file that \
                 is gone. Restore the file, or find out what removes it.",
                self.path.display()
            );
            return Err(StoreError::unknown(Trouble::Unavailable, detail));
        }
        Ok(())
    }

    /// Checkpoints the log if it has grown long, so the next commit starts it over. Never waits. A reader in the way or
    /// a full disk does no harm: the log grows, and the next swap tries again.
    fn shorten_log(&self, connection: &Connection) {
        if !std::fs::metadata(&self.log_path).is_ok_and(|log| log.len() > LOG_BYTES) {
            return;
        }
        let frames = connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get::<_, i64>(1));
        if frames.is_ok_and(|frames| u64::try_from(frames).is_ok_and(|frames| frames > LOG_FRAMES_MAX)) {
            let cut = format!("PRAGMA journal_size_limit = {LOG_BYTES_MAX}");
            let _ = connection.query_row(&cut, [], |_| Ok(()));
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    }
}

impl Store for SqliteStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let connection = self.connection()?;
        let value = entry(&connection, key.as_str()).map_err(self.failed(SqliteStage::Before))?;
        Ok(Answer::new(value, host_clock::now()))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        let new = new.map(StoredValue::new).transpose()?;
        let mut connection = self.connection()?;
        self.shorten_log(&connection);
        // Takes the write lock at once and waits for it: a transaction that reads first and writes later fails as soon
        // as another does the same.
        let transaction = Transaction::new(&mut connection, TransactionBehavior::Immediate)
            .map_err(self.failed(SqliteStage::Before))?;
        let clock = host_clock::now();
        let is_as_expected = write(&transaction, key, expected, new.as_ref());
        if !is_as_expected.map_err(self.failed(SqliteStage::Before))? {
            let current = entry(&transaction, key.as_str()).map_err(self.failed(SqliteStage::Before))?;
            return Ok(Answer::new(Swapped::Lost(current), clock));
        }
        self.commit(transaction)?;
        Ok(Answer::new(Swapped::Won(new.map(|new| new.version)), clock))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let connection = self.connection()?;
        let after = after.map_or("", Key::as_str);
        let texts =
            keys(&connection, prefix, after, limit.min(SCAN_KEYS_MAX)).map_err(self.failed(SqliteStage::Before))?;
        let unsound = |text: &String| foreign_content(&self.path, &format!("it holds the key {text:?}"));
        let found = texts.iter().map(|text| Key::from_stored(text).ok_or_else(|| unsound(text)));
        Ok(Answer::new(found.collect::<Result<_, _>>()?, host_clock::now()))
    }
}

impl Declaring for SqliteStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        let log = "A commit is flushed before it is answered (write-ahead log, synchronous = FULL).";
        let reach = "It is one machine's: its processes share it, other machines cannot.";
        let clock = "Leases are judged by the kernel's boot clock, which setting the date does not move.";
        Ok(vec![
            Property::new("durability", Soundness::Sound, log),
            Property::new("reach", Soundness::Sound, reach),
            Property::new("clock", Soundness::Sound, clock),
        ])
    }
}

impl OpenedFiles {
    fn at(path: &Path, log_path: &Path) -> Option<Self> {
        Some(Self { database: file_id(path)?, log: file_id(log_path)? })
    }
}

fn entry(connection: &Connection, key: &str) -> rusqlite::Result<Option<Entry>> {
    let mut statement = connection.prepare("SELECT value, version FROM entries WHERE key = ?1")?;
    statement
        .query_row([key], |row| Ok(StoredValue { value: row.get(0)?, version: Version(row.get(1)?) }.entry()))
        .optional()
}

/// A version and a value as stored in a row.
///
/// A value that does not fit beside its key is padded to whole pages, and its version ends with its length. SQLite
/// overwrites a value of the same length in place: unchanged pages are not written, none is freed or allocated.
struct StoredValue<'a> {
    version: Version,
    value: Cow<'a, [u8]>,
}

/// How many bytes SQLite stores beside the key, and on each following page.
const BESIDE_THE_KEY_BYTES: usize = 900;
const PAGE_BYTES: usize = 4096 - 4;

/// The random part of a version. A length follows.
const VERSION_BYTES: usize = 16;

impl<'a> StoredValue<'a> {
    fn new(value: &'a [u8]) -> Result<Self, StoreError> {
        let mut version = fresh_version()?;
        let Some(length) = u32::try_from(value.len()).ok().filter(|_| value.len() > BESIDE_THE_KEY_BYTES) else {
            return Ok(Self { version, value: value.into() });
        };
        version.0.extend(length.to_be_bytes());
        let mut filled = value.to_vec();
        filled.resize(value.len().next_multiple_of(PAGE_BYTES), b' ');
        Ok(Self { version, value: filled.into() })
    }

    fn entry(self) -> Entry {
        let mut bytes = self.value.into_owned();
        if let Some(&length) = self.version.0.get(VERSION_BYTES..).and_then(<[u8]>::first_chunk) {
            bytes.truncate(u32::from_be_bytes(length) as usize);
        }
        Entry { bytes, version: self.version }
    }
}

/// Replaces the expected entry, and returns whether it did.
fn write(
    connection: &Connection,
    key: &Key,
    expected: Option<&Version>,
    new: Option<&StoredValue<'_>>,
) -> rusqlite::Result<bool> {
    let key = key.as_str();
    let changed = match (expected, new) {
        (Some(expected), Some(new)) => connection.execute(
            "UPDATE entries SET version = ?3, value = ?4 WHERE key = ?1 AND version = ?2",
            params![key, expected.0, new.version.0, new.value],
        ),
        (Some(expected), None) => {
            connection.execute("DELETE FROM entries WHERE key = ?1 AND version = ?2", params![key, expected.0])
        }
        (None, Some(new)) => connection.execute(
            "INSERT INTO entries (key, version, value) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            params![key, new.version.0, new.value],
        ),
        // A removal of a missing key writes nothing; it only checks that the key is missing.
        (None, None) => Ok(usize::from(entry(connection, key)?.is_none())),
    };
    Ok(changed? > 0)
}

/// Keys are ASCII, so the greatest character is an upper bound for all keys with a prefix.
fn keys(connection: &Connection, prefix: &str, after: &str, limit: usize) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(
        "SELECT key FROM entries WHERE key >= ?1 AND key < ?1 || char(0x10ffff) AND key > ?2 ORDER BY key LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    statement.query_map(params![prefix, after, limit], |row| row.get(0))?.collect()
}
