//! The HTTP client of every store that is reached by HTTP: its settings, one request that is sent once, and the
//! classification of what can go wrong on the way.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use ureq::config::ConfigBuilder;
use ureq::http::request::Builder;
use ureq::http::response::Parts;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::{Agent, SendBody, Timeout};

use crate::{Fate, StoreError, Trouble, tls};

/// The time limit for a connection, including TLS.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit for a whole call.
const CALL_PATIENCE: Duration = Duration::from_secs(15);

/// How long a connection may be idle. Servers close theirs after 5 s or more, and a swap on a connection that is being
/// closed would have an unknown fate.
const IDLE_MAX: Duration = Duration::from_secs(3);

/// The most idle connections that are kept.
const IDLE_CONNECTIONS_MAX: usize = 4;

/// The most characters of a server's own message that are repeated.
const WORDS_CHARS_MAX: usize = 300;

/// The settings of every HTTP client of fencepost. It follows no redirect: neither a token nor a write goes to a server
/// that the user did not name.
pub fn agent(is_tls: bool) -> ConfigBuilder<AgentScope> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("fencepost/", env!("CARGO_PKG_VERSION")));
    // Reading the certificates takes milliseconds, so it is done for TLS only.
    if is_tls { config.tls_config(TlsConfig::builder().root_certs(system_roots()).build()) } else { config }
}

/// The settings of a store's client: the limits of time, and connections that are kept between calls.
pub(crate) fn store_agent(is_tls: bool) -> ConfigBuilder<AgentScope> {
    let config = agent(is_tls)
        .max_idle_connections(IDLE_CONNECTIONS_MAX)
        .max_idle_connections_per_host(IDLE_CONNECTIONS_MAX)
        .max_idle_age(IDLE_MAX)
        .timeout_connect(Some(CONNECT_PATIENCE))
        .timeout_global(Some(CALL_PATIENCE));
    // Without TLS a proxy would see everything, and a connection to this machine needs none.
    if is_tls { config } else { config.proxy(None) }
}

/// Loads the certificate authorities of the system, or of `SSL_CERT_FILE` and `SSL_CERT_DIR`; without any, those that
/// are built in.
pub(crate) fn system_roots() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return RootCerts::WebPki;
    }
    found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).into()
}

/// The body of a request.
pub(crate) struct SentBody<'a> {
    pub(crate) reader: &'a mut dyn Read,
    pub(crate) length: u64,
}

/// Sends one request, once, and reads the answer up to `limit` bytes. An answer of exactly that length counts as too
/// long.
pub(crate) fn send_once(
    agent: &Agent,
    request: Builder,
    body: Option<SentBody<'_>>,
    limit: u64,
) -> Result<(Parts, Vec<u8>), HttpFailure> {
    let unsent = |_| HttpFailure::unsent("cannot be asked: the request cannot be written down");
    let (answered, is_whole) = match body {
        None => (agent.run(request.body(()).map_err(unsent)?), true),
        Some(SentBody { reader, length }) => {
            let mut rest = reader.take(length);
            let request = request.header("Content-Length", length);
            let answered = agent.run(request.body(SendBody::from_reader(&mut rest)).map_err(unsent)?);
            // A server acts on complete requests only, and this one is certainly incomplete if none of its body was
            // taken.
            (answered, length == 0 || rest.limit() < length)
        }
    };
    let answered = answered.map_err(|error| HttpFailure::of_transport(&error, is_whole))?;
    let (head, mut body) = answered.into_parts();
    let body = body.with_config().limit(limit).read_to_vec();
    let body = body.map_err(|error| HttpFailure::of_transport(&error, true).after_answer())?;
    Ok((head, body))
}

impl<'a> SentBody<'a> {
    pub(crate) fn of(reader: &'a mut &[u8]) -> Self {
        Self { length: reader.len() as u64, reader }
    }
}

/// The server that a failure is about.
pub(crate) trait Addressed {
    /// Its URL for people, without a secret.
    fn shown(&self) -> &str;

    /// The secrets that it might repeat in an answer.
    fn secrets(&self) -> Vec<&str>;
}

/// How a call failed.
#[derive(Debug)]
pub(crate) struct HttpFailure {
    /// The fate of a swap. A failed read changes nothing.
    pub(crate) fate: Fate,
    pub(crate) trouble: Trouble,
    /// What happened, as the predicate of a sentence about the store.
    pub(crate) what: String,
    /// What the user can do about it: a sentence, or empty.
    pub(crate) step: &'static str,
    /// There was no connection: nothing at all was sent.
    pub(crate) is_unsent: bool,
}

impl HttpFailure {
    pub(crate) fn new(fate: Fate, trouble: Trouble, what: impl Into<String>, step: &'static str) -> Self {
        Self { fate, trouble, what: what.into(), step, is_unsent: false }
    }

    /// Nothing was sent.
    pub(crate) fn unsent(what: impl Into<String>) -> Self {
        Self { is_unsent: true, ..Self::new(Fate::NotDone, Trouble::Unavailable, what, "") }
    }

    /// No answer came. Certainly nothing happened if the request cannot have arrived complete, or if the error comes
    /// before there is a connection.
    fn of_transport(error: &ureq::Error, may_be_whole: bool) -> Self {
        let fate = if may_be_whole { Fate::Unknown } else { Fate::NotDone };
        let reach = "Is it running, and does the URL name it?";
        let unsent = |what: &str| Self { step: reach, ..Self::unsent(what) };
        let lost = |what: String| Self::new(fate, Trouble::Unavailable, what, "");
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
            ureq::Error::Io(error) if is_other_certificate(error) => Self {
                trouble: Trouble::Refused,
                step: "Compare the pin with the one that `fencepost serve` prints when it starts there.",
                ..Self::unsent("has another certificate than the one of `pin=`")
            },
            ureq::Error::Io(error) if is_bad_certificate(error) => Self {
                trouble: Trouble::Refused,
                step: "Its name or its authority is not known here; SSL_CERT_FILE names authorities of your own.",
                ..Self::unsent(format!("has no certificate that is good for its name ({error})"))
            },
            ureq::Error::Timeout(_) => lost("did not answer in time".to_string()),
            // A socket reports its timeout as "resource temporarily unavailable" (os error 11).
            ureq::Error::Io(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                lost("did not answer in time".to_string())
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
    fn after_answer(self) -> Self {
        Self { fate: Fate::Unknown, is_unsent: false, ..self }
    }

    pub(crate) fn of_read(self, place: &impl Addressed) -> StoreError {
        Self { fate: Fate::NotDone, ..self }.of_swap(place)
    }

    pub(crate) fn of_swap(self, place: &impl Addressed) -> StoreError {
        let outcome = self.fate.outcome();
        let gap = if self.step.is_empty() { "" } else { " " };
        let detail = format!("{} {}; {outcome}.{gap}{}", place.shown(), self.what, self.step);
        // A server may repeat a secret in its answer.
        let detail = place.secrets().into_iter().fold(detail, |text, secret| text.replace(secret, "***"));
        StoreError { fate: self.fate, trouble: self.trouble, detail }
    }
}

/// Shortens a server's message to one printable line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).take(WORDS_CHARS_MAX).collect()
}

/// Whether a connection failed because the server's certificate is not the pinned one.
fn is_other_certificate(error: &std::io::Error) -> bool {
    tls_error(error).is_some_and(tls::is_not_accepted)
}

/// Whether a connection failed, before anything was sent, because the server's certificate is not valid for its name.
pub fn is_bad_certificate(error: &std::io::Error) -> bool {
    matches!(tls_error(error), Some(rustls::Error::InvalidCertificate(_)))
}

fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}
