//! Command-line grammar of `publish file` and `publish tree`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{PayloadOptions, PublishOptions};
use crate::duration;

#[derive(Debug, Args)]
pub struct FileOptions {
    /// The file
    pub path: PathBuf,
    #[command(flatten)]
    pub patience: PatienceOptions,
    #[command(flatten)]
    pub payload: PayloadOptions,
    #[command(flatten)]
    pub common: PublishOptions,
}

#[derive(Debug, Args)]
pub struct TreeOptions {
    /// The directory to publish; it is copied
    #[arg(value_name = "DIR")]
    pub source: PathBuf,
    /// Where it is published: a symbolic link, which is switched to the copy
    pub path: PathBuf,
    /// How many old versions to keep for readers that are in the middle of one
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub keep: usize,
    #[command(flatten)]
    pub patience: PatienceOptions,
    #[command(flatten)]
    pub common: PublishOptions,
}

/// How long one write waits for another.
#[derive(Debug, Args)]
pub struct PatienceOptions {
    /// Wait this long for another write to the same place
    #[arg(short, long, value_parser = duration::parse, default_value = "1m", value_name = "D")]
    pub wait: Duration,
}
