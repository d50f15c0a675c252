//! Slots through the real binary: one run for each, from any trigger and however late.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Said, Site, contains, keys, lines, sorted};
use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_store::{Access, StoreHandle, Swapped};
use fencepost_testkit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

pub const HOUR: Duration = Duration::from_secs(3600);
pub const MINUTE: Duration = Duration::from_secs(60);

/// This long ago, as it is written on the command line.
pub fn ago(length: Duration) -> String {
    Zone::utc().show(Wall(clock::now().wall.0 - length.as_millis() as i64).floor_to_second())
}

trait Floor {
    fn floor_to_second(self) -> Self;
}

impl Floor for Wall {
    fn floor_to_second(self) -> Self {
        Self(self.0.div_euclid(1000) * 1000)
    }
}

/// Every hour, the last slot this long ago.
pub fn hourly(last: Duration) -> String {
    format!("every 1h from {}", ago(9 * HOUR + last))
}

/// A job that was asleep: it was first seen long ago, and everything is accounted for until then.
pub fn asleep(site: &Site, job: &str, schedule: &str, since: &str) {
    let said = site.say(&["run", job, "--schedule", schedule, "--catch-up", "0", "--slack", "0s", "--", "true"]);
    assert_eq!(said.code, 0, "{said:?}");
    change(site, job, |record| {
        let timing = record.timing.as_mut().expect("it was seen");
        (timing.since, timing.evaluated) = (Wall(0), Some(Zone::utc().parse_time(since).unwrap()));
        record.ledger = Default::default();
    });
}

pub fn change(site: &Site, job: &str, change: impl FnOnce(&mut Record)) {
    let store = StoreHandle::new(&format!("sqlite:{}", site.database().display()), Access::default()).open().unwrap();
    let job = Job::parse(job).unwrap();
    let entry = store.read(&Key::job(&job)).unwrap().value.unwrap();
    let mut record = Record::decode(&entry.bytes, &job).unwrap();
    change(&mut record);
    let swapped = store.swap(&Key::job(&job), Some(&entry.version), Some(&record.encode())).unwrap().value;
    assert!(matches!(swapped, Swapped::Won(_)));
}

pub fn log(site: &Site) -> Vec<String> {
    fs::read_to_string(site.path("log")).unwrap_or_default().lines().map(str::to_string).collect()
}

/// A command that writes down what it was told.
pub fn noting(site: &Site, what: &str) -> String {
    format!("echo \"{what}\" >> {}", site.path("log").display())
}

pub fn statuses(runs: &[Value]) -> Vec<&str> {
    runs.iter().map(|run| run["status"].as_str().unwrap()).collect()
}

pub fn utc(text: &str) -> Wall {
    Zone::utc().parse_time(text).unwrap()
}

// Many machines.

#[test]
fn four_machines_trigger_one_slot_at_one_instant_and_it_runs_once() {
    let site = Site::new();
    let store = format!("sqlite:{}", site.path("shared.db").display());
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds < 200 && (rounds < 40 || begun.elapsed() < Duration::from_secs(15)) {
        let slot = Zone::utc().show(Wall(1_790_000_000_000 + rounds * 60_000));
        let script = noting(&site, "$FENCEPOST_SLOT $FENCEPOST_KEY");
        let machines: Vec<Child> = (0..4)
            .map(|machine| {
                let arguments = ["run", "race", "--store", &store, "--slot", &slot, "-E", "16", "-c", &script];
                let mut command = site.command(&arguments);
                command.env("FENCEPOST_STATE_DIR", site.path(&format!("machine{machine}")));
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let said: Vec<Said> = machines.into_iter().map(|child| Said::of(child.wait_with_output().unwrap())).collect();
        let mut codes: Vec<i32> = said.iter().map(|said| said.code).collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 16, 16, 16], "round {rounds}: {said:?}");
        assert_eq!(log(&site).last(), Some(&format!("{slot} race/{slot}")));
        rounds += 1;
    }
    println!("{rounds} rounds");
    assert_eq!(log(&site).len() as i64, rounds);
    let mut status = site.command(&["status", "race", "--json", "--store", &store]);
    let status: Value = serde_json::from_slice(&status.output().unwrap().stdout).unwrap();
    let counts = &status["jobs"][0]["counts"];
    assert_eq!(counts["ok"], rounds, "{counts}");
    assert_eq!(counts["skipped_duplicate"], 3 * rounds, "{counts}");
}

#[test]
fn killed_in_the_middle_a_slot_is_completed_by_a_later_trigger_once() {
    let site = Site::new();
    let schedule = format!("every 1h from {}", ago(Duration::from_secs(2)));
    let arguments = ["run", "a", "--schedule", &schedule, "-c", "echo ok"];
    site.holder("a", &["--schedule", &schedule, "--grace", "200ms"]).kill();
    let said: Vec<Said> = (0..3).map(|_| site.say(&arguments)).collect();
    assert!(said.iter().all(|said| said.code == 0), "{said:?}");
    assert_eq!(said.iter().map(|said| said.stdout.as_str()).collect::<String>(), "ok\n");
    let runs = site.runs(&["a"]);
    assert_eq!(statuses(&runs), ["ok", "lost"]);
    assert_eq!(runs[0]["slot"], runs[1]["slot"]);
    assert_eq!(site.job("a")["counts"]["skipped_duplicate"], 2);
}

#[test]
fn a_slot_whose_run_died_halts_if_that_is_wanted() {
    let site = Site::new();
    let slot = ["--slot", "2026-11-05T07:00Z", "--on-lost", "halt"];
    site.holder("a", &slot).kill();
    let say = |more: &[&str]| site.say(&[&["run", "a"], &slot[..], more, &["-c", "echo ok"]].concat());
    for _ in 0..2 {
        let said = say(&[]);
        assert_eq!((said.code, said.stdout.as_str()), (117, ""));
        contains(&said.stderr, &["died", "--again"]);
    }
    assert_eq!(say(&["--again"]).stdout, "ok\n");
    assert_eq!(say(&["-E", "16"]).code, 16);
}

// Retries.

#[test]
fn a_failed_run_is_tried_again_after_a_pause_that_grows() {
    let site = Site::new();
    let path = site.path("log").display().to_string();
    let note = noting(&site, "$(date +%s%N) $FENCEPOST_SLOT");
    let script = format!("{note}; test $(wc -l < {path}) -ge 3 || exit 7");
    let backoff = ["--retries", "3", "--retry-backoff", "200ms"];
    let said = site.say(&[&["run", "a", "--slot", "hour"], &backoff[..], &["-c", &script]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(statuses(&site.runs(&["a"])), ["ok", "error", "error"]);
    let log = log(&site);
    let words: Vec<Vec<&str>> = log.iter().map(|line| line.split(' ').collect()).collect();
    assert!(words.windows(2).all(|pair| pair[0][1] == pair[1][1]), "one slot: {words:?}");
    let starts: Vec<u64> = words.iter().map(|words| words[0].parse::<u64>().unwrap() / 1_000_000).collect();
    assert!(starts[1] - starts[0] >= 200 && starts[2] - starts[1] >= 400, "{starts:?}");
}

#[test]
fn after_the_last_retry_the_exit_code_is_the_commands() {
    let site = Site::new();
    let script = format!("{}; exit 7", noting(&site, "x"));
    let said = site.say(&["run", "a", "--retries", "2", "--retry-backoff", "10ms", "-c", &script]);
    assert_eq!((said.code, log(&site).len()), (7, 3));
    // What could not be started at all is not tried again.
    let said = site.say(&["run", "b", "--retries", "2", "--retry-backoff", "10ms", "--", "no-such-program"]);
    assert_eq!(said.code, 127);
    assert_eq!(site.runs(&["b"]).len(), 1);
}

#[test]
fn whoever_waits_for_a_retry_can_be_ended() {
    let site = Site::new();
    let script = format!("{}; exit 7", noting(&site, "x"));
    let mut command = site.command(&["run", "a", "--retries", "5", "--retry-backoff", "1h", "-c", &script]);
    let mut child = command.spawn().unwrap();
    eventually("the first try is recorded", || site.runs(&[]).iter().any(|run| run["exit_code"] == 7));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(log(&site).len(), 1);
}

#[test]
fn signals_reach_the_command_of_a_retry() {
    let site = Site::new();
    let path = site.path("log").display().to_string();
    let script = format!("echo x >> {path}; test $(wc -l < {path}) -ge 2 || exit 7; exec sleep 60");
    let mut command = site.command(&["run", "a", "--retries", "1", "--retry-backoff", "10ms", "-c", &script]);
    let mut child = command.spawn().unwrap();
    eventually("the second try is going", || log(&site).len() == 2);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

// Plain cron.

pub struct Project {
    pub site: Site,
}

impl Project {
    pub fn new(text: &str) -> Self {
        let project = Self { site: Site::new() };
        fs::create_dir_all(project.site.path("project")).unwrap();
        project.write(text);
        project
    }

    fn write(&self, text: &str) {
        fs::write(self.site.path("project/fencepost.toml"), text).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.env("FENCEPOST_CONFIG", self.site.path("project/fencepost.toml"));
        command
    }

    pub fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let said = self.say(&[arguments, &["--json"]].concat());
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }
}

#[test]
fn polled_by_plain_cron_a_job_runs_when_it_is_due_and_else_says_nothing() {
    let every = hourly(30 * MINUTE);
    let project =
        Project::new(&format!("[job.a]\nschedule = \"{every}\"\ncommand = \"echo $FENCEPOST_SLOT >> log\"\n"));
    let ran = || fs::read_to_string(project.site.path("project/log")).unwrap_or_default().lines().count();
    let quiet = Said { code: 0, stdout: String::new(), stderr: String::new() };
    // First sight: what was before is not caught up.
    assert_eq!(project.say(&["run", "a"]), quiet);
    assert_eq!(ran(), 0);
    change(&project.site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), timing.evaluated.map(|at| Wall(at.0 - 3_600_000)));
    });
    assert_eq!(project.say(&["run", "a"]), quiet);
    assert_eq!(ran(), 1);
    for _ in 0..3 {
        assert_eq!(project.say(&["run", "a"]), quiet);
        assert_eq!(project.say(&["run", "a", "-E", "16"]).code, 16);
    }
    assert_eq!(ran(), 1);
    assert_eq!(project.site.job("a")["counts"], json!({ "ok": 1 }), "what is not due is not counted");
    let runs = project.site.runs(&["a"]);
    assert_eq!((statuses(&runs), &runs[0]["trigger"]), (vec!["ok"], &json!("catch_up")));
}

#[test]
fn an_edit_of_the_schedule_catches_nothing_up() {
    let text = |every: &str| format!("[job.a]\nschedule = \"{every}\"\ncatch_up = 9\ncommand = \"echo ran\"\n");
    let project = Project::new(&text(&hourly(30 * MINUTE)));
    project.say(&["run", "a"]);
    change(&project.site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), Some(Wall(0)));
    });
    project.write(&text(&hourly(20 * MINUTE)));
    assert_eq!(project.say(&["run", "a"]).stdout, "");
    assert_eq!(project.json(&["plan", "a"])["run"], json!([]));
    assert!(project.site.runs(&["a"]).is_empty());
}

// What the command is told.

#[test]
fn a_run_is_told_its_slot() {
    let site = Site::new();
    let tell = "echo $FENCEPOST_SLOT $FENCEPOST_DATE $FENCEPOST_TZ $FENCEPOST_TRIGGER $FENCEPOST_LATE_SECONDS \
                $FENCEPOST_KEY ${FENCEPOST_SLOT_COUNT-none} ${FENCEPOST_AGAIN-none}";
    let said = site.say(&["run", "a", "--slot", "2026-11-05T00:30", "--tz", "Asia/Tokyo", "-c", tell]);
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    assert_eq!(words[..4], ["2026-11-05T00:30:00+09:00", "2026-11-05", "Asia/Tokyo", "manual"]);
    assert_eq!(words[5..], ["a/2026-11-04T15:30:00+00:00", "none", "none"]);

    let (last, schedule) = (ago(30 * MINUTE), hourly(30 * MINUTE));
    asleep(&site, "b", &schedule, &ago(90 * MINUTE));
    let said = site.say(&["run", "b", "--schedule", &schedule, "-c", tell]);
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    let near = |shown: &str| utc(shown).0.abs_diff(utc(&last).0) <= 5_000;
    assert!(near(words[0]) && words[3] == "catch_up", "{words:?}");
    assert!((1800..1860).contains(&words[4].parse::<u64>().unwrap()), "{words:?}");
    assert_eq!(words[5], format!("b/{}", words[0]));
}

#[test]
fn a_run_that_covers_a_gap_is_told_so() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(6 * HOUR));
    let tell = "echo $FENCEPOST_SLOT_FROM $FENCEPOST_SLOT_TO $FENCEPOST_SLOT_COUNT $FENCEPOST_SLOT";
    let collapse = ["run", "a", "--schedule", &schedule, "--catch-up-mode", "collapse", "-c", tell];
    let said = site.say(&collapse);
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    assert_eq!((words[2], words[1]), ("6", words[3]));
    assert_eq!(utc(words[1]).since(utc(words[0])), 5 * HOUR);
    assert_eq!(site.say(&collapse).stdout, "");
    let run = &site.runs(&["a"])[0];
    assert_eq!((&run["status"], &run["count"]), (&json!("ok"), &json!(6)), "{run}");
}

// Catching up.

#[test]
fn what_was_run_before_its_time_is_the_newest_to_repeat() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    let note = noting(&site, "$FENCEPOST_SLOT");
    assert_eq!(site.say(&["run", "a", "--schedule", &schedule, "--", "true"]).code, 0);
    for (how, code) in [("--now", 1), ("--again", 0)] {
        let script = format!("{note}; exit {code}");
        assert_eq!(site.say(&["run", "a", "--schedule", &schedule, how, "-c", &script]).code, code, "{how}");
    }
    let log = log(&site);
    assert_eq!(log[0], log[1]);
}

#[test]
fn a_name_that_nobody_knows_is_not_paused() {
    let site = Site::new();
    for verb in ["pause", "resume"] {
        let said = site.say(&[verb, "nobody"]);
        assert_eq!(said.code, 2, "{said:?}");
        contains(&said.stderr, &["is known", "has never run on"]);
    }
    assert_eq!(site.json(&["status"])["jobs"], json!([]));
}

#[test]
fn three_missed_slots_run_in_order_with_a_pause_between_their_starts() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(10 * HOUR));
    let note = noting(&site, "$(date +%s%N) $FENCEPOST_SLOT $FENCEPOST_TRIGGER");
    let script = format!("{note}; sleep 0.4; test $(wc -l < {}) != 2 || exit 9", site.path("log").display());
    let three = ["run", "a", "--schedule", &schedule, "--catch-up", "3", "--catch-up-spacing", "700ms"];
    let said = site.say(&[&three[..], &["-c", &script]].concat());
    assert_eq!(said.code, 9, "the first code of the row that is not 0: {said:?}");
    contains(&said.stderr, &["missed 7 slots"]);
    let log = log(&site);
    let words: Vec<Vec<&str>> = log.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!(words.len(), 3, "{words:?}");
    assert!(words.iter().all(|words| words[2] == "catch_up"));
    for pair in words.windows(2) {
        assert_eq!(utc(pair[1][1]).since(utc(pair[0][1])), HOUR, "in order");
        let between = (pair[1][0].parse::<u64>().unwrap() - pair[0][0].parse::<u64>().unwrap()) / 1_000_000;
        // The pause is between the starts of the runs. Their commands start a moment after each, and not always the same one;
        // without it they would be 400 ms apart.
        assert!((600..).contains(&between), "{between} ms");
    }
    let runs = site.runs(&["a"]);
    assert_eq!(statuses(&runs), ["ok", "error", "ok", "missed"]);
    assert_eq!(runs[3]["count"], 7, "{}", runs[3]);
    assert_eq!(site.say(&["run", "a", "--schedule", &schedule, "--catch-up", "3", "-c", &script]).stderr, "");
    assert_eq!(self::log(&site).len(), 3, "an older slot that failed is not tried again");
}

#[test]
fn with_the_newest_first_a_failure_does_not_keep_the_others_waiting() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(10 * HOUR));
    let path = site.path("log").display().to_string();
    let script = format!("{}; test $(wc -l < {path}) != 1 || exit 9", noting(&site, "$FENCEPOST_SLOT"));
    let three = ["run", "a", "--schedule", &schedule, "--catch-up", "3", "--catch-up-order", "newest", "-c", &script];
    assert_eq!(site.say(&three).code, 9);
    let slots: Vec<Wall> = log(&site).iter().map(|line| utc(line)).collect();
    assert!(slots.len() == 3 && slots[0] > slots[1] && slots[1] > slots[2], "{slots:?}");
    assert_eq!(site.job("a")["counts"], json!({ "error": 1, "missed": 1, "ok": 2 }));
    assert_eq!(site.say(&three).code, 9, "the code of the newest, which failed");
    assert_eq!(log(&site).len(), 3, "no slot is tried again");
}

#[test]
fn nine_hours_of_sleep() {
    let table = [("0", 0, Some(9)), ("1", 1, Some(8)), ("3", 3, Some(6)), ("9", 9, None)];
    for (catch_up, runs, missed) in table {
        let site = Site::new();
        let schedule = hourly(30 * MINUTE);
        asleep(&site, "a", &schedule, &ago(9 * HOUR + 30 * MINUTE - MINUTE));
        let plan = site.json(&["plan", "a", "--catch-up", catch_up]);
        assert_eq!(plan["run"].as_array().unwrap().len(), runs, "{plan}");
        assert_eq!(plan["dropped"]["count"].as_u64(), missed, "{plan}");
        let script = noting(&site, "$FENCEPOST_SLOT");
        for _ in 0..2 {
            let said = site.say(&["run", "a", "--schedule", &schedule, "--catch-up", catch_up, "-c", &script]);
            assert_eq!(said.code, 0, "{said:?}");
        }
        let planned: Vec<&str> = plan["run"].as_array().unwrap().iter().map(|slot| slot.as_str().unwrap()).collect();
        assert_eq!(log(&site), planned, "what was planned is what ran");
        let written: Vec<Value> = site.runs(&["a"]).into_iter().filter(|run| run["status"] == "missed").collect();
        assert_eq!(
            written.iter().map(|run| run["count"].as_u64()).collect::<Vec<_>>(),
            Vec::from_iter(missed.map(Some))
        );
    }
}

#[test]
fn a_slot_that_is_late_never_runs_without_catch_up_and_one_that_is_on_time_does() {
    let site = Site::new();
    for (job, last, expected) in [("late", Duration::from_secs(90), ""), ("timely", Duration::from_secs(20), "ran\n")] {
        let schedule = hourly(last);
        asleep(&site, job, &schedule, &ago(2 * HOUR));
        let said = site.say(&["run", job, "--schedule", &schedule, "--catch-up", "0", "-c", "echo ran"]);
        assert_eq!((said.code, said.stdout.as_str()), (0, expected), "{job}");
    }
    let said =
        site.say(&["run", "wide", "--schedule", &hourly(Duration::from_secs(90)), "--slack", "3m", "-c", "echo ran"]);
    assert_eq!(said.stdout, "ran\n", "within its slack");
}

// The plan.

#[test]
fn a_plan_says_what_would_run_and_changes_nothing() {
    let project = Project::new(
        "timezone = \"America/New_York\"\n[job.daily]\nschedule = \"30 2 * * *\"\ncommand = \"true\"\ncatch_up = 2\n",
    );
    assert_eq!(project.json(&["plan", "daily"])["run"], json!([]));
    assert!(!project.site.database().exists(), "a plan makes no store");
    project.say(&["run", "daily", "--slack", "0s"]);
    let plan = project.json(&["plan", "daily", "--at", "2027-03-15T02:40"]);
    assert_eq!(keys(&plan), sorted("v run dropped next_slot reason"));
    assert_eq!(keys(&plan["dropped"]), sorted("count from to"));
    assert_eq!(plan["run"], json!(["2027-03-14T03:00:00-04:00", "2027-03-15T02:30:00-04:00"]), "the clocks skip 02:30");
    assert_eq!(plan["next_slot"], "2027-03-16T02:30:00-04:00");
    let text = project.say(&["plan", "daily", "--at", "2027-03-15T02:40"]).stdout;
    contains(
        &text,
        &["schedule  30 2 * * *", "run       2027-03-14 03:00:00-04:00 (catch_up", "dropped   ", "next ", "why "],
    );
    contains(&text, &["clocks"]);
    let autumn = project.json(&["plan", "daily", "--at", "2027-11-07T12:00", "--catch-up", "1"]);
    assert_eq!(autumn["run"], json!(["2027-11-07T02:30:00-05:00"]));
    let said = project.say(&["plan", "unheard-of"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["No job unheard-of is known"]);
}

#[test]
fn ten_years_of_missed_minutes_are_planned_as_fast_as_an_hour() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "a", "--schedule", "* * * * *", "--", "true"]).code, 0);
    change(&site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), Some(utc("2026-11-05T07:00Z")));
        record.ledger = Default::default();
    });
    let timed = |at: &str| {
        let begun = Instant::now();
        let plan = site.json(&["plan", "a", "--at", at]);
        (begun.elapsed(), plan)
    };
    let (hour, short) = timed("2026-11-05T08:00:20Z");
    let (decade, long) = timed("2036-11-05T07:00:20Z");
    assert_eq!((&short["dropped"]["count"], &long["dropped"]["count"]), (&json!(59), &json!(5_260_319)));
    assert_eq!(long["run"], json!(["2036-11-05T07:00:00+00:00"]));
    contains(long["reason"].as_str().unwrap(), &["5260319 slots", "catch_up is 1"]);
    println!("{hour:?} and {decade:?}");
    assert!(decade < hour * 5 + Duration::from_secs(1), "{hour:?} and {decade:?}");
}

// By hand.

#[test]
fn a_run_now_satisfies_its_slot() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    let run = |more: &[&str]| site.say(&[&["run", "a", "--schedule", &schedule], more, &["-c", "echo ran"]].concat());
    assert_eq!(run(&["--now"]).stdout, "ran\n", "on first sight, too");
    let said = run(&["--now", "-v"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    contains(&said.stderr, &["done already"]);
    assert_eq!(run(&[]).stdout, "");
    assert_eq!(run(&["--again"]).stdout, "ran\n");
    assert_eq!(run(&["--now", "--again"]).code, 125);
    assert_eq!(site.say(&["run", "b", "--now", "--", "true"]).code, 125, "it has no slots");
}

#[test]
fn a_paused_job_is_waved_off_until_it_is_resumed() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    assert_eq!(site.json(&["pause", "a", "--note", "moving house"]), json!({ "v": 1, "job": "a", "paused": true }));
    let said = site.say(&["run", "a", "-E", "11", "-v", "-c", "echo ran"]);
    assert_eq!((said.code, said.stdout.as_str()), (11, ""));
    contains(&said.stderr, &["paused", "moving house", "fencepost resume a"]);
    contains(&site.say(&["plan", "a", "--schedule", "@daily"]).stdout, &["paused"]);
    contains(&site.say(&["why", "a"]).stdout, &["It is paused since", "moving house"]);
    assert_eq!(site.job("a")["counts"]["skipped_paused"], 1);
    assert_eq!(site.json(&["resume", "a"])["paused"], false);
    assert_eq!(site.say(&["resume", "a"]).code, 0);
    assert_eq!(site.say(&["run", "a", "-c", "echo ran"]).stdout, "ran\n");
}

#[test]
fn what_passes_during_a_pause_is_not_caught_up() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(6 * HOUR));
    assert_eq!(site.say(&["pause", "a"]).code, 0);
    let run = || site.say(&["run", "a", "--schedule", &schedule, "--catch-up", "9", "-c", "echo ran"]).stdout;
    assert_eq!(run(), "");
    assert_eq!(site.say(&["resume", "a"]).code, 0);
    assert_eq!(run(), "");
    assert!(site.runs(&["a"]).is_empty());
}

// Observing.

#[test]
fn observed_only_a_job_runs_whatever_would_have_been_decided() {
    let site = Site::new();
    let observe = |more: &[&str]| site.say(&[&["run", "a", "--observe"], more, &["-c", "echo ran; exit 5"]].concat());
    // Held.
    let holder = site.holder("a", &["--slot", "2026-11-05T07:00Z"]);
    let said = observe(&[]);
    assert_eq!((said.code, said.stdout.as_str()), (5, "ran\n"));
    contains(&said.stderr, &["observing only", "skipped_overlap"]);
    assert_eq!(site.job("a")["counts"]["skipped_overlap"], 1);
    // A duplicate of what is running, and of what is done.
    for code in [0, 1] {
        let said = observe(&["--slot", "2026-11-05T07:00Z"]);
        assert_eq!((said.code, said.stdout.as_str()), (5, "ran\n"), "{code}");
        contains(&said.stderr, &["skipped_duplicate"]);
    }
    assert_eq!(holder.finish().code, 0);
    observe(&["--slot", "2026-11-05T07:00Z"]);
    assert_eq!(site.job("a")["counts"]["skipped_duplicate"], 3);
    assert_eq!(statuses(&site.runs(&["a"])), ["ok"], "what it would not have run has no slot");
    // Paused.
    site.say(&["pause", "a"]);
    assert_eq!(observe(&[]).code, 5);
    assert_eq!(site.job("a")["counts"]["skipped_paused"], 1);
}

#[test]
fn observed_only_a_run_is_neither_halted_nor_stopped() {
    let site = Site::new();
    site.say(&["record", "upstream", "error"]);
    let said = site.say(&["run", "a", "--observe", "--needs", "upstream@any", "-c", "echo ran"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "ran\n"), "{said:?}");
    contains(&said.stderr, &["would have been halted"]);
    let run = &site.runs(&["a"])[0];
    assert_eq!(run["status"], "ok");
    contains(run["note"].as_str().unwrap(), &["observed: halted"]);

    let said = site.say(&["run", "b", "--observe", "--timeout", "200ms", "-c", "sleep 0.6; exit 3"]);
    assert_eq!(said.code, 3);
    contains(&said.stderr, &["would have been timeout"]);
    let run = &site.runs(&["b"])[0];
    assert_eq!((&run["status"], &run["exit_code"]), (&json!("error"), &json!(3)));
    contains(run["note"].as_str().unwrap(), &["observed: timeout"]);
}

#[test]
fn what_happens_to_slots_is_among_the_events() {
    let site = Site::new();
    let schedule = hourly(30 * MINUTE);
    asleep(&site, "a", &schedule, &ago(6 * HOUR));
    let events = site.path("events").display().to_string();
    site.say(&["run", "a", "--schedule", &schedule, "--events", &events, "--", "true"]);
    let told = lines(&fs::read_to_string(&events).unwrap());
    let missed = told.iter().find(|event| event["event"] == "missed").expect("what was missed is told");
    assert_eq!(missed["count"], 5, "{missed}");
    assert!(told.iter().any(|event| event["event"] == "claimed"));
}
