//! One change of a record, carried through lost swaps and unknown fates to a certain end.
//!
//! A machine without I/O: it says which call to make next, and is told the answer. The guarded run and the commands
//! by hand use the same one, so that what a lost answer means is decided in one place.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::time::Duration;

use crate::history::{Added, Aside, AsideKind, Page};
use crate::lease::{Context, Facts, Intent, Now, Refusal, Rules, Ruling};
use crate::ledger::{Attempt, Outcome};
use crate::name::{Job, Key};
use crate::record::{FORMAT, Identity, Record, decode, encode};
use crate::register::{Answer, Entry, Fate, StoreError, Swapped, Trouble, Version};
use crate::time::{Boot, Reference, Wall};
use crate::token::{Nonce, RunId, StoreId};

/// How long a change waits for outcomes to be put into the history that the record has room for. A store that is near
/// takes all of them in that time, once in many runs; one that is far takes one each time.
const SET_ASIDE_PATIENCE: Duration = Duration::from_millis(50);

/// A call to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Read(Key),
    Swap { key: Key, expected: Option<Version>, new: Vec<u8> },
}

/// What the store said to a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Read(Option<Entry>),
    Swap(Swapped),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make this call, once, and come back with [`Transition::answered`].
    Call(Call),
    /// Say what this host knows about the record, by [`Transition::consulted`].
    Consult(Option<Arc<Record>>),
    Done(Box<Done>),
    Refused(Refusal),
    /// The store failed. [`Transition::again`] tries once more, from what is certain by then.
    Failed(StoreError),
}

/// A change that certainly happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    /// The record as it stands. There is none where an account found something due before the job's first record.
    pub held: Option<Known>,
    /// Before the swap was sent that landed, or the first that may have been it.
    pub sent: Boot,
    /// The last reading of the store's clock.
    pub reference: Option<Reference>,
}

/// A record and its version, as last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    pub record: Arc<Record>,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transition<R: Rules> {
    job: Job,
    intent: Intent,
    /// Who writes, for nonces and for a store's first identity.
    by: RunId,
    writes: u32,
    /// `None` while the record has to be read first.
    known: Option<Option<Known>>,
    reference: Option<Reference>,
    /// The latest date of a store without a clock.
    date: Option<Wall>,
    store: Option<StoreId>,
    facts: Option<Facts>,
    /// The version of the record whose holder was found dead. It is read once more before anything is refused by that:
    /// the holder may have completed after the first read, and ended then.
    found_dead: Option<Version>,
    out: Out,
    /// Before the call that is out was sent.
    sent: Boot,
    /// Before the first swap was sent whose fate is still unknown: it may have landed, or land yet.
    unsettled: Option<Boot>,
    /// The attempts that are in the history by now, and since when they have been put there.
    set_aside: Vec<Attempt>,
    /// Attempts that are whole in the history, while the record keeps what counts. A reader of the history alone does not
    /// count them, so the record still has to keep them.
    detailed: Vec<Attempt>,
    setting_aside_since: Option<Boot>,
    /// The clocks by which an outcome was put into the history, so that the record gets the very same.
    decided_by: Option<(Now, Option<Reference>, Option<Wall>)>,
    rules: PhantomData<R>,
}

/// Which call is out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Out {
    Nothing,
    Record,
    Identity,
    NewIdentity,
    /// An attempt that goes into the history, why, and on which page.
    Aside(Box<Outcome>, AsideKind, u32),
    Swap(Box<Record>),
}

impl<R: Rules> Transition<R> {
    /// A change of a record that has to be read first. `by` is who writes and `writes` how many nonces it has used.
    pub fn new(job: Job, intent: Intent, by: RunId, writes: u32) -> Self {
        Self {
            job,
            intent,
            by,
            writes,
            known: None,
            reference: None,
            date: None,
            store: None,
            facts: None,
            found_dead: None,
            out: Out::Nothing,
            sent: Boot(0),
            unsettled: None,
            set_aside: Vec::new(),
            detailed: Vec::new(),
            setting_aside_since: None,
            decided_by: None,
            rules: PhantomData,
        }
    }

    /// A change that starts from what is known, and so needs no read.
    pub fn from_known(mut self, known: Known, reference: Option<Reference>) -> Self {
        self.known = Some(Some(known));
        self.reference = reference;
        self
    }

    pub fn begin(&mut self, now: Now) -> Step {
        self.drop_old_reading(now);
        self.proceed(now)
    }

    /// Tries again after [`Step::Failed`].
    pub fn again(&mut self, now: Now) -> Step {
        self.facts = None;
        self.drop_old_reading(now);
        self.proceed(now)
    }

    /// How many nonces were used, for the next transition by the same writer.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    /// Whether this is the change that ends a run.
    pub fn completes(&self) -> bool {
        matches!(self.intent, Intent::Complete { .. } | Intent::Conclude { .. } | Intent::Release(_))
    }

    pub fn consulted(&mut self, now: Now, facts: Facts) -> Step {
        self.facts = Some(facts);
        self.proceed(now)
    }

    pub fn answered(&mut self, now: Now, answer: Result<Answer<Reply>, StoreError>) -> Step {
        let out = core::mem::replace(&mut self.out, Out::Nothing);
        let reply = match answer {
            Ok(answer) => {
                if let Some(clock) = answer.clock {
                    self.reference = Some(Reference { clock, asked: self.sent });
                }
                self.date = self.date.max(answer.date);
                answer.value
            }
            Err(error) => return self.failed(now, out, error),
        };
        match (out, reply) {
            (Out::Record, Reply::Read(entry)) => self.seen(now, entry),
            (Out::Identity | Out::NewIdentity, Reply::Read(entry)) => self.identity_seen(now, entry),
            (Out::NewIdentity, Reply::Swap(Swapped::Won(_))) => self.proceed(now),
            (Out::NewIdentity, Reply::Swap(Swapped::Lost(entry))) => self.identity_seen(now, entry),
            (Out::Aside(outcome, kind, _), Reply::Swap(Swapped::Won(_))) => self.is_aside(now, &outcome, kind),
            (Out::Aside(outcome, kind, page), Reply::Swap(Swapped::Lost(entry))) => {
                self.set_aside(now, outcome, kind, page, entry.as_ref())
            }
            (Out::Swap(record), Reply::Swap(Swapped::Won(version))) => self.won(record, version),
            // Only the record says whose lease it is, so a holder whose swap was lost looks at it.
            (Out::Swap(_), Reply::Swap(Swapped::Lost(entry))) => self.seen(now, entry),
            (out, reply) => Step::Failed(StoreError::unknown(
                Trouble::Corrupt,
                format!("The store answered {reply:?} to another question ({out:?})."),
            )),
        }
    }

    /// Reads again before a renewal that would rest on an old reading of the store's clock.
    fn drop_old_reading(&mut self, now: Now) {
        let lease = self.known.as_ref().and_then(|known| known.as_ref()?.record.lease.as_ref());
        let is_old = |reference: &Reference| lease.is_some_and(|lease| R::is_old(reference, now.boot, lease.ttl));
        if matches!(self.intent, Intent::Renew(_)) && self.reference.as_ref().is_some_and(is_old) {
            self.known = None;
        }
    }

    fn proceed(&mut self, now: Now) -> Step {
        let Some(known) = &self.known else { return self.read(now, Out::Record) };
        let record = known.as_ref().map(|known| known.record.as_ref());
        let claiming = self.intent.may_make_a_record();
        if self.intent.judges_the_lease() && self.facts.is_none() {
            return Step::Consult(known.as_ref().map(|known| Arc::clone(&known.record)));
        }
        if claiming && record.is_none() && self.store.is_none() {
            return self.read(now, Out::Identity);
        }
        let nonce = Nonce { by: self.by, write: self.writes };
        let facts = self.facts.clone().unwrap_or_default();
        let (decided_now, reference, date) = match &self.decided_by {
            Some((then, reference, date)) => (*then, reference.as_ref(), *date),
            None => (now, self.reference.as_ref(), self.date),
        };
        let has_time = self.setting_aside_since.is_none_or(|since| now.boot.since(since) < SET_ASIDE_PATIENCE);
        let (store, aside) = (self.store, Aside { done: &self.set_aside, has_time });
        let context = Context { job: &self.job, now: decided_now, nonce, reference, date, facts: &facts, store, aside };
        match self.intent.decide::<R>(record, &context) {
            Err(refusal) if !self.has_ended(record) => {
                let version = known.as_ref().map(|known| known.version.clone());
                if facts.holder_is_dead && self.found_dead != version {
                    (self.found_dead, self.known, self.facts) = (version, None, None);
                    return self.read(now, Out::Record);
                }
                Step::Refused(refusal)
            }
            Err(_) | Ok(Ruling::AlreadyDone) => {
                let (held, sent) = (known.clone(), self.unsettled.unwrap_or(self.sent));
                self.done(held, sent)
            }
            Ok(Ruling::Write { mut record, mut aside }) => {
                let (bytes, given_up) = record.fitted();
                aside.extend(given_up);
                let kind = |outcome: &Outcome| match record.ledger.has(outcome.attempt()) {
                    true => AsideKind::Detail,
                    false => AsideKind::Attempt,
                };
                match aside.into_iter().find(|outcome| !self.has_aside(outcome, kind(outcome))) {
                    Some(outcome) => {
                        let kind = kind(&outcome);
                        self.keep_clocks(now);
                        self.setting_aside_since.get_or_insert(now.boot);
                        self.set_aside(now, Box::new(outcome), kind, 0, None)
                    }
                    None => self.swap(now, record, bytes),
                }
            }
        }
    }

    /// An outcome by hand gets its token in the same swap, by the clock. If that went on while the outcome is put into
    /// the history, the record would have another, for ever. A lease is never decided by an old clock: its deadline
    /// rests on it.
    fn keep_clocks(&mut self, now: Now) {
        if matches!(self.intent, Intent::Record { .. }) && self.decided_by.is_none() {
            self.decided_by = Some((now, self.reference.clone(), self.date));
        }
    }

    /// Writes an attempt into the history, beside what stands on that page now.
    fn set_aside(
        &mut self,
        now: Now,
        outcome: Box<Outcome>,
        kind: AsideKind,
        page: u32,
        entry: Option<&Entry>,
    ) -> Step {
        let bytes = entry.map(|entry| entry.bytes.as_slice());
        match Page::add(bytes, &self.job, &outcome, kind) {
            Ok(Added::Known) => self.is_aside(now, &outcome, kind),
            Ok(Added::Full) => self.set_aside(now, outcome, kind, page + 1, None),
            Ok(Added::Page(new)) => {
                let key = Key::history(&self.job, outcome.slot, page);
                let expected = entry.map(|entry| entry.version.clone());
                self.out = Out::Aside(outcome, kind, page);
                self.sent = now.boot;
                Step::Call(Call::Swap { key, expected, new })
            }
            Err(why) => self.fail(unreadable(&format!("the history of {}", self.job), &why)),
        }
    }

    fn has_aside(&self, outcome: &Outcome, kind: AsideKind) -> bool {
        let attempt = outcome.attempt();
        self.set_aside.contains(&attempt) || kind == AsideKind::Detail && self.detailed.contains(&attempt)
    }

    fn is_aside(&mut self, now: Now, outcome: &Outcome, kind: AsideKind) -> Step {
        match kind {
            AsideKind::Attempt => self.set_aside.push(outcome.attempt()),
            AsideKind::Detail => self.detailed.push(outcome.attempt()),
        }
        self.proceed(now)
    }

    /// Whether a swap of unknown fate landed and ended the lease, so that it is refused now for having been done.
    fn has_ended(&self, record: Option<&Record>) -> bool {
        let ends = self.completes() || self.intent == Intent::ForceRelease;
        let by_us = |record: &Record| record.lease.is_none() && record.nonce.by == self.by;
        // A token is granted once, so an outcome under it shows the swap also after the next claim.
        let is_shown = |record: &Record| match &self.intent {
            Intent::Conclude { me, ending, .. } => {
                record.ledger.ring.iter().any(|last| (last.token, last.status) == (me.token, ending.status))
            }
            _ => false,
        };
        ends && self.unsettled.is_some() && record.is_some_and(|record| by_us(record) || is_shown(record))
    }

    fn read(&mut self, now: Now, out: Out) -> Step {
        let key = if out == Out::Record { Key::job(&self.job) } else { Key::identity() };
        self.out = out;
        self.sent = now.boot;
        Step::Call(Call::Read(key))
    }

    fn swap(&mut self, now: Now, next: Box<Record>, new: Vec<u8>) -> Step {
        let expected = self.known.as_ref().and_then(|known| known.as_ref()).map(|known| known.version.clone());
        self.out = Out::Swap(next);
        self.sent = now.boot;
        self.writes += 1;
        Step::Call(Call::Swap { key: Key::job(&self.job), expected, new })
    }

    /// The record was read, or came with a lost swap.
    fn seen(&mut self, now: Now, entry: Option<Entry>) -> Step {
        self.facts = None;
        self.decided_by = None;
        match entry.map(|entry| Known::of(entry, &self.job)).transpose() {
            Ok(known) => {
                self.known = Some(known);
                self.proceed(now)
            }
            Err(error) => self.fail(error),
        }
    }

    fn identity_seen(&mut self, now: Now, entry: Option<Entry>) -> Step {
        let Some(entry) = entry else {
            let store = StoreId(self.by.0);
            let new = encode(&Identity { v: FORMAT, store, sealed: None, unknown: Default::default() });
            self.store = Some(store);
            self.out = Out::NewIdentity;
            self.sent = now.boot;
            return Step::Call(Call::Swap { key: Key::identity(), expected: None, new });
        };
        match decode::<Identity>(&entry.bytes) {
            Ok(Identity { sealed: Some(seal), .. }) => Step::Refused(Refusal::Sealed(seal)),
            Ok(identity) => {
                self.store = Some(identity.store);
                self.proceed(now)
            }
            Err(why) => self.fail(unreadable("the store's identity", &why)),
        }
    }

    fn won(&mut self, record: Box<Record>, version: Option<Version>) -> Step {
        let held = version.map(|version| Known { record: record.into(), version });
        let sent = self.sent;
        self.done(held, sent)
    }

    fn failed(&mut self, now: Now, out: Out, error: StoreError) -> Step {
        match (out, error.fate) {
            // It may have landed. The record is read back, and our own nonce in it tells.
            (Out::Swap(_), Fate::Unknown) => {
                self.known = None;
                let keeps_failing = self.unsettled.is_some();
                self.unsettled = self.unsettled.or(Some(self.sent));
                // A store that fails every write and answers every read would be asked without a pause for ever.
                if keeps_failing { self.fail(error) } else { self.proceed(now) }
            }
            (Out::NewIdentity, _) => {
                self.store = None;
                self.fail(error)
            }
            // Whether it landed is seen when it is tried again. The record itself is as it was.
            (Out::Aside(..), _) => self.fail(StoreError { fate: Fate::NotDone, ..error }),
            _ => self.fail(error),
        }
    }

    /// While the fate of a swap is unknown, no later failure can say that nothing was done.
    fn fail(&self, mut error: StoreError) -> Step {
        if self.unsettled.is_some() {
            error.fate = Fate::Unknown;
        }
        Step::Failed(error)
    }

    fn done(&self, held: Option<Known>, sent: Boot) -> Step {
        Step::Done(Box::new(Done { held, sent, reference: self.reference.clone() }))
    }
}

impl Known {
    pub fn of(entry: Entry, job: &Job) -> Result<Self, StoreError> {
        let record =
            Record::decode(&entry.bytes, job).map_err(|why| unreadable(&format!("the record of {job}"), &why))?;
        Ok(Self { record: record.into(), version: entry.version })
    }
}

/// A value that cannot be read is never taken for an absent one: nothing was done, and a person has to look.
pub fn unreadable(what: &str, why: &crate::record::Unreadable) -> StoreError {
    StoreError::not_done(Trouble::Corrupt, format!("Cannot read {what}: {why}"))
}
