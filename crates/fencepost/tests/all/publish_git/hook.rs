//! `publish git --hook`: a bare push from inside a run is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use fencepost_guard::publish::git::hook::{install, remove};

use crate::publish_git::scene::{Clone, Scene, failed, git};

fn push(clone: &Clone, inside_a_run: bool) -> Result<(), String> {
    let mut command = Command::new("git");
    command.args(["push", "--quiet", "origin", "main"]).current_dir(&clone.path).env_remove("FENCEPOST_PUSHING");
    if inside_a_run {
        command.env("FENCEPOST_RUN", "r").env("FENCEPOST_JOB", "report");
    } else {
        command.env_remove("FENCEPOST_RUN");
    }
    let output = command.output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn path(clone: &Clone) -> PathBuf {
    clone.path.join(".git/hooks/pre-push")
}

#[test]
fn a_bare_push_is_refused_inside_a_run_only_and_ours_is_let_through() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    assert!(install(&clone.path).unwrap().changed);
    assert!(!install(&clone.path).unwrap().changed, "twice is once");
    clone.commit("b");
    let why = push(&clone, true).unwrap_err();
    assert!(why.contains("the run of report") && why.contains("fencepost publish git"), "{why}");
    assert_eq!(scene.subjects("main"), ["seed"]);
    clone.publish(5).unwrap();
    clone.commit("c");
    push(&clone, false).unwrap();
    assert_eq!(scene.subjects("main"), ["seed", "b", "c"]);
    assert!(remove(&clone.path).unwrap().changed);
    assert!(!remove(&clone.path).unwrap().changed);
    assert!(!path(&clone).exists());
    push(&clone, true).unwrap();
}

#[test]
fn a_hook_that_was_there_still_runs_and_comes_back_as_it_was() {
    let shell =
        "#!/bin/sh\nset -e\ntest \"$(basename \"$0\")\" = pre-push\ncat > \"$(git rev-parse --git-dir)/told\"\n";
    let other = "#!/usr/bin/env -S awk -f\nBEGIN { ARGC = 1; while ((getline line) > 0) print line > \".git/told\" }\n";
    for script in [shell, other] {
        let scene = Scene::new();
        let clone = scene.clone("a");
        clone.hook(script);
        install(&clone.path).unwrap();
        assert!(!install(&clone.path).unwrap().changed);
        clone.commit("b");
        push(&clone, true).unwrap_err();
        assert!(!clone.path.join(".git/told").exists());
        clone.publish(5).unwrap();
        let told = fs::read_to_string(clone.path.join(".git/told")).unwrap();
        assert!(told.contains("refs/heads/main"), "{told}");
        remove(&clone.path).unwrap();
        assert_eq!(fs::read_to_string(path(&clone)).unwrap(), script);
        assert_eq!(fs::metadata(path(&clone)).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(path(&clone).parent().unwrap()).unwrap().filter(is_ours).count(), 0);
    }
}

fn is_ours(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name().to_string_lossy().contains("fencepost")
}

#[test]
fn a_hook_that_git_passes_over_is_not_woken() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.hook("#!/bin/sh\nexit 1\n");
    fs::set_permissions(path(&clone), fs::Permissions::from_mode(0o644)).unwrap();
    install(&clone.path).unwrap();
    push(&clone, true).unwrap_err();
    push(&clone, false).unwrap();
}

#[test]
fn a_link_is_kept_and_one_hook_is_never_put_over_another() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    fs::create_dir_all(path(&clone).parent().unwrap()).unwrap();
    fs::write(clone.path.join("shared-hook"), "#!/bin/sh\nexit 0\n").unwrap();
    symlink("../../shared-hook", path(&clone)).unwrap();
    install(&clone.path).unwrap();
    assert_eq!(fs::read_to_string(clone.path.join("shared-hook")).unwrap(), "#!/bin/sh\nexit 0\n");
    push(&clone, true).unwrap_err();
    fs::remove_file(path(&clone)).unwrap();
    symlink("../../shared-hook", path(&clone)).unwrap();
    assert!(failed(install(&clone.path)).contains("was replaced since"));
}

#[test]
fn the_hooks_are_where_git_looks_for_them() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    assert!(!install(&clone.path).unwrap().shared);
    git(&clone.path, &["worktree", "add", "--quiet", "../tree", "-b", "side"]);
    assert!(!install(&scene.directory.path().join("tree")).unwrap().changed, "work trees share their hooks");
    git(&clone.path, &["config", "core.hooksPath", ".hooks"]);
    fs::create_dir(clone.path.join("below")).unwrap();
    let installed = install(&clone.path).unwrap();
    assert!(installed.changed && installed.shared);
    assert!(clone.path.join(".hooks/pre-push").exists());
    push(&clone, true).unwrap_err();
}
