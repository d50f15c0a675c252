//! Leases by hand.

use std::time::Duration;

use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::time::{Wall, millis};
use schemars::JsonSchema;
use serde::Serialize;

use super::AnswerVersion;
use crate::time::UtcTime;
use crate::vocabulary::words;

/// `lease acquire`, `renew`, `release` and `show`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LeaseAnswer {
    pub v: AnswerVersion,
    pub job: String,
    /// The highest token ever granted; null if the job was never held.
    pub token: Option<u64>,
    /// How many times the lease was granted.
    pub grants: u64,
    /// The holder's run; null if the lease is free.
    pub run: Option<String>,
    pub until: Option<UtcTime>,
    /// How long the holder may rely on the lease.
    pub remaining_ms: Option<u64>,
    pub held: bool,
}

impl LeaseAnswer {
    pub fn new(record: &Record, remaining: Option<Duration>, now: Wall) -> Self {
        let held = record.lease.is_some() && remaining != Some(Duration::ZERO);
        let remaining = remaining.filter(|_| held);
        Self {
            v: AnswerVersion,
            job: record.job.to_string(),
            token: Some(record.token.number()),
            grants: record.grants,
            run: record.lease.as_ref().filter(|_| held).map(|lease| lease.run.to_string()),
            until: remaining.map(|left| UtcTime(now + left)),
            remaining_ms: remaining.map(millis),
            held,
        }
    }

    /// A job that has no record.
    pub fn never_held(job: &Job) -> Self {
        let job = job.to_string();
        Self { v: AnswerVersion, job, token: None, grants: 0, run: None, until: None, remaining_ms: None, held: false }
    }
}

words! {
    /// What happened to a lease that `lease hold` keeps.
    HoldEvent {
        Held = "held",
        Renewed = "renewed",
        RenewalFailed = "renewal_failed",
        Released = "released",
        Lost = "lost",
    }
}

/// One line of `lease hold`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HoldLine {
    pub v: AnswerVersion,
    pub event: HoldEvent,
    pub at: UtcTime,
    pub job: String,
    pub token: Option<u64>,
    pub grants: Option<u64>,
    pub run: String,
    pub until: Option<UtcTime>,
    /// How long the holder may rely on the lease.
    pub remaining_ms: Option<u64>,
    pub held: bool,
    /// With `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// With `renewed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewals: Option<u64>,
    /// With `renewal_failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// With `released`, where it is null, and with `lost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Option<String>>,
}
