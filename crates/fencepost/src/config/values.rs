//! Values of the configuration that have a structure: commands and environment variables.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::de::DeValue;

use super::mistake::Mistake;
use super::read::{Item, Section};
use crate::options::{Text, ValueKind};

/// A command: a string is run by `sh -c`, an array is executed directly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandLine {
    Shell(OsString),
    Argv(Vec<String>),
}

impl ValueKind for CommandLine {
    type Value = Self;

    fn expected() -> String {
        "a command: a text for the shell, or an array of texts, the program first".to_string()
    }

    fn read(item: Item<'_>) -> Option<Self> {
        let Some(elements) = item.elements() else {
            return match item.value.get_ref().as_str() {
                Some(_) => Text::read(item).map(|text| Self::Shell(text.into())),
                None => item.unexpected::<Self, _>(None),
            };
        };
        let refused = |why: &str| item.mistake(format!("{:?} is {}; {why}.", item.key, Self::expected()), None);
        if elements.is_empty() {
            return refused("this array is empty");
        }
        let words: Vec<Option<String>> = elements.into_iter().map(word).collect();
        let words: Vec<String> = words.into_iter().collect::<Option<_>>()?;
        if words[0].is_empty() {
            return refused("this program has no name");
        }
        Some(Self::Argv(words))
    }

    fn parse(typed: &OsStr) -> Result<Self, String> {
        Ok(Self::Shell(typed.to_os_string()))
    }

    fn json(value: &Self) -> Value {
        json!(value.words())
    }
}

/// Reads an element of an array of strings. It may be empty, as an argument may.
fn word(item: Item<'_>) -> Option<String> {
    let expected = "has texts in its array";
    match item.value.get_ref() {
        DeValue::String(text) if !text.contains('\0') => Some(text.to_string()),
        DeValue::Integer(number) => item.wrong(expected, Some(format!("Put it in quotes: \"{number}\"."))),
        _ => item.wrong(expected, None),
    }
}

impl CommandLine {
    pub fn argv(&self) -> Vec<OsString> {
        match self {
            Self::Shell(script) => vec!["/bin/sh".into(), "-c".into(), script.clone()],
            Self::Argv(words) => words.iter().map(OsString::from).collect(),
        }
    }

    /// The program and its arguments as text.
    pub fn words(&self) -> Vec<String> {
        self.argv().into_iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// The program without its arguments. Of a script only a plain first word is shown: others may be secret.
    pub fn program(&self) -> String {
        let is_plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./+".contains(c));
        let of_script = match self {
            Self::Shell(script) => script.to_str().and_then(|script| script.split_whitespace().next()).filter(is_plain),
            Self::Argv(_) => None,
        };
        of_script.map_or_else(|| self.words().into_iter().next().unwrap_or_default(), str::to_string)
    }

    /// The command on one line, for people.
    pub fn shown(&self) -> String {
        match self {
            Self::Shell(script) => script.to_string_lossy().trim().lines().collect::<Vec<_>>().join("; "),
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

/// Variables that are added to the job's environment. Those of `[defaults]` and those of the job are added together.
#[derive(Debug)]
pub struct JobEnvironment;

impl ValueKind for JobEnvironment {
    type Value = BTreeMap<String, String>;

    fn expected() -> String {
        "a table of texts, such as { LANG = \"C.UTF-8\" }".to_string()
    }

    fn read(item: Item<'_>) -> Option<Self::Value> {
        let Some(table) = item.table() else { return item.unexpected::<Self, _>(None) };
        let entries = Section::new(item.reader, table, "environment").entries();
        Some(entries.filter_map(variable).collect())
    }

    /// Shows the names only: values may be secrets.
    fn json(value: &Self::Value) -> Value {
        json!(value.keys().collect::<Vec<_>>())
    }

    fn none() -> Value {
        json!([])
    }

    fn merge(own: Self::Value, below: &Self::Value) -> Self::Value {
        let mut all = below.clone();
        all.extend(own);
        all
    }
}

fn variable(item: Item<'_>) -> Option<(String, String)> {
    let name = item.key.to_string();
    let refused = |message: String, hint: &str| {
        item.reader.note(Mistake::at(&item.key_at(), message, Some(hint.to_string())));
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
