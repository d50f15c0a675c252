//! The changes that can be made to a record, and how each is decided.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::outcome::{end_run, lost, outcome_of, write_down};
use super::{Claim, Context, Me, Refusal, Rules, Ruling, Standing, known_or_first, slot_clock, written};
use crate::ledger::{Ending, Outcome};
use crate::record::{Paused, Record, Seal, StopAsked};
use crate::said::Published;
use crate::time::Wall;
use crate::token::Token;

/// A change of a record that a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    Claim(Claim),
    Renew(Me),
    /// Record how the run ended and release, in one swap. What escaped is still running, so its lease is kept.
    Complete {
        me: Me,
        ending: Ending,
        escaped: bool,
    },
    /// Claim and complete in one swap: the ledger by hand.
    Record {
        claim: Claim,
        ending: Ending,
    },
    /// Record how the work under a lease by hand ended and release the lease, in one swap.
    Conclude {
        me: Me,
        slot: Wall,
        zone: String,
        ending: Ending,
    },
    /// Write down which slots are accounted for, where there is none to run.
    Account(Claim),
    /// Skip every trigger from now on.
    Pause {
        paused: Paused,
        /// How long the pause lasts, by the clock that slots are judged by. Otherwise until the job is resumed.
        length: Option<Duration>,
    },
    /// Let triggers through again. Slots that passed during the pause are not caught up.
    Resume,
    /// Remove the outcomes of a job at rest, and hide it.
    Forget,
    /// Release without an outcome: leases by hand.
    Release(Me),
    /// Release the lease, whichever run holds it.
    ForceRelease,
    /// Ask the holder to stop and hand over.
    AskToStop(StopAsked),
    /// Note a publish that was made by hand. Any caller may: it changes nothing that a decision rests on.
    NotePublish(Published),
    /// Grant nothing under this record any more: the job moves to the store that is named.
    Freeze {
        to: String,
    },
    /// Let the next token be above this one, after the store has forgotten some.
    Raise {
        above: Token,
    },
}

impl Intent {
    /// Decides, from the record and the context alone.
    pub fn decide<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Ruling, Refusal> {
        let resumed = record.map(|record| record.as_of(slot_clock(context)));
        let record = resumed.as_deref();
        if let Some(moved_to) = record.and_then(|record| record.moved_to.as_ref()) {
            match self {
                // There is no lease under it, which each of these finds out by itself.
                Self::Renew(_) | Self::Complete { .. } | Self::Conclude { .. } | Self::Release(_) => {}
                Self::Freeze { to } if to == moved_to => return Ok(Ruling::AlreadyDone),
                _ => return Err(Refusal::Sealed(Seal::MovedTo(moved_to.clone()))),
            }
        }
        match self {
            Self::Claim(claim) => claim.decide::<R>(record, context),
            Self::Record { claim, ending } => claim.record::<R>(record, ending, context),
            Self::Account(claim) => claim.account::<R>(record, context),
            Self::Renew(me) => renew::<R>(me, record, context),
            Self::Complete { me, ending, escaped } => complete::<R>(me, record, ending, *escaped, context),
            Self::Conclude { me, slot, zone, ending } => conclude::<R>(me, record, (*slot, zone), ending, context),
            Self::Release(me) => {
                let record = mine(record, |record| R::may_release(record, me))?;
                Ok(released::<R>(record, &lost("its lease was released by its token"), context))
            }
            Self::ForceRelease => Ok(released::<R>(held(record)?, &lost("its lease was released by force"), context)),
            Self::AskToStop(asked) => ask_to_stop(asked, record, context),
            Self::Pause { paused, length } => {
                let mut record = known_or_first(record, context);
                let until = length.map(|length| slot_clock(context) + length);
                record.pause(Paused { until, ..paused.clone() });
                Ok(written(record, Vec::new(), context))
            }
            Self::Resume => {
                let mut record = record.cloned().filter(|record| record.paused.is_some()).ok_or(Refusal::NotHeld)?;
                record.resume(slot_clock(context));
                Ok(written(record, Vec::new(), context))
            }
            Self::Forget => {
                let record = record.ok_or(Refusal::NotHeld)?;
                // How a dead run ended is forgotten with the rest.
                let (mut record, _) = at_rest::<R>(record.clone(), "it was forgotten", context)?;
                record.forget(slot_clock(context));
                Ok(written(record, Vec::new(), context))
            }
            Self::NotePublish(published) => {
                let mut record = record.cloned().ok_or(Refusal::NotHeld)?;
                record.note_publish(published);
                Ok(written(record, Vec::new(), context))
            }
            Self::Freeze { to } => {
                let record = record.ok_or(Refusal::NotHeld)?;
                let (mut record, aside) = at_rest::<R>(record.clone(), "the store was moved", context)?;
                record.moved_to = Some(to.clone());
                Ok(written(record, aside, context))
            }
            Self::Raise { above } => {
                let record = known_or_first(record, context);
                let (mut record, aside) = at_rest::<R>(record, "its token was raised", context)?;
                record.token = record.token.max(*above);
                Ok(written(record, aside, context))
            }
        }
    }

    /// Whether it may be about a job that has no record yet, which needs the store's identity.
    pub fn may_make_a_record(&self) -> bool {
        matches!(
            self,
            Self::Claim(_) | Self::Record { .. } | Self::Account(_) | Self::Pause { .. } | Self::Raise { .. }
        )
    }

    /// Whether it depends on how the lease stands, so that this host has to say what it knows.
    pub fn judges_the_lease(&self) -> bool {
        self.may_make_a_record() || matches!(self, Self::Freeze { .. } | Self::Forget)
    }
}

fn renew<R: Rules>(me: &Me, record: Option<&Record>, context: &Context<'_>) -> Result<Ruling, Refusal> {
    let mut record = mine(record, |record| R::may_renew(record, me))?;
    if let Some(lease) = &mut record.lease {
        lease.renewals += 1;
        lease.until = R::until(context.reference, context.now.boot, lease.ttl);
    }
    Ok(written(record, Vec::new(), context))
}

/// Records how a run ended and releases its lease, unless processes of it escaped.
fn complete<R: Rules>(
    me: &Me,
    record: Option<&Record>,
    ending: &Ending,
    escaped: bool,
    context: &Context<'_>,
) -> Result<Ruling, Refusal> {
    // A run that took over wrote an ending of its own for this run. That one is not ours.
    let shown = |run| record.is_some_and(|record| record.ledger.shows(me.token, run, ending));
    if me.run.is_some_and(shown) {
        return Ok(Ruling::AlreadyDone);
    }
    let mut record = mine(record, |record| R::may_release(record, me))?;
    if !escaped {
        return Ok(released::<R>(record, ending, context));
    }
    let whole = end_run::<R>(&mut record, ending.clone(), context.now.wall);
    if let Some(lease) = &mut record.lease {
        // Wrapper and keeper end now, which says nothing about the processes that escaped.
        lease.holder.processes = None;
    }
    Ok(written(record, whole, context))
}

/// Ends a lease by hand with an outcome for `slot` in `zone`. The lease of a run is refused: the run records its own end.
fn conclude<R: Rules>(
    me: &Me,
    record: Option<&Record>,
    (slot, zone): (Wall, &str),
    ending: &Ending,
    context: &Context<'_>,
) -> Result<Ruling, Refusal> {
    let mut record = mine(record, |record| R::may_release(record, me))?;
    let Some(lease) = record.lease.as_ref().filter(|lease| !lease.holder.is_run()) else {
        return Err(Refusal::Held { record: Box::new(record), remaining: None });
    };
    let ended = outcome_of(lease, record.token, ending, context.now.wall);
    let whole = write_down::<R>(&mut record, Outcome { slot, zone: zone.into(), ..ended }, ending);
    record.lease = None;
    Ok(written(record, whole, context))
}

fn ask_to_stop(asked: &StopAsked, record: Option<&Record>, context: &Context<'_>) -> Result<Ruling, Refusal> {
    let mut record = held(record)?;
    match &mut record.lease {
        Some(lease) if lease.stop_asked.is_some() => return Ok(Ruling::AlreadyDone),
        Some(lease) => lease.stop_asked = Some(asked.clone()),
        None => {}
    }
    Ok(written(record, Vec::new(), context))
}

/// The record without a lease, unless its lease is held. A run that did not end properly ends here.
fn at_rest<R: Rules>(mut record: Record, why: &str, context: &Context<'_>) -> Result<(Record, Vec<Outcome>), Refusal> {
    let clock = context.reference.map(|reference| &reference.clock);
    let aside = match R::standing(&record, clock, context.facts, context.now.boot) {
        Standing::Held { remaining } => return Err(Refusal::Held { record: Box::new(record), remaining }),
        Standing::Over(cause) => end_run::<R>(&mut record, lost(&alloc::format!("{cause}; {why}")), context.now.wall),
        Standing::Free => Vec::new(),
    };
    record.lease = None;
    Ok((record, aside))
}

fn mine(record: Option<&Record>, may: impl Fn(&Record) -> bool) -> Result<Record, Refusal> {
    match record {
        Some(record) if may(record) => Ok(record.clone()),
        other => Err(Refusal::NotHolder { record: other.map(|record| Box::new(record.clone())) }),
    }
}

fn held(record: Option<&Record>) -> Result<Record, Refusal> {
    match record {
        Some(record) if record.lease.is_some() => Ok(record.clone()),
        _ => Err(Refusal::NotHeld),
    }
}

/// Ends the run behind the lease and releases. The record stays, and with it the token.
fn released<R: Rules>(mut record: Record, ending: &Ending, context: &Context<'_>) -> Ruling {
    let whole = end_run::<R>(&mut record, ending.clone(), context.now.wall);
    record.lease = None;
    written(record, whole, context)
}
