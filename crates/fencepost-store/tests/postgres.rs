//! The PostgreSQL store keeps the contract, on a real server: through crashes, over a bad network, and behind a pooler.

#![cfg(feature = "postgres")]

use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_core::lease;
use fencepost_core::record::Until;
use fencepost_store::postgres::PostgresStore;
use fencepost_store::{Access, Entry, Fate, Key, OpenError, Secret, Soundness, Store, Swapped, Trouble, conformance};
use fencepost_testkit::network::{Proxy, Weather, free_port};
use fencepost_testkit::race::{race, wait_for_lines};
use fencepost_testkit::servers::{self, Postgres};
use fencepost_testkit::store::{declared, open_with, put, refused};

/// The servers of the other tests do not flush, and this store would refuse them.
const SETTINGS: &[&str] = &["fsync=on", "max_connections=200"];

/// The server of the tests that neither stop nor change it.
fn shared() -> Arc<Postgres> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Postgres::start(SETTINGS));
        *shared = Arc::downgrade(&server);
        server
    })
}

#[test]
fn conforms() {
    let server = shared();
    let url = server.url(&server.database());
    conformance::run(&|| Ok(Box::new(store(&url)))).unwrap();
}

#[test]
fn conforms_behind_a_pooler_in_transaction_mode() {
    let server = shared();
    let pooler = Pooler::start(&server);
    let url = format!("postgres://fencepost@127.0.0.1:{}/{}?sslmode=disable", pooler.port, server.database());
    conformance::run(&|| Ok(Box::new(store(&url)))).unwrap();
}

#[test]
fn one_round_trip_per_call_and_nothing_but_plain_queries() {
    let server = shared();
    let proxy = Proxy::start(server.port);
    let store = store(&through(&proxy, &server.database()));
    put(&store, &key("a"), None, b"0");
    let _ = proxy.spoken();
    let before = proxy.messages();
    let mut version = store.read(&key("a")).unwrap().value.unwrap().version;
    for _ in 0..10 {
        version = put(&store, &key("a"), Some(&version), &[7; 60_000]);
        store.read(&key("a")).unwrap();
        store.swap(&key("a"), None, Some(b"lost")).unwrap();
        store.scan("probe/", None, 10).unwrap();
    }
    assert_eq!(proxy.messages() - before, 1 + 10 * 4, "round trips");
    let kinds = message_kinds(&proxy.spoken());
    assert!(kinds.iter().all(|kind| *kind == b'Q'), "{kinds:?}");
    assert_eq!(kinds.len(), 1 + 10 * 4);
}

#[test]
fn nothing_acknowledged_is_lost_over_a_bad_network() {
    let server = shared();
    let (proxy, database) = (Proxy::start(server.port), server.database());
    let referee = store(&server.url(&database));
    let url = through(&proxy, &database);
    proxy.set(Weather::Foul);
    let tally = race(&|| Box::new(store(&url)), &referee, &key("lines"), 8, 12);
    assert!(tally.won > 20 && tally.unknown > 10 && tally.happened > 2, "{tally:?}");
    assert!(tally.unknown > tally.happened, "{tally:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let mut server = Postgres::start(SETTINGS);
    let url = server.url(&server.database());
    let tally = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&|| Box::new(store(&url)), &store(&url), &key("lines"), 6, 60));
        for lines in [60, 180] {
            wait_for_lines(&store(&url), &key("lines"), lines);
            server.kill_and_restart();
        }
        racing.join().unwrap()
    });
    assert!(tally.won > 50 && tally.not_done + tally.unknown > 0, "{tally:?}");
    conformance::checks()
        .filter(|check| !check.slow)
        .for_each(|check| check.run(&|| Ok(Box::new(store(&url)))).unwrap());
}

#[test]
fn a_server_that_says_nothing_does_not_hold_a_call_for_ever() {
    let server = shared();
    let (proxy, database) = (Proxy::start(server.port), server.database());
    let store = store(&through(&proxy, &database));
    let version = put(&store, &key("a"), None, b"1");
    proxy.set(Weather::Silent);
    let begun = Instant::now();
    let error = store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Unavailable), "{error}");
    let error = store.read(&key("a")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    assert!(
        (14..=60).contains(&begun.elapsed().as_secs()),
        "10 s for the answer, 5 s to connect: {:?}",
        begun.elapsed()
    );
    proxy.set(Weather::Fair);
    assert!(store.read(&key("a")).unwrap().value.is_some(), "it reconnects");
}

#[test]
fn a_lock_that_is_held_for_long_is_waited_for_and_then_certainly_not_done() {
    let server = shared();
    let database = server.database();
    let store = store(&server.url(&database));
    let version = put(&store, &key("a"), None, b"1");
    let mut other = server.client(&database);
    other.batch_execute("BEGIN; SELECT 1 FROM fencepost_entries FOR UPDATE").unwrap();
    assert!(store.read(&key("a")).unwrap().value.is_some(), "readers do not wait");
    let error = store.swap(&key("a"), Some(&version), Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    assert!(error.detail.contains("pg_stat_activity"), "{error}");
    other.batch_execute("ROLLBACK").unwrap();
    put(&store, &key("a"), Some(&version), b"2");
}

#[test]
fn a_role_that_may_not_make_tables_is_told_what_to_run() {
    let server = shared();
    let database = server.database();
    server.client(&database).batch_execute("CREATE ROLE \"job-runner\" LOGIN").unwrap();
    let url = format!("postgres://job-runner@127.0.0.1:{}/{database}?sslmode=disable&schema=ops", server.port);
    let store = store(&url);
    for error in [store.read(&key("a")).unwrap_err(), store.swap(&key("a"), None, Some(b"1")).unwrap_err()] {
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
        assert!(error.detail.contains("once:\nCREATE SCHEMA IF NOT EXISTS \"ops\""), "{error}");
    }
    let error = store.read(&key("a")).unwrap_err().detail;
    let statements = error.split_once("once:\n").unwrap().1;
    server.client(&database).batch_execute(statements).unwrap();
    put(&store, &key("a"), None, b"1");
    conformance::checks()
        .filter(|check| !check.slow)
        .for_each(|check| check.run(&|| Ok(Box::new(self::store(&url)))).unwrap());
    // A right is taken away again.
    server.client(&database).batch_execute("REVOKE UPDATE ON ops.fencepost_entries FROM \"job-runner\"").unwrap();
    let error = store.swap(&key("b"), None, Some(b"1")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
    assert!(error.detail.contains("GRANT SELECT, INSERT, UPDATE, DELETE"), "{error}");
}

#[test]
fn a_replica_is_refused_for_reading_too() {
    let server = Postgres::start(SETTINGS);
    let version = put(&store(&server.url("postgres")), &key("a"), None, b"1");
    let directory = server.stop();
    std::fs::write(directory.path().join("data/standby.signal"), "").unwrap();
    let replica = Postgres::start_in(directory, &["fsync=on", "max_connections=200", "hot_standby=on"]);
    let store = store(&replica.url("postgres"));
    refused(store.read(&key("a")), "is a replica");
    refused(store.scan("probe/", None, 1), "is a replica");
    refused(store.swap(&key("a"), Some(&version), Some(b"2")), "a replica");
    refused(store.swap(&key("b"), None, Some(b"2")), "a replica");
}

/// The replica has not seen the last swaps, and its clock is five seconds behind. No version of the lost states is
/// honoured, and by its clock a lease lasts longer, never shorter.
#[test]
fn after_a_failover_nothing_ends_early_and_no_lost_state_is_built_on() {
    let primary = Postgres::start(SETTINGS);
    let before = store(&primary.url("postgres"));
    let first = put(&before, &key("a"), None, b"1");
    let copy = primary.copy();
    let lost = put(&before, &key("a"), Some(&first), b"2");
    let replica = Postgres::start_behind(copy, SETTINGS, Some(Duration::from_secs(5)));
    let after = store(&replica.url("postgres"));
    refused(after.read(&key("a")), "is a replica");
    let then = before.read(&key("a")).unwrap().clock.unwrap();
    drop(primary);
    replica.client("postgres").batch_execute("SELECT pg_promote()").unwrap();
    let ended = after.swap(&key("a"), Some(&lost), Some(b"3")).unwrap();
    assert_eq!(ended.value, Swapped::Lost(Some(Entry { bytes: b"1".to_vec(), version: first.clone() })));
    let now = ended.clock.unwrap();
    assert!(now.tick < then.tick + 60_000, "{then:?} {now:?}");
    let until = Until { era: then.era, tick: then.tick + 60_000 };
    let left = until.tick - now.tick;
    assert_eq!(until.standing(&now), lease::Standing::Held { remaining: Some(Duration::from_millis(left)) });
    let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(here - now.tick >= 4_900, "its clock is behind: {now:?}");
    put(&after, &key("a"), Some(&first), b"3");
}

#[test]
fn a_server_that_does_not_flush_is_refused() {
    let server = Postgres::start(&[]);
    let store = store(&server.url("postgres"));
    refused(store.swap(&key("a"), None, Some(b"1")), "fsync = off");
    refused(store.read(&key("a")), "fsync = off");
    let entries = "SELECT count(*) FROM fencepost_entries WHERE key <> ''";
    assert_eq!(server.client("postgres").query_one(entries, &[]).unwrap().get::<_, i64>(0), 0);
    // Unless the URL vouches for it.
    put(&self::store(&format!("{}&flush=elsewhere", server.url("postgres"))), &key("a"), None, b"1");
}

#[test]
fn a_role_that_does_not_wait_for_its_commits_is_refused_and_noticed_at_once() {
    let server = Postgres::start(SETTINGS);
    let database = server.database();
    let store = store(&server.url(&database));
    let version = put(&store, &key("a"), None, b"1");
    let set = |value: &str| {
        let mut admin = server.client(&database);
        admin.batch_execute(&format!("ALTER SYSTEM SET synchronous_commit = {value}")).unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").unwrap();
        // The server's processes hear of it one after the other.
        let begun = Instant::now();
        while store.read(&key("a")).is_err() != (value == "off") && begun.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(5));
        }
    };
    set("off");
    refused(store.swap(&key("a"), Some(&version), Some(b"2")), "synchronous_commit = off");
    refused(store.swap(&key("b"), None, Some(b"2")), "synchronous_commit = off");
    set("local");
    let found = store.read(&key("a")).unwrap().value;
    assert_eq!(found, Some(Entry { bytes: b"1".to_vec(), version: version.clone() }));
    put(&store, &key("a"), Some(&version), b"2");
}

#[test]
fn an_emptied_table_and_a_newer_one_are_not_taken_for_fresh() {
    let server = shared();
    let database = server.database();
    let store = store(&server.url(&database));
    put(&store, &key("a"), None, b"1");
    let corrupt = |statement: &str, part: &str| {
        server.client(&database).batch_execute(statement).unwrap();
        let attempts = [store.read(&key("a")).map(|_| ()), store.swap(&key("b"), None, Some(b"1")).map(|_| ())];
        for error in attempts.map(Result::unwrap_err) {
            assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
            assert!(error.detail.contains(part), "{error}");
        }
    };
    corrupt("UPDATE fencepost_entries SET value = 'fencepost store, layout 2' WHERE key = ''", "newer fencepost");
    corrupt("TRUNCATE fencepost_entries", "mark is missing");
    corrupt("DROP TABLE fencepost_entries; CREATE TABLE fencepost_entries (id int)", "not a table that fencepost made");
}

#[test]
fn two_schemas_are_two_stores_and_strict_sessions_do_no_harm() {
    let server = shared();
    let database = server.database();
    let mut admin = server.client(&database);
    admin
        .batch_execute(&format!("ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'"))
        .unwrap();
    admin.batch_execute(&format!("ALTER DATABASE {database} SET standard_conforming_strings = off")).unwrap();
    admin.batch_execute(&format!("ALTER DATABASE {database} SET bytea_output = 'escape'")).unwrap();
    let (one, two) = (server.url(&database), format!("{}&schema=two", server.url(&database)));
    put(&store(&one), &key("a"), None, b"1");
    assert_eq!(store(&two).read(&key("a")).unwrap().value, None);
    let quick = conformance::checks().filter(|check| !check.slow);
    quick.for_each(|check| check.run(&|| Ok(Box::new(store(&two)))).unwrap());
}

#[test]
fn tls_and_passwords() {
    let directory = Postgres::prepare(&[]);
    let (key_file, certificate) = servers::certificate(directory.path());
    for (file, name) in [(&key_file, "server.key"), (&certificate, "server.crt")] {
        let inside = directory.path().join("data").join(name);
        std::fs::rename(file, inside).unwrap();
    }
    let roots = directory.path().join("data/server.crt");
    let server = Postgres::start_in(directory, &["ssl=on", "fsync=on"]);
    let mut admin = server.client("postgres");
    admin.batch_execute("CREATE ROLE app LOGIN SUPERUSER PASSWORD 's3cret'").unwrap();
    let rules = "hostssl all app all scram-sha-256\nhostnossl all app all reject\nhost all all all trust\n";
    std::fs::write(server.directory().join("data/pg_hba.conf"), rules).unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    let place = format!("localhost:{}/postgres?sslmode=verify-full&sslrootcert={}", server.port, roots.display());
    let given = |password: &str| Access { password: Some(Secret::new(password)), ..Access::default() };
    open_with(&format!("postgres://app@{place}"), &given("s3cret")).unwrap().read(&key("a")).unwrap();
    open_with(&format!("postgres://app:s3cret@{place}"), &Access::default()).unwrap().read(&key("a")).unwrap();
    let wrong = open_with(&format!("postgres://app:s3cret@{place}"), &given("wr0ng")).unwrap();
    let error = wrong.swap(&key("a"), None, Some(b"1")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
    assert!(!error.detail.contains("s3cret") && !error.detail.contains("wr0ng"), "{error}");
    assert!(error.detail.contains("FENCEPOST_STORE_PASSWORD"), "{error}");
    let unencrypted = format!("postgres://app:s3cret@127.0.0.1:{}/postgres?sslmode=disable", server.port);
    refused(open_with(&unencrypted, &Access::default()).unwrap().read(&key("a")), "28000");
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let url = format!("postgres://u:s3cret@127.0.0.1:{}/d", free_port());
    let error = store(&url).swap(&key("a"), None, Some(b"1")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    assert!(!error.detail.contains("s3cret"), "{error}");
    for wrong in
        ["postgres://u:s3cret@h/d?sslmode=maybe", "postgres://u:s3cret@h/d?schema=", "postgres://u:s3cret@h:s3cret/d"]
    {
        let Err(OpenError::Usage(text)) = PostgresStore::open(wrong, None) else { panic!("{wrong}") };
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn settings_are_declared() {
    let server = shared();
    let url = server.url(&server.database());
    store(&url).swap(&key("a"), None, Some(b"1")).unwrap();
    let found = declared(&url, &Access::default()).unwrap();
    let standing = |name: &str| found.iter().find(|one| one.name == name).map(|one| one.standing);
    assert_eq!(standing("durability"), Some(Soundness::Sound), "{found:?}");
    assert_eq!(standing("replication"), Some(Soundness::Weak), "{found:?}");
}

#[test]
fn many_tables_are_made_at_once() {
    let server = shared();
    let url = server.url(&server.database());
    let won = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let ended = store(&url).swap(&key("a"), None, Some(b"1")).unwrap().value;
                *won.lock().unwrap() += i32::from(matches!(ended, Swapped::Won(_)));
            });
        }
    });
    assert_eq!(won.into_inner().unwrap(), 1);
}

fn store(url: &str) -> PostgresStore {
    PostgresStore::open(url, None).unwrap()
}

fn through(proxy: &Proxy, database: &str) -> String {
    format!("postgres://fencepost@127.0.0.1:{}/{database}?sslmode=disable", proxy.port)
}

fn key(name: &str) -> Key {
    Key::probe("postgres", name)
}

/// The first letters of messages that follow each other.
fn message_kinds(mut spoken: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while spoken.len() >= 5 {
        let length = u32::from_be_bytes(spoken[1..5].try_into().unwrap()) as usize;
        kinds.push(spoken[0]);
        spoken = &spoken[1 + length..];
    }
    kinds
}

/// PgBouncer in transaction mode, with fewer connections to the server than it has clients.
struct Pooler {
    process: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Pooler {
    fn start(server: &Postgres) -> Self {
        let (directory, port) = (servers::own_directory(), free_port());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n\
             ignore_startup_parameters = extra_float_digits\n",
            server.port
        );
        // With auth_type = any every client is this user of the server.
        let settings = settings.replace("* = host", "* = user=fencepost host");
        let path = directory.path().join("pgbouncer.ini");
        std::fs::write(&path, settings).unwrap();
        let mut command = servers::unprivileged(fencepost_testkit::program("pgbouncer", "pgbouncer"));
        let process = command.arg("-q").arg(&path).stderr(Stdio::null()).spawn().expect("pgbouncer");
        let mut pooler = Self { process, port, _directory: directory };
        servers::wait_until(&mut pooler.process, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        pooler
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
