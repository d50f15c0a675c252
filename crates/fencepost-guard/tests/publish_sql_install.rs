//! What `publish sql --install` puts into real databases.
#![cfg(feature = "sql")]

mod databases;

use databases::{parse, postgres_database, set, sqlite_database, sqlite_number};
use fencepost_core::fence::{Fence, FenceVerdict, Reason, StrictFence, WriteMode, judge};
use fencepost_core::name::Job;
use fencepost_core::token::{RunId, StoreId};
use fencepost_guard::publish::sql::install::{Action, Installation};
use fencepost_guard::publish::sql::{Database, publish};
use fencepost_testkit::fenced::{refusal, request};
use fencepost_testkit::servers;
use rusqlite::Connection;
use uuid::Uuid;

/// The function in the database is a second copy of the rule, so that it is held against the first.
#[test]
fn the_function_in_the_database_decides_as_the_core_does() {
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    install(&parse(&server.url(&name)), Action::Install, &[]);
    let mut client = server.client(&name);
    let mut seed = 7_u64;
    let mut pick = |choices: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % choices
    };
    let jobs = ["report", "other", "report@db-1.example"];
    let mut verdicts = std::collections::BTreeMap::new();
    for case in 0..600 {
        let mut any = || {
            let mut request = request(5 + pick(3));
            let lineage = pick(24);
            request.writer.store = StoreId(Uuid::from_u128(u128::from(lineage == 0) + 1));
            request.writer.job = Job::parse(jobs[if lineage < 3 { lineage as usize } else { 0 }]).unwrap();
            request.writer.run = RunId(Uuid::from_u128(u128::from(pick(4) == 0)));
            request.mode = if pick(2) == 0 { WriteMode::Many } else { WriteMode::Once };
            request.op = [None, Some("a"), Some("b")][pick(3) as usize].map(str::to_string);
            request.write(format!("sha256:{}", pick(2)), false)
        };
        let (before, write) = (any(), any());
        let seen = (pick(10) > 0).then(|| match judge::<StrictFence>(None, &before) {
            Ok(FenceVerdict::Accept(fence)) => Fence { seq: 1 + pick(3), ..fence },
            other => panic!("{other:?}"),
        });
        let expected = match judge::<StrictFence>(seen.as_ref(), &write) {
            Ok(FenceVerdict::Accept(fence)) => ("accept", Some(fence)),
            Ok(FenceVerdict::AlreadyApplied(_)) => ("ZF000", None),
            Err(refused) => (code(refused.reason), None),
        };
        let quoted = |text: &str| format!("'{text}'");
        let stored = seen.map_or("NULL".to_string(), |fence| quoted(str::from_utf8(&fence.encode()).unwrap()));
        let call = format!(
            "BEGIN; INSERT INTO fencepost_fences (resource, fence) VALUES ('r', {stored}); \
             SELECT fencepost_check('r', '{}', '{}', {}, '{}', '{}', {}, '{}', '{}')",
            write.store,
            write.job,
            write.token,
            write.run,
            write.mode.as_str(),
            write.op.as_deref().map_or("NULL".to_string(), quoted),
            write.digest,
            write.host
        );
        let decided = match client.batch_execute(&call) {
            Ok(()) => {
                let row = client.query_one("SELECT fence FROM fencepost_fences", &[]).unwrap();
                let fence = Fence::decode(row.get::<_, String>(0).as_bytes()).expect("the core reads it");
                ("accept".to_string(), Some(Fence { at: write.at, ..fence }))
            }
            Err(error) => (error.code().expect("an answer").code().to_string(), None),
        };
        client.batch_execute("ROLLBACK").unwrap();
        assert_eq!((decided.0.as_str(), decided.1), expected, "case {case}: {call}");
        *verdicts.entry(expected.0).or_insert(0) += 1;
    }
    println!("600 cases: {verdicts:?}");
    assert_eq!(verdicts.len(), 6, "a verdict was never reached: {verdicts:?}");
}

fn code(reason: Reason) -> &'static str {
    match reason {
        Reason::Stale => "ZF001",
        Reason::Spent => "ZF002",
        Reason::OtherRun => "ZF003",
        Reason::OtherLineage => "ZF004",
    }
}

fn install(database: &Database, action: Action, protect: &[&str]) {
    let protect = protect.iter().map(ToString::to_string).collect();
    Installation { resource: None, protect, action }.perform(database).unwrap();
}

#[test]
fn the_function_refuses_what_it_could_not_read_back() {
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    install(&parse(&server.url(&name)), Action::Install, &[]);
    let mut client = server.client(&name);
    let id = Uuid::from_u128(1);
    let good = [format!("'{id}'"), "'report'".to_string(), "5".to_string(), format!("'{id}'")];
    let mut check =
        |arguments: &[String]| client.batch_execute(&format!("SELECT fencepost_check('r', {})", arguments.join(", ")));
    for (index, bad) in [
        (0, "'x'"),
        (0, "NULL"),
        (1, "''"),
        (1, "'../x'"),
        (1, "'a b'"),
        (1, "'report@'"),
        (1, "'report@A'"),
        (1, "NULL"),
        (2, "-1"),
        (2, "9007199254740992"),
        (2, "NULL"),
        (3, "'x'"),
        (3, "NULL"),
    ] {
        let mut arguments = good.clone();
        arguments[index] = bad.to_string();
        let error = check(&arguments).expect_err(bad);
        assert_eq!(error.code().unwrap().code(), "22023", "{bad}");
    }
    check(&good).unwrap();
    for damaged in ["", "0", "[]", "{", "{\"v\":2}", "{\"v\":1,\"token\":\"x\"}"] {
        server.client(&name).batch_execute(&format!("UPDATE fencepost_fences SET fence = '{damaged}'")).unwrap();
        assert_eq!(check(&good).unwrap_err().code().unwrap().code(), "ZF005", "{damaged}");
    }
}

#[test]
fn an_unfenced_write_to_a_protected_table_fails() {
    let server = servers::Postgres::shared();
    let name = postgres_database(&server);
    let database = parse(&server.url(&name));
    for _ in 0..2 {
        install(&database, Action::Install, &["content"]);
    }
    let mut client = server.client(&name);
    let id = Uuid::from_u128(1);
    let check = format!("SELECT fencepost_check('sql:{name}', '{id}', 'report', 5, '{}')", Uuid::from_u128(5));
    let mut code = |statements: &str| {
        let ran = client.batch_execute(statements);
        let code = ran.err().map(|error| error.code().unwrap().code().to_string());
        client.batch_execute("ROLLBACK").unwrap();
        code
    };
    let unfenced = Some("ZF006".to_string());
    for write in
        ["UPDATE content SET token = 1", "INSERT INTO content VALUES (1)", "DELETE FROM content", "TRUNCATE content"]
    {
        assert_eq!(code(write), unfenced, "{write}");
        assert_eq!(code(&format!("BEGIN; {check}; {write}; ROLLBACK")), None, "{write}");
    }
    // A pass is good for its own transaction, and goes with a savepoint that is rolled back.
    assert_eq!(code(&format!("BEGIN; {check}; COMMIT")), None);
    assert_eq!(code("UPDATE content SET token = 1"), unfenced);
    let taken_back = format!("BEGIN; SAVEPOINT a; {check}; ROLLBACK TO a; UPDATE content SET token = 1");
    assert_eq!(code(&taken_back), unfenced);
    assert_eq!(code(&format!("BEGIN; SAVEPOINT a; {check}; RELEASE a; UPDATE content SET token = 1; COMMIT")), None);
    // What was written to the fence by the function is what `publish` is judged by, and the other way round.
    assert_eq!(refusal(publish(&request(4), &database, None, b"SELECT 1")), Reason::Stale);
    publish(&request(6), &database, None, b"UPDATE content SET token = 6").unwrap();
    assert_eq!(code(&format!("BEGIN; {check}")), Some("ZF001".to_string()));

    install(&database, Action::Uninstall, &[]);
    assert_eq!(code("UPDATE content SET token = 7"), None);
    assert_eq!(refusal(publish(&request(4), &database, None, b"SELECT 1")), Reason::Stale);
}

#[test]
fn in_sqlite_an_unfenced_write_to_a_protected_table_fails() {
    let (_directory, path) = sqlite_database();
    let database = parse(&format!("sqlite:{}", path.display()));
    for _ in 0..2 {
        install(&database, Action::Install, &["content", "log"]);
    }
    let connection = Connection::open(&path).unwrap();
    let refused = |statement: &str| connection.execute_batch(statement).err().map(|error| error.to_string());
    for write in ["UPDATE content SET token = 1", "INSERT INTO content VALUES (1)", "DELETE FROM content"] {
        assert!(refused(write).is_some_and(|text| text.contains("content is protected")), "{write}");
    }
    publish(&request(5), &database, None, set(5).as_bytes()).unwrap();
    assert!(refused("UPDATE content SET token = 1").is_some(), "the pass outlived its transaction");
    assert_eq!(sqlite_number(&path, "SELECT token FROM content"), 5);
    install(&database, Action::Uninstall, &["content"]);
    assert_eq!(refused("UPDATE content SET token = 1"), None);
    assert!(refused("DELETE FROM log").is_some());
    install(&database, Action::Uninstall, &[]);
    assert_eq!(refused("DELETE FROM log"), None);
    assert_eq!(refusal(publish(&request(4), &database, None, b"SELECT 1")), Reason::Stale);
}
