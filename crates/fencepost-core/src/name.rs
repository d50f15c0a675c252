//! Job names, and their encoding into store keys.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The most characters a name may have.
pub const NAME_CHARS_MAX: usize = 128;

/// The most characters of a job's name and host together: the encoded key must fit into a file name.
const JOB_CHARS_MAX: usize = 160;

/// The most bytes that the name of a resource may have: it stands in the resource's record.
pub const RESOURCE_BYTES_MAX: usize = 1024;

/// Digits of a slot in a history key: keys sort by slot until the year 33,000.
const HISTORY_SLOT_DIGITS: usize = 15;
const HISTORY_SLOTS_END: i64 = 999_999_999_999_999;
const HISTORY_PAGES_END: u32 = 999_999;

/// A name given by a person: 1 to 128 ASCII letters, digits and `. _ - / :`, without a leading dot or dash and without
/// `..`. It is validated here and safe to use everywhere after.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    pub fn new(text: &str) -> Result<Self, NameError> {
        let reason = if text.is_empty() {
            Some("it is empty".to_string())
        } else if let Some(bad) = text.chars().find(|&c| !is_allowed(c)) {
            Some(format!("{bad:?} is not allowed in it"))
        } else if text.len() > NAME_CHARS_MAX {
            Some(format!("it has {} characters", text.len()))
        } else if text.starts_with(['.', '-']) {
            Some(format!("it begins with {:?}", &text[..1]))
        } else if text.contains("..") {
            Some("it contains \"..\"".to_string())
        } else {
            None
        };
        match reason {
            None => Ok(Self(text.to_string())),
            Some(reason) => Err(NameError { name: shortened(text), reason }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

/// Why a text is not a valid name. The text is escaped, because it may contain control characters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{name} is not a name: {reason}. A name has 1 to 128 letters (a-z, A-Z), digits and the signs . _ - / : \
     without a leading dot or dash and without \"..\"."
)]
pub struct NameError {
    name: String,
    reason: String,
}

/// A job in the store: its name and, with `--per-host`, its host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Job {
    pub name: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// A `once` key, which is a job with one slot.
    #[serde(default, skip_serializing_if = "is_false")]
    once: bool,
    /// It is a resource that commands are run on, with its whole name. Its record has a fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Job {
    pub fn shared(name: Name) -> Self {
        Self { name, host: None, once: false, resource: None }
    }

    /// The `once` item with this key. It is separate from every job of that name.
    pub fn once(key: Name) -> Self {
        Self { name: key, host: None, once: true, resource: None }
    }

    /// A resource that commands are run on, apart from every job of that name. A text that is no name is named by its hash.
    pub fn of_resource(text: &str) -> Self {
        let name = Name::new(text).unwrap_or_else(|_| Name(hash(text)));
        Self { name, host: None, once: false, resource: Some(text.to_string()) }
    }

    /// The job of one host. Characters of the host name that a name may not contain become dashes.
    pub fn of_host(name: Name, host: &str) -> Result<Self, NameError> {
        let host = host_in_names(host);
        let chars = name.as_str().len() + 1 + host.len();
        if chars > JOB_CHARS_MAX {
            let reason = format!("with the host {host:?} it has {chars} characters, more than {JOB_CHARS_MAX}");
            return Err(NameError { name: format!("{:?}", name.as_str()), reason });
        }
        Ok(Self { name, host: Some(host), once: false, resource: None })
    }

    /// Parses the output of [`Display`](fmt::Display): a name, or a name and a host.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if let Some(key) = text.strip_prefix(ONCE) {
            return Name::new(key).map(Self::once);
        }
        if let Some(text) = text.strip_prefix(RESOURCE) {
            return Ok(Self::of_resource(text));
        }
        match text.split_once('@') {
            None => Name::new(text).map(Self::shared),
            Some((name, host)) => Self::of_host(Name::new(name)?, host),
        }
    }

    /// The name without the mark of a `once` item or of a resource; keys tell them apart by their first component.
    fn unmarked(&self) -> String {
        match &self.host {
            None => self.name.to_string(),
            Some(host) => format!("{}@{host}", self.name),
        }
    }

    /// What the keys of its history and its counters begin with.
    fn space(&self) -> &'static str {
        match (self.once, &self.resource) {
            (true, _) => "once-",
            (false, Some(_)) => "resource-",
            (false, None) => "",
        }
    }

    pub fn is_once(&self) -> bool {
        self.once
    }

    /// The whole name of the resource, if it is one.
    pub fn resource(&self) -> Option<&str> {
        self.resource.as_deref()
    }

    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Whether a question about `asked` is about this job. A name without a host stands for the jobs of all hosts.
    pub fn is_named_by(&self, asked: &Self) -> bool {
        self == asked || (asked.host.is_none() && self.name == asked.name)
    }
}

/// A host's name as the names of its own jobs have it.
pub fn host_in_names(host: &str) -> String {
    let host: String = host
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if matches!(c, 'a'..='z' | '0'..='9' | '.' | '-') { c } else { '-' })
        .collect();
    let host = host.trim_matches(['.', '-']);
    if host.is_empty() { "localhost".to_string() } else { host.to_string() }
}

/// The prefix of a `once` item's name, which no job name can have.
const ONCE: &str = "once=";

/// The same for a resource.
const RESOURCE: &str = "resource=";

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.resource, self.once) {
            (Some(text), _) => write!(f, "{RESOURCE}{text}"),
            (None, true) => write!(f, "{ONCE}{}", self.unmarked()),
            (None, false) => f.write_str(&self.unmarked()),
        }
    }
}

/// A key in a store: components of `a-z 0-9 = _ -` joined by single slashes, at most 255 bytes each. Legal as a file
/// name on a case-insensitive file system, as a git ref and as a Redis key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The store's own identity.
    pub fn identity() -> Self {
        Self("meta/store".to_string())
    }

    /// A job's record, or the record of an item of work or of a resource.
    pub fn job(job: &Job) -> Self {
        if let Some(text) = &job.resource {
            return Self::resource(text);
        }
        if job.once {
            return Self(format!("once/{}", encode(job.name.as_str())));
        }
        Self(format!("job/{}", encode(&job.to_string())))
    }

    /// A job's skip counters, separate from its record: a skip never disturbs a renewal.
    pub fn skips(job: &Job) -> Self {
        Self(format!("{}skips/{}", job.space(), encode(&job.unmarked())))
    }

    /// Outcomes of one slot that do not fit into the job's record. A full page is followed by another. The keys of a
    /// job sort by slot.
    pub fn history(job: &Job, slot: crate::time::Wall, page: u32) -> Self {
        let page = if page == 0 { String::new() } else { format!("_{page:06}") };
        Self(format!("{}{:0width$}{page}", Self::histories(job), slot.0.max(0), width = HISTORY_SLOT_DIGITS))
    }

    /// The prefix of all history keys of a job.
    pub fn histories(job: &Job) -> String {
        format!("{}history/{}/", job.space(), encode(&job.unmarked()))
    }

    /// The key just before a slot's history, to start a scan. None before the first slot.
    pub fn before_history(job: &Job, slot: crate::time::Wall) -> Option<Self> {
        let slot = slot.0.min(HISTORY_SLOTS_END);
        (slot > 0).then(|| Self::history(job, crate::time::Wall(slot - 1), HISTORY_PAGES_END))
    }

    /// The slot of a history key.
    pub fn slot(&self) -> Option<crate::time::Wall> {
        let last = self.0.strip_prefix("history/")?.rsplit('/').next()?;
        last.get(..HISTORY_SLOT_DIGITS)?.parse().ok().map(crate::time::Wall)
    }

    /// A resource of `publish exec`. A text that is a valid name is encoded as one; any other text is hashed, under a
    /// separate prefix. Its record contains the text.
    pub fn resource(text: &str) -> Self {
        match Name::new(text) {
            Ok(name) => Self(format!("resource/{}", encode(name.as_str()))),
            Err(_) => Self(format!("resource-text/{}", hash(text))),
        }
    }

    /// A key of the conformance suite and `store check`, separate from all data.
    pub fn probe(space: &str, name: &str) -> Self {
        Self(format!("probe/{}/{}", encode(space), encode(name)))
    }

    /// Whether this is the key of a job's or `once` item's record, which names its store.
    pub fn is_record(&self) -> bool {
        self.0.starts_with(Self::JOBS) || self.0.starts_with("once/")
    }

    /// Whether it is a key of [`Self::probe`].
    pub fn is_probe(&self) -> bool {
        self.0.starts_with("probe/")
    }

    /// The prefix of all job keys, for [`scan`](crate::register#scan).
    pub const JOBS: &'static str = "job/";

    /// The same of all `once` items.
    pub const ITEMS: &'static str = "once/";

    /// Validates a key read from a store: rejects any text that this encoding cannot produce.
    pub fn from_stored(text: &str) -> Option<Self> {
        let sound = |part: &str| {
            !part.is_empty()
                && part.len() <= 255
                && part.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'=' | b'_' | b'-'))
        };
        (text.contains('/') && text.split('/').all(sound)).then(|| Self(text.to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The injective, lower-case encoding. Plain characters (`a-z 0-9 - _`) stand for themselves; every other character is
/// `=` and a stand-in. A name with more special than plain characters is written inverted, behind `==`. The shorter
/// form is used, so 160 characters never need more than 242 bytes.
fn encode(text: &str) -> String {
    let others = text.chars().filter(|&c| stand_in(c).is_some()).count();
    let inverted = others > text.len() - others + 2;
    let mut key = String::new();
    if inverted {
        key.push_str("==");
    }
    for c in text.chars() {
        let other = stand_in(c);
        if other.is_some() != inverted {
            key.push('=');
        }
        key.push(other.unwrap_or(c));
    }
    key
}

/// SHA-256, in hexadecimal digits.
fn hash(text: &str) -> String {
    crate::hex::encode(&Sha256::digest(text.as_bytes()))
}

fn stand_in(c: char) -> Option<char> {
    match c {
        'A'..='Z' => Some(c.to_ascii_lowercase()),
        '.' => Some('0'),
        '/' => Some('1'),
        ':' => Some('2'),
        '@' => Some('3'),
        _ => None,
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':')
}

fn shortened(text: &str) -> String {
    let mut start: String = text.chars().take(40).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("{start:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    fn job(name: &str) -> Job {
        Job::shared(Name::new(name).unwrap())
    }

    #[test]
    fn names_that_people_use_are_accepted() {
        for name in ["a", "report", "A", "x.lock", "a/b", "db:main", "_x", "9", "a.b-c_d", "a/", &"z".repeat(128)] {
            assert!(Name::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = "z".repeat(129);
        for name in ["", ".", ".a", "-a", "a..b", "..", "a b", "a\nb", "ä", "a@b", "a\0", "a%", "a\\b", &long] {
            assert!(Name::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_error_never_repeats_a_control_character() {
        let message = Name::new("a\u{1b}[31mb").unwrap_err().to_string();
        assert!(!message.contains('\u{1b}'), "{message}");
    }

    /// Every string of up to four characters over an alphabet with one sign of each kind, and the awkward long ones.
    #[test]
    fn no_two_names_share_a_key() {
        let alphabet = ['a', 'A', '0', '1', '3', '.', '/', ':', '-', '_'];
        let mut names: Vec<String> = alloc::vec![String::new()];
        let mut layer = names.clone();
        for _ in 0..4 {
            layer = layer.iter().flat_map(|n| alphabet.iter().map(move |c| format!("{n}{c}"))).collect();
            names.extend(layer.iter().cloned());
        }
        names.extend(["A", "Aa", "aA", "."].iter().map(|s| s.repeat(128 / s.len())));
        let mut seen = BTreeMap::new();
        for name in names.iter().filter_map(|n| Name::new(n).ok()) {
            let key = Key::job(&Job::shared(name.clone()));
            assert_eq!(Key::from_stored(key.as_str()), Some(key.clone()), "{name}");
            assert_eq!(seen.insert(key, name.clone()), None, "{name}");
        }
    }

    #[test]
    fn the_longest_names_fit_into_a_file_name() {
        for unit in ["A", "aA", "Aa", "aAA", "/", "z"] {
            let name: String = unit.chars().cycle().take(95).collect();
            let host = "h.".repeat(32);
            let key = Key::job(&Job::of_host(Name::new(&name).unwrap(), &host).unwrap());
            assert!(Key::from_stored(key.as_str()).is_some(), "{key}");
        }
        let name: String = "A/".chars().cycle().take(NAME_CHARS_MAX).collect();
        assert!(Key::from_stored(Key::job(&job(&name)).as_str()).is_some());
    }

    #[test]
    fn a_resource_may_be_called_anything_and_no_two_share_a_key() {
        let long = "x".repeat(100_000);
        let texts = ["a", "A", "a/b", "x.lock", "", " ", "ä", "a b", "..", ".a", "a\0b", "resource-text/a", &long];
        let hashes: Vec<String> = texts.iter().map(|text| hash(text)).collect();
        let mut seen = BTreeMap::new();
        for text in texts.into_iter().chain(hashes.iter().map(String::as_str)) {
            let key = Key::resource(text);
            assert_eq!(Key::from_stored(key.as_str()), Some(key.clone()), "{text:?}");
            assert_eq!(seen.insert(key, text.to_string()), None, "{text:?}");
        }
        assert_eq!(Key::resource("live").as_str(), "resource/live");
        let hello = "resource-text/b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9";
        assert_eq!(Key::resource("hello world").as_str(), hello);
    }

    #[test]
    fn a_hosts_own_job_is_another_job() {
        let name = Name::new("backup").unwrap();
        let here = Job::of_host(name.clone(), "Web 1.local").unwrap();
        assert_eq!(here.to_string(), "backup@web-1.local");
        assert_eq!(Job::parse("backup@web-1.local"), Ok(here.clone()));
        assert_eq!(Job::parse("backup"), Ok(Job::shared(name.clone())));
        assert_ne!(Key::job(&here), Key::job(&Job::shared(name)));
    }
}
