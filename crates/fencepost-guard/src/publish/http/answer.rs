//! Interprets a server's answer.

use std::time::Duration;

use fencepost_core::fence::{Fence, Reason, Refused, Write};
use fencepost_core::token::{RunId, Token};
use serde::Deserialize;
use ureq::Body;
use ureq::http::Response;

/// The most bytes of an answer that are read.
const BODY_BYTES_MAX: u64 = 64 << 10;
/// The most characters of a server's own message that are repeated.
const DETAIL_CHARS_MAX: usize = 300;

/// The parts of an answer that fencepost interprets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteAnswer {
    pub status: u16,
    fence: Option<String>,
    seen: Option<String>,
    seen_fence: Option<String>,
    already_applied: Option<String>,
    retry_after: Option<String>,
    location: Option<String>,
    body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Accepted(Accepted),
    Refused(Box<Refused>),
    /// Not known yet: the client sends the same request again, after this pause if the server named one.
    Again {
        why: String,
        after: Option<Duration>,
    },
    /// It did not happen, or another try would not help. The sentence says which, and the next step.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// The server reports that it checked the token in the same step.
    pub is_fenced: bool,
    pub seen: Option<Token>,
    pub already_applied: bool,
}

/// A problem in the form of RFC 9457, with the fence that the server has seen.
#[derive(Default, Deserialize)]
struct Problem {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    seen: Option<serde_json::Value>,
}

impl WriteAnswer {
    pub fn of(mut response: Response<Body>) -> Self {
        let header =
            |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_string);
        let mut answer = Self {
            status: response.status().as_u16(),
            fence: header("Fencepost-Fence"),
            seen: header("Fencepost-Seen"),
            seen_fence: header("Fencepost-Seen-Fence"),
            already_applied: header("Fencepost-Already-Applied"),
            retry_after: header("Retry-After"),
            location: header("Location"),
            body: Vec::new(),
        };
        // The status decides; a truncated body costs a few words only.
        let body = response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
        answer.body = body.unwrap_or_default();
        answer
    }

    /// Whether the server speaks the protocol.
    pub fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// Parses the fence in the answer to a `HEAD`.
    pub fn seen_fence(&self) -> Result<Option<Fence>, String> {
        let Some(text) = &self.seen_fence else { return Ok(None) };
        let text = fencepost_store::percent::decode(text).ok_or("it is not percent-encoded")?;
        Fence::decode(text.as_bytes()).map(Some).map_err(|why| why.to_string())
    }

    fn seen_token(&self) -> Option<Token> {
        Token::new(self.seen.as_ref()?.trim().parse().ok()?)
    }

    fn problem(&self) -> Problem {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the server's own message, made safe to print.
    fn detail(&self) -> String {
        let Some(detail) = self.problem().detail else { return String::new() };
        let short: String = detail.chars().take(DETAIL_CHARS_MAX).flat_map(char::escape_default).collect();
        format!(" It says: {short}")
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after.as_ref()?.trim().parse().ok().map(Duration::from_secs)
    }
}

pub(super) fn meaning(answer: &WriteAnswer, write: &Write) -> Meaning {
    let detail = answer.detail();
    let status = answer.status;
    match status {
        200..=299 => Meaning::Accepted(Accepted {
            is_fenced: answer.fence.as_deref().is_some_and(|fence| fence.eq_ignore_ascii_case("accepted")),
            seen: answer.seen_token(),
            already_applied: answer.already_applied.as_deref() == Some("1"),
        }),
        300..=399 => {
            let place = answer.location.as_deref().map(fencepost_store::redacted).unwrap_or_default();
            Meaning::Failed(format!(
                "it answered {status}, which points to {place:?}. A write is not sent on to another place; as far as this \
                 answer goes nothing was changed. Publish to that place yourself if it is meant."
            ))
        }
        412 => refused(answer, write).map_or_else(
            || {
                Meaning::Failed(format!(
                    "it answered 412: a condition of the request does not hold, and it is not the token.{detail} Nothing \
                     was changed."
                ))
            },
            |refused| Meaning::Refused(Box::new(refused)),
        ),
        409 => Meaning::Again {
            why: format!("it answers 409: a request with the same idempotency key is still in progress.{detail}"),
            after: answer.retry_after(),
        },
        422 => Meaning::Failed(format!(
            "it answered 422: the idempotency key was used before with another payload.{detail} Nothing was changed. Give \
             another operation another --op, and the same operation the same payload."
        )),
        401 | 403 => Meaning::Failed(format!(
            "it answered {status}: it does not let us.{detail} Nothing was changed. Check --bearer-file."
        )),
        500..=599 => Meaning::Again {
            why: format!("it answers {status}: something failed on its side{detail}"),
            after: answer.retry_after(),
        },
        _ => Meaning::Failed(format!(
            "it answered {status}, which does not get better by trying again.{detail} As far as this answer goes nothing \
             was changed."
        )),
    }
}

/// Parses a refusal by the fence, which names the token it has seen. Without a token another condition failed.
fn refused(answer: &WriteAnswer, write: &Write) -> Option<Refused> {
    let problem = answer.problem();
    let reason = match problem.kind.rsplit([':', '/', '#']).next().unwrap_or_default() {
        "stale-token" => Some(Reason::Stale),
        "spent-token" => Some(Reason::Spent),
        "other-run" => Some(Reason::OtherRun),
        "other-lineage" => Some(Reason::OtherLineage),
        _ => None,
    };
    let told = problem.seen.and_then(|seen| Fence::decode(seen.to_string().as_bytes()).ok());
    let seen = told.or_else(|| answer.seen_token().map(|token| unnamed(token, write)))?;
    Some(Refused { reason: reason.unwrap_or(Reason::Stale), seen: Box::new(seen), token: write.token })
}

/// Makes the fence of a server that reports only the token.
fn unnamed(token: Token, write: &Write) -> Fence {
    Fence {
        v: fencepost_core::fence::FENCE_FORMAT,
        store: write.store,
        job: write.job.clone(),
        token,
        seq: 1,
        run: RunId(uuid::Uuid::nil()),
        digest: "sha256:".to_string(),
        op: None,
        at: write.at,
        host: "a host that the server does not name".to_string(),
        unknown: Default::default(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use fencepost_core::fence::WriteMode;
    use fencepost_core::name::{Job, Name};
    use fencepost_core::time::Wall;
    use fencepost_core::token::StoreId;
    use uuid::Uuid;

    pub(in super::super) fn write(token: u64) -> Write {
        Write {
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(token).unwrap(),
            run: RunId(Uuid::from_u128(u128::from(token))),
            digest: "sha256:aa".to_string(),
            op: None,
            mode: WriteMode::Many,
            replaces: false,
            adopt: false,
            at: Wall(0),
            host: "h".to_string(),
        }
    }

    fn answer(status: u16) -> WriteAnswer {
        WriteAnswer { status, ..WriteAnswer::default() }
    }

    fn failed(answer: &WriteAnswer) -> String {
        match meaning(answer, &write(5)) {
            Meaning::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_a_server_that_says_so_is_fenced() {
        let plain = Accepted { is_fenced: false, seen: None, already_applied: false };
        for status in [200, 201, 202, 204] {
            assert_eq!(meaning(&answer(status), &write(5)), Meaning::Accepted(plain));
        }
        let fenced = WriteAnswer {
            fence: Some("accepted".to_string()),
            seen: Some("5".to_string()),
            already_applied: Some("1".to_string()),
            ..answer(200)
        };
        let seen = Token::new(5);
        let accepted = Accepted { is_fenced: true, seen, already_applied: true };
        assert_eq!(meaning(&fenced, &write(5)), Meaning::Accepted(accepted));
        let ready = WriteAnswer { fence: Some("ready".to_string()), ..answer(200) };
        assert_eq!(meaning(&ready, &write(5)), Meaning::Accepted(plain), "ready is not accepted");
    }

    #[test]
    fn a_refusal_names_the_token_and_its_writer() {
        let seen = r#"{"v":1,"store":"00000000-0000-0000-0000-000000000001","job":{"name":"report"},"token":9,"seq":1,
            "run":"00000000-0000-0000-0000-000000000009","digest":"sha256:bb","at":0,"host":"other"}"#;
        for (kind, reason) in [
            ("urn:fencepost:stale-token", Reason::Stale),
            ("urn:fencepost:spent-token", Reason::Spent),
            ("https://example.org/problems/other-run", Reason::OtherRun),
            ("other-lineage", Reason::OtherLineage),
        ] {
            let body = format!(r#"{{"type":"{kind}","status":412,"seen":{seen}}}"#).into_bytes();
            let Meaning::Refused(refused) = meaning(&WriteAnswer { body, ..answer(412) }, &write(5)) else {
                panic!("{kind}")
            };
            assert_eq!((refused.reason, refused.seen.token.number(), refused.seen.host.as_str()), (reason, 9, "other"));
        }
        let by_header = WriteAnswer { seen: Some("9".to_string()), ..answer(412) };
        let Meaning::Refused(refused) = meaning(&by_header, &write(5)) else { panic!() };
        assert_eq!((refused.reason, refused.seen.token.number()), (Reason::Stale, 9));
    }

    #[test]
    fn a_412_that_names_no_token_is_not_the_fences() {
        assert!(failed(&answer(412)).contains("not the token"));
    }

    #[test]
    fn what_may_have_happened_is_tried_again_and_nothing_else() {
        for status in [409, 500, 502, 503, 504] {
            assert!(matches!(meaning(&answer(status), &write(5)), Meaning::Again { after: None, .. }), "{status}");
        }
        let later = WriteAnswer { retry_after: Some("7".to_string()), ..answer(409) };
        let after = Some(Duration::from_secs(7));
        assert!(matches!(meaning(&later, &write(5)), Meaning::Again { after: told, .. } if told == after));
        for status in [400, 401, 403, 404, 405, 411, 413, 422, 429, 301, 302, 303, 307, 308, 101] {
            failed(&answer(status));
        }
        assert!(failed(&answer(422)).contains("another payload"));
        let moved = WriteAnswer { location: Some("https://u:s3cret@b/".to_string()), ..answer(307) };
        assert!(failed(&moved).contains("not sent on") && !failed(&moved).contains("s3cret"));
    }

    #[test]
    fn a_servers_words_are_repeated_in_part_and_without_control_characters() {
        let body = format!(r#"{{"detail":"a\u001b[31m{}"}}"#, "x".repeat(9000)).into_bytes();
        let text = failed(&WriteAnswer { body, ..answer(400) });
        assert!(text.len() < 1000 && !text.contains('\u{1b}') && text.contains("It says: a"), "{text}");
    }
}
