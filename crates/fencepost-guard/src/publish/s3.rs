//! An S3 object: the fence is an object beside it, swapped first; then the content, on the condition that it is still the
//! object that was there before.
//!
//! The content's ETag is read before the fence is judged. So a write that stops in between fails at the
//! fence if another one landed meanwhile. Between the fence and the content only the ETag protects, and equal contents share one: the level is
//! `gated`. Every write is conditional and may be sent twice, which settles a lost answer.

use std::io::Read;
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::fence::{Fence, Level};
use fencepost_store::s3::{PutCondition, PutEnd, S3Bucket, S3Place};
use fencepost_store::{Fate, OpenError, StoreError, Trouble};

use super::payload::Payload;
use super::{PublishError, Receipt, Remembered, WriteRequest, WriteTarget, Written};
use crate::clock;

/// The largest object of one PutObject.
pub const OBJECT_BYTES_MAX: u64 = 5 << 30;

/// The end of the name of a fence. No content may have it.
const FENCE_END: &str = ".fencepost";
const FENCE_BYTES_MAX: usize = 64 * 1024;

/// The metadata that marks the write of a content.
const MARK: &str = "x-amz-meta-fencepost-write";
/// The metadata that holds the digest of a content.
const DIGEST: &str = "x-amz-meta-fencepost-digest";

/// How often another write may come between reading and writing.
const ROUNDS_MAX: usize = 100;
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);
const SETTLE_PAUSE: Duration = Duration::from_millis(300);

/// The object to write, and its headers.
#[derive(Debug)]
pub struct S3Destination {
    bucket: S3Bucket,
    key: String,
    headers: Vec<(String, String)>,
}

impl S3Destination {
    /// Parses `s3://BUCKET/KEY?OPTIONS`. `silence` limits how long the server may say nothing.
    pub fn parse(url: &str, silence: Duration) -> Result<Self, PublishError> {
        let failed = |error: OpenError| match error {
            OpenError::Usage(text) => PublishError::Usage(format!("{text} Nothing was changed.")),
            OpenError::Store(error) => PublishError::Failed(error.detail),
        };
        let place = S3Place::parse(url).map_err(failed)?;
        let key = place.path().to_string();
        let wrong = |why: &str| Err(PublishError::Usage(format!("{url:?} {why}; nothing was changed.")));
        if key.is_empty() {
            return wrong("names no object: write s3://BUCKET/KEY");
        }
        if key.ends_with(FENCE_END) {
            return wrong("has the form of a fence's own name");
        }
        let bucket = S3Bucket::open(place, None).map_err(failed)?.patient(silence);
        Ok(Self { bucket, key, headers: Vec::new() })
    }

    /// Adds a header of the content.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, PublishError> {
        let name = name.to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_sound = !name.is_empty() && name.bytes().all(is_name);
        let is_value = value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && value.trim() == value;
        if !is_sound || !is_value || [MARK, DIGEST].contains(&name.as_str()) {
            let why = format!("{name:?}: {value:?} cannot be a header of the object; nothing was changed.");
            return Err(PublishError::Usage(why));
        }
        self.headers.push((name, value.to_string()));
        Ok(self)
    }

    /// Adds metadata of the user.
    pub fn with_metadata(self, name: &str, value: &str) -> Result<Self, PublishError> {
        self.with_header(&format!("x-amz-meta-{name}"), value)
    }

    /// Returns the name of the object for people.
    pub fn shown(&self) -> String {
        format!("s3://{}/{}", self.bucket.place().bucket_name(), self.key)
    }

    fn fence_key(&self) -> String {
        format!("{}{FENCE_END}", self.key)
    }
}

/// Writes the object, if its fence allows that.
pub fn publish(request: &WriteRequest, to: &S3Destination, payload: &Payload) -> Result<Receipt, PublishError> {
    if payload.length > OBJECT_BYTES_MAX {
        let why = "The content has more than 5 GiB, which one PutObject cannot write; nothing was changed.";
        return Err(PublishError::Usage(why.to_string()));
    }
    super::publish(request, S3Target { to, payload, fence: None, content: None, rounds: 0 })
}

/// One write. The ETags are those of the last look.
struct S3Target<'a> {
    to: &'a S3Destination,
    payload: &'a Payload,
    fence: Option<String>,
    content: Option<String>,
    rounds: usize,
}

/// How a write ended whose answer may have been lost on the way.
enum Settled {
    Done,
    /// Another write came before it; nothing was changed.
    Moved,
}

impl WriteTarget for S3Target<'_> {
    const REPLACES: bool = true;

    fn digest(&self) -> String {
        self.payload.digest.clone()
    }

    /// Looks at the content first: the fence tells of every write that lands after that.
    fn remembered(&mut self) -> Result<Remembered, PublishError> {
        let bucket = &self.to.bucket;
        // If the bucket is missing, the read of the fence says so.
        let content = bucket.look_at(&self.to.key, DIGEST).map_err(failed)?;
        let fence = bucket.read_object(&self.to.fence_key(), FENCE_BYTES_MAX).map_err(failed)?;
        self.content = content.map(|head| head.etag);
        self.fence = fence.as_ref().map(|object| object.etag.clone());
        let line = fence.as_ref().map(|object| object.bytes.split(|byte| *byte == b'\n').next().unwrap_or_default());
        let of = format!("{} (object {})", self.to.shown(), self.to.fence_key());
        Ok(Remembered::decode(line, &of, "Restore it together with the object"))
    }

    fn has_arrived(&mut self, fence: &Fence) -> Result<bool, PublishError> {
        let found = self.to.bucket.look_at(&self.to.key, DIGEST).map_err(failed)?;
        Ok(found.is_some_and(|head| head.metadata.as_deref() == Some(&fence.digest)))
    }

    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            let why =
                format!("{} was written to {ROUNDS_MAX} times by others meanwhile; publish again.", self.to.shown());
            return Err(PublishError::Failed(why));
        }
        // Marks this write.
        let nonce = uuid::Uuid::now_v7().simple().to_string();
        if let Settled::Moved = self.write_fence(&fence, &nonce)? {
            return Ok(Written::Moved);
        }
        match self.write_content(&nonce)? {
            Settled::Done => Ok(Written::Done(fence)),
            Settled::Moved => Ok(Written::Moved),
        }
    }

    fn level(&self) -> Level {
        Level::Gated
    }

    fn remarks(&self) -> Vec<String> {
        let remark = format!(
            "{}: equal contents have the same ETag, so a run that was stopped after it had raised the fence may still \
             replace content that a newer run published unchanged. See docs/publish/s3.md.",
            self.to.shown()
        );
        vec![remark]
    }
}

impl S3Target<'_> {
    /// Swaps the fence. Its nonce gives it an ETag that no other fence has.
    fn write_fence(&self, fence: &Fence, nonce: &str) -> Result<Settled, PublishError> {
        let bytes = [&fence.encode()[..], b"\n", nonce.as_bytes(), b"\n"].concat();
        let key = self.to.fence_key();
        let headers = [("content-type".to_string(), "application/json".to_string())];
        let put = || {
            let ended = self.to.bucket.write_object(
                &key,
                condition(self.fence.as_ref()),
                &headers,
                &mut bytes.as_slice(),
                bytes.len() as u64,
            )?;
            let is_ours =
                || Ok(self.to.bucket.read_object(&key, FENCE_BYTES_MAX)?.is_some_and(|found| found.bytes == bytes));
            settled(&ended, is_ours)
        };
        settle(put).map_err(|error| {
            let state = if error.fate == Fate::NotDone {
                "The object is as it was."
            } else {
                "The object is as it was; the fence may be ahead of it."
            };
            PublishError::Failed(format!("{} {state}", error.detail))
        })
    }

    /// Writes the content, if the object is still the one that was there before.
    fn write_content(&self, nonce: &str) -> Result<Settled, PublishError> {
        let own = [(MARK, nonce), (DIGEST, self.payload.digest.as_str())];
        let own = own.map(|(name, value)| (name.to_string(), value.to_string()));
        let headers = [&self.to.headers[..], &own].concat();
        let put = || {
            let mut reader = self.payload.reader().map_err(|error| {
                let detail = format!("The payload cannot be read again ({error}).");
                StoreError::not_done(Trouble::Refused, detail)
            })?;
            let key = &self.to.key;
            let ended = self.to.bucket.write_object(
                key,
                condition(self.content.as_ref()),
                &headers,
                &mut reader as &mut dyn Read,
                self.payload.length,
            )?;
            let is_ours =
                || Ok(self.to.bucket.look_at(key, MARK)?.is_some_and(|found| found.metadata.as_deref() == Some(nonce)));
            settled(&ended, is_ours)
        };
        settle(put).map_err(|error| {
            let state = match error.fate {
                Fate::NotDone => "The fence is ahead, and the old object is in place: publish again.",
                Fate::Unknown => {
                    "It is NOT KNOWN whether the object was written; it is whole, old or new. Publish again."
                }
            };
            PublishError::Failed(format!("{} {state}", error.detail))
        })
    }
}

fn condition(etag: Option<&String>) -> PutCondition<'_> {
    etag.map_or(PutCondition::Absent, |etag| PutCondition::Matches(etag))
}

/// Interprets the answer to a conditional write. The object that refused it may be its own, if it had arrived before.
fn settled(ended: &PutEnd, is_ours: impl FnOnce() -> Result<bool, StoreError>) -> Result<Settled, StoreError> {
    match ended {
        PutEnd::Written(_) => Ok(Settled::Done),
        PutEnd::Missing => Ok(Settled::Moved),
        PutEnd::Refused => match is_ours() {
            Ok(true) => Ok(Settled::Done),
            Ok(false) => Ok(Settled::Moved),
            Err(error) => Err(StoreError { fate: Fate::Unknown, ..error }),
        },
    }
}

/// Sends a conditional write until its fate is known: of two arrivals only one finds what it expects.
fn settle(put: impl Fn() -> Result<Settled, StoreError>) -> Result<Settled, StoreError> {
    let lost = match put() {
        Err(error) if error.fate == Fate::Unknown => error,
        ended => return ended,
    };
    // The first one may have happened, or may happen yet.
    let give_up = clock::boot_now() + SETTLE_PATIENCE;
    loop {
        match put() {
            Ok(settled) => return Ok(settled),
            Err(_) if clock::boot_now() >= give_up => return Err(lost),
            Err(_) => sleep(SETTLE_PAUSE),
        }
    }
}

fn failed(error: StoreError) -> PublishError {
    PublishError::Failed(error.detail)
}
