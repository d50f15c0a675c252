//! How often a slot is attempted, by which trigger and when: through the real binary.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Said, Site, contains};
use crate::slots::{HOUR, MINUTE, Project, ago, asleep, change, hourly, log, noting, statuses, utc};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_testkit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

const NOTHING: &str = "";

/// A job whose newest slot was half an hour ago, and is due.
fn due(site: &Site) -> String {
    let schedule = hourly(30 * MINUTE);
    asleep(site, "a", &schedule, &ago(90 * MINUTE));
    schedule
}

/// Every hour, the next slot in this time.
fn hourly_in(next: Duration) -> (String, Wall) {
    let slot = Wall((clock::now().wall.0 + next.as_millis() as i64).div_euclid(1000) * 1000 + 1000);
    (format!("every 1h from {}", Zone::utc().show(Wall(slot.0 - 9 * 3_600_000))), slot)
}

#[test]
fn a_failed_slot_is_attempted_once_over_all_triggers_and_each_exits_with_its_code() {
    let site = Site::new();
    let schedule = due(&site);
    let script = format!("{}; exit 3", noting(&site, "x"));
    let run = |more: &[&str]| site.say(&[&["run", "a", "--schedule", &schedule], more, &["-c", &script]].concat());
    assert_eq!(run(&[]).code, 3);
    for _ in 0..3 {
        let silent = Said { code: 3, stdout: NOTHING.into(), stderr: NOTHING.into() };
        assert_eq!((run(&[]), run(&["-E", "16"])), (silent.clone(), silent));
    }
    let said = run(&["-v"]);
    assert_eq!(said.code, 3);
    contains(&said.stderr, &["attempts are used up", "--again"]);
    let said = run(&["--json"]);
    contains(&said.stdout, &["\"code\":3", "\"reason\":\"failed\""]);
    assert_eq!(log(&site).len(), 1);
    assert_eq!(site.job("a")["counts"], json!({ "error": 1 }));
    contains(site.json(&["plan", "a"])["reason"].as_str().unwrap(), &["attempts are used up"]);
    assert_eq!(run(&["--again"]).code, 3);
    assert_eq!(run(&[]).code, 3);
    assert_eq!(log(&site).len(), 2, "only --again repeats it");
    let good = site.say(&["run", "a", "--schedule", &schedule, "--again", "--", "true"]);
    assert_eq!((good.code, run(&[]).code), (0, 0));
}

#[test]
fn a_named_slot_is_attempted_once_and_a_run_without_slots_always_runs() {
    let site = Site::new();
    let script = format!("{}; exit 4", noting(&site, "x"));
    for slot in ["day", "2026-11-05T07:00Z"] {
        let run = || site.say(&["run", "a", "--slot", slot, "-E", "16", "-c", &script]).code;
        assert_eq!([run(), run(), run()], [4, 4, 4]);
    }
    assert_eq!(log(&site).len(), 2);
    let run = || site.say(&["run", "b", "-c", &script]).code;
    assert_eq!([run(), run()], [4, 4]);
    assert_eq!(log(&site).len(), 4);
}

#[test]
fn the_code_of_a_failure_is_that_of_the_run_that_failed() {
    let site = Site::new();
    let says = format!("{} record error; exit 0", env!("CARGO_BIN_EXE_fencepost"));
    let failures: [(&str, &[&str], i32); 3] = [
        ("late", &["--timeout", "100ms", "--", "sleep", "60"], 124),
        ("bare", &["--produces", "no-such-file", "--", "true"], 118),
        ("said", &["-c", &says], 1),
    ];
    for (job, how, code) in failures {
        let run = || site.say(&[&["run", job, "--slot", "2026-11-05T07:00Z"], how].concat());
        let first = run();
        assert_eq!(first.code, code, "{first:?}");
        assert_eq!((run().code, site.runs(&[job]).len()), (code, 1), "{job}");
    }
    assert_eq!(site.say(&["record", "hand", "error", "--slot", "2026-11-05T07:00Z"]).code, 0);
    let said = site.say(&["run", "hand", "--slot", "2026-11-05T07:00Z", "-c", "echo ran"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
}

#[test]
fn retries_count_over_triggers() {
    let site = Site::new();
    let schedule = due(&site);
    let script = format!("{}; exit 7", noting(&site, "$FENCEPOST_SLOT $FENCEPOST_TRIGGER"));
    let retries = ["--retries", "2", "--retry-backoff", "1h"];
    let run = [&["run", "a", "--schedule", &schedule], &retries[..], &["-c", &script]].concat();
    let mut first = site.command(&run).stderr(Stdio::null()).spawn().unwrap();
    eventually("the first attempt is recorded", || site.runs(&[]).iter().any(|run| run["status"] == "error"));
    // The machine is shut down while it waits for its first retry. The next trigger makes the second attempt.
    kill(Pid::from_raw(first.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(143));
    let retries = ["--retries", "2", "--retry-backoff", "10ms"];
    let run = [&["run", "a", "--schedule", &schedule], &retries[..], &["-c", &script]].concat();
    assert_eq!((site.say(&run).code, log(&site).len()), (7, 3));
    assert_eq!((site.say(&run).code, log(&site).len()), (7, 3));
    let log = log(&site);
    assert_eq!(log[1], log[2], "a retry has the trigger of the attempt that it retries");
    assert!(log[1].ends_with(" catch_up"), "{log:?}");
}

#[test]
fn what_never_came_to_an_end_of_its_own_uses_no_attempt() {
    let site = Site::new();
    let schedule = due(&site);
    let script = noting(&site, "ran");
    let run = |more: &[&str]| site.say(&[&["run", "a", "--schedule", &schedule], more].concat()).code;
    assert_eq!(run(&["--", "/no/such/program"]), 127);
    assert_eq!(run(&["--prepare", "exit 5", "-c", &script]), 5);
    assert_eq!(run(&["--needs", "other@any", "-c", &script]), 115);
    let mut command = site.command(&["run", "a", "--schedule", &schedule, "-c", "echo started; exec sleep 60"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 7]).unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(run(&["-c", &script]), 0);
    assert_eq!(log(&site), ["ran"]);
    assert_eq!(statuses(&site.runs(&["a"])), ["ok", "error", "halted", "error", "error"]);
}

#[test]
fn a_signal_to_fencepost_ends_the_row_of_retries_and_of_slots() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(10 * HOUR));
    let script = format!("{}; echo started; exec sleep 60", noting(&site, "x"));
    let more = ["--catch-up", "3", "--retries", "2", "--retry-backoff", "10ms", "-c", &script];
    let mut command = site.command(&[&["run", "a", "--schedule", &schedule], &more[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 7]).unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(log(&site).len(), 1);
}

#[test]
fn one_trigger_tries_each_slot_once() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(10 * HOUR));
    let run = |more: &[&str]| {
        site.say(&[&["run", "a", "--schedule", &schedule, "--catch-up", "3", "--needs", "other@any"], more].concat())
    };
    let said = run(&["--", "true"]);
    assert_eq!(said.code, 115, "{said:?}");
    let runs = site.runs(&["a"]);
    assert_eq!(statuses(&runs), ["halted", "halted", "halted", "missed"]);
    let mut slots: Vec<&str> = runs[..3].iter().map(|run| run["slot"].as_str().unwrap()).collect();
    slots.dedup();
    assert_eq!(slots.len(), 3, "{slots:?}");
    // The next trigger tries them again.
    assert_eq!(site.say(&["record", "other", "ok"]).code, 0);
    assert_eq!(run(&["-c", &noting(&site, "$FENCEPOST_SLOT")]).code, 0);
    assert_eq!(log(&site).len(), 3);
}

#[test]
fn an_early_trigger_waits_for_its_slot_and_two_of_them_run_it_once() {
    let site = Site::new();
    let (schedule, slot) = hourly_in(Duration::from_secs(3));
    asleep(&site, "a", &schedule, &ago(Duration::ZERO));
    let script = noting(&site, "$(date +%s%3N) $FENCEPOST_SLOT $FENCEPOST_TRIGGER");
    let run = ["run", "a", "--schedule", &schedule, "-v", "-c", &script];
    let triggers: Vec<_> =
        (0..2).map(|_| site.command(&run).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).collect();
    let plan = site.json(&["plan", "a", "--schedule", &schedule]);
    assert_eq!((utc(plan["next_slot"].as_str().unwrap()), site.job("a")["next_slot"].clone()), {
        (slot, plan["next_slot"].clone())
    });
    let dry = site.say(&["run", "a", "--schedule", &schedule, "--dry-run", "--", "true"]).stdout;
    contains(&dry, &["a would wait", "for its slot", "then run"]);
    let said: Vec<Said> = triggers.into_iter().map(|child| Said::of(child.wait_with_output().unwrap())).collect();
    assert!(said.iter().all(|said| said.code == 0), "{said:?}");
    assert!(said.iter().all(|said| said.stderr.contains("is early: it waits")), "{said:?}");
    let log = log(&site);
    assert_eq!(log.len(), 1, "{log:?}");
    let words: Vec<&str> = log[0].split(' ').collect();
    assert!(words[0].parse::<i64>().unwrap() >= slot.0, "{words:?}");
    assert_eq!((utc(words[1]), words[2]), (slot, "schedule"));
}

#[test]
fn an_earlier_trigger_finds_nothing_due() {
    let site = Site::new();
    let (schedule, _) = hourly_in(Duration::from_secs(90));
    asleep(&site, "a", &schedule, &ago(Duration::ZERO));
    let begun = Instant::now();
    let run = |more: &[&str]| site.say(&[&["run", "a", "--schedule", &schedule], more, &["-c", "echo ran"]].concat());
    assert_eq!(run(&[]), Said { code: 0, stdout: NOTHING.into(), stderr: NOTHING.into() });
    assert_eq!(run(&["-E", "16"]).code, 16);
    // A quarter of its period is less than the slack.
    assert_eq!(site.say(&["run", "b", "--every", "1h", "--slack", "2s", "-c", "echo ran"]).stdout, "");
    assert!(begun.elapsed() < Duration::from_secs(20));
    let future = Zone::utc().show(Wall(clock::now().wall.0 + 3_600_000));
    let said = site.say(&["run", "c", "--slot", &future, "-E", "16", "-c", "echo ran"]);
    assert_eq!((said.code, said.stdout.as_str()), (16, ""));
}

#[test]
fn a_clock_that_was_ahead_when_a_run_ended_does_not_silence_the_job() {
    let site = Site::new();
    let schedule = due(&site);
    assert_eq!(site.say(&["run", "a", "--schedule", &schedule, "-c", "sleep 0.3"]).code, 0);
    // The clock was a day ahead when the run ended.
    change(&site, "a", |record| {
        let last = record.ledger.ring.last_mut().unwrap();
        assert!(last.took.is_some_and(|took| took < Duration::from_secs(30)), "{last:?}");
        last.finished = Wall(last.finished.0 + 24 * 3_600_000);
    });
    let last = &site.runs(&["a"])[0];
    assert!((300..30_000).contains(&last["duration_ms"].as_u64().unwrap()), "by the boot clock: {last}");
    for hours in [1, 5, 23] {
        let at = Zone::utc().show(Wall(clock::now().wall.0 + hours * 3_600_000));
        let plan = site.json(&["plan", "a", "--schedule", &schedule, "--at", &at]);
        assert_eq!(plan["run"].as_array().unwrap().len(), 1, "{plan}");
    }
}

#[test]
fn a_record_by_hand_is_for_the_slot_that_is_due_by_the_schedule_of_the_last_run() {
    let site = Site::new();
    let schedule = due(&site);
    assert_eq!(site.say(&["record", "a", "ok"]).code, 0);
    let last = &site.runs(&["a"])[0];
    let since = clock::now().wall.since(utc(last["slot"].as_str().unwrap()));
    assert!((29 * MINUTE..31 * MINUTE).contains(&since), "{last}");
    assert_eq!(site.say(&["run", "a", "--schedule", &schedule, "-c", "echo ran"]).stdout, "", "it is done");
}

#[test]
fn a_run_now_for_a_future_slot_says_so_and_everything_agrees_on_the_next() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(10 * MINUTE));
    let next = || site.json(&["plan", "a", "--schedule", &schedule])["next_slot"].as_str().map(utc).unwrap();
    let first = next();
    let said = site.say(&["run", "a", "--schedule", &schedule, "--now", "--", "true"]);
    assert_eq!(said.code, 0);
    let shown = Zone::utc().show(first);
    contains(&said.stderr, &["takes the slot", &shown[11..16]]);
    assert_eq!(utc(site.runs(&["a"])[0]["slot"].as_str().unwrap()), first);
    assert_eq!(next(), Wall(first.0 + 3_600_000));
    assert_eq!(utc(site.job("a")["next_slot"].as_str().unwrap()), next());
}

#[test]
fn a_dry_run_decides_as_the_run_does() {
    let site = Site::new();
    let schedule = due(&site);
    let dry = |more: &[&str]| {
        let said = site.say(&[&["run", "a", "--schedule", &schedule, "--dry-run", "--json"], more].concat());
        let answer: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        (answer["decision"].as_str().unwrap().to_string(), answer["reason"].as_str().unwrap().to_string(), said.code)
    };
    let is = |decision: &str, reason: &str, code| (decision.to_string(), reason.to_string(), code);
    assert_eq!(dry(&["--", "true"]), is("run", "free", 0));
    assert_eq!(dry(&["--needs", "other@any", "--", "true"]), is("halt", "halted", 115));
    site.say(&["pause", "a"]);
    assert_eq!(dry(&["-E", "11", "--", "true"]), is("skip", "paused", 11));
    site.say(&["resume", "a"]);
    assert_eq!(dry(&["--", "true"]), is("skip", "not_due", 0));
    assert!(site.runs(&["a"]).is_empty(), "nothing was written");
    let slot = ["run", "b", "--slot", "day"];
    assert_eq!(site.say(&[&slot[..], &["-c", "exit 3"]].concat()).code, 3);
    let said = site.say(&[&slot[..], &["--dry-run", "--", "true"]].concat());
    assert_eq!(said.code, 3);
    contains(&said.stdout, &["b would fail", "attempts are used up"]);
    let holder = site.holder("c", &[]);
    let said = site.say(&["run", "c", "--dry-run", "-E", "75", "--", "true"]);
    assert_eq!(said.code, 75);
    contains(&said.stdout, &["c would be skipped", "held by"]);
    assert_eq!(holder.finish().code, 0);
}

#[test]
fn up_follows_the_same_rule() {
    let every = hourly(30 * MINUTE);
    let text = format!("[job.a]\nschedule = \"{every}\"\ncommand = \"echo x >> log; exit 6\"\n");
    let project = Project::new(&text);
    project.say(&["run", "a"]);
    change(&project.site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), timing.evaluated.map(|at| Wall(at.0 - 3_600_000)));
    });
    for _ in 0..3 {
        assert_eq!(project.say(&["up", "--once"]).code, 6);
    }
    let ran = std::fs::read_to_string(project.site.path("project/log")).unwrap();
    assert_eq!(ran, "x\n");
}

#[test]
fn a_plan_of_long_ago_takes_no_time() {
    let site = Site::new();
    let begun = Instant::now();
    for schedule in ["* * * * *", "0 7 * * *", "0 0 29 2 *", "every 1m", "*/5 * * * * *"] {
        for at in ["0001-01-01", "9998-01-01"] {
            let said = site.say(&["plan", "a", "--schedule", schedule, "--at", at]);
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
