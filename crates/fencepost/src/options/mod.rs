//! Options: declared once in [`table`], for the command line, the configuration, `validate`, `--help` and the reference
//! pages of the documentation.
//!
//! An option is one entry of the table. The macro [`options!`] turns the entries into a struct of optional values and into
//! [`OptionInfo`]s that describe them. How a value is read, typed and shown is the business of its [`ValueKind`].

mod kind;
#[cfg(test)]
mod reference;
mod table;

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

pub use kind::{Flag, Length, OneOf, PathText, Text, Texts, ValueKind, Whole, choice};
pub use table::{JobOptions, Logs, OnStoreError, OnUnknownInput, SlotUnit, TopOptions, UpTableOptions, WrittenSlot};

use crate::config::{Located, Section};

/// Verbs that take options of the table, as a set of bits.
pub const RUN: u8 = 1;
pub const PLAN: u8 = 2;
pub const ONCE: u8 = 4;
pub const LEASE: u8 = 8;

/// The table of the configuration that sets a key for all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedTable {
    Defaults,
    Notify,
    Logs,
    /// None: the key belongs to one job.
    Nowhere,
}

/// A table of the configuration that holds options of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Job,
    Defaults,
    Notify,
}

/// One option, as the table declares it.
#[derive(Debug)]
pub struct OptionInfo {
    /// The key in `fencepost.toml`, and the name of the field.
    pub key: &'static str,
    pub group: &'static str,
    /// One sentence for `--help` and the reference pages.
    pub help: &'static str,
    /// More sentences, for the reference pages and the long help.
    pub detail: &'static str,
    /// The option on the command line without its dashes; empty if there is none.
    pub flag: &'static str,
    pub short: Option<char>,
    /// What `--help` calls the value.
    pub value: &'static str,
    pub verbs: u8,
    /// Keys whose options cannot stand beside this one.
    pub conflicts: &'static [&'static str],
    pub shared: SharedTable,
    /// The object that holds the key in `validate --json`; empty if the job's own.
    pub inside: &'static str,
    /// The built-in default as it is written, if the table gives its value.
    pub default: fn() -> Option<String>,
    /// The built-in default in words, if it is not one value.
    pub otherwise: &'static str,
    /// What a value has to be, as it follows "is".
    #[cfg(test)]
    expected: fn() -> String,
    arg: fn(Arg) -> Arg,
}

impl OptionInfo {
    /// An option of this kind, for the macro to fill in.
    const fn of<K: ValueKind>() -> Self {
        Self {
            key: "",
            group: "",
            help: "",
            detail: "",
            flag: "",
            short: None,
            value: "",
            verbs: RUN,
            conflicts: &[],
            shared: SharedTable::Defaults,
            inside: "",
            default: || None,
            otherwise: "",
            #[cfg(test)]
            expected: K::expected,
            arg: K::arg,
        }
    }

    /// The built-in default in words; empty if an option that is not given has no effect.
    pub fn shown_default(&self) -> String {
        (self.default)().unwrap_or_else(|| self.otherwise.to_string())
    }

    /// Whether a verb takes the option.
    pub fn is_for(&self, verb: u8) -> bool {
        !self.flag.is_empty() && self.verbs & verb != 0
    }

    fn arg(&self, verb: u8) -> Arg {
        let default = match self.shown_default() {
            default if default.is_empty() || self.value.is_empty() => String::new(),
            default => format!(" (default: {default})"),
        };
        let help = format!("{}{default}", self.help.trim_start());
        let taken = |key: &&str| JobOptions::INFO.iter().any(|info| info.key == *key && info.is_for(verb));
        let mut arg = Arg::new(self.key).long(self.flag).help_heading(self.group);
        arg = arg.conflicts_with_all(self.conflicts.iter().copied().filter(|key| taken(key)));
        if !self.detail.is_empty() {
            arg = arg.long_help(format!("{help}. {}", self.detail));
        }
        if !self.value.is_empty() {
            arg = arg.value_name(self.value);
        }
        if let Some(short) = self.short {
            arg = arg.short(short);
        }
        (self.arg)(arg.help(help))
    }
}

/// A set of options that [`options!`] declares.
pub trait OptionSet: Sized {
    /// Every option, in the order of the reference pages.
    const INFO: &'static [OptionInfo];

    /// Reads the keys that a table of the configuration may hold.
    fn read_table(section: &mut Section<'_>, table: Table) -> Self;

    /// The options that were typed.
    fn typed(matches: &ArgMatches) -> Self;

    /// These options, and for those that are not given the ones below.
    fn over(self, below: &Self) -> Self;

    /// Every option for `--json`, secrets left out.
    fn shown(&self) -> serde_json::Value;
}

/// The options of the table that a verb takes, as they were typed.
#[derive(Clone, Debug, Default)]
pub struct Typed<const VERB: u8>(pub JobOptions);

impl<const VERB: u8> clap::Args for Typed<VERB> {
    fn augment_args(command: Command) -> Command {
        command.args(JobOptions::INFO.iter().filter(|info| info.is_for(VERB)).map(|info| info.arg(VERB)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const VERB: u8> clap::FromArgMatches for Typed<VERB> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(JobOptions::typed(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The value of an option that was typed.
fn typed<K: ValueKind>(matches: &ArgMatches, key: &str) -> Option<Located<K::Value>> {
    let values = matches.try_get_many::<K::Value>(key).ok()??;
    if matches.value_source(key) != Some(ValueSource::CommandLine) {
        return None;
    }
    values.cloned().reduce(K::join).map(Located::typed)
}

/// The value of a key, if this table may hold it. A key that belongs to another table is a mistake.
fn read<K: ValueKind>(section: &mut Section<'_>, table: Table, info: &OptionInfo) -> Option<Located<K::Value>> {
    let one_job = ("This key belongs to one job: it cannot be the same for all.", "Write it in [job.NAME].");
    let (message, hint) = match (table, info.shared) {
        (Table::Job, _) | (Table::Defaults, SharedTable::Defaults) | (Table::Notify, SharedTable::Notify) => {
            return section.located::<K>(info.key);
        }
        (_, SharedTable::Nowhere) => one_job,
        (Table::Defaults, SharedTable::Notify) => {
            ("Whom to tell about all jobs is said in [notify].", "Move it there.")
        }
        (Table::Defaults, SharedTable::Logs) => {
            ("What is kept of all jobs' output is said in [logs].", "Move it there.")
        }
        (Table::Notify, SharedTable::Defaults | SharedTable::Logs) => return None,
    };
    section.refuse(info.key, message, hint);
    None
}

/// A value over the one that it takes precedence of.
fn over<K: ValueKind>(own: Option<Located<K::Value>>, below: &Option<Located<K::Value>>) -> Option<Located<K::Value>> {
    match (own, below) {
        (Some(own), Some(below)) => Some(own.with(K::merge(own.value.clone(), &below.value))),
        (own, below) => own.or_else(|| below.clone()),
    }
}

/// The text of an argument, if it is UTF-8.
pub fn utf8(text: &OsStr) -> Result<&str, String> {
    text.to_str().ok_or_else(|| "it is not UTF-8".to_string())
}

/// Values that may be given.
pub trait Given<T> {
    /// The value without its place.
    fn value(&self) -> Option<T>;
}

impl<T: Clone> Given<T> for Option<Located<T>> {
    fn value(&self) -> Option<T> {
        self.as_ref().map(|given| given.value.clone())
    }
}

/// Declares options: a struct with one `Option<Located<…>>` for each, what describes them, how they are read and typed, and
/// how they are laid over each other.
///
/// `KEY: KIND = DEFAULT, FIELD: VALUE, …;` The doc comment is the help. The fields are those of [`OptionInfo`]. A default
/// adds a method with the key's name that gives the value or else the default.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$extra_meta:meta])* $extra:ident : $extra_type:ty),* }
        $(
            $group:literal {
                $(
                    $(#[doc = $help:literal])+
                    $key:ident : $kind:ty $(= $default:expr)? $(, $field:ident : $value:expr)*;
                )*
            }
        )*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        pub struct $name {
            $($(#[$extra_meta])* pub $extra: $extra_type,)*
            $($(
                $(#[doc = $help])+
                pub $key: Option<$crate::config::Located<<$kind as $crate::options::ValueKind>::Value>>,
            )*)*
        }

        impl $crate::options::OptionSet for $name {
            const INFO: &'static [$crate::options::OptionInfo] = &[$($(
                $crate::options::OptionInfo {
                    key: stringify!($key),
                    group: $group,
                    help: concat!($($help),+),
                    $(default: || Some($crate::options::kind::shown::<$kind>(&$default)),)?
                    $($field: $value,)*
                    ..$crate::options::OptionInfo::of::<$kind>()
                },
            )*)*];

            fn read_table(section: &mut $crate::config::Section<'_>, table: $crate::options::Table) -> Self {
                let mut infos = Self::INFO.iter();
                Self {
                    $($($key: {
                        let info = infos.next().expect("each option is described");
                        $crate::options::read::<$kind>(section, table, info)
                    },)*)*
                    $($extra: Default::default(),)*
                }
            }

            fn typed(matches: &clap::ArgMatches) -> Self {
                Self {
                    $($($key: $crate::options::typed::<$kind>(matches, stringify!($key)),)*)*
                    $($extra: Default::default(),)*
                }
            }

            fn over(self, below: &Self) -> Self {
                Self {
                    $($extra: self.$extra,)*
                    $($($key: $crate::options::over::<$kind>(self.$key, &below.$key),)*)*
                }
            }

            fn shown(&self) -> serde_json::Value {
                let mut object = serde_json::Map::new();
                let mut infos = Self::INFO.iter();
                $($({
                    let info = infos.next().expect("each option is described");
                    let shown = self.$key.as_ref().map_or_else(<$kind as $crate::options::ValueKind>::none, |given| {
                        <$kind as $crate::options::ValueKind>::json(&given.value)
                    });
                    $crate::options::kind::put(&mut object, info, shown);
                })*)*
                object.into()
            }
        }

        impl $name {
            $($($(
                /// The value that is given, or the built-in default.
                pub fn $key(&self) -> <$kind as $crate::options::ValueKind>::Value {
                    self.$key.as_ref().map_or_else(|| $default, |given| given.value.clone())
                }
            )?)*)*
        }
    };
}
use options;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use clap::Parser;
    use fencepost_core::name::Name;
    use fencepost_core::run::Overlap;

    use super::*;
    use crate::args::{Arguments, Verb};
    use crate::config::{Reading, Source};

    const FILE: &str = "[defaults]\nttl = '1m'\nretries = 1\nskip_exit = 3\nenvironment = { A = 'x', B = 'y' }\n\
                        [notify]\non_error = 'page'\n[job.j]\nretries = 2\nskip_exit = 4\nenvironment = { B = 'z' }\n";

    fn merged(line: &str) -> JobOptions {
        let reading = Reading::of_source(Source::new(PathBuf::from("/x/fencepost.toml"), FILE.to_string()));
        assert_eq!(reading.mistakes, []);
        let Ok(Arguments { verb: Verb::Run(run), .. }) = Arguments::try_parse_from(line.split(' ')) else {
            panic!("{line}")
        };
        run.typed.0.over(reading.config.job(&Name::new("j").unwrap()))
    }

    #[test]
    fn the_command_line_counts_before_the_job_the_defaults_and_what_is_built_in() {
        let options = merged("fencepost run j --skip-exit 5 --overlap replace --observe");
        assert_eq!(
            (options.skip_exit(), options.retries(), options.ttl.value()),
            (5, 2, Some(Duration::from_secs(60)))
        );
        assert_eq!((options.overlap(), options.observe(), options.per_host()), (Overlap::Replace, true, false));
        assert_eq!((options.slack(), options.timeout.value()), (Duration::from_secs(60), None));
        assert!(options.skip_exit.as_ref().is_some_and(Located::is_typed) && options.on_error.is_some());
        let variables: Vec<String> = options.environment().into_iter().map(|(name, value)| name + &value).collect();
        assert_eq!(variables, ["Ax", "Bz"]);
    }

    #[test]
    fn every_option_is_shown_and_one_that_is_not_given_as_null() {
        let shown = merged("fencepost run j --retry-backoff 90s").shown();
        let object = shown.as_object().unwrap();
        for info in JobOptions::INFO {
            let inside = if info.inside.is_empty() { Some(object) } else { object[info.inside].as_object() };
            assert!(inside.is_some_and(|object| object.contains_key(info.key)), "{}", info.key);
        }
        assert_eq!((&shown["retry_backoff"], &shown["retries"]), (&"1m 30s".into(), &2.into()));
        assert_eq!((&shown["timeout"], &shown["needs"]), (&serde_json::Value::Null, &serde_json::json!([])));
    }

    #[test]
    fn an_option_that_may_be_repeated_keeps_every_value() {
        let options = merged("fencepost run j --needs a@any --needs b,artifact=x,artifact=y --produces o,min-bytes=7");
        let needs: Vec<String> = options.needed().iter().map(ToString::to_string).collect();
        assert_eq!(needs, ["a@any", "b@last-due (x, y)"]);
        assert_eq!(options.produced()[0].min_bytes, Some(7));
    }
}
