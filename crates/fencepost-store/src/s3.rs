//! A bucket of S3, or of a server that speaks its protocol: one object per key, written by conditional PutObject.
//!
//! An object begins with a line that holds a nonce. Most servers compute the ETag from the content, so the nonce makes
//! every ETag unique; it also tells whose write an object is. A removal writes an object without a value, because
//! DeleteObject has no condition on most servers.
//!
//! There is no clock: many front ends answer, each with its own. An observer has to watch a lease for a whole
//! time-to-live. The date of an answer is only a lower bound for a new token.

mod answer;
mod bucket;
mod credentials;
mod environment;
mod object;
mod place;

use std::fmt;

pub use bucket::{PutCondition, PutEnd, S3Bucket, S3Head, S3Object, S3Upload, SignedTime, content_md5};
pub use place::S3Place;

use crate::declared::{Declaring, Property, Soundness};
use crate::http_client::HttpFailure;
use crate::{
    Answer, Entry, Fate, Key, OpenError, SCAN_KEYS_MAX, Secret, Store, StoreError, Swapped, Trouble, Version,
    refuse_unsound,
};
use object::{OBJECT_BYTES_MAX, StoredObject, TOMBSTONE_BYTES};

/// The prefix of all objects, where the URL names none.
const PREFIX: &str = "fencepost";

/// How often a creation may find that another one was made and removed again in between.
const CREATIONS_MAX: usize = 8;

/// The smallest page of a listing, which may hold removed keys.
const PAGE_KEYS_MIN: usize = 100;

/// An object and its ETag.
type StoredAs = (StoredObject, String);

/// The objects of a bucket below a prefix.
pub struct S3Store {
    bucket: S3Bucket,
    prefix: String,
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3Store").field(&self.bucket).finish()
    }
}

impl S3Store {
    /// Parses the URL. Sends nothing before the first call.
    pub fn open(url: &str, password: Option<&Secret>) -> Result<Self, OpenError> {
        let place = S3Place::parse(url)?;
        let prefix = if place.path().is_empty() { PREFIX.to_string() } else { place.path().to_string() };
        Ok(Self { bucket: S3Bucket::open(place, password)?, prefix })
    }

    fn name(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }

    /// Reads the object of a key, with its ETag. A removed key has one too.
    fn look(&self, key: &Key) -> Result<Answer<Option<StoredAs>>, HttpFailure> {
        let name = self.name(key.as_str());
        let Answer { value, clock, date } = self.bucket.get(&name, OBJECT_BYTES_MAX)?;
        let decoded = |found: S3Object| match StoredObject::decode(&found.bytes) {
            Some(object) => Ok((object, found.etag)),
            None => Err(foreign(&name)),
        };
        Ok(Answer { value: value.map(decoded).transpose()?, clock, date })
    }

    fn put(
        &self,
        key: &Key,
        condition: PutCondition<'_>,
        object: &StoredObject,
    ) -> Result<Answer<PutEnd>, HttpFailure> {
        let bytes = object.encode();
        let md5 = content_md5(&mut bytes.as_slice()).expect("memory can be read");
        self.bucket.put(S3Upload {
            key: &self.name(key.as_str()),
            condition,
            headers: &[],
            body: &mut bytes.as_slice(),
            length: bytes.len() as u64,
            md5: &md5,
        })
    }

    /// Reads what stands there after a write was refused. If the read fails, the fate of the write is not known: it may
    /// have been refused because it had arrived before.
    fn look_after_refusal(&self, key: &Key) -> Result<Option<StoredAs>, HttpFailure> {
        self.look(key).map(|answer| answer.value).map_err(|failure| match failure.trouble {
            Trouble::Corrupt => failure,
            _ => HttpFailure { fate: Fate::Unknown, is_unsent: false, ..failure },
        })
    }

    /// Replaces the object with this ETag.
    fn replace(&self, key: &Key, etag: &str, mine: &StoredObject) -> Result<Answer<Swapped>, HttpFailure> {
        let Answer { value, clock, date } = self.put(key, PutCondition::Matches(etag), mine)?;
        let value = match value {
            PutEnd::Written(etag) => mine.won(etag),
            PutEnd::Missing => Swapped::Lost(None),
            PutEnd::Refused => match self.look_after_refusal(key)? {
                Some((found, etag)) if found.nonce == mine.nonce => mine.won(etag),
                found => Swapped::Lost(found.and_then(entry)),
            },
        };
        Ok(Answer { value, clock, date })
    }

    /// Creates a key. A refused creation changed nothing; where the key was removed before, its empty object is
    /// replaced instead.
    fn create(&self, key: &Key, mine: &StoredObject) -> Result<Answer<Swapped>, HttpFailure> {
        let mut removed = None;
        for _ in 0..CREATIONS_MAX {
            let condition = removed.as_deref().map_or(PutCondition::Absent, PutCondition::Matches);
            let Answer { value: ended, clock, date } = self.put(key, condition, mine)?;
            let answer = |value| Ok(Answer { value, clock, date });
            removed = match ended {
                PutEnd::Written(etag) => return answer(mine.won(etag)),
                PutEnd::Missing => None,
                PutEnd::Refused => match self.look_after_refusal(key)? {
                    None => None,
                    Some((found, etag)) if found.nonce == mine.nonce => return answer(mine.won(etag)),
                    Some((StoredObject { value: None, .. }, etag)) => Some(etag),
                    Some(found) => return answer(Swapped::Lost(entry(found))),
                },
            };
        }
        let what = format!("is busy: {key} was created and removed {CREATIONS_MAX} times meanwhile");
        Err(HttpFailure::new(Fate::NotDone, Trouble::Unavailable, what, ""))
    }
}

impl Store for S3Store {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let found = self.look(key).map_err(|failure| failure.of_read(&self.bucket))?;
        Ok(found.map(|found| found.and_then(entry)))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        let mine = StoredObject::fresh(new)?;
        let ended = match (expected, new) {
            (Some(version), _) => match etag(version) {
                Some(etag) => self.replace(key, etag, &mine),
                // A version of another store: no object has it.
                None => self.look(key).map(|found| found.map(|found| Swapped::Lost(found.and_then(entry)))),
            },
            (None, Some(_)) => self.create(key, &mine),
            (None, None) => self.look(key).map(|found| {
                found.map(|found| match found.and_then(entry) {
                    None => Swapped::Won(None),
                    found => Swapped::Lost(found),
                })
            }),
        };
        ended.map_err(|failure| failure.of_swap(&self.bucket))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let limit = limit.min(SCAN_KEYS_MAX);
        let (prefix, after) = (self.name(prefix), after.map(|after| self.name(after.as_str())));
        let page = limit.clamp(PAGE_KEYS_MIN, SCAN_KEYS_MAX);
        let (mut keys, mut token) = (Vec::new(), None);
        loop {
            let found = self.bucket.list(&prefix, after.as_deref(), token.as_deref(), page);
            let found = found.map_err(|failure| failure.of_read(&self.bucket))?;
            for object in &found.contents {
                if object.size == Some(TOMBSTONE_BYTES) {
                    continue;
                }
                let name = object.key.strip_prefix(&self.prefix).and_then(|name| name.strip_prefix('/'));
                let key =
                    name.and_then(Key::from_stored).filter(|_| object.size.is_none_or(|size| size > TOMBSTONE_BYTES));
                keys.push(key.ok_or_else(|| foreign(&object.key).of_read(&self.bucket))?);
            }
            token = found.next_continuation_token;
            if token.is_none() || keys.len() >= limit {
                keys.truncate(limit);
                return Ok(Answer::new(keys, None));
            }
        }
    }
}

/// A version as an ETag, if it can be one. Some servers refuse a request with any other text (400), and others ignore it.
fn etag(version: &Version) -> Option<&str> {
    let is_sound = !version.0.is_empty() && version.0.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(&version.0).ok().filter(|_| is_sound)
}

impl Declaring for S3Store {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        // A bucket that cannot be reached is an error.
        self.scan("", None, 0)?;
        let clock = "There is no clock: a lease whose holder died ends once an observer has watched it for a whole time-to-live.";
        let durability = match self.bucket.place().is_aws() {
            true => {
                Property::new("durability", Soundness::Sound, "S3 keeps an object in several zones before it answers.")
            }
            false => {
                let detail = "What an acknowledged write survives is a matter of the server and its settings.";
                Property::new("durability", Soundness::Weak, detail)
            }
        };
        let conditions = "That comparing and writing are one step at the server was tried by races and cannot be proved. A \
                          bucket that is replicated must be written in one region only.";
        Ok(vec![
            durability,
            Property::new("conditions", Soundness::Weak, conditions),
            Property::new("clock", Soundness::Sound, clock),
            self.bucket.place().transport().declared(),
        ])
    }
}

/// The entry of a key that is not removed.
fn entry((object, etag): StoredAs) -> Option<Entry> {
    Some(Entry { bytes: object.value?, version: Version(etag.into_bytes()) })
}

fn foreign(name: &str) -> HttpFailure {
    let what = format!("is not a sound fencepost store: fencepost did not write the object {name:?}");
    let step = "Another program uses the same prefix, or a newer fencepost: choose another prefix.";
    HttpFailure::new(Fate::NotDone, Trouble::Corrupt, what, step)
}
