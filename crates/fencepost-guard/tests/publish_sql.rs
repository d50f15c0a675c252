//! Fenced transactions in real databases.
#![cfg(feature = "sql")]

mod databases;

use std::thread;
use std::time::{Duration, Instant};

use databases::{of, parse, postgres_database, postgres_number, set, sqlite_database, sqlite_number};
use fencepost_core::fence::{Level, Reason, WriteMode};
use fencepost_core::token::StoreId;
use fencepost_guard::publish::sql::{
    Database, postgres::PostgresSession as Postgres, publish, sqlite::SqliteSession as Sqlite,
};
use fencepost_guard::publish::{PublishError, Receipt, WriteRequest};
use fencepost_testkit::fenced::{check_log, failure, refusal, request, storm};
use fencepost_testkit::network::{Cut, Scissors};
use fencepost_testkit::servers;
use rusqlite::Connection;
use uuid::Uuid;

const ROUNDS: u64 = 1000;
fn usage(written: Result<Receipt, PublishError>) -> String {
    match written {
        Err(PublishError::Usage(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn in_sqlite_no_old_token_wins_a_storm() {
    let (_directory, path) = sqlite_database();
    let writer = || {
        let mut session = Sqlite::open(&path, false).unwrap();
        move |request: &WriteRequest| session.publish(request, "r", &of(request))
    };
    let (first, refused, _) = storm(ROUNDS, writer(), writer(), || ());
    let connection = Connection::open(&path).unwrap();
    let mut rows = connection.prepare("SELECT token FROM log ORDER BY id").unwrap();
    let applied: Vec<u64> =
        rows.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(|token| token.unwrap().cast_unsigned()).collect();
    check_log(&applied, sqlite_number(&path, "SELECT token FROM content"), ROUNDS);
    println!("sqlite: {ROUNDS} rounds, the older one came first in {first} and was refused in {refused}, stale wins 0");
    assert!(refused > 0, "nothing was put to the test");
}

#[test]
fn in_postgres_no_old_token_wins_a_storm() {
    let server = servers::Postgres::shared();
    let database = postgres_database(&server);
    let Database::Postgres(target) = parse(&server.url(&database)) else { unreachable!() };
    let writer = || {
        let mut session = Postgres::open(&target).unwrap();
        move |request: &WriteRequest| session.publish(request, None, &of(request))
    };
    let (first, refused, _) = storm(ROUNDS, writer(), writer(), || ());
    let rows = server.client(&database).query("SELECT token FROM log ORDER BY id", &[]).unwrap();
    let applied: Vec<u64> = rows.iter().map(|row| row.get::<_, i64>(0).cast_unsigned()).collect();
    check_log(&applied, postgres_number(&server, &database, "SELECT token FROM content"), ROUNDS);
    println!(
        "postgres: {ROUNDS} rounds, the older one came first in {first} and was refused in {refused}, stale wins 0"
    );
    assert!(refused > 0, "nothing was put to the test");
}

/// Two first writers find no row, and in PostgreSQL not even a table.
#[test]
fn of_two_first_writers_the_older_one_never_comes_last() {
    let server = servers::Postgres::shared();
    for round in 0..8 {
        let database = postgres_database(&server);
        let target = parse(&server.url(&database));
        thread::scope(|scope| {
            for token in [1, 2] {
                let target = &target;
                scope.spawn(move || {
                    let request = request(token);
                    match publish(&request, target, None, of(&request).as_bytes()) {
                        Ok(_) => {}
                        Err(PublishError::Refused { .. }) if token == 1 => {}
                        Err(other) => panic!("round {round}, token {token}: {other}"),
                    }
                });
            }
        });
        assert_eq!(postgres_number(&server, &database, "SELECT token FROM content"), 2);
    }
}

fn each_database(test: impl Fn(&Database, &dyn Fn(&str) -> u64)) {
    let (_directory, path) = sqlite_database();
    test(&parse(&format!("sqlite:{}", path.display())), &|query| sqlite_number(&path, query));
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    test(&parse(&server.url(&name)), &|query| postgres_number(&server, &name, query));
}

#[test]
fn the_rule_holds_in_each_database() {
    each_database(|database, number| {
        let write = |request: &WriteRequest| publish(request, database, None, of(request).as_bytes());
        let content = || number("SELECT token FROM content");
        let dry = write(&WriteRequest { dry_run: true, ..request(5) }).unwrap();
        assert_eq!((dry.fence.seq, content()), (1, 0));

        let receipt = write(&request(5)).unwrap();
        assert_eq!((receipt.level, receipt.fence.seq, receipt.already_applied), (Level::Atomic, 1, false));
        assert_eq!(refusal(write(&request(4))), Reason::Stale);
        assert_eq!(refusal(write(&WriteRequest { dry_run: true, ..request(4) })), Reason::Stale);
        assert_eq!(content(), 5);

        // The same statements again are meant, unless mode or operation say otherwise.
        assert_eq!(write(&request(5)).unwrap().fence.seq, 2);
        assert_eq!(number("SELECT count(*) FROM log"), 2);
        let once = WriteRequest { mode: WriteMode::Once, ..request(6) };
        assert!(!write(&once).unwrap().already_applied);
        assert!(write(&once).unwrap().already_applied);
        assert_eq!(refusal(publish(&once, database, None, b"DELETE FROM content")), Reason::Spent);
        let named = WriteRequest { op: Some("charge-7".to_string()), ..request(7) };
        assert!(!write(&named).unwrap().already_applied);
        assert!(write(&named).unwrap().already_applied);
        assert_eq!(number("SELECT count(*) FROM log"), 4);

        // Two stores by mistake.
        let mut other = request(99);
        other.writer.store = StoreId(Uuid::from_u128(2));
        assert_eq!(refusal(write(&other)), Reason::OtherLineage);
        assert_eq!(content(), 7);
        other.adopt = true;
        assert_eq!(write(&other).unwrap().fence.seq, 1);
        assert_eq!(content(), 99);
    });
}

#[test]
fn a_statement_that_fails_takes_the_fence_back_with_it() {
    each_database(|database, number| {
        let write = |token, statements: &str| publish(&request(token), database, None, statements.as_bytes());
        let text = failure(write(5, "UPDATE content SET token = 5;\nSELECT * FROM nowhere;"));
        assert!(text.contains("nothing was changed") && text.contains("nowhere"), "{text}");
        assert_eq!(number("SELECT token FROM content"), 0);
        assert!(write(4, &set(4)).is_ok(), "the fence had stayed behind");
        for nothing in ["", " \n"] {
            assert!(usage(write(5, nothing)).contains("no statements"));
        }
        assert!(usage(publish(&request(5), database, None, b"\xff")).contains("UTF-8"));
    });
}

#[test]
fn no_statement_leaves_the_transaction_of_the_fence() {
    each_database(|database, number| {
        let escapes = [
            "COMMIT; UPDATE content SET token = 1;",
            "UPDATE content SET token = 1; COMMIT; BEGIN;",
            "UPDATE content SET token = 1; /* x */ ROLLBACK; UPDATE content SET token = 1;",
            "END; UPDATE content SET token = 1",
            "UPDATE content SET token = 1; BEGIN",
            "UPDATE content SET token = 1; UPDATE fencepost_fences SET fence = 'x';",
            "UPDATE content SET token = 1; DELETE FROM fencepost_fences;",
        ];
        for escape in escapes {
            let text = usage(publish(&request(5), database, None, escape.as_bytes()));
            assert!(text.contains("othing was changed"), "{escape}: {text}");
            assert_eq!(number("SELECT token FROM content"), 0, "{escape}");
        }
        // What is quoted is no statement.
        let quoted = "INSERT INTO log (token) SELECT length('; COMMIT; $fencepost_0$'); -- COMMIT";
        assert!(publish(&request(5), database, None, quoted.as_bytes()).is_ok());
    });
}

#[test]
fn a_fence_that_cannot_be_read_is_not_no_fence() {
    let (_directory, path) = sqlite_database();
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    for (database, spoil) in [(parse(&format!("sqlite:{}", path.display())), true), (parse(&server.url(&name)), false)]
    {
        let write = |request: &WriteRequest| publish(request, &database, None, of(request).as_bytes());
        assert!(write(&request(5)).is_ok());
        for (damaged, adoptable) in [("", true), ("0", true), ("{\"v\":2}", false), ("{", true)] {
            let query = format!("UPDATE fencepost_fences SET fence = '{damaged}'");
            if spoil {
                Connection::open(&path).unwrap().execute_batch(&query).unwrap();
            } else {
                server.client(&name).batch_execute(&query).unwrap();
            }
            let text = failure(write(&request(9)));
            // The fence of a newer fencepost is sound, and is not adopted away.
            assert!(text.contains("cannot be read") && text.contains("--adopt") == adoptable, "{damaged}: {text}");
        }
        assert!(write(&WriteRequest { adopt: true, ..request(9) }).is_ok());
    }
}

fn through(proxy: &Scissors, server: &servers::Postgres, database: &str) -> Database {
    parse(&server.url(database).replace(&format!(":{}/", server.port), &format!(":{}/", proxy.port)))
}

/// The older writer has checked, and its commit is kept back while the newer one waits for the fence's row.
#[test]
fn a_writer_that_is_late_with_its_commit_is_followed_by_the_newer_one() {
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    let proxy = Scissors::start(server.port, b"COMMIT\0", Cut::Late);
    let (newer, late) = (parse(&server.url(&name)), through(&proxy, &server, &name));
    let (waiting, waits) = (server.client(&name), newer.clone());
    let newer = std::sync::Arc::new(std::sync::Mutex::new(None));
    let started = newer.clone();
    proxy.at_cut(move || {
        *started.lock().unwrap() = Some(thread::spawn(move || publish(&request(6), &waits, None, set(6).as_bytes())));
        wait_for_a_lock(waiting);
    });
    publish(&request(5), &late, None, set(5).as_bytes()).expect("it had the lock first");
    let newer = newer.lock().unwrap().take().expect("nothing was kept back");
    assert_eq!(newer.join().unwrap().unwrap().fence.token.number(), 6);
    assert_eq!(postgres_number(&server, &name, "SELECT token FROM content"), 6);
    assert_eq!(postgres_number(&server, &name, "SELECT count(*) FROM log"), 2);
}

/// The older writer has checked and is then stopped for long: the server rolls it back, and the newer one lands.
#[test]
fn a_writer_that_stops_with_the_lock_in_hand_is_rolled_back() {
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    let proxy = Scissors::start(server.port, b"COMMIT\0", Cut::Late);
    let newer = parse(&server.url(&name));
    proxy.at_cut(move || drop(publish(&request(6), &newer, None, set(6).as_bytes()).unwrap()));
    let text = failure(publish(&request(5), &through(&proxy, &server, &name), None, set(5).as_bytes()));
    assert!(text.contains("nothing was changed"), "{text}");
    assert_eq!(postgres_number(&server, &name, "SELECT token FROM content"), 6);
    assert_eq!(postgres_number(&server, &name, "SELECT count(*) FROM log"), 1);
}

fn wait_for_a_lock(mut client: postgres::Client) {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let started = Instant::now();
    while client.query_one(query, &[]).unwrap().get::<_, i64>(0) == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the fence is not waited for");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_commit_whose_answer_is_lost_is_settled_by_the_fence() {
    let server = servers::Postgres::shared();
    for how in [Cut::After, Cut::Before] {
        let name = postgres_database(&server);
        let proxy = Scissors::start(server.port, b"COMMIT\0", how);
        let written = publish(&request(5), &through(&proxy, &server, &name), None, set(5).as_bytes());
        assert!(proxy.cut.load(std::sync::atomic::Ordering::SeqCst), "nothing was cut");
        let landed = postgres_number(&server, &name, "SELECT token FROM content") == 5;
        assert_eq!(landed, how == Cut::After);
        if landed {
            assert!(!written.unwrap().already_applied);
        } else {
            let text = failure(written);
            assert!(text.contains("nothing was changed"), "{text}");
        }
    }
}

#[test]
fn a_server_that_falls_silent_is_not_waited_for_and_the_fate_is_said() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@127.0.0.1:{}/d?sslmode=disable", silent.local_addr().unwrap().port());
    let limit = Duration::from_secs(2);
    let begun = Instant::now();
    let text = failure(publish(&request(5), &parse(&url).with_limit(limit), None, set(5).as_bytes()));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(text.contains("within 2s") && text.contains("nothing was changed"), "{text}");
    // The COMMIT is kept back for as long as nothing comes of `wait`.
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    publish(&request(4), &parse(&server.url(&name)), None, set(4).as_bytes()).unwrap();
    let proxy = Scissors::start(server.port, b"COMMIT\0", Cut::Late);
    let (release, wait) = std::sync::mpsc::channel::<()>();
    proxy.at_cut(move || {
        let _ = wait.recv();
    });
    let limit = Duration::from_secs(5);
    let text =
        failure(publish(&request(5), &through(&proxy, &server, &name).with_limit(limit), None, set(5).as_bytes()));
    assert!(text.contains("did not answer the COMMIT within 5s") && text.contains("NOT KNOWN"), "{text}");
    assert!(text.contains("SELECT txid_status("), "{text}");
    drop(release);
}

#[test]
fn a_server_that_cannot_be_written_to_is_refused_in_words() {
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    let mut client = server.client(&name);
    client.batch_execute("CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on").unwrap();
    let as_role = |role: &str| parse(&server.url(&name).replace("fencepost@", &format!("{role}@")));
    let text = failure(publish(&request(5), &as_role("reader"), None, b"SELECT 1"));
    assert!(text.contains("only read"), "{text}");

    // A role that may not create tables is told what an administrator has to run, and works after that.
    client.batch_execute("CREATE ROLE app LOGIN; GRANT ALL ON content, log, log_id_seq TO app").unwrap();
    let text = failure(publish(&request(5), &as_role("app"), None, set(5).as_bytes()));
    let (_, statements) = text.split_once('\n').unwrap();
    assert!(statements.starts_with("CREATE TABLE") && text.contains("once:"), "{text}");
    client.batch_execute(statements).unwrap();
    publish(&request(5), &as_role("app"), None, set(5).as_bytes()).unwrap();

    client.batch_execute(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).unwrap();
    let receipt = publish(&request(6), &as_role("app"), None, set(6).as_bytes()).unwrap();
    assert!(receipt.remarks.iter().any(|remark| remark.contains("synchronous_commit")), "{:?}", receipt.remarks);
}

#[test]
fn a_replica_is_refused_in_words() {
    let directory = servers::Postgres::prepare(&[]);
    std::fs::write(directory.path().join("data/standby.signal"), "").unwrap();
    let replica = servers::Postgres::start_in(directory, &["hot_standby=on"]);
    let text = failure(publish(&request(5), &parse(&replica.url("postgres")), None, b"SELECT 1"));
    assert!(text.contains("is a replica") && text.contains("nothing was changed"), "{text}");
}

#[test]
fn a_database_file_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plain.db");
    let missing = Database::parse(&format!("sqlite:{}", path.display())).unwrap_err();
    assert!(missing.to_string().contains("no database at"), "{missing}");
    assert!(!path.exists());
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE content (token); PRAGMA user_version = 3;").unwrap();
    let database = parse(&format!("sqlite:{}", path.display()));
    let bytes = std::fs::read(&path).unwrap();
    let statements = b"INSERT INTO content VALUES (5)";
    publish(&WriteRequest { dry_run: true, ..request(5) }, &database, None, statements).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "a dry run left something behind");
    publish(&request(5), &database, None, statements).unwrap();
    let connection = Connection::open(&path).unwrap();
    let pragma = |name: &str| -> rusqlite::types::Value {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!(pragma("user_version"), rusqlite::types::Value::Integer(3));
    assert_eq!(pragma("journal_mode"), rusqlite::types::Value::Text("delete".to_string()));
    // Every name of the file leads to the same fence.
    std::os::unix::fs::symlink(&path, directory.path().join("link.db")).unwrap();
    let link = parse(&format!("sqlite:{}/link.db", directory.path().display()));
    assert_eq!(refusal(publish(&request(4), &link, None, statements)), Reason::Stale);
}

/// Opening a database with a write-ahead log creates the log's files, unless told otherwise.
#[test]
fn a_dry_run_leaves_no_log_behind() {
    let (directory, path) = sqlite_database();
    let odd = directory.path().join("odd %41?#.db");
    std::fs::rename(&path, &odd).unwrap();
    let database = parse(&format!("sqlite:{}", odd.display()));
    let dry = |token| publish(&WriteRequest { dry_run: true, ..request(token) }, &database, Some("r"), b"SELECT 1");
    dry(5).unwrap();
    publish(&request(5), &database, Some("r"), b"SELECT 1").unwrap();
    assert_eq!(refusal(dry(4)), Reason::Stale);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "a dry run left something behind");
    // While another connection is open, content that is only in the log counts too.
    let other = Connection::open(&odd).unwrap();
    publish(&request(6), &database, Some("r"), b"SELECT 1").unwrap();
    assert_eq!(refusal(dry(5)), Reason::Stale);
    drop(other);
}

#[test]
fn tls_is_what_the_url_asks_for() {
    let directory = servers::Postgres::prepare(&[]);
    let (_, certificate) = servers::certificate(&directory.path().join("data"));
    let server = servers::Postgres::start_in(directory, &["ssl=on"]);
    let target = |query: &str| parse(&format!("postgres://fencepost@localhost:{}/postgres?{query}", server.port));
    let encrypted = |query: &str| {
        let statements = "DO 'BEGIN IF NOT (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()) THEN RAISE ''plain''; \
                          END IF; END'";
        publish(&request(5), &target(query), None, statements.as_bytes())
    };
    encrypted("sslmode=prefer").unwrap();
    encrypted("sslmode=require").unwrap();
    assert!(failure(encrypted("sslmode=disable")).contains("plain"));
    assert!(failure(encrypted("sslmode=verify-full")).contains("certificate"));
    encrypted(&format!("sslmode=verify-full&sslrootcert={}", certificate.display())).unwrap();
}
