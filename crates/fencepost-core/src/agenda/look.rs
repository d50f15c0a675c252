//! Whether a run started now would find something due, by the code of the claim.

use core::time::Duration;

use super::Look;
use crate::lease::{Claim, Context, Refusal, Rules, Standing, slot_clock};
use crate::ledger::Status;
use crate::record::Record;
use crate::slot::{Choice, NotNow};

/// The result of a look at a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookResult {
    pub look: Look,
    /// The time until the next slot, by the clock that judges slots.
    pub next_in: Option<Duration>,
    /// The record must be updated although nothing runs.
    pub accounts: bool,
}

pub fn look<R: Rules>(claim: &Claim, record: Option<&Record>, context: &Context<'_>) -> LookResult {
    let (look, accounts) = judge::<R>(claim, record, context);
    LookResult { look, next_in: next_in(claim, context), accounts }
}

fn judge<R: Rules>(claim: &Claim, record: Option<&Record>, context: &Context<'_>) -> (Look, bool) {
    match claim.choose::<R>(record, context) {
        Ok(chosen) => (Look::Due(chosen.slot), false),
        Err(Refusal::Held { .. } | Refusal::NotNow { why: NotNow::Duplicate { state: Status::Running, .. }, .. }) => {
            (Look::Busy { remaining: record.map_or(claim.ttl, |record| remaining::<R>(record, claim, context)) }, false)
        }
        Err(Refusal::NotNow { why: NotNow::Failed { exit_code, .. }, account }) => {
            (Look::Failed { exit_code }, account)
        }
        Err(refusal) => (Look::Nothing, refusal.accounts()),
    }
}

/// How long the lease lasts at least. Without a store clock: one whole time-to-live.
fn remaining<R: Rules>(record: &Record, claim: &Claim, context: &Context<'_>) -> Duration {
    let ttl = record.lease.as_ref().map_or(claim.ttl, |lease| lease.ttl);
    match R::standing(record, context.reference.map(|reference| &reference.clock), context.facts, context.now.boot) {
        Standing::Held { remaining: Some(remaining) } => remaining,
        _ => ttl + ttl / 10,
    }
}

fn next_in(claim: &Claim, context: &Context<'_>) -> Option<Duration> {
    let Choice::Due(scheduled) = &claim.slot else { return None };
    let now = slot_clock(context);
    scheduled.schedule.after(now).map(|next| next.since(now))
}
