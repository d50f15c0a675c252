//! Who asks, and from which page.
//!
//! A browser sends requests that another page asks for. Such a page has another origin, and a page that reaches a loopback
//! address through a name of its own (DNS rebinding) sends that name as the host. Both are refused.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, ORIGIN};

use super::sessions::{BrowserSession, Sessions};
use super::terms::{ServeTerms, ServeTransport};
use super::tokens::{Client, Tokens};

/// The rules about who may ask.
#[derive(Debug)]
pub struct AccessRules {
    hosts: HostRule,
    default_ports: &'static [u16],
    tokens: Option<Arc<Tokens>>,
    /// Reading needs no token.
    pub is_open: bool,
    pub sessions: Sessions,
}

/// Under which names the server may be reached.
#[derive(Debug)]
enum HostRule {
    /// A loopback address, and these.
    Loopback(Vec<String>),
    Named(Vec<String>),
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum Caller {
    Unknown,
    /// By a token in the request itself.
    Bearer(Client),
    /// By the cookie of a browser that has signed in.
    Session(BrowserSession),
}

impl Caller {
    pub fn client(&self) -> Option<&Client> {
        match self {
            Self::Unknown => None,
            Self::Bearer(client) => Some(client),
            Self::Session(session) => Some(&session.client),
        }
    }
}

/// Why a request is refused before its path is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    Host,
    Origin,
}

impl Foreign {
    pub fn message(self) -> &'static str {
        match self {
            Self::Host => {
                "This server does not answer under this host name. Use the address that it listens on, or start it with \
                 --public-host NAME."
            }
            Self::Origin => "A page of another origin may not ask this server.",
        }
    }
}

impl AccessRules {
    pub fn new(terms: &ServeTerms, port: u16) -> Self {
        let named = terms.public_hosts.clone();
        let is_loopback = terms.is_open();
        Self {
            hosts: if is_loopback { HostRule::Loopback(named) } else { HostRule::Named(named) },
            default_ports: match terms.transport {
                ServeTransport::Plain => &[80],
                ServeTransport::Tls(..) => &[443],
                ServeTransport::Proxy => &[80, 443],
            },
            tokens: terms.tokens.clone(),
            is_open: is_loopback,
            sessions: Sessions::new(port, terms.is_secure()),
        }
    }

    /// The client that has this token.
    pub fn client(&self, token: &str) -> Option<Client> {
        self.tokens.as_ref()?.client(token)
    }

    /// Whether there is any token by which a caller could be known.
    pub fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Refuses a request that a foreign page may have caused.
    pub fn check_origin(&self, headers: &HeaderMap) -> Result<(), Foreign> {
        let host = text(headers, &HOST).and_then(authority).ok_or(Foreign::Host)?;
        if !self.is_own_name(&host.0) {
            return Err(Foreign::Host);
        }
        if !headers.contains_key(ORIGIN) {
            return Ok(());
        }
        let origin = text(headers, &ORIGIN).and_then(origin).ok_or(Foreign::Origin)?;
        let is_same_port = match (host.1, origin.1) {
            (Some(host), origin) => host == origin,
            (None, origin) => self.default_ports.contains(&origin),
        };
        if origin.0 == host.0 && is_same_port { Ok(()) } else { Err(Foreign::Origin) }
    }

    fn is_own_name(&self, name: &str) -> bool {
        let is_local = || name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        match &self.hosts {
            HostRule::Loopback(named) => is_local() || named.iter().any(|own| own == name),
            HostRule::Named(named) => named.is_empty() || named.iter().any(|own| own == name),
        }
    }

    /// Who asks, by the token of the request or by the cookie of a session whose token still counts.
    pub fn caller(&self, headers: &HeaderMap) -> Caller {
        let Some(tokens) = &self.tokens else { return Caller::Unknown };
        if headers.contains_key(AUTHORIZATION) {
            let bearer = text(headers, &AUTHORIZATION).and_then(bearer).and_then(|token| tokens.client(token));
            return bearer.map_or(Caller::Unknown, Caller::Bearer);
        }
        let session = text(headers, &COOKIE).and_then(|cookies| self.sessions.find(cookies));
        session.filter(|session| tokens.has(&session.client)).map_or(Caller::Unknown, Caller::Session)
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    only.to_str().ok()
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// A name and a port, as in `localhost:7333` or `[::1]:7333`.
fn authority(text: &str) -> Option<(String, Option<u16>)> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']')?;
            (name, rest.strip_prefix(':'))
        }
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let port = port.map(str::parse).transpose().ok()?;
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    (!name.is_empty()).then_some((name, port))
}

fn origin(text: &str) -> Option<(String, u16)> {
    let (scheme, rest) = text.split_once("://")?;
    let default = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let (name, port) = authority(rest)?;
    Some((name, port.unwrap_or(default)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(hosts: HostRule, default_ports: &'static [u16]) -> AccessRules {
        AccessRules { hosts, default_ports, tokens: None, is_open: true, sessions: Sessions::new(7333, false) }
    }

    fn check(access: &AccessRules, host: &str, origin: Option<&str>) -> Result<(), Foreign> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        access.check_origin(&headers)
    }

    #[test]
    fn only_the_own_names_and_pages_are_answered() {
        let local = access(HostRule::Loopback(vec!["jobs.example".to_string()]), &[80]);
        for host in ["127.0.0.1:7333", "localhost", "LOCALHOST.:1", "[::1]:7333", "127.9.9.9", "jobs.example:8"] {
            assert_eq!(check(&local, host, None), Ok(()), "{host}");
        }
        for host in ["evil.example:7333", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil", "[::2]", "a:b:c"] {
            assert_eq!(check(&local, host, None), Err(Foreign::Host), "{host}");
        }
        let own = "127.0.0.1:7333";
        assert_eq!(check(&local, own, Some("http://127.0.0.1:7333")), Ok(()));
        for origin in [
            "null",
            "http://127.0.0.1:8000",
            "http://127.0.0.1",
            "http://evil.example",
            "file://",
            "http://localhost:7333",
        ] {
            assert_eq!(check(&local, own, Some(origin)), Err(Foreign::Origin), "{origin}");
        }
        let proxied = access(HostRule::Named(vec!["jobs.example".to_string()]), &[80, 443]);
        assert_eq!(check(&proxied, "jobs.example", Some("https://jobs.example")), Ok(()));
        assert_eq!(check(&proxied, "localhost", None), Err(Foreign::Host));
        assert_eq!(local.check_origin(&HeaderMap::new()), Err(Foreign::Host));
    }
}
