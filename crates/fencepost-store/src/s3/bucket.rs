//! A bucket: requests that are signed, sent once, and answered in types. The store and `publish s3` share it.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use rusty_s3::actions::{GetObject, HeadObject, ListObjectsV2, ListObjectsV2Response, PutObject, S3Action};
use ureq::Agent;
use ureq::http::response::Parts;
use ureq::http::{HeaderMap, Request};

use super::answer::{self, S3Call, S3Error};
use super::credentials::CredentialChain;
use super::environment::AwsEnvironment;
use super::place::S3Place;
use crate::http_client::{Addressed, HttpFailure, SentBody, send_once, store_agent};
use crate::{Fate, OpenError, Secret, StoreError, Trouble};

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
    /// The user's metadata with this name.
    pub metadata: Option<String>,
}

/// The state of the key on which a write depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutCondition<'a> {
    Absent,
    /// The object has this ETag.
    Matches(&'a str),
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
    pub(crate) fn get(&self, key: &str, limit: usize) -> Result<Option<S3Object>, HttpFailure> {
        let credentials = self.chain.find()?;
        let action = GetObject::new(self.place.bucket(), Some(&credentials), key);
        let (head, bytes) = self.send(action, &[], None, limit as u64 + 1)?;
        match (head.status.as_u16(), S3Error::parse(&bytes)) {
            (200, _) => Ok(Some(S3Object { etag: etag(&head.headers).ok_or_else(garbled)?, bytes })),
            (404, Some(error)) if error.code == "NoSuchKey" => Ok(None),
            (status, error) => Err(answer::failure(S3Call::Get, status, &head.headers, error.as_ref())),
        }
    }

    /// Writes an object on a condition, once.
    pub(crate) fn put(
        &self,
        key: &str,
        condition: PutCondition<'_>,
        headers: &[(String, String)],
        body: &mut dyn Read,
        length: u64,
    ) -> Result<PutEnd, HttpFailure> {
        let credentials = self.chain.find()?;
        let condition = match condition {
            PutCondition::Absent => ("if-none-match".to_string(), "*".to_string()),
            PutCondition::Matches(etag) => ("if-match".to_string(), etag.to_string()),
        };
        let headers = [headers, &[condition]].concat();
        let action = PutObject::new(self.place.bucket(), Some(&credentials), key);
        let (head, body) = self.send(action, &headers, Some(SentBody { reader: body, length }), ERROR_BYTES_MAX)?;
        match (head.status.as_u16(), S3Error::parse(&body)) {
            (200, None) => Ok(PutEnd::Written(etag(&head.headers).ok_or_else(garbled)?)),
            (412, Some(_)) => Ok(PutEnd::Refused),
            (404, Some(error)) if error.code == "NoSuchKey" => Ok(PutEnd::Missing),
            (status, error) => Err(answer::failure(S3Call::Put, status, &head.headers, error.as_ref())),
        }
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
        let (head, body) = self.send(action, &[], None, LISTING_BYTES_MAX)?;
        match (head.status.as_u16(), S3Error::parse(&body)) {
            (200, None) => {
                let parsed = std::str::from_utf8(&body).ok().and_then(|text| ListObjectsV2::parse_response(text).ok());
                parsed.ok_or_else(garbled)
            }
            (status, error) => Err(answer::failure(S3Call::List, status, &head.headers, error.as_ref())),
        }
    }

    /// Signs a request and sends it once.
    fn send<'a, A: S3Action<'a>>(
        &self,
        mut action: A,
        headers: &'a [(String, String)],
        body: Option<SentBody<'_>>,
        limit: u64,
    ) -> Result<(Parts, Vec<u8>), HttpFailure> {
        for (name, value) in headers {
            action.headers_mut().insert(name.as_str(), value.as_str());
        }
        let url = action.sign(SIGNATURE_VALID);
        let mut request = Request::builder().method(A::METHOD.to_str()).uri(url.as_str());
        for (name, value) in headers {
            request = request.header(name.as_str(), value.as_str());
        }
        send_once(&self.agent, request, body, limit)
    }
}

/// The calls of `publish s3`, with errors for people.
impl S3Bucket {
    pub fn read_object(&self, key: &str, limit: usize) -> Result<Option<S3Object>, StoreError> {
        self.get(key, limit).map_err(|failure| failure.of_read(self))
    }

    pub fn write_object(
        &self,
        key: &str,
        condition: PutCondition<'_>,
        headers: &[(String, String)],
        body: &mut dyn Read,
        length: u64,
    ) -> Result<PutEnd, StoreError> {
        self.put(key, condition, headers, body, length).map_err(|failure| failure.of_swap(self))
    }

    /// Looks at an object without its content. The bucket must be known to exist: an answer without content does not say
    /// what is missing.
    pub fn look_at(&self, key: &str, metadata: &str) -> Result<Option<S3Head>, StoreError> {
        let looked = self.chain.find().and_then(|credentials| {
            let action = HeadObject::new(self.place.bucket(), Some(&credentials), key);
            let (head, _) = self.send(action, &[], None, ERROR_BYTES_MAX)?;
            match head.status.as_u16() {
                200 => {
                    let metadata = head.headers.get(metadata).and_then(|value| value.to_str().ok()).map(String::from);
                    Ok(Some(S3Head { etag: etag(&head.headers).ok_or_else(garbled)?, metadata }))
                }
                404 => Ok(None),
                status => Err(answer::failure(S3Call::Get, status, &head.headers, None)),
            }
        });
        looked.map_err(|failure| failure.of_read(self))
    }
}

fn etag(headers: &HeaderMap) -> Option<String> {
    headers.get("etag").and_then(|value| value.to_str().ok()).filter(|etag| !etag.is_empty()).map(String::from)
}

fn garbled() -> HttpFailure {
    let step = "Does the URL name an S3 server, and nothing that stands before it?";
    HttpFailure::new(Fate::Unknown, Trouble::Refused, "did not answer as S3 does", step)
}
