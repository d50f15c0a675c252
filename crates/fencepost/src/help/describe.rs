//! What the grammar says about a verb's arguments, as text: for `--help`, the reference page and the man pages.

use clap::{Arg, Command};

/// Heading of the options that every verb takes.
pub const GLOBAL: &str = "Global options";

/// Heading of what stands without dashes.
pub const ARGUMENTS: &str = "Arguments";

/// The arguments under one heading.
#[derive(Debug)]
pub struct ArgumentGroup {
    pub title: String,
    pub arguments: Vec<Described>,
}

/// One argument.
#[derive(Debug)]
pub struct Described {
    pub id: String,
    /// As it is typed.
    pub spelling: String,
    /// What it does, in one sentence, with its default.
    pub short: String,
    /// The same with every detail.
    pub long: String,
}

/// The verbs below a command that people type.
pub fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// The first line of a verb's help.
pub fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// The verb's words after `fencepost`, from a command that was built.
pub fn path(command: &Command) -> &str {
    command.get_bin_name().and_then(|name| name.strip_prefix("fencepost ")).unwrap_or_default()
}

/// The line that shows how a verb is typed.
pub fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").to_string()
}

/// A verb's own arguments, by heading: positional arguments first.
pub fn own_sections(command: &Command) -> Vec<ArgumentGroup> {
    let mut sections = sections(command.get_arguments().filter(|arg| !arg.is_global_set()));
    sections.sort_by_key(|section| section.title != ARGUMENTS);
    sections
}

/// The options that every verb takes.
pub fn global_sections(command: &Command) -> Vec<ArgumentGroup> {
    sections(command.get_arguments().filter(|arg| arg.is_global_set()))
}

fn sections<'a>(arguments: impl Iterator<Item = &'a Arg>) -> Vec<ArgumentGroup> {
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let mut sections: Vec<ArgumentGroup> = Vec::new();
    for arg in arguments.filter(is_shown) {
        let title = heading(arg);
        let described =
            Described { id: arg.get_id().to_string(), spelling: spelling(arg), short: short(arg), long: long(arg) };
        match sections.iter_mut().find(|section| section.title == title) {
            Some(section) => section.arguments.push(described),
            None => sections.push(ArgumentGroup { title: title.to_string(), arguments: vec![described] }),
        }
    }
    sections
}

fn heading(arg: &Arg) -> &str {
    arg.get_help_heading().unwrap_or(if arg.is_positional() { ARGUMENTS } else { "Options" })
}

fn spelling(arg: &Arg) -> String {
    let names: Vec<&str> = arg.get_value_names().into_iter().flatten().map(AsRef::as_ref).collect();
    let takes_value = arg.get_action().takes_values();
    let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0) && !arg.is_positional();
    let value = match (takes_value, is_optional) {
        (false, _) => String::new(),
        (true, true) => format!("[={}]", names.join(" ")),
        (true, false) => format!(" {}", names.join(" ")),
    };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    format!("{}{value}", flags.join(", ")).trim().to_string()
}

fn short(arg: &Arg) -> String {
    let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let words: Vec<String> = possible(arg).map(|(word, _)| word).collect();
    let words = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
    format!("{}{words}{}", text.trim_end_matches('.'), default(arg))
}

fn long(arg: &Arg) -> String {
    let text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let words: Vec<String> = possible(arg)
        .map(|(word, meaning)| match meaning {
            Some(meaning) => format!("`{word}`: {meaning}"),
            None => format!("`{word}`"),
        })
        .collect();
    let words = if words.is_empty() { String::new() } else { format!(". {}", words.join("; ")) };
    format!("{}{}{words}", text.trim_end_matches('.').replace("\n\n", ". "), default(arg))
}

fn possible(arg: &Arg) -> impl Iterator<Item = (String, Option<String>)> {
    let words = arg.get_possible_values().into_iter().filter(|_| arg.get_action().takes_values());
    words.map(|word| (word.get_name().to_string(), word.get_help().map(ToString::to_string)))
}

fn default(arg: &Arg) -> String {
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let is_shown = arg.get_action().takes_values() && !arg.is_hide_default_value_set() && !defaults.is_empty();
    if is_shown { format!(" (default: {})", defaults.join(" ")) } else { String::new() }
}
