//! Bytes as lower-case hexadecimal digits.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// Reads what [`encode`] wrote. Upper-case digits are not accepted, so every value has one spelling.
pub fn decode(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_one_spelling() {
        assert_eq!(encode(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(decode("001fff"), Some(alloc::vec![0, 0x1f, 0xff]));
        assert_eq!(decode(""), Some(Vec::new()));
        for wrong in ["0", "0g", "FF", "+1", "ü"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
