//! The content of an object: a line with the nonce, then the value. An object without a value is shorter than any with
//! one, so a listing tells them apart.

use fencepost_core::hex;

use crate::{StoreError, Swapped, VALUE_BYTES_MAX, Version, fresh_version};

const VALUE: &str = "fencepost 1 value ";
const REMOVED: &str = "fencepost 1 gone ";
const NONCE_DIGITS: usize = 32;

/// The length of the object of a removed key.
pub(super) const TOMBSTONE_BYTES: u64 = (REMOVED.len() + NONCE_DIGITS + 1) as u64;

/// The longest object.
pub(super) const OBJECT_BYTES_MAX: usize = VALUE.len() + NONCE_DIGITS + 1 + VALUE_BYTES_MAX;

pub(super) struct StoredObject {
    /// Hexadecimal digits.
    pub(super) nonce: String,
    /// `None` for a removed key.
    pub(super) value: Option<Vec<u8>>,
}

impl StoredObject {
    pub(super) fn fresh(value: Option<&[u8]>) -> Result<Self, StoreError> {
        Ok(Self { nonce: hex::encode(&fresh_version()?.0), value: value.map(<[u8]>::to_vec) })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let word = if self.value.is_some() { VALUE } else { REMOVED };
        [word.as_bytes(), self.nonce.as_bytes(), b"\n", self.value.as_deref().unwrap_or_default()].concat()
    }

    /// Reads an object back, strictly.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (rest, is_value) = match bytes.strip_prefix(VALUE.as_bytes()) {
            Some(rest) => (rest, true),
            None => (bytes.strip_prefix(REMOVED.as_bytes())?, false),
        };
        let (nonce, rest) = rest.split_at_checked(NONCE_DIGITS)?;
        let value = rest.strip_prefix(b"\n")?;
        let is_sound = nonce.iter().all(u8::is_ascii_hexdigit) && (is_value || value.is_empty());
        let nonce = std::str::from_utf8(nonce).ok().filter(|_| is_sound)?;
        Some(Self { nonce: nonce.to_string(), value: is_value.then(|| value.to_vec()) })
    }

    /// The result of a swap that wrote this object.
    pub(super) fn won(&self, etag: String) -> Swapped {
        Swapped::Won(self.value.as_ref().map(|_| Version(etag.into_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_come_back_and_a_removed_key_is_the_shortest() {
        for value in [None, Some(&b""[..]), Some(b"x\ny")] {
            let object = StoredObject::fresh(value).unwrap();
            let bytes = object.encode();
            let found = StoredObject::decode(&bytes).unwrap();
            assert_eq!((found.nonce, found.value.as_deref()), (object.nonce, value));
            assert_eq!(bytes.len() as u64 == TOMBSTONE_BYTES, value.is_none(), "{value:?}");
            assert!(bytes.len() as u64 >= TOMBSTONE_BYTES);
        }
        let longest = StoredObject::fresh(Some(&[7; VALUE_BYTES_MAX])).unwrap().encode();
        assert_eq!(longest.len(), OBJECT_BYTES_MAX);
        let removed = StoredObject::fresh(None).unwrap().encode();
        for wrong in [&b""[..], b"fencepost 2 value 0", &removed[..20], &[&removed[..], b"x"].concat()] {
            assert!(StoredObject::decode(wrong).is_none(), "{wrong:?}");
        }
    }
}
