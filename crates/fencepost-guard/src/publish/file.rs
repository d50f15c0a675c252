//! A file: the fence stands beside it, and one lock spans everything from the check to the rename.
//!
//! The order of the flushes leaves no crash after which the fence is behind the content: first the new fence is made
//! durable, then the new content. A crash between the two leaves the fence ahead, which costs this one write and
//! nothing else.

mod draft;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use fencepost_core::fence::{Fence, Strict, Verdict, judge};
use nix::fcntl::OFlag;

use super::fence_file::{self, Trouble};
use super::lock::{Lock, is_marked};
use super::place::{Place, failed};
use super::{PublishError, Receipt, Request, digest};
use draft::{Draft, sweep};

pub use super::lock::PATIENCE;

/// Replaces a file's content, if the fence beside it allows that. Waits so long for another write to the same file.
pub fn publish(
    request: &Request,
    path: &Path,
    payload: &mut dyn Read,
    patience: Duration,
) -> Result<Receipt, PublishError> {
    let target = Target::new(Place::of_file(path)?);
    target.place.check_trust()?;
    if request.dry_run {
        return dry_run(request, &target, payload);
    }
    // Before anything is written: what was left behind may be what fills the disk.
    sweep(&target.place);
    let draft = Draft::write(&target.place, payload)?;
    let folder = &target.place.folder;
    let mut lock = Lock::take(folder, &target.lock, &target.place.target, patience)?;
    let _ = folder.unlink(&target.fence_draft);
    let mut remarks = target.place.remarks();
    remarks.extend(draft.remarks.iter().cloned());
    let seen = target.seen(request.adopt)?;
    let level = target.place.level();
    let receipt = |fence, already_applied| Receipt { level, fence, already_applied, remarks };
    match judge::<Strict>(seen.as_ref(), &request.write(draft.digest.clone(), true)) {
        Err(refused) => Err(PublishError::Refused { refused, level }),
        Ok(Verdict::AlreadyApplied(fence)) if target.holds(&fence) => {
            // The writer that put it there may have died before the flush.
            folder.sync().map_err(|error| failed("flush", folder.path(), &error))?;
            Ok(receipt(fence, true))
        }
        // A crash came between the fence and the content. The fence is written once more, because nobody knows whether
        // it was flushed, and the content must not be durable before it.
        Ok(Verdict::AlreadyApplied(fence) | Verdict::Accept(fence)) => {
            target.put_fence(&fence, &mut lock)?;
            draft.land(&target.place)?;
            Ok(receipt(fence, false))
        }
    }
}

/// The fence of a file: what was last written there. `None` where nothing was ever published.
pub fn fence_of(path: &Path) -> Result<Option<Fence>, PublishError> {
    Target::new(Place::of_file(path)?).seen(false)
}

fn dry_run(request: &Request, target: &Target, payload: &mut dyn Read) -> Result<Receipt, PublishError> {
    let digest = digest::read(payload).map_err(|error| failed("read the payload for", &target.place.target, &error))?;
    let seen = target.seen(request.adopt)?;
    let level = target.place.level();
    let (fence, already_applied) = match judge::<Strict>(seen.as_ref(), &request.write(digest, true)) {
        Err(refused) => return Err(PublishError::Refused { refused, level }),
        Ok(Verdict::Accept(fence)) => (fence, false),
        Ok(Verdict::AlreadyApplied(fence)) => (fence, true),
    };
    Ok(Receipt { level, fence, already_applied, remarks: target.place.remarks() })
}

/// A file with what stands beside it.
struct Target {
    place: Place,
    fence: OsString,
    fence_draft: OsString,
    lock: OsString,
}

impl Target {
    fn new(place: Place) -> Self {
        let [fence, fence_draft, lock] = ["fence", "fence-new", "lock"].map(|suffix| place.hidden(suffix));
        Self { place, fence, fence_draft, lock }
    }

    /// What the fence remembers. Torn, empty, foreign or missing where it was: none of these is "no fence".
    fn seen(&self, adopt: bool) -> Result<Option<Fence>, PublishError> {
        // Asked first: without the lock a first write may come between the two looks.
        let marked = is_marked(&self.place.folder, &self.lock);
        match fence_file::read(&self.place.folder, &self.fence) {
            Ok(fence) => Ok(Some(fence)),
            Err(Trouble::Missing) if !marked => Ok(None),
            Err(trouble) if adopt && trouble.may_be_adopted() => Ok(None),
            Err(trouble) => Err(PublishError::Failed(format!(
                "The fence of {} cannot be read: {} ({trouble}). Nothing was changed, because without it nobody knows \
                 which token wrote last. Restore it together with the file; or, if no older run can still be alive, \
                 publish once with --adopt.",
                self.place.target.display(),
                self.place.folder.shown(&self.fence).display()
            ))),
        }
    }

    /// Whether the content is what the fence says.
    fn holds(&self, fence: &Fence) -> bool {
        let content = self.place.folder.open_file(&self.place.name, OFlag::O_RDONLY);
        content.and_then(|mut content| digest::read(&mut content)).is_ok_and(|digest| digest == fence.digest)
    }

    /// Makes the new fence durable, before anything of the content is touched.
    fn put_fence(&self, fence: &Fence, lock: &mut Lock) -> Result<(), PublishError> {
        let folder = &self.place.folder;
        let put = || -> io::Result<()> {
            let mut file = folder.create(&self.fence_draft, OFlag::O_WRONLY, 0o600)?;
            fence_file::write(&mut file, fence, folder)?;
            folder.rename(&self.fence_draft, folder, &self.fence)?;
            folder.sync()
        };
        put().and_then(|()| lock.mark()).map_err(|error| {
            let _ = folder.unlink(&self.fence_draft);
            failed("write the fence of", &self.place.target, &error)
        })
    }
}
