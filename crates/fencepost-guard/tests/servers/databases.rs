//! Databases for the tests of `publish sql`, and what came of a write to them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;

use fencepost_core::fence::Reason;
use fencepost_guard::publish::sql::Database;
use fencepost_guard::publish::{PublishError, Receipt, Request};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::servers;

pub const TABLES: &str = "CREATE TABLE content (token bigint); INSERT INTO content VALUES (0);";

pub fn set(token: u64) -> String {
    format!("INSERT INTO log (token) VALUES ({token}); UPDATE content SET token = {token};")
}

pub fn of(request: &Request) -> String {
    set(request.writer.token.number())
}

pub fn sqlite_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let log = "CREATE TABLE log (id INTEGER PRIMARY KEY AUTOINCREMENT, token bigint); PRAGMA journal_mode = WAL;";
    Connection::open(&path).unwrap().execute_batch(&format!("{TABLES}{log}")).unwrap();
    (directory, path)
}

pub fn sqlite_number(path: &PathBuf, query: &str) -> u64 {
    Connection::open(path).unwrap().query_row(query, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

pub fn postgres_database(server: &servers::Postgres) -> String {
    let name = server.database();
    let log = "CREATE TABLE log (id bigserial, token bigint);";
    server.client(&name).batch_execute(&format!("{TABLES}{log}")).unwrap();
    name
}

pub fn postgres_number(server: &servers::Postgres, database: &str, query: &str) -> u64 {
    let row = server.client(database).query_one(query, &[]).unwrap();
    row.get::<_, i64>(0).cast_unsigned()
}

pub fn parse(url: &str) -> Database {
    Database::parse(url).unwrap()
}

pub fn refusal(written: Result<Receipt, PublishError>) -> Reason {
    match written {
        Err(PublishError::Refused { refused, .. }) => refused.reason,
        other => panic!("{other:?}"),
    }
}

pub fn failure(written: Result<Receipt, PublishError>) -> String {
    match written {
        Err(PublishError::Failed(text)) => text,
        other => panic!("{other:?}"),
    }
}
