//! Command-line grammar of `publish http`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{PayloadOptions, PublishOptions};
use crate::duration;

#[derive(Debug, Args)]
pub struct HttpOptions {
    /// Where to send it
    pub url: String,
    /// How to send it
    #[arg(long, value_enum, ignore_case = true, default_value_t = MethodChoice::Put)]
    pub method: MethodChoice,
    /// A header to send besides, as 'Name: value'; may be given several times. Every user of the machine can read it (ps):
    /// no secrets
    #[arg(long, value_name = "K: V")]
    pub header: Vec<String>,
    /// What the payload is
    #[arg(long, value_name = "T", default_value = "application/octet-stream")]
    pub content_type: String,
    /// A file that holds the bearer token to authorise with (or FENCEPOST_HTTP_BEARER, or FENCEPOST_HTTP_BEARER_FILE)
    #[arg(long, value_name = "F")]
    pub bearer_file: Option<PathBuf>,
    /// How long the server may be silent before the request is tried again
    #[arg(long, value_parser = duration::parse, default_value = "30s", value_name = "D")]
    pub timeout: Duration,
    #[command(flatten)]
    pub payload: PayloadOptions,
    #[command(flatten)]
    pub common: PublishOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodChoice {
    Put,
    Post,
    Patch,
}

impl MethodChoice {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Patch => "PATCH",
        }
    }
}
