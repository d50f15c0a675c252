//! Rebases commits onto those of another push that landed first. The rebase happens in a separate work tree, so a
//! conflict leaves the clone unchanged.

use std::fs;
use std::path::PathBuf;

use super::Outgoing;
use super::cli::LocalClone;
use crate::publish::PublishError;
use fencepost_store::redacted_text;

/// Disables the user's hooks and background work for a work tree that exists only briefly.
const QUIET: [&str; 6] = ["-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "advice.detachedHead=false"];

/// A local branch that was rebased, and its commit before.
#[derive(Clone, Debug)]
pub(super) struct Rebased {
    /// The ref on the remote.
    pub to: String,
    /// The commit before any rebase.
    pub before: String,
}

impl Outgoing {
    /// Rebases the commits for one ref of the remote onto the commit at that ref.
    pub(super) fn rebase(&mut self, to: &str, onto: &str) -> Result<Rebased, PublishError> {
        let at = self.branches.iter().position(|(_, name)| name == to);
        let Some(at) = at else { return Err(PublishError::Failed(format!("{to} is not among what is pushed."))) };
        let before = self.branches[at].0.clone();
        self.remote.fetch(&self.git, to)?;
        let work = RebaseTree::add(&self.git, &before)?;
        let rebased = work.git.run(&[&QUIET[..], &["rebase", "--quiet", onto]].concat(), "")?;
        if !rebased.ok {
            let files = work.git.run(&["diff", "--name-only", "--diff-filter=U"], "")?.text();
            let files: Vec<&str> = files.lines().collect();
            let why = if files.is_empty() { rebased.words() } else { format!("conflict in {}", files.join(", ")) };
            let (name, branch) = (redacted_text(&self.remote.name), to.trim_start_matches("refs/heads/"));
            return Err(PublishError::Failed(format!(
                "Cannot rebase onto what was pushed to {branch} on {} meanwhile ({why}). The rebase was aborted, this \
                 clone is as it was, and nothing was pushed. Rebase by hand: git pull --rebase {name} {branch}. Or drop \
                 these commits and start from the remote: git fetch {name} && git reset --hard {name}/{branch}",
                self.remote.shown
            )));
        }
        self.branches[at].0 = work.git.ask(&["rev-parse", "--verify", "HEAD"], "")?;
        Ok(Rebased { to: to.to_string(), before })
    }

    /// Moves the local branch to the commit that landed. Returns a remark for the user if that is not possible.
    pub(super) fn follow(&self, rebased: &Rebased) -> Option<String> {
        let (landed, _) = self.branches.iter().find(|(_, to)| *to == rebased.to)?;
        let local = self.locals.get(&rebased.to)?;
        let checked_out = self
            .git
            .run(&["symbolic-ref", "--quiet", "HEAD"], "")
            .is_ok_and(|head| head.ok && head.text().trim() == local && self.git.has_work_tree());
        let at = self.git.run(&["rev-parse", "--verify", "--quiet", local], "").ok()?;
        let moved = at.text().trim() == rebased.before
            && match checked_out {
                true => self.git.run(&["reset", "--quiet", "--keep", landed], ""),
                false => self.git.run(&["update-ref", local, landed, &rebased.before], ""),
            }
            .is_ok_and(|answer| answer.ok);
        let (name, branch) = (redacted_text(&self.remote.name), rebased.to.trim_start_matches("refs/heads/"));
        (!moved).then(|| {
            format!(
                "The rebased commits landed as {landed}, but {local} of this clone could not be moved there: it has other \
                 commits or changes. Start from the remote: git fetch {name} && git reset --hard {name}/{branch}"
            )
        })
    }
}

/// A work tree for one rebase, removed with everything in it.
struct RebaseTree {
    clone: LocalClone,
    git: LocalClone,
    path: PathBuf,
}

impl RebaseTree {
    fn add(clone: &LocalClone, commit: &str) -> Result<Self, PublishError> {
        let template = std::env::temp_dir().join("fencepost-rebase-XXXXXX");
        let path = nix::unistd::mkdtemp(&template).map_err(|error| {
            PublishError::Failed(format!(
                "Cannot make a directory for the rebase in {} ({error}); nothing was pushed.",
                std::env::temp_dir().display()
            ))
        })?;
        let work = Self { clone: clone.clone(), git: clone.elsewhere(&path), path };
        let shown = work.path.to_string_lossy().into_owned();
        clone
            .ask(&[&QUIET[..], &["worktree", "add", "--quiet", "--force", "--detach", &shown, commit]].concat(), "")?;
        Ok(work)
    }
}

impl Drop for RebaseTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let _ = self.clone.run(&["worktree", "prune"], "");
    }
}
