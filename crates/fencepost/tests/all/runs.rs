//! `fencepost runs` beyond the last few: days, zones, the history, and outcomes too long for a record.

use crate::common::{Site, contains, keys, sorted};
use crate::ledger::{Past, ended};
use fencepost_core::artifact::{Artifact, Fingerprint};
use fencepost_core::ledger::{Consumed, Covered, Ending, Status};
use fencepost_core::token::RunId;
use serde_json::{Value, json};

fn slots(runs: &[Value]) -> Vec<&str> {
    runs.iter().map(|run| run["slot"].as_str().unwrap()).collect()
}

#[test]
fn all_of_a_hundred_runs_are_listed_newest_first() {
    let site = Site::new();
    let script = r#"i=0; while [ $i -lt 100 ]; do "$BINARY" run j -c "exit $i"; i=$((i+1)); done"#;
    site.shell(script);
    let codes = |arguments: &[&str]| -> Vec<u64> {
        site.runs(arguments).iter().map(|run| run["exit_code"].as_u64().unwrap()).collect()
    };
    let newest_first: Vec<u64> = (0..100).rev().collect();
    assert_eq!(codes(&["-n", "100"]), newest_first);
    assert_eq!(codes(&["j", "-n", "1000"]), newest_first);
    assert_eq!(codes(&[]), newest_first[..50]);
    assert_eq!(codes(&["-n", "33"]), newest_first[..33]);
    assert_eq!(codes(&["-n", "1"]), [99]);
    assert_eq!(codes(&["-n", "0"]), [0; 0]);
    assert_eq!(codes(&["--status", "ok"]), [0], "the only good one is the oldest");
    assert_eq!(site.say(&["runs", "-n", "100"]).stdout.lines().count(), 2 + 1 + 100);
}

#[test]
fn runs_of_several_jobs_stand_in_the_order_of_their_slots() {
    let site = Site::new();
    let (a, b) = (Past::of(&site, "a", "UTC"), Past::of(&site, "b", "Asia/Tokyo"));
    for hour in 0..20 {
        for day in 1..=3 {
            a.record(&format!("2026-08-0{day}T{hour:02}:00"), ended(Status::Ok));
        }
        b.record(&format!("2026-08-02T{hour:02}:30"), ended(Status::Error));
    }
    let mut all = site.runs(&["-n", "1000"]);
    assert_eq!(all.len(), 80);
    let instants =
        |runs: &[Value]| -> Vec<jiff::Timestamp> { slots(runs).iter().map(|slot| slot.parse().unwrap()).collect() };
    assert!(instants(&all).is_sorted_by(|newer, older| newer >= older), "{:?}", slots(&all));
    all.truncate(45);
    assert_eq!(site.runs(&["-n", "45"]), all);
    assert_eq!(site.runs(&["--status", "error"]).len(), 20);
}

#[test]
fn a_day_is_the_jobs_own_day() {
    let site = Site::new();
    let tokyo = Past::of(&site, "tokyo", "Asia/Tokyo");
    let utc = Past::of(&site, "utc", "UTC");
    for past in [&tokyo, &utc] {
        for slot in ["2026-07-31T23:59", "2026-08-01T00:00", "2026-08-01T23:59", "2026-08-02T00:00"] {
            past.record(slot, ended(Status::Ok));
        }
    }
    let day = ["--since", "2026-08-01", "--until", "2026-08-01"];
    let runs = site.runs(&day);
    assert_eq!(
        slots(&runs),
        [
            "2026-08-01T23:59:00+00:00",
            "2026-08-01T23:59:00+09:00",
            "2026-08-01T00:00:00+00:00",
            "2026-08-01T00:00:00+09:00"
        ]
    );
    assert!(runs.iter().all(|run| run["date"] == "2026-08-01"), "{runs:?}");
    let chosen = |arguments: &[&str]| slots(&site.runs(arguments)).join(" ");
    let in_tokyo = [&day[..], &["utc", "--tz", "Asia/Tokyo"]].concat();
    assert_eq!(
        chosen(&in_tokyo),
        "2026-08-01T00:00:00+00:00 2026-07-31T23:59:00+00:00",
        "a day of Tokyo ends at 15:00"
    );
    assert_eq!(chosen(&["tokyo", "--until", "2026-07-31"]), "2026-07-31T23:59:00+09:00");
    assert_eq!(chosen(&["tokyo", "--since", "2026-08-02T00:00"]), "2026-08-02T00:00:00+09:00");
    assert_eq!(chosen(&["tokyo", "--since", "2026-08-01T15:00:00Z"]), "2026-08-02T00:00:00+09:00");
    assert_eq!(chosen(&["tokyo", "--until", "2026-07-31T14:59:00Z"]), "2026-07-31T23:59:00+09:00");
    assert_eq!(chosen(&["tokyo", "--since", "2026-08-03"]), "");
    contains(&site.say(&["runs", "tokyo"]).stdout, &["2026-08-01 23:59:00+09:00"]);
    for (wrong, hint) in [(["--since", "tomorrow"], "2026-03-08"), (["--tz", "Tokyo"], "Asia/Tokyo")] {
        let said = site.say(&[&["runs"], &wrong[..]].concat());
        assert_eq!(said.code, 2, "{said:?}");
        contains(&said.stderr, &[wrong[0], hint]);
    }
}

#[test]
fn a_run_that_spans_midnight_or_a_change_of_the_clocks_belongs_to_its_slots_day() {
    let site = Site::new();
    for (zone, slot, shown, date) in [
        ("America/New_York", "2026-03-08T03:00", "2026-03-08T03:00:00-04:00", "2026-03-08"),
        ("America/New_York", "2026-11-01T01:30", "2026-11-01T01:30:00-04:00", "2026-11-01"),
        ("Europe/London", "2026-10-25T00:30", "2026-10-25T00:30:00+01:00", "2026-10-25"),
        ("Pacific/Apia", "2011-12-31T00:00", "2011-12-31T00:00:00+14:00", "2011-12-31"),
        ("Asia/Tokyo", "2026-08-01T23:59", "2026-08-01T23:59:00+09:00", "2026-08-01"),
        ("UTC", "2026-08-01T23:59", "2026-08-01T23:59:00+00:00", "2026-08-01"),
    ] {
        let job = format!("{zone}/{date}");
        Past::of(&site, &job, zone).record(slot, ended(Status::Ok));
        let runs = site.runs(&[&job, "--since", date, "--until", date]);
        assert_eq!(slots(&runs), [shown]);
        assert_eq!((&runs[0]["date"], &runs[0]["timezone"]), (&json!(date), &json!(zone)));
    }
}

#[test]
fn days_that_are_only_in_the_history_are_found() {
    let site = Site::new();
    let past = Past::of(&site, "j", "Asia/Tokyo");
    for day in 1..=31 {
        for hour in ["07", "12", "18"] {
            let status = if (day, hour) == (3, "12") { Status::Error } else { Status::Ok };
            past.record(&format!("2026-07-{day:02}T{hour}:00"), ended(status));
        }
    }
    assert!((53..=61).contains(&past.history()), "the record keeps 32 to 40 of 93, not all but {}", past.history());
    let runs = site.runs(&["--since", "2026-07-03", "--until", "2026-07-03"]);
    let expected = ["2026-07-03T18:00:00+09:00", "2026-07-03T12:00:00+09:00", "2026-07-03T07:00:00+09:00"];
    assert_eq!(slots(&runs), expected);
    assert_eq!(slots(&site.runs(&["--status", "error"])), expected[1..2]);
    assert_eq!(slots(&site.runs(&["--until", "2026-07-03", "-n", "2"])), expected[..2]);
    assert_eq!(site.runs(&["--since", "2026-07-01", "-n", "100"]).len(), 93);
}

#[test]
fn what_the_record_cut_is_shown_whole() {
    let site = Site::new();
    let past = Past::of(&site, "j", "Asia/Tokyo");
    let artifacts: Vec<_> = (0..20)
        .map(|number| Artifact {
            path: format!("out/{number}"),
            size: number,
            sha256: Fingerprint([number as u8; 32]),
            unknown: Default::default(),
        })
        .collect();
    let run = RunId(uuid::Uuid::now_v7());
    let upstreams: Vec<_> = (0..10)
        .map(|number| Consumed {
            job: format!("up-{number}"),
            slot: past.at("2026-08-01T07:00"),
            run,
            sha256: (number > 0).then_some(Fingerprint([7; 32])),
            unknown: Default::default(),
        })
        .collect();
    let note = format!("first line\n{}", "n".repeat(1_000));
    let ending = Ending { artifacts, upstreams, note: Some(note.clone()), exit_code: Some(0), ..ended(Status::Ok) };
    past.record("2026-08-01T12:00", ending);
    let shown = &site.runs(&["j"])[0];
    assert_eq!(shown["note"], note);
    assert_eq!(shown["artifacts"].as_array().map(Vec::len), Some(20));
    let expected = json!({ "path": "out/3", "size": 3, "sha256": "03".repeat(32) });
    assert_eq!(shown["artifacts"][3], expected);
    assert_eq!(keys(&shown["upstreams"][0]), sorted("job slot run sha256"));
    let expected =
        json!({ "job": "up-0", "slot": "2026-08-01T07:00:00+09:00", "run": run.to_string(), "sha256": null });
    assert_eq!(shown["upstreams"][0], expected);
    assert_eq!(shown["upstreams"][9]["sha256"], "07".repeat(32));
    assert_eq!(&site.job("j")["last_ok"], shown);
    let table = site.say(&["runs"]).stdout;
    assert_eq!(table.lines().count(), 4, "a note stands on one line: {table}");
    contains(&table, &["first line nnn"]);
}

#[test]
fn an_outcome_that_stands_for_several_slots_says_which() {
    let site = Site::new();
    let past = Past::of(&site, "j", "Asia/Tokyo");
    past.record("2026-08-05T07:00", ended(Status::Missed));
    let covers = Covered { from: past.at("2026-08-02T07:00"), to: past.at("2026-08-05T07:00"), count: 4 };
    past.change_last(|outcome| outcome.covers = Some(covers));
    let run = &site.runs(&[])[0];
    assert_eq!(
        json!([run["slot_from"], run["slot_to"], run["count"]]),
        json!(["2026-08-02T07:00:00+09:00", "2026-08-05T07:00:00+09:00", 4])
    );
    for (day, found) in [("2026-08-01", 0), ("2026-08-02", 1), ("2026-08-04", 1), ("2026-08-06", 0)] {
        assert_eq!(site.runs(&["--since", day, "--until", day]).len(), found, "{day}");
    }
    contains(&site.say(&["runs"]).stdout, &["missed", "× 4"]);
}

#[test]
fn every_sixteenth_run_gives_up_what_is_old() {
    let site = Site::new();
    let past = Past::of(&site, "j", "UTC");
    for day in 1..=31 {
        past.record(&format!("2020-01-{day:02}"), ended(if day == 2 { Status::Ok } else { Status::Error }));
    }
    // 31 grants so far. At the 48th the ring still holds much of 2020, so that nothing is old.
    site.shell(r#"i=0; while [ $i -lt 31 ]; do "$BINARY" run j -- false; i=$((i+1)); done"#);
    assert!((22..=30).contains(&past.history()), "the record keeps 32 to 40 of 62, not all but {}", past.history());
    let said = site.say(&["run", "-v", "j", "--", "false"]);
    assert_eq!(said.code, 1);
    assert_eq!(site.runs(&["-n", "100"]).len(), 63);
    let said = site.shell(r#"i=63; while [ $i -lt 80 ]; do "$BINARY" run j -- false; i=$((i+1)); done"#);
    let failures = "fencepost: j failed (exit 1).\n".repeat(17);
    assert_eq!((said.stdout, said.stderr), (String::new(), failures), "no word of what was given up");
    let old = site.runs(&["-n", "100", "--until", "2020-12-31"]);
    assert_eq!(slots(&old), ["2020-01-02T00:00:00+00:00"]);
    assert_eq!(site.job("j")["last_ok"]["slot"], "2020-01-02T00:00:00+00:00");
}
