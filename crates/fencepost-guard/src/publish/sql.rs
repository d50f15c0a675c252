//! A database: statements and fence are one transaction, and the fence's row is locked from the check to the commit.
//!
//! The database itself keeps the statements inside that transaction: PostgreSQL runs them where a COMMIT is an error,
//! and SQLite calls an authorizer before it prepares one. So fencepost parses no SQL.

pub mod install;
pub mod postgres;
pub mod sqlite;

use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::fence::{Fence, Level};

use super::{PublishError, Receipt, Remembered, WriteRequest, WriteTarget, Written, digest};
use postgres::PostgresDestination;

/// The most bytes of statements in one write. The client and the server hold them in memory.
pub const STATEMENTS_BYTES_MAX: usize = 64 << 20;

/// A database that fenced writes go to.
#[derive(Clone, Debug)]
pub enum Database {
    Postgres(Box<PostgresDestination>),
    Sqlite(PathBuf),
}

impl Database {
    /// Parses a URL. Errors contain no password.
    pub fn parse(url: &str) -> Result<Self, PublishError> {
        match url.split_once(':') {
            Some(("sqlite", path)) => sqlite::find(path).map(Self::Sqlite),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                PostgresDestination::parse(url).map(|server| Self::Postgres(Box::new(server)))
            }
            _ => Err(PublishError::Usage(
                "--url names no database that publish sql knows: write postgres://user@host/database or sqlite:PATH."
                    .to_string(),
            )),
        }
    }

    /// Returns the same database with this time limit, if it is a server.
    pub fn with_limit(self, limit: Duration) -> Self {
        match self {
            Self::Postgres(server) => Self::Postgres(Box::new(server.with_limit(limit))),
            sqlite @ Self::Sqlite(_) => sqlite,
        }
    }

    /// Returns the default name of the fence: `sql:` and the name of the database.
    pub fn resource(&self) -> String {
        match self {
            Self::Postgres(server) => default_resource(server.database()),
            Self::Sqlite(path) => default_resource(&path.file_name().unwrap_or_default().to_string_lossy()),
        }
    }
}

/// Runs the statements, if the fence of `resource` allows that.
pub fn publish(
    request: &WriteRequest,
    database: &Database,
    resource: Option<&str>,
    statements: &[u8],
) -> Result<Receipt, PublishError> {
    let statements = checked(statements)?;
    match database {
        Database::Postgres(server) => {
            let (request, statements) = (request.clone(), statements.to_string());
            let (own, resource) = (server.clone(), resource.map(str::to_string));
            postgres::within(server, move |progress| {
                postgres::PostgresSession::begin(&own, &progress)?.publish(&request, resource.as_deref(), &statements)
            })
        }
        Database::Sqlite(path) => sqlite::SqliteSession::open(path, request.dry_run)?.publish(
            request,
            resource.unwrap_or(&database.resource()),
            statements,
        ),
    }
}

fn default_resource(name: &str) -> String {
    format!("sql:{name}")
}

fn checked(statements: &[u8]) -> Result<&str, PublishError> {
    let usage = |text: &str| Err(PublishError::Usage(text.to_string()));
    if statements.len() > STATEMENTS_BYTES_MAX {
        return usage(
            "The statements have more than 64 MiB; nothing was changed. Load the data into a table of its own \
                      first, and publish the step that makes it count.",
        );
    }
    match str::from_utf8(statements) {
        Ok(text) if text.trim().is_empty() => usage(
            "There are no statements to run; nothing was changed. Perhaps the program that writes them has failed.",
        ),
        Ok(text) if text.contains('\0') => usage("The statements hold a zero byte; nothing was changed."),
        Ok(text) => Ok(text),
        Err(_) => usage("The statements are not UTF-8; nothing was changed."),
    }
}

/// A connection that can run statements and advance a fence in one transaction.
trait FencedSession {
    /// Begins the transaction and locks the fence's row, or in a dry run only reads it. Returns the row's content.
    fn begin(&mut self, resource: &str, dry_run: bool) -> Result<Option<String>, PublishError>;

    /// Advances the fence, runs the statements and commits, all or nothing.
    fn commit_with(&mut self, resource: &str, statements: &str, fence: &Fence) -> Result<(), PublishError>;

    /// Ends a transaction that was not committed.
    fn roll_back(&mut self);

    fn level(&self) -> Level;
    fn remarks(&self) -> Vec<String>;
}

/// One write, inside a transaction. A dry run has no transaction.
struct SqlWrite<'a, S: FencedSession> {
    session: &'a mut S,
    resource: &'a str,
    statements: &'a str,
    stored: Option<String>,
}

impl<'a, S: FencedSession> SqlWrite<'a, S> {
    fn begin(session: &'a mut S, resource: &'a str, statements: &'a str, dry_run: bool) -> Result<Self, PublishError> {
        let mut write = Self { session, resource, statements, stored: None };
        write.stored = write.session.begin(resource, dry_run)?;
        Ok(write)
    }
}

impl<S: FencedSession> Drop for SqlWrite<'_, S> {
    fn drop(&mut self) {
        self.session.roll_back();
    }
}

impl<S: FencedSession> WriteTarget for SqlWrite<'_, S> {
    const REPLACES: bool = false;

    fn digest(&self) -> String {
        digest::of(self.statements.as_bytes())
    }

    fn remembered(&mut self) -> Result<Remembered, PublishError> {
        let of = format!("{} in the table fencepost_fences", self.resource);
        let stored = self.stored.as_deref().map(str::as_bytes);
        Ok(Remembered::decode(stored, &of, "Restore it together with the data"))
    }

    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        self.session.commit_with(self.resource, self.statements, &fence)?;
        Ok(Written::Done(fence))
    }

    fn level(&self) -> Level {
        self.session.level()
    }

    fn remarks(&self) -> Vec<String> {
        self.session.remarks()
    }
}

fn text(fence: &Fence) -> String {
    String::from_utf8(fence.encode()).expect("JSON is UTF-8")
}
