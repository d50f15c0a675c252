//! Command-line grammar of `publish sql`.

use std::time::Duration;

use clap::Args;

use super::{PayloadOptions, PublishOptions};
use crate::duration;

#[derive(Debug, Args)]
pub struct SqlOptions {
    /// The database, postgres://… or sqlite:PATH (default: the variable FENCEPOST_SQL_URL)
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Add the function fencepost_check, and triggers to the tables to protect
    #[arg(long, conflicts_with_all = ["uninstall", "from"])]
    pub install: bool,
    /// Take away what --install added, except the fences themselves; with --protect, only from that table
    #[arg(long, conflicts_with = "from")]
    pub uninstall: bool,
    /// A table to which unfenced writes shall fail; may be given several times
    #[arg(long, value_name = "TABLE")]
    pub protect: Vec<String>,
    /// How long a PostgreSQL server may take from the connection to the commit
    #[arg(long, value_parser = duration::parse, default_value = "10m", value_name = "D")]
    pub timeout: Duration,
    #[command(flatten)]
    pub payload: PayloadOptions,
    #[command(flatten)]
    pub common: PublishOptions,
}

impl SqlOptions {
    /// Whether it changes the schema instead of writing.
    pub fn is_about_schema(&self) -> bool {
        self.install || self.uninstall
    }
}
