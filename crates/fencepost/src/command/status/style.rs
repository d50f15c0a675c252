//! What the output can show: symbols, colours, and how wide it is.

use std::io::IsTerminal;

use fencepost_core::ledger::Status;
use fencepost_view::status::RecentOutcome;
use fencepost_view::text::width;
use fencepost_view::vocabulary::StatusSymbol;

use crate::args::Global;
use crate::show;

#[derive(Clone, Copy, Debug)]
pub struct Style {
    unicode: bool,
    colours: bool,
    /// The width of the terminal. A pipe has none.
    pub columns: Option<usize>,
    pub verbose: bool,
}

const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

impl Style {
    pub fn detect(global: &Global) -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_terminal = std::io::stdout().is_terminal();
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            unicode: is_terminal && speaks_unicode(),
            colours: is_terminal && !is_dumb && !is_set("NO_COLOR"),
            columns: show::terminal_columns(),
            verbose: global.verbose,
        }
    }

    /// The same without colours.
    pub fn without_colours(&self) -> Self {
        Self { colours: false, ..*self }
    }

    /// The beginning of a text, if all of it takes more columns than these.
    pub fn cut(&self, text: &str, columns: usize) -> String {
        if width(text) <= columns {
            return text.to_string();
        }
        let mut room = columns.saturating_sub(1);
        let fits = |c: &char| {
            let fits = width(&c.to_string()) <= room;
            room = room.saturating_sub(width(&c.to_string()));
            fits
        };
        let start: String = text.chars().take_while(fits).collect();
        format!("{}{}", start.trim_end(), if self.unicode { '…' } else { '~' })
    }

    pub fn bold(&self, text: &str) -> String {
        self.painted(BOLD, text)
    }

    /// A text about something bad.
    pub fn red(&self, text: &str) -> String {
        self.painted(RED, text)
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours && !text.is_empty() { format!("{colour}{text}{PLAIN}") } else { text.to_string() }
    }

    /// The outcomes, one symbol each, and the same with the bad ones in colour.
    pub fn strip(&self, outcomes: &[RecentOutcome]) -> (String, String) {
        let symbol = |status| {
            let symbol = StatusSymbol::of(status);
            if self.unicode { symbol.unicode } else { symbol.ascii }
        };
        let plain = outcomes.iter().map(|outcome| symbol(outcome.status)).collect();
        let painted =
            outcomes.iter().map(|outcome| self.by_status(&symbol(outcome.status).to_string(), outcome.status));
        (plain, painted.collect())
    }

    /// A text about an outcome, in colour if that is bad.
    pub fn by_status(&self, text: &str, status: Status) -> String {
        if is_bad(status) { self.red(text) } else { text.to_string() }
    }
}

pub fn is_bad(status: Status) -> bool {
    status.is_failure() || matches!(status, Status::Lost | Status::Halted | Status::Missed)
}

/// Whether the locale's characters are Unicode.
fn speaks_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let locale = { set }.find(|value| !value.is_empty()).unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_wide_is_cut_by_columns() {
        let style = |unicode| Style { unicode, colours: false, columns: Some(80), verbose: false };
        for (text, columns, cut) in [
            ("article", 7, "article"),
            ("article", 5, "arti…"),
            ("日本語", 4, "日…"),
            ("a b", 3, "a b"),
            ("a bc", 3, "a…"),
        ] {
            assert_eq!(style(true).cut(text, columns), cut);
            assert!(width(&style(false).cut(text, columns)) <= columns);
        }
    }
}
