//! Fenced writes under a lease of a session.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{Client, said};
use crate::common::Site;

#[test]
fn writes_are_recorded_with_the_run() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, granted) = client.claim(json!({ "job": "j" }));
    let file = site.path("page").display().to_string();
    let write = |more: Value| {
        let mut fields = json!({ "claim": claim, "kind": "file", "path": file });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    let published = client.ask("publish", write(json!({ "data": "one\n" })));
    assert_eq!((said(&published).0, &published["token"]), ("published", &granted["token"]));
    fs::write(site.path("source"), [0, 255, 1]).unwrap();
    let source = site.path("source").display().to_string();
    assert_eq!(client.ask("publish", write(json!({ "from": source })))["answer"], "published");
    assert_eq!(fs::read(site.path("page")).unwrap(), [0, 255, 1]);
    for wrong in [json!({}), json!({ "data": "x", "from": source }), json!({ "data": "x", "branch": ["b"] })] {
        assert_eq!(said(&client.ask("publish", write(wrong.clone()))), ("error", "usage"), "{wrong}");
    }
    let digest = client.ask("publish", write(json!({ "data": "x", "if_digest": "sha256:00" })));
    assert_eq!((said(&digest), &digest["code"]), (("error", "digest_mismatch"), &json!(18)));
    let exec = client.ask("publish", json!({ "claim": claim, "kind": "exec" }));
    assert_eq!(said(&exec), ("error", "usage"));
    let released = client.ask("release", json!({ "claim": claim, "outcome": "ok" }));
    assert_eq!(released["status"], "error", "other content fails the run: {released}");
}

#[test]
fn a_directory_and_statements_are_published() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let (claim, _) = client.claim(json!({ "job": "j" }));
    let [source, site_link, database] = ["source", "site", "shop.db"].map(|name| site.path(name).display().to_string());
    fs::create_dir(&source).unwrap();
    fs::write(site.path("source/index.html"), "page").unwrap();
    let tree = json!({ "claim": claim, "kind": "tree", "source": source, "path": site_link });
    assert_eq!(client.ask("publish", tree)["answer"], "published");
    assert_eq!(fs::read_to_string(site.path("site/index.html")).unwrap(), "page");
    Connection::open(&database).unwrap().execute_batch("CREATE TABLE t (x INTEGER)").unwrap();
    let sql = json!({ "claim": claim, "kind": "sql", "url": format!("sqlite:{database}"), "data": "INSERT INTO t VALUES (1)" });
    assert_eq!(client.ask("publish", sql)["answer"], "published");
    assert_eq!(client.ask("release", json!({ "claim": claim, "outcome": "ok" }))["status"], "ok");
}

/// One transaction of a program: the fence is read in it, judged by the session, and written with the data.
fn transaction(client: &mut Client, database: &mut Connection, claim: u64, value: i64) -> Value {
    let transaction = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let table = "CREATE TABLE IF NOT EXISTS fencepost_fences (resource TEXT NOT NULL PRIMARY KEY, fence TEXT NOT NULL, \
                 open INTEGER NOT NULL DEFAULT 0)";
    transaction.execute_batch(table).unwrap();
    let fence: Option<String> = transaction
        .query_row("SELECT fence FROM fencepost_fences WHERE resource = 'sql:shop'", [], |row| row.get(0))
        .ok();
    let answer = client.ask("judge", json!({ "claim": claim, "resource": "sql:shop", "fence": fence }));
    if answer["answer"] == "judged" {
        let put = "INSERT INTO fencepost_fences (resource, fence) VALUES ('sql:shop', ?1) \
                   ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence";
        transaction.execute(put, [answer["fence"].as_str().unwrap()]).unwrap();
        transaction.execute("INSERT INTO t VALUES (?1)", [value]).unwrap();
        transaction.commit().unwrap();
    }
    answer
}

#[test]
fn a_transaction_of_the_program_is_judged_by_the_same_rule() {
    let site = Site::new();
    let mut database = Connection::open(site.path("shop.db")).unwrap();
    database.execute_batch("CREATE TABLE t (x INTEGER)").unwrap();
    let mut clients = [Client::of(&site), Client::of(&site)];
    let (old, _) = clients[0].claim(json!({ "job": "j", "ttl": "1h" }));
    for value in [1, 2] {
        assert_eq!(transaction(&mut clients[0], &mut database, old, value)["already_applied"], false);
    }
    assert_eq!(site.say(&["lease", "release", "j", "--force"]).code, 0);
    let (new, _) = clients[1].claim(json!({ "job": "j", "ttl": "1h" }));
    assert_eq!(transaction(&mut clients[1], &mut database, new, 3)["answer"], "judged");
    let refused = transaction(&mut clients[0], &mut database, old, 4);
    assert_eq!((said(&refused), &refused["code"]), (("error", "stale"), &json!(13)));
    let sum: i64 = database.query_row("SELECT sum(x) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(sum, 6);
    // `publish sql` and the program's own transactions share the fence.
    let url = format!("sqlite:{}", site.path("shop.db").display());
    let write =
        json!({ "claim": new, "kind": "sql", "url": url, "resource": "sql:shop", "data": "INSERT INTO t VALUES (5)" });
    assert_eq!(clients[1].ask("publish", write)["answer"], "published");
    for (fields, reason) in [
        (json!({ "fence": "torn" }), "failed"),
        (json!({ "mode": "twice" }), "usage"),
        (json!({ "digest": "md5:00" }), "usage"),
    ] {
        let mut request = json!({ "claim": new, "resource": "sql:shop" });
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert_eq!(said(&clients[1].ask("judge", request)), ("error", reason), "{fields}");
    }
}

#[test]
fn a_gate_asks_for_the_slot_of_the_lease_and_is_recorded_with_it() {
    let site = Site::new();
    let mut client = Client::of(&site);
    let slot = "2026-11-17T07:00:00Z";
    client.ask("record", json!({ "job": "up", "outcome": "ok", "slot": slot }));
    let (claim, _) = client.claim(json!({ "job": "j", "slot": slot }));
    let gated = client.ask("gate", json!({ "claim": claim, "upstreams": ["up@same-slot"] }));
    assert_eq!((said(&gated).0, &gated["decision"]), ("gated", &json!("proceed")), "{gated}");
    let other = client.ask("gate", json!({ "upstreams": ["up@same-day"], "date": "2026-11-16" }));
    assert_eq!(other["decision"], "halt", "{other}");
    client.ask("release", json!({ "claim": claim, "outcome": "ok" }));
    assert_eq!(site.runs(&["j"])[0]["upstreams"][0]["job"], "up");
}
