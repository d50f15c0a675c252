//! Parses the URL of a server: its parameters, the source of the password, and whether the connection is private.

use std::time::{Duration, Instant};

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};

use super::connection::RedisConnection;
use crate::transport::{Transport, is_loopback, refusal};
use crate::{Secret, redacted};

/// The time beyond its limit after which connecting counts as interrupted by a stop (ctrl-Z) of this process.
const STOPPED: Duration = Duration::from_secs(2);

/// The address of a server, and the credentials for it.
#[derive(Clone)]
pub struct RedisServer {
    info: ConnectionInfo,
    shown: String,
    is_plain_allowed: bool,
}

impl std::fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl RedisServer {
    /// Parses a URL. A `password` from the caller precedes the URL's, then comes `REDISCLI_AUTH`, the variable of
    /// redis-cli. Errors contain no password.
    pub fn parse(url: &str, password: Option<&Secret>) -> Result<Self, String> {
        let known = ["redis://", "rediss://", "redis+unix://", "unix://"].iter().any(|scheme| url.starts_with(scheme));
        // The parser's error may quote the text at fault, which may be a piece of the password.
        let info = url.into_connection_info().ok().filter(|_| known).ok_or(
            "It is not a URL of a Redis server: write redis://host:6379, or rediss://host:6379 for TLS. Characters such as \
             @ : / ? % in a password are written as %40 %3A %2F %3F %25.",
        )?;
        let is_plain_allowed =
            url.rsplit_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair == INSECURE));
        if let ConnectionAddr::TcpTls { insecure, .. } = info.addr()
            && (*insecure || is_plain_allowed)
        {
            return Err(format!("{INSECURE} is for redis:// and makes no rediss:// less secure. Leave it out."));
        }
        let settings = info.redis_settings().clone();
        let password = match password {
            Some(given) => Some(given.reveal().to_string()),
            None if settings.password().is_some() => None,
            None => std::env::var("REDISCLI_AUTH").ok().filter(|password| !password.is_empty()),
        };
        let info = match password {
            Some(password) => info.set_redis_settings(settings.set_password(password)),
            None => info,
        };
        Ok(Self { info, shown: redacted(url), is_plain_allowed })
    }

    /// Returns the URL for people, without a password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Refuses plain text to another host unless the URL allows it. Callers call it before they send anything.
    pub fn must_be_private(&self) -> Result<(), String> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) if self.transport() == Transport::Plain && !self.is_plain_allowed => {
                let remedy = format!(
                    "Write rediss://{host}:{port} if the server has TLS; or add ?{INSECURE} to the URL, if you trust \
                     every host on the way."
                );
                Err(refusal(&self.shown, host, &remedy))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn transport(&self) -> Transport {
        match self.info.addr() {
            ConnectionAddr::TcpTls { .. } => Transport::Verified,
            ConnectionAddr::Tcp(host, _) if !is_loopback(host) => Transport::Plain,
            _ => Transport::Local,
        }
    }

    /// Connects within `connecting`, and waits for each answer up to `answering`. Tries again if this process was
    /// stopped while it connected.
    pub fn connect(&self, connecting: Duration, answering: Duration) -> Result<RedisConnection, RedisError> {
        loop {
            let begun = Instant::now();
            match RedisConnection::open(&self.info, connecting, answering) {
                Err(error) if error.is_timeout() && begun.elapsed() > connecting + STOPPED => {}
                connected => return connected,
            }
        }
    }
}

/// The option that allows plain text to another host.
const INSECURE: &str = "insecure=1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown_and_the_one_handed_in_goes_first() {
        let server = RedisServer::parse("redis://app:s3cret@db:6379/0", None).unwrap();
        assert_eq!(server.shown(), "redis://app:***@db:6379/0");
        assert_eq!(server.info.redis_settings().password(), Some("s3cret"));
        let server = RedisServer::parse("redis://app:s3cret@db:6379/0", Some(&Secret::new("given"))).unwrap();
        assert_eq!(server.info.redis_settings().password(), Some("given"));
        let wrong = RedisServer::parse("redis://app:s3cret@db:s3cret/x", None).unwrap_err();
        assert!(!wrong.contains("s3cret"), "{wrong}");
    }

    #[test]
    fn plain_text_to_another_host_must_be_allowed() {
        let refused = |url: &str| RedisServer::parse(url, None).unwrap().must_be_private();
        for url in [
            "redis://127.0.0.1:1",
            "redis://localhost",
            "redis://[::1]:1/3",
            "unix:///run/redis.sock",
            "rediss://db.example.org",
            "redis://:s3cret@db.example.org:6379/0?insecure=1",
        ] {
            assert_eq!(refused(url), Ok(()), "{url}");
        }
        for url in
            ["redis://:s3cret@db:6379", "redis://10.0.0.1", "redis://localhost.example.org", "redis://db?insecure=0"]
        {
            let text = refused(url).unwrap_err();
            assert!(text.contains("?insecure=1") && text.contains("rediss://") && !text.contains("s3cret"), "{text}");
        }
        for url in ["rediss://db?insecure=1", "rediss://db#insecure"] {
            assert!(RedisServer::parse(url, None).unwrap_err().contains("makes no rediss://"), "{url}");
        }
    }
}
