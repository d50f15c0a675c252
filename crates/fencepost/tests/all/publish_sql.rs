//! `fencepost publish sql` from the outside: exit codes, words, and programs that fence their own transactions.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use fencepost_testkit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::{BINARY, Site};

/// A machine with a store and a lease on `report`.
struct Machine {
    site: Site,
    token: String,
}

impl Machine {
    fn new() -> Self {
        let mut machine = Self { site: Site::new(), token: String::new() };
        machine.token = machine.acquire();
        machine
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.env_remove("PGPASSWORD");
        command
    }

    fn acquire(&self) -> String {
        let output = self.command(&["lease", "acquire", "report", "--ttl", "1h"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", words(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }

    fn publish(&self, url: &str, statements: &str, options: &[&str]) -> Output {
        let common = ["publish", "sql", "--url", url, "--job", "report", "--token", &self.token];
        finish(self.command(&common).args(options), statements)
    }
}

fn start(command: &mut Command, input: &str) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that reads no input may have ended by now.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child
}

fn finish(command: &mut Command, input: &str) -> Output {
    start(command, input).wait_with_output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stderr[..], &output.stdout[..]].concat()).into_owned()
}

fn sqlite_database() -> (TempDir, PathBuf, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    std::fs::write(&path, "").unwrap();
    let url = format!("sqlite:{}", path.display());
    let made = Machine::new().publish(&url, "CREATE TABLE content (token)", &["--resource", "schema"]);
    assert_eq!(made.status.code(), Some(0), "{}", words(&made));
    (directory, path, url)
}

fn content(path: &Path) -> String {
    let rows = ask_sqlite(path, "SELECT group_concat(token) FROM content");
    rows.trim().to_string()
}

/// Asks SQLite's own shell, as any other program would.
fn ask_sqlite(path: &Path, statement: &str) -> String {
    let output =
        Command::new("sqlite3").arg(path).arg(statement).output().expect("sqlite3 is missing: apt-get install sqlite3");
    assert!(output.status.success(), "{}", words(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn statements_and_fence_are_one() {
    let (_directory, path, url) = sqlite_database();
    let machine = Machine::new();
    let insert = "INSERT INTO content VALUES (1)";
    let dry = machine.publish(&url, insert, &["--dry-run", "-v"]);
    assert_eq!((dry.status.code(), content(&path).as_str()), (Some(0), ""), "{}", words(&dry));
    assert!(words(&dry).contains("sql:shop.db: would be accepted"), "{}", words(&dry));

    let written = machine.publish(&url, insert, &["--json"]);
    assert_eq!((written.status.code(), content(&path).as_str()), (Some(0), "1"), "{}", words(&written));
    let json = String::from_utf8(written.stdout).unwrap();
    for part in [r#""accepted":true"#, r#""level":"atomic""#, r#""kind":"sql""#, r#""resource":"sql:shop.db""#] {
        assert!(json.contains(part), "{json}");
    }

    // The same job on another store by mistake: the fence knows whose it is.
    let stranger = Machine::new().publish(&url, "INSERT INTO content VALUES (2)", &["--json"]);
    assert_eq!((stranger.status.code(), content(&path).as_str()), (Some(13), "1"), "{}", words(&stranger));
    assert!(words(&stranger).contains("other_lineage"), "{}", words(&stranger));

    for (statements, code) in [("INSERT INTO nowhere VALUES (1)", 125), ("COMMIT; DELETE FROM content", 2), ("", 2)] {
        let output = machine.publish(&url, statements, &[]);
        assert_eq!((output.status.code(), content(&path).as_str()), (Some(code), "1"), "{}", words(&output));
        assert!(words(&output).contains("othing was changed"), "{}", words(&output));
    }
}

#[test]
fn a_run_whose_write_was_refused_ends_as_fenced() {
    let (_directory, path, url) = sqlite_database();
    let owner = Machine::new();
    assert_eq!(owner.publish(&url, "INSERT INTO content VALUES (1)", &[]).status.code(), Some(0));
    let other = Machine::new();
    let script = format!("echo 'DELETE FROM content' | {BINARY} publish sql --url {url}; true");
    let output = finish(&mut other.command(&["run", "cleaner", "-c", &script]), "");
    assert_eq!(output.status.code(), Some(113), "{}", words(&output));
    assert_eq!(content(&path), "1");
    let status = other.command(&["status", "--json"]).output().unwrap();
    assert!(words(&status).contains(r#""refused":1"#), "{}", words(&status));
}

/// Stopped between its check and its commit, the older write still has the database's lock: the newer one follows it.
#[test]
fn a_stopped_writer_is_followed_by_the_newer_one() {
    let (_directory, path, url) = sqlite_database();
    let mut machine = Machine::new();
    let slow = "INSERT INTO content SELECT 'old' FROM (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n \
                WHERE x < 5000000) SELECT max(x) FROM n)";
    let common = ["publish", "sql", "--url", &url, "--job", "report", "--token", &machine.token];
    let old = start(&mut machine.command(&common), slow);
    eventually("the database is locked", || is_locked(&path));
    let pid = Pid::from_raw(old.id().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    let released = machine.command(&["lease", "release", "report", "--token", &machine.token]).output().unwrap();
    assert_eq!(released.status.code(), Some(0), "{}", words(&released));
    machine.token = machine.acquire();
    let common = ["publish", "sql", "--url", &url, "--job", "report", "--token", &machine.token];
    let new = start(&mut machine.command(&common), "UPDATE content SET token = 'new'");
    thread::sleep(Duration::from_millis(300));
    assert!(is_locked(&path), "the stopped writer has let go of the database");
    kill(pid, Signal::SIGCONT).unwrap();
    let (old, new) = (old.wait_with_output().unwrap(), new.wait_with_output().unwrap());
    assert_eq!(old.status.code(), Some(0), "it had the lock first: {}", words(&old));
    assert_eq!(new.status.code(), Some(0), "{}", words(&new));
    assert_eq!(content(&path), "new");
}

fn is_locked(path: &Path) -> bool {
    let output = Command::new("sqlite3").arg(path).arg("BEGIN IMMEDIATE; ROLLBACK").output().expect("sqlite3");
    words(&output).contains("locked")
}

fn psql(url: &str, statements: &str) -> Output {
    let mut psql = Command::new("psql");
    finish(psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-d", url]), statements)
}

#[test]
fn a_program_fences_its_own_transaction() {
    let server = fencepost_testkit::servers::Postgres::shared();
    let database = server.database();
    let url = server.url(&database);
    assert!(psql(&url, "CREATE TABLE orders (n int)").status.success());
    let machine = Machine::new();
    let install = |options: &[&str]| {
        machine.command(&["publish", "sql", "--url", &url]).args(options).stdin(Stdio::null()).output().unwrap()
    };
    let shown = install(&["--install", "--protect", "orders", "--dry-run"]);
    assert_eq!(shown.status.code(), Some(0), "{}", words(&shown));
    assert!(psql(&url, "SELECT 'fencepost_fences'::regclass").status.code() != Some(0), "a dry run made a table");
    // What is shown is what does it, and doing it again changes nothing.
    let by_hand = psql(&url, &String::from_utf8(shown.stdout).unwrap());
    assert!(by_hand.status.success(), "{}", words(&by_hand));
    let again = install(&["--install", "--protect", "orders"]);
    assert_eq!(again.status.code(), Some(0), "{}", words(&again));

    let unfenced = psql(&url, "INSERT INTO orders VALUES (1)");
    assert!(words(&unfenced).contains("ZF006") && words(&unfenced).contains("protected"), "{}", words(&unfenced));

    let script = format!(
        "psql -X -q -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -d '{url}' -c \"BEGIN; SELECT fencepost_check('sql:{database}', \
         '$FENCEPOST_STORE_ID', '$FENCEPOST_JOB', $FENCEPOST_TOKEN, '$FENCEPOST_RUN'); INSERT INTO orders VALUES (2); COMMIT\""
    );
    let fenced = finish(&mut machine.command(&["run", "import", "-c", &script]), "");
    assert_eq!(fenced.status.code(), Some(0), "{}", words(&fenced));
    // Another store's run of the same job is refused by the function as well.
    let stranger = finish(&mut Machine::new().command(&["run", "import", "-c", &script]), "");
    assert_ne!(stranger.status.code(), Some(0));
    assert!(words(&stranger).contains("ZF004"), "{}", words(&stranger));

    let removed = install(&["--uninstall"]);
    assert_eq!(removed.status.code(), Some(0), "{}", words(&removed));
    assert!(psql(&url, "INSERT INTO orders VALUES (3)").status.success());
}

#[test]
fn a_password_is_seen_by_nobody() {
    let server = fencepost_testkit::servers::Postgres::shared();
    let database = server.database();
    let url = server.url(&database);
    let secret = url.replace("fencepost@", "fencepost:s3cret@");
    let machine = Machine::new();
    let named = ["publish", "sql", "--job", "report", "--token", &machine.token, "-v"];
    let written = finish(machine.command(&named).env("FENCEPOST_SQL_URL", &secret), "SELECT 1");
    assert_eq!(written.status.code(), Some(0), "{}", words(&written));
    let gone = secret.replace(&format!(":{}/", server.port), ":1/");
    let failed = finish(machine.command(&named).env("FENCEPOST_SQL_URL", gone), "SELECT 1");
    assert_eq!(failed.status.code(), Some(125), "{}", words(&failed));
    let typed = machine.publish(&secret, "SELECT 1", &[]);
    assert!(words(&typed).contains("FENCEPOST_SQL_URL"), "{}", words(&typed));
    let status = machine.command(&["status", "--json"]).output().unwrap();
    for output in [written, failed, typed, status] {
        assert!(!words(&output).contains("s3cret"), "{}", words(&output));
    }
    let nowhere = finish(&mut machine.command(&named), "SELECT 1");
    assert_eq!(nowhere.status.code(), Some(2), "{}", words(&nowhere));
}
