//! Many pushers, each with its own clone, under increasing tokens.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fencepost_guard::publish::PublishError;

use crate::publish_git::scene::{Clone, Scene, git};

#[test]
fn five_pushers_and_three_hundred_pushes() {
    storm(&Scene::new(), 5, 60);
}

#[test]
fn five_pushers_over_http() {
    storm(&Scene::over_http(), 5, 8);
}

#[derive(Default)]
struct Counts {
    accepted: BTreeSet<u64>,
    refused: u64,
    behind: u64,
}

fn storm(scene: &Scene, pushers: u64, rounds: u64) {
    let tokens = AtomicU64::new(1);
    let counts = Mutex::new(Counts::default());
    let clones: Vec<Clone> = (0..pushers).map(|number| scene.clone(&format!("pusher{number}"))).collect();
    thread::scope(|scope| {
        for clone in &clones {
            scope.spawn(|| (0..rounds).for_each(|_| push(clone, &tokens, &counts)));
        }
    });
    let Counts { accepted, refused, behind } = counts.into_inner().unwrap();
    let fence = scene.fence_tokens();
    let branch: Vec<u64> = scene.subjects("main")[1..].iter().map(|subject| subject.parse().unwrap()).collect();
    println!("{} pushes: {} accepted, {refused} refused, {behind} behind", pushers * rounds, accepted.len());
    assert_eq!(accepted.len() as u64 + refused + behind, pushers * rounds);
    assert!(fence.is_sorted_by(|a, b| a < b), "a stale token won: {fence:?}");
    assert_eq!(branch, fence, "a commit without its fence, or a fence without its commit");
    assert_eq!(fence.iter().copied().collect::<BTreeSet<_>>(), accepted, "what was acknowledged is not what landed");
    assert!(!accepted.is_empty() && refused + behind > 0, "no writers met");
}

/// Takes a token, builds on what it last saw of the remote, and pushes.
fn push(clone: &Clone, tokens: &AtomicU64, counts: &Mutex<Counts>) {
    let token = tokens.fetch_add(1, Ordering::SeqCst);
    git(&clone.path, &["fetch", "--quiet", "origin", "main"]);
    let tree = git(&clone.path, &["rev-parse", "origin/main^{tree}"]);
    let commit = git(&clone.path, &["commit-tree", &tree, "-p", "origin/main", "-m", &token.to_string()]);
    git(&clone.path, &["update-ref", "refs/heads/main", &commit]);
    let result = clone.publish(token);
    let mut counts = counts.lock().unwrap();
    match result {
        Ok(receipt) => {
            assert!(!receipt.already_applied && receipt.fence.token.number() == token);
            assert!(counts.accepted.insert(token));
        }
        Err(PublishError::Refused { .. }) => counts.refused += 1,
        Err(PublishError::Failed(why)) if why.contains("has commits that are not in ours") => counts.behind += 1,
        Err(error) => panic!("{error}"),
    }
}
