//! A shared directory: every version of a key is a file, and a swap is the `link` that creates the next one.
//!
//! `link(2)` never replaces, so of all processes that try to create version 8 one succeeds, regardless of caches in the
//! file server or its clients. A stale cache may show a reader an old listing; a swap based on it is lost. There are no
//! locks: on some file servers they hold for one machine only.
//!
//! Old versions are removed, which has a trap: a writer that read version 7 long ago, and links version 8 after version
//! 8 has come and gone, would create it a second time. So the writer lists the directory again after the link. The
//! predecessor must still exist, and the successor must name this file as its predecessor.
//!
//! There is no clock: an observer has to watch a lease for a whole time-to-live.

mod place;
mod versions;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fencepost_sys::flush;

use crate::declared::{Declaring, Property, Soundness};
use crate::{
    Access, Answer, Entry, Fate, Key, OpenError, SCAN_KEYS_MAX, Store, StoreError, Swapped, Trouble, Version,
    fresh_version, refuse_unsound,
};
use versions::{DirDraft, Listing, VersionContent, VersionNonce};

/// How long a swap may take from listing the key to its link: far less than the time that old versions are kept.
const LOOK_AGE_MAX: Duration = Duration::from_secs(10);

/// How often a listed version may be gone when it is opened. Each time a newer one has come.
const LOOKS_MAX: usize = 50;

/// The number of old versions that are kept, and for how long.
#[derive(Clone, Copy, Debug)]
struct VersionRetention {
    versions: u64,
    age: Duration,
}

const KEEPING: VersionRetention = VersionRetention { versions: 64, age: Duration::from_secs(600) };

/// A directory, usually on a file server.
#[derive(Debug)]
pub(crate) struct DirStore {
    root: PathBuf,
    /// The kind of shared file system, if it is on one.
    shared: Option<&'static str>,
    modes: place::Modes,
    keeping: VersionRetention,
}

impl DirStore {
    /// Opens the directory, and creates it if it is missing. Refuses a directory that fencepost did not create, and
    /// leaves it unchanged.
    pub(crate) fn open(path: &str, access: &Access) -> Result<Self, OpenError> {
        place::check(path).map_err(OpenError::Usage)?;
        let place = place::prepare(Path::new(path), access.must_exist)?;
        Ok(Self { root: place.root, shared: place.shared, modes: place.modes, keeping: KEEPING })
    }

    /// Returns the directory of a key. The last part ends with a character that no part of a key contains: a key never
    /// takes the path of a longer one.
    fn directory(&self, key: &Key) -> PathBuf {
        self.root.join("keys").join(format!("{key},"))
    }

    /// Reads the newest version of a key, if it has any.
    fn look(&self, directory: &Path) -> Result<KeyListing, StoreError> {
        let begun = Instant::now();
        match versions::irregular(&self.root, directory) {
            Ok(None) => {}
            Ok(Some(path)) => return Err(self.foreign(&path)),
            Err(error) => return Err(self.failed(&error, Fate::NotDone)),
        }
        if self.shared.is_some() {
            versions::refresh(directory, &self.modes);
        }
        for _ in 0..LOOKS_MAX {
            let listing = match versions::list(directory) {
                Ok(listing) => listing,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(KeyListing::default()),
                Err(error) => return Err(self.failed(&error, Fate::NotDone)),
            };
            let Some(newest) = listing.newest() else {
                if !listing.is_in_use {
                    return Ok(KeyListing { begun, listing, ..KeyListing::default() });
                }
                // The key has had versions, and the newest is never removed: the listing is stale.
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            match versions::read(directory, newest) {
                Ok(Some(stored)) => return Ok(KeyListing { begun, newest, stored: Some(stored), listing }),
                Ok(None) => return Err(self.foreign(&versions::path(directory, newest))),
                Err(error) if error.kind() == ErrorKind::NotFound || is_stale(&error) => {}
                Err(error) => return Err(self.failed(&error, Fate::NotDone)),
            }
        }
        let detail = format!(
            "{} has had versions, and its listing shows none that can be read; nothing was changed. Look at the file server.",
            directory.display()
        );
        Err(StoreError::not_done(Trouble::Unavailable, detail))
    }

    /// Creates the version after `look`. The caller has checked that `look` shows the expected version.
    fn make(&self, key: &Key, look: &KeyListing, new: Option<&[u8]>) -> Result<Swapped, StoreError> {
        let directory = &self.directory(key);
        let not_done = |error: io::Error| self.failed(&error, Fate::NotDone);
        if look.stored.is_none() && look.listing.is_unmade {
            place::make_directories(directory, &self.root, &self.modes).map_err(not_done)?;
        }
        let version = fresh_version()?;
        let (number, nonce) = (look.newest + 1, VersionNonce::of(&version));
        let stored = VersionContent {
            nonce: nonce.clone(),
            previous: look.stored.as_ref().map(|stored| stored.nonce.clone()),
            bytes: new.map(<[u8]>::to_vec),
        };
        let draft = DirDraft::write(directory, &self.modes, &stored.encode(number)).map_err(not_done)?;
        if look.begun.elapsed() > LOOK_AGE_MAX {
            let detail = format!("{} took too long to look at; nothing was changed. Try again.", directory.display());
            return Err(StoreError::not_done(Trouble::Unavailable, detail));
        }
        if !self.link(&draft, directory, number, &nonce)? {
            return Ok(Swapped::Lost(self.look(directory)?.entry()));
        }
        drop(draft);
        self.flush(directory, look.listing.is_in_use)?;
        match self.judge(directory, number, &nonce, look)? {
            Placement::Stands(listing) => {
                versions::clear_away(directory, number, &listing, self.keeping.versions, self.keeping.age);
                Ok(Swapped::Won(new.map(|_| version)))
            }
            Placement::Resurrected => {
                // The file is this writer's, and no reader takes it for the newest.
                let _ = fs::remove_file(versions::path(directory, number));
                Ok(Swapped::Lost(self.look(directory)?.entry()))
            }
        }
    }

    /// Links the draft under its version number, if the number is free. Does not trust an error of `link`: a file
    /// server that did it, and whose answer was lost, reports that the name is taken.
    fn link(&self, draft: &DirDraft, directory: &Path, number: u64, nonce: &VersionNonce) -> Result<bool, StoreError> {
        let Err(error) = fs::hard_link(draft.path(), versions::path(directory, number)) else { return Ok(true) };
        match versions::read(directory, number) {
            Ok(Some(found)) if found.nonce == *nonce => return Ok(true),
            Ok(_) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            // The version was created and removed: other writers are far ahead.
            Err(gone) if error.kind() == ErrorKind::AlreadyExists && gone.kind() == ErrorKind::NotFound => {
                return Ok(false);
            }
            _ => {}
        }
        if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::TooManyLinks) || is_not_permitted(&error) {
            let detail = format!(
                "{} is on a file system without hard links ({error}), and nothing else there is a safe swap; nothing was \
                 changed. Use an NFS or local file system, or postgres://…, redis://… or git+ssh://….",
                directory.display()
            );
            return Err(StoreError::not_done(Trouble::Refused, detail));
        }
        let certain = [
            ErrorKind::NotFound,
            ErrorKind::PermissionDenied,
            ErrorKind::ReadOnlyFilesystem,
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
        ];
        let fate = if certain.contains(&error.kind()) { Fate::NotDone } else { Fate::Unknown };
        Err(self.failed(&error, fate))
    }

    /// Flushes the new name, and with the first version the mark that the directory is in use.
    fn flush(&self, directory: &Path, is_in_use: bool) -> Result<(), StoreError> {
        let marked = if is_in_use { Ok(()) } else { versions::mark_in_use(directory, &self.modes) };
        let flushed = marked.and_then(|()| flush(&File::open(directory)?));
        flushed.map_err(|error| self.failed(&error, Fate::Unknown))
    }

    /// Whether the version that was just linked follows its expected predecessor.
    fn judge(
        &self,
        directory: &Path,
        number: u64,
        nonce: &VersionNonce,
        look: &KeyListing,
    ) -> Result<Placement, StoreError> {
        let unsure = || {
            let detail = format!(
                "{} was changed so much while version {number} was made that its fate is unknown; the write may \
                 have happened.",
                directory.display()
            );
            StoreError::unknown(Trouble::Unavailable, detail)
        };
        let listing = versions::list(directory).map_err(|error| self.failed(&error, Fate::Unknown))?;
        let has_predecessor = look.newest == 0 || listing.has(look.newest);
        match listing.newest() {
            Some(newest) if newest == number && has_predecessor => Ok(Placement::Stands(listing)),
            Some(newest) if newest > number => match versions::read(directory, number + 1) {
                Ok(Some(next)) if next.previous.as_ref() == Some(nonce) => Ok(Placement::Stands(listing)),
                Ok(Some(_)) => Ok(Placement::Resurrected),
                _ => Err(unsure()),
            },
            _ => Err(unsure()),
        }
    }

    fn failed(&self, error: &io::Error, fate: Fate) -> StoreError {
        let outcome = fate.outcome();
        let (trouble, step) = place::meaning(error);
        StoreError { fate, trouble, detail: format!("{} failed ({error}); {outcome}. {step}", self.root.display()) }
    }

    fn foreign(&self, path: &Path) -> StoreError {
        let detail = format!(
            "{} is not what fencepost wrote ({}); nothing was changed. Restore a backup, or move the store aside by hand and \
             start afresh.",
            path.display(),
            versions::description(path)
        );
        StoreError::not_done(Trouble::Corrupt, detail)
    }
}

impl Store for DirStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        self.still_there()?;
        Ok(Answer::new(self.look(&self.directory(key))?.entry(), None))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        self.still_there()?;
        let look = self.look(&self.directory(key))?;
        let current = look.entry();
        let value = if current.as_ref().map(|entry| &entry.version) != expected {
            Swapped::Lost(current)
        } else if current.is_none() && new.is_none() {
            Swapped::Won(None)
        } else {
            self.make(key, &look, new)?
        };
        Ok(Answer::new(value, None))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        self.still_there()?;
        let mut keys = Vec::new();
        versions::keys(&self.root.join("keys"), "", prefix, &mut keys)
            .map_err(|error| self.failed(&error, Fate::NotDone))?;
        keys.retain(|key| after.is_none_or(|after| key > after));
        keys.sort();
        let mut found = Vec::new();
        for key in keys {
            if found.len() == limit.min(SCAN_KEYS_MAX) {
                break;
            }
            // A removed key keeps its numbers: none is given twice. A key that cannot be read is listed, and its reader
            // reports the error.
            match self.look(&self.directory(&key)) {
                Ok(look) if look.entry().is_none() => {}
                Err(error) if error.trouble != Trouble::Corrupt => return Err(error),
                Ok(_) | Err(_) => found.push(key),
            }
        }
        Ok(Answer::new(found, None))
    }
}

impl Declaring for DirStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        let kind = match self.shared {
            None => Property::new(
                "reach",
                Soundness::Weak,
                "It is on a file system of this machine: other machines see it only if they mount it from here. If it should \
                 be on a file server, that one is not mounted.",
            ),
            Some("NFS") => Property::new(
                "file system",
                Soundness::Weak,
                "NFS: hard links are made by the server, once. An export with the option async may lose acknowledged swaps \
                 when the server crashes.",
            ),
            Some("SMB") => Property::new(
                "file system",
                Soundness::Weak,
                "SMB: whether a hard link is made once, and flushed, is up to the server. Prefer NFS or a database.",
            ),
            Some(kind) => Property::new(
                "file system",
                Soundness::Unknown,
                format!(
                    "{kind}: whether a hard link is made once, and flushed, is not known. Prefer NFS or a database."
                ),
            ),
        };
        let durability = "A version is flushed before it is linked, and its name before the swap is answered; what the file \
                          server makes of that is its own matter.";
        let clock = "There is no clock: a lease whose holder died ends once an observer has watched it for a whole time-to-live.";
        Ok(vec![
            kind,
            Property::new("durability", Soundness::Sound, durability),
            Property::new("clock", Soundness::Sound, clock),
        ])
    }
}

/// A key as listed at one moment.
#[derive(Debug)]
struct KeyListing {
    begun: Instant,
    /// The number of the newest version, or 0.
    newest: u64,
    stored: Option<VersionContent>,
    listing: Listing,
}

impl Default for KeyListing {
    fn default() -> Self {
        Self { begun: Instant::now(), newest: 0, stored: None, listing: Listing::unmade() }
    }
}

impl KeyListing {
    fn entry(&self) -> Option<Entry> {
        let stored = self.stored.as_ref()?;
        Some(Entry { bytes: stored.bytes.clone()?, version: stored.nonce.version() })
    }
}

enum Placement {
    Stands(Listing),
    /// The number had been given before.
    Resurrected,
}

/// Whether the file server lost the meaning of a handle; the next request resolves the name again.
fn is_stale(error: &io::Error) -> bool {
    error.kind() == ErrorKind::StaleNetworkFileHandle
}

/// Whether the error is the one that Linux gives for a file system without hard links.
fn is_not_permitted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::EPERM as i32)
}

#[cfg(test)]
mod tests;
