//! Ends by force: the deadline, an order, and the death of the wrapper or the keeper.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_guard::clock::boot_now;
use fencepost_guard::keeper::{JobExit, KeeperOrder, NamedProcess, Report};
use fencepost_testkit::eventually;
use fencepost_testkit::process::{children_of, is_alive, name, send};
use nix::sys::signal::Signal;

use crate::scene::{Scene, all_dead, deadline_in, inhabitants, tree_job};
use crate::wrapper::Line;

pub const TESTS: &[fencepost_testkit::runner::Test] = &[
    ("a_daemon_dies_at_the_deadline", a_daemon_dies_at_the_deadline),
    ("what_ignores_term_is_dead_by_the_deadline", what_ignores_term_is_dead_by_the_deadline),
    ("a_stopped_wrapper_does_not_save_the_tree", a_stopped_wrapper_does_not_save_the_tree),
    ("a_renewal_moves_the_deadline", a_renewal_moves_the_deadline),
    ("what_comes_after_its_deadline_is_not_started", what_comes_after_its_deadline_is_not_started),
    ("a_renewal_after_term_comes_too_late", a_renewal_after_term_comes_too_late),
    ("stop_gives_the_job_its_grace", stop_gives_the_job_its_grace),
    ("kill_kills", kill_kills),
    ("the_tree_does_not_outlive_the_wrapper", the_tree_does_not_outlive_the_wrapper),
    ("the_wrappers_death_during_spawn", the_wrappers_death_during_spawn),
    ("the_wrappers_whole_group_killed", the_wrappers_whole_group_killed),
    ("the_wrapper_sweeps_after_a_dead_keeper", the_wrapper_sweeps_after_a_dead_keeper),
    ("a_sweep_spares_what_was_there_before", a_sweep_spares_what_was_there_before),
    ("what_cannot_be_killed_is_named", what_cannot_be_killed_is_named),
    ("signals_do_not_move_the_keeper", signals_do_not_move_the_keeper),
];

fn expect_end(scene: &Scene, signal: Signal) {
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Signal(signal as i32) });
}

fn a_daemon_dies_at_the_deadline() {
    let mut scene = Scene::new();
    let mut job = tree_job(&scene, "");
    job.deadline = deadline_in(Duration::from_secs(4));
    job.grace = Duration::from_secs(2);
    scene.spawn(job);
    let tree = scene.tree();
    assert_eq!(scene.report(), Report::DeadlineReached);
    expect_end(&scene, Signal::SIGTERM);
    scene.expect_empty();
    all_dead(&tree);
}

fn what_ignores_term_is_dead_by_the_deadline() {
    let mut scene = Scene::new();
    let mut job = tree_job(&scene, "trap '' TERM HUP INT");
    let deadline = boot_now() + Duration::from_secs(5);
    job.deadline = Some(deadline);
    job.grace = Duration::from_secs(2);
    scene.spawn(job);
    let tree = scene.tree();
    assert_eq!(scene.report(), Report::DeadlineReached);
    assert!(tree.iter().all(|&pid| is_alive(pid)));
    expect_end(&scene, Signal::SIGKILL);
    scene.expect_empty();
    all_dead(&tree);
    let overdue = boot_now().since(deadline);
    assert!(overdue < Duration::from_secs(1), "{overdue:?} after the deadline");
}

fn a_stopped_wrapper_does_not_save_the_tree() {
    let mut scene = Scene::new();
    let mut job = tree_job(&scene, "trap '' TERM");
    job.deadline = deadline_in(Duration::from_secs(3));
    job.grace = Duration::from_secs(1);
    scene.spawn(job);
    let tree = scene.tree();
    send(scene.wrapper, Signal::SIGSTOP);
    eventually("the tree is dead", || !tree.iter().any(|&pid| is_alive(pid)));
    send(scene.wrapper, Signal::SIGCONT);
    assert_eq!(scene.report(), Report::DeadlineReached);
    expect_end(&scene, Signal::SIGKILL);
    scene.expect_empty();
}

/// A wrapper that was stopped between winning its lease and giving the order starts nothing until it has confirmed the
/// lease and repeats the order.
fn what_comes_after_its_deadline_is_not_started() {
    let mut scene = Scene::new();
    let mut job = scene.job("touch started");
    job.deadline = deadline_in(Duration::ZERO);
    scene.order(&KeeperOrder::Spawn(Box::new(job)));
    assert_eq!(scene.report(), Report::Stale);
    assert!(!scene.path("started").exists());
    let mut confirmed = scene.job("touch started");
    confirmed.deadline = deadline_in(Duration::from_secs(60));
    scene.spawn(confirmed);
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(0) });
    scene.expect_empty();
    assert!(scene.path("started").exists());
}

fn a_renewal_moves_the_deadline() {
    let mut scene = Scene::new();
    let mut job = scene.job("sleep 4; exit 5");
    job.deadline = deadline_in(Duration::from_secs(3));
    job.grace = Duration::from_secs(1);
    scene.spawn(job);
    scene.order(&KeeperOrder::Deadline(boot_now() + Duration::from_secs(60)));
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(5) });
    scene.expect_empty();
}

fn a_renewal_after_term_comes_too_late() {
    let mut scene = Scene::new();
    let mut job = scene.job("trap '' TERM; while :; do sleep 0.1; done");
    job.deadline = deadline_in(Duration::from_secs(3));
    job.grace = Duration::from_secs(2);
    scene.spawn(job);
    assert_eq!(scene.report(), Report::DeadlineReached);
    scene.order(&KeeperOrder::Deadline(boot_now() + Duration::from_secs(60)));
    expect_end(&scene, Signal::SIGKILL);
    scene.expect_empty();
}

fn stop_gives_the_job_its_grace() {
    let mut scene = Scene::new();
    let mut job =
        scene.job("trap 'sleep 0.3; echo cleaned > cleaned; exit 9' TERM; echo > ready; while :; do sleep 0.1; done");
    job.grace = Duration::from_secs(20);
    scene.spawn(job);
    scene.text("ready");
    scene.order(&KeeperOrder::Stop);
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(9) });
    scene.expect_empty();
    assert_eq!(scene.text("cleaned"), "cleaned\n");
}

fn kill_kills() {
    let mut scene = Scene::new();
    let job = tree_job(&scene, "trap '' TERM");
    scene.spawn(job);
    let tree = scene.tree();
    scene.order(&KeeperOrder::Kill);
    expect_end(&scene, Signal::SIGKILL);
    scene.expect_empty();
    all_dead(&tree);
    scene.close();
}

fn the_tree_does_not_outlive_the_wrapper() {
    let mut scene = Scene::new();
    let mut job = tree_job(&scene, "trap '' TERM");
    job.deadline = deadline_in(Duration::from_secs(300));
    job.grace = Duration::from_secs(1);
    scene.spawn(job);
    let tree = scene.tree();
    let begun = Instant::now();
    send(scene.wrapper, Signal::SIGKILL);
    eventually("the tree is dead", || !tree.iter().any(|&pid| is_alive(pid)));
    assert!(begun.elapsed() < Duration::from_secs(5));
    eventually("the keeper has gone", || !is_alive(scene.keeper));
    assert_eq!(scene.stderr(), "fencepost: the wrapper of nightly died; the job was stopped\n");
}

fn the_wrappers_death_during_spawn() {
    for delay in 0..20 {
        let mut scene = Scene::new();
        let mut job = tree_job(&scene, "");
        job.grace = Duration::from_millis(300);
        scene.order(&KeeperOrder::Spawn(Box::new(job)));
        std::thread::sleep(Duration::from_micros(delay * 500));
        send(scene.wrapper, Signal::SIGKILL);
        eventually("the keeper has gone", || !is_alive(scene.keeper));
        no_survivor(&scene);
    }
}

fn the_wrappers_whole_group_killed() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.process_group(0);
    let mut scene = Scene::started_by(command);
    let mut job = tree_job(&scene, "");
    job.grace = Duration::from_secs(1);
    scene.spawn(job);
    let tree = scene.tree();
    send(-scene.wrapper, Signal::SIGKILL);
    eventually("the tree is dead", || !tree.iter().any(|&pid| is_alive(pid)));
}

fn the_wrapper_sweeps_after_a_dead_keeper() {
    for round in 0..20_u64 {
        let mut scene = Scene::new();
        let job = tree_job(&scene, "trap '' TERM");
        scene.order(&KeeperOrder::Spawn(Box::new(job)));
        // Scattered over the time in which the tree grows, and well beyond.
        std::thread::sleep(Duration::from_micros(round * round * 250));
        send(scene.keeper, Signal::SIGKILL);
        let swept = loop {
            if let Line::Swept(escaped) = scene.line() {
                break escaped;
            }
        };
        assert_eq!(swept, []);
        no_survivor(&scene);
    }
}

fn a_sweep_spares_what_was_there_before() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 & echo $! >&2; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut scene = Scene::started_by(shell);
    let bystander: i32 = scene.text("stderr").trim().parse().unwrap();
    scene.spawn(tree_job(&scene, ""));
    let tree = scene.tree();
    send(scene.keeper, Signal::SIGKILL);
    assert_eq!(scene.line(), Line::Swept(Vec::new()));
    all_dead(&tree);
    assert!(is_alive(bystander));
    send(bystander, Signal::SIGKILL);
}

fn what_cannot_be_killed_is_named() {
    if !nix::unistd::geteuid().is_root() || !cfg!(target_os = "linux") {
        return println!(
            "    skipped: only root, with Linux's setpriv, can make a process that another user cannot kill"
        );
    }
    let dir = tempfile::TempDir::new().unwrap();
    let copy = |from: &Path, name: &str, mode: u32| {
        let to = dir.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, Permissions::from_mode(mode)).unwrap();
        to
    };
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let wrapper = copy(&std::env::current_exe().unwrap(), "wrapper", 0o755);
    let setpriv = copy(Path::new("/usr/bin/setpriv"), "setpriv", 0o4755);
    let mut command = Command::new(wrapper);
    command.uid(NOBODY).gid(NOBODY);
    let mut scene = Scene::started_by(command);
    let mut job = scene.job(&format!("{} --reuid 0 sleep 600 & exec sleep 600", setpriv.display()));
    (job.cwd, job.stdout, job.stderr) = (None, None, None);
    let child = scene.spawn(job);
    let roots = || children_of(child).into_iter().find(|&pid| name(pid) == "sleep");
    eventually("root's process runs", || roots().is_some());
    let escaped = roots().unwrap();
    scene.order(&KeeperOrder::Kill);
    expect_end(&scene, Signal::SIGKILL);
    let process = NamedProcess { pid: escaped, uid: 0, name: "sleep".into() };
    assert_eq!(scene.report(), Report::Empty { escaped: vec![process] });
    send(escaped, Signal::SIGKILL);
}

fn signals_do_not_move_the_keeper() {
    let mut scene = Scene::new();
    scene.spawn(scene.job("while [ ! -e go ]; do sleep 0.05; done; exit 6"));
    use Signal::*;
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM] {
        send(scene.keeper, signal);
    }
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(scene.report(), Report::ChildEnded { exit: JobExit::Code(6) });
    scene.expect_empty();
}

/// Nothing alive has the scene's directory as its own.
fn no_survivor(scene: &Scene) {
    let left = inhabitants(scene.dir.path());
    assert!(left.is_empty(), "{left:?} survived");
}

const NOBODY: u32 = 65534;
