//! A file: the fence is a file beside it, and one lock spans everything from the check to the rename.
//!
//! The order of the flushes leaves no crash after which the fence is behind the content: the new fence becomes durable
//! first, then the new content. A crash between the two leaves the fence ahead, which costs this one write and nothing
//! else.

mod draft;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use fencepost_core::fence::{Fence, Level};
use nix::fcntl::OFlag;

use super::fence_file::{self, FenceFileTrouble};
use super::lock::{Lock, is_marked};
use super::place::{TargetPlace, failed};
use super::{PublishError, Receipt, Remembered, WriteRequest, WriteTarget, Written, digest, target};
use draft::{FileDraft, sweep};

pub use super::lock::PATIENCE;

/// Replaces a file's content, if the fence beside it allows that. Waits up to `patience` for another write to the same
/// file.
pub fn publish(
    request: &WriteRequest,
    path: &Path,
    payload: &mut dyn Read,
    patience: Duration,
) -> Result<Receipt, PublishError> {
    let beside = Beside::new(TargetPlace::of_file(path)?);
    beside.place.check_trust()?;
    target::publish(request, FileTarget::open(&beside, payload, patience, request.dry_run)?)
}

/// Reads the fence of a file: the last accepted write. `None` if there never was one.
pub fn fence_of(path: &Path) -> Result<Option<Fence>, PublishError> {
    match Beside::new(TargetPlace::of_file(path)?).remembered() {
        Remembered::Fence(fence) | Remembered::Landed(fence) => Ok(Some(fence)),
        Remembered::Nothing => Ok(None),
        Remembered::Unusable { error, .. } => Err(error),
    }
}

/// A file with its new content.
struct FileTarget<'a> {
    beside: &'a Beside,
    digest: String,
    /// The lock and the flushed content; none in a dry run.
    ready: Option<(Lock, FileDraft<'a>)>,
}

impl<'a> FileTarget<'a> {
    fn open(
        beside: &'a Beside,
        payload: &mut dyn Read,
        patience: Duration,
        dry_run: bool,
    ) -> Result<Self, PublishError> {
        let Beside { place, lock, .. } = beside;
        if dry_run {
            let unread = |error| failed("read the payload for", &place.target, &error);
            return Ok(Self { beside, digest: digest::read(payload).map_err(unread)?, ready: None });
        }
        // Sweeps before it writes: leftovers may be what fills the disk.
        sweep(place);
        let draft = FileDraft::write(place, payload)?;
        let lock = Lock::take(&place.folder, lock, &place.target, patience)?;
        let _ = place.folder.unlink(&beside.fence_draft);
        Ok(Self { beside, digest: draft.digest.clone(), ready: Some((lock, draft)) })
    }
}

impl WriteTarget for FileTarget<'_> {
    const REPLACES: bool = true;

    fn digest(&self) -> String {
        self.digest.clone()
    }

    fn remembered(&mut self) -> Result<Remembered, PublishError> {
        Ok(self.beside.remembered())
    }

    fn has_arrived(&mut self, fence: &Fence) -> Result<bool, PublishError> {
        let TargetPlace { folder, name, .. } = &self.beside.place;
        let content = folder.open_file(name, OFlag::O_RDONLY).and_then(|mut content| digest::read(&mut content));
        if content.is_ok_and(|digest| digest == fence.digest) {
            // The writer of this content may have died before the flush.
            folder.sync().map_err(|error| failed("flush", folder.path(), &error))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// After a crash between fence and content it writes the same fence once more: the fence may not have been flushed,
    /// and the content must not be durable before it.
    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        let (lock, draft) = self.ready.as_mut().expect("it was opened to write");
        self.beside.put_fence(&fence, lock)?;
        draft.land(&self.beside.place)?;
        Ok(Written::Done(fence))
    }

    fn level(&self) -> Level {
        self.beside.place.level()
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.beside.place.remarks();
        remarks.extend(self.ready.iter().flat_map(|(_, draft)| draft.remarks.iter().cloned()));
        remarks
    }
}

/// The place of a file, and the names of fencepost's files beside it.
struct Beside {
    place: TargetPlace,
    fence: OsString,
    fence_draft: OsString,
    lock: OsString,
}

impl Beside {
    fn new(place: TargetPlace) -> Self {
        let [fence, fence_draft, lock] = ["fence", "fence-new", "lock"].map(|suffix| place.hidden(suffix));
        Self { place, fence, fence_draft, lock }
    }

    /// Reads the fence. A torn, empty, foreign or lost fence never counts as "no fence".
    fn remembered(&self) -> Remembered {
        // The mark is read first: without the lock a first write may come between the two reads.
        let marked = is_marked(&self.place.folder, &self.lock);
        match fence_file::read(&self.place.folder, &self.fence) {
            Ok(fence) => Remembered::Fence(fence),
            Err(FenceFileTrouble::Missing) if !marked => Remembered::Nothing,
            Err(trouble) => {
                let why = format!("{} ({trouble})", self.place.folder.shown(&self.fence).display());
                let (of, restore) = (self.place.target.display().to_string(), "Restore it together with the file");
                Remembered::unusable(&of, &why, restore, trouble.may_be_adopted())
            }
        }
    }

    /// Makes the new fence durable, before the content is touched.
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
