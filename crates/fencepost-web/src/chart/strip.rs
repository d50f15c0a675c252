//! The newest slots of a job as a strip: one cell each, the newest at the right.

use std::fmt::Write;

use fencepost_core::ledger::Status;
use fencepost_view::answer::RunAnswer;
use maud::{Markup, html};

use crate::face::Face;
use crate::words::counted;

/// The most slots of a strip.
pub const SLOTS_MAX: usize = 50;

/// The width of a cell with its gap. The style sheet draws 6 units and leaves 2.
const CELL: usize = 8;

/// The classes in the order in which they are counted, with the vertical middle of their cells. The style sheet knows
/// their heights: bad slots stand out above good ones, and a missed one is almost nothing.
const ROWS: [(&str, &str); 8] = [
    ("ok", "12"),
    ("empty", "14"),
    ("bad", "9"),
    ("fenced", "9"),
    ("halted", "9"),
    ("missed", "17"),
    ("skipped", "15"),
    ("running", "12"),
];

/// The newest slots of runs that are listed newest first; the result is oldest first. The last attempt of a slot counts.
pub fn cells(runs: &[RunAnswer]) -> Vec<Status> {
    let mut cells = Vec::new();
    let mut last = None;
    for run in runs {
        if last == Some(run.slot.at) {
            continue;
        }
        last = Some(run.slot.at);
        // A stretch of missed slots is one outcome.
        let slots = run.count.filter(|_| run.status == Status::Missed).unwrap_or(1);
        let room = SLOTS_MAX - cells.len();
        let slots = usize::try_from(slots).unwrap_or(room).min(room);
        cells.extend(std::iter::repeat_n(run.status, slots));
        if cells.len() == SLOTS_MAX {
            break;
        }
    }
    cells.reverse();
    cells
}

/// The strip: one path for each class, in which neighbouring slots are one line that the style sheet dashes.
pub fn strip(cells: &[Status]) -> Markup {
    let first = SLOTS_MAX - cells.len().min(SLOTS_MAX);
    let paths = ROWS.map(|(class, middle)| (class, path(cells, class, middle, first)));
    html! {
        svg.strip viewBox="0 0 400 18" preserveAspectRatio="none" role="img" {
            title { (summary(cells)) }
            @for (class, path) in paths.iter().filter(|(_, path)| !path.is_empty()) { path class=(class) d=(path) {} }
        }
    }
}

fn path(cells: &[Status], class: &str, middle: &str, first: usize) -> String {
    let mut path = String::new();
    let mut rest = cells.iter().enumerate().peekable();
    while let Some((start, cell)) = rest.next() {
        if Face::of_status(*cell).class != class {
            continue;
        }
        let mut end = start;
        while let Some((next, _)) = rest.next_if(|(_, cell)| Face::of_status(**cell).class == class) {
            end = next;
        }
        _ = write!(path, "M{} {middle}h{}", (first + start) * CELL, (end + 1 - start) * CELL);
    }
    path
}

/// `48 slots: 46 ok, 1 error, 1 missed`.
fn summary(cells: &[Status]) -> String {
    let of_class = |class: &str| cells.iter().filter(|cell| Face::of_status(**cell).class == class).count();
    let word = |class| if class == "bad" { "failed" } else { class };
    let counts = ROWS.map(|(class, _)| (word(class), of_class(class)));
    let counts: Vec<_> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect();
    if counts.is_empty() {
        "No slots yet".to_string()
    } else {
        format!("{}: {}", counted(cells.len(), "slot"), counts.join(", "))
    }
}
