//! The versions of one key: files `v` and a number of twenty digits, in one directory per key.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::hex;
use fencepost_sys::flush;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::place::Modes;
use crate::{Key, VALUE_BYTES_MAX, Version};

/// The longest version: its line, and the longest value.
const VERSION_BYTES_MAX: usize = 256 + VALUE_BYTES_MAX;

pub(super) use crate::open::DRAFT;

/// Marks a directory that has had versions. If it exists and no version is listed, the listing is wrong.
const IN_USE: &str = "INIT";

/// An unfinished file that is this much older than a new one was left behind by a crash.
const DEBRIS_AGE: Duration = Duration::from_secs(3600);

/// The most old versions that one swap removes.
const REMOVALS_MAX: usize = 64;

/// The random name of one version, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VersionNonce(String);

impl VersionNonce {
    pub(super) fn of(version: &Version) -> Self {
        Self(hex::encode(&version.0))
    }

    pub(super) fn version(&self) -> Version {
        Version(hex::decode(&self.0).unwrap_or_default())
    }

    fn parse(text: &str) -> Option<Self> {
        (text.len() == 32 && hex::decode(text).is_some()).then(|| Self(text.to_string()))
    }
}

/// The content of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VersionContent {
    pub(super) nonce: VersionNonce,
    /// The version that this one replaces.
    pub(super) previous: Option<VersionNonce>,
    /// `None`: the key was removed.
    pub(super) bytes: Option<Vec<u8>>,
}

impl VersionContent {
    /// Encodes the version as a header line, and the value.
    pub(super) fn encode(&self, number: u64) -> Vec<u8> {
        let previous = self.previous.as_ref().map_or("-", |previous| &previous.0);
        let length = self.bytes.as_ref().map_or("-".to_string(), |bytes| bytes.len().to_string());
        let mut content = format!("fencepost 1 {number} {} {previous} {length}\n", self.nonce.0).into_bytes();
        content.extend_from_slice(self.bytes.as_deref().unwrap_or_default());
        content
    }

    fn decode(number: u64, content: &[u8]) -> Option<Self> {
        let end = content.iter().position(|byte| *byte == b'\n')?;
        let (line, bytes) = (std::str::from_utf8(&content[..end]).ok()?, &content[end + 1..]);
        let words: Vec<&str> = line.split(' ').collect();
        let ["fencepost", "1", said, nonce, previous, length] = words.as_slice() else { return None };
        let previous = if *previous == "-" { None } else { Some(VersionNonce::parse(previous)?) };
        let bytes = match *length {
            "-" => bytes.is_empty().then_some(None)?,
            length => (length.parse() == Ok(bytes.len())).then_some(Some(bytes.to_vec()))?,
        };
        (said.parse() == Ok(number)).then_some(Self { nonce: VersionNonce::parse(nonce)?, previous, bytes })
    }
}

/// The content of a directory at one moment.
#[derive(Debug, Default)]
pub(super) struct Listing {
    numbers: Vec<u64>,
    drafts: Vec<PathBuf>,
    pub(super) is_in_use: bool,
    /// The directory does not exist yet.
    pub(super) is_unmade: bool,
}

impl Listing {
    pub(super) fn unmade() -> Self {
        Self { is_unmade: true, ..Self::default() }
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.numbers.last().copied()
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }
}

pub(super) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("v{number:020}"))
}

pub(super) fn list(directory: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if name == IN_USE {
            listing.is_in_use = true;
        } else if name.starts_with(DRAFT) {
            listing.drafts.push(directory.join(name));
        } else if let Some(digits) = name.strip_prefix('v').filter(|digits| digits.len() == 20) {
            listing.numbers.extend(digits.parse::<u64>());
        }
    }
    listing.numbers.sort_unstable();
    Ok(listing)
}

/// Reads a version; `None` if it is not a complete one that fencepost wrote.
pub(super) fn read(directory: &Path, number: u64) -> io::Result<Option<VersionContent>> {
    let content = read_regular(&path(directory, number), VERSION_BYTES_MAX)?;
    Ok(content.and_then(|content| VersionContent::decode(number, &content)))
}

/// Reads a regular file of at most `most` bytes; `None` for a link, a FIFO, a device or a longer file. Follows and
/// waits for none of them.
pub(super) fn read_regular(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        // ELOOP: a link. ENXIO: a socket, or a device that does not exist.
        Err(error) if [Some(Errno::ELOOP as i32), Some(Errno::ENXIO as i32)].contains(&error.raw_os_error()) => {
            return Ok(None);
        }
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut content)?;
    Ok((content.len() <= most).then_some(content))
}

/// Describes the kind of a file, for the message that refuses it.
pub(super) fn description(path: &Path) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match fs::symlink_metadata(path).map(|found| (found.file_type(), found.len())) {
        Err(_) => "it cannot be looked at",
        Ok((kind, _)) if kind.is_symlink() => "it is a symbolic link",
        Ok((kind, _)) if kind.is_fifo() => "it is a FIFO",
        Ok((kind, _)) if kind.is_socket() => "it is a socket",
        Ok((kind, _)) if kind.is_block_device() || kind.is_char_device() => "it is a device",
        Ok((kind, _)) if kind.is_dir() => "it is a directory",
        Ok((_, length)) if length > VERSION_BYTES_MAX as u64 => "it is longer than any value",
        Ok(_) => "its content is damaged",
    }
}

/// Returns the first path from `root` to `directory` that is a link or no directory.
pub(super) fn irregular(root: &Path, directory: &Path) -> io::Result<Option<PathBuf>> {
    let mut way: Vec<&Path> = directory.ancestors().take_while(|above| *above != root).collect();
    way.reverse();
    for above in way {
        match fs::symlink_metadata(above) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Ok(Some(above.to_path_buf())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Makes the client of a file server read the directory again instead of its cache: a change by this client shows it
/// the earlier changes. Errors are ignored.
pub(super) fn refresh(directory: &Path, modes: &Modes) {
    if directory.is_dir() {
        drop(DirDraft::create(directory, modes));
    }
}

/// Marks permanently that the directory has had versions.
pub(super) fn mark_in_use(directory: &Path, modes: &Modes) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(modes.file).open(directory.join(IN_USE)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|file| modes.give(&file)),
    }
}

/// A file without its final name. Dropping it removes the temporary name.
#[derive(Debug)]
pub(super) struct DirDraft(PathBuf);

impl DirDraft {
    /// Writes a file and flushes it.
    pub(super) fn write(directory: &Path, modes: &Modes, content: &[u8]) -> io::Result<Self> {
        let (draft, mut file) = Self::create(directory, modes)?;
        file.write_all(content)?;
        flush(&file)?;
        Ok(draft)
    }

    fn create(directory: &Path, modes: &Modes) -> io::Result<(Self, File)> {
        let random = crate::fresh_version().map_err(|error| io::Error::other(error.detail))?;
        let path = directory.join(format!("{DRAFT}{}", VersionNonce::of(&random).0));
        let file = OpenOptions::new().write(true).create_new(true).mode(modes.file).open(&path)?;
        let draft = Self(path);
        modes.give(&file)?;
        Ok((draft, file))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DirDraft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes versions that exceed both limits, number and age, the oldest first, and the leftovers of crashes. Compares
/// all times with the version just created, on the same file server's clock. A later swap repeats a removal that fails.
pub(super) fn clear_away(directory: &Path, newest: u64, listing: &Listing, keep: u64, age: Duration) {
    let surplus = listing.numbers.len() as u64 > keep.saturating_mul(2);
    if !surplus && listing.drafts.is_empty() {
        return;
    }
    let made = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let Some(now) = made(&path(directory, newest)) else { return };
    let is_older = |path: &Path, age: Duration| {
        made(path).is_some_and(|then| now.duration_since(then).is_ok_and(|since| since >= age))
    };
    for draft in &listing.drafts {
        if is_older(draft, DEBRIS_AGE) {
            let _ = fs::remove_file(draft);
        }
    }
    // A version was current until the next one came. Others may have created newer ones since, which stay.
    let old = listing.numbers.windows(2).filter(|pair| surplus && pair[0].saturating_add(keep) <= newest);
    for pair in old.take(REMOVALS_MAX) {
        if !is_older(&path(directory, pair[1]), age) || fs::remove_file(path(directory, pair[0])).is_err() {
            break;
        }
    }
}

/// Lists all keys under a directory that begin with `prefix`, unordered. Follows no links to directories.
pub(super) fn keys(directory: &Path, above: &str, prefix: &str, found: &mut Vec<Key>) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let Some(name) = name.to_str() else { continue };
        let part = format!("{above}{}", name.trim_end_matches(','));
        if name.ends_with(',') {
            found.extend(Key::from_stored(&part).filter(|_| part.starts_with(prefix)));
            continue;
        }
        let below = format!("{part}/");
        // Other programs leave files of their own in shared directories.
        let may_hold = kind.is_dir() && (below.starts_with(prefix) || prefix.starts_with(&below));
        if may_hold && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'=' | b'_' | b'-')) {
            keys(&directory.join(name), &below, prefix, found)?;
        }
    }
    Ok(())
}
