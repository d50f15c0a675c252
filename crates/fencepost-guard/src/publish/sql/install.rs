//! Installs the schema by which a database fences the transactions of programs in any language, and refuses unfenced
//! writes to the tables it protects.

use super::{Database, PublishError, default_resource, postgres, sqlite};

const FUNCTIONS: &str = include_str!("postgres/install.sql");
const NO_FUNCTIONS: &str = include_str!("postgres/uninstall.sql");

/// A change of a database's schema.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The fence that protects the tables (default: the database's).
    pub resource: Option<String>,
    /// The tables to protect, or to stop protecting.
    pub protect: Vec<String>,
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Install,
    /// Removes the protection of the named tables; without a name, removes everything except the fences themselves.
    Uninstall,
}

impl Installation {
    /// Returns the statements, for people to read or to run.
    pub fn statements(&self, database: &Database) -> Result<String, PublishError> {
        let resource = self.resource.clone().unwrap_or_else(|| database.resource());
        match database {
            Database::Postgres(_) => self.for_postgres(&resource),
            Database::Sqlite(path) => {
                let installed = || sqlite::SqliteSession::open(path, true)?.guards();
                self.for_sqlite(&resource, installed)
            }
        }
    }

    /// Changes the schema. Repeating it changes nothing.
    pub fn perform(&self, database: &Database) -> Result<(), PublishError> {
        match database {
            Database::Postgres(server) => {
                let (wanted, own) = (self.clone(), server.clone());
                postgres::within(server, move |progress| {
                    let mut session = postgres::PostgresSession::begin(&own, &progress)?;
                    let resource = wanted.resource.clone().unwrap_or_else(|| default_resource(session.database()));
                    session.execute(&format!("BEGIN;\n{}COMMIT;\n", wanted.for_postgres(&resource)?))
                })
            }
            Database::Sqlite(path) => sqlite::SqliteSession::open(path, false)?.execute(&self.statements(database)?),
        }
    }

    fn for_postgres(&self, resource: &str) -> Result<String, PublishError> {
        let tables = self.tables()?;
        let mut text = match self.action {
            Action::Install => format!("{}\n{FUNCTIONS}", postgres::TABLE),
            Action::Uninstall if tables.is_empty() => NO_FUNCTIONS.to_string(),
            Action::Uninstall => String::new(),
        };
        for table in tables {
            let table = table.quoted();
            text += &format!("\nDROP TRIGGER IF EXISTS fencepost_guard ON {table};\n");
            if self.action == Action::Install {
                text += &format!(
                    "CREATE TRIGGER fencepost_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}\n    \
                     FOR EACH STATEMENT EXECUTE FUNCTION public.fencepost_guard({});\n",
                    postgres::literal(resource)
                );
            }
        }
        Ok(text)
    }

    fn for_sqlite(
        &self,
        resource: &str,
        installed: impl Fn() -> Result<Vec<String>, PublishError>,
    ) -> Result<String, PublishError> {
        let tables = self.tables()?;
        let mut text = if self.action == Action::Install { sqlite::TABLE.to_string() } else { String::new() };
        if self.action == Action::Uninstall && tables.is_empty() {
            for guard in installed()? {
                text += &format!("DROP TRIGGER IF EXISTS main.{};\n", quoted(&guard));
            }
        }
        for table in tables {
            if table.schema.as_deref().is_some_and(|schema| schema != "main") {
                return Err(PublishError::Usage(
                    "--protect reaches the tables of the database itself only.".to_string(),
                ));
            }
            for event in ["insert", "update", "delete"] {
                let guard = quoted(&format!("fencepost_guard_{}_{event}", table.name));
                text += &format!("DROP TRIGGER IF EXISTS main.{guard};\n");
                if self.action == Action::Install {
                    text += &sqlite_guard(&guard, &table.name, event, resource);
                }
            }
        }
        Ok(text)
    }

    fn tables(&self) -> Result<Vec<TableName>, PublishError> {
        self.protect.iter().map(|text| TableName::parse(text)).collect()
    }
}

fn sqlite_guard(guard: &str, table: &str, event: &str, resource: &str) -> String {
    let message = format!("fencepost: {table} is protected: write to it by fencepost publish sql (fence {resource})");
    format!(
        "CREATE TRIGGER main.{guard} BEFORE {} ON {}\n    \
         WHEN NOT EXISTS (SELECT 1 FROM fencepost_fences WHERE resource = {} AND open = 1)\n    \
         BEGIN SELECT RAISE(ABORT, {}); END;\n",
        event.to_uppercase(),
        quoted(table),
        sqlite_literal(resource),
        sqlite_literal(&message)
    )
}

fn sqlite_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A table's name, with or without a schema.
#[derive(Debug, PartialEq, Eq)]
struct TableName {
    schema: Option<String>,
    name: String,
}

impl TableName {
    /// Parses a name by SQL's rules: without quotes it has letters, digits and `_`, and is lower-case.
    fn parse(text: &str) -> Result<Self, PublishError> {
        let wrong = || {
            PublishError::Usage(format!(
                "--protect {text} is not the name of a table: write name, schema.name or \"Name\". Nothing was changed."
            ))
        };
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let (part, after) = identifier(rest).ok_or_else(wrong)?;
            parts.push(part);
            match after.strip_prefix('.') {
                Some(after) => rest = after,
                None if after.is_empty() => break,
                None => return Err(wrong()),
            }
        }
        match (parts.pop(), parts.pop(), parts.pop()) {
            (Some(name), schema, None) => Ok(Self { schema, name }),
            _ => Err(wrong()),
        }
    }

    fn quoted(&self) -> String {
        let schema = self.schema.as_ref().map_or(String::new(), |schema| format!("{}.", quoted(schema)));
        format!("{schema}{}", quoted(&self.name))
    }
}

/// Splits a text into its first identifier and the rest.
fn identifier(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix('"') {
        let (name, after) = rest.split_once('"')?;
        return (!name.is_empty()).then(|| (name.to_string(), after));
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    (!name.is_empty()).then(|| (name.to_lowercase(), after))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_as_in_sql() {
        let table = |text: &str| TableName::parse(text).map(|table| table.quoted()).ok();
        assert_eq!(table("orders").as_deref(), Some("\"orders\""));
        assert_eq!(table("Shop.Orders").as_deref(), Some("\"shop\".\"orders\""));
        assert_eq!(table("shop.\"Odd Name\"").as_deref(), Some("\"shop\".\"Odd Name\""));
        for wrong in ["", ".", "a.", "a.b.c", "a;b", "a b", "\"", "\"\"", "a\"b\""] {
            assert_eq!(table(wrong), None, "{wrong}");
        }
    }
}
