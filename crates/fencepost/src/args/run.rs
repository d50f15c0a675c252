//! Command-line grammar of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use fencepost_core::name::Name;

use super::name;
use crate::options::{RUN, Typed};

// A doc comment here would become the description of the verb.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The job's name: the same on every machine that may run it
    #[arg(value_parser = name)]
    pub job: Name,
    /// The command, after -- (default: the one of the configuration)
    #[arg(id = "argv", last = true, value_name = "CMD")]
    pub argv: Vec<OsString>,
    /// Run this string by sh -c
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "argv", help_heading = "What runs")]
    pub shell: Option<OsString>,
    #[command(flatten)]
    pub typed: Typed<RUN>,
    /// Run now, for the current slot or before the time of the next, which does not run again then
    ///
    /// The trigger that comes for that slot later is a duplicate, and so is another `--now`. A slot whose attempts are used
    /// up is repeated by `--again` only.
    #[arg(long, conflicts_with_all = ["again", "slot"], help_heading = "When it runs")]
    pub now: bool,
    /// Repeat the newest slot, or the one of `--slot`, although it is done or its attempts are used up
    #[arg(long, help_heading = "When it runs")]
    pub again: bool,
    /// Write what happens as JSON lines to a file, or to an open descriptor as fd:N
    ///
    /// The events are `claimed` `spawned` `renewed` `renewal_failed` `frozen` `thawed` `stopping` `left_overs` … `ended`. A
    /// stalled reader delays the end of the run by at most 5 s, and loses lines past a megabyte.
    #[arg(long, value_name = "FILE|fd:N", help_heading = "Output")]
    pub events: Option<OsString>,
    /// Say what the run would do now (run, wait, skip, halt, fail), and write nothing
    ///
    /// Upstreams are checked once and `prepare` is not run. The exit code is 0 if the command would run, otherwise the run's
    /// own. Fields of `--json`: `job decision reason message slot trigger exit_code`.
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
    /// Run the command without fencepost's own writes: nothing is claimed, published or recorded
    ///
    /// `publish`, `record`, `once` and `hook` inside it say what they would do: the target, the token, the digest, and a difference
    /// where it is text. Effects of the command that do not go through fencepost are real. `publish --if-digest` then writes
    /// only what was rehearsed.
    #[arg(long, conflicts_with_all = ["dry_run", "events", "session"], help_heading = "Output")]
    pub rehearse: bool,
    /// `up` started the run, on several machines at one instant
    #[arg(long, hide = true)]
    pub by_up: bool,
    /// `hook` started the run for a session of an agent, which this file describes
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["argv", "shell"])]
    pub session: Option<PathBuf>,
}

/// Where events go.
#[derive(Debug, PartialEq, Eq)]
pub enum Sink {
    File(PathBuf),
    Descriptor(u32),
}

impl Sink {
    pub fn parse(text: &OsString) -> Result<Self, String> {
        match text.to_str().and_then(|text| text.strip_prefix("fd:")) {
            None => Ok(Self::File(PathBuf::from(text))),
            Some(number) => number
                .parse()
                .map(Self::Descriptor)
                .map_err(|_| format!("--events {}: fd: takes the number of an open descriptor", text.display())),
        }
    }
}
