//! What a job says of itself while it runs: lines in a private file, which the wrapper commits with its last swap.
//!
//! So `publish` and `record` inside a run need no store and no arguments, and what they said cannot be lost by a script that
//! ignores exit codes.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::contract::Recorded;
use crate::fence::Level;
use crate::format::{FORMAT, Format, decode, encode};
use crate::ledger::{Barred, Consumed};
use crate::time::Wall;
use crate::token::{RunId, Token};

/// The most bytes of the file that are read. Who writes more than that is not talking to us.
pub const SAID_BYTES_MAX: usize = 1 << 20;

/// How many lines that cannot be trusted are spoken of one by one.
const TROUBLES_MAX: usize = 5;

/// A publish, accepted or refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Published {
    pub resource: String,
    /// What sort of target it is: `file`, `git`, `sql` …
    pub kind: String,
    pub level: Level,
    pub token: Token,
    pub run: RunId,
    pub at: Wall,
    /// The highest token the target has accepted, as far as this write learned it.
    pub seen: Token,
    /// Why it was refused, in words; absent if it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Published(Published),
    /// How it ended, in its own word. The last one counts.
    Recorded(Recorded),
    /// What it asked about its upstreams while it ran.
    Gated(Gated),
    /// What the hook of an agent did not let pass. It does not change how the run ends: a write that was refused because
    /// the lease is lost is a refused [`Published`].
    Hooked(HookRefusal),
    /// A publish that was to write content with a certain digest and found another. It fails the run.
    OtherContent(String),
    /// What a rehearsal would have done.
    Rehearsed(Rehearsed),
}

/// A write that a rehearsal did not make.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rehearsed {
    /// What would have been done, in words.
    pub what: String,
    /// The digest of the content, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// How the target would change, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// A tool call or the end of a session that the hook of an agent refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HookRefusal {
    pub kind: HookRefusalKind,
    /// The tool, or the end of the session.
    pub what: String,
    pub reason: String,
    pub at: Wall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookRefusalKind {
    /// A tool that writes, while the run is ending or the store does not answer.
    Refused,
    /// A command with a fenced equivalent, which the agent was told.
    Redirected,
    /// The agent wanted to stop without a report.
    SentBack,
}

/// What a gate inside a run let through, and what it held back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gated {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<Consumed>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<Barred>,
}

#[derive(Serialize, Deserialize)]
struct SaidLine {
    v: Format,
    run: RunId,
    said: Said,
}

/// One line, with its end.
pub fn line(run: RunId, said: Said) -> Vec<u8> {
    let mut bytes = encode(&SaidLine { v: FORMAT, run, said });
    bytes.push(b'\n');
    bytes
}

/// Everything that a run said, and what in the file cannot be trusted: torn lines, and lines of others.
pub fn read(bytes: &[u8], run: RunId) -> (Vec<Said>, Vec<String>) {
    let mut said = Vec::new();
    let mut troubles = Vec::new();
    for (number, text) in bytes.split(|&byte| byte == b'\n').enumerate().filter(|(_, text)| !text.is_empty()) {
        match decode::<SaidLine>(text) {
            Ok(line) if line.run == run => said.push(line.said),
            Ok(line) => troubles.push(format!("line {} is of another run, {}", number + 1, line.run)),
            Err(why) => troubles.push(format!("line {}: {why}", number + 1)),
        }
    }
    let more = troubles.len().saturating_sub(TROUBLES_MAX);
    troubles.truncate(TROUBLES_MAX);
    troubles.extend((more > 0).then(|| format!("and {more} more")));
    (said, troubles)
}
