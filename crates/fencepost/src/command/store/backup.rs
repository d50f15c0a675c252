//! `fencepost store export` and `fencepost store import`: a backup as JSON lines.
//!
//! The first line names the store, and each further line is an entry. The last line holds the number of entries and the
//! digest of all lines before it: a truncated or changed file is refused as a whole. A store is sealed while it is
//! filled, so no job begins in a partial store. Repeating an interrupted import continues it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fencepost_core::record::{FORMAT, Identity, Record, Seal, decode, encode};
use fencepost_core::token::StoreId;
use fencepost_guard::clock;
use fencepost_guard::publish::digest;
use fencepost_store::{Key, Store, StoreError, Swapped, Trouble, VALUE_BYTES_MAX, Version};
use fencepost_view::answer::{AnswerVersion, StoreExportAnswer, StoreImportAnswer};
use serde::{Deserialize, Serialize};

use super::copy::{OURS, RECORDS, RESOURCES, identity, in_the_way, is_in, keys};
use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::{file, show};

/// Format version of the file.
const LAYOUT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct BackupHeader {
    fencepost_export: u32,
    store: StoreId,
    exported: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct BackupLine {
    key: String,
    value: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct BackupEnd {
    entries: usize,
    /// Digest of all lines before this one.
    digest: String,
}

pub fn export(global: &Global, place: &Place, path: Option<&Path>) -> Result<Code, Failure> {
    let shown = place.shown_store();
    let store = place.open_to_read()?;
    let Some((identity, _)) = identity(store.as_ref())? else {
        return Err(Failure::Usage(format!("{shown} has no jobs, so there is nothing to export.")));
    };
    if let Some(seal) = identity.sealed {
        return Err(Failure::Usage(format!("{shown} is not exported: {seal}.")));
    }
    let header =
        BackupHeader { fencepost_export: LAYOUT, store: identity.store, exported: show::time(clock::wall_now()) };
    let mut text = line(&header)?;
    let mut entries = 0;
    for key in keys(store.as_ref())? {
        let Some(entry) = store.read(&key)?.value else { continue };
        let value = String::from_utf8(entry.bytes).map_err(|_| {
            let detail = format!("The entry {key} of {shown} is not text. Nothing was exported.");
            StoreError::not_done(Trouble::Corrupt, detail)
        })?;
        text.push_str(&line(&BackupLine { key: key.to_string(), value })?);
        entries += 1;
    }
    let end = BackupEnd { entries, digest: digest::of(text.as_bytes()) };
    text.push_str(&line(&end)?);
    let Some(path) = path else {
        show::text(&text);
        return Ok(Code::DONE);
    };
    file::replace_private(path, &text)?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    if global.json {
        let file = path.display().to_string();
        show::json(&StoreExportAnswer { v: AnswerVersion, url: shown, file, entries });
    } else {
        show::line(&format!("{entries} entries of {shown} are in {}.", path.display()));
    }
    Ok(Code::DONE)
}

fn line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Other(error.to_string()))?;
    Ok(format!("{text}\n"))
}

pub fn import(global: &Global, place: &Place, path: &Path, replace_lost: bool) -> Result<Code, Failure> {
    let backup = Backup::read(path)?;
    let shown = place.shown_store();
    let store = open(place, replace_lost)?;
    let filling = Filling { store: store.as_ref(), backup: &backup, shown: &shown };
    let id = filling.run(replace_lost)?;
    remember(place, id)?;
    let count = backup.entries.len();
    if global.json {
        let (store_id, kept_id) = (id.to_string(), id == backup.store);
        show::json(&StoreImportAnswer { v: AnswerVersion, url: shown, entries: count, store_id, kept_id });
    } else if id == backup.store {
        show::line(&format!("{count} entries are in {shown}, which keeps the id of the export ({id}): fences go on."));
    } else {
        show::line(&format!(
            "{count} entries are in {shown}, a store with an id of its own ({id}). Targets that were written under the \
             exported store refuse its tokens until they are adopted once, by publish … --adopt."
        ));
    }
    Ok(Code::DONE)
}

/// Opens the store to fill it. With `replace_lost`, an empty store in place of the lost one is expected.
fn open(place: &Place, replace_lost: bool) -> Result<Arc<dyn Store>, Failure> {
    if replace_lost { Ok(place.handle()?.open_unchecked()?) } else { place.open() }
}

/// Records the store as known to this host.
fn remember(place: &Place, id: StoreId) -> Result<(), Failure> {
    Ok(place.handle()?.accept(Some(id))?)
}

/// A complete backup, verified.
#[derive(Debug)]
struct Backup {
    store: StoreId,
    digest: String,
    entries: Vec<(Key, String)>,
}

impl Backup {
    fn read(path: &Path) -> Result<Self, Failure> {
        let refused = |why: &str| {
            Failure::Usage(format!("{} is not a whole export: {why}. Nothing was changed.", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("Cannot read {}: {error}. Nothing was changed.", path.display()))
        })?;
        Self::parse(&text).map_err(|why| refused(&why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let last = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let (lines, end) = text.split_at(last);
        let end: BackupEnd =
            serde_json::from_str(end).map_err(|_| "its last line is missing, as if it had been cut short")?;
        if digest::of(lines.as_bytes()) != end.digest {
            return Err("its content was changed or damaged (the digest does not fit)".to_string());
        }
        let mut lines = lines.lines();
        let header: BackupHeader = serde_json::from_str(lines.next().unwrap_or_default())
            .map_err(|_| "its first line does not name a store")?;
        if header.fencepost_export != LAYOUT {
            return Err(format!("it was written by a newer fencepost (layout {})", header.fencepost_export));
        }
        let entries = lines.map(entry).collect::<Result<Vec<_>, _>>()?;
        let distinct: BTreeSet<&Key> = entries.iter().map(|(key, _)| key).collect();
        if entries.len() != end.entries || distinct.len() != entries.len() {
            return Err(format!("it has {} distinct entries and should have {}", distinct.len(), end.entries));
        }
        Ok(Self { store: header.store, digest: end.digest, entries })
    }
}

/// Parses an entry and checks its key, its size, and the value where the import has to read it.
fn entry(text: &str) -> Result<(Key, String), String> {
    let BackupLine { key: name, value } =
        serde_json::from_str(text).map_err(|error| format!("a line is damaged ({error})"))?;
    let key = Key::from_stored(&name).filter(|key| !is_in(key, &OURS));
    let key = key.ok_or_else(|| format!("{name:?} is not the key of an entry"))?;
    let is_sound = if is_in(&key, &RECORDS) {
        decode::<Record>(value.as_bytes()).is_ok()
    } else {
        !is_in(&key, &RESOURCES) || Record::decode_resource(value.as_bytes()).is_ok()
    };
    if !is_sound || value.len() > VALUE_BYTES_MAX {
        return Err(format!("its entry {name} cannot be read"));
    }
    Ok((key, value))
}

struct Filling<'a> {
    store: &'a dyn Store,
    backup: &'a Backup,
    shown: &'a str,
}

impl Filling<'_> {
    fn run(&self, replace_lost: bool) -> Result<StoreId, Failure> {
        let id = self.take(replace_lost)?;
        for (key, value) in &self.backup.entries {
            let bytes = self.value(key, value, id)?;
            match self.store.swap(key, None, Some(&bytes))?.value {
                Swapped::Won(_) => {}
                Swapped::Lost(Some(there)) if there.bytes == bytes => {}
                Swapped::Lost(_) => return Err(in_the_way(key.as_str()).into()),
            }
        }
        let sealed = identity(self.store)?;
        let version = sealed.map(|(_, entry)| entry.version);
        self.put_identity(version.as_ref(), id, None)?;
        Ok(id)
    }

    /// Seals the empty store, and returns its new id.
    fn take(&self, replace_lost: bool) -> Result<StoreId, Failure> {
        let known = identity(self.store)?;
        let seal = Seal::FilledFrom(format!("the export {}", self.backup.digest));
        match &known {
            // An import of the same file was interrupted.
            Some((identity, _))
                if identity.sealed.as_ref() == Some(&seal)
                    && (identity.store == self.backup.store || !replace_lost) =>
            {
                return Ok(identity.store);
            }
            Some((Identity { sealed: Some(other), .. }, _)) => {
                return Err(Failure::Usage(format!("{} cannot be filled: {other}. Nothing was changed.", self.shown)));
            }
            _ => {}
        }
        let count = keys(self.store)?.len();
        if count > 0 {
            return Err(Failure::Usage(format!(
                "{} is not empty ({count} entries). Nothing was changed. Import into an empty store, by --store URL.",
                self.shown
            )));
        }
        let own = known.as_ref().map_or_else(|| StoreId(crate::command::mint_run().0), |(identity, _)| identity.store);
        let id = if replace_lost { self.backup.store } else { own };
        self.put_identity(known.as_ref().map(|(_, entry)| &entry.version), id, Some(seal))?;
        Ok(id)
    }

    /// Rewrites the value of an entry for the id of this store.
    fn value(&self, key: &Key, value: &str, id: StoreId) -> Result<Vec<u8>, Failure> {
        if id == self.backup.store || !is_in(key, &RECORDS) {
            return Ok(value.as_bytes().to_vec());
        }
        let mut record: Record =
            decode(value.as_bytes()).map_err(|why| fencepost_core::transition::unreadable(key.as_str(), &why))?;
        record.store = id;
        Ok(record.encode())
    }

    fn put_identity(&self, expected: Option<&Version>, store: StoreId, sealed: Option<Seal>) -> Result<(), Failure> {
        let identity = Identity { v: FORMAT, store, sealed, unknown: Default::default() };
        match self.store.swap(&Key::identity(), expected, Some(&encode(&identity)))?.value {
            Swapped::Won(_) => Ok(()),
            Swapped::Lost(_) => Err(in_the_way("the identity of the store").into()),
        }
    }
}
