//! One guarded run, from the first look at the record to the last swap, as a machine without I/O.
//!
//! The driver tells it what happened ([`Input`]) and performs what it answers ([`Output`]). At most one store call is
//! out at any time. The deadline is enforced by the keeper, which is told every new one; this machine only learns
//! that it was reached. So the store's silence never delays it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::contract::{Produced, Recorded};
use crate::lease::{Honest, Intent, Me, Now, Refusal, Rules};
use crate::ledger::{Barred, Consumed, Covered, EndedBy, Outcome, Status};
use crate::record::{Record, StopAsked};
use crate::register::{StoreError, Trouble};
use crate::said::Published;
use crate::slot::NotNow;
use crate::time::{Boot, Reference, Wall};
use crate::token::{RunId, Token};
use crate::transition::{Done, Known, Step, Transition};

mod ending;
mod observe;
mod stages;
mod vocabulary;
use stages::Stage;
pub use vocabulary::*;

/// How long a waiting run pauses between two looks, at first and at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(100);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The same for one that watches a lease for a whole time-to-live, in a store that may not like to be asked often.
const WATCH_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a claim may go unanswered before the store counts as failed, and how long after somebody asked to stop.
const CLAIM_PATIENCE: Duration = Duration::from_secs(30);
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);

/// How long the answer to a claim is waited for once the keeper has died. Nothing runs meanwhile.
const KEEPER_PATIENCE: Duration = Duration::from_secs(5);

/// How long a completion is tried for at least, even where the deadline has passed: it changes nothing that is not
/// ours any more.
const COMPLETION_PATIENCE: Duration = Duration::from_secs(5);

/// How long a failed renewal or completion pauses before it is tried again, at most.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run<R: Rules = Honest> {
    terms: Terms,
    phase: Phase,
    transition: Option<Transition<R>>,
    writes: u32,
    mine: Option<Mine>,
    /// Until when a waiting run waits.
    wait_until: Option<Boot>,
    looks: u32,
    /// Nobody on this host has watched the lease so far, in a store without a clock.
    is_first_sight: bool,
    /// The lease that is watched because it looks abandoned: its token and how often it was renewed.
    watched: Option<(Token, u64)>,
    /// The holder that was asked to stop. Another that slipped in after it is asked as well.
    asked_to_stop: Option<RunId>,
    /// There is no slot to run, which is being written down.
    not_now: Option<NotNow>,
    /// The slot that has not come, which this run waits for.
    awaited: Option<Wall>,
    /// Before the claim was sent that won.
    began: Option<Boot>,
    /// What would have been done, were it not only observed.
    observed: Vec<String>,
    stage: Stage,
    child: Child,
    retry_at: Option<Boot>,
    /// When a claim or a completion is given up.
    give_up_at: Option<Boot>,
    interrupted: Option<i32>,
    last_error: Option<StoreError>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Claiming,
    Waiting { look_at: Boot },
    Running,
    Completing,
    Finished,
}

/// The lease as this run knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mine {
    me: Me,
    known: Known,
    reference: Option<Reference>,
    deadline: Boot,
    renew_at: Boot,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Child {
    timeout_at: Option<Boot>,
    exit: Option<Exit>,
    /// A signal to this process, or ctrl-C at the terminal they share, asked it to end before it did.
    is_interrupted: bool,
    not_spawned: Option<NotSpawned>,
    /// The order to start it came too late. It starts once the lease is confirmed.
    is_stale: bool,
    stopped: Option<Why>,
    frozen_since: Option<Boot>,
    published: Vec<Published>,
    /// The last word it said of itself.
    said: Option<Recorded>,
    /// Why what it said of itself cannot be relied on.
    unreadable: Option<String>,
    upstreams: Vec<Consumed>,
    barred: Vec<Barred>,
    /// What the barrier decided, if it did not let the run through.
    halt: Option<bool>,
    produced: Vec<Produced>,
    escaped: Vec<String>,
}

impl<R: Rules> Run<R> {
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            phase: Phase::Claiming,
            transition: None,
            writes: 0,
            mine: None,
            wait_until: None,
            looks: 0,
            is_first_sight: false,
            watched: None,
            asked_to_stop: None,
            not_now: None,
            awaited: None,
            began: None,
            observed: Vec::new(),
            stage: Stage::Claimed,
            child: Child::default(),
            retry_at: None,
            give_up_at: None,
            interrupted: None,
            last_error: None,
        }
    }

    pub fn step(&mut self, now: Now, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            _ if self.phase == Phase::Finished => {}
            // The tree is gone, and how it ended is being written down. What its keeper does now changes nothing.
            Input::NotSpawned(_)
            | Input::Stale
            | Input::TreeEmpty { .. }
            | Input::DeadlineReached
            | Input::Frozen
            | Input::KeeperDied { .. }
                if self.phase == Phase::Completing => {}
            Input::Begin => self.begin(now, &mut out),
            Input::Answered(answer) => self.with_transition(now, &mut out, |t| t.answered(now, answer)),
            Input::Consulted(facts) => {
                self.is_first_sight = facts.is_first_sight;
                self.with_transition(now, &mut out, |t| t.consulted(now, facts));
            }
            Input::Tick => self.tick(now, &mut out),
            Input::Spawned => {}
            Input::NotSpawned(why) if self.observes_prepare() => self.observe_unprepared(now, Some(why.text), &mut out),
            Input::NotSpawned(why) => {
                self.child.not_spawned = Some(why);
                self.complete(now, &mut out);
            }
            Input::Stale => self.stale(now, &mut out),
            Input::Said { said, unreadable } => {
                said.into_iter().for_each(|said| self.heard(said));
                self.child.unreadable = self.child.unreadable.take().or(unreadable);
            }
            Input::ChildEnded(exit) => {
                self.child.exit = Some(exit);
                self.child.is_interrupted = self.interrupted.is_some() || exit == Exit::CTRL_C;
            }
            Input::TreeEmpty { escaped } => {
                self.child.escaped = escaped;
                self.tree_empty(now, &mut out);
            }
            Input::Inspected(passage) => self.inspected(now, passage, &mut out),
            Input::Surveyed(produced) => self.surveyed(now, produced, &mut out),
            Input::DeadlineReached => self.stopping(Why::Deadline, &mut out),
            Input::Frozen => self.frozen(now, &mut out),
            Input::Woke => self.renew(now, &mut out),
            Input::KeeperDied { escaped } => self.keeper_died(now, escaped, &mut out),
            Input::Interrupted(signal) => self.interrupt(signal, now, &mut out),
        }
        self.end_without_tree(now, &mut out);
        out
    }

    /// When to come back with [`Input::Tick`] if nothing else happens.
    pub fn wake_at(&self) -> Option<Boot> {
        let moments: [Option<Boot>; 4] = match &self.phase {
            Phase::Claiming => [self.give_up_at, None, None, None],
            Phase::Waiting { look_at } => [Some(*look_at), None, None, None],
            Phase::Running => [
                self.renewal_due(),
                self.child.timeout_at.filter(|_| self.child.stopped.is_none()),
                self.child.frozen_since.map(|since| since + self.terms.grace),
                self.own_deadline(),
            ],
            Phase::Completing => [self.retry_at, self.give_up_at, None, None],
            Phase::Finished => [None; 4],
        };
        moments.into_iter().flatten().min()
    }

    /// Until when the child may run, for the driver to check the keeper by.
    pub fn deadline(&self) -> Option<Boot> {
        self.lease_deadline().filter(|_| !self.terms.observe)
    }

    /// Until when the lease is believed in.
    fn lease_deadline(&self) -> Option<Boot> {
        self.mine.as_ref().map(|mine| mine.deadline)
    }

    /// Whether a child was started and its tree is not known to be gone.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running && self.has_tree()
    }

    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    fn begin(&mut self, now: Now, out: &mut Vec<Output>) {
        self.wait_until = self.terms.wait.map(|wait| now.boot + wait);
        self.look(now, out);
    }

    fn look(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Some(signal) = self.interrupted {
            return self.finish(Finish::Interrupted(signal), out);
        }
        if self.child.stopped.is_some() {
            return self.finish_child(Kept::NoLease, out);
        }
        self.phase = Phase::Claiming;
        self.mine = None;
        self.not_now = None;
        self.began = None;
        self.give_up_at = Some(now.boot + CLAIM_PATIENCE);
        self.start(Intent::Claim(self.terms.claim.clone()), now, out);
    }

    /// Begins a transition, from what is known where something is.
    fn start(&mut self, intent: Intent, now: Now, out: &mut Vec<Output>) {
        let mut transition = Transition::new(self.terms.job.clone(), intent, self.terms.claim.run, self.writes);
        if let Some(mine) = &self.mine {
            transition = transition.from_known(mine.known.clone(), mine.reference.clone());
        }
        self.retry_at = None;
        self.transition = Some(transition);
        self.with_transition(now, out, |t| t.begin(now));
    }

    fn with_transition(&mut self, now: Now, out: &mut Vec<Output>, advance: impl FnOnce(&mut Transition<R>) -> Step) {
        let Some(transition) = &mut self.transition else { return };
        let step = advance(transition);
        self.writes = transition.writes();
        let completes = transition.completes();
        match step {
            Step::Call(call) => out.push(Output::Call(call)),
            Step::Consult(record) => out.push(Output::Consult(record)),
            Step::Done(done) => {
                self.transition = None;
                self.done(now, *done, completes, out);
            }
            Step::Refused(refusal) => {
                self.transition = None;
                self.refused(now, refusal, out);
            }
            Step::Failed(error) => self.failed(now, error, out),
        }
    }

    fn done(&mut self, now: Now, done: Done, completes: bool, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Claiming if self.not_now.is_some() => {
                let missed = done.held.as_ref().and_then(|known| missed_by(&known.record, self.terms.claim.run));
                out.extend(missed.map(|missed| Output::Tell(Event::Missed { missed })));
                match self.not_now.take() {
                    Some(why) if self.terms.observe => {
                        self.observe_refusal(now, &Refusal::NotNow { why, account: false }, out);
                    }
                    Some(why) => self.finish(Finish::NotNow(why), out),
                    None => {}
                }
            }
            Phase::Claiming if !self.holds(&done) => self.asked(now, done, out),
            Phase::Claiming => self.claimed(now, done, out),
            Phase::Running => self.renewed(now, done, out),
            Phase::Completing if completes => self.finish_child(Kept::Recorded, out),
            Phase::Completing => {
                self.hold(now, done);
                self.complete(now, out);
            }
            Phase::Waiting { .. } | Phase::Finished => {}
        }
    }

    /// The holder was asked to stop. Now it is waited for.
    fn asked(&mut self, now: Now, done: Done, out: &mut Vec<Output>) {
        let record = done.held.map(|known| known.record);
        out.extend(record.map(|record| Output::Tell(Event::AskedToStop { record })));
        match self.interrupted {
            Some(signal) => self.finish(Finish::Interrupted(signal), out),
            None => self.pause(now),
        }
    }

    /// Whether the record is ours; else what was done was to ask its holder to stop.
    fn holds(&self, done: &Done) -> bool {
        let lease = done.held.as_ref().and_then(|known| known.record.lease.as_ref());
        lease.is_some_and(|lease| lease.run == self.terms.claim.run)
    }

    fn claimed(&mut self, now: Now, done: Done, out: &mut Vec<Output>) {
        let Some(record) = done.held.as_ref().map(|known| Arc::clone(&known.record)) else { return };
        self.began.get_or_insert(done.sent);
        self.hold(now, done);
        let deadline = self.lease_deadline().unwrap_or(now.boot);
        if let Some(signal) = self.interrupted {
            let text = format!("interrupted by signal {signal} before it started");
            self.child.not_spawned = Some(NotSpawned { not_found: false, text });
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
        self.phase = Phase::Running;
        self.give_up_at = None;
        self.advance(now, out);
    }

    /// Takes over what a won claim or renewal says.
    fn hold(&mut self, now: Now, done: Done) {
        let Some(known) = done.held else { return };
        let ttl = self.terms.claim.ttl;
        let me = Me { token: known.record.token, run: Some(self.terms.claim.run) };
        let deadline = R::deadline(done.sent, now.boot, ttl);
        let renew_at = done.sent + ttl / 3;
        self.last_error = None;
        self.mine = Some(Mine { me, known, reference: done.reference, deadline, renew_at });
    }

    fn renewed(&mut self, now: Now, done: Done, out: &mut Vec<Output>) {
        self.hold(now, done);
        let Some(mine) = &self.mine else { return };
        let (deadline, lease) = (mine.deadline, mine.known.record.lease.clone());
        let renewals = lease.as_ref().map_or(0, |lease| lease.renewals);
        out.push(Output::Tell(Event::Renewed { renewals, deadline }));
        if self.child.frozen_since.is_some() {
            // The swap may have been sent before the long sleep. Then it says nothing about now.
            if deadline <= now.boot + self.terms.grace {
                self.renew(now, out);
                return;
            }
            self.child.frozen_since = None;
            if self.child.is_stale {
                self.start_stale(now, out);
            } else {
                out.extend([Output::Tell(Event::Thawed), Output::Thaw(deadline)]);
            }
        } else {
            out.push(Output::Extend(deadline));
        }
        if let Some(asked) = lease.and_then(|lease| lease.stop_asked).filter(|_| self.child.stopped.is_none()) {
            self.stop(Why::Replaced(asked), out);
        }
    }

    /// Renews now, unless the answer to an earlier try is still out.
    fn renew(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.phase != Phase::Running {
            return;
        }
        if self.retry_at.is_some() {
            self.retry_at = Some(now.boot);
            self.retry_if_due(now, out);
        } else if self.transition.is_none() {
            self.start_renewal(now, out);
        }
    }

    fn start_renewal(&mut self, now: Now, out: &mut Vec<Output>) {
        if let Some(me) = self.mine.as_ref().map(|mine| mine.me) {
            self.start(Intent::Renew(me), now, out);
        }
    }

    fn renewal_due(&self) -> Option<Boot> {
        if self.is_taken() {
            return None;
        }
        match (&self.transition, self.retry_at) {
            (_, Some(at)) => Some(at),
            (None, None) => self.mine.as_ref().map(|mine| mine.renew_at),
            (Some(_), None) => None,
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Waiting { look_at } if now.boot >= *look_at => self.look(now, out),
            Phase::Running => self.tick_running(now, out),
            Phase::Claiming if self.must_give_up(now) => self.give_up_claim(now, out),
            Phase::Completing if self.must_give_up(now) => self.give_up_completion(out),
            Phase::Completing => self.retry_if_due(now, out),
            Phase::Waiting { .. } | Phase::Claiming | Phase::Finished => {}
        }
    }

    fn must_give_up(&self, now: Now) -> bool {
        self.give_up_at.is_some_and(|at| now.boot >= at)
    }

    fn give_up_claim(&mut self, now: Now, out: &mut Vec<Output>) {
        match self.interrupted {
            Some(signal) => self.finish(Finish::Interrupted(signal), out),
            None if self.child.stopped.is_some() => self.finish_child(Kept::NoLease, out),
            None if self.terms.observe => self.observe_failure(now, &silent_store(), out),
            // The call is still out, so that nothing can be asked of this store again.
            None if self.may_run_without_lease(&silent_store()) => self.run_without_lease(now, silent_store(), out),
            None => self.finish(Finish::StoreFailed(silent_store()), out),
        }
    }

    fn tick_running(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.child.timeout_at.is_some_and(|at| now.boot >= at) && self.child.stopped.is_none() {
            self.child.timeout_at = None;
            self.stop(Why::Timeout, out);
        }
        if self.child.frozen_since.is_some_and(|since| now.boot >= since + self.terms.grace) {
            self.child.frozen_since = None;
            self.kill(Why::WokeLate, out);
            return;
        }
        if self.renewal_due().is_some_and(|at| now.boot >= at) {
            self.renew(now, out);
        }
    }

    /// Whether the record said that the lease is another's: then there is nothing left to renew or release.
    fn is_taken(&self) -> bool {
        matches!(self.child.stopped, Some(Why::Taken { .. }))
    }

    fn retry_if_due(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.retry_at.is_some_and(|at| now.boot >= at) {
            self.retry_at = None;
            self.with_transition(now, out, |t| t.again(now));
        }
    }

    fn refused(&mut self, now: Now, refusal: Refusal, out: &mut Vec<Output>) {
        match (&self.phase, refusal) {
            (Phase::Claiming, Refusal::NobodyHolds | Refusal::NotHolder { .. }) => self.look(now, out),
            (Phase::Claiming, Refusal::NotNow { why: NotNow::Early { slot, wait }, .. }) => {
                self.wait_for_slot(now, slot, wait, out);
            }
            (Phase::Claiming, refusal) if self.terms.observe && (!refusal.accounts() || self.not_now.is_some()) => {
                self.observe_refusal(now, &refusal, out);
            }
            (Phase::Claiming, Refusal::Held { record, remaining }) => self.held(now, record, remaining, out),
            (Phase::Claiming, Refusal::NotNow { why, account }) => self.not_now(now, why, account, out),
            (Phase::Claiming, other) => self.finish(Finish::Refused(other), out),
            (Phase::Running, Refusal::NotHolder { record }) => self.taken(record, out),
            (Phase::Running, _) => self.taken(None, out),
            (Phase::Completing, refusal) => {
                let record = match refusal {
                    Refusal::NotHolder { record } => record,
                    _ => None,
                };
                self.lost_at_the_end(Why::Taken { record }, out);
            }
            (Phase::Waiting { .. } | Phase::Finished, _) => {}
        }
    }

    /// The trigger is early. It claims when its slot has come.
    fn wait_for_slot(&mut self, now: Now, slot: Wall, wait: Duration, out: &mut Vec<Output>) {
        if let Some(signal) = self.interrupted {
            return self.finish(Finish::Interrupted(signal), out);
        }
        if self.awaited.replace(slot) != Some(slot) {
            out.push(Output::Tell(Event::Early { slot, wait }));
        }
        self.phase = Phase::Waiting { look_at: now.boot + wait };
    }

    /// There is no slot to run. What is to be written down about that comes first.
    fn not_now(&mut self, now: Now, why: NotNow, account: bool, out: &mut Vec<Output>) {
        if !account || self.not_now.is_some() {
            return self.finish(Finish::NotNow(why), out);
        }
        self.not_now = Some(why);
        self.start(Intent::Account(self.terms.claim.clone()), now, out);
    }

    /// The lease is another's: wave off, wait, or ask it to stop.
    fn held(&mut self, now: Now, record: Box<Record>, remaining: Option<Duration>, out: &mut Vec<Output>) {
        let holder = record.lease.as_ref().map(|lease| lease.run);
        if holder.is_some_and(|holder| self.terms.inside.contains(&holder)) {
            return self.finish(Finish::Nested, out);
        }
        if let Some(signal) = self.interrupted {
            return self.finish(Finish::Interrupted(signal), out);
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

    /// Without a clock, a lease whose holder died ends only under somebody's eyes. If it looks like that and nobody has
    /// watched it so far, this run does, for as long as it takes, rather than leave it to runs that all come and go. A
    /// lease that is renewed meanwhile is not abandoned.
    fn watch(&mut self, now: Now, record: &Record) {
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

    fn pause(&mut self, now: Now) {
        let most = if self.watched.is_some() { WATCH_PAUSE_MAX } else { LOOK_PAUSE_MAX };
        let pause = (LOOK_PAUSE_MIN * 2u32.pow(self.looks.min(10))).min(most);
        // Many that began to wait together must not look together as well, and leave the lease alone in between.
        let pause = pause - pause * self.terms.claim.run.spread() / 512;
        self.looks += 1;
        let look_at = now.boot + pause;
        self.phase = Phase::Waiting { look_at: self.wait_until.map_or(look_at, |until| look_at.min(until)) };
    }

    fn failed(&mut self, now: Now, error: StoreError, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Claiming if self.terms.observe && self.interrupted.is_none() => {
                self.observe_failure(now, &error, out);
            }
            Phase::Claiming if self.may_run_without_lease(&error) => self.run_without_lease(now, error, out),
            Phase::Claiming if self.may_wait_for_store(now, &error) => {
                self.transition = None;
                self.pause(now);
            }
            Phase::Claiming => self.finish(Finish::StoreFailed(error), out),
            Phase::Running | Phase::Completing => {
                let pause = (self.terms.claim.ttl / 20).min(RETRY_PAUSE_MAX);
                self.retry_at = Some(now.boot + pause);
                if self.last_error.as_ref() != Some(&error) {
                    self.last_error = Some(error.clone());
                    let event = match self.phase {
                        Phase::Running => Event::RenewalFailed { error },
                        _ => Event::CompletionFailed { error },
                    };
                    out.push(Output::Tell(event));
                }
            }
            Phase::Waiting { .. } | Phase::Finished => {}
        }
        // The child may have ended while a renewal was out; its completion needs the store as well.
        if self.phase == Phase::Completing && self.transition.as_ref().is_some_and(|t| !t.completes()) {
            self.transition = None;
            self.complete(now, out);
        }
    }

    /// A store that is out of reach is no reason not to run, if that was asked for. One that was reached and says
    /// something we cannot read, or that another holds the lease, is.
    fn may_run_without_lease(&self, error: &StoreError) -> bool {
        let out_of_reach = error.trouble != Trouble::Corrupt && self.looks == 0;
        let may_be_due = self.not_now.is_none();
        let may_start = self.interrupted.is_none() && self.child.stopped.is_none();
        self.terms.run_without_store && out_of_reach && may_be_due && may_start
    }

    fn run_without_lease(&mut self, now: Now, error: StoreError, out: &mut Vec<Output>) {
        out.push(Output::Tell(Event::WithoutLease { error }));
        self.begin_without_lease(now, out);
    }

    fn begin_without_lease(&mut self, now: Now, out: &mut Vec<Output>) {
        self.transition = None;
        // A claim may have been won and its renewal failed. Nothing is run under what is nearly over.
        self.mine = None;
        self.phase = Phase::Running;
        self.give_up_at = None;
        self.advance(now, out);
    }

    /// Whoever waits for a lease also waits for the store, if it may come back by itself.
    fn may_wait_for_store(&self, now: Now, error: &StoreError) -> bool {
        let waiting = self.wait_until.is_some_and(|until| now.boot < until);
        waiting && error.trouble == Trouble::Unavailable && self.interrupted.is_none()
    }

    /// The tree is gone with its keeper. Without a tree there may be a claim under way, whose answer is waited for: what was
    /// claimed is released, and recorded as not started.
    fn keeper_died(&mut self, now: Now, escaped: Vec<String>, out: &mut Vec<Output>) {
        self.stopping(Why::KeeperDied, out);
        self.child.escaped = escaped;
        match self.phase {
            Phase::Waiting { .. } => self.finish_child(Kept::NoLease, out),
            Phase::Claiming => self.give_up_at = self.give_up_at.min(Some(now.boot + KEEPER_PATIENCE)),
            _ => self.complete(now, out),
        }
    }

    fn frozen(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.child.frozen_since.is_some() || self.child.stopped.is_some() {
            return;
        }
        self.child.frozen_since = Some(now.boot);
        out.push(Output::Tell(Event::Frozen));
        self.renew(now, out);
    }

    fn stopping(&mut self, why: Why, out: &mut Vec<Output>) {
        if self.terms.observe && why != Why::KeeperDied {
            return self.observed(why.status(), why.note(), out);
        }
        if self.child.stopped.is_none() {
            self.child.stopped = Some(why.clone());
            out.push(Output::Tell(Event::Stopping(why)));
        }
    }

    fn stop(&mut self, why: Why, out: &mut Vec<Output>) {
        self.stopping(why, out);
        if self.child.stopped.is_some() {
            out.push(Output::Stop);
        }
    }

    fn kill(&mut self, why: Why, out: &mut Vec<Output>) {
        self.stopping(why, out);
        if self.child.stopped.is_some() {
            out.push(Output::Kill);
        }
    }

    /// Whatever it was being stopped for before: there is nothing left to renew, to release or to record.
    fn taken(&mut self, record: Option<Box<Record>>, out: &mut Vec<Output>) {
        self.child.stopped = None;
        self.kill(Why::Taken { record }, out);
        if self.terms.observe {
            // It goes on without a lease, and has nothing left to renew.
            self.mine = None;
        }
    }

    fn interrupt(&mut self, signal: i32, now: Now, out: &mut Vec<Output>) {
        self.interrupted = Some(signal);
        match self.phase {
            Phase::Running if self.has_tree() => out.push(Output::Forward(signal)),
            Phase::Running => self.interrupt_look(now, signal, out),
            Phase::Waiting { .. } => self.finish(Finish::Interrupted(signal), out),
            Phase::Claiming | Phase::Completing => {
                let patience = now.boot + INTERRUPT_PATIENCE;
                self.give_up_at = Some(self.give_up_at.map_or(patience, |at| at.min(patience)));
            }
            Phase::Finished => {}
        }
    }

    fn finish(&mut self, finish: Finish, out: &mut Vec<Output>) {
        self.phase = Phase::Finished;
        self.transition = None;
        out.push(Output::Finish(finish));
    }
}

fn silent_store() -> StoreError {
    StoreError::unknown(
        Trouble::Unavailable,
        "The store has not answered for 30 seconds. The lease may have been taken all the same; it ends by itself.",
    )
}

/// The slots that a run found missed, if it wrote any down.
fn missed_by(record: &Record, run: RunId) -> Option<Covered> {
    let of_run = |outcome: &&Outcome| outcome.run == run && outcome.status == Status::Missed;
    record.ledger.ring.iter().rev().find(of_run).and_then(|outcome| outcome.covers)
}

/// Whether the last outcome was written by the very claim that made the current lease.
fn was_taken_over(last: &Outcome, record: &Record) -> bool {
    let since = record.lease.as_ref().map(|lease| lease.since);
    last.status == Status::Lost && last.ended_by == EndedBy::Fencepost && Some(last.finished) == since
}
