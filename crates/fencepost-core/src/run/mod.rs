//! One guarded run, from the first look at the record to the last swap, as a machine without I/O.
//!
//! The driver tells it what happened ([`Input`]) and performs what it answers ([`Output`]). At most one store call is
//! out at any time. The deadline is enforced by the keeper, which is told every new one; this machine only learns
//! that it was reached. So a store that does not answer never delays it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::contract::{Produced, Recorded};
use crate::definition::DefinitionDigests;
use crate::lease::{Honest, Intent, Me, Now, Refusal, Rules};
use crate::ledger::{Barred, Consumed};
use crate::register::StoreError;
use crate::said::Published;
use crate::slot::NotNow;
use crate::time::{Boot, Reference, Wall};
use crate::token::{RunId, Token};
use crate::transition::{Done, Known, Step, Transition};

mod claiming;
mod ending;
mod holding;
mod observe;
mod stages;
mod vocabulary;
use claiming::missed_by;
use stages::Stage;
pub use vocabulary::*;

/// How long an answer is waited for after a signal that asks the run to end.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(2);

/// How long a completion is tried for at least, even where the deadline has passed: it changes nothing that is not
/// ours any more.
const COMPLETION_PATIENCE: Duration = Duration::from_secs(5);

/// How long a failed renewal or completion pauses before it is tried again, at most.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run<R: Rules = Honest> {
    terms: Terms,
    phase: RunPhase,
    transition: Option<Transition<R>>,
    writes: u32,
    mine: Option<Mine>,
    /// Until when a waiting run waits.
    wait_until: Option<Boot>,
    looks: u32,
    /// No process of this host has watched the lease so far, in a store without a clock.
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
    child: ChildState,
    retry_at: Option<Boot>,
    /// When a claim or a completion is given up.
    give_up_at: Option<Boot>,
    interrupted: Option<Interruption>,
    last_error: Option<StoreError>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RunPhase {
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
struct ChildState {
    timeout_at: Option<Boot>,
    exit: Option<Exit>,
    /// A signal to this process, or ctrl-C at the terminal they share, asked it to end before it did.
    is_interrupted: bool,
    not_spawned: Option<NotSpawned>,
    /// The order to start it came too late. It starts once the lease is confirmed.
    is_stale: bool,
    stopped: Option<StopCause>,
    frozen_since: Option<Boot>,
    published: Vec<Published>,
    /// The last word it said of itself.
    said: Option<Recorded>,
    /// Why what it said of itself cannot be relied on.
    unreadable: Option<String>,
    /// Which publish was asked to write other content than it may.
    other_content: Option<String>,
    upstreams: Vec<Consumed>,
    barred: Vec<Barred>,
    /// What the barrier decided, if it did not let the run through.
    halt: Option<bool>,
    produced: Vec<Produced>,
    definition: Option<Box<DefinitionDigests>>,
    escaped: Vec<String>,
}

impl<R: Rules> Run<R> {
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            phase: RunPhase::Claiming,
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
            child: ChildState::default(),
            retry_at: None,
            give_up_at: None,
            interrupted: None,
            last_error: None,
        }
    }

    pub fn step(&mut self, now: Now, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            _ if self.phase == RunPhase::Finished => {}
            // The tree is gone, and how it ended is being written down. What its keeper does now changes nothing.
            Input::NotSpawned(_)
            | Input::Stale
            | Input::TreeEmpty { .. }
            | Input::DeadlineReached
            | Input::Frozen
            | Input::KeeperDied { .. }
                if self.phase == RunPhase::Completing => {}
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
            Input::Said { said, unreadable, definition } => {
                self.child.definition = definition;
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
            Input::DeadlineReached => self.stopping(StopCause::Deadline, &mut out),
            Input::Frozen => self.frozen(now, &mut out),
            Input::Woke => self.renew(now, &mut out),
            Input::KeeperDied { escaped } => self.keeper_died(now, escaped, &mut out),
            Input::Interrupted(signal) => self.interrupt(signal, now, &mut out),
            Input::GivenUp => self.give_up(now, &mut out),
        }
        self.end_without_tree(now, &mut out);
        out
    }

    /// When to come back with [`Input::Tick`] if nothing else happens.
    pub fn wake_at(&self) -> Option<Boot> {
        let moments: [Option<Boot>; 4] = match &self.phase {
            RunPhase::Claiming => [self.give_up_at, None, None, None],
            RunPhase::Waiting { look_at } => [Some(*look_at), None, None, None],
            RunPhase::Running => [
                self.renewal_due(),
                self.child.timeout_at.filter(|_| self.child.stopped.is_none()),
                self.child.frozen_since.map(|since| since + self.terms.grace),
                self.own_deadline(),
            ],
            RunPhase::Completing => [self.retry_at, self.give_up_at, None, None],
            RunPhase::Finished => [None; 4],
        };
        moments.into_iter().flatten().min()
    }

    /// Until when the child may run, for the driver to check the keeper by.
    pub fn deadline(&self) -> Option<Boot> {
        self.lease_deadline().filter(|_| !self.terms.observe)
    }

    /// How long the work has between the request to stop and its end.
    pub fn grace(&self) -> Duration {
        self.terms.grace
    }

    /// Until when the lease is believed in.
    fn lease_deadline(&self) -> Option<Boot> {
        self.mine.as_ref().map(|mine| mine.deadline)
    }

    /// Whether a child was started and its tree is not known to be gone.
    pub fn is_running(&self) -> bool {
        self.phase == RunPhase::Running && self.has_tree()
    }

    pub fn is_finished(&self) -> bool {
        self.phase == RunPhase::Finished
    }

    fn begin(&mut self, now: Now, out: &mut Vec<Output>) {
        self.wait_until = self.terms.wait.map(|wait| now.boot + wait);
        self.look(now, out);
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
            RunPhase::Claiming if self.not_now.is_some() => {
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
            RunPhase::Claiming if !self.holds(&done) => self.asked(now, done, out),
            RunPhase::Claiming => self.claimed(now, done, out),
            RunPhase::Running => self.renewed(now, done, out),
            RunPhase::Completing if completes => self.finish_child(Kept::Recorded, out),
            RunPhase::Completing => {
                self.hold(done);
                self.complete(now, out);
            }
            RunPhase::Waiting { .. } | RunPhase::Finished => {}
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        match &self.phase {
            RunPhase::Waiting { look_at } if now.boot >= *look_at => self.look(now, out),
            RunPhase::Running => self.tick_running(now, out),
            RunPhase::Claiming if self.must_give_up(now) => self.give_up_claim(now, out),
            RunPhase::Completing if self.must_give_up(now) => self.give_up_completion(out),
            RunPhase::Completing => self.retry_if_due(now, out),
            RunPhase::Waiting { .. } | RunPhase::Claiming | RunPhase::Finished => {}
        }
    }

    fn must_give_up(&self, now: Now) -> bool {
        self.give_up_at.is_some_and(|at| now.boot >= at)
    }

    fn refused(&mut self, now: Now, refusal: Refusal, out: &mut Vec<Output>) {
        match (&self.phase, refusal) {
            (RunPhase::Claiming, Refusal::NotHeld | Refusal::NotHolder { .. }) => self.look(now, out),
            (RunPhase::Claiming, Refusal::NotNow { why: NotNow::Early { slot, wait }, .. }) => {
                self.wait_for_slot(now, slot, wait, out);
            }
            (RunPhase::Claiming, refusal) if self.terms.observe && (!refusal.accounts() || self.not_now.is_some()) => {
                self.observe_refusal(now, &refusal, out);
            }
            (RunPhase::Claiming, Refusal::Held { record, remaining }) => self.held(now, record, remaining, out),
            (RunPhase::Claiming, Refusal::NotNow { why, account }) => self.not_now(now, why, account, out),
            (RunPhase::Claiming, other) => self.finish(Finish::Refused(other), out),
            (RunPhase::Running, Refusal::NotHolder { record }) => self.taken(record, out),
            (RunPhase::Running, _) => self.taken(None, out),
            (RunPhase::Completing, refusal) => {
                let record = match refusal {
                    Refusal::NotHolder { record } => record,
                    _ => None,
                };
                self.lost_at_the_end(StopCause::Taken { record }, out);
            }
            (RunPhase::Waiting { .. } | RunPhase::Finished, _) => {}
        }
    }

    fn failed(&mut self, now: Now, error: StoreError, out: &mut Vec<Output>) {
        match self.phase {
            RunPhase::Claiming if self.terms.observe && self.interrupted.is_none() => {
                self.observe_failure(now, &error, out);
            }
            RunPhase::Claiming if self.may_run_without_lease(&error) => self.run_without_lease(now, error, out),
            RunPhase::Claiming if self.may_wait_for_store(now, &error) => {
                self.transition = None;
                self.pause(now);
            }
            RunPhase::Claiming => self.finish(Finish::StoreFailed(error), out),
            RunPhase::Running | RunPhase::Completing => {
                let pause = (self.terms.claim.ttl / 20).min(RETRY_PAUSE_MAX);
                self.retry_at = Some(now.boot + pause);
                if self.last_error.as_ref() != Some(&error) {
                    self.last_error = Some(error.clone());
                    let event = match self.phase {
                        RunPhase::Running => Event::RenewalFailed { error },
                        _ => Event::CompletionFailed { error },
                    };
                    out.push(Output::Tell(event));
                }
            }
            RunPhase::Waiting { .. } | RunPhase::Finished => {}
        }
        // The child may have ended while a renewal was out; its completion needs the store as well.
        if self.phase == RunPhase::Completing && self.transition.as_ref().is_some_and(|t| !t.completes()) {
            self.transition = None;
            self.complete(now, out);
        }
    }

    fn interrupt(&mut self, signal: i32, now: Now, out: &mut Vec<Output>) {
        let why = Interruption::Signal(signal);
        self.interrupted = Some(why);
        match self.phase {
            RunPhase::Running if self.has_tree() => out.push(Output::Forward(signal)),
            RunPhase::Running => self.interrupt_look(now, why, out),
            RunPhase::Waiting { .. } => self.finish(why.finish(Kept::NoLease), out),
            RunPhase::Claiming | RunPhase::Completing => {
                let patience = now.boot + INTERRUPT_PATIENCE;
                self.give_up_at = Some(self.give_up_at.map_or(patience, |at| at.min(patience)));
            }
            RunPhase::Finished => {}
        }
    }

    /// The program goes on, so an answer that is still out is waited for as always: a lease that it grants is released.
    fn give_up(&mut self, now: Now, out: &mut Vec<Output>) {
        match self.phase {
            RunPhase::Running if self.stage == Stage::Surveying => return,
            RunPhase::Completing | RunPhase::Finished => return,
            _ => self.interrupted = Some(Interruption::GivenUp),
        }
        match self.phase {
            RunPhase::Running => self.interrupt_look(now, Interruption::GivenUp, out),
            RunPhase::Waiting { .. } => self.finish(Interruption::GivenUp.finish(Kept::NoLease), out),
            _ => {}
        }
    }

    fn finish(&mut self, finish: Finish, out: &mut Vec<Output>) {
        self.phase = RunPhase::Finished;
        self.transition = None;
        out.push(Output::Finish(finish));
    }
}
