//! Wrapper and keeper killed together, and processes that leave the job's group: what each system promises.

use std::fs;
use std::time::Duration;

use fencepost_guard::keeper::{JobExit, KeeperOrder, Report};
use fencepost_testkit::eventually;
use fencepost_testkit::process::{children_of, is_alive, parent_of, send};
use nix::sys::signal::Signal;

use crate::scene::{PORTABLE, Scene, all_dead, tree_job};
use crate::session;

pub const TESTS: &[fencepost_testkit::runner::Test] = &[
    ("wrapper_and_keeper_killed_together", wrapper_and_keeper_killed_together),
    (
        "wrapper_and_keeper_killed_together_with_an_observed_job",
        wrapper_and_keeper_killed_together_with_an_observed_job,
    ),
];

pub const PORTABLE_TESTS: &[fencepost_testkit::runner::Test] = &[
    ("the_watcher_killed_too_leaves_the_job", the_watcher_killed_too_leaves_the_job),
    ("the_watcher_is_gone_when_the_run_ends", the_watcher_is_gone_when_the_run_ends),
    ("a_stopped_watcher_does_not_save_the_tree", a_stopped_watcher_does_not_save_the_tree),
    ("what_left_the_group_is_found_if_it_was_seen", what_left_the_group_is_found_if_it_was_seen),
    ("what_was_seen_dies_with_wrapper_and_keeper", what_was_seen_dies_with_wrapper_and_keeper),
    ("a_daemon_that_was_never_seen_survives", a_daemon_that_was_never_seen_survives),
];

/// Linux: the kernel kills the job's first process; its children may survive. macOS: the watcher kills the group.
fn wrapper_and_keeper_killed_together() {
    let mut scene = Scene::new();
    scene.spawn(tree_job(&scene, "trap '' TERM"));
    let tree = scene.tree();
    send(scene.wrapper, Signal::SIGKILL);
    send(scene.keeper, Signal::SIGKILL);
    let promised = if PORTABLE { &tree[..] } else { &tree[..1] };
    eventually("the job is dead", || !promised.iter().any(|&pid| is_alive(pid)));
    if PORTABLE {
        let line = "fencepost: the wrapper and the keeper of a job died; the watcher killed the job\n";
        eventually("the watcher said so", || scene.stderr() == line);
    }
    tree.iter().filter(|&&pid| is_alive(pid)).for_each(|&pid| send(pid, Signal::SIGKILL));
}

fn wrapper_and_keeper_killed_together_with_an_observed_job() {
    let mut scene = Scene::new();
    let mut job = scene.job("while [ ! -e go ]; do sleep 0.05; done; echo done > done");
    job.observed = true;
    let pid = scene.spawn(job);
    let watcher = watcher_of(&scene, pid);
    send(scene.wrapper, Signal::SIGKILL);
    send(scene.keeper, Signal::SIGKILL);
    eventually("both are gone", || !is_alive(scene.wrapper) && !is_alive(scene.keeper));
    eventually("the watcher is gone", || watcher.is_none_or(|watcher| !is_alive(watcher)));
    assert!(is_alive(pid), "an observed job goes on");
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(scene.text("done"), "done\n");
}

/// Three kills in one instant are more than macOS can answer.
fn the_watcher_killed_too_leaves_the_job() {
    let mut scene = Scene::new();
    let pid = scene.spawn(scene.job("while [ ! -e go ]; do sleep 0.05; done; echo done > done"));
    let watcher = watcher_of(&scene, pid).unwrap();
    send(watcher, Signal::SIGKILL);
    send(scene.keeper, Signal::SIGSTOP);
    send(scene.wrapper, Signal::SIGKILL);
    send(scene.keeper, Signal::SIGKILL);
    eventually("all are gone", || ![scene.wrapper, scene.keeper, watcher].iter().any(|&pid| is_alive(pid)));
    assert!(is_alive(pid));
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(scene.text("done"), "done\n");
}

fn the_watcher_is_gone_when_the_run_ends() {
    let mut scene = Scene::new();
    let pid = scene.spawn(scene.job("while [ ! -e go ]; do sleep 0.05; done"));
    let watcher = watcher_of(&scene, pid).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(0) });
    scene.expect_empty();
    scene.close();
    all_dead(&[watcher]);
    assert_eq!(scene.stderr(), "");
}

/// The wrapper does not wait for the watcher for ever.
fn a_stopped_watcher_does_not_save_the_tree() {
    let mut scene = Scene::new();
    let pid = scene.spawn(tree_job(&scene, "trap '' TERM"));
    let tree = scene.tree();
    let watcher = watcher_of(&scene, pid).unwrap();
    send(watcher, Signal::SIGSTOP);
    scene.order(&KeeperOrder::Kill);
    eventually("the tree is dead", || !tree.iter().any(|&pid| is_alive(pid)));
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Signal(Signal::SIGKILL as i32) });
    scene.expect_empty();
    scene.close();
    all_dead(&[watcher]);
}

/// The process is in a session of its own and its parent ends, but the keeper has seen it before.
fn what_left_the_group_is_found_if_it_was_seen() {
    let mut scene = Scene::new();
    scene.spawn(scene.job(&format!("{} & while [ ! -e go ]; do sleep 0.05; done", leaves())));
    let left = scene.pid_in("left");
    // The keeper looks twice a second.
    std::thread::sleep(Duration::from_millis(1500));
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(0) });
    let Report::LeftOvers { processes } = scene.report() else { panic!("no leftovers reported") };
    assert_eq!(processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [left]);
    scene.expect_empty();
    all_dead(&[left]);
}

fn what_was_seen_dies_with_wrapper_and_keeper() {
    let mut scene = Scene::new();
    let pid = scene.spawn(scene.job(&format!("{} & wait", leaves())));
    let left = scene.pid_in("left");
    std::thread::sleep(Duration::from_millis(1500));
    send(scene.wrapper, Signal::SIGKILL);
    send(scene.keeper, Signal::SIGKILL);
    eventually("both are dead", || !is_alive(pid) && !is_alive(left));
}

/// The daemon leaves the group and loses its parent while the keeper does not look.
fn a_daemon_that_was_never_seen_survives() {
    let mut scene = Scene::new();
    let daemon = format!("{} sh -c 'sh -c \"echo \\$\\$ > daemon; exec sleep 60\" & exit'", session::words());
    let job =
        scene.spawn(scene.job(&format!("echo > ready; while [ ! -e fork ]; do sleep 0.05; done; {daemon}; sleep 60")));
    scene.text("ready");
    send(scene.keeper, Signal::SIGSTOP);
    fs::write(scene.path("fork"), "").unwrap();
    let daemon = scene.pid_in("daemon");
    eventually("the daemon is an orphan", || {
        parent_of(daemon).is_some_and(|parent| parent != job && !is_child_of(parent, job))
    });
    send(scene.keeper, Signal::SIGCONT);
    scene.order(&KeeperOrder::Stop);
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Signal(Signal::SIGTERM as i32) });
    scene.expect_empty();
    assert!(is_alive(daemon), "found against all odds: then GUARANTEES promises too little");
    send(daemon, Signal::SIGKILL);
}

/// A process in a session of its own, for the shell.
fn leaves() -> String {
    format!("{} sh -c 'echo $$ > left; exec sleep 60'", session::words())
}

fn is_child_of(pid: i32, parent: i32) -> bool {
    parent_of(pid) == Some(parent)
}

/// The keeper's other child, if it has one.
fn watcher_of(scene: &Scene, job: i32) -> Option<i32> {
    children_of(scene.keeper).into_iter().find(|&pid| pid != job)
}
