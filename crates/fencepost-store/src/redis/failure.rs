//! Classifies Redis's failures and settings: the one place that interprets them.

use redis::RedisError;

use super::{ANSWER_PATIENCE, CONNECT_PATIENCE, LAYOUT, RedisStore};
use crate::declared::{Property, Soundness};
use crate::{Fate, StoreError, Trouble};

/// How a command failed.
#[derive(Debug)]
pub(super) enum RedisFailure {
    /// There was no connection in time.
    Unreachable,
    Connect(RedisError),
    /// The server answered with an error.
    Said(RedisError),
    /// There was no answer. `idle`: on a connection that had been idle.
    Lost {
        error: RedisError,
        idle: bool,
    },
}

/// Errors that the server gives before it runs anything, or before a script has changed anything. The errors of a proxy
/// in between do not show whether the script ran.
const NOTHING_RAN: &[&str] = &[
    "READONLY",
    "LOADING",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "MOVED",
    "ASK",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "TRYAGAIN",
    "MASTERDOWN",
    "WRONGTYPE",
    "NOSCRIPT",
];

impl RedisFailure {
    /// A failed read changes nothing.
    pub(super) fn of_read(&self, store: &RedisStore) -> StoreError {
        self.told(store, Fate::NotDone)
    }

    pub(super) fn of_swap(&self, store: &RedisStore) -> StoreError {
        let fate = match self {
            Self::Unreachable | Self::Connect(_) => Fate::NotDone,
            Self::Said(error) if NOTHING_RAN.contains(&code(error)) => Fate::NotDone,
            Self::Said(_) | Self::Lost { .. } => Fate::Unknown,
        };
        self.told(store, fate)
    }

    fn told(&self, store: &RedisStore, fate: Fate) -> StoreError {
        let shown = store.server.shown();
        let outcome = fate.outcome();
        let (trouble, what, step) = match self {
            Self::Unreachable => {
                let what = format!("could not be reached within {} s", CONNECT_PATIENCE.as_secs());
                (Trouble::Unavailable, what, "Is it running, and is the network up?".to_string())
            }
            Self::Connect(error)
                if error.code().is_some() || error.kind() == redis::ErrorKind::AuthenticationFailed =>
            {
                let (trouble, step) = meaning(error);
                (trouble, format!("does not let us in ({error})"), step)
            }
            Self::Connect(error) => {
                let step = "Is it running, and does the URL name it?".to_string();
                (Trouble::Unavailable, format!("could not be reached ({error})"), step)
            }
            Self::Said(error) if code(error) == "NOAUTH" => {
                let (trouble, step) = meaning(error);
                (trouble, format!("asks for a password, and none was given ({error})"), step)
            }
            Self::Said(error) => {
                let (trouble, step) = meaning(error);
                (trouble, format!("refused the call ({error})"), step)
            }
            Self::Lost { error, .. } if error.is_timeout() => {
                let what = format!("did not answer within {} s", ANSWER_PATIENCE.as_secs());
                (Trouble::Unavailable, what, String::new())
            }
            Self::Lost { error, .. } => (Trouble::Unavailable, format!("did not answer ({error})"), String::new()),
        };
        let gap = if step.is_empty() { "" } else { " " };
        StoreError { fate, trouble, detail: format!("{shown} {what}; {outcome}.{gap}{step}") }
    }
}

impl RedisStore {
    /// Makes the refusal of a server that is not fit to hold leases. The script reported that and did nothing.
    pub(super) fn unfit(&self, word: &str, found: &str) -> StoreError {
        let shown = self.server.shown();
        match (word, found) {
            ("replica", _) => {
                let detail = format!(
                    "{shown} is a replica, which lags behind its primary; nothing was changed. Give the URL of the primary."
                );
                StoreError::not_done(Trouble::Refused, detail)
            }
            ("evicted", _) => self.foreign(
                "an entry is listed and not there, as if the server had thrown it away when its memory was full \
                 (maxmemory-policy must be noeviction)",
            ),
            ("oversized", key) => {
                let bytes = crate::VALUE_BYTES_MAX;
                self.foreign(&format!("the entry {key:?} is longer than any that fencepost writes ({bytes} bytes)"))
            }
            ("layout", "") => self.foreign("it lists keys, but its mark is missing"),
            ("layout", layout) if layout.starts_with("fencepost store, layout ") => {
                let detail = format!(
                    "{shown} was written by a newer fencepost ({layout:?}; this one knows {LAYOUT:?}). Nothing was changed. \
                     Upgrade fencepost on this machine."
                );
                StoreError::not_done(Trouble::Corrupt, detail)
            }
            _ => self.foreign("its mark is not fencepost's"),
        }
    }

    /// Makes the refusal of keys with content that fencepost did not write.
    pub(super) fn foreign(&self, found: &str) -> StoreError {
        let detail = format!(
            "{} is not a sound fencepost store: {found}. Nothing was changed. Restore a backup, or remove the keys that begin \
             with {{fencepost}} by hand and start afresh.",
            self.server.shown()
        );
        StoreError::not_done(Trouble::Corrupt, detail)
    }
}

/// How to give a password.
const PASSWORD_STEP: &str = "Put the password into a file with mode 0600 and name it: FENCEPOST_STORE_PASSWORD_FILE=/path/to/file, or \
                             store_password_file in fencepost.toml.";

const WRONG_PASSWORD_STEP: &str = "User and password do not fit. Try them by redis-cli, then put the password into a file with mode 0600 and \
                                   name it: FENCEPOST_STORE_PASSWORD_FILE=/path/to/file, or store_password_file in fencepost.toml.";

/// Returns the first word of an error. For a long command the error about a missing password has no code.
fn code(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    if code == "ERR" && error.to_string().contains("unauthenticated") { "NOAUTH" } else { code }
}

fn meaning(error: &RedisError) -> (Trouble, String) {
    if let Some((node, _)) = error.redirect_node() {
        let step =
            format!("It is a node of a cluster, and fencepost's keys live on {node}: give the URL of that node.");
        return (Trouble::Refused, step);
    }
    let (trouble, step) = match code(error) {
        "READONLY" => (Trouble::Refused, "It is a replica: give the URL of the primary."),
        "NOAUTH" => (Trouble::Refused, PASSWORD_STEP),
        "WRONGPASS" => (Trouble::Refused, WRONG_PASSWORD_STEP),
        "NOPERM" => (
            Trouble::Refused,
            "The user needs ~{fencepost}* +@read +@write +@scripting +time, and +info to find replicas.",
        ),
        "OOM" => (Trouble::Refused, "Its memory is full: give it more, or remove other keys."),
        "MISCONF" => (Trouble::Refused, "It cannot write to its disk: see its log."),
        "WRONGTYPE" => (Trouble::Corrupt, "A key that begins with {fencepost} is not fencepost's: remove it by hand."),
        "LOADING" | "BUSY" | "NOREPLICAS" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" => (Trouble::Unavailable, ""),
        // The error about a wrong password while connecting has no code.
        "" => (Trouble::Refused, WRONG_PASSWORD_STEP),
        _ => (Trouble::Unavailable, ""),
    };
    (trouble, step.to_string())
}

/// Judges the settings by the promises. `None`: the setting could not be queried.
pub(super) fn judged(facts: Option<&str>, appendonly: Option<&str>, appendfsync: Option<&str>) -> Vec<Property> {
    let fact = |name: &str| {
        facts.and_then(|facts| {
            facts
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(|value| value.trim().to_string())
        })
    };
    // INFO shows whether there is a log if CONFIG is not permitted.
    let has_log = appendonly.map(|value| value == "yes").or(fact("aof_enabled").map(|value| value == "1"));
    let durability = match (has_log, appendfsync) {
        (Some(true), Some("always")) => {
            (Soundness::Sound, "A swap is flushed before it is answered (appendonly yes, appendfsync always).")
        }
        (Some(true), Some("everysec")) => (
            Soundness::Weak,
            "A crash of the process loses nothing, a power cut the last second or two (appendfsync everysec). Set \
             appendfsync always.",
        ),
        (Some(true), Some(_)) => {
            (Soundness::Weak, "The log is flushed when the system likes (appendfsync no). Set appendfsync always.")
        }
        (Some(true), None) => (Soundness::Unknown, "There is a log, and it may not be asked how often it is flushed."),
        (Some(false), _) => (
            Soundness::Unsound,
            "Nothing is kept but snapshots: a restart forgets leases and outcomes (appendonly no). Set appendonly yes and \
             appendfsync always.",
        ),
        (None, _) => {
            (Soundness::Unknown, "The server does not tell whether it keeps anything (INFO and CONFIG are denied).")
        }
    };
    let policy = fact("maxmemory_policy").unwrap_or_default();
    let eviction = match (policy.as_str(), fact("maxmemory").as_deref()) {
        ("", _) => (Soundness::Unknown, "The server does not tell whether it throws keys away.".to_string()),
        (policy, Some("0")) => (Soundness::Sound, format!("It has no limit of memory (maxmemory-policy {policy}).")),
        (policy, _) if policy.starts_with("allkeys") => {
            let why =
                format!("It throws away any key when its memory is full (maxmemory-policy {policy}). Set noeviction.");
            (Soundness::Unsound, why)
        }
        (policy, _) => {
            (Soundness::Sound, format!("It throws away no key that does not expire (maxmemory-policy {policy})."))
        }
    };
    let replicas = match fact("connected_slaves").as_deref() {
        None => (Soundness::Unknown, "The server does not tell whether it has replicas.".to_string()),
        Some("0") => (Soundness::Sound, "It has no replica, so that nothing is failed over to.".to_string()),
        Some(count) => (
            Soundness::Weak,
            format!(
                "It has {count} replicas, which lag. A failover forgets the last swaps: a lease may be granted twice. Tokens \
                 go on from the new server's clock, and the fence refuses what is older."
            ),
        ),
    };
    let clock = "Leases are judged by the server's wall clock. One that is set forward ends them early; the fence refuses the \
                 late writes.";
    vec![
        Property::new("durability", durability.0, durability.1),
        Property::new("eviction", eviction.0, eviction.1),
        Property::new("replication", replicas.0, replicas.1),
        Property::new("clock", Soundness::Weak, clock),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_judged() {
        let standings = |facts: Option<&str>, log, flush| -> Vec<Soundness> {
            judged(facts, log, flush).iter().map(|one| one.standing).take(3).collect()
        };
        use Soundness::{Sound, Unknown, Unsound, Weak};
        let plain = "aof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n";
        assert_eq!(standings(Some(plain), Some("yes"), Some("always")), [Sound, Sound, Sound]);
        assert_eq!(standings(Some(plain), Some("yes"), Some("everysec")), [Weak, Sound, Sound]);
        assert_eq!(standings(Some(plain), None, None), [Unknown, Sound, Sound]);
        let careless = "aof_enabled:0\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\nconnected_slaves:2\r\n";
        assert_eq!(standings(Some(careless), None, None), [Unsound, Unsound, Weak]);
        assert_eq!(standings(None, None, None), [Unknown, Unknown, Unknown]);
    }
}
