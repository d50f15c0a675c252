//! Files that a run produced, known by the bytes they had when it ended.

use alloc::string::String;
use core::fmt::{self, Write as _};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::format::Unknown;

/// The SHA-256 of all bytes of a file, as `sha256sum` prints it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "a fingerprint has 64 hexadecimal digits";
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(wrong);
        let mut bytes = [0; 32];
        if text.len() != 64 {
            return Err(wrong);
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        let mut text = Self::with_capacity(64);
        let _ = write!(text, "{fingerprint}");
        text
    }
}

/// A file as a run left it. The path is relative to the configuration's directory where it lies below it, so that it
/// means the same file in every clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Artifact {
    pub path: String,
    pub size: u64,
    pub sha256: Fingerprint,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_written_as_it_is_read() {
        let text = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let fingerprint: Fingerprint = text.parse().unwrap();
        assert_eq!(String::from(fingerprint), text);
        let json = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), fingerprint);
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in ["", "00", "zz", &"g".repeat(64), &"é".repeat(32)] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
