//! What a job is, and how it differs from what it was: read from its files, its record and this host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::definition::{DefinitionChange, GoodDefinition};
use fencepost_core::name::Name;
use fencepost_core::record::Record;
use fencepost_core::time::Wall;
use fencepost_guard::artifact::{self, Base, FingerprintError};
use fencepost_guard::definition::{DefinitionFile, JobDefinition, digest};
use fencepost_view::drift::{DriftAnswer, DriftDifference, DriftExpectation, DriftLayer, DriftUnknown, DriftedJob};
use fencepost_view::notice::TroubleSince;
use fencepost_view::text;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::calendar;
use crate::command::overdue::changed_at;
use crate::config::Config;
use crate::options::{Given, JobOptions, OptionSet};

/// How many coming slots tell the interval of a schedule.
const SLOTS: usize = 10;

/// What a job is compared with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriftTerms {
    definition: JobDefinition,
    /// The configuration.
    config: PathBuf,
    /// The directory that artifacts are named from.
    directory: PathBuf,
    expected: DriftExpectation,
}

/// The definition of a job of the configuration, which runs this command.
pub fn definition(config: &Config, name: &Name, command: &[String]) -> JobDefinition {
    let options = config.job(name);
    let made: Vec<String> = options.produced().iter().map(|produces| produces.path.value.clone()).collect();
    JobDefinition::new(keys(config, options), command, &made, config.working_directory(options))
}

/// A digest of each key that is given, secrets left out. Paths below the configuration's directory are the same in every clone.
fn keys(config: &Config, options: &JobOptions) -> BTreeMap<String, String> {
    let directory = config.directory.display().to_string();
    let (shown, not_given) = (flat(options.shown()), flat(JobOptions::default().shown()));
    let timezone = config.timezone(options).map(|zone| ("timezone".to_string(), Value::from(zone.value)));
    let given = shown.into_iter().filter(|(key, value)| not_given.get(key) != Some(value)).chain(timezone);
    given.map(|(key, value)| (key, digest(value.to_string().replace(&directory, ".").as_bytes()))).collect()
}

/// The keys of an object and of its table `notify`.
fn flat(shown: Value) -> BTreeMap<String, Value> {
    let Value::Object(mut keys) = shown else { return BTreeMap::new() };
    let inner = match keys.remove("notify") {
        Some(Value::Object(inner)) => inner,
        _ => Default::default(),
    };
    keys.into_iter().chain(inner).collect()
}

impl DriftTerms {
    pub fn of(config: &Config, name: &Name, now: Wall) -> Self {
        let options = config.job(name);
        let command = options.command.as_ref().map(|command| command.value.words()).unwrap_or_default();
        Self {
            definition: definition(config, name, &command),
            config: config.path.clone(),
            directory: config.working_directory(options),
            expected: DriftExpectation {
                period: interval(config, name, now),
                timeout: options.timeout.value(),
                stuck_after: options.stuck_after.value().map(u64::from),
            },
        }
    }

    /// Compares a job with its record. `host` is the name of this host: only its own files can be looked at.
    pub fn compare(&self, job: &DriftedJob<'_>, record: &Record, host: &str, now: Wall) -> DriftAnswer {
        let record = record.remembered();
        let mut answer = self.definition_since(job, &record);
        answer.differences.extend(job.deviations(&record.ledger, &self.expected));
        if record.lease.is_none() {
            self.compare_artifacts(job, &record, host, now, &mut answer);
        }
        answer
    }

    /// Compares the definition of a job with that of its last good run.
    pub fn definition_since(&self, job: &DriftedJob<'_>, record: &Record) -> DriftAnswer {
        let mut answer = DriftAnswer::default();
        match &record.definition {
            Some(good) => self.compare_definition(job, good, &mut answer),
            None => answer.no_good_run.push(job.job.to_string()),
        }
        answer
    }

    fn compare_definition(&self, job: &DriftedJob<'_>, good: &GoodDefinition, answer: &mut DriftAnswer) {
        let mut current = self.definition.digests();
        current.files.clear();
        for (name, before) in &good.digests.files {
            match self.definition.file(name) {
                DefinitionFile::Read(digest) => drop(current.files.insert(name.clone(), digest)),
                DefinitionFile::Gone => {}
                DefinitionFile::Unreadable(why) => {
                    let message = format!("{} names {}, which cannot be read: {why}.", job.job, self.shown(name));
                    answer.unknown.push(unknown(DriftLayer::Definition, Some(job.job), message));
                    current.files.insert(name.clone(), before.clone());
                }
            }
        }
        for change in current.changes_since(&good.digests) {
            let file = match &change {
                DefinitionChange::Key(_) => self.config.clone(),
                DefinitionChange::File(name) => self.definition.locate(name),
            };
            answer.differences.push(job.redefined(good, &change, changed_at(&file)));
        }
    }

    /// Compares the files that the last good run left here with what they are now.
    fn compare_artifacts(
        &self,
        job: &DriftedJob<'_>,
        record: &Record,
        host: &str,
        now: Wall,
        answer: &mut DriftAnswer,
    ) {
        let Some(last) = record.ledger.last_ok.as_ref().filter(|last| last.host == host) else { return };
        let base = Base::new(&self.directory);
        for left in &last.artifacts {
            let path = base.locate(&left.path);
            let shown = text::flat(&path.display().to_string());
            let mut differs = |kind, since: Option<Wall>, words: String| {
                let at = since.map_or(now, |since| since.max(last.ended()));
                let since_then = TroubleSince { at, is_exact: true };
                let found = job.difference(DriftLayer::Runs, kind, since_then, Some(left.path.clone()), &words);
                answer.differences.push(DriftDifference { is_undated: since.is_none(), ..found });
            };
            match artifact::read(&path) {
                Ok((_, sha256)) if sha256 == left.sha256 => {}
                Ok(_) => {
                    let words = format!("left {shown}, which has other bytes than its last good run wrote.");
                    differs("artifact_changed", changed_at(&path), words);
                }
                Err(FingerprintError::Missing) => {
                    differs("artifact_gone", None, format!("left {shown}, which is not there any more."));
                }
                Err(FingerprintError::Unsteady) => {
                    let message = format!("{} left {shown}, which changed while it was read.", job.job);
                    answer.unknown.push(unknown(DriftLayer::Runs, Some(job.job), message));
                }
                Err(FingerprintError::Failed(error)) => {
                    let message = format!("{} left {shown}, which cannot be read: {error}.", job.job);
                    answer.unknown.push(unknown(DriftLayer::Runs, Some(job.job), message));
                }
            }
        }
    }

    fn shown(&self, name: &str) -> String {
        text::flat(&self.definition.locate(name).display().to_string())
    }
}

pub fn unknown(layer: DriftLayer, job: Option<&str>, message: String) -> DriftUnknown {
    DriftUnknown { layer, job: job.map(str::to_string), message }
}

/// The shortest time between two of the coming slots.
fn interval(config: &Config, name: &Name, now: Wall) -> Option<Duration> {
    let schedule = calendar::schedule(config, name).ok().flatten()?;
    let slots: Vec<Wall> = schedule.forward(now).take(SLOTS).collect();
    slots.windows(2).map(|pair| pair[1].since(pair[0])).min()
}
