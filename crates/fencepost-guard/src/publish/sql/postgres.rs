//! PostgreSQL: `FOR UPDATE` locks the fence's row, and the statements run inside a `DO` block, where the server itself
//! refuses to end the transaction.
//!
//! Every message uses the simple query protocol and `SET LOCAL`, which makes a pooler in between safe.

mod connect;
mod limit;

pub use connect::PostgresDestination;
pub(super) use limit::{CommitProgress, within};

use std::thread::sleep;
use std::time::Duration;

use ::postgres::error::{ErrorPosition, Severity, SqlState};
use ::postgres::{Client, Error, SimpleQueryMessage, SimpleQueryRow};
use fencepost_core::fence::{Fence, Level};
use fencepost_store::postgres::explained;

use super::{FencedSession, SqlWrite, default_resource, text};
use crate::clock;
use crate::publish::{PublishError, Receipt, WriteRequest, publish};

/// The table of the fences. Its schema is fixed: a table that depends on the search path is several tables.
pub const TABLE: &str = include_str!("postgres/table.sql");

/// How long a write waits for another one under the same fence.
const LOCK_PATIENCE: &str = "60s";
/// How long the server waits for a silent writer that holds the lock. It then rolls the writer back, and a newer one
/// need not wait for a stopped process.
const SILENCE_MAX: &str = "10s";
/// How long to inquire about a commit whose answer was lost.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);
const SETTLE_PAUSE: Duration = Duration::from_millis(300);

const FACTS: &str = "SELECT current_database(), pg_is_in_recovery(), current_setting('transaction_read_only'), \
                     current_setting('synchronous_commit'), to_regclass('public.fencepost_fences') IS NOT NULL, \
                     quote_ident(current_user)";

/// A connection to a server that accepts writes.
#[expect(missing_debug_implementations, reason = "a connection shows nothing worth seeing")]
pub struct PostgresSession {
    client: Client,
    server: PostgresDestination,
    facts: ServerFacts,
    progress: CommitProgress,
    /// A transaction was begun and not committed.
    is_open: bool,
}

struct ServerFacts {
    database: String,
    in_recovery: bool,
    read_only: bool,
    synchronous_commit: String,
    has_table: bool,
    role: String,
}

impl PostgresSession {
    /// Connects, and refuses a server that does not accept writes. Waits for it without a limit.
    pub fn open(server: &PostgresDestination) -> Result<Self, PublishError> {
        Self::begin(server, &CommitProgress::default())
    }

    /// Does the same as `open`, for a caller with a time limit that needs the progress of the write.
    pub(super) fn begin(server: &PostgresDestination, progress: &CommitProgress) -> Result<Self, PublishError> {
        let mut client = server.connect()?;
        let facts =
            ServerFacts::ask(&mut client).map_err(|error| failed("ask the server how it is", server, &error))?;
        let refused = |why: &str| {
            Err(PublishError::Failed(format!(
                "{} {why}; nothing was changed. Give the URL of the primary, or all hosts and \
                 ?target_session_attrs=read-write.",
                server.shown()
            )))
        };
        if facts.in_recovery {
            return refused("is a replica that only follows another server");
        }
        if facts.read_only {
            return refused("lets this role only read (default_transaction_read_only)");
        }
        Ok(Self { client, server: server.clone(), facts, progress: progress.clone(), is_open: false })
    }

    /// Runs the statements and advances the fence, both or neither.
    pub fn publish(
        &mut self,
        request: &WriteRequest,
        resource: Option<&str>,
        statements: &str,
    ) -> Result<Receipt, PublishError> {
        let resource = resource.map_or_else(|| default_resource(&self.facts.database), str::to_string);
        publish(request, SqlWrite::begin(self, &resource, statements, request.dry_run)?)
    }

    /// Runs statements of the installation, outside of any fence.
    pub(super) fn execute(&mut self, statements: &str) -> Result<(), PublishError> {
        self.progress.changing();
        self.client.batch_execute(statements).map_err(|error| {
            let code = error.code().cloned();
            let failure = failed("change the schema of", &self.server, &error);
            if code == Some(SqlState::INSUFFICIENT_PRIVILEGE) { self.may_not(statements, &error) } else { failure }
        })
    }

    pub(super) fn database(&self) -> &str {
        &self.facts.database
    }

    /// Reads the fence's row without a transaction.
    fn look(&mut self, resource: &str) -> Result<Option<String>, PublishError> {
        if !self.facts.has_table {
            return Ok(None);
        }
        let query = format!("SELECT fence FROM public.fencepost_fences WHERE resource = {}", literal(resource));
        let row = row(&mut self.client, &query).map_err(|error| failed("read the fence of", &self.server, &error))?;
        Ok(row.and_then(|row| row.get(0).map(str::to_string)))
    }

    /// Two sessions that create a table at once may collide although both use `IF NOT EXISTS`; then one of them has
    /// created it.
    fn make_table(&mut self) -> Result<(), PublishError> {
        if self.facts.has_table {
            return Ok(());
        }
        match self.client.batch_execute(TABLE) {
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Err(self.may_not(TABLE, &error)),
            Err(error) if !is_collision(&error) => Err(failed("make the table of fences in", &self.server, &error)),
            _ => {
                self.facts.has_table = true;
                Ok(())
            }
        }
    }

    /// Begins the transaction and locks the fence's row. The placeholder row makes two first writers wait for each
    /// other.
    fn lock(&mut self, resource: &str) -> Result<Option<String>, PublishError> {
        let resource_literal = literal(resource);
        let query = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = '{LOCK_PATIENCE}'; \
             SET LOCAL idle_in_transaction_session_timeout = '{SILENCE_MAX}'; \
             INSERT INTO public.fencepost_fences (resource) VALUES ({resource_literal}) ON CONFLICT DO NOTHING; \
             SELECT fence FROM public.fencepost_fences WHERE resource = {resource_literal} FOR UPDATE"
        );
        let row = row(&mut self.client, &query).map_err(|error| match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => PublishError::Failed(format!(
                "Another write has held the fence of {resource} in {} for a minute; nothing was changed. Find out what \
                 hangs: SELECT * FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'",
                self.server.shown()
            )),
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => self.may_not("", &error),
            _ => failed("lock the fence in", &self.server, &error),
        })?;
        match row {
            Some(row) => Ok(row.get(0).map(str::to_string)),
            None => Err(PublishError::Failed(format!(
                "The fence of {resource} in {} is hidden from this role; nothing was changed. Look for row-level security \
                 on public.fencepost_fences.",
                self.server.shown()
            ))),
        }
    }

    /// Writes the new fence, before the statements: if they escaped from the transaction after all, the fence would not
    /// be behind them. Returns the transaction's number, by which the server later reports its result.
    fn advance(&mut self, resource: &str, fence: &Fence) -> Result<String, PublishError> {
        let query = format!(
            "UPDATE public.fencepost_fences SET fence = {}, passed_xid = txid_current(), passed_at = now() \
             WHERE resource = {}; SET LOCAL lock_timeout TO DEFAULT; SELECT txid_current()",
            literal(&text(fence)),
            literal(resource)
        );
        let row =
            row(&mut self.client, &query).map_err(|error| failed("advance the fence in", &self.server, &error))?;
        Ok(row.and_then(|row| row.get(0).map(str::to_string)).unwrap_or_default())
    }

    /// Runs the statements inside a `DO` block.
    fn run(&mut self, statements: &str) -> Result<(), PublishError> {
        self.client.batch_execute(&enclosed(statements)).map_err(|error| {
            let Some(db) = error.as_db_error() else { return failed("run the statements in", &self.server, &error) };
            let escapes = [SqlState::FEATURE_NOT_SUPPORTED, SqlState::INVALID_TRANSACTION_TERMINATION];
            if escapes.contains(db.code()) {
                return PublishError::Usage(format!(
                    "The statements cannot run inside the fence's transaction: {}{}. Nothing was changed. BEGIN, COMMIT, \
                     ROLLBACK, SAVEPOINT, SELECT INTO and COPY from or to the client have no place there.",
                    db.message(),
                    at_line(db.position())
                ));
            }
            let line = at_line(db.position());
            PublishError::Failed(format!(
                "A statement failed in {}{line} ({}); all of them were rolled back, and nothing was changed.",
                self.server.shown(),
                explained(&error)
            ))
        })
    }

    /// Checks, before the commit, that the transaction and the fence's row are still this writer's.
    fn check_ours(&mut self, resource: &str, fence: &Fence) -> Result<(), PublishError> {
        let query = format!(
            "SELECT 1 FROM public.fencepost_fences WHERE resource = {} AND fence = {} AND passed_xid = txid_current() \
             AND passed_at = now()",
            literal(resource),
            literal(&text(fence))
        );
        match row(&mut self.client, &query) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(PublishError::Usage(
                "The statements changed the fence itself; all of them were rolled back, and nothing was changed. Leave \
                 the table fencepost_fences alone."
                    .to_string(),
            )),
            Err(error) => Err(failed("check the fence before the commit in", &self.server, &error)),
        }
    }

    fn commit(&mut self, resource: &str, transaction: &str, fence: &Fence) -> Result<(), PublishError> {
        self.progress.committing(transaction);
        let Err(error) = self.client.batch_execute("COMMIT") else { return Ok(()) };
        // Only an error that leaves the session open proves a rollback. One that ends the session may follow the
        // commit.
        let db = error.as_db_error();
        if db.is_some_and(|db| db.parsed_severity().is_none_or(|severity| severity == Severity::Error)) {
            return Err(failed("commit in", &self.server, &error));
        }
        settle(self, resource, transaction, fence, &error)
    }

    /// Makes the error with the statements that a role with more rights has to run.
    fn may_not(&self, statements: &str, error: &Error) -> PublishError {
        let role = &self.facts.role;
        PublishError::Failed(format!(
            "The role {role} lacks a right in {} ({}); nothing was changed. Let the owner of the database run this, once:\n\
             {statements}GRANT SELECT, INSERT, UPDATE ON public.fencepost_fences TO {role};",
            self.server.shown(),
            explained(error)
        ))
    }
}

impl FencedSession for PostgresSession {
    fn begin(&mut self, resource: &str, dry_run: bool) -> Result<Option<String>, PublishError> {
        if dry_run {
            return self.look(resource);
        }
        self.make_table()?;
        self.is_open = true;
        self.lock(resource)
    }

    fn commit_with(&mut self, resource: &str, statements: &str, fence: &Fence) -> Result<(), PublishError> {
        let transaction = self.advance(resource, fence)?;
        self.run(statements)?;
        self.check_ours(resource, fence)?;
        self.commit(resource, &transaction, fence)?;
        self.is_open = false;
        Ok(())
    }

    fn roll_back(&mut self) {
        if std::mem::take(&mut self.is_open) && !self.client.is_closed() {
            // If this fails, the server ends the transaction with the connection.
            let _ = self.client.batch_execute("ROLLBACK");
        }
    }

    fn level(&self) -> Level {
        Level::Atomic
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.server.remarks();
        if self.facts.synchronous_commit == "off" {
            remarks.push(format!(
                "{} acknowledges before it has written (synchronous_commit = off): a crash of the server may take this \
                 write back, together with its fence.",
                self.server.shown()
            ));
        }
        remarks
    }
}

impl ServerFacts {
    fn ask(client: &mut Client) -> Result<Self, Error> {
        let row = row(client, FACTS)?;
        let column = |index| row.as_ref().and_then(|row| row.get(index)).unwrap_or_default().to_string();
        Ok(Self {
            database: column(0),
            in_recovery: column(1) == "t",
            read_only: column(2) == "on",
            synchronous_commit: column(3),
            has_table: column(4) == "t",
            role: column(5),
        })
    }
}

/// Settles a commit whose answer was lost. Once the row can be locked again, the transaction has ended; the row and the
/// server's transaction status show how.
fn settle(
    lost: &PostgresSession,
    resource: &str,
    transaction: &str,
    fence: &Fence,
    error: &Error,
) -> Result<(), PublishError> {
    let (server, progress) = (&lost.server, &lost.progress);
    let lost = format!("The connection to {} was lost while it committed ({})", server.shown(), explained(error));
    let give_up = clock::boot_now() + SETTLE_PATIENCE;
    let (mut session, now) = loop {
        let asked = PostgresSession::begin(server, progress)
            .and_then(|mut session| session.lock(resource).map(|now| (session, now)));
        match asked {
            Ok(asked) => break asked,
            Err(_) if clock::boot_now() < give_up => sleep(SETTLE_PAUSE),
            Err(why) => {
                return Err(PublishError::Failed(format!(
                    "{lost}, and it could not be asked since ({why}). It is NOT KNOWN whether the statements took effect. \
                     Ask it later: SELECT txid_status({transaction})"
                )));
            }
        }
    };
    if now.as_deref() == Some(&text(fence)) {
        return Ok(());
    }
    let status = row(&mut session.client, &format!("SELECT txid_status({transaction})"));
    match status.ok().flatten().and_then(|row| row.get(0).map(str::to_string)).as_deref() {
        Some("committed") => Ok(()),
        Some("aborted") => {
            Err(PublishError::Failed(format!("{lost}. It was asked again: nothing was changed. Publish again.")))
        }
        _ => Err(PublishError::Failed(format!(
            "{lost}, and it does not remember what became of the transaction. It is NOT KNOWN whether the statements took \
             effect; look at the data."
        ))),
    }
}

/// Encloses the statements in one string that the server executes, quoted by a tag that they do not contain.
fn enclosed(statements: &str) -> String {
    let number = (0..).find(|n| !statements.contains(&format!("_{n}$"))).expect("a finite text lacks some number");
    let (block, string) = (format!("$fencepost_do_{number}$"), format!("$fencepost_{number}$"));
    format!("DO {block} BEGIN EXECUTE {string}{statements}\n{string}; END {block}")
}

/// Quotes a string constant that means the same under every setting of `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Returns the last row of the answer.
fn row(client: &mut Client, query: &str) -> Result<Option<SimpleQueryRow>, Error> {
    let rows = client.simple_query(query)?.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(rows.last())
}

fn is_collision(error: &Error) -> bool {
    let collisions = [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];
    error.code().is_some_and(|code| collisions.contains(code))
}

fn at_line(position: Option<&ErrorPosition>) -> String {
    match position {
        Some(ErrorPosition::Internal { position, query }) => {
            let before = query.chars().take(position.saturating_sub(1) as usize);
            format!(", line {}", before.filter(|&c| c == '\n').count() + 1)
        }
        _ => String::new(),
    }
}

fn failed(what: &str, server: &PostgresDestination, error: &Error) -> PublishError {
    PublishError::Failed(format!("Cannot {what} {} ({}); nothing was changed.", server.shown(), explained(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_not_in_the_statements() {
        assert_eq!(
            enclosed("SELECT 1"),
            "DO $fencepost_do_0$ BEGIN EXECUTE $fencepost_0$SELECT 1\n$fencepost_0$; END $fencepost_do_0$"
        );
        assert!(enclosed("$fencepost_0$; COMMIT; $fencepost_1$").contains("EXECUTE $fencepost_2$"));
        assert!(enclosed("$fencepost_do_0$; COMMIT").starts_with("DO $fencepost_do_1$"));
    }

    #[test]
    fn a_literal_means_one_thing() {
        assert_eq!(literal(r"it's \ here"), r"E'it''s \\ here'");
    }
}
