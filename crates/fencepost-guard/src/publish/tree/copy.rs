//! A copy of a directory, flushed, with its digest.
//!
//! The digest is the SHA-256 of one line for each entry, sorted by path, each ended by a zero byte:
//! `dir MODE - PATH`, `file MODE SHA256 PATH` or `link - SHA256-OF-ITS-TEXT PATH`, where MODE is in octal and without the
//! bits beyond `rwxrwxrwx`, and the directory itself has the path `.`. Owners and times are not part of it.

use std::fs::{self, DirBuilder, File, FileTimes, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

use super::remove;
use crate::publish::place::{failed, sync_directory};
use crate::publish::{PublishError, digest};

/// How often a copy is begun again because the directory changed under it.
const ATTEMPTS_MAX: usize = 3;

/// What was copied, or only looked at.
#[derive(Debug)]
pub(super) struct Copied {
    pub digest: String,
    /// A relative link that leads out of the tree, if there is one.
    pub leads_out: Option<PathBuf>,
}

/// Copies the directory to a place that does not exist yet, every file and directory of it flushed. What is copied is
/// one state of it, not a mixture of two: if it changes meanwhile, the copy is made again.
pub(super) fn copy(source: &Path, to: &Path) -> Result<Copied, PublishError> {
    attempt(source, Some(to))
}

/// The digest of a directory that stays where it is.
pub(super) fn look(source: &Path) -> Result<Copied, PublishError> {
    attempt(source, None)
}

fn attempt(source: &Path, to: Option<&Path>) -> Result<Copied, PublishError> {
    for _ in 0..ATTEMPTS_MAX {
        let entries = scan(source)?;
        if let Some(copied) = take(&entries, source, to)?
            && scan(source)? == entries
        {
            return Ok(copied);
        }
        to.into_iter().for_each(remove::tree);
    }
    Err(PublishError::Failed(format!(
        "{} changed every time it was copied; nothing was published. Publish it when whoever writes to it is done.",
        source.display()
    )))
}

/// One thing in the directory, with everything by which a change of it would show.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// Relative; empty for the directory itself.
    path: PathBuf,
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    identity: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link,
}

impl Entry {
    fn new(path: PathBuf, found: &Metadata) -> Option<Self> {
        let kind = match found.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::File,
            kind if kind.is_symlink() => Kind::Link,
            _ => return None,
        };
        Some(Self {
            path,
            kind,
            mode: found.mode() & 0o7777,
            owner: (found.uid(), found.gid()),
            // The size of a directory is the file system's own affair.
            size: if kind == Kind::Directory { 0 } else { found.size() },
            identity: (found.dev(), found.ino()),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    fn line(&self, content: &str) -> Vec<u8> {
        let mode = self.mode & 0o777;
        let start = match self.kind {
            Kind::Directory => format!("dir {mode:o} - "),
            Kind::File => format!("file {mode:o} {content} "),
            Kind::Link => format!("link - {content} "),
        };
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        [start.as_bytes(), path.as_os_str().as_bytes(), b"\0"].concat()
    }

    /// Whether an error says that something else, or nothing, is in this place now.
    fn is_gone(&self, error: &io::Error) -> bool {
        let other = if self.kind == Kind::Link { Errno::EINVAL } else { Errno::ELOOP };
        [Errno::ENOENT as i32, Errno::ENOTDIR as i32, other as i32].contains(&error.raw_os_error().unwrap_or(0))
    }

    /// Whether this relative link leads out of the tree, read as text.
    fn leads_out(&self, text: &Path) -> bool {
        let mut depth = self.path.components().count() as i64 - 1;
        !text.is_absolute()
            && text.components().any(|part| {
                depth += match part {
                    Component::ParentDir => -1,
                    Component::Normal(_) => 1,
                    _ => 0,
                };
                depth < 0
            })
    }
}

/// Everything in the directory, sorted by path, so that a directory comes before what is in it.
fn scan(source: &Path) -> Result<Vec<Entry>, PublishError> {
    let unread = |path: &Path, error: io::Error| failed("read", path, &error);
    let mut entries = Vec::new();
    let mut ahead = vec![PathBuf::new()];
    while let Some(path) = ahead.pop() {
        let here = at(source, &path);
        let found = match fs::symlink_metadata(&here) {
            // It went away after its directory was read, which the next look at everything will show.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found.map_err(|error| unread(&here, error))?,
        };
        let entry = Entry::new(path.clone(), &found).ok_or_else(|| {
            PublishError::Usage(format!(
                "Cannot publish {}: it is a pipe, a socket or a device, and only directories, files and symbolic links \
                 can be copied. Remove it from the tree.",
                here.display()
            ))
        })?;
        if entry.kind == Kind::Directory {
            for inner in fs::read_dir(&here).map_err(|error| unread(&here, error))? {
                ahead.push(path.join(inner.map_err(|error| unread(&here, error))?.file_name()));
            }
        }
        entries.push(entry);
    }
    entries.sort_unstable_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
    Ok(entries)
}

/// Reads every entry, copying it if there is a place to copy it to. `None`: it is not as it was when it was scanned.
fn take(entries: &[Entry], source: &Path, to: Option<&Path>) -> Result<Option<Copied>, PublishError> {
    let mut hash = Sha256::new();
    let mut leads_out = None;
    for entry in entries {
        let from = at(source, &entry.path);
        let taken = match (entry.kind, to.map(|to| at(to, &entry.path))) {
            (Kind::Directory, Some(to)) => DirBuilder::new().mode(0o700).create(&to).map(|()| Some(String::new())),
            (Kind::Directory, None) => Ok(Some(String::new())),
            (Kind::File, to) => take_file(entry, &from, to.as_deref()),
            (Kind::Link, to) => take_link(entry, &from, to.as_deref(), &mut leads_out),
        };
        match taken.map_err(|error| failed("copy", &from, &error))? {
            Some(content) => hash.update(entry.line(&content)),
            None => return Ok(None),
        }
    }
    if let Some(to) = to {
        finish_directories(entries, to)?;
    }
    Ok(Some(Copied { digest: digest::shown(&hash.finalize()), leads_out }))
}

/// The digest of a file's content, which is copied by the kernel where there is a place for it: a file system that can
/// share blocks does. The digest is of the copy.
fn take_file(entry: &Entry, from: &Path, to: Option<&Path>) -> io::Result<Option<String>> {
    let mut source = match OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(from) {
        Err(error) if entry.is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    if Entry::new(entry.path.clone(), &source.metadata()?).as_ref() != Some(entry) {
        return Ok(None);
    }
    let Some(to) = to else { return digest::read(&mut source).map(Some) };
    let mut copy = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut source, &mut copy)?;
    copy.rewind()?;
    let digest = digest::read(&mut copy)?;
    dress(&copy, entry)?;
    copy.set_times(FileTimes::new().set_modified(source.metadata()?.modified()?))?;
    copy.sync_all()?;
    Ok(Some(digest))
}

fn take_link(
    entry: &Entry,
    from: &Path,
    to: Option<&Path>,
    leads_out: &mut Option<PathBuf>,
) -> io::Result<Option<String>> {
    let text = match fs::read_link(from) {
        Err(error) if entry.is_gone(&error) => return Ok(None),
        text => text?,
    };
    if entry.leads_out(&text) {
        *leads_out = Some(from.to_path_buf());
    }
    if let Some(to) = to {
        symlink(&text, to)?;
        if geteuid().is_root() {
            lchown(to, Some(entry.owner.0), Some(entry.owner.1))?;
        }
    }
    Ok(Some(digest::of(text.as_os_str().as_bytes())))
}

/// Directories last, and the inner ones first: one that may not be written to could not have been filled.
fn finish_directories(entries: &[Entry], to: &Path) -> Result<(), PublishError> {
    for entry in entries.iter().rev().filter(|entry| entry.kind == Kind::Directory) {
        let path = at(to, &entry.path);
        let finish = || -> io::Result<()> {
            let directory = File::open(&path)?;
            dress(&directory, entry)?;
            directory.sync_all()
        };
        finish().map_err(|error| failed("finish", &path, &error))?;
    }
    to.parent().map_or(Ok(()), sync_directory).map_err(|error| failed("flush", to, &error))
}

/// Gives a copy the mode of the original, and its owner where we may. Nobody else's file runs with our rights.
fn dress(copy: &File, entry: &Entry) -> io::Result<()> {
    let (user, group) = entry.owner;
    if geteuid().is_root() {
        fchown(copy, Some(user), Some(group))?;
    }
    let made = copy.metadata()?;
    let bits = if (made.uid(), made.gid()) == entry.owner { 0o7777 } else { 0o1777 };
    copy.set_permissions(Permissions::from_mode(entry.mode & bits))
}

fn at(root: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { root.to_path_buf() } else { root.join(path) }
}
