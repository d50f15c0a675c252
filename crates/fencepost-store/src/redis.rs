//! Redis: one script per call, sent whole each time: a call is one round trip, and nothing has to be installed.
//!
//! Every key begins with the same tag, `{fencepost}`: in a cluster all of them are on one node, which lets one script
//! keep the entries and their sorted index together. No key ever expires.

mod connection;
mod failure;
mod server;

pub use connection::RedisConnection;
pub use server::RedisServer;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::declared::{Declaring, Property};
use crate::pool::Pool;
use crate::transport::refused;
use crate::{
    Answer, Entry, Era, Fate, Key, OpenError, SCAN_KEYS_MAX, Secret, Store, StoreClock, StoreError, Swapped,
    VALUE_BYTES_MAX, Version, Wall, fresh_version, refuse_unsound,
};
use failure::RedisFailure;

/// The time limit for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit for an answer. A call therefore ends after 15 s at most.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Waiting for a connection is done in steps: a process that is stopped (ctrl-Z) loses one step, not the whole wait.
const CONNECT_STEP: Duration = Duration::from_millis(100);

/// More bytes than the longest version or key has.
const NAME_BYTES_MAX: usize = 1024;

const LAYOUT: &str = "fencepost store, layout 1";

const LAYOUT_KEY: &str = "{fencepost}:layout";
const INDEX_KEY: &str = "{fencepost}:keys";
const ENTRY_PREFIX: &str = "{fencepost}:entry:";
/// A key that never exists.
const NOTHING_KEY: &str = "{fencepost}:nothing";

/// The beginning of every script: it refuses a replica, also a writable one, and data of another layout.
const PRELUDE: &str = "
local layout_key, index, nothing, entry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local info = redis.pcall('INFO', 'replication')
if type(info) == 'string' and string.find(info, 'role:slave', 1, true) then return {'replica'} end
local layout = redis.call('GET', layout_key)
if layout and layout ~= ARGV[1] then return {'layout', layout} end
if not layout and redis.call('EXISTS', index) == 1 then return {'layout', ''} end
local time = redis.call('TIME')
";

/// The server has evicted an entry that the index lists and that is missing: it must not count as one that never
/// existed. An entry longer than fencepost writes is not sent.
const FIND: &str = "
local found = redis.call('HMGET', entry, 'version', 'value')
if not found[1] and redis.call('ZSCORE', index, ARGV[2]) then return {'evicted'} end
if #(found[1] or '') > NAME_BYTES_MAX or #(found[2] or '') > VALUE_BYTES_MAX then return {'oversized', ARGV[2]} end
";

/// Run by every script that would otherwise change nothing. Removing a missing key changes nothing, but a replica
/// refuses it, also to users who may not call `INFO`. A script that goes on to write must not run it: after a first
/// write the server no longer checks its memory limit.
const WRITABLE: &str = "
redis.call('DEL', nothing)
";

const READ: &str = "return {'state', time[1], time[2], found[1], found[2]}";

/// The script does everything that can fail before it changes anything.
const SWAP: &str = "
if (found[1] and '=' .. found[1] or '') ~= ARGV[3] then
  redis.call('DEL', nothing)
  return {'state', time[1], time[2], found[1], found[2]}
end
if ARGV[4] ~= '' then
  redis.call('SET', layout_key, ARGV[1])
  redis.call('ZADD', index, 0, ARGV[2])
  redis.call('HSET', entry, 'version', ARGV[4], 'value', ARGV[5])
elseif found[1] then
  redis.call('DEL', entry)
  redis.call('ZREM', index, ARGV[2])
end
return {'won', time[1], time[2]}
";

const SCAN: &str = "
local keys = redis.call('ZRANGEBYLEX', index, ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
for _, key in ipairs(keys) do
  if #key > NAME_BYTES_MAX then return {'oversized', string.sub(key, 1, 40)} end
end
return {'keys', time[1], time[2], keys}
";

/// The keys of a Redis server that any number of machines reach.
#[expect(missing_debug_implementations, reason = "a connection shows nothing worth seeing")]
pub struct RedisStore {
    server: RedisServer,
    idle: Pool<RedisConnection>,
}

impl RedisStore {
    /// Parses the URL. Sends nothing before the first call.
    pub fn open(url: &str, password: Option<&Secret>) -> Result<Self, OpenError> {
        let server = RedisServer::parse(url, password)
            .map_err(|text| OpenError::Usage(format!("The URL of the store: {text}")))?;
        server.must_be_private().map_err(refused)?;
        Ok(Self { server, idle: Pool::new() })
    }

    /// Sends one command, once.
    fn send(&self, command: &redis::Cmd) -> Result<Value, RedisFailure> {
        let (mut connection, idle) = match self.idle.take() {
            Some(connection) => (connection, true),
            None => (self.connect()?, false),
        };
        match command.query(&mut connection) {
            Ok(value) => {
                self.idle.give_back(connection);
                Ok(value)
            }
            Err(error) if error.code().is_some() => {
                // The server answered, so the connection can be used again.
                self.idle.give_back(connection);
                Err(RedisFailure::Said(error))
            }
            Err(error) => Err(RedisFailure::Lost { idle: idle && !error.is_timeout(), error }),
        }
    }

    /// Connects in a thread with a time limit: name lookup has none of its own, and each address is tried for the whole
    /// time.
    fn connect(&self) -> Result<RedisConnection, RedisFailure> {
        let (sender, receiver) = channel();
        let server = self.server.clone();
        thread::spawn(move || {
            // An error means that the receiver has given up.
            let _ = sender.send(server.connect(CONNECT_PATIENCE, ANSWER_PATIENCE));
        });
        let steps = CONNECT_PATIENCE.as_millis() / CONNECT_STEP.as_millis();
        for _ in 0..steps {
            match receiver.recv_timeout(CONNECT_STEP) {
                Ok(connected) => return connected.map_err(RedisFailure::Connect),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(RedisFailure::Unreachable)
    }

    /// Sends a command that changes nothing. It is sent again where an idle connection turned out to be dead.
    fn look(&self, command: &redis::Cmd) -> Result<Value, RedisFailure> {
        match self.send(command) {
            Err(RedisFailure::Lost { idle: true, .. }) => self.send(command),
            answer => answer,
        }
    }

    /// Parses the reply of a script, if the server is fit to hold leases. An answer that no script gives leaves the
    /// result of the call open: that is the fate `otherwise`.
    fn checked(&self, answer: Value, otherwise: Fate) -> Result<ScriptReply, StoreError> {
        let garbled = || StoreError { fate: otherwise, ..self.foreign("its answer was not understood") };
        let Value::Array(parts) = answer else { return Err(garbled()) };
        let mut parts = parts.into_iter();
        let word = parts.next().and_then(text).unwrap_or_default();
        if ["replica", "layout", "evicted", "oversized"].contains(&word.as_str()) {
            return Err(self.unfit(&word, &parts.next().and_then(text).unwrap_or_default()));
        }
        let mut number = || parts.next().and_then(text)?.parse::<i64>().ok();
        let (Some(seconds), Some(micros)) = (number(), number()) else { return Err(garbled()) };
        let millis = seconds.saturating_mul(1000).saturating_add(micros / 1000);
        let tick = u64::try_from(millis).unwrap_or_default();
        let clock = StoreClock { wall: Wall(millis), era: Era("unix".to_string()), tick };
        Ok(ScriptReply { word, clock, rest: parts.collect() })
    }
}

impl Store for RedisStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        let mut command = script(&[PRELUDE, FIND, WRITABLE, READ], Some(key));
        command.arg(key.as_str());
        let said = self.checked(self.look(&command).map_err(|failure| failure.of_read(self))?, Fate::NotDone)?;
        Ok(Answer::new(entry(said.rest), Some(said.clock)))
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        refuse_unsound(key, new)?;
        let version = new.map(|_| fresh_version()).transpose()?;
        let expected = expected.map_or_else(Vec::new, |version| [b"=", version.0.as_slice()].concat());
        let mut command = script(&[PRELUDE, FIND, SWAP], Some(key));
        command.arg(key.as_str()).arg(expected);
        command.arg(version.as_ref().map_or(&[][..], |version| &version.0)).arg(new.unwrap_or_default());
        let said = self.checked(self.send(&command).map_err(|failure| failure.of_swap(self))?, Fate::Unknown)?;
        let value = if said.word == "won" { Swapped::Won(version) } else { Swapped::Lost(entry(said.rest)) };
        Ok(Answer::new(value, Some(said.clock)))
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        let least = match after {
            Some(after) if after.as_str() >= prefix => format!("({after}"),
            _ => format!("[{prefix}"),
        };
        let mut command = script(&[PRELUDE, WRITABLE, SCAN], None);
        // Keys are ASCII, so the greatest byte bounds the keys with a prefix from above.
        command.arg(least).arg([b"(", prefix.as_bytes(), b"\xff"].concat()).arg(limit.min(SCAN_KEYS_MAX));
        let said = self.checked(self.look(&command).map_err(|failure| failure.of_read(self))?, Fate::NotDone)?;
        let texts = said.rest.into_iter().next().and_then(|keys| Vec::<String>::from_redis_value(keys).ok());
        let texts = texts.ok_or_else(|| self.foreign("its answer was not understood"))?;
        let sound =
            |text: &String| Key::from_stored(text).ok_or_else(|| self.foreign(&format!("it holds the key {text:?}")));
        Ok(Answer::new(texts.iter().map(sound).collect::<Result<_, _>>()?, Some(said.clock)))
    }
}

impl Declaring for RedisStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        let facts = self.look(&redis::cmd("INFO")).ok().and_then(text);
        let setting = |name: &str| -> Option<String> {
            let answer = self.look(redis::cmd("CONFIG").arg("GET").arg(name)).ok()?;
            Vec::<String>::from_redis_value(answer).ok()?.into_iter().nth(1)
        };
        // A server that cannot be reached is an error; a server that denies the query leaves its properties unknown.
        self.scan("", None, 0)?;
        let (log, flush) = (setting("appendonly"), setting("appendfsync"));
        let mut declared = failure::judged(facts.as_deref(), log.as_deref(), flush.as_deref());
        declared.push(self.server.transport().declared());
        Ok(declared)
    }
}

/// The reply of a script.
struct ScriptReply {
    word: String,
    clock: StoreClock,
    rest: Vec<Value>,
}

fn script(parts: &[&str], key: Option<&Key>) -> redis::Cmd {
    let mut command = redis::cmd("EVAL");
    let entry = format!("{ENTRY_PREFIX}{}", key.map_or("", Key::as_str));
    let text = parts
        .concat()
        .replace("VALUE_BYTES_MAX", &VALUE_BYTES_MAX.to_string())
        .replace("NAME_BYTES_MAX", &NAME_BYTES_MAX.to_string());
    command.arg(text).arg(4).arg(LAYOUT_KEY).arg(INDEX_KEY).arg(NOTHING_KEY).arg(entry).arg(LAYOUT);
    command
}

fn entry(parts: Vec<Value>) -> Option<Entry> {
    let mut parts = parts.into_iter().map(|part| match part {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    let (version, bytes) = (parts.next()??, parts.next()??);
    Some(Entry { bytes, version: Version(version) })
}

fn text(value: Value) -> Option<String> {
    String::from_redis_value(value).ok()
}
