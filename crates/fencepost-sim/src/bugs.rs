//! The known bugs of the rules: each replaces one rule by what looks right and is not.

use std::time::Duration;

use fencepost_core::fence::{self, Fence, FenceVerdict, Refused, StrictFence, Write};
use fencepost_core::lease::{Cause, Facts, Me, Rules, Sighting, Standing};
use fencepost_core::ledger::Outcome;
use fencepost_core::plan::PlanRules;
use fencepost_core::record::{Lease, Record, Until};
use fencepost_core::time::{Boot, Era, Reference, StoreClock, Wall, millis};
use fencepost_core::token::Token;

use crate::rulebook;

/// Declares a set of rules with one of them replaced.
macro_rules! bug {
    ($name:ident { $($rule:item)* }) => {
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name;

        impl PlanRules for $name {}

        impl Rules for $name {
            $($rule)*
        }
    };
}

bug!(DeadlineFromResponse {
    fn deadline(_sent: Boot, ttl: Duration) -> Boot {
        rulebook::moment() + (ttl - ttl / 20)
    }
});

bug!(NoMargin {
    fn deadline(sent: Boot, ttl: Duration) -> Boot {
        sent + ttl
    }
});

bug!(UntilFromOldReading {
    fn until(reference: Option<&Reference>, _now: Boot, ttl: Duration) -> Option<Until> {
        let clock = &reference?.clock;
        Some(Until { era: clock.era.clone(), tick: clock.tick + millis(ttl) })
    }
});

bug!(OldReading {
    fn is_old(_reference: &Reference, _now: Boot, _ttl: Duration) -> bool {
        false
    }
});

// The holder's own clock, in the record, and compared with the observer's.
bug!(HoldersClock {
    fn until(_reference: Option<&Reference>, now: Boot, ttl: Duration) -> Option<Until> {
        Some(Until { era: Era::default(), tick: (now + ttl).0 })
    }

    fn standing(record: &Record, _clock: Option<&StoreClock>, _facts: &Facts, now: Boot) -> Standing {
        match record.lease.as_ref().map(|lease| lease.until.as_ref()) {
            None => Standing::Free,
            Some(Some(until)) if now.0 >= until.tick => Standing::Over(Cause::Expired),
            Some(_) => Standing::Held { remaining: None },
        }
    }
});

bug!(RenewUnchecked {
    fn may_renew(record: &Record, _me: &Me) -> bool {
        record.lease.is_some()
    }
});

bug!(ReleaseUnchecked {
    fn may_release(record: &Record, _me: &Me) -> bool {
        record.lease.is_some()
    }
});

bug!(SkipResetsObserver {
    fn sight(_before: Option<Sighting>, record: &Record, answered: Boot) -> Option<Sighting> {
        let lease = record.lease.as_ref()?;
        Some(Sighting { token: record.token, renewals: lease.renewals, since: answered })
    }
});

bug!(RenewalsUnseen {
    fn sight(before: Option<Sighting>, record: &Record, answered: Boot) -> Option<Sighting> {
        let renewals = record.lease.as_ref()?.renewals;
        let same = before.filter(|seen| seen.token == record.token);
        Some(same.unwrap_or(Sighting { token: record.token, renewals, since: answered }))
    }

    fn seen_long_enough(record: &Record, lease: &Lease, facts: &Facts, now: Boot) -> bool {
        facts.sighting.is_some_and(|seen| seen.token == record.token && now >= seen.since + lease.ttl * 21 / 20)
    }
});

// Judged when the command is started, and not again when its claim is.
bug!(FenceOutside {
    fn judge(_seen: Option<&Fence>, write: &Write) -> Result<FenceVerdict, Refused> {
        fence::judge::<StrictFence>(None, write)
    }
});

bug!(NamesIgnored {
    fn judge(seen: Option<&Fence>, write: &Write) -> Result<FenceVerdict, Refused> {
        fence::judge::<StrictFence>(seen, &Write { op: None, ..write.clone() })
    }
});

bug!(DiedIsApplied {
    fn recorded_code(last: Option<&Outcome>) -> Option<i32> {
        Some(last.and_then(|last| last.exit_code).unwrap_or(0))
    }
});

bug!(PlainCounter {
    fn mint(last: Option<Token>, _date: Wall, _high_water: Option<Token>) -> Option<Token> {
        last.map_or(Token::new(1), Token::next)
    }
});
