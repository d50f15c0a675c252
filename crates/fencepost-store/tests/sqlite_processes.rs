//! The embedded store among processes: many at once, killed ones, ones without permission.
//!
//! The other processes are this very test binary, started again for one test that does nothing unless it has a role.

#![cfg(feature = "sqlite")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write, stdout};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fencepost_store::{Fate, Key, SqliteStore, Store, StoreError, Swapped, Trouble, Version};
use tempfile::TempDir;

const ROLE: &str = "FENCEPOST_TEST_ROLE";
const PLACE: &str = "FENCEPOST_TEST_PLACE";

#[test]
fn many_processes_make_one_store() {
    for _ in 0..3 {
        let (_directory, path) = place();
        let path = path.join("store.db");
        let started: Vec<Child> = (0..32).map(|_| start("create", &path)).collect();
        let said: Vec<String> = started.into_iter().flat_map(said).collect();
        assert_eq!(said.len(), 32, "{said:?}");
        let won = said.iter().filter(|line| *line == "won").count();
        let lost = said.iter().filter(|line| *line == "lost").count();
        assert_eq!((won, lost), (1, 31), "{said:?}");
    }
}

#[test]
fn no_acknowledged_swap_is_lost_to_kill_9() {
    let (_directory, path) = place();
    let path = path.join("store.db");
    let mut acknowledged = 0;
    for round in 0..30 {
        let mut child = start("count", &path);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        for line in lines.by_ref().filter_map(|line| heard(&line)).take(5 + round * 3) {
            acknowledged = line.parse().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it could still say before it died.
        if let Some(line) = lines.filter_map(|line| heard(&line)).last() {
            acknowledged = line.parse().unwrap();
        }
        let (found, _) = number(&SqliteStore::open(&path).unwrap());
        assert!(found == acknowledged || found == acknowledged + 1, "round {round}: {found}, told {acknowledged}");
        acknowledged = found;
    }
    assert!(acknowledged > 30 * 5, "{acknowledged}");
    let sound: String =
        rusqlite::Connection::open(&path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn without_permission_nothing_is_done() {
    let (directory, path) = place();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let path = path.join("store.db");
    drop(SqliteStore::open(&path).unwrap());
    // An absent store in a directory that may not be written, one that may not be read, and one that may only be read.
    let absent = directory.path().join("absent.db");
    refused_as_nobody(&absent);
    refused_as_nobody(&path);
    for end in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{}{end}", path.display()));
        fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    }
    refused_as_nobody(&path);
    assert!(!absent.exists());
    assert!(SqliteStore::open(&path).unwrap().read(&key()).unwrap().value.is_none());
}

/// One flush of the log, and one of the directory because the process has just opened the log.
#[test]
fn a_process_flushes_twice_for_its_swap() {
    let (_directory, path) = place();
    let (path, report) = (path.join("store.db"), path.join("report"));
    // The first swap into an empty log flushes the log's header too.
    SqliteStore::open(&path).unwrap().swap(&Key::probe("processes", "other"), None, Some(b"1")).unwrap();
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=fsync,fdatasync", "-o"]).arg(&report).arg(std::env::current_exe().unwrap());
    let status = with_role(&mut traced, "create", &path).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.expect("strace is missing; on Debian: apt-get install strace");
    assert!(status.success(), "strace may not trace here: {status}");
    let report = fs::read_to_string(report).unwrap();
    let flushes = report.lines().filter(|line| line.contains("sync(")).count();
    assert_eq!(flushes, 2, "{report}");
}

/// A container in a time namespace shares the boot but not the reading of its clock; its store's clock is the same.
#[test]
fn a_time_namespace_does_not_move_the_clock() {
    let (_directory, path) = place();
    let path = path.join("store.db");
    let here = tick(&path);
    let mut command = Command::new("unshare");
    command.args(["--time", "--boottime", "100000", "--fork"]).arg(std::env::current_exe().unwrap());
    let child = with_role(&mut command, "clock", &path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Some(there) = child.ok().and_then(|child| said(child).pop()) else {
        eprintln!("not tested: time namespaces are not here, or not ours to make (unshare --time needs root)");
        return;
    };
    let there: u64 = there.parse().unwrap();
    assert!((here..here + 60_000).contains(&there), "{here} and {there}");
}

/// What the other processes do. It does nothing in an ordinary run.
#[test]
fn role() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(PLACE)) else { return };
    let path = Path::new(&path);
    match role.as_str() {
        "create" => create(path),
        "count" => count(path),
        "clock" => say(&tick(path).to_string()),
        "refused" => say(&format!("{:?}", refusal(path))),
        other => panic!("{other}"),
    }
}

fn create(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    match store.swap(&key(), None, Some(b"0")).unwrap().value {
        Swapped::Won(_) => say("won"),
        Swapped::Lost(Some(_)) => say("lost"),
        Swapped::Lost(None) => say("lost to nothing"),
    }
}

/// Counts up for ever, a process's whole life for every tenth number, and says each number that was won.
fn count(path: &Path) {
    loop {
        let store = SqliteStore::open(path).unwrap();
        for _ in 0..10 {
            let (current, expected) = number(&store);
            let next = (current + 1).to_string();
            let ended = store.swap(&key(), expected.as_ref(), Some(next.as_bytes())).unwrap().value;
            assert!(matches!(ended, Swapped::Won(_)), "{ended:?}");
            say(&next);
        }
    }
}

fn tick(path: &Path) -> u64 {
    SqliteStore::open(path).unwrap().read(&key()).unwrap().clock.unwrap().tick
}

fn refusal(path: &Path) -> Option<(Fate, Trouble)> {
    let result: Result<_, StoreError> = SqliteStore::open(path).and_then(|store| store.swap(&key(), None, Some(b"1")));
    result.err().map(|error| (error.fate, error.trouble))
}

fn refused_as_nobody(path: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Only root may become another user; for everyone else the permissions count as they are.
    if fs::metadata(path.parent().unwrap()).unwrap().uid() == 0 {
        command.uid(65534).gid(65534);
    }
    let child = with_role(&mut command, "refused", path).stdout(Stdio::piped()).spawn();
    let Ok(child) = child else { return };
    let expected = format!("{:?}", Some((Fate::NotDone, Trouble::Refused)));
    assert_eq!(said(child), [expected], "{}", path.display());
}

fn number(store: &SqliteStore) -> (usize, Option<Version>) {
    match store.read(&key()).unwrap().value {
        Some(entry) => (String::from_utf8(entry.bytes).unwrap().parse().unwrap(), Some(entry.version)),
        None => (0, None),
    }
}

fn start(role: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    with_role(&mut command, role, path).stdout(Stdio::piped()).spawn().unwrap()
}

fn with_role<'a>(command: &'a mut Command, role: &str, path: &Path) -> &'a mut Command {
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(ROLE, role).env(PLACE, path)
}

fn said(child: Child) -> Vec<String> {
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().filter_map(heard).collect()
}

/// The test harness speaks on the same line and stream.
fn heard(line: &str) -> Option<String> {
    line.split_once("says: ").map(|(_, said)| said.to_string())
}

fn say(text: &str) {
    let mut out = stdout().lock();
    out.write_all(format!("\nsays: {text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn key() -> Key {
    Key::probe("processes", "counter")
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}
