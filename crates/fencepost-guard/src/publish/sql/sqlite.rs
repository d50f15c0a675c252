//! SQLite: `BEGIN IMMEDIATE` is the lock, and an authorizer refuses every statement that would end it.
//!
//! The database is the user's own: its journal mode and all other settings stay as they are.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost_core::fence::{Fence, Level};
use fencepost_store::file_system::shared_file_system;
use fencepost_store::percent;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, OptionalExtension};

use super::{FencedSession, SqlWrite, text};
use crate::publish::{PublishError, Receipt, WriteRequest, publish};

/// The table of the fences. `open` is 1 only inside a transaction that has passed the fence: it is reset before the
/// commit, and no other connection ever sees it. The table uses no feature newer than SQLite's oldest readers, which
/// would otherwise refuse the whole database.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS main.fencepost_fences (\n    resource TEXT NOT NULL PRIMARY KEY,\n    \
                         fence TEXT NOT NULL,\n    open INTEGER NOT NULL DEFAULT 0\n);\n";

/// How long a write waits for another one to the same database.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

const NAME: &str = "fencepost_fences";

/// A connection to a database file.
#[derive(Debug)]
pub struct SqliteSession {
    connection: Connection,
    path: PathBuf,
    /// The kind of shared file system it is on, where locks may have no effect on other machines.
    shared: Option<&'static str>,
}

/// Returns the canonical path of the file that a URL names. Creates no missing file: its name is more often a typing
/// mistake than an intention.
pub(super) fn find(path: &str) -> Result<PathBuf, PublishError> {
    let usage = |text: String| Err(PublishError::Usage(text));
    if path.is_empty() || path == ":memory:" {
        return usage("--url sqlite: lacks the path of a file, for example sqlite:/srv/shop.db.".to_string());
    }
    if path.starts_with("//") && !path.starts_with("///") {
        return usage(format!("--url sqlite:{path} names a host: write sqlite:{}.", path.trim_start_matches('/')));
    }
    match Path::new(path).canonicalize() {
        Ok(path) if path.is_file() => Ok(path),
        Ok(path) => usage(format!("--url: {} is not a file.", path.display())),
        Err(error) => usage(format!(
            "--url: there is no database at {path} ({error}); nothing was changed. To begin with an empty one: touch {path}"
        )),
    }
}

impl SqliteSession {
    pub fn open(path: &Path, read_only: bool) -> Result<Self, PublishError> {
        let opened = if read_only { open_to_look(path) } else { open(path, OpenFlags::SQLITE_OPEN_READ_WRITE) };
        let connection = opened.map_err(|error| failed("open", path, &error))?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let shared = shared_file_system(directory).map_err(|error| {
            PublishError::Failed(format!("Cannot look at {} ({error}); nothing was changed.", directory.display()))
        })?;
        Ok(Self { connection, path: path.to_path_buf(), shared })
    }

    /// Runs the statements and advances the fence, both or neither.
    pub fn publish(
        &mut self,
        request: &WriteRequest,
        resource: &str,
        statements: &str,
    ) -> Result<Receipt, PublishError> {
        publish(request, SqlWrite::begin(self, resource, statements, request.dry_run)?)
    }

    /// Runs statements of the installation, outside of any fence.
    pub(super) fn execute(&mut self, statements: &str) -> Result<(), PublishError> {
        let done = self.connection.execute_batch(&format!("BEGIN IMMEDIATE; {statements} COMMIT;"));
        done.map_err(|error| {
            let _ = self.connection.execute_batch("ROLLBACK");
            failed("change the schema of", &self.path, &error)
        })
    }

    /// Lists the triggers that the installation has created.
    pub(super) fn guards(&self) -> Result<Vec<String>, PublishError> {
        let query = "SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND name LIKE 'fencepost\\_guard\\_%' \
                     ESCAPE '\\' ORDER BY name";
        let names = self.connection.prepare(query).and_then(|mut names| {
            let rows = names.query_map([], |row| row.get(0))?;
            rows.collect::<Result<Vec<String>, Error>>()
        });
        names.map_err(|error| failed("read the schema of", &self.path, &error))
    }

    /// Reads the fence's row. A value of a foreign type never counts as "no fence".
    fn stored(&self, resource: &str) -> Result<Option<String>, PublishError> {
        let failed = |error| failed("read the fence of", &self.path, &error);
        let query = "SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name = ?1";
        let tables: i64 = self.connection.query_row(query, [NAME], |row| row.get(0)).map_err(failed)?;
        if tables == 0 {
            return Ok(None);
        }
        let query = "SELECT CAST(fence AS TEXT) FROM main.fencepost_fences WHERE resource = ?1";
        self.connection.query_row(query, [resource], |row| row.get(0)).optional().map_err(failed)
    }

    fn put(&self, resource: &str, fence: &Fence) -> Result<(), PublishError> {
        let query = "INSERT INTO main.fencepost_fences (resource, fence, open) VALUES (?1, ?2, 1) \
                     ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence, open = 1";
        let put = self.connection.execute(query, [resource, &text(fence)]);
        put.map(drop).map_err(|error| failed("advance the fence in", &self.path, &error))
    }

    /// Runs the statements under the authorizer.
    fn run(&mut self, statements: &str) -> Result<(), PublishError> {
        let denied = Arc::new(Mutex::new(None));
        let reason = denied.clone();
        let ask = move |context: AuthContext<'_>| match escape(&context.action) {
            None => Authorization::Allow,
            Some(why) => {
                *reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                Authorization::Deny
            }
        };
        let failed_here = |error| failed("watch the statements in", &self.path, &error);
        self.connection.authorizer(Some(ask)).map_err(failed_here)?;
        let ran = self.connection.execute_batch(statements);
        let cleared = self.connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>);
        cleared.map_err(|error| failed("watch the statements in", &self.path, &error))?;
        let denied = denied.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (ran, denied) {
            (_, Some(why)) => Err(PublishError::Usage(format!(
                "The statements {why}, which has no place inside the fence's transaction; all of them were rolled back, and \
                 nothing was changed."
            ))),
            (Err(error), None) => Err(PublishError::Failed(format!(
                "A statement failed in {} ({}); all of them were rolled back, and nothing was changed.",
                self.path.display(),
                explained(&error)
            ))),
            (Ok(()), None) => Ok(()),
        }
    }

    /// Checks, before the commit, that the transaction and the fence's row are still this writer's.
    fn check_ours(&self, resource: &str, fence: &Fence) -> Result<(), PublishError> {
        if !self.connection.is_autocommit() && self.stored(resource)?.as_deref() == Some(&text(fence)) {
            return Ok(());
        }
        Err(PublishError::Usage(
            "The statements ended the transaction or changed the fence itself; nothing was changed. Leave both alone."
                .to_string(),
        ))
    }

    fn commit(&self, resource: &str, fence: &Fence) -> Result<(), PublishError> {
        let close = "UPDATE main.fencepost_fences SET open = 0 WHERE resource = ?1";
        self.connection.execute(close, [resource]).map_err(|error| failed("close the fence in", &self.path, &error))?;
        let Err(error) = self.connection.execute_batch("COMMIT") else { return Ok(()) };
        if !self.connection.is_autocommit() {
            return Err(failed("commit in", &self.path, &error));
        }
        // The transaction is over, and the error does not say how: the file does.
        let found = Self::open(&self.path, false).and_then(|session| session.stored(resource));
        match found {
            Ok(found) if found.as_deref() == Some(&text(fence)) => Ok(()),
            Ok(_) => Err(failed("commit in", &self.path, &error)),
            Err(_) => Err(PublishError::Failed(format!(
                "The commit failed in {} ({}), and the database cannot be read since: it is NOT KNOWN whether the statements \
                 took effect. Check the disk; the fence of {resource} in fencepost_fences says which token wrote last.",
                self.path.display(),
                explained(&error)
            ))),
        }
    }

    fn do_batch(&self, what: &str, statements: &str) -> Result<(), PublishError> {
        self.connection.execute_batch(statements).map_err(|error| failed(what, &self.path, &error))
    }
}

impl FencedSession for SqliteSession {
    fn begin(&mut self, resource: &str, dry_run: bool) -> Result<Option<String>, PublishError> {
        if !dry_run {
            self.do_batch("lock", "BEGIN IMMEDIATE")?;
            self.do_batch("make the table of fences in", TABLE)?;
        }
        self.stored(resource)
    }

    fn commit_with(&mut self, resource: &str, statements: &str, fence: &Fence) -> Result<(), PublishError> {
        self.put(resource, fence)?;
        self.run(statements)?;
        self.check_ours(resource, fence)?;
        self.commit(resource, fence)
    }

    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn level(&self) -> Level {
        if self.shared.is_some() { Level::Gated } else { Level::Atomic }
    }

    fn remarks(&self) -> Vec<String> {
        let remark = self.shared.map(|sort| {
            format!(
                "{} is on {sort}, whose locks may mean nothing to other machines: it is safe from stale runs on this \
                 machine only.",
                self.path.display()
            )
        });
        remark.into_iter().collect()
    }
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(LOCK_PATIENCE)?;
    Ok(connection)
}

/// Opens a database without leaving a trace. Reading a database in WAL mode creates the log's files if they are
/// missing. If they are missing, no other process has it open, and it can be read unchanged.
fn open_to_look(path: &Path) -> Result<Connection, Error> {
    let mut log = path.as_os_str().to_os_string();
    log.push("-wal");
    if !has_log(path) || Path::new(&log).exists() {
        return open(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    }
    let escaped = percent::encode(&path.display().to_string(), |byte| !b"%?#".contains(&byte));
    let name = format!("file:{escaped}?immutable=1");
    open(Path::new(&name), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

/// Whether the database's header declares a write-ahead log.
fn has_log(path: &Path) -> bool {
    let mut header = [0; 20];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok_and(|()| header[18] == 2)
}

/// Describes an action that a statement must not take. Savepoints are harmless: they cannot end the enclosing
/// transaction.
fn escape(action: &AuthAction<'_>) -> Option<String> {
    let own = |table: &str| table.eq_ignore_ascii_case(NAME).then(|| format!("change the table {NAME}"));
    match action {
        AuthAction::Transaction { operation } => Some(format!("say {}", format!("{operation:?}").to_uppercase())),
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::DropTable { table_name }
        | AuthAction::AlterTable { table_name, .. } => own(table_name),
        _ => None,
    }
}

fn explained(error: &Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => "another write has held the database for a minute".to_string(),
        Some(ErrorCode::ReadOnly) => "it may not be written to".to_string(),
        Some(ErrorCode::NotADatabase) => "it is not an SQLite database".to_string(),
        _ => error.to_string(),
    }
}

fn failed(what: &str, path: &Path, error: &Error) -> PublishError {
    PublishError::Failed(format!("Cannot {what} {} ({}); nothing was changed.", path.display(), explained(error)))
}
