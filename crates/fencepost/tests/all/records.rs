//! The ledger by the real command: many writers, every attempt, and faults at every system call.

use std::fs;
use std::process::Stdio;
use std::sync::Barrier;

use crate::common::{BINARY, Said, contains};
use crate::desk::{Desk, at, job, now};
use fencepost_core::ledger::{Outcome, RING_OUTCOMES_KEPT, RING_OUTCOMES_MAX, Status};
use fencepost_core::name::Key;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_store::Store;

/// Starts all commands as closely together as can be, and says how they ended.
fn at_one_instant(desk: &Desk, commands: &[Vec<String>]) -> Vec<Said> {
    let start = Barrier::new(commands.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = commands
            .iter()
            .map(|arguments| {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                let mut command = desk.command(&arguments);
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    Said::of(command.output().unwrap())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

#[test]
fn sixty_four_processes_that_record_at_one_instant_leave_sixty_four_records() {
    let desk = Desk::new();
    let commands: Vec<_> = (0..64).map(|number| words(&format!("record job-{number} ok --note {number}"))).collect();
    for said in at_one_instant(&desk, &commands) {
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    }
    let keys = desk.store().scan(Key::JOBS, None, 1000).unwrap().value;
    assert_eq!(keys.len(), 64);
    let store = desk.record("job-0").store;
    for number in 0..64 {
        let record = desk.record(&format!("job-{number}"));
        assert_eq!((record.store, record.grants, record.ledger.ring.len()), (store, 1, 1));
        assert_eq!(record.ledger.ring[0].note, Some(number.to_string()));
    }
}

/// Both are kept, and the one with the higher token is what became of the slot.
#[test]
fn two_attempts_of_one_slot_at_one_instant_are_both_kept() {
    let desk = Desk::new();
    for round in 0..40 {
        let slot = Wall(1_760_000_000_000 + round * 60_000);
        let command = |word: &str| words(&format!("record job {word} --slot {}", at(slot)));
        for said in at_one_instant(&desk, &[command("ok"), command("error")]) {
            assert_eq!(said.code, 0, "{said:?}");
        }
        let record = desk.record("job");
        let attempts: Vec<&Outcome> = record.ledger.attempts(slot).collect();
        assert_eq!(attempts.len(), 2, "round {round}");
        assert!(attempts[0].token < attempts[1].token);
        assert_ne!(attempts[0].status, attempts[1].status);
        let (code, json) = desk.gate(&["job@same-slot", "--slot", &at(slot)]);
        assert_eq!(json["upstreams"][0]["status"], attempts[1].status.as_str());
        assert_eq!(code, if attempts[1].status == Status::Ok { 0 } else { 15 });
    }
    assert_eq!(desk.record("job").ledger.counts.values().sum::<u64>(), 80);
}

/// Long ones go through the history as well, and none of them twice.
#[test]
fn long_attempts_of_one_slot_at_one_instant_are_all_kept_whole() {
    let desk = Desk::new();
    let slot = Wall(1_760_000_000_000);
    let note = |number: usize| format!("{number:x>300}");
    let commands: Vec<_> =
        (0..16).map(|number| words(&format!("record job ok --slot {} --note {}", at(slot), note(number)))).collect();
    for said in at_one_instant(&desk, &commands) {
        assert_eq!(said.code, 0, "{said:?}");
    }
    let record = desk.record("job");
    assert_eq!(record.ledger.ring.len(), 16);
    let whole = desk.history("job", slot);
    for kept in &record.ledger.ring {
        let found: Vec<_> = whole.iter().filter(|whole| whole.attempt() == kept.attempt()).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].note.as_ref().unwrap().len(), 300);
    }
}

#[test]
fn a_record_of_a_job_that_is_held_is_refused() {
    let desk = Desk::new();
    let holder = desk.site.holder("job", &[]);
    let said = desk.say(&["record", "job", "ok"]);
    assert_eq!(said.code, 11);
    contains(&said.stderr, &["job was not recorded: it is held by", "Record it when that run has ended"]);
    let json: serde_json::Value = serde_json::from_str(&desk.say(&["record", "job", "ok", "--json"]).stdout).unwrap();
    assert_eq!((&json["error"]["code"], &json["error"]["reason"]), (&11.into(), &"held".into()), "{json}");
    assert_eq!(desk.record("job").ledger.ring.len(), 0);
    holder.finish();
    desk.done(&["record", "job", "error"]);
    assert_eq!(desk.record("job").ledger.ring.len(), 2);
    // One that died is written down as lost, and the record lands behind it.
    desk.site.holder("job", &[]).kill();
    desk.done(&["record", "job", "ok"]);
    let statuses: Vec<_> = desk.record("job").ledger.ring.iter().map(|outcome| outcome.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::Error, Status::Lost, Status::Ok]);
    assert!(desk.record("job").lease.is_none());
    // A lease by hand holds it as well.
    desk.done(&["lease", "acquire", "job", "--ttl", "60s"]);
    assert_eq!(desk.say(&["record", "job", "ok"]).code, 11);
}

#[test]
fn everything_that_left_the_ring_of_a_hundred_runs_is_in_the_history() {
    let desk = Desk::new();
    let mut runs = Vec::new();
    for number in 0..100 {
        let script = format!("exit {}", number % 3);
        desk.say(&["run", "job", "-c", &script]);
        let last = desk.last("job");
        assert_eq!(last.exit_code, Some(number % 3));
        runs.push(last);
    }
    let record = desk.record("job");
    let kept = record.ledger.ring.len();
    assert!((RING_OUTCOMES_KEPT..=RING_OUTCOMES_MAX).contains(&kept), "{kept}");
    assert_eq!(record.ledger.ring, runs[100 - kept..]);
    for run in &runs[..100 - kept] {
        assert_eq!(desk.history("job", run.slot), std::slice::from_ref(run));
    }
    assert_eq!(record.ledger.counts[&Status::Ok], 34);
    assert_eq!(record.ledger.last_ok.as_ref(), runs.iter().rev().find(|run| run.status == Status::Ok));
}

/// The date that a job is told is the one of its slot, in its zone, wherever the machine is.
#[test]
fn a_run_is_told_the_date_of_its_slot_in_its_zone() {
    for zone in ["Asia/Tokyo", "America/New_York", "Europe/London", "Pacific/Apia", "UTC"] {
        let desk = Desk::new();
        let script = "echo $FENCEPOST_DATE; echo $FENCEPOST_SLOT; echo $FENCEPOST_TZ";
        let mut command = desk.command(&["run", "job", "--tz", zone, "-c", script]);
        let said = Said::of(command.env("TZ", "Pacific/Kiritimati").output().unwrap());
        let (outcome, rules) = (desk.last("job"), Zone::parse(zone).unwrap());
        let told = format!("{}\n{}\n{zone}\n", rules.date(outcome.slot), rules.show(outcome.slot));
        assert_eq!((said.code, said.stdout, outcome.zone.as_str()), (0, told, zone));
    }
}

/// A run that ends on another day than its slot's belongs to its slot's day, for itself and for its downstreams.
#[test]
fn a_run_belongs_to_the_day_of_its_slot_whenever_it_runs() {
    for (zone, day, next) in [
        ("Asia/Tokyo", "2026-03-10", "2026-03-11"),
        ("America/New_York", "2026-03-07", "2026-03-08"),
        ("Europe/London", "2026-10-24", "2026-10-25"),
        ("Pacific/Apia", "2011-12-29", "2011-12-31"),
        ("UTC", "2026-02-28", "2026-03-01"),
    ] {
        let desk = Desk::new();
        let slot = format!("{day}T23:59:59");
        let said = desk.done(&["run", "job", "--slot", &slot, "--tz", zone, "-c", "echo $FENCEPOST_DATE"]);
        assert_eq!(said.stdout, format!("{day}\n"), "{zone}");
        let gate = |date: &str| desk.say(&["gate", "job", "--date", date, "--tz", zone]).code;
        assert_eq!((gate(day), gate(next)), (0, 15), "{zone}");
        assert!(desk.last("job").finished > desk.last("job").slot);
    }
}

/// Local times that come twice or never, and days that never were.
#[test]
fn a_slot_is_one_instant_whatever_the_clocks_on_the_walls_do() {
    let slots = [
        ("Asia/Tokyo", "2026-03-10T00:00", "2026-03-09T15:00:00Z"),
        ("America/New_York", "2026-03-08T03:00", "2026-03-08T07:00:00Z"),
        ("America/New_York", "2026-11-01T01:30", "2026-11-01T05:30:00Z"),
        ("Europe/London", "2026-03-29T02:00", "2026-03-29T01:00:00Z"),
        ("Europe/London", "2026-10-25T01:30", "2026-10-25T00:30:00Z"),
        ("Pacific/Apia", "2011-12-31T00:00", "2011-12-30T10:00:00Z"),
        ("Pacific/Apia", "2026-03-10T00:00", "2026-03-09T11:00:00Z"),
        ("UTC", "2026-12-31T23:59:59.999", "2026-12-31T23:59:59.999Z"),
    ];
    for (zone, local, instant) in slots {
        let desk = Desk::new();
        desk.done(&["record", "job", "ok", "--slot", local, "--tz", zone]);
        assert_eq!(desk.last("job").slot, Zone::utc().parse_time(instant).unwrap(), "{zone} {local}");
        assert_eq!(desk.say(&["gate", "job@same-slot", "--slot", instant]).code, 0, "{zone} {local}");
    }
    let desk = Desk::new();
    for (zone, skipped, next) in [
        ("America/New_York", ["--slot", "2026-03-08T02:30"], "2026-03-08T03:00:00-04:00"),
        ("Europe/London", ["--slot", "2026-03-29T01:30"], "2026-03-29T02:00:00+01:00"),
        ("Pacific/Apia", ["--slot", "2011-12-30T12:00"], "2011-12-31T00:00:00+14:00"),
        ("Pacific/Apia", ["--date", "2011-12-30"], "2011-12-31T00:00:00+14:00"),
    ] {
        let said = desk.say(&[&["record", "job", "ok", "--tz", zone], &skipped[..]].concat());
        assert_eq!(said.code, 2, "{zone} {skipped:?}: {said:?}");
        assert!(said.stderr.contains("does not exist") && said.stderr.contains(next), "{said:?}");
    }
    for wrong in [["--tz", "Asia/Tokio"], ["--slot", "noon"], ["--date", "2026-02-30"], ["--date", "2026-3-1"]] {
        assert_eq!(desk.say(&[&["record", "job", "ok"], &wrong[..]].concat()).code, 2, "{wrong:?}");
    }
}

/// Calls that a command makes which can fail or be its last.
const CALLS: [&str; 14] = [
    "openat",
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "unlink",
    "ftruncate",
    "mkdir",
    "fcntl",
    "flock",
    "rename",
    "fchmod",
    "pread64",
    "read",
];

/// Runs a record once for every call of these kinds, each time with the fault at another one.
fn at_every_call(
    fault: &str,
    calls: &[&str],
    prepare: impl Fn() -> Desk,
    arguments: &[&str],
    judge: impl Fn(&str, &Desk, &Said),
) -> usize {
    let mut faults = 0;
    let desk = prepare();
    for call in calls {
        for number in 1.. {
            let log = desk.path("strace.log");
            let inject = format!("inject={call}:{fault}:when={number}");
            let trace =
                ["-f", "-qq", "-e", &format!("trace={call}"), "-e", &inject, "-o", log.to_str().unwrap(), BINARY];
            let mut strace = desk.program("strace", &[&trace[..], arguments].concat());
            // Cargo sets it, and the loader would look for every library in every place it names.
            strace.env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
            let said = Said::of(strace.output().expect("strace is installed: apt-get install strace"));
            let log = fs::read_to_string(&log).unwrap();
            let happened = log.contains("(INJECTED)") || log.contains("+++ killed by SIGKILL");
            judge(&format!("{fault} at {call} {number}"), &desk, &said);
            if !happened {
                break;
            }
            assert!(number < 300, "{call} never ends");
            faults += 1;
        }
    }
    println!("{fault}: {faults} faults");
    faults
}

/// After a fault the ledger opens, and the record is the old or the new one: an exit of 0 means the new one.
fn judge(what: &str, desk: &Desk, said: &Said) {
    let before: u64 = desk.read("count").trim().parse().unwrap();
    let ring = desk.record("job").ledger;
    let count: u64 = ring.counts.values().sum();
    assert!(count == before || count == before + 1, "{what}: {said:?}");
    assert!(said.code != 0 || count == before + 1, "{what}: it says that it is recorded, and it is not: {said:?}");
    assert!([0, 2, 125, 128 + 9, 127, 126].contains(&said.code) || said.code >= 128, "{what}: {said:?}");
    if count > before {
        let last = ring.last().unwrap();
        assert_eq!(last.status, Status::Ok, "{what}");
        assert_eq!(last.artifacts.len(), 1, "{what}");
    }
    assert!(desk.record("job").lease.is_none(), "{what}");
    // The next one works, and finds what was left.
    desk.done(&["record", "job", "error"]);
    let count: u64 = desk.record("job").ledger.counts.values().sum();
    desk.write("count", &count.to_string());
}

fn recorded() -> Desk {
    let desk = Desk::new();
    desk.write("data", "bytes");
    desk.done(&["record", "job", "error"]);
    desk.write("count", "1");
    desk
}

const RECORD: [&str; 5] = ["record", "job", "ok", "--artifact", "data"];

#[test]
fn killed_at_every_system_call_of_record() {
    let faults = at_every_call("signal=SIGKILL", &CALLS[..12], recorded, &RECORD, judge);
    assert!(faults > 20, "{faults}");
}

#[test]
fn a_full_disk_at_every_system_call_of_record() {
    let calls = ["write", "pwrite64", "fsync", "fdatasync", "ftruncate", "mkdir", "openat"];
    let faults = at_every_call("error=ENOSPC", &calls, recorded, &RECORD, judge);
    assert!(faults > 10, "{faults}");
}

#[test]
fn a_failing_disk_at_every_system_call_of_record() {
    let faults = at_every_call("error=EIO", &CALLS, recorded, &RECORD, judge);
    assert!(faults > 20, "{faults}");
}

/// A record that is too long for the ring is written in two steps. Until the second, readers ignore it.
#[test]
fn killed_between_the_history_and_the_record() {
    let prepare = || {
        let desk = recorded();
        desk.done(&["record", "job", "error", "--slot", "2026-01-02T00:00Z"]);
        desk.write("count", "2");
        desk
    };
    let note = "long ".repeat(100);
    let arguments = ["record", "job", "ok", "--artifact", "data", "--slot", "2026-01-01T00:00Z", "--note", &note];
    let believed = std::cell::Cell::new(0);
    let faults =
        at_every_call("signal=SIGKILL", &["pwrite64", "fdatasync"], prepare, &arguments, |what, desk, said| {
            let slot = Zone::utc().parse_time("2026-01-01").unwrap();
            let is_recorded = desk.record("job").ledger.attempts(slot).next().is_some();
            let code = desk.say(&["gate", "job@same-slot", "--slot", "2026-01-01T00:00Z"]).code;
            assert_eq!(code, if is_recorded { 0 } else { 15 }, "{what}");
            assert!(is_recorded || said.code != 0, "{what}");
            believed.set(believed.get() + u32::from(!is_recorded && !desk.history("job", slot).is_empty()));
            // As if it had never been.
            desk.edit("job", |record| record.ledger.ring.retain(|outcome| outcome.slot != slot));
        });
    assert!(faults > 5, "{faults}");
    assert!(believed.get() > 0, "it was never killed between the two");
}

/// A word inside a run, killed or failed: the run is judged by what was heard, never by half a line.
#[test]
fn killed_at_every_system_call_of_a_word_inside_a_run() {
    let mut number = 0;
    for call in ["openat", "write", "mkdir"] {
        for when in 1..20 {
            let desk = Desk::new();
            let log = desk.path("log");
            let inject =
                format!("strace -qq -o {} -e trace={call} -e inject={call}:signal=SIGKILL:when={when}", log.display());
            let said =
                desk.say(&["run", "job", "-c", &format!("unset LD_LIBRARY_PATH; {inject} $BINARY record empty; true")]);
            assert_eq!((said.code, said.stderr.replace("Killed\n", "").as_str()), (0, ""), "{call} {when}: {said:?}");
            assert!([Status::Ok, Status::Empty].contains(&desk.last("job").status));
            number += 1;
            if !fs::read_to_string(log).unwrap().contains("killed by SIGKILL") {
                assert_eq!(desk.last("job").status, Status::Empty);
                break;
            }
        }
    }
    assert!(number > 5);
}

#[test]
fn a_record_by_hand_is_shown_as_it_was_made() {
    let desk = Desk::new();
    desk.write("data", "hello");
    let said = desk.done(&["record", "job", "ok", "--artifact", "data", "--note", "by hand", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(
        (&json["job"], &json["status"], &json["note"]),
        (&"job".into(), &"ok".into(), &"by hand".into()),
        "{json}"
    );
    let last = desk.last("job");
    assert_eq!(
        last.artifacts[0].sha256.to_string(),
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert!(last.slot.0 <= now().0 && desk.record("job").job == job("job"));
    assert_eq!(said.stderr, "");
}
