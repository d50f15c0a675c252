//! The grammar of `needs`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use thiserror::Error;

use crate::name::Job;
use crate::nearest::nearest;
use crate::spelling::Spelled;

/// One upstream, and which outcome and artifacts of it are required.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Need {
    pub job: Job,
    pub when: When,
    /// The artifacts that will be read, by their recorded paths.
    pub artifacts: Vec<String>,
    pub on_empty: OnEmpty,
}

/// Which slot of the upstream is required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum When {
    /// Its newest slot at or before the asking slot. If its schedule is unknown: the newest of the asking slot's day.
    #[default]
    LastDue,
    SameDay,
    SameSlot,
    /// The newest slot at most this long before the asking slot.
    Within(Duration),
    Any,
}

impl When {
    const WORDS: [&'static str; 5] = ["last-due", "same-day", "same-slot", "within", "any"];

    /// Parses the text after `@`. The caller supplies the parser for durations.
    pub fn parse(text: &str, length: fn(&str) -> Result<Duration, String>) -> Result<Self, NeedError> {
        match text.split_once('=') {
            Some(("within", written)) => length(written).map(Self::Within).map_err(NeedError),
            None if text == "last-due" => Ok(Self::LastDue),
            None if text == "same-day" => Ok(Self::SameDay),
            None if text == "same-slot" => Ok(Self::SameSlot),
            None if text == "any" => Ok(Self::Any),
            _ => {
                let word = text.split('=').next().unwrap_or_default();
                let near = nearest(word, Self::WORDS).map_or_else(String::new, |near| format!(" Is it @{near}?"));
                Err(NeedError(format!(
                    "@{text} is not a rule of freshness: there are @last-due, @same-day, @same-slot, @within=6h and \
                     @any.{near}"
                )))
            }
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LastDue => f.write_str("last-due"),
            Self::SameDay => f.write_str("same-day"),
            Self::SameSlot => f.write_str("same-slot"),
            Self::Within(length) => write!(f, "within={}s", length.as_secs()),
            Self::Any => f.write_str("any"),
        }
    }
}

/// What to do if the upstream was `empty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnEmpty {
    #[default]
    Skip,
    Proceed,
}

impl OnEmpty {
    pub fn parse(text: &str) -> Result<Self, NeedError> {
        Self::of_word(text).ok_or_else(|| NeedError(format!("on-empty={text}: it is skip or proceed")))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NeedError(pub String);

impl Need {
    pub fn of(job: Job) -> Self {
        Self { job, when: When::default(), artifacts: Vec::new(), on_empty: OnEmpty::default() }
    }

    /// Parses `NAME[@RULE][,artifact=PATH]…[,on-empty=proceed]`.
    pub fn parse(text: &str, length: fn(&str) -> Result<Duration, String>) -> Result<Self, NeedError> {
        let mut parts = text.split(',');
        let mut need = Self::head(parts.next().unwrap_or_default(), length)?;
        for part in parts {
            match part.split_once('=') {
                Some(("artifact", path)) if !path.is_empty() => need.artifacts.push(path.to_string()),
                Some(("on-empty", choice)) => need.on_empty = OnEmpty::parse(choice)?,
                _ => {
                    return Err(NeedError(format!(
                        "{part:?} in {text:?} is not understood: after the job and its rule there may stand \
                         artifact=PATH and on-empty=proceed"
                    )));
                }
            }
        }
        Ok(need)
    }

    /// A host may follow an `@` too: a part that is not a rule is a host, if a rule or nothing follows it.
    fn head(text: &str, length: fn(&str) -> Result<Duration, String>) -> Result<Self, NeedError> {
        let job = |text: &str| Job::parse(text).map_err(|error| NeedError(error.to_string()));
        let Some((name, rule)) = text.rsplit_once('@') else { return job(text).map(Self::of) };
        let when = When::parse(rule, length)?;
        Ok(Self { when, ..Self::of(job(name)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(text: &str) -> Result<Duration, String> {
        let hours = text.strip_suffix('h').and_then(|hours| hours.parse::<u64>().ok());
        hours.map(|hours| Duration::from_secs(hours * 3600)).ok_or_else(|| format!("{text} is no length"))
    }

    #[test]
    fn needs_as_people_write_them() {
        let plain = Need::parse("reference", length).unwrap();
        assert_eq!(
            (plain.job.to_string().as_str(), plain.when, plain.on_empty),
            ("reference", When::LastDue, OnEmpty::Skip)
        );
        let all = Need::parse("a/b@within=6h,artifact=data/x.md,artifact=y,on-empty=proceed", length).unwrap();
        assert_eq!(all.when, When::Within(Duration::from_secs(6 * 3600)));
        assert_eq!(
            (all.artifacts.as_slice(), all.on_empty),
            (&["data/x.md".to_string(), "y".to_string()][..], OnEmpty::Proceed)
        );
        let of_host = Need::parse("backup@web-1@same-day", length).unwrap();
        assert_eq!((of_host.job.to_string().as_str(), of_host.when), ("backup@web-1", When::SameDay));
    }

    #[test]
    fn what_is_not_understood_names_the_nearest_rule() {
        let error = Need::parse("reference@sameday", length).unwrap_err().to_string();
        assert!(error.contains("@same-day?"), "{error}");
        for wrong in ["", "a b", "a@within", "a@within=x", "a,artifact=", "a,color=red", "a,on-empty=no", "@any"] {
            assert!(Need::parse(wrong, length).is_err(), "{wrong}");
        }
    }
}
