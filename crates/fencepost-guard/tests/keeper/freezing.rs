//! Standing still: on order, after a sleep, and with everything stopped already.

use std::time::Duration;

use fencepost_guard::clock::boot_now;
use fencepost_guard::keeper::{JobExit, KeeperOrder, Report};
use fencepost_testkit::eventually;
use fencepost_testkit::process::{is_alive, is_stopped, send};
use nix::libc::{SIGCONT, SIGSTOP, SIGTSTP};
use nix::sys::signal::Signal;

use crate::scene::{Scene, all_dead, deadline_in, tree_job};

pub const TESTS: &[fencepost_testkit::runner::Test] = &[
    ("freeze_and_thaw", freeze_and_thaw),
    ("frozen_and_killed", frozen_and_killed),
    ("frozen_and_stopped", frozen_and_stopped),
    ("a_job_that_stops_itself_is_reported", a_job_that_stops_itself_is_reported),
    ("a_stopped_tree_is_frozen_at_its_deadline", a_stopped_tree_is_frozen_at_its_deadline),
    ("whoever_wakes_late_freezes_first", whoever_wakes_late_freezes_first),
    ("frozen_when_the_wrapper_dies", frozen_when_the_wrapper_dies),
];

fn freeze_and_thaw() {
    let mut scene = Scene::new();
    scene.spawn(tree_job(&scene, ""));
    let tree = scene.tree();
    scene.order(&KeeperOrder::Freeze);
    assert_eq!(scene.report(), Report::Frozen);
    assert!(tree.iter().all(|&pid| is_stopped(pid)));
    scene.order(&KeeperOrder::Thaw(boot_now() + Duration::from_secs(3600)));
    eventually("all go on", || !tree.iter().any(|&pid| is_stopped(pid)));
    scene.stays_silent(Duration::from_millis(300));
    assert!(tree.iter().all(|&pid| is_alive(pid)));
}

fn frozen_and_killed() {
    let mut scene = Scene::new();
    scene.spawn(tree_job(&scene, ""));
    let tree = scene.tree();
    scene.order(&KeeperOrder::Freeze);
    assert_eq!(scene.report(), Report::Frozen);
    scene.order(&KeeperOrder::Kill);
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Signal(Signal::SIGKILL as i32) });
    scene.expect_empty();
    all_dead(&tree);
}

fn frozen_and_stopped() {
    let mut scene = Scene::new();
    let mut job = scene.job("trap 'exit 8' TERM; echo > ready; while :; do sleep 0.1; done");
    job.grace = Duration::from_secs(20);
    scene.spawn(job);
    scene.text("ready");
    scene.order(&KeeperOrder::Freeze);
    assert_eq!(scene.report(), Report::Frozen);
    scene.order(&KeeperOrder::Stop);
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(8) });
    scene.expect_empty();
}

fn a_job_that_stops_itself_is_reported() {
    let mut scene = Scene::new();
    scene.spawn(scene.job("kill -TSTP $$; while [ ! -e go ]; do sleep 0.05; done; exit 2"));
    assert_eq!(scene.report(), Report::ChildStopped { signal: SIGTSTP });
    scene.order(&KeeperOrder::Signal(SIGCONT));
    assert_eq!(scene.report(), Report::ChildContinued);
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(2) });
    scene.expect_empty();
}

fn a_stopped_tree_is_frozen_at_its_deadline() {
    let mut scene = Scene::new();
    let mut job = scene.job("i=0; while :; do i=$((i+1)); echo $i > count; done");
    job.deadline = deadline_in(Duration::from_secs(3));
    job.grace = Duration::from_secs(1);
    let pid = scene.spawn(job);
    scene.text("count");
    send(pid, Signal::SIGSTOP);
    assert_eq!(scene.report(), Report::ChildStopped { signal: SIGSTOP });
    assert_eq!(scene.report(), Report::Frozen);
    // Past the deadline it is neither killed nor does it run.
    scene.stays_silent(Duration::from_millis(1500));
    for _ in 0..5 {
        send(pid, Signal::SIGCONT);
        eventually("it is stopped again", || is_stopped(pid));
    }
    scene.stays_silent(Duration::from_millis(200));
    assert!(is_stopped(pid));
    scene.order(&KeeperOrder::Thaw(boot_now() + Duration::from_secs(3600)));
    assert_eq!(scene.report(), Report::ChildContinued);
    scene.order(&KeeperOrder::Kill);
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Signal(Signal::SIGKILL as i32) });
    scene.expect_empty();
}

fn whoever_wakes_late_freezes_first() {
    let mut scene = Scene::new();
    let mut job = tree_job(&scene, "");
    job.deadline = deadline_in(Duration::from_secs(3));
    job.grace = Duration::from_secs(1);
    scene.spawn(job);
    let tree = scene.tree();
    // As near to a sleeping machine as a test can come: everything stops, and goes on after the deadline.
    let all: Vec<i32> = [scene.wrapper, scene.keeper].into_iter().chain(tree.iter().copied()).collect();
    all.iter().for_each(|&pid| send(pid, Signal::SIGSTOP));
    std::thread::sleep(Duration::from_secs(4));
    all.iter().rev().for_each(|&pid| send(pid, Signal::SIGCONT));
    let frozen = match scene.report() {
        Report::ChildStopped { .. } => scene.report(),
        report => report,
    };
    assert_eq!(frozen, Report::Frozen);
    assert!(tree.iter().all(|&pid| is_stopped(pid)));
    scene.order(&KeeperOrder::Thaw(boot_now() + Duration::from_secs(3600)));
    eventually("all go on", || !tree.iter().any(|&pid| is_stopped(pid)));
    assert!(tree.iter().all(|&pid| is_alive(pid)));
}

fn frozen_when_the_wrapper_dies() {
    let mut scene = Scene::new();
    scene.spawn(tree_job(&scene, "trap 'echo > heard' TERM"));
    let tree = scene.tree();
    scene.order(&KeeperOrder::Freeze);
    assert_eq!(scene.report(), Report::Frozen);
    send(scene.wrapper, Signal::SIGKILL);
    eventually("the tree is dead", || !tree.iter().any(|&pid| is_alive(pid)));
    assert!(!scene.path("heard").exists(), "something of the frozen tree ran");
}
