//! `/jobs/JOB`: what became of any slot and why, what it printed, how long it takes, when it runs next, and with whom it
//! depends on each other.

mod actions;
mod parts;
mod slots;

use fencepost_core::time::Wall;
use fencepost_view::advise::JobAdvice;
use fencepost_view::answer::{LogList, RunAnswer, ValidatedJob};
use fencepost_view::attention::AttentionReason;
use fencepost_view::board::{Board, JobTerms};
use fencepost_view::plan::PlanAnswer;
use fencepost_view::status::JobStatus;
use fencepost_view::why::WhyAnswer;
use maud::{Markup, html};

use crate::face::Face;
use crate::layout::{Frame, page};
use crate::query::JobQuery;
use crate::words::{countdown, near, percent};

/// What the page of a job is made of.
#[derive(Clone, Debug)]
pub struct JobPage<'a> {
    pub board: &'a Board,
    /// The job's full name.
    pub job: &'a str,
    pub query: &'a JobQuery,
    /// About the slot that the query names, or the newest.
    pub why: WhyAnswer,
    /// `None` if the job has no schedule.
    pub plan: Option<PlanAnswer>,
    pub advice: Option<JobAdvice>,
    /// The output of the slot's attempts, as far as it is kept on the server's host.
    pub logs: Disclosed<LogList>,
    /// What of its definition has changed since its last good run, a sentence each.
    pub changed: Vec<String>,
    /// The job in the server's configuration.
    pub config: Disclosed<ValidatedJob>,
}

/// Something that not every viewer is shown.
#[derive(Clone, Debug)]
pub enum Disclosed<T> {
    Shown(T),
    /// The viewer has sent no token.
    Withheld,
    /// There is nothing, for this reason.
    Absent(String),
}

impl JobPage<'_> {
    fn status(&self) -> Option<&JobStatus> {
        self.board.status.jobs.iter().find(|job| job.job == self.job)
    }

    /// The host whose own job it is, if that is not the server's.
    fn other_host(&self, frame: &Frame) -> Option<&str> {
        self.job.split_once('@').map(|(_, host)| host).filter(|host| *host != frame.host)
    }

    fn runs(&self) -> &[RunAnswer] {
        self.board.runs_of(self.job)
    }

    fn terms(&self) -> JobTerms {
        self.board.terms.get(self.job).copied().unwrap_or_default()
    }

    fn reason(&self) -> Option<AttentionReason> {
        let of_job = self.board.status.attention.iter().find(|attention| attention.job.as_deref() == Some(self.job));
        of_job.map(|attention| attention.reason)
    }
}

/// The page of a job.
pub fn job(job: &JobPage<'_>, frame: &Frame) -> String {
    let now = frame.now;
    let content = html! {
        (heading(job))
        @if let Some(done) = job.query.done { p.note role="status" { (done.label()) ": done." } }
        @if let Some(status) = job.status() { (numbers(status, now)) }
        (actions::actions(job, frame))
        (slots::why(job, now))
        (slots::logs(job))
        (parts::durations(job))
        (parts::plan(job, now))
        (parts::neighbours(job, now))
        (parts::fences(job, now))
        (parts::configuration(job, frame))
        (parts::commands(job, frame))
    };
    page(frame, job.job, "", &job.query.notes, &content)
}

fn heading(job: &JobPage<'_>) -> Markup {
    let status = job.status();
    html! {
        div.heading.job-heading {
            @if let Some(status) = status { (Face::of_job(status, job.reason()).dot()) }
            h1 { (job.job) }
            @if let Some(status) = status { (Face::of_job(status, job.reason()).text()) }
        }
    }
}

fn numbers(job: &JobStatus, now: Wall) -> Markup {
    let zone = job.more.zone.name();
    html! {
        dl.facts #facts {
            div { dt { "Schedule" } dd { @if let Some(schedule) = &job.schedule { code { (schedule) } " " (zone) } @else { "none" } } }
            div { dt { "Next" } dd { @if let Some(next) = &job.next_slot { (countdown(next, now)) ", " (near(next, now)) } @else { "–" } } }
            @if let Some(holder) = &job.more.holder { div { dt { "Held by" } dd { (holder) } } }
            @if let Some(paused) = &job.paused {
                div { dt { "Paused" } dd {
                    "since " (near(&paused.since, now)) " from " (paused.by)
                    @if let Some(until) = &paused.until { ", until " (near(until, now)) }
                    @if let Some(note) = &paused.note { ": " (note) }
                } }
            }
            @if let Some(last) = &job.last_ok { div { dt { "Last ok" } dd { (near(last.finished.as_ref().unwrap_or(&last.started), now)) " on " (last.host) } } }
            @if let Some(streak) = job.streak.filter(|streak| streak.count > 1) {
                div { dt { "In a row" } dd { (streak.count) " × " (Face::of_status(streak.status).text()) } }
            }
            div { dt { "Skipped" } dd { (percent(job.skips.rate)) " of triggers (" (job.skips.overlap) ")" } }
            div { dt { "Token" } dd { (job.token) } }
        }
    }
}
