//! Answers from a store in memory.

use std::time::Duration;

use fencepost_core::barrier::Need;
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::time::Wall;
use fencepost_store::{MemoryStore, Store};
use serde_json::json;

use crate::View;
use crate::board::BoardQuery;
use crate::overdue::Expected;
use crate::runs::RunsQuery;
use crate::status::StatusQuery;

fn job(name: &str) -> Job {
    Job::shared(Name::new(name).unwrap())
}

/// A record as format 2 writes it, whose only run was let through by `upstream`.
fn record(name: &str, upstream: &str) -> Vec<u8> {
    let run = "00000000-0000-0000-0000-000000000007";
    let record = json!({
        "store": run, "job": { "name": name }, "token": 7, "grants": 1, "nonce": { "by": run, "write": 0 },
        "ledger": {
            "ring": [{
                "slot": 60_000, "zone": "Asia/Tokyo", "status": "ok", "token": 7, "run": run, "host": "h",
                "trigger": "manual", "started": 60_000, "finished": 61_000, "exit_code": 0, "ended_by": "child",
                "upstreams": [{ "job": upstream, "slot": 0, "run": run }],
            }],
            "counts": { "ok": 1 },
        },
        "upstreams": { upstream: { "halts": 2, "skips": 1, "at": 50_000, "reason": "it failed." } },
    });
    // The format number comes first.
    record.to_string().replacen('{', r#"{"v":2,"#, 1).into_bytes()
}

fn ask<T>(store: &MemoryStore, ask: impl FnOnce(&View<'_>) -> T) -> T {
    let (store_url, now) = ("memory:".to_string(), Wall(3_600_000));
    ask(&View { store, store_url, config: None, broken: Vec::new(), waiting: Vec::new(), now, is_dead: &|_| false })
}

fn all() -> StatusQuery {
    StatusQuery { job: None, expected: Expected::default(), since: None }
}

fn value(answer: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(answer).unwrap()
}

fn filled() -> MemoryStore {
    let store = MemoryStore::new();
    store.swap(&Key::job(&job("article")), None, Some(&record("article", "reference"))).unwrap();
    store.swap(&Key::job(&job("torn")), None, Some(b"torn")).unwrap();
    store
}

#[test]
fn a_record_that_cannot_be_read_is_part_of_each_answer_with_its_key() {
    let store = filled();
    let status = ask(&store, |view| view.status(&all())).unwrap();
    assert_eq!(status.jobs.iter().map(|job| job.job.as_str()).collect::<Vec<_>>(), ["article"]);
    let runs = ask(&store, |view| view.runs(&RunsQuery { limit: 9, ..RunsQuery::default() })).unwrap();
    assert_eq!(runs.runs.len(), 1);
    let graph = ask(&store, |view| view.graph(&[])).unwrap();
    let advice = ask(&store, |view| view.advise(None)).unwrap();
    for errors in [&status.errors, &runs.errors, &graph.errors, &advice.errors] {
        assert_eq!(errors.iter().map(|error| error.key.as_deref()).collect::<Vec<_>>(), [Some("job/torn")]);
    }
    assert_eq!(status.unreadable, [status.errors[0].message.clone()]);
}

#[test]
fn times_have_the_offset_of_the_jobs_zone() {
    let status = ask(&filled(), |view| view.status(&all())).unwrap();
    let last = serde_json::to_value(&status.jobs[0].last).unwrap();
    assert_eq!((&last["slot"], &last["date"]), (&json!("1970-01-01T09:01:00+09:00"), &json!("1970-01-01")));
}

#[test]
fn the_graph_joins_what_is_configured_with_what_was_recorded() {
    let need = Need::parse("reference@same-day", |_| unreachable!()).unwrap();
    let other = Need::parse("prices", |_| unreachable!()).unwrap();
    let graph = ask(&filled(), |view| view.graph(&[(job("article"), vec![need, other])])).unwrap();
    assert_eq!(graph.jobs, ["article", "prices", "reference"]);
    let [prices, reference] = graph.edges.as_slice() else { panic!("{:?}", graph.edges) };
    assert_eq!((prices.upstream.as_str(), prices.when.as_deref()), ("prices", Some("last-due")));
    assert!(prices.last.is_none() && prices.gauge.is_none());
    assert_eq!(reference.when.as_deref(), Some("same-day"));
    assert_eq!(reference.gauge.as_ref().map(|gauge| (gauge.halts, gauge.skips)), Some((2, 1)));
    assert_eq!(reference.last.as_ref().map(|last| last.slot.at), Some(Wall(0)));
}

#[test]
fn a_board_holds_what_each_question_answers() {
    let store = filled();
    let need = Need::parse("prices", |_| unreachable!()).unwrap();
    let needs = vec![(job("article"), vec![need])];
    let ttls = [(Name::new("article").unwrap(), Duration::from_secs(90))].into();
    let board =
        ask(&store, |view| view.board(&BoardQuery { status: all(), needs: needs.clone(), ttls }, None)).unwrap();
    assert_eq!(value(&board.status), value(&ask(&store, |view| view.status(&all())).unwrap()));
    assert_eq!(value(&board.graph), value(&ask(&store, |view| view.graph(&needs)).unwrap()));
    assert_eq!(value(&board.overdue), value(&ask(&store, |view| view.overdue(&Expected::default())).unwrap()));
    let runs = ask(&store, |view| view.runs(&RunsQuery { limit: 9, ..RunsQuery::default() })).unwrap().runs;
    assert_eq!(value(&board.runs_of("article")), json!(runs));
    assert_eq!(board.runs.len(), 1);
    assert_eq!(board.terms["article"].ttl, Some(Duration::from_secs(90)));
}
