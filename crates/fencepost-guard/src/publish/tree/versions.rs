//! The versions of a tree, and the link that says which one is current.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use fencepost_core::fence::Fence;

use super::copy::{self, Copied};
use super::remove;
use crate::publish::PublishError;
use crate::publish::fence_file::{self, Trouble};
use crate::publish::lock::{has_name, is_marked, left_behind};
use crate::publish::place::{Place, failed, next, sync_directory, usage};

/// The names inside of one version: what readers see, what guards it, and which version came before.
const TREE: &str = "tree";
const FENCE: &str = "fence";
const PREVIOUS: &str = "previous";

/// The names beside the versions: what is being made, what is being removed, and the link before it is renamed.
const NEW: &str = "new-";
const GONE: &str = "gone-";
const LINK: &str = "link";

/// A version's own name: `<token>-<seq>-<8 digits>`, the last because an adopted tree may count from the start again.
type Version = String;

pub(super) struct Versions {
    pub place: Place,
    pub directory: PathBuf,
    pub lock: PathBuf,
}

impl Versions {
    pub fn of(place: Place) -> Self {
        let directory = place.beside("versions");
        Self { lock: directory.join("lock"), directory, place }
    }

    /// Makes the directory for the versions, and removes what writers that died have left in it.
    pub fn prepare(&self) -> Result<(), PublishError> {
        let made = match fs::create_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match fs::symlink_metadata(&self.directory).is_ok_and(|found| found.is_dir()) {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            made => made,
        };
        made.map_err(|error| failed("make the directory", &self.directory, &error))?;
        for (name, path) in self.entries() {
            if name.starts_with(GONE) {
                remove::tree(&path);
            } else if name.starts_with(NEW) && fs::remove_dir(&path).is_err() {
                // One that is empty has gone by now, and its writer begins again if it lives.
                left_behind(&path.join(FENCE)).inspect(|_locked| remove::tree(&path));
            }
        }
        Ok(())
    }

    /// The version that the link names, if there is one, it is a link and it is ours.
    pub fn current(&self) -> Result<Current, PublishError> {
        let path = &self.place.target;
        let shown = path.display();
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Current::Absent),
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
        let leads_to = fs::read_link(path).map_err(|error| failed("read the link", path, &error))?;
        Ok(self.version_in(&leads_to).map_or(Current::Foreign(leads_to), Current::Version))
    }

    /// What the fence of the current version remembers. A link or a fence that is lost is never "no fence".
    pub fn seen(&self, adopt: bool) -> Result<Option<Fence>, PublishError> {
        let marked = is_marked(&self.lock);
        let refuse = |trouble: String| {
            Err(PublishError::Failed(format!(
                "The fence of {} cannot be read: {trouble}. Nothing was changed, because without it nobody knows which \
                 token wrote last. Restore link and versions together; or, if no older run can still be alive, publish \
                 once with --adopt.",
                self.place.target.display()
            )))
        };
        match self.current()? {
            Current::Absent if !marked || adopt => Ok(None),
            Current::Absent => refuse("its link was there once and is gone".to_string()),
            Current::Foreign(_) if adopt => Ok(None),
            Current::Foreign(leads_to) => Err(usage(
                &self.place.target,
                format!(
                    "it is a link to {} that fencepost did not make. Remove it, or replace it once with --adopt",
                    leads_to.display()
                ),
            )),
            Current::Version(version) => match self.fence_of(&version) {
                Ok(fence) => Ok(Some(fence)),
                Err(trouble) if adopt && trouble.may_be_adopted() => Ok(None),
                Err(trouble) => refuse(format!("{}/{FENCE} ({trouble})", self.directory.join(version).display())),
            },
        }
    }

    /// Whether the current tree is what the fence says.
    pub fn holds(&self, fence: &Fence) -> bool {
        let Ok(Current::Version(version)) = self.current() else { return false };
        copy::look(&self.directory.join(version).join(TREE)).is_ok_and(|found| found.digest == fence.digest)
    }

    /// Takes every version away that is neither current nor one of the last few before it, and returns what is to be
    /// removed. Also what was switched to never: nothing leads there.
    pub fn prune(&self, keep: usize) -> Vec<PathBuf> {
        let Ok(Current::Version(current)) = self.current() else { return Vec::new() };
        let mut kept = vec![current];
        while kept.len() <= keep
            && let Some(previous) = kept.last().and_then(|last| self.previous_of(last))
        {
            kept.push(previous);
        }
        let _ = fs::remove_file(self.directory.join(LINK));
        let unused = self.entries().into_iter().filter(|(name, _)| is_version(name) && !kept.contains(name));
        unused
            .filter_map(|(_, path)| {
                let gone = self.directory.join(format!("{GONE}{}", uuid::Uuid::now_v7().simple()));
                fs::rename(path, &gone).ok().map(|()| gone)
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

    fn fence_of(&self, version: &str) -> Result<Fence, Trouble> {
        let fence = fence_file::read(&self.directory.join(version).join(FENCE))?;
        match version.starts_with(&format!("{}-{}-", fence.token, fence.seq)) {
            true => Ok(fence),
            false => Err(Trouble::OfAnother),
        }
    }

    fn previous_of(&self, version: &str) -> Option<Version> {
        let leads_to = fs::read_link(self.directory.join(version).join(PREVIOUS)).ok()?;
        let previous = leads_to.strip_prefix("..").ok()?.to_str()?.to_string();
        (is_version(&previous) && self.directory.join(&previous).is_dir()).then_some(previous)
    }

    /// The version in a link's text, which is exactly as we write it or not ours.
    fn version_in(&self, leads_to: &Path) -> Option<Version> {
        let version = leads_to.parent()?.file_name()?.to_str()?.to_string();
        (is_version(&version) && self.link_to(&version) == leads_to).then_some(version)
    }

    /// Relative, so that the directory around it may be moved.
    fn link_to(&self, version: &str) -> PathBuf {
        Path::new(&self.place.hidden("versions")).join(version).join(TREE)
    }

    fn entries(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Current {
    Absent,
    Version(Version),
    /// A link that leads elsewhere.
    Foreign(PathBuf),
}

/// A new version before it lands, complete and flushed. It is gone unless it lands.
pub(super) struct Draft {
    path: PathBuf,
    /// Locked for as long as its writer lives, so that whoever comes later can tell what was left behind.
    fence: File,
    landed: bool,
}

impl Draft {
    pub fn copy(versions: &Versions, source: &Path) -> Result<(Self, Copied), PublishError> {
        let draft =
            Self::create(versions).map_err(|error| failed("write the new version in", &versions.directory, &error))?;
        let copied = copy::copy(source, &draft.path.join(TREE))?;
        Ok((draft, copied))
    }

    fn create(versions: &Versions) -> io::Result<Self> {
        loop {
            let path = versions.directory.join(format!("{NEW}{}", uuid::Uuid::now_v7().simple()));
            DirBuilder::new().create(&path)?;
            let fence = path.join(FENCE);
            // Somebody who sweeps may come between any two steps, and take it for left behind.
            let file = match OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&fence) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    return Err(error);
                }
                Ok(file) => file,
            };
            let draft = Self { path, fence: file, landed: false };
            draft.fence.lock()?;
            if has_name(&draft.fence, &fence)? {
                return Ok(draft);
            }
        }
    }

    /// Makes it the current version, durably. The rename of the link is the one step in which all of it happens.
    pub fn land(mut self, versions: &Versions, fence: &Fence) -> Result<(), PublishError> {
        let target = &versions.place.target;
        let version = format!("{}-{}-{}", fence.token, fence.seq, &uuid::Uuid::now_v7().simple().to_string()[24..]);
        self.complete(versions, fence).map_err(|error| failed("write the fence of", target, &error))?;
        self.switch(versions, &version).map_err(|error| failed("switch", target, &error))?;
        sync_directory(&versions.place.directory).map_err(|error| {
            PublishError::Failed(format!(
                "{} was switched, but its directory could not be flushed ({error}); after a power cut the old version \
                 may be back. {}",
                target.display(),
                next(&error)
            ))
        })
    }

    fn complete(&mut self, versions: &Versions, fence: &Fence) -> io::Result<()> {
        fence_file::write(&mut self.fence, fence, &versions.directory)?;
        if let Ok(Current::Version(current)) = versions.current() {
            symlink(Path::new("..").join(current), self.path.join(PREVIOUS))?;
        }
        sync_directory(&self.path)
    }

    fn switch(&mut self, versions: &Versions, version: &str) -> io::Result<()> {
        let place = versions.directory.join(version);
        fs::rename(&self.path, &place)?;
        // From here on it is this place that is removed if something fails.
        self.path = place;
        sync_directory(&versions.directory)?;
        // The first time, nobody has made sure of the versions' own directory.
        if !is_marked(&versions.lock) {
            sync_directory(&versions.place.directory)?;
        }
        let link = versions.directory.join(LINK);
        let _ = fs::remove_file(&link);
        symlink(versions.link_to(version), &link)?;
        let switched = fs::rename(&link, &versions.place.target);
        // A network file system may have made a rename that it says has failed. What may be current is not removed.
        let elsewhere = versions.current().is_ok_and(|current| current != Current::Version(version.to_string()));
        self.landed = switched.is_ok() || !elsewhere;
        switched
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.landed {
            remove::tree(&self.path);
        }
    }
}

fn is_version(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let digits = |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    matches!(parts[..], [token, seq, unique] if digits(token, 10) && digits(seq, 10) && unique.len() == 8 && digits(unique, 16))
}
