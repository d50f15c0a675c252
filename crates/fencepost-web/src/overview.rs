//! `/`: is anything wrong, why, what runs next, how was the night.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::time::Wall;
use fencepost_view::answer::RunAnswer;
use fencepost_view::attention::AttentionReason;
use fencepost_view::board::{Board, JobTerms};
use fencepost_view::status::{JobState, JobStatus};
use fencepost_view::text;
use maud::{Markup, html};

use crate::chart::{measured, spark, strip};
use crate::face::Face;
use crate::layout::{Frame, page};
use crate::query::{JobFilter, JobOrder, OverviewQuery, TimelineRange};
use crate::timeline::{self, Night};
use crate::words::{age, countdown, counted, millis, near, percent};
use crate::{attention, path};

/// The most jobs that need attention and are described. All of them are in the list.
const CARDS_MAX: usize = 12;

/// Of more jobs than these, the browser lays out only those in sight.
const ROWS_AT_ONCE: usize = 100;

/// More cards than these are lines.
const HIGH_CARDS_MAX: usize = 4;

/// The most jobs of the timeline below the list.
const NIGHT_ROWS_MAX: usize = 16;

/// The page of all jobs.
pub fn overview(board: &Board, frame: &Frame, query: &OverviewQuery) -> String {
    let now = frame.now;
    let content = html! {
        h1.hidden { "Overview" }
        (numbers(board, now))
        (attention_list(board))
        (jobs(board, query, now))
        @if !board.status.jobs.is_empty() { (night(board, now)) }
    };
    page(frame, "Overview", path::OVERVIEW, &query.notes, &content)
}

/// The day in numbers, the most urgent first.
fn numbers(board: &Board, now: Wall) -> Markup {
    let status = &board.status;
    let urgent = status.attention_by_job().len();
    let running = status.jobs.iter().filter(|job| job.state == JobState::Running).count();
    let hosts: BTreeSet<_> = status.jobs.iter().filter_map(JobStatus::host).collect();
    let refused: u64 = status.resources.iter().map(|fence| fence.refused).sum();
    let next = status.jobs.iter().filter_map(|job| Some((job.next_slot.as_ref()?, job))).min_by_key(|(at, _)| at.at);
    let day = Night::new(now, TimelineRange::Day);
    html! {
        dl.numbers #numbers {
            (number(html! { (urgent) }, if urgent == 1 { "needs attention" } else { "need attention" }, urgent > 0))
            (number(html! { (running) }, "running", false))
            @if let Some((at, job)) = next {
                div { dt { "next: " a href=(path::job(&job.job)) { (job.job) } } dd { (countdown(at, now)) } }
            }
            (number(html! { (status.jobs.len()) }, &jobs_on(status.jobs.len(), hosts.len()), false))
            (number(html! { (day.slots(board)) }, "slots in 24 h", false))
            (number(html! { (refused) }, if refused == 1 { "stale write refused" } else { "stale writes refused" }, false))
            (number(html! { (percent(skip_rate(&status.jobs))) }, "of triggers skipped", false))
        }
    }
}

fn number(value: Markup, label: &str, is_urgent: bool) -> Markup {
    html! { div { dt { (label) } dd.urgent[is_urgent] { (value) } } }
}

/// `8 jobs on 2 hosts`, without its number.
fn jobs_on(jobs: usize, hosts: usize) -> String {
    let jobs = if jobs == 1 { "job" } else { "jobs" };
    if hosts == 0 { jobs.to_string() } else { format!("{jobs} on {}", counted(hosts, "host")) }
}

/// Overlaps among all triggers of all jobs.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn skip_rate(jobs: &[JobStatus]) -> f64 {
    let (skips, grants) =
        jobs.iter().fold((0, 0), |(skips, grants), job| (skips + job.skips.overlap, grants + job.grants));
    if skips == 0 { 0.0 } else { skips as f64 / (skips + grants) as f64 }
}

fn attention_list(board: &Board) -> Markup {
    let groups = board.status.attention_by_job();
    html! {
        section #attention aria-labelledby="attention-title" {
            h2 #attention-title { "Needs attention" }
            @if groups.is_empty() {
                p.calm { (Face { class: "ok", symbol: '✓', word: "ok" }.dot()) " Nothing needs attention." }
            } @else {
                ul.cards.dense[groups.len() > HIGH_CARDS_MAX] {
                    @for (job, all) in groups.iter().take(CARDS_MAX) {
                        @let has_page = board.status.jobs.iter().any(|known| Some(known.job.as_str()) == *job);
                        (attention::card(*job, has_page, all))
                    }
                }
            }
            @if let Some(more @ 1..) = groups.len().checked_sub(CARDS_MAX) {
                p.more { a href="/?show=attention" { (more) " more need attention" } }
            }
        }
    }
}

/// The jobs that the query asks for, a row each.
fn jobs(board: &Board, query: &OverviewQuery, now: Wall) -> Markup {
    let reasons = reasons(board);
    let listed = listed(board, query);
    html! {
        section #jobs aria-labelledby="jobs-title" {
            div.heading {
                h2 #jobs-title { "Jobs" }
                @if !board.status.jobs.is_empty() { (filters(board, query)) }
            }
            @if board.status.jobs.is_empty() {
                p.calm { "No job has run on this store yet. Try:" }
                p { (crate::layout::command("fencepost run hello -- echo hello")) }
            } @else if listed.is_empty() {
                p.calm { "No job matches. " a href="/" { "Show all jobs" } }
            } @else {
                table.jobs.many[listed.len() > ROWS_AT_ONCE] role="table" aria-labelledby="jobs-title" {
                    thead role="rowgroup" { (heading(query)) }
                    tbody role="rowgroup" { @for job in &listed { (row(board, job, reasons.get(job.job.as_str()).copied(), now)) } }
                }
            }
            @for wait in &board.status.waiting { p.calm { (text::flat(&wait.sentence())) } }
        }
    }
}

fn reasons(board: &Board) -> BTreeMap<&str, AttentionReason> {
    let of_jobs = board.status.attention.iter().rev();
    of_jobs.filter_map(|attention| Some((attention.job.as_deref()?, attention.reason))).collect()
}

fn is_shown(job: &JobStatus, filter: JobFilter) -> bool {
    match filter {
        JobFilter::All => true,
        JobFilter::Attention => job.needs_attention,
        JobFilter::Running => matches!(job.state, JobState::Running | JobState::Held),
        JobFilter::Paused => job.paused.is_some() || !job.enabled,
        JobFilter::NeverRan => job.state == JobState::NeverRan,
    }
}

/// The jobs that match, in order.
fn listed<'b>(board: &'b Board, query: &OverviewQuery) -> Vec<&'b JobStatus> {
    let mut jobs = board.status.by_urgency();
    jobs.retain(|job| is_shown(job, query.filter) && matches(job, &query.search));
    match query.order {
        JobOrder::Attention => {}
        JobOrder::Name => jobs.sort_by(|a, b| a.job.cmp(&b.job)),
        JobOrder::Next => jobs.sort_by_key(|job| job.next_slot.as_ref().map_or(Wall(i64::MAX), |next| next.at)),
        JobOrder::Last => {
            let ended = |job: &JobStatus| job.last.as_ref().and_then(|last| last.finished.as_ref()).map(|at| at.at);
            jobs.sort_by_key(|job| Reverse(ended(job)));
        }
        JobOrder::Duration => jobs.sort_by_key(|job| Reverse(last_took(board.runs_of(&job.job)))),
        JobOrder::Skips => jobs.sort_by(|a, b| b.skips.rate.total_cmp(&a.skips.rate)),
        JobOrder::Host => jobs.sort_by_key(|job| job.host().unwrap_or("\u{10ffff}").to_string()),
    }
    if query.is_reversed {
        jobs.reverse();
    }
    jobs
}

/// Whether the name, the host or the schedule of a job contains a text, in letters of either case.
pub fn matches(job: &JobStatus, search: &str) -> bool {
    let search = search.to_lowercase();
    let contains = |text: &str| text.to_lowercase().contains(&search);
    search.is_empty() || contains(&job.job) || job.host().is_some_and(contains)
}

/// Links that choose jobs, and the form that searches and sorts.
fn filters(board: &Board, query: &OverviewQuery) -> Markup {
    html! {
        nav.filters aria-label="Which jobs" {
            @for filter in JobFilter::ALL {
                @let count = board.status.jobs.iter().filter(|job| is_shown(job, *filter)).count();
                @if count > 0 || *filter == query.filter {
                    @let href = OverviewQuery { filter: *filter, ..query.clone() }.href();
                    a href=(href) aria-current=[(*filter == query.filter).then_some("true")] { (filter.label()) " " span.count { (count) } }
                }
            }
        }
        form.search method="get" action="/" role="search" {
            @if query.filter != JobFilter::All { input type="hidden" name="show" value=(query.filter.as_str()); }
            label { span.hidden { "Search jobs" } input type="search" name="q" value=(query.search) placeholder="Job or host" autocomplete="off"; }
            label {
                span.hidden { "Sort by" }
                select name="sort" {
                    @for order in JobOrder::ALL {
                        option value=(order.as_str()) selected[*order == query.order] { "by " (order.label()) }
                    }
                }
            }
            button { "Show" }
        }
    }
}

/// The names of the columns. Those that can be sorted by are links; the same link again reverses the order.
fn heading(query: &OverviewQuery) -> Markup {
    let sorted = |order: JobOrder, label: &str| {
        let is_current = query.order == order;
        let next = OverviewQuery { order, is_reversed: is_current && !query.is_reversed, ..query.clone() };
        let sort = is_current.then_some(if query.is_reversed { "descending" } else { "ascending" });
        html! { th role="columnheader" scope="col" aria-sort=[sort] { a href=(next.href()) { (label) } } }
    };
    html! {
        tr role="row" {
            (sorted(JobOrder::Name, "Job"))
            (sorted(JobOrder::Last, "State"))
            (sorted(JobOrder::Next, "Next"))
            th role="columnheader" scope="col" { "Last slots" }
            (sorted(JobOrder::Duration, "Duration"))
            (sorted(JobOrder::Skips, "Skipped"))
            (sorted(JobOrder::Host, "Host"))
        }
    }
}

fn row(board: &Board, job: &JobStatus, reason: Option<AttentionReason>, now: Wall) -> Markup {
    let runs = board.runs_of(&job.job);
    let terms = board.terms.get(&job.job).copied().unwrap_or_default();
    let face = Face::of_job(job, reason);
    html! {
        tr role="row" id={ "job-" (path::segment(&job.job)) } {
            th role="rowheader" scope="row" {
                (face.dot())
                div { a href=(path::job(&job.job)) { (job.job) } small { (job.schedule.as_deref().unwrap_or("no schedule")) } }
            }
            td.state role="cell" { (face.text()) (since(job, now)) }
            td.next role="cell" { (next(job, now)) }
            td.slots role="cell" { (strip::strip(&strip::cells(runs))) }
            td.took role="cell" { (duration(runs, terms)) }
            td.skips role="cell" { (percent(job.skips.rate)) }
            td.host role="cell" { (job.host().unwrap_or("–")) }
        }
    }
}

/// Since when it stands as it does.
fn since(job: &JobStatus, now: Wall) -> Markup {
    let ended = job.last.as_ref().and_then(|last| last.finished.as_ref());
    html! {
        @match (&job.holder, &job.paused, ended) {
            (Some(holder), ..) => small { "since " (near(&holder.since, now)) },
            (None, Some(paused), _) => small { "since " (near(&paused.since, now)) },
            (None, None, Some(ended)) => small { (age(ended, now)) },
            (None, None, None) => {}
        }
    }
}

/// When it is due next.
fn next(job: &JobStatus, now: Wall) -> Markup {
    html! {
        @match &job.next_slot {
            Some(next) => { (countdown(next, now)) small { (near(next, now)) } }
            None => "–",
        }
    }
}

/// How long the newest run took that ended by itself.
fn last_took(runs: &[RunAnswer]) -> Option<u64> {
    measured(runs).next()?.duration_ms
}

fn duration(runs: &[RunAnswer], terms: JobTerms) -> Markup {
    html! {
        (spark::spark(runs, terms))
        @if let Some(last) = last_took(runs) { small { (millis(last)) } }
    }
}

/// The last 24 hours of the jobs that did something then.
fn night(board: &Board, now: Wall) -> Markup {
    let night = Night::new(now, TimelineRange::Day);
    let jobs: Vec<_> = board.status.by_urgency().into_iter().filter(|job| night.has_runs(board, &job.job)).collect();
    let shown = &jobs[..jobs.len().min(NIGHT_ROWS_MAX)];
    html! {
        section #night aria-labelledby="night-title" {
            h2 #night-title { "Last 24 hours" }
            @if shown.is_empty() {
                p.calm { "No job ran in the last 24 hours." }
            } @else {
                (timeline::drawing(board, &night, shown, now))
            }
            p.more { a href=(path::TIMELINE) {
                @if jobs.len() > shown.len() { "All " (jobs.len()) " jobs on the timeline" } @else { "Timeline" }
            } }
        }
    }
}
