//! The barrier's answer: whether upstreams let a job through, and why.

use fencepost_core::barrier::{Decision, StrictBarrier, UpstreamVerdict, together};
use fencepost_core::ledger::Status;
use fencepost_core::nearest::nearest;
use fencepost_core::zone::Zone;
use fencepost_store::Store;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::AnswerVersion;
use crate::time::LocalTime;
use crate::unread::job_names;
use crate::vocabulary::WordSchema;

/// `gate`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateAnswer {
    pub v: AnswerVersion,
    #[schemars(with = "WordSchema<Decision>")]
    pub decision: Decision,
    /// The reasons of the upstreams that decided.
    pub reason: String,
    pub upstreams: Vec<GateUpstream>,
}

/// What one upstream says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateUpstream {
    pub job: String,
    pub slot: Option<LocalTime>,
    #[schemars(with = "Option<WordSchema<Status>>")]
    pub status: Option<Status>,
    #[schemars(with = "WordSchema<Decision>")]
    pub decision: Decision,
    pub reason: String,
}

impl GateAnswer {
    pub fn new(verdicts: &[UpstreamVerdict], zone: &Zone) -> Self {
        let decision = together::<StrictBarrier>(verdicts);
        let deciding = verdicts.iter().filter(|verdict| verdict.decision == decision);
        let upstreams = verdicts.iter().map(|verdict| GateUpstream {
            job: verdict.job.to_string(),
            slot: verdict.slot.map(|slot| LocalTime::new(slot, zone)),
            status: verdict.status,
            decision: verdict.decision,
            reason: verdict.reason.clone(),
        });
        Self {
            v: AnswerVersion,
            decision,
            reason: deciding.map(|verdict| verdict.reason.as_str()).collect::<Vec<_>>().join(" "),
            upstreams: upstreams.collect(),
        }
    }
}

/// Adds the nearest name to the reason of an upstream that never ran: its name may be misspelt.
pub fn with_near_names(verdicts: &mut [UpstreamVerdict], store: &dyn Store) {
    let unknown = |verdict: &&mut UpstreamVerdict| verdict.slot.is_none() && verdict.status.is_none();
    for verdict in verdicts.iter_mut().filter(unknown) {
        let name = verdict.job.to_string();
        if let Ok(known) = job_names(store)
            && !known.contains(&name)
            && let Some(near) = nearest(&name, known.iter().map(String::as_str))
        {
            verdict.reason = format!("{} Is it {near:?}?", verdict.reason);
        }
    }
}
