//! What a job makes, and what it waits for.

use std::fmt;

use clap::ValueEnum;
use fencepost_core::name::Name;
use serde::Serialize;

use super::mistake::Located;
use super::read::{Item, Section};
use crate::duration;
use fencepost_core::nearest::did_you_mean;

/// A file that the job makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Produces {
    /// As it is written: a path from the job's working directory, or a pattern.
    pub path: Located<String>,
    pub min_bytes: Option<u64>,
}

/// A job that must have done its work before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    pub job: Located<Name>,
    /// The rule of freshness as it is written: `last-due`, `same-day`, `same-slot`, `within=6h` or `any`.
    pub when: Option<Located<String>>,
    /// The files of it that are compared, pinned and handed over.
    pub artifacts: Vec<Located<String>>,
    pub on_empty: OnEmpty,
}

/// What becomes of a job whose upstream had nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnEmpty {
    #[default]
    Skip,
    Proceed,
}

impl Produces {
    pub fn read(item: Item<'_>) -> Option<Vec<Self>> {
        let expected =
            "is an array of paths, such as [\"data/report.csv\"] or [{ path = \"data/report.csv\", min_bytes = 100 }]";
        let Some(elements) = item.elements() else { return item.wrong(expected, hint_array(&item)) };
        Some(elements.into_iter().filter_map(|element| Self::read_one(element, expected)).collect())
    }

    fn read_one(item: Item<'_>, expected: &str) -> Option<Self> {
        if item.value.get_ref().is_str() {
            let at = item.at();
            return item.text().map(|path| Self { path: at.with(path), min_bytes: None });
        }
        let Some(table) = item.table() else { return item.wrong(expected, None) };
        let mut section = Section::new(item.reader, table, "\"produces\"");
        let path = section.located("path", Item::text);
        let min_bytes = section.value("min_bytes", |item| item.integer(1..=u64::MAX));
        let lacks_path = !section.has("path");
        section.finish(|_| None);
        if lacks_path {
            return item.mistake("This lacks its \"path\".".to_string(), None);
        }
        Some(Self { path: path?, min_bytes })
    }
}

impl Need {
    pub fn read(item: Item<'_>) -> Option<Vec<Self>> {
        let expected = "is an array of jobs, such as [\"reference@same-day\"] or [{ job = \"reference\", artifact = \"data/reference.md\" }]";
        let Some(elements) = item.elements() else { return item.wrong(expected, hint_array(&item)) };
        Some(elements.into_iter().filter_map(|element| Self::read_one(element, expected)).collect())
    }

    fn read_one(item: Item<'_>, expected: &str) -> Option<Self> {
        if let Some(text) = item.value.get_ref().as_str() {
            let at = item.at();
            let (job, when) = text.split_once('@').map_or((text, None), |(job, when)| (job, Some(when)));
            let job = name(&item, job);
            let when = when.map(|when| check_when(&item, when).map(|when| at.with(when)));
            let when = when.map_or(Some(None), |when| when.map(Some));
            return Some(Self { job: job?, when: when?, artifacts: Vec::new(), on_empty: OnEmpty::default() });
        }
        let Some(table) = item.table() else { return item.wrong(expected, None) };
        let mut section = Section::new(item.reader, table, "\"needs\"");
        let job = section.value("job", |item| {
            let text = item.clone().text()?;
            name(&item, &text)
        });
        let when = section.located("when", |item| {
            let text = item.clone().text()?;
            check_when(&item, &text)
        });
        let artifacts = section.value("artifact", artifacts).unwrap_or_default();
        let on_empty = section.value("on_empty", Item::choice).unwrap_or_default();
        let lacks_job = !section.has("job");
        section.finish(|_| None);
        if lacks_job {
            return item.mistake("This lacks its \"job\", whose work is needed.".to_string(), None);
        }
        Some(Self { job: job?, when, artifacts, on_empty })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job.value)?;
        if let Some(when) = &self.when {
            write!(f, "@{}", when.value)?;
        }
        let paths: Vec<&str> = self.artifacts.iter().map(|path| path.value.as_str()).collect();
        if paths.is_empty() { Ok(()) } else { write!(f, " ({})", paths.join(", ")) }
    }
}

/// One path, or an array of them.
fn artifacts(item: Item<'_>) -> Option<Vec<Located<String>>> {
    let elements = item.elements().unwrap_or_else(|| vec![item]);
    let located = |item: Item<'_>| {
        let at = item.at();
        item.text().map(|path| at.with(path))
    };
    Some(elements.into_iter().filter_map(located).collect())
}

fn name(item: &Item<'_>, text: &str) -> Option<Located<Name>> {
    match Name::new(text) {
        Ok(name) => Some(item.at().with(name)),
        Err(error) => item.mistake(error.to_string(), None),
    }
}

const FRESHNESS: [&str; 5] = ["last-due", "same-day", "same-slot", "within=6h", "any"];

fn check_when(item: &Item<'_>, text: &str) -> Option<String> {
    if let Some(length) = text.strip_prefix("within=") {
        return match duration::parse(length) {
            Ok(_) => Some(text.to_string()),
            Err(why) => item.mistake(format!("\"within=\" takes a length of time, but {why}."), None),
        };
    }
    if FRESHNESS.contains(&text) {
        return Some(text.to_string());
    }
    let message =
        format!("{text:?} says nothing about how fresh the work must be; there are {}.", FRESHNESS.join(", "));
    item.mistake(message, did_you_mean(text, FRESHNESS))
}

fn hint_array(item: &Item<'_>) -> Option<String> {
    item.value.get_ref().as_str().map(|text| format!("Put it in brackets: [{text:?}]."))
}
