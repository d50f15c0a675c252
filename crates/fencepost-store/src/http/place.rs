//! Parses the URL of a store, with its token.

use std::fmt;
use ureq::http::Uri;

use super::pinned::Pin;
use crate::http_client::Addressed;
use crate::transport::{Transport, is_loopback, refusal, refused};
use crate::{OpenError, Secret, percent, redacted};

/// The address of a store, and the credentials for it.
pub(super) struct HttpPlace {
    /// Without user, query and last slash.
    base: String,
    shown: String,
    token: Option<Secret>,
    transport: Transport,
    pin: Option<Pin>,
}

impl fmt::Debug for HttpPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

const EXAMPLE: &str = "for example https://fencepost.example.workers.dev";

impl HttpPlace {
    /// Parses a URL. A `password` from the caller precedes the URL's. Errors contain neither.
    pub(super) fn parse(url: &str, password: Option<&Secret>) -> Result<Self, OpenError> {
        let shown = redacted(url);
        let wrong = |why: &str| OpenError::Usage(format!("{shown:?} is not the URL of a store: {why}, {EXAMPLE}."));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it lacks //"))?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let (path, query) = rest.split_once('?').map_or((rest, ""), |(path, query)| (path, query));
        let path = path.trim_end_matches('/');
        if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte)) || path.contains("//") {
            return Err(wrong(
                "its path may hold letters, digits and - _ . ~ only; signs in a token are written as %2F",
            ));
        }
        if path.ends_with("/v1") {
            return Err(wrong("/v1 is added by fencepost: leave it away"));
        }
        let base = format!("{scheme}://{host}{path}");
        if host.is_empty() {
            return Err(wrong("it names no host"));
        }
        let uri: Uri = base.parse().map_err(|_| wrong("it cannot be read"))?;
        let name = uri.host().unwrap_or_default();
        if name.is_empty() || (host != name && uri.port_u16().is_none()) {
            return Err(wrong("its host or its port cannot be read"));
        }
        let transport = match scheme {
            "https" => Transport::Verified,
            _ if is_loopback(name) => Transport::Local,
            _ => Transport::Plain,
        };
        let pin = query.strip_prefix("pin=").map(|pin| {
            let is_tls = scheme == "https";
            let pin = percent::decode(pin).and_then(|pin| Pin::parse(&pin)).filter(|_| is_tls);
            pin.ok_or_else(|| wrong("pin= is for https:// and takes sha256: and 64 hexadecimal digits"))
        });
        let pin = pin.transpose()?;
        let is_insecure = match query {
            "" => false,
            _ if pin.is_some() => false,
            "insecure=1" if scheme == "http" => true,
            "insecure=1" => return Err(wrong("insecure=1 is for http:// and makes no https:// less secure")),
            _ => return Err(wrong("the only options after its ? are insecure=1 and pin=sha256:…")),
        };
        let token = token(user, password).map_err(|why| wrong(&why))?;
        if transport == Transport::Plain && !is_insecure {
            let remedy = "Write https://; or add ?insecure=1 to the URL, if you trust every host on the way.";
            return Err(refused(refusal(&shown, name, remedy)));
        }
        Ok(Self { base, shown, token, transport, pin })
    }

    /// Returns the base URL, to which paths are appended.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub(super) fn token(&self) -> Option<&Secret> {
        self.token.as_ref()
    }

    pub(super) fn is_tls(&self) -> bool {
        self.base.starts_with("https:")
    }

    /// The certificate that the server must have, if the URL names one.
    pub(super) fn pin(&self) -> Option<Pin> {
        self.pin
    }

    pub(super) fn transport(&self) -> Transport {
        self.transport
    }
}

impl Addressed for HttpPlace {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn secrets(&self) -> Vec<&str> {
        self.token.as_ref().map(Secret::reveal).into_iter().collect()
    }
}

/// Encodes a text as a value in a query.
pub(super) fn encoded(text: &str) -> String {
    percent::encode(text, |byte| byte.is_ascii_alphanumeric() || b"-_.~/=".contains(&byte))
}

/// Accepts `TOKEN@`, and `anything:TOKEN@`, which many tools write.
fn token(user: Option<&str>, password: Option<&Secret>) -> Result<Option<Secret>, String> {
    let text = match (password, user) {
        (Some(given), _) => given.reveal().trim_end_matches(['\r', '\n']).to_string(),
        (None, Some(user)) => {
            let token = user.split_once(':').map_or(user, |(_, token)| token);
            percent::decode(token).ok_or("its token is written with a % that begins nothing")?
        }
        (None, None) => return Ok(None),
    };
    if text.is_empty() || !text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        return Err("its token is empty, or holds signs that cannot stand in a header".to_string());
    }
    Ok(Some(Secret::new(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let table = [
            ("https://host", "https://host", None),
            ("https://host/", "https://host", None),
            ("https://host:8443/team-a/", "https://host:8443/team-a", None),
            ("https://t0ken@host/x", "https://host/x", Some("t0ken")),
            ("https://x:t0ken@host", "https://host", Some("t0ken")),
            ("https://t%2F%40ken@host", "https://host", Some("t/@ken")),
            ("http://localhost:8787", "http://localhost:8787", None),
            ("http://127.0.0.2:1/a", "http://127.0.0.2:1/a", None),
            ("http://t0ken@[::1]:1", "http://[::1]:1", Some("t0ken")),
            ("http://t0ken@10.0.0.1?insecure=1", "http://10.0.0.1", Some("t0ken")),
        ];
        for (url, base, token) in table {
            let place = HttpPlace::parse(url, None).unwrap();
            assert_eq!((place.base(), place.token().map(Secret::reveal)), (base, token), "{url}");
            assert!(!format!("{place:?}").contains("ken"), "{place:?}");
            let given = HttpPlace::parse(url, Some(&Secret::new("given\n"))).unwrap();
            assert_eq!(given.token().map(Secret::reveal), Some("given"), "what is handed in goes first");
        }
    }

    #[test]
    fn wrong_urls_are_refused_in_words_without_the_token() {
        let table = [
            ("http://t0ken@10.0.0.1", "add ?insecure=1"),
            ("http://10.0.0.1", "Write https://"),
            ("http://localhost.example.org", "not encrypted"),
            ("http://127.0.0.1.example.org", "not encrypted"),
            ("http://127.0.0.1@example.org", "not encrypted"),
            ("https://host?insecure=1", "makes no https:// less secure"),
            ("https://host?token=t0ken", "the only options"),
            ("https://host?pin=sha256:12", "64 hexadecimal digits"),
            ("https://host?pin=md5:12", "64 hexadecimal digits"),
            ("http://localhost?pin=sha256:12", "is for https://"),
            ("https://t0/ken@host", "%2F"),
            ("https://t0ken@", "names no host"),
            ("https://", "names no host"),
            ("https:host", "lacks //"),
            ("https://host/v1", "leave it away"),
            ("https://host/a//b", "its path"),
            ("https://host/#x", "its path"),
            ("https://:@host", "its token is empty"),
            ("https://%t0ken@host", "a % that begins nothing"),
            ("https://host:port", "its port cannot be read"),
            ("https://:443", "cannot be read"),
        ];
        for (url, part) in table {
            let text = HttpPlace::parse(url, None).unwrap_err().to_string();
            assert!(text.contains(part), "{url}: {text}");
            assert!(!text.contains("t0ken") && !text.contains("t0/ken"), "{text}");
        }
        assert!(
            HttpPlace::parse("https://host", Some(&Secret::new("a b")))
                .unwrap_err()
                .to_string()
                .contains("cannot stand")
        );
    }

    #[test]
    fn any_text_fits_into_a_query() {
        assert_eq!(encoded("job/a=5fb-c"), "job/a=5fb-c");
        assert_eq!(encoded("a&b c%ü"), "a%26b%20c%25%C3%BC");
    }
}
