//! Answers as HTTP sends them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use fencepost_core::hex;
use fencepost_view::ReasonCode;
use fencepost_view::answer::ErrorAnswer;
use fencepost_view::schema::ListedAnswer;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::exit::Code;
use crate::show;

pub type ServeReply = Response<ReplyBody>;

const JSON: &str = "application/json";
pub const TEXT: &str = "text/plain; charset=utf-8";

/// Headers of every answer.
const GUARDS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, fencepost_web::CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Without any referrer a browser sends its own forms with `Origin: null`, which is refused.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The body of an answer.
#[derive(Debug)]
pub enum ReplyBody {
    Whole(Option<Bytes>),
    /// Parts that come as something happens.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(parts) => parts.poll_recv(context).map(|part| part.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer of this type. It is not stored by any cache.
pub fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> ServeReply {
    let mut reply = Response::new(ReplyBody::Whole(Some(body.into()).filter(|body: &Bytes| !body.is_empty())));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

pub fn stream(kind: &'static str, parts: mpsc::Receiver<Bytes>) -> ServeReply {
    let mut reply = whole(StatusCode::OK, kind, Bytes::new());
    *reply.body_mut() = ReplyBody::Stream(parts);
    reply
}

pub fn text(status: StatusCode, text: impl Into<String>) -> ServeReply {
    whole(status, TEXT, text.into())
}

/// A typed answer, as `--json` prints it.
pub fn json(status: StatusCode, answer: &impl ListedAnswer) -> ServeReply {
    whole(status, JSON, json_bytes(answer))
}

/// The bytes of a typed answer, as `--json` prints it.
pub fn json_bytes(answer: &impl ListedAnswer) -> Bytes {
    json_line(json_text(answer))
}

/// The text of a typed answer, without an end of line.
pub fn json_text(answer: &impl ListedAnswer) -> String {
    show::escaped(serde_json::to_string(answer).expect("our own types serialize"))
}

/// JSON that was typed where it was made: the answer of a tool of `mcp`, or of the store protocol.
pub fn value(status: StatusCode, value: &Value) -> ServeReply {
    whole(status, JSON, value_bytes(value))
}

pub fn value_bytes(value: &Value) -> Bytes {
    json_line(show::escaped(value.to_string()))
}

fn json_line(mut json: String) -> Bytes {
    json.push('\n');
    json.into()
}

/// An answer of JSON that a client may ask for again by its tag.
pub fn tagged(asked: &HeaderMap, body: Bytes) -> ServeReply {
    // Weak: the same answer may be sent compressed.
    let tag = format!("W/\"{}\"", hex::encode(&Sha256::digest(&body)[..16]));
    let is_known = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| {
            value
                .split(',')
                .map(str::trim)
                .any(|known| known == "*" || known.trim_start_matches("W/") == tag.trim_start_matches("W/"))
        })
    };
    let is_known = asked.get_all(header::IF_NONE_MATCH).iter().any(is_known);
    let mut reply = match is_known {
        true => whole(StatusCode::NOT_MODIFIED, JSON, Bytes::new()),
        false => whole(StatusCode::OK, JSON, body),
    };
    let headers = reply.headers_mut();
    headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("digits are good in a header"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    reply
}

/// A failure, with the body of `--json`.
pub fn error(status: StatusCode, reason: ReasonCode, message: &str) -> ServeReply {
    let code = if reason == ReasonCode::Usage { Code::USAGE } else { Code::FAILED };
    json(status, &ErrorAnswer::new(code.0, reason, message))
}

pub fn bad_request(message: &str) -> ServeReply {
    error(StatusCode::BAD_REQUEST, ReasonCode::Usage, message)
}

/// The store cannot be asked now.
pub fn unavailable(message: &str) -> ServeReply {
    error(StatusCode::SERVICE_UNAVAILABLE, ReasonCode::StoreFailed, message)
}

/// A header whose value this program wrote.
pub fn with_header(mut reply: ServeReply, name: HeaderName, value: &str) -> ServeReply {
    if let Ok(value) = HeaderValue::try_from(value) {
        reply.headers_mut().insert(name, value);
    }
    reply
}

/// Adds what tells a browser to load nothing foreign and to show the answer in no other page.
pub fn guarded(mut reply: ServeReply) -> ServeReply {
    let headers = reply.headers_mut();
    for (name, value) in GUARDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}
