//! Command-line grammar of `publish`.

pub mod exec;
mod git;
pub mod http;
mod local;
mod redis;
pub mod s3;
mod sql;

pub use redis::RedisOptions;
pub use sql::SqlOptions;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fencepost_core::fence::WriteMode;
use fencepost_core::name::Name;

use super::name;
use crate::options::choice;
pub use git::GitOptions;
pub use local::{FileOptions, TreeOptions};

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB")]
pub enum PublishVerb {
    /// Replace a file, unless a newer run has written it
    File(FileOptions),
    /// Push commits to a git remote, unless a newer run has pushed
    Git(GitOptions),
    /// Replace a whole directory (a website, a data set) in one step
    Tree(TreeOptions),
    /// Send a payload to an HTTP endpoint that checks the token
    Http(http::HttpOptions),
    /// Run a command that writes to something without a check of its own: one at a time, newest run last
    Exec(exec::ExecOptions),
    /// Run SQL statements in the same transaction as the check, in PostgreSQL or SQLite
    Sql(SqlOptions),
    /// Set a key in Redis, unless a newer run has set it
    Redis(RedisOptions),
    /// Write an object to S3, R2 or a server like them, unless a newer run has written it
    S3(s3::S3Options),
}

impl PublishVerb {
    pub fn common(&self) -> &PublishOptions {
        match self {
            Self::File(options) => &options.common,
            Self::Git(options) => &options.common,
            Self::Tree(options) => &options.common,
            Self::Http(options) => &options.common,
            Self::Exec(options) => &options.common,
            Self::Sql(options) => &options.common,
            Self::Redis(options) => &options.common,
            Self::S3(options) => &options.common,
        }
    }

    /// Where the payload comes from, of a target that takes one.
    pub fn payload(&mut self) -> Option<&mut PayloadOptions> {
        match self {
            Self::File(options) => Some(&mut options.payload),
            Self::Http(options) => Some(&mut options.payload),
            Self::Sql(options) => Some(&mut options.payload),
            Self::Redis(options) => Some(&mut options.payload),
            Self::S3(options) => Some(&mut options.payload),
            Self::Git(_) | Self::Tree(_) | Self::Exec(_) => None,
        }
    }
}

/// What every target takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Token and fence")]
pub struct PublishOptions {
    /// How often one token may write
    #[arg(long, value_parser = choice::<WriteMode>(), default_value = "many")]
    pub mode: WriteMode,
    /// The operation's name: the same name under the same token is the same write
    #[arg(long, value_name = "KEY")]
    pub op: Option<String>,
    /// The token to write under (default: the run's)
    #[arg(long, value_name = "T", requires = "job")]
    pub token: Option<u64>,
    /// The job whose token it is (default: the run's)
    #[arg(long, value_name = "JOB", value_parser = name, requires = "token")]
    pub job: Option<Name>,
    /// The job is each host's own
    #[arg(long, requires = "job")]
    pub per_host: bool,
    /// What status calls the target (default: its own name)
    #[arg(long, value_name = "R")]
    pub resource: Option<String>,
    /// Take the target over from another store or job, or replace a fence that cannot be read
    #[arg(long)]
    pub adopt: bool,
    /// Say whether it would be accepted, and touch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write only content with this digest, as a rehearsal or --dry-run --json showed it; exit 18 if it has another
    #[arg(long, value_name = "D")]
    pub if_digest: Option<String>,
}

/// Where the payload comes from.
#[derive(Debug, Args)]
pub struct PayloadOptions {
    /// Read the payload from this file instead of standard input
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// The payload itself, from a session.
    #[arg(skip)]
    pub data: Option<Vec<u8>>,
}
