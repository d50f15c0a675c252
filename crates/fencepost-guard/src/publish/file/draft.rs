//! The new content of a file, before it lands.

use std::ffi::OsString;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

use fencepost_sys::flush;
use nix::fcntl::OFlag;

use crate::publish::folder::Folder;
use crate::publish::lock::{has_name, left_behind};
use crate::publish::place::{TargetPlace, failed, next};
use crate::publish::{PublishError, digest};

/// The new content, complete and flushed, under a temporary name. Dropping it removes it unless it has landed.
pub(super) struct FileDraft<'a> {
    folder: &'a Folder,
    name: OsString,
    pub digest: String,
    /// Remarks for the user.
    pub remarks: Vec<String>,
    /// Locked while its writer lives: a later writer removes an unlocked draft as left behind.
    file: File,
    landed: bool,
}

impl<'a> FileDraft<'a> {
    pub fn write(place: &'a TargetPlace, payload: &mut dyn Read) -> Result<Self, PublishError> {
        let failed_beside = |error: io::Error| failed("write the new content beside", &place.target, &error);
        let old = place.folder.metadata_of(&place.name).ok().filter(Metadata::is_file);
        let mut draft = Self::create(place, old.is_none()).map_err(failed_beside)?;
        let mut payload = Watched { payload, failed: false };
        (draft.digest, _) = digest::copy(&mut payload, &mut &draft.file).map_err(|error| match payload.failed {
            true => failed("read the payload for", &place.target, &error),
            false => failed_beside(error),
        })?;
        if let Some(old) = old {
            draft.remarks = dress(&draft.file, &old, place).map_err(failed_beside)?;
        }
        flush(&draft.file).map_err(failed_beside)?;
        Ok(draft)
    }

    /// A new file gets the default mode. A replacement is private until it has the old file's mode.
    fn create(place: &'a TargetPlace, is_new: bool) -> io::Result<Self> {
        let folder = &place.folder;
        loop {
            let name = place.hidden(&format!("new-{}", uuid::Uuid::now_v7().simple()));
            let mode = if is_new { 0o666 } else { 0o600 };
            let file = folder.create(&name, OFlag::O_WRONLY, mode)?;
            let draft = Self { folder, name, digest: String::new(), remarks: Vec::new(), file, landed: false };
            draft.file.lock()?;
            // Another writer may have removed it between the two steps, as left behind.
            if has_name(&draft.file, folder, &draft.name)? {
                return Ok(draft);
            }
        }
    }

    /// Puts the content in place, durably.
    pub fn land(&mut self, place: &TargetPlace) -> Result<(), PublishError> {
        self.folder.rename(&self.name, self.folder, &place.name).map_err(|error| {
            PublishError::Failed(format!(
                "Cannot put the content in place at {} ({error}); it is as it was, and the fence stands at this token \
                 already. {}",
                place.target.display(),
                next(&error)
            ))
        })?;
        self.landed = true;
        self.folder.sync().map_err(|error| {
            PublishError::Failed(format!(
                "{} was replaced, but its directory could not be flushed ({error}); after a power cut the old content \
                 may be back. Check the disk, then publish again.",
                place.target.display()
            ))
        })
    }
}

impl Drop for FileDraft<'_> {
    fn drop(&mut self) {
        if !self.landed {
            let _ = self.folder.unlink(&self.name);
        }
    }
}

/// Removes the drafts of writers that died. A living writer holds a lock on its own.
pub(super) fn sweep(place: &TargetPlace) {
    let prefix = place.hidden("new-");
    for name in place.folder.names().unwrap_or_default() {
        if name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes())
            && let Some(_locked) = left_behind(&place.folder, &name)
        {
            let _ = place.folder.unlink(&name);
        }
    }
}

/// Gives the new content the owner and the mode of the old, as if the old file had been written to. Returns a remark
/// about each that could not be kept.
fn dress(file: &File, old: &Metadata, place: &TargetPlace) -> io::Result<Vec<String>> {
    let shown = place.target.display();
    let mut remarks = Vec::new();
    if old.nlink() > 1 {
        remarks.push(format!("{shown} has {} names (hard links): only this one is replaced.", old.nlink()));
    }
    let mut new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        // Only root may change a file's owner. Other users keep the group, if the system allows it.
        let given = fchown(file, Some(old.uid()), Some(old.gid())).or_else(|_| fchown(file, None, Some(old.gid())));
        match given {
            Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(error),
            _ => new = file.metadata()?,
        }
    }
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        let [was, is] = [old, &new].map(|file| format!("{}:{}", file.uid(), file.gid()));
        remarks.push(format!("{shown} belongs to {is} now and no longer to {was}: only root may give files away."));
    }
    file.set_permissions(Permissions::from_mode(mode(old, &new)))?;
    Ok(remarks)
}

/// Returns the old mode, as far as it means the same under the new owner: another group gets the rights of others, and
/// setuid bits are dropped.
fn mode(old: &Metadata, new: &Metadata) -> u32 {
    let mut mode = old.mode() & 0o7777;
    if old.gid() != new.gid() {
        mode = mode & !0o2070 | (mode & 0o007) << 3 & mode;
    }
    if old.uid() != new.uid() {
        mode &= !0o4000;
    }
    mode
}

/// A reader that records whether an error came from the payload.
struct Watched<'a> {
    payload: &'a mut dyn Read,
    failed: bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.payload.read(buffer).inspect_err(|_| self.failed = true)
    }
}
