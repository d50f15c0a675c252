//! Databases for the tests of `publish sql`, and what came of a write to them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;

use fencepost_guard::publish::WriteRequest;
use fencepost_guard::publish::sql::Database;
use rusqlite::Connection;
use tempfile::TempDir;

use fencepost_testkit::servers;

pub const TABLES: &str = "CREATE TABLE content (token bigint); INSERT INTO content VALUES (0);";

pub fn set(token: u64) -> String {
    format!("INSERT INTO log (token) VALUES ({token}); UPDATE content SET token = {token};")
}

pub fn of(request: &WriteRequest) -> String {
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
