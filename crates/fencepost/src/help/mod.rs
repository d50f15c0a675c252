//! Help: what `--help`, `-h`, `help VERB`, a wrong command line and bare `fencepost` print.

pub mod complete;
pub mod describe;
pub mod man;
mod other_words;
mod page;
mod start;
pub mod table;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use fencepost_view::ReasonCode;

pub use self::page::{Depth, page};
use crate::args::{Arguments, first_word, global_alone};
use crate::exit::Code;
use crate::report;
use crate::show;
use crate::version;

/// Widest help: longer lines are hard to read.
const COLUMNS_MAX: usize = 100;
/// Width of help that goes to a file or a pipe.
const COLUMNS: usize = 80;
/// Narrowest help: on a narrower terminal the lines wrap by themselves.
const COLUMNS_MIN: usize = 40;

/// Answers a command line that runs no verb: with the help or the version, or by saying what is wrong. Returns the exit code.
pub fn answer(error: &clap::Error) -> Code {
    let words: Vec<OsString> = std::env::args_os().collect();
    match error.kind() {
        ErrorKind::DisplayHelp => {
            show::text(&help_for(&words));
            Code::DONE
        }
        ErrorKind::DisplayVersion => {
            match asked_for(&["--verbose", "-v"]) {
                true => show::line(&version::verbose()),
                false => show::line(concat!("fencepost ", env!("CARGO_PKG_VERSION"))),
            }
            Code::DONE
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            without_verb(error, &words)
        }
        ErrorKind::InvalidSubcommand if asks_for_help(&words) => {
            show::text(&help_for(&words));
            Code::DONE
        }
        ErrorKind::InvalidSubcommand => match wrong_verb(error) {
            Some(word) => other_words::answer(word, &parent(&words), named_command(&words), asked_for(&["--json"])),
            None => wrong(error),
        },
        _ => wrong(error),
    }
}

/// Says what is wrong with a command line.
fn wrong(error: &clap::Error) -> Code {
    let code = if asked_for_run() { Code::FAILED } else { Code::USAGE };
    let words: Vec<OsString> = std::env::args_os().collect();
    let text = reworded(&error.to_string(), &parent(&words));
    if asked_for(&["--json"]) {
        report::error_json(code, ReasonCode::Usage, &text);
    }
    // The error repeats what was typed, which may come from a program.
    eprintln!("fencepost: {}", show::clean(&text));
    if error.kind() == ErrorKind::MissingRequiredArgument && matches!(parent(&words).as_str(), "pause" | "resume") {
        eprintln!("\nName a job, or all of them: fencepost {} --all", parent(&words));
    }
    if let Some(word) = command_without_dashes(error) {
        eprintln!("\nWrite the command after --, as in: fencepost run JOB -- {}", show::flat(word));
    }
    code
}

/// The parser's error with the state of things and the next command. It has no advice to pass a mistyped option on as a
/// value.
fn reworded(text: &str, verb: &str) -> String {
    let is_kept = |line: &&str| !line.starts_with("  tip: to pass ") && !line.starts_with("For more information");
    let mut lines: Vec<&str> = text.trim_start_matches("error: ").lines().filter(is_kept).collect();
    lines.dedup_by(|one, other| one.is_empty() && other.is_empty());
    let text = lines.join("\n");
    let help = if verb.is_empty() { String::new() } else { format!("{verb} ") };
    format!("{}\n\nNothing was run. Help: fencepost {help}-h", text.trim_end())
}

/// Answers a command line that ends before its verb.
fn without_verb(error: &clap::Error, words: &[OsString]) -> Code {
    let is_bare = first_word(words).is_none();
    if asked_for(&["--json"]) {
        return wrong(error);
    }
    if is_bare
        && std::io::stdout().is_terminal()
        && let Some(global) = global_alone()
    {
        return start::show(&global);
    }
    let root = grammar();
    let (command, _) = named(&root, &typed(words));
    eprint!("{}", show::clean(&page(command, Depth::Short, columns())));
    Code::USAGE
}

/// The grammar with every verb expanded.
pub fn grammar() -> Command {
    let mut root = Arguments::command();
    root.build();
    root
}

/// The help that the words ask for.
fn help_for(words: &[OsString]) -> String {
    let root = grammar();
    let typed = typed(words);
    let is_verb = typed.first().is_some_and(|word| *word == "help");
    let (command, _) = named(&root, &typed);
    let depth = if is_verb || asked_for(&["--help"]) { Depth::Whole } else { Depth::Short };
    page(command, depth, columns())
}

/// The words that may name a verb: those that are neither options nor values of global options.
fn typed(words: &[OsString]) -> Vec<&str> {
    let mut words = words.iter().skip(1).map(|word| word.to_str().unwrap_or_default()).take_while(|word| *word != "--");
    let mut typed = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--store" | "--config" => drop(words.next()),
            option if option.starts_with('-') => {}
            word => typed.push(word),
        }
    }
    typed
}

/// The command that the words name, and how many of them name it.
fn named<'c>(root: &'c Command, typed: &[&str]) -> (&'c Command, usize) {
    let skipped = usize::from(typed.first().is_some_and(|word| *word == "help"));
    let (mut command, mut count) = (root, skipped);
    while let Some(below) = typed.get(count).and_then(|word| command.find_subcommand(word)) {
        (command, count) = (below, count + 1);
    }
    (command, count)
}

/// The verb below which another was looked for; empty at the top.
fn parent(words: &[OsString]) -> String {
    let root = grammar();
    let (command, _) = named(&root, &typed(words));
    describe::path(command).to_string()
}

/// The command after `--`, with the word before it, which is its name.
fn named_command(words: &[OsString]) -> Option<String> {
    let command = words.iter().skip_while(|word| *word != "--").map(|word| word.to_string_lossy());
    let name = typed(words).last().copied().unwrap_or("NAME");
    let line = std::iter::once(name.into()).chain(command).collect::<Vec<_>>();
    (line.len() > 2).then(|| line.join(" "))
}

/// Whether `help` is followed by a verb and one of its arguments, as in `help once forget`.
fn asks_for_help(words: &[OsString]) -> bool {
    let root = grammar();
    let typed = typed(words);
    let (command, _) = named(&root, &typed);
    typed.first().is_some_and(|word| *word == "help") && command.get_positionals().next().is_some()
}

fn wrong_verb(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    }
}

/// The width that help is wrapped at: the terminal's, within bounds.
fn columns() -> usize {
    show::terminal_columns().map_or(COLUMNS, |columns| columns.clamp(COLUMNS_MIN, COLUMNS_MAX))
}

/// Whether the verb passes a child's exit code through, as far as that can be told from a command line that does not
/// parse.
fn asked_for_run() -> bool {
    let words: Vec<OsString> = std::env::args_os().collect();
    first_word(&words).is_some_and(|verb| verb == "run" || verb == "once")
}

/// Whether one of the options stands on the command line, as far as one that does not parse can tell.
fn asked_for(options: &[&str]) -> bool {
    let words = std::env::args_os().skip(1).take_while(|word| word != "--");
    words.into_iter().any(|word| options.iter().any(|option| word == *option))
}

/// The first word of a command that was given to `run` without the dashes in front of it.
fn command_without_dashes(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument && asked_for_run() => {
            Some(word.as_str()).filter(|word| !word.starts_with('-'))
        }
        _ => None,
    }
}
