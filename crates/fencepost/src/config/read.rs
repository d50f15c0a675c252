//! Reads the tables of the file into values, and collects the mistakes.

use std::cell::RefCell;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{Located, MISTAKES_MAX, Mistake, Source};
use crate::options::ValueKind;
use fencepost_core::nearest::did_you_mean;

/// Maximum number of mistakes that get a hint, and maximum length of a key that gets one.
const HINTS_MAX: usize = 1000;
const HINTED_BYTES_MAX: usize = 256;

/// The file that is being read, and the mistakes found so far.
#[derive(Debug)]
pub struct Reader {
    pub source: Source,
    /// The base of relative paths.
    pub directory: PathBuf,
    mistakes: RefCell<Vec<Mistake>>,
    /// The job that is being read. Mistakes found meanwhile are its own.
    job: RefCell<Option<String>>,
}

impl Reader {
    pub fn new(source: Source, directory: PathBuf) -> Self {
        Self { source, directory, mistakes: RefCell::default(), job: RefCell::default() }
    }

    pub fn note(&self, mistake: Mistake) {
        if !self.is_full() {
            let mistake = match self.job.borrow().as_deref() {
                Some(job) => mistake.of_job(job),
                None => mistake,
            };
            self.mistakes.borrow_mut().push(mistake);
        }
    }

    /// Reads a job: the mistakes found by `read` stop only this one.
    pub fn within<T>(&self, job: &str, read: impl FnOnce() -> T) -> T {
        self.job.replace(Some(job.to_string()));
        let value = read();
        self.job.replace(None);
        value
    }

    /// Whether the limit of mistakes is reached: further ones are not collected.
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

/// A table whose keys are taken one by one. A key that was not taken is unknown.
#[derive(Debug)]
pub struct Section<'t> {
    pub reader: &'t Reader,
    table: &'t DeTable<'t>,
    /// The table's name in messages: `[job.article]`.
    name: String,
    taken: Vec<&'static str>,
}

impl<'t> Section<'t> {
    pub fn new(reader: &'t Reader, table: &'t DeTable<'t>, name: impl Into<String>) -> Self {
        Self { reader, table, name: name.into(), taken: Vec::new() }
    }

    /// The value of a key, if it is present and valid.
    pub fn value<K: ValueKind>(&mut self, key: &'static str) -> Option<K::Value> {
        self.item(key).and_then(K::read)
    }

    /// The value of a key with its place.
    pub fn located<K: ValueKind>(&mut self, key: &'static str) -> Option<Located<K::Value>> {
        let item = self.item(key)?;
        let at = item.at();
        K::read(item).map(|value| at.with(value))
    }

    /// Takes a key and its value, if the table has it. The key then counts as known.
    pub fn item(&mut self, key: &'static str) -> Option<Item<'t>> {
        self.taken.push(key);
        let (key_at, value) = entry(self.table, key)?;
        Some(Item { reader: self.reader, key, key_at, value })
    }

    /// Reports a known key that belongs in another table.
    pub fn refuse(&mut self, key: &'static str, message: &str, hint: &str) {
        self.taken.push(key);
        if let Some((at, _)) = entry(self.table, key) {
            let at = self.reader.source.locate(at);
            self.reader.note(Mistake::at(&at, message, Some(hint.to_string())));
        }
    }

    /// Reports every key that was not taken, with the nearest one that could have been meant. A hint may depend on whether
    /// the key holds a table.
    pub fn finish(self, hint: impl Fn(&str, bool) -> Option<String>) {
        for (key, value) in self.table.iter().take_while(|_| !self.reader.is_full()) {
            let (word, at) = (key.get_ref().as_ref(), self.reader.source.locate(key.span()));
            if !self.taken.contains(&word) {
                let hinted = Some(word).filter(|word| self.reader.gives_hints() && word.len() <= HINTED_BYTES_MAX);
                let near = hinted.and_then(|word| {
                    did_you_mean(word, self.taken.iter().copied()).or_else(|| hint(word, value.get_ref().is_table()))
                });
                let message = format!("There is no key {word:?} in {}.", self.name);
                self.reader.note(Mistake::at(&at, message, near));
            }
        }
    }

    /// Whether the table has the key, valid or not.
    pub fn has(&self, key: &str) -> bool {
        entry(self.table, key).is_some()
    }

    /// Where the table has the key.
    pub fn key_at(&self, key: &str) -> Option<Located<()>> {
        entry(self.table, key).map(|(at, _)| self.reader.source.locate(at))
    }

    /// All entries of the table, for tables whose keys are names.
    pub fn entries(&self) -> impl Iterator<Item = Item<'t>> + use<'t> {
        let (reader, table) = (self.reader, self.table);
        table.iter().map(move |(key, value)| Item { reader, key: key.get_ref(), key_at: key.span(), value })
    }
}

/// A key and its value, before conversion.
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

    pub fn table(&self) -> Option<&'t DeTable<'t>> {
        self.value.get_ref().as_table()
    }

    /// The elements of an array, each under the array's own key.
    pub fn elements(&self) -> Option<Vec<Item<'t>>> {
        let elements = self.value.get_ref().as_array()?;
        Some(elements.iter().map(|value| Item { value, ..self.clone() }).collect())
    }

    /// Reports that the value is not of the kind that the key takes.
    pub fn unexpected<K: ValueKind, T>(&self, hint: Option<String>) -> Option<T> {
        self.wrong(&format!("is {}", K::expected()), hint)
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

/// Whether a message may repeat a text. A longer one may be a secret, or fill the screen.
fn is_short(text: &str) -> bool {
    !text.is_empty() && text.len() <= 24 && !text.contains([':', '@', '\0'])
}

fn entry<'t>(table: &'t DeTable<'t>, key: &str) -> Option<(std::ops::Range<usize>, &'t Spanned<DeValue<'t>>)> {
    table.get_key_value(key).map(|(key, value)| (key.span(), value))
}
