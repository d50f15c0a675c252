//! Checks whether the values of a configuration are consistent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fencepost_core::lease::{TTL_MAX, TTL_MIN};
use fencepost_core::name::Name;
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::plain;

use super::mistake::Mistake;
use super::{Config, ConfigNeed};
use crate::calendar;
use crate::duration;
use crate::options::JobOptions;
use fencepost_core::nearest::nearest;

/// The default time-to-live of a lease.
pub const TTL: Duration = Duration::from_secs(300);

/// The default grace, and the largest share of the time-to-live that it may take.
pub const GRACE: Duration = Duration::from_secs(10);
pub const GRACES_PER_TTL: u32 = 3;

/// Maximum number of name comparisons in the search for a similar name of an unknown upstream.
const COMPARISONS_MAX: usize = 1_000_000;

/// Maximum number of jobs that are stopped by cycles, each counted once per cycle. Beyond it, a cycle stops all.
const STOPPED_MAX: usize = 1_000_000;

/// Maximum number of jobs named of a cycle.
const SHOWN_CHAIN_MAX: usize = 20;

/// The result of the check.
#[derive(Debug, Default)]
pub struct Found {
    pub mistakes: Vec<Mistake>,
    pub warnings: Vec<Mistake>,
}

pub fn check(config: &Config) -> Found {
    let mut found = Found::default();
    times(&config.defaults, &mut found);
    for written in config.top.timezone.iter().chain(&config.defaults.timezone) {
        found.mistakes.extend(Zone::parse(&written.value).err().map(|why| Mistake::at(written, why.to_string(), None)));
    }
    catching_up(&config.defaults, &mut found);
    let mut comparisons = COMPARISONS_MAX;
    for (name, job) in &config.jobs {
        let before = found.mistakes.len();
        times(job, &mut found);
        calendar(config, job, &mut found);
        needs(config, name, job, &mut comparisons, &mut found);
        told(name, job, &mut found);
        found.mistakes[before..].iter_mut().for_each(|mistake| mistake.jobs = vec![name.to_string()]);
        if job.command.is_none() {
            let message = format!("The job {name} has no command: it runs only if one is given after --.");
            found.warnings.push(Mistake::at(&job.at, message, None));
        }
    }
    found.mistakes.extend(cycles(config));
    found.warnings.extend(made_twice(config));
    found.warnings.sort_by_key(Mistake::order);
    found
}

/// Checks the grace: stopping a job may take only a small part of its lease.
fn times(job: &JobOptions, found: &mut Found) {
    if let Some(ttl) = job.ttl.as_ref().filter(|ttl| !(TTL_MIN..=TTL_MAX).contains(&ttl.value)) {
        let (least, most) = (duration::show(TTL_MIN), duration::show(TTL_MAX));
        let message = format!("\"ttl\" is out of bounds: a lease lasts from {least} to {most}.");
        found.mistakes.push(Mistake::at(ttl, message, None));
        return;
    }
    let ttl = job.ttl.as_ref().map_or(TTL, |ttl| ttl.value);
    if let Some(grace) = job.grace.as_ref().filter(|grace| grace.value > ttl / GRACES_PER_TTL) {
        let message = format!(
            "\"ttl\" ({}) is shorter than three times \"grace\" ({}): stopping the job could take longer than its lease.",
            duration::show(ttl),
            duration::show(grace.value)
        );
        let least = duration::show(grace.value.saturating_mul(GRACES_PER_TTL));
        let hint = format!("Give a \"ttl\" of at least {least}, or a shorter \"grace\".");
        found.mistakes.push(Mistake::at(grace, message, Some(hint)));
    }
}

/// Checks the schedule and the rules of catching up.
fn calendar(config: &Config, job: &JobOptions, found: &mut Found) {
    match calendar::written_zone(config, job) {
        Ok(zone) => found.mistakes.extend(calendar::written_schedule(job, &zone).err()),
        Err(mistake) => {
            found.mistakes.push(mistake);
            // The schedule's syntax does not depend on the zone.
            found.mistakes.extend(calendar::written_schedule(job, &Zone::utc()).err());
        }
    }
    catching_up(job, found);
}

fn catching_up(job: &JobOptions, found: &mut Found) {
    let terms = calendar::unchecked_terms(job);
    if let (Some(written), Err(why)) = (&job.catch_up, terms.check()) {
        found.mistakes.push(Mistake::at(written, format!("This cannot be kept: {why}"), None));
    }
}

/// Warns of an unknown upstream with a similar name. Without one, another scheduler may run that job.
fn needs(config: &Config, name: &Name, job: &JobOptions, comparisons: &mut usize, found: &mut Found) {
    for need in job.needed() {
        let Some(upstream) = config.jobs.get(&need.job.value.name) else {
            let Some(left) = comparisons.checked_sub(config.jobs.len()) else { continue };
            *comparisons = left;
            let others = config.jobs.keys().filter(|other| *other != name).map(Name::as_str);
            if let Some(near) = nearest(need.job.value.name.as_str(), others) {
                let message = format!("{name} needs {}, which is not in this file.", need.job.value);
                found.warnings.push(Mistake::at(&need.job, message, Some(format!("Did you mean {near:?}?"))));
            }
            continue;
        };
        let unmade = need.artifacts.iter().filter(|path| {
            let path = whole(config, job, &path.value);
            !upstream.produced().iter().any(|made| covers(&whole(config, upstream, &made.path.value), &path))
        });
        for path in unmade {
            let message =
                format!("{name} needs {:?} of {}, which does not say that it makes it.", path.value, need.job.value);
            let hint = format!("Add it to \"produces\" in [job.{}].", need.job.value);
            found.warnings.push(Mistake::at(path, message, Some(hint)));
        }
    }
}

/// Warns if skips are counted but cause no notification.
fn told(name: &Name, job: &JobOptions, found: &mut Found) {
    let is_silent = job.on_skips.as_ref().is_some_and(|on| on.value.notify.is_none()) && job.on_error.is_none();
    if is_silent {
        let message = format!("\"on_skips\" of {name} has no effect: there is no \"on_error\" to call.");
        let hint = "Give \"on_error\", or write on_skips = { count = 3, notify = … }.".to_string();
        found.warnings.push(Mistake::at(&job.at, message, Some(hint)));
    }
}

/// Finds each cycle of needs once, with its chain.
fn cycles(config: &Config) -> Vec<Mistake> {
    let mut walk = NeedsWalk {
        config,
        ended: BTreeSet::new(),
        chain: Vec::new(),
        places: BTreeMap::new(),
        stopped: 0,
        mistakes: Vec::new(),
    };
    for name in config.jobs.keys() {
        walk.from(name);
    }
    walk.mistakes
}

/// A depth-first walk along the needs. It keeps its own stack: a chain may be as long as the file.
struct NeedsWalk<'c> {
    config: &'c Config,
    /// Jobs whose needs are completely walked.
    ended: BTreeSet<&'c Name>,
    /// The jobs of the current path, each with the needs that are still to be walked.
    chain: Vec<(&'c Name, std::slice::Iter<'c, ConfigNeed>)>,
    /// The index of each job in the chain.
    places: BTreeMap<&'c Name, usize>,
    /// How many jobs the cycles stop.
    stopped: usize,
    mistakes: Vec<Mistake>,
}

impl<'c> NeedsWalk<'c> {
    fn from(&mut self, name: &'c Name) {
        self.enter(name);
        while let Some((name, needs)) = self.chain.last_mut() {
            let Some(need) = needs.next() else {
                self.places.remove(*name);
                self.ended.insert(name);
                self.chain.pop();
                continue;
            };
            let Some((upstream, _)) = self.config.jobs.get_key_value(&need.job.value.name) else { continue };
            match self.places.get(upstream) {
                None => self.enter(upstream),
                Some(start) => {
                    let chain = &self.chain[*start..];
                    self.stopped += chain.len();
                    let named = if self.stopped > STOPPED_MAX { &[] } else { chain };
                    let jobs = named.iter().map(|(name, _)| name.to_string()).collect();
                    self.mistakes.push(Mistake { jobs, ..circle(chain, upstream, need) });
                }
            }
        }
    }

    fn enter(&mut self, name: &'c Name) {
        let Some(job) = self.config.jobs.get(name).filter(|_| !self.ended.contains(name)) else { return };
        self.places.insert(name, self.chain.len());
        self.chain.push((name, job.needed().iter()));
    }
}

fn circle(chain: &[(&Name, std::slice::Iter<'_, ConfigNeed>)], upstream: &Name, need: &ConfigNeed) -> Mistake {
    let names: Vec<&str> = chain.iter().map(|(name, _)| name.as_str()).chain([upstream.as_str()]).collect();
    let words = match names.len() {
        0..=SHOWN_CHAIN_MAX => names.join(" needs "),
        many => format!(
            "{} needs … ({} more) … needs {upstream}",
            names[..SHOWN_CHAIN_MAX].join(" needs "),
            many - SHOWN_CHAIN_MAX - 1
        ),
    };
    let message = format!("These jobs wait for each other, so that none can run: {words}.");
    Mistake::at(&need.job, message, Some("Remove one of these needs.".to_string()))
}

/// A path or pattern that a job writes or reads, made absolute by the job's working directory.
fn whole(config: &Config, job: &JobOptions, path: &str) -> String {
    plain(&config.working_directory(job).join(path)).to_string_lossy().into_owned()
}

/// Whether a path or pattern matches a file.
fn covers(made: &str, path: &str) -> bool {
    match made.find(['*', '?', '[']) {
        Some(wildcard) => path.starts_with(&made[..wildcard]),
        None => made == path,
    }
}

/// Warns of two jobs that write the same file.
fn made_twice(config: &Config) -> Vec<Mistake> {
    let mut made: BTreeMap<String, &Name> = BTreeMap::new();
    let mut warnings = Vec::new();
    for (name, job) in &config.jobs {
        for produces in job.produced() {
            let path = produces.path.value.trim_start_matches("./");
            match made.insert(whole(config, job, path), name) {
                Some(other) if other != name => {
                    let message =
                        format!("{name} and {other} both make {path:?}: the later one overwrites the other's work.");
                    warnings.push(Mistake::at(&produces.path, message, None));
                }
                _ => {}
            }
        }
    }
    warnings
}
