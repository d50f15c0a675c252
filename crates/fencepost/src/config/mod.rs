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
use fencepost_view::answer::JobMistakes;
use fencepost_view::text::unknown_job;
use toml::de::DeTable;

pub use check::{GRACE, GRACES_PER_TTL, TTL};
pub use excerpt::Sections;
pub use fencepost_guard::state::home;
pub use find::{EXCERPT_VARIABLE, FILE_NAME, FOUND_VARIABLE, Location, Scope, VARIABLE, candidates, find, is_under_up};
pub use mistake::{Located, Mistake, SHOWN_MISTAKES_MAX, Source, shown_count};
pub use needs::{ConfigNeed, Produces};
pub use notify::{Notice, OnSkips, Recipient, Service, WebUrl, host_only};
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

/// The way out of a text such as "C:\dir".
const BACKSLASH_HINT: &str = "Between \"…\" a backslash begins an escape: write it twice, or write '…'.";

/// Maximum number of syntax errors shown for a text that is not TOML.
const SLIPS_MAX: usize = 3;

/// A configuration. Only jobs may have mistakes: one outside any job refuses the whole file.
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
    /// The jobs without mistakes. Boxed: a node of the map has room for eleven values, and leaves half of it empty.
    pub jobs: BTreeMap<Name, Box<JobOptions>>,
    /// The jobs with mistakes, by their keys under `[job]`: such a key may not even be a name. They do not run.
    pub broken: BTreeMap<String, BrokenJob>,
    /// Likely mistakes, which prevent nothing from running.
    pub warnings: Vec<Mistake>,
    source: Source,
}

/// A job with mistakes.
#[derive(Clone, Debug, Default)]
pub struct BrokenJob {
    /// The options that could be read.
    pub options: JobOptions,
    /// Whether `per_host` is present and could not be read: then it is unknown which record is the job's.
    pub is_place_unknown: bool,
    pub mistakes: Vec<Mistake>,
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
        let Some(location) = find(global)? else { return Ok(None) };
        let reading = Reading::of(&location)?;
        let reading = if global.hides_configuration { reading.with_places_only() } else { reading };
        reading.accepted().map(Some)
    }

    /// The options of a job, or the defaults if the file does not name it. Of a broken job, those that could be read.
    pub fn job(&self, name: &Name) -> &JobOptions {
        let broken = || self.broken.get(name.as_str()).map(|broken| &broken.options);
        self.jobs.get(name).map(Box::as_ref).or_else(broken).unwrap_or(&self.defaults)
    }

    /// Whether the file has a table for the job, with or without mistakes.
    pub fn names(&self, name: &Name) -> bool {
        self.jobs.contains_key(name) || self.broken.contains_key(name.as_str())
    }

    /// The names of all jobs of the file, with or without mistakes.
    pub fn all_names(&self) -> impl Iterator<Item = Name> {
        let broken = self.broken.keys().filter_map(|key| Name::new(key).ok());
        self.jobs.keys().cloned().chain(broken)
    }

    /// Fails for a job with mistakes, and shows them.
    pub fn refuse_broken(&self, name: &Name) -> Result<(), Failure> {
        self.broken.get(name.as_str()).map_or(Ok(()), |job| Err(self.failure_of(name.as_str(), job)))
    }

    /// The failure for a name that no job of the configuration has.
    pub fn unknown(&self, name: &Name) -> Failure {
        let path = self.path.display().to_string();
        Failure::Usage(unknown_job(name.as_str(), Some(&path), None, self.near(name)))
    }

    /// The jobs with mistakes, for answers.
    pub fn broken_answers(&self) -> impl Iterator<Item = JobMistakes> {
        self.broken.iter().map(|(key, broken)| JobMistakes {
            job: key.clone(),
            mistakes: broken.mistakes.iter().map(|mistake| self.source.answer(mistake)).collect(),
        })
    }

    /// The failure for a job with mistakes.
    pub fn failure_of(&self, name: &str, job: &BrokenJob) -> Failure {
        let mistakes = self.source.render(&job.mistakes);
        Failure::Usage(format!("{mistakes}\nThe job {name} does not run until this is corrected. Other jobs do."))
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
        let known = self.jobs.keys().map(Name::as_str).chain(self.broken.keys().map(String::as_str));
        if self.names(name) { None } else { nearest(name.as_str(), known) }
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

    /// Several mistakes as people read them.
    pub fn render_all(&self, mistakes: &[Mistake]) -> String {
        self.source.render(mistakes)
    }

    /// A mistake or a warning as people read it.
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
        let is_full = reader.is_full();
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
        if is_full {
            // Reading stopped: the rest of the file is unknown.
            mistakes.iter_mut().for_each(|mistake| mistake.jobs.clear());
        }
        let mistakes = Mistake::sorted(mistakes);
        config.break_jobs(&mistakes);
        Self { config, mistakes }
    }

    /// The same reading, whose mistakes are shown by their places and without any content of the file.
    fn with_places_only(mut self) -> Self {
        self.config.source = self.config.source.with_places_only();
        self
    }

    /// Returns the configuration, unless it has a mistake outside its jobs.
    pub fn accepted(self) -> Result<Config, Failure> {
        if self.mistakes.iter().any(Mistake::stops_all) {
            let mistakes = self.config.source.render(&self.mistakes);
            let state = "Nothing runs until this is corrected. Check it: fencepost validate";
            return Err(Failure::Usage(format!("{mistakes}\n{state}")));
        }
        Ok(self.config)
    }

    /// Returns the configuration if it has no mistakes at all.
    pub fn faultless(self) -> Result<Config, Failure> {
        if self.mistakes.is_empty() { Ok(self.config) } else { Err(self.refused()) }
    }

    fn refused(&self) -> Failure {
        Failure::Usage(self.config.source.render(&self.mistakes))
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
            section.finish(|_, _| None);
            up
        });
        let jobs = section("job", "[job]").map(|section| read_jobs(reader, &section, &defaults));
        let (jobs, broken) = jobs.unwrap_or_default();
        let options = TopOptions::read_table(&mut top, Table::Job);
        top.finish(|word, _| {
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
            broken,
            warnings: Vec::new(),
            source: reader.source.clone(),
        }
    }

    /// Moves the jobs that have mistakes from the others.
    fn break_jobs(&mut self, mistakes: &[Mistake]) {
        for (mistake, key) in mistakes.iter().flat_map(|mistake| mistake.jobs.iter().map(move |key| (mistake, key))) {
            let sound = Name::new(key).ok().and_then(|name| self.jobs.remove(&name));
            let broken = self.broken.entry(key.clone()).or_default();
            if let Some(options) = sound {
                broken.options = *options;
            }
            let Mistake { at, message, hint, .. } = mistake;
            let (at, message, hint) = (at.clone(), message.clone(), hint.clone());
            broken.mistakes.push(Mistake { at, message, hint, jobs: vec![key.clone()] });
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
            let hint = error.message().contains("escape").then_some(BACKSLASH_HINT.to_string());
            Mistake::at(&at, format!("This is not TOML: {}.", error.message().trim_end_matches('.')), hint)
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

/// The jobs with a name, and those that certainly have a mistake.
type ReadJobs = (BTreeMap<Name, Box<JobOptions>>, BTreeMap<String, BrokenJob>);

fn read_jobs(reader: &Reader, jobs: &Section<'_>, defaults: &JobOptions) -> ReadJobs {
    let mut read = ReadJobs::default();
    for entry in jobs.entries().take_while(|_| !reader.is_full()) {
        let (options, is_place_unknown) = reader.within(entry.key, || read_job(&entry, defaults));
        let name = Name::new(entry.key).ok();
        if name.is_none() || is_place_unknown {
            let broken = BrokenJob { options: options.clone(), is_place_unknown, mistakes: Vec::new() };
            read.1.insert(entry.key.to_string(), broken);
        }
        read.0.extend(name.map(|name| (name, Box::new(options))));
    }
    read
}

/// Reads the options of a job, and whether its `per_host` is present but unreadable.
fn read_job(entry: &Item<'_>, defaults: &JobOptions) -> (JobOptions, bool) {
    if let Err(error) = Name::new(entry.key) {
        entry.reader.note(Mistake::at(&entry.key_at(), error.to_string(), None));
    }
    let Some(table) = entry.table() else {
        let hint = Some("Write it as [job.NAME] and its keys below.".to_string());
        let message = format!("A job is a table, but {:?} under [job] is not.", entry.key);
        entry.reader.note(Mistake::at(&entry.key_at(), message, hint));
        return (defaults.clone(), false);
    };
    let section = Section::new(entry.reader, table, format!("[job.{}]", entry.key));
    let has_place = section.has("per_host");
    let options = JobOptions::read_job(section, entry.key_at());
    let is_place_unknown = has_place && options.per_host.is_none();
    (options.over(defaults), is_place_unknown)
}
