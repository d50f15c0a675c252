//! How stored values are written: JSON that begins with a format number.
//!
//! Format 2 keeps what it does not understand: a field that a later version added is carried along in [`Unknown`] and
//! written back, so versions can work side by side on one store. A later version that changes what an existing field
//! means takes the next number instead, and is refused here in words. `docs/decisions/001-record-format-2.md` has the
//! reasons and the list of fields.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::name::Job;

/// The format of a value in a store. It is read as it was written and always written as [`FORMAT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(transparent)]
pub struct Format(u32);

/// The format this version writes. It also reads [`OLDEST`].
pub const FORMAT: Format = Format(2);

/// The oldest format this version reads.
pub const OLDEST: Format = Format(1);

/// The first bytes of every value in the current format.
const BEGINNING: &[u8] = br#"{"v":2,"#;

impl Format {
    /// The format number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether the value was written before [`FORMAT`].
    pub fn is_old(self) -> bool {
        self < FORMAT
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(FORMAT.0)
    }
}

/// Fields that this version does not know, kept and written back as they were read.
///
/// Types that are compared or copied as plain numbers ([`Covered`](crate::ledger::Covered),
/// [`Process`](crate::record::Process), [`Until`](crate::record::Until), [`Nonce`](crate::token::Nonce)) are closed: a
/// later version adds a field beside them, not in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unknown(BTreeMap<String, serde_json::Value>);

impl Default for Unknown {
    /// Nothing, in what this version writes. The build with the feature `next-version` stands in for a later version: what it
    /// makes has a field that this one does not know.
    fn default() -> Self {
        let mut fields = BTreeMap::new();
        if cfg!(feature = "next-version") {
            fields.insert("next_version".into(), serde_json::json!({ "since": 1 }));
        }
        Self(fields)
    }
}

impl Unknown {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Why stored bytes cannot be decoded. It is never treated as "no record".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    #[error("it was written in format {0}, which this fencepost does not know. Upgrade fencepost on this host.")]
    Newer(u64),
    #[error("it belongs to the job {0}")]
    OtherJob(Job),
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// Encodes a stored value.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("our own types have string keys and no failing serializers")
}

/// Decodes a value of a store.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Unreadable> {
    decode_up_to(FORMAT, bytes)
}

/// Decodes a value in any format up to `newest`. Checks the number first, to tell a newer fencepost's value from a
/// damaged one.
pub fn decode_up_to<T: for<'de> Deserialize<'de>>(newest: Format, bytes: &[u8]) -> Result<T, Unreadable> {
    #[derive(Deserialize)]
    struct Numbered {
        v: u64,
    }
    let damaged = |error: serde_json::Error| Unreadable::Damaged(format!("{error}"));
    // One UTF-8 check of the whole is cheaper than one per string.
    let text = core::str::from_utf8(bytes).map_err(|error| Unreadable::Damaged(format!("{error}")))?;
    // The number comes first. A value in the current format is parsed only once.
    if newest != FORMAT || !bytes.starts_with(BEGINNING) {
        let Numbered { v } = serde_json::from_str(text).map_err(damaged)?;
        if !(u64::from(OLDEST.0)..=u64::from(newest.0)).contains(&v) {
            return Err(Unreadable::Newer(v));
        }
    }
    serde_json::from_str(text).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Value {
        v: Format,
        name: String,
        #[serde(flatten)]
        unknown: Unknown,
    }

    #[test]
    fn a_written_value_begins_with_the_current_format() {
        assert_eq!(BEGINNING, format!("{{\"v\":{FORMAT},").as_bytes());
        let value = Value { v: FORMAT, name: "a".into(), unknown: Unknown(BTreeMap::new()) };
        assert_eq!(encode(&value), br#"{"v":2,"name":"a"}"#);
    }

    #[test]
    fn an_old_value_is_read_and_written_in_the_current_format() {
        let value: Value = decode(br#"{"v":1,"name":"a"}"#).unwrap();
        assert!(value.v.is_old());
        assert_eq!(encode(&value), br#"{"v":2,"name":"a"}"#);
    }

    #[test]
    fn unknown_fields_are_written_back_unchanged() {
        let bytes = br#"{"v":2,"name":"a","later":{"deep":[1,null,"x"]},"more":1.5}"#;
        let value: Value = decode(bytes).unwrap();
        assert!(!value.unknown.is_empty());
        assert_eq!(encode(&value), bytes);
    }

    #[test]
    fn other_formats_and_damage_are_told_apart() {
        for v in [0, 3, 99] {
            let bytes = format!(r#"{{"v":{v},"name":"a"}}"#);
            assert_eq!(decode::<Value>(bytes.as_bytes()), Err(Unreadable::Newer(v)));
        }
        for damaged in [&b"{\"v\":2,\"na"[..], b"", b"\xff", b"{\"name\":\"a\"}", b"{\"v\":2}"] {
            assert!(matches!(decode::<Value>(damaged), Err(Unreadable::Damaged(_))), "{damaged:?}");
        }
    }
}
