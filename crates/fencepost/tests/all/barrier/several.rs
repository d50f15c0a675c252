//! Several upstreams, upstreams that had nothing, and what is said of it.

use crate::common::contains;
use crate::desk::{DAY, Desk, at, noon, now};
use fencepost_core::time::Wall;
use fencepost_testkit::eventually;

const WORDS: [(&str, &str); 3] = [("ok", "proceed"), ("empty", "skip"), ("error", "halt")];

/// Any halt halts, else any skip skips.
#[test]
fn the_strictest_of_several_upstreams_decides() {
    for (first, one) in WORDS {
        for (second, other) in WORDS {
            let desk = Desk::new();
            desk.done(&["record", "a", first, "--tz", &noon()]);
            desk.done(&["record", "b", second, "--tz", &noon()]);
            let expected = *["halt", "skip", "proceed"].iter().find(|word| [one, other].contains(word)).unwrap();
            let (code, json) = desk.gate(&["a", "b", "--tz", &noon()]);
            assert_eq!(json["decision"], expected, "{json}");
            assert_eq!(code, [("proceed", 0), ("skip", 14), ("halt", 15)].iter().find(|k| k.0 == expected).unwrap().1);
            let decisions: Vec<_> = json["upstreams"].as_array().unwrap().iter().map(|up| &up["decision"]).collect();
            assert_eq!(decisions, [one, other]);
            // Only what decides is a reason.
            let reason = json["reason"].as_str().unwrap();
            for (job, decision) in [("a ", one), ("b ", other)] {
                assert_eq!(reason.contains(job), decision == expected, "{json}");
            }
            let needs = ["--needs", "a", "--needs", "b", "--tz", &noon(), "-E", "99", "-c", "echo ran"];
            let said = desk.say(&[&["run", "c"], &needs[..]].concat());
            let code = match expected {
                "proceed" => 0,
                "skip" => 99,
                _ => 115,
            };
            assert_eq!((said.code, said.stdout.as_str()), (code, if code == 0 { "ran\n" } else { "" }), "{said:?}");
            // The counters by upstream.
            let gauges = desk.record("c").upstreams;
            let counted = |job: &str| gauges.get(job).map_or((0, 0), |gauge| (gauge.halts, gauge.skips));
            for (job, decision) in [("a", one), ("b", other)] {
                let halts = u64::from(decision == "halt");
                let skips = u64::from(decision == "skip" && expected == "skip");
                assert_eq!(counted(job), (halts, skips), "{first} {second}");
            }
        }
    }
}

/// Yesterday's file is in place and the refresh is dead: incident 4.
#[test]
fn yesterdays_leftovers_halt_with_a_sentence_for_tired_people() {
    let desk = Desk::configured(
        r#"
        timezone = "Asia/Tokyo"
        [job.reference]
        schedule = "0 7 * * *"
        command = "date > reference.md"
        produces = ["reference.md"]
        [job.article]
        schedule = "0 12 * * *"
        needs = [{ job = "reference", artifact = "reference.md" }]
        command = "cp $FENCEPOST_IN_REFERENCE published"
        "#,
    );
    desk.write("reference.md", "old news");
    desk.done(&["record", "reference", "ok", "--artifact", "reference.md", "--slot", "2026-03-10T07:00"]);
    assert_eq!(desk.say(&["gate", "reference", "--artifact", "reference.md", "--slot", "2026-03-10T12:00"]).code, 0);
    let said = desk.say(&["gate", "reference", "--artifact", "reference.md", "--slot", "2026-03-11T12:00"]);
    assert_eq!((said.code, said.stdout.as_str()), (15, ""));
    assert_eq!(
        said.stderr,
        "fencepost: halt: reference has no record for its slot of 2026-03-11 07:00 (Asia/Tokyo): it did not run. Its \
         last good run was for 2026-03-10 07:00 (Asia/Tokyo); what lies there may be as old as that.\n"
    );
    // And under `run`, by its configuration alone, on any day.
    let said = desk.say(&["run", "article", "--now"]);
    assert_eq!((said.code, desk.has("published")), (115, false), "{said:?}");
    contains(&said.stderr, &["article was halted, nothing was run", "it did not run", "2026-03-10 07:00 (Asia/Tokyo)"]);
    let json = desk.say(&["run", "article", "--now", "--json"]);
    contains(&json.stdout, &[r#""code":115"#, r#""reason":"halted""#, "it did not run"]);
}

/// A quiet holiday makes no red anywhere, and cron mails nothing.
#[test]
fn a_quiet_holiday_is_quiet_everywhere() {
    let desk = Desk::new();
    let zone = noon();
    desk.done(&["run", "up", "--tz", &zone, "-c", r#"$BINARY record empty --note "no news today""#]);
    let said = desk.shell(&format!(
        r#"set -e
           $BINARY run down --tz {zone} --needs up -- echo ran
           $BINARY run downer --tz {zone} --needs down -- echo ran
           $BINARY gate up --tz {zone} -- echo ran
           $BINARY gate down --tz {zone} -- echo ran
           if $BINARY gate up --tz {zone}; then echo wrong; else test $? = 14; fi
           echo end"#
    ));
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "end\n", ""), "{said:?}");
    assert_eq!(desk.last("up").status.as_str(), "empty");
    assert_eq!(desk.last("down").status.as_str(), "skipped_barrier");
    // A skip of an upstream is passed on.
    assert_eq!(desk.last("downer").status.as_str(), "skipped_barrier");
    let aloud = desk.say(&["run", "down", "-v", "--tz", &zone, "--needs", "up", "--", "true"]);
    contains(&aloud.stderr, &["down skipped, there is nothing to do", "no news today"]);
}

#[test]
fn an_upstream_that_had_nothing_is_passed_over_where_that_is_asked_for() {
    let config = r#"
        [job.down]
        needs = [{ job = "up", artifact = "data", when = "any", on_empty = "proceed" }]
        command = "cat $FENCEPOST_IN_UP"
        "#;
    let desk = Desk::configured(config);
    desk.write("data", "the last there was");
    // Nothing was ever good: there is nothing to read.
    desk.done(&["record", "up", "empty"]);
    assert_eq!(desk.say(&["run", "down"]).code, 115);
    assert_eq!(desk.say(&["gate", "up@any,on-empty=proceed"]).code, 0, "no artifact is named");
    assert_eq!(desk.say(&["gate", "up@any"]).code, 14);
    assert_eq!(desk.say(&["gate", "up@any", "--on-empty-proceed"]).code, 0);
    desk.done(&["record", "up", "ok", "--artifact", "data", "--slot", &at(Wall(now().0 - DAY))]);
    desk.done(&["record", "up", "empty"]);
    let good = desk.record("up").ledger.last_ok.unwrap();
    assert_eq!(desk.done(&["run", "down"]).stdout, "the last there was");
    let consumed = desk.last("down").upstreams;
    assert_eq!((consumed[0].slot, consumed[0].run, consumed.len()), (good.slot, good.run, 1));
    assert_eq!(consumed[0].sha256, Some(good.artifacts[0].sha256));
    // What lies there has to be what the last good run left.
    desk.write("data", "something else");
    assert_eq!(desk.say(&["run", "down"]).code, 115);
    // An error is no nothing.
    desk.write("data", "the last there was");
    desk.done(&["record", "up", "error"]);
    assert_eq!(desk.say(&["run", "down"]).code, 115);
}

#[test]
fn a_gate_with_a_command_passes_its_exit_code_and_its_signals_on() {
    let desk = Desk::new();
    desk.write("data", "bytes");
    desk.done(&["record", "up", "ok", "--artifact", "data"]);
    let gate = ["gate", "up@any", "--artifact", "data", "--"];
    let said = desk.say(&[&gate[..], &["sh", "-c", r#"cat "$FENCEPOST_IN_UP"; exit 7"#]].concat());
    assert_eq!((said.code, said.stdout.as_str()), (7, "bytes"));
    assert_eq!(desk.say(&[&gate[..], &["no-such-command"]].concat()).code, 127);
    let mut child = desk.command(&[&gate[..], &["sh", "-c", "echo $$ > pid; exec sleep 60"]].concat()).spawn().unwrap();
    eventually("the command runs", || desk.read("pid").ends_with('\n'));
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(desk.pins().is_empty());
    desk.done(&["record", "up", "error"]);
    assert_eq!(desk.say(&[&gate[..], &["touch", "ran"]].concat()).code, 15);
    assert!(!desk.has("ran"));
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_runs() {
    let desk = Desk::new();
    let wrong: [(&[&str], &str); 6] = [
        (&["--needs", "down"], "needs itself"),
        (&["--needs", "a-b,artifact=x", "--needs", "a_b,artifact=y"], "FENCEPOST_IN_A_B"),
        (&["--needs", "up,artifact=x", "--needs", "up@any,artifact=y"], "twice"),
        (&["--needs", "up@sameday"], "@same-day?"),
        (&["--needs", "up,on-empty=maybe"], "skip or proceed"),
        (&["--needs", "up@within=soon"], "soon"),
    ];
    for (needs, words) in wrong {
        let said = desk.say(&[&["run", "down"], needs, &["-c", "touch ran"]].concat());
        assert_eq!((said.code, desk.has("ran")), (125, false), "{said:?}");
        contains(&said.stderr, &[words]);
    }
    assert_eq!(desk.say(&["gate", "a-b,artifact=x", "a_b,artifact=y"]).code, 2);
    assert_eq!(desk.say(&["gate", "a", "b", "--artifact", "x"]).code, 2);
    assert_eq!(desk.say(&["gate"]).code, 2);
}

/// A word that is nearly right is the most common reason for a job that never ran.
#[test]
fn a_job_that_never_ran_is_asked_for_by_the_nearest_name() {
    let desk = Desk::new();
    desk.done(&["record", "reference", "ok"]);
    let said = desk.say(&["gate", "refrence@any"]);
    assert_eq!(said.code, 15);
    contains(&said.stderr, &["refrence has never run on this store.", "\"reference\"?"]);
}
