//! Classifies the result of a push: the one place that interprets git's messages about it.

use crate::git_runner::{GitAnswer, push_lines};

/// How a push ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PushVerdict {
    Done,
    /// The ref had another value than expected, by the client's check or by the server's.
    Stale,
    /// A rule of the server forbids the push.
    Refused(String),
    /// The answer does not mention the ref.
    Silent,
}

/// Returns what the answer to the push says about the ref.
pub(super) fn verdict(said: &GitAnswer, reference: &str) -> PushVerdict {
    let text = said.text();
    let status = push_lines(&text).find(|line| line.to == reference);
    // The messages in which servers of different versions say that another push came first.
    let outrun = [
        "stale info",
        "cannot lock ref",
        "failed to update ref",
        "failed to lock",
        "reference already exists",
        "incorrect old value provided",
        "remote ref does not exist",
        "fetch first",
        "already exists",
    ];
    match status {
        Some(line) if said.ok && "*+- ".contains(line.flag) => PushVerdict::Done,
        Some(line) if line.flag == '!' => {
            let summary = line.summary;
            if summary.contains("remote failed to report status") {
                PushVerdict::Silent
            } else if outrun.iter().any(|words| summary.contains(words) || said.stderr.contains(words)) {
                PushVerdict::Stale
            } else {
                PushVerdict::Refused(format!("{summary}; {}", said.words()))
            }
        }
        _ if said.stderr.contains("remote ref does not exist") => PushVerdict::Stale,
        _ => PushVerdict::Silent,
    }
}

/// Whether a push that failed certainly did not reach the server.
pub(super) fn never_arrived(said: &GitAnswer) -> bool {
    let before = [
        "Could not resolve host",
        "Failed to connect",
        "Connection refused",
        "Authentication failed",
        "Permission denied (",
        "could not read Username",
        "could not read Password",
        "does not appear to be a git repository",
        "Repository not found",
        "detected dubious ownership",
    ];
    let in_between = ["hung up", "disconnect", "RPC failed", "early EOF"];
    said.killed_after.is_none()
        && before.iter().any(|words| said.stderr.contains(words))
        && !in_between.iter().any(|words| said.stderr.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn said(ok: bool, stdout: &str, stderr: &str) -> GitAnswer {
        GitAnswer { ok, stdout: stdout.as_bytes().to_vec(), stderr: stderr.to_string(), killed_after: None }
    }

    #[test]
    fn what_a_push_says_is_told_apart() {
        let of = |ok, line: &str, stderr: &str| {
            let stdout = format!("To /r.git\n{line}\nDone\n");
            verdict(&said(ok, &stdout, stderr), "refs/fencepost/job/a,")
        };
        let spec = "1234:refs/fencepost/job/a,";
        for sign in ["*", "+", " "] {
            assert_eq!(of(true, &format!("{sign}\t{spec}\t[new reference]"), ""), PushVerdict::Done);
        }
        assert_eq!(of(true, "-\t:refs/fencepost/job/a,\t[deleted]", ""), PushVerdict::Done);
        assert_eq!(of(true, &format!("=\t{spec}\t[up to date]"), ""), PushVerdict::Silent);
        for reason in ["[rejected] (stale info)", "[remote rejected] (cannot lock ref 'x': is at 1 but expected 2)"] {
            assert_eq!(of(false, &format!("!\t{spec}\t{reason}"), ""), PushVerdict::Stale);
        }
        let hook = of(false, &format!("!\t{spec}\t[remote rejected] (pre-receive hook declined)"), "remote: no");
        assert!(matches!(hook, PushVerdict::Refused(reason) if reason.contains("hook")));
        let lost = of(false, &format!("!\t{spec}\t[remote failure] (remote failed to report status)"), "");
        assert_eq!(lost, PushVerdict::Silent);
        assert_eq!(of(false, "", "fatal: the remote end hung up unexpectedly"), PushVerdict::Silent);
        assert_eq!(of(true, "*\t1234:refs/fencepost/job/ab,\t[new reference]", ""), PushVerdict::Silent, "another ref");
    }

    #[test]
    fn only_what_never_left_is_called_not_done() {
        assert!(never_arrived(&said(false, "", "fatal: unable to access 'https://h/': Could not resolve host: h")));
        assert!(!never_arrived(&said(false, "", "fatal: the remote end hung up unexpectedly")));
        assert!(!never_arrived(&said(false, "", "Connection refused\nfatal: the remote end hung up unexpectedly")));
        assert!(!never_arrived(&GitAnswer {
            killed_after: Some(Duration::from_secs(60)),
            ..said(false, "", "Connection refused")
        }));
    }
}
