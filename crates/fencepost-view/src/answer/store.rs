//! `store …`.

use schemars::JsonSchema;
use serde::Serialize;

use super::AnswerVersion;
use crate::time::LocalTime;
use crate::vocabulary::words;

words! {
    /// Whether a store may be used.
    CheckVerdict {
        Ok = "ok",
        Refused = "refused",
    }
}

words! {
    /// What one check of a store came to.
    CheckResult {
        /// Shown by running it.
        Proved = "proved",
        /// The store or its settings say so.
        Declared = "declared",
        Unknown = "unknown",
        Failed = "failed",
    }
}

/// `store check`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreCheckAnswer {
    pub v: AnswerVersion,
    pub url: String,
    pub verdict: CheckVerdict,
    pub checks: Vec<CheckLine>,
}

/// One check of a store.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckLine {
    pub name: String,
    pub result: CheckResult,
    pub detail: String,
    /// The promises hold no more firmly than this.
    #[serde(skip)]
    pub is_weak: bool,
    /// The promises rest on it: unknown counts against the store.
    #[serde(skip)]
    pub is_decisive: bool,
}

impl StoreCheckAnswer {
    pub fn new(url: String, checks: Vec<CheckLine>) -> Self {
        let is_refused = checks.iter().any(CheckLine::speaks_against);
        let verdict = if is_refused { CheckVerdict::Refused } else { CheckVerdict::Ok };
        Self { v: AnswerVersion, url, verdict, checks }
    }

    pub fn is_ok(&self) -> bool {
        self.verdict == CheckVerdict::Ok
    }

    /// What speaks against the store, in a sentence each.
    pub fn reasons(&self) -> Vec<String> {
        let against = self.checks.iter().filter(|line| line.speaks_against());
        against.map(|line| format!("{}: {}", line.name, line.detail)).collect()
    }
}

impl CheckLine {
    pub fn new(name: impl Into<String>, result: CheckResult, detail: impl Into<String>) -> Self {
        Self { name: name.into(), result, detail: detail.into(), is_weak: false, is_decisive: true }
    }

    fn speaks_against(&self) -> bool {
        self.result == CheckResult::Failed || (self.result == CheckResult::Unknown && self.is_decisive)
    }
}

/// The store in use, as a server that polls it sees it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreStateAnswer {
    pub v: AnswerVersion,
    /// Without its password.
    pub url: String,
    /// Whether it answered the last poll.
    pub available: bool,
    /// Why it did not.
    pub error: Option<String>,
    /// When it last answered a poll.
    pub polled: Option<LocalTime>,
    /// How long that poll took.
    pub latency_ms: Option<u64>,
    /// How far its clock is ahead of this host's; null if it has none.
    pub clock_offset_ms: Option<i64>,
    /// How many jobs it has.
    pub jobs: usize,
    /// What its settings say, which using it cannot prove.
    pub declares: Vec<CheckLine>,
    /// The last `store check` of this host; null if there was none.
    pub last_check: Option<LastStoreCheck>,
}

/// The result of a `store check` that has ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LastStoreCheck {
    pub at: LocalTime,
    pub exit_code: u8,
    pub verdict: CheckVerdict,
    pub checks: Vec<CheckLine>,
}

/// `store use`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreUseAnswer {
    pub v: AnswerVersion,
    pub url: String,
    /// The configuration that names the store now.
    pub config: String,
}

/// `store move`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreMoveAnswer {
    pub v: AnswerVersion,
    pub from: String,
    pub to: String,
    pub jobs: usize,
    /// Everything that is not a job's record.
    pub entries: usize,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// `store export`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreExportAnswer {
    pub v: AnswerVersion,
    pub url: String,
    pub file: String,
    pub entries: usize,
}

/// `store import`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreImportAnswer {
    pub v: AnswerVersion,
    pub url: String,
    pub entries: usize,
    pub store_id: String,
    /// The store has the id of the export, so that fences go on.
    pub kept_id: bool,
}

/// `store accept`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreAcceptAnswer {
    pub v: AnswerVersion,
    pub url: String,
    /// The id that this host knew.
    pub known: Option<String>,
    /// The id that the store has.
    pub found: Option<String>,
}

/// `store recover`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreRecoverAnswer {
    pub v: AnswerVersion,
    pub job: String,
    pub token: u64,
    /// The highest token that a fence was seen with.
    pub above: u64,
}
