//! A resource that only one command at a time may touch: its fence and its busy-lease, in one record.
//!
//! A command that is run on a resource cannot check a token itself. So the fence is advanced first and the command
//! runs after, and for as long as any process of it may live the record says so: a newer token waits, a lower one is
//! refused. What a crash leaves behind ends by its time-to-live, or at once if its processes are provably gone.

mod change;

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fence::{Fence, Refused, Strict, Verdict, Write, judge};
use crate::lease::{Cause, Honest, Rules, Standing};
use crate::record::{FORMAT, Format, Holder, Unreadable, Until, decode, encode};
use crate::time::{Boot, Reference, StoreClock, Wall, as_millis};
use crate::token::{Nonce, RunId};

pub use change::{Change, Intent, Outcome, Step};

/// The most bytes a resource's name may have. It stands in the record, which is small.
pub const RESOURCE_BYTES_MAX: usize = 1024;

/// What is known of a resource and of the last command that was let at it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Busy {
    pub v: Format,
    /// The resource's whole name, because its key may be a hash of it.
    pub resource: String,
    pub nonce: Nonce,
    pub fence: Fence,
    /// The command that the fence was advanced for. One run may have several, one after another.
    pub turn: RunId,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Some process of the command may be alive.
    Running(Box<Running>),
    /// Nothing of it is left.
    Ended { code: i32 },
    /// It could not be started, so that certainly nothing happened.
    NotStarted,
}

/// The busy-lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Running {
    #[serde(rename = "ttl_ms", with = "as_millis")]
    pub ttl: Duration,
    pub renewals: u64,
    /// When it ends by the store's clock, where the store has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    pub holder: Holder,
    /// For people only.
    pub since: Wall,
}

/// A command that wants its turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub resource: String,
    pub turn: RunId,
    pub write: Write,
    pub ttl: Duration,
    pub holder: Holder,
}

/// What the asker knows besides the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// The processes of the command that runs were on this very system, and are gone.
    pub is_dead: bool,
    /// Since when the asker has seen this very state, for stores without a clock.
    pub watched: Option<Watched>,
}

/// One state of a busy-lease, and since when it was seen unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watched {
    pub turn: RunId,
    pub renewals: u64,
    pub since: Boot,
}

/// The clocks and the nonce that a decision is made with.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    pub now: Boot,
    pub wall: Wall,
    pub reference: Option<&'a Reference>,
    pub nonce: Nonce,
}

/// What comes of a command that wants its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Write this down, then run.
    Take(Box<Busy>),
    /// It was written down already: an earlier try landed.
    Taken,
    /// Another command is at it, for so much longer at most unless it is renewed.
    Wait(Option<Duration>),
    /// This very command was run before, and ended like this.
    Ran {
        code: i32,
    },
    /// This very command was started before, and nobody knows how far it came.
    Unknown(Cause),
    Refused(Refused),
}

impl Busy {
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        encode(self)
    }

    /// Reads the record of this resource back, strictly: what cannot be read is never taken for a free resource.
    pub fn decode(bytes: &[u8], resource: &str) -> Result<Self, Unreadable> {
        let busy: Self = decode(bytes)?;
        if busy.resource != resource {
            return Err(Unreadable::Damaged(alloc::format!("it is of another resource, {:?}", busy.resource)));
        }
        Ok(busy)
    }

    /// Whether the command that runs may still be alive.
    pub fn standing(&self, clock: Option<&StoreClock>, evidence: &Evidence, now: Boot) -> Standing {
        let State::Running(running) = &self.state else { return Standing::Free };
        if evidence.is_dead {
            return Standing::Over(Cause::Died);
        }
        match (clock, &running.until) {
            (Some(clock), Some(until)) => until.standing(clock),
            _ if self.was_watched_long_enough(running, evidence, now) => Standing::Over(Cause::Expired),
            _ => Standing::Held { remaining: None },
        }
    }

    /// What an observer without a clock keeps in mind, counted from after the read that showed it.
    pub fn watch(&self, before: Option<Watched>, answered: Boot) -> Option<Watched> {
        let State::Running(running) = &self.state else { return None };
        match before {
            Some(same) if (same.turn, same.renewals) == (self.turn, running.renewals) => Some(same),
            _ => Some(Watched { turn: self.turn, renewals: running.renewals, since: answered }),
        }
    }

    /// The record after a renewal, or `None` if the turn is no longer this one's.
    pub fn renewed(&self, turn: RunId, moment: &Moment<'_>) -> Option<Self> {
        let State::Running(running) = &self.state else { return None };
        let running = Running {
            renewals: running.renewals + 1,
            until: Honest::until(moment.reference, moment.now, running.ttl),
            ..(**running).clone()
        };
        let next = Self { nonce: moment.nonce, state: State::Running(Box::new(running)), ..self.clone() };
        (self.turn == turn).then_some(next)
    }

    /// The record after the whole tree is dead, or `None` if the turn is no longer this one's.
    pub fn ended(&self, turn: RunId, end: &State, moment: &Moment<'_>) -> Option<Self> {
        let ours = self.turn == turn && matches!(self.state, State::Running(_));
        ours.then(|| Self { nonce: moment.nonce, state: end.clone(), ..self.clone() })
    }

    fn was_watched_long_enough(&self, running: &Running, evidence: &Evidence, now: Boot) -> bool {
        evidence.watched.is_some_and(|watched| {
            let unchanged = (watched.turn, watched.renewals) == (self.turn, running.renewals);
            unchanged && now >= watched.since + (running.ttl + running.ttl / DRIFT_SHARE)
        })
    }
}

impl Entry {
    /// Decides whether the command may run now. The fence is asked first: who is stale waits for nobody.
    pub fn decide(&self, busy: Option<&Busy>, evidence: &Evidence, moment: &Moment<'_>) -> Turn {
        let Some(seen) = busy else { return self.judged(None, moment) };
        if seen.turn == self.turn {
            return Turn::Taken;
        }
        match seen.standing(moment.reference.map(|reference| &reference.clock), evidence, moment.now) {
            Standing::Held { remaining } => match judge::<Strict>(Some(&seen.fence), &self.write) {
                Err(refused) => Turn::Refused(refused),
                Ok(_) => Turn::Wait(remaining),
            },
            Standing::Free => self.judged(Some(seen), moment),
            Standing::Over(cause) => match self.judged(Some(seen), moment) {
                Turn::Ran { .. } => Turn::Unknown(cause),
                other => other,
            },
        }
    }

    fn judged(&self, seen: Option<&Busy>, moment: &Moment<'_>) -> Turn {
        match (judge::<Strict>(seen.map(|seen| &seen.fence), &self.write), seen.map(|seen| &seen.state)) {
            (Err(refused), _) => Turn::Refused(refused),
            // It was let at the resource and could not be started: nothing happened, and the right is not used up.
            (Ok(Verdict::AlreadyApplied(fence)), Some(State::NotStarted)) => self.take(fence, moment),
            (Ok(Verdict::AlreadyApplied(_)), Some(State::Ended { code })) => Turn::Ran { code: *code },
            (Ok(Verdict::AlreadyApplied(_)), _) => Turn::Ran { code: 0 },
            (Ok(Verdict::Accept(fence)), _) => self.take(fence, moment),
        }
    }

    fn take(&self, fence: Fence, moment: &Moment<'_>) -> Turn {
        let running = Running {
            ttl: self.ttl,
            renewals: 0,
            until: Honest::until(moment.reference, moment.now, self.ttl),
            holder: self.holder.clone(),
            since: moment.wall,
        };
        Turn::Take(Box::new(Busy {
            v: FORMAT,
            resource: self.resource.clone(),
            nonce: moment.nonce,
            fence,
            turn: self.turn,
            state: State::Running(Box::new(running)),
        }))
    }
}

/// The part of a time-to-live that two clocks may drift apart while it lasts, as for the lease of a job.
const DRIFT_SHARE: u32 = 20;

#[cfg(test)]
mod tests;
