//! The addresses of pages, actions and events.

use fencepost_view::percent;

use crate::query::JobAction;

pub const OVERVIEW: &str = "/";
pub const TIMELINE: &str = "/timeline";
pub const GRAPH: &str = "/graph";
pub const FENCES: &str = "/fences";
pub const STORES: &str = "/stores";
pub const LOGIN: &str = "/login";
pub const LOGOUT: &str = "/logout";
pub const EVENTS: &str = "/api/v1/events";

/// The name of the field of a form that holds the CSRF token.
pub const CSRF_FIELD: &str = "csrf";

/// The name of the field of the form of `/login` that holds the token.
pub const TOKEN_FIELD: &str = "token";

/// The name of the field that holds the page to go on to after signing in.
pub const NEXT_FIELD: &str = "next";

/// The page of a job.
pub fn job(job: &str) -> String {
    format!("/jobs/{}", segment(job))
}

/// The page of a job, at one of its slots.
pub fn slot(job: &str, slot: &str) -> String {
    format!("/jobs/{}?slot={}", segment(job), segment(slot))
}

/// Where the form of an action is sent.
pub fn action(job: &str, action: JobAction) -> String {
    format!("/api/v1/jobs/{}/{}", segment(job), action.as_str())
}

/// A text as one segment of a path, or one value of a query.
pub fn segment(text: &str) -> String {
    let encoded = percent::encode(text, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    // A segment of dots would be taken for a directory.
    if encoded.bytes().all(|byte| byte == b'.') { encoded.replace('.', "%2E") } else { encoded }
}

/// Whether an address stays on this server, and stands in a header as it is.
pub fn is_local(address: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    address.starts_with('/') && !address.starts_with("//") && address.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_one_segment_of_the_path() {
        assert_eq!(job("agent/release-notes"), "/jobs/agent%2Frelease-notes");
        assert_eq!(job("a@b:c"), "/jobs/a%40b%3Ac");
        assert_eq!(job(".."), "/jobs/%2E%2E");
        assert_eq!(job("\"><script>\u{202e}"), "/jobs/%22%3E%3Cscript%3E%E2%80%AE");
        assert_eq!(slot("a", "2026-03-08T07:30:00+01:00"), "/jobs/a?slot=2026-03-08T07%3A30%3A00%2B01%3A00");
        assert_eq!(action("a/b", JobAction::RunNow), "/api/v1/jobs/a%2Fb/run_now");
        assert_eq!(segment("a/b c@h"), "a%2Fb%20c%40h");
    }

    #[test]
    fn only_an_address_of_this_server_is_local() {
        for address in ["/", "/jobs/a%2Fb?slot=07%3A00", "/timeline?range=week"] {
            assert!(is_local(address), "{address}");
        }
        for address in ["", "https://evil.example/", "//evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x", "/ü"]
        {
            assert!(!is_local(address), "{address:?}");
        }
    }
}
