//! Command-line grammar of `hook`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fencepost_core::name::Name;
use regex_lite::Regex;

use super::name;

/// An agent whose hooks are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Agent {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// Antigravity
    Antigravity,
}

impl Agent {
    pub fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Antigravity => "antigravity",
        }
    }
}

#[derive(Debug, Args)]
pub struct HookOptions {
    /// The agent that calls, and in whose format it is answered
    #[arg(value_enum)]
    pub agent: Agent,
    /// For sessions outside a run: the job whose slot the first prompt of a session claims
    #[arg(long, value_parser = name, value_name = "JOB")]
    pub job: Option<Name>,
    /// Only sessions whose first prompt matches this; any other is a person at work, whom nothing stops
    #[arg(long, value_parser = pattern, value_name = "REGEX", requires = "job")]
    pub match_prompt: Option<Regex>,
}

#[derive(Debug, Args)]
pub struct SessionOptions {
    pub file: PathBuf,
}

pub fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}
