//! The newest slots of a job as a strip: one cell each, the newest at the right.

use std::fmt::Write;

use fencepost_core::ledger::Status;
use fencepost_view::answer::RunAnswer;
use maud::{Markup, html};

use crate::face::class_of;
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
    let classes: Vec<_> = cells.iter().map(|status| class_of(*status)).collect();
    let first = SLOTS_MAX - cells.len().min(SLOTS_MAX);
    html! {
        svg.strip viewBox="0 0 400 18" preserveAspectRatio="none" role="img" {
            title { (summary(&classes)) }
            @for (class, middle) in ROWS {
                @if classes.contains(&class) { path class=(class) d=(path(&classes, class, middle, first)) {} }
            }
        }
    }
}

/// A line for each stretch of slots of a class.
fn path(classes: &[&str], class: &str, middle: &str, first: usize) -> String {
    let (mut path, mut at) = (String::new(), first);
    for stretch in classes.chunk_by(|a, b| a == b) {
        if stretch[0] == class {
            _ = write!(path, "M{} {middle}h{}", at * CELL, stretch.len() * CELL);
        }
        at += stretch.len();
    }
    path
}

/// `48 slots: 46 ok, 1 failed, 1 missed`.
fn summary(classes: &[&str]) -> String {
    let counts = ROWS.map(|(class, _)| (class, classes.iter().filter(|known| **known == class).count()));
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<_> =
        counts.map(|(class, count)| format!("{count} {}", if *class == "bad" { "failed" } else { class })).collect();
    match counts.is_empty() {
        true => "No slots yet".to_string(),
        false => format!("{}: {}", counted(classes.len(), "slot"), counts.join(", ")),
    }
}
