//! Command-line grammar of `publish exec`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::PublishOptions;
use crate::duration;

#[derive(Debug, Args)]
pub struct ExecOptions {
    /// Wait this long for another command on the same resource to end
    #[arg(short, long, value_parser = duration::parse, default_value = "1m", value_name = "D")]
    pub wait: Duration,
    /// How long the resource stays busy without a renewal; it is renewed every third of it
    #[arg(long, value_parser = duration::parse, default_value = "5m", value_name = "D")]
    pub ttl: Duration,
    /// The command, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
    #[command(flatten)]
    pub common: PublishOptions,
}
