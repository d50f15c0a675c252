//! From a URL to a connection, by the rules that the PostgreSQL store has as well.

use std::time::Duration;

use ::postgres::config::SslMode;
use ::postgres::{Client, Config, NoTls};
use fencepost_store::postgres as store;

use crate::publish::PublishError;

/// How long a write may take from the connection to the commit, unless it is told otherwise.
const LIMIT: Duration = Duration::from_secs(600);

/// A server, how to get in, and how long it is waited for.
#[derive(Clone, Debug)]
pub struct PostgresDestination {
    server: store::PostgresServer,
    limit: Duration,
}

impl PostgresDestination {
    /// Reads a URL. Errors hold no password.
    pub fn parse(url: &str) -> Result<Self, PublishError> {
        let server = store::PostgresServer::parse(url, None).map_err(|text| usage(&text))?;
        server.must_be_private().map_err(PublishError::Failed)?;
        Ok(Self { server, limit: LIMIT })
    }

    /// The same server, waited for no longer than this.
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The database's name, by the rules of libpq.
    pub fn database(&self) -> &str {
        self.server.database()
    }

    /// What people may see of it: no password.
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
            let remedy = self.server.remedy(&why).map_or(String::new(), |remedy| format!(" {remedy}"));
            PublishError::Failed(format!("Cannot connect to {} ({why}); nothing was changed.{remedy}", self.shown()))
        })
    }
}

fn usage(text: &str) -> PublishError {
    PublishError::Usage(format!("--url: {text} Nothing was changed."))
}
