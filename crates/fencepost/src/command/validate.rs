//! `fencepost validate`: checks the configuration and shows what it means.

mod commands;
pub mod drift;
mod freshness;

use std::path::Path;

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_guard::clock;
use fencepost_view::answer::{AnswerVersion, InstalledDifference, ValidateAnswer, ValidatedJob};
use fencepost_view::drift::DriftAnswer;
use serde_json::{Map, Value};

use crate::args::Global;
use crate::args::operate::ValidateOptions;
use crate::calendar::{self, YEAR};
use crate::config::{self, Config, Mistake, Reading, SHOWN_MISTAKES_MAX, shown_count};
use crate::exit::{Code, Failure};
use crate::options::{JobOptions, OptionSet};
use crate::place::Place;
use crate::report::Voice;
use crate::show;
use fencepost_core::duration;

/// How many slots are shown per job.
const SHOWN_SLOTS: usize = 3;

pub fn run(global: &Global, options: &ValidateOptions) -> Result<Code, Failure> {
    let location = config::find(global)?.ok_or_else(none_found)?;
    let path = &location.path;
    let now = clock::now().wall;
    let mut verdict = match Reading::of(&location) {
        Ok(reading) => ConfigVerdict::of(reading, now),
        // A file that exists but cannot be trusted or read is refused like one with mistakes.
        Err(Failure::Usage(message)) if path.symlink_metadata().is_ok() => ConfigVerdict::refused(message),
        Err(failure) => return Err(failure),
    };
    // Jobs with mistakes are left out of the comparison; a mistake outside any job leaves no others.
    if options.installed && !verdict.mistakes.iter().any(Mistake::stops_all) {
        let place = Place::find(global)?;
        let mut differences = super::install::drift(&place, &|| place.open_to_read().map(Some), now)?;
        differences.extend(super::install::settings_differences());
        verdict.installed = Some(differences);
    }
    if options.drift && !verdict.mistakes.iter().any(Mistake::stops_all) {
        let answer = drift::look_at_all(global, now)?;
        if options.notify {
            drift::tell(global, &answer)?;
        }
        verdict.drift = Some(answer);
    }
    if global.json {
        verdict.print_json(path, now);
    } else if !global.quiet {
        verdict.print(path, Voice::of(global), now);
    }
    Ok(verdict.code())
}

/// The result of checking a configuration.
#[derive(Debug)]
struct ConfigVerdict {
    /// The configuration as far as it was understood; `None` if it could not be read at all.
    config: Option<Config>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    /// How installed triggers and actual runs differ from it, if requested.
    installed: Option<Vec<InstalledDifference>>,
    /// How the jobs differ from what they were, if requested.
    drift: Option<DriftAnswer>,
}

impl ConfigVerdict {
    fn of(reading: Reading, now: Wall) -> Self {
        let Reading { config, mistakes } = reading;
        let mut warnings = config.warnings.clone();
        warnings.extend(commands::not_found(&config));
        warnings.extend(freshness::never_fresh(&config, now));
        warnings.sort_by_key(Mistake::order);
        Self { config: Some(config), mistakes, warnings, installed: None, drift: None }
    }

    fn refused(message: String) -> Self {
        let mistake = Mistake { at: None, message, hint: None, jobs: Vec::new() };
        Self { config: None, mistakes: vec![mistake], warnings: Vec::new(), installed: None, drift: None }
    }

    fn is_fine(&self) -> bool {
        self.code() == Code::DONE
    }

    /// What could not be read is not fine either: it may differ.
    fn code(&self) -> Code {
        let is_drifting = self.drift.as_ref().is_some_and(|drift| !drift.differences.is_empty());
        let is_installed = self.installed.as_ref().is_none_or(Vec::is_empty);
        match self.drift.as_ref().is_none_or(|drift| drift.unknown.is_empty()) {
            _ if !self.mistakes.is_empty() || is_drifting || !is_installed => Code::REFUSED,
            true => Code::DONE,
            false => Code::FAILED,
        }
    }

    fn print(&self, path: &Path, voice: Voice, now: Wall) {
        show::line(&format!("config  {}", path.display()));
        for job in self.jobs() {
            show::line("");
            job.print(now);
        }
        show::line("");
        for mistake in self.mistakes.iter().take(SHOWN_MISTAKES_MAX) {
            voice.warn(&self.rendered(mistake));
        }
        for warning in self.warnings.iter().take(SHOWN_MISTAKES_MAX) {
            voice.warn(&format!("warning: {}", self.rendered(warning)));
        }
        if self.mistakes.len().max(self.warnings.len()) > SHOWN_MISTAKES_MAX {
            voice.warn(&format!(
                "Only the first {SHOWN_MISTAKES_MAX} mistakes and warnings are shown; --json lists all."
            ));
        }
        for difference in self.installed.iter().flatten() {
            voice.warn(&format!("installed: {}", difference.message));
        }
        self.drift.iter().for_each(|drift| print_drift(drift, voice));
        if self.installed.is_some() || self.drift.is_some() {
            super::install::hook_remarks().iter().for_each(|remark| voice.warn(&format!("installed: {remark}")));
        }
        show::line(&self.summary());
    }

    fn rendered(&self, mistake: &Mistake) -> String {
        self.config.as_ref().map_or_else(|| mistake.message.clone(), |config| config.render(mistake))
    }

    fn summary(&self) -> String {
        let count = |number: usize, noun: &str| match number {
            0 => format!("no {noun}s"),
            1 => format!("1 {noun}"),
            many => format!("{} {noun}s", shown_count(many)),
        };
        let jobs = count(self.jobs().len(), "job");
        let broken = match (self.mistakes.iter().any(Mistake::stops_all), self.broken()) {
            (true, _) => " Nothing runs until this is corrected.".to_string(),
            (false, 0) => String::new(),
            (false, 1) => " The job with mistakes does not run; the others do.".to_string(),
            (false, broken) => format!(" The {broken} jobs with mistakes do not run; the others do."),
        };
        let (mistakes, warnings) = (count(self.mistakes.len(), "mistake"), count(self.warnings.len(), "warning"));
        let verdict = if self.mistakes.is_empty() { "Fine" } else { "Refused" };
        let installed = self.installed.as_ref();
        let installed = installed.map(|found| format!(" As installed: {}.", count(found.len(), "difference")));
        let drift = self.drift.as_ref().map(|drift| match drift.unknown.len() {
            0 => format!(" Drift: {}.", count(drift.differences.len(), "difference")),
            unknown => format!(" Drift: {}, {unknown} unknown.", count(drift.differences.len(), "difference")),
        });
        let (installed, drift) = (installed.unwrap_or_default(), drift.unwrap_or_default());
        format!("{verdict}: {jobs}, {mistakes}, {warnings}.{broken}{installed}{drift}")
    }

    fn print_json(&self, path: &Path, now: Wall) {
        show::json(&ValidateAnswer {
            v: AnswerVersion,
            config: path.display().to_string(),
            ok: self.is_fine(),
            mistakes: self.mistakes.iter().map(Mistake::answer).collect(),
            warnings: self.warnings.iter().map(Mistake::answer).collect(),
            jobs: self.jobs().iter().map(|job| job.answer(now)).collect(),
            installed: self.installed.clone(),
            drift: self.drift.clone(),
        });
    }

    /// All jobs by name, with and without mistakes.
    fn jobs(&self) -> Vec<CheckedJob<'_>> {
        let Some(config) = &self.config else { return Vec::new() };
        let sound = config.jobs.iter().map(|(name, job)| CheckedJob { config, name: name.as_str(), job, mistakes: 0 });
        let broken = config.broken.iter().map(|(key, broken)| CheckedJob {
            config,
            name: key,
            job: &broken.options,
            mistakes: broken.mistakes.len(),
        });
        let mut jobs: Vec<CheckedJob<'_>> = sound.chain(broken).collect();
        jobs.sort_by_key(|job| job.name);
        jobs
    }

    fn broken(&self) -> usize {
        self.config.as_ref().map_or(0, |config| config.broken.len())
    }
}

/// Prints each difference with the day since which it holds, and what could not be compared.
fn print_drift(drift: &DriftAnswer, voice: Voice) {
    for difference in &drift.differences {
        voice.warn(&format!("{}: {}", difference.layer.as_str(), difference.sentence()));
    }
    for unknown in &drift.unknown {
        voice.warn(&format!("{}: unknown: {}", unknown.layer.as_str(), unknown.message));
    }
    for job in &drift.no_good_run {
        show::line(&format!("{job} has no good run yet that its definition could be compared with."));
    }
}

/// One job as the configuration has it, with every key; secrets are left out.
pub fn job(config: &Config, name: &str, now: Wall) -> Option<ValidatedJob> {
    let sound = config.jobs.iter().find(|(known, _)| known.as_str() == name).map(|(_, job)| (job.as_ref(), 0));
    let broken = || config.broken.get(name).map(|broken| (&broken.options, broken.mistakes.len()));
    let (job, mistakes) = sound.or_else(broken)?;
    Some(CheckedJob { config, name, job, mistakes }.answer(now))
}

/// A job as the configuration has it.
struct CheckedJob<'c> {
    config: &'c Config,
    /// The key under `[job]`.
    name: &'c str,
    job: &'c JobOptions,
    mistakes: usize,
}

impl CheckedJob<'_> {
    /// Prints a job with its schedule and its command; of a broken job, only that it is broken.
    fn print(&self, now: Wall) {
        if self.mistakes == 0 {
            return print_job(self.config, self.name, self.job, now);
        }
        show::line(&show::flat(self.name));
        let count = if self.mistakes == 1 { "a mistake".to_string() } else { format!("{} mistakes", self.mistakes) };
        show::line(&format!("  {:<9}  it does not run: it has {count}, shown below", "broken"));
    }

    /// Returns every key of a job, with defaults from `[defaults]`. Secrets are left out.
    fn answer(&self, now: Wall) -> ValidatedJob {
        let Self { config, name, job, mistakes } = self;
        let keys = match job.shown() {
            // The answer holds the effective values of these two.
            Value::Object(keys) => {
                keys.into_iter().filter(|(key, _)| !["timezone", "working_directory"].contains(&key.as_str())).collect()
            }
            _ => Map::new(),
        };
        let schedule = schedule(config, job);
        let slots =
            schedule.iter().flat_map(|due| due.forward(now).take(SHOWN_SLOTS).map(|slot| due.zone().show(slot)));
        let change = schedule.as_ref().and_then(|schedule| schedule.dst_within(now, YEAR));
        ValidatedJob {
            job: name.to_string(),
            timezone: config.timezone(job).map(|zone| zone.value.clone()),
            working_directory: config.working_directory(job).display().to_string(),
            next_slots: slots.collect(),
            in_words: schedule.as_ref().map(Schedule::describe),
            clock_change: change.map(|change| change.to_string()),
            broken: *mistakes > 0,
            keys,
        }
    }
}

/// Prints a job with its schedule and its command.
fn print_job(config: &Config, name: &str, job: &JobOptions, now: Wall) {
    let line = |what: &str, text: String| show::line(&format!("  {what:<9}  {text}"));
    show::line(name);
    let zone = config.timezone(job).map(|zone| format!(", {}", zone.value)).unwrap_or_default();
    let when = job.shown_schedule().map(|schedule| format!("{schedule}{zone}"));
    line("when", when.unwrap_or_else(|| "whenever it is started".to_string()));
    if let Some(schedule) = schedule(config, job) {
        line("in words", schedule.describe());
        for (number, slot) in schedule.forward(now).take(SHOWN_SLOTS).enumerate() {
            let ahead = duration::show(slot.since(now));
            let what = if number == 0 { "next" } else { "" };
            line(what, format!("{}, in {ahead}", show::second_in(slot, schedule.zone())));
        }
        if let Some(change) = schedule.dst_within(now, YEAR) {
            line("clocks", change.to_string());
        }
    }
    if !job.enabled() {
        line("enabled", "no: only by name".to_string());
    }
    for need in job.needed() {
        line("needs", need.to_string());
    }
    if let Some(prepare) = &job.prepare {
        line("prepare", prepare.value.shown());
    }
    line(
        "command",
        job.command.as_ref().map_or_else(|| "the one after --".to_string(), |command| command.value.shown()),
    );
    line("directory", config.working_directory(job).display().to_string());
    for produces in job.produced() {
        line("produces", produces.path.value.clone());
    }
}

/// Returns a job's schedule, if it has a valid one.
fn schedule(config: &Config, job: &JobOptions) -> Option<Schedule> {
    calendar::written_schedule(job, &calendar::written_zone(config, job).ok()?).ok()?
}

fn none_found() -> Failure {
    let why = match std::env::var_os(config::VARIABLE) {
        Some(_) => format!("{} is set to nothing, which disables the search.", config::VARIABLE),
        None => {
            let looked: Vec<String> =
                config::candidates().map(|candidate| candidate.path.display().to_string()).collect();
            format!("It was looked for as {}.", looked.join(", "))
        }
    };
    Failure::Usage(format!("There is no configuration. {why} Write one: fencepost init"))
}
