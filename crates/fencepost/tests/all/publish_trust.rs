//! `publish file` and `publish tree` where other users may write: no link and no file of theirs redirects a write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::fenced::faults::Stopped;
use crate::fenced::{FENCEPOST, Scene, assert_code, names, with_input};
use fencepost_testkit::process::install;
use nix::unistd::geteuid;

const VERSIONS: &str = ".site.fencepost-versions";
/// A user that no test runs as.
const OTHER: u32 = 1234;
const NOBODY: u32 = 65534;

/// Each user keeps a state directory: that of another user is refused.
const NOBODYS_STATE: &str = "state-65534";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A scene that every user may enter, with a tree to publish.
fn scene() -> Scene {
    let scene = Scene::new();
    mode(&scene.aside(""), 0o755);
    fs::create_dir(scene.aside("source")).unwrap();
    fs::write(scene.aside("source/page"), "new").unwrap();
    install(FENCEPOST, scene.aside("fencepost"), "755");
    for (state, owner) in [("state", 0), (NOBODYS_STATE, NOBODY)] {
        fs::create_dir(scene.aside(state)).unwrap();
        chown(scene.aside(state), Some(owner), Some(owner)).unwrap();
    }
    scene
}

fn root(scene: &Scene, arguments: &[&str]) -> Output {
    with_input(&mut scene.publish(1, arguments), "new")
}

fn nobody(scene: &Scene, arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    scene.as_run(&mut command, 1);
    command.env("FENCEPOST_STATE_DIR", scene.aside(NOBODYS_STATE));
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(scene.aside("fencepost"));
    with_input(command.arg("publish").args(arguments), "new")
}

#[test]
fn root_does_not_publish_where_other_users_may_write() {
    if !geteuid().is_root() {
        return;
    }
    let scene = scene();
    let source = scene.aside("source");
    let tree = ["tree", source.to_str().unwrap(), "site"];
    let work = scene.path("");
    let work_shown = work.to_str().unwrap().trim_end_matches('/');
    let refused = |owner: &str| {
        for arguments in [&tree[..], &["file", "report"], &["file", "report", "--dry-run"]] {
            let output = root(&scene, arguments);
            assert_code(&output, 2, &format!("{work_shown} belongs to {owner}"));
            assert_code(&output, 2, "Nothing was written");
            assert_eq!(scene.names(), [""; 0], "{arguments:?}");
        }
    };
    chown(&work, Some(OTHER), Some(OTHER)).unwrap();
    refused("uid 1234");
    chown(&work, Some(0), Some(0)).unwrap();
    for open in [0o777, 0o1777, 0o775] {
        mode(&work, open);
        refused("root (uid 0)");
    }
    mode(&work, 0o755);
    // A directory above: its owner could put another one in the place of the next.
    fs::create_dir(scene.path("above")).unwrap();
    fs::create_dir(scene.path("above/below")).unwrap();
    chown(scene.path("above"), Some(OTHER), None).unwrap();
    assert_code(&root(&scene, &["file", "above/below/report"]), 2, "above belongs to uid 1234");
    assert_code(&root(&scene, &["tree", source.to_str().unwrap(), "above/below/site"]), 2, "uid 1234");
    assert_eq!(names(&scene.path("above/below")), [""; 0]);
    fs::remove_dir_all(scene.path("above")).unwrap();
    fs::create_dir(scene.path(VERSIONS)).unwrap();
    chown(scene.path(VERSIONS), Some(OTHER), None).unwrap();
    assert_code(&root(&scene, &tree), 2, &format!("{VERSIONS} belongs to uid 1234"));
    assert_eq!(names(&scene.path(VERSIONS)), [""; 0]);
    fs::remove_dir(scene.path(VERSIONS)).unwrap();
    assert_code(&root(&scene, &tree), 0, "");
    assert_code(&root(&scene, &["file", "report"]), 0, "");
}

#[test]
fn a_versions_directory_that_becomes_a_link_during_the_copy_leads_nowhere() {
    let scene = Scene::new();
    let source = scene.aside("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("page"), "new").unwrap();
    fs::write(source.join("sub/page"), "new").unwrap();
    let elsewhere = scene.aside("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    // The first file of the tree is flushed; the rest is not copied yet.
    let stopped = Stopped::at(&scene, "fsync", 1, 1, &["tree", source.to_str().unwrap(), "site"]);
    let draft = names(&scene.path(VERSIONS)).remove(0);
    fs::create_dir_all(elsewhere.join(&draft).join("tree/sub")).unwrap();
    fs::rename(scene.path(VERSIONS), scene.aside("moved")).unwrap();
    symlink(&elsewhere, scene.path(VERSIONS)).unwrap();
    assert_code(&stopped.go_on(), 125, "was replaced meanwhile");
    assert_eq!(names(&elsewhere), std::slice::from_ref(&draft));
    assert_eq!(names(&elsewhere.join(&draft).join("tree")), ["sub"], "nothing was written there");
    assert_eq!(names(&elsewhere.join(&draft).join("tree/sub")), [""; 0]);
    assert_eq!(scene.names(), [VERSIONS], "nothing was switched");
    assert_eq!(names(&scene.aside("moved")), ["lock"], "and nothing is left of the copy");
}

#[test]
fn links_and_files_that_another_user_planted_are_refused() {
    if !geteuid().is_root() {
        return;
    }
    let scene = scene();
    let home = scene.aside("home");
    let mine = home.join("mine");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::write(&mine, "mine").unwrap();
    chown(&mine, Some(NOBODY), Some(NOBODY)).unwrap();
    for open in [0o1777, 0o777] {
        mode(&scene.path(""), open);
        symlink(&mine, scene.path("report")).unwrap();
        lchown(scene.path("report"), Some(OTHER), Some(OTHER)).unwrap();
        let refused = nobody(&scene, &["file", "report"]);
        assert_code(&refused, 2, &format!("{} is a symbolic link of uid 1234", scene.path("report").display()));
        assert_code(&root(&scene, &["file", "report"]), 2, "Nothing was written");
        assert_eq!(scene.names(), ["report"]);
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        // The user's own link is followed.
        lchown(scene.path("report"), Some(NOBODY), Some(NOBODY)).unwrap();
        assert_code(&nobody(&scene, &["file", "report"]), 0, "");
        assert_eq!(fs::read_to_string(&mine).unwrap(), "new");
        fs::write(&mine, "mine").unwrap();
        fs::remove_file(scene.path("report")).unwrap();
        for left in ["fence", "lock"] {
            fs::remove_file(home.join(format!(".mine.fencepost-{left}"))).unwrap();
        }
    }
    mode(&scene.path(""), 0o1777);
    fs::write(scene.path("report"), "planted").unwrap();
    chown(scene.path("report"), Some(OTHER), Some(OTHER)).unwrap();
    mode(&scene.path("report"), 0o666);
    for refused in [nobody(&scene, &["file", "report"]), root(&scene, &["file", "report"])] {
        assert_code(&refused, 2, "Nothing was written");
    }
    assert_code(&nobody(&scene, &["file", "report"]), 2, "report belongs to uid 1234");
    assert_eq!(fs::read_to_string(scene.path("report")).unwrap(), "planted");
    assert_eq!(scene.names(), ["report"]);
    fs::create_dir(scene.path(VERSIONS)).unwrap();
    chown(scene.path(VERSIONS), Some(OTHER), None).unwrap();
    mode(&scene.path(VERSIONS), 0o777);
    let source = scene.aside("source");
    let refused = nobody(&scene, &["tree", source.to_str().unwrap(), "site"]);
    assert_code(&refused, 2, &format!("{VERSIONS} belongs to uid 1234"));
    assert_eq!(names(&scene.path(VERSIONS)), [""; 0]);
}

#[test]
fn a_link_among_the_versions_that_cannot_be_removed_changes_nothing_behind_it() {
    if !geteuid().is_root() {
        return;
    }
    let scene = scene();
    let mine = scene.aside("mine");
    fs::create_dir(&mine).unwrap();
    chown(&mine, Some(NOBODY), Some(NOBODY)).unwrap();
    mode(&mine, 0o755);
    fs::create_dir(scene.path(VERSIONS)).unwrap();
    mode(&scene.path(VERSIONS), 0o1777);
    mode(&scene.path(""), 0o777);
    // In a sticky directory only its owner can remove it.
    symlink(&mine, scene.path(VERSIONS).join("gone-1")).unwrap();
    lchown(scene.path(VERSIONS).join("gone-1"), Some(OTHER), None).unwrap();
    let source = scene.aside("source");
    assert_code(&nobody(&scene, &["tree", source.to_str().unwrap(), "site"]), 0, "");
    assert_eq!(fs::metadata(&mine).unwrap().mode() & 0o7777, 0o755);
    assert!(names(&scene.path(VERSIONS)).contains(&"gone-1".to_string()));
}
