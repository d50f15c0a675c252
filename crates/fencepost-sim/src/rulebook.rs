//! Rules that are looked up while a world is explored: it is compiled once, and not once for each bug.

use std::cell::Cell;
use std::time::Duration;

use fencepost_core::fence::{Fence, FenceVerdict, Refused, Write};
use fencepost_core::lease::{Facts, Honest, Me, Rules, Sighting, Standing};
use fencepost_core::ledger::Outcome;
use fencepost_core::plan::{CatchUpOrder, CatchUpTerms, PlanRules};
use fencepost_core::record::{Lease, Record, Until};
use fencepost_core::time::{Boot, Reference, StoreClock, Wall};
use fencepost_core::token::Token;

thread_local! {
    static IN_FORCE: Cell<Rulebook> = const { Cell::new(Rulebook::HONEST) };
    static MOMENT: Cell<Boot> = const { Cell::new(Boot(0)) };
}

/// One set of rules: those that a bug may replace.
#[derive(Clone, Copy, Debug)]
pub struct Rulebook {
    deadline: fn(Boot, Duration) -> Boot,
    until: fn(Option<&Reference>, Boot, Duration) -> Option<Until>,
    is_old: fn(&Reference, Boot, Duration) -> bool,
    may_renew: fn(&Record, &Me) -> bool,
    may_release: fn(&Record, &Me) -> bool,
    standing: fn(&Record, Option<&StoreClock>, &Facts, Boot) -> Standing,
    seen_long_enough: fn(&Record, &Lease, &Facts, Boot) -> bool,
    sight: fn(Option<Sighting>, &Record, Boot) -> Option<Sighting>,
    mint: fn(Option<Token>, Wall, Option<Token>) -> Option<Token>,
    judge: fn(Option<&Fence>, &Write) -> Result<FenceVerdict, Refused>,
    recorded_code: fn(Option<&Outcome>) -> Option<i32>,
    most: fn(&CatchUpTerms) -> usize,
    is_spent: fn(u32, u32) -> bool,
    counts_for: fn(&Outcome, Wall, Wall) -> bool,
    follows: fn(Wall, Wall, CatchUpOrder) -> bool,
    is_early: fn(Wall, Wall) -> bool,
    ended: fn(&Outcome) -> Wall,
    is_unknown: fn(Option<&Outcome>) -> bool,
}

impl Rulebook {
    /// The rules as shipped.
    pub const HONEST: Self = Self::of::<Honest>();

    pub const fn of<R: Rules>() -> Self {
        Self {
            deadline: R::deadline,
            until: R::until,
            is_old: R::is_old,
            may_renew: R::may_renew,
            may_release: R::may_release,
            standing: R::standing,
            seen_long_enough: R::seen_long_enough,
            sight: R::sight,
            mint: R::mint,
            judge: R::judge,
            recorded_code: R::recorded_code,
            most: R::most,
            is_spent: R::is_spent,
            counts_for: R::counts_for,
            follows: R::follows,
            is_early: R::is_early,
            ended: R::ended,
            is_unknown: R::is_unknown,
        }
    }

    /// The same rules with another judge of fences.
    pub const fn judging(mut self, judge: fn(Option<&Fence>, &Write) -> Result<FenceVerdict, Refused>) -> Self {
        self.judge = judge;
        self
    }

    /// Puts these rules in force on this thread while something is done.
    pub fn apply<T>(self, act: impl FnOnce() -> T) -> T {
        let before = IN_FORCE.replace(self);
        let result = act();
        IN_FORCE.set(before);
        result
    }
}

/// Sets the clock of the host whose machine is stepped next.
pub fn set_moment(now: Boot) {
    MOMENT.set(now);
}

/// The clock of the host whose machine is stepped. The shipped rules are not told it; a bug may use it all the same.
pub fn moment() -> Boot {
    MOMENT.get()
}

/// The rules in force.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChosenRules;

impl PlanRules for ChosenRules {
    fn most(terms: &CatchUpTerms) -> usize {
        (IN_FORCE.get().most)(terms)
    }

    fn is_spent(tries: u32, retries: u32) -> bool {
        (IN_FORCE.get().is_spent)(tries, retries)
    }

    fn counts_for(outcome: &Outcome, from: Wall, to: Wall) -> bool {
        (IN_FORCE.get().counts_for)(outcome, from, to)
    }

    fn follows(slot: Wall, tried: Wall, order: CatchUpOrder) -> bool {
        (IN_FORCE.get().follows)(slot, tried, order)
    }

    fn is_early(slot: Wall, now: Wall) -> bool {
        (IN_FORCE.get().is_early)(slot, now)
    }

    fn ended(outcome: &Outcome) -> Wall {
        (IN_FORCE.get().ended)(outcome)
    }

    fn is_unknown(attempt: Option<&Outcome>) -> bool {
        (IN_FORCE.get().is_unknown)(attempt)
    }
}

impl Rules for ChosenRules {
    fn deadline(sent: Boot, ttl: Duration) -> Boot {
        (IN_FORCE.get().deadline)(sent, ttl)
    }

    fn until(reference: Option<&Reference>, now: Boot, ttl: Duration) -> Option<Until> {
        (IN_FORCE.get().until)(reference, now, ttl)
    }

    fn is_old(reference: &Reference, now: Boot, ttl: Duration) -> bool {
        (IN_FORCE.get().is_old)(reference, now, ttl)
    }

    fn may_renew(record: &Record, me: &Me) -> bool {
        (IN_FORCE.get().may_renew)(record, me)
    }

    fn may_release(record: &Record, me: &Me) -> bool {
        (IN_FORCE.get().may_release)(record, me)
    }

    fn standing(record: &Record, clock: Option<&StoreClock>, facts: &Facts, now: Boot) -> Standing {
        (IN_FORCE.get().standing)(record, clock, facts, now)
    }

    fn seen_long_enough(record: &Record, lease: &Lease, facts: &Facts, now: Boot) -> bool {
        (IN_FORCE.get().seen_long_enough)(record, lease, facts, now)
    }

    fn sight(before: Option<Sighting>, record: &Record, answered: Boot) -> Option<Sighting> {
        (IN_FORCE.get().sight)(before, record, answered)
    }

    fn mint(last: Option<Token>, date: Wall, high_water: Option<Token>) -> Option<Token> {
        (IN_FORCE.get().mint)(last, date, high_water)
    }

    fn judge(seen: Option<&Fence>, write: &Write) -> Result<FenceVerdict, Refused> {
        (IN_FORCE.get().judge)(seen, write)
    }

    fn recorded_code(last: Option<&Outcome>) -> Option<i32> {
        (IN_FORCE.get().recorded_code)(last)
    }
}
