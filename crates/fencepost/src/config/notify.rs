//! Whom to tell.

use serde::{Serialize, Serializer};

use super::read::{Item, Section};
use super::values::CommandLine;
use fencepost_core::nearest::did_you_mean;

/// Whom to tell what of a job. What the job does not say is taken from `[notify]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Notify {
    pub on_error: Option<Notice>,
    pub on_halt: Option<Notice>,
    pub on_recovered: Option<Notice>,
    pub on_skips: Option<OnSkips>,
    /// A URL that is called at the start, at success and at failure. It may be a secret.
    #[serde(serialize_with = "hidden")]
    pub ping: Option<String>,
}

/// How somebody is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Command(CommandLine),
    /// A webhook. It may be a secret.
    Url(String),
}

/// After how many skips in a row somebody is told, and how if not as of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OnSkips {
    pub count: u32,
    pub notify: Option<Notice>,
}

impl Notify {
    pub fn read(section: &mut Section<'_>, with_ping: bool) -> Self {
        Self {
            on_error: section.value("on_error", Notice::read),
            on_halt: section.value("on_halt", Notice::read),
            on_recovered: section.value("on_recovered", Notice::read),
            on_skips: section.value("on_skips", OnSkips::read),
            ping: with_ping.then(|| section.value("ping", url)).flatten(),
        }
    }

    /// What is run to tell somebody.
    pub fn commands(&self) -> impl Iterator<Item = &CommandLine> {
        let skips = self.on_skips.as_ref().and_then(|on| on.notify.as_ref());
        let notices = [&self.on_error, &self.on_halt, &self.on_recovered].into_iter().flatten().chain(skips);
        notices.filter_map(|notice| match notice {
            Notice::Command(command) => Some(command),
            Notice::Url(_) => None,
        })
    }

    /// Reads `[notify]`.
    pub fn read_section(mut section: Section<'_>) -> Self {
        section.refuse(
            "ping",
            "A ping URL belongs to one job: it cannot be the same for all.",
            "Write it in [job.NAME].",
        );
        let notify = Self::read(&mut section, false);
        section.finish(|_| None);
        notify
    }
}

impl Notice {
    fn read(item: Item<'_>) -> Option<Self> {
        match item.value.get_ref().as_str() {
            Some(text) if scheme(text).is_some() => url(item).map(Self::Url),
            _ => CommandLine::read(item).map(Self::Command),
        }
    }
}

impl Serialize for Notice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Command(command) => command.serialize(serializer),
            Self::Url(url) => host_only(url).serialize(serializer),
        }
    }
}

impl OnSkips {
    fn read(item: Item<'_>) -> Option<Self> {
        let Some(table) = item.table() else {
            return item.integer(1..=1_000_000).map(|count| Self { count, notify: None });
        };
        let mut section = Section::new(item.reader, table, "\"on_skips\"");
        let count = section.value("count", |item| item.integer(1..=1_000_000));
        let notify = section.value("notify", Notice::read);
        let lacks_count = !section.has("count");
        section.finish(|_| None);
        if lacks_count {
            return item.mistake("This lacks its \"count\" of skips in a row.".to_string(), None);
        }
        count.map(|count| Self { count, notify })
    }
}

const SCHEMES: [&str; 2] = ["https", "http"];

/// The scheme of a text that is meant as a URL, right or wrong: a word followed by `:/`. No command begins so.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(":/")?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_letter)).then_some(scheme)
}

fn url(item: Item<'_>) -> Option<String> {
    let text = item.value.get_ref().as_str().unwrap_or_default();
    if let Some(scheme) = scheme(text).filter(|scheme| !SCHEMES.contains(scheme)) {
        let message =
            format!("{:?} is a URL that begins with https:// or http://; this begins with {scheme}:.", item.key);
        return item.mistake(message, did_you_mean(scheme, SCHEMES));
    }
    let host = text.split("://").nth(1).unwrap_or_default();
    let is_whole = !host.is_empty() && !host.starts_with(['/', '?', '#']);
    if scheme(text).is_some() && is_whole && !text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return item.text();
    }
    item.mistake(format!("{:?} is a URL: it begins with https://, names a host and has no spaces.", item.key), None)
}

/// Webhooks carry their password in the path.
pub fn host_only(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = place.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}/***")
}

fn hidden<S: Serializer>(url: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_deref().map(host_only).serialize(serializer)
}
