//! Redis: one script sets value and fence, if the fence is still the one that was judged. The rule itself stays in the
//! core.
//!
//! A script that compares and sets may be sent twice: of two arrivals only one can find the fence it expects. So a lost
//! answer is settled by sending the script again.

use std::thread::sleep;
use std::time::Duration;

use fencepost_core::fence::{Fence, Level};
use fencepost_store::redis as store;
use fencepost_store::redis::RedisConnection;
use redis::{RedisError, Value};

use super::{PublishError, Receipt, Remembered, WriteRequest, WriteTarget, Written, digest};
use crate::clock;

/// The most bytes of a value. The client and the server hold it in memory.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Compares the fence with the expected one (`=` and its bytes, or nothing if there was none) and sets fence and value.
/// The fence goes first: a script that is killed in the middle leaves it ahead, never behind.
const SCRIPT: &str = "local seen = redis.call('GET', KEYS[2])
if (seen and '=' .. seen or '') ~= ARGV[1] then return seen end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], ARGV[3])
return 1";

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// How often another write may come between reading and writing. Each time one of them has landed.
const ROUNDS_MAX: usize = 100;
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);
const SETTLE_PAUSE: Duration = Duration::from_millis(300);

/// The address of a server, and the credentials for it.
#[derive(Clone, Debug)]
pub struct RedisDestination(store::RedisServer);

impl RedisDestination {
    /// Parses a URL. Errors contain no password. If it has none, `REDISCLI_AUTH` is used, the variable of redis-cli.
    pub fn parse(url: &str) -> Result<Self, PublishError> {
        let wrong = |text: String| PublishError::Usage(format!("--url: {text} Nothing was changed."));
        let server = store::RedisServer::parse(url, None).map_err(wrong)?;
        server.must_be_private().map_err(PublishError::Failed)?;
        Ok(Self(server))
    }

    /// Returns the URL for people, without a password.
    pub fn shown(&self) -> &str {
        self.0.shown()
    }
}

/// A connection to a server that accepts writes.
#[expect(missing_debug_implementations, reason = "a connection shows nothing worth seeing")]
pub struct RedisSession {
    connection: RedisConnection,
    server: RedisDestination,
    /// The eviction policy under which the server may remove any key, the fence included, when its memory is full.
    forgetful: Option<String>,
}

/// Sets a key, if its fence allows that.
pub fn publish(
    request: &WriteRequest,
    server: &RedisDestination,
    key: &str,
    value: &[u8],
) -> Result<Receipt, PublishError> {
    let keys = Keys::of(key)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(PublishError::Usage("The value has more than 256 MiB; nothing was changed.".to_string()));
    }
    RedisSession::open(server)?.publish(request, &keys, value)
}

impl RedisSession {
    /// Connects, and refuses a replica.
    pub fn open(server: &RedisDestination) -> Result<Self, PublishError> {
        let mut connection = connect(server).map_err(|error| failed("connect to", server, &error))?;
        let facts: Result<String, _> = redis::cmd("INFO").query(&mut connection);
        // A user may lack the right to ask. Then a replica refuses the write itself.
        let facts = match facts {
            Err(error) if error.is_io_error() => return Err(failed("get the state of", server, &error)),
            facts => facts.unwrap_or_default(),
        };
        let fact = |name: &str| {
            facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim).unwrap_or_default()
        };
        if fact("role") == "slave" {
            return Err(PublishError::Failed(format!(
                "{} is a replica that follows {}:{}; nothing was changed. Give the URL of the primary.",
                server.shown(),
                fact("master_host"),
                fact("master_port")
            )));
        }
        let policy = fact("maxmemory_policy");
        let forgetful = policy.starts_with("allkeys") && fact("maxmemory") != "0";
        Ok(Self { connection, server: server.clone(), forgetful: forgetful.then(|| policy.to_string()) })
    }

    /// Sets value and fence, both or neither.
    pub fn publish(&mut self, request: &WriteRequest, keys: &Keys, value: &[u8]) -> Result<Receipt, PublishError> {
        let seen = self.read(keys)?;
        super::publish(request, RedisTarget { session: self, keys, value, seen, rounds: 0 })
    }

    fn read(&mut self, keys: &Keys) -> Result<Option<Vec<u8>>, PublishError> {
        let read = redis::cmd("GET").arg(&keys.fence).query(&mut self.connection);
        read.map_err(|error| self.failed("read the fence in", &error))
    }

    /// Compares and sets: `None` if it was done, else the current fence.
    fn swap(
        &mut self,
        keys: &Keys,
        expected: Option<&[u8]>,
        fence: &[u8],
        value: &[u8],
    ) -> Result<Option<Option<Vec<u8>>>, PublishError> {
        match eval(&mut self.connection, keys, expected, fence, value) {
            Ok(found) => Ok(found),
            Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                self.settle(keys, expected, fence, value, &error)
            }
            Err(error) => Err(self.failed("write to", &error)),
        }
    }

    /// Settles a lost answer. Sends the same script again: if the first one landed, or lands later, only one of them
    /// finds the fence it expects.
    fn settle(
        &mut self,
        keys: &Keys,
        expected: Option<&[u8]>,
        fence: &[u8],
        value: &[u8],
        lost: &RedisError,
    ) -> Result<Option<Option<Vec<u8>>>, PublishError> {
        let give_up = clock::boot_now() + SETTLE_PATIENCE;
        let lost = words(lost);
        let found = loop {
            let again = connect(&self.server)
                .and_then(|mut connection| Ok((eval(&mut connection, keys, expected, fence, value)?, connection)));
            match again {
                Ok((found, connection)) => {
                    self.connection = connection;
                    break found;
                }
                Err(_) if clock::boot_now() < give_up => sleep(SETTLE_PAUSE),
                Err(error) => {
                    return Err(PublishError::Failed(format!(
                        "The connection to {} was lost while it wrote ({lost}), and it could not be asked since ({}). \
                         It is NOT KNOWN whether the value was set: GET {} says which token wrote last.",
                        self.server.shown(),
                        words(&error),
                        keys.fence
                    )));
                }
            }
        };
        match found {
            None => Ok(None),
            Some(Some(now)) if now == fence => Ok(None),
            Some(_) => Err(PublishError::Failed(format!(
                "The connection to {} was lost while it wrote ({lost}), and another write to {} has come since. It is NOT \
                 KNOWN whether this value was set before that one.",
                self.server.shown(),
                keys.value
            ))),
        }
    }

    fn failed(&self, what: &str, error: &RedisError) -> PublishError {
        match error.redirect_node() {
            Some((node, _)) => PublishError::Failed(format!(
                "{} is a node of a cluster, and the key lives on {node}; nothing was changed. Give the URL of that node.",
                self.server.shown()
            )),
            None => failed(what, &self.server, error),
        }
    }
}

/// One write: a key with its new value.
struct RedisTarget<'a> {
    session: &'a mut RedisSession,
    keys: &'a Keys,
    value: &'a [u8],
    /// The fence as last read.
    seen: Option<Vec<u8>>,
    rounds: usize,
}

impl WriteTarget for RedisTarget<'_> {
    const REPLACES: bool = false;

    fn digest(&self) -> String {
        digest::of(self.value)
    }

    fn remembered(&mut self) -> Result<Remembered, PublishError> {
        let Keys { value, fence } = self.keys;
        let of = format!("{value} in {} (key {fence})", self.session.server.shown());
        Ok(Remembered::decode(self.seen.as_deref(), &of, "Restore it together with the value"))
    }

    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        let Some(now) = self.session.swap(self.keys, self.seen.as_deref(), &fence.encode(), self.value)? else {
            return Ok(Written::Done(fence));
        };
        self.seen = now;
        self.rounds += 1;
        if self.rounds < ROUNDS_MAX {
            return Ok(Written::Moved);
        }
        Err(PublishError::Failed(format!(
            "{} was written to {ROUNDS_MAX} times by others while this write waited its turn; nothing was changed. \
             Publish again.",
            self.keys.value
        )))
    }

    fn level(&self) -> Level {
        if self.session.forgetful.is_some() { Level::Gated } else { Level::Atomic }
    }

    fn remarks(&self) -> Vec<String> {
        let remark = self.session.forgetful.as_ref().map(|policy| {
            format!(
                "{} throws away any key when its memory is full (maxmemory-policy {policy}), the fence included: set it to \
                 noeviction or volatile-lru.",
                self.session.server.shown()
            )
        });
        remark.into_iter().collect()
    }
}

/// The keys of value and fence, which are on the same node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub value: String,
    pub fence: String,
}

impl Keys {
    /// A cluster places a key by its tag, the first non-empty `{…}`, or else by the whole key. A key with a tag gets a
    /// prefix, another one becomes the tag: so no two keys share a fence.
    pub fn of(key: &str) -> Result<Self, PublishError> {
        let wrong = |why: &str| Err(PublishError::Usage(format!("{key:?} {why}; nothing was changed.")));
        if key.is_empty() {
            return wrong("is not a key");
        }
        if key.starts_with("fencepost:") || (key.starts_with('{') && key.ends_with("}:fencepost")) {
            return wrong("has the form of a fence's own key");
        }
        let fence = if tag(key) == key { format!("{{{key}}}:fencepost") } else { format!("fencepost:{key}") };
        if tag(&fence) != tag(key) {
            return wrong("cannot be fenced, because its braces leave no key beside it: rename it");
        }
        Ok(Self { value: key.to_string(), fence })
    }
}

/// Returns the part of a key by which a cluster places it.
fn tag(key: &str) -> &str {
    let inner = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(inner, _)| inner);
    inner.filter(|inner| !inner.is_empty()).unwrap_or(key)
}

fn connect(server: &RedisDestination) -> Result<RedisConnection, RedisError> {
    server.0.connect(CONNECT_PATIENCE, ANSWER_PATIENCE)
}

fn eval(
    connection: &mut RedisConnection,
    keys: &Keys,
    expected: Option<&[u8]>,
    fence: &[u8],
    value: &[u8],
) -> Result<Option<Option<Vec<u8>>>, RedisError> {
    let expected = expected.map_or_else(Vec::new, |bytes| [b"=", bytes].concat());
    let mut script = redis::cmd("EVAL");
    script.arg(SCRIPT).arg(2).arg(&keys.value).arg(&keys.fence).arg(expected).arg(fence).arg(value);
    Ok(match script.query(connection)? {
        Value::Int(_) => None,
        Value::Nil => Some(None),
        Value::BulkString(seen) => Some(Some(seen)),
        other => {
            return Err(RedisError::from((redis::ErrorKind::UnexpectedReturnType, "the script", format!("{other:?}"))));
        }
    })
}

fn failed(what: &str, server: &RedisDestination, error: &RedisError) -> PublishError {
    let is_shut = error.kind() == redis::ErrorKind::AuthenticationFailed || error.to_string().contains("authenticat");
    let next = match is_shut {
        true => {
            " User and password do not fit. Try them by redis-cli, then put the URL with both into FENCEPOST_REDIS_URL."
        }
        false => "",
    };
    PublishError::Failed(format!("Cannot {what} {} ({}); nothing was changed.{next}", server.shown(), words(error)))
}

/// Describes the error. The system's own text for a timeout is "Resource temporarily unavailable".
fn words(error: &RedisError) -> String {
    if error.is_timeout() { "it did not answer in time".to_string() } else { error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_lives_beside_its_key_and_belongs_to_no_other() {
        let fence = |key: &str| Keys::of(key).map(|keys| keys.fence).ok();
        assert_eq!(fence("report").as_deref(), Some("{report}:fencepost"));
        assert_eq!(fence("{report}").as_deref(), Some("fencepost:{report}"));
        assert_eq!(fence("user:{7}:name").as_deref(), Some("fencepost:user:{7}:name"));
        assert_eq!(fence("a{b").as_deref(), Some("{a{b}:fencepost"));
        for wrong in ["", "a}b", "{}x", "{report}:fencepost", "fencepost:{report}"] {
            assert_eq!(fence(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let server = RedisDestination::parse("rediss://app:s3cret@db:6379/0").unwrap();
        assert_eq!(server.shown(), "rediss://app:***@db:6379/0");
        let wrong = RedisDestination::parse("redis://app:s3cret@db:s3cret/x").unwrap_err();
        assert!(!wrong.to_string().contains("s3cret"), "{wrong}");
    }
}
