//! Shell completion: what can follow the words that are typed, from the grammar, the configuration and the store.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Command};
use fencepost_view::unread::job_names;

use super::{describe, grammar};
use crate::args::Global;
use crate::config::Config;
use crate::exit::Failure;
use crate::place::Place;

/// A store that does not answer within this time contributes no jobs.
const PATIENCE: Duration = Duration::from_millis(300);

/// A word that can be typed here, with its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub word: String,
    pub about: String,
}

/// The candidates for the last of the words, which follow the program's name.
pub fn candidates(words: &[String]) -> Vec<Candidate> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let root = grammar();
    let Some(typed) = Typed::of(&root, before) else { return Vec::new() };
    let found = match (current.split_once('='), typed.awaits) {
        (_, Some(option)) => typed.values(option),
        (Some((option, _)), None) if option.starts_with("--") => {
            let values = find(typed.command, option).map(|option| typed.values(option)).unwrap_or_default();
            let whole = |value: Candidate| Candidate { word: format!("{option}={}", value.word), ..value };
            values.into_iter().map(whole).collect()
        }
        _ if current.starts_with('-') => typed.options(),
        _ => typed.words(),
    };
    found.into_iter().filter(|candidate| candidate.word.starts_with(current.as_str())).collect()
}

/// What the words before the current one mean.
struct Typed<'c> {
    command: &'c Command,
    /// The option whose value comes next.
    awaits: Option<&'c Arg>,
    /// How many positional arguments there are already.
    positional: usize,
    store: Option<String>,
    config: Option<PathBuf>,
}

impl<'c> Typed<'c> {
    /// Reads the words; none after `--`, where a command of the user begins.
    fn of(root: &'c Command, words: &[String]) -> Option<Self> {
        let mut typed = Self { command: root, awaits: None, positional: 0, store: None, config: None };
        for word in words {
            if let Some(option) = typed.awaits.take() {
                typed.note(option, word);
            } else if word == "--" {
                return None;
            } else if word.starts_with('-') {
                typed.option(word);
            } else if let Some(below) = typed.command.find_subcommand(word) {
                typed.command = below;
            } else {
                typed.positional += 1;
            }
        }
        Some(typed)
    }

    fn option(&mut self, word: &str) {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match (find(self.command, name), value) {
            (Some(option), Some(value)) => self.note(option, value),
            (Some(option), None) if takes_value(option) => self.awaits = Some(option),
            _ => {}
        }
    }

    fn note(&mut self, option: &Arg, value: &str) {
        match option.get_id().as_str() {
            "store" => self.store = Some(value.to_string()),
            "config" => self.config = Some(PathBuf::from(value)),
            _ => {}
        }
    }

    /// The options of the command.
    fn options(&self) -> Vec<Candidate> {
        let sections = describe::own_sections(self.command).into_iter().chain(describe::global_sections(self.command));
        let arguments = sections.flat_map(|section| section.arguments);
        let mut options: Vec<Candidate> = arguments
            .filter_map(|arg| {
                let word = arg.spelling.split([',', ' ', '[']).find(|word| word.starts_with("--"));
                let word = word.or_else(|| arg.spelling.split(' ').next().filter(|word| word.starts_with('-')))?;
                Some(Candidate { word: word.to_string(), about: arg.short })
            })
            .collect();
        options.push(Candidate { word: "--help".to_string(), about: "Print help".to_string() });
        options
    }

    /// What stands without dashes here: a verb, or a positional argument.
    fn words(&self) -> Vec<Candidate> {
        let verbs: Vec<Candidate> = describe::verbs(self.command)
            .map(|verb| Candidate { word: verb.get_name().to_string(), about: describe::about(verb) })
            .collect();
        if !verbs.is_empty() {
            return verbs;
        }
        let positional: Vec<&Arg> = self.command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
        let repeats = |arg: &&&Arg| matches!(arg.get_action(), ArgAction::Append);
        let arg = positional.get(self.positional).or_else(|| positional.last().filter(repeats));
        arg.map(|arg| self.values(arg)).unwrap_or_default()
    }

    /// The values of an argument: the words that it takes, or jobs.
    fn values(&self, arg: &Arg) -> Vec<Candidate> {
        let plain = |word: &str| Candidate { word: word.to_string(), about: String::new() };
        let jobs = || self.jobs().into_iter().map(|job| plain(&job));
        match arg.get_id().as_str() {
            "words" if self.positional > 0 => ["ok", "empty", "error"].map(plain).to_vec(),
            "words" => jobs().chain(["ok", "empty", "error"].map(plain)).collect(),
            "job" | "jobs" | "upstreams" | "needs" => jobs().collect(),
            _ => {
                let word = |value: clap::builder::PossibleValue| Candidate {
                    word: value.get_name().to_string(),
                    about: value.get_help().map(ToString::to_string).unwrap_or_default(),
                };
                arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).map(word).collect()
            }
        }
    }

    /// The jobs of the configuration and of the store. Prints nothing if one of them fails.
    fn jobs(&self) -> Vec<String> {
        let (store, config) = (self.store.clone(), self.config.clone());
        let global = Global { store, config, json: false, verbose: false, quiet: true, hides_configuration: false };
        let Ok(place) = Place::find(&global) else { return Vec::new() };
        let mut jobs: Vec<String> =
            place.config.iter().flat_map(Config::all_names).map(|name| name.to_string()).collect();
        let recorded = place.ask_within(PATIENCE, |place| {
            let store = place.open_to_read()?;
            Ok::<_, Failure>(job_names(store.as_ref())?)
        });
        jobs.extend(recorded.and_then(Result::ok).unwrap_or_default());
        jobs.sort();
        jobs.dedup();
        jobs
    }
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// The option of a command by the word it is typed as.
fn find<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').and_then(|rest| rest.chars().next());
    command.get_arguments().find(|arg| match long {
        Some(long) => arg.get_long() == Some(long),
        None => word.chars().count() == 2 && arg.get_short().is_some() && arg.get_short() == short,
    })
}
