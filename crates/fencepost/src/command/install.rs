//! `fencepost install`: writes triggers for the jobs into systemd, launchd or cron, and removes them.

mod agents;
mod clockwork;
mod crontab;
mod diff;
mod drift;
mod launchd;
mod mcp_settings;
mod originals;
mod server;
mod systemd;
mod units;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fencepost_core::name::Name;
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_guard::clock;
use fencepost_store::redacted;
use fencepost_view::answer::{AnswerVersion, InstallAnswer, InstallChange, InstalledDifference};

use crate::args::Global;
use crate::args::operate::{InstallOptions, Target};
use crate::calendar;
use crate::config::Config;
use crate::exit::{Code, Failure};
use crate::file;
use crate::options::Given;
use crate::place::Place;
use crate::report::Voice;
use crate::show;

pub use agents::remarks as hook_remarks;
pub use clockwork::{machine_zone, obeys_cron_tz};
pub use crontab::listed as crontab_listed;
pub use diff::unified;
pub use drift::{drift, words};
pub use originals::is_replaced;

/// Variables that decide where a job's lease is kept. A trigger without them would use another store.
const PLACES: [&str; 2] = ["FENCEPOST_STATE_DIR", "FENCEPOST_STORE"];

/// How long `up` waits for running jobs, unless the configuration says so.
const STOP_WITHIN: std::time::Duration = std::time::Duration::from_secs(300);

pub fn run(global: &Global, options: &InstallOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    if let Some(agent) = options.target.agent() {
        refuse_jobs(options)?;
        return apply(global, options, &place, &[agents::change(global, options, agent)?]);
    }
    refuse_hook_options(options)?;
    if options.serve {
        return apply(global, options, &place, &[server::change(global, options, &place)?]);
    }
    let Some(config) = &place.config else {
        return Err(Failure::Usage(
            "There is no configuration: nothing to install. Write one: fencepost init".to_string(),
        ));
    };
    let setting = TriggerSetting::of(global, config)?;
    let scope = InstallScope::of(options, config)?;
    let changes = match options.target {
        Target::Systemd => systemd::changes(&setting, &scope)?,
        Target::Launchd => launchd::changes(&setting, &scope)?,
        _ => vec![crontab::change(&setting, &scope, config, options.write || options.dry_run)?],
    };
    let voice = Voice::of(global);
    let is_up = !scope.per_job;
    for broken in config.broken_answers().filter(|broken| !options.remove && scope.names_any(&broken.job)) {
        let trigger = if is_up { "" } else { " Its trigger was not changed." };
        voice.warn(&format!("{}{trigger}", broken.sentence(Some(&setting.config))));
    }
    let code = apply(global, options, &place, &changes)?;
    if options.write && options.target != Target::Crontab {
        still_in_crontab(config, voice);
    }
    Ok(code)
}

/// Prints the changes, shows them as a difference, or makes them.
fn apply(global: &Global, options: &InstallOptions, place: &Place, changes: &[TriggerChange]) -> Result<Code, Failure> {
    let voice = Voice::of(global);
    if !options.write && !options.remove && !options.dry_run {
        changes.iter().filter_map(|change| change.shown.as_ref().or(change.new.as_ref())).for_each(|text| {
            show::text(text);
        });
        return Ok(Code::DONE);
    }
    let different: Vec<&TriggerChange> = changes.iter().filter(|change| change.old != change.new).collect();
    if global.json {
        let change = |change: &&TriggerChange| InstallChange { place: change.name.clone(), action: change.action() };
        let changes = different.iter().map(change).collect();
        show::json(&InstallAnswer { v: AnswerVersion, changes, done: !options.dry_run });
    }
    for change in &different {
        if options.dry_run && !global.json {
            show::text(&diff::unified(&change.name, change.old.as_deref(), change.new.as_deref()));
        }
        if !options.dry_run {
            if options.target == Target::Systemd && change.new.is_none() {
                systemd::disable(change, voice);
            }
            change.carry_out(place)?;
            voice.tell(&format!("{} {}.", change.action(), change.name));
        }
    }
    if different.is_empty() {
        voice.tell("Everything is as it should be; nothing was changed.");
    } else if !options.dry_run && !global.quiet && !global.json {
        next_steps(options, &different).iter().for_each(|step| show::line(step));
    }
    Ok(Code::DONE)
}

/// Hooks belong to a project or a user, not to jobs of the configuration.
fn refuse_jobs(options: &InstallOptions) -> Result<(), Failure> {
    if options.jobs.is_empty() && !options.per_job {
        return Ok(());
    }
    Err(Failure::Usage(
        "Hooks of an agent are not for single jobs. To guard sessions outside a run: --job JOB".to_string(),
    ))
}

fn refuse_hook_options(options: &InstallOptions) -> Result<(), Failure> {
    if options.project || options.user || options.fail_closed || options.job.is_some() {
        let message = "--project, --user, --fail-closed, --job and --match-prompt are for hooks of agents: claude, codex, \
                       gemini, antigravity.";
        return Err(Failure::Usage(message.to_string()));
    }
    Ok(())
}

/// What every trigger needs to start fencepost.
pub struct TriggerSetting {
    pub program: String,
    /// Empty for a server without one.
    pub config: String,
    /// The store given on the command line.
    pub store: Option<String>,
    pub environment: Vec<(String, String)>,
    pub now: Wall,
    /// How long `up` waits at most for running jobs when it is stopped.
    pub stop_within: std::time::Duration,
}

impl TriggerSetting {
    fn of(global: &Global, config: &Config) -> Result<Self, Failure> {
        let mut setting = Self::without_configuration(global)?;
        setting.config = text(config.path.clone().into(), "the path of the configuration")?;
        setting.stop_within = config.up.stop_within.value().unwrap_or(STOP_WITHIN);
        Ok(setting)
    }

    fn without_configuration(global: &Global) -> Result<Self, Failure> {
        let program = called_by()?;
        if let Some(store) = global.store.as_ref().filter(|store| redacted(store) != **store) {
            return Err(Failure::Usage(format!(
                "--store {} has a password in it, which would stand in the open. Write store = … in fencepost.toml.",
                redacted(store)
            )));
        }
        let mut environment = vec![("PATH".to_string(), search_path()?)];
        for name in PLACES {
            if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) {
                let value = text(value, name)?;
                if redacted(&value) != value {
                    return Err(Failure::Usage(format!(
                        "{name} has a password in it, which would stand in the open. Write store = … in fencepost.toml."
                    )));
                }
                environment.push((name.to_string(), value));
            }
        }
        Ok(Self {
            program: text(program.into(), "the path of this program")?,
            config: String::new(),
            store: global.store.clone(),
            environment,
            now: clock::now().wall,
            stop_within: STOP_WITHIN,
        })
    }

    /// Returns the command that runs a job, `up` or a server.
    pub fn argv(&self, verb: &[&str]) -> Vec<String> {
        let mut argv = vec![self.program.clone()];
        if !self.config.is_empty() {
            argv.extend(["--config".to_string(), self.config.clone()]);
        }
        if let Some(store) = &self.store {
            argv.extend(["--store".to_string(), store.clone()]);
        }
        argv.extend(verb.iter().map(ToString::to_string));
        argv
    }
}

/// Warns about crontab lines that start the same jobs. Without a crontab there are none.
fn still_in_crontab(config: &Config, voice: Voice) {
    let Ok(Some(crontab)) = crontab::listed() else { return };
    let Ok(lines) = originals::find(&crontab, config) else { return };
    for line in lines {
        voice.warn(&format!(
            "{} is also started without fencepost by line {} of your crontab. Comment it out by crontab -e: {}",
            line.job,
            line.number,
            show::flat(&line.line)
        ));
    }
}

/// The path this program was called by. Symbolic links are kept: they survive an upgrade that moves their target.
fn called_by() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Other(format!("Cannot tell where this program is: {error}")))?;
    let Some(called) = std::env::args_os().next().map(PathBuf::from) else { return Ok(program) };
    let candidates: Vec<PathBuf> = match called.components().count() {
        1 if !called.has_root() => {
            let search = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&search).map(|place| place.join(&called)).collect()
        }
        _ => vec![called],
    };
    let is_this =
        |path: &PathBuf| path.canonicalize().is_ok_and(|real| Ok(real) == program.canonicalize().map_err(drop));
    let absolute = candidates.into_iter().find(is_this).and_then(|path| std::path::absolute(path).ok());
    Ok(absolute.unwrap_or(program))
}

/// The `PATH` of the triggers: that of the installing user, without duplicates.
fn search_path() -> Result<String, Failure> {
    let whole = text(std::env::var_os("PATH").unwrap_or_default(), "PATH")?;
    let mut places: Vec<&str> = Vec::new();
    for place in whole.split(':').filter(|place| place.starts_with('/')) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(if places.is_empty() { "/usr/local/bin:/usr/bin:/bin".to_string() } else { places.join(":") })
}

/// Returns a value as text that fits on one line.
fn text(value: OsString, what: &str) -> Result<String, Failure> {
    match value.into_string() {
        Ok(text) if !text.contains(|c: char| c.is_control()) => Ok(text),
        _ => Err(Failure::Usage(format!("A trigger cannot hold {what}: it is not UTF-8 text in one line."))),
    }
}

/// Which triggers to install or remove.
pub struct InstallScope {
    pub per_job: bool,
    /// The jobs named on the command line; empty means all.
    pub named: Vec<Name>,
    /// Jobs that get a trigger.
    pub jobs: Vec<(Name, Schedule)>,
    pub remove: bool,
    /// Jobs with mistakes. Their triggers stay as they are.
    broken: BTreeSet<String>,
}

impl InstallScope {
    fn of(options: &InstallOptions, config: &Config) -> Result<Self, Failure> {
        let per_job = options.per_job || options.target == Target::Crontab || !options.jobs.is_empty();
        let mut scope = Self {
            per_job,
            named: options.jobs.clone(),
            jobs: Vec::new(),
            remove: options.remove,
            broken: BTreeSet::new(),
        };
        if options.remove {
            // Removal covers every trigger found, also those of jobs that the configuration no longer has.
            scope.per_job = options.per_job || !options.jobs.is_empty();
            return Ok(scope);
        }
        scope.broken = config.broken.keys().cloned().collect();
        for name in &options.jobs {
            config.refuse_broken(name)?;
            let job = config.jobs.get(name).ok_or_else(|| config.unknown(name))?;
            if job.shown_schedule().is_none() {
                return Err(Failure::Usage(format!("{name} has no schedule: no trigger can be installed for it.")));
            }
        }
        scope.jobs = scheduled(config)?.into_iter().filter(|(name, _)| scope.covers(name)).collect();
        if scope.jobs.is_empty() {
            let path = config.path.display();
            let broken = match config.broken.len() {
                0 => String::new(),
                count => format!(" Not counted because of mistakes: {count}. See them with: fencepost validate"),
            };
            return Err(Failure::Usage(format!("{path} has no job that is enabled and has a schedule.{broken}")));
        }
        Ok(scope)
    }

    pub fn covers(&self, name: &Name) -> bool {
        self.names(name.as_str())
    }

    /// The same for a job that the configuration may no longer have.
    pub fn names(&self, job: &str) -> bool {
        !self.broken.contains(job) && self.names_any(job)
    }

    fn names_any(&self, job: &str) -> bool {
        self.named.is_empty() || self.named.iter().any(|name| name.as_str() == job)
    }
}

/// What is wrong with the hooks and the MCP servers of agents, for this project and this user.
pub fn settings_differences() -> Vec<InstalledDifference> {
    [agents::differences(), mcp_settings::differences()].concat()
}

/// The settings of this user that cannot be read. It is not known what they hold.
pub fn unread_settings() -> Vec<String> {
    let unread = |path: PathBuf| match std::fs::read(&path) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Some(format!("{} cannot be read: {error}.", path.display()))
        }
        _ => None,
    };
    let files = [agents::paths(), mcp_settings::paths()].concat().into_iter().filter_map(unread);
    files.chain(crontab::unread()).collect()
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| place.join(program).is_file())
}

/// The scheduled jobs of a configuration.
fn scheduled(config: &Config) -> Result<Vec<(Name, Schedule)>, Failure> {
    let mut jobs = Vec::new();
    for name in config.jobs.iter().filter(|(_, job)| job.enabled()).map(|(name, _)| name) {
        jobs.extend(calendar::schedule(config, name)?.map(|schedule| (name.clone(), schedule)));
    }
    Ok(jobs)
}

/// One file or crontab, before and after.
#[derive(Debug)]
pub struct TriggerChange {
    pub name: String,
    pub at: At,
    pub old: Option<String>,
    pub new: Option<String>,
    /// What is printed, if not all of it.
    pub shown: Option<String>,
}

#[derive(Debug)]
pub enum At {
    File(PathBuf),
    Crontab,
}

impl TriggerChange {
    fn action(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "Wrote",
            (Some(_), None) => "Removed",
            _ => "Changed",
        }
    }

    fn carry_out(&self, place: &Place) -> Result<(), Failure> {
        match (&self.at, &self.new) {
            (At::Crontab, new) => crontab::write(place, self.old.as_deref(), new.as_deref().unwrap_or_default()),
            (At::File(path), Some(new)) => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                std::fs::create_dir_all(directory)
                    .map_err(|error| Failure::Other(format!("Cannot make {}: {error}", directory.display())))?;
                let is_private = path.metadata().is_ok_and(|known| known.mode() & 0o077 == 0);
                if is_private { file::replace_private(path, new) } else { file::replace(path, new) }
            }
            (At::File(path), None) => std::fs::remove_file(path)
                .map_err(|error| Failure::Other(format!("Cannot remove {}: {error}", path.display()))),
        }
    }
}

/// The commands that the user still has to run.
fn next_steps(options: &InstallOptions, changes: &[&TriggerChange]) -> Vec<String> {
    let files = changes.iter().filter_map(|change| match &change.at {
        At::File(path) => Some((path.file_name()?.to_string_lossy().into_owned(), change.new.is_some())),
        At::Crontab => None,
    });
    match options.target {
        Target::Crontab => Vec::new(),
        Target::Claude | Target::Codex | Target::Gemini | Target::Antigravity => {
            let step = options.target.agent().map(|agent| agent.next_step().to_string());
            step.into_iter().filter(|_| options.write).collect()
        }
        Target::Systemd if options.remove => vec!["Now: systemctl --user daemon-reload".to_string()],
        Target::Systemd => {
            let mut steps = vec!["Now: systemctl --user daemon-reload".to_string()];
            let started = files.filter(|(name, is_new)| *is_new && systemd::is_started(name));
            steps.extend(started.map(|(name, _)| format!("Now: systemctl --user enable --now '{name}'")));
            steps.push("For jobs while you are not logged in: loginctl enable-linger".to_string());
            steps
        }
        Target::Launchd => launchd::next_steps(changes),
    }
}

/// The home directory in which systemd and launchd look: `$HOME`.
fn home() -> Result<PathBuf, Failure> {
    let named = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    named.or_else(crate::config::home).ok_or_else(|| Failure::Other("Cannot find your home directory.".to_string()))
}
