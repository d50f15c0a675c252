//! `/timeline`: all jobs over a day or a week. Hosts are colours, attempts are bars, slots are ticks, missed slots are
//! gaps. Now is at the right.

mod night;
mod row;

use std::collections::BTreeMap;

use fencepost_core::time::Wall;
use fencepost_view::board::Board;
use fencepost_view::status::JobStatus;
use maud::{Markup, html};

pub use self::night::{MoreRuns, Night};
use crate::layout::{Frame, page};
use crate::overview::matches;
use crate::path;
use crate::query::{TimelineQuery, TimelineRange};

/// The most jobs on one page.
const ROWS_MAX: usize = 60;

/// How many colours the style sheet has for hosts. With more hosts than these, colours repeat.
const HOST_COLOURS: usize = 8;

/// The page of all attempts. `more` has the runs of jobs whose records do not reach back far enough.
pub fn timeline(board: &Board, more: &MoreRuns, frame: &Frame, query: &TimelineQuery) -> String {
    let night = Night::new(frame.now, query.range).with(more);
    let jobs = found(board, query);
    let (current, pages) = page_of(&jobs, query);
    let shown = shown(&jobs, query);
    let content = html! {
        div.heading {
            h1 { "Timeline" }
            (choices(query))
        }
        @if shown.is_empty() {
            p.calm { @if query.search.is_empty() { "No job has run on this store yet." } @else { "No job matches. " a href=(path::TIMELINE) { "Show all jobs" } } }
        } @else {
            (drawing(board, &night, shown, frame.now))
        }
        @if pages > 1 { (pager(query, current, pages)) }
    };
    page(frame, "Timeline", path::TIMELINE, &query.notes, &content)
}

/// The jobs on the page whose records do not reach back to its beginning, and since when their runs are wanted. Beyond the beginning,
/// so that it is seen that none is missing.
pub fn cut_jobs<'b>(board: &'b Board, now: Wall, query: &TimelineQuery) -> (Wall, Vec<&'b str>) {
    let night = Night::new(now, query.range);
    let jobs = found(board, query);
    let cut = shown(&jobs, query).iter().filter(|job| night.unlisted_until(board, job).is_some());
    (night.some_before(), cut.map(|job| job.job.as_str()).collect())
}

fn found<'b>(board: &'b Board, query: &TimelineQuery) -> Vec<&'b JobStatus> {
    board.status.jobs.iter().filter(|job| matches(job, &query.search)).collect()
}

/// The number of the page, and how many there are.
fn page_of(jobs: &[&JobStatus], query: &TimelineQuery) -> (usize, usize) {
    let pages = jobs.len().div_ceil(ROWS_MAX).max(1);
    (query.page.min(pages), pages)
}

fn shown<'j, 'b>(jobs: &'j [&'b JobStatus], query: &TimelineQuery) -> &'j [&'b JobStatus] {
    jobs.chunks(ROWS_MAX).nth(page_of(jobs, query).0 - 1).unwrap_or_default()
}

fn choices(query: &TimelineQuery) -> Markup {
    html! {
        nav.filters aria-label="How long" {
            @for range in TimelineRange::ALL {
                @let href = TimelineQuery { range: *range, ..query.clone() }.href();
                a href=(href) aria-current=[(*range == query.range).then_some("true")] { (range.label()) }
            }
        }
        form.search method="get" action=(path::TIMELINE) role="search" {
            @if query.range != TimelineRange::Day { input type="hidden" name="range" value=(query.range.as_str()); }
            label { span.hidden { "Search jobs" } input type="search" name="q" value=(query.search) placeholder="Job or host" autocomplete="off"; }
            button { "Show" }
        }
    }
}

fn pager(query: &TimelineQuery, current: usize, pages: usize) -> Markup {
    html! {
        nav.filters aria-label="Pages of jobs" {
            @for number in 1..=pages {
                @let href = TimelineQuery { page: number, ..query.clone() }.href();
                a href=(href) aria-current=[(number == current).then_some("page")] { (number) }
            }
        }
    }
}

/// The rows of these jobs under one axis, and the colours of the hosts.
pub fn drawing(board: &Board, night: &Night<'_>, jobs: &[&JobStatus], now: Wall) -> Markup {
    let hosts = Hosts::of(board, night, jobs);
    let axis = night.axis(jobs);
    html! {
        div.timeline tabindex="0" role="region" aria-label="Timeline" {
            div.rows {
                (axis.labels())
                @for job in jobs { (row::row(board, night, &axis, &hosts, job, now)) }
            }
        }
        (hosts.legend(jobs.iter().any(|job| night.unlisted_until(board, job).is_some())))
    }
}

/// The hosts of a timeline, each with its colour.
pub struct Hosts<'b>(BTreeMap<&'b str, usize>);

impl<'b> Hosts<'b> {
    fn of(board: &'b Board, night: &Night<'b>, jobs: &[&JobStatus]) -> Self {
        let runs = jobs.iter().flat_map(|job| night.runs(board, &job.job)).filter(|run| run.status.is_of_a_run());
        let mut hosts: BTreeMap<&str, usize> = runs.map(|run| (run.host.as_str(), 0)).collect();
        hosts.values_mut().enumerate().for_each(|(place, colour)| *colour = place % HOST_COLOURS);
        Self(hosts)
    }

    pub fn colour(&self, host: &str) -> usize {
        self.0.get(host).copied().unwrap_or(0)
    }

    fn legend(&self, is_cut: bool) -> Markup {
        html! {
            ul.legend {
                @for (host, colour) in &self.0 { li { (swatch(&format!("bar host-{colour}"))) (host) } }
                li { (swatch("bar bad")) "ended badly" }
                li { (swatch("gap")) "missed" }
                li { (swatch("pass")) "lease passed on" }
                li { (swatch("slot")) "slot" }
                @if is_cut { li { (swatch("unlisted")) "older than the record" } }
            }
        }
    }
}

fn swatch(class: &str) -> Markup {
    html! {
        svg.swatch viewBox="0 0 14 14" aria-hidden="true" {
            @match class {
                "pass" => path.pass d="M0 7h14" {},
                "slot" => path.ticks d="M7 4v6" {},
                "bar bad" => path.mark.bad d="M0 11h14" {},
                _ => rect class=(class) x="1" y="2" width="12" height="10" {},
            }
        }
    }
}
