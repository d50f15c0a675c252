//! An S3 object: the fence is an object beside it, swapped first; then the content, on the condition that it is still the
//! object that was there before.
//!
//! The content's ETag is read before the fence is judged. So a write that stops in between fails at the
//! fence if another one landed meanwhile. After that two things keep an old write out: the ETag, which equal contents
//! share on most servers, and the end of the request's signature, which the server judges. The fence lists the writes
//! whose signature has not ended ([`pending`]), and content that one of them expects waits for that.
//!
//! Fence and content are two objects, and the clocks of front ends differ: the level is `gated`.

mod pending;

use std::io::{self, ErrorKind, Read};
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::fence::{Fence, Level};
use fencepost_core::time::{Boot, Wall};
use fencepost_store::s3::{PutCondition, PutEnd, S3Bucket, S3Head, S3Place, S3Upload, SignedTime, content_md5};
use fencepost_store::{Fate, OpenError, StoreError, Trouble};

use self::pending::{FenceTail, PendingWrite};
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

/// The slowest upload, in bytes per second: the signature of a content is valid for as long as that takes.
const SLOWEST: u64 = 128 * 1024;

/// How much longer than the server may be silent fencepost waits for the end of another write, and how often it looks.
const PENDING_PATIENCE: Duration = Duration::from_secs(120);
const PENDING_PAUSE: Duration = Duration::from_secs(1);

/// The object to write, and its headers.
#[derive(Debug)]
pub struct S3Destination {
    bucket: S3Bucket,
    key: String,
    headers: Vec<(String, String)>,
    silence: Duration,
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
        Ok(Self { bucket, key, headers: Vec::new(), silence })
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
    let md5 = payload.reader().and_then(|mut reader| content_md5(&mut reader));
    let md5 = md5.map_err(|error| PublishError::Failed(format!("The payload cannot be read again ({error}).")))?;
    super::publish(request, S3Target { to, payload, md5, look: Look::default(), tries: Tries::default() })
}

/// One write.
struct S3Target<'a> {
    to: &'a S3Destination,
    payload: &'a Payload,
    /// The payload's, by which the server refuses an upload that was cut short.
    md5: String,
    look: Look,
    tries: Tries,
}

/// What the last look found.
#[derive(Default)]
struct Look {
    content: Option<S3Head>,
    fence_etag: Option<String>,
    tail: FenceTail,
    /// The server's date.
    date: Wall,
    /// This host's boot clock before the date was asked for.
    asked: Boot,
}

/// What this process has tried so far.
#[derive(Default)]
struct Tries {
    rounds: usize,
    /// The marks of writes that the server has answered: they do not arrive any more.
    answered: Vec<String>,
    /// The marks of writes without an answer, and since when there are such.
    unanswered: Vec<String>,
    unanswered_since: Option<Boot>,
    /// The fence of this process.
    fence: Option<Fence>,
    has_been_late: bool,
    has_waited: bool,
}

/// How a write ended whose answer may have been lost on the way.
enum Settled {
    Done,
    /// Another write came before it, or it came too late; nothing was changed.
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
        let content = bucket.look_at(&self.to.key).map_err(|error| self.failed(error))?;
        let asked = clock::boot_now();
        let answer = bucket.read_object(&self.to.fence_key(), FENCE_BYTES_MAX).map_err(|error| self.failed(error))?;
        let date = answer.date.unwrap_or_else(clock::wall_now);
        let (etag, bytes) = answer.value.map(|object| (object.etag, object.bytes)).unzip();
        let of = format!("{} (object {})", self.to.shown(), self.to.fence_key());
        let (found, tail) = decode_fence(bytes.as_deref(), &of);
        let mut look = Look { content, fence_etag: etag, tail, date, asked };
        let landed = look.mark().map(String::from);
        look.tail.retain(date, |mark| {
            landed.as_deref() == Some(mark) || self.tries.answered.iter().any(|answered| answered == mark)
        });
        self.look = look;
        Ok(match found {
            Remembered::Fence(fence) if landed.is_some_and(|mark| self.tries.is_own(&mark, &fence)) => {
                Remembered::Landed(fence)
            }
            found => found,
        })
    }

    fn has_arrived(&mut self, fence: &Fence) -> Result<bool, PublishError> {
        let found = self.to.bucket.look_at(&self.to.key).map_err(|error| self.failed(error))?;
        Ok(found.is_some_and(|head| self.is_whole(&head) && head.header(DIGEST) == Some(&fence.digest)))
    }

    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        if let Some(left) = self.look.tail.wait(self.look.date, &self.payload.digest) {
            return self.wait(left);
        }
        self.tries.rounds += 1;
        if self.tries.rounds > ROUNDS_MAX {
            let why =
                format!("{} was written to {ROUNDS_MAX} times by others meanwhile; publish again.", self.to.shown());
            return Err(PublishError::Failed(why));
        }
        // Each request for the content has a mark of its own, so that a mark that has landed cannot land again.
        let mark = uuid::Uuid::now_v7().simple().to_string();
        if let Settled::Moved = self.write_fence(&fence, &mark)? {
            return Ok(Written::Moved);
        }
        self.tries.fence = Some(fence.clone());
        match self.write_content(&mark)? {
            Settled::Done => Ok(Written::Done(fence)),
            Settled::Moved => Ok(Written::Moved),
        }
    }

    fn level(&self) -> Level {
        Level::Gated
    }

    fn remarks(&self) -> Vec<String> {
        let shown = self.to.shown();
        let gated = format!(
            "{shown}: fence and content are two objects. An older write is kept out by the object's ETag and by the end of \
             its signature, which the server judges by its clock. See docs/publish/s3.md."
        );
        let waited = format!("{shown}: an older write of other content might still have arrived; waited for its end.");
        [gated].into_iter().chain(self.tries.has_waited.then_some(waited)).collect()
    }
}

impl Look {
    /// The mark of the write that the content is of.
    fn mark(&self) -> Option<&str> {
        self.content.as_ref()?.header(MARK)
    }
}

impl Tries {
    /// Whether a mark and a fence are those of a write whose answer was lost.
    fn is_own(&self, mark: &str, fence: &Fence) -> bool {
        self.fence.as_ref() == Some(fence) && self.unanswered.iter().any(|own| own == mark)
    }
}

impl S3Target<'_> {
    /// Waits for the end of another write, a second at a time: it may land meanwhile.
    fn wait(&mut self, left: Duration) -> Result<Written, PublishError> {
        if left > self.patience() {
            let why = format!(
                "An unfinished write may still replace this very content of {}, for {} s at most. Nothing was changed: \
                 publish again then.",
                self.to.shown(),
                left.as_secs()
            );
            return Err(PublishError::Failed(why));
        }
        self.tries.has_waited = true;
        sleep(PENDING_PAUSE);
        Ok(Written::Moved)
    }

    /// The longest wait for the end of another write: longer than a small content with the same timeout is valid.
    fn patience(&self) -> Duration {
        2 * self.to.silence + PENDING_PATIENCE
    }

    /// How long the request for the content may take to arrive.
    fn valid(&self) -> Duration {
        2 * self.to.silence + Duration::from_secs(self.payload.length / SLOWEST)
    }

    /// Swaps the fence. Its mark gives it an ETag that no other fence has.
    fn write_fence(&self, fence: &Fence, mark: &str) -> Result<Settled, PublishError> {
        let mut tail = FenceTail { mark: mark.to_string(), ..self.look.tail.clone() };
        tail.pending.extend(self.look.content.as_ref().map(|head| PendingWrite {
            mark: mark.to_string(),
            replaces: head.header(DIGEST).map(String::from),
            until: self.look.date + self.valid(),
        }));
        let tail = serde_json::to_vec(&tail).expect("a list of texts and numbers");
        let bytes = [&fence.encode()[..], b"\n", &tail, b"\n"].concat();
        let md5 = content_md5(&mut bytes.as_slice()).expect("memory can be read");
        let key = self.to.fence_key();
        let headers = [("content-type".to_string(), "application/json".to_string())];
        let put = || {
            let ended = self.to.bucket.write_object(S3Upload {
                key: &key,
                condition: condition(self.look.fence_etag.as_deref()),
                headers: &headers,
                body: &mut bytes.as_slice(),
                length: bytes.len() as u64,
                md5: &md5,
            })?;
            let is_ours = || {
                let found = self.to.bucket.read_object(&key, FENCE_BYTES_MAX)?.value;
                Ok(found.is_some_and(|found| found.bytes == bytes))
            };
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

    /// Writes the content, if the object is still the one that was there before. The request is sent once: another try
    /// has a mark, a signature and an entry in the fence of its own.
    fn write_content(&mut self, mark: &str) -> Result<Settled, PublishError> {
        let deadline = self.look.asked + self.valid();
        if clock::boot_now() >= deadline {
            return self.is_late();
        }
        let ended = self.send_content(mark, deadline);
        let ended = ended.and_then(|ended| ended.map(|ended| settled(&ended, || self.is_in_place(mark))).transpose());
        match ended {
            Ok(settled) => {
                self.tries.answered.push(mark.to_string());
                // The server's clock decides, and its time may end some seconds before the deadline here.
                settled.map_or_else(|| self.is_late(), Ok)
            }
            Err(error) if error.fate == Fate::NotDone => {
                self.tries.answered.push(mark.to_string());
                if clock::boot_now() >= deadline {
                    return self.is_late();
                }
                let state = "The fence is ahead, and the old object is in place: publish again.";
                Err(PublishError::Failed(format!("{} {state}", error.detail)))
            }
            Err(error) => match self.settle_content(mark, error)? {
                Settled::Moved if clock::boot_now() >= deadline => self.is_late(),
                settled => Ok(settled),
            },
        }
    }

    /// `None` if the server says that it came too late.
    fn send_content(&self, mark: &str, deadline: Boot) -> Result<Option<PutEnd>, StoreError> {
        let own = [(MARK, mark), (DIGEST, self.payload.digest.as_str())];
        let own = own.map(|(name, value)| (name.to_string(), value.to_string()));
        let reader = self.payload.reader().map_err(|error| {
            let detail = format!("The payload cannot be read again ({error}).");
            StoreError::not_done(Trouble::Refused, detail)
        })?;
        let upload = S3Upload {
            key: &self.to.key,
            condition: condition(self.look.content.as_ref().map(|head| head.etag.as_str())),
            headers: &[&self.to.headers[..], &own].concat(),
            body: &mut TimelyReader { reader, deadline },
            length: self.payload.length,
            md5: &self.md5,
        };
        self.to.bucket.write_object_within(upload, SignedTime { from: self.look.date, valid: self.valid() })
    }

    fn is_in_place(&self, mark: &str) -> Result<bool, StoreError> {
        let found = self.to.bucket.look_at(&self.to.key)?;
        Ok(found.is_some_and(|head| self.is_whole(&head) && head.header(MARK) == Some(mark)))
    }

    /// Whether an object is as long as the payload.
    fn is_whole(&self, head: &S3Head) -> bool {
        head.header("content-length") == Some(&self.payload.length.to_string())
    }

    /// Looks whether a write without an answer has landed. If not, begins again.
    fn settle_content(&mut self, mark: &str, lost: StoreError) -> Result<Settled, PublishError> {
        let since = *self.tries.unanswered_since.get_or_insert_with(clock::boot_now);
        self.tries.unanswered.push(mark.to_string());
        let give_up = since + SETTLE_PATIENCE;
        loop {
            match self.is_in_place(mark) {
                Ok(true) => return Ok(Settled::Done),
                Ok(false) if clock::boot_now() < give_up => return Ok(Settled::Moved),
                Err(_) if clock::boot_now() < give_up => sleep(SETTLE_PAUSE),
                _ => return Err(self.failed(lost)),
            }
        }
    }

    /// The error of a call, with the state in which an earlier one left the object.
    fn failed(&self, error: StoreError) -> PublishError {
        let is_unknown = !self.tries.unanswered.is_empty();
        let state = " It is NOT KNOWN whether the object was written; it is whole, old or new. Publish again.";
        PublishError::Failed(format!("{}{}", error.detail, if is_unknown { state } else { "" }))
    }

    /// The signature has ended before the content was written. A process that was stopped begins again, and is refused if
    /// a newer one came meanwhile.
    fn is_late(&mut self) -> Result<Settled, PublishError> {
        if std::mem::replace(&mut self.tries.has_been_late, true) {
            let why = format!(
                "The upload to {} took longer than {} s, twice. The fence is ahead, and the old object is in place: publish \
                 again with a longer --timeout.",
                self.to.shown(),
                self.valid().as_secs()
            );
            return Err(PublishError::Failed(why));
        }
        Ok(Settled::Moved)
    }
}

/// Reads the payload until the signature of its request ends. A process that was stopped within an upload does not
/// complete it.
struct TimelyReader<R> {
    reader: R,
    deadline: Boot,
}

impl<R: Read> Read for TimelyReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if clock::boot_now() >= self.deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        self.reader.read(buffer)
    }
}

/// Decodes the two lines of a fence. The second one counts only beside a fence that this fencepost reads: a newer one may
/// write it in another form.
fn decode_fence(bytes: Option<&[u8]>, of: &str) -> (Remembered, FenceTail) {
    let restore = "Restore it together with the object";
    let mut lines = bytes.unwrap_or_default().split(|byte| *byte == b'\n');
    let found = Remembered::decode(bytes.and(lines.next()), of, restore);
    let tail = lines.next().and_then(|line| serde_json::from_slice(line).ok());
    match (found, tail) {
        (Remembered::Fence(_), None) => {
            let damaged = Remembered::unusable(of, &"its second line is damaged", restore, true);
            (damaged, FenceTail::default())
        }
        (found, tail) => (found, tail.unwrap_or_default()),
    }
}

fn condition(etag: Option<&str>) -> PutCondition<'_> {
    etag.map_or(PutCondition::Absent, PutCondition::Matches)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::payload::UNLIMITED;
    use fencepost_core::fence::{StrictFence, WriteMode, judge};
    use fencepost_core::name::{Job, Name};
    use fencepost_core::token::{RunId, StoreId, Token};
    use uuid::Uuid;

    fn fence() -> String {
        let write = fencepost_core::fence::Write {
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(5).unwrap(),
            run: RunId(Uuid::from_u128(5)),
            digest: "sha256:aa".to_string(),
            op: None,
            mode: WriteMode::Many,
            replaces: true,
            adopt: false,
            at: Wall(0),
            host: "h".to_string(),
        };
        let Ok(fencepost_core::fence::FenceVerdict::Accept(fence)) = judge::<StrictFence>(None, &write) else {
            panic!("a first write is accepted")
        };
        String::from_utf8(fence.encode()).unwrap()
    }

    /// Says whether a person may adopt the object away from this fence; `None` if fencepost can read it.
    fn may_be_adopted(text: &str) -> Option<bool> {
        match decode_fence(Some(text.as_bytes()), "the object").0 {
            Remembered::Unusable { may_be_adopted, .. } => Some(may_be_adopted),
            _ => None,
        }
    }

    #[test]
    fn a_damaged_fence_may_be_adopted_and_a_newer_one_never() {
        let tail = serde_json::to_string(&FenceTail { mark: "m".to_string(), pending: Vec::new() }).unwrap();
        let sound = fence();
        let newer = sound.replace("\"v\":1", "\"v\":9");
        assert_ne!(sound, newer);
        for end in ["", "\n", "\n{\"mark\":7}\n", &format!("\n{tail}\n")] {
            assert_eq!(may_be_adopted(&format!("{newer}{end}")), Some(false), "{end:?}");
            assert_eq!(may_be_adopted(&format!("torn{end}")), Some(true), "{end:?}");
            assert_eq!(may_be_adopted(&format!("{sound}{end}")), (!end.contains(&tail)).then_some(true), "{end:?}");
        }
        let (found, read) = decode_fence(Some(format!("{sound}\n{tail}\n").as_bytes()), "the object");
        assert!(matches!(found, Remembered::Fence(_)) && read.mark == "m");
        assert!(matches!(decode_fence(None, "the object").0, Remembered::Nothing));
    }

    #[test]
    fn a_small_content_is_waited_for_with_every_timeout() {
        let payload = Payload::of_stream(&mut &b"small"[..], UNLIMITED).unwrap();
        for seconds in [1, 30, 60, 600] {
            let to = S3Destination::parse("s3://locks/a?region=r", Duration::from_secs(seconds)).unwrap();
            let md5 = String::new();
            let (look, tries) = (Look::default(), Tries::default());
            let target = S3Target { to: &to, payload: &payload, md5, look, tries };
            let until = Wall(0) + target.valid();
            let pending = vec![PendingWrite { mark: String::new(), replaces: None, until }];
            let left = FenceTail { mark: String::new(), pending }.wait(Wall(0), "sha256:aa").unwrap();
            assert!(left < target.patience(), "{left:?} with {seconds} s");
        }
    }
}
