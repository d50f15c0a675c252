//! From a URL to a connection: what the URL says, and where the password comes from.

use std::time::Duration;

use redis::{Client, Connection, ConnectionInfo, IntoConnectionInfo, RedisError};

use crate::{Secret, redacted};

/// A server, and how to get in.
#[derive(Clone)]
pub struct Server {
    info: ConnectionInfo,
    shown: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Server {
    /// Reads a URL. A `password` that is handed in goes before the URL's own, and that before `REDISCLI_AUTH`, which
    /// redis-cli knows. Errors hold no password.
    pub fn parse(url: &str, password: Option<&Secret>) -> Result<Self, String> {
        let known = ["redis://", "rediss://", "redis+unix://", "unix://"].iter().any(|scheme| url.starts_with(scheme));
        // The parser's own error may quote what it stumbled over, and that may be a piece of the password.
        let info = url.into_connection_info().ok().filter(|_| known).ok_or(
            "It is not a URL of a Redis server: write redis://host:6379, rediss://host:6379 for TLS, or unix:///path. \
             Signs such as @ : / % in a password are written as %40 %3A %2F %25.",
        )?;
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
        Ok(Self { info, shown: redacted(url) })
    }

    /// What people may see of it: no password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Connects within one time, and waits for each answer on the connection for another.
    pub fn connect(&self, connecting: Duration, answering: Duration) -> Result<Connection, RedisError> {
        // The client brings TLS without cryptography of its own. Whoever installed another before us is welcome.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connection = Client::open(self.info.clone())?.get_connection_with_timeout(connecting)?;
        connection.set_read_timeout(Some(answering))?;
        connection.set_write_timeout(Some(answering))?;
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown_and_the_one_handed_in_goes_first() {
        let server = Server::parse("redis://app:s3cret@db:6379/0", None).unwrap();
        assert_eq!(server.shown(), "redis://app:***@db:6379/0");
        assert_eq!(server.info.redis_settings().password(), Some("s3cret"));
        let server = Server::parse("redis://app:s3cret@db:6379/0", Some(&Secret::new("given"))).unwrap();
        assert_eq!(server.info.redis_settings().password(), Some("given"));
        let wrong = Server::parse("redis://app:s3cret@db:s3cret/x", None).unwrap_err();
        assert!(!wrong.contains("s3cret"), "{wrong}");
    }
}
