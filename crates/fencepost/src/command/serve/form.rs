//! Requests with a body: signing in and out, and actions.

use std::time::Duration;

use fencepost_view::ReasonCode;
use fencepost_web::path;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderMap};

use super::access::Caller;
use super::question::Parameters;
use super::reply::{self, ServeReply};
use super::tokens::is_same;
use super::{Server, pages};

/// The longest form.
const FORM_BYTES_MAX: usize = 8 * 1024;

/// How long a client may take to send a body.
pub const BODY_WITHIN: Duration = Duration::from_secs(15);

/// Reads the body of a request, up to a limit.
pub async fn body<B>(body: B, most: usize) -> Result<Bytes, BodyTrouble>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if body.size_hint().lower() > most as u64 {
        return Err(BodyTrouble::TooLarge);
    }
    match tokio::time::timeout(BODY_WITHIN, Limited::new(body, most).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(BodyTrouble::TooLarge),
        Ok(Err(_)) | Err(_) => Err(BodyTrouble::Incomplete),
    }
}

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyTrouble {
    TooLarge,
    Incomplete,
}

impl BodyTrouble {
    fn reply(self) -> ServeReply {
        match self {
            Self::TooLarge => reply::error(StatusCode::PAYLOAD_TOO_LARGE, ReasonCode::Usage, "The body is too long."),
            Self::Incomplete => {
                reply::error(StatusCode::REQUEST_TIMEOUT, ReasonCode::Usage, "The body is not complete.")
            }
        }
    }
}

/// The fields of a form.
pub async fn fields<B>(headers: &HeaderMap, content: B) -> Result<Parameters, ServeReply>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let bytes = body(content, FORM_BYTES_MAX).await.map_err(BodyTrouble::reply)?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_form = kind.split(';').next().unwrap_or_default().trim() == "application/x-www-form-urlencoded";
    if !bytes.is_empty() && !is_form {
        let message = "The body is a form: Content-Type: application/x-www-form-urlencoded.";
        return Err(reply::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, ReasonCode::Usage, message));
    }
    let text = str::from_utf8(&bytes).map_err(|_| reply::bad_request("The form is not UTF-8 text."))?;
    Parameters::parse(text).map_err(|why| reply::bad_request(&why))
}

/// Refuses a form that a page of another origin may have sent with this browser's cookie.
pub fn csrf_refusal(caller: &Caller, headers: &HeaderMap, form: &Parameters) -> Option<ServeReply> {
    let Caller::Session(session) = caller else { return None };
    let header = headers.get("x-csrf-token").and_then(|value| value.to_str().ok());
    let sent = form.text(path::CSRF_FIELD).or(header).unwrap_or_default();
    if is_same(sent.as_bytes(), session.csrf.as_bytes()) {
        return None;
    }
    let message =
        "The form does not come from a page of this server, or the page is too old. Nothing was done. Load it again.";
    Some(reply::error(StatusCode::FORBIDDEN, ReasonCode::Refused, message))
}

/// Whether a person sent the form from a page, and not a program.
pub fn is_of_page(caller: &Caller, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    !matches!(caller, Caller::Bearer(_)) && accepts.contains("text/html")
}

/// Signs a browser in.
pub fn sign_in(server: &Server, caller: &Caller, headers: &HeaderMap, form: &Parameters) -> ServeReply {
    let client = form.text(path::TOKEN_FIELD).and_then(|token| server.access.client(token.trim()));
    let next = form.text(path::NEXT_FIELD).filter(|next| path::is_local(next));
    let Some(client) = client else {
        let message = "This token is not known here.";
        return match is_of_page(caller, headers) {
            true => pages::sign_in_again(message, next),
            false => reply::error(StatusCode::UNAUTHORIZED, ReasonCode::Refused, message),
        };
    };
    let next = next.unwrap_or(path::OVERVIEW);
    match server.access.sessions.open(client) {
        Ok(cookie) => reply::with_header(see_other(next), header::SET_COOKIE, &cookie),
        Err(failure) => reply::error(StatusCode::SERVICE_UNAVAILABLE, ReasonCode::Failed, failure.message()),
    }
}

/// Signs a browser out.
pub fn sign_out(server: &Server, headers: &HeaderMap) -> ServeReply {
    let cookies = headers.get(header::COOKIE).and_then(|cookies| cookies.to_str().ok()).unwrap_or_default();
    let cookie = server.access.sessions.close(cookies);
    reply::with_header(see_other(path::LOGIN), header::SET_COOKIE, &cookie)
}

/// Leads a browser to another page of this server.
pub fn see_other(path: &str) -> ServeReply {
    reply::with_header(reply::text(StatusCode::SEE_OTHER, ""), header::LOCATION, path)
}
