//! Compresses answers for clients that ask for it: a page of a thousand jobs is ten times shorter.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};

use super::reply::{ReplyBody, ServeReply};

/// A shorter body is sent as it is.
const BYTES_MIN: usize = 1024;

/// A longer body is compressed on a thread of its own.
const BYTES_AT_ONCE: usize = 32 * 1024;

/// Whether a client takes gzip.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
        is_gzip && parts.all(|part| part != "q=0")
    })
}

/// The answer, shorter if that is worth it.
pub async fn compressed(mut reply: ServeReply) -> ServeReply {
    let headers = reply.headers();
    let is_fixed = headers.get(header::CACHE_CONTROL).is_some_and(|value| value.as_bytes().ends_with(b"no-transform"));
    let ReplyBody::Whole(Some(bytes)) = reply.body() else { return reply };
    if is_fixed || bytes.len() < BYTES_MIN {
        return reply;
    }
    let whole = bytes.clone();
    let short = match whole.len() > BYTES_AT_ONCE {
        true => tokio::task::spawn_blocking(move || gzip(&whole)).await.ok().flatten(),
        false => gzip(&whole),
    };
    if let Some(short) = short {
        *reply.body_mut() = ReplyBody::Whole(Some(short));
        let headers = reply.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    reply
}

fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(5));
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
