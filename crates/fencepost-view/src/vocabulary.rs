//! Words that programs branch on: each list is declared once, and is part of the schema.

use std::borrow::Cow;
use std::marker::PhantomData;

use fencepost_core::barrier::Decision;
use fencepost_core::fence::{Level, Reason, WriteMode};
use fencepost_core::ledger::{EndedBy, Status, Trigger};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

/// Declares an enumeration with the word that each variant serialises as.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Why a command or a run came to nothing, failed, or would. Every `reason` that programs branch on is one of these.
    ReasonCode {
        /// The command line or the configuration is wrong.
        Usage = "usage",
        /// The store failed.
        StoreFailed = "store_failed",
        /// A record cannot be decoded.
        Unreadable = "unreadable",
        /// fencepost failed, or the slot has failed for good.
        Failed = "failed",
        /// Another holder has the lease.
        Held = "held",
        /// The lease is lost.
        Lost = "lost",
        /// The job is paused.
        Paused = "paused",
        /// A run for this slot is going.
        Running = "running",
        /// The slot is done.
        Done = "done",
        /// No slot is due.
        NotDue = "not_due",
        /// The trigger came before its slot.
        Early = "early",
        /// The slot is too old to be caught up.
        TooOld = "too_old",
        /// The barrier says skip.
        Barred = "barred",
        /// The barrier says halt.
        Halted = "halted",
        /// An earlier attempt died between its effect and its record.
        Unknown = "unknown",
        /// The item of work is known with other parameters.
        OtherParameters = "other_parameters",
        /// A declared artifact is missing or untouched.
        NoOutput = "no_output",
        /// A publish was asked to write other content than was rehearsed.
        DigestMismatch = "digest_mismatch",
        /// A fenced write of the run was refused.
        Fenced = "fenced",
        /// The run exceeded its timeout.
        Timeout = "timeout",
        /// The keeper process died.
        KeeperDied = "keeper_died",
        /// The command does not exist.
        NotFound = "not_found",
        /// The command cannot be executed.
        CannotExecute = "cannot_execute",
        /// The job was started from inside its own run.
        Nested = "nested",
        /// The store's state does not allow a grant.
        Refused = "refused",
        /// The run ended, and its end could not be recorded.
        Unrecorded = "unrecorded",
        /// A signal ended fencepost before the command started.
        Interrupted = "interrupted",
        /// The program gave up its claim before it was granted.
        Cancelled = "cancelled",
        /// The lease is free: the run would start.
        Free = "free",
        /// The holder is dead: the run would take over.
        TookOver = "took_over",
        /// The run would ask the holder to stop.
        Replace = "replace",
        /// A newer token has written since.
        Stale = "stale",
        /// The token is good for one write and has made it.
        Spent = "spent",
        /// The token belongs to another run.
        OtherRun = "other_run",
        /// The resource belongs to another store or another job.
        OtherLineage = "other_lineage",
        /// There is nothing to say.
        None = "none",
        /// A word of a later version.
        Other = "other",
    }
}

impl ReasonCode {
    /// Whether the trigger had nothing to do, which is not a failure.
    pub fn is_skip(self) -> bool {
        matches!(self, Self::Held | Self::Running | Self::Done | Self::NotDue | Self::Paused | Self::Barred)
    }

    /// What to do about it in general, for programs. The message beside it may say more.
    pub fn next_step(self) -> Option<&'static str> {
        match self {
            Self::StoreFailed | Self::Unreadable => Some("Check the store: fencepost store check"),
            Self::Lost | Self::Timeout => Some("Stop what you do under this lease, and claim it again."),
            Self::Held => Some("Wait for the lease: wait = \"5m\"."),
            Self::Unknown => Some("Find out whether the effect happened, then retry, or record the item as done."),
            Self::OtherParameters => Some("Use another key for other parameters."),
            Self::Stale | Self::Spent | Self::OtherRun | Self::Fenced => {
                Some("Do not write again: a newer run writes now. Claim the lease again.")
            }
            Self::OtherLineage => Some("If the other job or store is out of use, publish once with adopt."),
            Self::DigestMismatch => Some("Rehearse the job again: fencepost run JOB --rehearse"),
            Self::NoOutput => Some("Write every file that the job declares, or record the outcome empty."),
            Self::Nested => Some("Give the inner job another name."),
            Self::Unrecorded => Some("Look at what is recorded: fencepost runs JOB"),
            Self::TooOld => Some("Claim the slot with again = true."),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for ReasonCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = <Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Self::ALL.iter().copied().find(|reason| reason.as_str() == word).unwrap_or(Self::Other))
    }
}

impl From<Reason> for ReasonCode {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Stale => Self::Stale,
            Reason::Spent => Self::Spent,
            Reason::OtherRun => Self::OtherRun,
            Reason::OtherLineage => Self::OtherLineage,
        }
    }
}

/// Stands in a schema for an enumeration of the core, which knows nothing of schemas.
#[derive(Debug)]
pub(crate) struct WordSchema<T>(PhantomData<T>);

/// An enumeration of the core whose words appear in answers.
pub(crate) trait Vocabulary {
    const NAME: &'static str;
    fn words() -> Vec<&'static str>;
}

macro_rules! vocabulary {
    ($($type:ident: $($variant:ident)*;)*) => {
        $(impl Vocabulary for $type {
            const NAME: &'static str = stringify!($type);
            fn words() -> Vec<&'static str> {
                // A variant that the core adds is missing here until it is listed.
                let listed = |value: $type| match value {
                    $($type::$variant => value.as_str(),)*
                };
                vec![$(listed($type::$variant)),*]
            }
        })*
    };
}

vocabulary! {
    Status: Ok Empty Error Timeout Lost Fenced Halted Missed SkippedOverlap SkippedBarrier SkippedDuplicate SkippedPaused Running;
    Trigger: Schedule CatchUp Manual;
    EndedBy: Child Fencepost;
    Decision: Proceed Skip Halt;
    Level: Atomic Gated;
    WriteMode: Many Once;
}

impl<T: Vocabulary> JsonSchema for WordSchema<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": T::words() })
    }
}

/// How a status is drawn where there is room for one character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusSymbol {
    pub status: Status,
    /// On a terminal that shows Unicode, and on a page.
    pub unicode: char,
    /// In a pipe, and on any other terminal.
    pub ascii: char,
    pub meaning: &'static str,
}

/// The symbols, in the order of the legend.
pub const STATUS_SYMBOLS: [StatusSymbol; 13] = {
    const fn symbol(status: Status, unicode: char, ascii: char, meaning: &'static str) -> StatusSymbol {
        StatusSymbol { status, unicode, ascii, meaning }
    }
    [
        symbol(Status::Ok, '✓', '+', "it produced"),
        symbol(Status::Empty, '∅', '0', "there was nothing to produce"),
        symbol(Status::Error, '✗', 'x', "it failed"),
        symbol(Status::Timeout, '◔', 't', "it ran into its timeout"),
        symbol(Status::Lost, '?', '?', "its lease was lost, or its run died"),
        symbol(Status::Fenced, '⊘', '#', "a stale write of it was refused"),
        symbol(Status::Halted, '‖', '|', "an upstream was not good, and nothing ran"),
        symbol(Status::Missed, '○', 'o', "nothing ran in time"),
        symbol(Status::SkippedOverlap, '»', '>', "a run was still going"),
        symbol(Status::SkippedBarrier, '·', '.', "an upstream had nothing"),
        symbol(Status::SkippedDuplicate, '=', '=', "the slot was done already"),
        symbol(Status::SkippedPaused, '−', '-', "the job was paused"),
        symbol(Status::Running, '…', '~', "it is running"),
    ]
};

impl StatusSymbol {
    pub fn of(status: Status) -> Self {
        let found = STATUS_SYMBOLS.into_iter().find(|symbol| symbol.status == status);
        found.unwrap_or(StatusSymbol { status, unicode: '!', ascii: '!', meaning: "unknown" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_written_as_its_word_and_an_unknown_word_is_read() {
        for reason in ReasonCode::ALL {
            let written = serde_json::to_string(reason).unwrap();
            assert_eq!(written, format!("{:?}", reason.as_str()));
            assert_eq!(serde_json::from_str::<ReasonCode>(&written).unwrap(), *reason);
        }
        assert_eq!(serde_json::from_str::<ReasonCode>("\"of_tomorrow\"").unwrap(), ReasonCode::Other);
    }

    #[test]
    fn each_status_has_a_symbol_of_its_own_in_both_sets() {
        let of_all: Vec<_> = Status::ALL.into_iter().map(StatusSymbol::of).collect();
        let distinct = |of: fn(&StatusSymbol) -> char| of_all.iter().map(of).collect::<std::collections::BTreeSet<_>>();
        assert!(of_all.iter().all(|symbol| symbol.ascii.is_ascii_graphic() && symbol.meaning != "unknown"));
        assert_eq!(distinct(|symbol| symbol.unicode).len(), Status::ALL.len());
        assert_eq!(distinct(|symbol| symbol.ascii).len(), Status::ALL.len());
    }
}
