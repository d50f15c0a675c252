//! The stretch of time that a timeline covers, and its axis.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::Board;
use fencepost_view::status::JobStatus;
use fencepost_view::text;
use maud::{Markup, html};

use crate::query::TimelineRange;

/// The width of a row in units of its drawing.
pub const WIDTH: u64 = 1440;

const QUARTER_MILLIS: i64 = 15 * 60_000;
const DAY_MILLIS: i64 = 86_400_000;
const DAY_QUARTERS: usize = 96;

/// The hours of the day that a day's axis names.
const HOURS: [&str; 8] = ["00:00", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"];

/// Runs of jobs, newest first: all that are known, in place of those that the board has.
pub type MoreRuns = BTreeMap<String, Arc<[RunAnswer]>>;

/// A stretch of time that ends now.
#[derive(Clone, Copy, Debug)]
pub struct Night<'a> {
    start: Wall,
    end: Wall,
    range: TimelineRange,
    more: Option<&'a MoreRuns>,
}

impl<'a> Night<'a> {
    pub fn new(now: Wall, range: TimelineRange) -> Self {
        let days = match range {
            TimelineRange::Day => 1,
            TimelineRange::Week => 7,
        };
        Self { start: Wall(now.0.saturating_sub(days * DAY_MILLIS)), end: now, range, more: None }
    }

    pub fn with(self, more: &'a MoreRuns) -> Self {
        Self { more: Some(more), ..self }
    }

    fn listed<'b>(&self, board: &'b Board, job: &str) -> &'b [RunAnswer]
    where
        'a: 'b,
    {
        match self.more.and_then(|more| more.get(job)) {
            Some(runs) => runs,
            None => board.runs_of(job),
        }
    }

    /// The runs of a job in it, newest first.
    pub fn runs<'b>(&self, board: &'b Board, job: &str) -> impl Iterator<Item = &'b RunAnswer>
    where
        'a: 'b,
    {
        let (start, end) = (self.start, self.end);
        self.listed(board, job)
            .iter()
            .filter(move |run| run.finished.as_ref().is_none_or(|at| at.at >= start) && run.started.at <= end)
    }

    pub fn has_runs(&self, board: &Board, job: &str) -> bool {
        self.runs(board, job).next().is_some()
    }

    /// How many slots of all jobs are recorded in it: `131`, or `500+` if records do not reach back far enough.
    pub fn slots(&self, board: &Board) -> String {
        let mut count = 0;
        for job in &board.status.jobs {
            let mut last = None;
            for run in self.runs(board, &job.job).filter(|run| run.slot.at >= self.start) {
                let slots = run.count.filter(|_| run.status == Status::Missed).unwrap_or(1);
                count += if last == Some(run.slot.at) { 0 } else { slots };
                last = Some(run.slot.at);
            }
        }
        let is_cut = board.status.jobs.iter().any(|job| self.unlisted_until(board, job).is_some());
        if is_cut { format!("{count}+") } else { count.to_string() }
    }

    /// Until when the runs of a job are not listed: its record had no room for them, and they were not read.
    pub fn unlisted_until(&self, board: &Board, job: &JobStatus) -> Option<Wall> {
        let runs = self.listed(board, &job.job);
        let listed = u64::try_from(runs.len()).unwrap_or(u64::MAX);
        // Skipped triggers are counted, and not listed.
        let recorded: u64 = Status::ALL
            .iter()
            .filter(|status| status.is_of_a_run())
            .filter_map(|status| job.counts.get(status.as_str()))
            .sum();
        let oldest = runs.last()?.started.at;
        (recorded > listed && oldest > self.start).then_some(oldest)
    }

    /// An eighth of it before its start.
    pub fn some_before(&self) -> Wall {
        let eighth = self.end.0.saturating_sub(self.start.0) / 8;
        Wall(self.start.0.saturating_sub(eighth))
    }

    pub fn contains(&self, at: Wall) -> bool {
        (self.start..=self.end).contains(&at)
    }

    /// The place of a moment in a row.
    pub fn x(&self, at: Wall) -> u64 {
        let whole = u128::from(fencepost_core::time::millis(self.end.since(self.start))).max(1);
        let passed = u128::from(fencepost_core::time::millis(at.since(self.start))).min(whole);
        u64::try_from(passed * u128::from(WIDTH) / whole).unwrap_or(WIDTH)
    }

    /// The axis in the zone of most of the jobs.
    pub fn axis(&self, jobs: &[&JobStatus]) -> Axis {
        let zone = zone_of_most(jobs);
        let marks = match self.range {
            TimelineRange::Day => self.hours(&zone),
            TimelineRange::Week => self.days(&zone),
        };
        Axis { marks: marks.into_iter().map(|(at, label)| (self.x(at), label)).collect(), zone }
    }

    fn hours(&self, zone: &Zone) -> Vec<(Wall, String)> {
        // The offset of every zone is a multiple of a quarter of an hour.
        let first = self.start.0.div_euclid(QUARTER_MILLIS) + 1;
        let quarters = (first..)
            .map(|number| Wall(number.saturating_mul(QUARTER_MILLIS)))
            .take(DAY_QUARTERS)
            .take_while(|at| *at <= self.end);
        let hours = quarters.map(|at| (at, zone.show_time(at)));
        hours.filter(|(_, time)| HOURS.contains(&time.as_str())).collect()
    }

    fn days(&self, zone: &Zone) -> Vec<(Wall, String)> {
        let mut date = zone.date(self.start).tomorrow();
        let mut days = Vec::new();
        while zone.start_of_day(date) <= self.end && days.len() < 8 {
            let at = zone.start_of_day(date);
            // Seen from two days later, a moment is named by its weekday.
            let near = text::near(at, Wall(at.0.saturating_add(2 * DAY_MILLIS)), zone);
            days.push((at, near.split(' ').next().unwrap_or_default().to_string()));
            date = date.tomorrow();
        }
        days
    }
}

/// The zone that most jobs have.
fn zone_of_most(jobs: &[&JobStatus]) -> Zone {
    let count = |zone: &Zone| jobs.iter().filter(|job| job.more.zone.name() == zone.name()).count();
    jobs.iter().map(|job| &job.more.zone).max_by_key(|zone| count(zone)).cloned().unwrap_or_else(Zone::utc)
}

/// The marks of a timeline.
#[derive(Clone, Debug)]
pub struct Axis {
    marks: Vec<(u64, String)>,
    zone: Zone,
}

impl Axis {
    pub fn labels(&self) -> Markup {
        html! {
            div.row.axis aria-hidden="true" {
                span.name { (self.zone.name()) }
                svg width="100%" height="18" {
                    @for (x, label) in &self.marks {
                        // A label at the edge would be cut off.
                        @if *x < WIDTH * 97 / 100 { text x=(per_mille(*x)) y="13" { (label) } }
                    }
                }
            }
        }
    }

    /// The lines of the marks in a row of this height.
    pub fn grid(&self, height: u64) -> String {
        let mut path = String::new();
        for (x, _) in &self.marks {
            _ = write!(path, "M{x} 0v{height}");
        }
        path
    }
}

/// A place as a part of the width, which needs no style.
fn per_mille(x: u64) -> String {
    let part = x * 1000 / WIDTH;
    format!("{}.{}%", part / 10, part % 10)
}
