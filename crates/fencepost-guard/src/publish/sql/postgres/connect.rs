//! From a URL to a connection, by the rules that the PostgreSQL store has as well.

use ::postgres::config::SslMode;
use ::postgres::{Client, Config, NoTls};
use fencepost_store::postgres as store;

use super::explained;
use crate::publish::PublishError;

/// A server, and how to get in.
#[derive(Clone, Debug)]
pub struct Server(store::Server);

impl Server {
    /// Reads a URL. Errors hold no password.
    pub fn parse(url: &str) -> Result<Self, PublishError> {
        let server = store::Server::parse(url, None).map_err(|text| usage(&text))?;
        server.must_be_private().map_err(PublishError::Failed)?;
        Ok(Self(server))
    }

    /// The database's name, by the rules of libpq.
    pub fn database(&self) -> &str {
        self.0.database()
    }

    /// What people may see of it: no password.
    pub fn shown(&self) -> &str {
        self.0.shown()
    }

    pub fn remarks(&self) -> Vec<String> {
        self.0.remarks().to_vec()
    }

    pub fn connect(&self) -> Result<Client, PublishError> {
        let config = Config::from(self.0.config().clone());
        let connected = match config.get_ssl_mode() {
            SslMode::Disable => config.connect(NoTls),
            _ => config.connect(self.0.tls().map_err(|text| usage(&text))?),
        };
        connected.map_err(|error| {
            let why = explained(&error);
            let remedy = self.0.remedy(&why).map_or(String::new(), |remedy| format!(" {remedy}"));
            PublishError::Failed(format!("Cannot connect to {} ({why}); nothing was changed.{remedy}", self.shown()))
        })
    }
}

fn usage(text: &str) -> PublishError {
    PublishError::Usage(format!("--url: {text} Nothing was changed."))
}
