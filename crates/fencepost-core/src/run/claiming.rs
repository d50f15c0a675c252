//! How a run gets its lease: it looks, waits, and claims, or says why not.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Event, Finish, Interruption, Kept, Output, Overlap, Run, RunPhase, TookOver};
use crate::lease::{Intent, Now, Rules};
use crate::ledger::{Covered, EndedBy, Outcome, Status};
use crate::record::{Record, StopAsked};
use crate::register::{StoreError, Trouble};
use crate::slot::NotNow;
use crate::time::Wall;
use crate::token::RunId;
use crate::transition::Done;

/// How long a waiting run pauses between two looks, at first and at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(100);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The same for a run that watches a lease for a whole time-to-live: its store may be slow or metered.
const WATCH_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a claim may go unanswered before the store counts as failed.
const CLAIM_PATIENCE: Duration = Duration::from_secs(30);

impl<R: Rules> Run<R> {
    pub(super) fn look(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Some(why) = self.interrupted {
            return self.finish(why.finish(Kept::NoLease), out);
        }
        if self.child.stopped.is_some() {
            return self.finish_child(Kept::NoLease, out);
        }
        self.phase = RunPhase::Claiming;
        self.mine = None;
        self.not_now = None;
        self.began = None;
        self.give_up_at = Some(now.boot + CLAIM_PATIENCE);
        self.start(Intent::Claim(self.terms.claim.clone()), now, out);
    }

    /// The holder was asked to stop. Now it is waited for.
    pub(super) fn asked(&mut self, now: Now, done: Done, out: &mut Vec<Output>) {
        let record = done.held.map(|known| known.record);
        out.extend(record.map(|record| Output::Tell(Event::AskedToStop { record })));
        match self.interrupted {
            Some(why) => self.finish(why.finish(Kept::NoLease), out),
            None => self.pause(now),
        }
    }

    /// Whether the record is ours; else what was done was to ask its holder to stop.
    pub(super) fn holds(&self, done: &Done) -> bool {
        let lease = done.held.as_ref().and_then(|known| known.record.lease.as_ref());
        lease.is_some_and(|lease| lease.run == self.terms.claim.run)
    }

    pub(super) fn claimed(&mut self, now: Now, done: Done, out: &mut Vec<Output>) {
        let Some(record) = done.held.as_ref().map(|known| Arc::clone(&known.record)) else { return };
        self.began.get_or_insert(done.sent);
        self.hold(done);
        let deadline = self.lease_deadline().unwrap_or(now.boot);
        if let Some(why) = self.interrupted {
            self.child.not_spawned = Some(why.unstarted());
            return self.complete(now, out);
        }
        if self.child.stopped.is_some() {
            return self.complete(now, out);
        }
        if deadline <= now.boot + self.terms.grace {
            // The answer took so long that the lease is nearly over. It is renewed before anything starts under it.
            return self.start_renewal(now, out);
        }
        let slot = record.lease.as_ref().map_or(now.wall, |lease| lease.slot);
        let took_over = record.ledger.ring.iter().rev().take(2).find(|last| was_taken_over(last, &record));
        let took_over = took_over.map(|last| TookOver { run: last.run, note: last.note.clone().unwrap_or_default() });
        out.push(Output::Tell(Event::Claimed {
            token: record.token,
            grants: record.grants,
            slot,
            took_over,
            deadline,
        }));
        let missed = missed_by(&record, self.terms.claim.run);
        out.extend(missed.map(|missed| Output::Tell(Event::Missed { missed })));
        self.phase = RunPhase::Running;
        self.give_up_at = None;
        self.advance(now, out);
    }

    pub(super) fn give_up_claim(&mut self, now: Now, out: &mut Vec<Output>) {
        match self.interrupted {
            Some(why @ Interruption::Signal(_)) => self.finish(why.finish(Kept::NoLease), out),
            Some(Interruption::GivenUp) => self.finish(Finish::StoreFailed(silent_store()), out),
            None if self.child.stopped.is_some() => self.finish_child(Kept::NoLease, out),
            None if self.terms.observe => self.observe_failure(now, &silent_store(), out),
            // The call is still out, so that nothing can be asked of this store again.
            None if self.may_run_without_lease(&silent_store()) => self.run_without_lease(now, silent_store(), out),
            None => self.finish(Finish::StoreFailed(silent_store()), out),
        }
    }

    /// The trigger is early. It claims when its slot has come.
    pub(super) fn wait_for_slot(&mut self, now: Now, slot: Wall, wait: Duration, out: &mut Vec<Output>) {
        if let Some(why) = self.interrupted {
            return self.finish(why.finish(Kept::NoLease), out);
        }
        if self.awaited.replace(slot) != Some(slot) {
            out.push(Output::Tell(Event::Early { slot, wait }));
        }
        self.phase = RunPhase::Waiting { look_at: now.boot + wait };
    }

    /// There is no slot to run. What is to be written down about that comes first.
    pub(super) fn not_now(&mut self, now: Now, why: NotNow, account: bool, out: &mut Vec<Output>) {
        if !account || self.not_now.is_some() {
            return self.finish(Finish::NotNow(why), out);
        }
        self.not_now = Some(why);
        self.start(Intent::Account(self.terms.claim.clone()), now, out);
    }

    /// Another run holds the lease: skip, wait, or ask it to stop.
    pub(super) fn held(&mut self, now: Now, record: Box<Record>, remaining: Option<Duration>, out: &mut Vec<Output>) {
        let holder = record.lease.as_ref().map(|lease| lease.run);
        if holder.is_some_and(|holder| self.terms.inside.contains(&holder)) {
            return self.finish(Finish::Nested, out);
        }
        if let Some(why) = self.interrupted {
            return self.finish(why.finish(Kept::NoLease), out);
        }
        if self.child.stopped.is_some() {
            return self.finish_child(Kept::NoLease, out);
        }
        let replace = self.terms.overlap == Overlap::Replace;
        if replace && self.wait_until.is_none() {
            let ttl = record.lease.as_ref().map_or(self.terms.claim.ttl, |lease| lease.ttl);
            self.wait_until = Some(now.boot + ttl * 2);
        }
        self.watch(now, &record);
        if self.wait_until.is_none_or(|until| now.boot >= until) {
            return self.finish(Finish::Held { record, remaining }, out);
        }
        if replace && self.asked_to_stop != holder {
            self.asked_to_stop = holder;
            let by = self.terms.claim.run;
            let host = self.terms.claim.holder.host.clone();
            return self.start(Intent::AskToStop(StopAsked { by, host, unknown: Default::default() }), now, out);
        }
        if self.looks == 0 {
            out.push(Output::Tell(Event::Waiting { record, remaining }));
        }
        self.pause(now);
    }

    /// Watches a lease that looks abandoned until it is certainly over. Without a store clock, the lease of a dead holder
    /// ends only for an observer that has seen it unchanged for a whole time-to-live, and runs that come and go never
    /// have. A lease that is renewed meanwhile is not abandoned.
    pub(super) fn watch(&mut self, now: Now, record: &Record) {
        let Some(lease) = &record.lease else { return };
        let state = (record.token, lease.renewals);
        match self.watched {
            Some(watched) if watched != state => (self.watched, self.wait_until) = (None, None),
            Some(_) => {}
            None if self.wait_until.is_none() && self.is_first_sight && lease.looks_abandoned(now.wall) => {
                self.watched = Some(state);
                self.wait_until = Some(now.boot + lease.watch_length());
            }
            None => {}
        }
    }

    pub(super) fn pause(&mut self, now: Now) {
        let most = if self.watched.is_some() { WATCH_PAUSE_MAX } else { LOOK_PAUSE_MAX };
        let pause = (LOOK_PAUSE_MIN * 2u32.pow(self.looks.min(10))).min(most);
        // Spreads the looks of runs that began to wait at the same moment.
        let pause = pause - pause * self.terms.claim.run.spread() / 512;
        self.looks += 1;
        let look_at = now.boot + pause;
        self.phase = RunPhase::Waiting { look_at: self.wait_until.map_or(look_at, |until| look_at.min(until)) };
    }

    /// A store that is out of reach is no reason not to run, if that was asked for. One that was reached and says
    /// something we cannot read, or that another holds the lease, is.
    pub(super) fn may_run_without_lease(&self, error: &StoreError) -> bool {
        let out_of_reach = error.trouble != Trouble::Corrupt && self.looks == 0;
        let may_be_due = self.not_now.is_none();
        let may_start = self.interrupted.is_none() && self.child.stopped.is_none();
        self.terms.run_without_store && out_of_reach && may_be_due && may_start
    }

    pub(super) fn run_without_lease(&mut self, now: Now, error: StoreError, out: &mut Vec<Output>) {
        out.push(Output::Tell(Event::WithoutLease { error }));
        self.begin_without_lease(now, out);
    }

    pub(super) fn begin_without_lease(&mut self, now: Now, out: &mut Vec<Output>) {
        self.transition = None;
        // A claim may have been won and its renewal failed. Nothing is run under what is nearly over.
        self.mine = None;
        self.phase = RunPhase::Running;
        self.give_up_at = None;
        self.advance(now, out);
    }

    /// A run that waits for a lease also waits for the store, if the store may come back by itself.
    pub(super) fn may_wait_for_store(&self, now: Now, error: &StoreError) -> bool {
        let waiting = self.wait_until.is_some_and(|until| now.boot < until);
        waiting && error.trouble == Trouble::Unavailable && self.interrupted.is_none()
    }
}

fn silent_store() -> StoreError {
    StoreError::unknown(
        Trouble::Unavailable,
        "The store has not answered for 30 seconds. The lease may have been taken all the same; it ends by itself.",
    )
}

/// The slots that a run found missed, if it wrote any down.
pub(super) fn missed_by(record: &Record, run: RunId) -> Option<Covered> {
    let of_run = |outcome: &&Outcome| outcome.run == run && outcome.status == Status::Missed;
    record.ledger.ring.iter().rev().find(of_run).and_then(|outcome| outcome.covers)
}

/// Whether the last outcome was written by the very claim that made the current lease.
fn was_taken_over(last: &Outcome, record: &Record) -> bool {
    let since = record.lease.as_ref().map(|lease| lease.since);
    last.status == Status::Lost && last.ended_by == EndedBy::Fencepost && Some(last.finished) == since
}
