//! Parses the answers of a store. Refuses every response that does not follow the protocol exactly.

use fencepost_core::hex;
use serde::Deserialize;
use ureq::http::HeaderMap;

use crate::declared::{Property, Soundness};
use crate::http_client::{HttpFailure, printable};
use crate::{Answer, Entry, Era, Key, SCAN_KEYS_MAX, StoreClock, Swapped, VALUE_BYTES_MAX, Version, Wall};

/// The result words of the protocol, each with its status.
const WORDS: &[(&str, u16)] =
    &[("entry", 200), ("absent", 404), ("won", 200), ("lost", 409), ("keys", 200), ("about", 200)];

/// The longest name of an era, which is stored in records.
const ERA_CHARS_MAX: usize = 64;

/// The store's answer to this request.
#[derive(Debug)]
pub(super) struct HttpReply {
    pub(super) word: String,
    pub(super) status: u16,
    version: Option<String>,
    clock: Option<StoreClock>,
    body: Vec<u8>,
}

/// Parses the reply to the request with that number. Fails if it is none, or if it reports a failure.
pub(super) fn of(number: &str, status: u16, headers: &HeaderMap, body: Vec<u8>) -> Result<HttpReply, HttpFailure> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(word) = header("Fencepost-Answer") else {
        return Err(HttpFailure::foreign(status, "its answer has no Fencepost-Answer"));
    };
    if header("Fencepost-Request") != Some(number) {
        return Err(HttpFailure::foreign(status, "its answer is not for this request, as if a cache had given it"));
    }
    if word == "error" {
        return Err(HttpFailure::told(status, header("Retry-After"), &body));
    }
    if !WORDS.contains(&(word, status)) {
        return Err(HttpFailure::foreign(status, "its answer is none of the protocol"));
    }
    let clock = match header("Fencepost-Clock") {
        None => None,
        Some(text) => Some(clock(text).ok_or_else(|| HttpFailure::foreign(status, "its clock was not understood"))?),
    };
    let version = header("Fencepost-Version").map(str::to_string);
    Ok(HttpReply { word: word.to_string(), status, version, clock, body })
}

impl HttpReply {
    /// Returns the entry under the key of a read, or the entry that made a swap lose.
    pub(super) fn entry(self) -> Result<Answer<Option<Entry>>, HttpFailure> {
        let version = self.version()?;
        let is_consistent = match (self.word.as_str(), &version) {
            ("entry", None) | ("absent", Some(_)) => false,
            (_, None) => self.body.is_empty(),
            (_, Some(_)) => self.body.len() <= VALUE_BYTES_MAX,
        };
        if !is_consistent {
            return Err(HttpFailure::foreign(self.status, "its answer contradicts itself"));
        }
        Ok(Answer::new(version.map(|version| Entry { bytes: self.body, version }), self.clock))
    }

    /// Returns the version of a swap that was won; none for a removal.
    pub(super) fn won(self, made_something: bool) -> Result<Answer<Swapped>, HttpFailure> {
        let version = self.version()?;
        if version.is_some() != made_something {
            return Err(HttpFailure::foreign(self.status, "its answer contradicts what was asked"));
        }
        Ok(Answer::new(Swapped::Won(version), self.clock))
    }

    pub(super) fn keys(self) -> Result<Answer<Vec<Key>>, HttpFailure> {
        let text = String::from_utf8(self.body).unwrap_or_else(|_| "not text".to_string());
        let sound = |line: &str| Key::from_stored(line).ok_or_else(|| HttpFailure::unsound_key(line));
        let keys = text.lines().map(sound).collect::<Result<Vec<_>, _>>()?;
        if keys.len() > SCAN_KEYS_MAX {
            return Err(HttpFailure::foreign(self.status, "it lists more keys than it may"));
        }
        Ok(Answer::new(keys, self.clock))
    }

    fn version(&self) -> Result<Option<Version>, HttpFailure> {
        match self.version.as_deref() {
            Some("none") => Ok(None),
            Some(text) => version(text)
                .map(|bytes| Some(Version(bytes)))
                .ok_or_else(|| HttpFailure::foreign(self.status, "its version was not understood")),
            None => Err(HttpFailure::foreign(self.status, "its answer has no Fencepost-Version")),
        }
    }
}

/// A server's declaration of its properties.
#[derive(Debug, Deserialize)]
pub(super) struct About {
    declares: Vec<DeclaredProperty>,
}

#[derive(Debug, Deserialize)]
struct DeclaredProperty {
    name: String,
    standing: String,
    detail: String,
}

/// The properties that a server may declare; others are ignored.
const CLAIMS: &[&str] = &["durability", "replication", "clock"];

impl About {
    pub(super) fn parse(reply: &HttpReply) -> Option<Self> {
        serde_json::from_slice(&reply.body).ok().filter(|_| reply.word == "about")
    }

    pub(super) fn silent() -> Vec<Property> {
        Self { declares: Vec::new() }.declared()
    }

    pub(super) fn declared(self) -> Vec<Property> {
        let told = |name: &'static str| match self.declares.iter().find(|claim| claim.name == name) {
            None => Property::new(name, Soundness::Unknown, "The server does not tell."),
            Some(claim) => {
                let standing = match claim.standing.as_str() {
                    "sound" => Soundness::Sound,
                    "weak" => Soundness::Weak,
                    "unsound" => Soundness::Unsound,
                    _ => Soundness::Unknown,
                };
                Property::new(name, standing, printable(&claim.detail))
            }
        };
        CLAIMS.iter().map(|name| told(name)).collect()
    }
}

/// Parses `wall=MS; tick=MS; era=NAME`.
fn clock(text: &str) -> Option<StoreClock> {
    let part = |name: &str| text.split("; ").find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let era = part("era")?;
    let is_sound = (1..=ERA_CHARS_MAX).contains(&era.len())
        && era.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    let clock = StoreClock {
        wall: Wall(part("wall")?.parse().ok()?),
        era: Era(era.to_string()),
        tick: part("tick")?.parse().ok()?,
    };
    is_sound.then_some(clock)
}

/// Parses a version of 1 to 64 bytes.
fn version(digits: &str) -> Option<Vec<u8>> {
    hex::decode(digits).filter(|bytes| (1..=64).contains(&bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fate, Trouble};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    const CLOCK: (&str, &str) = ("Fencepost-Clock", "wall=-5; tick=7; era=do-1");

    #[test]
    fn an_answer_is_taken_apart() {
        let headers = headers(&[
            ("fencepost-answer", "entry"),
            ("fencepost-request", "ab"),
            CLOCK,
            ("Fencepost-Version", "00ff"),
        ]);
        let answer = of("ab", 200, &headers, b"x".to_vec()).unwrap().entry().unwrap();
        assert_eq!(answer.value, Some(Entry { bytes: b"x".to_vec(), version: Version(vec![0, 255]) }));
        let era = Era("do-1".to_string());
        assert_eq!(answer.clock, Some(StoreClock { wall: Wall(-5), era, tick: 7 }));
    }

    #[test]
    fn what_is_not_an_answer_is_refused() {
        let word = |word| ("Fencepost-Answer", word);
        let mine = ("Fencepost-Request", "ab");
        let version = ("Fencepost-Version", "00");
        let table = [
            (404, vec![], "no Fencepost-Answer"),
            (200, vec![word("entry"), CLOCK, version], "not for this request"),
            (200, vec![word("entry"), CLOCK, version, ("Fencepost-Request", "cd")], "not for this request"),
            (200, vec![word("absent"), mine, CLOCK], "none of the protocol"),
            (200, vec![word("ENTRY"), mine, CLOCK], "none of the protocol"),
            (200, vec![word("entry"), mine, ("Fencepost-Clock", "noon"), version], "its clock"),
            (200, vec![word("entry"), mine, ("Fencepost-Clock", "wall=1; tick=-1; era=x"), version], "its clock"),
            (200, vec![word("entry"), mine, ("Fencepost-Clock", "wall=1; tick=1; era="), version], "its clock"),
            (200, vec![word("entry"), mine, CLOCK], "no Fencepost-Version"),
            (200, vec![word("entry"), mine, CLOCK, ("Fencepost-Version", "0")], "its version"),
            (200, vec![word("entry"), mine, CLOCK, ("Fencepost-Version", "0G")], "its version"),
            (404, vec![word("absent"), mine, CLOCK, version], "contradicts itself"),
        ];
        let place = super::super::HttpPlace::parse("https://host", None).unwrap();
        for (status, pairs, part) in table {
            let map = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            let failure = of("ab", status, &map, Vec::new()).and_then(HttpReply::entry).unwrap_err();
            let error = failure.of_swap(&place);
            assert_eq!((error.fate, error.trouble), (Fate::Unknown, Trouble::Refused), "{error}");
            assert!(error.detail.contains(part), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn what_a_server_tells_of_itself() {
        let body = br#"{"protocol": 1, "declares": [{"name": "durability", "standing": "weak", "detail": "a\nb"},
            {"name": "other", "standing": "sound", "detail": ""}]}"#;
        let pairs = [("Fencepost-Answer", "about"), ("Fencepost-Request", "ab")];
        let reply = of("ab", 200, &headers(&pairs), body.to_vec()).unwrap();
        let declared = About::parse(&reply).unwrap().declared();
        assert_eq!(declared[0], Property::new("durability", Soundness::Weak, "a b"));
        assert_eq!(declared[1].standing, Soundness::Unknown);
        assert_eq!(declared.len(), CLAIMS.len());
    }
}
