//! A bucket: requests that are signed, sent once, and answered in types. The store and `publish s3` share it.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use md5::{Digest, Md5};
use rusty_s3::actions::{GetObject, HeadObject, ListObjectsV2, ListObjectsV2Response, PutObject, S3Action};
use ureq::Agent;
use ureq::http::response::Parts;
use ureq::http::{HeaderMap, Request};

use super::answer::{self, S3Call, S3Error};
use super::credentials::CredentialChain;
use super::environment::AwsEnvironment;
use super::place::S3Place;
use crate::http_client::{Addressed, HttpFailure, SentBody, send_once, store_agent};
use crate::{Answer, Fate, OpenError, Secret, StoreError, Trouble, Wall};

/// How long a signature is valid. The clocks of this host and of the server may differ by as much.
const SIGNATURE_VALID: Duration = Duration::from_secs(900);

/// The limit of an answer to a write: an error body.
const ERROR_BYTES_MAX: u64 = 64 * 1024;

/// The limit of a listing: a thousand of the longest keys, with their surroundings.
const LISTING_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A bucket with the credentials for it.
pub struct S3Bucket {
    place: S3Place,
    agent: Agent,
    chain: CredentialChain,
}

/// An object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Object {
    pub etag: String,
    pub bytes: Vec<u8>,
}

/// An object without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Head {
    pub etag: String,
    headers: HeaderMap,
}

impl S3Head {
    /// A header of the object. Metadata of the user is one with `x-amz-meta-` before its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// The state of the key on which a write depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutCondition<'a> {
    Absent,
    /// The object has this ETag.
    Matches(&'a str),
}

/// An object to write.
pub struct S3Upload<'a> {
    pub key: &'a str,
    pub condition: PutCondition<'a>,
    pub headers: &'a [(String, String)],
    pub body: &'a mut dyn Read,
    pub length: u64,
    /// The body's [`content_md5`]. SeaweedFS 4.48 writes an empty object if the connection ends before the body.
    pub md5: &'a str,
}

impl fmt::Debug for S3Upload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Upload").field("key", &self.key).field("length", &self.length).finish_non_exhaustive()
    }
}

/// The time in which the server accepts a signed request, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedTime {
    pub from: Wall,
    pub valid: Duration,
}

/// How a conditional write ended that the server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutEnd {
    /// The object has this ETag now.
    Written(String),
    /// The condition did not hold.
    Refused,
    /// There is no object, and one was expected.
    Missing,
}

impl fmt::Debug for S3Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl Addressed for S3Bucket {
    fn shown(&self) -> &str {
        self.place.shown()
    }

    /// A server knows no secret that it could repeat: requests are signed.
    fn secrets(&self) -> Vec<&str> {
        Vec::new()
    }
}

impl S3Bucket {
    /// Finds the credentials at the first call. Sends nothing yet.
    pub fn open(place: S3Place, password: Option<&Secret>) -> Result<Self, OpenError> {
        let agent = store_agent(place.is_tls()).build().new_agent();
        Ok(Self { chain: CredentialChain::new(AwsEnvironment::of_process(), password)?, place, agent })
    }

    /// Limits how long the server may be silent, and not how long a call takes: for large objects.
    pub fn patient(mut self, silence: Duration) -> Self {
        let config = store_agent(self.place.is_tls()).max_idle_connections(0).timeout_global(None);
        let config = config.timeout_send_request(Some(silence)).timeout_recv_response(Some(silence));
        self.agent = config.timeout_per_read(Some(silence)).timeout_per_write(Some(silence)).build().new_agent();
        self
    }

    pub fn place(&self) -> &S3Place {
        &self.place
    }

    /// Reads an object of at most `limit` bytes.
    pub(crate) fn get(&self, key: &str, limit: usize) -> Result<Answer<Option<S3Object>>, HttpFailure> {
        let credentials = self.chain.find()?;
        let action = GetObject::new(self.place.bucket(), Some(&credentials), key);
        let reply = self.send(S3Call::Get, action, &[], None, limit as u64 + 1, None)?;
        let found = match reply.case() {
            (200, _) => Some(S3Object { etag: reply.etag()?, bytes: reply.body.clone() }),
            (404, Some("NoSuchKey")) => None,
            _ => return Err(reply.failure()),
        };
        Ok(reply.dated(found))
    }

    /// Writes an object on a condition, once.
    pub(crate) fn put(&self, upload: S3Upload<'_>) -> Result<Answer<PutEnd>, HttpFailure> {
        self.send_put(upload, None)?.put_end()
    }

    fn send_put(&self, upload: S3Upload<'_>, signed: Option<SignedTime>) -> Result<S3Reply, HttpFailure> {
        let credentials = self.chain.find()?;
        let condition = match upload.condition {
            PutCondition::Absent => ("if-none-match".to_string(), "*".to_string()),
            PutCondition::Matches(etag) => ("if-match".to_string(), etag.to_string()),
        };
        let md5 = ("content-md5".to_string(), upload.md5.to_string());
        let headers = [upload.headers, &[condition, md5]].concat();
        let action = PutObject::new(self.place.bucket(), Some(&credentials), upload.key);
        let body = SentBody { reader: upload.body, length: upload.length };
        self.send(S3Call::Put, action, &headers, Some(body), ERROR_BYTES_MAX, signed)
    }

    /// Lists a page of objects.
    pub(super) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        token: Option<&str>,
        limit: usize,
    ) -> Result<ListObjectsV2Response, HttpFailure> {
        let credentials = self.chain.find()?;
        let mut action = ListObjectsV2::new(self.place.bucket(), Some(&credentials));
        action.with_prefix(prefix);
        action.with_max_keys(limit);
        if let Some(token) = token {
            action.with_continuation_token(token);
        } else if let Some(after) = after {
            action.with_start_after(after);
        }
        let reply = self.send(S3Call::List, action, &[], None, LISTING_BYTES_MAX, None)?;
        match reply.case() {
            (200, None) => {
                let text = std::str::from_utf8(&reply.body).ok();
                text.and_then(|text| ListObjectsV2::parse_response(text).ok()).ok_or_else(garbled)
            }
            _ => Err(reply.failure()),
        }
    }

    /// Signs a request and sends it once.
    fn send<'a, A: S3Action<'a>>(
        &self,
        call: S3Call,
        mut action: A,
        headers: &'a [(String, String)],
        body: Option<SentBody<'_>>,
        limit: u64,
        signed: Option<SignedTime>,
    ) -> Result<S3Reply, HttpFailure> {
        for (name, value) in headers {
            action.headers_mut().insert(name.as_str(), value.as_str());
        }
        let url = match signed.map(|signed| (Timestamp::from_millisecond(signed.from.0), signed.valid)) {
            Some((Ok(from), valid)) => action.sign_with_time(valid, &from),
            Some((Err(_), _)) => return Err(garbled()),
            None => action.sign(SIGNATURE_VALID),
        };
        let mut request = Request::builder().method(A::METHOD.to_str()).uri(url.as_str());
        for (name, value) in headers {
            request = request.header(name.as_str(), value.as_str());
        }
        let (head, body) = send_once(&self.agent, request, body, limit)?;
        Ok(S3Reply { call, error: S3Error::parse(&body), head, body })
    }
}

/// The calls of `publish s3`, with errors for people.
impl S3Bucket {
    pub fn read_object(&self, key: &str, limit: usize) -> Result<Answer<Option<S3Object>>, StoreError> {
        self.get(key, limit).map_err(|failure| failure.of_read(self))
    }

    pub fn write_object(&self, upload: S3Upload<'_>) -> Result<PutEnd, StoreError> {
        self.put(upload).map(|answer| answer.value).map_err(|failure| failure.of_swap(self))
    }

    /// Writes an object by a request that the server accepts within this time only. `None` if it arrived too late:
    /// nothing was written.
    pub fn write_object_within(&self, upload: S3Upload<'_>, signed: SignedTime) -> Result<Option<PutEnd>, StoreError> {
        let ended = self.send_put(upload, Some(signed)).and_then(|reply| match &reply.error {
            Some(error) if error.is_late() => Ok(None),
            _ => reply.put_end().map(|answer| Some(answer.value)),
        });
        ended.map_err(|failure| failure.of_swap(self))
    }

    /// Looks at an object without its content. The bucket must be known to exist: an answer without content does not say
    /// what is missing.
    pub fn look_at(&self, key: &str) -> Result<Option<S3Head>, StoreError> {
        let looked = self.chain.find().and_then(|credentials| {
            let action = HeadObject::new(self.place.bucket(), Some(&credentials), key);
            let reply = self.send(S3Call::Get, action, &[], None, ERROR_BYTES_MAX, None)?;
            match reply.case() {
                (200, _) => Ok(Some(S3Head { etag: reply.etag()?, headers: reply.head.headers })),
                (404, _) => Ok(None),
                _ => Err(reply.failure()),
            }
        });
        looked.map_err(|failure| failure.of_read(self))
    }
}

/// An answer of the server.
struct S3Reply {
    call: S3Call,
    head: Parts,
    body: Vec<u8>,
    error: Option<S3Error>,
}

impl S3Reply {
    /// The status, and the code of the error if S3 itself says one.
    fn case(&self) -> (u16, Option<&str>) {
        (self.head.status.as_u16(), self.error.as_ref().map(|error| error.code.as_str()))
    }

    fn failure(&self) -> HttpFailure {
        answer::failure(self.call, self.head.status.as_u16(), &self.head.headers, self.error.as_ref())
    }

    /// How a conditional write ended.
    fn put_end(&self) -> Result<Answer<PutEnd>, HttpFailure> {
        let ended = match self.case() {
            (200, None) => PutEnd::Written(self.etag()?),
            (412, Some(_)) => PutEnd::Refused,
            (404, Some("NoSuchKey")) => PutEnd::Missing,
            _ => return Err(self.failure()),
        };
        Ok(self.dated(ended))
    }

    fn etag(&self) -> Result<String, HttpFailure> {
        header(&self.head.headers, "etag").filter(|etag| !etag.is_empty()).map(String::from).ok_or_else(garbled)
    }

    /// The value with the date of the server that answered.
    fn dated<T>(&self, value: T) -> Answer<T> {
        let date = header(&self.head.headers, "date").and_then(|text| rfc2822::parse(text).ok());
        Answer { value, clock: None, date: date.map(|date| Wall(date.timestamp().as_millisecond())) }
    }
}

/// The value of the header Content-MD5, by which a server refuses a body that arrives changed or cut short.
pub fn content_md5(body: &mut dyn Read) -> io::Result<String> {
    let (mut hash, mut buffer) = (Md5::new(), [0; 16 * 1024]);
    loop {
        match body.read(&mut buffer) {
            Ok(0) => return Ok(STANDARD.encode(hash.finalize())),
            Ok(read) => hash.update(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn garbled() -> HttpFailure {
    let step = "Does the URL name an S3 server, and nothing that stands before it?";
    HttpFailure::new(Fate::Unknown, Trouble::Refused, "did not answer as S3 does", step)
}
