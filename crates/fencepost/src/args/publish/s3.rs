//! Command-line grammar of `publish s3`.

use std::time::Duration;

use clap::Args;

use super::{PayloadOptions, PublishOptions};
use crate::duration;

#[derive(Debug, Args)]
#[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "the grammar is the same in every build"))]
pub struct S3Options {
    /// The object, s3://BUCKET/KEY?region=R, or with endpoint=URL for another server than AWS
    pub url: String,
    /// What the content is
    #[arg(long, value_name = "T", default_value = "application/octet-stream")]
    pub content_type: String,
    /// How long readers may keep a copy, as the header Cache-Control
    #[arg(long, value_name = "V")]
    pub cache_control: Option<String>,
    /// Metadata of the object, as NAME=VALUE; may be given several times
    #[arg(long, value_name = "K=V")]
    pub metadata: Vec<String>,
    /// How long the server may be silent before the request is sent again
    #[arg(long, value_parser = duration::parse, default_value = "30s", value_name = "D")]
    pub timeout: Duration,
    #[command(flatten)]
    pub payload: PayloadOptions,
    #[command(flatten)]
    pub common: PublishOptions,
}
