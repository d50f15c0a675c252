//! `fencepost status`: the jobs, who holds them and how they last ended.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::lease::Honest;
use fencepost_core::ledger::{Ledger, Outcome, Status};
use fencepost_core::plan::Terms;
use fencepost_core::record::{Gauge, Identity, Record, Resource, Seal, decode};
use fencepost_core::skips::Skips;
use fencepost_core::slot::{Asked, OnLost, Scheduled, Standing};
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::transition::unreadable;
use fencepost_core::zone::Zone;
use fencepost_guard::archive::whole;
use fencepost_guard::clock;
use fencepost_guard::transact::skips;
use fencepost_store::{Key, Store};
use serde::Serialize;

use super::Damage;
use crate::args::{Format, Global, StatusOptions};
use crate::exit::{Code, Failure};
use crate::file;
use crate::place::Place;
use crate::prometheus;
use crate::report::{length, percent};
use crate::show::{self, RunJson};
use crate::upstreams;

pub fn run(global: &Global, options: &StatusOptions) -> Result<Code, Failure> {
    let format = format(global, options)?;
    let place = Place::find(global)?;
    if options.output.is_some() {
        place.must_exist()?;
    }
    let store = place.open_to_read()?;
    let mut jobs = Vec::new();
    let mut damage = Damage::default();
    super::each_record(store.as_ref(), &mut damage, |damage, record, clock| {
        if options.job.as_ref().is_none_or(|name| record.job.name == *name) {
            jobs.push(JobState::of(store.as_ref(), &place, record, clock, damage)?);
        }
        Ok(())
    })?;
    jobs.sort_by(|a, b| a.record.job.cmp(&b.record.job));
    let now = clock::now().wall;
    let sealed = sealed(store.as_ref())?;
    match (format, &options.output) {
        (Format::Prom, Some(path)) => file::replace(path, &prometheus::exposition(&jobs, damage.sentences().len()))?,
        (Format::Prom, None) => show::text(&prometheus::exposition(&jobs, damage.sentences().len())),
        (Format::Json, _) => show::json(&StatusJson {
            v: 1,
            store: place.shown_store(),
            config: place.shown_config(),
            sealed: sealed.clone(),
            jobs: jobs.iter().map(|job| job.json(now)).collect(),
            resources: resources(&jobs),
            unreadable: damage.sentences(),
        }),
        (Format::Table, _) => describe(&place, sealed.as_ref(), options, &jobs, now),
    }
    Ok(damage.report(global, Code::DONE))
}

fn format(global: &Global, options: &StatusOptions) -> Result<Format, Failure> {
    let format = match (options.format, global.json) {
        (Some(Format::Json) | None, true) => Format::Json,
        (Some(_), true) => return Err(Failure::Usage("--json and another --format cannot both be meant.".to_string())),
        (format, false) => format.unwrap_or(Format::Table),
    };
    match &options.output {
        Some(_) if format != Format::Prom => {
            Err(Failure::Usage("--output goes with --format prom; anything else can be redirected.".to_string()))
        }
        _ => Ok(format),
    }
}

/// Why no job begins in this store, and where they begin now.
fn sealed(store: &dyn Store) -> Result<Option<Seal>, Failure> {
    let Some(entry) = store.read(&Key::identity())?.value else { return Ok(None) };
    let identity: Identity = decode(&entry.bytes).map_err(|why| unreadable("the store's identity", &why))?;
    Ok(identity.sealed)
}

fn describe(place: &Place, sealed: Option<&Seal>, options: &StatusOptions, jobs: &[JobState], now: Wall) {
    show::line(&format!("store   {}", place.shown_store()));
    show::line(&format!("config  {}", place.shown_config().as_deref().unwrap_or("none")));
    if let Some(seal) = sealed {
        show::line(&format!("sealed  {seal}"));
    }
    show::line("");
    match (&options.job, jobs) {
        (Some(name), []) => show::line(&format!("{name} has never run on this store.")),
        (None, []) => show::line("No job has run on this store yet. Try: fencepost run hello -- echo hello"),
        (Some(_), jobs) => jobs.iter().for_each(|job| job.describe(now)),
        (None, jobs) => {
            table(jobs, now);
            show_upstreams(jobs, now);
        }
    }
    show_resources(jobs, now);
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

/// The upstreams that kept jobs from working: the gauge of who is unstable.
fn show_upstreams(jobs: &[JobState], now: Wall) {
    let of = |job: &JobState| {
        let rows = job.record.upstreams.iter().map(|(upstream, gauge)| {
            vec![
                upstream.clone(),
                job.record.job.to_string(),
                gauge.halts.to_string(),
                gauge.skips.to_string(),
                format!("{} ago", length(now.since(gauge.at))),
                show::flat(&gauge.reason),
            ]
        });
        rows.collect::<Vec<_>>()
    };
    let rows: Vec<_> = jobs.iter().flat_map(of).collect();
    if !rows.is_empty() {
        show::line("");
        show::table(&["UPSTREAM", "JOB", "HALTS", "SKIPS", "LAST", "REASON"], &rows);
    }
}

pub struct JobState {
    /// The last outcome and the last good one are whole, where the record had to cut them.
    pub record: Record,
    pub skips: Option<Skips>,
    remaining: Option<Duration>,
    is_over: bool,
}

impl JobState {
    fn of(
        store: &dyn Store,
        place: &Place,
        mut record: Record,
        clock: Option<&StoreClock>,
        damage: &mut Damage,
    ) -> Result<Self, Failure> {
        let Ledger { ring, last_ok, .. } = &mut record.ledger;
        for outcome in ring.last_mut().into_iter().chain(last_ok) {
            // What is short is better than no status at all.
            *outcome = whole(store, &record.job, outcome).unwrap_or_else(|_| outcome.clone());
        }
        Ok(Self {
            skips: damage.noted(skips(store, &record.job))?.flatten(),
            remaining: show::remaining(&record, clock),
            is_over: place.is_over(&record, clock),
            record,
        })
    }

    pub fn is_held(&self) -> bool {
        self.record.lease.is_some() && !self.is_over
    }

    fn state(&self) -> &'static str {
        match &self.record.lease {
            None if self.record.paused.is_some() => "paused",
            None => "free",
            Some(lease) if self.is_held() && !lease.holder.is_run() => "held",
            Some(_) if self.is_held() => "running",
            Some(_) => "lost",
        }
    }

    fn holder_cell(&self) -> String {
        match &self.record.lease {
            Some(lease) if self.is_held() => match lease.holder.pid() {
                Some(pid) => format!("{} (pid {pid})", lease.holder.host),
                None => format!("{} ({})", lease.holder.host, show::process(&lease.holder)),
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
        let say = |what: &str, text: &str| show::line(&format!("  {what:8} {}", show::flat(text)));
        show::line(&format!("{}", record.job));
        let state = match &record.lease {
            Some(lease) if self.is_held() => {
                format!("{}: {}", self.state(), show::holder(lease, self.remaining, now))
            }
            Some(lease) => format!("lost: run {} did not end properly; the next run takes over", lease.run),
            None => "free".to_string(),
        };
        say("state", &state);
        if let Some(paused) = &record.paused {
            let note = paused.note.as_ref().map_or_else(String::new, |note| format!(": {}", show::flat(note)));
            let since = show::time_for_people(paused.since, now, &self.zone());
            say("paused", &format!("since {since}, from {}{note}", paused.by));
        }
        if let Some(next) = self.next_slot(now) {
            say("next", &show::second_in(next, &self.zone()));
        }
        say("token", &format!("{} (grant {})", record.token, record.grants));
        if let Some(last) = record.ledger.last() {
            say("last", &sentence(last, now));
        }
        if let Some(ok) = &record.ledger.last_ok {
            say("last ok", &sentence(ok, now));
            show::artifacts(&ok.artifacts).iter().for_each(|artifact| say("left", artifact));
        }
        if let Some((status, count)) = self.streak().filter(|(_, count)| *count > 1) {
            say("streak", &format!("{status} × {count}"));
        }
        if let Some(skips) = &self.skips {
            let last = |at| format!(", last {}", show::time_for_people(at, now, &self.zone()));
            let last = skips.last.as_ref().map_or_else(String::new, |skip| last(skip.at));
            say("skipped", &format!("{}{last}", self.skips_cell()));
        }
        for (upstream, gauge) in &record.upstreams {
            let last = show::time_for_people(gauge.at, now, &self.zone());
            let often = format!("halted it {} ×, skipped it {} ×", gauge.halts, gauge.skips);
            say("upstream", &format!("{upstream} {often}, last {last}: {}", show::flat(&gauge.reason)));
        }
        let counts: Vec<_> = self.counts().into_iter().map(|(status, count)| format!("{status} {count}")).collect();
        if !counts.is_empty() {
            say("counts", &counts.join(", "));
        }
    }

    /// The zone the job lived in last.
    fn zone(&self) -> Zone {
        let timing = self.record.timing.as_ref().map(|timing| timing.zone.as_str());
        let last = self.record.ledger.last().map(|last| last.zone.as_str());
        show::zone(self.record.lease.as_ref().map(|lease| lease.zone.as_str()).or(last).or(timing).unwrap_or("UTC"))
    }

    /// When it is due next, where it has run by a schedule. `plan` says the same.
    fn next_slot(&self, now: Wall) -> Option<Wall> {
        let schedule = upstreams::recorded_schedule(&self.record).filter(|_| self.record.paused.is_none())?;
        let (terms, asked, on_lost) = (Terms::default(), Asked::Due, OnLost::default());
        let scheduled = Scheduled { schedule, terms, asked, on_lost, retries: 0 };
        let standing = if self.is_held() { Standing::Stands } else { Standing::Over };
        scheduled.plan::<Honest>(Some(&self.record), standing, now).1.upcoming(now)
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
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

    /// The status that came last, or the skips of a run that is going, and how many of it in a row.
    pub fn streak(&self) -> Option<(Status, u64)> {
        let skipped = self.skips.as_ref().and_then(|skips| skips.streak(self.record.token));
        let skipped = skipped.filter(|_| self.is_held()).map(|count| (Status::SkippedOverlap, count));
        skipped.or_else(|| self.record.ledger.streak())
    }

    fn json(&self, now: Wall) -> JobJson {
        let (record, zone) = (&self.record, self.zone());
        let holder = record.lease.as_ref().filter(|_| self.is_held()).map(|lease| HolderJson {
            run: lease.run.to_string(),
            host: lease.holder.host.clone(),
            pid: lease.holder.pid(),
            since: zone.show(lease.since),
            until: self.remaining.map(|left| zone.show(now + left)),
        });
        JobJson {
            job: record.job.to_string(),
            token: record.token.number(),
            grants: record.grants,
            holder,
            last: record.ledger.last().map(|last| RunJson::ended(record, last)),
            last_ok: record.ledger.last_ok.as_ref().map(|last| RunJson::ended(record, last)),
            next_slot: self.next_slot(now).map(|next| zone.show(next)),
            streak: self.streak().map(|(status, count)| StreakJson { status: status.as_str(), count }),
            counts: self.counts(),
            upstreams: record.upstreams.iter().map(|(job, gauge)| GaugeJson::new(job, gauge, &zone)).collect(),
        }
    }
}

fn resources(jobs: &[JobState]) -> Vec<ResourceJson> {
    let of = |job: &JobState| {
        let (name, zone) = (job.record.job.to_string(), job.zone());
        let json = move |(resource, known): (&String, &Resource)| ResourceJson {
            resource: resource.clone(),
            kind: known.kind.clone(),
            token: known.token.number(),
            job: name.clone(),
            run: known.run.to_string(),
            at: zone.show(known.at),
            refused: known.refused,
        };
        job.record.resources.iter().map(json).collect::<Vec<_>>()
    };
    jobs.iter().flat_map(of).collect()
}

fn took(outcome: &Outcome) -> String {
    length(outcome.length())
}

fn sentence(outcome: &Outcome, now: Wall) -> String {
    let exit = outcome.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    let note = outcome.note.as_ref().map_or_else(String::new, |note| format!(": {}", show::flat(note)));
    let ended = show::time_for_people(outcome.finished, now, &show::zone(&outcome.zone));
    format!("{} {ended}, took {}{exit}{note}", outcome.status, took(outcome))
}

#[derive(Serialize)]
struct StatusJson {
    v: u32,
    store: String,
    config: Option<String>,
    /// Why no job begins in this store.
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<Seal>,
    jobs: Vec<JobJson>,
    resources: Vec<ResourceJson>,
    /// Records that cannot be read, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
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
    upstreams: Vec<GaugeJson>,
}

#[derive(Serialize)]
struct GaugeJson {
    job: String,
    halts: u64,
    skips: u64,
    at: String,
    reason: String,
}

impl GaugeJson {
    fn new(job: &str, gauge: &Gauge, zone: &Zone) -> Self {
        let Gauge { halts, skips, at, reason, .. } = gauge;
        Self { job: job.to_string(), halts: *halts, skips: *skips, at: zone.show(*at), reason: reason.clone() }
    }
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
