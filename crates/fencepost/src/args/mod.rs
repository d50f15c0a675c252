//! Command-line grammar.

pub mod demo;
pub mod hook;
pub mod operate;
pub mod publish;
mod run;
pub mod serve;
pub mod store;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fencepost_core::ledger::Status;
use fencepost_core::name::{Job, Name};
use fencepost_core::token::Token;

use crate::duration;
use crate::exit::Code;
use crate::help::{self, describe::GLOBAL};
use crate::options::{LEASE, ONCE, PLAN, Typed};
pub use run::{RunOptions, Sink};

/// Run it once, on fresh input, and let nothing stale write
#[derive(Debug, Parser)]
#[command(name = "fencepost", version, subcommand_value_name = "VERB")]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options that stand on either side of the verb.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// The store that holds the leases, as a URL (default: the embedded one, in the state directory)
    #[arg(long, global = true, value_name = "URL", help_heading = GLOBAL)]
    pub store: Option<String>,
    /// The configuration (default: FENCEPOST_CONFIG, or the nearest fencepost.toml)
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub config: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// Print what the verb does, not only what is wrong
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = GLOBAL)]
    pub verbose: bool,
    /// Print nothing
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub quiet: bool,
    /// Whether messages name only the place of a mistake in the configuration. No option sets it: `serve` does, for
    /// callers without a token.
    #[arg(skip)]
    pub hides_configuration: bool,
}

/// The grammar of `run` alone. Cron starts `run` thousands of times a day, and building the whole grammar costs more than
/// twice as much. The whole grammar explains the mistakes of a line that
/// this one refuses.
#[derive(Debug, Parser)]
#[command(name = "fencepost", disable_help_flag = true, disable_help_subcommand = true)]
struct RunArguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: RunVerb,
}

#[derive(Debug, Subcommand)]
enum RunVerb {
    Run(Box<RunOptions>),
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Verb {
    /// Run a command under a lock: never twice at once, on one machine of many, on fresh input
    Run(Box<RunOptions>),
    /// Take, renew or release a lease (a lock that expires) by hand, in scripts and other languages
    #[command(subcommand)]
    Lease(LeaseVerb),
    /// Write a file, directory, git branch, table or key in a way that a stale run cannot overwrite
    #[command(subcommand)]
    Publish(publish::PublishVerb),
    /// Record how a job ended: ok, empty or error
    Record(RecordOptions),
    /// Check that the jobs this work depends on have succeeded
    Gate(GateOptions),
    /// Run a command once per key: a finished item of work is not repeated (idempotency)
    Once(Box<OnceOptions>),
    /// Show when a job runs next, which slots would run now, which are dropped, and why
    Plan(Box<PlanOptions>),
    /// Stop a job, or all, from starting until `resume` or for a time
    Pause(operate::PauseOptions),
    /// Let a paused job start again; slots that passed meanwhile are not caught up
    Resume(operate::JobsArgument),
    /// Delete what is recorded of a job, and hide it from status; no slot runs again by this
    Forget(operate::ForgetOptions),
    /// List all jobs: what needs attention, when each is due, how it last ended
    Status(StatusOptions),
    /// Show how long runs take, and recommend a time-to-live and an interval
    Advise(AdviseOptions),
    /// List past runs and how they ended
    Runs(RunsOptions),
    /// Schedule the jobs of the configuration, as a daemon; any number of machines may do so
    Up(UpOptions),
    /// Show the output of a job's runs
    Logs(LogsOptions),
    /// Check the configuration for mistakes, and show when each job is due
    Validate(operate::ValidateOptions),
    /// Write a first configuration, or convert a crontab
    Init(operate::InitOptions),
    /// Have systemd, launchd or cron start the jobs
    Install(operate::InstallOptions),
    /// List jobs whose scheduled time passed without a run; exit 1 if there are any
    Overdue(operate::OverdueOptions),
    /// Send a test message to the recipients of a job; exit 1 if one did not take it
    Notify(operate::NotifyOptions),
    /// Tell others how a run ended; started by `run` itself
    #[command(hide = true)]
    Notifier,
    /// Answer the hooks of an AI agent: refuse writes once the run must not write, and guard desktop sessions
    Hook(hook::HookOptions),
    /// Waits for the end of an agent's session; started by `hook` through `run`
    #[command(hide = true, name = "__session")]
    AgentSession(hook::SessionOptions),
    /// Explain why a slot of a job ran, failed, waited or was skipped, step by step
    Why(WhyOptions),
    /// Check, choose, move, back up or recover the store that holds the leases
    #[command(subcommand)]
    Store(store::StoreVerb),
    /// Hold leases for a program in any language: requests and answers as JSON lines on standard input and output
    Session,
    /// Answer an AI agent's questions about jobs, as an MCP server on standard input and output
    Mcp(operate::McpOptions),
    /// Show your jobs in the browser and over HTTP, and be a store for other machines
    Serve(Box<serve::ServeOptions>),
    /// Show five incidents live on this machine: what breaks without fencepost, and that it prevents them
    Demo(demo::DemoOptions),
    /// Print the JSON Schema of every --json answer and of the events
    Schema,
    /// Print a script that completes verbs, options and job names in your shell (tab completion)
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: operate::Shell,
    },
    /// Print the man page, or write one for each verb into a directory
    Man {
        /// The directory to write to (default: the main page on standard output)
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// What can follow the words that are typed; called by the completions
    #[command(hide = true, name = "__complete")]
    Complete(operate::CompleteOptions),
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
pub struct UpOptions {
    /// Only these jobs (default: all that have a schedule and are enabled)
    #[arg(value_parser = name, value_name = "JOB")]
    pub jobs: Vec<Name>,
    /// Run what is due now, and end
    #[arg(long)]
    pub once: bool,
}

#[derive(Debug, Args)]
pub struct LogsOptions {
    /// Only this job, with @HOST for one that is each host's own (default: the last lines of all jobs)
    #[arg(value_parser = Job::parse)]
    pub job: Option<Job>,
    /// Only this run, or the run whose id begins so
    #[arg(long, value_name = "R", conflicts_with = "slot")]
    pub run: Option<String>,
    /// Only the slot at this time: an instant, or a local time in the job's zone
    #[arg(long, value_name = "T")]
    pub slot: Option<String>,
    /// Go on until the run has ended
    #[arg(short, long, requires = "job")]
    pub follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "LINES")]
    pub lines: Option<usize>,
    /// Only the output itself, byte for byte: no heading, and nothing removed on a terminal
    #[arg(long)]
    pub raw: bool,
    /// Say which logs there are
    #[arg(long, conflicts_with_all = ["follow", "lines", "raw"])]
    pub list: bool,
}

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB")]
pub enum LeaseVerb {
    /// Take a lease (lock) and print its token; exit 11 if another holds it
    Acquire {
        #[command(flatten)]
        job: JobArgument,
        #[command(flatten)]
        typed: Box<Typed<LEASE>>,
    },
    /// Renew a lease that is still held under its token
    Renew {
        #[command(flatten)]
        job: JobArgument,
        /// The token that acquire printed
        #[arg(long, value_parser = token, value_name = "T")]
        token: Token,
    },
    /// Release a lease that you took, or take it from its holder: a run that loses it is stopped
    Release {
        #[command(flatten)]
        job: JobArgument,
        /// The token that acquire printed
        #[arg(long, value_parser = token, value_name = "T", required_unless_present = "force")]
        token: Option<Token>,
        /// Take the lease from its holder; a run that holds it is stopped, on another host at its next renewal
        #[arg(long, conflicts_with = "token")]
        force: bool,
        /// Record how the work under it ended, in the same step; 12 if T no longer holds it, and nothing is recorded
        #[arg(long, value_name = "ok|empty|error", conflicts_with = "force")]
        outcome: Option<String>,
        /// A file that the work left, recorded by its bytes; may be given several times
        #[arg(long, value_name = "PATH", requires = "outcome")]
        artifact: Vec<String>,
        /// Why, in words
        #[arg(long, value_name = "TEXT", requires = "outcome")]
        note: Option<String>,
    },
    /// Show who holds a lease
    Show {
        #[command(flatten)]
        job: JobArgument,
    },
    /// Hold a lease and renew it until standard input ends; exit 12 if it is lost
    Hold {
        #[command(flatten)]
        job: JobArgument,
        #[command(flatten)]
        typed: Box<Typed<LEASE>>,
    },
}

#[derive(Debug, Args)]
pub struct JobArgument {
    /// The job's name
    #[arg(value_parser = name)]
    pub job: Name,
    /// The job is each host's own
    #[arg(long)]
    pub per_host: bool,
}

#[derive(Debug, Args)]
pub struct RecordOptions {
    /// The job, and how it ended: ok, empty or error. Inside a run the job may be left out
    #[arg(required = true, num_args = 1..=2, value_names = ["JOB", "ok|empty|error"])]
    pub words: Vec<String>,
    /// Why, in words
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// A file that it left, recorded by its bytes; may be given several times
    #[arg(long, value_name = "PATH")]
    pub artifact: Vec<String>,
    /// The slot it was for, as an instant or a local time (default: the one that is due, or now)
    #[arg(long, value_name = "T", conflicts_with = "date")]
    pub slot: Option<String>,
    /// The day it was for
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub date: Option<String>,
    /// The zone whose days count, by its IANA name (default: the configuration's, or UTC)
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// End the lease by hand that `lease acquire` printed this token for, in the same step; 12 if T no longer holds it
    #[arg(long, value_parser = token, value_name = "T")]
    pub token: Option<Token>,
    /// The job is each host's own
    #[arg(long)]
    pub per_host: bool,
}

#[derive(Debug, Args)]
pub struct GateOptions {
    /// The job to depend on: NAME[@RULE][,artifact=PATH][,on-empty=proceed], with the rule last-due, same-day, same-slot,
    /// within=6h or any
    #[arg(required = true, value_name = "UPSTREAM")]
    pub upstreams: Vec<String>,
    /// A file of the upstream that will be read: it is compared with what was recorded
    #[arg(long, value_name = "PATH")]
    pub artifact: Vec<String>,
    /// The slot that asks, as an instant or a local time (default: the run's, or now)
    #[arg(long, value_name = "T", conflicts_with = "date")]
    pub slot: Option<String>,
    /// The day that asks
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub date: Option<String>,
    /// The zone whose days count, by its IANA name (default: the configuration's, or UTC)
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// Wait this long for upstreams that are not good yet
    #[arg(short, long, value_parser = duration::parse, value_name = "D")]
    pub wait: Option<Duration>,
    /// Proceed where an upstream had nothing
    #[arg(long)]
    pub on_empty_proceed: bool,
    /// A command that runs if the gate lets it through, with pinned copies of the artifacts; a skip then exits 0
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct OnceOptions {
    /// The item of work, such as invoices/2026-11/alice: the same for every attempt at it, and for nothing else
    #[arg(value_parser = name)]
    pub key: Name,
    /// With `show` or `forget` in place of a key, and no command: the key
    #[arg(value_parser = name, value_name = "ITEM", hide = true)]
    pub item: Option<Name>,
    /// With `forget`: do not ask
    #[arg(short, long, hide = true)]
    pub yes: bool,
    /// What it is done with: the same key with other bytes in this file is an error
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,
    /// What to do if an attempt died between its effect and its record: halt, retry, or verify=CMD, which says by exit 0
    /// that the effect is there and by exit 1 that it is not
    #[arg(long, value_name = "WHAT", default_value = "halt")]
    pub on_unknown: String,
    /// Run this string by sh -c
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "argv")]
    pub shell: Option<OsString>,
    /// The command, after --
    #[arg(id = "argv", last = true, value_name = "CMD")]
    pub argv: Vec<OsString>,
    #[command(flatten)]
    pub typed: Typed<ONCE>,
}

/// A question about items of work, instead of a command for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemVerb {
    List,
    Show,
    Forget,
}

impl OnceOptions {
    /// The verb in place of a key. With a command, `list`, `show` and `forget` are ordinary keys.
    pub fn about_items(&self) -> Option<ItemVerb> {
        let verb = match self.key.as_str() {
            "list" => ItemVerb::List,
            "show" => ItemVerb::Show,
            "forget" => ItemVerb::Forget,
            _ => return None,
        };
        (self.argv.is_empty() && self.shell.is_none()).then_some(verb)
    }
}

#[derive(Debug, Args)]
pub struct PlanOptions {
    /// Only this job, with @HOST for one that is each host's own (default: all with a schedule)
    #[arg(value_parser = Job::parse)]
    pub job: Option<Job>,
    /// As it would be at this time (default: now)
    #[arg(long, value_name = "T")]
    pub at: Option<String>,
    #[command(flatten)]
    pub typed: Typed<PLAN>,
}

#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Only this job
    #[arg(value_parser = name)]
    pub job: Option<Name>,
    /// Exit 1 if anything needs attention, and print only that
    #[arg(long, conflicts_with = "watch")]
    pub check: bool,
    /// What happened since then, counted for each job: 12h (ago), yesterday, 07:00 (the last one), a date or a time
    #[arg(long, value_name = "T")]
    pub since: Option<String>,
    /// Show it again and again on the terminal, every 2s or as often as given, until ctrl-C
    #[arg(long, value_parser = duration::parse, value_name = "D", num_args = 0..=1, require_equals = true,
          default_missing_value = "2s", conflicts_with_all = ["output", "json"])]
    pub watch: Option<Duration>,
    /// How to print it (default: table)
    #[arg(long, value_enum)]
    pub format: Option<StatusFormat>,
    /// Write it to a file instead, at once or not at all; with --format prom
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    /// For people
    Table,
    /// For programs, as --json
    Json,
    /// For Prometheus
    Prom,
}

#[derive(Debug, Args)]
pub struct AdviseOptions {
    /// Only this job, with @HOST for one that is each host's own (default: all)
    #[arg(value_parser = Job::parse)]
    pub job: Option<Job>,
}

#[derive(Debug, Args)]
pub struct RunsOptions {
    /// Only this job, with @HOST for one that is each host's own (default: all)
    #[arg(value_parser = Job::parse)]
    pub job: Option<Job>,
    /// Only runs that ended this way; may be given several times
    #[arg(long, value_parser = status, value_name = "STATUS")]
    pub status: Vec<Status>,
    /// Only slots at or after this: 12h (ago), yesterday, 07:00 (the last one), a date, a local time or an instant
    #[arg(long, value_name = "T")]
    pub since: Option<String>,
    /// Only slots at or before this, written as for --since; a day means all of it
    #[arg(long, value_name = "T")]
    pub until: Option<String>,
    /// The zone of dates and local times, by its IANA name (default: each job's own)
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// At most this many, the newest
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    pub limit: usize,
}

#[derive(Debug, Args)]
pub struct WhyOptions {
    /// The job's name; with @HOST for a job that is each host's own
    #[arg(value_parser = Job::parse)]
    pub job: Job,
    /// The newest slot at or before this: 12h (ago), yesterday, 07:00, a date or a time (default: the newest of all)
    #[arg(long, value_name = "T")]
    pub at: Option<String>,
    /// The zone of a date or local time, by its IANA name (default: the job's own)
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
}

impl Arguments {
    /// Reads the command line, or says what is wrong with it and which code to end with.
    pub fn from_command_line() -> Result<Self, Code> {
        if let Some(RunArguments { global, verb: RunVerb::Run(options) }) = run_alone(std::env::args_os()) {
            return Ok(Self { global, verb: Verb::Run(options) });
        }
        let parsed = Self::try_parse().map(|mut arguments| {
            let wants_json =
                matches!(&arguments.verb, Verb::Status(options) if options.format == Some(StatusFormat::Json));
            arguments.global.json |= wants_json;
            arguments
        });
        parsed.map_err(|error| help::answer(&error))
    }
}

/// The job that a command runs, if the command is `fencepost run JOB`.
pub fn inner_job(command: &[OsString]) -> Option<Name> {
    let program = std::path::Path::new(command.first()?).file_name()?;
    let own = std::env::args_os().next().and_then(|own| Some(std::path::PathBuf::from(own).file_name()?.to_owned()));
    let is_fencepost = program == "fencepost" || own.is_some_and(|own| own == program);
    let RunArguments { verb: RunVerb::Run(options), .. } = run_alone(command.iter().filter(|_| is_fencepost).cloned())?;
    Some(options.job)
}

/// Reads the command line of a `run` that has no mistake.
fn run_alone(words: impl Iterator<Item = OsString>) -> Option<RunArguments> {
    let words: Vec<OsString> = words.collect();
    first_word(&words).filter(|verb| *verb == "run")?;
    RunArguments::try_parse_from(words).ok()
}

/// The grammar of a command line without a verb.
#[derive(Debug, Parser)]
struct GlobalArguments {
    #[command(flatten)]
    global: Global,
}

/// Reads a command line that has global options only.
pub fn global_alone() -> Option<Global> {
    GlobalArguments::try_parse().ok().map(|arguments| arguments.global)
}

impl Verb {
    /// Whether the verb passes a child's exit code through, so that a usage error needs a code of its own.
    pub fn is_wrapper(&self) -> bool {
        match self {
            Self::Run(_) => true,
            Self::Once(options) => options.about_items().is_none(),
            _ => false,
        }
    }
}

/// The first word that is neither an option nor an option's value.
pub fn first_word(words: &[OsString]) -> Option<&OsString> {
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--store" | "--config") => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            _ => return Some(word),
        }
    }
    None
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn token(text: &str) -> Result<Token, String> {
    let number = text.parse().ok().and_then(Token::new);
    number.ok_or_else(|| format!("{text:?} is not a token: it is the number below 2^53 that acquire printed"))
}

fn status(text: &str) -> Result<Status, String> {
    let known = Status::ALL.into_iter().find(|status| status.as_str() == text);
    known.ok_or_else(|| {
        let all: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
        format!("{text:?} is not a status; there are {}", all.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_contradicts_itself_nowhere() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_of_a_verb_follow_the_verb() {
        for line in [
            "fencepost run j -- true",
            "fencepost -v run j -c true --json",
            "fencepost --store sqlite:x run --ttl 5m --grace=10s j -w 3s -E 7 --timeout 1h -- a -b -- c",
            "fencepost -q run run -- run",
            "fencepost --config a --store run run j --json -- -h",
            "fencepost run --per-host --needs a --needs b,artifact=x j -- true",
        ] {
            let Ok(Arguments { global, verb: Verb::Run(options) }) = Arguments::try_parse_from(line.split(' ')) else {
                panic!("{line}")
            };
            let alone = run_alone(line.split(' ').map(OsString::from)).expect("the grammar of `run` reads it too");
            let RunVerb::Run(alike) = alone.verb;
            assert_eq!(format!("{global:?}{options:?}"), format!("{:?}{alike:?}", alone.global), "{line}");
        }
        for line in [
            "fencepost run",
            "fencepost run j --tt 5m -- true",
            "fencepost run j -q -v -- true",
            "fencepost run j true",
            "fencepost run j --schedule @daily --every 1h",
            "fencepost run j --now --slot day",
            "fencepost run -h",
            "fencepost run j --version",
            "fencepost help run",
            "fencepost run j -c x -- y",
            "fencepost --ttl=5m run j -- true",
            "fencepost -w3s run j -- true",
            "fencepost --per-host run j -- true",
            "fencepost plan j --grace 5s",
        ] {
            assert!(Arguments::try_parse_from(line.split(' ')).is_err(), "{line}");
            assert!(run_alone(line.split(' ').map(OsString::from)).is_none(), "{line}");
        }
    }
}
