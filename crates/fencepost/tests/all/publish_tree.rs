//! `publish tree`: a whole directory is switched in one step, or not at all.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use crate::fenced::faults::{CHANGING, LOOKING, Stopped, at_every, order};
use crate::fenced::{FENCEPOST, Scene, assert_code, fence, names, said};

const VERSIONS: &str = ".site.fencepost-versions";

#[test]
fn a_newer_token_switches_and_a_stale_one_changes_nothing() {
    let scene = Scene::new();
    assert_code(&publish(&scene, 5, &[]), 0, "");
    assert_code(&publish(&scene, 6, &[]), 0, "");
    let before = (fs::read_link(scene.path("site")).unwrap(), names(&scene.path(VERSIONS)));
    assert_code(&publish(&scene, 5, &["--keep=0"]), 13, "token 5 is stale: token 6 of run");
    assert_eq!(before, (fs::read_link(scene.path("site")).unwrap(), names(&scene.path(VERSIONS))));
    assert_eq!(assert_sound(&scene, ""), 6);
    let link = before.0.to_str().unwrap();
    assert!(link.starts_with(&format!("{VERSIONS}/6-1-")) && link.ends_with("/tree"), "{link}");
}

#[test]
fn everything_in_the_directory_is_kept_as_it_was() {
    let scene = Scene::new();
    let source = scene.aside("source");
    fs::create_dir_all(source.join("deep/closed")).unwrap();
    fs::write(source.join("deep/closed/script"), "#!/bin/sh\n").unwrap();
    fs::write(source.join("empty"), "").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    File::options().write(true).open(source.join("empty")).unwrap().set_modified(long_ago).unwrap();
    symlink("deep/closed", source.join("link")).unwrap();
    symlink("/nowhere", source.join("dangling")).unwrap();
    fs::set_permissions(source.join("deep/closed/script"), Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(source.join("deep/closed"), Permissions::from_mode(0o555)).unwrap();
    let command = |token: u64, arguments: &[&str]| {
        scene.publish(token, &[&["tree", source.to_str().unwrap(), "site"], arguments].concat()).output().unwrap()
    };
    assert_code(&command(1, &[]), 0, "");
    let site = scene.path("site");
    assert_eq!(names(&site), ["dangling", "deep", "empty", "link"]);
    assert_eq!(fs::read_link(site.join("link")).unwrap(), Path::new("deep/closed"));
    assert_eq!(fs::read_link(site.join("dangling")).unwrap(), Path::new("/nowhere"));
    assert_eq!(fs::metadata(site.join("deep/closed/script")).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(fs::metadata(site.join("deep/closed")).unwrap().mode() & 0o7777, 0o555);
    assert_eq!(fs::metadata(site.join("empty")).unwrap().modified().unwrap(), long_ago);
    let applied = |output: &Output| String::from_utf8_lossy(&output.stdout).contains("\"already_applied\":true");
    assert!(applied(&command(1, &["--json"])));
    fs::set_permissions(source.join("empty"), Permissions::from_mode(0o600)).unwrap();
    assert!(!applied(&command(1, &["--json"])), "a mode is part of what is published");
    symlink("../../outside", source.join("deep/up")).unwrap();
    assert_code(&command(2, &[]), 0, "leads out of the tree");
    // Old versions are removed although one of their directories may not be written to.
    assert_code(&command(3, &["--keep=0"]), 0, "");
    assert_eq!(names(&scene.path(VERSIONS)).len(), 2, "{:?}", names(&scene.path(VERSIONS)));
}

#[test]
fn old_versions_are_pruned_and_the_last_few_are_kept() {
    let scene = Scene::new();
    for token in 1..=5 {
        assert_code(&publish(&scene, token, &[]), 0, "");
    }
    let kept = |scene: &Scene| {
        let names = names(&scene.path(VERSIONS)).into_iter().filter(|name| name != "lock");
        names.map(|name| name.split('-').next().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(kept(&scene), ["3", "4", "5"]);
    // A version that was never switched to is of no use, regardless of its token.
    fs::create_dir_all(scene.path(VERSIONS).join("9-1-00000000/tree")).unwrap();
    assert_code(&publish(&scene, 6, &["--keep=1"]), 0, "");
    assert_eq!(kept(&scene), ["5", "6"]);
}

#[test]
fn what_cannot_be_switched_is_refused_with_the_next_step() {
    let scene = Scene::new();
    fill(&scene, 1);
    let tree = |source: &str, path: &str, extra: &[&str]| {
        scene.publish(1, &[&["tree", source, path], extra].concat()).output().unwrap()
    };
    let source = scene.aside("source");
    let source = source.to_str().unwrap();
    fs::create_dir(scene.path("real")).unwrap();
    assert_code(&tree(source, "real", &["--adopt"]), 2, "mv ");
    fs::write(scene.path("file"), "").unwrap();
    assert_code(&tree(source, "file", &[]), 2, "neither a directory nor a link");
    assert_code(&tree("file", "site", &[]), 2, "publish file");
    assert_code(&tree("missing", "site", &[]), 2, "No such file");
    assert_code(&tree(".", "site", &[]), 2, "copied into itself");
    let before = scene.names();
    symlink("elsewhere", scene.path("site")).unwrap();
    assert_code(&tree(source, "site", &["--dry-run"]), 2, "did not make");
    assert_code(&tree(source, "site", &[]), 2, "did not make");
    fs::remove_file(scene.path("site")).unwrap();
    nix::unistd::mkfifo(&scene.aside("source").join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_code(&tree(source, "site", &["--dry-run"]), 2, "pipe");
    assert_eq!(scene.names(), [&[VERSIONS.to_string()], &before[..]].concat());
    assert_code(&tree(source, "site", &[]), 2, "pipe");
    fs::remove_file(scene.aside("source").join("pipe")).unwrap();
    assert_code(&tree(source, "site", &[]), 0, "");
    assert_code(&scene.publish(1, &["file", "site/page"]).output().unwrap(), 2, "as a whole");
    assert_code(&scene.publish(1, &["file", "site"]).output().unwrap(), 2, "publish tree");
}

#[test]
fn a_link_or_a_fence_that_is_lost_is_never_taken_for_none() {
    let scene = Scene::new();
    publish(&scene, 5, &[]);
    let leads_to = fs::read_link(scene.path("site")).unwrap();
    fs::remove_file(scene.path("site")).unwrap();
    assert_code(&publish(&scene, 6, &[]), 125, "is gone");
    symlink(&leads_to, scene.path("site")).unwrap();
    let fence = scene.path("site").canonicalize().unwrap().with_file_name("fence");
    let whole = fs::read(&fence).unwrap();
    for bytes in [b"".as_slice(), &whole[..whole.len() - 9], b"0"] {
        fs::write(&fence, bytes).unwrap();
        assert_code(&publish(&scene, 6, &[]), 125, "publish once with --adopt");
    }
    // A whole fence, but of another version.
    let lower = leads_to.to_str().unwrap().replacen("/5-1-", "/4-1-", 1);
    fs::write(&fence, &whole).unwrap();
    fs::rename(scene.path(leads_to.parent().unwrap().to_str().unwrap()), scene.path(lower.trim_end_matches("/tree")))
        .unwrap();
    fs::remove_file(scene.path("site")).unwrap();
    symlink(lower, scene.path("site")).unwrap();
    assert_code(&publish(&scene, 6, &[]), 125, "another version");
    assert_code(&publish(&scene, 6, &["--adopt"]), 0, "");
    assert_code(&publish(&scene, 5, &[]), 13, "stale");
}

#[test]
fn a_directory_that_changes_while_it_is_copied_is_copied_again() {
    let scene = Scene::new();
    fill(&scene, 2);
    let source = scene.aside("source");
    // The first file of the tree is flushed; the second is not copied yet.
    let stopped = Stopped::at(&scene, "fsync", 1, 3, &["tree", source.to_str().unwrap(), "site"]);
    fill(&scene, 3);
    assert_code(&stopped.go_on(), 0, "");
    assert_eq!(assert_sound(&scene, "changed"), 3);
    // What was copied already is looked at once more.
    let stopped = Stopped::at(&scene, "fsync", 1, 4, &["tree", source.to_str().unwrap(), "site"]);
    fs::write(source.join("page"), "changed").unwrap();
    assert_code(&stopped.go_on(), 0, "");
    assert_eq!(fs::read_to_string(scene.path("site/page")).unwrap(), "changed");
}

#[test]
fn one_that_stops_between_its_check_and_its_switch_is_waited_for_and_overwritten() {
    let scene = Scene::new();
    publish(&scene, 1, &[]);
    fill(&scene, 2);
    let source = scene.aside("source");
    // The first rename gives the version its name: the check is over, and the link has not been touched.
    let stopped = Stopped::at(&scene, "renameat", 1, 2, &["tree", source.to_str().unwrap(), "site"]);
    assert_code(&publish(&scene, 3, &["--wait=200ms"]), 125, "nothing was changed");
    assert_eq!(assert_sound(&scene, "stopped"), 1);
    std::thread::scope(|scope| {
        let newer = scope.spawn(|| publish(&scene, 3, &[]));
        assert_code(&stopped.go_on(), 0, "");
        assert_code(&newer.join().unwrap(), 0, "");
    });
    assert_eq!(assert_sound(&scene, "went on"), 3);
    assert_code(&publish(&scene, 2, &[]), 13, "stale");
}

/// What a power cut leaves cannot be tried here; the order of the flushes, on which it depends, can be looked at.
#[test]
fn everything_is_flushed_before_the_link_is_switched() {
    let scene = Scene::new();
    fill(&scene, 1);
    let source = scene.aside("source");
    let around = scene.path("").parent().unwrap().file_name().unwrap().to_str().unwrap().to_string();
    let last = [
        "renameat .site.fencepost-versions/new .site.fencepost-versions/1-1".to_string(),
        "fsync work/.site.fencepost-versions".to_string(),
        // Only the first time: the versions' own directory has not been flushed yet.
        format!("fsync {around}/work"),
        "renameat .site.fencepost-versions/link work/site".to_string(),
        format!("fsync {around}/work"),
        "fsync .site.fencepost-versions/lock".to_string(),
    ];
    let calls = order(&scene, 1, &["tree", source.to_str().unwrap(), "site"]);
    let (flushed, switched) = calls.split_at(calls.len() - last.len());
    assert_eq!(switched, last, "{calls:?}");
    for needed in ["tree/page", "sub/page", "tree/sub", "new/tree", "new/fence", ".site.fencepost-versions/new"] {
        assert!(flushed.contains(&format!("fsync {needed}")), "{needed} in {flushed:?}");
    }
}

/// Fills the directory that is published: every file says the token.
fn fill(scene: &Scene, token: u64) {
    let source = scene.aside("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for name in ["page", "sub/page"] {
        fs::write(source.join(name), format!("{token:06}\n").repeat(2_000)).unwrap();
    }
    let link = source.join("token");
    let _ = fs::remove_file(&link);
    symlink(token.to_string(), link).unwrap();
}

fn publish(scene: &Scene, token: u64, extra: &[&str]) -> Output {
    fill(scene, token);
    let source = scene.aside("source");
    scene.publish(token, &[&["tree", source.to_str().unwrap(), "site"], extra].concat()).output().unwrap()
}

/// What must be true whenever no writer is active, regardless of what happened before: returns the token of the tree.
fn assert_sound(scene: &Scene, about: &str) -> u64 {
    let Ok(leads_to) = fs::read_link(scene.path("site")) else { return 0 };
    let token: u64 = fs::read_link(scene.path("site/token")).expect(about).to_str().unwrap().parse().unwrap();
    for name in ["page", "sub/page"] {
        let content = fs::read_to_string(scene.path("site").join(name)).expect(about);
        assert!(content == format!("{token:06}\n").repeat(2_000), "{about}: torn");
    }
    assert!(leads_to.to_str().unwrap().starts_with(&format!("{VERSIONS}/{token}-")), "{about}: {leads_to:?}");
    let version: PathBuf = scene.path(leads_to.parent().unwrap().to_str().unwrap());
    assert_eq!(fence(&version.join("fence")).token.number(), token, "{about}");
    token
}

/// A fault at every call of these kinds: sound afterwards, and the same write again succeeds and leaves nothing behind.
fn faults(calls: &[&str], fault: &str, first_write: bool) -> usize {
    let scene = Scene::new();
    let mut token = 1;
    let write = |token, command: &mut Command| {
        fill(&scene, token);
        scene.as_run(command, token);
        command.args(["publish", "tree", "--keep=0"]).arg(scene.aside("source")).arg("site");
        command.output().expect("strace: apt-get install strace")
    };
    let next = std::cell::Cell::new(1);
    at_every(
        &scene,
        calls,
        fault,
        |strace| {
            if first_write {
                let _ = fs::remove_file(scene.path("site"));
                let _ = fs::remove_dir_all(scene.path(VERSIONS));
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
            let left = names(&scene.path(VERSIONS));
            assert!(left.len() == 2 && left[0].starts_with(&format!("{token}-")), "{about}: {left:?}");
            assert_eq!(scene.names(), [VERSIONS, "site"], "{about}");
            assert_eq!(said(&write(before, &mut Command::new(FENCEPOST))).0, 13, "{about}");
        },
    )
}

#[test]
fn killed_at_every_call_that_changes_something() {
    assert!(faults(CHANGING, "signal=SIGKILL", false) > 30);
}

#[test]
fn killed_at_every_call_of_the_first_write() {
    assert!(faults(CHANGING, "signal=SIGKILL", true) > 30);
}

#[test]
fn failed_at_every_call() {
    let failed = faults(CHANGING, "error=EIO", false) + faults(LOOKING, "error=EIO", false);
    assert!(failed > 50, "{failed}");
}

#[test]
fn no_room_at_every_call_that_needs_some() {
    let needy = ["openat", "write", "fsync", "renameat", "mkdirat", "symlinkat", "copy_file_range"];
    assert!(faults(&needy, "error=ENOSPC", false) > 10);
}
