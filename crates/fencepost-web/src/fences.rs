//! `/fences`: the resources that jobs write under their tokens, and the stale writes that were refused.

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use fencepost_view::answer::RunAnswer;
use fencepost_view::board::Board;
use fencepost_view::status::FenceStatus;
use fencepost_view::text;
use maud::{Markup, html};

use crate::face::Face;
use crate::layout::{Frame, command, page};
use crate::path;
use crate::words::{age, near};

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
            (table(&fences, frame.now))
        }
        (refused(board, frame.now))
    };
    page(frame, "Fences", path::FENCES, &[], &content)
}

fn table(fences: &[&FenceStatus], now: Wall) -> Markup {
    html! {
        div.scroll {
            table.plain {
                thead { tr {
                    th scope="col" { "Resource" }
                    th scope="col" { "Kind" }
                    th scope="col" { "Highest token" }
                    th scope="col" { "Job" }
                    th scope="col" { "Written" }
                    th scope="col" { "Stale writes refused" }
                } }
                tbody {
                    @for fence in fences {
                        tr {
                            th scope="row" { (text::flat(&fence.resource)) }
                            td { (fence.kind) }
                            td.number { (fence.token) }
                            td { a href=(path::job(&fence.job)) { (fence.job) } }
                            td { (age(&fence.at, now)) }
                            td.number { @if fence.refused > 0 { span.word.fenced { (fence.refused) } } @else { "0" } }
                        }
                    }
                }
            }
        }
    }
}

/// The runs that had a write refused, newest first.
fn refused(board: &Board, now: Wall) -> Markup {
    let mut runs: Vec<&RunAnswer> = board.runs.values().flatten().filter(|run| run.status == Status::Fenced).collect();
    runs.sort_by_key(|run| std::cmp::Reverse(run.started.at));
    html! {
        h2 { "Refused writes" }
        @if runs.is_empty() {
            p.calm { (Face::of_status(Status::Ok).dot()) " No recorded run had a stale write refused." }
        } @else {
            ul.cards {
                @for run in runs {
                    li.card.fenced {
                        (Face::of_status(Status::Fenced).dot())
                        div {
                            p.why {
                                a.job href=(path::slot(&run.job, &run.slot.zone.show(run.slot.at))) { (run.job) }
                                " on " (text::flat(&run.host)) " at " (near(run.finished.as_ref().unwrap_or(&run.started), now))
                                ", token " (run.token)
                            }
                            @if let Some(note) = &run.note { p { (text::flat(note)) } }
                        }
                    }
                }
            }
        }
    }
}
