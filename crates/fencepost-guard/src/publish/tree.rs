//! A whole directory: its name is a symbolic link, and one rename switches fence and content together.
//!
//! Beside `site` stands `.site.fencepost-versions`, and `site` leads to one of the versions in it. A new one is copied and
//! flushed beside them, which takes as long as it takes; then, under the lock, it is checked and the link is switched.
//! The token is in the link itself and the whole fence inside the version, so that no crash can part them.

mod copy;
mod remove;
mod versions;

use std::fs;
use std::path::Path;
use std::time::Duration;

use fencepost_core::fence::{Strict, Verdict, judge};

use super::folder::Folder;
use super::lock::{Lock, PATIENCE};
use super::place::{Place, failed, usage};
use super::{PublishError, Receipt, Request};
use copy::Copied;
use versions::{Draft, LOCK, Versions};

/// How a tree is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many old versions are kept beside the current one, for readers that are in the middle of one.
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
pub fn publish(request: &Request, source: &Path, path: &Path, options: Options) -> Result<Receipt, PublishError> {
    let mut versions = Versions::of(Place::of_tree(path)?)?;
    let source = source_of(source, &versions)?;
    versions.current()?;
    if request.dry_run {
        return dry_run(request, &source, &versions);
    }
    let home = versions.prepare()?;
    let (draft, copied) = Draft::copy(&home, &source)?;
    let mut lock = Lock::take(&home, LOCK.as_ref(), &versions.place.target, options.patience)?;
    let verdict = switch(request, &versions, draft, &copied, &mut lock);
    let gone = if verdict.is_ok() { versions.prune(options.keep) } else { Vec::new() };
    drop(lock);
    // The slow part needs no lock: nothing leads to what has no place among the versions any more.
    gone.iter().for_each(|name| remove::tree(&home, name));
    verdict
}

/// Checks and switches, under the lock.
fn switch(
    request: &Request,
    versions: &Versions,
    draft: Draft,
    copied: &Copied,
    lock: &mut Lock,
) -> Result<Receipt, PublishError> {
    let seen = versions.seen(request.adopt)?;
    let level = versions.place.level();
    let receipt = |fence, already_applied| Receipt { level, fence, already_applied, remarks: versions.remarks(copied) };
    let receipt = match judge::<Strict>(seen.as_ref(), &request.write(copied.digest.clone(), true)) {
        Err(refused) => return Err(PublishError::Refused { refused, level }),
        Ok(Verdict::AlreadyApplied(fence)) if versions.holds(&fence) => {
            // The writer that switched may have died before the flush.
            let folder = &versions.place.folder;
            folder.sync().map_err(|error| failed("flush", folder.path(), &error))?;
            receipt(fence, true)
        }
        Ok(Verdict::AlreadyApplied(fence) | Verdict::Accept(fence)) => {
            draft.land(versions, &fence)?;
            receipt(fence, false)
        }
    };
    // After the switch: a mark before it would make a crash between the two look like a link that was lost.
    lock.mark().map_err(|error| {
        PublishError::Failed(format!(
            "{} was switched, but its lock could not be written ({error}). Mend that, then publish again.",
            versions.place.target.display()
        ))
    })?;
    Ok(receipt)
}

fn dry_run(request: &Request, source: &Folder, versions: &Versions) -> Result<Receipt, PublishError> {
    let copied = copy::look(source)?;
    let seen = versions.seen(request.adopt)?;
    let level = versions.place.level();
    let (fence, already_applied) = match judge::<Strict>(seen.as_ref(), &request.write(copied.digest.clone(), true)) {
        Err(refused) => return Err(PublishError::Refused { refused, level }),
        Ok(Verdict::Accept(fence)) => (fence, false),
        Ok(Verdict::AlreadyApplied(fence)) => (fence, true),
    };
    Ok(Receipt { level, fence, already_applied, remarks: versions.remarks(&copied) })
}

/// The directory to copy, which must not hold its own copies.
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
