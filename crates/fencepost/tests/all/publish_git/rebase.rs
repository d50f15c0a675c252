//! `--rebase`: a push that landed in between, with and without a conflict.

use std::fs;

use fencepost_guard::publish::git::{Outgoing, Wish, publish};
use fencepost_guard::publish::{PublishError, Receipt};

use super::scene::{Clone, FENCE, Scene, failed, git, job, refused, request};

fn rebasing(clone: &Clone, token: u64, branch: &str) -> Result<Receipt, PublishError> {
    let branches = [branch.to_string()];
    let wish = Wish { branches: &branches, rebase: true, ..Wish::default() };
    publish(&request(token), &Outgoing::find(&clone.path, &wish, &job()).unwrap())
}

fn change(clone: &Clone, file: &str, text: &str) -> String {
    fs::write(clone.path.join(file), text).unwrap();
    git(&clone.path, &["add", file]);
    clone.commit(text)
}

/// A clone, and a push of another one that it does not know.
fn overtaken(file: &str) -> (Scene, Clone) {
    let scene = Scene::new();
    let clone = scene.clone("ours");
    let other = scene.clone("theirs");
    change(&other, file, "theirs");
    git(&other.path, &["push", "--quiet", "origin", "HEAD:refs/heads/main"]);
    (scene, clone)
}

#[test]
fn commits_are_put_on_top_of_what_landed_in_between_and_the_clone_follows() {
    for branch in ["main", "HEAD:main"] {
        let (scene, clone) = overtaken("their-file");
        change(&clone, "our-file", "ours");
        fs::write(clone.path.join("untracked"), "kept").unwrap();
        let receipt = rebasing(&clone, 5, branch).unwrap();
        assert!(!receipt.already_applied && receipt.remarks.is_empty(), "{receipt:?}");
        assert_eq!(scene.subjects("main"), ["seed", "theirs", "ours"]);
        assert_eq!(git(&clone.path, &["rev-parse", "HEAD"]), scene.at("main").unwrap());
        assert_eq!(git(&clone.path, &["status", "--porcelain"]), "?? untracked");
        assert_eq!(fs::read_to_string(clone.path.join("their-file")).unwrap(), "theirs");
        assert_eq!(scene.fence_tokens(), [5]);
        assert_eq!(git(&clone.path, &["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
    }
}

#[test]
fn without_the_option_commits_of_others_are_reported_and_nothing_is_touched() {
    let (scene, clone) = overtaken("their-file");
    let ours = change(&clone, "our-file", "ours");
    let why = failed(clone.publish(5));
    assert!(why.contains("--rebase") && why.contains("git pull --rebase"), "{why}");
    assert_eq!(git(&clone.path, &["rev-parse", "HEAD"]), ours);
    assert_eq!(scene.subjects("main"), ["seed", "theirs"]);
}

#[test]
fn a_conflict_leaves_the_clone_as_it_was_and_is_named() {
    let (scene, clone) = overtaken("file");
    let ours = change(&clone, "file", "ours");
    fs::write(clone.path.join("file"), "ours, and not committed").unwrap();
    let why = failed(rebasing(&clone, 5, "main"));
    for part in ["conflict in file", "this clone is as it was", "nothing was pushed", "git reset --hard origin/main"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(git(&clone.path, &["rev-parse", "HEAD"]), ours);
    assert_eq!(git(&clone.path, &["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(git(&clone.path, &["status", "--porcelain"]).trim(), "M file");
    assert_eq!(fs::read_to_string(clone.path.join("file")).unwrap(), "ours, and not committed");
    assert!(!clone.path.join(".git/rebase-merge").exists() && !clone.path.join(".git/rebase-apply").exists());
    assert_eq!(git(&clone.path, &["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
    assert_eq!(scene.subjects("main"), ["seed", "theirs"]);
    // The documented way out.
    git(&clone.path, &["fetch", "--quiet", "origin"]);
    git(&clone.path, &["reset", "--quiet", "--hard", "origin/main"]);
    change(&clone, "file", "later");
    rebasing(&clone, 6, "main").unwrap();
    assert_eq!(scene.subjects("main"), ["seed", "theirs", "later"]);
}

#[test]
fn a_stale_run_rebases_nothing() {
    let scene = Scene::new();
    let (stale, newer) = (scene.clone("stale"), scene.clone("newer"));
    change(&newer, "file", "newer");
    newer.publish(7).unwrap();
    let ours = change(&stale, "other", "stale");
    assert_eq!(refused(rebasing(&stale, 6, "main")), "stale");
    assert_eq!(git(&stale.path, &["rev-parse", "HEAD"]), ours);
    assert_eq!(scene.subjects("main"), ["seed", "newer"]);
    assert!(scene.at(FENCE).is_some());
}

#[test]
fn local_changes_in_the_way_are_kept_and_said() {
    let (scene, clone) = overtaken("file");
    change(&clone, "our-file", "ours");
    // Their file would overwrite it.
    fs::write(clone.path.join("file"), "mine").unwrap();
    let receipt = rebasing(&clone, 5, "main").unwrap();
    assert!(receipt.remarks[0].contains("git reset --hard origin/main"), "{receipt:?}");
    assert_eq!(fs::read_to_string(clone.path.join("file")).unwrap(), "mine");
    assert_eq!(scene.subjects("main"), ["seed", "theirs", "ours"]);
}
