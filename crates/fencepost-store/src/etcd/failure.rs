//! Classifies what etcd says about a failed call.

use serde::Deserialize;

use crate::http_client::{HttpFailure, printable};
use crate::{Fate, Trouble};

#[derive(Deserialize)]
struct GatewayError {
    error: String,
}

/// How etcd's sentence for a forgotten token begins. It refuses the call before it does anything.
const FORGOTTEN: &str = "etcdserver: invalid auth token";

/// How etcd's sentences begin of which it is certain that the call did not happen and never will. A sentence that is not
/// here leaves that open: `request timed out` is said of proposals that may still be committed.
const CERTAIN: &[(&str, Trouble, &str)] = &[
    (FORGOTTEN, Trouble::Unavailable, ""),
    (
        "etcdserver: permission denied",
        Trouble::Refused,
        "Let an administrator grant it: etcdctl role grant-permission ROLE readwrite PREFIX/ --prefix=true",
    ),
    ("etcdserver: user name is empty", Trouble::Refused, "It wants a login: write etcd://USER@HOST:PORT/PREFIX."),
    ("etcdserver: authentication failed", Trouble::Refused, PASSWORD_STEP),
    (
        "etcdserver: authentication is not enabled",
        Trouble::Refused,
        "It has no users: leave the user in the URL away, or enable them there.",
    ),
    (
        "etcdserver: mvcc: database space exceeded",
        Trouble::Refused,
        "Compact and defragment it, then run: etcdctl alarm disarm",
    ),
    ("etcdserver: too many requests", Trouble::Unavailable, ""),
    ("etcdserver: request is too large", Trouble::Refused, "Its --max-request-bytes is below 128 KiB: raise it."),
];

const PASSWORD_STEP: &str =
    "Give the password by FENCEPOST_STORE_PASSWORD, by FENCEPOST_STORE_PASSWORD_FILE, or by store_password_file.";

/// The failure that an answer other than 200 tells of.
pub(super) fn told(status: u16, body: &[u8]) -> HttpFailure {
    let Ok(GatewayError { error }) = serde_json::from_slice(body) else {
        let trouble = if matches!(status, 408 | 429 | 500..) { Trouble::Unavailable } else { Trouble::Refused };
        let step = "Does the URL name an etcd server of version 3.4 or newer, and nothing that stands before it?";
        return HttpFailure::new(Fate::Unknown, trouble, format!("did not answer as etcd does (HTTP {status})"), step);
    };
    let what = format!("refused the call (HTTP {status}: {})", printable(&error));
    match CERTAIN.iter().find(|(begins, ..)| error.starts_with(begins)) {
        Some((_, trouble, step)) => HttpFailure::new(Fate::NotDone, *trouble, what, step),
        None => {
            let trouble = if matches!(status, 408 | 429 | 500..) { Trouble::Unavailable } else { Trouble::Refused };
            HttpFailure::new(Fate::Unknown, trouble, what, "")
        }
    }
}

pub(super) fn is_forgotten_login(failure: &HttpFailure) -> bool {
    failure.fate == Fate::NotDone && failure.what.contains(FORGOTTEN)
}

/// Whether the request itself is the reason, so that another member would refuse it too.
pub(super) fn is_of_the_request(failure: &HttpFailure) -> bool {
    failure.fate == Fate::NotDone && failure.trouble == Trouble::Refused
}

/// A failed login: the call behind it was not sent.
pub(super) fn of_login(failure: HttpFailure) -> HttpFailure {
    HttpFailure { fate: Fate::NotDone, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_etcd_says_for_certain_is_certain() {
        let table = [
            (403, "etcdserver: permission denied", Fate::NotDone, Trouble::Refused),
            (401, "etcdserver: invalid auth token", Fate::NotDone, Trouble::Unavailable),
            (429, "etcdserver: mvcc: database space exceeded", Fate::NotDone, Trouble::Refused),
            (503, "etcdserver: request timed out", Fate::Unknown, Trouble::Unavailable),
            (
                503,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Fate::Unknown,
                Trouble::Unavailable,
            ),
            (503, "etcdserver: no leader", Fate::Unknown, Trouble::Unavailable),
            (500, "etcdserver: new in a later version", Fate::Unknown, Trouble::Unavailable),
            (400, "proxy: permission denied", Fate::Unknown, Trouble::Refused),
        ];
        for (status, said, fate, trouble) in table {
            let body = format!(r#"{{"error": "{said}", "code": 1, "message": "{said}"}}"#);
            let failure = told(status, body.as_bytes());
            assert_eq!((failure.fate, failure.trouble), (fate, trouble), "{failure:?}");
        }
        for status in [301, 403, 404, 502] {
            assert_eq!(told(status, b"<html>").fate, Fate::Unknown, "{status}: a proxy may have passed it on");
        }
    }
}
