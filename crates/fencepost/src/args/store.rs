//! Command-line grammar of `store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fencepost_core::name::Job;
use fencepost_core::token::Token;

#[derive(Debug, Args)]
pub struct MoveOptions {
    /// The store that is left
    pub from: String,
    /// The store that is moved to; it has no jobs yet
    pub to: String,
    /// Check both stores and say what would be moved; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask on a terminal
    #[arg(long)]
    pub yes: bool,
    /// A file with the password of FROM
    #[arg(long, value_name = "FILE")]
    pub from_password_file: Option<PathBuf>,
    /// A file with the password of TO
    #[arg(long, value_name = "FILE")]
    pub to_password_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB")]
pub enum StoreVerb {
    /// Prove by running that a store keeps what the promises rest on; exit 1 if it does not
    Check {
        /// The store (default: the one in use)
        url: Option<String>,
    },
    /// Check a store and make it the default, in the configuration of --config or your own
    Use {
        /// The store; a password in it is not written down
        url: String,
    },
    /// Accept a store that was recreated on purpose: forget the id that this host remembers for its URL
    Accept {
        /// The store, as it is named elsewhere
        url: String,
    },
    /// Move everything to another store while no lease is held, and seal this one; repeat it if it was cut short
    Move(MoveOptions),
    /// The former name of `store move`
    #[command(hide = true)]
    Copy(MoveOptions),
    /// Write a backup of the store as JSON lines, each record as it is at one moment
    Export {
        /// The file to write (default: standard output)
        file: Option<PathBuf>,
    },
    /// Fill an empty store from a backup that `store export` wrote
    Import {
        /// The backup
        file: PathBuf,
        /// Put it in the place of the lost store: keep the id of the export, so that fences go on
        #[arg(long)]
        replace_lost: bool,
    },
    /// Raise a job's next token above fences that have seen more than the store remembers
    #[command(group = clap::ArgGroup::new("least").required(true).multiple(true))]
    Recover {
        /// The job's name; with @HOST for a job that is each host's own
        #[arg(value_parser = Job::parse)]
        job: Job,
        /// A file that the job publishes, or a token that a target has seen; may be given several times
        #[arg(long, value_name = "TARGET", group = "least")]
        fence: Vec<String>,
        /// A token; the next one is above it
        #[arg(long, value_name = "N", value_parser = super::token, group = "least")]
        above: Option<Token>,
    },
}
