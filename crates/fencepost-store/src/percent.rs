//! Percent-encoding for URLs and headers.

use std::fmt::Write as _;

/// Encodes every byte that is not `plain` as `%` and two upper-case hexadecimal digits.
pub fn encode(text: &str, plain: impl Fn(u8) -> bool) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Decodes percent-encoded text. A `%` without two digits behind it, and bytes that are not UTF-8, are an error.
pub fn decode(text: &str) -> Option<String> {
    let (bytes, is_sound) = decoded(text);
    String::from_utf8(bytes).ok().filter(|_| is_sound)
}

/// Decodes text that people type: a `%` without two digits behind it stands for itself.
pub fn decode_leniently(text: &str) -> String {
    String::from_utf8_lossy(&decoded(text).0).into_owned()
}

/// Returns the decoded bytes, and whether two digits followed every `%`.
fn decoded(text: &str) -> (Vec<u8>, bool) {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    let mut is_sound = true;
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                is_sound = false;
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    (bytes, is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_back() {
        for text in ["", "plain", "a b", "100%", "ü/\"\\\u{1}\n", "https://h/x?a=%20"] {
            let sent = encode(text, |byte| byte.is_ascii_alphanumeric());
            assert!(sent.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'), "{sent}");
            assert_eq!(decode(&sent).as_deref(), Some(text));
        }
        assert_eq!(encode("a&b ü", |byte| byte.is_ascii_alphanumeric()), "a%26b%20%C3%BC");
        for wrong in ["%", "%2", "%zz", "%+1", "%FF", "%ü0"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        assert_eq!(decode_leniently("a%20b%zz%"), "a b%zz%");
    }
}
