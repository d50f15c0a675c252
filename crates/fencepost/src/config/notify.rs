//! Recipients of notifications: commands, webhooks, chat services, monitors and mail.

use fencepost_core::nearest::did_you_mean;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::read::{Item, Section};
use super::values::CommandLine;
use crate::options::{ValueKind, Whole};

/// The recipients of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice(pub Vec<Recipient>);

/// One recipient of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recipient {
    Command(CommandLine),
    /// A service and its address there. A URL may be a secret.
    Service(Service, String),
}

/// A service that takes notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Takes fencepost's own JSON. It is written as a bare URL.
    Webhook,
    Slack,
    Discord,
    Ntfy,
    Healthchecks,
    /// The system's `mail`. Its address is no URL.
    Mail,
}

impl Service {
    /// The services that are written as a word before a colon.
    const NAMED: [(&'static str, Self); 5] = [
        ("slack", Self::Slack),
        ("discord", Self::Discord),
        ("ntfy", Self::Ntfy),
        ("healthchecks", Self::Healthchecks),
        ("mail", Self::Mail),
    ];

    fn words() -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().map(|(word, _)| *word)
    }

    fn of_word(word: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == word).map(|(_, service)| *service)
    }

    fn word(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, service)| *service == self).map(|(word, _)| *word)
    }
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
        "a command, a URL that begins with https:// or http://, one of slack:URL, discord:URL, ntfy:URL, \
         healthchecks:URL and mail:ADDRESS, or an array of these"
            .to_string()
    }

    fn read(item: Item<'_>) -> Option<Self> {
        let Some(elements) = item.elements() else { return Recipient::read(item).map(|one| Self(vec![one])) };
        let names_recipient = |item: &Item<'_>| {
            let text = item.value.get_ref().as_str().unwrap_or_default();
            item.elements().is_some() || scheme(text).is_some() || prefix(text).is_some()
        };
        // An array whose first text is a program is one command; its arguments may be URLs.
        if elements.first().is_some_and(names_recipient) {
            let recipients: Vec<Option<Recipient>> = elements.into_iter().map(Recipient::read).collect();
            return recipients.into_iter().collect::<Option<_>>().map(Self);
        }
        let is_prefixed = |item: &&Item<'_>| item.value.get_ref().as_str().is_some_and(|text| prefix(text).is_some());
        if let Some(late) = elements.iter().find(is_prefixed) {
            let message = format!("{:?} is a command here, because its first text is a program.", item.key);
            let hint = "Put the command into an array of its own: [[\"./tell.sh\"], \"slack:https://…\"].";
            return late.mistake(message, Some(hint.to_string()));
        }
        CommandLine::read(item).map(|command| Self(vec![Recipient::Command(command)]))
    }

    fn json(value: &Self) -> Value {
        match value.0.as_slice() {
            [one] => one.json(),
            several => several.iter().map(Recipient::json).collect(),
        }
    }
}

impl Recipient {
    fn read(item: Item<'_>) -> Option<Self> {
        let Some(text) = item.value.get_ref().as_str() else { return CommandLine::read(item).map(Self::Command) };
        let Some((word, rest)) = prefix(text) else {
            return match scheme(text) {
                Some(_) => web_url(&item, text).map(|url| Self::Service(Service::Webhook, url)),
                None => CommandLine::read(item).map(Self::Command),
            };
        };
        let Some(service) = Service::of_word(word) else {
            let known = Service::words().collect::<Vec<_>>().join(", ");
            let message = format!("There is no recipient {word:?}: fencepost knows {known}.");
            return item.mistake(message, did_you_mean(word, Service::words()));
        };
        let address = if service == Service::Mail { address(&item, rest) } else { web_url(&item, rest) };
        address.map(|address| Self::Service(service, address))
    }

    /// The recipient without secrets: no path of a URL, and no arguments of a command.
    pub fn shown(&self) -> String {
        match self {
            Self::Command(command) => command.program(),
            Self::Service(service, address) => service.shown(address, " "),
        }
    }

    /// The recipient as it is written, without secrets.
    fn json(&self) -> Value {
        match self {
            Self::Command(command) => CommandLine::json(command),
            Self::Service(service, address) => json!(service.shown(address, ":")),
        }
    }
}

impl Service {
    /// The service's word, if it has one, and its address without secrets.
    fn shown(self, address: &str, between: &str) -> String {
        let address = if self == Self::Mail { address.to_string() } else { host_only(address) };
        self.word().map_or_else(|| address.clone(), |word| format!("{word}{between}{address}"))
    }
}

/// The word before the colon of a recipient and the rest: a known word, or any word before a whole URL.
fn prefix(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once(':')?;
    let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let is_url = SCHEMES.iter().any(|scheme| rest.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://")));
    (Service::of_word(word).is_some() || is_word && is_url).then_some((word, rest))
}

/// An address that is one argument of `mail`, and no option.
fn address(item: &Item<'_>, text: &str) -> Option<String> {
    let is_one =
        !text.is_empty() && !text.starts_with('-') && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    match is_one {
        true => Some(text.to_string()),
        false => item.mistake(format!("{:?} has an address after mail:, such as mail:me@example.org.", item.key), None),
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
        section.finish(|_, _| None);
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
        web_url(&item, text)
    }

    fn json(value: &String) -> Value {
        json!(host_only(value))
    }
}

/// Checks a URL that is a value or a part of one.
fn web_url(item: &Item<'_>, text: &str) -> Option<String> {
    if let Some(scheme) = scheme(text).filter(|scheme| !SCHEMES.contains(scheme)) {
        let message =
            format!("{:?} is a URL that begins with https:// or http://; this begins with {scheme}:.", item.key);
        return item.mistake(message, did_you_mean(scheme, SCHEMES));
    }
    let host = text.split("://").nth(1).unwrap_or_default();
    let is_whole = !host.is_empty() && !host.starts_with(['/', '?', '#']);
    if scheme(text).is_some() && is_whole && !text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some(text.to_string());
    }
    item.mistake(format!("{:?} is {}.", item.key, WebUrl::expected()), None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipient_is_shown_without_its_secret() {
        let url = "https://user:SECRET@example.org/SECRET?token=SECRET";
        for service in Service::NAMED.map(|(_, service)| service).into_iter().chain([Service::Webhook]) {
            let recipient = Recipient::Service(service, url.to_string());
            if service != Service::Mail {
                assert!(recipient.shown().ends_with("https://example.org/***"), "{}", recipient.shown());
                assert!(!recipient.json().to_string().contains("SECRET"), "{}", recipient.json());
            }
        }
        let command = Recipient::Command(CommandLine::Argv(vec!["./tell.sh".into(), "SECRET".into()]));
        assert_eq!(command.shown(), "./tell.sh");
        for (script, shown) in
            [("./tell.sh SECRET", "./tell.sh"), ("TOKEN=SECRET ./tell.sh", "/bin/sh"), ("", "/bin/sh")]
        {
            assert_eq!(Recipient::Command(CommandLine::Shell(script.into())).shown(), shown);
        }
    }
}
