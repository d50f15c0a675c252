//! A whole directory: its name is a symbolic link, and one rename switches fence and content together.
//!
//! Beside `site` is `.site.fencepost-versions`, and `site` leads to one of the versions in it. A new version is copied
//! and flushed beside them, without a lock; then, under the lock, the fence is checked and the link is switched. The
//! token is in the link itself and the whole fence inside the version, so no crash can separate them.

mod copy;
mod remove;
mod versions;

use std::fs;
use std::path::Path;
use std::time::Duration;

use fencepost_core::fence::{Fence, Level};

use super::folder::Folder;
use super::lock::{Lock, PATIENCE};
use super::place::{TargetPlace, failed, usage};
use super::{PublishError, Receipt, Remembered, WriteRequest, WriteTarget, Written, target};
use copy::Copied;
use versions::{LOCK, TreeDraft, Versions};

/// The settings of a tree's publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many old versions are kept beside the current one, for readers that still use them.
    pub keep: usize,
    /// How long to wait for another write to the same tree.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { keep: 2, patience: PATIENCE }
    }
}

/// Makes `path` lead to a copy of the directory `source`, if the fence allows that.
pub fn publish(request: &WriteRequest, source: &Path, path: &Path, options: Options) -> Result<Receipt, PublishError> {
    let mut versions = Versions::of(TargetPlace::of_tree(path)?)?;
    let source = source_of(source, &versions)?;
    versions.current()?;
    if request.dry_run {
        let copied = copy::look(&source)?;
        return target::publish(request, TreeTarget { versions: &versions, copied, keep: options.keep, ready: None });
    }
    let home = versions.prepare()?;
    let (draft, copied) = TreeDraft::copy(&home, &source)?;
    let lock = Lock::take(&home, LOCK.as_ref(), &versions.place.target, options.patience)?;
    let ready = Some(ReadyVersion { draft, lock, home: &home });
    target::publish(request, TreeTarget { versions: &versions, copied, keep: options.keep, ready })
}

/// A tree with its new version.
struct TreeTarget<'a> {
    versions: &'a Versions,
    copied: Copied,
    keep: usize,
    /// `None` in a dry run, and once the write is over.
    ready: Option<ReadyVersion<'a>>,
}

/// The flushed version, and the lock under which the link is switched.
struct ReadyVersion<'a> {
    draft: TreeDraft<'a>,
    lock: Lock,
    home: &'a Folder,
}

impl TreeTarget<'_> {
    /// Marks the lock and removes surplus versions.
    fn finish(&mut self, mut ready: ReadyVersion<'_>) -> Result<(), PublishError> {
        // The mark follows the switch: after a crash between the two, a mark before it would make a first write look
        // like a lost link.
        ready.lock.mark().map_err(|error| {
            PublishError::Failed(format!(
                "{} was switched, but its lock could not be written ({error}). Mend that, then publish again.",
                self.versions.place.target.display()
            ))
        })?;
        let gone = self.versions.prune(self.keep);
        let ReadyVersion { draft, lock, home } = ready;
        drop(draft);
        drop(lock);
        // The slow part needs no lock: no link leads to a version that has left the list.
        gone.iter().for_each(|name| remove::tree(home, name));
        Ok(())
    }
}

impl WriteTarget for TreeTarget<'_> {
    const REPLACES: bool = true;

    fn digest(&self) -> String {
        self.copied.digest.clone()
    }

    fn remembered(&mut self) -> Result<Remembered, PublishError> {
        self.versions.remembered()
    }

    fn has_arrived(&mut self, fence: &Fence) -> Result<bool, PublishError> {
        if !self.versions.holds(fence) {
            return Ok(false);
        }
        // The writer that switched may have died before the flush.
        let folder = &self.versions.place.folder;
        folder.sync().map_err(|error| failed("flush", folder.path(), &error))?;
        self.ready.take().map_or(Ok(()), |ready| self.finish(ready))?;
        Ok(true)
    }

    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        let mut ready = self.ready.take().expect("it was opened to write");
        ready.draft.land(self.versions, &fence)?;
        self.finish(ready)?;
        Ok(Written::Done(fence))
    }

    fn level(&self) -> Level {
        self.versions.place.level()
    }

    fn remarks(&self) -> Vec<String> {
        self.versions.remarks(&self.copied)
    }
}

/// Opens the directory to copy, which must not contain its own copies.
fn source_of(source: &Path, versions: &Versions) -> Result<Folder, PublishError> {
    let refuse = |why: String| Err(PublishError::Usage(format!("Cannot publish {}: {why}.", source.display())));
    let real = match fs::canonicalize(source) {
        Ok(real) if real.is_dir() => real,
        Ok(_) => return refuse("it is not a directory. Use publish file for a file".to_string()),
        Err(error) => return refuse(error.to_string()),
    };
    if versions.place.target.starts_with(&real) {
        return Err(usage(
            &versions.place.target,
            format!("it stands inside of {}, which would be copied into itself", source.display()),
        ));
    }
    Folder::open(&real).map_err(|error| failed("read", &real, &error))
}
