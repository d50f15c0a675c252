//! `fencepost.toml`: found, read and checked before anything runs.

mod check;
mod excerpt;
mod find;
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

use fencepost_core::name::Name;
use toml::de::DeTable;

pub use check::{GRACE, GRACES_PER_TTL, TTL};
pub use excerpt::Sections;
pub use find::{
    EXCERPT_VARIABLE, FILE_NAME, FOUND_VARIABLE, Location, Scope, VARIABLE, candidates, find, home, is_under_up,
};
pub use mistake::{Located, Mistake, SHOWN_MISTAKES_MAX, Source, shown_count};
pub use needs::{ConfigNeed, Produces};
pub use notify::{Notice, OnSkips, WebUrl, host_only};
pub use read::{Item, Section};
pub use values::{CommandLine, JobEnvironment};

use crate::args::Global;
use crate::exit::Failure;
use crate::options::{Given, JobOptions, Logs, OptionSet, Table, TopOptions, UpTableOptions};
use crate::password;
use fencepost_core::nearest::nearest;
use mistake::MISTAKES_MAX;
use read::Reader;

const WORLD_READS: u32 = 0o004;

/// Maximum number of syntax errors shown for a text that is not TOML.
const SLIPS_MAX: usize = 3;

/// A configuration without mistakes.
#[derive(Clone, Debug)]
pub struct Config {
    pub path: PathBuf,
    /// The file's directory, absolute: the base of relative paths, and the default working directory of jobs.
    pub directory: PathBuf,
    /// The store's URL may hold a password: show it by `fencepost_store::redacted` only.
    pub top: TopOptions,
    /// Which jobs `[defaults]`, `[logs]` and `[notify]` apply to.
    pub scope: Scope,
    /// The settings of a job that the file does not name: `[defaults]`, `[logs]` and `[notify]`, or nothing, as `scope` has it.
    pub defaults: JobOptions,
    pub up: UpTableOptions,
    pub jobs: BTreeMap<Name, JobOptions>,
    /// Likely mistakes, which prevent nothing from running.
    pub warnings: Vec<Mistake>,
    source: Source,
}

/// A file as read, with its mistakes.
#[derive(Debug)]
pub struct Reading {
    /// The parts of the file that could be read.
    pub config: Config,
    pub mistakes: Vec<Mistake>,
}

impl Config {
    /// Loads the configuration of this command, if there is one.
    pub fn load(global: &Global) -> Result<Option<Self>, Failure> {
        find(global)?.map(|location| Reading::of(&location)?.accepted()).transpose()
    }

    /// The options of a job, or the defaults if the file does not name it.
    pub fn job(&self, name: &Name) -> &JobOptions {
        self.jobs.get(name).unwrap_or(&self.defaults)
    }

    /// The time zone of a job, if the file sets one.
    pub fn timezone(&self, job: &JobOptions) -> Option<Located<String>> {
        job.timezone.clone().or_else(|| self.top.timezone.clone())
    }

    /// The working directory of a job.
    pub fn working_directory(&self, job: &JobOptions) -> PathBuf {
        job.working_directory.value().unwrap_or_else(|| self.directory.clone())
    }

    /// The job of the file whose name is nearest to an unknown one.
    pub fn near(&self, name: &Name) -> Option<&str> {
        if self.jobs.contains_key(name) { None } else { nearest(name.as_str(), self.jobs.keys().map(Name::as_str)) }
    }

    /// The failure for a mistake that was found after reading, shown as the reader shows its own.
    pub fn mistake<T>(&self, at: &Located<T>, text: impl Into<String>, hint: Option<String>) -> Failure {
        Failure::Usage(self.source.render(&[Mistake::at(at, text, hint)]))
    }

    /// A warning, if every user of the machine can read a password in this file.
    pub fn exposed_password(&self) -> Option<Mistake> {
        let store = self.top.store.as_ref().filter(|store| password::is_in(&store.value))?;
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
        let upstreams = self.job(name).needed().iter().map(|need| need.job.value.name.as_str());
        sections.excerpt(&self.source, std::iter::once(name.as_str()).chain(upstreams))
    }

    /// The failure for a mistake.
    pub fn failure(&self, mistake: &Mistake) -> Failure {
        Failure::Usage(self.source.render(std::slice::from_ref(mistake)))
    }

    /// Mistakes or warnings as people read them.
    pub fn render(&self, mistake: &Mistake) -> String {
        self.source.render_one(mistake)
    }
}

impl Reading {
    /// Reads a file. Fails only if it cannot be read or is not trusted.
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
        self.config.defaults = JobOptions::default();
        let Some(file) =
            self.config.top.store_password_file.as_ref().filter(|file| !self.config.is_beside(&file.value))
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
            // Tables that do not parse are missing elsewhere, which is not a mistake of its own.
            mistakes = unreadable(&config.source, &errors);
            config.source = config.source.hidden();
        }
        mistakes.sort_by_key(Mistake::order);
        mistakes.dedup();
        Self { config, mistakes }
    }

    /// Returns the configuration if it has no mistakes.
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
        let mut section = |key, name| top.item(key).and_then(table).map(|table| Section::new(reader, table, name));
        let shared = |section: Option<Section<'_>>, table| {
            section.map(|section| JobOptions::read_shared(section, table)).unwrap_or_default()
        };
        let defaults = shared(section("defaults", "[defaults]"), Table::Defaults);
        let defaults = defaults.over(&shared(section("notify", "[notify]"), Table::Notify));
        let logs = section("logs", "[logs]").map(|section| Located::typed(Logs::of_section(section)));
        let defaults = JobOptions { logs, ..defaults };
        let up = section("up", "[up]").map(|mut section| {
            let up = UpTableOptions::read_table(&mut section, Table::Job);
            section.finish(|_| None);
            up
        });
        let jobs = section("job", "[job]").map(|section| read_jobs(reader, &section, &defaults)).unwrap_or_default();
        let options = TopOptions::read_table(&mut top, Table::Job);
        top.finish(|word| {
            let is_option = JobOptions::INFO.iter().any(|info| info.key == word);
            is_option.then(|| "It belongs to a job, in [job.NAME], or to all of them, in [defaults].".to_string())
        });
        Self {
            path: reader.source.path.clone(),
            directory: reader.directory.clone(),
            top: options,
            scope: Scope::AllJobs,
            defaults,
            up: up.unwrap_or_default(),
            jobs,
            warnings: Vec::new(),
            source: reader.source.clone(),
        }
    }
}

/// The syntax errors of a text that is not TOML. One error causes others further on, so only the first few are shown.
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

/// The value as a table, or a mistake.
fn table(item: Item<'_>) -> Option<&DeTable<'_>> {
    match (item.table(), item.key) {
        (Some(table), _) => Some(table),
        (None, "job") => item.wrong("is followed by the job's name, as in [job.report]", None),
        (None, key) => item.wrong(&format!("is a table: write [{key}] and its keys below"), None),
    }
}

fn read_jobs(reader: &Reader, jobs: &Section<'_>, defaults: &JobOptions) -> BTreeMap<Name, JobOptions> {
    let entries = jobs.entries().take_while(|_| !reader.is_full());
    entries.filter_map(|entry| read_job(entry, defaults)).collect()
}

fn read_job(entry: Item<'_>, defaults: &JobOptions) -> Option<(Name, JobOptions)> {
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
    Some((name, JobOptions::read_job(section, entry.key_at()).over(defaults)))
}
