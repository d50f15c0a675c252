//! From a table of the file to values, collecting what is wrong on the way.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{Located, MISTAKES_MAX, Mistake, Source};
use crate::duration;
use fencepost_core::nearest::did_you_mean;

/// The most mistakes that get a hint, and the most bytes of a key that does.
const HINTS_MAX: usize = 1000;
const HINTED_BYTES_MAX: usize = 256;

/// What is being read, and what was wrong with it so far.
#[derive(Debug)]
pub struct Reader {
    pub source: Source,
    /// The directory that relative paths start from.
    pub directory: PathBuf,
    mistakes: RefCell<Vec<Mistake>>,
}

impl Reader {
    pub fn new(source: Source, directory: PathBuf) -> Self {
        Self { source, directory, mistakes: RefCell::default() }
    }

    pub fn note(&self, mistake: Mistake) {
        if !self.is_full() {
            self.mistakes.borrow_mut().push(mistake);
        }
    }

    /// Whether there are so many mistakes that further ones are not worth reading.
    pub fn is_full(&self) -> bool {
        self.mistakes.borrow().len() >= MISTAKES_MAX
    }

    /// Whether a mistake found now gets a hint. The nearest word takes long to find, and later mistakes are not shown.
    fn gives_hints(&self) -> bool {
        self.mistakes.borrow().len() < HINTS_MAX
    }

    pub fn into_mistakes(self) -> Vec<Mistake> {
        self.mistakes.into_inner()
    }
}

/// A table whose keys are taken one by one. What nobody took is unknown.
#[derive(Debug)]
pub struct Section<'t> {
    pub reader: &'t Reader,
    table: &'t DeTable<'t>,
    /// Tables that are looked at for what this one lacks.
    fallbacks: Vec<&'t DeTable<'t>>,
    /// As it is called in sentences: `[job.article]`.
    name: String,
    taken: Vec<&'static str>,
}

impl<'t> Section<'t> {
    pub fn new(reader: &'t Reader, table: &'t DeTable<'t>, name: impl Into<String>) -> Self {
        Self { reader, table, fallbacks: Vec::new(), name: name.into(), taken: Vec::new() }
    }

    pub fn or(mut self, fallback: Option<&'t DeTable<'t>>) -> Self {
        self.fallbacks.extend(fallback);
        self
    }

    /// The value of a key, if it is there and right.
    pub fn value<T>(&mut self, key: &'static str, read: impl FnOnce(Item<'t>) -> Option<T>) -> Option<T> {
        self.item(key).and_then(read)
    }

    /// The value of a key with its place.
    pub fn located<T>(&mut self, key: &'static str, read: impl FnOnce(Item<'t>) -> Option<T>) -> Option<Located<T>> {
        let item = self.item(key)?;
        let at = item.at();
        read(item).map(|value| at.with(value))
    }

    /// A key that is known, and does not belong here.
    pub fn refuse(&mut self, key: &'static str, message: &str, hint: &str) {
        self.taken.push(key);
        if let Some((at, _)) = entry(self.table, key) {
            let at = self.reader.source.locate(at);
            self.reader.note(Mistake::at(&at, message, Some(hint.to_string())));
        }
    }

    /// Reports every key that was not taken, with the nearest one that could have been meant.
    pub fn finish(self, hint: impl Fn(&str) -> Option<String>) {
        for (key, _) in self.table.iter().take_while(|_| !self.reader.is_full()) {
            let (word, at) = (key.get_ref().as_ref(), self.reader.source.locate(key.span()));
            if !self.taken.contains(&word) {
                let hinted = Some(word).filter(|word| self.reader.gives_hints() && word.len() <= HINTED_BYTES_MAX);
                let near =
                    hinted.and_then(|word| did_you_mean(word, self.taken.iter().copied()).or_else(|| hint(word)));
                let message = format!("There is no key {word:?} in {}.", self.name);
                self.reader.note(Mistake::at(&at, message, near));
            }
        }
    }

    /// Whether somebody took this key so far.
    pub fn knows(&self, key: &str) -> bool {
        self.taken.contains(&key)
    }

    /// Whether the table itself has the key, right or wrong.
    pub fn has(&self, key: &str) -> bool {
        entry(self.table, key).is_some()
    }

    /// Where the table itself has the key.
    pub fn key_at(&self, key: &str) -> Option<Located<()>> {
        entry(self.table, key).map(|(at, _)| self.reader.source.locate(at))
    }

    /// The key's value here and in each fallback, this table's first.
    pub fn all(&mut self, key: &'static str) -> Vec<Item<'t>> {
        self.taken.push(key);
        let tables = std::iter::once(self.table).chain(self.fallbacks.iter().copied());
        let found = tables.filter_map(|table| entry(table, key));
        found.map(|(key_at, value)| Item { reader: self.reader, key, key_at, value }).collect()
    }

    /// Everything in the table, for those whose keys are names.
    pub fn entries(&self) -> impl Iterator<Item = Item<'t>> + use<'t> {
        let (reader, table) = (self.reader, self.table);
        table.iter().map(move |(key, value)| Item { reader, key: key.get_ref(), key_at: key.span(), value })
    }

    fn item(&mut self, key: &'static str) -> Option<Item<'t>> {
        self.all(key).into_iter().next()
    }
}

/// A key and its value, on the way to becoming something.
#[derive(Clone, Debug)]
pub struct Item<'t> {
    pub reader: &'t Reader,
    pub key: &'t str,
    key_at: std::ops::Range<usize>,
    pub value: &'t Spanned<DeValue<'t>>,
}

impl<'t> Item<'t> {
    pub fn at(&self) -> Located<()> {
        self.reader.source.locate(self.value.span())
    }

    pub fn key_at(&self) -> Located<()> {
        self.reader.source.locate(self.key_at.clone())
    }

    pub fn text(self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::String(text) if text.contains('\0') => self.wrong("holds no NUL character", None),
            DeValue::String(text) if !text.trim().is_empty() => Some(text.to_string()),
            _ => self.wrong("is a text in quotes", None),
        }
    }

    /// A text that may be empty, as an argument may.
    pub fn word(self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::String(text) if !text.contains('\0') => Some(text.to_string()),
            DeValue::Integer(number) => {
                let hint = format!("Put it in quotes: \"{number}\".");
                self.wrong("has texts in its array", Some(hint))
            }
            _ => self.wrong("has texts in its array", None),
        }
    }

    /// A path, made absolute by the configuration's directory.
    pub fn path(self) -> Option<PathBuf> {
        let item = self.clone();
        let text = self.text()?;
        if text.starts_with('~') {
            let hint = "Write the whole path: nobody replaces the ~ here.".to_string();
            return item.wrong("is a path, absolute or from the directory of this file", Some(hint));
        }
        Some(item.reader.directory.join(Path::new(&text)))
    }

    pub fn duration(self) -> Option<Duration> {
        match self.value.get_ref() {
            DeValue::String(text) => duration::parse(text)
                .map_or_else(|why| self.mistake(format!("{:?} is a length of time, but {why}.", self.key), None), Some),
            DeValue::Integer(number) => {
                let hint = format!("Write \"{number}s\" if it is seconds.");
                self.wrong("is a length of time in quotes, such as \"90s\" or \"5m\"", Some(hint))
            }
            _ => self.wrong("is a length of time in quotes, such as \"90s\" or \"5m\"", None),
        }
    }

    pub fn positive_duration(self) -> Option<Duration> {
        let item = self.clone();
        match self.duration()? {
            Duration::ZERO => item.wrong("is longer than nothing", None),
            length => Some(length),
        }
    }

    pub fn flag(self) -> Option<bool> {
        match self.value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.wrong("is true or false, without quotes", None),
        }
    }

    pub fn integer<N: TryFrom<u64>>(self, bounds: RangeInclusive<u64>) -> Option<N> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|number| bounds.contains(number)).and_then(|number| N::try_from(number).ok());
        number.or_else(|| match (bounds.start(), bounds.end()) {
            (start, &u64::MAX) => self.wrong(&format!("is a whole number from {start} on"), None),
            (start, end) => self.wrong(&format!("is a whole number from {start} to {end}"), None),
        })
    }

    /// One of the words that an option on the command line takes.
    pub fn choice<T: ValueEnum>(self) -> Option<T> {
        let words: Vec<_> = T::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
        let typed = self.value.get_ref().as_str();
        typed.and_then(|typed| T::from_str(typed, false).ok()).or_else(|| {
            let known: Vec<&str> = words.iter().map(|word| word.get_name()).collect();
            let quoted: Vec<String> = known.iter().map(|word| format!("{word:?}")).collect();
            let hint = typed.and_then(|typed| did_you_mean(typed, known));
            self.wrong(&format!("is {}", quoted.join(" or ")), hint)
        })
    }

    pub fn table(&self) -> Option<&'t DeTable<'t>> {
        self.value.get_ref().as_table()
    }

    /// The elements of an array, each under the array's own key.
    pub fn elements(&self) -> Option<Vec<Item<'t>>> {
        let elements = self.value.get_ref().as_array()?;
        Some(elements.iter().map(|value| Item { value, ..self.clone() }).collect())
    }

    /// Reports that the value is not what the key takes.
    pub fn wrong<T>(&self, expected: &str, hint: Option<String>) -> Option<T> {
        let found = match self.value.get_ref() {
            DeValue::String(text) if text.is_empty() => "an empty text".to_string(),
            DeValue::String(text) if is_short(text) => format!("{text:?}"),
            DeValue::String(_) => "a text".to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Datetime(_) => "a date".to_string(),
            DeValue::Array(_) => "an array".to_string(),
            DeValue::Table(_) => "a table".to_string(),
        };
        self.mistake(format!("{:?} {expected}; this is {found}.", self.key), hint)
    }

    pub fn mistake<T>(&self, message: String, hint: Option<String>) -> Option<T> {
        self.reader.note(Mistake::at(&self.at(), message, hint));
        None
    }
}

/// A word that may be repeated in a sentence. What is longer may be a secret, or a screen full.
fn is_short(text: &str) -> bool {
    !text.is_empty() && text.len() <= 24 && !text.contains([':', '@', '\0'])
}

fn entry<'t>(table: &'t DeTable<'t>, key: &str) -> Option<(std::ops::Range<usize>, &'t Spanned<DeValue<'t>>)> {
    table.get_key_value(key).map(|(key, value)| (key.span(), value))
}
