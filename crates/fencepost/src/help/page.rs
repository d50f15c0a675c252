//! Lays out the help of a verb for a terminal.

use std::fmt::Write;

use clap::Command;
use fencepost_view::vocabulary::{STATUS_SYMBOLS, StatusSymbol};

use super::describe::{self, ARGUMENTS, ArgumentGroup, GLOBAL};
use super::table::{self, VerbHelp};

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// `-h`: what most people need.
    Short,
    /// `--help`: everything.
    Whole,
}

/// The longest spelling of an option that shares a line with its help.
const LEFT_MAX: usize = 22;

/// The help of a command that was built.
pub fn page(command: &Command, depth: Depth, columns: usize) -> String {
    let mut page = Page { text: String::new(), columns };
    match describe::path(command) {
        "" => page.overview(command, depth),
        verb => page.verb(command, table::find(verb), depth),
    }
    page.text
}

struct Page {
    text: String,
    columns: usize,
}

impl Page {
    /// All verbs, in groups.
    fn overview(&mut self, command: &Command, depth: Depth) {
        self.paragraph(&format!("{}.", describe::about(command)));
        self.usage("fencepost VERB [OPTIONS] [ARGUMENTS]");
        let rows: Vec<(&str, String, String)> = describe::verbs(command)
            .filter_map(|verb| {
                let entry = table::find(verb.get_name())?;
                Some((entry.group, verb.get_name().to_string(), describe::about(verb)))
            })
            .collect();
        let left = rows.iter().map(|(_, name, _)| name.len()).max().unwrap_or(0);
        let mut groups: Vec<&str> = Vec::new();
        table::verbs().for_each(|entry| {
            if !groups.contains(&entry.group) {
                groups.push(entry.group);
            }
        });
        for group in groups {
            self.heading(group);
            let order = |name: &str| table::verbs().position(|entry| entry.verb == name);
            let mut of_group: Vec<_> = rows.iter().filter(|(of, ..)| *of == group).collect();
            of_group.sort_by_key(|(_, name, _)| order(name));
            of_group.into_iter().for_each(|(_, name, about)| self.row(name, about, left));
        }
        if depth == Depth::Whole {
            self.sections(&describe::global_sections(command), depth, None);
            self.row("-h, --help", "Print help; -h is shorter", 13);
            self.row("-V, --version", "Print the version; with -v how it was built", 13);
        }
        self.heading("Begin with");
        for line in ["fencepost demo", "fencepost run nightly -- ./backup.sh", "fencepost help run"] {
            let _ = writeln!(self.text, "  {line}");
        }
        let _ = writeln!(self.text, "\nDocumentation: docs/README.md");
    }

    fn verb(&mut self, command: &Command, entry: Option<&VerbHelp>, depth: Depth) {
        self.paragraph(&format!("{}.", describe::about(command)));
        self.usage(&describe::usage(command));
        if depth == Depth::Whole
            && let Some(entry) = entry.filter(|entry| !entry.notes.is_empty())
        {
            self.text.push('\n');
            self.paragraph(entry.notes);
        }
        if let Some(entry) = entry {
            self.examples(entry);
        }
        let children: Vec<&Command> = describe::verbs(command).collect();
        if !children.is_empty() {
            self.heading("Verbs");
            let left = children.iter().map(|verb| verb.get_name().len()).max().unwrap_or(0);
            children.iter().for_each(|verb| self.row(verb.get_name(), &describe::about(verb), left));
        }
        let common = entry.map(|entry| entry.common).filter(|common| depth == Depth::Short && !common.is_empty());
        let own = describe::own_sections(command);
        let count: usize = own.iter().map(|section| section.arguments.len()).sum();
        self.sections(&own, depth, common);
        if depth == Depth::Whole {
            self.sections(&describe::global_sections(command), depth, None);
            if describe::path(command) == "status" {
                self.symbols();
            }
        }
        self.text.push('\n');
        let verb = describe::path(command);
        match (depth, common) {
            (Depth::Short, Some(_)) => {
                let _ = writeln!(self.text, "All {count} options: fencepost {verb} --help");
            }
            (Depth::Short, None) => {
                let _ = writeln!(self.text, "Details and global options: fencepost {verb} --help");
            }
            (Depth::Whole, _) => {}
        }
        if let Some(entry) = entry {
            let _ = writeln!(self.text, "Documentation: {}", entry.page);
        }
    }

    /// The legend of the column RECENT.
    fn symbols(&mut self) {
        self.heading("Symbols on a terminal, in a pipe");
        let left = |symbol: &StatusSymbol| format!("{} {}  {}", symbol.unicode, symbol.ascii, symbol.status);
        for symbol in &STATUS_SYMBOLS {
            self.row(&left(symbol), symbol.meaning, 22);
        }
    }

    fn examples(&mut self, entry: &VerbHelp) {
        self.heading("Examples");
        for (what, example) in entry.examples {
            for line in wrapped(what, self.columns.saturating_sub(4)) {
                let _ = writeln!(self.text, "  # {line}");
            }
            self.code(example);
        }
    }

    /// A command line. One that is too long goes on after a backslash, so that it can be copied.
    fn code(&mut self, line: &str) {
        let (indent, room) = ("      ", self.columns.saturating_sub(" \\".len()));
        let mut lines = vec![String::from(" ")];
        for chunk in chunks(line) {
            let last = lines.last_mut().expect("there is a first line");
            if last.chars().count() + 1 + chunk.chars().count() > room && !last.trim().is_empty() {
                last.push_str(" \\");
                lines.push(format!("{indent}{chunk}"));
            } else {
                last.push(' ');
                last.push_str(&chunk);
            }
        }
        for line in lines {
            let _ = writeln!(self.text, "{line}");
        }
    }

    fn sections(&mut self, sections: &[ArgumentGroup], depth: Depth, only: Option<&[&str]>) {
        let is_shown = |id: &str| only.is_none_or(|only| only.contains(&id));
        let spelled = sections.iter().flat_map(|section| &section.arguments).filter(|arg| is_shown(&arg.id));
        let left =
            spelled.map(|arg| arg.spelling.chars().count()).filter(|&width| width <= LEFT_MAX).max().unwrap_or(0);
        let mut is_titled = false;
        for section in sections {
            let arguments: Vec<_> = section.arguments.iter().filter(|arg| is_shown(&arg.id)).collect();
            if arguments.is_empty() {
                continue;
            }
            // A short selection needs no headings but the first two.
            if only.is_none() || section.title == ARGUMENTS {
                self.heading(&section.title);
            } else if !std::mem::replace(&mut is_titled, true) {
                self.heading("Most used options");
            }
            let is_brief = depth == Depth::Short || section.title == GLOBAL;
            for arg in arguments {
                self.row(&arg.spelling, if is_brief { &arg.short } else { &arg.long }, left);
            }
        }
    }

    fn heading(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n{title}:");
    }

    fn paragraph(&mut self, text: &str) {
        for line in wrapped(text, self.columns) {
            let _ = writeln!(self.text, "{line}");
        }
    }

    fn usage(&mut self, usage: &str) {
        let lines = wrapped(usage, self.columns.saturating_sub("Usage: ".len()));
        for (at, line) in lines.iter().enumerate() {
            let indent = if at == 0 { "\nUsage: " } else { "       " };
            let _ = writeln!(self.text, "{indent}{line}");
        }
    }

    /// A word and its meaning in two columns. A long word has a line of its own.
    fn row(&mut self, word: &str, meaning: &str, left: usize) {
        let margin = left + 4;
        let mut lines = wrapped(meaning, self.columns.saturating_sub(margin)).into_iter();
        let first = match word.chars().count() <= left {
            true => format!("  {word:left$}  {}", lines.next().unwrap_or_default()),
            false => format!("  {word}"),
        };
        let _ = writeln!(self.text, "{}", first.trim_end());
        for line in lines {
            let _ = writeln!(self.text, "{:margin$}{line}", "");
        }
    }
}

/// The words of a command line; an option stays together with its value.
fn chunks(line: &str) -> Vec<String> {
    let mut chunks: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match chunks.last_mut() {
            Some(last) if last.starts_with('-') && !last.contains(' ') && !word.starts_with('-') => {
                last.push(' ');
                last.push_str(word);
            }
            _ => chunks.push(word.to_string()),
        }
    }
    chunks
}

/// Breaks a text into lines of at most so many columns. A longer word has a line of its own.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
