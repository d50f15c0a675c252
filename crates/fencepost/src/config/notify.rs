//! Targets of notifications: commands and webhooks.

use fencepost_core::nearest::did_you_mean;
use serde_json::{Value, json};

use super::read::{Item, Section};
use super::values::CommandLine;
use crate::options::{Text, ValueKind, Whole};

/// The target of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Command(CommandLine),
    /// A webhook. It may be a secret.
    Url(String),
}

/// The number of skips in a row that causes a notification, and its target if it is not that of `on_error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnSkips {
    pub count: u32,
    pub notify: Option<Notice>,
}

impl ValueKind for Notice {
    type Value = Self;

    fn expected() -> String {
        "a command, or a URL that begins with https:// or http://".to_string()
    }

    fn read(item: Item<'_>) -> Option<Self> {
        match item.value.get_ref().as_str() {
            Some(text) if scheme(text).is_some() => WebUrl::read(item).map(Self::Url),
            _ => CommandLine::read(item).map(Self::Command),
        }
    }

    fn json(value: &Self) -> Value {
        match value {
            Self::Command(command) => CommandLine::json(command),
            Self::Url(url) => WebUrl::json(url),
        }
    }
}

/// A count of skips in a row.
type Count = Whole<u32, 1, 1_000_000>;

impl ValueKind for OnSkips {
    type Value = Self;

    fn expected() -> String {
        format!("{}, or {{ count = 3, notify = \"https://…\" }}", Count::expected())
    }

    fn read(item: Item<'_>) -> Option<Self> {
        let Some(table) = item.table() else {
            return Count::read(item).map(|count| Self { count, notify: None });
        };
        let mut section = Section::new(item.reader, table, "\"on_skips\"");
        let count = section.value::<Count>("count");
        let notify = section.value::<Notice>("notify");
        let lacks_count = !section.has("count");
        section.finish(|_| None);
        if lacks_count {
            return item.mistake("This lacks its \"count\" of skips in a row.".to_string(), None);
        }
        count.map(|count| Self { count, notify })
    }

    fn json(value: &Self) -> Value {
        json!({ "count": value.count, "notify": value.notify.as_ref().map(Notice::json) })
    }
}

/// A URL of the web. Webhooks carry their password in the path, so `--json` shows the host only.
#[derive(Debug)]
pub struct WebUrl;

impl ValueKind for WebUrl {
    type Value = String;

    fn expected() -> String {
        "a URL: it begins with https://, names a host and has no spaces".to_string()
    }

    fn read(item: Item<'_>) -> Option<String> {
        let text = item.value.get_ref().as_str().unwrap_or_default();
        if let Some(scheme) = scheme(text).filter(|scheme| !SCHEMES.contains(scheme)) {
            let message =
                format!("{:?} is a URL that begins with https:// or http://; this begins with {scheme}:.", item.key);
            return item.mistake(message, did_you_mean(scheme, SCHEMES));
        }
        let host = text.split("://").nth(1).unwrap_or_default();
        let is_whole = !host.is_empty() && !host.starts_with(['/', '?', '#']);
        if scheme(text).is_some() && is_whole && !text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Text::read(item);
        }
        item.mistake(format!("{:?} is {}.", item.key, Self::expected()), None)
    }

    fn json(value: &String) -> Value {
        json!(host_only(value))
    }
}

const SCHEMES: [&str; 2] = ["https", "http"];

/// The scheme of a text that looks like a URL, valid or not: a word followed by `:/`. No command starts that way.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(":/")?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_letter)).then_some(scheme)
}

/// The part of a URL that holds no secret.
pub fn host_only(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = place.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}/***")
}
