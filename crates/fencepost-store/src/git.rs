//! A git repository as a store: one ref per key, and a swap is a push that names the expected commit.
//!
//! `--force-with-lease=REF:OLD` makes the server compare, in the transaction that moves the ref: of all pushes that
//! expect the same state one succeeds. A state is a commit without parents, which lets git collect replaced ones; its
//! message names the predecessor. A random line makes every commit unique: a push of the commit that is already there
//! would be reported as done.
//!
//! There is no clock: an observer has to watch a lease for a whole time-to-live.

mod cli;
mod push;
mod remote;

use std::path::PathBuf;

use fencepost_core::hex;

use crate::declared::{Declaring, Property, Soundness};
use crate::git_runner::{GitAnswer, cannot_run};
use crate::{
    Access, Answer, Entry, Fate, Key, OpenError, SCAN_KEYS_MAX, Store, StoreError, Swapped, Trouble, User,
    VALUE_BYTES_MAX, Version, fresh_version, refuse_unsound,
};
use cli::LocalRepository;
use push::{PushVerdict, never_arrived, verdict};
use remote::GitRemote;

const LAYOUT: &str = "fencepost store, layout 1";

/// The number of loose objects with the same first byte, of 256, above which the local repository is packed.
const LOOSE_OBJECTS_MAX: usize = 8;

/// A remote repository that any number of machines reach, and a local one for fetched objects.
#[derive(Debug)]
pub(crate) struct GitStore {
    git: LocalRepository,
    cache: PathBuf,
}

impl GitStore {
    /// Parses the URL. Sends nothing before the first call.
    pub(crate) fn open(url: &str, access: &Access) -> Result<Self, OpenError> {
        let wrong = |text: String| {
            OpenError::Usage(format!(
                "The URL of the store: {text} It is written like git+ssh://git@host/repository.git."
            ))
        };
        let remote = GitRemote::parse(url, access.password.as_ref()).map_err(wrong)?;
        let cache = access.cache.clone().or_else(user_cache).ok_or_else(|| {
            OpenError::Usage("There is no home directory for a copy of the git store: set XDG_CACHE_HOME.".to_string())
        })?;
        // Objects are named by their content, so one local repository serves all remotes.
        let cache = cache.join("git");
        Ok(Self { git: LocalRepository::new(cache.clone(), remote), cache })
    }

    /// Returns the ref of a key. Its last part ends with a character that no part of a key contains, because git cannot
    /// have both a ref and another ref below it.
    fn reference(&self, key: &Key) -> String {
        format!("{}/{key},", self.git.remote().under())
    }

    fn prepare(&self) -> Result<(), StoreError> {
        self.git.prepare().map_err(|text| self.failed(Trouble::Refused, &text, Fate::NotDone))
    }

    /// Fetches one ref under a unique local name, because another process may have fetched an older state.
    fn look(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let reference = self.reference(key);
        let name = format!("refs/seen/{}", hex::encode(&fresh_version()?.0));
        let refspec = format!("+{reference}:{name}");
        let options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-prune", "--no-recurse-submodules"];
        let url = self.git.remote().url();
        let said = self.speak(&[&["fetch"], &options[..], &["--", url, &refspec]].concat())?;
        if !said.ok && said.stderr.contains("couldn't find remote ref") {
            return Ok(None);
        }
        if !said.ok {
            return Err(self.unreachable(&said, Fate::NotDone));
        }
        let objects = self.objects(&name);
        let _ = self.git.run(&["update-ref", "-d", &name], b"");
        let entry = objects.and_then(|(commit, message, value)| {
            is_ours(&message, key).then(|| Entry { bytes: value, version: Version(commit.into_bytes()) })
        });
        entry.map(Some).ok_or_else(|| {
            let detail = format!(
                "{reference} in {} is not what fencepost wrote; nothing was changed. Restore it, or remove the ref by hand.",
                self.git.remote().shown()
            );
            StoreError::not_done(Trouble::Corrupt, detail)
        })
    }

    /// Reads the commit under a local name and its value, after checking that their sizes are not greater than
    /// fencepost writes.
    fn objects(&self, name: &str) -> Option<(String, Vec<u8>, Vec<u8>)> {
        let wanted = format!("{name}\n{name}:value\n");
        let ask = |form: &str| {
            let said = self.git.run(&["cat-file", form], wanted.as_bytes()).ok().filter(|said| said.ok)?;
            Some(said.stdout)
        };
        let sizes = String::from_utf8(ask("--batch-check=%(objectsize)")?).ok()?;
        let are_sound = sizes.lines().all(|size| size.parse().is_ok_and(|size: usize| size <= VALUE_BYTES_MAX));
        if !are_sound {
            return None;
        }
        two_objects(&ask("--batch")?)
    }

    /// Creates the commit of a new state in the local repository.
    fn commit(&self, key: &Key, expected: Option<&str>, value: &[u8]) -> Result<String, StoreError> {
        let make = |arguments: &[&str], input: &[u8]| {
            let failed = |words: &str| self.failed(Trouble::Refused, words, Fate::NotDone);
            let said = self.git.run(arguments, input).map_err(|error| failed(&cannot_run(&error)))?;
            if !said.ok {
                return Err(failed(&format!("{} in {}.", said.words(), self.cache.display())));
            }
            Ok(said.text().trim().to_string())
        };
        let blob = make(&["hash-object", "-w", "--stdin"], value)?;
        let tree = make(&["mktree"], format!("100644 blob {blob}\tvalue\n").as_bytes())?;
        let nonce = hex::encode(&fresh_version()?.0);
        let previous = expected.unwrap_or("none");
        let message = format!("{LAYOUT}\n\nkey: {key}\nprevious: {previous}\nnonce: {nonce}\n");
        make(&["commit-tree", &tree], message.as_bytes())
    }

    /// Pushes a commit, or a removal, over `expected`. Returns the current state if the push is refused.
    fn push(&self, key: &Key, expected: Option<&str>, commit: Option<&str>) -> Result<Swapped, StoreError> {
        let reference = self.reference(key);
        let lease = format!("--force-with-lease={reference}:{}", expected.unwrap_or_default());
        // Without a plus sign, which would override the lease.
        let refspec = format!("{}:{reference}", commit.unwrap_or_default());
        let mut arguments = vec!["push", "--porcelain", "--no-verify", "--recurse-submodules=no", &lease];
        if self.git.remote().path().is_some() {
            // For a local path this process is the server: it flushes to disk before it acknowledges, and packs in the
            // foreground, because a background process would outlive it.
            arguments.push(
                "--receive-pack=git -c core.fsync=all -c core.fsyncMethod=fsync -c gc.autoDetach=false -c \
                 maintenance.autoDetach=false receive-pack",
            );
        }
        arguments.extend(["--", self.git.remote().url(), &refspec]);
        let said = self.speak(&arguments)?;
        match verdict(&said, &reference) {
            PushVerdict::Done => {
                self.flush()?;
                Ok(Swapped::Won(commit.map(|commit| Version(commit.as_bytes().to_vec()))))
            }
            PushVerdict::Stale => {
                let current = self.look(key)?;
                if current.as_ref().map(|entry| entry.version.0.as_slice()) == expected.map(str::as_bytes) {
                    let why = "another push was in the way, and nothing came of it. Try again";
                    return Err(self.failed(Trouble::Unavailable, why, Fate::NotDone));
                }
                Ok(Swapped::Lost(current))
            }
            PushVerdict::Refused(reason) => {
                let text = format!(
                    "it refuses such a push ({reason}). Its rules must allow refs under {} to be made, replaced and removed",
                    self.git.remote().under()
                );
                Err(self.failed(Trouble::Refused, &text, Fate::NotDone))
            }
            PushVerdict::Silent if never_arrived(&said) => Err(self.unreachable(&said, Fate::NotDone)),
            PushVerdict::Silent => Err(self.unreachable(&said, Fate::Unknown)),
        }
    }

    /// Flushes the directories of the repository: git flushes its files only.
    fn flush(&self) -> Result<(), StoreError> {
        let Some(path) = self.git.remote().path() else { return Ok(()) };
        fencepost_sys::flush_file_system(&path).map_err(|error| {
            let text = format!("{} could not be flushed ({error})", path.display());
            self.failed(Trouble::Unavailable, &text, Fate::Unknown)
        })
    }

    fn speak(&self, arguments: &[&str]) -> Result<GitAnswer, StoreError> {
        self.git.run(arguments, b"").map_err(|error| self.failed(Trouble::Refused, &cannot_run(&error), Fate::NotDone))
    }

    /// Packs and prunes objects once there are many. The swap is done, so errors are ignored.
    fn tidy(&self) {
        let sample = std::fs::read_dir(self.cache.join("objects/17"));
        if sample.is_ok_and(|objects| objects.count() > LOOSE_OBJECTS_MAX) {
            let _ = self.git.run(&["prune", "--expire=1.hour.ago"], b"");
        }
    }

    fn unreachable(&self, said: &GitAnswer, fate: Fate) -> StoreError {
        let denied =
            ["Authentication failed", "Permission denied", "could not read Username", "could not read Password"];
        let trouble = if denied.iter().any(|words| said.stderr.contains(words)) {
            Trouble::Refused
        } else {
            Trouble::Unavailable
        };
        let error = self.failed(trouble, &said.words(), fate);
        let step = format!(
            "Try it without fencepost, as the same user: git ls-remote {}",
            crate::redacted(self.git.remote().url())
        );
        StoreError { detail: format!("{} {step}", error.detail), ..error }
    }

    fn failed(&self, trouble: Trouble, what: &str, fate: Fate) -> StoreError {
        let (what, outcome) = (what.trim_end_matches('.'), fate.outcome());
        StoreError { fate, trouble, detail: format!("{}: {what}; {outcome}.", self.git.remote().shown()) }
    }
}

impl Store for GitStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        self.prepare()?;
        Ok(Answer::new(self.look(key)?, None))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        self.prepare()?;
        let known = expected.map(|version| commit_name(version));
        let value = match (known, new) {
            (None, None) => match self.look(key)? {
                None => Swapped::Won(None),
                found => Swapped::Lost(found),
            },
            // The expected version is no commit name, so no state ever had it.
            (Some(None), _) => Swapped::Lost(self.look(key)?),
            (known, new) => {
                let expected = known.flatten();
                let commit = new.map(|value| self.commit(key, expected, value)).transpose()?;
                let ended = self.push(key, expected, commit.as_deref())?;
                self.tidy();
                ended
            }
        };
        Ok(Answer::new(value, None))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        self.prepare()?;
        let under = format!("{}/", self.git.remote().under());
        let pattern = format!("{under}{prefix}*");
        let said = self.speak(&["ls-remote", "--quiet", "--refs", "--", self.git.remote().url(), &pattern])?;
        if !said.ok {
            return Err(self.unreachable(&said, Fate::NotDone));
        }
        let text = said.text();
        let names = text.lines().filter_map(|line| line.split_once('\t')?.1.strip_prefix(&under)?.strip_suffix(','));
        // Other tools may keep refs of their own there.
        let mut keys: Vec<Key> = names.filter(|name| name.starts_with(prefix)).filter_map(Key::from_stored).collect();
        keys.sort();
        let later = keys.into_iter().filter(|key| after.is_none_or(|after| key > after));
        Ok(Answer::new(later.take(limit.min(SCAN_KEYS_MAX)).collect(), None))
    }
}

impl Declaring for GitStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        self.scan("meta/", None, 1)?;
        let durability = if self.git.remote().path().is_some() {
            Property::new(
                "durability",
                Soundness::Sound,
                "Objects, refs and directories are flushed before a swap is answered (core.fsync=all, syncfs).",
            )
        } else {
            let detail = "It is assumed that the git host keeps a push that it has acknowledged; it does not say.";
            Property::new("durability", Soundness::Weak, detail)
        };
        let reads = if self.git.remote().path().is_some() {
            Property::new("reads", Soundness::Sound, "A fetch shows what stands there.")
        } else {
            let detail =
                "A host may answer a fetch from a copy that lags. A swap that rests on it is lost, never won twice.";
            Property::new("reads", Soundness::Weak, detail)
        };
        let clock = "There is no clock: a lease whose holder died ends once an observer has watched it for a whole time-to-live.";
        let pace = "A swap takes as long as a push. A host may limit how many there are.";
        Ok(vec![
            durability,
            reads,
            Property::new("clock", Soundness::Sound, clock),
            Property::new("pace", Soundness::Weak, pace),
        ])
    }
}

/// Returns a version as the name of a commit, if it is one.
fn commit_name(version: &Version) -> Option<&str> {
    let name = std::str::from_utf8(&version.0).ok()?;
    (name.len() == 40 && hex::decode(name).is_some()).then_some(name)
}

/// Whether a commit is a state of this key.
fn is_ours(commit: &[u8], key: &Key) -> bool {
    let text = String::from_utf8_lossy(commit);
    let message = text.split_once("\n\n").map(|(_, message)| message);
    message.is_some_and(|message| message.starts_with(&format!("{LAYOUT}\n\nkey: {key}\n")))
}

/// Parses the name and content of a commit and the content of its blob from the output of `cat-file --batch`.
fn two_objects(bytes: &[u8]) -> Option<(String, Vec<u8>, Vec<u8>)> {
    let (name, commit, rest) = object(bytes, "commit")?;
    let (_, value, _) = object(rest, "blob")?;
    Some((name, commit.to_vec(), value.to_vec()))
}

fn object<'a>(bytes: &'a [u8], kind: &str) -> Option<(String, &'a [u8], &'a [u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let words: Vec<&str> = head.split(' ').collect();
    let [name, found, length] = words.as_slice() else { return None };
    let (content, rest) = bytes[end + 1..].split_at_checked(length.parse().ok()?)?;
    (*found == kind).then(|| (name.to_string(), content, rest.strip_prefix(b"\n").unwrap_or(rest)))
}

/// Returns the user's cache directory.
fn user_cache() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || User::current().map(|user| user.home.join(".cache"));
    named.or_else(home).map(|cache| cache.join("fencepost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_as_git_writes_them() {
        let bytes = b"aa commit 3\nx\n\n\nbb blob 4\n\0\n\n\xff\n";
        assert_eq!(two_objects(bytes), Some(("aa".to_string(), b"x\n\n".to_vec(), b"\0\n\n\xff".to_vec())));
        assert_eq!(two_objects(b"refs/x missing\n"), None);
        assert_eq!(two_objects(b"aa commit 30\nx"), None);
    }
}
