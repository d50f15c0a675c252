//! A fence as a file: one line of JSON, and one with the checksum of the first, which detects a flipped bit.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

use fencepost_core::fence::Fence;
use fencepost_core::record::Unreadable;
use fencepost_sys::flush;
use nix::fcntl::OFlag;
use thiserror::Error;

use super::folder::Folder;
use super::{digest, is_damaged};

/// The limit of a fence file. Fencepost writes none that is longer.
const FENCE_BYTES_MAX: u64 = 64 * 1024;

/// Why a fence file cannot be trusted.
#[derive(Debug, Error)]
pub(super) enum FenceFileTrouble {
    #[error("it is missing")]
    Missing,
    #[error("it belongs to another version")]
    OfAnother,
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl FenceFileTrouble {
    /// Whether a person may decide to continue without this fence. A newer fencepost's fence is sound, and a disk that
    /// fails to read it now may read it later.
    pub fn may_be_adopted(&self) -> bool {
        match self {
            Self::Missing | Self::OfAnother => true,
            Self::Unreadable(why) => is_damaged(why),
            Self::Io(_) => false,
        }
    }
}

/// Reads a fence, strictly: a file that is torn, empty, too long or not regular never counts as "no fence".
pub(super) fn read(folder: &Folder, name: impl AsRef<OsStr>) -> Result<Fence, FenceFileTrouble> {
    let file = match folder.open_file(name, OFlag::O_RDONLY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(FenceFileTrouble::Missing),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(FENCE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(decode(&bytes)?)
}

/// Writes a fence into an empty file, and flushes the content but not the name.
pub(super) fn write(file: &mut File, fence: &Fence, folder: &Folder) -> io::Result<()> {
    file.write_all(&encode(fence))?;
    share(file, folder)?;
    flush(file)
}

/// Gives a file of fencepost's to the users that may write in its directory: its owner, and its group if that may
/// write.
pub(super) fn share(file: &File, folder: &Folder) -> io::Result<()> {
    let above = folder.metadata()?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (above.uid(), above.gid()) {
        let _ = fchown(file, Some(above.uid()), Some(above.gid())).or_else(|_| fchown(file, None, Some(above.gid())));
    }
    let group_writes = above.mode() & 0o020 != 0 && file.metadata()?.gid() == above.gid();
    file.set_permissions(fs::Permissions::from_mode(if group_writes { 0o660 } else { 0o600 }))
}

fn encode(fence: &Fence) -> Vec<u8> {
    let mut bytes = fence.encode();
    let sum = digest::of(&bytes);
    bytes.extend_from_slice(format!("\n{sum}\n").as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<Fence, Unreadable> {
    let damaged = |what: &str| Err(Unreadable::Damaged(what.to_string()));
    let Some(body_end) = bytes.iter().position(|&byte| byte == b'\n') else {
        return damaged(if bytes.is_empty() { "it is empty" } else { "its end is missing" });
    };
    let (body, sum) = bytes.split_at(body_end);
    if sum != format!("\n{}\n", digest::of(body)).as_bytes() {
        return damaged("its checksum does not match");
    }
    Fence::decode(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::name::{Job, Name};
    use fencepost_core::time::Wall;
    use fencepost_core::token::{RunId, StoreId, Token};
    use uuid::Uuid;

    fn fence() -> Fence {
        Fence {
            v: 1,
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(5).unwrap(),
            seq: 1,
            run: RunId(Uuid::from_u128(2)),
            digest: digest::of(b""),
            op: None,
            at: Wall(0),
            host: "h".to_string(),
            unknown: Default::default(),
        }
    }

    #[test]
    fn every_flipped_bit_and_every_missing_end_is_noticed() {
        let bytes = encode(&fence());
        assert_eq!(decode(&bytes), Ok(fence()));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "torn at {end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit} flipped");
        }
        assert!(decode(&[&bytes[..], b"\n"].concat()).is_err());
        assert!(decode(&vec![0; bytes.len()]).is_err());
    }

    #[test]
    fn a_fence_of_a_newer_fencepost_is_sound_and_not_to_be_adopted_away() {
        let body = r#"{"v":2,"unheard":"of"}"#;
        let bytes = format!("{body}\n{}\n", digest::of(body.as_bytes()));
        let trouble = FenceFileTrouble::Unreadable(decode(bytes.as_bytes()).unwrap_err());
        assert!(matches!(trouble, FenceFileTrouble::Unreadable(Unreadable::Newer(2))), "{trouble}");
        assert!(!trouble.may_be_adopted());
        assert!(FenceFileTrouble::Missing.may_be_adopted());
        assert!(FenceFileTrouble::Unreadable(decode(b"0").unwrap_err()).may_be_adopted());
        assert!(!FenceFileTrouble::Io(io::Error::from_raw_os_error(5)).may_be_adopted());
    }

    #[test]
    fn a_link_or_a_pipe_in_the_fences_place_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let [real, link, pipe] = ["real", "link", "pipe"].map(|name| directory.path().join(name));
        let folder = Folder::open(directory.path()).unwrap();
        fs::write(&real, encode(&fence())).unwrap();
        assert_eq!(read(&folder, "real").unwrap(), fence());
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(matches!(read(&folder, "link"), Err(FenceFileTrouble::Io(_))));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read(&folder, "pipe").is_err());
        assert!(matches!(read(&folder, "none"), Err(FenceFileTrouble::Missing)));
    }
}
