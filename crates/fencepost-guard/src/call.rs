//! Webhook calls. The response body is ignored; only its status counts.

use std::thread::sleep;
use std::time::Duration;

use fencepost_store::http_agent;

/// Maximum number of attempts. Each pause is three times as long as the last.
const TRIES_MAX: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_secs(1);

/// The body of a POST request.
#[derive(Clone, Copy, Debug)]
pub struct RequestBody<'b> {
    pub content_type: &'static str,
    pub bytes: &'b [u8],
    /// Further headers, in ASCII.
    pub headers: &'b [(&'b str, &'b str)],
}

/// Calls a URL: GET without a body, POST with one. A redirect counts as a failure: a POST that follows a 302 becomes a
/// GET and loses its body. If a response is lost, the receiver gets the call twice. The error text leaves out the URL,
/// which may be a secret.
pub fn call(url: &str, body: Option<RequestBody<'_>>, timeout: Duration) -> Result<(), String> {
    let is_tls = url.starts_with("https:");
    let agent = http_agent(is_tls).max_idle_connections(0).timeout_global(Some(timeout)).build().new_agent();
    let mut pause = PAUSE_FIRST;
    for attempt in 1.. {
        let answer = match body {
            None => agent.get(url).call(),
            Some(body) => {
                let request = agent.post(url).content_type(body.content_type);
                let headers = body.headers.iter();
                headers.fold(request, |request, (name, value)| request.header(*name, *value)).send(body.bytes)
            }
        };
        let (why, is_final) = match answer {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) if answer.status().is_redirection() => {
                let status = answer.status();
                (format!("it answered {status}, a redirect, which is not followed. Write the final URL"), true)
            }
            Ok(answer) => {
                let status = answer.status();
                (format!("it answered {status}"), !(status.is_server_error() || status.as_u16() == 429))
            }
            Err(ureq::Error::BadUri(_)) => ("it is not a URL".to_string(), true),
            Err(error) => (error.to_string().replace(url, "the URL"), false),
        };
        if is_final || attempt >= TRIES_MAX {
            return Err(why);
        }
        sleep(pause);
        pause *= 3;
    }
    unreachable!("the tries are counted")
}
