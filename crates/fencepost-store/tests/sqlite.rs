//! The embedded store keeps the contract, keeps its files to itself, and touches nothing that is not its own.

#![cfg(feature = "sqlite")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fencepost_store::{
    Access, Entry, Fate, HostMemory, Key, OpenError, SqliteStore, Store, StoreError, StoreHandle, Trouble, Version,
    conformance,
};
use fencepost_testkit::store::put;
use rusqlite::Connection;
use tempfile::TempDir;

#[test]
fn conforms() {
    let (_directory, path) = place();
    conformance::run(&|| Ok(Box::new(SqliteStore::open(&path)?))).unwrap();
}

#[test]
fn only_the_owner_may_look() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/store.db");
    let url = format!("sqlite:{}", path.display());
    let memory = HostMemory::new(&directory.path().join("a"));
    let store = StoreHandle::new(&url, Access::default()).remembering(memory).open().unwrap();
    put(&*store, &key("a"), None, b"1");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for made in [directory.path().join("a"), directory.path().join("a/b")] {
        assert_eq!(mode(&made), 0o700, "{}", made.display());
    }
    for made in [path.clone(), beside(&path, "-wal"), beside(&path, "-shm")] {
        assert_eq!(mode(&made), 0o600, "{}", made.display());
    }
}

#[test]
fn no_directory_is_created_outside_the_state_directory() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("no/such/store.db").display());
    let memory = HostMemory::new(&directory.path().join("state"));
    let handle = StoreHandle::new(&url, Access::default()).remembering(memory);
    let Err(OpenError::Store(error)) = handle.open() else { panic!("{url} was opened") };
    assert!(error.detail.contains("/no/such/store.db cannot be used"), "{error}");
    assert!(!directory.path().join("no").exists());
}

#[test]
fn a_directory_that_exists_keeps_its_mode() {
    let (directory, path) = place();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    SqliteStore::open(&path).unwrap();
    assert_eq!(fs::metadata(directory.path()).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    type Make = fn(&Path);
    let diary: Make = |path| fs::write(path, b"This is a diary, not a database. ".repeat(200)).unwrap();
    let cases: [(&str, Make); 7] = [
        ("file is not a database", diary),
        ("did not write (SQLite application id 0x0", |path| fs::write(path, b"x").unwrap()),
        ("did not write (SQLite application id 0x0", |path| sql(path, "CREATE TABLE t (x)")),
        ("did not write (SQLite application id 0x2a", |path| sql(path, "PRAGMA application_id=42; CREATE TABLE t (x)")),
        ("did not write (SQLite application id 0x2a", |path| sql(path, "PRAGMA application_id=42; VACUUM")),
        ("newer fencepost", |path| ours(path, "PRAGMA user_version = 2")),
        ("version 0", |path| ours(path, "PRAGMA user_version = 0")),
    ];
    for (found, make) in cases {
        let (_directory, path) = place();
        make(&path);
        let before = fs::read(&path).unwrap();
        let error = SqliteStore::open(&path).unwrap_err();
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
        assert!(error.detail.contains(found), "{found}: {error}");
        assert!(error.detail.contains("backup"), "the next step is named: {error}");
        assert!(fs::read(&path).unwrap() == before, "{found}: the file was changed");
    }
}

#[test]
fn another_programs_log_is_not_emptied() {
    let (_directory, path) = place();
    let other = Connection::open(&path).unwrap();
    other.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    let (database, log) = (fs::read(&path).unwrap(), fs::read(beside(&path, "-wal")).unwrap());
    SqliteStore::open(&path).unwrap_err();
    assert!(fs::read(&path).unwrap() == database && fs::read(beside(&path, "-wal")).unwrap() == log);
}

#[test]
fn a_damaged_store_is_refused_and_not_reset() {
    let (_directory, path) = place();
    ours(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = fs::read(&path).unwrap();
    for byte in &mut bytes[4096..] {
        *byte = 0xa5;
    }
    fs::write(&path, &bytes).unwrap();
    let error = SqliteStore::open(&path).and_then(|store| store.read(&key("a"))).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    let error = SqliteStore::open(&path).and_then(|store| store.swap(&key("a"), None, Some(b"1"))).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_store_without_its_table_is_corrupt() {
    let (_directory, path) = place();
    ours(&path, "DROP TABLE entries");
    let error = SqliteStore::open(&path).unwrap().read(&key("a")).unwrap_err();
    assert_eq!(error.trouble, Trouble::Corrupt, "{error}");
}

#[test]
fn a_trigger_is_refused_and_one_that_comes_later_does_not_run() {
    let trigger =
        "CREATE TRIGGER \"evil\ntrigger\" AFTER INSERT ON entries BEGIN UPDATE entries SET value = x'00'; END";
    let (_directory, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    sql(&path, trigger);
    put(&store, &key("a"), None, b"1");
    assert_eq!(store.read(&key("a")).unwrap().value.unwrap().bytes, b"1", "the trigger ran");
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    assert!(error.detail.contains("evil\\ntrigger") && error.detail.contains("did not create"), "{error}");
    sql(&path, "DROP TRIGGER \"evil\ntrigger\"");
    assert_eq!(SqliteStore::open(&path).unwrap().read(&key("a")).unwrap().value.unwrap().bytes, b"1");
}

#[test]
fn an_empty_file_is_new_unless_a_log_lies_beside_it() {
    let (_directory, path) = place();
    fs::write(&path, b"").unwrap();
    put(&SqliteStore::open(&path).unwrap(), &key("a"), None, b"1");
    fs::write(&path, b"").unwrap();
    let log = fs::read(beside(&path, "-wal")).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!(error.trouble, Trouble::Corrupt, "{error}");
    assert!(fs::read(beside(&path, "-wal")).unwrap() == log, "the log may hold all there is");
}

#[test]
fn a_removed_database_is_noticed() {
    for gone in ["", "-wal"] {
        let (_directory, path) = place();
        let store = SqliteStore::open(&path).unwrap();
        let version = put(&store, &key("a"), None, b"1");
        fs::remove_file(beside(&path, gone)).unwrap();
        unavailable(store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err());
        unavailable(store.read(&key("a")).unwrap_err());
        // Another process has started afresh meanwhile.
        let fresh = SqliteStore::open(&path);
        unavailable(store.swap(&key("b"), None, Some(b"2")).unwrap_err());
        drop(fresh);
    }
}

#[test]
fn a_replaced_database_is_noticed() {
    let (directory, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    put(&store, &key("a"), None, b"1");
    let other = directory.path().join("other.db");
    drop(SqliteStore::open(&other).unwrap());
    fs::rename(&other, &path).unwrap();
    unavailable(store.swap(&key("b"), None, Some(b"2")).unwrap_err());
}

#[test]
fn a_symbolic_link_is_followed_and_a_second_name_refused() {
    let (directory, path) = place();
    let version = put(&SqliteStore::open(&path).unwrap(), &key("a"), None, b"1");
    let link = directory.path().join("link.db");
    symlink(&path, &link).unwrap();
    let store = SqliteStore::open(&link).unwrap();
    put(&store, &key("a"), Some(&version), b"2");
    assert!(!beside(&link, "-wal").exists(), "one log for one database");
    fs::hard_link(&path, directory.path().join("second.db")).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
}

#[test]
fn a_directory_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let error = SqliteStore::open(directory.path()).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
}

#[test]
fn short_lived_processes_keep_the_log_short() {
    let (_directory, path) = place();
    let mut expected = None;
    let mut longest = 0;
    for round in 0..300_u32 {
        let store = SqliteStore::open(&path).unwrap();
        expected = Some(put(&store, &key("a"), expected.as_ref(), &round.to_be_bytes()));
        drop(store);
        longest = longest.max(fs::metadata(beside(&path, "-wal")).unwrap().len());
    }
    assert!(longest <= 32 + 66 * 4120, "{longest} bytes");
    let replayed = frames(&path);
    assert!(replayed <= 66, "{replayed} frames");
    let bytes = 299_u32.to_be_bytes().to_vec();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.read(&key("a")).unwrap().value, expected.map(|version| Entry { bytes, version }));
}

#[test]
fn a_reader_in_the_way_delays_nobody() {
    let (_directory, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut version = put(&store, &key("a"), None, b"1");
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM entries").unwrap();
    let begun = Instant::now();
    for _ in 0..100 {
        version = put(&store, &key("a"), Some(&version), &[0; 4000]);
    }
    assert!(begun.elapsed().as_secs() < 4, "{:?}: a checkpoint waited for the reader", begun.elapsed());
    assert!(fs::metadata(beside(&path, "-wal")).unwrap().len() > 32 + 64 * 4120);
    reader.execute_batch("COMMIT").unwrap();
    put(&store, &key("a"), Some(&version), b"2");
    assert!(fs::metadata(beside(&path, "-wal")).unwrap().len() <= 32 + 96 * 4120, "what came to be too long is cut");
    let live = frames(&path);
    assert!(live <= 5, "{live} frames: the log began anew");
}

/// A store that was replayed by a process of its own, as after a power cut, holds what was committed last, wherever in
/// the file the log began anew.
#[test]
fn what_is_left_of_an_older_log_is_not_replayed() {
    let (_directory, path) = place();
    let copied = path.with_file_name("copied.db");
    let mut version = put(&SqliteStore::open(&path).unwrap(), &key("a"), None, b"first");
    for round in 0..200_u32 {
        let store = SqliteStore::open(&path).unwrap();
        let value = vec![round as u8; 100 + 40 * (round as usize % 7)];
        version = put(&store, &key("a"), Some(&version), &value);
        for end in ["", "-wal"] {
            fs::copy(beside(&path, end), beside(&copied, end)).unwrap();
        }
        let found = SqliteStore::open(&copied).unwrap().read(&key("a")).unwrap().value;
        assert_eq!(found, Some(Entry { bytes: value, version: version.clone() }), "round {round}");
        fs::remove_file(beside(&copied, "-shm")).unwrap();
    }
}

/// Of a long value only those pages are written that change, and none is freed.
#[test]
fn a_long_value_is_written_in_place() {
    let (_directory, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut value = vec![b'x'; 11_000];
    let mut version = put(&store, &key("a"), None, &value);
    for round in 0..5_u8 {
        let before = frames(&path);
        // It grows at its end, as a record does.
        value.extend([round; 100]);
        version = put(&store, &key("a"), Some(&version), &value);
        let written = frames(&path) - before;
        assert!(written <= 2, "{written} frames: the row's page and the last of those that follow");
        assert_eq!(
            store.read(&key("a")).unwrap().value,
            Some(Entry { bytes: value.clone(), version: version.clone() })
        );
    }
    let free: i64 = Connection::open(&path).unwrap().query_row("PRAGMA freelist_count", [], |row| row.get(0)).unwrap();
    assert_eq!(free, 0);
}

#[test]
fn a_value_of_any_length_comes_back_as_it_was() {
    let (_directory, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut version = put(&store, &key("a"), None, b"");
    for length in [0, 1, 899, 900, 901, 4091, 4092, 4093, 8184, 8185, 901, 30_000, 5] {
        let bytes = vec![b' '; length];
        version = put(&store, &key("a"), Some(&version), &bytes);
        let found = store.read(&key("a")).unwrap().value;
        assert_eq!(found, Some(Entry { bytes, version: version.clone() }), "{length} bytes");
    }
}

/// Before long values were filled up, versions said nothing of their length.
#[test]
fn a_long_value_without_a_length_is_as_long_as_it_is() {
    let (_directory, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    put(&store, &key("a"), None, b"");
    let (bytes, version) = (vec![7; 9_000], Version(vec![3; 16]));
    let earlier = Connection::open(&path).unwrap();
    earlier.execute("UPDATE entries SET version = ?1, value = ?2", (&version.0, &bytes)).unwrap();
    assert_eq!(store.read(&key("a")).unwrap().value, Some(Entry { bytes, version: version.clone() }));
    put(&store, &key("a"), Some(&version), &[8; 9_000]);
}

#[test]
fn an_empty_file_that_others_may_write_becomes_a_store_of_its_owner_alone() {
    let (_directory, path) = place();
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    put(&store, &key("a"), None, b"1");
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(fs::metadata(path.with_file_name(name)).unwrap().mode() & 0o777, 0o600, "{name}");
    }
}

/// How much of the log is to be replayed.
fn frames(path: &Path) -> i64 {
    let connection = Connection::open(path).unwrap();
    let _read: i64 = connection.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1)).unwrap()
}

#[test]
fn a_writer_that_does_not_end_is_waited_for_and_named() {
    let (_directory, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let writer = Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(store.read(&key("a")).unwrap().value.is_none(), "readers do not wait");
    let begun = Instant::now();
    unavailable(store.swap(&key("a"), None, Some(b"1")).unwrap_err());
    assert!((4..8).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    writer.execute_batch("ROLLBACK").unwrap();
    put(&store, &key("a"), None, b"1");
}

#[test]
fn a_relative_path_means_the_working_directory_of_now() {
    let name = format!("target-fencepost-relative-{}.db", std::process::id());
    let store = SqliteStore::open(Path::new(&name)).unwrap();
    let whole = std::env::current_dir().unwrap().join(&name);
    assert!(whole.exists());
    assert!(format!("{store:?}").contains(whole.to_str().unwrap()));
    drop(store);
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(beside(&whole, end)).unwrap();
    }
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("store.db");
    (directory, path)
}

fn key(name: &str) -> Key {
    Key::probe("sqlite", name)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", path.display()))
}

fn unavailable(error: StoreError) {
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    assert!(error.detail.contains("store.db") && error.detail.contains("nothing was changed"), "{error}");
}

fn sql(path: &Path, text: &str) {
    Connection::open(path).unwrap().execute_batch(text).unwrap();
}

/// A store of ours that someone has changed.
fn ours(path: &Path, text: &str) {
    put(&SqliteStore::open(path).unwrap(), &key("a"), None, &[1; 9000]);
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(text).unwrap();
    let _ = statement.query([]).unwrap().next().unwrap();
}
