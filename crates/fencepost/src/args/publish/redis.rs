//! Command-line grammar of `publish redis`.

use clap::Args;

use super::{PayloadOptions, PublishOptions};

#[derive(Debug, Args)]
pub struct RedisOptions {
    /// The key whose value is set
    pub key: String,
    /// The server, redis://… or rediss://… (default: the variable FENCEPOST_REDIS_URL)
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    #[command(flatten)]
    pub payload: PayloadOptions,
    #[command(flatten)]
    pub common: PublishOptions,
}
