//! Runs in which nothing goes wrong, and what the job finds when it starts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use fencepost_guard::keeper::{JobExit, KeeperOrder, Report, Spawn, SpawnStep};
use fencepost_testkit::eventually;
use fencepost_testkit::process::{children_of, is_alive, send};
use nix::libc::{EACCES, ENOENT, SIGUSR1};

use crate::scene::{PORTABLE, Scene, all_dead, deadline_in};

pub const TESTS: &[fencepost_testkit::runner::Test] = &[
    ("the_exit_code_passes_through", the_exit_code_passes_through),
    ("a_fatal_signal_passes_through", a_fatal_signal_passes_through),
    ("a_command_that_is_not_there", a_command_that_is_not_there),
    ("a_command_that_cannot_be_executed", a_command_that_cannot_be_executed),
    ("a_directory_that_is_not_there", a_directory_that_is_not_there),
    ("a_second_spawn_after_a_failed_one", a_second_spawn_after_a_failed_one),
    ("the_environment_is_added_to", the_environment_is_added_to),
    ("signals_reach_the_whole_group", signals_reach_the_whole_group),
    ("a_keeper_without_a_job_leaves_at_once", a_keeper_without_a_job_leaves_at_once),
    (
        "a_keeper_whose_job_has_ended_leaves_by_itself_and_is_still_heard",
        a_keeper_whose_job_has_ended_leaves_by_itself_and_is_still_heard,
    ),
    ("a_keeper_stays_for_what_is_to_come", a_keeper_stays_for_what_is_to_come),
    ("leftovers_are_ended_and_named", leftovers_are_ended_and_named),
    ("the_end_of_a_pipeline_is_no_leftover", the_end_of_a_pipeline_is_no_leftover),
    ("leave_children_leaves_them", leave_children_leaves_them),
];

/// They look into `/proc`.
pub const LINUX_TESTS: &[fencepost_testkit::runner::Test] = &[
    ("the_job_has_default_signals_and_a_group_of_its_own", the_job_has_default_signals_and_a_group_of_its_own),
    ("a_hangup_ignored_by_nohup_stays_ignored", a_hangup_ignored_by_nohup_stays_ignored),
    ("the_job_inherits_none_of_our_descriptors", the_job_inherits_none_of_our_descriptors),
    ("the_keeper_lets_go_of_what_the_job_inherited", the_keeper_lets_go_of_what_the_job_inherited),
];

/// Blocked and ignored signals, all of them at once.
const MASKS: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr '\\n' ' ' | sed 's/ $//'; echo";

/// The output of a command that the test starts directly: the test process may have unusual signals and descriptors.
fn without_us(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn expect_end(scene: &Scene, exit: JobExit) {
    assert_eq!(scene.report(), Report::ChildEnded { exit });
}

fn the_exit_code_passes_through() {
    let mut scene = Scene::new();
    let mut job = scene.job("echo done; exit 7");
    job.deadline = deadline_in(Duration::from_secs(60));
    scene.spawn(job);
    expect_end(&scene, JobExit::Code(7));
    scene.expect_empty();
    assert_eq!(scene.text("stdout"), "done\n");
    scene.close();
    assert_eq!(scene.stderr(), "");
    println!("    Keeper::start took {} us", scene.start_micros);
}

fn a_fatal_signal_passes_through() {
    let mut scene = Scene::new();
    // Real-time signals have no names, and get lost easily. macOS has none.
    let signal = if cfg!(target_os = "linux") { 36 } else { SIGUSR1 };
    scene.spawn(scene.job(&format!("kill -{signal} $$")));
    expect_end(&scene, JobExit::Signal(signal));
    scene.expect_empty();
}

fn a_command_that_is_not_there() {
    let mut scene = Scene::new();
    let mut job = scene.job("");
    job.argv = vec!["./no-such-command".into()];
    scene.order(&KeeperOrder::Spawn(Box::new(job)));
    let report = scene.report();
    assert!(
        matches!(report, Report::NotSpawned { step: SpawnStep::Command, errno: ENOENT, .. }),
        "unexpected: {report:?}"
    );
    scene.close();
}

fn a_command_that_cannot_be_executed() {
    let mut scene = Scene::new();
    fs::write(scene.path("script"), "#!/bin/sh\n").unwrap();
    let mut job = scene.job("");
    job.argv = vec!["./script".into()];
    scene.order(&KeeperOrder::Spawn(Box::new(job)));
    let report = scene.report();
    assert!(
        matches!(report, Report::NotSpawned { step: SpawnStep::Command, errno: EACCES, .. }),
        "unexpected: {report:?}"
    );
}

fn a_directory_that_is_not_there() {
    let mut scene = Scene::new();
    let mut job = scene.job("true");
    job.cwd = Some(scene.path("nowhere").into());
    scene.order(&KeeperOrder::Spawn(Box::new(job)));
    let report = scene.report();
    assert!(
        matches!(report, Report::NotSpawned { step: SpawnStep::Directory, errno: ENOENT, .. }),
        "unexpected: {report:?}"
    );
}

fn a_second_spawn_after_a_failed_one() {
    let mut scene = Scene::new();
    let mut job = scene.job("");
    job.argv.clear();
    scene.order(&KeeperOrder::Spawn(Box::new(job)));
    assert!(matches!(scene.report(), Report::NotSpawned { .. }));
    scene.spawn(scene.job("exit 3"));
    expect_end(&scene, JobExit::Code(3));
    scene.expect_empty();
}

fn the_environment_is_added_to() {
    let mut scene = Scene::new();
    let mut job = scene.job("echo \"$FENCEPOST_TOKEN ${HOME:-none}\" \"${PATH:+path}\"");
    job.env = vec![("FENCEPOST_TOKEN".into(), Some("34".into())), ("HOME".into(), None)];
    scene.spawn(job);
    assert_eq!(scene.text("stdout"), "34 none path\n");
}

fn signals_reach_the_whole_group() {
    let mut scene = Scene::new();
    let script = "trap 'echo outer > outer; exit 4' USR1\n\
        sh -c \"trap 'echo inner > inner; exit' USR1; echo > ready; while :; do sleep 0.05; done\" & wait";
    scene.spawn(scene.job(script));
    scene.text("ready");
    scene.order(&KeeperOrder::Signal(SIGUSR1));
    expect_end(&scene, JobExit::Code(4));
    assert_eq!((scene.text("outer"), scene.text("inner")), ("outer\n".into(), "inner\n".into()));
}

fn the_job_has_default_signals_and_a_group_of_its_own() {
    let mut scene = Scene::new();
    let pid = scene.spawn(scene.job(&format!("ps -o pid=,pgid=,sid= -p $$ > ids; {MASKS}")));
    assert_eq!(scene.text("stdout"), without_us(Command::new("sh").args(["-c", MASKS])));
    let ids: Vec<i32> = scene.text("ids").split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert_eq!(ids[..2], [pid, pid]);
    assert_ne!(ids[2], pid, "the job is in a session of its own");
}

fn a_hangup_ignored_by_nohup_stays_ignored() {
    let mut nohup = Command::new("nohup");
    nohup.arg(std::env::current_exe().unwrap());
    let mut scene = Scene::started_by(nohup);
    scene.spawn(scene.job(MASKS));
    let masks = scene.text("stdout");
    assert_eq!(masks, without_us(Command::new("nohup").args(["sh", "-c", MASKS])));
    assert!(masks.ends_with("1\n"), "SIGHUP is not ignored: {masks}");
}

fn the_job_inherits_none_of_our_descriptors() {
    let mut scene = Scene::new();
    scene.spawn(scene.job("ls /proc/self/fd"));
    assert_eq!(scene.text("stdout"), without_us(Command::new("ls").arg("/proc/self/fd")));
}

fn the_keeper_lets_go_of_what_the_job_inherited() {
    let mut shell = Command::new("sh");
    // A lock that the caller holds for the job: the job inherits it, the keeper closes it.
    shell.args(["-c", "exec 9>/dev/zero; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut scene = Scene::started_by(shell);
    scene.spawn(scene.job("readlink /proc/self/fd/9; sleep 60"));
    assert_eq!(scene.text("stdout"), "/dev/zero\n");
    let keeper = scene.keeper;
    let target = |fd: i32| fs::read_link(format!("/proc/{keeper}/fd/{fd}")).ok();
    eventually("the keeper has let go", || target(9).is_none());
    assert_eq!(target(0).unwrap().to_str(), Some("/dev/null"));
    assert_eq!(target(1).unwrap().to_str(), Some("/dev/null"));
    assert_eq!(target(2), Some(fs::canonicalize(scene.path("stderr")).unwrap()));
    let count = || fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().count();
    let own = if PORTABLE { 7 } else { 6 };
    eventually("the keeper has closed the rest", || count() <= own);
    assert_eq!(
        count(),
        own,
        "standard input, output and error, the channel, both ends of the wake-up, the watcher's pipe"
    );
    let output = fs::metadata(scene.path("stdout")).unwrap();
    assert_eq!((output.permissions().mode() & 0o777, output.uid()), (0o600, nix::unistd::geteuid().as_raw()));
}

fn a_keeper_without_a_job_leaves_at_once() {
    for is_ready in [true, false] {
        let mut scene = Scene::new();
        if is_ready {
            scene.order(&KeeperOrder::GetReady);
            let comm = format!("/proc/{}/comm", scene.keeper);
            let is_named = || fs::read_to_string(&comm).unwrap() == "fencepost-keep\n";
            let has_watcher = || !children_of(scene.keeper).is_empty();
            eventually("the keeper is ready", || if PORTABLE { has_watcher() } else { is_named() });
        }
        scene.close();
        all_dead(&[scene.keeper]);
        assert_eq!(scene.stderr(), "", "ready: {is_ready}");
    }
}

fn a_keeper_whose_job_has_ended_leaves_by_itself_and_is_still_heard() {
    let mut scene = Scene::new();
    scene.spawn(scene.job("exit 3"));
    eventually("the keeper has left", || !is_alive(scene.keeper));
    expect_end(&scene, JobExit::Code(3));
    scene.expect_empty();
}

fn a_keeper_stays_for_what_is_to_come() {
    let mut scene = Scene::new();
    scene.spawn(Spawn { more_to_come: true, ..scene.job("exit 0") });
    expect_end(&scene, JobExit::Code(0));
    scene.expect_empty();
    scene.spawn(scene.job("exit 4"));
    expect_end(&scene, JobExit::Code(4));
    scene.expect_empty();
}

fn leftovers_are_ended_and_named() {
    let mut scene = Scene::new();
    // A process in a session of its own is found by a subreaper. Without one, only the group is.
    let how = if PORTABLE { "" } else { "setsid" };
    let script = format!("{how} sh -c 'echo $$ > left; exec sleep 60' & while [ ! -s left ]; do sleep 0.01; done");
    scene.spawn(scene.job(&script));
    expect_end(&scene, JobExit::Code(0));
    let left: i32 = scene.text("left").trim().parse().unwrap();
    let Report::LeftOvers { processes } = scene.report() else { panic!("no leftovers reported") };
    assert_eq!(processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [left]);
    assert_eq!(processes[0].name, "sleep");
    scene.expect_empty();
    all_dead(&[left]);
}

fn the_end_of_a_pipeline_is_no_leftover() {
    let mut scene = Scene::new();
    scene.spawn(scene.job("(sleep 0.05; echo written) & exit 0"));
    expect_end(&scene, JobExit::Code(0));
    scene.expect_empty();
    assert_eq!(scene.text("stdout"), "written\n");
}

fn leave_children_leaves_them() {
    let mut scene = Scene::new();
    let mut job = scene.job("sleep 60 & echo $! > left");
    job.leave_children = true;
    scene.spawn(job);
    expect_end(&scene, JobExit::Code(0));
    scene.expect_empty();
    scene.close();
    let left: i32 = scene.text("left").trim().parse().unwrap();
    assert!(is_alive(left));
    send(left, nix::sys::signal::Signal::SIGKILL);
}
