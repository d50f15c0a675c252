//! An HTTP endpoint: the payload is sent with its token, and the server applies the rule in one transaction.
//!
//! The server's part is in `docs/publish/http.md`. Only a server that answers `Fencepost-Fence: accepted` has checked
//! the token, which makes the write `atomic`; a server that ignores the headers does not fence, and the receipt says
//! so. A request whose fate is unknown is sent again under the same idempotency key, by which the server recognises it.

mod answer;
mod headers;

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::fence::{Fence, Level, Write};
use fencepost_store::http_agent;
use ureq::http::{Method, Request as HttpRequest, Uri};
use ureq::{Agent, AsSendBody, SendBody, Timeout};

use super::payload::Payload;
use super::{PublishError, Receipt, Remembered, WriteRequest, WriteTarget, Written};
use answer::{Accepted, Meaning, WriteAnswer};

/// The most times that a request is sent.
const TRIES_MAX: u32 = 6;
/// The pause before the second try; it doubles with every further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The sum of all pauses. A server that asks for a longer pause is not waited for.
const PAUSES_MAX: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The destination of a payload, and the request's settings.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// May contain a password: messages show it by [`fencepost_store::redacted`] only.
    pub url: EndpointUrl,
    /// `PUT`, `POST` or `PATCH`.
    pub method: &'static str,
    /// The server's name of the target.
    pub resource: String,
    pub content_type: String,
    pub headers: Vec<(String, String)>,
    pub bearer: Option<BearerToken>,
    /// The slot of the surrounding run, which names the work item across its runs.
    pub slot: Option<String>,
    /// How long the server may be silent.
    pub timeout: Duration,
}

/// A URL that never shows its password.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointUrl(String);

/// A bearer token, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(String);

/// Sends the payload, and returns the server's decision.
pub fn publish(request: &WriteRequest, endpoint: &Endpoint, payload: &Payload) -> Result<Receipt, PublishError> {
    endpoint.check()?;
    let write = request.write(payload.digest.clone(), HttpTarget::REPLACES);
    let (sender, remarks) = (Sender::new(endpoint, payload, &write), endpoint.remarks());
    super::publish(request, HttpTarget { sender, dry_run: request.dry_run, level: Level::Atomic, remarks })
}

/// One write. The server itself judges it, in the transaction that applies it.
struct HttpTarget<'a> {
    sender: Sender<'a>,
    dry_run: bool,
    level: Level,
    remarks: Vec<String>,
}

impl WriteTarget for HttpTarget<'_> {
    const REPLACES: bool = false;

    fn digest(&self) -> String {
        self.sender.payload.digest.clone()
    }

    /// Only a dry run asks for the fence: otherwise the server compares.
    fn remembered(&mut self) -> Result<Remembered, PublishError> {
        if !self.dry_run {
            return Ok(Remembered::Nothing);
        }
        let answer = self.sender.look()?;
        if !answer.is_fenced() {
            self.level = Level::Gated;
            self.remarks.push(self.sender.says_no_token(&answer));
        }
        self.sender.seen(&answer)
    }

    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        let accepted = self.sender.send_until_answered()?;
        if !accepted.is_fenced {
            self.level = Level::Gated;
            self.remarks.push(format!(
                "{} accepted it without saying that it checked the token (no Fencepost-Fence header): an older run could \
                 overwrite it. See docs/publish/http.md for what the server has to do.",
                self.sender.endpoint.url.shown()
            ));
        }
        let fence = Fence { token: accepted.seen.unwrap_or(fence.token), ..fence };
        Ok(if accepted.already_applied { Written::AlreadyApplied(fence) } else { Written::Done(fence) })
    }

    fn level(&self) -> Level {
        self.level
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }
}

impl EndpointUrl {
    pub fn new(text: &str) -> Result<Self, PublishError> {
        let shown = fencepost_store::redacted(text);
        let usage = |why: &str| {
            PublishError::Usage(format!(
                "{shown:?} is not a URL to publish to: {why}. Write it like https://host/path."
            ))
        };
        let uri: Uri = text.parse().map_err(|_| usage("it cannot be read"))?;
        match uri.scheme_str() {
            Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(Self(text.to_string())),
            Some("http" | "https") => Err(usage("it names no host")),
            _ => Err(usage("it begins with neither http:// nor https://")),
        }
    }

    /// Returns the URL without a password.
    pub fn shown(&self) -> String {
        fencepost_store::redacted(&self.0)
    }

    fn is_tls(&self) -> bool {
        self.0.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https"))
    }

    fn has_user(&self) -> bool {
        self.shown() != self.0 && self.shown().contains("***@")
    }

    /// Whether every host on the way can read the request.
    fn is_open(&self) -> bool {
        let Ok(uri) = self.0.parse::<Uri>() else { return false };
        let host = uri.host().unwrap_or_default();
        uri.scheme_str() == Some("http") && !matches!(host, "localhost" | "[::1]") && !host.starts_with("127.")
    }
}

impl fmt::Debug for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown())
    }
}

impl BearerToken {
    /// Takes a token from a file or a variable, with or without a final line end.
    pub fn new(text: &str) -> Result<Self, PublishError> {
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() || !text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
            let why = "The bearer token is empty, or holds characters that cannot stand in a header; nothing was sent.";
            return Err(PublishError::Usage(why.to_string()));
        }
        Ok(Self(text.to_string()))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Endpoint {
    fn check(&self) -> Result<(), PublishError> {
        headers::check(&self.headers)?;
        if self.bearer.is_some() && self.url.has_user() {
            let why =
                "Two ways to authorise: a bearer token and a user in the URL. Give one of them; nothing was sent.";
            return Err(PublishError::Usage(why.to_string()));
        }
        Ok(())
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.url.is_open() && (self.bearer.is_some() || self.url.has_user()) {
            remarks.push(format!("{}: the secret was sent in the clear. Use https.", self.url.shown()));
        }
        if self.url.has_user() {
            remarks.push(format!(
                "{}: every user who lists processes sees a password in a command line. Use --bearer-file.",
                self.url.shown()
            ));
        }
        remarks
    }
}

/// The parts of the request that all tries share.
struct Sender<'a> {
    endpoint: &'a Endpoint,
    payload: &'a Payload,
    write: &'a Write,
    key: String,
    agent: Agent,
}

/// A request without an answer.
struct Unsent {
    why: String,
    may_have_arrived: bool,
    /// Another try would fail in the same way.
    is_final: bool,
}

impl<'a> Sender<'a> {
    fn new(endpoint: &'a Endpoint, payload: &'a Payload, write: &'a Write) -> Self {
        let agent = http_agent(endpoint.url.is_tls())
            // Every try uses a new connection: the client library repeats nothing on one that was idle.
            .max_idle_connections(0)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_send_request(Some(endpoint.timeout))
            .timeout_recv_body(Some(endpoint.timeout))
            .timeout_recv_response(Some(endpoint.timeout))
            .timeout_per_read(Some(endpoint.timeout))
            .timeout_per_write(Some(endpoint.timeout));
        let agent = agent.build().new_agent();
        let key = headers::idempotency_key(write, endpoint.slot.as_deref());
        Self { endpoint, payload, write, key, agent }
    }

    /// Sends the payload until the server reports its decision. Every try has the same idempotency key.
    fn send_until_answered(&self) -> Result<Accepted, PublishError> {
        let mut waited = Duration::ZERO;
        let mut pause = PAUSE_FIRST;
        let mut may_have_happened = false;
        for attempt in 1.. {
            let (why, after) = match self.send() {
                Ok(answer) => match answer::meaning(&answer, self.write) {
                    Meaning::Accepted(accepted) => return Ok(accepted),
                    Meaning::Refused(refused) => {
                        return Err(PublishError::Refused { refused: *refused, level: Level::Atomic });
                    }
                    Meaning::Failed(why) => return Err(self.failed(&why, may_have_happened)),
                    Meaning::Again { why, after } => {
                        may_have_happened = true;
                        (why, after)
                    }
                },
                Err(Unsent { why, is_final: true, .. }) => return Err(self.gave_up(&why, attempt, may_have_happened)),
                Err(Unsent { why, may_have_arrived, .. }) => {
                    may_have_happened |= may_have_arrived;
                    (why, None)
                }
            };
            let next = after.unwrap_or(pause);
            if attempt >= TRIES_MAX || waited + next > PAUSES_MAX {
                return Err(self.gave_up(&why, attempt, may_have_happened));
            }
            sleep(next);
            waited += next;
            pause *= 2;
        }
        unreachable!("the tries are counted")
    }

    fn send(&self) -> Result<WriteAnswer, Unsent> {
        let mut reader = self.payload.reader().map_err(|error| Unsent {
            why: format!("the payload cannot be read again ({error})"),
            may_have_arrived: false,
            is_final: false,
        })?;
        let length = self.payload.length.to_string();
        let method = Method::from_bytes(self.endpoint.method.as_bytes()).unwrap_or(Method::PUT);
        let builder = self.dressed(method).header("Content-Length", length);
        let builder = builder.header("Content-Type", &self.endpoint.content_type);
        let sent = self.run(builder.body(SendBody::from_reader(&mut reader)));
        // A server acts on complete requests only, and this one is certainly incomplete if none of the payload was
        // taken. TLS fails before that.
        let is_whole = self.payload.length == 0 || reader.limit() < self.payload.length;
        sent.map_err(|unsent| Unsent { may_have_arrived: unsent.may_have_arrived && is_whole, ..unsent })
    }

    /// Asks the server for its fence, by a `HEAD`, which changes nothing.
    fn look(&self) -> Result<WriteAnswer, PublishError> {
        self.run(self.dressed(Method::HEAD).body(SendBody::none())).map_err(|unsent| {
            PublishError::Failed(format!(
                "Cannot ask {} what it has seen: {}. Nothing was sent.",
                self.endpoint.url.shown(),
                unsent.why
            ))
        })
    }

    fn seen(&self, answer: &WriteAnswer) -> Result<Remembered, PublishError> {
        match answer.seen_fence() {
            _ if !answer.is_fenced() => Ok(Remembered::Nothing),
            Ok(fence) => Ok(fence.map_or(Remembered::Nothing, Remembered::Fence)),
            Err(why) => Err(PublishError::Failed(format!(
                "{} says what it has seen, and it cannot be read: {why}",
                self.endpoint.url.shown()
            ))),
        }
    }

    fn says_no_token(&self, answer: &WriteAnswer) -> String {
        format!(
            "{} does not say which token it has seen (HTTP {}), so it is not known before the write whether it checks. \
             {} of {} bytes would be sent.",
            self.endpoint.url.shown(),
            answer.status,
            self.endpoint.method,
            self.payload.length
        )
    }

    fn dressed(&self, method: Method) -> ureq::http::request::Builder {
        let mut builder = HttpRequest::builder().method(method).uri(&self.endpoint.url.0);
        for (name, value) in headers::of_write(self.write, &self.endpoint.resource, &self.key) {
            builder = builder.header(name, value);
        }
        for (name, value) in &self.endpoint.headers {
            builder = builder.header(name, value);
        }
        if let Some(BearerToken(bearer)) = &self.endpoint.bearer {
            builder = builder.header("Authorization", format!("Bearer {bearer}"));
        }
        builder
    }

    fn run<B: AsSendBody>(&self, built: Result<HttpRequest<B>, ureq::http::Error>) -> Result<WriteAnswer, Unsent> {
        let not_sent = |why: &str| Unsent { why: why.to_string(), may_have_arrived: false, is_final: false };
        let unknown = |why: String| Unsent { why, may_have_arrived: true, is_final: false };
        let request = built.map_err(|_| not_sent("a header cannot be sent as it is"))?;
        self.agent.run(request).map(WriteAnswer::of).map_err(|error| match error {
            ureq::Error::HostNotFound => not_sent("there is no host of that name"),
            ureq::Error::ConnectionFailed => not_sent("no connection could be made"),
            ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => not_sent("it did not answer to a connection"),
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                not_sent("the connection was refused")
            }
            ureq::Error::Io(error) if fencepost_store::is_bad_certificate(&error) => Unsent {
                is_final: true,
                ..not_sent(&format!(
                    "TLS failed: its certificate is not valid here ({error}); SSL_CERT_FILE names authorities of your own"
                ))
            },
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => {
                not_sent(&format!("TLS failed: {error}"))
            }
            ureq::Error::Timeout(_) => unknown("it did not answer in time".to_string()),
            ureq::Error::Io(error) => unknown(format!("the connection broke ({error})")),
            ureq::Error::Protocol(_) => unknown("the answer was cut short, or is not HTTP".to_string()),
            // Any other error may repeat the URL, and with it a password.
            _ => unknown("the request failed".to_string()),
        })
    }

    fn failed(&self, why: &str, may_have_happened: bool) -> PublishError {
        let fate = if may_have_happened { " An earlier try of it may have happened." } else { "" };
        PublishError::Failed(self.without_secrets(&format!(
            "Cannot publish to {} by {}: {why}{fate}",
            self.endpoint.url.shown(),
            self.endpoint.method
        )))
    }

    fn gave_up(&self, why: &str, tries: u32, may_have_happened: bool) -> PublishError {
        let fate = if may_have_happened {
            format!(
                "It may have happened, or may happen yet. Ask the server about the idempotency key {}; publishing again is \
                 safe where the server knows keys and --op or --mode once is given.",
                self.key
            )
        } else {
            "Nothing was sent. Check the address and the server, then publish again.".to_string()
        };
        let times = if tries == 1 { "once".to_string() } else { format!("{tries} times") };
        PublishError::Failed(self.without_secrets(&format!(
            "Cannot publish to {} by {}, tried {times}: {why}. {fate}",
            self.endpoint.url.shown(),
            self.endpoint.method
        )))
    }

    /// Removes secrets from a text: a server may repeat the request in its answer.
    fn without_secrets(&self, text: &str) -> String {
        match &self.endpoint.bearer {
            Some(BearerToken(bearer)) => text.replace(bearer.as_str(), "***"),
            None => text.to_string(),
        }
    }
}
