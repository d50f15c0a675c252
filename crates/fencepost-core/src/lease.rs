//! Every rule about who may hold, renew and release, and nothing else.
//!
//! [`Rules`] is the list of the rules, one method each. The methods are the shipped code; the model replaces one at
//! a time by a known bug and shows that it is found.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use thiserror::Error;

use crate::history::Aside;
use crate::ledger::{Covered, EndedBy, Ending, Outcome, Status, Trigger, WHOLE_NOTE_BYTES_MAX, cut};
use crate::name::Job;
use crate::plan::{PlanRules, SlotState};
use crate::record::{FORMAT, Holder, Lease, Paused, Record, Seal, StopAsked, Until};
use crate::said::Published;
use crate::slot::{self, Choice, Chosen, Named, NotNow, Timing};
use crate::time::{Boot, Reference, StoreClock, Wall};
use crate::token::{Nonce, RunId, StoreId, Token};

/// The shortest time-to-live that can be kept on a loaded machine.
pub const TTL_MIN: Duration = Duration::from_secs(1);

/// The longest one: what nobody renews for a month is not a lease.
pub const TTL_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// A store's date this far from ours is wrong, or ours is: tokens made from it could not be trusted.
pub const CLOCK_GAP_MAX: Duration = Duration::from_secs(24 * 3600);

/// The part of a time-to-live that two clocks may drift apart while it lasts: a twentieth, on either side.
const DRIFT_SHARE: u32 = 20;

/// What this process's own clocks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    pub boot: Boot,
    pub wall: Wall,
}

/// Who is asking. A lease by hand is known by its token alone: that is what `lease acquire` printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Me {
    pub token: Token,
    pub run: Option<RunId>,
}

/// What this host knows about a record besides the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The holder's processes ran on this very system, and are gone.
    pub holder_is_dead: bool,
    /// The highest token of this job that this host ever saw granted.
    pub high_water: Option<Token>,
    /// Since when this host has seen the lease unchanged, for stores without a clock.
    pub sighting: Option<Sighting>,
    /// The sighting is the first of this state of the lease: nobody on this host has watched it so far.
    pub is_first_sight: bool,
}

/// One state of a lease, and since when it was seen unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sighting {
    pub token: Token,
    pub renewals: u64,
    pub since: Boot,
}

/// How a lease stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    Free,
    /// Held, and for how much longer at least unless it is renewed, where the store's clock tells.
    Held {
        remaining: Option<Duration>,
    },
    Over(Cause),
}

impl Standing {
    /// What it means for the slot behind the lease: its run is going, or has died.
    fn for_slots(&self) -> slot::Standing {
        if matches!(self, Self::Over(_)) { slot::Standing::Over } else { slot::Standing::Stands }
    }
}

/// Why a lease that nobody released is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    Expired,
    Died,
    Rebooted,
}

impl Lease {
    /// Whether it looks as if its holder had died, going by its holder's wall clock and ours. That is a hint to watch it
    /// and never a decision: a living holder renews it every third of its time-to-live.
    pub fn looks_abandoned(&self, now: Wall) -> bool {
        let renewals = u32::try_from(self.renewals).unwrap_or(u32::MAX);
        let pace = self.ttl / 3 + self.ttl / 30;
        self.until.is_none() && now.since(self.since) > pace.saturating_mul(renewals) + self.ttl + self.ttl / 2
    }

    /// How long it has to be watched before it is certainly over, and a little longer.
    pub fn watch_length(&self) -> Duration {
        self.ttl + self.ttl / DRIFT_SHARE + Duration::from_millis(500)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease expired",
            Self::Died => "its processes died",
            Self::Rebooted => "the machine was restarted",
        })
    }
}

impl Until {
    /// Judges by the store's clock alone. In another era everything of this one is over.
    pub fn standing(&self, clock: &StoreClock) -> Standing {
        if clock.era != self.era {
            return Standing::Over(Cause::Rebooted);
        }
        match self.tick.checked_sub(clock.tick) {
            None | Some(0) => Standing::Over(Cause::Expired),
            Some(left) => Standing::Held { remaining: Some(Duration::from_millis(left)) },
        }
    }
}

/// The rules. Each is a function of its arguments alone.
pub trait Rules: PlanRules {
    /// A holder stops believing this long after the moment *before* it sent the swap that won, never after the
    /// moment it heard of it: the answer may have taken any time.
    fn deadline(sent: Boot, _answered: Boot, ttl: Duration) -> Boot {
        sent + (ttl - ttl / DRIFT_SHARE)
    }

    /// A lease ends at the latest moment the store's clock can show when its holder stops believing, so that the
    /// store never ends a lease that its holder still believes in.
    fn until(reference: Option<&Reference>, now: Boot, ttl: Duration) -> Option<Until> {
        let latest = reference?.at_most(now);
        Some(Until { era: latest.era, tick: latest.tick.saturating_add(crate::time::millis(ttl)) })
    }

    /// A renewal does not rest on a reading of the store's clock from more than a time-to-live ago, as after a sleep.
    /// The clocks may have drifted apart by more than the margin since then, and a request that slept on its way would
    /// make the lease longer by as much.
    fn is_old(reference: &Reference, now: Boot, ttl: Duration) -> bool {
        now.since(reference.asked) > ttl
    }

    /// Ownership is (token, run) in the record, never the version: others swap the record too.
    fn is_holder(record: &Record, me: &Me) -> bool {
        let same_run = |lease: &Lease| me.run.is_none_or(|run| lease.run == run);
        record.token == me.token && record.lease.as_ref().is_some_and(same_run)
    }

    fn may_renew(record: &Record, me: &Me) -> bool {
        Self::is_holder(record, me)
    }

    fn may_release(record: &Record, me: &Me) -> bool {
        Self::is_holder(record, me)
    }

    /// Judges a lease by the store's clock, by the death of its processes, or by having seen it unchanged for a whole
    /// time-to-live. No wall clock of one client is ever compared with another's.
    fn standing(record: &Record, clock: Option<&StoreClock>, facts: &Facts, now: Boot) -> Standing {
        let Some(lease) = &record.lease else { return Standing::Free };
        if facts.holder_is_dead {
            return Standing::Over(Cause::Died);
        }
        match (clock, &lease.until) {
            (Some(clock), Some(until)) => until.standing(clock),
            _ if Self::seen_long_enough(record, lease, facts, now) => Standing::Over(Cause::Expired),
            _ => Standing::Held { remaining: None },
        }
    }

    /// An observer without a clock counts from *after* the read that showed this very state.
    fn seen_long_enough(record: &Record, lease: &Lease, facts: &Facts, now: Boot) -> bool {
        facts.sighting.is_some_and(|sighting| {
            let unchanged = (sighting.token, sighting.renewals) == (record.token, lease.renewals);
            unchanged && now >= sighting.since + (lease.ttl + lease.ttl / DRIFT_SHARE)
        })
    }

    /// What an observer keeps in mind. What others write into the record besides the lease does not disturb it.
    fn sight(before: Option<Sighting>, record: &Record, _asked: Boot, answered: Boot) -> Option<Sighting> {
        let lease = record.lease.as_ref()?;
        match before {
            Some(same) if (same.token, same.renewals) == (record.token, lease.renewals) => Some(same),
            _ => Some(Sighting { token: record.token, renewals: lease.renewals, since: answered }),
        }
    }

    /// Tokens never go back, even when the store does: the date outranks whatever a restored store has forgotten.
    fn mint(last: Option<Token>, date: Wall, high_water: Option<Token>) -> Option<Token> {
        let after = |token: Option<Token>| token.map_or(Some(Token::default()), Token::next);
        let date = Token::new(u64::try_from(date.0).unwrap_or(0))?;
        Some(after(last)?.max(after(high_water)?).max(date))
    }

    /// A release keeps the record, and with it the token.
    fn release(mut record: Record) -> Option<Record> {
        record.lease = None;
        Some(record)
    }

    /// What a failed swap whose fate is unknown is taken for.
    fn unknown() -> Settle {
        Settle::ReadBack
    }

    /// What a lost swap means to a holder: look at the record. Only that says whose it is.
    fn lost_swap() -> Settle {
        Settle::ReadBack
    }
}

/// What is made of a swap that was not clearly won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settle {
    ReadBack,
    TakeAsWon,
    TakeAsLost,
}

/// The rules as shipped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Honest;

impl Rules for Honest {}

/// A change that somebody wants to make to a record.
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
    /// Wave off every trigger from now on.
    Pause(Paused),
    /// Let triggers through again. What passed meanwhile is not caught up.
    Resume,
    /// Release without an outcome: leases by hand.
    Release(Me),
    /// Release whoever holds it.
    ForceRelease,
    /// Ask the holder to stop and hand over.
    AskToStop(StopAsked),
    /// Take note of a publish that was made by hand. Anybody may: it changes nothing that counts.
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

/// Everything a decision may rest on.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    pub job: &'a Job,
    pub now: Now,
    pub nonce: Nonce,
    pub reference: Option<&'a Reference>,
    pub facts: &'a Facts,
    /// The store's identity, needed for a job's first record.
    pub store: Option<StoreId>,
    pub aside: Aside<'a>,
}

/// What comes of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Swap the record for this one (`None`: remove it), once what it has no room for is in the history.
    Write { record: Option<Box<Record>>, aside: Vec<Outcome> },
    /// The record shows that it was done already: an earlier try landed.
    AlreadyDone,
}

/// Why an intent is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum Refusal {
    #[error("it is held by another")]
    Held { record: Box<Record>, remaining: Option<Duration> },
    /// The lease is not the asker's, or no longer.
    #[error("the lease is no longer ours")]
    NotHolder { record: Option<Box<Record>> },
    #[error("nobody holds it")]
    NobodyHolds,
    /// There is no slot to run.
    #[error("there is nothing to run")]
    NotNow {
        why: NotNow,
        /// That is to be written down.
        account: bool,
    },
    #[error(
        "the store's clock and this host's are more than 24 hours apart (store {store_ms}, here {here_ms}, in \
         milliseconds since 1970), so that no token can be trusted. Set the clock that is wrong, then try again."
    )]
    ClocksApart { store_ms: i64, here_ms: i64 },
    #[error("there is no token left below 2^53")]
    NoTokenLeft,
    #[error("{0}")]
    Sealed(Seal),
}

impl Refusal {
    /// Whether a trigger is waved off by it, rather than that something is wrong.
    pub fn is_a_skip(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::NotNow { .. })
    }

    /// Whether something is to be written down before.
    pub fn accounts(&self) -> bool {
        matches!(self, Self::NotNow { account: true, .. })
    }
}

impl Intent {
    /// Decides, from the record alone and what the context says.
    pub fn decide<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Decision, Refusal> {
        let resumed = record.map(|record| record.as_of(slot_clock(context)));
        let record = resumed.as_deref();
        if let Some(moved_to) = record.and_then(|record| record.moved_to.as_ref()) {
            match self {
                // There is no lease under it, which each of these finds out by itself.
                Self::Renew(_) | Self::Complete { .. } | Self::Conclude { .. } | Self::Release(_) => {}
                Self::Freeze { to } if to == moved_to => return Ok(Decision::AlreadyDone),
                _ => return Err(Refusal::Sealed(Seal::MovedTo(moved_to.clone()))),
            }
        }
        match self {
            Self::Claim(claim) => claim.decide::<R>(record, context),
            Self::Renew(me) => {
                let mut record = mine(record, |record| R::may_renew(record, me))?;
                if let Some(lease) = &mut record.lease {
                    lease.renewals += 1;
                    lease.until = R::until(context.reference, context.now.boot, lease.ttl);
                }
                Ok(written(record, Vec::new(), context))
            }
            Self::Record { claim, ending } => claim.record::<R>(record, ending, context),
            Self::Conclude { me, slot, zone, ending } => conclude::<R>(me, record, (*slot, zone), ending, context),
            Self::Account(claim) => claim.account::<R>(record, context),
            Self::Pause(paused) => {
                let mut record = known_or_first(record, context);
                record.paused.get_or_insert_with(|| paused.clone());
                Ok(written(record, Vec::new(), context))
            }
            Self::Resume => {
                let mut record =
                    record.cloned().filter(|record| record.paused.is_some()).ok_or(Refusal::NobodyHolds)?;
                record.resume(slot_clock(context));
                Ok(written(record, Vec::new(), context))
            }
            Self::Complete { me, ending, escaped } => {
                // Whoever took over wrote an ending of its own for this run. That one is not ours.
                let shown = |run| record.is_some_and(|record| record.ledger.shows(me.token, run, ending));
                if me.run.is_some_and(shown) {
                    return Ok(Decision::AlreadyDone);
                }
                let mut record = mine(record, |record| R::may_release(record, me))?;
                let whole = end_run::<R>(&mut record, ending.clone(), context.now.wall);
                if !*escaped {
                    return Ok(released::<R>(record, whole, context));
                }
                if let Some(lease) = &mut record.lease {
                    // Wrapper and keeper end now, which says nothing about what escaped them.
                    lease.holder.processes = None;
                }
                Ok(written(record, whole, context))
            }
            Self::Release(me) => {
                let mut record = mine(record, |record| R::may_release(record, me))?;
                let whole = end_run::<R>(&mut record, lost("its lease was released by its token"), context.now.wall);
                Ok(released::<R>(record, whole, context))
            }
            Self::ForceRelease => {
                let mut record = held(record)?;
                let whole = end_run::<R>(&mut record, lost("its lease was released by force"), context.now.wall);
                Ok(released::<R>(record, whole, context))
            }
            Self::AskToStop(asked) => {
                let mut record = held(record)?;
                match &mut record.lease {
                    Some(lease) if lease.stop_asked.is_some() => return Ok(Decision::AlreadyDone),
                    Some(lease) => lease.stop_asked = Some(asked.clone()),
                    None => {}
                }
                Ok(written(record, Vec::new(), context))
            }
            Self::NotePublish(published) => {
                let mut record = record.cloned().ok_or(Refusal::NobodyHolds)?;
                record.note_publish(published);
                Ok(written(record, Vec::new(), context))
            }
            Self::Freeze { to } => {
                let record = record.ok_or(Refusal::NobodyHolds)?;
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
}

/// Ends a lease by hand with an outcome for `slot` in `zone`. The lease of a run is refused: the run records its own end.
fn conclude<R: Rules>(
    me: &Me,
    record: Option<&Record>,
    (slot, zone): (Wall, &str),
    ending: &Ending,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
    let mut record = mine(record, |record| R::may_release(record, me))?;
    let Some(lease) = record.lease.as_ref().filter(|lease| !lease.holder.is_run()) else {
        return Err(Refusal::Held { record: Box::new(record), remaining: None });
    };
    let ended = outcome_of(lease, record.token, ending, context.now.wall);
    let whole = write_down::<R>(&mut record, Outcome { slot, zone: zone.into(), ..ended }, ending);
    Ok(released::<R>(record, whole, context))
}

/// The record without a lease, if nobody holds one. A run that did not end properly ends here.
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

impl Intent {
    /// Whether it may be about a job that has no record yet, which needs the store's identity.
    pub fn may_make_a_record(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Record { .. } | Self::Account(_) | Self::Pause(_) | Self::Raise { .. })
    }

    /// Whether it depends on how the lease stands, so that this host has to say what it knows.
    pub fn judges_the_lease(&self) -> bool {
        self.may_make_a_record() || matches!(self, Self::Freeze { .. })
    }
}

impl Claim {
    fn decide<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Decision, Refusal> {
        if record.and_then(|record| record.lease.as_ref()).is_some_and(|lease| lease.run == self.run) {
            return Ok(Decision::AlreadyDone);
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
        next.lease = Some(self.lease::<R>(chosen, context));
        Ok(written(next, whole, context))
    }

    /// The slot to run. A run that is at the very same slot makes this one a duplicate; at another, an overlap.
    pub fn choose<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Chosen, Refusal> {
        let now = slot_clock(context);
        let resumed = record.map(|record| record.as_of(now));
        let record = resumed.as_deref();
        let standing = record.map_or(Standing::Free, |record| self.standing::<R>(record, context));
        if let Some(Paused { since, by, note, .. }) = record.and_then(|record| record.paused.clone()) {
            return Err(Refusal::NotNow { why: NotNow::Paused { since, by, note }, account: false });
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
    fn account<R: Rules>(&self, record: Option<&Record>, context: &Context<'_>) -> Result<Decision, Refusal> {
        match self.choose::<R>(record, context) {
            Err(Refusal::NotNow { account: true, .. }) => {
                let mut next = known_or_first(record, context);
                let (timing, plan) = match &self.slot {
                    Choice::Due(due) => {
                        let standing = record.map_or(Standing::Free, |record| self.standing::<R>(record, context));
                        due.plan::<R>(record, standing.for_slots(), slot_clock(context))
                    }
                    _ => return Ok(Decision::AlreadyDone),
                };
                // However it is said that nothing runs: what is accounted for without a run is written down.
                let missed = plan.dropped.map(slot::covered);
                next.timing = Some(Timing { since: plan.since, evaluated: plan.evaluated, ..timing });
                let whole = missed.map(|missed| self.write_missed::<R>(&mut next, missed, context.now.wall));
                Ok(written(next, whole.unwrap_or_default(), context))
            }
            Err(Refusal::NotNow { .. }) => Ok(Decision::AlreadyDone),
            Err(refusal) => Err(refusal),
            // Something is due by now.
            Ok(_) => Ok(Decision::AlreadyDone),
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

    /// Claims and completes at once. Nobody holds it in between, so that there is nothing to renew or to lose.
    fn record<R: Rules>(
        &self,
        record: Option<&Record>,
        ending: &Ending,
        context: &Context<'_>,
    ) -> Result<Decision, Refusal> {
        if record.is_some_and(|record| record.ledger.of_run(self.run).is_some()) {
            return Ok(Decision::AlreadyDone);
        }
        let (mut next, mut whole) = self.grant::<R>(record, context)?;
        next.lease = None;
        let slot = match &self.slot {
            Choice::At(slot) | Choice::Slot(Named { slot, .. }) => *slot,
            Choice::Due(due) => due.schedule.at_or_before(context.now.wall).unwrap_or(context.now.wall),
            Choice::Once { .. } => slot::ONCE,
        };
        let outcome = self.outcome(&next, slot, ending.clone(), context.now.wall);
        whole.extend(write_down::<R>(&mut next, outcome, ending));
        Ok(written(next, whole, context))
    }

    /// The record with a new token, if nobody is in the way. A run that did not end properly ends here.
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

/// The date for a token: the store's where it has a clock, and only if it can be true.
fn trusted_date(context: &Context<'_>) -> Result<Wall, Refusal> {
    let here = context.now.wall;
    let Some(reference) = context.reference else { return Ok(here) };
    let store = reference.clock.wall;
    if store.since(here).max(here.since(store)) > CLOCK_GAP_MAX {
        return Err(Refusal::ClocksApart { store_ms: store.0, here_ms: here.0 });
    }
    Ok(store)
}

/// The date that slots are judged by: the store's where it has a clock, so that all machines agree on what is due.
pub fn slot_clock(context: &Context<'_>) -> Wall {
    context.reference.map_or(context.now.wall, |reference| reference.at_most(context.now.boot).wall)
}

fn known_or_first(record: Option<&Record>, context: &Context<'_>) -> Record {
    match (record, context.store) {
        (Some(record), _) => record.clone(),
        (None, Some(store)) => first_record(store, context),
        (None, None) => unreachable!("the store's identity is asked for before a first record"),
    }
}

fn first_record(store: StoreId, context: &Context<'_>) -> Record {
    Record {
        v: FORMAT,
        store,
        job: context.job.clone(),
        token: Token::default(),
        grants: 0,
        nonce: context.nonce,
        lease: None,
        ledger: Default::default(),
        resources: Default::default(),
        upstreams: Default::default(),
        timing: None,
        paused: None,
        params: None,
        moved_to: None,
        unknown: Default::default(),
    }
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
        _ => Err(Refusal::NobodyHolds),
    }
}

fn written(mut record: Record, mut aside: Vec<Outcome>, context: &Context<'_>) -> Decision {
    record.nonce = context.nonce;
    aside.extend(record.slim(context.aside));
    Decision::Write { record: Some(Box::new(record)), aside }
}

fn released<R: Rules>(mut record: Record, mut aside: Vec<Outcome>, context: &Context<'_>) -> Decision {
    record.nonce = context.nonce;
    aside.extend(record.slim(context.aside));
    Decision::Write { record: R::release(record).map(Box::new), aside }
}

fn lost(why: &str) -> Ending {
    Ending::new(Status::Lost, EndedBy::Fencepost).with_note(why)
}

/// Writes down how the run behind the current lease ended. A lease by hand is not a run and leaves no outcome. What is
/// returned is too long for the record.
fn end_run<R: Rules>(record: &mut Record, ending: Ending, finished: Wall) -> Vec<Outcome> {
    let Some(lease) = &record.lease else { return Vec::new() };
    if !lease.holder.is_run() {
        return Vec::new();
    }
    let outcome = outcome_of(lease, record.token, &ending, finished);
    // A run accounts for its slot by ending well, or for all slots that it stands for, if none before is still open. The
    // ring alone would know it otherwise, and forgets.
    if let Some(timing) = record.timing.as_mut().filter(|_| SlotState::of(ending.status, true).is_done()) {
        let settled = timing.settles.filter(|settles| *settles == lease.slot);
        timing.evaluated = timing.evaluated.max(settled).max(lease.covers.map(|covers| covers.to));
    }
    write_down::<R>(record, outcome, &ending)
}

/// How the work under a lease ended.
fn outcome_of(lease: &Lease, token: Token, ending: &Ending, finished: Wall) -> Outcome {
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

fn write_down<R: Rules>(record: &mut Record, mut outcome: Outcome, ending: &Ending) -> Vec<Outcome> {
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
