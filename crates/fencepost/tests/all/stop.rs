//! A wrapper, a job or a keeper that is stopped, together or alone, and the signals that reach a run.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Place, Running, SHORT, TTL, wall_nanos};
use fencepost_testkit::eventually;
use fencepost_testkit::process::{all_dead, send};
use nix::sys::signal::Signal::{self, SIGCONT, SIGHUP, SIGSTOP, SIGTERM, SIGUSR1};

#[test]
fn a_stopped_wrapper_does_not_keep_the_job_past_its_lease() {
    let place = Place::new();
    let mut run = place.run(&[&["a"], &SHORT[..]].concat(), &["sh", "stubborn.sh"]);
    let tree = place.tree();
    let stopped = Instant::now();
    run.send(SIGSTOP);
    let mut successor = place.successor("a");
    eventually("the tree is dead", || all_dead(&tree));
    assert!(stopped.elapsed() <= TTL, "dead after {:?}", stopped.elapsed());
    let token = successor.succeeded_alone();
    run.send(SIGCONT);
    run.ends_with(112);
    assert!(run.stderr().contains("lease"), "{}", run.stderr());
    assert!(place.next_token("a") > token);
    assert_eq!(place.statuses("a"), ["ok", "ok", "lost"]);
    assert!(place.is_deserted());
}

#[test]
fn a_wrapper_stopped_past_its_lease_that_nobody_took_has_lost_it_all_the_same() {
    let place = Place::new();
    let mut run = place.run(&[&["a"], &SHORT[..]].concat(), &["sh", "tree.sh"]);
    let tree = place.tree();
    run.send(SIGSTOP);
    eventually("the tree is dead", || all_dead(&tree));
    run.send(SIGCONT);
    run.ends_with(112);
    place.next_token("a");
    assert_eq!(place.statuses("a"), ["ok", "lost"]);
}

#[test]
fn wrapper_and_job_stopped_and_continued_after_a_takeover() {
    after_a_takeover(false);
}

#[test]
fn wrapper_keeper_and_job_stopped_and_continued_after_a_takeover() {
    after_a_takeover(true);
}

#[test]
fn wrapper_and_job_stopped_and_continued_go_on_if_nobody_took_over() {
    without_a_takeover(false);
}

#[test]
fn wrapper_keeper_and_job_stopped_and_continued_go_on_if_nobody_took_over() {
    without_a_takeover(true);
}

fn after_a_takeover(with_keeper: bool) {
    let (place, mut run, pids) = all_stopped(with_keeper);
    place.successor("a").succeeded_alone();
    let continued = wall_nanos();
    go_on(&run, &pids);
    run.ends_with(112);
    let last = place.last_beat().saturating_sub(continued);
    assert!(last < 1_000_000_000, "the job ran {last} ns after it was continued");
    assert!(run.stderr().contains("a: lease lost: "), "{}", run.stderr());
    assert_eq!(place.statuses("a"), ["ok", "lost"]);
    assert!(place.is_deserted());
}

fn without_a_takeover(with_keeper: bool) {
    let (place, mut run, pids) = all_stopped(with_keeper);
    thread::sleep(TTL + Duration::from_secs(1));
    go_on(&run, &pids);
    place.beats_again();
    // It is renewed as before, beyond what the first renewal after waking gave it.
    thread::sleep(TTL + Duration::from_millis(500));
    place.beats_again();
    place.let_go();
    run.ends_with(0);
    assert_eq!(place.statuses("a"), ["ok"]);
    assert!(place.is_deserted());
}

/// A shell whose child is stopped between vfork and exec does not stop itself: it waits for the child, uninterruptibly.
#[test]
fn a_shell_that_waits_for_a_stopped_child_counts_as_stopped() {
    let place = Place::new();
    let script = "echo $$ > child; while [ ! -e go ]; do date +%s%N >> beats; done";
    let mut run = place.run(&[&["a"], &SHORT[..]].concat(), &["sh", "-c", script]);
    let child: i32 = place.text("child").trim().parse().unwrap();
    place.beats_again();
    let is_caught = || {
        send(-child, SIGSTOP);
        thread::sleep(Duration::from_millis(10));
        let is_caught = fencepost_testkit::process::state(child) == Some('D');
        if !is_caught {
            send(-child, SIGCONT);
        }
        is_caught
    };
    if !(0..500).any(|_| is_caught()) {
        return println!("skipped: this shell is never seen between vfork and exec");
    }
    run.send(SIGSTOP);
    thread::sleep(TTL + Duration::from_secs(1));
    go_on(&run, &[-child]);
    place.beats_again();
    place.let_go();
    run.ends_with(0);
    assert_eq!(place.statuses("a"), ["ok"]);
}

/// A run of which everything is stopped: what is to be continued besides the wrapper.
fn all_stopped(with_keeper: bool) -> (Place, Running, Vec<i32>) {
    let place = Place::new();
    let run = place.run(&[&["a"], &SHORT[..]].concat(), &["sh", "tree.sh"]);
    place.tree();
    place.beats_again();
    let keeper = run.keeper();
    if with_keeper {
        send(keeper, SIGSTOP);
    }
    run.send(SIGSTOP);
    // What forks while it is being stopped needs a second look.
    let job = || -> Vec<i32> { place.processes().into_iter().filter(|&p| p != keeper && p != run.pid()).collect() };
    for _ in 0..3 {
        for pid in job() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), SIGSTOP);
        }
    }
    let mut pids = job();
    if with_keeper {
        pids.push(keeper);
    }
    (place, run, pids)
}

/// The job first, which is the worst order.
fn go_on(run: &Running, pids: &[i32]) {
    for &pid in pids {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), SIGCONT);
    }
    run.send(SIGCONT);
}

/// The store answers, but it is another one: the last line says so.
#[test]
fn a_run_that_wakes_late_and_finds_its_store_replaced_says_so() {
    let (place, mut run, pids) = all_stopped(true);
    fs::rename(place.state(), place.path("aside")).unwrap();
    place.next_token("a");
    thread::sleep(TTL + Duration::from_secs(1));
    go_on(&run, &pids);
    run.ends_with(112);
    let said = run.stderr();
    let last = said.lines().find(|line| line.contains("a: lease lost: ")).unwrap_or_default();
    assert!(last.contains("woke past its deadline and could not confirm its lease"), "{said}");
    assert!(last.contains("was removed or replaced since it was opened"), "{said}");
    assert!(!said.contains("did not answer"), "{said}");
}

#[test]
fn the_wrapper_ends_the_job_in_time_if_its_keeper_is_stopped_and_the_store_is_gone() {
    let place = Place::new();
    let mut run = place.run(&[&["a"], &SHORT[..]].concat(), &["sh", "stubborn.sh"]);
    let tree = place.tree();
    send(run.keeper(), SIGSTOP);
    let broken = Instant::now();
    fs::rename(place.state(), place.path("elsewhere")).unwrap();
    eventually("the tree is dead", || all_dead(&tree));
    assert!(broken.elapsed() <= TTL, "dead after {:?}", broken.elapsed());
    let code = run.wait();
    assert!(code == 112 || code == 125, "{code} {}", run.stderr());
    assert!(run.stderr().contains("keeper"), "{}", run.stderr());
    assert!(place.is_deserted());
    fs::rename(place.path("elsewhere"), place.state()).unwrap();
    place.next_token("a");
    assert_eq!(place.statuses("a"), ["ok", "lost"]);
}

/// The job may stop its keeper before that has told the wrapper of the job.
#[test]
fn a_keeper_that_is_stopped_by_its_job_at_once_is_noticed() {
    let place = Place::new();
    let mut run =
        place.run(&[&["a"], &SHORT[..]].concat(), &["sh", "-c", "kill -STOP $PPID; echo $$ >job; exec sleep 60"]);
    let job: i32 = place.text("job").trim().parse().unwrap();
    let broken = Instant::now();
    fs::rename(place.state(), place.path("elsewhere")).unwrap();
    eventually("the job is dead", || all_dead(&[job]));
    assert!(broken.elapsed() <= TTL, "dead after {:?}", broken.elapsed());
    let code = run.wait();
    assert!(code == 112 || code == 125, "{code} {}", run.stderr());
}

#[test]
fn term_reaches_the_job_and_its_answer_passes_through() {
    assert_eq!(answer_to(SIGTERM, "trap 'exit 7' TERM"), 7);
    assert_eq!(answer_to(SIGTERM, ""), 128 + 15);
    assert_eq!(answer_to(SIGHUP, "trap 'exit 8' HUP"), 8);
    assert_eq!(answer_to(SIGUSR1, "trap 'exit 9' USR1"), 9);
}

fn answer_to(signal: Signal, prelude: &str) -> i32 {
    let place = Place::new();
    let script = format!("{prelude}\necho > ready; while :; do sleep 0.05; done");
    let mut run = place.run(&["a"], &["sh", "-c", &script]);
    place.text("ready");
    run.send(signal);
    let code = run.wait();
    assert_eq!(place.statuses("a"), ["error"]);
    assert_eq!(place.runs(&["a"])[0]["ended_by"], "child");
    assert!(place.is_deserted());
    code
}

#[test]
fn a_job_that_ignores_term_is_not_killed_by_a_mere_term() {
    let place = Place::new();
    let script = "trap 'echo heard > heard' TERM; echo > ready; while [ ! -e go ]; do sleep 0.05; done; exit 4";
    let mut run = place.run(&["a", "--grace", "100ms"], &["sh", "-c", script]);
    place.text("ready");
    run.send(SIGTERM);
    place.text("heard");
    thread::sleep(Duration::from_secs(1));
    assert!(run.is_running(), "{}", run.stderr());
    place.let_go();
    run.ends_with(4);
}

#[test]
fn under_nohup_a_hangup_ends_neither_wrapper_nor_job() {
    let place = Place::new();
    let mut command = place.program("nohup");
    command.args([crate::common::BINARY, "run", "a", "--", "sh", "tree.sh"]);
    let mut run = place.start(command);
    let tree = place.tree();
    for pid in [&[run.pid(), run.keeper()], &tree[..]].concat() {
        send(pid, SIGHUP);
    }
    place.beats_again();
    thread::sleep(Duration::from_millis(300));
    assert!(run.is_running() && !all_dead(&tree[..1]));
    place.let_go();
    run.ends_with(0);
}

#[test]
fn a_term_before_the_job_starts_runs_nothing() {
    let place = Place::new();
    let mut holder = place.run(&["a"], &["sh", "tree.sh"]);
    place.tree();
    let mut waiting = place.run(&["a", "-v", "-w", "60s"], &["touch", "ran"]);
    eventually("it waits", || waiting.stderr().contains("waiting"));
    waiting.send(SIGTERM);
    waiting.ends_with(128 + 15);
    assert!(!place.path("ran").exists());
    place.let_go();
    holder.ends_with(0);
}

#[test]
fn waiting_wrapper_and_keeper_take_little_memory() {
    let place = Place::new();
    let mut run = place.run(&[&["a"], &SHORT[..]].concat(), &["sleep", "60"]);
    let keeper = run.keeper();
    // Past the first renewal: what that touches counts too.
    thread::sleep(Duration::from_millis(1500));
    let (wrapper, keeper) = (pss_kib(run.pid()), pss_kib(keeper));
    println!("PSS: wrapper {wrapper} KiB, keeper {keeper} KiB");
    // The release binary is measured by the benchmark; this one is several times larger.
    assert!(wrapper + keeper < 12 * 1024, "wrapper {wrapper} KiB, keeper {keeper} KiB");
    run.send(SIGTERM);
    run.wait();
}

fn pss_kib(pid: i32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
