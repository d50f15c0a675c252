//! PostgreSQL: one table, and one round trip per call.
//!
//! A call is one message of the simple query protocol that contains several statements. The server runs them as one
//! transaction: time limits apply to this call alone, and nothing stays set in the session, which makes a pooler in
//! transaction mode safe. Under `READ COMMITTED` each statement sees everything that was committed before it began. The
//! last statement, which reports the current entry, therefore sees the changes that the swap before it waited for.
//!
//! The clock is the server's `clock_timestamp()`, in one era for ever. After a failover the new server's clock is
//! compared with readings of the old one's: a clock that is behind ends a lease later, never earlier, and the fence
//! protects against one that is ahead. A separate era for each server would end every lease at once.

mod connection;
mod failure;
mod server;
mod text;

pub use failure::explained;
pub use server::PostgresServer;

use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use crate::declared::{Declaring, Property, Soundness};
use crate::pool::Pool;
use crate::transport::refused;
use crate::{
    Answer, Entry, Era, Fate, Key, OpenError, SCAN_KEYS_MAX, Secret, Store, StoreClock, StoreError, Swapped, Version,
    Wall, fresh_version, refuse_unsound,
};
use connection::PostgresConnection;
use failure::{Making, PostgresFailure};
use text::{bytes, from_hex, identifier, literal};

/// The server's own time limit. The server gives up before its client does, and then has certainly changed nothing.
const SERVER_PATIENCE_MS: u64 = 8_000;

/// The value under the empty key, which fencepost uses for nothing else. A table without it was emptied, not just
/// created.
const LAYOUT: &str = "fencepost store, layout 1";

const TABLE: &str = "fencepost_entries";

/// A table in a database that any number of machines reach.
#[derive(Debug)]
pub struct PostgresStore {
    server: PostgresServer,
    own: Own,
    idle: Pool<PostgresConnection>,
    /// Creates a missing table.
    makes_table: bool,
}

impl PostgresStore {
    /// Parses the URL. Sends nothing before the first call.
    pub fn open(url: &str, password: Option<&Secret>) -> Result<Self, OpenError> {
        let (url, own) = split_own(url).map_err(|text| usage(&text))?;
        let server = PostgresServer::parse(&url, password).map_err(|text| usage(&text))?;
        server.must_be_private().map_err(refused)?;
        Ok(Self { server, own, idle: Pool::new(), makes_table: true })
    }

    /// Creates no table: if it is missing, reads find nothing and swaps fail. A role that may only read can read.
    pub fn without_making(self) -> Self {
        Self { makes_table: false, ..self }
    }

    /// Returns the table's name, quoted for a statement.
    fn table(&self) -> String {
        format!("{}.{TABLE}", identifier(&self.own.schema))
    }

    /// Returns the condition under which a swap may happen at all. The swap's own statement checks it, because a server
    /// may be promoted, demoted or reconfigured at any time.
    fn is_sound(&self) -> String {
        let flushes = if self.own.is_flushed_elsewhere { "true" } else { "current_setting('fsync') = 'on'" };
        format!(
            "NOT pg_is_in_recovery() AND current_setting('synchronous_commit') <> 'off' AND {flushes} \
             AND EXISTS (SELECT 1 FROM {} WHERE key = '' AND value = {})",
            self.table(),
            bytes(LAYOUT.as_bytes())
        )
    }

    /// Returns the statement that reports the columns of [`ServerAndKey`]. It also reads the clock, after any lock that
    /// an earlier statement has waited for.
    fn state(&self, key: &str) -> String {
        let table = self.table();
        format!(
            "SELECT {FACTS}, (SELECT encode(value, 'hex') FROM {table} WHERE key = ''), encode(e.version, 'hex'), \
             encode(e.value, 'hex') FROM (VALUES (1)) one LEFT JOIN {table} e ON e.key = {}",
            literal(key)
        )
    }

    /// Returns the statement that swaps, if there is anything to change.
    fn change(&self, key: &Key, expected: Option<&Version>, new: Option<(&Version, &[u8])>) -> Option<String> {
        let (table, sound, key) = (self.table(), self.is_sound(), literal(key.as_str()));
        let is_expected = |version: &Version| format!("key = {key} AND version = {} AND {sound}", bytes(&version.0));
        Some(match (expected, new) {
            (None, None) => return None,
            // If the key exists, the statement locks its row without changing it: the row still exists when it is
            // reported.
            (None, Some((version, value))) => format!(
                "INSERT INTO {table} AS e (key, version, value) SELECT {key}, {}, {} WHERE {sound} \
                 ON CONFLICT (key) DO UPDATE SET key = e.key WHERE false",
                bytes(&version.0),
                bytes(value)
            ),
            (Some(expected), Some((version, value))) => format!(
                "UPDATE {table} SET version = {}, value = {} WHERE {}",
                bytes(&version.0),
                bytes(value),
                is_expected(expected)
            ),
            (Some(expected), None) => format!("DELETE FROM {table} WHERE {}", is_expected(expected)),
        })
    }

    /// Sends a call that changes nothing. Sends it again if an idle connection turned out to be dead. `None` if there
    /// is no table and none is created.
    fn look(&self, statement: &str) -> Result<Option<Vec<SimpleQueryMessage>>, StoreError> {
        let message = format!("{}{statement}", limits());
        let answer = match self.send(&message) {
            Err(PostgresFailure::Lost { idle: true, .. }) => self.send(&message),
            Err(failure) if failure.lacks_table() && !self.makes_table => return Ok(None),
            Err(failure) if failure.lacks_table() => self.make_table().and_then(|()| self.send(&message)),
            answer => answer,
        };
        answer.map(Some).map_err(|failure| failure.of_read(self))
    }

    /// Sends a swap, once. A swap that found no table did nothing, and counts as not sent.
    fn tell(&self, statement: &str) -> Result<Vec<SimpleQueryMessage>, StoreError> {
        let message = format!("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {}{statement}", limits());
        let answer = match self.send(&message) {
            Err(failure) if failure.lacks_table() && self.makes_table => match self.make_table() {
                Ok(()) => self.send(&message),
                Err(failure) => return Err(failure.of_read(self)),
            },
            answer => answer,
        };
        answer.map_err(|failure| failure.of_swap(self))
    }

    fn send(&self, message: &str) -> Result<Vec<SimpleQueryMessage>, PostgresFailure> {
        let (connection, idle) = match self.idle.take().filter(PostgresConnection::is_open) {
            Some(connection) => (connection, true),
            None => (PostgresConnection::make(&self.server)?, false),
        };
        let answer = connection.ask(message, idle)?;
        self.idle.give_back(connection);
        Ok(answer)
    }

    /// Creates the table. Of several processes at once one creates it, and the others find it.
    fn make_table(&self) -> Result<(), PostgresFailure> {
        let message = format!("{}SELECT pg_advisory_xact_lock(7310593858020254323); {}", limits(), self.making(false));
        self.send(&message).map(|_| ()).map_err(|failure| match failure {
            PostgresFailure::Said(error) => PostgresFailure::Making(Making { error, statements: self.making(true) }),
            other => other,
        })
    }

    /// Returns the statements that create the table; with `by_hand`, in the form that an administrator runs.
    fn making(&self, by_hand: bool) -> String {
        let (schema, table) = (identifier(&self.own.schema), self.table());
        let make_schema = if by_hand {
            format!("CREATE SCHEMA IF NOT EXISTS {schema};\n")
        } else {
            // `CREATE SCHEMA IF NOT EXISTS` needs the right to create one even if the schema exists.
            let create = literal(&format!("CREATE SCHEMA {schema}"));
            format!(
                "DO $$BEGIN IF to_regnamespace({}) IS NULL THEN EXECUTE {create}; END IF; END$$;\n",
                literal(&schema)
            )
        };
        let layout = bytes(LAYOUT.as_bytes());
        let mut statements = format!(
            "{make_schema}CREATE TABLE IF NOT EXISTS {table} (key text COLLATE \"C\" PRIMARY KEY, version bytea NOT NULL, \
             value bytea NOT NULL);\n\
             INSERT INTO {table} (key, version, value) SELECT '', '', {layout} WHERE NOT EXISTS (SELECT 1 FROM {table});\n"
        );
        if by_hand {
            let role = identifier(self.server.config().get_user().unwrap_or_default());
            statements.push_str(&format!(
                "GRANT USAGE ON SCHEMA {schema} TO {role};\nGRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role};\n"
            ));
        }
        statements
    }

    /// Returns the report of the last statement, if the server is fit to hold leases.
    fn checked(&self, messages: &[SimpleQueryMessage]) -> Result<ServerAndKey, StoreError> {
        let row = rows(messages).last().ok_or_else(|| self.foreign("it gave no answer"))?;
        let state = ServerAndKey::of(row).ok_or_else(|| self.foreign("its answer was not understood"))?;
        self.refuse_unfit(&state)?;
        Ok(state)
    }
}

impl Store for PostgresStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let Some(messages) = self.look(&self.state(key.as_str()))? else {
            return Ok(Answer::new(None, None));
        };
        let state = self.checked(&messages)?;
        Ok(Answer::new(state.entry, Some(state.clock)))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        let version = new.map(|_| fresh_version()).transpose()?;
        let Some(change) = self.change(key, expected, version.as_ref().zip(new)) else {
            let found = self.read(key)?;
            let value = if found.value.is_none() { Swapped::Won(None) } else { Swapped::Lost(found.value) };
            return Ok(Answer::new(value, found.clock));
        };
        let messages = self.tell(&format!("{change}; {}", self.state(key.as_str())))?;
        let changed = changed_rows(&messages) == 1;
        let state = rows(&messages).last().and_then(ServerAndKey::of).ok_or_else(|| {
            let fate = if changed { Fate::Unknown } else { Fate::NotDone };
            StoreError { fate, ..self.foreign("its answer was not understood") }
        })?;
        if changed {
            // The statement that changed the row has checked that the server is fit.
            return Ok(Answer::new(Swapped::Won(version), Some(state.clock)));
        }
        self.refuse_unfit(&state)?;
        Ok(Answer::new(Swapped::Lost(state.entry), Some(state.clock)))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let (table, prefix) = (self.table(), literal(prefix));
        // Keys are ASCII, so the greatest character bounds the keys with a prefix from above.
        let statement = format!(
            "{}; SELECT key FROM {table} WHERE key > {} AND key >= {prefix} AND key < {prefix} || chr(1114111) \
             ORDER BY key LIMIT {}",
            self.state(""),
            literal(after.map_or("", Key::as_str)),
            limit.min(SCAN_KEYS_MAX)
        );
        let Some(messages) = self.look(&statement)? else { return Ok(Answer::new(Vec::new(), None)) };
        let mut rows = rows(&messages);
        let state =
            rows.next().and_then(ServerAndKey::of).ok_or_else(|| self.foreign("its answer was not understood"))?;
        self.refuse_unfit(&state)?;
        let sound = |row: &SimpleQueryRow| {
            let text = row.get(0).unwrap_or_default();
            Key::from_stored(text).ok_or_else(|| self.foreign(&format!("it holds the key {text:?}")))
        };
        Ok(Answer::new(rows.map(sound).collect::<Result<_, _>>()?, Some(state.clock)))
    }
}

impl Declaring for PostgresStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        let names = ["synchronous_commit", "fsync", "full_page_writes", "synchronous_standby_names"];
        let settings: Vec<String> = names.iter().map(|name| format!("current_setting('{name}')")).collect();
        let messages = self.look(&format!("{}; SELECT {}", self.state(""), settings.join(", ")))?.unwrap_or_default();
        self.refuse_unfit(
            &rows(&messages).next().and_then(ServerAndKey::of).ok_or_else(|| self.foreign("it gave no answer"))?,
        )?;
        let row = rows(&messages).last().ok_or_else(|| self.foreign("it gave no answer"))?;
        let said = |number: usize| row.get(number).unwrap_or_default();
        let pages = if said(2) == "on" { Soundness::Sound } else { Soundness::Weak };
        let standbys = if said(3).is_empty() {
            Property::new(
                "replication",
                Soundness::Weak,
                "No replica confirms a commit (synchronous_standby_names is empty). A failover to a replica that lags \
                 forgets the last swaps; tokens go on from the new server's clock, and the fence refuses what is older.",
            )
        } else {
            let detail = format!("A commit waits for replicas (synchronous_standby_names = {}).", said(3));
            Property::new("replication", Soundness::Sound, detail)
        };
        let durability = if self.own.is_flushed_elsewhere {
            let detail = format!("The URL says that the log is kept elsewhere (fsync = {} here).", said(1));
            Property::new("durability", Soundness::Unknown, detail)
        } else {
            let settings = format!("fsync = {}, synchronous_commit = {}", said(1), said(0));
            let detail = format!("A commit is flushed before it is answered ({settings}).");
            Property::new("durability", Soundness::Sound, detail)
        };
        Ok(vec![
            durability,
            Property::new("torn pages", pages, format!("full_page_writes = {}.", said(2))),
            standbys,
            Property::new(
                "clock",
                Soundness::Weak,
                "Leases are judged by the server's wall clock. One that is set forward ends them early; the fence refuses \
                 the late writes.",
            ),
            self.server.transport().declared(),
        ])
    }
}

/// The first four columns of [`ServerAndKey`].
const FACTS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_is_in_recovery(), \
                     current_setting('synchronous_commit'), current_setting('fsync')";

/// The state of the server and the key.
struct ServerAndKey {
    clock: StoreClock,
    in_recovery: bool,
    synchronous_commit: String,
    fsync: String,
    layout: Option<String>,
    entry: Option<Entry>,
}

impl ServerAndKey {
    fn of(row: &SimpleQueryRow) -> Option<Self> {
        let millis: i64 = row.try_get(0).ok()??.parse().ok()?;
        let entry = match (row.try_get(5).ok()?, row.try_get(6).ok()?) {
            (Some(version), Some(value)) => {
                Some(Entry { bytes: from_hex(value)?, version: Version(from_hex(version)?) })
            }
            _ => None,
        };
        let layout = row.try_get(4).ok()?.and_then(from_hex);
        Some(Self {
            clock: StoreClock { wall: Wall(millis), era: Era("unix".to_string()), tick: u64::try_from(millis).ok()? },
            in_recovery: row.get(1) != Some("f"),
            synchronous_commit: row.get(2)?.to_string(),
            fsync: row.get(3)?.to_string(),
            layout: layout.map(|layout| String::from_utf8_lossy(&layout).into_owned()),
            entry,
        })
    }
}

/// Sets the limits for this call alone.
fn limits() -> String {
    format!("SET LOCAL statement_timeout = {SERVER_PATIENCE_MS}; ")
}

fn rows(messages: &[SimpleQueryMessage]) -> impl DoubleEndedIterator<Item = &SimpleQueryRow> {
    messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

/// Returns how many rows the swap changed, from the last statement but one.
fn changed_rows(messages: &[SimpleQueryMessage]) -> u64 {
    let mut counts = messages.iter().rev().filter_map(|message| match message {
        SimpleQueryMessage::CommandComplete(count) => Some(*count),
        _ => None,
    });
    counts.nth(1).unwrap_or(0)
}

/// The parameters of the URL that the driver does not know.
#[derive(Debug, PartialEq, Eq)]
struct Own {
    schema: String,
    /// The service keeps its log on other machines, and therefore does not flush it on this one.
    is_flushed_elsewhere: bool,
}

/// Takes fencepost's own parameters out of the URL. Refuses a schema that is no plain name.
fn split_own(url: &str) -> Result<(String, Own), String> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let mut own = Own { schema: "public".to_string(), is_flushed_elsewhere: false };
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("schema", name)) => own.schema = name.to_string(),
            Some(("flush", "elsewhere")) => own.is_flushed_elsewhere = true,
            Some(("flush", _)) => return Err("flush= knows one word, elsewhere.".to_string()),
            _ => kept.push(pair),
        }
    }
    let plain = |b: u8| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-');
    if own.schema.is_empty() || own.schema.len() > 63 || !own.schema.bytes().all(plain) {
        return Err("schema= names a schema of 1 to 63 letters, digits and the signs _ -.".to_string());
    }
    let url = if kept.is_empty() { place.to_string() } else { format!("{place}?{}", kept.join("&")) };
    Ok((url, own))
}

fn usage(text: &str) -> OpenError {
    OpenError::Usage(format!("The URL of the store: {text} It is written like postgres://user@host/database."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_parameters_are_taken_from_the_url() {
        let split = |url: &str| split_own(url).ok();
        let own = |schema: &str, is_flushed_elsewhere| Own { schema: schema.to_string(), is_flushed_elsewhere };
        assert_eq!(split("postgres://h/d"), Some(("postgres://h/d".to_string(), own("public", false))));
        let named = split("postgres://h/d?a=b&schema=ops-1&c=d&flush=elsewhere").unwrap();
        assert_eq!(named, ("postgres://h/d?a=b&c=d".to_string(), own("ops-1", true)));
        for wrong in ["schema=", "schema=a%20b", "schema=a\"b", "schema=a.b", "flush=no"] {
            assert_eq!(split(&format!("postgres://h/d?{wrong}")), None, "{wrong}");
        }
    }
}
