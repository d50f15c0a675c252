//! A file: the fence stands beside it, and one lock spans everything from the check to the rename.
//!
//! The order of the flushes leaves no crash after which the fence is behind the content: first the new fence is made
//! durable, then the new content. A crash between the two leaves the fence ahead, which costs this one write and
//! nothing else.

mod place;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::fence::{Fence, Strict, Verdict, judge};

use super::{PublishError, Receipt, Request, digest};
use crate::clock;
use place::Place;

/// How long a write waits for another one to the same file. The lock is held for a few flushes only.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Replaces a file's content, if the fence beside it allows that.
pub fn publish(request: &Request, path: &Path, payload: &mut dyn Read) -> Result<Receipt, PublishError> {
    let place = Place::find(path)?;
    if request.dry_run {
        return dry_run(request, &place, payload);
    }
    let draft = Draft::write(&place, payload)?;
    let _lock = lock(&place)?;
    place.sweep(&draft.path);
    let write = request.write(draft.digest.clone(), true);
    let seen = place.seen(request.adopt)?;
    let receipt =
        |fence, already_applied| Receipt { level: place.level(), fence, already_applied, remarks: place.remarks() };
    match judge::<Strict>(seen.as_ref(), &write) {
        Err(refused) => Err(PublishError::Refused { refused, level: place.level() }),
        Ok(Verdict::AlreadyApplied(fence)) => {
            // A crash may have come between the fence and the content: then the content is still to be put in place.
            let arrived = place.content_digest().is_some_and(|digest| digest == fence.digest);
            if !arrived {
                draft.land(&place)?;
            }
            Ok(receipt(fence, arrived))
        }
        Ok(Verdict::Accept(fence)) => {
            put_fence(&place, &fence)?;
            draft.land(&place)?;
            Ok(receipt(fence, false))
        }
    }
}

fn dry_run(request: &Request, place: &Place, payload: &mut dyn Read) -> Result<Receipt, PublishError> {
    let digest = digest::read(payload).map_err(|error| failed("read the payload for", &place.artifact, &error))?;
    let seen = place.seen(request.adopt)?;
    let (fence, already_applied) = match judge::<Strict>(seen.as_ref(), &request.write(digest, true)) {
        Err(refused) => return Err(PublishError::Refused { refused, level: place.level() }),
        Ok(Verdict::Accept(fence)) => (fence, false),
        Ok(Verdict::AlreadyApplied(fence)) => (fence, true),
    };
    Ok(Receipt { level: place.level(), fence, already_applied, remarks: place.remarks() })
}

/// The new content, complete and flushed, under a name that nobody reads. It is gone unless it lands.
struct Draft {
    path: PathBuf,
    digest: String,
    /// Locked for as long as its writer lives, so that whoever comes later can tell what was left behind.
    _file: File,
    landed: bool,
}

impl Draft {
    fn write(place: &Place, payload: &mut dyn Read) -> Result<Self, PublishError> {
        let path = place.draft();
        let failed = |error: io::Error| failed("write the new content beside", &place.artifact, &error);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        let mut draft = Self { path, digest: String::new(), _file: file.try_clone().map_err(failed)?, landed: false };
        file.lock().map_err(failed)?;
        (draft.digest, _) = digest::copy(payload, &mut file).map_err(failed)?;
        dress(&file, &place.artifact).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(draft)
    }

    /// Puts the content in place, durably.
    fn land(mut self, place: &Place) -> Result<(), PublishError> {
        fs::rename(&self.path, &place.artifact)
            .map_err(|error| failed("put the content in place at", &place.artifact, &error))?;
        self.landed = true;
        sync_directory(&place.directory).map_err(|error| {
            PublishError::Failed(format!(
                "{} was replaced, but its directory could not be flushed ({error}); after a power cut the old content may be \
                 back. Check the disk, then publish again.",
                place.artifact.display()
            ))
        })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.landed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives the new content the mode and the owner of the old, as people expect of a file that is written to. A new file
/// gets what any new file gets.
fn dress(file: &File, artifact: &Path) -> io::Result<()> {
    match fs::metadata(artifact) {
        Ok(old) => {
            let new = file.metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                // Only root may give files away. Everybody else at least keeps the group, where that is allowed.
                let _ = fchown(file, Some(old.uid()), Some(old.gid())).or_else(|_| fchown(file, None, Some(old.gid())));
            }
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))
        }
        Err(_) => file.set_permissions(fs::Permissions::from_mode(0o666 & !place::umask())),
    }
}

/// Takes the lock that spans check and write. Its file is never removed: whoever locks a new one would lock nothing.
fn lock(place: &Place) -> Result<File, PublishError> {
    let failed = |error: io::Error| failed("lock", &place.lock, &error);
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&place.lock).map_err(failed)?;
    let give_up = clock::boot_now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if clock::boot_now() < give_up => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(PublishError::Failed(format!(
                    "Another write to {} has held its lock for a minute; nothing was changed. Find out what hangs: \
                     fuser {}",
                    place.artifact.display(),
                    place.lock.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// Makes the new fence durable, before anything of the content is touched.
fn put_fence(place: &Place, fence: &Fence) -> Result<(), PublishError> {
    let failed = |error: io::Error| failed("write the fence of", &place.artifact, &error);
    let draft = place.fence_draft();
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&draft).map_err(failed)?;
    file.write_all(&fence.encode()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&draft, &place.fence).map_err(failed)?;
    sync_directory(&place.directory).map_err(failed)?;
    place.mark_fenced().map_err(failed)
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn failed(what: &str, path: &Path, error: &io::Error) -> PublishError {
    PublishError::Failed(format!("Cannot {what} {} ({error}); the content is as it was.", path.display()))
}
