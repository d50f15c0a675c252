//! Parses the answers of etcd's JSON gateway. Refuses every answer that is not complete: a proxy may have given it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{LAYOUT, NONCE_BYTES, STORED_BYTES_MAX};
use crate::declared::{Property, Soundness};
use crate::http_client::HttpFailure;
use crate::{Entry, Fate, Key, Swapped, Trouble, Version};

/// Every answer of etcd begins with a header.
#[derive(Deserialize)]
pub(super) struct Header {
    /// The revision of the whole store. The gateway leaves numbers that are zero away.
    #[serde(default)]
    revision: Option<String>,
    #[serde(rename = "cluster_id")]
    _cluster: String,
}

#[derive(Deserialize)]
pub(super) struct LoginReply {
    #[serde(rename = "header")]
    _header: Header,
    pub(super) token: String,
}

#[derive(Deserialize)]
pub(super) struct RangeReply {
    #[serde(rename = "header")]
    _header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    mod_revision: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
pub(super) struct TxnReply {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<TxnResponse>,
}

/// The result of the one operation of a branch.
#[derive(Deserialize)]
struct TxnResponse {
    response_put: Option<serde::de::IgnoredAny>,
    response_delete_range: Option<serde::de::IgnoredAny>,
    response_range: Option<InnerRange>,
}

#[derive(Deserialize)]
struct InnerRange {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
pub(super) struct MembersReply {
    #[serde(rename = "header")]
    _header: Header,
    #[serde(default)]
    members: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct StatusReply {
    #[serde(rename = "header")]
    _header: Header,
    version: String,
}

/// An answer that carries the header.
pub(super) trait Revised {}
impl Revised for LoginReply {}
impl Revised for RangeReply {}
impl Revised for TxnReply {}
impl Revised for MembersReply {}
impl Revised for StatusReply {}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn parse<T: DeserializeOwned + Revised>(body: &[u8]) -> Result<T, HttpFailure> {
    serde_json::from_slice(body).map_err(|_| garbled())
}

/// Whether the call happened is not known: the answer does not say.
fn garbled() -> HttpFailure {
    let step = "Does the URL name an etcd server of version 3.4 or newer, and nothing that stands before it?";
    HttpFailure::new(Fate::Unknown, Trouble::Refused, "did not answer as etcd does", step)
}

fn corrupt(key: &[u8], why: &str) -> HttpFailure {
    let what = format!("is not a sound fencepost store: the key {:?} {why}", String::from_utf8_lossy(key));
    HttpFailure::new(Fate::NotDone, Trouble::Corrupt, what, "Another program uses the same prefix: choose another.")
}

impl KeyValue {
    fn entry(&self) -> Result<Entry, HttpFailure> {
        let (Ok(key), Ok(stored)) = (STANDARD.decode(&self.key), STANDARD.decode(&self.value)) else {
            return Err(garbled());
        };
        let revision: u64 = self.mod_revision.parse().map_err(|_| garbled())?;
        match stored.split_at_checked(NONCE_BYTES) {
            Some((nonce, [LAYOUT, bytes @ ..])) if stored.len() <= STORED_BYTES_MAX => {
                Ok(Entry { bytes: bytes.to_vec(), version: version_of(revision, nonce) })
            }
            Some((_, [layout, ..])) if *layout > LAYOUT && stored.len() <= STORED_BYTES_MAX => {
                Err(corrupt(&key, "was written by a newer fencepost, or by another program"))
            }
            _ => Err(corrupt(&key, "holds a value that fencepost did not write")),
        }
    }
}

fn one(kvs: &[KeyValue]) -> Result<Option<Entry>, HttpFailure> {
    match kvs {
        [] => Ok(None),
        [one] => one.entry().map(Some),
        _ => Err(garbled()),
    }
}

impl RangeReply {
    pub(super) fn entry(&self) -> Result<Option<Entry>, HttpFailure> {
        one(&self.kvs)
    }

    pub(super) fn keys(&self, prefix: &str) -> Result<Vec<Key>, HttpFailure> {
        let key = |found: &KeyValue| {
            let stored = STANDARD.decode(&found.key).map_err(|_| garbled())?;
            let text = std::str::from_utf8(&stored).ok();
            let name = text.and_then(|text| text.strip_prefix(prefix)?.strip_prefix('/'));
            name.and_then(Key::from_stored).ok_or_else(|| corrupt(&stored, "is not one that fencepost can have made"))
        };
        self.kvs.iter().map(key).collect()
    }
}

impl TxnReply {
    /// The result of a swap that would write under `nonce`, or remove.
    pub(super) fn ended(&self, nonce: Option<&Version>) -> Result<Swapped, HttpFailure> {
        let [response] = self.responses.as_slice() else { return Err(garbled()) };
        match (self.succeeded, nonce, response) {
            (true, Some(nonce), TxnResponse { response_put: Some(_), .. }) => {
                let revision = self.header.revision.as_ref().and_then(|text| text.parse().ok()).ok_or_else(garbled)?;
                Ok(Swapped::Won(Some(version_of(revision, &nonce.0))))
            }
            (true, None, TxnResponse { response_delete_range: Some(_), .. }) => Ok(Swapped::Won(None)),
            // A removal of what is not there, expected as such.
            (false, _, TxnResponse { response_range: Some(found), .. }) => Ok(Swapped::Lost(one(&found.kvs)?)),
            _ => Err(garbled()),
        }
    }
}

fn version_of(revision: u64, nonce: &[u8]) -> Version {
    Version([&revision.to_be_bytes(), nonce].concat())
}

/// Splits a version into the revision and the nonce. A version of another store has no state here: no key has the
/// revision that it gives.
pub(super) fn parts(version: &Version) -> (u64, &[u8]) {
    match version.0.split_first_chunk() {
        Some((revision, nonce)) => (u64::from_be_bytes(*revision).min(i64::MAX.unsigned_abs()), nonce),
        None => (i64::MAX.unsigned_abs(), &[]),
    }
}

/// What the number of members means for the promises.
pub(super) fn replication(members: Option<MembersReply>) -> Property {
    let (standing, detail) = match members.map(|reply| reply.members.len()) {
        None | Some(0) => (Soundness::Unknown, "The members of the cluster could not be listed.".to_string()),
        Some(1) => (Soundness::Sound, "One member: while it is down no lease is granted or renewed.".to_string()),
        Some(count) => {
            let spare = (count - 1) / 2;
            let detail = format!("{count} members agree on every swap by Raft; {spare} of them may fail.");
            (Soundness::Sound, detail)
        }
    };
    Property::new("replication", standing, detail)
}

/// Warns of versions that are known to lose data.
pub(super) fn version(status: StatusReply) -> Option<Property> {
    let is_lossy = ["3.5.0", "3.5.1", "3.5.2"].contains(&status.version.as_str());
    let detail = format!(
        "etcd {} may lose acknowledged writes when a member crashes under load; 3.5.3 has the repair. Upgrade it.",
        status.version
    );
    is_lossy.then(|| Property::new("version", Soundness::Weak, detail))
}
