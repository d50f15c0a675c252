//! The status of jobs in a store in memory: what needs attention, what is listed, and what it costs.

use std::time::Duration;

use fencepost_core::name::{Job, Key, Name};
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_store::layer::{Trace, TraceVerb};
use fencepost_store::{MemoryStore, Store};
use serde_json::{Value, json};

use crate::View;
use crate::attention::{AttentionReason, SKIPS_IN_A_ROW};
use crate::moment::Moment;
use crate::overdue::{Expected, ExpectedJob};
use crate::status::{JobState, StatusAnswer, StatusQuery};

const RUN: &str = "00000000-0000-0000-0000-000000000007";
const HOUR: i64 = 3_600_000;
const NOW: Wall = Wall(1_000 * HOUR);

fn job(name: &str) -> Job {
    Job::shared(Name::new(name).unwrap())
}

/// An outcome that ended so many minutes ago.
fn outcome(number: u64, status: &str, minutes_ago: i64) -> Value {
    let at = NOW.0 - minutes_ago * 60_000;
    json!({
        "slot": at - 1_000, "zone": "Asia/Tokyo", "status": status, "token": number, "host": "mini",
        "run": format!("00000000-0000-0000-0000-{number:012}"), "trigger": "manual", "started": at - 1_000,
        "finished": at, "exit_code": if status == "ok" { 0 } else { 3 }, "ended_by": "child",
    })
}

fn record(name: &str, ring: &[Value], more: &Value) -> Vec<u8> {
    let mut record = json!({
        "store": RUN, "job": { "name": name }, "token": 900, "grants": 9, "nonce": { "by": RUN, "write": 0 },
        "ledger": { "ring": ring, "counts": {} },
    });
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record.to_string().replacen('{', r#"{"v":2,"#, 1).into_bytes()
}

fn lease(minutes: i64) -> Value {
    let at = NOW.0 - minutes * 60_000;
    json!({ "lease": {
        "run": RUN, "ttl_ms": 300_000, "renewals": 0, "holder": { "host": "mini" }, "slot": at, "zone": "Asia/Tokyo",
        "trigger": "manual", "since": at,
    } })
}

/// The status of one job with this record.
fn one(ring: &[Value], more: &Value, is_dead: bool, expected: Expected) -> StatusAnswer {
    let store = MemoryStore::new();
    store.swap(&Key::job(&job("j")), None, Some(&record("j", ring, more))).unwrap();
    ask(&store, is_dead, expected)
}

fn ask(store: &dyn Store, is_dead: bool, expected: Expected) -> StatusAnswer {
    ask_since(store, is_dead, expected, None)
}

fn ask_since(store: &dyn Store, is_dead: bool, expected: Expected, since: Option<&str>) -> StatusAnswer {
    let view = View {
        store,
        store_url: "memory:".to_string(),
        config: None,
        broken: Vec::new(),
        waiting: Vec::new(),
        now: NOW,
        is_dead: &|_| is_dead,
    };
    view.status(&StatusQuery { job: None, expected, since: since.map(|text| Moment::parse(text, NOW).unwrap()) })
        .unwrap()
}

fn configured(name: &str, schedule: Option<&str>) -> ExpectedJob {
    let zone = Zone::parse("Asia/Tokyo").unwrap();
    ExpectedJob {
        job: job(name),
        per_host: false,
        enabled: true,
        schedule: schedule.map(|text| Schedule::parse(text, &zone).unwrap()),
        zone,
        slack: Duration::from_secs(60),
        on_skips: None,
        is_broken: false,
    }
}

fn expecting(jobs: Vec<ExpectedJob>, floor: Wall) -> Expected {
    Expected { jobs: Some(jobs), grace: None, floor }
}

fn reasons(status: &StatusAnswer) -> Vec<AttentionReason> {
    status.attention.iter().map(|attention| attention.reason).collect()
}

#[test]
fn the_newest_outcome_decides() {
    for (statuses, reason) in [
        ("ok", None),
        ("empty", None),
        ("error ok", None),
        ("ok error", Some(AttentionReason::Error)),
        ("ok timeout", Some(AttentionReason::Timeout)),
        ("ok lost", Some(AttentionReason::Lost)),
        ("ok fenced", Some(AttentionReason::Fenced)),
        ("ok halted", Some(AttentionReason::Halted)),
        ("ok missed", Some(AttentionReason::Missed)),
        ("missed ok", None),
        ("error skipped_barrier", None),
        ("ok skipped_overlap", None),
        ("error skipped_overlap", Some(AttentionReason::Error)),
    ] {
        let ring: Vec<_> =
            statuses.split(' ').enumerate().map(|(at, status)| outcome(at as u64, status, 12 - at as i64)).collect();
        let status = one(&ring, &json!({}), false, Expected::default());
        assert_eq!(reasons(&status), reason.into_iter().collect::<Vec<_>>(), "{statuses}");
        assert_eq!(status.jobs[0].needs_attention, reason.is_some(), "{statuses}");
        let shown: Vec<_> = status.jobs[0].recent.iter().map(|recent| recent.status.as_str()).collect();
        assert_eq!(shown.join(" "), statuses);
    }
}

#[test]
fn a_sentence_says_what_how_often_and_which_command_tells_more() {
    let ring = [outcome(1, "ok", 99), outcome(2, "error", 40), outcome(3, "error", 12)];
    let status = one(&ring, &json!({}), false, Expected::default());
    assert_eq!(status.attention[0].sentence, "j failed (exit 3) at 00:48, 2 times in a row.");
    assert_eq!(status.attention[0].command.as_deref(), Some("fencepost why j"));
    // While another run is going, the job is not well yet.
    let status = one(&ring, &lease(5), false, Expected::default());
    assert_eq!(status.jobs[0].state, JobState::Running);
    assert_eq!(status.attention[0].sentence, "j failed (exit 3) at 00:48, 2 times in a row. A run of it is going now.");
    assert_eq!(status.jobs[0].recent.last().map(|last| last.status.as_str()), Some("running"));
    assert_eq!(status.jobs[0].recent.last().and_then(|last| last.duration_ms), Some(300_000));
    // A run that died and is not recorded yet.
    let status = one(&ring[..1], &lease(5), true, Expected::default());
    assert_eq!((status.jobs[0].state, reasons(&status)), (JobState::Lost, vec![AttentionReason::Lost]));
    assert!(status.attention[0].sentence.starts_with("A run of j on mini, begun at 00:55, did not end properly"));
}

#[test]
fn a_paused_or_disabled_job_needs_no_attention() {
    let paused = json!({ "paused": { "since": NOW.0 - 90 * HOUR, "by": "mini", "note": "holidays" } });
    let status =
        one(&[outcome(1, "ok", 12)], &paused, false, expecting(vec![configured("j", Some("@hourly"))], Wall(0)));
    assert_eq!((status.jobs[0].state, reasons(&status)), (JobState::Paused, vec![]));
    let shown = serde_json::to_value(&status.jobs[0]).unwrap();
    assert_eq!(shown["paused"]["since"], "1970-02-08T07:00:00+09:00");
    // A pause whose time is over is none.
    let over = json!({ "paused": { "since": NOW.0 - 90 * HOUR, "by": "mini", "until": NOW.0 - HOUR } });
    assert_eq!(one(&[outcome(1, "ok", 12)], &over, false, Expected::default()).jobs[0].state, JobState::Free);
    let off = ExpectedJob { enabled: false, ..configured("j", Some("@hourly")) };
    let status = one(&[outcome(1, "error", 12)], &json!({}), false, expecting(vec![off], Wall(0)));
    assert_eq!(reasons(&status), vec![]);
    assert!(!status.jobs[0].enabled && status.jobs[0].next_slot.is_none());
}

#[test]
fn a_configured_job_is_listed_before_its_first_run_and_is_overdue_once_a_slot_passed() {
    let jobs = || vec![configured("new", Some("0 7 * * *")), configured("free", None)];
    let store = MemoryStore::new();
    store.swap(&Key::job(&job("old")), None, Some(&record("old", &[], &json!({})))).unwrap();
    let status = ask(&store, false, expecting(jobs(), NOW));
    let listed: Vec<_> = status.jobs.iter().map(|job| (job.job.as_str(), job.state, job.configured)).collect();
    let [never, free] = [JobState::NeverRan, JobState::Free];
    assert_eq!(listed, [("free", never, true), ("new", never, true), ("old", free, false)]);
    assert_eq!(reasons(&status), []);
    let new = serde_json::to_value(&status.jobs[1]).unwrap();
    assert_eq!((&new["schedule"], &new["timezone"]), (&json!("0 7 * * *"), &json!("Asia/Tokyo")));
    assert_eq!((&new["next_slot"], &new["token"]), (&json!("1970-02-12T07:00:00+09:00"), &json!(0)));
    let status = ask(&store, false, expecting(jobs(), Wall(NOW.0 - 24 * HOUR)));
    assert_eq!(reasons(&status), [AttentionReason::Overdue]);
    let attention = &status.attention[0];
    assert!(attention.sentence.starts_with("new: nothing is recorded for its slot 1970-02-11 07:00:00+09:00"));
    assert_eq!(attention.command.as_deref(), Some("fencepost validate --installed"));
}

#[test]
fn skips_need_attention_only_in_a_row() {
    let skipped = |in_a_row: u64, limit: Option<u64>| {
        let store = MemoryStore::new();
        store.swap(&Key::job(&job("j")), None, Some(&record("j", &[outcome(1, "ok", 99)], &lease(90)))).unwrap();
        let skips = json!({
            "nonce": { "by": RUN, "write": 0 }, "overlap": 40,
            "last": { "at": NOW.0, "host": "mini", "token": 900, "in_a_row": in_a_row },
        });
        let skips = skips.to_string().replacen('{', r#"{"v":2,"#, 1);
        store.swap(&Key::skips(&job("j")), None, Some(skips.as_bytes())).unwrap();
        let expected = ExpectedJob { on_skips: limit, ..configured("j", None) };
        ask(&store, false, expecting(vec![expected], NOW))
    };
    assert_eq!(reasons(&skipped(SKIPS_IN_A_ROW - 1, None)), []);
    assert_eq!(reasons(&skipped(SKIPS_IN_A_ROW, None)), [AttentionReason::Skips]);
    assert_eq!(reasons(&skipped(2, Some(3))), []);
    let status = skipped(3, Some(3));
    let sentence = "3 triggers of j in a row were skipped: its run on mini has been going since Wed 23:30.";
    assert_eq!(status.attention[0].sentence, sentence);
    assert_eq!((status.jobs[0].skips.overlap, status.jobs[0].skips.in_a_row), (40, 3));
}

#[test]
fn what_is_wrong_with_the_store_comes_first() {
    let store = MemoryStore::new();
    store.swap(&Key::job(&job("bad")), None, Some(&record("bad", &[outcome(1, "error", 1)], &json!({})))).unwrap();
    store.swap(&Key::job(&job("torn")), None, Some(b"torn")).unwrap();
    let identity = json!({ "store": RUN, "sealed": { "moved_to": "redis://there" } });
    let identity = identity.to_string().replacen('{', r#"{"v":2,"#, 1);
    store.swap(&Key::identity(), None, Some(identity.as_bytes())).unwrap();
    // Whether the job with the unreadable record ever ran is not known.
    let status = ask(&store, false, expecting(vec![configured("torn", Some("@hourly"))], Wall(0)));
    let expected = [AttentionReason::Sealed, AttentionReason::Unreadable, AttentionReason::Error];
    assert_eq!(reasons(&status), expected);
    assert_eq!(status.jobs.iter().map(|job| job.job.as_str()).collect::<Vec<_>>(), ["bad"]);
}

#[test]
fn a_job_costs_two_reads_and_a_job_that_never_ran_none() {
    let store = Trace::new(MemoryStore::new());
    let calls = |jobs: usize, never_ran: usize| {
        for number in 0..jobs {
            let (name, ring) = (format!("j{number}"), [outcome(1, "error", 1), outcome(2, "ok", 1)]);
            let _ = store.swap(&Key::job(&job(&name)), None, Some(&record(&name, &ring, &json!({}))));
        }
        store.clear();
        let expected = (0..jobs + never_ran).map(|number| configured(&format!("j{number}"), Some("@hourly")));
        assert_eq!(ask(&store, false, expecting(expected.collect(), NOW)).jobs.len(), jobs + never_ran);
        (store.count(TraceVerb::Scan), store.count(TraceVerb::Read))
    };
    // The keys and that there are no more; each job's record and skips; the store's identity.
    assert_eq!(calls(3, 0), (2, 2 * 3 + 1));
    assert_eq!(calls(60, 20), (2, 2 * 60 + 1));
}

#[test]
fn a_digest_counts_the_slots_since_a_moment_of_the_jobs_zone() {
    let store = MemoryStore::new();
    // It is 01:00 in Tokyo. The last midnight there was an hour ago, and in UTC 16 hours ago.
    let mut missed = outcome(9, "missed", 5);
    (missed["slot"], missed["covers"]) =
        (json!(NOW.0 - HOUR), json!({ "from": NOW.0 - 3 * HOUR, "to": NOW.0 - HOUR, "count": 3 }));
    let ended = ["ok", "ok", "empty", "error", "timeout", "lost", "fenced", "halted", "skipped_barrier"];
    let mut ring: Vec<_> =
        ended.iter().enumerate().map(|(at, status)| outcome(20 + at as u64, status, 30 - at as i64)).collect();
    ring.splice(0..0, [outcome(1, "error", 90), missed]);
    store.swap(&Key::job(&job("j")), None, Some(&record("j", &ring, &lease(5)))).unwrap();
    let skips = json!({
        "nonce": { "by": RUN, "write": 0 }, "overlap": 40,
        "hours": [{ "hour": 990, "overlap": 7 }, { "hour": 999, "overlap": 2 }, { "hour": 1000, "overlap": 1 }],
        "last": { "at": NOW.0, "host": "mini", "token": 900, "in_a_row": 1 },
    });
    let skips = skips.to_string().replacen('{', r#"{"v":2,"#, 1);
    store.swap(&Key::skips(&job("j")), None, Some(skips.as_bytes())).unwrap();
    let expected = || expecting(vec![configured("j", Some("@hourly")), configured("new", None)], NOW);
    let digest = |since| ask_since(&store, false, expected(), Some(since)).digest.unwrap();
    let today = serde_json::to_value(digest("today")).unwrap();
    let j = json!({
        "job": "j", "since": "1970-02-12T00:00:00+09:00", "ran": 8, "ok": 2, "empty": 1, "failed": 3, "halted": 1,
        "missed": 1, "fenced": 1, "skipped": 4,
    });
    assert_eq!(today["jobs"][0], j);
    assert_eq!((&today["jobs"][1]["job"], &today["jobs"][1]["ran"]), (&json!("new"), &json!(0)));
    assert_eq!((&today["total"]["failed"], &today["total"]["ran"]), (&j["failed"], &j["ran"]));
    let longer = digest("12h").total;
    assert_eq!((longer.failed, longer.missed, longer.skipped), (4, 3, 11));
}
