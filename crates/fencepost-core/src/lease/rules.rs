//! The rules of a lease: who may hold, renew and release it, and when it ends.
//!
//! [`Rules`] has one method for each rule. The default methods are the shipped code; the model replaces one at a time by a
//! known bug and shows that it is found.

use core::fmt;
use core::time::Duration;

use super::{Facts, Me};
use crate::fence::{self, Fence, FenceVerdict, Refused, StrictFence, Write};
use crate::ledger::Outcome;
use crate::plan::PlanRules;
use crate::record::{Lease, Record, Until};
use crate::slot;
use crate::time::{Boot, Reference, StoreClock, Wall};
use crate::token::Token;

/// The shortest time-to-live that can be kept on a loaded machine.
pub const TTL_MIN: Duration = Duration::from_secs(1);

/// The longest time-to-live: 31 days.
pub const TTL_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// The part of a time-to-live that two clocks may drift apart while it lasts: a twentieth, on either side.
const DRIFT_SHARE: u32 = 20;

/// One state of a lease, and since when this host has seen it unchanged.
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
    /// The state of the slot behind the lease: its run is going, or has died.
    pub(super) fn for_slots(&self) -> slot::LeaseState {
        if matches!(self, Self::Over(_)) { slot::LeaseState::Over } else { slot::LeaseState::Stands }
    }
}

/// Why a lease that was not released is over.
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
    /// A holder stops believing this long after the moment *before* it sent the swap that won. The moment of the answer does
    /// not count: the answer may have taken any time.
    fn deadline(sent: Boot, ttl: Duration) -> Boot {
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

    /// Whether `me` may renew the lease in this record.
    fn may_renew(record: &Record, me: &Me) -> bool {
        Self::is_holder(record, me)
    }

    /// Whether `me` may end the lease in this record.
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

    /// What an observer keeps in mind. Other changes of the record do not disturb it.
    fn sight(before: Option<Sighting>, record: &Record, answered: Boot) -> Option<Sighting> {
        let lease = record.lease.as_ref()?;
        match before {
            Some(same) if (same.token, same.renewals) == (record.token, lease.renewals) => Some(same),
            _ => Some(Sighting { token: record.token, renewals: lease.renewals, since: answered }),
        }
    }

    /// Tokens never go back, even when the store does: the date is above every token that a restored store has forgotten.
    fn mint(last: Option<Token>, date: Wall, high_water: Option<Token>) -> Option<Token> {
        let after = |token: Option<Token>| token.map_or(Some(Token::default()), Token::next);
        let date = Token::new(u64::try_from(date.0).unwrap_or(0))?;
        Some(after(last)?.max(after(high_water)?).max(date))
    }

    /// Judges a command on a fenced resource by the fence in the record that its claim replaces.
    fn judge(seen: Option<&Fence>, write: &Write) -> Result<FenceVerdict, Refused> {
        fence::judge::<StrictFence>(seen, write)
    }

    /// The exit code with which the command that the fence names has ended. A command that died has none, and neither has
    /// one whose end is not recorded: it may have happened in part.
    fn recorded_code(last: Option<&Outcome>) -> Option<i32> {
        last?.exit_code
    }
}

/// The rules as shipped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Honest;

impl Rules for Honest {}
