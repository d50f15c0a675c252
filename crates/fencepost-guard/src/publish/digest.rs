//! The digest of a payload: SHA-256, as `sha256sum` prints it.

use std::io::{self, Read, Write};

use fencepost_core::artifact::Fingerprint;
use fencepost_core::hex;
use sha2::{Digest, Sha256};

/// How many bytes are read at a time. Payloads may be larger than memory.
const CHUNK_BYTES: usize = 1 << 18;

/// Returns the digest of bytes in memory.
pub fn of(bytes: &[u8]) -> String {
    shown(Sha256::digest(bytes).as_slice())
}

/// Copies everything, and returns its digest and its length.
pub fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<(String, u64)> {
    hashed(from, to).map(|(hash, length)| (shown(&hash), length))
}

/// Reads to the end, and returns the fingerprint and the length.
pub fn fingerprint(from: &mut dyn Read) -> io::Result<(Fingerprint, u64)> {
    hashed(from, &mut io::sink()).map(|(hash, length)| (Fingerprint(hash), length))
}

fn hashed(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<([u8; 32], u64)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut length = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((hash.finalize().into(), length)),
            Ok(read) => {
                hash.update(&buffer[..read]);
                to.write_all(&buffer[..read])?;
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads to the end, and returns the digest.
pub fn read(from: &mut dyn Read) -> io::Result<String> {
    copy(from, &mut io::sink()).map(|(digest, _)| digest)
}

pub(super) fn shown(hash: &[u8]) -> String {
    format!("sha256:{}", hex::encode(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_one_of_sha256sum() {
        let known = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        assert_eq!(of(b"hello"), known);
        let mut copied = Vec::new();
        assert_eq!(copy(&mut &b"hello"[..], &mut copied).unwrap(), (known.to_string(), 5));
        assert_eq!(copied, b"hello");
    }
}
