//! Opens a connection: its settings, the check that the file is fencepost's, and the creation of a new store.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, ErrorCode, FileControl, MAIN_DB, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, ffi,
};

use super::WAIT;
use super::failure::{SqliteStage, failure, foreign_content};
use crate::{StoreError, Trouble};

/// Before this version, two processes that write and checkpoint at once can lose committed data.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// "fpst" in ASCII, in the database's header.
const APPLICATION_ID: i32 = 0x6670_7374;

/// The version of the table below.
const LAYOUT: i32 = 1;

const CREATE: &str = "CREATE TABLE entries (key TEXT NOT NULL PRIMARY KEY, version BLOB NOT NULL, value BLOB NOT NULL) \
                      STRICT, WITHOUT ROWID; PRAGMA application_id = 0x66707374; PRAGMA user_version = 1;";

/// "fpsh" in ASCII: the database of `serve --share`, which no other process may open.
const SHARED_APPLICATION_ID: i32 = 0x6670_7368;

/// The shared database has one more row: its clock.
const CREATE_SHARED: &str = "CREATE TABLE entries (key TEXT NOT NULL PRIMARY KEY, version BLOB NOT NULL, value BLOB NOT NULL) STRICT, WITHOUT ROWID; \
     CREATE TABLE clock (era TEXT NOT NULL, boot TEXT NOT NULL, ahead_ms INTEGER NOT NULL, reserved_ms INTEGER NOT NULL) STRICT; \
     PRAGMA application_id = 0x66707368; PRAGMA user_version = 1;";

/// Which program may open a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseKind {
    /// Every process of this machine.
    Embedded,
    /// `serve --share` alone. It has a clock of its own, by which an embedded store would end other machines' leases.
    Shared,
}

impl DatabaseKind {
    fn header(self) -> SqliteHeader {
        let application_id = match self {
            Self::Embedded => APPLICATION_ID,
            Self::Shared => SHARED_APPLICATION_ID,
        };
        SqliteHeader { application_id, layout: LAYOUT }
    }

    fn create(self) -> &'static str {
        match self {
            Self::Embedded => CREATE,
            Self::Shared => CREATE_SHARED,
        }
    }
}

/// The numbers in the header by which a database declares its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SqliteHeader {
    application_id: i32,
    layout: i32,
}

/// Connects to the file at `path`, which must exist, and creates a store in it if it is empty.
pub(super) fn connect(path: &Path, kind: DatabaseKind) -> Result<Connection, StoreError> {
    refuse_old_sqlite()?;
    let failed = |error| failure(path, SqliteStage::Open, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    settle(&connection).map_err(failed)?;
    // Both numbers are written in one transaction, so readings of two moments cannot combine to ours.
    if header(&connection).map_err(failed)? != kind.header() {
        let header = settled_header(&mut connection).map_err(failed)?;
        if header != kind.header() {
            make_store(&mut connection, path, header, kind)?;
        }
    }
    refuse_triggers(&connection, path)?;
    enter_wal(&connection, path)?;
    Ok(connection)
}

/// Refuses a store with triggers: fencepost creates none, and one would change what a swap writes. Triggers that are
/// created later do not run on this connection (`settle`).
fn refuse_triggers(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let mut statement = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger' LIMIT 1")
        .map_err(|error| failure(path, SqliteStage::Open, &error))?;
    let found = statement.query_row([], |row| row.get::<_, String>(0)).optional();
    match found.map_err(|error| failure(path, SqliteStage::Open, &error))? {
        None => Ok(()),
        Some(name) => {
            let name = name.escape_debug();
            Err(foreign_content(path, &format!("it has the trigger \"{name}\", which fencepost did not create")))
        }
    }
}

/// Whether SQLite's own descriptor refers to another file than the path.
pub(super) fn has_moved(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let mut moved = 0;
    connection
        .file_control(Some(MAIN_DB), FileControl::HasMoved(&mut moved))
        .map_err(|error| failure(path, SqliteStage::Open, &error))?;
    Ok(moved != 0)
}

fn refuse_old_sqlite() -> Result<(), StoreError> {
    if rusqlite::version_number() >= SQLITE_VERSION_MIN {
        return Ok(());
    }
    let detail = format!(
        "This fencepost was built with SQLite {}, which can lose commits in its write-ahead log. Build it with the \
         SQLite it brings, 3.51.3 or later.",
        rusqlite::version()
    );
    Err(StoreError::not_done(Trouble::Refused, detail))
}

/// Makes the settings of a connection, before it touches the file: even a database of another program must not be
/// checkpointed when the connection closes.
fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    let mut persist = 1;
    connection.file_control(Some(MAIN_DB), FileControl::PersistWal(&mut persist))?;
    connection.busy_timeout(WAIT)?;
    connection.execute_batch(SETTINGS)
}

const SETTINGS: &str = if cfg!(target_os = "macos") {
    "PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = FULL; PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1;"
} else {
    "PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = FULL;"
};

/// Reads both numbers at one moment. Read separately, they could straddle another process's creation of the store and
/// look like a foreign database.
fn settled_header(connection: &mut Connection) -> rusqlite::Result<SqliteHeader> {
    let reading = Transaction::new(connection, TransactionBehavior::Deferred)?;
    header(&reading)
}

fn header(connection: &Connection) -> rusqlite::Result<SqliteHeader> {
    let number = |pragma| connection.query_row(pragma, [], |row| row.get(0));
    Ok(SqliteHeader { application_id: number("PRAGMA application_id")?, layout: number("PRAGMA user_version")? })
}

/// Creates a store in an empty file, in one transaction: of several processes at once one creates it and the others
/// find it. A file that is not empty belongs to another program, and is refused.
fn make_store(
    connection: &mut Connection,
    path: &Path,
    found: SqliteHeader,
    kind: DatabaseKind,
) -> Result<(), StoreError> {
    let failed = |error| failure(path, SqliteStage::Open, &error);
    if !is_empty(path) && found != (SqliteHeader { application_id: 0, layout: 0 }) {
        return Err(foreign(path, found));
    }
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate).map_err(failed)?;
    let found = header(&transaction).map_err(failed)?;
    if found == kind.header() {
        return Ok(());
    }
    // This transaction holds the write lock, so the length is final.
    if !is_empty(path) {
        return Err(foreign(path, found));
    }
    transaction.execute_batch(kind.create()).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0)
}

fn foreign(path: &Path, found: SqliteHeader) -> StoreError {
    let SqliteHeader { application_id, layout } = found;
    if application_id == APPLICATION_ID && layout > LAYOUT {
        let detail = format!(
            "{} was written by a newer fencepost (layout {layout}; this one knows {LAYOUT}). Nothing was changed. \
             Upgrade fencepost on this machine, or restore a backup.",
            path.display()
        );
        return StoreError::not_done(Trouble::Corrupt, detail);
    }
    if application_id == SHARED_APPLICATION_ID {
        let detail = format!(
            "{} is the database of `fencepost serve --share`, whose clock only that server has. Nothing was changed. Use \
             the server's URL, on this machine too.",
            path.display()
        );
        return StoreError::not_done(Trouble::Refused, detail);
    }
    let what = format!(
        "it holds something that fencepost did not write (SQLite application id {application_id:#x}, version {layout})"
    );
    foreign_content(path, &what)
}

/// Turns the write-ahead log on, which the file remembers. Only the process that creates a store has to do it. It needs
/// exclusive access, for which SQLite does not wait by itself, so this function waits.
fn enter_wal(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    if is_wal(connection, "PRAGMA journal_mode").map_err(|error| failure(path, SqliteStage::Open, &error))? {
        return Ok(());
    }
    let begun = Instant::now();
    loop {
        match is_wal(connection, "PRAGMA journal_mode = WAL") {
            Ok(true) => break,
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => {
                return Err(failure(path, SqliteStage::Open, &error));
            }
            Ok(false) | Err(_) if begun.elapsed() < WAIT => thread::sleep(Duration::from_millis(2)),
            Ok(false) | Err(_) => {
                let busy = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
                return Err(failure(path, SqliteStage::Open, &busy));
            }
        }
    }
    // The first read creates the log itself.
    header(connection).map(|_| ()).map_err(|error| failure(path, SqliteStage::Open, &error))
}

fn is_wal(connection: &Connection, pragma: &str) -> rusqlite::Result<bool> {
    connection.query_row(pragma, [], |row| Ok(row.get_ref(0)?.as_str()? == "wal"))
}
