//! Wrappers and keepers that are killed, and what a job leaves behind.

use std::collections::hash_map::RandomState;
use std::fs::{self, Permissions};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::BINARY;
use crate::process::{PORTABLE, Place, Running, is_root};
use fencepost_testkit::eventually;
use fencepost_testkit::process::{all_dead, install, send};
use nix::sys::signal::Signal::{SIGKILL, SIGTERM};
use serde_json::Value;

const KILLS: u64 = 100;
/// So many at a time: most of a round is waiting for the grace to pass.
const LANES: u64 = 5;
const GRACE: Duration = Duration::from_millis(300);

#[test]
fn the_wrapper_killed_at_any_moment() {
    in_lanes(|round, place, run| {
        thread::sleep(random_moment(round));
        let before = place.processes();
        run.send(SIGKILL);
        run.ends_with(1000 + 9);
        none_survives(place, before);
        // The time-to-live is five minutes, so that only the proof of its death lets the next one in.
        let (dead, next) = (claimed(place), place.next_token("a"));
        assert!(dead.is_none_or(|dead| dead < next), "{dead:?} {next}");
        let statuses = place.statuses("a");
        let expected: &[&str] = if statuses.len() == 1 { &["ok"] } else { &["ok", "lost"] };
        assert_eq!(statuses, expected);
        assert!(dead.is_none() || statuses.len() == 2, "the ledger lacks the run with token {dead:?}");
    });
}

#[test]
fn the_keeper_killed_at_any_moment() {
    in_lanes(|round, place, run| {
        let keeper = run.keeper();
        thread::sleep(random_moment(round));
        send(keeper, SIGKILL);
        run.ends_with(125);
        assert!(run.stderr().contains("keeper"), "{}", run.stderr());
        assert!(place.is_deserted(), "{:?} outlived the wrapper", place.processes());
        let (dead, next) = (claimed(place), place.next_token("a"));
        assert!(dead.is_none_or(|dead| dead < next), "{dead:?} {next}");
        let statuses = place.statuses("a");
        assert!(statuses.len() <= 2 && statuses[0] == "ok", "{statuses:?}");
        assert!(statuses[1..].iter().all(|status| matches!(status.as_str(), "error" | "lost")), "{statuses:?}");
        assert!(dead.is_none() || statuses.get(1).is_some_and(|status| status == "error"), "{dead:?} {statuses:?}");
    });
}

fn in_lanes(round: impl Fn(u64, &Place, &mut Running) + Sync) {
    let spawned = AtomicU64::new(0);
    thread::scope(|scope| {
        for lane in 0..LANES {
            let (round, spawned) = (&round, &spawned);
            scope.spawn(move || {
                for number in (lane..KILLS).step_by(LANES as usize) {
                    let place = Place::new();
                    let script = if number.is_multiple_of(3) { "stubborn.sh" } else { "tree.sh" };
                    let options = ["a", "--grace", "300ms", "--events", "events"];
                    round(number, &place, &mut place.run(&options, &["sh", script]));
                    spawned.fetch_add(u64::from(place.path("child").exists()), Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} of {KILLS} came after the job had begun", spawned.into_inner());
}

/// Half of them while it starts, half while the tree grows and runs.
fn random_moment(round: u64) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    Duration::from_micros(random % if round.is_multiple_of(2) { 20_000 } else { 300_000 })
}

/// After the grace nothing is left; how long it takes to see that depends on the machine.
/// Waits until all processes are dead, also those that were seen `before`: while it exits, a process is alive and shows no
/// environment to be found by.
fn none_survives(place: &Place, before: Vec<i32>) {
    let killed = Instant::now();
    let mut seen = before;
    eventually("nothing of it is left", || {
        seen.extend(place.processes());
        place.is_deserted() && all_dead(&seen)
    });
    let slack = Duration::from_secs(3);
    assert!(killed.elapsed() < GRACE + slack, "gone only after {:?}", killed.elapsed());
}

/// The token of the run, if it got as far as to say so.
fn claimed(place: &Place) -> Option<u64> {
    let events = fs::read_to_string(place.path("events")).unwrap_or_default();
    let events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["event"] == "claimed").find_map(|event| event["token"].as_u64())
}

#[test]
fn wrapper_and_keeper_killed_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        let mut run = place.run(&["a"], &["sh", "stubborn.sh"]);
        let tree = place.tree();
        send(run.keeper(), SIGKILL);
        run.send(SIGKILL);
        run.wait();
        // On Linux no process is left to terminate the daemon; the kernel kills the job's own process. On macOS a watcher
        // kills the process group.
        let promised = if PORTABLE { &tree[..] } else { &tree[..1] };
        eventually("the job is dead", || all_dead(promised));
        place.next_token("a");
        assert_eq!(place.statuses("a"), ["ok", "lost"]);
    }
}

#[test]
fn what_a_job_leaves_running_is_ended_with_one_line() {
    let place = Place::new();
    // Without a subreaper, a process in a session of its own is found by luck only.
    let how = if PORTABLE { "" } else { "setsid" };
    let script =
        format!("{how} sh -c 'echo $$ > left; exec sleep 600' & until [ -s left ]; do sleep 0.05; done; exit 5");
    let mut run = place.run(&["a"], &["sh", "-c", &script]);
    run.ends_with(5);
    assert!(place.is_deserted(), "{:?}", place.processes());
    let said = run.stderr();
    // One line about the process, and the one that every failed run ends with.
    let [left, end] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(left.contains(&format!("sleep (pid {}", place.text("left").trim())), "{said}");
    assert!(left.contains("--leave-children"), "{said}");
    assert_eq!(end, "fencepost: a failed (exit 5).");
    assert_eq!(place.statuses("a"), ["error"]);
}

#[test]
fn leave_children_leaves_them() {
    let place = Place::new();
    let script = "setsid sh -c 'echo $$ > left; exec sleep 600' & until [ -s left ]; do sleep 0.05; done; exit 0";
    let mut run = place.run(&["a", "--leave-children"], &["sh", "-c", script]);
    run.ends_with(0);
    assert_eq!(run.stderr(), "");
    let left: i32 = place.text("left").trim().parse().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(place.processes(), [left]);
    place.next_token("a");
    send(left, SIGKILL);
}

#[test]
fn what_cannot_be_killed_is_named_and_its_lease_kept() {
    if !is_root() {
        return println!("skipped: only root can make a process that another user cannot kill");
    }
    let place = Place::new();
    install(BINARY, place.path("fencepost"), "755");
    install("/usr/bin/setpriv", place.path("setpriv"), "4755");
    let home = place.path("");
    fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = place.program(place.path("fencepost"));
    let script = "./setpriv --reuid 0 sh -c 'echo $$ > left; exec sleep 600' & until [ -s left ]; do sleep 0.05; done";
    command.args(["run", "a", "--ttl", "6s", "--grace", "200ms", "-c", script]).uid(NOBODY).gid(NOBODY);
    let mut run = place.start(command);
    run.ends_with(0);
    let left: i32 = place.text("left").trim().parse().unwrap();
    let said = run.stderr();
    assert!(said.contains(&format!("could not be ended: sleep (pid {left}, uid 0)")), "{said}");
    assert!(said.contains("not released"), "{said}");
    // The next run is root's, which trusts no state directory of another user.
    for directory in [&home, &place.state()] {
        chown(directory, Some(0), Some(0)).unwrap();
    }
    // Its processes are gone, but not all that they started.
    let next = place.output(&["run", "a", "-E", "99", "--", "true"]);
    assert_eq!(next.status.code(), Some(99), "{}", String::from_utf8_lossy(&next.stderr));
    send(left, SIGKILL);
    place.successor("a").succeeded_alone();
}

const NOBODY: u32 = 65534;

#[test]
fn two_pid_namespaces_never_take_each_other_for_dead() {
    let place = Place::new();
    let inside = |arguments: &[&str]| {
        let mut command = place.program("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", BINARY]).args(arguments);
        command
    };
    let probe = inside(&["--version"]).output().unwrap();
    if !probe.status.success() {
        return println!("skipped: no pid namespaces here: {}", String::from_utf8_lossy(&probe.stderr));
    }
    let mut run = place.start(inside(&["run", "a", "--ttl", "5s", "--", "sh", "tree.sh"]));
    place.tree();
    let skipped = |mut command: std::process::Command| command.output().unwrap().status.code();
    for _ in 0..3 {
        assert_eq!(skipped(place.fencepost(&["run", "a", "-E", "99", "--", "true"])), Some(99));
        assert_eq!(skipped(inside(&["run", "a", "-E", "99", "--", "true"])), Some(99));
    }
    // Killed, it cannot be told from one that merely cannot be seen: its time-to-live decides.
    run.send(SIGKILL);
    run.wait();
    eventually("the namespace is empty", || place.is_deserted());
    assert_eq!(skipped(place.fencepost(&["run", "a", "-E", "99", "--", "true"])), Some(99));
    let mut next = place.run(&["a", "-w", "30s", "-E", "99"], &["true"]);
    next.ends_with(0);
    assert_eq!(place.statuses("a"), ["ok", "lost"]);
}

#[test]
fn a_holder_outside_is_not_dead_to_a_namespace() {
    let place = Place::new();
    let mut run = place.run(&["a"], &["sh", "tree.sh"]);
    let tree = place.tree();
    let mut command = place.program("unshare");
    command.args(["--pid", "--fork", "--mount-proc", BINARY, "run", "a", "-E", "99", "--", "true"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare") {
        return println!("skipped: no pid namespaces here: {said}");
    }
    assert_eq!(output.status.code(), Some(99), "{said}");
    assert!(run.is_running());
    run.send(SIGTERM);
    run.ends_with(128 + 15);
    assert!(all_dead(&tree));
}
