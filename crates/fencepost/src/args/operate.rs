//! Command-line grammar of the verbs that start jobs and report those that did not run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fencepost_core::name::Name;
use regex_lite::Regex;

use super::hook::Agent;
use super::name;
use crate::duration;

#[derive(Debug, Args)]
pub struct ValidateOptions {
    /// Compare with the triggers that are installed here, and with what really ran; exit 1 if they differ
    #[arg(long)]
    pub installed: bool,
    /// Compare each job with its definition at the last good run, with what is installed here, and with its own past runs; exit 1
    /// if they differ, 125 if something cannot be read
    #[arg(long)]
    pub drift: bool,
    /// Also tell the recipients of `on_drift`, each difference once
    #[arg(long, requires = "drift")]
    pub notify: bool,
}

#[derive(Debug, Args)]
pub struct OverdueOptions {
    /// How late a slot may be before it counts (default: the job's slack, 1m)
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub grace: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct McpOptions {
    /// Also offer the tools that write: record, publish_file, pause, resume, run_now and once
    #[arg(long)]
    pub allow_writes: bool,
}

#[derive(Debug, Args)]
pub struct NotifyOptions {
    /// The job, by its name in the configuration
    #[arg(value_parser = name)]
    pub job: Name,
    /// Send a test message to every recipient of the job
    #[arg(long, required = true)]
    pub test: bool,
}

#[derive(Debug, Args)]
pub struct InitOptions {
    /// Take the jobs from your crontab, or from a file in its format; the crontab is left as it is
    #[arg(long, value_name = "crontab[=FILE]")]
    pub from: Option<String>,
    /// The file has a column with the user, as /etc/crontab has
    #[arg(long, requires = "from")]
    pub with_user: bool,
    /// Where to write it, or - for standard output (default: fencepost.toml in the working directory)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct InstallOptions {
    /// What starts the jobs
    #[arg(value_enum)]
    pub target: Target,
    /// Only these jobs, with a trigger each (default: all that are enabled and have a schedule)
    #[arg(value_parser = name, value_name = "JOB")]
    pub jobs: Vec<Name>,
    /// A trigger for each job that calls `run JOB`, instead of one for `up`; a crontab always has that
    #[arg(long)]
    pub per_job: bool,
    /// A server instead of triggers; the options of `fencepost serve` follow `--`
    #[arg(long, conflicts_with_all = ["jobs", "per_job"])]
    pub serve: bool,
    /// The options of `fencepost serve`
    #[arg(last = true, requires = "serve", value_name = "OPTION")]
    pub serve_options: Vec<OsString>,
    /// Write it to its place (default: print it); lines of the crontab that the jobs replace are commented out
    #[arg(long, conflicts_with = "remove")]
    pub write: bool,
    /// Take it away again, and restore the lines of the crontab
    #[arg(long)]
    pub remove: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Hooks for this directory only (the default)
    #[arg(long, help_heading = AGENTS, conflicts_with = "user")]
    pub project: bool,
    /// Hooks for all projects of this user
    #[arg(long, help_heading = AGENTS)]
    pub user: bool,
    /// Block a tool if fencepost is missing or crashes; without it a colleague who has no fencepost keeps working (claude)
    #[arg(long, help_heading = AGENTS)]
    pub fail_closed: bool,
    /// Sessions outside a run claim this job's slot; see `fencepost hook`
    #[arg(long, value_parser = name, value_name = "JOB", help_heading = AGENTS)]
    pub job: Option<Name>,
    /// Only sessions whose first prompt matches this
    #[arg(long, value_parser = super::hook::pattern, value_name = "REGEX", requires = "job", help_heading = AGENTS)]
    pub match_prompt: Option<Regex>,
}

/// The heading of the options for hooks.
const AGENTS: &str = "Hooks of agents";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Units of the user's systemd
    Systemd,
    /// Agents of the user's launchd
    Launchd,
    /// Lines of the user's crontab
    Crontab,
    /// Hooks of Claude Code
    Claude,
    /// Hooks of Codex
    Codex,
    /// Hooks of Gemini CLI
    Gemini,
    /// Hooks of Antigravity
    Antigravity,
}

impl Target {
    /// The agent whose hooks are installed.
    pub fn agent(self) -> Option<Agent> {
        match self {
            Self::Systemd | Self::Launchd | Self::Crontab => None,
            Self::Claude => Some(Agent::Claude),
            Self::Codex => Some(Agent::Codex),
            Self::Gemini => Some(Agent::Gemini),
            Self::Antigravity => Some(Agent::Antigravity),
        }
    }
}

#[derive(Debug, Args)]
pub struct PauseOptions {
    #[command(flatten)]
    pub jobs: JobsArgument,
    /// Resume by itself after this time (default: not before `resume`)
    #[arg(long = "for", value_parser = duration::parse, value_name = "D")]
    pub length: Option<Duration>,
    /// Why, in words
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

// One job, or all. A doc comment here would replace the first line of the verbs' help.
#[derive(Debug, Args)]
pub struct JobsArgument {
    /// The job's name
    #[arg(value_parser = name, required_unless_present = "all")]
    pub job: Option<Name>,
    /// All jobs of the configuration and of the store
    #[arg(long, conflicts_with_all = ["job", "per_host"])]
    pub all: bool,
    /// The job is each host's own
    #[arg(long)]
    pub per_host: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

#[derive(Debug, Args)]
pub struct CompleteOptions {
    /// A new word begins after the last one
    #[arg(long)]
    pub new_word: bool,
    /// The words after the program's name; the last one is being typed
    #[arg(last = true)]
    pub words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct ForgetOptions {
    /// The job's name
    #[arg(value_parser = name)]
    pub job: Name,
    /// The job is each host's own
    #[arg(long)]
    pub per_host: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}
