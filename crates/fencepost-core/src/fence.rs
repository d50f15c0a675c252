//! The rule that a target checks in the same step as the write: nothing stale lands.
//!
//! A target remembers the fence of the last write it accepted. It asks [`judge`] before the next one, inside what
//! makes check and write one step there: a file lock, a transaction, a compare-and-swap.

use alloc::string::{String, ToString};
use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::format::{OLDEST, Unknown, Unreadable, decode_up_to, encode};
use crate::name::Job;
use crate::spelling::Spelled;
use crate::time::Wall;
use crate::token::{RunId, StoreId, Token};

/// The format of a fence, numbered apart from the records: it stays where it was written, in files and databases that
/// other versions write too, and its fields have not changed since the first version.
pub const FENCE_FORMAT: u32 = OLDEST.number();

/// What a target remembers of the last write it accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence {
    pub v: u32,
    /// The lineage: tokens of another store or another job are not comparable with this one.
    pub store: StoreId,
    pub job: Job,
    pub token: Token,
    /// Counts the writes under one token, from 1. The target assigns it.
    pub seq: u64,
    pub run: RunId,
    /// What was written, as `sha256:` and hexadecimal digits.
    pub digest: String,
    /// The name of the operation, where the writer gave it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// For people only.
    pub at: Wall,
    pub host: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Fence {
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        encode(self)
    }

    /// Reads a fence back, strictly. What cannot be read is never taken for "no fence".
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let fence: Self = decode_up_to(OLDEST, bytes)?;
        if fence.seq == 0 || !fence.digest.starts_with("sha256:") {
            return Err(Unreadable::Damaged("its numbers make no sense".to_string()));
        }
        Ok(fence)
    }
}

/// How often one token may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// A holder may write again and again: only a lower token is refused.
    #[default]
    Many,
    /// A token is the right to write one time: a lower or an equal one is refused.
    Once,
}

impl WriteMode {
    pub fn as_str(self) -> &'static str {
        self.word()
    }
}

/// How sure a target's check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Check and write are one step at the target.
    Atomic,
    /// The check is made just before the write, and something can come between.
    Gated,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::Gated => "gated",
        }
    }
}

/// A write that a run asks a target to accept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub store: StoreId,
    pub job: Job,
    pub token: Token,
    pub run: RunId,
    pub digest: String,
    pub op: Option<String>,
    pub mode: WriteMode,
    /// Whether writing the same bytes again is no change at all. It is for a file; it is not for `x = x + 1`.
    pub replaces: bool,
    /// Take the resource over from another store or job, as a person decided by hand.
    pub adopt: bool,
    pub at: Wall,
    pub host: String,
}

/// What comes of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FenceVerdict {
    /// Write, and remember this fence with it.
    Accept(Fence),
    /// This very write was accepted before. The target makes sure that it also arrived.
    AlreadyApplied(Fence),
}

/// Why a write is refused. Each knows the fence it ran into.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub struct Refused {
    pub reason: Reason,
    pub seen: alloc::boxed::Box<Fence>,
    pub token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A newer token has written since.
    Stale,
    /// The token has been used, and is good for one write.
    Spent,
    /// The same token under another run: one of them is not what it thinks it is.
    OtherRun,
    /// The resource belongs to another store or another job.
    OtherLineage,
}

impl Reason {
    /// The word programs branch on.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Spent => "spent",
            Self::OtherRun => "other_run",
            Self::OtherLineage => "other_lineage",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, seen, token } = self;
        match reason {
            Reason::Stale => write!(
                f,
                "token {token} is stale: token {} of run {} on {} has written since",
                seen.token, seen.run, seen.host
            ),
            Reason::Spent => write!(f, "token {token} has been used by run {}, and is good for one write", seen.run),
            Reason::OtherRun => write!(
                f,
                "token {token} has written here as run {} on {}, and this write does not come from that run: it is made \
                 by another one, or by hand after that run released its lease. Acquire a new lease for it",
                seen.run, seen.host
            ),
            Reason::OtherLineage => write!(
                f,
                "it was last written by the job {} of store {} (token {}), whose tokens are not comparable with ours. \
                 If that is over, adopt it by hand: --adopt",
                seen.job, seen.store, seen.token
            ),
        }
    }
}

/// The rules of the fence. The methods are the shipped code; the model replaces one at a time by a known bug.
pub trait FenceRules {
    /// Equal is not stale: one holder may write again and again.
    fn is_stale(seen: Token, token: Token) -> bool {
        token < seen
    }

    /// In mode *once* an equal token has had its turn.
    fn is_spent(mode: WriteMode, seen: Token, token: Token) -> bool {
        mode == WriteMode::Once && token <= seen
    }
}

/// The rules as shipped.
#[derive(Clone, Copy, Debug)]
pub struct StrictFence;

impl FenceRules for StrictFence {}

/// Decides whether a write may land on a target that remembers `seen`.
pub fn judge<R: FenceRules>(seen: Option<&Fence>, write: &Write) -> Result<FenceVerdict, Refused> {
    let Some(seen) = seen else { return Ok(FenceVerdict::Accept(write.fence(1))) };
    let refuse = |reason| Refused { reason, seen: alloc::boxed::Box::new(seen.clone()), token: write.token };
    if (seen.store, &seen.job) != (write.store, &write.job) {
        return if write.adopt { Ok(FenceVerdict::Accept(write.fence(1))) } else { Err(refuse(Reason::OtherLineage)) };
    }
    if R::is_stale(seen.token, write.token) {
        return Err(refuse(Reason::Stale));
    }
    if seen.token == write.token && seen.run != write.run {
        return Err(refuse(Reason::OtherRun));
    }
    if write.is_repeated_in(seen) {
        return Ok(FenceVerdict::AlreadyApplied(seen.clone()));
    }
    if R::is_spent(write.mode, seen.token, write.token) {
        return Err(refuse(Reason::Spent));
    }
    let seq = if seen.token == write.token { seen.seq + 1 } else { 1 };
    Ok(FenceVerdict::Accept(Fence { unknown: seen.unknown.clone(), ..write.fence(seq) }))
}

impl Write {
    /// Whether the fence was left by this very write. A second identical `x = x + 1` is meant, unless the writer says
    /// by the mode or by the operation's name that it is the same one.
    fn is_repeated_in(&self, seen: &Fence) -> bool {
        let same = (seen.token, seen.run, &seen.digest, &seen.op) == (self.token, self.run, &self.digest, &self.op);
        same && (self.replaces || self.mode == WriteMode::Once || self.op.is_some())
    }

    fn fence(&self, seq: u64) -> Fence {
        Fence {
            v: FENCE_FORMAT,
            store: self.store,
            job: self.job.clone(),
            token: self.token,
            seq,
            run: self.run,
            digest: self.digest.clone(),
            op: self.op.clone(),
            at: self.at,
            host: self.host.clone(),
            unknown: Unknown::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use uuid::Uuid;

    fn write(token: u64, digest: &str) -> Write {
        Write {
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(token).unwrap(),
            run: RunId(Uuid::from_u128(u128::from(token))),
            digest: alloc::format!("sha256:{digest}"),
            op: None,
            mode: WriteMode::Many,
            replaces: true,
            adopt: false,
            at: Wall(0),
            host: "h".to_string(),
        }
    }

    fn accepted(seen: Option<&Fence>, write: &Write) -> Fence {
        match judge::<StrictFence>(seen, write) {
            Ok(FenceVerdict::Accept(fence)) => fence,
            other => panic!("{other:?}"),
        }
    }

    fn reason(seen: &Fence, write: &Write) -> Reason {
        judge::<StrictFence>(Some(seen), write).unwrap_err().reason
    }

    #[test]
    fn a_lower_token_is_refused_in_both_modes_and_an_equal_one_only_in_once() {
        let seen = accepted(None, &write(5, "a"));
        for mode in [WriteMode::Many, WriteMode::Once] {
            assert_eq!(reason(&seen, &Write { mode, ..write(4, "b") }), Reason::Stale);
            assert_eq!(accepted(Some(&seen), &Write { mode, ..write(6, "b") }).seq, 1);
        }
        assert_eq!(accepted(Some(&seen), &write(5, "b")).seq, 2);
        assert_eq!(reason(&seen, &Write { mode: WriteMode::Once, ..write(5, "b") }), Reason::Spent);
    }

    #[test]
    fn the_identical_write_is_already_applied_where_that_is_what_was_meant() {
        let seen = accepted(None, &write(5, "a"));
        let again =
            |write: Write| matches!(judge::<StrictFence>(Some(&seen), &write), Ok(FenceVerdict::AlreadyApplied(_)));
        assert!(again(write(5, "a")));
        assert!(!again(Write { replaces: false, ..write(5, "a") }), "x = x + 1 is meant twice");
        assert!(again(Write { replaces: false, mode: WriteMode::Once, ..write(5, "a") }));
        let named = Write { replaces: false, op: Some("charge-7".to_string()), ..write(5, "a") };
        let seen = accepted(None, &named);
        assert!(matches!(judge::<StrictFence>(Some(&seen), &named), Ok(FenceVerdict::AlreadyApplied(_))));
        assert!(matches!(
            judge::<StrictFence>(Some(&seen), &Write { op: Some("charge-8".to_string()), ..named }),
            Ok(FenceVerdict::Accept(_))
        ));
    }

    #[test]
    fn one_token_under_two_runs_is_refused() {
        let seen = accepted(None, &write(5, "a"));
        let other = Write { run: RunId(Uuid::from_u128(99)), ..write(5, "a") };
        assert_eq!(reason(&seen, &other), Reason::OtherRun);
    }

    #[test]
    fn another_lineage_is_refused_until_it_is_adopted_by_hand() {
        let seen = accepted(None, &write(5, "a"));
        let other_store = Write { store: StoreId(Uuid::from_u128(2)), ..write(9, "b") };
        let other_job = Write { job: Job::shared(Name::new("other").unwrap()), ..write(9, "b") };
        for other in [other_store, other_job] {
            assert_eq!(reason(&seen, &other), Reason::OtherLineage);
            assert_eq!(accepted(Some(&seen), &Write { adopt: true, ..other }).seq, 1);
        }
    }

    #[test]
    fn a_fence_is_read_back_strictly() {
        let fence = accepted(None, &write(5, "a"));
        let bytes = fence.encode();
        assert_eq!(Fence::decode(&bytes), Ok(fence));
        for end in 0..bytes.len() {
            assert!(Fence::decode(&bytes[..end]).is_err(), "torn at {end}");
        }
        assert!(Fence::decode(b"0").is_err());
        assert!(Fence::decode(b"{\"v\":2}").is_err());
    }
}
