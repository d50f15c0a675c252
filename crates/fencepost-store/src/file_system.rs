//! Which file systems provide reliable locks, and which folders are synchronised.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fencepost_sys::flush;
use nix::sys::statfs::{Statfs, statfs};

/// The kind of shared file system a directory is on, or `None` if it is local.
pub fn shared_file_system(directory: &Path) -> io::Result<Option<&'static str>> {
    Ok(kind(&statfs(directory)?))
}

#[cfg(target_os = "linux")]
fn kind(found: &Statfs) -> Option<&'static str> {
    // The type's width differs between architectures; the upper half is at most sign extension.
    shared_by_magic(found.filesystem_type().0 as u32)
}

#[cfg(not(target_os = "linux"))]
fn kind(found: &Statfs) -> Option<&'static str> {
    shared_by_name(found.filesystem_type_name(), found.flags().contains(nix::mount::MntFlags::MNT_LOCAL))
}

/// macOS names the file system. The flag for local ones alone does not do: FUSE and the folders that a virtual machine's
/// host shares count as local there.
#[cfg(any(not(target_os = "linux"), test))]
fn shared_by_name(name: &str, is_local: bool) -> Option<&'static str> {
    Some(match name {
        "apfs" | "hfs" | "ufs" | "tmpfs" | "exfat" | "msdos" | "lifs" if is_local => return None,
        "nfs" => "NFS",
        "smbfs" | "cifs" => "SMB",
        "afpfs" => "AFP",
        "webdav" => "WebDAV",
        "9p" => "9p",
        "virtiofs" | "AppleVirtIOFS" => "a FUSE or virtiofs file system",
        "prl_fs" | "vmhgfs" | "vboxsf" => "a folder that the host of the virtual machine shares",
        fuse if fuse.contains("fuse") => "a FUSE or virtiofs file system",
        _ if is_local => return None,
        _ => "a network file system",
    })
}

/// File systems that several kernels may write to, or that handle locks in a process of their own.
#[cfg(any(target_os = "linux", test))]
fn shared_by_magic(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "NFS",
        0x0000_517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x6573_5546 => "a FUSE or virtiofs file system",
        0x0102_1997 => "9p",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x00c3_6400 => "Ceph",
        0x4750_4653 => "GPFS",
        0x0bd0_0bd0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x7375_7245 => "Coda",
        0x2003_0528 => "OrangeFS",
        0x786f_4256 => "a VirtualBox shared folder",
        _ => return None,
    })
}

/// Creates a private `directory` and its missing parents. Flushes each new entry: a store that disappears in a power
/// cut would lose its tokens.
pub(crate) fn create_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().unwrap_or(directory);
    create_directories(parent)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => flush(&File::open(parent)?),
    }
}

/// Folders that a service copies to other machines. No check can be atomic there.
const SYNC_FOLDERS: [(&str, &str); 8] = [
    ("Dropbox", "Dropbox"),
    ("OneDrive", "OneDrive"),
    ("Google Drive", "Google Drive"),
    ("GoogleDrive", "Google Drive"),
    ("My Drive", "Google Drive"),
    ("Mobile Documents", "iCloud Drive"),
    ("iCloud Drive", "iCloud Drive"),
    ("CloudStorage", "a cloud provider"),
];

/// Files that mark a synchronised folder.
const SYNC_MARKS: [(&str, &str); 4] = [
    (".stfolder", "Syncthing"),
    (".dropbox", "Dropbox"),
    (".dropbox.cache", "Dropbox"),
    (".849C9593-D756-4E56-8D6E-42412F2A707B", "OneDrive"),
];

/// The service that synchronises the directory, and the sign by which it was recognised.
pub fn sync_folder(directory: &Path) -> Option<(&'static str, PathBuf)> {
    directory.ancestors().find_map(|above| {
        let name = above.file_name().unwrap_or_default().to_string_lossy();
        // A second account's folder is called "OneDrive - Company" or "Dropbox (Company)".
        let matches = |folder: &str| {
            name.strip_prefix(folder)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(" -") || rest.starts_with(" ("))
        };
        let by_name = SYNC_FOLDERS.iter().find(|(folder, _)| matches(folder));
        let by_mark = || SYNC_MARKS.iter().find(|(mark, _)| is_mark(&above.join(mark)));
        by_name
            .map(|(_, service)| (*service, above.to_path_buf()))
            .or_else(|| by_mark().map(|(mark, service)| (*service, above.join(mark))))
    })
}

/// The mark is a file. A directory `.dropbox` holds Dropbox's settings and exists in every home directory.
fn is_mark(mark: &Path) -> bool {
    fs::metadata(mark).is_ok_and(|found| found.is_file() || !mark.ends_with(".dropbox"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macos_file_systems_are_told_apart_by_name_and_flag() {
        for (name, shared) in
            [("apfs", None), ("hfs", None), ("zfs", None), ("nfs", Some("NFS")), ("smbfs", Some("SMB"))]
        {
            assert_eq!(shared_by_name(name, shared.is_none()), shared, "{name}");
        }
        for name in ["macfuse", "osxfuse", "fuse-t", "prl_fs", "vmhgfs", "AppleVirtIOFS"] {
            assert!(shared_by_name(name, true).is_some(), "{name} is shared though it says that it is local");
        }
        assert_eq!(shared_by_name("apfs", false), Some("a network file system"));
    }

    #[test]
    fn file_systems_of_several_kernels_are_told_apart_from_local_ones() {
        let shared = [
            0x6969,
            0x517b,
            0xff53_4d42,
            0xfe53_4d42,
            0x6573_5546,
            0x0102_1997,
            0x5346_414f,
            0x6b41_4653,
            0x00c3_6400,
            0x4750_4653,
            0x0bd0_0bd0,
            0x0116_1970,
            0x7461_636f,
            0x7375_7245,
            0x2003_0528,
            0x786f_4256,
        ];
        // ext4, xfs, btrfs, overlay, tmpfs, zfs, f2fs, ramfs, bcachefs.
        let local = [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x794c_7630,
            0x0102_1994,
            0x2fc1_2fc1,
            0xf2f5_2010,
            0x8584_58f6,
            0xca45_1a4e,
        ];
        for magic in shared {
            assert!(shared_by_magic(magic).is_some(), "{magic:#x}");
        }
        for magic in local {
            assert_eq!(shared_by_magic(magic), None, "{magic:#x}");
        }
    }
}
