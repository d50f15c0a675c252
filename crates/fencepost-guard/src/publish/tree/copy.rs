//! Copies a directory, flushed, and computes its digest.
//!
//! The digest is the SHA-256 of one line for each entry, sorted by path, each ended by a zero byte: `dir MODE - PATH`,
//! `file MODE SHA256 PATH` or `link - SHA256-OF-ITS-TEXT PATH`, where MODE is in octal and without the bits beyond
//! `rwxrwxrwx`, and the directory itself has the path `.`. Owners and times are not part of it.

use std::ffi::OsStr;
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io::{self, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Component, Path, PathBuf};

use fencepost_sys::flush;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

use super::remove;
use crate::publish::folder::{Folder, is_gone};
use crate::publish::place::failed;
use crate::publish::{PublishError, digest};

/// How often a copy is started because the directory changed during the copy.
const ATTEMPTS_MAX: usize = 3;

/// The result of copying a directory, or of only reading it.
#[derive(Debug)]
pub(super) struct Copied {
    pub digest: String,
    /// A relative link that leads out of the tree, if there is one.
    pub leads_out: Option<PathBuf>,
}

/// Copies the directory to a new entry `to` of `home`, and flushes every file and directory of it. The copy is one
/// state of the directory, not a mixture of two: if the directory changes, the copy starts again.
pub(super) fn copy(source: &Folder, home: &Folder, to: &str) -> Result<Copied, PublishError> {
    attempt(source, Some((home, to)))
}

/// Returns the digest of a directory without copying it.
pub(super) fn look(source: &Folder) -> Result<Copied, PublishError> {
    attempt(source, None)
}

fn attempt(source: &Folder, to: Option<(&Folder, &str)>) -> Result<Copied, PublishError> {
    for _ in 0..ATTEMPTS_MAX {
        let entries = scan(source)?;
        if let Some(copied) = take(&entries, source, to)?
            && scan(source)? == entries
        {
            return Ok(copied);
        }
        to.into_iter().for_each(|(home, name)| remove::tree(home, name));
    }
    Err(PublishError::Failed(format!(
        "{} changed every time it was copied; nothing was published. Publish it when the program that writes to it is \
         done.",
        source.path().display()
    )))
}

/// Opens directories below a root, part by part. Keeps the last one open, because its entries follow one another.
struct Below<'a> {
    root: &'a Folder,
    last: Option<(PathBuf, Folder)>,
}

impl<'a> Below<'a> {
    fn new(root: &'a Folder) -> Self {
        Self { root, last: None }
    }

    fn directory(&mut self, path: &Path) -> io::Result<&Folder> {
        if self.last.as_ref().is_none_or(|(opened, _)| opened != path) {
            self.last = Some((path.to_path_buf(), self.root.descend(path)?));
        }
        Ok(self.last.as_ref().map_or(self.root, |(_, folder)| folder))
    }

    /// Returns the directory of an entry, and its name there.
    fn parent<'b>(&mut self, path: &'b Path) -> io::Result<(&Folder, &'b OsStr)> {
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.directory(parent)?, path.file_name().unwrap_or(OsStr::new("."))))
    }
}

/// One entry of the directory, with every attribute that would show a change.
#[derive(Debug, PartialEq, Eq)]
struct CopiedEntry {
    /// Relative; empty for the directory itself.
    path: PathBuf,
    kind: EntryKind,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    identity: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Directory,
    File,
    Link,
}

impl CopiedEntry {
    fn new(path: PathBuf, found: &Metadata) -> Option<Self> {
        let kind = match found.file_type() {
            kind if kind.is_dir() => EntryKind::Directory,
            kind if kind.is_file() => EntryKind::File,
            kind if kind.is_symlink() => EntryKind::Link,
            _ => return None,
        };
        Some(Self {
            path,
            kind,
            mode: found.mode() & 0o7777,
            owner: (found.uid(), found.gid()),
            // The size of a directory depends on the file system alone.
            size: if kind == EntryKind::Directory { 0 } else { found.size() },
            identity: (found.dev(), found.ino()),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    fn line(&self, content: &str) -> Vec<u8> {
        let mode = self.mode & 0o777;
        let start = match self.kind {
            EntryKind::Directory => format!("dir {mode:o} - "),
            EntryKind::File => format!("file {mode:o} {content} "),
            EntryKind::Link => format!("link - {content} "),
        };
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        [start.as_bytes(), path.as_os_str().as_bytes(), b"\0"].concat()
    }

    /// Whether an error means that the entry is gone or was replaced.
    fn is_gone(&self, error: &io::Error) -> bool {
        is_gone(error) || self.kind == EntryKind::Link && error.raw_os_error() == Some(Errno::EINVAL as i32)
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

/// Lists all entries of the directory, sorted by path: a directory precedes its content.
fn scan(source: &Folder) -> Result<Vec<CopiedEntry>, PublishError> {
    let mut entries = Vec::new();
    let mut ahead = vec![PathBuf::new()];
    let mut below = Below::new(source);
    while let Some(path) = ahead.pop() {
        let here = at(source.path(), &path);
        match scan_entry(&mut below, &path, &mut ahead) {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => {
                return Err(PublishError::Usage(format!(
                    "Cannot publish {}: it is a pipe, a socket or a device, and only directories, files and symbolic \
                     links can be copied. Remove it from the tree.",
                    here.display()
                )));
            }
            // The entry disappeared after its directory was read; the next scan shows that.
            Err(error) if is_gone(&error) && !path.as_os_str().is_empty() => {}
            Err(error) => return Err(failed("read", &here, &error)),
        }
    }
    entries.sort_unstable_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
    Ok(entries)
}

/// Inspects one entry, and adds a directory's content to `ahead`. `None`: it cannot be copied.
fn scan_entry(below: &mut Below<'_>, path: &Path, ahead: &mut Vec<PathBuf>) -> io::Result<Option<CopiedEntry>> {
    let (parent, name) = below.parent(path)?;
    let entry = CopiedEntry::new(path.to_path_buf(), &parent.metadata_of(name)?);
    if entry.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory) {
        let names = below.directory(path)?.names()?;
        ahead.extend(names.into_iter().map(|name| path.join(name)));
    }
    Ok(entry)
}

/// Reads every entry, and copies it if `to` is given. `None`: an entry has changed since the scan.
fn take(entries: &[CopiedEntry], source: &Folder, to: Option<(&Folder, &str)>) -> Result<Option<Copied>, PublishError> {
    let mut hash = Sha256::new();
    let mut leads_out = None;
    let mut from = Below::new(source);
    let mut into = to.map(|(home, name)| (Below::new(home), name));
    for entry in entries {
        let here = at(source.path(), &entry.path);
        let taken = take_entry(entry, &mut from, into.as_mut(), &mut leads_out);
        match taken.map_err(|error| failed("copy", &here, &error))? {
            Some(content) => hash.update(entry.line(&content)),
            None => return Ok(None),
        }
    }
    if let Some((home, name)) = to {
        finish_directories(entries, home, name)?;
    }
    let leads_out = leads_out.map(|path| at(source.path(), &path));
    Ok(Some(Copied { digest: digest::shown(&hash.finalize()), leads_out }))
}

/// The destination of a copied entry: a directory, and the name in it.
type To<'a> = Option<(&'a Folder, &'a OsStr)>;

fn take_entry(
    entry: &CopiedEntry,
    from: &mut Below<'_>,
    into: Option<&mut (Below<'_>, &str)>,
    leads_out: &mut Option<PathBuf>,
) -> io::Result<Option<String>> {
    let copy = into.as_ref().map(|(_, root)| at(Path::new(root), &entry.path));
    let to: To<'_> = match (into, &copy) {
        (Some((below, _)), Some(path)) => Some(below.parent(path)?),
        _ => None,
    };
    if entry.kind == EntryKind::Directory {
        return to.map_or(Ok(()), |(to, name)| to.create_dir(name, 0o700)).map(|()| Some(String::new()));
    }
    let (parent, name) = match from.parent(&entry.path) {
        Err(error) if is_gone(&error) => return Ok(None),
        parent => parent?,
    };
    match entry.kind {
        EntryKind::Link => take_link(entry, (parent, name), to, leads_out),
        _ => take_file(entry, (parent, name), to),
    }
}

/// Returns the digest of a file's content. The kernel makes the copy, if there is one: some file systems share the
/// blocks. The digest is of the copy.
fn take_file(entry: &CopiedEntry, (from, name): (&Folder, &OsStr), to: To<'_>) -> io::Result<Option<String>> {
    let mut source = match from.open_file(name, OFlag::O_RDONLY) {
        Err(error) if entry.is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    if CopiedEntry::new(entry.path.clone(), &source.metadata()?).as_ref() != Some(entry) {
        return Ok(None);
    }
    let Some((to, name)) = to else { return digest::read(&mut source).map(Some) };
    let mut copy = to.create(name, OFlag::O_RDWR, 0o600)?;
    io::copy(&mut source, &mut copy)?;
    copy.rewind()?;
    let digest = digest::read(&mut copy)?;
    dress(&copy, entry)?;
    copy.set_times(FileTimes::new().set_modified(source.metadata()?.modified()?))?;
    flush(&copy)?;
    Ok(Some(digest))
}

fn take_link(
    entry: &CopiedEntry,
    (from, name): (&Folder, &OsStr),
    to: To<'_>,
    leads_out: &mut Option<PathBuf>,
) -> io::Result<Option<String>> {
    let text = match from.read_link(name) {
        Err(error) if entry.is_gone(&error) => return Ok(None),
        text => text?,
    };
    if entry.leads_out(&text) {
        *leads_out = Some(entry.path.clone());
    }
    if let Some((to, name)) = to {
        to.symlink(&text, name)?;
        if geteuid().is_root() {
            to.give(name, entry.owner)?;
        }
    }
    Ok(Some(digest::of(text.as_os_str().as_bytes())))
}

/// Sets the modes of directories last, the inner ones first: a read-only directory could not have been filled.
fn finish_directories(entries: &[CopiedEntry], home: &Folder, name: &str) -> Result<(), PublishError> {
    for entry in entries.iter().rev().filter(|entry| entry.kind == EntryKind::Directory) {
        let path = at(Path::new(name), &entry.path);
        let finish = || -> io::Result<()> {
            let directory = home.descend(&path)?;
            dress(directory.file(), entry)?;
            directory.sync()
        };
        finish().map_err(|error| failed("finish", &home.shown(&path), &error))?;
    }
    home.sync().map_err(|error| failed("flush", home.path(), &error))
}

/// Gives a copy the mode of the original, and its owner if root copies. Does not copy another user's setuid bit.
fn dress(copy: &File, entry: &CopiedEntry) -> io::Result<()> {
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
