//! `/stores`: the store in use, what it declares, the result of its last check, its clock and its latency.

use fencepost_core::time::Wall;
use fencepost_view::answer::{CheckLine, CheckResult, StoreStateAnswer};
use fencepost_view::text;
use maud::{Markup, html};

use crate::layout::{Frame, command, offset_text, page};
use crate::path;
use crate::table::{column, table, wide};
use crate::words::{age, counted};

/// The page of the store in use.
pub fn stores(store: &StoreStateAnswer, frame: &Frame) -> String {
    let content = html! {
        h1 { "Stores" }
        p.lead { code { (text::flat(&store.url)) } }
        (numbers(store, frame.now))
        @if let Some(error) = &store.error { p.note.bad { (text::flat(error)) } }
        (checks(store, frame.now))
    };
    page(frame, "Stores", path::STORES, &[], &content)
}

fn numbers(store: &StoreStateAnswer, now: Wall) -> Markup {
    html! {
        dl.numbers #numbers {
            div { dt { "answers" } dd.urgent[!store.available] { @if store.available { "yes" } @else { "no" } } }
            @if let Some(latency) = store.latency_ms { div { dt { "latency of the last poll" } dd { (latency) " ms" } } }
            @if let Some(offset) = store.clock_offset_ms { div { dt { "clock of the store" } dd { (offset_text(offset)) } } }
            @if let Some(polled) = &store.polled { div { dt { "last poll" } dd { (age(polled, now)) } } }
            div { dt { "records" } dd { (store.jobs) } }
        }
    }
}

fn checks(store: &StoreStateAnswer, now: Wall) -> Markup {
    html! {
        h2 { "Last check" }
        @match (&store.check, &store.checked) {
            (Some(check), Some(checked)) => {
                p {
                    @let failed = check.reasons().len();
                    @if check.is_ok() {
                        span.word.ok { "ok" } ": " (counted(check.checks.len(), "check")) ", "
                    } @else {
                        span.word.bad { "refused" } ": " (counted(failed, "check")) " against the store, "
                    }
                    (age(checked, now))
                }
                (lines(&check.checks))
            }
            _ => {
                p.calm { "This server has not checked the store. A check writes to it, and takes a few seconds:" }
            }
        }
        p { (command("fencepost store check")) }
    }
}

fn lines(checks: &[CheckLine]) -> Markup {
    let row = |line: &CheckLine| [html! { (line.name) }, result(line.result), html! { (text::flat(&line.detail)) }];
    table("Checks", [column("Check"), column("Result"), wide("Detail")], checks.iter().map(row))
}

fn result(result: CheckResult) -> Markup {
    let (class, symbol) = match result {
        CheckResult::Proved => ("ok", '✓'),
        CheckResult::Declared => ("idle", '“'),
        CheckResult::Unknown => ("halted", '?'),
        CheckResult::Failed => ("bad", '✗'),
    };
    crate::face::Face { class, symbol, word: result.as_str() }.whole()
}
