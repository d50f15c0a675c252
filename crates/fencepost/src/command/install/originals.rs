//! Crontab lines that run a job's command without fencepost: mostly the lines that `init` translated.

use std::collections::BTreeSet;

use fencepost_core::name::Name;
use fencepost_core::schedule::Schedule;

use super::scheduled;
use crate::command::init::{self, CronJob};
use crate::config::{CommandLine, Config};
use crate::exit::Failure;

/// Prefix of a line that a job replaced. `--remove` restores the rest of it.
const REPLACED: &str = "# REPLACED by fencepost job ";

/// A crontab line that runs a job's command.
#[derive(Debug, PartialEq, Eq)]
pub struct Original {
    /// Line number, counted from 1.
    pub number: usize,
    pub line: String,
    pub job: Name,
    /// Whether the line starts the same command at the same times, or `init` copied it above the job.
    pub is_certain: bool,
}

/// Finds the crontab lines that start jobs of the configuration, each with its job. Two lines share a job only if they
/// cannot be told apart; those are not certain.
pub fn find(crontab: &str, config: &Config) -> Result<Vec<Original>, Failure> {
    let written = std::fs::read_to_string(&config.path).unwrap_or_default();
    let written: Vec<&str> = written.lines().collect();
    let jobs = scheduled(config)?;
    let path = config.path.display().to_string();
    let replaced: BTreeSet<&str> = crontab.lines().filter_map(|line| Some(restored(&path, line)?.0)).collect();
    let mut taken = BTreeSet::new();
    let mut originals = Vec::new();
    for job in init::jobs_of_crontab(crontab) {
        let same = |name: &Name, schedule: &Schedule| {
            is_above(&job.line, config, name, &written) || (runs(&job, config, name) && is_due(&job, schedule))
        };
        let mut certain: Vec<&Name> = jobs.iter().filter(|(name, due)| same(name, due)).map(|(name, _)| name).collect();
        // Of jobs with the same line, one that already replaced its line comes last.
        certain.sort_by_key(|name| replaced.contains(name.as_str()));
        let free = certain.iter().find(|name| !taken.contains(**name)).copied();
        let alike = || jobs.iter().map(|(name, _)| name).find(|name| runs(&job, config, name));
        let Some(name) = free.or(certain.first().copied()).or_else(alike) else { continue };
        taken.extend(free);
        originals.push(Original {
            number: job.number,
            line: job.line.clone(),
            job: name.clone(),
            is_certain: free.is_some(),
        });
    }
    Ok(originals)
}

/// Whether `init` copied the line as a comment above the job.
fn is_above(line: &str, config: &Config, name: &Name, written: &[&str]) -> bool {
    let Some(job) = config.jobs.get(name) else { return false };
    let above = written.iter().take(job.at.line.saturating_sub(1) as usize).rev();
    let mut comments = above.map_while(|line| line.strip_prefix("# "));
    comments.any(|comment| comment == init::comment(line))
}

fn runs(job: &CronJob, config: &Config, name: &Name) -> bool {
    let command = config.jobs.get(name).and_then(|keys| keys.command.as_ref()).map(|command| &command.value);
    match (command, &job.shell) {
        (Some(CommandLine::Shell(text)), None) => *text == *job.command,
        (Some(CommandLine::Argv(words)), Some(shell)) => {
            *words == [shell.clone(), "-c".to_string(), job.command.clone()]
        }
        _ => false,
    }
}

fn is_due(job: &CronJob, schedule: &Schedule) -> bool {
    Schedule::parse(&job.schedule, &job.zone).is_ok_and(|due| due.fingerprint() == schedule.fingerprint())
}

/// The error about lines whose job is not certain.
pub fn unclear(originals: &[&Original], config: &str) -> Failure {
    let lines: String = originals
        .iter()
        .map(|original| format!("\n  line {} (perhaps {}): {}", original.number, original.job, original.line))
        .collect();
    Failure::Usage(format!(
        "Your crontab starts commands of jobs of {config} without fencepost, at other times or in more lines than there \
         are jobs:{lines}\nNothing was changed. Comment these lines out or remove them by: crontab -e\nThen: fencepost \
         --config '{config}' install crontab --write"
    ))
}

/// Comments a line out and names the job that replaced it.
pub fn replaced(config: &str, job: &Name, line: &str) -> String {
    format!("{REPLACED}{job} of {config}: {line}")
}

/// Returns the job and the original line, if a job of this configuration replaced it.
pub fn restored<'l>(config: &str, line: &'l str) -> Option<(&'l str, &'l str)> {
    let (job, rest) = line.strip_prefix(REPLACED)?.split_once(" of ")?;
    Some((job, rest.strip_prefix(config)?.strip_prefix(": ")?))
}

/// Whether a job of any configuration replaced the line.
pub fn is_replaced(line: &str) -> bool {
    line.starts_with(REPLACED)
}
