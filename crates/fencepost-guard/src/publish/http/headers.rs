//! The headers of a write: the writer, its token, and the key by which the server recognises a repetition.

use fencepost_core::fence::{Write, WriteMode};
use fencepost_store::percent;

use crate::publish::PublishError;

/// Headers that only fencepost sets, or that would put a secret into the command line.
const RESERVED: [&str; 9] = [
    "idempotency-key",
    "content-length",
    "content-type",
    "transfer-encoding",
    "host",
    "connection",
    "authorization",
    "proxy-authorization",
    "cookie",
];

/// Returns the protocol's headers of a write.
pub(super) fn of_write(write: &Write, resource: &str, key: &str) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("Idempotency-Key", key.to_string()),
        ("Fencepost-Resource", encoded(resource, "")),
        ("Fencepost-Store", write.store.to_string()),
        ("Fencepost-Job", write.job.to_string()),
        ("Fencepost-Token", write.token.to_string()),
        ("Fencepost-Run", write.run.to_string()),
        ("Fencepost-Host", encoded(&write.host, "")),
        ("Fencepost-Mode", write.mode.as_str().to_string()),
        ("Fencepost-Digest", write.digest.clone()),
    ];
    headers.extend(write.op.as_ref().map(|op| ("Fencepost-Op", encoded(op, ""))));
    headers.extend(write.adopt.then(|| ("Fencepost-Adopt", "1".to_string())));
    headers
}

/// Returns the key of a write, as a structured field string. It is the same for every try of one write.
///
/// A named operation is one work item: it has the same key in every run of its slot. In mode *once* a token and a
/// payload are one. Otherwise every publish is intended, even of the same bytes, and has a unique key.
pub(super) fn idempotency_key(write: &Write, slot: Option<&str>) -> String {
    let Write { job, token, digest, op, mode, .. } = write;
    let key = match (op, mode) {
        (Some(op), _) => {
            let item = slot.map_or_else(|| token.to_string(), ToString::to_string);
            format!("{job}/{item}/{}", encoded(op, "/"))
        }
        (None, WriteMode::Once) => format!("{job}/{token}/{digest}"),
        (None, WriteMode::Many) => format!("{job}/{token}/{digest}/{}", uuid::Uuid::now_v7().simple()),
    };
    format!("\"{key}\"")
}

/// Refuses headers that a caller may not set.
pub(super) fn check(headers: &[(String, String)]) -> Result<(), PublishError> {
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        let usage = |why: &str| Err(PublishError::Usage(format!("--header {name:?}: {why}. Nothing was sent.")));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            return usage("that is not the name of a header; write it like 'Name: value'");
        }
        if value.bytes().any(|byte| byte < 0x20 && byte != b'\t' || byte >= 0x7f) {
            return usage("its value holds characters that cannot stand in a header");
        }
        if matches!(lower.as_str(), "authorization" | "proxy-authorization" | "cookie") {
            return usage("every user who lists processes sees a command line; use --bearer-file for a secret");
        }
        if lower.starts_with("fencepost-") || RESERVED.contains(&lower.as_str()) {
            return usage("fencepost sets that header itself");
        }
    }
    Ok(())
}

/// Encodes a text as visible ASCII: everything else, the per cent sign, quotes, backslashes and `also` are
/// percent-encoded.
fn encoded(text: &str, also: &str) -> String {
    let plain = |byte| (0x21..=0x7e).contains(&byte) && !b"%\"\\".contains(&byte) && !also.as_bytes().contains(&byte);
    percent::encode(text, plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::http::answer::tests::write;

    #[test]
    fn a_named_operation_has_one_key_in_every_run_of_its_slot() {
        let named = |token, op: &str| Write { op: Some(op.to_string()), ..write(token) };
        let slot = Some("2026-11-15T07:00:00Z");
        assert_eq!(idempotency_key(&named(5, "charge"), slot), "\"report/2026-11-15T07:00:00Z/charge\"");
        assert_eq!(idempotency_key(&named(5, "charge"), slot), idempotency_key(&named(6, "charge"), slot));
        assert_eq!(idempotency_key(&named(5, "charge"), None), "\"report/5/charge\"");
        assert_eq!(idempotency_key(&named(5, "a/b \"ü%"), None), "\"report/5/a%2Fb%20%22%C3%BC%25\"");
    }

    #[test]
    fn without_a_name_every_publish_is_meant_unless_a_token_is_good_for_one() {
        let once = Write { mode: WriteMode::Once, ..write(5) };
        assert_eq!(idempotency_key(&once, Some("s")), "\"report/5/sha256:aa\"");
        assert_ne!(idempotency_key(&write(5), None), idempotency_key(&write(5), None));
    }

    #[test]
    fn any_text_comes_back() {
        for text in ["", "plain", "a b", "100%", "ü/\"\\\u{1}\n", "https://h/x?a=%20"] {
            let sent = encoded(text, "/");
            assert!(sent.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{sent}");
            assert_eq!(percent::decode(&sent).as_deref(), Some(text));
        }
    }

    #[test]
    fn secrets_and_our_own_headers_are_refused_by_hand() {
        let one = |name: &str, value: &str| check(&[(name.to_string(), value.to_string())]);
        assert!(one("X-Trace", "a b").is_ok());
        for name in ["Authorization", "cookie", "Fencepost-Token", "IDEMPOTENCY-KEY", "", "a b", "Host"] {
            assert!(matches!(one(name, "x"), Err(PublishError::Usage(_))), "{name}");
        }
        assert!(one("X-Trace", "a\r\nEvil: 1").is_err());
    }
}
