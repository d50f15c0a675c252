//! What a run goes by: the command line beats the job's keys, those beat `[defaults]`, those beat what is built in.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::barrier::Need;
use fencepost_core::name::Name;
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::{Base, Declared};

use crate::args::{OnceOptions, OverlapChoice, RunBasics, RunOptions, StoreErrorChoice};
use crate::calendar::{self, SlotRule};
use crate::command::{self, check_ttl};
use crate::config::{Config, GRACE, GRACES_PER_TTL, JobConfig, Located};
use crate::duration;
use crate::exit::Failure;
use crate::upstreams;

/// How long a retry waits at first.
const RETRY_BACKOFF: Duration = Duration::from_secs(10);

/// Everything that may be said about a run, decided.
#[derive(Debug)]
pub struct Settings {
    pub argv: Vec<OsString>,
    /// Where the job runs, if not where we are.
    pub working_directory: Option<PathBuf>,
    /// Variables that are added to the job's environment.
    pub environment: Vec<(OsString, OsString)>,
    pub ttl: Duration,
    pub grace: Duration,
    pub timeout: Option<Duration>,
    pub wait: Option<Duration>,
    pub skip_exit: u8,
    pub overlap: OverlapChoice,
    pub on_store_error: StoreErrorChoice,
    pub leave_children: bool,
    pub output_on_failure: bool,
    /// The zone whose days count.
    pub zone: Zone,
    pub slot: SlotRule,
    pub retries: u32,
    pub retry_backoff: Duration,
    pub catch_up_spacing: Duration,
    pub observe: bool,
    /// It was started by `up`.
    pub by_up: bool,
    pub base: Base,
    pub needs: Vec<Need>,
    pub needs_wait: Duration,
    pub prepare: Option<Vec<OsString>>,
    pub produces: Vec<Declared>,
    pub empty_exit: Option<u8>,
    pub stuck_after: Option<u32>,
    /// What is worth a word before the job runs.
    pub remark: Option<String>,
    /// What the configuration says about the job, for what no option of the command line says.
    pub keys: JobConfig,
}

impl Settings {
    pub fn of(options: &RunOptions, config: Option<&Config>, store: &str) -> Result<Self, Failure> {
        let RunOptions { basics, more } = options;
        let keys = config.map(|config| config.job(&basics.job).clone()).unwrap_or_default();
        let base = upstreams::base(config, &basics.job)?;
        let zone = calendar::zone(more.tz.as_deref(), config, &basics.job)?;
        let shell = |script: &OsString| vec!["/bin/sh".into(), "-c".into(), script.clone()];
        let ttl = command::ttl(basics.ttl.or(value(&keys.ttl)), store)?;
        Ok(Self {
            argv: argv(basics, config, &keys)?,
            working_directory: working_directory(&basics.job, config, &keys),
            environment: keys.environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            ttl,
            grace: grace(ttl, basics.grace.or(value(&keys.grace)))?,
            timeout: basics.timeout.or(value(&keys.timeout)),
            wait: basics.wait.or(value(&keys.wait)),
            skip_exit: basics.skip_exit.or(keys.skip_exit).unwrap_or(0),
            overlap: more.overlap.or(keys.overlap).unwrap_or(OverlapChoice::Skip),
            on_store_error: more.on_store_error.or(keys.on_store_error).unwrap_or(StoreErrorChoice::Fail),
            leave_children: more.leave_children || keys.leave_children == Some(true),
            output_on_failure: more.output_on_failure || keys.output_on_failure == Some(true),
            slot: calendar::slot_rule(options, config, &keys, &zone)?,
            retries: more.retries.or(keys.retries).unwrap_or(0),
            retry_backoff: more.retry_backoff.or(value(&keys.retry_backoff)).unwrap_or(RETRY_BACKOFF),
            catch_up_spacing: more.catch_up_spacing.or(value(&keys.catch_up_spacing)).unwrap_or_default(),
            observe: more.observe || keys.observe == Some(true),
            by_up: more.by_up,
            zone,
            needs: needs(options, config, &keys, &base)?,
            needs_wait: more.needs_wait.or(value(&keys.needs_wait)).unwrap_or_default(),
            prepare: more.prepare.as_ref().map(shell).or(keys.prepare.as_ref().map(|line| line.value.argv())),
            produces: upstreams::produces(&more.produces, &keys, &base)?,
            empty_exit: empty_exit(more.empty_exit.or(keys.empty_exit))?,
            stuck_after: more.stuck_after.or(keys.stuck_after),
            base,
            remark: remark(&basics.job, config),
            keys,
        })
    }
}

impl Settings {
    /// What an item of work goes by that is done once: no configuration, no slots, nothing but the command.
    pub fn of_once(options: &OnceOptions, slot: SlotRule, store: &str) -> Result<Self, Failure> {
        let argv = match &options.shell {
            Some(script) => vec!["/bin/sh".into(), "-c".into(), script.clone()],
            None if options.command.is_empty() => {
                let example = format!("fencepost once {} -- ./charge.sh", options.key);
                return Err(Failure::Usage(format!("There is no command to run. Write it after --, as in: {example}")));
            }
            None => options.command.clone(),
        };
        let ttl = command::ttl(options.ttl, store)?;
        Ok(Self {
            argv,
            working_directory: None,
            environment: Vec::new(),
            ttl,
            grace: grace(ttl, options.grace)?,
            timeout: options.timeout,
            wait: options.wait,
            skip_exit: 0,
            overlap: OverlapChoice::Skip,
            on_store_error: StoreErrorChoice::Fail,
            leave_children: false,
            output_on_failure: false,
            zone: Zone::utc(),
            slot,
            retries: 0,
            retry_backoff: RETRY_BACKOFF,
            catch_up_spacing: Duration::ZERO,
            observe: false,
            by_up: false,
            base: Base::new(&upstreams::working_directory()?),
            needs: Vec::new(),
            needs_wait: Duration::ZERO,
            prepare: None,
            produces: Vec::new(),
            empty_exit: None,
            stuck_after: None,
            remark: None,
            keys: JobConfig::default(),
        })
    }
}

fn needs(options: &RunOptions, config: Option<&Config>, keys: &JobConfig, base: &Base) -> Result<Vec<Need>, Failure> {
    let RunOptions { basics, more } = options;
    let needs = upstreams::needs(&more.needs, config, keys, base)?;
    upstreams::check_self(&needs, &basics.job)?;
    upstreams::check_inputs(&needs)?;
    Ok(needs)
}

fn value<T: Copy>(key: &Option<Located<T>>) -> Option<T> {
    key.as_ref().map(|key| key.value)
}

fn argv(basics: &RunBasics, config: Option<&Config>, keys: &JobConfig) -> Result<Vec<OsString>, Failure> {
    if let Some(script) = &basics.shell {
        return Ok(vec!["/bin/sh".into(), "-c".into(), script.clone()]);
    }
    if !basics.command.is_empty() {
        return Ok(basics.command.clone());
    }
    if let Some(command) = &keys.command {
        return Ok(command.value.argv());
    }
    let job = &basics.job;
    let near = config.and_then(|config| config.near(job)).map(|near| format!(" Did you mean {near:?}?"));
    let why = match config {
        None => String::new(),
        Some(config) if config.jobs.contains_key(job) => {
            format!(" {} says nothing of it: add command = … to [job.{job}].", config.path.display())
        }
        Some(config) => format!(" {} has no job {job}.{}", config.path.display(), near.unwrap_or_default()),
    };
    let example = format!("Write it after --, as in: fencepost run {job} -- ./job.sh");
    Err(Failure::Usage(format!("There is no command to run.{why} {example}")))
}

/// A job of the configuration runs beside it, wherever it was started from. Any other runs where it was started.
fn working_directory(job: &Name, config: Option<&Config>, keys: &JobConfig) -> Option<PathBuf> {
    let config = config.filter(|config| config.jobs.contains_key(job));
    config.map(|config| config.working_directory(keys))
}

/// A grace that fits: stopping a job must take a small part of its lease only.
fn grace(ttl: Duration, grace: Option<Duration>) -> Result<Duration, Failure> {
    check_ttl(ttl)?;
    let most = ttl / GRACES_PER_TTL;
    match grace {
        None => Ok(GRACE.min(most)),
        Some(grace) if grace <= most => Ok(grace),
        Some(grace) => Err(Failure::Usage(format!(
            "--ttl {} is shorter than three times --grace {}: stopping the job could take longer than its lease. \
             Give a --ttl of at least {}, or a shorter --grace.",
            duration::show(ttl),
            duration::show(grace),
            duration::show(grace.saturating_mul(GRACES_PER_TTL))
        ))),
    }
}

/// An exit code that can say "nothing": 0 says "done" already.
fn empty_exit(code: Option<u8>) -> Result<Option<u8>, Failure> {
    match code {
        Some(0) => Err(Failure::Usage(
            "--empty-exit 0 would make every good run an empty one. Choose a code that the command does not use \
             otherwise, for example 75."
                .to_string(),
        )),
        other => Ok(other),
    }
}

fn remark(job: &Name, config: Option<&Config>) -> Option<String> {
    let config = config?;
    let near = config.near(job)?;
    Some(format!("{job} is not in {}, but {near} is. It runs as a job of its own.", config.path.display()))
}
