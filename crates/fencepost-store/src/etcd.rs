//! etcd, through its JSON gateway: one transaction per call.
//!
//! A value begins with a nonce. A version is the key's mod revision with that nonce, and a transaction compares both: a
//! cluster that was restored from a snapshot counts its revisions again, and the nonce tells the two apart.
//!
//! There is no clock, and etcd's own leases are not used: an observer has to watch a lease for a whole time-to-live.

mod answer;
mod failure;
mod place;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request;

use crate::declared::{Declaring, Property, Soundness};
use crate::http_client::{HttpFailure, SentBody, send_once, store_agent};
use crate::{
    Answer, Entry, Key, OpenError, SCAN_KEYS_MAX, Secret, Store, StoreError, Swapped, VALUE_BYTES_MAX, Version,
    fresh_version, refuse_unsound,
};
use answer::{LoginReply, RangeReply, Revised, TxnReply, base64};
use place::EtcdPlace;

/// The time limit for connections, shared by all endpoints of the URL.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The limit of an answer: a listing of the longest keys, or a value in base64 with its surroundings.
const ANSWER_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// The layout of a value, between the nonce and the bytes. Values of other layouts compare below or above it.
const LAYOUT: u8 = 1;
const NONCE_BYTES: usize = 16;

/// The keys of an etcd cluster below a prefix.
pub struct EtcdStore {
    place: EtcdPlace,
    agent: Agent,
    /// The endpoint that is tried first: the one that answered last.
    first: AtomicUsize,
    /// The token of the last login. Servers forget it after minutes, and when they restart.
    token: Mutex<Option<Secret>>,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdStore").field(&self.place).finish()
    }
}

impl EtcdStore {
    /// Parses the URL and reads the certificates that it names. Sends nothing before the first call.
    pub fn open(url: &str, password: Option<&Secret>) -> Result<Self, OpenError> {
        let place = EtcdPlace::parse(url, password)?;
        let patience = CONNECT_PATIENCE / u32::try_from(place.endpoints.len()).unwrap_or(1).max(1);
        let mut config = store_agent(false).timeout_connect(Some(patience));
        if let Some(tls) = place.tls()? {
            config = config.tls_config(tls);
        }
        Ok(Self { place, agent: config.build().new_agent(), first: AtomicUsize::new(0), token: Mutex::new(None) })
    }

    /// Sends a request to one endpoint, once. The next endpoint gets it only if there was no connection to this one.
    fn send(&self, path: &str, body: &Value, token: Option<&Secret>) -> Result<Vec<u8>, HttpFailure> {
        let endpoints = &self.place.endpoints;
        let body = body.to_string();
        let first = self.first.load(Ordering::Relaxed);
        let mut unsent = None;
        for step in 0..endpoints.len() {
            let at = (first + step) % endpoints.len();
            let mut request =
                Request::post(format!("{}{path}", endpoints[at])).header("Content-Type", "application/json");
            if let Some(token) = token {
                request = request.header("Authorization", token.reveal());
            }
            let answered = send_once(&self.agent, request, Some(SentBody::of(&mut body.as_bytes())), ANSWER_BYTES_MAX);
            let answered = answered.and_then(|(head, body)| match head.status.as_u16() {
                200 => Ok(body),
                status => Err(failure::told(status, &body)),
            });
            match answered {
                Err(failure) if failure.is_unsent => unsent = Some(failure),
                answered => {
                    // A member that did not answer, or has no leader, is not asked first the next time.
                    let is_well = answered.as_ref().err().is_none_or(failure::is_of_the_request);
                    self.first.store(if is_well { at } else { (at + 1) % endpoints.len() }, Ordering::Relaxed);
                    return answered;
                }
            }
        }
        Err(unsent.unwrap_or_else(|| HttpFailure::unsent("names no endpoint")))
    }

    /// Makes a call, after a login where the URL names a user. A token that the server does not know any more was
    /// refused before anything was done, so the call is sent once again with a new one.
    fn call<T: DeserializeOwned + Revised>(&self, path: &str, body: &Value) -> Result<T, HttpFailure> {
        let answered = match self.login(false)? {
            None => self.send(path, body, None),
            Some(token) => match self.send(path, body, Some(&token)) {
                Err(failure) if failure::is_forgotten_login(&failure) => {
                    self.send(path, body, self.login(true)?.as_ref())
                }
                answered => answered,
            },
        };
        answer::parse(&answered?)
    }

    /// Returns the token of the user, if the URL names one.
    fn login(&self, anew: bool) -> Result<Option<Secret>, HttpFailure> {
        let Some((user, password)) = &self.place.user else { return Ok(None) };
        let mut known = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if anew {
            *known = None;
        }
        if let Some(token) = known.as_ref() {
            return Ok(Some(token.clone()));
        }
        drop(known);
        let body = json!({"name": user, "password": password.reveal()});
        // A login changes nothing: a swap that could not be preceded by one was not made.
        let answered = self.send("/v3/auth/authenticate", &body, None);
        let login: LoginReply = answered.and_then(|body| answer::parse(&body)).map_err(failure::of_login)?;
        let token = Secret::new(login.token);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(Some(token))
    }

    fn stored_key(&self, key: &str) -> Vec<u8> {
        format!("{}/{key}", self.place.prefix).into_bytes()
    }

    fn range(&self, body: &Value) -> Result<RangeReply, StoreError> {
        self.call("/v3/kv/range", body).map_err(|failure| failure.of_read(&self.place))
    }
}

impl Store for EtcdStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let found = self.range(&json!({"key": base64(&self.stored_key(key.as_str()))}))?;
        let value = found.entry().map_err(|failure| failure.of_read(&self.place))?;
        Ok(Answer::new(value, None))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        let stored = base64(&self.stored_key(key.as_str()));
        let nonce = fresh_version()?;
        let done = match new {
            Some(bytes) => {
                let value = [&nonce.0, &[LAYOUT][..], bytes].concat();
                json!({"request_put": {"key": stored, "value": base64(&value)}})
            }
            None => json!({"request_delete_range": {"key": stored}}),
        };
        let body = json!({
            "compare": conditions(&stored, expected),
            "success": [done],
            "failure": [{"request_range": {"key": stored}}],
        });
        let ended = self.call("/v3/kv/txn", &body).and_then(|reply: TxnReply| reply.ended(new.map(|_| &nonce)));
        Ok(Answer::new(ended.map_err(|failure| failure.of_swap(&self.place))?, None))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let least = match after {
            // The smallest key behind `after`.
            Some(after) if after.as_str() >= prefix => [&self.stored_key(after.as_str()), &[0][..]].concat(),
            _ => self.stored_key(prefix),
        };
        // Keys are ASCII, so the greatest byte bounds the keys with a prefix from above.
        let most = [&self.stored_key(prefix), &[0xff][..]].concat();
        // A limit of 0 would be none.
        let limit = limit.min(SCAN_KEYS_MAX);
        let found = self.range(&json!({
            "key": base64(&least), "range_end": base64(&most), "limit": limit.max(1).to_string(), "keys_only": true,
        }))?;
        let mut keys = found.keys(&self.place.prefix).map_err(|failure| failure.of_read(&self.place))?;
        keys.truncate(limit);
        Ok(Answer::new(keys, None))
    }
}

/// The conditions of a transaction: the key is in the expected state.
fn conditions(stored: &str, expected: Option<&Version>) -> Value {
    let revision = |revision: u64| json!({"key": stored, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()});
    let Some((number, nonce)) = expected.map(answer::parts) else { return json!([revision(0)]) };
    let bound = |result: &str, layout: u8| {
        let value = base64(&[nonce, &[layout]].concat());
        json!({"key": stored, "target": "VALUE", "result": result, "value": value})
    };
    json!([revision(number), bound("GREATER", LAYOUT - 1), bound("LESS", LAYOUT + 1)])
}

impl Declaring for EtcdStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        // A cluster that cannot be reached is an error; one that denies the query leaves its properties unknown.
        self.scan("", None, 0)?;
        let clock = "There is no clock: a lease whose holder died ends once an observer has watched it for a whole time-to-live.";
        let durability = "etcd flushes its log on a majority of its members before it answers. A member started with \
                          --unsafe-no-fsync does not, and cannot be asked about it.";
        let mut declared = vec![
            Property::new("durability", Soundness::Sound, durability),
            answer::replication(self.call("/v3/cluster/member/list", &json!({})).ok()),
            Property::new("clock", Soundness::Sound, clock),
        ];
        declared.extend(self.call("/v3/maintenance/status", &json!({})).ok().and_then(answer::version));
        declared.push(self.place.transport.declared());
        Ok(declared)
    }
}

/// The most bytes of a value as it is stored.
const STORED_BYTES_MAX: usize = NONCE_BYTES + 1 + VALUE_BYTES_MAX;
