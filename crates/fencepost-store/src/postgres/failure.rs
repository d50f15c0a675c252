//! Classifies PostgreSQL's failures: the one place that interprets them.

use std::io;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::{LAYOUT, PostgresStore, ServerAndKey, TABLE};
use crate::{Fate, StoreError, Trouble};

/// How a message failed.
#[derive(Debug)]
pub(super) enum PostgresFailure {
    /// The operating system refused a resource.
    System(io::Error),
    Tls(String),
    /// There was no connection within this time.
    Unreachable(Duration),
    Connect(Option<Error>),
    /// The server answered with an error.
    Said(Error),
    /// The server answered the creation of the table with an error.
    Making(Making),
    /// There was no answer. `idle`: on a connection that had been idle.
    Lost {
        why: String,
        idle: bool,
    },
}

#[derive(Debug)]
pub(super) struct Making {
    pub(super) error: Error,
    /// The statements that an administrator has to run.
    pub(super) statements: String,
}

impl PostgresFailure {
    pub(super) fn lacks_table(&self) -> bool {
        let missing = [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME];
        matches!(self, Self::Said(error) if error.code().is_some_and(|code| missing.contains(code)))
    }

    /// A failed read changes nothing.
    pub(super) fn of_read(&self, store: &PostgresStore) -> StoreError {
        self.told(store, Fate::NotDone)
    }

    pub(super) fn of_swap(&self, store: &PostgresStore) -> StoreError {
        let fate = match self {
            Self::Said(error) if !is_rolled_back(error) => Fate::Unknown,
            Self::Lost { .. } => Fate::Unknown,
            _ => Fate::NotDone,
        };
        self.told(store, fate)
    }

    fn told(&self, store: &PostgresStore, fate: Fate) -> StoreError {
        let shown = store.server.shown();
        let (trouble, what, step) = match self {
            Self::System(error) => (Trouble::Unavailable, format!("could not be reached ({error})"), String::new()),
            Self::Tls(text) => (Trouble::Refused, format!("could not be reached ({text})"), String::new()),
            Self::Unreachable(after) => {
                let what = format!("could not be reached within {} s", after.as_secs().max(1));
                (Trouble::Unavailable, what, "Is it running, and is the network up?".to_string())
            }
            Self::Connect(error) => {
                let (trouble, step) = connecting(error.as_ref(), store);
                let why = error.as_ref().map_or_else(String::new, |error| format!(" ({})", explained(error)));
                let is_shut = error.as_ref().is_some_and(|error| login_failure(error) != LoginFailure::Other);
                let what = if is_shut { "does not let us in" } else { "could not be reached" };
                (trouble, format!("{what}{why}"), step)
            }
            Self::Said(error) => {
                let (trouble, step) = meaning(error, store);
                (trouble, format!("refused the call ({})", explained(error)), step)
            }
            Self::Making(Making { error, statements }) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                let what =
                    format!("has no table for fencepost yet, and this role may not make it ({})", explained(error));
                (Trouble::Refused, what, format!("Let the owner of the database run this, once:\n{statements}"))
            }
            Self::Making(Making { error, .. }) => {
                let (trouble, step) = meaning(error, store);
                (trouble, format!("did not let its table be made ({})", explained(error)), step)
            }
            Self::Lost { why, .. } => (Trouble::Unavailable, format!("did not answer ({why})"), String::new()),
        };
        let outcome = fate.outcome();
        let gap = if step.is_empty() { "" } else { " " };
        StoreError { fate, trouble, detail: format!("{shown} {what}; {outcome}.{gap}{step}") }
    }
}

impl PostgresStore {
    /// Refuses a server that is not fit to hold leases. A swap has checked the same and did nothing.
    pub(super) fn refuse_unfit(&self, state: &ServerAndKey) -> Result<(), StoreError> {
        let shown = self.server.shown();
        let refused = |why: &str| Err(StoreError::not_done(Trouble::Refused, format!("{shown} {why}")));
        if state.in_recovery {
            return refused(
                "is a replica, which lags behind its primary; nothing was changed. Give the URL of the primary, or all \
                 hosts and ?target_session_attrs=read-write.",
            );
        }
        if state.synchronous_commit == "off" {
            return refused(
                "acknowledges what it has not yet written (synchronous_commit = off), so that a crash would take leases and \
                 tokens back; nothing was changed. Set it for this role: ALTER ROLE … SET synchronous_commit = on.",
            );
        }
        if state.fsync != "on" && !self.own.is_flushed_elsewhere {
            return refused(
                "never flushes what it writes (fsync = off), so that a power cut destroys the store; nothing was changed. \
                 Set fsync = on. For a service that keeps its log on other machines, write ?flush=elsewhere.",
            );
        }
        match &state.layout {
            Some(layout) if layout == LAYOUT => Ok(()),
            Some(layout) if layout.starts_with("fencepost store, layout ") => {
                let detail = format!(
                    "The table {}.{TABLE} in {shown} was written by a newer fencepost ({layout:?}; this one knows \
                     {LAYOUT:?}). Nothing was changed. Upgrade fencepost on this machine.",
                    self.own.schema
                );
                Err(StoreError::not_done(Trouble::Corrupt, detail))
            }
            Some(_) => Err(self.foreign("its mark is not fencepost's")),
            None => Err(self.foreign("its mark is missing, as if the table had been emptied or a policy hid it")),
        }
    }

    /// Makes the refusal of a table with content that fencepost did not write.
    pub(super) fn foreign(&self, found: &str) -> StoreError {
        let detail = format!(
            "The table {}.{TABLE} in {} is not a sound fencepost store: {found}. Nothing was changed. Restore a backup, or \
             drop the table by hand and start afresh.",
            self.own.schema,
            self.server.shown()
        );
        StoreError::not_done(Trouble::Corrupt, detail)
    }
}

/// Whether an error of the server means that the transaction was rolled back. A pooler sends errors of its own, for a
/// server connection that broke in the middle; only errors that a server gives for statements count.
fn is_rolled_back(error: &Error) -> bool {
    let Some(db) = error.as_db_error() else { return false };
    let is_error = db.parsed_severity().map_or(db.severity() == "ERROR", |severity| severity == Severity::Error);
    let code = db.code().code();
    let of_a_statement = ["0A", "21", "22", "23", "25", "28", "3D", "3F", "42", "44", "53", "54", "55", "P0"];
    let known = of_a_statement.iter().any(|class| code.starts_with(class))
        || [SqlState::QUERY_CANCELED, SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED]
            .contains(db.code());
    is_error && known
}

/// Why a server let no one in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginFailure {
    /// It asked for a password, and none was given.
    NoPassword,
    Refused,
    Other,
}

fn login_failure(error: &Error) -> LoginFailure {
    match error.as_db_error() {
        Some(db) if db.code().code().starts_with("28") => LoginFailure::Refused,
        // The driver has no error kind for this.
        None if explained(error).contains("password missing") => LoginFailure::NoPassword,
        _ => LoginFailure::Other,
    }
}

fn connecting(error: Option<&Error>, store: &PostgresStore) -> (Trouble, String) {
    let db = error.and_then(Error::as_db_error);
    let failure = error.map_or(LoginFailure::Other, login_failure);
    if failure != LoginFailure::Other {
        let mut step = match failure {
            LoginFailure::Refused => {
                "User and password do not fit, or pg_hba.conf refuses them. Try them by psql, then put the password"
            }
            _ => "Put the password",
        }
        .to_string();
        step.push_str(" into a file with mode 0600 and name it: FENCEPOST_STORE_PASSWORD_FILE=/path/to/file, or store_password_file in fencepost.toml; or use .pgpass.");
        for remark in store.server.remarks() {
            step.push(' ');
            step.push_str(remark);
        }
        return (Trouble::Refused, step);
    }
    if let Some(remedy) = error.and_then(|error| store.server.remedy(&explained(error))) {
        return (Trouble::Refused, format!("Plain text to another host is refused. {remedy}"));
    }
    db.map_or_else(|| (Trouble::Unavailable, "Is it running, and does the URL name it?".to_string()), of_state)
}

fn meaning(error: &Error, store: &PostgresStore) -> (Trouble, String) {
    let Some(db) = error.as_db_error() else { return (Trouble::Unavailable, String::new()) };
    match *db.code() {
        SqlState::INSUFFICIENT_PRIVILEGE => {
            let step = format!("Let the owner of the database run this, once:\n{}", store.making(true));
            (Trouble::Refused, step)
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            let step = "It is a replica, or lets this role only read. Give the URL of the primary, or all hosts and \
                        ?target_session_attrs=read-write.";
            (Trouble::Refused, step.to_string())
        }
        SqlState::UNDEFINED_COLUMN | SqlState::DATATYPE_MISMATCH | SqlState::UNDEFINED_FUNCTION => {
            let step = format!(
                "{}.{TABLE} is not a table that fencepost made: rename it, or name another schema.",
                store.own.schema
            );
            (Trouble::Corrupt, step)
        }
        SqlState::QUERY_CANCELED => {
            let step = "Find out what holds it up: SELECT * FROM pg_stat_activity WHERE state <> 'idle'";
            (Trouble::Unavailable, step.to_string())
        }
        _ => of_state(db),
    }
}

fn of_state(db: &DbError) -> (Trouble, String) {
    let trouble = match &db.code().code()[..2] {
        // A person has to free disk space; connections become free with time.
        "53" if *db.code() == SqlState::DISK_FULL => Trouble::Refused,
        "08" | "40" | "53" | "55" | "57" | "58" | "XX" => Trouble::Unavailable,
        _ => Trouble::Refused,
    };
    (trouble, String::new())
}

/// Returns the error with its cause, in one line. The driver's errors contain no password.
pub fn explained(error: &Error) -> String {
    if let Some(db) = error.as_db_error() {
        let hint = db.hint().map_or(String::new(), |hint| format!(" Hint: {hint}"));
        return format!("{}: {}{hint}", db.code().code(), db.message());
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
