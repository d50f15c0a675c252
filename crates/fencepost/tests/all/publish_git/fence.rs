//! What the fence on a remote says to whom, and what happens if it, the connection or the server's memory is lost.

use std::path::PathBuf;

use fencepost_core::fence::{Level, WriteMode};
use fencepost_core::name::{Job, Name};
use fencepost_core::token::{RunId, StoreId};
use fencepost_guard::publish::PublishError;
use fencepost_guard::publish::git::{Outgoing, Wish, publish};
use uuid::Uuid;

use fencepost_testkit::servers::Fault;

use crate::publish_git::scene::{Clone, FENCE, Scene, failed, git, job, refused, request, try_git};

#[test]
fn commits_and_fence_land_together_and_a_lower_token_lands_nothing() {
    for scene in Scene::both() {
        let [old, new] = ["old", "new"].map(|name| scene.clone(name));
        new.commit("new");
        let receipt = new.publish(7).unwrap();
        assert_eq!((receipt.level, receipt.fence.seq, receipt.already_applied), (Level::Atomic, 1, false));
        git(&old.path, &["pull", "--quiet", "origin", "main"]);
        old.commit("old");
        let before = scene.refs();
        let error = old.publish(5).unwrap_err();
        assert!(error.to_string().contains("token 5 is stale: token 7"), "{error}");
        assert!(matches!(error, PublishError::Refused { level: Level::Atomic, .. }));
        assert_eq!(scene.refs(), before);
        assert_eq!(scene.fence_tokens(), [7]);
    }
}

#[test]
fn a_holder_writes_again_and_the_same_commits_again_are_already_applied() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.commit("one");
    assert_eq!(clone.publish(5).unwrap().fence.seq, 1);
    let before = scene.refs();
    let again = clone.publish(5).unwrap();
    assert!(again.already_applied);
    assert_eq!(scene.refs(), before);
    clone.commit("two");
    assert_eq!(clone.publish(5).unwrap().fence.seq, 2);
    // Nothing new to push, under a new token: the fence has to know that token all the same.
    assert!(!clone.publish(6).unwrap().already_applied);
    assert_eq!(scene.fence_tokens(), [5, 5, 6]);
    assert_eq!(scene.subjects("main"), ["seed", "one", "two"]);
}

#[test]
fn in_mode_once_a_token_pushes_one_time() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    let once = || fencepost_guard::publish::WriteRequest { mode: WriteMode::Once, ..request(5) };
    publish(&once(), &clone.target(&["main"])).unwrap();
    assert!(publish(&once(), &clone.target(&["main"])).unwrap().already_applied);
    clone.commit("two");
    assert_eq!(refused(publish(&once(), &clone.target(&["main"]))), "spent");
}

#[test]
fn a_branch_that_was_lost_after_its_fence_is_pushed_again() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.commit("one");
    let seed = scene.at("main").unwrap();
    clone.publish(5).unwrap();
    for lost in [&["update-ref", "refs/heads/main", &seed][..], &["update-ref", "-d", "refs/heads/main"]] {
        git(&scene.remote, lost);
        assert!(!clone.publish(5).unwrap().already_applied);
        assert_eq!(scene.subjects("main"), ["seed", "one"]);
    }
    // A person committed on top of it: that is no loss.
    let person = scene.clone("person");
    person.commit("two");
    git(&person.path, &["push", "--quiet", "origin", "main"]);
    assert!(clone.publish(5).unwrap().already_applied);
    assert_eq!(scene.subjects("main"), ["seed", "one", "two"]);
}

#[test]
fn another_lineage_or_another_run_is_refused_until_it_is_adopted() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.publish(5).unwrap();
    clone.commit("b");
    let mut other_store = request(9);
    other_store.writer.store = StoreId(Uuid::from_u128(2));
    assert_eq!(refused(publish(&other_store, &clone.target(&["main"]))), "other_lineage");
    let mut other_run = request(5);
    other_run.writer.run = RunId(Uuid::from_u128(77));
    assert_eq!(refused(publish(&other_run, &clone.target(&["main"]))), "other_run");
    assert_eq!(scene.subjects("main"), ["seed"]);
    other_store.adopt = true;
    publish(&other_store, &clone.target(&["main"])).unwrap();
    assert_eq!(scene.fence_tokens(), [5, 9]);
}

#[test]
fn two_jobs_share_a_branch_each_with_its_own_fence() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.commit("one");
    clone.publish(5).unwrap();
    clone.commit("two");
    let other = Job::shared(Name::new("Team/Article").unwrap());
    let mut write = request(3);
    write.writer.job = other.clone();
    let wish = Wish { remote: "origin", branches: &[], fence_ref: None, ..Wish::default() };
    publish(&write, &Outgoing::find(&clone.path, &wish, &other).unwrap()).unwrap();
    assert_eq!(scene.subjects("main"), ["seed", "one", "two"]);
    assert_eq!(scene.refs().matches("refs/fencepost/fence/").count(), 2);
}

#[test]
fn a_fence_that_cannot_be_read_is_never_taken_for_none() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.publish(5).unwrap();
    clone.commit("b");
    let blob = git(&scene.remote, &["hash-object", "-w", "HEAD"]);
    let main = scene.at("main").unwrap();
    for foreign in [blob, main] {
        git(&scene.remote, &["update-ref", FENCE, &foreign]);
        let why = failed(clone.publish(6));
        assert!(why.contains("cannot be read") && why.contains("--adopt"), "{why}");
    }
    let mut adopt = request(6);
    adopt.adopt = true;
    publish(&adopt, &clone.target(&["main"])).unwrap();
    assert_eq!(scene.subjects("main"), ["seed", "b"]);
}

#[test]
fn a_fence_that_is_gone_is_missed() {
    for scene in Scene::both() {
        let [writer, reader] = ["writer", "reader"].map(|name| scene.clone(name));
        writer.publish(5).unwrap();
        assert_eq!(refused(reader.publish(4)), "stale");
        let last = scene.at(FENCE).unwrap();
        git(&scene.remote, &["update-ref", "-d", FENCE]);
        for clone in [&writer, &reader] {
            let why = failed(clone.publish(6));
            assert!(why.contains("is gone") && why.contains(&format!("git push origin {last}:{FENCE}")), "{why}");
        }
        git(&reader.path, &["push", "--quiet", "origin", &format!("{last}:{FENCE}")]);
        writer.publish(6).unwrap();
        assert_eq!(scene.fence_tokens(), [5, 6]);
    }
}

#[test]
fn a_dry_run_touches_nothing() {
    for scene in Scene::both() {
        let clone = scene.clone("a");
        clone.commit("b");
        let dry = |token| {
            let request = fencepost_guard::publish::WriteRequest { dry_run: true, ..request(token) };
            publish(&request, &clone.target(&["main"]))
        };
        let all = || (scene.refs(), git(&clone.path, &["for-each-ref"]));
        let before = all();
        assert!(!dry(5).unwrap().already_applied);
        assert_eq!(all(), before);
        clone.publish(5).unwrap();
        let before = all();
        assert!(dry(5).unwrap().already_applied);
        assert_eq!(refused(dry(4)), "stale");
        assert_eq!(all(), before);
        assert!(!clone.path.join(".git/FETCH_HEAD").exists());
    }
}

#[test]
fn a_push_whose_answer_was_lost_is_recognised() {
    let scene = Scene::over_http();
    let clone = scene.clone("a");
    clone.publish(4).unwrap();
    clone.commit("b");
    scene.server().fail([Fault::Unanswered(Box::new(|| {}))]);
    assert!(!clone.publish(5).unwrap().already_applied);
    assert_eq!((scene.fence_tokens(), scene.subjects("main")), (vec![4, 5], vec!["seed".into(), "b".into()]));
}

#[test]
fn a_push_whose_answer_was_lost_is_recognised_under_a_newer_one() {
    let scene = Scene::over_http();
    let clone = scene.clone("a");
    clone.publish(4).unwrap();
    clone.commit("b");
    let newer = Clone { path: scene.clone("newer").path };
    let target = newer.target(&["main:other"]);
    scene.server().fail([Fault::Unanswered(Box::new(move || {
        publish(&request(6), &target).unwrap();
    }))]);
    assert_eq!(clone.publish(5).unwrap().fence.token.number(), 5);
    assert_eq!(scene.fence_tokens(), [4, 5, 6]);
}

#[test]
fn a_push_that_nobody_heard_is_sent_again_and_not_for_ever() {
    let scene = Scene::over_http();
    let clone = scene.clone("a");
    clone.publish(4).unwrap();
    clone.commit("b");
    let before = scene.refs();
    scene.server().fail((0..3).map(|_| Fault::Unheard));
    let why = failed(clone.publish(5));
    assert!(why.contains("lost during the push, 3 times") && why.contains("may yet"), "{why}");
    assert_eq!(scene.refs(), before);
    scene.server().fail([Fault::Unheard]);
    clone.publish(5).unwrap();
    assert_eq!(scene.subjects("main"), ["seed", "b"]);
}

#[test]
fn a_password_is_never_shown() {
    let scene = Scene::over_http();
    let clone = scene.clone("a");
    scene.server().ask_for_a_password();
    let address = scene.server().url("").replace("http://", "");
    for remote in [format!("http://me:wr0ng@{address}/remote.git"), "http://t0ken@127.0.0.1:1/wr0ng.git".to_string()] {
        git(&clone.path, &["remote", "set-url", "origin", &remote]);
        for name in ["origin", &remote] {
            let target = clone.try_target(name, &["main"]).unwrap();
            let why = failed(publish(&request(5), &target));
            let all = format!("{why} {}", target.resource());
            assert!(!all.contains("me:wr0ng") && !all.contains("t0ken"), "{all}");
            assert!(all.contains("http://***@127.0.0.1"), "{all}");
        }
    }
    git(&clone.path, &["remote", "set-url", "origin", &format!("http://me:right@{address}/remote.git")]);
    clone.publish(5).unwrap();
}

#[test]
fn a_remote_is_read_where_it_is_pushed_to() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    let mirror: PathBuf = scene.directory.path().join("mirror.git");
    git(scene.directory.path(), &["clone", "--quiet", "--bare", &scene.url(), "mirror.git"]);
    clone.publish(5).unwrap();
    git(&clone.path, &["remote", "set-url", "origin", &mirror.display().to_string()]);
    git(&clone.path, &["remote", "set-url", "--push", "origin", &scene.url()]);
    clone.commit("b");
    assert_eq!(refused(clone.publish(4)), "stale");
    clone.publish(6).unwrap();
    assert_eq!(scene.fence_tokens(), [5, 6]);
    git(&clone.path, &["remote", "set-url", "--push", "--add", "origin", &mirror.display().to_string()]);
    let error = clone.try_target("origin", &["main"]).unwrap_err();
    assert!(error.to_string().contains("2 places at once"), "{error}");
}

#[test]
fn the_configuration_adds_nothing_to_the_push() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.commit("b");
    git(&clone.path, &["tag", "-a", "-m", "v1", "v1"]);
    git(&clone.path, &["config", "push.followTags", "true"]);
    git(&clone.path, &["config", "push.useForceIfIncludes", "true"]);
    git(&clone.path, &["config", "remote.origin.push", "+refs/heads/*:refs/heads/*"]);
    git(&clone.path, &["branch", "private"]);
    clone.publish(5).unwrap();
    assert_eq!((scene.at("v1"), scene.at("private")), (None, None));
}

#[test]
fn what_cannot_be_meant_is_said() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    git(&clone.path, &["tag", "release"]);
    let usage = |remote: &str, branches: &[&str]| match clone.try_target(remote, branches) {
        Err(PublishError::Usage(why)) => why,
        other => panic!("{other:?}"),
    };
    for branch in ["+main", ":main", "-x", "nothing", "release", "main:a..b", "main:"] {
        assert!(usage("origin", &[branch]).contains(branch.trim_matches(':')), "{branch}");
    }
    assert!(usage("origin", &["main", "HEAD:main"]).contains("twice"));
    assert!(usage("upstream", &["main"]).contains("there is: origin"));
    assert!(usage("--receive-pack=x", &["main"]).contains("not a remote"));
    git(&clone.path, &["checkout", "--quiet", "--detach"]);
    assert!(usage("origin", &[]).contains("--branch HEAD:main"));
    clone.try_target("origin", &["HEAD:main", "release:other"]).unwrap();
    for fence in ["main", "refs/heads/main", "refs/fencepost/a..b", "fencepost/x"] {
        let wish =
            Wish { remote: "origin", branches: &["main".to_string()], fence_ref: Some(fence), ..Wish::default() };
        assert!(matches!(Outgoing::find(&clone.path, &wish, &job()), Err(PublishError::Usage(_))), "{fence}");
    }
    let nowhere = tempfile::tempdir().unwrap();
    let wish = Wish { remote: "origin", ..Wish::default() };
    assert!(matches!(Outgoing::find(nowhere.path(), &wish, &job()), Err(PublishError::Usage(_))));
}

#[test]
fn the_fence_can_be_a_branch() {
    for scene in Scene::both() {
        git(&scene.remote, &["config", "receive.hideRefs", "refs/fencepost"]);
        git(&scene.remote, &["config", "receive.denyNonFastForwards", "true"]);
        let clone = scene.clone("a");
        clone.commit("b");
        let wish = Wish {
            remote: "origin",
            branches: &["main".to_string()],
            fence_ref: Some("refs/heads/fencepost/report"),
            ..Wish::default()
        };
        let target = Outgoing::find(&clone.path, &wish, &job()).unwrap();
        publish(&request(5), &target).unwrap();
        assert_eq!(refused(publish(&request(4), &target)), "stale");
        publish(&request(6), &target).unwrap();
        assert_eq!(scene.subjects("main"), ["seed", "b"]);
    }
}

#[test]
fn a_hook_of_the_user_can_stop_the_push_and_is_told_of() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    clone.publish(4).unwrap();
    clone.commit("b");
    clone.hook("#!/bin/sh\necho tests are red >&2\nexit 1\n");
    let before = scene.refs();
    let why = failed(clone.publish(5));
    assert!(why.contains("pre-push hook") && why.contains("tests are red"), "{why}");
    assert_eq!(scene.refs(), before);
    assert!(try_git(&clone.path, &["fsck", "--strict"]).status.success());
}
