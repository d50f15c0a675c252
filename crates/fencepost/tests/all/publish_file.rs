//! `publish file`: what lands, what is refused, and what a crash leaves behind.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::fenced::faults::{CHANGING, LOOKING, Stopped, at_every, order};
use crate::fenced::{FENCEPOST, Scene, assert_code, fence, said, with_input};
use fencepost_guard::publish::digest;
use fencepost_testkit::process::install;
use nix::unistd::geteuid;

const FENCE: &str = ".report.fencepost-fence";
const LOCK: &str = ".report.fencepost-lock";

#[test]
fn a_newer_token_writes_and_a_stale_one_changes_nothing() {
    let scene = Scene::new();
    assert_code(&scene.write(5, "five"), 0, "");
    assert_code(&scene.write(5, "five again"), 0, "");
    assert_eq!(fence(&scene.path(FENCE)).seq, 2);
    assert_code(&scene.write(6, "six"), 0, "");
    let before = (fs::metadata(scene.path("report")).unwrap().ino(), scene.names());
    assert_code(&scene.write(5, "zombie"), 13, "token 5 is stale: token 6 of run");
    assert_eq!(before, (fs::metadata(scene.path("report")).unwrap().ino(), scene.names()));
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "six");
    assert_eq!(scene.names(), [FENCE, LOCK, "report"]);
}

#[test]
fn the_identical_write_is_already_applied_and_once_is_once() {
    let scene = Scene::new();
    let once =
        |token, payload| with_input(&mut scene.publish(token, &["file", "report", "--mode=once", "--json"]), payload);
    let applied = |output: &Output| String::from_utf8_lossy(&output.stdout).contains("\"already_applied\":true");
    assert!(!applied(&once(5, "a")));
    let inode = fs::metadata(scene.path("report")).unwrap().ino();
    assert!(applied(&once(5, "a")));
    assert_eq!(fs::metadata(scene.path("report")).unwrap().ino(), inode);
    assert_code(&once(5, "b"), 13, "good for one write");
    // The content was removed, or a crash came before it: then the repetition writes it.
    fs::remove_file(scene.path("report")).unwrap();
    assert!(!applied(&once(5, "a")));
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "a");
}

#[test]
fn a_dry_run_says_what_would_happen_and_touches_nothing() {
    let scene = Scene::new();
    let dry = |token| with_input(&mut scene.publish(token, &["file", "report", "--dry-run", "-v"]), "dry");
    assert_code(&dry(5), 0, "would be accepted");
    assert!(scene.names().is_empty());
    scene.write(5, "five");
    let before = fs::metadata(scene.path("")).unwrap();
    assert_code(&dry(4), 13, "stale");
    assert_code(&dry(6), 0, "would be accepted");
    assert_eq!(fs::metadata(scene.path("")).unwrap().mtime_nsec(), before.mtime_nsec());
    assert_eq!(fence(&scene.path(FENCE)).token.number(), 5);
}

#[test]
fn another_store_or_job_is_refused_until_it_is_adopted_by_hand() {
    let scene = Scene::new();
    scene.write(5, "ours");
    let theirs = |extra: &[&str]| {
        let mut command = scene.publish(9, &[&["file", "report"], extra].concat());
        with_input(command.env("FENCEPOST_STORE_ID", "00000000-0000-0000-0000-000000000002"), "theirs")
    };
    assert_code(&theirs(&[]), 13, "--adopt");
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "ours");
    assert_code(&theirs(&["--adopt"]), 0, "");
    assert_code(&scene.write(100, "ours"), 13, "not comparable");
}

#[test]
fn a_token_taken_by_hand_writes_until_a_newer_one_is_granted_and_status_tells() {
    let scene = Scene::new();
    let fencepost = |arguments: &[&str], input: &str| {
        let mut command = Command::new(FENCEPOST);
        command.env("FENCEPOST_STATE_DIR", scene.aside("state")).current_dir(scene.path(""));
        with_input(command.args(arguments), input)
    };
    let acquire = || String::from_utf8(fencepost(&["lease", "acquire", "hand"], "").stdout).unwrap().trim().to_string();
    let publish = |token: &str, text: &str| {
        fencepost(&["publish", "file", "report", "--job", "hand", "--token", token, "--resource", "the report"], text)
    };
    let old = acquire();
    assert_code(&publish(&old, "old"), 0, "");
    fencepost(&["lease", "release", "hand", "--token", &old], "");
    let new = acquire();
    assert_code(&publish(&old, "zombie"), 13, "stale");
    assert_code(&publish(&new, "new"), 0, "");
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "new");
    let status: serde_json::Value = serde_json::from_slice(&fencepost(&["status", "--json"], "").stdout).unwrap();
    let resource = &status["resources"][0];
    assert_eq!((&resource["resource"], &resource["refused"]), (&"the report".into(), &1.into()), "{status}");
    assert_eq!(resource["token"].to_string(), new);
}

#[test]
fn the_token_of_a_run_that_ended_is_still_its_own_and_a_released_one_is_explained() {
    let scene = Scene::new();
    let fencepost = |arguments: &[&str], input: &str| {
        let mut command = Command::new(FENCEPOST);
        command.env("FENCEPOST_CONFIG", "").env("FENCEPOST_STATE_DIR", scene.aside("state"));
        command.env("FENCEPOST", FENCEPOST).current_dir(scene.path(""));
        with_input(command.args(arguments), input)
    };
    let publish =
        |token: &str, text: &str| fencepost(&["publish", "file", "report", "--job", "hand", "--token", token], text);
    let script = "echo $FENCEPOST_TOKEN > token; echo run | $FENCEPOST publish file report";
    assert_code(&fencepost(&["run", "hand", "--", "sh", "-c", script], ""), 0, "");
    let token = fs::read_to_string(scene.path("token")).unwrap().trim().to_string();
    assert_code(&publish(&token, "by hand"), 0, "");
    // The record keeps nothing of a lease that was released by hand.
    let acquired = fencepost(&["lease", "acquire", "hand"], "");
    let token = String::from_utf8(acquired.stdout).unwrap().trim().to_string();
    assert_code(&publish(&token, "held"), 0, "");
    assert_code(&fencepost(&["lease", "release", "hand", "--token", &token], ""), 0, "");
    let refused = publish(&token, "released");
    assert_code(&refused, 13, "by hand after that run released its lease");
    assert!(!said(&refused).1.contains("was used by another run"), "{}", said(&refused).1);
}

#[test]
fn a_fence_that_cannot_be_read_is_refused_and_never_taken_for_none() {
    let scene = Scene::new();
    scene.write(5, "five");
    let whole = fs::read(scene.path(FENCE)).unwrap();
    let mut flipped = whole.clone();
    let digit = whole.windows(10).position(|window| window == b"\"token\":5,").unwrap() + 8;
    flipped[digit] ^= 1;
    let bad: [Option<&[u8]>; 6] =
        [None, Some(b""), Some(&whole[..whole.len() / 2]), Some(b"0\n"), Some(b"{\"v\":1}"), Some(&flipped)];
    for bytes in bad {
        match bytes {
            None => fs::remove_file(scene.path(FENCE)).unwrap(),
            Some(bytes) => fs::write(scene.path(FENCE), bytes).unwrap(),
        }
        assert_code(&scene.write(6, "six"), 125, "publish once with --adopt");
        assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "five", "{bytes:?}");
        assert_code(&with_input(&mut scene.publish(6, &["file", "report", "--dry-run"]), ""), 125, "--adopt");
    }
    assert_code(&with_input(&mut scene.publish(6, &["file", "report", "--adopt"]), "six"), 0, "");
    assert_code(&scene.write(5, "zombie"), 13, "stale");
}

#[test]
fn mode_owner_links_and_other_names_are_treated_as_people_expect() {
    let scene = Scene::new();
    let mode = || fs::metadata(scene.path("report")).unwrap().mode() & 0o7777;
    let script = format!("umask 027; exec {FENCEPOST} publish file report");
    let mut shell = Command::new("sh");
    scene.as_run(&mut shell, 1);
    assert_code(&with_input(shell.args(["-c", &script]), "new"), 0, "");
    assert_eq!(mode(), 0o640, "a new file gets what any new file gets");
    fs::set_permissions(scene.path("report"), Permissions::from_mode(0o604)).unwrap();
    if geteuid().is_root() {
        chown(scene.path("report"), Some(1234), Some(4321)).unwrap();
    }
    assert_code(&scene.write(2, "two"), 0, "");
    assert_eq!(mode(), 0o604, "an old one keeps its mode");
    if geteuid().is_root() {
        let found = fs::metadata(scene.path("report")).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 4321), "and its owner");
    }
    fs::create_dir(scene.path("links")).unwrap();
    symlink("../report", scene.path("links/one")).unwrap();
    symlink("one", scene.path("links/two")).unwrap();
    assert_code(&with_input(&mut scene.publish(3, &["file", "links/two"]), "three"), 0, "");
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "three");
    assert!(fs::symlink_metadata(scene.path("links/two")).unwrap().is_symlink());
    assert_eq!(fence(&scene.path(FENCE)).token.number(), 3, "all names share a fence");
    assert_code(&with_input(&mut scene.publish(2, &["file", "links/one"]), "stale"), 13, "stale");
    fs::hard_link(scene.path("report"), scene.path("other")).unwrap();
    assert_code(&scene.write(4, "four"), 0, "2 names (hard links): only this one is replaced");
    assert_eq!(fs::read_to_string(scene.path("other")).unwrap(), "three");
}

#[test]
fn somebody_else_gets_no_more_rights_by_the_new_file_and_a_closed_directory_is_said() {
    if !geteuid().is_root() {
        return closed_directory(&Scene::new(), |_| {});
    }
    let scene = Scene::new();
    let binary = scene.aside("fencepost");
    install(FENCEPOST, &binary, "755");
    fs::set_permissions(scene.aside(""), Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(scene.path(""), Permissions::from_mode(0o777)).unwrap();
    fs::write(scene.path("report"), "root's").unwrap();
    fs::set_permissions(scene.path("report"), Permissions::from_mode(0o4750)).unwrap();
    let nobody = |command: &mut Command| {
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new("setpriv");
        scene.as_run(command, 1);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary).args(arguments);
    };
    let mut command = scene.publish(1, &["file", "report"]);
    nobody(&mut command);
    assert_code(&with_input(&mut command, "another user's"), 0, "only root may give files away");
    let found = fs::metadata(scene.path("report")).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (65534, 65534, 0o700));
    closed_directory(&scene, nobody);
}

fn closed_directory(scene: &Scene, change: impl FnOnce(&mut Command)) {
    fs::create_dir(scene.path("closed")).unwrap();
    fs::write(scene.path("closed/report"), "old").unwrap();
    fs::set_permissions(scene.path("closed"), Permissions::from_mode(0o555)).unwrap();
    let mut command = scene.publish(1, &["file", "closed/report"]);
    change(&mut command);
    assert_code(&with_input(&mut command, "new"), 125, "must be writable");
    assert_eq!(fs::read_to_string(scene.path("closed/report")).unwrap(), "old");
    fs::set_permissions(scene.path("closed"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_payload_comes_from_a_file_also_from_the_target_itself() {
    let scene = Scene::new();
    fs::write(scene.path("report"), "itself").unwrap();
    let from = |file: &str| scene.publish(1, &["file", "report", "--from", file]).output().unwrap();
    assert_code(&from("report"), 0, "");
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "itself");
    assert_code(&from("missing"), 2, "Cannot read the payload");
    assert_code(&from("."), 125, "Cannot read the payload");
    assert_eq!(scene.names(), [FENCE, LOCK, "report"]);
}

#[test]
fn places_where_no_check_can_be_made_are_refused_and_half_ones_are_named() {
    let scene = Scene::new();
    let long = "n".repeat(230);
    fs::create_dir(scene.path("Dropbox")).unwrap();
    for (path, why) in [
        ("Dropbox/report", "other machines"),
        (&long, "207 is the most"),
        (".report.fencepost-fence", "fencepost itself"),
        ("Dropbox", "publish tree"),
        ("missing/report", "directory"),
    ] {
        assert_code(&with_input(&mut scene.publish(1, &["file", path]), "x"), 2, why);
    }
    fs::create_dir(scene.path(".git")).unwrap();
    assert_code(&scene.write(1, "x"), 0, "only this copy is fenced");
}

#[test]
fn a_payload_larger_than_memory_is_streamed() {
    let scene = Scene::new();
    let megabytes = 256;
    // The address space is an upper bound of what is held in memory.
    let script =
        format!("ulimit -v {}; head -c {} /dev/zero | {FENCEPOST} publish file report", 64 << 10, megabytes << 20);
    let mut shell = Command::new("sh");
    scene.as_run(&mut shell, 1);
    assert_code(&shell.args(["-c", &script]).output().unwrap(), 0, "");
    assert_eq!(fs::metadata(scene.path("report")).unwrap().len(), megabytes << 20);
}

#[test]
fn one_that_stops_between_its_check_and_its_write_is_waited_for_and_overwritten() {
    let scene = Scene::new();
    scene.write(1, "one");
    fs::write(scene.aside("two"), "two").unwrap();
    let from = scene.aside("two");
    // The first rename is the fence's: the check is over, and the content has not been touched.
    let stopped = Stopped::at(&scene, "renameat", 1, 2, &["file", "report", "--from", from.to_str().unwrap()]);
    let begun = Instant::now();
    let newer = with_input(&mut scene.publish(3, &["file", "report", "--wait=300ms"]), "three");
    assert_code(&newer, 125, "held its lock for 300ms; nothing was changed");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "one");
    std::thread::scope(|scope| {
        let newer = scope.spawn(|| scene.write(3, "three"));
        assert_code(&stopped.go_on(), 0, "");
        assert_code(&newer.join().unwrap(), 0, "");
    });
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "three");
    assert_eq!(scene.names(), [FENCE, LOCK, "report"]);
}

#[test]
fn one_that_stops_before_its_check_is_refused_when_it_goes_on() {
    let scene = Scene::new();
    scene.write(1, "one");
    fs::write(scene.aside("two"), "two").unwrap();
    let from = scene.aside("two");
    let stopped = Stopped::at(&scene, "fsync", 1, 2, &["file", "report", "--from", from.to_str().unwrap()]);
    assert_code(&scene.write(3, "three"), 0, "");
    assert_code(&stopped.go_on(), 13, "token 2 is stale: token 3");
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "three");
    assert_eq!(scene.names(), [FENCE, LOCK, "report"]);
}

/// What a power cut leaves cannot be tried here; the order of the flushes, on which it depends, can be looked at.
#[test]
fn the_fence_is_flushed_with_its_name_before_the_content_gets_its_own() {
    let scene = Scene::new();
    fs::write(scene.aside("payload"), "new").unwrap();
    let from = scene.aside("payload");
    let publish = ["file", "report", "--from", from.to_str().unwrap()];
    order(&scene, 1, &publish);
    let expected = [
        "fsync work/.report.fencepost-new",
        "fsync work/.report.fencepost-fence-new",
        "renameat work/.report.fencepost-fence-new work/.report.fencepost-fence",
        "fsync WORK",
        "renameat work/.report.fencepost-new work/report",
        "fsync WORK",
    ];
    let work = scene.path("");
    let work: Vec<_> = work.iter().rev().take(2).map(|part| part.to_str().unwrap()).collect();
    let expected = expected.map(|line| line.replace("WORK", &format!("{}/{}", work[1], work[0])));
    assert_eq!(order(&scene, 2, &publish), expected);
    // The same write after a crash before its content: whether the fence was flushed is unknown.
    fs::write(scene.path("report"), "old").unwrap();
    assert_eq!(order(&scene, 2, &publish), expected);
    assert_eq!(order(&scene, 2, &publish), [expected[0].clone(), expected[3].clone()], "already applied");
}

/// Long enough that half of it would show.
fn payload(token: u64) -> String {
    format!("{token:06}\n").repeat(40_000)
}

/// What must be true whenever no writer is active, regardless of what happened before: returns the token of the
/// content.
fn assert_sound(scene: &Scene, about: &str) -> u64 {
    let Ok(content) = fs::read_to_string(scene.path("report")) else { return 0 };
    let token = content.lines().next().and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{about}: torn"));
    assert!(content == payload(token), "{about}: torn");
    let fence = fence(&scene.path(FENCE));
    assert!(fence.token.number() >= token, "{about}: the fence {} is behind the content {token}", fence.token);
    let same = fence.digest == digest::of(content.as_bytes());
    assert!(same == (fence.token.number() == token), "{about}: {} {token}", fence.token);
    token
}

/// A fault at every call of these kinds: sound afterwards, and the same write again succeeds and leaves nothing behind.
fn faults(calls: &[&str], fault: &str, first_write: bool) -> usize {
    let scene = Scene::new();
    let mut token = 1;
    let write = |token, command: &mut Command| {
        fs::write(scene.aside("payload"), payload(token)).unwrap();
        scene.as_run(command, token);
        command.args(["publish", "file", "report", "--from"]).arg(scene.aside("payload"));
        command.output().expect("strace: apt-get install strace")
    };
    let next = std::cell::Cell::new(1);
    at_every(
        &scene,
        calls,
        fault,
        |strace| {
            if first_write {
                scene.names().iter().for_each(|name| fs::remove_file(scene.path(name)).unwrap());
            }
            next.set(next.get() + 1);
            write(next.get(), strace.arg(FENCEPOST))
        },
        |about, output| {
            let before = std::mem::replace(&mut token, next.get());
            let content = assert_sound(&scene, about);
            assert!(content == token || !output.status.success(), "{about}: accepted, and not there");
            assert!([token, before, 0].contains(&content), "{about}: {content}");
            let again = write(token, &mut Command::new(FENCEPOST));
            assert_eq!(said(&again).0, 0, "{about}: {}", said(&again).1);
            assert_eq!(assert_sound(&scene, about), token, "{about}");
            assert_eq!(scene.names(), [FENCE, LOCK, "report"], "{about}");
            assert_eq!(said(&write(before, &mut Command::new(FENCEPOST))).0, 13, "{about}");
        },
    )
}

#[test]
fn killed_at_every_call_that_changes_something() {
    assert!(faults(CHANGING, "signal=SIGKILL", false) > 20);
}

#[test]
fn killed_at_every_call_of_the_first_write() {
    assert!(faults(CHANGING, "signal=SIGKILL", true) > 20);
}

#[test]
fn failed_at_every_call() {
    let failed = faults(CHANGING, "error=EIO", false) + faults(LOOKING, "error=EIO", false);
    assert!(failed > 40, "{failed}");
}

#[test]
fn no_room_at_every_call_that_needs_some() {
    assert!(faults(&["openat", "write", "fsync", "renameat"], "error=ENOSPC", false) > 10);
}
