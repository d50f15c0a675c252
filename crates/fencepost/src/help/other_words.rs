//! A verb that does not exist: finds the one that was meant, and runs nothing.

use fencepost_core::nearest::nearest;
use fencepost_view::ReasonCode;

use super::table::{VerbHelp, verbs};
use super::{describe, grammar};
use crate::args::Global;
use crate::config::Config;
use crate::exit::Code;
use crate::report;
use crate::show;

/// Verbs named at most for one word.
const SHOWN_MAX: usize = 3;

/// Names the verbs that `word` may mean below `parent`, or how to run the command that was typed. Runs nothing.
pub fn answer(word: &str, parent: &str, command_line: Option<String>, as_json: bool) -> Code {
    let word = show::flat(word);
    let whole = if parent.is_empty() { word.clone() } else { format!("{parent} {word}") };
    let mut text = format!("There is no verb `{whole}`. Nothing was run.");
    let meant = meant(&word, parent);
    let is_job = parent.is_empty() && is_job(&word);
    let command_line = command_line.or_else(|| (word.contains('/') && !is_job).then(|| format!("NAME -- {word}")));
    if let Some(line) = command_line.filter(|_| parent.is_empty()) {
        text += &format!("\n\nTo run a command under a name:\n  fencepost run {}", show::flat(&line));
    } else if is_job {
        text += &format!("\n\n{word} is a job of the configuration. To run it:\n  fencepost run {word} --now");
    } else if parent.is_empty() && is_help(&word) {
        text += "\n\nDid you mean:\n  fencepost help: Print the verbs, or the help of one.";
    } else if !meant.is_empty() {
        text += "\n\nDid you mean:";
        for entry in meant {
            let root = grammar();
            let about = command(&root, entry.verb).map(describe::about).unwrap_or_default();
            text += &format!("\n  fencepost {}: {about}.", entry.verb);
            if let Some((what, example)) = best_example(entry, &word) {
                text += &format!("\n      # {what}\n      {example}");
            }
        }
    }
    let help = if parent.is_empty() { "fencepost help".to_string() } else { format!("fencepost help {parent}") };
    text += &format!("\n\nAll verbs: {help}");
    if as_json {
        report::error_json(Code::USAGE, ReasonCode::Usage, &text);
    }
    report::say(&text);
    Code::USAGE
}

/// The verbs that a word may mean: by its last name, by another word for it, else the nearest spelling.
fn meant(word: &str, parent: &str) -> Vec<&'static VerbHelp> {
    let below: Vec<&VerbHelp> = match parent {
        "" => verbs().collect(),
        parent => {
            verbs().filter(|entry| entry.verb.strip_prefix(parent).is_some_and(|rest| rest.starts_with(' '))).collect()
        }
    };
    let lower = word.to_lowercase();
    let by = |word: &str| -> Vec<&'static VerbHelp> {
        let named = |entry: &&&'static VerbHelp| last(entry) == word || entry.other_words.contains(&word);
        let found: Vec<&'static VerbHelp> = below.iter().filter(named).copied().collect();
        match found.iter().find(|entry| entry.verb == word) {
            Some(exact) => vec![*exact],
            None => found,
        }
    };
    let found = by(&lower);
    let found = if found.is_empty() {
        let known = below.iter().flat_map(|entry| [last(entry)].into_iter().chain(entry.other_words.iter().copied()));
        nearest(&lower, known).map(by).unwrap_or_default()
    } else {
        found
    };
    // A verb at the top is found from below another as well: `fencepost lease pause`.
    let found = if found.is_empty() && !parent.is_empty() { meant(word, "") } else { found };
    found.into_iter().take(SHOWN_MAX).collect()
}

fn last(entry: &VerbHelp) -> &'static str {
    entry.verb.rsplit(' ').next().unwrap_or(entry.verb)
}

/// The example whose description has the word, or else the first.
fn best_example(entry: &'static VerbHelp, word: &str) -> Option<&'static (&'static str, &'static str)> {
    let word = word.to_lowercase();
    entry.examples.iter().find(|(what, _)| what.to_lowercase().contains(&word)).or_else(|| entry.examples.first())
}

fn command<'c>(root: &'c clap::Command, verb: &str) -> Option<&'c clap::Command> {
    verb.split(' ').try_fold(root, |command, word| command.find_subcommand(word))
}

/// Whether `help` is nearer than every verb.
fn is_help(word: &str) -> bool {
    nearest(&word.to_lowercase(), verbs().map(last).chain(["help"])) == Some("help")
}

/// Whether the configuration has a job of this name.
fn is_job(word: &str) -> bool {
    let global =
        Global { store: None, config: None, json: false, verbose: false, quiet: true, hides_configuration: false };
    let config = Config::load(&global).ok().flatten();
    config.is_some_and(|config| config.all_names().any(|name| name.as_str() == word))
}
