//! `[job.NAME]`: what a job is, as far as the file says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use toml::de::DeTable;

use super::mistake::{Located, Mistake};
use super::needs::{Need, Produces};
use super::notify::Notify;
use super::read::{Item, Reader, Section};
use super::values::{CommandLine, Logs, length};
use crate::args::{OverlapChoice, StoreErrorChoice};
use crate::config::RETRIES_MAX;
use crate::duration;

/// A job's keys, or those of `[defaults]`. What the job does not say itself is taken from `[defaults]` and `[notify]`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobConfig {
    /// Where the file names it.
    #[serde(skip)]
    pub at: Located<()>,
    pub enabled: Option<bool>,
    pub schedule: Option<Located<String>>,
    #[serde(serialize_with = "length")]
    pub every: Option<Located<Duration>>,
    pub timezone: Option<Located<String>>,
    pub slot: Option<SlotUnit>,
    #[serde(serialize_with = "length")]
    pub slack: Option<Located<Duration>>,
    pub command: Option<Located<CommandLine>>,
    pub prepare: Option<Located<CommandLine>>,
    pub working_directory: Option<PathBuf>,
    /// Values may be secrets, so that only their names are shown.
    #[serde(serialize_with = "names")]
    pub environment: BTreeMap<String, String>,
    pub produces: Vec<Produces>,
    pub empty_exit: Option<u8>,
    pub stuck_after: Option<u32>,
    pub needs: Vec<Need>,
    #[serde(serialize_with = "length")]
    pub needs_wait: Option<Located<Duration>>,
    #[serde(serialize_with = "length")]
    pub ttl: Option<Located<Duration>>,
    #[serde(serialize_with = "length")]
    pub grace: Option<Located<Duration>>,
    #[serde(serialize_with = "length")]
    pub timeout: Option<Located<Duration>>,
    #[serde(serialize_with = "length")]
    pub wait: Option<Located<Duration>>,
    pub skip_exit: Option<u8>,
    pub overlap: Option<OverlapChoice>,
    pub per_host: Option<bool>,
    pub on_store_error: Option<StoreErrorChoice>,
    pub leave_children: Option<bool>,
    pub output_on_failure: Option<bool>,
    pub observe: Option<bool>,
    pub retries: Option<u32>,
    #[serde(serialize_with = "length")]
    pub retry_backoff: Option<Located<Duration>>,
    pub on_lost: Option<OnLost>,
    pub catch_up: Option<Located<u32>>,
    #[serde(serialize_with = "length")]
    pub catch_up_within: Option<Located<Duration>>,
    pub catch_up_mode: Option<CatchUpMode>,
    pub catch_up_order: Option<CatchUpOrder>,
    #[serde(serialize_with = "length")]
    pub catch_up_spacing: Option<Located<Duration>>,
    pub logs: Logs,
    pub notify: Notify,
}

/// How wide a slot is that no schedule gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotUnit {
    Day,
    Hour,
    Minute,
}

/// What becomes of a slot whose run died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLost {
    Rerun,
    Halt,
}

/// Whether missed slots run one by one, or as one run that covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUpMode {
    Each,
    Collapse,
}

/// Which of the missed slots runs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUpOrder {
    Oldest,
    Newest,
}

impl JobConfig {
    /// Reads the keys of `[defaults]`, some of which make no sense for more than one job.
    pub fn read_defaults(mut section: Section<'_>) -> Self {
        let one_job = "This key belongs to one job: it cannot be the same for all.";
        for key in ["schedule", "every", "slot", "command", "produces", "needs"] {
            section.refuse(key, one_job, "Write it in [job.NAME].");
        }
        for key in ["on_error", "on_halt", "on_recovered", "on_skips"] {
            section.refuse(key, "Whom to tell about all jobs is said in [notify].", "Move it there.");
        }
        section.refuse("ping", one_job, "Write it in [job.NAME].");
        section.refuse("logs", "What is kept of all jobs' output is said in [logs].", "Move it there.");
        let defaults = Self::read_shared(&mut section);
        section.finish(|_| None);
        defaults
    }

    pub fn read(mut section: Section<'_>, logs: &Logs, at: Located<()>) -> Self {
        let job = Self { at, ..Self::read_all(&mut section, logs) };
        job.check_exclusive(&section);
        section.finish(|word| Some(format!("If the job's name has a dot, quote it, as in [job.\"NAME.{word}\"].")));
        job
    }

    /// Whether a job has such a key.
    pub fn has_key(reader: &Reader, key: &str) -> bool {
        let nothing = DeTable::new();
        let mut section = Section::new(reader, &nothing, "");
        Self::read_all(&mut section, &Logs::default());
        section.knows(key)
    }

    fn read_all(section: &mut Section<'_>, logs: &Logs) -> Self {
        Self {
            schedule: section.located("schedule", Item::text),
            every: section.located("every", Item::positive_duration),
            slot: section.value("slot", Item::choice),
            command: section.located("command", CommandLine::read),
            produces: section.value("produces", Produces::read).unwrap_or_default(),
            needs: section.value("needs", Need::read).unwrap_or_default(),
            logs: section.value("logs", |item| Logs::read(item, logs)).unwrap_or_else(|| logs.clone()),
            notify: Notify::read(section, true),
            ..Self::read_shared(section)
        }
    }

    /// What one job may say, and `[defaults]` for all of them.
    fn read_shared(section: &mut Section<'_>) -> Self {
        Self {
            enabled: section.value("enabled", Item::flag),
            timezone: section.located("timezone", Item::text),
            slack: section.located("slack", Item::duration),
            prepare: section.located("prepare", CommandLine::read),
            working_directory: section.value("working_directory", Item::path),
            environment: super::values::environment(section),
            empty_exit: section.value("empty_exit", |item| item.integer(1..=255)),
            stuck_after: section.value("stuck_after", |item| item.integer(2..=32)),
            needs_wait: section.located("needs_wait", Item::duration),
            ttl: section.located("ttl", Item::duration),
            grace: section.located("grace", Item::duration),
            timeout: section.located("timeout", Item::positive_duration),
            wait: section.located("wait", Item::duration),
            skip_exit: section.value("skip_exit", |item| item.integer(0..=255)),
            overlap: section.value("overlap", Item::choice),
            per_host: section.value("per_host", Item::flag),
            on_store_error: section.value("on_store_error", Item::choice),
            leave_children: section.value("leave_children", Item::flag),
            output_on_failure: section.value("output_on_failure", Item::flag),
            observe: section.value("observe", Item::flag),
            retries: section.value("retries", |item| item.integer(0..=u64::from(RETRIES_MAX))),
            retry_backoff: section.located("retry_backoff", Item::duration),
            on_lost: section.value("on_lost", Item::choice),
            catch_up: section.located("catch_up", |item| item.integer(0..=10_000)),
            catch_up_within: section.located("catch_up_within", Item::duration),
            catch_up_mode: section.value("catch_up_mode", Item::choice),
            catch_up_order: section.value("catch_up_order", Item::choice),
            catch_up_spacing: section.located("catch_up_spacing", Item::duration),
            ..Self::default()
        }
    }

    /// When the job runs, as it is written.
    pub fn shown_schedule(&self) -> Option<String> {
        let every = || self.every.as_ref().map(|every| format!("every {}", duration::show(every.value)));
        self.schedule.as_ref().map(|schedule| schedule.value.clone()).or_else(every)
    }

    /// Whether the job is one that `up` and the installed triggers run. By name it can be run all the same.
    pub fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn check_exclusive(&self, section: &Section<'_>) {
        if let (Some(_), Some(every)) = (&self.schedule, &self.every) {
            let message = "\"schedule\" and \"every\" both say when the job runs: it is one or the other.";
            section.reader.note(Mistake::at(every, message, Some("Remove one of them.".to_string())));
        }
        let scheduled = self.schedule.is_some() || self.every.is_some();
        if let (true, Some(at)) = (scheduled, section.key_at("slot")) {
            let message =
                "\"slot\" is for jobs without a schedule: \"schedule\" and \"every\" give the slots themselves.";
            section.reader.note(Mistake::at(&at, message, Some("Remove it.".to_string())));
        }
    }
}

fn names<S: serde::Serializer>(environment: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(environment.keys())
}
