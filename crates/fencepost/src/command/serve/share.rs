//! The store protocol, `docs/stores/http-protocol.md`, over a database that only this server opens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fencepost_core::hex;
use fencepost_store::percent;
use fencepost_store::{
    Answer, Declaring, Entry, Fate, Key, SCAN_KEYS_MAX, SharedStore, Soundness, Store, StoreClock, StoreError, Swapped,
    Trouble, VALUE_BYTES_MAX, Version,
};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::access::Caller;
use super::form::{self, BodyTrouble};
use super::reply::{self, ServeReply};

/// Requests of one client in a burst. The check of a store makes thousands.
const BURST: f64 = 20_000.0;

/// Seconds after which a client may send a whole burst again.
const BURST_SECONDS: f64 = 20.0;

const KEY_BYTES_MAX: usize = 1024;
const VERSION_BYTES_MAX: usize = 64;

const REQUEST: HeaderName = HeaderName::from_static("fencepost-request");
const ANSWER: HeaderName = HeaderName::from_static("fencepost-answer");
const VERSION: HeaderName = HeaderName::from_static("fencepost-version");
const CLOCK: HeaderName = HeaderName::from_static("fencepost-clock");
const EXPECT: HeaderName = HeaderName::from_static("fencepost-expect");
const NEW: HeaderName = HeaderName::from_static("fencepost-new");

/// The shared store, and how often each client has asked.
#[derive(Debug)]
pub struct Share {
    store: Arc<SharedStore>,
    burst: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

/// How many requests a client may make now.
#[derive(Debug)]
struct Bucket {
    room: f64,
    at: Instant,
}

fn burst() -> f64 {
    // A test would have to send tens of thousands. Release builds do not read this variable.
    #[cfg(debug_assertions)]
    if let Some(burst) = std::env::var("FENCEPOST_TEST_SHARE_BURST").ok().and_then(|text| text.parse().ok()) {
        return burst;
    }
    BURST
}

/// A failure in the words of the protocol.
#[derive(Debug)]
struct ShareRefusal {
    code: &'static str,
    status: StatusCode,
    message: String,
    fate: Fate,
}

impl ShareRefusal {
    fn new(code: &'static str, status: StatusCode, message: impl Into<String>) -> Self {
        Self { code, status, message: message.into(), fate: Fate::NotDone }
    }

    fn bad(message: &str) -> Self {
        Self::new("bad_request", StatusCode::BAD_REQUEST, message)
    }
}

impl From<StoreError> for ShareRefusal {
    fn from(error: StoreError) -> Self {
        let (code, status) = match (error.trouble, error.fate) {
            (Trouble::Refused, Fate::NotDone) => ("full", StatusCode::INSUFFICIENT_STORAGE),
            _ => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        };
        Self { code, status, message: error.detail, fate: error.fate }
    }
}

/// An answer in the words of the protocol.
struct Told {
    word: &'static str,
    status: StatusCode,
    version: Option<String>,
    clock: Option<StoreClock>,
    body: Vec<u8>,
}

impl Share {
    pub fn new(store: SharedStore) -> Self {
        Self { store: Arc::new(store), burst: burst(), buckets: Mutex::default() }
    }

    /// Answers a request below `/v1/`. The token is looked at before anything else.
    pub async fn answer(&self, caller: &Caller, request: Request<Incoming>) -> ServeReply {
        let number = request.headers().get(REQUEST).filter(|number| is_number(number)).cloned();
        let reply = match self.told(caller, number.is_some(), request).await {
            Ok(told) => told.reply(),
            Err(refusal) => refused(&refusal),
        };
        let mut reply = reply;
        let headers = reply.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
        headers.extend(number.map(|number| (REQUEST, number)));
        reply
    }

    async fn told(&self, caller: &Caller, has_number: bool, request: Request<Incoming>) -> Result<Told, ShareRefusal> {
        let Caller::Bearer(client) = caller else {
            return Err(ShareRefusal::new("unauthorized", StatusCode::UNAUTHORIZED, "The token is missing or wrong."));
        };
        self.count(&client.name)?;
        let path = request.uri().path().to_string();
        let place = path.strip_prefix("/v1/").unwrap_or_default();
        let is_known = place == "about" || place == "keys" || place.starts_with("keys/");
        if !is_known {
            return Err(ShareRefusal::new("no_such_place", StatusCode::NOT_FOUND, "The path is none of the protocol."));
        }
        if !has_number {
            return Err(ShareRefusal::bad(
                "The header Fencepost-Request is missing, or is not 1 to 64 hexadecimal digits.",
            ));
        }
        match (request.method(), place.strip_prefix("keys/")) {
            (&Method::GET, None) if place == "about" => self.about().await,
            (&Method::GET, None) => self.keys(request.uri().query().unwrap_or_default()).await,
            (&Method::GET, Some(text)) => self.read(key(text)?).await,
            (&Method::POST, Some(text)) => {
                let (key, (head, body)) = (key(text)?, request.into_parts());
                self.swap(key, &head.headers, body).await
            }
            _ => Err(ShareRefusal::new(
                "method_not_allowed",
                StatusCode::METHOD_NOT_ALLOWED,
                "This place takes another method.",
            )),
        }
    }

    /// Refuses a client that asks too often.
    fn count(&self, client: &str) -> Result<(), ShareRefusal> {
        let (mut buckets, now) = (self.buckets.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let bucket = buckets.entry(client.to_string()).or_insert(Bucket { room: self.burst, at: now });
        let grown = bucket.room + now.duration_since(bucket.at).as_secs_f64() * self.burst / BURST_SECONDS;
        (bucket.room, bucket.at) = (grown.min(self.burst), now);
        if bucket.room < 1.0 {
            return Err(ShareRefusal::new(
                "too_many",
                StatusCode::TOO_MANY_REQUESTS,
                "Asked too often; nothing was done.",
            ));
        }
        bucket.room -= 1.0;
        Ok(())
    }

    /// Calls the store on a thread. A call that was begun ends also if its client is gone.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&SharedStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ShareRefusal> {
        let store = Arc::clone(&self.store);
        let called = tokio::task::spawn_blocking(move || call(&store)).await;
        let gone = |_| StoreError::unknown(Trouble::Unavailable, "The server failed while it asked its database.");
        Ok(called.map_err(gone)??)
    }

    async fn read(&self, key: Key) -> Result<Told, ShareRefusal> {
        let Answer { value, clock, .. } = self.call(move |store| store.read(&key)).await?;
        Ok(Told::of_entry(value, clock, ("entry", StatusCode::OK), ("absent", StatusCode::NOT_FOUND)))
    }

    async fn swap(&self, key: Key, headers: &HeaderMap, body: Incoming) -> Result<Told, ShareRefusal> {
        let expected = match text(headers, &EXPECT) {
            Some("none") => None,
            Some(digits) => {
                Some(version(digits).ok_or_else(|| ShareRefusal::bad("Fencepost-Expect is not a version."))?)
            }
            None => return Err(ShareRefusal::bad("The header Fencepost-Expect is missing.")),
        };
        let is_removal = match text(headers, &NEW) {
            Some("value") => false,
            Some("none") => true,
            _ => return Err(ShareRefusal::bad("The header Fencepost-New is missing; it is value or none.")),
        };
        let value = form::body(body, VALUE_BYTES_MAX).await.map_err(|trouble| match trouble {
            BodyTrouble::TooLarge => {
                let message = format!("A value may have {VALUE_BYTES_MAX} bytes; nothing was done.");
                ShareRefusal::new("too_large", StatusCode::PAYLOAD_TOO_LARGE, message)
            }
            BodyTrouble::Incomplete => ShareRefusal::bad("The body is not complete; nothing was done."),
        })?;
        if is_removal && !value.is_empty() {
            return Err(ShareRefusal::bad("A removal has no body."));
        }
        let swap = move |store: &SharedStore| {
            let new = (!is_removal).then_some(value.as_ref());
            store.swap(&key, expected.as_ref(), new)
        };
        let Answer { value, clock, .. } = self.call(swap).await?;
        Ok(match value {
            Swapped::Won(version) => {
                let version = version.map_or_else(|| "none".to_string(), |version| hex::encode(&version.0));
                Told { word: "won", status: StatusCode::OK, version: Some(version), clock, body: Vec::new() }
            }
            Swapped::Lost(current) => {
                let lost = ("lost", StatusCode::CONFLICT);
                Told::of_entry(current, clock, lost, lost)
            }
        })
    }

    async fn keys(&self, query: &str) -> Result<Told, ShareRefusal> {
        let (mut prefix, mut after, mut limit) = (String::new(), None, SCAN_KEYS_MAX);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                percent::decode(value).ok_or_else(|| ShareRefusal::bad("A parameter is not percent-encoded."))?;
            match name {
                "prefix" => prefix = value,
                "after" if value.is_empty() => {}
                "after" => after = Some(key(&value)?),
                "limit" => {
                    let number: usize = value.parse().map_err(|_| ShareRefusal::bad("limit is not a whole number."))?;
                    limit = number.min(SCAN_KEYS_MAX);
                }
                _ => {}
            }
        }
        let Answer { value, clock, .. } = self.call(move |store| store.scan(&prefix, after.as_ref(), limit)).await?;
        let body = value.iter().map(|key| format!("{key}\n")).collect::<String>().into_bytes();
        Ok(Told { word: "keys", status: StatusCode::OK, version: None, clock, body })
    }

    async fn about(&self) -> Result<Told, ShareRefusal> {
        let declared = self.call(|store| store.declared()).await?;
        let line = |property: &fencepost_store::Property| {
            let standing = match property.standing {
                Soundness::Sound => "sound",
                Soundness::Weak => "weak",
                Soundness::Unsound => "unsound",
                Soundness::Unknown => "unknown",
            };
            json!({ "name": property.name, "standing": standing, "detail": property.detail })
        };
        let declares: Vec<Value> = declared.iter().map(line).collect();
        let server = concat!("fencepost serve ", env!("CARGO_PKG_VERSION"));
        let body = json!({ "protocol": 1, "server": server, "declares": declares }).to_string().into_bytes();
        Ok(Told { word: "about", status: StatusCode::OK, version: None, clock: None, body })
    }
}

impl Told {
    /// What stands under a key, or that nothing does.
    fn of_entry(
        entry: Option<Entry>,
        clock: Option<StoreClock>,
        present: (&'static str, StatusCode),
        absent: (&'static str, StatusCode),
    ) -> Self {
        let (word, status) = if entry.is_some() { present } else { absent };
        let version = entry.as_ref().map_or_else(|| "none".to_string(), |entry| hex::encode(&entry.version.0));
        Self { word, status, version: Some(version), clock, body: entry.map_or_else(Vec::new, |entry| entry.bytes) }
    }

    fn reply(self) -> ServeReply {
        let kind = if self.word == "about" { "application/json" } else { "application/octet-stream" };
        let mut reply = reply::with_header(reply::whole(self.status, kind, self.body), ANSWER, self.word);
        if let Some(version) = &self.version {
            reply = reply::with_header(reply, VERSION, version);
        }
        if let Some(StoreClock { wall, era, tick }) = &self.clock {
            reply = reply::with_header(reply, CLOCK, &format!("wall={}; tick={tick}; era={}", wall.0, era.0));
        }
        reply
    }
}

fn refused(refusal: &ShareRefusal) -> ServeReply {
    let fate = if refusal.fate == Fate::NotDone { "not-done" } else { "unknown" };
    let body = json!({ "error": { "code": refusal.code, "message": refusal.message, "fate": fate } });
    let reply = reply::with_header(reply::value(refusal.status, &body), ANSWER, "error");
    match refusal.code {
        "too_many" => reply::with_header(reply, header::RETRY_AFTER, "1"),
        "unauthorized" => reply::with_header(reply, header::WWW_AUTHENTICATE, "Bearer realm=\"fencepost\""),
        _ => reply,
    }
}

fn key(text: &str) -> Result<Key, ShareRefusal> {
    Key::from_stored(text)
        .filter(|_| text.len() <= KEY_BYTES_MAX)
        .ok_or_else(|| ShareRefusal::bad("This is not a key."))
}

fn version(digits: &str) -> Option<Version> {
    let bytes = hex::decode(digits)?;
    (!bytes.is_empty() && bytes.len() <= VERSION_BYTES_MAX).then_some(Version(bytes))
}

/// A header that is there once.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    only.to_str().ok()
}

fn is_number(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=64).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_hexdigit)
}
