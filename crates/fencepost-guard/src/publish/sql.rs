//! A database: statements and fence are one transaction, and the fence's row is locked from the check to the commit.
//!
//! The database itself keeps the statements inside that transaction: PostgreSQL runs them where a COMMIT is an error,
//! SQLite asks us before it prepares one. So no text has to be understood here.

pub mod install;
pub mod postgres;
pub mod sqlite;

use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::fence::Fence;

use super::{PublishError, Receipt, Request};
use postgres::Server;

/// The most bytes of statements that are taken at once. They are held in memory, here and in the server.
pub const STATEMENTS_BYTES_MAX: usize = 64 << 20;

/// A database that can be written to.
#[derive(Clone, Debug)]
pub enum Database {
    Postgres(Box<Server>),
    Sqlite(PathBuf),
}

impl Database {
    /// Reads a URL. Errors hold no password.
    pub fn parse(url: &str) -> Result<Self, PublishError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return sqlite::find(path).map(Self::Sqlite);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Server::parse(url).map(|server| Self::Postgres(Box::new(server)));
        }
        Err(PublishError::Usage(
            "--url names no database that publish sql knows: write postgres://user@host/database or sqlite:PATH."
                .to_string(),
        ))
    }

    /// The same database, waited for no longer than this if it is a server.
    pub fn with_limit(self, limit: Duration) -> Self {
        match self {
            Self::Postgres(server) => Self::Postgres(Box::new(server.with_limit(limit))),
            sqlite @ Self::Sqlite(_) => sqlite,
        }
    }

    /// What the fence is called where nobody says otherwise: `sql:` and the name of the database.
    pub fn resource(&self) -> String {
        match self {
            Self::Postgres(server) => default_resource(server.database()),
            Self::Sqlite(path) => default_resource(&path.file_name().unwrap_or_default().to_string_lossy()),
        }
    }
}

/// Runs the statements, if the fence of `resource` allows that.
pub fn publish(
    request: &Request,
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
                postgres::Session::begin(&own, &progress)?.publish(&request, resource.as_deref(), &statements)
            })
        }
        Database::Sqlite(path) => sqlite::Session::open(path, request.dry_run)?.publish(
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
            "There are no statements to run; nothing was changed. Whatever was to write them has failed, perhaps.",
        ),
        Ok(text) if text.contains('\0') => usage("The statements hold a zero byte; nothing was changed."),
        Ok(text) => Ok(text),
        Err(_) => usage("The statements are not UTF-8; nothing was changed."),
    }
}

/// The fence that stands in a row. What cannot be read is never taken for "no fence".
fn read_fence(stored: Option<&str>, resource: &str, adopt: bool) -> Result<Option<Fence>, PublishError> {
    match stored.map(|stored| Fence::decode(stored.as_bytes())) {
        None => Ok(None),
        Some(Ok(fence)) => Ok(Some(fence)),
        Some(Err(_)) if adopt => Ok(None),
        Some(Err(why)) => Err(unreadable(resource, &why)),
    }
}

fn text(fence: &Fence) -> String {
    String::from_utf8(fence.encode()).expect("JSON is UTF-8")
}

/// What to say of a fence that is there and cannot be read.
fn unreadable(resource: &str, why: &dyn std::fmt::Display) -> PublishError {
    PublishError::Failed(format!(
        "The fence of {resource} in the table fencepost_fences cannot be read ({why}). Nothing was changed, because \
         without it nobody knows which token wrote last. Restore it together with the data; or, if no older run can \
         still be alive, publish once with --adopt."
    ))
}
