//! `fencepost status`: the jobs, who holds them and how they last ended.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::record::{Record, Resource};
use fencepost_core::skips::Skips;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_guard::clock;
use fencepost_guard::transact::skips;
use fencepost_store::Store;
use serde::Serialize;

use crate::args::{Global, StatusOptions};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::{length, percent};
use crate::show::{self, RunJson};

pub fn run(global: &Global, options: &StatusOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let store = place.open()?;
    let mut jobs = Vec::new();
    super::each_record(store.as_ref(), |record, clock| {
        if options.job.as_ref().is_none_or(|name| record.job.name == *name) {
            jobs.push(JobState::of(store.as_ref(), &place, record, clock)?);
        }
        Ok(())
    })?;
    jobs.sort_by(|a, b| a.record.job.cmp(&b.record.job));
    let now = clock::now().wall;
    if global.json {
        show::json(&StatusJson {
            v: 1,
            store: place.shown_store(),
            config: place.shown_config(),
            jobs: jobs.iter().map(|job| job.json(now)).collect(),
            resources: resources(&jobs),
        });
        return Ok(Code::DONE);
    }
    show::line(&format!("store   {}", place.shown_store()));
    show::line(&format!("config  {}", place.shown_config().as_deref().unwrap_or("none")));
    show::line("");
    match (&options.job, jobs.as_slice()) {
        (Some(name), []) => show::line(&format!("{name} has never run on this store.")),
        (None, []) => show::line("No job has run on this store yet. Try: fencepost run hello -- echo hello"),
        (Some(_), jobs) => jobs.iter().for_each(|job| job.describe(now)),
        (None, jobs) => table(jobs, now),
    }
    show_resources(&jobs, now);
    Ok(Code::DONE)
}

fn table(jobs: &[JobState], now: Wall) {
    let rows: Vec<_> = jobs
        .iter()
        .map(|job| {
            let last = job.record.ledger.last();
            vec![
                job.record.job.to_string(),
                job.state().to_string(),
                job.holder_cell(),
                job.record.token.to_string(),
                job.record.grants.to_string(),
                last.map_or_else(|| "-".to_string(), |last| last.status.to_string()),
                last.map_or_else(|| "-".to_string(), took),
                last.map_or_else(|| "-".to_string(), |last| format!("{} ago", length(now.since(last.finished)))),
                job.skips_cell(),
            ]
        })
        .collect();
    let heading = ["JOB", "STATE", "HOLDER", "TOKEN", "GRANTS", "LAST", "TOOK", "ENDED", "SKIPPED"];
    show::table(&heading, &rows);
}

/// Where the jobs write under their tokens, and how often a stale one was refused.
fn show_resources(jobs: &[JobState], now: Wall) {
    let of = |job: &JobState| {
        let rows = job.record.resources.iter().map(|(resource, known)| {
            vec![
                resource.clone(),
                known.kind.clone(),
                known.token.to_string(),
                job.record.job.to_string(),
                format!("{} ago", length(now.since(known.at))),
                known.refused.to_string(),
            ]
        });
        rows.collect::<Vec<_>>()
    };
    let rows: Vec<_> = jobs.iter().flat_map(of).collect();
    if !rows.is_empty() {
        show::line("");
        show::table(&["RESOURCE", "KIND", "TOKEN", "JOB", "WRITTEN", "REFUSED"], &rows);
    }
}

struct JobState {
    record: Record,
    skips: Option<Skips>,
    remaining: Option<Duration>,
    is_over: bool,
}

impl JobState {
    fn of(store: &dyn Store, place: &Place, record: Record, clock: Option<&StoreClock>) -> Result<Self, Failure> {
        Ok(Self {
            skips: skips(store, &record.job)?,
            remaining: show::remaining(&record, clock),
            is_over: place.is_over(&record, clock),
            record,
        })
    }

    fn is_held(&self) -> bool {
        self.record.lease.is_some() && !self.is_over
    }

    fn state(&self) -> &'static str {
        match &self.record.lease {
            None => "free",
            Some(lease) if self.is_held() && lease.holder.processes.is_none() => "held",
            Some(_) if self.is_held() => "running",
            Some(_) => "lost",
        }
    }

    fn holder_cell(&self) -> String {
        match &self.record.lease {
            Some(lease) if self.is_held() => match lease.holder.pid() {
                Some(pid) => format!("{} (pid {pid})", lease.holder.host),
                None => format!("{} (by hand)", lease.holder.host),
            },
            _ => "-".to_string(),
        }
    }

    fn skips_cell(&self) -> String {
        match &self.skips {
            None => "0".to_string(),
            Some(skips) => format!("{} ({})", skips.overlap, percent(skips.rate(self.record.grants))),
        }
    }

    /// Everything about one job, a line each.
    fn describe(&self, now: Wall) {
        let record = &self.record;
        show::line(&format!("{}", record.job));
        let state = match &record.lease {
            Some(lease) if self.is_held() => {
                format!("{}: {}", self.state(), show::holder(lease, self.remaining, now))
            }
            Some(lease) => format!("lost: run {} did not end properly; the next run takes over", lease.run),
            None => "free".to_string(),
        };
        show::line(&format!("  state    {state}"));
        show::line(&format!("  token    {} (grant {})", record.token, record.grants));
        if let Some(last) = record.ledger.last() {
            show::line(&format!("  last     {}", sentence(last, now)));
        }
        if let Some(ok) = &record.ledger.last_ok {
            show::line(&format!("  last ok  {}", sentence(ok, now)));
        }
        if let Some((status, count)) = record.ledger.streak().filter(|(_, count)| *count > 1) {
            show::line(&format!("  streak   {status} × {count}"));
        }
        if let Some(skips) = &self.skips {
            let last = skips.last.as_ref().map(|last| format!(", last {}", show::time_for_people(last.at, now)));
            show::line(&format!("  skipped  {}{}", self.skips_cell(), last.unwrap_or_default()));
        }
        let counts: Vec<_> = self.counts().into_iter().map(|(status, count)| format!("{status} {count}")).collect();
        if !counts.is_empty() {
            show::line(&format!("  counts   {}", counts.join(", ")));
        }
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<_, _> = self.record.ledger.counts.iter().map(|(s, n)| (s.as_str(), *n)).collect();
        if let Some(skips) = &self.skips {
            let skipped = [
                (Status::SkippedOverlap, skips.overlap),
                (Status::SkippedDuplicate, skips.duplicate),
                (Status::SkippedPaused, skips.paused),
            ];
            counts.extend(skipped.into_iter().filter(|(_, n)| *n > 0).map(|(status, n)| (status.as_str(), n)));
        }
        counts
    }

    fn streak(&self) -> Option<StreakJson> {
        let skipped = self.skips.as_ref().and_then(|skips| skips.streak(self.record.token));
        if let Some(count) = skipped.filter(|_| self.is_held()) {
            return Some(StreakJson { status: Status::SkippedOverlap.as_str(), count });
        }
        self.record.ledger.streak().map(|(status, count)| StreakJson { status: status.as_str(), count })
    }

    fn json(&self, now: Wall) -> JobJson {
        let record = &self.record;
        let holder = record.lease.as_ref().filter(|_| self.is_held()).map(|lease| HolderJson {
            run: lease.run.to_string(),
            host: lease.holder.host.clone(),
            pid: lease.holder.pid(),
            since: show::time(lease.since),
            until: self.remaining.map(|left| show::time(now + left)),
        });
        JobJson {
            job: record.job.to_string(),
            token: record.token.number(),
            grants: record.grants,
            holder,
            last: record.ledger.last().map(|last| RunJson::ended(record, last)),
            last_ok: record.ledger.last_ok.as_ref().map(|last| RunJson::ended(record, last)),
            next_slot: None,
            streak: self.streak(),
            counts: self.counts(),
        }
    }
}

fn resources(jobs: &[JobState]) -> Vec<ResourceJson> {
    let of = |job: &JobState| {
        let name = job.record.job.to_string();
        let json = move |(resource, known): (&String, &Resource)| ResourceJson {
            resource: resource.clone(),
            kind: known.kind.clone(),
            token: known.token.number(),
            job: name.clone(),
            run: known.run.to_string(),
            at: show::time(known.at),
            refused: known.refused,
        };
        job.record.resources.iter().map(json).collect::<Vec<_>>()
    };
    jobs.iter().flat_map(of).collect()
}

fn took(outcome: &Outcome) -> String {
    length(outcome.finished.since(outcome.started))
}

fn sentence(outcome: &Outcome, now: Wall) -> String {
    let exit = outcome.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    let note = outcome.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
    let ended = show::time_for_people(outcome.finished, now);
    format!("{} {ended}, took {}{exit}{note}", outcome.status, took(outcome))
}

#[derive(Serialize)]
struct StatusJson {
    v: u32,
    store: String,
    config: Option<String>,
    jobs: Vec<JobJson>,
    resources: Vec<ResourceJson>,
}

#[derive(Serialize)]
struct ResourceJson {
    resource: String,
    kind: String,
    token: u64,
    job: String,
    run: String,
    at: String,
    refused: u64,
}

#[derive(Serialize)]
struct JobJson {
    job: String,
    token: u64,
    grants: u64,
    holder: Option<HolderJson>,
    last: Option<RunJson>,
    last_ok: Option<RunJson>,
    next_slot: Option<String>,
    streak: Option<StreakJson>,
    counts: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct HolderJson {
    run: String,
    host: String,
    pid: Option<i32>,
    since: String,
    until: Option<String>,
}

#[derive(Serialize)]
struct StreakJson {
    status: &'static str,
    count: u64,
}
