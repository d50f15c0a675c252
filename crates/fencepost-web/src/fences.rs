//! `/fences`: the resources that jobs write under their tokens, and the stale writes that were refused.

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::Board;
use fencepost_view::status::FenceStatus;
use fencepost_view::text;
use fencepost_view::time::LocalTime;
use maud::{Markup, html};

use crate::face::Face;
use crate::layout::{Frame, command, page};
use crate::path;
use crate::table::{column, table, wide};
use crate::words::{age, counted, near};

/// How many days of refused writes are drawn.
const DAYS: usize = 30;

/// The most refused writes in words.
const LISTED_MAX: usize = 50;

/// The page of all fences.
pub fn fences(board: &Board, frame: &Frame) -> String {
    let mut fences: Vec<_> = board.status.resources.iter().collect();
    fences.sort_by(|a, b| (b.refused, &a.resource).cmp(&(a.refused, &b.resource)));
    let content = html! {
        h1 { "Fences" }
        p.lead { "Each resource accepts a write only under a token that is not older than the newest it has seen." }
        @if fences.is_empty() {
            p.calm { "No job has written under its token yet. Try:" }
            p { (command("fencepost publish file report.txt --from draft.txt")) }
        } @else {
            (resources(&fences, frame.now))
        }
        h2 { "Refused writes" }
        (refused(board, frame.now))
    };
    page(frame, "Fences", path::FENCES, &[], &content)
}

fn resources(fences: &[&FenceStatus], now: Wall) -> Markup {
    let columns = [
        wide("Resource"),
        column("Kind"),
        column("Highest token"),
        column("Job"),
        column("Written"),
        column("Stale writes refused"),
    ];
    let row = |fence: &&FenceStatus| {
        [
            html! { (text::flat(&fence.resource)) },
            html! { (fence.kind) },
            html! { (fence.token) },
            html! { a href=(path::job(&fence.job)) { (fence.job) } },
            age(&fence.at, now),
            html! { @if fence.refused > 0 { span.word.fenced { (fence.refused) } } @else { "0" } },
        ]
    };
    table("Resources", columns, fences.iter().map(row))
}

/// The runs that had a write refused: how many each day, and the newest in words.
fn refused(board: &Board, now: Wall) -> Markup {
    let mut runs: Vec<&RunAnswer> =
        board.runs.values().flat_map(|runs| runs.iter()).filter(|run| run.status == Status::Fenced).collect();
    runs.sort_by_key(|run| std::cmp::Reverse(ended(run).at));
    html! {
        @if runs.is_empty() {
            p.calm { (Face::of_status(Status::Ok).dot()) " No recorded run had a stale write refused." }
        } @else {
            (days(&runs, now))
            ul.cards { @for run in runs.iter().take(LISTED_MAX) { (card(run, now)) } }
        }
    }
}

fn ended(run: &RunAnswer) -> &LocalTime {
    run.finished.as_ref().unwrap_or(&run.started)
}

/// A column for each of the last days, today at the right.
fn days(runs: &[&RunAnswer], now: Wall) -> Markup {
    let days_ago = |run: &&RunAnswer| usize::try_from(now.since(ended(run).at).as_secs() / 86_400).unwrap_or(DAYS);
    let counts: Vec<usize> =
        (0..DAYS).rev().map(|day| runs.iter().filter(|run| days_ago(run) == day).count()).collect();
    let (most, all) = (counts.iter().copied().max().unwrap_or(0).max(1), counts.iter().sum::<usize>());
    html! {
        p { (counted(all, "run")) " had a write refused in the last " (DAYS) " days, as far as the records reach." }
        svg.days viewBox="0 0 600 60" preserveAspectRatio="none" aria-hidden="true" {
            @for (place, count) in counts.iter().enumerate() {
                @let height = if *count == 0 { 1 } else { 6 + count * 50 / most };
                rect class=(if *count == 0 { "column" } else { "column fenced" }) x=(place * 20 + 2) y=(58 - height) width="16" height=(height) {
                    title { (count) ", " (DAYS - 1 - place) " days ago" }
                }
            }
        }
    }
}

fn card(run: &RunAnswer, now: Wall) -> Markup {
    html! {
        li.card.fenced {
            (Face::of_status(Status::Fenced).dot())
            div.what {
                p.why {
                    a.job href=(path::slot(&run.job, &run.slot.zone.show(run.slot.at))) { (run.job) }
                    " on " (text::flat(&run.host)) " at " (near(ended(run), now)) ", token " (run.token)
                }
                @if let Some(note) = &run.note { p { (text::flat(note)) } }
            }
        }
    }
}
