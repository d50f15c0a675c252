//! The one command that checks and writes, and the meaning of its answer.

use fencepost_store::git_runner::{GitAnswer, PushLine, push_lines};

/// A push of commits together with the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub remote: String,
    pub fence_ref: String,
    /// The fence commit that was read and judged. Empty: the ref must not exist.
    pub expected: String,
    /// The fence commit that replaces it.
    pub fence: String,
    /// Commits, and the refs of the remote that they go to.
    pub branches: Vec<(String, String)>,
}

impl Push {
    /// Returns the arguments of git. Each of them has a reason:
    ///
    /// * `--atomic`, or the branches land while the fence is refused.
    /// * The lease is the comparison, and it is on the fence **only**. A lease on a branch would allow to rewrite it.
    /// * No `+` and no `--force`: both disable the lease silently.
    /// * Commits by their id: the pushed commits are the ones in the fence's digest.
    /// * No tags and submodules that the configuration adds: they are not part of the request.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["push", "--atomic", "--porcelain", "--no-follow-tags", "--recurse-submodules=no"].map(String::from).into();
        arguments.push(format!("--force-with-lease={}:{}", self.fence_ref, self.expected));
        if self.branches.is_empty() {
            // The push contains nothing of the user's, so the user's hook does not apply.
            arguments.push("--no-verify".to_string());
        }
        arguments.push(self.remote.clone());
        arguments.push(format!("{}:{}", self.fence, self.fence_ref));
        arguments.extend(self.branches.iter().map(|(commit, to)| format!("{commit}:{to}")));
        arguments
    }

    /// Returns the outcome, as far as the answer shows it.
    pub(super) fn outcome(&self, answer: &GitAnswer) -> PushOutcome {
        let text = answer.text();
        let lines: Vec<PushLine<'_>> = push_lines(&text).collect();
        let fence = lines.iter().find(|line| line.to == self.fence_ref);
        if answer.ok && fence.is_some_and(|line| line.flag != '!' && line.flag != '=') {
            return PushOutcome::Landed;
        }
        if answer.killed_after.is_some() {
            return PushOutcome::TimedOut;
        }
        if says_no_atomic(&answer.stderr) {
            return PushOutcome::NoAtomic;
        }
        let rejected = || lines.iter().filter(|line| line.flag == '!');
        if rejected().count() == 0 {
            return if answer.stderr.contains("fatal:") || answer.stderr.contains("RPC failed") {
                PushOutcome::Unknown
            } else {
                PushOutcome::NotSent
            };
        }
        if rejected().any(|line| line.summary.starts_with("[remote failure]")) {
            return PushOutcome::Unknown;
        }
        if fence.is_some_and(|line| reason(line) == "stale info") {
            return PushOutcome::Moved;
        }
        if let Some(line) = rejected().find(|line| BEHIND.contains(&reason(line))) {
            return PushOutcome::Behind(line.to.trim_start_matches("refs/heads/").to_string());
        }
        let declined = rejected().find(|line| !is_contention(reason(line)));
        match declined {
            Some(line) if reason(line).contains("hidden ref") => PushOutcome::Hidden,
            Some(line) => PushOutcome::Declined(format!("{}: {}", line.to, reason(line))),
            None => PushOutcome::Moved,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PushOutcome {
    /// All refs landed.
    Landed,
    /// The fence, or a branch, is no longer where it was. Nothing landed.
    Moved,
    /// A branch of the remote has commits that the pushed one lacks. Nothing landed.
    Behind(String),
    /// The server refused it. Nothing landed.
    Declined(String),
    /// The server hides the fence's ref. Nothing landed.
    Hidden,
    /// The server cannot push atomically. Nothing landed.
    NoAtomic,
    /// Git ended before it sent anything, usually because of a hook.
    NotSent,
    /// The connection was lost. The push may have landed, or may land later.
    Unknown,
    /// Git was killed because it did not end in time. The push may have landed, or may land later.
    TimedOut,
}

const CONTENTION: [&str; 9] = [
    "cannot lock",
    "failed to lock",
    "fail to lock",
    "lock failure",
    "lock_failure",
    "failed to update ref",
    "incorrect old value",
    "atomic",
    "stale info",
];

const BEHIND: [&str; 4] = ["non-fast-forward", "fetch first", "needs force", "already exists"];

/// Returns the part of the summary in parentheses.
fn reason<'a>(line: &PushLine<'a>) -> &'a str {
    let reason = line.summary.split_once('(').map_or("", |(_, reason)| reason);
    reason.strip_suffix(')').unwrap_or(reason)
}

/// Whether another push came first, or the ref failed only because another ref of this push did.
fn is_contention(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    CONTENTION.iter().any(|word| reason.contains(word))
}

fn says_no_atomic(stderr: &str) -> bool {
    stderr.lines().any(|line| line.contains("does not support") && line.contains("atomic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: &str = "refs/fencepost/fence/j";

    fn outcome(ok: bool, lines: &str, stderr: &str) -> PushOutcome {
        let push = Push {
            remote: "origin".to_string(),
            fence_ref: FENCE.to_string(),
            expected: "e".to_string(),
            fence: "f".to_string(),
            branches: vec![("c".to_string(), "refs/heads/main".to_string())],
        };
        let stdout = format!("To /r\n{lines}");
        let stdout = stdout.into_bytes();
        push.outcome(&GitAnswer { ok, stdout, stderr: stderr.to_string(), killed_after: None })
    }

    #[test]
    fn what_the_answers_mean() {
        let two = |fence: &str, branch: &str| format!("{fence}\tf:{FENCE}\t{{}}\n{branch}\tc:refs/heads/main\t{{}}\n");
        let said = |flags: (&str, &str), fence: &str, branch: &str| {
            two(flags.0, flags.1).replacen("{}", fence, 1).replacen("{}", branch, 1)
        };
        let refused = |fence: &str, branch: &str| outcome(false, &said(("!", "!"), fence, branch), "");
        assert_eq!(outcome(true, &said((" ", "="), "e..f", "[up to date]"), ""), PushOutcome::Landed);
        assert_eq!(
            outcome(true, &said(("=", " "), "[up to date]", "b..c"), ""),
            PushOutcome::NotSent,
            "nothing was compared"
        );
        assert_eq!(outcome(false, &said((" ", "!"), "e..f", "[rejected] (fetch first)"), ""), behind());
        assert_eq!(refused("[rejected] (stale info)", "[rejected] (fetch first)"), PushOutcome::Moved);
        assert_eq!(refused("[rejected] (atomic push failed)", "[rejected] (non-fast-forward)"), behind());
        let late = "[remote rejected] (cannot lock ref 'refs/x': is at 1 but expected 2)";
        assert_eq!(refused(late, "[remote rejected] (atomic transaction failed)"), PushOutcome::Moved);
        let hidden =
            refused("[remote rejected] (deny updating a hidden ref)", "[remote rejected] (atomic push failure)");
        assert_eq!(hidden, PushOutcome::Hidden);
        assert_eq!(
            refused("[remote rejected] (atomic push failure)", "[remote rejected] (pre-receive hook declined)"),
            PushOutcome::Declined("refs/heads/main: pre-receive hook declined".to_string())
        );
        let silent = "[remote failure] (remote failed to report status)";
        assert_eq!(refused(silent, silent), PushOutcome::Unknown);
        assert_eq!(outcome(false, "", "fatal: the remote end hung up unexpectedly"), PushOutcome::Unknown);
        assert_eq!(outcome(false, "", "error: failed to push some refs"), PushOutcome::NotSent);
        let no_atomic = "fatal: the receiving end does not support --atomic push";
        assert_eq!(outcome(false, "", no_atomic), PushOutcome::NoAtomic);
    }

    fn behind() -> PushOutcome {
        PushOutcome::Behind("main".to_string())
    }
}
