//! The remote: its address, and its fence.

use std::collections::BTreeMap;

use super::cli::LocalClone;
use super::message::Tip;
use crate::publish::{PublishError, Remembered, digest};
use fencepost_store::redacted_text;

/// A remote with one push URL.
#[derive(Clone, Debug)]
pub(super) struct PushRemote {
    /// The name or URL in git's push command.
    pub name: String,
    /// The name or URL in git's read commands. It is the push URL if that differs from the usual one.
    pub read: String,
    /// The URL for people, without a password.
    pub shown: String,
}

/// The refs that were read from the remote.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoteRefs {
    /// The commit at the fence's ref.
    pub commit: Option<String>,
    /// The other requested refs, with their commits.
    pub refs: BTreeMap<String, String>,
}

impl PushRemote {
    pub fn find(clone: &LocalClone, name: &str) -> Result<Self, PublishError> {
        if name.is_empty() || name.starts_with('-') {
            return Err(PublishError::Usage(format!("{name:?} is not a remote.")));
        }
        let urls = |push: &[&str]| -> Result<Option<Vec<String>>, PublishError> {
            let answer = clone.run(&[&["remote", "get-url", "--all"], push, &[name]].concat(), "")?;
            Ok(answer.ok.then(|| answer.text().lines().map(String::from).collect()))
        };
        let Some(push) = urls(&["--push"])? else { return Self::by_address(clone, name) };
        match push.as_slice() {
            [url] => {
                let same = urls(&[])?.is_some_and(|fetch| fetch == push);
                let read = if same { name } else { url };
                Ok(Self { name: name.to_string(), read: read.to_string(), shown: redacted_text(url) })
            }
            _ => Err(PublishError::Usage(format!(
                "The remote {name} is pushed to {} places at once, and one of them could accept what another refuses. \
                 Publish to each by a remote of its own.",
                push.len()
            ))),
        }
    }

    /// Makes a remote of an address that is not configured under a name.
    fn by_address(clone: &LocalClone, address: &str) -> Result<Self, PublishError> {
        if !address.contains(['/', ':']) && !clone.directory().join(address).exists() {
            let there = clone.ask(&["remote"], "")?.replace('\n', ", ");
            let there = if there.is_empty() { "there is none".to_string() } else { format!("there is: {there}") };
            return Err(PublishError::Usage(format!("There is no remote {address:?} ({there}).")));
        }
        Ok(Self { name: address.to_string(), read: address.to_string(), shown: redacted_text(address) })
    }

    /// Reads the commits of the fence's ref and the other refs.
    pub fn look(&self, clone: &LocalClone, fence_ref: &str, refs: &[&str]) -> Result<RemoteRefs, PublishError> {
        let answer = clone.run(&[&["ls-remote", &self.read, fence_ref], refs].concat(), "")?;
        if !answer.ok {
            return Err(PublishError::Failed(format!(
                "Cannot read the fence of {} ({}); nothing was pushed. Check the address and the credentials: \
                 git ls-remote {}",
                self.shown,
                answer.words(),
                redacted_text(&self.read)
            )));
        }
        // A pattern also matches the ends of longer names: only the exact one counts.
        let mut refs: BTreeMap<String, String> = answer
            .text()
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(commit, name)| (name.to_string(), commit.to_string()))
            .collect();
        let commit = refs.remove(fence_ref);
        Ok(RemoteRefs { commit, refs })
    }

    /// Reads the fence at its ref. A dry run does not remember it in this clone.
    pub fn remembered(
        &self,
        clone: &LocalClone,
        fence_ref: &str,
        seen: &RemoteRefs,
        dry_run: bool,
    ) -> Result<Remembered, PublishError> {
        let Some(commit) = &seen.commit else { return self.no_fence(clone, fence_ref) };
        let object = match object(clone, commit)? {
            Some(object) => object,
            None => {
                self.fetch(clone, fence_ref)?;
                if !dry_run {
                    self.remember(clone, fence_ref, commit);
                }
                object(clone, commit)?.unwrap_or_default()
            }
        };
        let tip = match object.split_once("\n\n") {
            Some((head, message)) if head.starts_with(&format!("{commit} commit ")) => Tip::read(message),
            _ => Err("it is not a commit".to_string()),
        };
        Ok(match tip {
            Ok(Tip::Written(fence)) => Remembered::Fence(*fence),
            Ok(Tip::Unwritten) => Remembered::Nothing,
            Err(why) => {
                let why = format!("{fence_ref} is {commit}, and {why}");
                Remembered::unusable(&self.shown, &why, "Put the last fence back there", true)
            }
        })
    }

    /// Remembers the fence in this clone: it need not be fetched again, and its loss is noticed.
    pub fn remember(&self, clone: &LocalClone, fence_ref: &str, commit: &str) {
        // Two publishers in one clone may collide here. The one that fails has lost nothing.
        let _ = clone.run(&["update-ref", &self.memory(fence_ref), commit], "");
    }

    /// Judges a missing fence: it is a first write, unless this clone has seen a fence.
    fn no_fence(&self, clone: &LocalClone, fence_ref: &str) -> Result<Remembered, PublishError> {
        let known = clone.run(&["rev-parse", "--verify", "--quiet", &self.memory(fence_ref)], "")?;
        if !known.ok {
            return Ok(Remembered::Nothing);
        }
        let text = known.text();
        let commit = text.trim();
        let why = format!("it is gone, {fence_ref} was {commit} when this clone last saw it");
        let restore = format!("Put it back (git push {} {commit}:{fence_ref})", redacted_text(&self.name));
        Ok(Remembered::unusable(&self.shown, &why, &restore, true))
    }

    pub fn fetch(&self, clone: &LocalClone, fence_ref: &str) -> Result<(), PublishError> {
        let mut arguments = vec!["fetch", "--quiet", "--no-tags", "--no-prune", "--no-recurse-submodules", "--refmap="];
        if clone.keeps_fetch_head() {
            arguments.push("--no-write-fetch-head");
        }
        arguments.extend([self.read.as_str(), fence_ref]);
        let answer = clone.run(&arguments, "")?;
        if answer.ok {
            return Ok(());
        }
        Err(PublishError::Failed(format!(
            "Cannot fetch {fence_ref} of {} ({}); nothing was pushed. Publish again when the remote answers.",
            self.shown,
            answer.words()
        )))
    }

    /// Returns the ref in which this clone keeps the last fence it saw.
    fn memory(&self, fence_ref: &str) -> String {
        let digest = digest::of(format!("{}\n{fence_ref}", self.shown).as_bytes());
        format!("refs/fencepost/seen/{}", &digest["sha256:".len()..][..32])
    }
}

/// Reads an object of this clone: a line with its name, type and size, and its content.
fn object(clone: &LocalClone, name: &str) -> Result<Option<String>, PublishError> {
    let answer = clone.run(&["cat-file", "--batch"], &format!("{name}\n"))?;
    let text = answer.text();
    let missing = !answer.ok || text.ends_with(" missing\n");
    // Git adds a line end behind the content.
    Ok((!missing).then(|| text.strip_suffix('\n').unwrap_or(&text).to_string()))
}
