//! `/stores`: the store in use, what it declares, the result of its last check, its clock and its latency.

use fencepost_core::time::Wall;
use fencepost_view::answer::{CheckLine, CheckResult, CheckVerdict, LastStoreCheck, StoreStateAnswer};
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
        h2 { "Last check" }
        (last_check(store.last_check.as_ref(), frame.now))
        h2 { "Declarations" }
        (declarations(store))
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

fn last_check(check: Option<&LastStoreCheck>, now: Wall) -> Markup {
    html! {
        @if let Some(LastStoreCheck { at, exit_code, verdict, checks }) = check {
            p {
                @match verdict {
                    CheckVerdict::Ok => { span.word.ok { "ok" } }
                    CheckVerdict::Refused => { span.word.bad { "refused" } }
                }
                ": " (counted(checks.len(), "check")) ", exit " (exit_code) ", " (age(at, now))
            }
            p { (command("fencepost store check")) }
            (lines("Checks", "Check", checks))
        } @else {
            p.calm { "This host has never checked the store. A check writes to it, and takes a few seconds:" }
            p { (command("fencepost store check")) }
        }
    }
}

fn declarations(store: &StoreStateAnswer) -> Markup {
    html! {
        @if store.declares.is_empty() {
            p.calm { "The store does not exist yet. The first run creates it." }
        } @else {
            p.calm { "What the settings of the store say, and using it cannot prove." }
            (lines("Declarations", "Property", &store.declares))
        }
    }
}

fn lines(caption: &str, name: &'static str, checks: &[CheckLine]) -> Markup {
    let row = |line: &CheckLine| [html! { (line.name) }, result(line.result), html! { (text::flat(&line.detail)) }];
    table(caption, [column(name), column("Result"), wide("Detail")], checks.iter().map(row))
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
