//! Parses the URL of a server, by the rules of the PostgreSQL store.

use std::time::Duration;

use ::postgres::config::SslMode;
use ::postgres::{Client, Config, NoTls};
use fencepost_store::postgres as store;

use crate::publish::PublishError;

/// The default time limit of a write, from the connection to the commit.
const LIMIT: Duration = Duration::from_secs(600);

/// The address of a server, the credentials for it, and the time limit.
#[derive(Clone, Debug)]
pub struct PostgresDestination {
    server: store::PostgresServer,
    limit: Duration,
}

impl PostgresDestination {
    /// Parses a URL. Errors contain no password.
    pub fn parse(url: &str) -> Result<Self, PublishError> {
        let server = store::PostgresServer::parse(url, None).map_err(|text| usage(&text))?;
        server.must_be_private().map_err(PublishError::Failed)?;
        Ok(Self { server, limit: LIMIT })
    }

    /// Returns the same server with this time limit.
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the database's name, by the rules of libpq.
    pub fn database(&self) -> &str {
        self.server.database()
    }

    /// Returns the URL for people, without a password.
    pub fn shown(&self) -> &str {
        self.server.shown()
    }

    pub fn remarks(&self) -> Vec<String> {
        self.server.remarks().to_vec()
    }

    pub fn connect(&self) -> Result<Client, PublishError> {
        let config = Config::from(self.server.config().clone());
        let connected = match config.get_ssl_mode() {
            SslMode::Disable => config.connect(NoTls),
            _ => config.connect(self.server.tls().map_err(|text| usage(&text))?),
        };
        connected.map_err(|error| {
            let why = store::explained(&error);
            let is_shut = why.starts_with("28") || why.contains("password missing");
            let password = " User and password do not fit. Try them by psql, then put the password into ~/.pgpass (mode 0600) or PGPASSWORD.";
            let remedy = match self.server.remedy(&why) {
                Some(remedy) => format!(" {remedy}"),
                None if is_shut => password.to_string(),
                None => String::new(),
            };
            PublishError::Failed(format!("Cannot connect to {} ({why}); nothing was changed.{remedy}", self.shown()))
        })
    }
}

fn usage(text: &str) -> PublishError {
    PublishError::Usage(format!("--url: {text} Nothing was changed."))
}
