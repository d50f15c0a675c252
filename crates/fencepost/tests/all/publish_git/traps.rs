//! The ways to push with a fence that look right and are not. Each is the shipped command with one word changed; it does
//! the damage, and the shipped command in its place does not.

use fencepost_guard::publish::git::{Push, Tip};

use crate::publish_git::scene::{Clone, FENCE, Scene, failed, fence, git, refused, text, try_git};

/// A zombie that has judged the fence of token 4 and is about to push under token 5, while token 6 has written since,
/// to another branch: only the fence can stop the zombie.
struct Zombie {
    clone: Clone,
    push: Push,
}

impl Zombie {
    fn in_scene(scene: &Scene) -> Self {
        let zombie = Self::before_the_newer_write(scene);
        scene.clone("newer").publish_to(6, &["main:other"]).unwrap();
        zombie
    }

    fn before_the_newer_write(scene: &Scene) -> Self {
        let clone = scene.clone("zombie");
        clone.publish(4).unwrap();
        let judged = scene.at(FENCE).unwrap();
        clone.commit("zombie");
        let target = clone.target(&["main"]);
        let ours = target.fence_commit(&Tip::Written(Box::new(fence(5))), Some(&judged)).unwrap();
        Self { push: target.push(&judged, &ours), clone }
    }

    /// Pushes with the arguments changed.
    fn push(&self, change: impl Fn(&mut Vec<String>)) -> bool {
        let mut arguments = self.push.arguments();
        change(&mut arguments);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        try_git(&self.clone.path, &arguments).status.success()
    }

    /// The shipped command, which must change nothing.
    fn push_as_shipped(&self, scene: &Scene) {
        let before = scene.refs();
        assert!(!self.push(|_| {}));
        assert_eq!(scene.refs(), before, "the shipped command changed something");
    }

    fn landed(&self, scene: &Scene) -> bool {
        scene.subjects("main").contains(&"zombie".to_string())
    }
}

fn fence_refspec(arguments: &mut [String]) -> &mut String {
    arguments.iter_mut().find(|argument| argument.ends_with(&format!(":{FENCE}"))).unwrap()
}

#[test]
fn a_plus_or_force_switches_the_comparison_off() {
    for scene in Scene::both() {
        let zombie = Zombie::in_scene(&scene);
        zombie.push_as_shipped(&scene);
        assert!(zombie.push(|arguments| fence_refspec(arguments).insert(0, '+')));
        assert!(zombie.landed(&scene));
        assert_eq!(scene.fence_tokens(), [4, 5], "the fence went back from 6 to 5");
    }
    let scene = Scene::new();
    let zombie = Zombie::in_scene(&scene);
    assert!(zombie.push(|arguments| arguments.insert(1, "--force".to_string())));
    assert!(zombie.landed(&scene));
}

#[test]
fn a_lease_on_the_branch_allows_to_rewrite_it() {
    for scene in Scene::both() {
        let behind = Zombie::before_the_newer_write(&scene);
        let person = scene.clone("person");
        person.commit("of a person");
        git(&person.path, &["push", "--quiet", "origin", "main"]);
        // A clone that knows where main is, as any fetch tells it, but does not have that commit in its own main.
        git(&behind.clone.path, &["fetch", "--quiet"]);
        behind.push_as_shipped(&scene);
        let main = scene.at("main").unwrap();
        assert!(behind.push(|arguments| arguments.insert(1, format!("--force-with-lease=refs/heads/main:{main}"))));
        assert!(!scene.subjects("main").contains(&"of a person".to_string()), "a commit was lost");
    }
}

#[test]
fn a_plain_non_fast_forward_is_reported_as_that() {
    for scene in Scene::both() {
        let behind = scene.clone("behind");
        let person = scene.clone("person");
        behind.publish(4).unwrap();
        person.commit("of a person");
        git(&person.path, &["push", "--quiet", "origin", "main"]);
        behind.commit("behind");
        let before = scene.refs();
        let why = failed(behind.publish(5));
        assert!(
            why.contains("has commits that are not in ours") && why.contains("git pull --rebase origin main"),
            "{why}"
        );
        assert_eq!(scene.refs(), before);
        git(&behind.path, &["pull", "--quiet", "--rebase", "origin", "main"]);
        behind.publish(5).unwrap();
        assert_eq!(scene.subjects("main"), ["seed", "of a person", "behind"]);
    }
}

#[test]
fn a_fence_commit_that_is_already_there_is_compared_with_nothing() {
    for mutated in [false, true] {
        for scene in Scene::both() {
            let zombie = Zombie::before_the_newer_write(&scene);
            let newer = scene.clone("newer");
            let target = newer.target(&["main:other"]);
            let commit = target.fence_commit(&Tip::Written(Box::new(fence(6))), Some(&scene.at(FENCE).unwrap()));
            // This clone has no fence commits yet, so that the zombie's serve.
            let commit = commit.unwrap_or_else(|_| {
                git(&newer.path, &["fetch", "--quiet", "origin", FENCE]);
                target.fence_commit(&Tip::Written(Box::new(fence(6))), Some(&scene.at(FENCE).unwrap())).unwrap()
            });
            let arguments = target.push(&scene.at(FENCE).unwrap(), &commit).arguments();
            // The newer write comes when the zombie has already heard where the refs are.
            zombie.clone.meanwhile(&format!("cd '{}' && git '{}'", newer.path.display(), arguments.join("' '")));
            if mutated {
                let judged = scene.at(FENCE).unwrap();
                assert!(zombie.push(|arguments| *fence_refspec(arguments) = format!("{judged}:{FENCE}")));
                assert!(zombie.landed(&scene), "a stale write after token 6");
            } else {
                assert!(!zombie.push(|_| {}));
                assert!(!zombie.landed(&scene));
            }
            assert_eq!(scene.fence_tokens(), [4, 6]);
        }
    }
}

#[test]
fn no_two_fence_commits_are_the_same() {
    let scene = Scene::new();
    let clone = scene.clone("a");
    let target = clone.target(&["main"]);
    let tip = Tip::Written(Box::new(fence(4)));
    assert_ne!(target.fence_commit(&tip, None).unwrap(), target.fence_commit(&tip, None).unwrap());
}

#[test]
fn a_fence_made_together_with_data_half_lands_where_it_is_hidden() {
    for scene in Scene::both() {
        git(&scene.remote, &["config", "receive.hideRefs", "refs/fencepost"]);
        let clone = scene.clone("a");
        clone.commit("half");
        let before = scene.refs();
        let why = failed(clone.publish(4));
        assert!(why.contains("hides that namespace") && why.contains("--fence-ref refs/heads/fencepost/"), "{why}");
        assert_eq!(scene.refs(), before);
        // The same with the fence made in the push itself.
        let target = clone.target(&["main"]);
        let first = target.fence_commit(&Tip::Written(Box::new(fence(4))), None).unwrap();
        let arguments = target.push("", &first).arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert!(!try_git(&clone.path, &arguments).status.success());
        assert!(scene.subjects("main").contains(&"half".to_string()), "the branch moved without a fence");
        assert_eq!(scene.at(FENCE), None);
    }
}

#[test]
fn a_fence_that_is_hidden_later_stops_every_push() {
    for scene in Scene::both() {
        let clone = scene.clone("a");
        clone.publish(4).unwrap();
        git(&scene.remote, &["config", "receive.hideRefs", "refs/fencepost"]);
        clone.commit("b");
        let before = scene.refs();
        let why = failed(clone.publish(5));
        assert!(why.contains("hides") && why.contains("--fence-ref"), "{why}");
        assert_eq!(scene.refs(), before);
    }
}

#[test]
fn without_atomic_the_branch_lands_while_the_fence_is_refused() {
    for scene in Scene::both() {
        let zombie = Zombie::in_scene(&scene);
        zombie.push_as_shipped(&scene);
        assert!(!zombie.push(|arguments| arguments.retain(|argument| argument != "--atomic")));
        assert!(zombie.landed(&scene));
        assert_eq!(scene.fence_tokens(), [4, 6]);
    }
}

#[test]
fn a_server_without_atomic_pushes_is_refused_before_anything_lands() {
    for scene in Scene::both() {
        git(&scene.remote, &["config", "receive.advertiseAtomic", "false"]);
        let clone = scene.clone("a");
        clone.commit("b");
        let before = scene.refs();
        let why = failed(clone.publish(4));
        assert!(why.contains("does not offer atomic pushes") && why.contains("receive.advertiseAtomic"), "{why}");
        assert_eq!(scene.refs(), before);
    }
}

#[test]
fn a_server_that_declines_one_ref_declines_the_push() {
    for (refused, next) in [(FENCE, "--fence-ref"), ("refs/heads/main", "not today")] {
        for scene in Scene::both() {
            let clone = scene.clone("a");
            clone.publish(4).unwrap();
            let hook = scene.remote.join("hooks/update");
            std::fs::write(&hook, format!("#!/bin/sh\n[ \"$1\" != {refused} ] || {{ echo not today; exit 1; }}\n"))
                .unwrap();
            make_executable(&hook);
            clone.commit("b");
            let before = scene.refs();
            let why = failed(clone.publish(5));
            assert!(why.contains(refused) && why.contains("hook declined") && why.contains(next), "{why}");
            assert_eq!(scene.refs(), before);
        }
    }
}

#[test]
fn overtaken_between_hearing_and_pushing_it_is_refused_by_its_token() {
    for scene in Scene::both() {
        let zombie = scene.clone("zombie");
        zombie.publish(4).unwrap();
        zombie.commit("zombie");
        let newer = scene.clone("newer");
        git(&newer.path, &["fetch", "--quiet", "origin", FENCE]);
        let judged = scene.at(FENCE).unwrap();
        let target = newer.target(&["main:other"]);
        let commit = target.fence_commit(&Tip::Written(Box::new(fence(6))), Some(&judged)).unwrap();
        let arguments = target.push(&judged, &commit).arguments();
        zombie.meanwhile(&format!("cd '{}' && git '{}'", newer.path.display(), arguments.join("' '")));
        assert_eq!(refused(zombie.publish(5)), "stale");
        assert_eq!(scene.subjects("main"), ["seed"]);
        assert_eq!(scene.fence_tokens(), [4, 6]);
    }
}

#[test]
fn only_the_shipped_words_are_in_the_command() {
    let push = Push {
        remote: "origin".to_string(),
        fence_ref: FENCE.to_string(),
        expected: "F".to_string(),
        fence: "C".to_string(),
        branches: vec![("B".to_string(), "refs/heads/main".to_string())],
    };
    assert_eq!(
        text(push.arguments().join(" ").as_bytes()),
        format!(
            "push --atomic --porcelain --no-follow-tags --recurse-submodules=no --force-with-lease={FENCE}:F origin \
             C:{FENCE} B:refs/heads/main"
        )
    );
}

fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
