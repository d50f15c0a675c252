//! Command-line grammar of `publish git`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::PublishOptions;
use crate::duration;

#[derive(Debug, Args)]
pub struct GitOptions {
    /// The remote, by its name or its URL
    #[arg(long, value_name = "REMOTE", default_value = "origin")]
    pub remote: String,
    /// A branch to push, or COMMIT:BRANCH; can be repeated (default: the current branch)
    #[arg(long, value_name = "BRANCH")]
    pub branch: Vec<String>,
    /// The repository (default: the one around the current directory)
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    pub repo: PathBuf,
    /// The ref that holds the fence on the remote (default: the job's, under refs/fencepost/fence/)
    #[arg(long, value_name = "REF")]
    pub fence_ref: Option<String>,
    /// If another push landed in between, rebase onto it and push again. On a conflict nothing is changed
    #[arg(long)]
    pub rebase: bool,
    /// How long one call of git may take, with its hooks and credential helpers. Then it is killed
    #[arg(long, value_parser = duration::parse, default_value = "10m", value_name = "D")]
    pub timeout: Duration,
    /// Push nothing; install a pre-push hook that refuses a bare git push from inside a run
    #[arg(long, conflicts_with_all = ["branch", "fence_ref", "rebase", "token", "dry_run"])]
    pub hook: bool,
    /// Take the hook out again
    #[arg(long, requires = "hook")]
    pub remove: bool,
    #[command(flatten)]
    pub common: PublishOptions,
}
