//! `fencepost advise`: what the ledger says about a job's terms, each with the sentence that says why.

use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::record::Record;
use fencepost_core::schedule::Schedule;
use fencepost_core::skips::Skips;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::archive::Slots;
use fencepost_guard::clock;
use fencepost_guard::scout::history;
use fencepost_guard::transact::skips;
use fencepost_store::Store;
use serde::Serialize;

use crate::args::{AdviseOptions, Global};
use crate::calendar;
use crate::config::{GRACE, GRACES_PER_TTL};
use crate::duration;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::percent;
use crate::show;

/// From fewer runs nothing can be learnt.
const RUNS_MIN: usize = 5;
/// So many of the newest runs are looked at.
const RUNS_MAX: usize = 500;
/// What a healthy job sees of skips and of halts.
const HEALTHY: f64 = 0.02;
/// A lease that is renewed is as short as a loaded machine and a slow store allow: it only says how soon a dead holder is
/// noticed.
const RENEWED_TTL_MIN: Duration = Duration::from_secs(30);
const RENEWED_TTL_MAX: Duration = Duration::from_secs(300);

pub fn run(global: &Global, options: &AdviseOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let store = place.open()?;
    let mut found = Vec::new();
    super::each_record(store.as_ref(), |record, _| {
        let is_meant = options.job.as_ref().is_none_or(|name| record.job.name == *name);
        if is_meant && !record.job.is_once() {
            let outcomes = outcomes(store.as_ref(), &record)?;
            let skips = skips(store.as_ref(), &record.job)?;
            let period = period(&place, &record)?;
            found.push(Advice::of(&record, &outcomes, skips.as_ref(), period));
        }
        Ok(())
    })?;
    if let (Some(name), []) = (&options.job, found.as_slice()) {
        return Err(Failure::Usage(format!("No job {name} is known on {}.", place.shown_store())));
    }
    found.sort_by(|one, other| one.job.cmp(&other.job));
    if global.json {
        show::json(&AdviseJson { v: 1, jobs: found });
        return Ok(Code::DONE);
    }
    show::line(&format!("store   {}", place.shown_store()));
    found.iter().for_each(Advice::describe);
    Ok(Code::DONE)
}

/// The newest outcomes of a job, from its record and its history.
fn outcomes(store: &dyn Store, record: &Record) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = record.ledger.ring.clone();
    let oldest = outcomes.iter().map(|outcome| outcome.slot).min().unwrap_or_default();
    let mut slots = Slots::between(store, &record.job, Wall(i64::MIN), Wall(i64::MAX), oldest)?;
    while outcomes.len() < RUNS_MAX
        && let Some(slot) = slots.next_from(Wall(i64::MIN))?
    {
        for outcome in history(store, &record.job, slot)? {
            if outcomes.iter().all(|known| known.attempt() != outcome.attempt()) {
                outcomes.push(outcome);
            }
        }
    }
    Ok(outcomes)
}

/// The time from one slot to the next, by the configuration or as the job's last run said.
fn period(place: &Place, record: &Record) -> Result<Option<Duration>, Failure> {
    let name = &record.job.name;
    let configured = match place.config.as_ref().filter(|config| config.jobs.contains_key(name)) {
        Some(config) => calendar::schedule(config, name)?,
        None => None,
    };
    let recorded = || {
        let timing = record.timing.as_ref()?;
        Schedule::parse(&timing.schedule, &Zone::parse(&timing.zone).ok()?).ok()
    };
    Ok(configured.or_else(recorded).and_then(|schedule| schedule.period_hint(clock::now().wall)))
}

/// What is advised for one job.
#[derive(Debug, Serialize)]
struct Advice {
    job: String,
    /// Runs that ended well, by which the times are measured.
    runs: usize,
    times: Option<Times>,
    renewed: Option<Terms>,
    unrenewed: Option<Terms>,
    skip_rate: Option<f64>,
    halt_rate: Option<f64>,
    period_ms: Option<u128>,
    is_interval_too_tight: Option<bool>,
    sentences: Vec<String>,
}

/// How long healthy runs take.
#[derive(Clone, Copy, Debug, Serialize)]
struct Times {
    median_ms: u128,
    p95_ms: u128,
    worst_ms: u128,
}

/// A time-to-live, and how often it is renewed.
#[derive(Clone, Copy, Debug, Serialize)]
struct Terms {
    ttl_ms: u128,
    renew_every_ms: Option<u128>,
}

#[derive(Serialize)]
struct AdviseJson {
    v: u32,
    jobs: Vec<Advice>,
}

impl Advice {
    fn of(record: &Record, outcomes: &[Outcome], skips: Option<&Skips>, period: Option<Duration>) -> Self {
        let is_healthy = |outcome: &&Outcome| matches!(outcome.status, Status::Ok | Status::Empty);
        let mut healthy: Vec<Duration> =
            outcomes.iter().filter(is_healthy).map(|outcome| outcome.finished.since(outcome.started)).collect();
        healthy.sort_unstable();
        let mut advice = Self {
            job: record.job.to_string(),
            runs: healthy.len(),
            times: None,
            renewed: None,
            unrenewed: None,
            skip_rate: None,
            halt_rate: None,
            period_ms: period.map(|period| period.as_millis()),
            is_interval_too_tight: None,
            sentences: Vec::new(),
        };
        if healthy.len() < RUNS_MIN {
            advice.sentences.push(format!(
                "{} of its runs ended well that the ledger still has, which is too few to learn from: wait for {RUNS_MIN}.",
                match healthy.len() {
                    0 => "None".to_string(),
                    count => count.to_string(),
                }
            ));
        } else {
            advice.advise_times(&healthy, period);
        }
        advice.advise_rates(record, outcomes, skips);
        advice
    }

    fn advise_times(&mut self, healthy: &[Duration], period: Option<Duration>) {
        let at = |share: f64| healthy[((healthy.len() as f64 * share).ceil() as usize).clamp(1, healthy.len()) - 1];
        let (median, p95, worst) = (at(0.5), at(0.95), at(1.0));
        self.times =
            Some(Times { median_ms: median.as_millis(), p95_ms: p95.as_millis(), worst_ms: worst.as_millis() });
        self.say(format!(
            "Of {} runs that ended well, half took up to {}, 95 % up to {}, and the worst {}.",
            healthy.len(),
            duration::show(median),
            duration::show(p95),
            duration::show(worst)
        ));
        let renewed = median.clamp(RENEWED_TTL_MIN, RENEWED_TTL_MAX).max(GRACE * GRACES_PER_TTL);
        let every = renewed / 3;
        self.renewed = Some(Terms { ttl_ms: renewed.as_millis(), renew_every_ms: Some(every.as_millis()) });
        self.say(format!(
            "With renewal, as run does it, --ttl {} suits: it is renewed every {}, and says only how soon a holder that \
             died on another machine is noticed, not how long the job may take.",
            duration::show(renewed),
            duration::show(every)
        ));
        let unrenewed = (worst * 2).max(Duration::from_secs(1));
        let least = worst * 3 / 2;
        self.unrenewed = Some(Terms { ttl_ms: unrenewed.as_millis(), renew_every_ms: None });
        self.say(format!(
            "Without renewal, as with lease acquire, {} suits: twice the worst run that was healthy, and never below {}, \
             for a lease that ends under a run lets a second one in.",
            duration::show(unrenewed),
            duration::show(least)
        ));
        let Some(period) = period else { return };
        let is_tight = p95 * 10 > period * 8;
        self.is_interval_too_tight = Some(is_tight);
        let (p95, period) = (duration::show(p95), duration::show(period));
        self.say(match is_tight {
            true => format!(
                "Its interval is too tight: one run in twenty takes {p95} or more, of the {period} from one slot to the \
                 next. Slots that pass while a run is going are not run."
            ),
            false => format!("Its interval is wide enough: 95 % of the runs take up to {p95}, of {period}."),
        });
    }

    /// Rates over everything that was ever counted.
    fn advise_rates(&mut self, record: &Record, outcomes: &[Outcome], skips: Option<&Skips>) {
        let triggers = record.grants + skips.map_or(0, |skips| skips.overlap);
        if triggers < RUNS_MIN as u64 {
            return;
        }
        let skip_rate = skips.map_or(0.0, |skips| skips.rate(record.grants));
        self.skip_rate = Some(skip_rate);
        let (shown, healthy) = (percent(skip_rate), percent(HEALTHY));
        self.say(match skip_rate > HEALTHY {
            true => format!(
                "{shown} of its triggers were skipped because a run was going; a healthy job sees up to {healthy}. It \
                 takes longer than its interval at times, or hangs: give it --timeout, or a longer interval."
            ),
            false => format!("{shown} of its triggers were skipped because a run was going, which is healthy."),
        });
        let runs = outcomes.iter().filter(|outcome| outcome.status.is_of_a_run()).count();
        let halts = outcomes.iter().filter(|outcome| outcome.status == Status::Halted).count();
        let halt_rate = halts as f64 / runs.max(1) as f64;
        self.halt_rate = Some(halt_rate);
        let shown = percent(halt_rate);
        self.say(match halt_rate > HEALTHY {
            true => format!(
                "{shown} of its runs were halted by the barrier; a healthy job sees up to {healthy}. Its upstreams come \
                 late or fail: let it wait for them by --needs-wait, or look at status for who it is."
            ),
            false => format!("{shown} of its runs were halted by the barrier, which is healthy."),
        });
    }

    fn say(&mut self, sentence: String) {
        self.sentences.push(sentence);
    }

    fn describe(&self) {
        show::line("");
        show::line(&self.job);
        self.sentences.iter().for_each(|sentence| show::line(&format!("  {sentence}")));
    }
}
