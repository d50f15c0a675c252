//! What was typed for a run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use fencepost_core::name::Name;
use serde::Serialize;

use super::{Arguments, Global, Verb, name, verb_asked_for};
use crate::config::{CatchUpMode, CatchUpOrder, OnLost, RETRIES_MAX};
use crate::duration;

#[derive(Debug, PartialEq, Args)]
pub struct RunOptions {
    #[command(flatten)]
    pub basics: RunBasics,
    #[command(flatten)]
    pub more: RunMore,
}

/// What most lines of a crontab say.
#[derive(Debug, PartialEq, Args)]
pub struct RunBasics {
    /// The job's name: the same on every machine that may run it
    #[arg(value_parser = name)]
    pub job: Name,
    /// Run this string by sh -c
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "command")]
    pub shell: Option<OsString>,
    /// The command, after -- (default: the one of the configuration)
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
    /// How long the lease lasts without a renewal; it is renewed every third of it (default: 5m)
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub ttl: Option<Duration>,
    /// How long the job has between TERM and KILL (default: 10s, or a third of a shorter ttl)
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub grace: Option<Duration>,
    /// End the job if it runs longer
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub timeout: Option<Duration>,
    /// Wait this long for the lease if another run holds it
    #[arg(short, long, value_parser = duration::parse, value_name = "D")]
    pub wait: Option<Duration>,
    /// Exit with this code instead of 0 if the run is skipped
    #[arg(short = 'E', long, value_name = "N")]
    pub skip_exit: Option<u8>,
}

/// What the others say besides.
#[derive(Debug, Default, PartialEq, Args)]
pub struct RunMore {
    /// What to do while another run of the job is going (default: skip)
    #[arg(long, value_enum)]
    pub overlap: Option<OverlapChoice>,
    /// The job is each host's own: only runs on this host exclude each other
    #[arg(long)]
    pub per_host: bool,
    /// What to do if the store cannot be reached: fail, or run without a lease and without a token (default:
    /// fail)
    #[arg(long, value_enum)]
    pub on_store_error: Option<StoreErrorChoice>,
    /// The zone whose days count, by its IANA name (default: UTC)
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// When the job is due, as cron writes it or as "every 45m": the run is for the slot that is due, once
    #[arg(long, value_name = "CRON", conflicts_with_all = ["every", "slot"])]
    pub schedule: Option<String>,
    /// The job is due this often
    #[arg(long, value_parser = duration::parse, value_name = "D", conflicts_with = "slot")]
    pub every: Option<Duration>,
    /// The slot the run is for, without a schedule: this day, hour or minute, or an instant; a slot that is done is
    /// not done again
    #[arg(long, value_name = "day|hour|minute|T")]
    pub slot: Option<String>,
    /// A trigger this much late is on time, and one this much early waits for its slot (default: 1m)
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub slack: Option<Duration>,
    /// Run now, for the current slot or before the time of the next, which does not run again then
    #[arg(long, conflicts_with_all = ["again", "slot"])]
    pub now: bool,
    /// Repeat a slot that is done, or whose attempts are used up
    #[arg(long)]
    pub again: bool,
    /// How many attempts a slot has after its first, over all triggers and machines (default: 0)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(RETRIES_MAX)))]
    pub retries: Option<u32>,
    /// How long to wait before the first retry; twice as long before each next (default: 10s)
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub retry_backoff: Option<Duration>,
    /// What to do about a slot whose run died: run it again, or halt (default: rerun)
    #[arg(long, value_enum, value_name = "WHAT")]
    pub on_lost: Option<OnLost>,
    /// Of the slots that are due and not done, how many of the most recent run (default: 1)
    #[arg(long, value_name = "N")]
    pub catch_up: Option<u32>,
    /// No slot older than this is caught up (default: as many periods as --catch-up)
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub catch_up_within: Option<Duration>,
    /// Whether each missed slot runs, or one run covers the gap (default: each)
    #[arg(long, value_enum, value_name = "MODE")]
    pub catch_up_mode: Option<CatchUpMode>,
    /// Which missed slot runs first (default: oldest)
    #[arg(long, value_enum, value_name = "ORDER")]
    pub catch_up_order: Option<CatchUpOrder>,
    /// How long to wait between the runs of missed slots
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub catch_up_spacing: Option<Duration>,
    /// Decide and record everything, but skip, halt and stop nothing
    #[arg(long)]
    pub observe: bool,
    /// Work only if this upstream is good: NAME[@last-due|same-day|same-slot|within=6h|any][,artifact=PATH]; may be
    /// given several times
    #[arg(long, value_name = "SPEC")]
    pub needs: Vec<String>,
    /// Wait this long for upstreams that are not good yet (default: not at all)
    #[arg(long, value_parser = duration::parse, value_name = "D")]
    pub needs_wait: Option<Duration>,
    /// Run this string by sh -c first, under the lease: for example a git pull
    #[arg(long, value_name = "STRING")]
    pub prepare: Option<OsString>,
    /// A file or pattern that the command writes: PATH[,min-bytes=N]; may be given several times
    #[arg(long, value_name = "PATH")]
    pub produces: Vec<String>,
    /// The exit code by which the command says that there was nothing to do
    #[arg(long, value_name = "N")]
    pub empty_exit: Option<u8>,
    /// Warn when this many good runs in a row have left the same bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub stuck_after: Option<u32>,
    /// Leave alone what the command leaves running
    #[arg(long)]
    pub leave_children: bool,
    /// Hold the command's output back, and print it only if it fails
    #[arg(long)]
    pub output_on_failure: bool,
    /// Write what happens as JSON lines to a file, or to an open descriptor as fd:N
    #[arg(long, value_name = "FILE|fd:N")]
    pub events: Option<OsString>,
    /// Say what the run would do now (run, wait, skip, halt, fail), and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// It is started by `up`, on several machines at one instant
    #[arg(long, hide = true)]
    pub by_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapChoice {
    /// Leave it to the run that is going, and exit 0
    Skip,
    /// Ask that run to stop, and take its place
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreErrorChoice {
    Fail,
    Run,
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

/// Reads the command line of a run, if it is one and there is nothing wrong with it.
///
/// What cron asks for thousands of times a day is read by its own part of the grammar alone, and what most of them ask
/// for by less than that: building the whole of it takes as long as starting the program. What a part does not
/// understand is for the whole to explain.
pub(super) fn read() -> Option<Arguments> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let verb = verb_asked_for(&words, is_global)?;
    if words.remove(verb) != "run" {
        return None;
    }
    let (global, options) = match Part::<RunBasics>::try_parse_from(&words) {
        Ok(Part { global, options: basics }) => (global, RunOptions { basics, more: RunMore::default() }),
        Err(_) => {
            let Part { global, options } = Part::<RunOptions>::try_parse_from(&words).ok()?;
            (global, options)
        }
    };
    Some(Arguments { global, verb: Verb::Run(Box::new(options)) })
}

/// Whether an option stands on either side of a verb. Any other before it is for the whole grammar to refuse: without the verb
/// it would look like one behind it.
fn is_global(option: &str) -> bool {
    matches!(option, "-q" | "-v" | "--quiet" | "--verbose" | "--json")
        || option.starts_with("--store=")
        || option.starts_with("--config=")
}

/// The part of the grammar that a run needs, once its verb is out of the way.
#[derive(Debug, Parser)]
#[command(name = "fencepost", disable_help_flag = true)]
struct Part<Options: Args> {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    options: Options,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each part of the grammar makes of a line, from the smallest to the whole.
    fn readings(line: &str) -> [Option<(Global, RunOptions)>; 3] {
        let mut words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let whole = Arguments::try_parse_from(&words).ok();
        let Some(verb) = verb_asked_for(&words, is_global) else {
            assert!(whole.is_none(), "{line}: {whole:?}");
            return [None, None, None];
        };
        assert_eq!(words.remove(verb), "run");
        let basics = Part::<RunBasics>::try_parse_from(&words).ok();
        let run = Part::<RunOptions>::try_parse_from(&words).ok();
        [
            basics.map(|Part { global, options: basics }| (global, RunOptions { basics, more: RunMore::default() })),
            run.map(|Part { global, options }| (global, options)),
            whole.map(|Arguments { global, verb }| match verb {
                Verb::Run(options) => (global, *options),
                other => panic!("{other:?}"),
            }),
        ]
    }

    #[test]
    fn what_a_part_of_the_grammar_reads_the_whole_reads_alike() {
        for line in [
            "fencepost run j -- true",
            "fencepost run -q j -- true --ttl 5s",
            "fencepost -v run j -c true --json",
            "fencepost --store sqlite:x run --ttl 5m --grace=10s j -w 3s -E 7 --timeout 1h -- a -b -- c",
            "fencepost run j",
            "fencepost -q run run -- run",
            "fencepost --config a --store run run j --json -- -h",
            "fencepost --config=a --store=run --quiet run j -- true",
        ] {
            let [basics, run, whole] = readings(line);
            assert!(whole.is_some() && basics == whole && run == whole, "{line}: {basics:?} {run:?} {whole:?}");
        }
        for line in ["fencepost run j --schedule daily -- true", "fencepost run --per-host --needs a j -- true"] {
            let [basics, run, whole] = readings(line);
            assert!(whole.is_some() && basics.is_none() && run == whole, "{line}: {basics:?} {run:?} {whole:?}");
        }
        for line in [
            "fencepost run",
            "fencepost run j --tt 5m -- true",
            "fencepost run j -q -v -- true",
            "fencepost run j true",
            "fencepost run run j",
            "fencepost run -h",
            "fencepost run j --version",
            "fencepost --ttl=5m run j -- true",
            "fencepost -w3s run j -- true",
            "fencepost --per-host run j -- true",
            "fencepost -ctrue run j",
            "fencepost -c run run j",
        ] {
            assert_eq!(readings(line), [None, None, None], "{line}");
        }
    }
}
