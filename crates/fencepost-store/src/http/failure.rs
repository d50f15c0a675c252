//! Classifies the failures of HTTP: the one place that interprets them.

use std::io::ErrorKind;

use serde::Deserialize;
use ureq::Timeout;

use super::place::HttpPlace;
use super::{CALL_PATIENCE, CONNECT_PATIENCE};
use crate::{Fate, Secret, StoreError, Trouble};

/// The most characters of a server's own message that are repeated.
const WORDS_CHARS_MAX: usize = 300;

/// How a call failed.
#[derive(Debug)]
pub(super) struct HttpFailure {
    /// The fate of a swap. A failed read changes nothing.
    fate: Fate,
    trouble: Trouble,
    /// What happened, as the predicate of a sentence about the store.
    what: String,
    /// What the user can do about it: a sentence, or empty.
    step: &'static str,
}

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
    /// Nothing was sent.
    pub(super) fn unsent(what: impl Into<String>) -> Self {
        Self { fate: Fate::NotDone, trouble: Trouble::Unavailable, what: what.into(), step: "" }
    }

    /// No answer came. Certainly nothing happened if the request cannot have arrived complete, or if the error comes
    /// before there is a connection.
    pub(super) fn of_transport(error: &ureq::Error, may_be_whole: bool) -> Self {
        let fate = if may_be_whole { Fate::Unknown } else { Fate::NotDone };
        let reach = "Is it running, and does the URL name it?";
        let unsent = |what: &str| Self { step: reach, ..Self::unsent(what) };
        let lost = |what: String| Self { fate, trouble: Trouble::Unavailable, what, step: "" };
        match error {
            ureq::Error::HostNotFound => unsent("could not be found: there is no host of that name"),
            ureq::Error::ConnectionFailed => unsent("could not be reached"),
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
                unsent(&format!("could not be reached within {} s", CONNECT_PATIENCE.as_secs()))
            }
            ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                unsent("could not be reached: the connection was refused")
            }
            ureq::Error::ConnectProxyFailed(_) | ureq::Error::InvalidProxyUrl => {
                unsent("could not be reached by the proxy that the environment names")
            }
            ureq::Error::Io(error) if is_bad_certificate(error) => Self {
                trouble: Trouble::Refused,
                step: "Its name or its authority is not known here; SSL_CERT_FILE names authorities of your own.",
                ..Self::unsent(format!("has no certificate that is good for its name ({error})"))
            },
            ureq::Error::Timeout(_) => lost(format!("did not answer within {} s", CALL_PATIENCE.as_secs())),
            // A socket reports its timeout as "resource temporarily unavailable" (os error 11).
            ureq::Error::Io(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                lost(format!("did not answer within {} s", CALL_PATIENCE.as_secs()))
            }
            ureq::Error::Io(error) => lost(format!("did not answer ({error})")),
            ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => {
                lost("did not answer: what came is cut short, or is not HTTP".to_string())
            }
            ureq::Error::BodyExceedsLimit(_) => lost("gave an answer that is too long".to_string()),
            // Other error texts may contain the URL.
            _ => lost("did not answer".to_string()),
        }
    }

    /// Marks a failure in the middle of an answer: the request has certainly arrived.
    pub(super) fn after_answer(self) -> Self {
        Self { fate: Fate::Unknown, ..self }
    }

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
        Self { fate: Fate::Unknown, trouble, what, step }
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
        Self { fate, trouble, what, step }
    }

    pub(super) fn unsound_key(line: &str) -> Self {
        let what = format!("is not a sound fencepost store: it holds the key {:?}", printable(line));
        Self { fate: Fate::NotDone, trouble: Trouble::Corrupt, what, step: "" }
    }

    pub(super) fn of_read(self, place: &HttpPlace) -> StoreError {
        Self { fate: Fate::NotDone, ..self }.of_swap(place)
    }

    pub(super) fn of_swap(self, place: &HttpPlace) -> StoreError {
        let outcome = self.fate.outcome();
        let gap = if self.step.is_empty() { "" } else { " " };
        let detail = format!("{} {}; {outcome}.{gap}{}", place.shown(), self.what, self.step);
        // A server may repeat the token in its answer.
        let detail = match place.token().map(Secret::reveal) {
            Some(token) => detail.replace(token, "***"),
            None => detail,
        };
        StoreError { fate: self.fate, trouble: self.trouble, detail }
    }
}

/// Shortens a server's message to one printable line.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).take(WORDS_CHARS_MAX).collect()
}

/// Whether the certificate was refused, which happens before anything of the request is sent.
pub(super) fn is_bad_certificate(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
