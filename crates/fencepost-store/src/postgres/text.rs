//! Literals for statements, independent of the session's settings.

pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a string constant that means the same under every setting of `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

pub(super) fn bytes(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2 + 16);
    text.push_str("decode('");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push_str("', 'hex')");
    text
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_their_digits() {
        let all: Vec<u8> = (0..=255).collect();
        let digits = bytes(&all);
        let digits = digits.trim_start_matches("decode('").trim_end_matches("', 'hex')");
        assert_eq!(from_hex(digits), Some(all));
        assert_eq!(from_hex(""), Some(Vec::new()));
        assert_eq!((from_hex("a"), from_hex("xy")), (None, None));
    }

    #[test]
    fn a_literal_means_one_thing() {
        assert_eq!(literal(r"it's \ here"), r"E'it''s \\ here'");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }
}
