//! One change of a busy record, carried through lost swaps and unknown fates to a certain end.
//!
//! Like [`Transition`](crate::transition), and smaller: it says which call to make next, and is told the answer.

use alloc::boxed::Box;
use alloc::format;

use super::{Busy, Entry, Evidence, Moment, State, Turn};
use crate::lease::{Cause, Now};
use crate::name::Key;
use crate::register::{Answer, Entry as Stored, Fate, StoreError, Swapped, Trouble, Version};
use crate::time::{Boot, Reference};
use crate::token::{Nonce, RunId};
use crate::transition::{Call, Reply, unreadable};

use core::time::Duration;

use crate::fence::Refused;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Advance the fence and take the turn.
    Enter(Box<Entry>),
    Renew,
    /// The tree is dead: let the next one in.
    End(State),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make this call, once, and come back with [`Change::answered`].
    Call(Call),
    Done(Outcome),
    /// The store failed. [`Change::again`] tries once more, from whatever is certain by then.
    Failed(StoreError),
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stands as wanted. `sent` is before the swap was sent that landed, or the first that may have been it.
    Stands {
        busy: Box<Busy>,
        sent: Boot,
    },
    /// Another command is at it.
    Wait {
        busy: Box<Busy>,
        remaining: Option<Duration>,
    },
    /// This very command ran before.
    Ran {
        busy: Box<Busy>,
        code: i32,
    },
    /// This very command was started before, and nobody knows how far it came.
    Unknown {
        busy: Box<Busy>,
        cause: Cause,
    },
    Refused(Refused),
    /// The turn passed to another, because it was not renewed in time.
    Lost {
        busy: Option<Box<Busy>>,
    },
}

#[derive(Clone, Debug)]
pub struct Change {
    key: Key,
    resource: alloc::string::String,
    turn: RunId,
    intent: Intent,
    writes: u32,
    /// `None` while the record has to be read first.
    known: Option<Option<(Busy, Version)>>,
    reference: Option<Reference>,
    /// The swap that is out, if a swap is.
    swapping: Option<Box<Busy>>,
    sent: Boot,
    /// Before the first swap was sent whose fate is still unknown: it may have landed, or land yet.
    unsettled: Option<Boot>,
}

impl Change {
    /// A change by `turn`, which has used `writes` nonces so far.
    pub fn new(resource: &str, turn: RunId, intent: Intent, writes: u32) -> Self {
        Self {
            key: Key::resource(resource),
            resource: resource.into(),
            turn,
            intent,
            writes,
            known: None,
            reference: None,
            swapping: None,
            sent: Boot(0),
            unsettled: None,
        }
    }

    /// How many nonces were used, for the next change by the same turn.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    /// The first call, which is a read.
    pub fn begin(&mut self, now: Now) -> Step {
        self.read(now)
    }

    /// Tries again after [`Step::Failed`] or after waiting.
    pub fn again(&mut self, now: Now) -> Step {
        self.read(now)
    }

    /// Takes an answer. `evidence` is what this host knows about the record that it shows.
    pub fn answered(
        &mut self,
        now: Now,
        answer: Result<Answer<Reply>, StoreError>,
        evidence: &mut dyn FnMut(&Busy) -> Evidence,
    ) -> Step {
        let swapping = self.swapping.take();
        let reply = match answer {
            Ok(answer) => {
                if let Some(clock) = answer.clock {
                    self.reference = Some(Reference { clock, asked: self.sent });
                }
                answer.value
            }
            Err(error) if error.fate == Fate::Unknown && swapping.is_some() => {
                self.unsettled = self.unsettled.or(Some(self.sent));
                return self.read(now);
            }
            Err(error) => return self.fail(error),
        };
        match (swapping, reply) {
            (None, Reply::Read(stored)) | (Some(_), Reply::Swap(Swapped::Lost(stored))) => {
                self.seen(now, stored, evidence)
            }
            (Some(busy), Reply::Swap(Swapped::Won(_))) => Step::Done(Outcome::Stands { busy, sent: self.sent }),
            (_, reply) => self.fail(StoreError::unknown(
                Trouble::Corrupt,
                format!("The store answered {reply:?} to another question."),
            )),
        }
    }

    fn seen(&mut self, now: Now, stored: Option<Stored>, evidence: &mut dyn FnMut(&Busy) -> Evidence) -> Step {
        let known = stored.map(|stored| Busy::decode(&stored.bytes, &self.resource).map(|busy| (busy, stored.version)));
        match known.transpose() {
            Ok(known) => self.known = Some(known),
            Err(why) => return self.fail(unreadable(&format!("the record of the resource {}", self.resource), &why)),
        }
        let busy = self.known.iter().flatten().next().map(|(busy, _)| busy);
        let nonce = Nonce { by: self.turn, write: self.writes };
        let moment = Moment { now: now.boot, wall: now.wall, reference: self.reference.as_ref(), nonce };
        let boxed = || busy.cloned().map(Box::new);
        let sent = self.unsettled.unwrap_or(self.sent);
        let next = match (&self.intent, busy) {
            (Intent::Enter(entry), _) => {
                let evidence = busy.map(evidence).unwrap_or_default();
                match (entry.decide(busy, &evidence, &moment), boxed()) {
                    (Turn::Take(next), _) => Ok(next),
                    (Turn::Refused(refused), _) => Err(Outcome::Refused(refused)),
                    (Turn::Taken, Some(busy)) => Err(Outcome::Stands { busy, sent }),
                    (Turn::Wait(remaining), Some(busy)) => Err(Outcome::Wait { busy, remaining }),
                    (Turn::Ran { code }, Some(busy)) => Err(Outcome::Ran { busy, code }),
                    (Turn::Unknown(cause), Some(busy)) => Err(Outcome::Unknown { busy, cause }),
                    (_, None) => unreachable!("only a record that is there is taken, waited for or known"),
                }
            }
            (Intent::Renew, Some(busy)) => {
                busy.renewed(self.turn, &moment).map(Box::new).ok_or_else(|| Outcome::Lost { busy: boxed() })
            }
            // An earlier try landed.
            (Intent::End(end), Some(busy)) if busy.turn == self.turn && busy.state == *end => {
                Err(Outcome::Stands { busy: Box::new(busy.clone()), sent })
            }
            (Intent::End(end), Some(busy)) => {
                busy.ended(self.turn, end, &moment).map(Box::new).ok_or_else(|| Outcome::Lost { busy: boxed() })
            }
            (Intent::Renew | Intent::End(_), None) => Err(Outcome::Lost { busy: None }),
        };
        match next {
            Ok(next) => self.swap(now, next),
            Err(outcome) => Step::Done(outcome),
        }
    }

    fn read(&mut self, now: Now) -> Step {
        self.known = None;
        self.sent = now.boot;
        Step::Call(Call::Read(self.key.clone()))
    }

    fn swap(&mut self, now: Now, next: Box<Busy>) -> Step {
        let expected = self.known.iter().flatten().next().map(|(_, version)| version.clone());
        let new = next.encode();
        self.swapping = Some(next);
        self.sent = now.boot;
        self.writes += 1;
        Step::Call(Call::Swap { key: self.key.clone(), expected, new })
    }

    /// While the fate of a swap is unknown, no later failure can say that nothing was done.
    fn fail(&self, mut error: StoreError) -> Step {
        if self.unsettled.is_some() {
            error.fate = Fate::Unknown;
        }
        Step::Failed(error)
    }
}
