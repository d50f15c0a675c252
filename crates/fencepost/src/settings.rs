//! The settings of a run: the command line takes precedence over the job's keys, those over `[defaults]`, those over the
//! built-in defaults.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::barrier::Need;
use fencepost_core::name::Name;
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::{Base, DeclaredArtifact};

use crate::args::{OnceOptions, RunOptions};
use crate::calendar::{self, SlotRule};
use crate::command::{self, check_ttl};
use crate::config::{Config, GRACE, GRACES_PER_TTL};
use crate::duration;
use crate::exit::Failure;
use crate::options::{Given, JobOptions, OptionSet};
use crate::upstreams;

/// The settings of a run: the options, and the values derived from them.
#[derive(Debug)]
pub struct Settings {
    /// The options of the command line over those of the configuration.
    pub options: JobOptions,
    pub argv: Vec<OsString>,
    /// The directory that the job runs in, if not the current one.
    pub working_directory: Option<PathBuf>,
    pub ttl: Duration,
    pub grace: Duration,
    /// The zone whose days count.
    pub zone: Zone,
    pub slot: SlotRule,
    pub base: Base,
    pub needs: Vec<Need>,
    pub produces: Vec<DeclaredArtifact>,
    /// The configuration names the job.
    pub is_configured: bool,
    /// `up` started the run.
    pub by_up: bool,
    /// The session of an agent that the run holds the lease for.
    pub session: Option<PathBuf>,
    /// A remark to print before the job runs.
    pub remark: Option<String>,
}

impl Settings {
    pub fn of(run: &RunOptions, config: Option<&Config>, store: &str) -> Result<Self, Failure> {
        let settings = Self::of_program(run, config, store)?;
        Ok(Self { argv: argv(run, config, &settings.options)?, ..settings })
    }

    /// The settings of a job whose work a program does itself: there is no command.
    pub fn of_program(run: &RunOptions, config: Option<&Config>, store: &str) -> Result<Self, Failure> {
        if let Some(config) = config {
            config.refuse_broken(&run.job)?;
        }
        let typed = &run.typed.0;
        let options = match config {
            Some(config) => typed.clone().over(config.job(&run.job)),
            None => typed.clone(),
        };
        let base = upstreams::base(config, &run.job)?;
        let zone = calendar::zone(typed.timezone.value().as_deref(), config, &run.job)?;
        let ttl = command::ttl(options.ttl.value(), store)?;
        Ok(Self {
            argv: Vec::new(),
            working_directory: working_directory(&run.job, config, &options),
            ttl,
            grace: grace(ttl, options.grace.value())?,
            slot: calendar::slot_rule(run, config, &options, &zone)?,
            zone,
            needs: needs(run, config, &options, &base)?,
            produces: upstreams::produces(&options, &base)?,
            base,
            is_configured: config.is_some_and(|config| config.jobs.contains_key(&run.job)),
            by_up: run.by_up,
            session: run.session.clone(),
            remark: remark(&run.job, config),
            options,
        })
    }

    /// The settings of an item of work: no configuration and no slots, only the command.
    pub fn of_once(once: &OnceOptions, slot: SlotRule, store: &str) -> Result<Self, Failure> {
        let argv = match &once.shell {
            Some(script) => vec!["/bin/sh".into(), "-c".into(), script.clone()],
            None if once.argv.is_empty() => {
                let example = format!("fencepost once {} -- ./charge.sh", once.key);
                return Err(Failure::Usage(format!("There is no command to run. Write it after --, as in: {example}")));
            }
            None => once.argv.clone(),
        };
        Ok(Self { argv, ..Self::of_once_program(once.typed.0.clone(), slot, store)? })
    }

    /// The same for an item that a program does itself.
    pub fn of_once_program(options: JobOptions, slot: SlotRule, store: &str) -> Result<Self, Failure> {
        let ttl = command::ttl(options.ttl.value(), store)?;
        Ok(Self {
            argv: Vec::new(),
            working_directory: None,
            ttl,
            grace: grace(ttl, options.grace.value())?,
            zone: Zone::utc(),
            slot,
            base: Base::new(&upstreams::working_directory()?),
            needs: Vec::new(),
            produces: Vec::new(),
            is_configured: false,
            by_up: false,
            session: None,
            remark: None,
            options,
        })
    }
}

fn needs(run: &RunOptions, config: Option<&Config>, options: &JobOptions, base: &Base) -> Result<Vec<Need>, Failure> {
    let needs = upstreams::needs(options, config, base)?;
    upstreams::check_self(&needs, &run.job)?;
    upstreams::check_inputs(&needs)?;
    Ok(needs)
}

fn argv(run: &RunOptions, config: Option<&Config>, options: &JobOptions) -> Result<Vec<OsString>, Failure> {
    if let Some(session) = &run.session {
        let program = std::env::current_exe()
            .map_err(|error| Failure::Other(format!("Cannot tell where this program is: {error}")))?;
        return Ok(vec![program.into(), "__session".into(), session.into()]);
    }
    if let Some(script) = &run.shell {
        return Ok(vec!["/bin/sh".into(), "-c".into(), script.clone()]);
    }
    if !run.argv.is_empty() {
        return Ok(run.argv.clone());
    }
    if let Some(command) = &options.command {
        return Ok(command.value.argv());
    }
    let job = &run.job;
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

/// The working directory: a job of the configuration runs in the configuration's directory, any other in the current
/// one.
fn working_directory(job: &Name, config: Option<&Config>, options: &JobOptions) -> Option<PathBuf> {
    let config = config.filter(|config| config.jobs.contains_key(job));
    config.map(|config| config.working_directory(options))
}

/// Checks the grace: stopping a job may take only a small part of its lease.
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

fn remark(job: &Name, config: Option<&Config>) -> Option<String> {
    let config = config?;
    let near = config.near(job)?;
    Some(format!("{job} is not in {}, but {near} is. It runs as a job of its own.", config.path.display()))
}
