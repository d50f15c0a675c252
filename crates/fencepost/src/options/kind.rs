//! The types that the value of an option can have: how each is read from TOML, typed, shown and described.

use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction};
use fencepost_core::nearest::did_you_mean;
use fencepost_core::spelling::Spelled;
use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::{OptionInfo, utf8};
use crate::config::Item;
use crate::duration;

/// A type of values. The trait has no instances: an entry of the table names the type.
pub trait ValueKind {
    type Value: Clone + std::fmt::Debug + Send + Sync + 'static;

    /// Whether the option may be given several times.
    const REPEATS: bool = false;

    /// What a value has to be, as it follows "is": for mistakes and for the reference pages.
    fn expected() -> String;

    /// Reads a value of the configuration, and notes the mistake if it is none.
    fn read(item: Item<'_>) -> Option<Self::Value>;

    /// Reads a value of the command line.
    fn parse(_typed: &OsStr) -> Result<Self::Value, String> {
        Err("this is a key of the configuration only".to_string())
    }

    /// A value for `--json`, secrets left out.
    fn json(value: &Self::Value) -> Value;

    /// What `--json` shows where no value is given.
    fn none() -> Value {
        Value::Null
    }

    /// Two values of an option that was given twice.
    fn join(_first: Self::Value, last: Self::Value) -> Self::Value {
        last
    }

    /// A job's own value over the one for all jobs.
    fn merge(own: Self::Value, _below: &Self::Value) -> Self::Value {
        own
    }

    /// The argument of the command line.
    fn arg(arg: Arg) -> Arg {
        let action = if Self::REPEATS { ArgAction::Append } else { ArgAction::Set };
        let parser = OsStringValueParser::new().try_map(|typed: OsString| Self::parse(&typed));
        arg.value_parser(ValueParser::new(parser)).action(action)
    }
}

/// A value as the reference pages and `--help` write it.
pub fn shown<K: ValueKind>(value: &K::Value) -> String {
    match K::json(value) {
        Value::String(text) => text,
        Value::Array(values) if values.is_empty() => "none".to_string(),
        other => other.to_string(),
    }
}

/// Puts an option into the object that `--json` shows it in.
pub fn put(object: &mut Map<String, Value>, info: &OptionInfo, shown: Value) {
    match info.inside {
        "" => object.insert(info.key.to_string(), shown),
        inside => {
            let inner = object.entry(inside).or_insert_with(|| json!({}));
            inner.as_object_mut().and_then(|inner| inner.insert(info.key.to_string(), shown))
        }
    };
}

/// Text that is not empty.
#[derive(Debug)]
pub struct Text;

impl ValueKind for Text {
    type Value = String;

    fn expected() -> String {
        "a text in quotes".to_string()
    }

    fn read(item: Item<'_>) -> Option<String> {
        match item.value.get_ref() {
            DeValue::String(text) if text.contains('\0') => item.wrong("holds no NUL character", None),
            DeValue::String(text) if !text.trim().is_empty() => Some(text.to_string()),
            _ => item.unexpected::<Self, _>(None),
        }
    }

    fn parse(typed: &OsStr) -> Result<String, String> {
        utf8(typed).map(str::to_string)
    }

    fn json(value: &String) -> Value {
        json!(value)
    }
}

/// Several texts.
#[derive(Debug)]
pub struct Texts;

impl ValueKind for Texts {
    type Value = Vec<String>;

    fn expected() -> String {
        "an array of texts, such as [\"git push\"]".to_string()
    }

    fn read(item: Item<'_>) -> Option<Vec<String>> {
        let Some(elements) = item.elements() else { return item.unexpected::<Self, _>(None) };
        Some(elements.into_iter().filter_map(Text::read).collect())
    }

    fn json(value: &Vec<String>) -> Value {
        json!(value)
    }
}

/// A path, made absolute by the configuration's directory.
#[derive(Debug)]
pub struct PathText;

impl ValueKind for PathText {
    type Value = PathBuf;

    fn expected() -> String {
        "a path, absolute or from the directory of this file".to_string()
    }

    fn read(item: Item<'_>) -> Option<PathBuf> {
        let text = Text::read(item.clone())?;
        if text.starts_with('~') {
            return item.unexpected::<Self, _>(Some("Write the whole path: fencepost does not expand ~.".to_string()));
        }
        Some(item.reader.directory.join(text))
    }

    fn json(value: &PathBuf) -> Value {
        json!(value)
    }
}

/// A length of time; longer than zero if `POSITIVE`. The command line takes zero too: its effect then says what is
/// wrong.
#[derive(Debug)]
pub struct Length<const POSITIVE: bool = false>;

impl<const POSITIVE: bool> ValueKind for Length<POSITIVE> {
    type Value = Duration;

    fn expected() -> String {
        "a length of time in quotes, such as \"90s\" or \"5m\"".to_string()
    }

    fn read(item: Item<'_>) -> Option<Duration> {
        match item.value.get_ref() {
            DeValue::String(text) => match duration::parse(text) {
                Ok(Duration::ZERO) if POSITIVE => item.wrong("is longer than nothing", None),
                Ok(length) => Some(length),
                Err(why) => item.mistake(format!("{:?} is a length of time, but {why}.", item.key), None),
            },
            DeValue::Integer(number) => {
                item.unexpected::<Self, _>(Some(format!("Write \"{number}s\" if it is seconds.")))
            }
            _ => item.unexpected::<Self, _>(None),
        }
    }

    fn parse(typed: &OsStr) -> Result<Duration, String> {
        duration::parse(utf8(typed)?)
    }

    fn json(value: &Duration) -> Value {
        let span = SignedDuration::try_from(*value);
        json!(span.map_or_else(|_| format!("{value:?}"), |span| format!("{span:#}")))
    }
}

/// True or false; on the command line an option without a value.
#[derive(Debug)]
pub struct Flag;

impl ValueKind for Flag {
    type Value = bool;

    fn expected() -> String {
        "true or false, without quotes".to_string()
    }

    fn read(item: Item<'_>) -> Option<bool> {
        item.value.get_ref().as_bool().or_else(|| item.unexpected::<Self, _>(None))
    }

    fn json(value: &bool) -> Value {
        json!(value)
    }

    fn arg(arg: Arg) -> Arg {
        arg.action(ArgAction::SetTrue)
    }
}

/// A whole number between two bounds.
#[derive(Debug)]
pub struct Whole<N, const MIN: u64, const MAX: u64>(PhantomData<N>);

impl<N, const MIN: u64, const MAX: u64> Whole<N, MIN, MAX>
where
    N: TryFrom<u64>,
{
    fn of(number: Option<u64>) -> Option<N> {
        number.filter(|number| (MIN..=MAX).contains(number)).and_then(|number| N::try_from(number).ok())
    }
}

impl<N, const MIN: u64, const MAX: u64> ValueKind for Whole<N, MIN, MAX>
where
    N: TryFrom<u64> + Into<u64> + Copy + std::fmt::Debug + Send + Sync + 'static,
{
    type Value = N;

    fn expected() -> String {
        match MAX {
            u64::MAX => format!("a whole number from {MIN} on"),
            _ => format!("a whole number from {MIN} to {MAX}"),
        }
    }

    fn read(item: Item<'_>) -> Option<N> {
        let number = match item.value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        Self::of(number).or_else(|| item.unexpected::<Self, _>(None))
    }

    fn parse(typed: &OsStr) -> Result<N, String> {
        Self::of(utf8(typed)?.parse().ok()).ok_or_else(|| format!("it is {}", Self::expected()))
    }

    fn json(value: &N) -> Value {
        let number: u64 = (*value).into();
        json!(number)
    }
}

/// One of a few words.
#[derive(Debug)]
pub struct OneOf<T>(PhantomData<T>);

impl<T: Spelled + std::fmt::Debug + Send + Sync> ValueKind for OneOf<T> {
    type Value = T;

    fn expected() -> String {
        let quoted: Vec<String> = T::WORDS.iter().map(|(_, word, _)| format!("{word:?}")).collect();
        quoted.join(" or ")
    }

    fn read(item: Item<'_>) -> Option<T> {
        let written = item.value.get_ref().as_str();
        written.and_then(T::of_word).or_else(|| {
            let known = T::WORDS.iter().map(|(_, word, _)| *word);
            item.unexpected::<Self, _>(written.and_then(|written| did_you_mean(written, known)))
        })
    }

    fn json(value: &T) -> Value {
        json!(value.word())
    }

    fn arg(arg: Arg) -> Arg {
        arg.value_parser(choice::<T>())
    }
}

/// Parses one of a few words on the command line, and lists them in `--help` and in errors.
pub fn choice<T: Spelled + Send + Sync>() -> ValueParser {
    let words = T::WORDS.iter().map(|(_, word, meaning)| PossibleValue::new(*word).help(*meaning));
    let parser = PossibleValuesParser::new(words);
    ValueParser::new(parser.map(|word| T::of_word(&word).expect("the parser lets through known words only")))
}
