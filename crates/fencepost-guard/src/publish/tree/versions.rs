//! The versions of a tree, and the link to the current one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use fencepost_core::fence::Fence;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use super::copy::{self, Copied};
use super::remove;
use crate::publish::fence_file::{self, FenceFileTrouble};
use crate::publish::folder::Folder;
use crate::publish::lock::{has_name, is_marked, left_behind};
use crate::publish::place::{TargetPlace, failed, next, usage};
use crate::publish::walk::{of_root, planted};
use crate::publish::{PublishError, Remembered};

/// The names inside one version: the tree for readers, the fence, and the name of the version before.
const TREE: &str = "tree";
const FENCE: &str = "fence";
const PREVIOUS: &str = "previous";

/// The names beside the versions: a draft, a version that is being removed, and the link before it is renamed.
const NEW: &str = "new-";
const GONE: &str = "gone-";
const LINK: &str = "link";
pub(super) const LOCK: &str = "lock";

/// A version's name: `<token>-<seq>-<8 digits>`. The digits are random, because an adopted tree may count from the
/// start again.
type Version = String;

pub(super) struct Versions {
    pub place: TargetPlace,
    /// The directory of the versions, if it exists.
    home: Option<Folder>,
}

impl Versions {
    /// Opens the directory of the versions, if it exists. Refuses a place where another user could redirect the write.
    pub fn of(place: TargetPlace) -> Result<Self, PublishError> {
        place.check_trust()?;
        let mut versions = Self { place, home: None };
        versions.home = match versions.open() {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened.map_err(|error| failed("open", &versions.directory(), &error))?),
        };
        versions.check_trust()?;
        Ok(versions)
    }

    /// Creates the directory of the versions, and removes the drafts of writers that died.
    pub fn prepare(&mut self) -> Result<Folder, PublishError> {
        let make = || -> io::Result<(Folder, Folder)> {
            match self.place.folder.create_dir(self.place.hidden("versions"), directory_mode()) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let home = self.open()?;
            Ok((home.try_clone()?, home))
        };
        let (home, own) = make().map_err(|error| failed("make the directory", &self.directory(), &error))?;
        self.home = Some(own);
        self.check_trust()?;
        for name in self.entries() {
            if name.starts_with(GONE) {
                remove::tree(&home, name);
            } else if name.starts_with(NEW) && home.remove_dir(&name).is_err() {
                // An empty draft is removed by now; its writer, if it lives, starts again.
                let draft = home.enter(&name).ok();
                draft.and_then(|draft| left_behind(&draft, FENCE)).inspect(|_locked| remove::tree(&home, &name));
            }
        }
        Ok(home)
    }

    fn open(&self) -> io::Result<Folder> {
        self.place.folder.enter(self.place.hidden("versions"))
    }

    fn check_trust(&self) -> Result<(), PublishError> {
        let Some(home) = &self.home else { return Ok(()) };
        let look = || Ok(of_root(home, true)?.or(planted(&self.place.folder, &self.place.hidden("versions"))?));
        match look().map_err(|error: io::Error| failed("look at", &self.directory(), &error))? {
            Some(distrust) => Err(distrust.refusal(&self.place.target)),
            None => Ok(()),
        }
    }

    /// For messages.
    fn directory(&self) -> PathBuf {
        self.place.folder.shown(self.place.hidden("versions"))
    }

    fn is_marked(&self) -> bool {
        self.home.as_ref().is_some_and(|home| is_marked(home, LOCK))
    }

    /// Opens a directory inside the versions' directory.
    fn inside(&self, path: impl AsRef<Path>) -> io::Result<Folder> {
        let home = self.home.as_ref().ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
        home.descend(path.as_ref())
    }

    /// Returns the version that the link names, if fencepost made the link.
    pub fn current(&self) -> Result<CurrentLink, PublishError> {
        let path = &self.place.target;
        let shown = path.display();
        let (folder, name) = (&self.place.folder, &self.place.name);
        match folder.metadata_of(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(CurrentLink::Absent),
            Err(error) => return Err(failed("look at", path, &error)),
            Ok(found) if found.is_symlink() => {}
            Ok(found) if found.is_dir() => {
                let why = format!(
                    "it is a real directory, which cannot be switched in one step. Move it away once, then publish it: \
                     mv {shown} {shown}.before && fencepost publish tree {shown}.before {shown}"
                );
                return Err(usage(path, why));
            }
            Ok(_) => return Err(usage(path, "it is neither a directory nor a link of fencepost's")),
        }
        let leads_to = folder.read_link(name).map_err(|error| failed("read the link", path, &error))?;
        Ok(self.version_in(&leads_to).map_or(CurrentLink::Foreign(leads_to), CurrentLink::Version))
    }

    /// Reads the fence of the current version. A lost link or fence never counts as "no fence".
    pub fn remembered(&self) -> Result<Remembered, PublishError> {
        let marked = self.is_marked();
        let lost = |why: &str, may_be_adopted| {
            let of = self.place.target.display().to_string();
            Remembered::unusable(&of, &why, "Restore link and versions together", may_be_adopted)
        };
        Ok(match self.current()? {
            CurrentLink::Absent if !marked => Remembered::Nothing,
            CurrentLink::Absent => lost("its link was there once and is gone", true),
            CurrentLink::Foreign(leads_to) => {
                let why = format!(
                    "it is a link to {} that fencepost did not make. Remove it, or replace it once with --adopt",
                    leads_to.display()
                );
                Remembered::Unusable { error: usage(&self.place.target, why), may_be_adopted: true }
            }
            CurrentLink::Version(version) => match self.fence_of(&version) {
                Ok(fence) => Remembered::Fence(fence),
                Err(trouble) => {
                    let why = format!("{}/{FENCE} ({trouble})", self.directory().join(version).display());
                    lost(&why, trouble.may_be_adopted())
                }
            },
        })
    }

    /// Whether the current tree has the digest in the fence.
    pub fn holds(&self, fence: &Fence) -> bool {
        let Ok(CurrentLink::Version(version)) = self.current() else { return false };
        let tree = self.inside(Path::new(&version).join(TREE));
        tree.is_ok_and(|tree| copy::look(&tree).is_ok_and(|found| found.digest == fence.digest))
    }

    /// Takes all versions out of the list except the current one and the last few before it, and returns the names to
    /// remove. This includes versions that no link ever led to.
    pub fn prune(&self, keep: usize) -> Vec<String> {
        let (Ok(CurrentLink::Version(current)), Some(home)) = (self.current(), &self.home) else { return Vec::new() };
        let mut kept = vec![current];
        while kept.len() <= keep
            && let Some(previous) = kept.last().and_then(|last| self.previous_of(last))
        {
            kept.push(previous);
        }
        let _ = home.unlink(LINK);
        let unused = self.entries().into_iter().filter(|name| is_version(name) && !kept.contains(name));
        unused
            .filter_map(|name| {
                let gone = format!("{GONE}{}", uuid::Uuid::now_v7().simple());
                home.rename(name, home, &gone).ok().map(|()| gone)
            })
            .collect()
    }

    pub fn remarks(&self, copied: &Copied) -> Vec<String> {
        let mut remarks = self.place.remarks();
        if let Some(link) = &copied.leads_out {
            remarks.push(format!(
                "{} is a relative link that leads out of the tree, and leads elsewhere from where the copy stands.",
                link.display()
            ));
        }
        remarks
    }

    fn fence_of(&self, version: &str) -> Result<Fence, FenceFileTrouble> {
        let version_folder = match self.inside(version) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(FenceFileTrouble::Missing),
            opened => opened?,
        };
        let fence = fence_file::read(&version_folder, FENCE)?;
        match version.starts_with(&format!("{}-{}-", fence.token, fence.seq)) {
            true => Ok(fence),
            false => Err(FenceFileTrouble::OfAnother),
        }
    }

    fn previous_of(&self, version: &str) -> Option<Version> {
        let leads_to = self.inside(version).ok()?.read_link(PREVIOUS).ok()?;
        let previous = leads_to.strip_prefix("..").ok()?.to_str()?.to_string();
        (is_version(&previous) && self.inside(&previous).is_ok()).then_some(previous)
    }

    /// Returns the version in a link's text, which has exactly fencepost's form or is foreign.
    fn version_in(&self, leads_to: &Path) -> Option<Version> {
        let version = leads_to.parent()?.file_name()?.to_str()?.to_string();
        (is_version(&version) && self.link_to(&version) == leads_to).then_some(version)
    }

    /// Returns the text of the link. It is relative: the directory around it may be moved.
    fn link_to(&self, version: &str) -> PathBuf {
        Path::new(&self.place.hidden("versions")).join(version).join(TREE)
    }

    fn entries(&self) -> Vec<String> {
        let names = self.home.as_ref().and_then(|home| home.names().ok()).unwrap_or_default();
        names.into_iter().filter_map(|name| name.into_string().ok()).collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CurrentLink {
    Absent,
    Version(Version),
    /// A link to another place.
    Foreign(PathBuf),
}

/// A new version before it lands, complete and flushed. Dropping it removes it unless it has landed.
pub(super) struct TreeDraft<'a> {
    home: &'a Folder,
    name: String,
    folder: Folder,
    /// Locked while its writer lives: a later writer removes an unlocked draft as left behind.
    fence: File,
    landed: bool,
}

impl<'a> TreeDraft<'a> {
    pub fn copy(home: &'a Folder, source: &Folder) -> Result<(Self, Copied), PublishError> {
        let draft = Self::create(home).map_err(|error| failed("write the new version in", home.path(), &error))?;
        let copied = copy::copy(source, &draft.folder, TREE)?;
        Ok((draft, copied))
    }

    fn create(home: &'a Folder) -> io::Result<Self> {
        loop {
            let name = format!("{NEW}{}", uuid::Uuid::now_v7().simple());
            home.create_dir(&name, directory_mode())?;
            let create = || -> io::Result<(Folder, File)> {
                let folder = home.enter(&name)?;
                let fence = folder.create(FENCE, OFlag::O_RDWR | OFlag::O_APPEND, 0o600)?;
                Ok((folder, fence))
            };
            // Another writer may come between any two steps, and remove the draft as left behind.
            let (folder, fence) = match create() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    let _ = home.remove_dir(&name);
                    return Err(error);
                }
                Ok(created) => created,
            };
            let draft = Self { home, name, folder, fence, landed: false };
            draft.fence.lock()?;
            if draft.folder.metadata_of(FENCE).is_ok() && has_name(draft.folder.file(), home, &draft.name)? {
                return Ok(draft);
            }
        }
    }

    /// Makes the draft the current version, durably. The rename of the link is the one step in which all of it happens.
    pub fn land(&mut self, versions: &Versions, fence: &Fence) -> Result<(), PublishError> {
        let target = &versions.place.target;
        let version = format!("{}-{}-{}", fence.token, fence.seq, &uuid::Uuid::now_v7().simple().to_string()[24..]);
        self.complete(versions, fence).map_err(|error| failed("write the fence of", target, &error))?;
        self.switch(versions, &version).map_err(|error| failed("switch", target, &error))?;
        versions.place.folder.sync().map_err(|error| {
            PublishError::Failed(format!(
                "{} was switched, but its directory could not be flushed ({error}); after a power cut the old version \
                 may be back. {}",
                target.display(),
                next(&error)
            ))
        })
    }

    fn complete(&mut self, versions: &Versions, fence: &Fence) -> io::Result<()> {
        fence_file::write(&mut self.fence, fence, self.home)?;
        if let Ok(CurrentLink::Version(current)) = versions.current() {
            self.folder.symlink(&Path::new("..").join(current), PREVIOUS)?;
        }
        self.folder.sync()
    }

    fn switch(&mut self, versions: &Versions, version: &str) -> io::Result<()> {
        let home = self.home;
        home.rename(&self.name, home, version)?;
        // From here on a failure removes this name.
        self.name = version.to_string();
        home.sync()?;
        // At the first write, the name of the versions' directory is not durable yet.
        if !versions.is_marked() {
            versions.place.folder.sync()?;
        }
        if !has_name(home.file(), &versions.place.folder, versions.place.hidden("versions"))? {
            return Err(io::Error::other("the directory of its versions was replaced meanwhile"));
        }
        let _ = home.unlink(LINK);
        home.symlink(&versions.link_to(version), LINK)?;
        let switched = home.rename(LINK, &versions.place.folder, &versions.place.name);
        // A network file system may have done a rename that it reports as failed. A version that may be current is not
        // removed.
        let elsewhere = versions.current().is_ok_and(|current| current != CurrentLink::Version(version.to_string()));
        self.landed = switched.is_ok() || !elsewhere;
        switched
    }
}

impl Drop for TreeDraft<'_> {
    fn drop(&mut self) {
        if !self.landed {
            remove::tree(self.home, &self.name);
        }
    }
}

/// The mode of fencepost's directories before the umask. Under a wide umask root's would be open to its group.
fn directory_mode() -> u32 {
    if geteuid().is_root() { 0o755 } else { 0o777 }
}

fn is_version(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let digits = |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    matches!(parts[..], [token, seq, unique] if digits(token, 10) && digits(seq, 10) && unique.len() == 8 && digits(unique, 16))
}
