//! The parameters of the pages. A bad value falls back to the default and is noted on the page.

use std::collections::BTreeMap;

use fencepost_view::percent;

use crate::path::{self, segment};

/// The most parameters that are read of a query.
const PAIRS_MAX: usize = 32;

/// The most characters of a value.
const VALUE_CHARS_MAX: usize = 200;

/// Declares an enumeration with the word of each variant in a query, and its words on a page.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal, $label:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            pub fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }

        }
    };
}

choices! {
    /// Which jobs the overview lists.
    JobFilter {
        All = "all", "All";
        Attention = "attention", "Need attention";
        Running = "running", "Running";
        Paused = "paused", "Paused";
        NeverRan = "never_ran", "Never ran";
    }
}

choices! {
    /// By what the overview is sorted.
    JobOrder {
        Attention = "attention", "attention";
        Name = "name", "name";
        Next = "next", "next slot";
        Last = "last", "last outcome";
        Duration = "duration", "duration";
        Skips = "skips", "skip rate";
        Host = "host", "host";
    }
}

choices! {
    /// How much time the timeline covers.
    TimelineRange {
        Day = "24h", "24 hours";
        Week = "week", "Week";
    }
}

choices! {
    /// What can be done with a job on its page. The words are those of the API.
    JobAction {
        RunNow = "run_now", "Run now";
        Pause = "pause", "Pause";
        Resume = "resume", "Resume";
        Release = "release", "Release";
    }
}

impl JobAction {
    /// The command that does the same, on the host of a job that each host has its own of, and else on any.
    pub fn command(self, job: &str) -> String {
        let named = job.split_once('@').map_or_else(|| job.to_string(), |(name, _)| format!("{name} --per-host"));
        match self {
            Self::RunNow => format!("fencepost run {named} --now"),
            Self::Pause => format!("fencepost pause {named}"),
            Self::Resume => format!("fencepost resume {named}"),
            Self::Release => format!("fencepost lease release {named} --force"),
        }
    }
}

choices! {
    /// In which order the overview is sorted.
    SortDirection {
        Up = "up", "ascending";
        Down = "down", "descending";
    }
}

/// The parameters of `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverviewQuery {
    pub filter: JobFilter,
    /// A part of a job's name or host.
    pub search: String,
    pub order: JobOrder,
    pub is_reversed: bool,
    /// What was wrong with the parameters, a sentence each.
    pub notes: Vec<String>,
}

impl OverviewQuery {
    pub fn parse(query: &str) -> Self {
        let mut fields = Fields::of(query);
        Self {
            filter: fields.one_of("show", JobFilter::ALL, JobFilter::as_str).unwrap_or(JobFilter::All),
            search: fields.text("q"),
            order: fields.one_of("sort", JobOrder::ALL, JobOrder::as_str).unwrap_or(JobOrder::Attention),
            is_reversed: fields.one_of("order", SortDirection::ALL, SortDirection::as_str) == Some(SortDirection::Down),
            notes: fields.notes,
        }
    }

    /// The address of the overview with these parameters.
    pub fn href(&self) -> String {
        let direction = if self.is_reversed { SortDirection::Down } else { SortDirection::Up };
        address(
            path::OVERVIEW,
            &[
                ("show", self.filter.as_str(), JobFilter::All.as_str()),
                ("q", &self.search, ""),
                ("sort", self.order.as_str(), JobOrder::Attention.as_str()),
                ("order", direction.as_str(), SortDirection::Up.as_str()),
            ],
        )
    }
}

impl Default for OverviewQuery {
    fn default() -> Self {
        Self::parse("")
    }
}

/// The parameters of `/timeline`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineQuery {
    pub range: TimelineRange,
    /// A part of a job's name or host.
    pub search: String,
    /// The page of jobs, from 1.
    pub page: usize,
    pub notes: Vec<String>,
}

impl TimelineQuery {
    pub fn parse(query: &str) -> Self {
        let mut fields = Fields::of(query);
        Self {
            range: fields.one_of("range", TimelineRange::ALL, TimelineRange::as_str).unwrap_or(TimelineRange::Day),
            search: fields.text("q"),
            page: fields.choice("page", page, || "a number from 1".to_string()).unwrap_or(1),
            notes: fields.notes,
        }
    }

    pub fn href(&self) -> String {
        let (range, page) = (self.range.as_str(), self.page.to_string());
        let parameters = [("range", range, TimelineRange::Day.as_str()), ("q", &self.search, ""), ("page", &page, "1")];
        address(path::TIMELINE, &parameters)
    }
}

/// The parameters of `/jobs/JOB`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// The slot that is asked about, as it was typed; the newest if it is empty. `Moment::parse` reads it.
    pub slot: String,
    /// The action that was just taken.
    pub done: Option<JobAction>,
    pub notes: Vec<String>,
}

impl JobQuery {
    pub fn parse(query: &str) -> Self {
        let mut fields = Fields::of(query);
        Self {
            slot: fields.text("slot"),
            done: fields.one_of("done", JobAction::ALL, JobAction::as_str),
            notes: fields.notes,
        }
    }
}

/// The names and values of a query or of a form, encoded as they were sent.
pub fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let spaced = |text: &str| text.replace('+', " ");
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(move |(name, value)| (spaced(name), spaced(value)))
}

/// The fields of a query. Of two with the same name the last counts.
pub fn fields(query: &str) -> BTreeMap<String, String> {
    let decoded = |text: String| percent::decode_leniently(&text);
    pairs(query).take(PAIRS_MAX).map(|(name, value)| (decoded(name), decoded(value))).collect()
}

struct Fields {
    values: BTreeMap<String, String>,
    notes: Vec<String>,
}

impl Fields {
    fn of(query: &str) -> Self {
        Self { values: fields(query), notes: Vec::new() }
    }

    /// A text. A longer one is cut.
    fn text(&mut self, name: &str) -> String {
        let value = self.values.get(name).map_or("", |value| value.trim());
        if value.chars().nth(VALUE_CHARS_MAX).is_some() {
            self.notes.push(format!("{name} is longer than {VALUE_CHARS_MAX} characters: the rest is left out."));
        }
        value.chars().take(VALUE_CHARS_MAX).collect()
    }

    /// One of several words. `None` if the value is empty, or unknown, which is noted.
    fn one_of<T: Copy>(&mut self, name: &str, all: &[T], word: fn(T) -> &'static str) -> Option<T> {
        let words = || all.iter().map(|choice| word(*choice)).collect::<Vec<_>>().join(", ");
        self.choice(name, |text| all.iter().copied().find(|choice| word(*choice) == text), words)
    }

    /// What `parse` makes of a value. `None` if the value is empty, or unknown, which is noted.
    fn choice<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>, known: impl Fn() -> String) -> Option<T> {
        let value = self.text(name);
        if value.is_empty() {
            return None;
        }
        let found = parse(&value);
        if found.is_none() {
            self.notes.push(format!("{name}={value} is unknown. It may be: {}.", known()));
        }
        found
    }
}

fn page(text: &str) -> Option<usize> {
    text.parse().ok().filter(|page| (1..=1_000_000).contains(page))
}

/// A path with the parameters that differ from their defaults: name, value, default.
fn address(path: &str, parameters: &[(&str, &str, &str)]) -> String {
    let differing = parameters.iter().filter(|(_, value, default)| value != default);
    let pairs: Vec<_> = differing.map(|(name, value, _)| format!("{name}={}", segment(value))).collect();
    if pairs.is_empty() { path.to_string() } else { format!("{path}?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_written_alike() {
        for text in ["/", "/?show=running", "/?show=paused&q=a%2Fb%20%26%20c&sort=next&order=down"] {
            assert_eq!(OverviewQuery::parse(text.trim_start_matches("/").trim_start_matches('?')).href(), text);
        }
        let week = TimelineQuery::parse("range=week&page=3");
        assert_eq!(
            (week.range, week.page, week.href().as_str()),
            (TimelineRange::Week, 3, "/timeline?range=week&page=3")
        );
        let job = JobQuery::parse("slot=2026-03-08T07%3A30&done=pause");
        assert_eq!((job.slot.as_str(), job.done), ("2026-03-08T07:30", Some(JobAction::Pause)));
    }

    #[test]
    fn bad_values_fall_back_with_a_note() {
        let query = OverviewQuery::parse("show=<b>&sort=size&order=sideways&q=%ff%zz%&&&=&x");
        assert_eq!((query.filter, query.order, query.is_reversed), (JobFilter::All, JobOrder::Attention, false));
        assert_eq!(query.search, "\u{fffd}%zz%");
        assert_eq!(query.notes.len(), 3);
        assert!(query.notes[1].contains("sort=size is unknown. It may be: attention, name, next"), "{:?}", query.notes);
        for page in ["0", "-1", "99999999999999999999", "x"] {
            let query = TimelineQuery::parse(&format!("page={page}"));
            assert_eq!((query.page, query.notes.len()), (1, 1), "{page}");
        }
        let long = OverviewQuery::parse(&format!("q={}", "é".repeat(5_000)));
        assert_eq!((long.search.chars().count(), long.notes.len()), (VALUE_CHARS_MAX, 1));
        assert_eq!(JobQuery::parse("done=delete").done, None);
    }
}
