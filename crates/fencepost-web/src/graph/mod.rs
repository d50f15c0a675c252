//! `/graph`: which job needs which, how they stand, and what a halt of an upstream stops.

mod layers;

use std::collections::{BTreeMap, BTreeSet};

use fencepost_core::ledger::Status;
use fencepost_core::time::Wall;
use fencepost_view::board::Board;
use fencepost_view::graph::GraphEdge;
use fencepost_view::status::JobStatus;
use fencepost_view::text;
use maud::{Markup, html};

use self::layers::Layers;
use crate::face::Face;
use crate::layout::{Frame, command, page};
use crate::path;
use crate::table::{column, table, wide};
use crate::words::{age, coarse, near};

const BOX_WIDTH: usize = 196;
const BOX_HEIGHT: usize = 44;
const COLUMN: usize = 276;
const ROW: usize = 60;

/// The most characters of a name in a box.
const NAME_CHARS_MAX: usize = 22;

/// The page of all dependencies.
pub fn graph(board: &Board, frame: &Frame) -> String {
    let edges = &board.graph.edges;
    let linked: BTreeSet<&str> = edges.iter().flat_map(|edge| [edge.upstream.as_str(), edge.job.as_str()]).collect();
    let alone: Vec<_> = board.graph.jobs.iter().filter(|job| !linked.contains(job.as_str())).collect();
    let jobs: BTreeMap<&str, &JobStatus> = board.status.jobs.iter().map(|job| (job.job.as_str(), job)).collect();
    let content = html! {
        h1 { "Graph" }
        @if edges.is_empty() {
            p.calm { "No job needs another. To let a job wait for one:" }
            p { (command("fencepost run article --needs reference -- ./article.sh")) }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Drawing" { (drawing(board, &jobs, frame.now)) }
            (upstreams(edges, &jobs, frame.now))
        }
        @if !alone.is_empty() && !edges.is_empty() {
            h2 { "Jobs that stand alone" }
            ul.inline { @for job in alone { li { a href=(path::job(job)) { (job) } } } }
        }
    };
    page(frame, "Graph", path::GRAPH, &[], &content)
}

fn drawing(board: &Board, jobs: &BTreeMap<&str, &JobStatus>, now: Wall) -> Markup {
    let layers = Layers::of(&board.graph.edges);
    let (width, height) = (layers.columns() * COLUMN - (COLUMN - BOX_WIDTH), layers.rows() * ROW);
    let place =
        |job: &str| layers.place(job).map(|(column, row)| (column * COLUMN, row * ROW + (ROW - BOX_HEIGHT) / 2));
    html! {
        svg.graph width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } aria-hidden="true" {
            @for edge in &board.graph.edges {
                @if let (Some(from), Some(to)) = (place(&edge.upstream), place(&edge.job)) { (arrow(edge, jobs, from, to)) }
            }
            @for job in layers.jobs() {
                @if let Some((x, y)) = place(job) { (node(job, jobs.get(job).copied(), reason(board, job), x, y, now)) }
            }
        }
    }
}

fn reason(board: &Board, job: &str) -> Option<fencepost_view::attention::AttentionReason> {
    board
        .status
        .attention
        .iter()
        .find(|attention| attention.job.as_deref() == Some(job))
        .map(|attention| attention.reason)
}

/// Whether the upstream keeps the job from working now.
fn halts(edge: &GraphEdge, jobs: &BTreeMap<&str, &JobStatus>) -> bool {
    let last = jobs.get(edge.job.as_str()).and_then(|job| job.last.as_ref());
    edge.gauge.as_ref().is_some_and(|gauge| {
        gauge.halts > 0 && last.is_some_and(|last| last.status == Status::Halted && last.started.at <= gauge.at.at)
    })
}

fn arrow(edge: &GraphEdge, jobs: &BTreeMap<&str, &JobStatus>, from: (usize, usize), to: (usize, usize)) -> Markup {
    let (x1, y1) = (from.0 + BOX_WIDTH, from.1 + BOX_HEIGHT / 2);
    let (x2, y2) = (to.0, to.1 + BOX_HEIGHT / 2);
    let bend = COLUMN.saturating_sub(BOX_WIDTH) / 2;
    let class = if halts(edge, jobs) {
        "edge halted"
    } else if edge.when.is_none() {
        "edge recorded"
    } else {
        "edge"
    };
    html! {
        path class=(class) d={ "M" (x1) " " (y1) "C" (x1 + bend) " " (y1) " " (x2.saturating_sub(bend)) " " (y2) " " (x2) " " (y2) "m-6-4l6 4-6 4" } {
            title { (edge.job) " needs " (edge.upstream) @if let Some(when) = &edge.when { " (" (when) ")" } }
        }
    }
}

fn node(
    name: &str,
    job: Option<&JobStatus>,
    reason: Option<fencepost_view::attention::AttentionReason>,
    x: usize,
    y: usize,
    now: Wall,
) -> Markup {
    let face = job.map_or(Face { class: "idle", symbol: '–', word: "unknown" }, |job| Face::of_job(job, reason));
    let ended = job.and_then(|job| job.last.as_ref()?.finished.as_ref());
    let since = ended.map_or_else(String::new, |at| format!(" {} ago", coarse(now.since(at.at))));
    html! {
        a href=(path::job(name)) tabindex="-1" {
            title { (name) ": " (face.word) (since) }
            rect class={ "node " (face.class) } x=(x) y=(y) width=(BOX_WIDTH) height=(BOX_HEIGHT) rx="5" {}
            circle class={ "disc " (face.class) } cx=(x + 20) cy=(y + BOX_HEIGHT / 2) r="10" {}
            text.symbol x=(x + 20) y=(y + BOX_HEIGHT / 2 + 4) text-anchor="middle" { (face.symbol) }
            text.name x=(x + 38) y=(y + 19) { (shortened(name)) }
            text.small x=(x + 38) y=(y + 35) { (face.word) (since) }
        }
    }
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_string(),
    }
}

fn upstreams(edges: &[GraphEdge], jobs: &BTreeMap<&str, &JobStatus>, now: Wall) -> Markup {
    let columns = [
        column("Upstream"),
        column("Needed by"),
        column("Slot"),
        column("Last read"),
        wide("Halts"),
        wide("A halt stops"),
    ];
    let row = |edge: &GraphEdge| {
        [
            html! { a href=(path::job(&edge.upstream)) { (edge.upstream) } },
            html! { a href=(path::job(&edge.job)) { (edge.job) } },
            html! { (edge.when.as_deref().unwrap_or("not configured")) },
            html! { @if let Some(last) = &edge.last { (near(&last.slot, now)) } @else { "–" } },
            gauge(edge, jobs, now),
            html! { (downstreams(edges, &edge.upstream).into_iter().collect::<Vec<_>>().join(", ")) },
        ]
    };
    html! {
        h2 { "Upstreams" }
        (table("Upstreams", columns, edges.iter().map(row)))
    }
}

/// How often the upstream kept the job from working, and why the last time.
fn gauge(edge: &GraphEdge, jobs: &BTreeMap<&str, &JobStatus>, now: Wall) -> Markup {
    html! {
        @match edge.gauge.as_ref().filter(|gauge| gauge.halts > 0) {
            Some(gauge) => {
                @if halts(edge, jobs) { (Face::of_status(Status::Halted).whole()) " now; " }
                (gauge.halts) ", " (age(&gauge.at, now)) ": " (text::flat(&gauge.reason))
            }
            None => "0",
        }
    }
}

/// All jobs that need this one, directly or through others.
fn downstreams<'e>(edges: &'e [GraphEdge], job: &'e str) -> BTreeSet<&'e str> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut waiting = vec![job];
    while let Some(job) = waiting.pop() {
        let direct = edges.iter().filter(|edge| edge.upstream == job).map(|edge| edge.job.as_str());
        waiting.extend(direct.filter(|job| found.insert(job)));
    }
    found
}
