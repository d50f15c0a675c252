//! Fenced writes: the token is checked where the write lands, in the same step as the write.
//!
//! One rule, [`fencepost_core::fence::judge`], and one write, [`publish`], serve all targets. Each implements [`WriteTarget`]:
//! how it remembers the fence, and how it makes check and write one step.

pub mod digest;
pub mod exec;
mod fence_file;
pub mod file;
pub(crate) mod folder;
pub mod git;
#[cfg(feature = "http")]
pub mod http;
mod lock;
#[cfg(any(feature = "http", feature = "s3"))]
pub mod payload;
mod place;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(feature = "sql")]
pub mod sql;
mod target;
pub mod tree;
mod walk;

pub use target::{Remembered, WriteTarget, Written, is_damaged, publish};

use fencepost_core::fence::{Fence, Level, Refused, Write, WriteMode};
use fencepost_core::name::Job;
use fencepost_core::token::{RunId, StoreId, Token};
use thiserror::Error;

use crate::clock;

/// The writer: a run that holds, or held, a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    pub store: StoreId,
    pub job: Job,
    pub token: Token,
    pub run: RunId,
    pub host: String,
}

/// The parameters of every fenced write.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    pub writer: Writer,
    pub mode: WriteMode,
    /// The operation's name, by which a repetition is recognised.
    pub op: Option<String>,
    /// Take the resource over from another store or job.
    pub adopt: bool,
    /// Report whether the write would be accepted, and change nothing.
    pub dry_run: bool,
    /// Write only content with this digest.
    pub if_digest: Option<String>,
}

impl WriteRequest {
    /// Refuses content that is not what was asked for.
    pub fn check(&self, digest: &str) -> Result<(), PublishError> {
        match &self.if_digest {
            Some(wanted) if wanted != digest => {
                Err(PublishError::OtherContent { wanted: wanted.clone(), digest: digest.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Makes the write of a payload with this digest. `replaces` says that writing it again changes nothing.
    pub fn write(&self, digest: String, replaces: bool) -> Write {
        let Writer { store, job, token, run, host } = self.writer.clone();
        Write {
            store,
            job,
            token,
            run,
            digest,
            op: self.op.clone(),
            mode: self.mode,
            replaces,
            adopt: self.adopt,
            at: clock::wall_now(),
            host,
        }
    }
}

/// The result of a write that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub level: Level,
    /// The target's fence after the write; in a dry run, the one it would have.
    pub fence: Fence,
    pub already_applied: bool,
    /// Further remarks for the user.
    pub remarks: Vec<String>,
}

/// Why nothing was written, or why that is unknown.
#[derive(Debug, Error)]
pub enum PublishError {
    /// The fence refused the write. Nothing was changed.
    #[error("{refused}")]
    Refused { refused: Refused, level: Level },
    /// The content is not what was asked for. Nothing was changed.
    #[error("the content has the digest {digest}, and only {wanted} may be written")]
    OtherContent { wanted: String, digest: String },
    /// The request is wrong. Nothing was changed.
    #[error("{0}")]
    Usage(String),
    /// The write failed; the sentence says whether it may have happened all the same, and the next step.
    #[error("{0}")]
    Failed(String),
}
