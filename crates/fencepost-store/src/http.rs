//! A store behind HTTP. The protocol is `docs/stores/http-protocol.md`: one request per call, never repeated.
//!
//! A proxy, a login page or a cache may answer instead of the store. Only a response with the protocol's headers and
//! the number of this request is an answer. A swap that gets any other response has an unknown fate.

mod answer;
mod failure;
mod pinned;
mod place;

use std::fmt;

use fencepost_core::hex;
use ureq::Agent;
use ureq::http::{Method, Request};

use crate::declared::{Declaring, Property};
use crate::http_client::{HttpFailure, SentBody, send_once, store_agent};
use crate::{
    Answer, Entry, Key, OpenError, SCAN_KEYS_MAX, Secret, Store, StoreError, Swapped, VALUE_BYTES_MAX, Version,
    fresh_version, refuse_unsound,
};
use answer::{About, HttpReply};
use place::HttpPlace;

/// The limit of an answer about one key. An answer of exactly this length counts as too long.
const VALUE_ANSWER_BYTES_MAX: u64 = VALUE_BYTES_MAX as u64 + 1;

/// The limit of a listing: [`SCAN_KEYS_MAX`] of the longest keys.
const LISTING_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// A store that any number of machines reach over HTTP.
pub struct HttpStore {
    place: HttpPlace,
    agent: Agent,
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpStore").field(&self.place).finish()
    }
}

impl HttpStore {
    /// Parses the URL. Sends nothing before the first call.
    pub fn open(url: &str, password: Option<&Secret>) -> Result<Self, OpenError> {
        let place = HttpPlace::parse(url, password)?;
        let agent = match place.pin() {
            // The system's roots are not read: they count for nothing here.
            Some(pin) => pinned::agent(store_agent(false).build(), pin),
            None => store_agent(place.is_tls()).build().new_agent(),
        };
        Ok(Self { place, agent })
    }

    fn look(&self, path: &str) -> Result<HttpReply, StoreError> {
        self.send(Method::GET, path, &[], &[]).map_err(|failure| failure.of_read(&self.place))
    }

    /// Sends one request, once.
    fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<HttpReply, HttpFailure> {
        let number =
            fresh_version().map_err(|_| HttpFailure::unsent("cannot be asked: the system gives no random numbers"))?;
        let number = hex::encode(&number.0);
        let mut request = Request::builder()
            .method(&method)
            .uri(format!("{}{path}", self.place.base()))
            .header("Fencepost-Request", &number)
            .header("Cache-Control", "no-cache");
        if let Some(token) = self.place.token() {
            request = request.header("Authorization", format!("Bearer {}", token.reveal()));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let is_read = method == Method::GET;
        if !is_read {
            request = request.header("Content-Type", "application/octet-stream");
        }
        let limit = if path.starts_with("/v1/keys/") { VALUE_ANSWER_BYTES_MAX } else { LISTING_BYTES_MAX };
        let mut body = body;
        let body = (!is_read).then(|| SentBody::of(&mut body));
        let (head, body) = send_once(&self.agent, request, body, limit)?;
        answer::of(&number, head.status.as_u16(), &head.headers, body)
    }

    /// Makes the failure for an answer that does not belong to this protocol.
    fn confused(&self, reply: &HttpReply) -> HttpFailure {
        HttpFailure::foreign(reply.status, "its answer does not fit what was asked")
    }
}

impl Store for HttpStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let reply = self.look(&format!("/v1/keys/{key}"))?;
        match reply.word.as_str() {
            "entry" | "absent" => reply.entry(),
            _ => Err(self.confused(&reply)),
        }
        .map_err(|failure| failure.of_read(&self.place))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        let expected = expected.map_or_else(|| "none".to_string(), |version| hex::encode(&version.0));
        let makes = if new.is_some() { "value" } else { "none" };
        let headers = [("Fencepost-Expect", expected.as_str()), ("Fencepost-New", makes)];
        self.send(Method::POST, &format!("/v1/keys/{key}"), &headers, new.unwrap_or_default())
            .and_then(|reply| match reply.word.as_str() {
                "won" => reply.won(new.is_some()),
                "lost" => Ok(reply.entry()?.map(Swapped::Lost)),
                _ => Err(self.confused(&reply)),
            })
            .map_err(|failure| failure.of_swap(&self.place))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let after = after.map_or("", Key::as_str);
        let limit = limit.min(SCAN_KEYS_MAX);
        let query = format!("prefix={}&after={}&limit={limit}", place::encoded(prefix), place::encoded(after));
        let reply = self.look(&format!("/v1/keys?{query}"))?;
        match reply.word.as_str() {
            "keys" => reply.keys(),
            _ => Err(self.confused(&reply)),
        }
        .map_err(|failure| failure.of_read(&self.place))
    }
}

impl Declaring for HttpStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        // A server that cannot be reached is an error; a server that declares nothing leaves its properties unknown.
        self.scan("", None, 0)?;
        let about = self.look("/v1/about").ok().and_then(|reply| About::parse(&reply));
        let mut declared = about.map_or_else(About::silent, About::declared);
        declared.push(self.place.transport().declared());
        Ok(declared)
    }
}
