//! `fencepost.toml`: what was written, found, read and checked before anything runs.

mod check;
mod excerpt;
mod find;
mod job;
mod mistake;
mod needs;
mod notify;
mod read;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::name::Name;
use serde::Serialize;
use toml::de::DeTable;

pub use check::{GRACE, GRACES_PER_TTL, TTL};
pub use excerpt::Sections;
pub use find::{
    EXCERPT_VARIABLE, FILE_NAME, FOUND_VARIABLE, Location, Scope, VARIABLE, candidates, find, home, is_under_up,
};
pub use job::{CatchUpMode, CatchUpOrder, JobConfig, OnLost, SlotUnit};
pub use mistake::{Located, Mistake, SHOWN_MISTAKES_MAX, Source, shown_count};
pub use needs::{Need, OnEmpty};
pub use notify::{Notice, Notify, host_only};
pub use values::{CommandLine, Logs};

use crate::args::Global;
use crate::exit::Failure;
use crate::password;
use fencepost_core::nearest::nearest;
use mistake::MISTAKES_MAX;
use read::{Item, Reader, Section};

const WORLD_READS: u32 = 0o004;

/// The most places that are shown of a text that is not TOML.
const SLIPS_MAX: usize = 3;

/// How often a run may be tried again at most.
pub const RETRIES_MAX: u32 = 1000;

/// A configuration without a mistake in it.
#[derive(Clone, Debug)]
pub struct Config {
    pub path: PathBuf,
    /// Where relative paths start from, and jobs are run: the file's own directory, absolute.
    pub directory: PathBuf,
    pub timezone: Option<Located<String>>,
    /// The store's URL, relative paths made whole. It may hold a password: show it by `fencepost_store::redacted` only.
    pub store: Option<Located<String>>,
    pub store_password_file: Option<Located<PathBuf>>,
    /// Which jobs `[defaults]`, `[logs]` and `[notify]` apply to.
    pub scope: Scope,
    /// The settings of a job that the file does not name: `[defaults]`, `[logs]` and `[notify]`, or nothing, as `scope` has it.
    pub defaults: JobConfig,
    pub up: Up,
    pub jobs: BTreeMap<Name, JobConfig>,
    /// What can hardly be meant, and keeps nothing from running.
    pub warnings: Vec<Mistake>,
    source: Source,
}

/// `[up]`: how this machine schedules.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Up {
    /// How many jobs run at once.
    pub max_parallel: Option<u32>,
    /// How long running jobs are waited for when it is asked to end.
    #[serde(serialize_with = "values::length")]
    pub stop_within: Option<Located<Duration>>,
    /// Over how long jobs of the same minute are spread.
    #[serde(serialize_with = "values::length")]
    pub spread: Option<Located<Duration>>,
}

/// What a file says, right or wrong.
#[derive(Debug)]
pub struct Reading {
    /// As far as it could be understood.
    pub config: Config,
    pub mistakes: Vec<Mistake>,
}

impl Config {
    /// The configuration that this command is about, if there is one.
    pub fn load(global: &Global) -> Result<Option<Self>, Failure> {
        find(global)?.map(|location| Reading::of(&location)?.accepted()).transpose()
    }

    /// What the file says about a job, or about all that it does not name.
    pub fn job(&self, name: &Name) -> &JobConfig {
        self.jobs.get(name).unwrap_or(&self.defaults)
    }

    /// The zone a job lives in, as far as the file says.
    pub fn timezone(&self, job: &JobConfig) -> Option<Located<String>> {
        job.timezone.clone().or_else(|| self.timezone.clone())
    }

    /// Where a job of the file runs.
    pub fn working_directory(&self, job: &JobConfig) -> PathBuf {
        job.working_directory.clone().unwrap_or_else(|| self.directory.clone())
    }

    /// The job of the file that was probably meant by a name that it does not have.
    pub fn near(&self, name: &Name) -> Option<&str> {
        if self.jobs.contains_key(name) { None } else { nearest(name.as_str(), self.jobs.keys().map(Name::as_str)) }
    }

    /// A mistake that was found later, shown as the reader shows its own.
    pub fn mistake<T>(&self, at: &Located<T>, text: impl Into<String>, hint: Option<String>) -> Failure {
        Failure::Usage(self.source.render(&[Mistake::at(at, text, hint)]))
    }

    /// A warning, if every user of the machine can read a password in this file.
    pub fn exposed_password(&self) -> Option<Mistake> {
        let store = self.store.as_ref().filter(|store| password::is_in(&store.value))?;
        let mode = std::fs::metadata(&self.path).ok()?.mode();
        let hint = format!("Try: chmod 600 {}, or move the password into a store_password_file.", self.path.display());
        let message = "Every user of this machine can read the password in \"store\".";
        (mode & WORLD_READS != 0).then(|| Mistake::at(store, message, Some(hint)))
    }

    /// Whether a file lies in the configuration's directory or in the user's configuration directory, after all links are followed.
    fn is_beside(&self, file: &Path) -> bool {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let file = real(file);
        let of_user = find::directory_of_user().is_some_and(|directory| file.starts_with(real(&directory)));
        of_user || file.parent() == Some(&real(&self.directory))
    }

    /// Divides the file into the sections of its jobs.
    pub fn sections(&self) -> Sections {
        Sections::of(&self.source)
    }

    /// The part of the file that a run of the job needs.
    pub fn excerpt(&self, sections: &Sections, name: &Name) -> String {
        let upstreams = self.job(name).needs.iter().map(|need| need.job.value.as_str());
        sections.excerpt(&self.source, std::iter::once(name.as_str()).chain(upstreams))
    }

    /// The same of a mistake that is known already.
    pub fn failure(&self, mistake: &Mistake) -> Failure {
        Failure::Usage(self.source.render(std::slice::from_ref(mistake)))
    }

    /// Mistakes or warnings as people read them.
    pub fn render(&self, mistake: &Mistake) -> String {
        self.source.render_one(mistake)
    }
}

impl Reading {
    /// Reads a file. It fails only where there is nothing to be read, or nothing that may be trusted.
    pub fn of(location: &Location) -> Result<Self, Failure> {
        let mut reading = Self::of_source(find::read(&location.path)?);
        if location.scope == Scope::NamedJobs {
            reading.confine();
        }
        reading.config.warnings.extend(reading.config.exposed_password());
        reading.config.warnings.sort_by_key(Mistake::order);
        Ok(reading)
    }

    /// Limits a configuration that was found by search to the jobs that it names, and to a password file of its own.
    fn confine(&mut self) {
        self.config.scope = Scope::NamedJobs;
        self.config.defaults = JobConfig::default();
        let Some(file) = self.config.store_password_file.as_ref().filter(|file| !self.config.is_beside(&file.value))
        else {
            return;
        };
        let message = "\"store_password_file\" of a configuration that was found by search lies beside it, or in \
                       ~/.config/fencepost.";
        let hint = format!("Move the file, or name this configuration: --config {}", self.config.path.display());
        self.mistakes.push(Mistake::at(file, message, Some(hint)));
        self.mistakes.sort_by_key(Mistake::order);
    }

    pub fn of_source(source: Source) -> Self {
        let directory = source.path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let text = source.text.clone();
        let reader = Reader::new(source, directory);
        let (document, errors) = DeTable::parse_recoverable(&text);
        let mut config = Config::read(&reader, document.get_ref());
        let mut mistakes = reader.into_mistakes();
        if errors.is_empty() {
            let found = check::check(&config);
            mistakes.extend(found.mistakes);
            config.warnings = found.warnings;
        } else {
            // What does not parse is missed elsewhere, which is no mistake of its own.
            mistakes = unreadable(&config.source, &errors);
            config.source = config.source.hidden();
        }
        // What is wrong in [defaults] was met once for each job.
        mistakes.sort_by_key(Mistake::order);
        mistakes.dedup();
        Self { config, mistakes }
    }

    /// The configuration, if nothing in it is wrong.
    pub fn accepted(self) -> Result<Config, Failure> {
        if self.mistakes.is_empty() {
            return Ok(self.config);
        }
        Err(Failure::Usage(self.config.source.render(&self.mistakes)))
    }
}

impl Config {
    fn read<'t>(reader: &'t Reader, document: &'t DeTable<'t>) -> Self {
        let mut top = Section::new(reader, document, "this file");
        for key in ["state_dir", "state_directory"] {
            let message =
                "Where the state is kept cannot be said here: a lock whose place depends on a file is no lock.";
            top.refuse(key, message, "Set FENCEPOST_STATE_DIR for every run of these jobs.");
        }
        let mut table = |key| top.value(key, table);
        let (defaults, notify, logs) = (table("defaults"), table("notify"), table("logs"));
        let (up, jobs) = (table("up"), table("job"));
        let all_logs = logs.map(|logs| Logs::read_section(Section::new(reader, logs, "[logs]"))).unwrap_or_default();
        let config = Self {
            path: reader.source.path.clone(),
            directory: reader.directory.clone(),
            timezone: top.located("timezone", Item::text),
            store: top.located("store", store),
            store_password_file: top.located("store_password_file", Item::path),
            scope: Scope::AllJobs,
            up: up.map(|table| Up::read(Section::new(reader, table, "[up]"))).unwrap_or_default(),
            jobs: jobs.map(|jobs| read_jobs(reader, jobs, [defaults, notify], &all_logs)).unwrap_or_default(),
            defaults: JobConfig {
                logs: all_logs,
                notify: notify
                    .map(|table| Notify::read_section(Section::new(reader, table, "[notify]")))
                    .unwrap_or_default(),
                ..defaults
                    .map(|table| JobConfig::read_defaults(Section::new(reader, table, "[defaults]")))
                    .unwrap_or_default()
            },
            warnings: Vec::new(),
            source: reader.source.clone(),
        };
        top.finish(|word| {
            JobConfig::has_key(reader, word)
                .then(|| "It belongs to a job, in [job.NAME], or to all of them, in [defaults].".to_string())
        });
        config
    }
}

impl Up {
    fn read(mut section: Section<'_>) -> Self {
        let up = Self {
            max_parallel: section.value("max_parallel", |item| item.integer(1..=10_000)),
            stop_within: section.located("stop_within", Item::duration),
            spread: section.located("spread", Item::duration),
        };
        section.finish(|_| None);
        up
    }
}

/// Where the text is not TOML. One slip makes nonsense of what follows, so that only the first few are worth reading.
fn unreadable(source: &Source, errors: &[toml::de::Error]) -> Vec<Mistake> {
    let mut mistakes: Vec<Mistake> = errors
        .iter()
        .take(MISTAKES_MAX)
        .map(|error| {
            let at = source.locate(error.span().unwrap_or(0..0));
            Mistake::at(&at, format!("This is not TOML: {}.", error.message().trim_end_matches('.')), None)
        })
        .collect();
    mistakes.dedup_by_key(|mistake| mistake.order().0);
    mistakes.truncate(SLIPS_MAX);
    mistakes
}

/// A table that only needs to be one.
fn table(item: Item<'_>) -> Option<&DeTable<'_>> {
    match (item.table(), item.key) {
        (Some(table), _) => Some(table),
        (None, "job") => item.wrong("is followed by the job's name, as in [job.report]", None),
        (None, key) => item.wrong(&format!("is a table: write [{key}] and its keys below"), None),
    }
}

/// Tables that say something for all jobs.
type Fallbacks<'t> = [Option<&'t DeTable<'t>>; 2];

fn read_jobs<'t>(
    reader: &'t Reader,
    jobs: &'t DeTable<'t>,
    fallbacks: Fallbacks<'t>,
    logs: &Logs,
) -> BTreeMap<Name, JobConfig> {
    let entries = Section::new(reader, jobs, "[job]").entries();
    let entries = entries.take_while(|_| !reader.is_full());
    entries.filter_map(|entry| read_job(entry, fallbacks, logs)).collect()
}

fn read_job<'t>(entry: Item<'t>, fallbacks: Fallbacks<'t>, logs: &Logs) -> Option<(Name, JobConfig)> {
    let name = match Name::new(entry.key) {
        Ok(name) => name,
        Err(error) => {
            entry.reader.note(Mistake::at(&entry.key_at(), error.to_string(), None));
            return None;
        }
    };
    let Some(table) = entry.table() else {
        let hint = Some("Write it as [job.NAME] and its keys below.".to_string());
        let message = format!("A job is a table, but {:?} under [job] is not.", entry.key);
        entry.reader.note(Mistake::at(&entry.key_at(), message, hint));
        return None;
    };
    let section = Section::new(entry.reader, table, format!("[job.{name}]"));
    let section = fallbacks.into_iter().fold(section, Section::or);
    Some((name, JobConfig::read(section, logs, entry.key_at())))
}

/// The store's URL. A relative path in it starts from the configuration's directory.
fn store(item: Item<'_>) -> Option<String> {
    let Some(typed) = item.value.get_ref().as_str() else { return item.text() };
    let url = fencepost_store::absolute(typed, &item.reader.directory);
    match fencepost_store::must_name_a_store(&url) {
        Ok(()) => Some(url),
        Err(error) => item.mistake(format!("\"store\": {error}"), None),
    }
}
