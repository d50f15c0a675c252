//! The parameters of the pages. A bad value falls back to the default and is noted on the page.

use std::collections::BTreeMap;

use crate::path::segment;

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

            fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.as_str() == text)
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
            filter: fields.choice("show", JobFilter::All, JobFilter::parse, JobFilter::ALL.iter().map(|f| f.as_str())),
            search: fields.text("q"),
            order: fields.choice(
                "sort",
                JobOrder::Attention,
                JobOrder::parse,
                JobOrder::ALL.iter().map(|o| o.as_str()),
            ),
            is_reversed: fields.choice("order", false, direction, ["up", "down"].into_iter()),
            notes: fields.notes,
        }
    }

    /// The address of the overview with these parameters.
    pub fn href(&self) -> String {
        let order = if self.is_reversed { "down" } else { "up" };
        address(
            "/",
            &[
                ("show", self.filter.as_str(), "all"),
                ("q", &self.search, ""),
                ("sort", self.order.as_str(), "attention"),
                ("order", order, "up"),
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
        let ranges = TimelineRange::ALL.iter().map(|range| range.as_str());
        Self {
            range: fields.choice("range", TimelineRange::Day, TimelineRange::parse, ranges),
            search: fields.text("q"),
            page: fields.choice("page", 1, page, ["a number from 1"].into_iter()),
            notes: fields.notes,
        }
    }

    pub fn href(&self) -> String {
        let page = self.page.to_string();
        address("/timeline", &[("range", self.range.as_str(), "24h"), ("q", &self.search, ""), ("page", &page, "1")])
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
        let actions = JobAction::ALL.iter().map(|action| action.as_str());
        Self {
            slot: fields.text("slot"),
            done: fields.choice("done", None, |text| JobAction::parse(text).map(Some), actions),
            notes: fields.notes,
        }
    }
}

/// The fields of a query or of a form that was sent. Of two with the same name the last counts.
pub fn fields(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(PAIRS_MAX);
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
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

    /// One of several words. An empty value is the default.
    fn choice<T>(
        &mut self,
        name: &str,
        default: T,
        parse: impl Fn(&str) -> Option<T>,
        words: impl Iterator<Item = &'static str>,
    ) -> T {
        let value = self.text(name);
        if value.is_empty() {
            return default;
        }
        parse(&value).unwrap_or_else(|| {
            let words: Vec<_> = words.collect();
            self.notes.push(format!("{name}={value} is unknown. It may be: {}.", words.join(", ")));
            default
        })
    }
}

fn direction(text: &str) -> Option<bool> {
    match text {
        "up" => Some(false),
        "down" => Some(true),
        _ => None,
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

/// A value without percent signs. What is not UTF-8 becomes the replacement character.
fn decoded(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (bytes, mut decoded, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match (byte, digit(bytes.get(at)), digit(bytes.get(at + 1))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 2;
            }
            (b'+', ..) => decoded.push(b' '),
            (byte, ..) => decoded.push(*byte),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
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
