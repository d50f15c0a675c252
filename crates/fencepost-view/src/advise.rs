//! How long runs take, which terms suit, and why.

use fencepost_core::advice::{Advice, Counts, advise};
use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_core::time::Wall;
use fencepost_store::StoreError;
use fencepost_store::records::{history_and_details, skips};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ErrorDetail};
use crate::archive::Slots;
use crate::unread::{Unread, each_shown_record, sentences};
use crate::{View, ViewError, recorded_schedule};

/// How many slots of the history are read besides the record.
const SLOTS_MAX: usize = 200;

/// `advise`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AdviseAnswer {
    pub v: AnswerVersion,
    pub jobs: Vec<JobAdvice>,
    /// Records that cannot be read, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Records that cannot be read, with their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorDetail>,
}

/// What the runs of one job suggest. If too few ended well, `runs` is null and the rest is absent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobAdvice {
    pub job: String,
    /// How many runs ended well, and were measured.
    pub runs: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_ms: Option<u64>,
    /// The time-to-live that suits a lease that is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_ms: Option<u64>,
    /// The time-to-live that suits a lease that nothing renews.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_without_renewal_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skips_percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halts_percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentences: Option<Vec<String>>,
}

impl JobAdvice {
    fn new(record: &Record, advice: Option<Advice>) -> Self {
        let known = advice.as_ref();
        Self {
            job: record.job.to_string(),
            runs: known.map(|advice| advice.runs),
            median_ms: known.map(|advice| advice.median_ms),
            p95_ms: known.map(|advice| advice.p95_ms),
            worst_ms: known.map(|advice| advice.worst_ms),
            ttl_ms: known.map(|advice| advice.ttl_ms),
            renew_ms: known.map(|advice| advice.renew_ms),
            ttl_without_renewal_ms: known.map(|advice| advice.ttl_without_renewal_ms),
            skips_percent: known.map(|advice| advice.skips_percent),
            halts_percent: known.map(|advice| advice.halts_percent),
            sentences: advice.map(|advice| advice.sentences),
        }
    }
}

impl View<'_> {
    /// Advice for all jobs that have run, or for those that are asked about.
    pub fn advise(&self, asked: Option<&Job>) -> Result<AdviseAnswer, ViewError> {
        let (mut records, mut unread) = (Vec::new(), Unread::default());
        // The keys of a name's jobs, on any host, begin with that of the shared one.
        let prefix =
            asked.map_or(Key::JOBS.to_string(), |asked| Key::job(&Job::shared(asked.name.clone())).to_string());
        each_shown_record(self.store, &prefix, &mut unread, |_, record, _| {
            if asked.is_none_or(|asked| record.job.is_named_by(asked)) {
                records.push(record);
            }
            Ok(())
        })?;
        let of = |record| Ok(JobAdvice::new(record, self.advice(record, &mut unread)?));
        let jobs = records.iter().map(of).collect::<Result<_, StoreError>>()?;
        let errors = unread.into_errors();
        Ok(AdviseAnswer { v: AnswerVersion, jobs, unreadable: sentences(&errors), errors })
    }

    fn advice(&self, record: &Record, unread: &mut Unread) -> Result<Option<Advice>, StoreError> {
        let skipped = unread.noted(&Key::skips(&record.job), skips(self.store, &record.job))?.flatten();
        let halts = record.ledger.counts.get(&Status::Halted).copied().unwrap_or(0);
        let counts = Counts { grants: record.grants, skips: skipped.map_or(0, |skips| skips.overlap), halts };
        let period = recorded_schedule(record).and_then(|schedule| schedule.period_hint(self.now));
        Ok(advise(&self.outcomes(record, unread)?, counts, period))
    }

    /// What the record holds, and the newest of its history.
    fn outcomes(&self, record: &Record, unread: &mut Unread) -> Result<Vec<Outcome>, StoreError> {
        let mut outcomes = record.ledger.ring.clone();
        let oldest = outcomes.iter().map(|outcome| outcome.slot).min().unwrap_or_default();
        let mut slots = Slots::between(self.store, &record.job, Wall(0), oldest, oldest)?;
        for _ in 0..SLOTS_MAX {
            let Some(slot) = slots.next_from(Wall(0))? else { break };
            let found = unread.noted_history(history_and_details(self.store, record, slot))?;
            outcomes.extend(found.unwrap_or_default());
        }
        outcomes.sort_by_key(Outcome::attempt);
        outcomes.dedup_by_key(|outcome| outcome.attempt());
        Ok(outcomes)
    }
}
