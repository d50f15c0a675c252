//! Values that are more than a word or a number.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Serialize, Serializer};

use super::mistake::Located;
use super::read::{Item, Section};

/// A command: a text is run by `sh -c`, an array is run as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Vec<String>")]
pub enum CommandLine {
    Shell(String),
    Argv(Vec<String>),
}

impl CommandLine {
    pub fn read(item: Item<'_>) -> Option<Self> {
        let expected = "is a command: a text for the shell, or an array of texts, the program first";
        let Some(elements) = item.elements() else {
            return match item.value.get_ref().as_str() {
                Some(_) => item.text().map(Self::Shell),
                None => item.wrong(expected, None),
            };
        };
        if elements.is_empty() {
            return item.mistake(format!("{:?} {expected}; this array is empty.", item.key), None);
        }
        let words: Vec<Option<String>> = elements.into_iter().map(Item::word).collect();
        let words: Vec<String> = words.into_iter().collect::<Option<_>>()?;
        if words[0].is_empty() {
            return item.mistake(format!("{:?} {expected}; this program has no name.", item.key), None);
        }
        Some(Self::Argv(words))
    }

    pub fn argv(&self) -> Vec<OsString> {
        Vec::from(self.clone()).into_iter().map(OsString::from).collect()
    }

    /// As one line for people.
    pub fn shown(&self) -> String {
        match self {
            Self::Shell(script) => script.trim().lines().collect::<Vec<_>>().join("; "),
            Self::Argv(words) => {
                let is_plain = |word: &String| {
                    !word.is_empty()
                        && !word.contains(|c: char| c.is_whitespace() || c.is_control() || "\"'$`\\".contains(c))
                };
                let quoted = |word: &String| if is_plain(word) { word.clone() } else { format!("{word:?}") };
                words.iter().map(quoted).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

impl From<CommandLine> for Vec<String> {
    fn from(command: CommandLine) -> Self {
        match command {
            CommandLine::Shell(script) => vec!["/bin/sh".to_string(), "-c".to_string(), script],
            CommandLine::Argv(words) => words,
        }
    }
}

/// What is kept of a job's output, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Logs {
    /// `None` where the file says nothing about logs.
    pub enabled: Option<bool>,
    pub directory: Option<PathBuf>,
    pub max_bytes: Option<u64>,
    #[serde(serialize_with = "length")]
    pub max_age: Option<Located<Duration>>,
    /// How many runs' output is kept.
    pub keep: Option<u32>,
}

impl Logs {
    /// Reads a job's `logs`, true, false or a table, which changes what `[logs]` says.
    pub fn read(item: Item<'_>, all: &Self) -> Option<Self> {
        let Some(table) = item.table() else {
            let expected = "is true, false, or a table such as { keep = 10 }";
            let enabled = item.value.get_ref().as_bool();
            return enabled
                .map(|enabled| Self { enabled: Some(enabled), ..all.clone() })
                .or_else(|| item.wrong(expected, None));
        };
        let own = Self::read_section(Section::new(item.reader, table, "logs"));
        Some(Self {
            enabled: own.enabled,
            directory: own.directory.or_else(|| all.directory.clone()),
            max_bytes: own.max_bytes.or(all.max_bytes),
            max_age: own.max_age.or_else(|| all.max_age.clone()),
            keep: own.keep.or(all.keep),
        })
    }

    pub fn read_section(mut section: Section<'_>) -> Self {
        let logs = Self {
            enabled: section.value("enabled", Item::flag).or(Some(true)),
            directory: section.value("directory", Item::path),
            max_bytes: section.value("max_bytes", |item| item.integer(1..=u64::MAX)),
            max_age: section.located("max_age", Item::positive_duration),
            keep: section.value("keep", |item| item.integer(1..=1_000_000)),
        };
        section.finish(|_| None);
        logs
    }
}

/// `environment`: what is added to the job's own, that of `[defaults]` included.
pub fn environment(section: &mut Section<'_>) -> BTreeMap<String, String> {
    let tables = section.all("environment");
    let mut variables = BTreeMap::new();
    for item in tables.into_iter().rev() {
        let Some(table) = item.table() else {
            let _: Option<()> = item.wrong("is a table of texts, such as { LANG = \"C.UTF-8\" }", None);
            continue;
        };
        let entries = Section::new(item.reader, table, "environment").entries();
        variables.extend(entries.filter_map(variable));
    }
    variables
}

fn variable(item: Item<'_>) -> Option<(String, String)> {
    let name = item.key.to_string();
    let refused = |message: String, hint: &str| {
        item.reader.note(super::mistake::Mistake::at(&item.key_at(), message, Some(hint.to_string())));
        None
    };
    if name.is_empty() || name.contains(['=', '\0']) {
        return refused(format!("{name:?} cannot be the name of a variable."), "It has neither = nor NUL in it.");
    }
    if name.starts_with("FENCEPOST_") {
        let message = format!("{name:?} is fencepost's own to say: the job is told by it what it was granted.");
        return refused(message, "Give the variable another name.");
    }
    match item.value.get_ref().as_str() {
        Some(text) if !text.contains('\0') => Some((name, text.to_string())),
        _ => {
            let hint = "Put it in quotes.".to_string();
            item.mistake(format!("The variable {name:?} is a text."), Some(hint))
        }
    }
}

/// A length of time as the file could have it.
pub fn length<S: Serializer>(value: &Option<Located<Duration>>, serializer: S) -> Result<S::Ok, S::Error> {
    let shown = value.as_ref().map(|length| {
        SignedDuration::try_from(length.value)
            .map_or_else(|_| format!("{:?}", length.value), |span| format!("{span:#}"))
    });
    shown.serialize(serializer)
}
