//! What was typed after `store`.

use std::path::PathBuf;

use clap::Subcommand;
use fencepost_core::name::Job;
use fencepost_core::token::Token;

#[derive(Debug, Subcommand)]
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
    /// Move everything to another store while no lease is held, and seal this one; repeat it if it was cut short
    Copy {
        /// The store that is left
        from: String,
        /// The store that is moved to; it has no jobs yet
        to: String,
        /// A file with the password of FROM
        #[arg(long, value_name = "FILE")]
        from_password_file: Option<PathBuf>,
        /// A file with the password of TO
        #[arg(long, value_name = "FILE")]
        to_password_file: Option<PathBuf>,
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
