//! Whether other users can change what a path leads to.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use fencepost_store::User;
use nix::libc::ELOOP;
use nix::unistd::geteuid;

const WORLD_WRITES: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// The most symbolic links that are followed, as in the kernel.
const LINKS_MAX: usize = 40;

/// Why a path is not trusted. `path` is the file, link or directory that decides it.
#[derive(Debug)]
pub enum Distrust {
    /// The owner is neither this user nor root.
    Owner {
        path: PathBuf,
        owner: u32,
    },
    /// Other users can write the file itself.
    File {
        path: PathBuf,
    },
    /// Other users can write a directory on the path, and so replace its entries.
    Directory {
        path: PathBuf,
    },
    Unreadable(io::Error),
}

/// Checks every directory, every symbolic link and the file that an absolute path leads through. Returns the file's metadata.
///
/// A directory may be sticky and writable by all, as `/tmp` is: there only the owner replaces an entry, and that entry's owner is
/// checked.
pub fn check(path: &Path) -> Result<Metadata, Distrust> {
    let root = look(Path::new("/"))?;
    let mut at = PathBuf::from("/");
    let mut parts = parts(path);
    let (mut found, mut links) = (root.clone(), 0);
    while let Some(part) = parts.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        found = look(&next)?;
        // The owner of / can replace every path. Inside a user namespace that is often not shown as root.
        if !found.is_file() && found.uid() != root.uid() {
            must_own(&next, &found)?;
        }
        if found.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(Distrust::Unreadable(io::Error::from_raw_os_error(ELOOP)));
            }
            let target = fs::read_link(&next).map_err(Distrust::Unreadable)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            parts.extend(self::parts(&target));
            continue;
        }
        if found.is_dir() && others_write(&found) && !is_sticky(&found) {
            return Err(Distrust::Directory { path: next });
        }
        at = next;
    }
    if found.is_file() {
        must_own(&at, &found)?;
        if found.mode() & (WORLD_WRITES | GROUP_WRITES) != 0 {
            return Err(Distrust::File { path: at });
        }
    }
    Ok(found)
}

/// Whether every user may create files in a directory, as in `/tmp`.
pub fn is_open_to_all(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|found| found.mode() & WORLD_WRITES != 0 && is_sticky(&found))
}

fn look(path: &Path) -> Result<Metadata, Distrust> {
    fs::symlink_metadata(path).map_err(Distrust::Unreadable)
}

/// The components of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    let mut parts: Vec<OsString> = parts.collect();
    parts.reverse();
    parts
}

fn must_own(path: &Path, found: &Metadata) -> Result<(), Distrust> {
    let owner = found.uid();
    match owner == 0 || owner == geteuid().as_raw() {
        true => Ok(()),
        false => Err(Distrust::Owner { path: path.to_path_buf(), owner }),
    }
}

fn is_sticky(found: &Metadata) -> bool {
    found.mode() & STICKY != 0
}

/// Whether users other than the owner can write a directory. A group whose only member is this user does not count:
/// with `umask 002`, which some systems set, each new directory belongs to such a group.
fn others_write(directory: &Metadata) -> bool {
    let mode = directory.mode();
    mode & WORLD_WRITES != 0 || (mode & GROUP_WRITES != 0 && !is_own_group(directory.gid()))
}

fn is_own_group(group: u32) -> bool {
    let Some(user) = User::current() else { return false };
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let of_group = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    of_group.filter(|fields| fields.len() == 4 && fields[2] == group.to_string()).any(|fields| {
        let others = fields[3].split(',').filter(|member| !member.is_empty() && *member != user.name);
        fields[0] == user.name && others.count() == 0
    })
}
