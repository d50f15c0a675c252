//! Classifies what the server of a store says about a failed call, or what answered in its place.

use serde::Deserialize;

use crate::http_client::{HttpFailure, printable};
use crate::{Fate, Trouble};

/// The body of an error response.
#[derive(Deserialize)]
struct HttpErrorBody {
    error: HttpErrorDetail,
}

#[derive(Deserialize)]
struct HttpErrorDetail {
    code: String,
    message: String,
    fate: String,
}

const TOKEN_STEP: &str =
    "Give the token by FENCEPOST_STORE_PASSWORD, by FENCEPOST_STORE_PASSWORD_FILE, or by store_password_file.";

impl HttpFailure {
    /// Another server than the store answered, or the store answered another request. It may still have passed the
    /// request on.
    pub(super) fn foreign(status: u16, why: &str) -> Self {
        let (trouble, step) = match status {
            300..=399 => (Trouble::Refused, "It wants to send us elsewhere: give the URL of that place."),
            401 | 403 | 407 => (Trouble::Refused, "Something before the store wants a login."),
            408 | 425 | 429 | 500.. => (Trouble::Unavailable, ""),
            _ => (Trouble::Refused, "Does the URL name a fencepost store, and nothing that stands before it?"),
        };
        let what = format!("did not answer as a store does (HTTP {status}): {why}");
        Self::new(Fate::Unknown, trouble, what, step)
    }

    /// The store reports that it failed, and whether the call may have happened.
    pub(super) fn told(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let Ok(HttpErrorBody { error }) = serde_json::from_slice(body) else {
            return Self::foreign(status, "what it says of a failure was not understood");
        };
        let fate = if error.fate == "not-done" { Fate::NotDone } else { Fate::Unknown };
        let (trouble, step) = match (error.code.as_str(), status) {
            ("unauthorized", _) => (Trouble::Refused, TOKEN_STEP),
            ("bad_request" | "method_not_allowed" | "no_such_place", _) => {
                (Trouble::Refused, "It speaks another protocol than this fencepost: upgrade the older of the two.")
            }
            ("too_large" | "full" | "not_configured", _) => (Trouble::Refused, ""),
            (_, 408 | 425 | 429 | 500..) => (Trouble::Unavailable, ""),
            _ => (Trouble::Refused, ""),
        };
        let wait = retry_after.and_then(|text| text.parse::<u32>().ok());
        let wait = wait.map_or(String::new(), |seconds| format!(", to be asked again after {seconds} s"));
        let message = printable(&error.message);
        let what = format!("refused the call (HTTP {status}: {}{wait})", message.trim_end_matches('.'));
        Self::new(fate, trouble, what, step)
    }

    pub(super) fn unsound_key(line: &str) -> Self {
        let what = format!("is not a sound fencepost store: it holds the key {:?}", printable(line));
        Self::new(Fate::NotDone, Trouble::Corrupt, what, "")
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::HttpPlace;
    use super::*;
    use crate::StoreError;

    fn told(status: u16, code: &str, fate: &str) -> StoreError {
        let body = format!(r#"{{"error": {{"code": "{code}", "message": "No.\nNot t0ken.", "fate": "{fate}"}}}}"#);
        let place = HttpPlace::parse("https://t0ken@host", None).unwrap();
        HttpFailure::told(status, Some("7"), body.as_bytes()).of_swap(&place)
    }

    #[test]
    fn a_failure_that_the_store_tells_of() {
        let table = [
            (401, "unauthorized", "not-done", Fate::NotDone, Trouble::Refused),
            (429, "too_many", "not-done", Fate::NotDone, Trouble::Unavailable),
            (503, "unavailable", "unknown", Fate::Unknown, Trouble::Unavailable),
            (507, "full", "not-done", Fate::NotDone, Trouble::Refused),
            (500, "not_configured", "not-done", Fate::NotDone, Trouble::Refused),
            (500, "new", "never heard of", Fate::Unknown, Trouble::Unavailable),
            (418, "new", "", Fate::Unknown, Trouble::Refused),
        ];
        for (status, code, word, fate, trouble) in table {
            let error = told(status, code, word);
            assert_eq!((error.fate, error.trouble), (fate, trouble), "{error}");
            assert!(error.detail.starts_with("https://***@host refused the call (HTTP "), "{error}");
            assert!(error.detail.contains("No. Not ***, to be asked again after 7 s); "), "{error}");
        }
    }

    #[test]
    fn what_is_said_by_others_may_have_happened() {
        let place = HttpPlace::parse("https://host", None).unwrap();
        for (status, trouble) in [(200, Trouble::Refused), (302, Trouble::Refused), (502, Trouble::Unavailable)] {
            let error = HttpFailure::foreign(status, "x").of_swap(&place);
            assert_eq!((error.fate, error.trouble), (Fate::Unknown, trouble), "{error}");
            assert_eq!(HttpFailure::foreign(status, "x").of_read(&place).fate, Fate::NotDone);
        }
        let error = HttpFailure::told(401, None, b"<html>").of_swap(&place);
        assert_eq!(error.fate, Fate::Unknown, "{error}");
    }
}
