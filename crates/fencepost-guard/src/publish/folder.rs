//! A directory held open. Every operation names an entry of it and follows no symbolic link, so another user who
//! replaces a directory on the path cannot redirect a write.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use fencepost_sys::{LOOK, flush};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, linkat, symlinkat, unlinkat};

#[derive(Debug)]
pub(crate) struct Folder {
    file: File,
    /// For messages; no operation uses it.
    path: PathBuf,
}

/// An inspected entry. It stays the same one under any later name.
pub(crate) struct FolderEntry {
    file: File,
    pub metadata: Metadata,
    /// The text of a symbolic link, read by its name.
    text: Option<PathBuf>,
}

impl FolderEntry {
    /// Reads the text of a symbolic link.
    pub fn text(&self) -> io::Result<PathBuf> {
        // macOS reads a link by its name only.
        let named = |error| self.text.clone().ok_or(error);
        Ok(readlinkat(&self.file, "").map(PathBuf::from).or_else(named)?)
    }
}

impl Folder {
    /// Opens a directory by its path, whose last part may not be a symbolic link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = again(|| nix::fcntl::open(path, flags, Mode::empty()))?;
        Ok(Self { file: file.into(), path: path.to_path_buf() })
    }

    /// Opens a directory only to pass through it, which takes no more than the right to search it.
    pub fn pass(path: &Path, shown: PathBuf) -> io::Result<Self> {
        let flags = LOOK | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self { file: again(|| nix::fcntl::open(path, flags, Mode::empty()))?.into(), path: shown })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn shown(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, path: self.path.clone() })
    }

    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Returns the same directory, opened for reading.
    pub fn readable(&self) -> io::Result<Self> {
        let file = self.open_at(".", OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
        Ok(Self { file, path: self.path.clone() })
    }

    /// Opens a directory in this one.
    pub fn enter(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let file = self.open_at(name.as_ref(), OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
        Ok(Self { file, path: self.shown(name) })
    }

    /// Opens a directory below this one, part by part.
    pub fn descend(&self, below: &Path) -> io::Result<Self> {
        let mut here = self.try_clone()?;
        for part in below.components() {
            match part {
                Component::Normal(name) => here = here.enter(name)?,
                Component::CurDir => {}
                _ => return Err(Errno::EXDEV.into()),
            }
        }
        Ok(here)
    }

    /// Opens the parent directory, only to pass through it.
    pub fn above(&self) -> io::Result<Self> {
        let file = self.open_at("..", LOOK | OFlag::O_DIRECTORY, 0)?;
        Ok(Self { file, path: self.path.parent().unwrap_or(Path::new("/")).to_path_buf() })
    }

    /// Opens a directory in this one, only to pass through it.
    pub fn pass_into(&self, name: &OsStr) -> io::Result<Self> {
        let file = self.open_at(name, LOOK | OFlag::O_DIRECTORY, 0)?;
        Ok(Self { file, path: self.shown(name) })
    }

    pub fn look(&self, name: impl AsRef<OsStr>) -> io::Result<FolderEntry> {
        let file = self.open_at(name.as_ref(), LOOK, 0)?;
        let metadata = file.metadata()?;
        let mut text = None;
        if metadata.is_symlink() {
            text = self.read_link(name.as_ref()).ok();
            // The name still stands for the entry that was opened.
            let again = self.open_at(name.as_ref(), LOOK, 0)?.metadata()?;
            text = text.filter(|_| (again.dev(), again.ino()) == (metadata.dev(), metadata.ino()));
        }
        Ok(FolderEntry { file, metadata, text })
    }

    pub fn metadata_of(&self, name: impl AsRef<OsStr>) -> io::Result<Metadata> {
        self.look(name).map(|seen| seen.metadata)
    }

    pub fn read_link(&self, name: impl AsRef<OsStr>) -> io::Result<PathBuf> {
        Ok(readlinkat(&self.file, name.as_ref()).map(PathBuf::from)?)
    }

    /// Opens an existing file. A pipe in its place does not block.
    pub fn open_file(&self, name: impl AsRef<OsStr>, flags: OFlag) -> io::Result<File> {
        self.open_at(name.as_ref(), flags | OFlag::O_NONBLOCK, 0)
    }

    /// Creates a file that does not exist yet.
    pub fn create(&self, name: impl AsRef<OsStr>, flags: OFlag, mode: u32) -> io::Result<File> {
        self.open_at(name.as_ref(), flags | OFlag::O_CREAT | OFlag::O_EXCL, mode)
    }

    /// Creates a file, or empties the one that exists.
    pub fn overwrite(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        self.open_at(name.as_ref(), OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NONBLOCK, mode)
    }

    /// Gives a file another name in this directory.
    pub fn link(&self, from: impl AsRef<OsStr>, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(linkat(&self.file, from.as_ref(), &self.file, name.as_ref(), AtFlags::empty())?)
    }

    pub fn create_dir(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
        Ok(mkdirat(&self.file, name.as_ref(), mode_of(mode))?)
    }

    pub fn symlink(&self, text: &Path, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(symlinkat(text, &self.file, name.as_ref())?)
    }

    pub fn rename(&self, from: impl AsRef<OsStr>, to: &Self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.file, from.as_ref(), &to.file, name.as_ref())?)
    }

    pub fn unlink(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.file, name.as_ref(), UnlinkatFlags::NoRemoveDir)?)
    }

    pub fn remove_dir(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.file, name.as_ref(), UnlinkatFlags::RemoveDir)?)
    }

    /// Changes the owner of an entry; for a symbolic link, of the link itself.
    pub fn give(&self, name: impl AsRef<OsStr>, (user, group): (u32, u32)) -> io::Result<()> {
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        Ok(fchownat(&self.file, name.as_ref(), user, group, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }

    /// Changes the mode of an entry that is no symbolic link.
    pub fn set_mode(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
        Ok(fchmodat(&self.file, name.as_ref(), mode_of(mode), FchmodatFlags::NoFollowSymlink)?)
    }

    pub fn names(&self) -> io::Result<Vec<OsString>> {
        // A separate descriptor: reading a directory moves the position that duplicates share.
        let mut names = Vec::new();
        for entry in Dir::from_fd(self.readable()?.file.into())? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(&name).to_os_string());
            }
        }
        Ok(names)
    }

    /// Flushes the names in the directory.
    pub fn sync(&self) -> io::Result<()> {
        flush(&self.file)
    }

    fn open_at(&self, name: impl AsRef<OsStr>, flags: OFlag, mode: u32) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(again(|| openat(&self.file, name.as_ref(), flags, mode_of(mode)))?.into())
    }
}

/// Whether an error means that an entry is gone or has become another kind of file.
pub(super) fn is_gone(error: &io::Error) -> bool {
    [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP].iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode as nix::libc::mode_t)
}

fn again<T>(mut call: impl FnMut() -> nix::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn no_operation_follows_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/file"), "kept").unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        std::os::unix::fs::symlink("real/file", root.join("to-file")).unwrap();
        let folder = Folder::open(&root).unwrap();
        assert!(is_gone(&folder.enter("link").unwrap_err()));
        assert!(is_gone(&folder.descend(Path::new("link/below")).unwrap_err()));
        assert!(is_gone(&folder.open_file("to-file", OFlag::O_WRONLY).unwrap_err()));
        assert!(folder.create("to-file", OFlag::O_WRONLY, 0o600).is_err());
        assert!(folder.metadata_of("link").unwrap().is_symlink());
        assert_eq!(folder.look("link").unwrap().text().unwrap(), Path::new("real"));
        assert!(Folder::open(&root.join("link")).is_err());
        let before = fs::metadata(root.join("real")).unwrap();
        let _ = folder.set_mode("link", 0o700);
        assert_eq!(fs::metadata(root.join("real")).unwrap().permissions(), before.permissions());
        assert_eq!(folder.descend(Path::new("real")).unwrap().names().unwrap(), ["file"]);
    }
}
