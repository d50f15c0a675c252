//! Compares the installed triggers and the actual runs with the configuration.

use std::sync::Arc;

use fencepost_core::overdue::overdue;
use fencepost_core::plan::{CatchUpMode, CatchUpTerms};
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::LeaseState;
use fencepost_core::time::Wall;
use fencepost_guard::transact::look;
use fencepost_store::Store;
use fencepost_view::answer::InstalledDifference;

use super::clockwork::machine_zone;
use super::{crontab, launchd, originals, scheduled, systemd, units};
use crate::calendar;
use crate::config::Config;
use crate::exit::Failure;
use crate::place::Place;
use crate::show;

/// How many slots a trigger is compared on.
const SLOTS: usize = 50;

/// A trigger installed for this user.
#[derive(Clone, Debug)]
struct InstalledTrigger {
    /// Where it was found, for messages.
    place: String,
    /// None if it starts `up`.
    job: Option<String>,
    /// None if the trigger does not name one.
    config: Option<String>,
    when: TriggerTime,
}

#[derive(Clone, Debug)]
enum TriggerTime {
    Always,
    /// The fields of a crontab line.
    Cron(String),
    /// The text of a systemd timer or launchd agent.
    Unit(String),
}

/// Opens the store, or returns none: then it is not known which jobs are idle.
pub type OpenStore<'a> = &'a dyn Fn() -> Result<Option<Arc<dyn Store>>, Failure>;

pub fn drift(place: &Place, open: OpenStore<'_>, now: Wall) -> Result<Vec<InstalledDifference>, Failure> {
    let Some(config) = &place.config else { return Ok(Vec::new()) };
    let triggers = found()?;
    let path = config.path.display().to_string();
    let jobs = scheduled(config)?;
    let mut differences = gone(config, &triggers, &path);
    differences.extend(unguarded(config)?);
    for (name, schedule) in &jobs {
        let name = name.as_str();
        let difference = |kind, message: String| InstalledDifference {
            job: Some(name.to_string()),
            kind,
            message: format!("{name}{message}"),
            place: None,
            since: None,
        };
        let of_job = triggers.iter().filter(|trigger| trigger.job.as_deref().is_none_or(|job| job == name));
        let (mine, others): (Vec<&InstalledTrigger>, Vec<&InstalledTrigger>) =
            of_job.partition(|trigger| trigger.config.as_ref().is_none_or(|config| *config == path));
        if mine.is_empty() {
            let other = others.iter().find(|trigger| trigger.job.is_some());
            differences.push(match other {
                None => difference(
                    "no_trigger",
                    " has no trigger here: neither crontab, systemd nor launchd starts it.".into(),
                ),
                Some(other) => {
                    let config = other.config.as_deref().unwrap_or_default();
                    difference(
                        "other_config",
                        format!(" is started by another configuration, {config} ({}).", other.place),
                    )
                }
            });
            continue;
        }
        let keys = config.jobs.iter().find(|(known, _)| known.as_str() == name).map(|(_, keys)| keys);
        let terms = keys.map_or_else(CatchUpTerms::default, |keys| calendar::unchecked_terms(keys));
        if !mine.iter().any(|trigger| trigger.serves(schedule, &terms, now)) {
            let places: Vec<&str> = mine.iter().map(|trigger| trigger.place.as_str()).collect();
            let text = schedule.text();
            differences.push(difference(
                "other_schedule",
                format!(" is due by {text:?}, but {} says otherwise.", places.join(", ")),
            ));
        }
        if let Some(store) = open()? {
            differences.extend(idle((place, store.as_ref()), config, name, schedule, now)?);
        }
    }
    Ok(differences)
}

/// Finds triggers of this configuration for jobs that it no longer has or no longer schedules.
fn gone(config: &Config, triggers: &[InstalledTrigger], path: &str) -> Vec<InstalledDifference> {
    let mine = triggers.iter().filter(|trigger| trigger.config.as_deref() == Some(path));
    let judged = mine.filter_map(|trigger| {
        // A job with mistakes is in the configuration: what it should be is unknown.
        let name = trigger.job.clone().filter(|name| !config.broken.contains_key(name))?;
        let job = config.jobs.iter().find(|(known, _)| known.as_str() == name).map(|(_, job)| job);
        let why = match job {
            None => "is not in the configuration any more",
            Some(job) if !job.enabled() => "is not enabled",
            Some(job) if job.shown_schedule().is_none() => "has no schedule",
            Some(_) => return None,
        };
        let message = format!("{name} {why}, but {} starts it.", trigger.place);
        let since = crate::command::overdue::written_at(config);
        Some(InstalledDifference { job: Some(name), kind: "gone", message, place: None, since })
    });
    judged.collect()
}

/// Finds crontab lines that run a job's command without fencepost. Without a crontab there are none.
fn unguarded(config: &Config) -> Result<Vec<InstalledDifference>, Failure> {
    let text = crontab::listed().unwrap_or_default().unwrap_or_default();
    let of_line = |line: originals::Original| InstalledDifference {
        message: format!(
            "{} is also started without fencepost, by line {} of your crontab: {}. Comment it out by crontab -e; for jobs \
             that cron starts, fencepost install crontab --write does it.",
            line.job,
            line.number,
            show::flat(&line.line)
        ),
        job: Some(line.job.to_string()),
        kind: "unguarded",
        place: None,
        since: None,
    };
    Ok(originals::find(&text, config)?.into_iter().map(of_line).collect())
}

/// Finds a job that has a trigger and still does not run.
fn idle(
    (place, store): (&Place, &dyn Store),
    config: &Config,
    name: &str,
    schedule: &Schedule,
    now: Wall,
) -> Result<Option<InstalledDifference>, Failure> {
    let Some((name, _)) = config.jobs.iter().find(|(known, _)| known.as_str() == name) else { return Ok(None) };
    let job = crate::command::job(name, false, place)?;
    let (record, clock) = look(store, &job)?;
    let record = record.map(|record| place.ask(store, |view| view.current(record)));
    let is_over = |record| place.ask(store, |view| view.is_over(record, clock.as_ref()));
    let is_over = record.as_ref().is_some_and(is_over);
    let is_paused = record.as_ref().is_some_and(|record| record.paused.is_some());
    let standing = if is_over { LeaseState::Over } else { LeaseState::Stands };
    let floor = crate::command::overdue::written_at(config).unwrap_or(now);
    let gap = overdue(schedule, record.as_ref(), standing, floor, now).filter(|gap| gap.count > 2 && !is_paused);
    let last = record.as_ref().and_then(|record| record.ledger.last()).map_or_else(
        || "it never ran".to_string(),
        |last| format!("its last run was {}", show::time_for_people(last.started, now, schedule.zone())),
    );
    Ok(gap.map(|gap| InstalledDifference {
        job: Some(name.to_string()),
        kind: "idle",
        place: None,
        since: Some(gap.from),
        message: format!(
            "{name} has a trigger, but {} of its slots passed since anything was recorded: {last}.",
            gap.count
        ),
    }))
}

impl InstalledTrigger {
    /// Whether the trigger fires for every slot, in time.
    fn serves(&self, schedule: &Schedule, terms: &CatchUpTerms, now: Wall) -> bool {
        match &self.when {
            TriggerTime::Always => true,
            TriggerTime::Cron(_) if is_finer_than_cron(schedule, terms, now) => false,
            TriggerTime::Cron(fields) => {
                let zone = machine_zone();
                if crontab::expression(schedule, Some(&zone), now).0 == *fields {
                    return true;
                }
                let Ok(installed) = Schedule::parse(fields, &zone) else { return false };
                let fires = |slot: Wall| {
                    installed.after(Wall(slot.0 - 1)).is_some_and(|fired| fired.since(slot) <= terms.slack)
                };
                schedule.forward(now).take(SLOTS).all(fires)
            }
            TriggerTime::Unit(text) if self.place.ends_with(".plist") => {
                // The calendar depends on the time of year only where the clocks change.
                text.contains(&launchd::calendar(now, schedule))
            }
            TriggerTime::Unit(text) => {
                let (wanted, _) = systemd::on_calendar(schedule, now);
                let told: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("OnCalendar=")).collect();
                told == wanted
            }
        }
    }
}

/// Whether more slots pass in the minute between two cron triggers than one of them runs.
fn is_finer_than_cron(schedule: &Schedule, terms: &CatchUpTerms, now: Wall) -> bool {
    let minute = Wall(now.0 - now.0.rem_euclid(60_000));
    let slots = schedule.count(minute, Wall(minute.0 + 60_000));
    terms.mode == CatchUpMode::Each && slots > u64::from(terms.catch_up.max(1))
}

/// Finds every fencepost trigger installed for this user.
fn found() -> Result<Vec<InstalledTrigger>, Failure> {
    let mut triggers = Vec::new();
    let text = crontab::listed().unwrap_or_default().unwrap_or_default();
    for part in crontab::parts(&text)? {
        let lines = match &part {
            crontab::CrontabPart::Other(text) | crontab::CrontabPart::Block { text, .. } => text,
        };
        triggers.extend(lines.lines().filter_map(in_crontab));
    }
    let all = |_: &str| true;
    let kind = systemd::kind(&all)?;
    for (name, text) in units::texts(&kind.directory) {
        let path = kind.directory.join(&name).display().to_string();
        let is_timer = name.ends_with(".timer");
        if let Some(config) = systemd::config_of(&text).filter(|_| is_timer || name == systemd::UP) {
            let when = if is_timer { TriggerTime::Unit(text.clone()) } else { TriggerTime::Always };
            triggers.push(InstalledTrigger {
                place: path,
                job: systemd::job_of(&name),
                config: Some(config.to_string()),
                when,
            });
        } else if name.ends_with(".service") && systemd::config_of(&text).is_none() {
            let started = text.lines().filter_map(|line| line.strip_prefix("ExecStart=")).filter_map(called);
            triggers.extend(started.map(|(job, config)| InstalledTrigger {
                place: path.clone(),
                job,
                config,
                when: TriggerTime::Always,
            }));
        }
    }
    let kind = launchd::kind(&all)?;
    for (name, text) in units::texts(&kind.directory) {
        if (kind.is_ours)(&name, &text) {
            let job = launchd::job_of(&name);
            let when = if job.is_some() { TriggerTime::Unit(text.clone()) } else { TriggerTime::Always };
            let place = kind.directory.join(&name).display().to_string();
            triggers.push(InstalledTrigger { place, job, config: launchd::config_of(&text), when });
        }
    }
    Ok(triggers)
}

/// Parses a crontab line that calls fencepost.
fn in_crontab(line: &str) -> Option<InstalledTrigger> {
    let line = line.trim_start();
    let fields = if line.starts_with('@') { 1 } else { 5 };
    if line.starts_with('#') || line.split_whitespace().count() <= fields {
        return None;
    }
    let mut rest = line;
    let mut when = Vec::new();
    for _ in 0..fields {
        let (field, after) = rest.split_once(char::is_whitespace)?;
        when.push(field);
        rest = after.trim_start();
    }
    let (job, config) = called(&rest.replace(r"\%", "%"))?;
    let when = if when == ["@reboot"] { TriggerTime::Always } else { TriggerTime::Cron(when.join(" ")) };
    Some(InstalledTrigger { place: "your crontab".to_string(), job, config, when })
}

/// Returns the job that a command runs through fencepost (none for `up`) and the configuration it names.
fn called(command: &str) -> Option<(Option<String>, Option<String>)> {
    let words = words(command);
    let at = words.iter().position(|word| word == "fencepost" || word.ends_with("/fencepost"))?;
    let (mut config, mut verb) = (None, None);
    let mut rest = words[at + 1..].iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--" => break,
            "--config" => config = rest.next().cloned(),
            "--store" => drop(rest.next()),
            option if option.starts_with("--config=") => config = option.strip_prefix("--config=").map(String::from),
            option if option.starts_with('-') => {}
            "run" if verb.is_none() => verb = Some("run"),
            "up" if verb.is_none() => return Some((None, config)),
            job if verb.is_some() => return Some((Some(job.to_string()), config)),
            _ => return None,
        }
    }
    None
}

/// Splits a command into words like a shell, for plain quotes only.
pub fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_open) = (Vec::new(), String::new(), None, false);
    let mut characters = command.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.push(c),
            (_, '\\') => word.extend(characters.next()),
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, is_open) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if !word.is_empty() || is_open {
                    words.push(std::mem::take(&mut word));
                }
                is_open = false;
            }
            (None, c) => word.push(c),
        }
    }
    if !word.is_empty() || is_open {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_recognised() {
        let call = |text: &str| called(text);
        let some = |job: &str, config: &str| Some((Some(job.to_string()), Some(config.to_string())));
        assert_eq!(
            call("/usr/bin/env PATH=/bin '/a b/fencepost' --config '/it'\\''s.toml' run x"),
            some("x", "/it's.toml")
        );
        assert_eq!(call("fencepost run -v x -- ./y"), Some((Some("x".to_string()), None)));
        assert_eq!(call("fencepost --config=/c up"), Some((None, Some("/c".to_string()))));
        assert_eq!(call("fencepost status"), None);
        assert_eq!(call("./report.sh run x"), None);
        let trigger = in_crontab("*/5 * * * * cd /x && fencepost run report").unwrap();
        assert_eq!(trigger.job.as_deref(), Some("report"));
        assert!(matches!(trigger.when, TriggerTime::Cron(fields) if fields == "*/5 * * * *"));
        assert!(in_crontab("# 0 7 * * * fencepost run x").is_none());
        assert!(in_crontab("MAILTO=x").is_none());
    }
}
