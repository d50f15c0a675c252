//! Writing the ledger: how runs ended and which slots were missed, as outcomes in the record.
//!
//! Each function returns the outcomes that are too long for the record. They belong into the history first.

use alloc::vec::Vec;

use super::Rules;
use crate::definition::GoodDefinition;
use crate::ledger::{EndedBy, Ending, Outcome, Status, WHOLE_NOTE_BYTES_MAX, cut};
use crate::plan::SlotState;
use crate::record::{Lease, Record};
use crate::slot;
use crate::time::Wall;
use crate::token::Token;

/// The ending of a run that did not record its own end.
pub(super) fn lost(why: &str) -> Ending {
    Ending::new(Status::Lost, EndedBy::Fencepost).with_note(why)
}

/// Writes down how the run behind the current lease ended. A lease by hand is not a run and leaves no outcome.
pub(super) fn end_run<R: Rules>(record: &mut Record, ending: Ending, finished: Wall) -> Vec<Outcome> {
    let Some(lease) = &record.lease else { return Vec::new() };
    if !lease.holder.is_run() {
        return Vec::new();
    }
    let outcome = outcome_of(lease, record.token, &ending, finished);
    if let Some(digests) = &ending.definition {
        let (at, host, digests) = (outcome.ended(), outcome.host.clone(), digests.as_ref().clone());
        record.definition = Some(GoodDefinition { at, host, digests, unknown: Default::default() });
    }
    // A run accounts for its slot by ending well, or for all slots that it stands for, if none before is still open. The
    // ring alone would know it otherwise, and forgets.
    if let Some(timing) = record.timing.as_mut().filter(|_| SlotState::of(ending.status, true).is_done()) {
        let settled = timing.settles.filter(|settles| *settles == lease.slot);
        timing.evaluated = timing.evaluated.max(settled).max(lease.covers.map(|covers| covers.to));
    }
    write_down::<R>(record, outcome, &ending)
}

/// How the work under a lease ended.
pub(super) fn outcome_of(lease: &Lease, token: Token, ending: &Ending, finished: Wall) -> Outcome {
    Outcome {
        slot: lease.slot,
        zone: lease.zone.clone(),
        status: ending.status,
        token,
        run: lease.run,
        host: lease.holder.host.clone(),
        trigger: lease.trigger,
        unstarted: ending.unstarted,
        started: lease.since,
        finished,
        exit_code: ending.exit_code,
        ended_by: ending.ended_by,
        tries: None,
        took: ending.took,
        note: ending.note.clone(),
        artifacts: ending.artifacts.clone(),
        upstreams: ending.upstreams.clone(),
        covers: lease.covers,
        clipped: false,
        unknown: Default::default(),
    }
}

/// Adds an outcome to the ledger, and notes the publishes and the upstreams that came with it.
pub(super) fn write_down<R: Rules>(record: &mut Record, mut outcome: Outcome, ending: &Ending) -> Vec<Outcome> {
    ending.published.iter().for_each(|published| record.note_publish(published));
    ending.barred.iter().for_each(|barred| record.note_barred(barred, outcome.finished));
    outcome.note = outcome.note.map(|note| cut(&note, WHOLE_NOTE_BYTES_MAX));
    if outcome.status != Status::Missed {
        let before = slot::tries::<R>(&record.ledger, outcome.slot, outcome.covers);
        outcome.tries = Some(before + u32::from(ending.is_attempt()));
    }
    record.ledger.push(outcome.clone());
    if outcome.clone().clipped().clipped { Vec::from([outcome]) } else { Vec::new() }
}
