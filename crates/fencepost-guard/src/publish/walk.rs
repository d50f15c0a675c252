//! Walks from the path of a target to its directory, held open, and checks whether other users could redirect the path.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use fencepost_store::User;
use nix::errno::Errno;
use nix::unistd::geteuid;

use super::PublishError;
use super::folder::{Folder, FolderEntry};
use super::place::{failed, usage};

/// How many symbolic links are followed before they count as a loop, as in the kernel.
const LINKS_MAX: usize = 40;

const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;

/// The end of a path: a directory, and a name in it that need not exist yet.
#[derive(Debug)]
pub(super) struct PathWalk {
    pub folder: Folder,
    pub name: OsString,
    /// Why a write there is not safe. Readers ignore it.
    pub distrust: Option<PathDistrust>,
}

/// A file or directory by which another user could redirect a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathDistrust {
    path: PathBuf,
    owner: u32,
    what: Danger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Danger {
    /// A directory that other users may write, while root writes.
    Directory,
    Link,
    Planted,
}

impl PathDistrust {
    /// Makes the refusal, with the owner and the next step. Nothing was written before it.
    pub fn refusal(&self, target: &Path) -> PublishError {
        let (path, owner) = (self.path.display(), User::shown(self.owner));
        let why = match self.what {
            Danger::Directory => format!(
                "{path} belongs to {owner}, and users other than root may write there. They could redirect what root \
                 writes. Nothing was written. Publish as the user that owns the directory, or make it root's: \
                 chown root:root {path} && chmod go-w {path}"
            ),
            Danger::Link => format!(
                "{path} is a symbolic link of {owner}, in a directory that other users may write. Nothing was \
                 written. Name the file that it leads to, or remove the link: rm {path}"
            ),
            Danger::Planted => format!(
                "{path} belongs to {owner} and stands in a directory that other users may write. The new content \
                 would be under the control of that user. Nothing was written. Choose another directory, or remove \
                 it: rm -r {path}"
            ),
        };
        PublishError::Usage(format!("Cannot publish to {}: {why}", target.display()))
    }
}

/// Walks to the directory of the target. With `follow` it follows a last symbolic link as well.
pub(super) fn walk(path: &Path, follow: bool) -> Result<PathWalk, PublishError> {
    let bytes = path.as_os_str().as_bytes();
    let named = path.file_name().is_some() && !bytes.ends_with(b"/") && !bytes.ends_with(b"/.");
    if !named {
        return Err(usage(path, "it does not end in a name"));
    }
    let mut walker = Walker::start(path).map_err(|error| failed("look at", path, &error))?;
    while let Some(part) = walker.ahead.pop_front() {
        let is_last = walker.ahead.is_empty();
        let step = walker.step(&part, is_last, follow).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == Errno::ELOOP as i32 => usage(path, "its symbolic links lead round in a circle"),
            _ => usage(path, format!("its directory: {error}")),
        })?;
        if let Some(name) = step {
            return walker.arrive(name);
        }
    }
    Err(usage(path, "it does not end in a name"))
}

struct Walker {
    folder: Folder,
    ahead: VecDeque<OsString>,
    links: usize,
    distrust: Option<PathDistrust>,
}

impl Walker {
    /// Root starts at `/`, because every directory on the way matters. Other users may lack the right to pass through
    /// the directories above their own.
    fn start(path: &Path) -> io::Result<Self> {
        let here = if path.is_relative() { std::env::current_dir()? } else { PathBuf::new() };
        let (folder, path) = match path.is_relative() && !geteuid().is_root() {
            true => (Folder::pass(Path::new("."), here)?, path.to_path_buf()),
            false => (Folder::pass(Path::new("/"), "/".into())?, here.join(path)),
        };
        Ok(Self { folder, ahead: parts(&path), links: 0, distrust: None })
    }

    /// Takes one part of the path. Returns it if it is the name of the target.
    fn step(&mut self, part: &OsStr, is_last: bool, follow: bool) -> io::Result<Option<OsString>> {
        if part == ".." {
            self.folder = self.folder.above()?;
            return Ok(None);
        }
        let seen = match self.folder.look(part) {
            Err(error) if error.kind() == ErrorKind::NotFound && is_last => return Ok(Some(part.to_os_string())),
            seen => seen?,
        };
        if seen.metadata.is_symlink() && (follow || !is_last) {
            self.follow(part, &seen)?;
            return Ok(None);
        }
        if is_last {
            return Ok(Some(part.to_os_string()));
        }
        self.judge_directory(false)?;
        self.folder = self.folder.pass_into(part)?;
        Ok(None)
    }

    fn follow(&mut self, part: &OsStr, link: &FolderEntry) -> io::Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::ELOOP.into());
        }
        self.judge_directory(false)?;
        let around = self.folder.metadata()?;
        if around.mode() & OTHERS_WRITE != 0 && !is_expected(&link.metadata, &around) {
            self.distrust(self.folder.shown(part), link.metadata.uid(), Danger::Link);
        }
        let text = link.text()?;
        if text.is_absolute() {
            self.folder = Folder::pass(Path::new("/"), "/".into())?;
        }
        for part in parts(&text).into_iter().rev() {
            self.ahead.push_front(part);
        }
        Ok(())
    }

    /// Opens the directory of the target itself, and inspects an existing entry.
    fn arrive(mut self, name: OsString) -> Result<PathWalk, PublishError> {
        let judge = |walker: &mut Self| -> io::Result<()> {
            walker.judge_directory(true)?;
            walker.folder = walker.folder.readable()?;
            if walker.distrust.is_none() {
                walker.distrust = planted(&walker.folder, &name)?;
            }
            Ok(())
        };
        judge(&mut self).map_err(|error| failed("open", self.folder.path(), &error))?;
        Ok(PathWalk { folder: self.folder, name, distrust: self.distrust })
    }

    /// While root writes, no other user may be able to replace anything on the way. In a sticky directory that the path
    /// only passes through, such as `/tmp`, other users cannot replace root's entries.
    fn judge_directory(&mut self, is_last: bool) -> io::Result<()> {
        if let Some(distrust) = of_root(&self.folder, is_last)? {
            self.distrust.get_or_insert(distrust);
        }
        Ok(())
    }

    fn distrust(&mut self, path: PathBuf, owner: u32, what: Danger) {
        self.distrust.get_or_insert(PathDistrust { path, owner, what });
    }
}

/// Returns the danger of a directory for root: another user owns it or may write it.
pub(super) fn of_root(folder: &Folder, is_last: bool) -> io::Result<Option<PathDistrust>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let found = folder.metadata()?;
    let passed_safely = found.mode() & STICKY != 0 && !is_last;
    let open = found.mode() & OTHERS_WRITE != 0 && !passed_safely;
    let path = folder.path().to_path_buf();
    Ok((found.uid() != 0 || open).then_some(PathDistrust { path, owner: found.uid(), what: Danger::Directory }))
}

/// Returns the danger of an entry that another user put in a sticky directory, where only its owner can remove it.
pub(super) fn planted(folder: &Folder, name: &OsStr) -> io::Result<Option<PathDistrust>> {
    let around = folder.metadata()?;
    if around.mode() & STICKY == 0 || around.mode() & OTHERS_WRITE == 0 {
        return Ok(None);
    }
    match folder.metadata_of(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(found) if is_expected(&found, &around) => Ok(None),
        Ok(found) => Ok(Some(PathDistrust { path: folder.shown(name), owner: found.uid(), what: Danger::Planted })),
    }
}

/// Whether it belongs to this user, to root or to the owner of the directory around it.
fn is_expected(found: &Metadata, around: &Metadata) -> bool {
    [geteuid().as_raw(), 0, around.uid()].contains(&found.uid())
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    parts.collect()
}
