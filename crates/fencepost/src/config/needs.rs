//! The files that a job writes, and the upstreams that it needs.

use std::ffi::OsStr;
use std::fmt;

use fencepost_core::barrier::{self, OnEmpty, When};
use fencepost_core::name::{Job, Name};
use fencepost_core::nearest::did_you_mean;
use fencepost_core::spelling::Spelled;
use fencepost_guard::artifact::DeclaredArtifact;
use serde_json::{Value, json};

use super::mistake::Located;
use super::read::{Item, Section};
use crate::duration;
use crate::options::{OneOf, Text, ValueKind, Whole, utf8};

/// A file that the job writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produces {
    /// The path or pattern as written, relative to the job's working directory.
    pub path: Located<String>,
    pub min_bytes: Option<u64>,
}

/// An upstream that must have succeeded before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNeed {
    pub job: Located<Job>,
    pub when: Option<Located<Freshness>>,
    /// The upstream's files that are compared, pinned and passed to the job.
    pub artifacts: Vec<Located<String>>,
    pub on_empty: OnEmpty,
}

/// A rule of freshness: `last-due`, `same-day`, `same-slot`, `within=6h` or `any`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The rule as written.
    pub text: String,
    pub when: When,
}

impl ValueKind for Vec<Produces> {
    type Value = Self;

    const REPEATS: bool = true;

    fn expected() -> String {
        "an array of paths, such as [\"data/report.csv\"] or [{ path = \"data/report.csv\", min_bytes = 100 }]"
            .to_string()
    }

    fn read(item: Item<'_>) -> Option<Self> {
        let Some(elements) = item.elements() else { return item.unexpected::<Self, _>(hint_array(&item)) };
        Some(elements.into_iter().filter_map(Produces::read).collect())
    }

    fn parse(typed: &OsStr) -> Result<Self, String> {
        let DeclaredArtifact { path, min_bytes } = DeclaredArtifact::parse(utf8(typed)?)?;
        Ok(vec![Produces { path: Located::typed(path), min_bytes: Some(min_bytes) }])
    }

    fn json(value: &Self) -> Value {
        let shown = |file: &Produces| json!({ "path": file.path.value, "min_bytes": file.min_bytes });
        value.iter().map(shown).collect()
    }

    fn none() -> Value {
        json!([])
    }

    fn join(first: Self, last: Self) -> Self {
        first.into_iter().chain(last).collect()
    }
}

impl Produces {
    fn read(item: Item<'_>) -> Option<Self> {
        if item.value.get_ref().is_str() {
            let at = item.at();
            return Text::read(item).map(|path| Self { path: at.with(path), min_bytes: None });
        }
        let Some(table) = item.table() else { return item.unexpected::<Vec<Self>, _>(None) };
        let mut section = Section::new(item.reader, table, "\"produces\"");
        let path = section.located::<Text>("path");
        let min_bytes = section.value::<Whole<u64, 1, { u64::MAX }>>("min_bytes");
        let lacks_path = !section.has("path");
        section.finish(|_, _| None);
        if lacks_path {
            return item.mistake("This lacks its \"path\".".to_string(), None);
        }
        Some(Self { path: path?, min_bytes })
    }
}

impl ValueKind for Vec<ConfigNeed> {
    type Value = Self;

    const REPEATS: bool = true;

    fn expected() -> String {
        "an array of jobs, such as [\"reference@same-day\"] or [{ job = \"reference\", artifact = \"data/reference.md\" }]"
            .to_string()
    }

    fn read(item: Item<'_>) -> Option<Self> {
        let Some(elements) = item.elements() else { return item.unexpected::<Self, _>(hint_array(&item)) };
        Some(elements.into_iter().filter_map(ConfigNeed::read).collect())
    }

    fn parse(typed: &OsStr) -> Result<Self, String> {
        let text = utf8(typed)?;
        let need = barrier::Need::parse(text, duration::parse).map_err(|error| error.to_string())?;
        Ok(vec![ConfigNeed {
            job: Located::typed(need.job),
            when: Some(Located::typed(Freshness { text: need.when.to_string(), when: need.when })),
            artifacts: need.artifacts.into_iter().map(Located::typed).collect(),
            on_empty: need.on_empty,
        }])
    }

    fn json(value: &Self) -> Value {
        let shown = |need: &ConfigNeed| {
            json!({
                "job": need.job.value.to_string(),
                "when": need.when.as_ref().map(|when| &when.value.text),
                "artifacts": need.artifacts.iter().map(|path| &path.value).collect::<Vec<_>>(),
                "on_empty": need.on_empty.word(),
            })
        };
        value.iter().map(shown).collect()
    }

    fn none() -> Value {
        json!([])
    }

    fn join(first: Self, last: Self) -> Self {
        first.into_iter().chain(last).collect()
    }
}

impl ConfigNeed {
    fn read<'t>(item: Item<'t>) -> Option<Self> {
        if let Some(text) = item.value.get_ref().as_str() {
            let at = item.at();
            let (job, when) = text.split_once('@').map_or((text, None), |(job, when)| (job, Some(when)));
            let job = name(&item, job);
            let when = when.map(|when| freshness(&item, when).map(|when| at.with(when)));
            let when = when.map_or(Some(None), |when| when.map(Some));
            return Some(Self { job: at.with(job?), when: when?, artifacts: Vec::new(), on_empty: OnEmpty::default() });
        }
        let Some(table) = item.table() else { return item.unexpected::<Vec<Self>, _>(None) };
        let mut section = Section::new(item.reader, table, "\"needs\"");
        let text = |item: Item<'t>| Some((Text::read(item.clone())?, item));
        let job = section.item("job").and_then(text).and_then(|(text, item)| Some(item.at().with(name(&item, &text)?)));
        let when = section.item("when").and_then(text);
        let when = when.and_then(|(text, item)| Some(item.at().with(freshness(&item, &text)?)));
        let artifacts = section.item("artifact").map(artifacts).unwrap_or_default();
        let on_empty = section.value::<OneOf<OnEmpty>>("on_empty").unwrap_or_default();
        let lacks_job = !section.has("job");
        section.finish(|_, _| None);
        if lacks_job {
            return item.mistake("This lacks its \"job\", whose work is needed.".to_string(), None);
        }
        Some(Self { job: job?, when, artifacts, on_empty })
    }

    /// The rule of freshness as written, or the default.
    pub fn rule(&self) -> When {
        self.when.as_ref().map_or_else(When::default, |written| written.value.when)
    }
}

impl fmt::Display for ConfigNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job.value)?;
        if let Some(when) = &self.when {
            write!(f, "@{}", when.value.text)?;
        }
        let paths: Vec<&str> = self.artifacts.iter().map(|path| path.value.as_str()).collect();
        if paths.is_empty() { Ok(()) } else { write!(f, " ({})", paths.join(", ")) }
    }
}

/// One path, or an array of them.
fn artifacts(item: Item<'_>) -> Vec<Located<String>> {
    let elements = item.elements().unwrap_or_else(|| vec![item]);
    let located = |item: Item<'_>| {
        let at = item.at();
        Text::read(item).map(|path| at.with(path))
    };
    elements.into_iter().filter_map(located).collect()
}

fn name(item: &Item<'_>, text: &str) -> Option<Job> {
    match Name::new(text) {
        Ok(name) => Some(Job::shared(name)),
        Err(error) => item.mistake(error.to_string(), None),
    }
}

const FRESHNESS: [&str; 5] = ["last-due", "same-day", "same-slot", "within=6h", "any"];

fn freshness(item: &Item<'_>, text: &str) -> Option<Freshness> {
    if let Ok(when) = When::parse(text, duration::parse) {
        return Some(Freshness { text: text.to_string(), when });
    }
    if let Some(Err(why)) = text.strip_prefix("within=").map(duration::parse) {
        return item.mistake(format!("\"within=\" takes a length of time, but {why}."), None);
    }
    let message =
        format!("{text:?} says nothing about how fresh the work must be; there are {}.", FRESHNESS.join(", "));
    item.mistake(message, did_you_mean(text, FRESHNESS))
}

fn hint_array(item: &Item<'_>) -> Option<String> {
    item.value.get_ref().as_str().map(|text| format!("Put it in brackets: [{text:?}]."))
}
