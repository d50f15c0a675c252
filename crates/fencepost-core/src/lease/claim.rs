//! The claim: chooses a slot, grants a token and takes the lease, in one decision.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::fenced;
use super::outcome::{end_run, lost, write_down};
use super::{Context, Refusal, Rules, Ruling, Standing, known_or_first, slot_clock, trusted_date, written};
use crate::ledger::{Covered, EndedBy, Ending, Outcome, Status, Trigger};
use crate::record::{Holder, Lease, Paused, Record};
use crate::slot::{self, Choice, Chosen, Named, NotNow, Timing};
use crate::time::Wall;
use crate::token::RunId;

/// What a new lease is for and who takes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub run: RunId,
    pub ttl: Duration,
    pub holder: Holder,
    pub slot: Choice,
    pub zone: String,
    /// What started it, where no schedule says so.
    pub trigger: Trigger,
}

impl Claim {
    pub(super) fn decide<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Ruling, Refusal> {
        if record.and_then(|record| record.lease.as_ref()).is_some_and(|lease| lease.run == self.run) {
            return Ok(Ruling::AlreadyDone);
        }
        let chosen = self.choose::<R>(record, context)?;
        let (mut next, mut whole) = self.grant::<R>(record, context)?;
        if let Some(missed) = chosen.missed {
            whole.extend(self.write_missed::<R>(&mut next, missed, context.now.wall));
        }
        next.timing = chosen.timing.clone().or(next.timing);
        if let Choice::Once { params, .. } = &self.slot {
            next.params = next.params.or(*params);
        }
        if let Some(fence) = chosen.fence.clone() {
            next.advance_fence(fence);
            whole.clear();
        }
        next.lease = Some(self.lease::<R>(chosen, context));
        Ok(written(next, whole, context))
    }

    /// The slot to run. A run that is at the very same slot makes this one a duplicate; at another, an overlap.
    pub fn choose<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Chosen, Refusal> {
        let now = slot_clock(context);
        let resumed = record.map(|record| record.as_of(now));
        let record = resumed.as_deref();
        let standing = record.map_or(Standing::Free, |record| self.standing::<R>(record, context));
        if let Some(Paused { since, until, by, note, .. }) = record.and_then(|record| record.paused.clone()) {
            return Err(Refusal::NotNow { why: NotNow::Paused { since, until, by, note }, account: false });
        }
        if let Choice::Fenced(write) = &self.slot {
            return fenced::choose::<R>(write, record, &standing);
        }
        if let Some(why) = self.slot.early::<R>(record, now) {
            return Err(Refusal::NotNow { why, account: false });
        }
        if let (Standing::Held { remaining }, Some(record)) = (&standing, record) {
            let held = record.lease.as_ref().filter(|lease| lease.holder.is_run()).map(|lease| lease.slot);
            return match (held, self.slot.current::<R>(record, now)) {
                (Some(slot), Some(current)) if slot == current => {
                    let why = NotNow::Duplicate { slot, state: Status::Running, exit_code: None };
                    Err(Refusal::NotNow { why, account: false })
                }
                _ => Err(Refusal::Held { record: Box::new(record.clone()), remaining: *remaining }),
            };
        }
        let over = standing.for_slots();
        self.slot.choose::<R>(record, over, now).map_err(|why| {
            let account = self.slot.accounts::<R>(record, over, now);
            Refusal::NotNow { why, account }
        })
    }

    /// Writes down that the schedule was seen, and what of it will never run.
    pub(super) fn account<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Ruling, Refusal> {
        match self.choose::<R>(record, context) {
            Err(Refusal::NotNow { account: true, .. }) => {
                let mut next = known_or_first(record, context);
                let (timing, plan) = match &self.slot {
                    Choice::Due(due) => {
                        let standing = record.map_or(Standing::Free, |record| self.standing::<R>(record, context));
                        due.plan::<R>(record, standing.for_slots(), slot_clock(context))
                    }
                    _ => return Ok(Ruling::AlreadyDone),
                };
                // Slots that are accounted for without a run are written down, also where nothing else is.
                let missed = plan.dropped.map(slot::covered);
                next.timing = Some(Timing { since: plan.since, evaluated: plan.evaluated, ..timing });
                let whole = missed.map(|missed| self.write_missed::<R>(&mut next, missed, context.now.wall));
                Ok(written(next, whole.unwrap_or_default(), context))
            }
            Err(Refusal::NotNow { .. }) => Ok(Ruling::AlreadyDone),
            Err(refusal) => Err(refusal),
            // Something is due by now.
            Ok(_) => Ok(Ruling::AlreadyDone),
        }
    }

    /// One line for all slots that will never run, however many they are.
    fn write_missed<R: Rules>(&self, record: &mut Record, missed: Covered, now: Wall) -> Vec<Outcome> {
        let note = match missed.count {
            1 => "nothing ran for it, and it is too late".into(),
            count => alloc::format!("nothing ran for these {count} slots, and it is too late"),
        };
        let ending = Ending::new(Status::Missed, EndedBy::Fencepost).with_note(note);
        let outcome = Outcome {
            covers: Some(missed),
            trigger: Trigger::Schedule,
            ..self.outcome(record, missed.to, ending.clone(), now)
        };
        write_down::<R>(record, outcome, &ending)
    }

    fn standing<R: Rules>(&self, record: &Record, context: &Context<'_>) -> Standing {
        R::standing(record, context.reference.map(|r| &r.clock), context.facts, context.now.boot)
    }

    /// Claims and completes at once. There is no lease in between, so there is nothing to renew or to lose.
    pub(super) fn record<R: Rules>(
        &self,
        record: Option<&Record>,
        ending: &Ending,
        context: &Context<'_>,
    ) -> Result<Ruling, Refusal> {
        if record.is_some_and(|record| record.ledger.of_run(self.run).is_some()) {
            return Ok(Ruling::AlreadyDone);
        }
        let (mut next, mut whole) = self.grant::<R>(record, context)?;
        next.lease = None;
        let slot = match &self.slot {
            Choice::At(slot) | Choice::Slot(Named { slot, .. }) => *slot,
            Choice::Due(due) => due.schedule.at_or_before(context.now.wall).unwrap_or(context.now.wall),
            Choice::Once { .. } => slot::ONCE,
            Choice::Fenced(write) => write.at,
        };
        let outcome = self.outcome(&next, slot, ending.clone(), context.now.wall);
        whole.extend(write_down::<R>(&mut next, outcome, ending));
        Ok(written(next, whole, context))
    }

    /// The record with a new token, unless another holds the lease. A run that did not end properly ends here.
    fn grant<R: Rules>(
        &self,
        record: Option<&Record>,
        context: &Context<'_>,
    ) -> Result<(Record, Vec<Outcome>), Refusal> {
        let standing = record.map_or(Standing::Free, |record| self.standing::<R>(record, context));
        if let (Standing::Held { remaining }, Some(record)) = (&standing, record) {
            return Err(Refusal::Held { record: Box::new(record.clone()), remaining: *remaining });
        }
        let date = trusted_date(context)?;
        let token =
            R::mint(record.map(|record| record.token), date, context.facts.high_water).ok_or(Refusal::NoTokenLeft)?;
        let mut next = known_or_first(record, context);
        let whole = match standing {
            Standing::Over(cause) => {
                end_run::<R>(&mut next, lost(&alloc::format!("{cause}; run {} took over", self.run)), context.now.wall)
            }
            _ => Vec::new(),
        };
        next.token = token;
        next.grants += 1;
        Ok((next, whole))
    }

    fn outcome(&self, record: &Record, slot: Wall, ending: Ending, now: Wall) -> Outcome {
        Outcome {
            slot,
            zone: self.zone.clone(),
            status: ending.status,
            token: record.token,
            run: self.run,
            host: self.holder.host.clone(),
            trigger: self.trigger,
            unstarted: ending.unstarted,
            started: now,
            finished: now,
            exit_code: ending.exit_code,
            ended_by: ending.ended_by,
            tries: None,
            took: ending.took,
            note: ending.note,
            artifacts: ending.artifacts,
            upstreams: ending.upstreams,
            covers: None,
            clipped: false,
            unknown: Default::default(),
        }
    }

    fn lease<R: Rules>(&self, chosen: Chosen, context: &Context<'_>) -> Lease {
        Lease {
            run: self.run,
            ttl: self.ttl,
            renewals: 0,
            until: R::until(context.reference, context.now.boot, self.ttl),
            holder: self.holder.clone(),
            slot: chosen.slot,
            zone: self.zone.clone(),
            trigger: if matches!(self.slot, Choice::Due(_) | Choice::Slot(_)) { chosen.trigger } else { self.trigger },
            covers: chosen.covers,
            since: context.now.wall,
            stop_asked: None,
            unknown: Default::default(),
        }
    }
}
