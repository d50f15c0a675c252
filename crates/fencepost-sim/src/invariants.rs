//! What must be true in every state of every world.

use std::fmt;

use fencepost_core::time::millis;

use crate::config::LeaseSetting;
use crate::steps::LeaseStep;
use crate::world::{LeaseWorld, run_id};

/// What went wrong. Some of these are seen in a state, the others when they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseViolation {
    /// P1, also after a restore of the store.
    TokenNotGreater,
    /// P5.
    TwoChildren,
    /// A child runs while its lease is over, or another's.
    Overrun,
    /// P3: what was reported as recorded is not in the ledger, or not any more.
    OutcomeLost,
    /// P3: a grant has two outcomes.
    OutcomeTwice,
    /// A holder was stopped though nothing was wrong, or told that its lease was another's though it was not.
    HolderStopped,
    /// A wrapper ended and left its child running.
    ChildAbandoned,
    /// A run made a call while another was out.
    TwoCalls,
    /// A run wants to be woken at once, again and again.
    Spins,
    /// P2: a command of a lower token was let at the resource after one of a higher token.
    StaleRan,
    /// A named command was started twice under one token.
    RanTwice,
    /// A named command is reported as applied, though its end was never seen.
    AppliedUnseen,
    /// The holder died, nothing else goes wrong, and two times-to-live later no run could take over.
    NoRecovery,
}

impl fmt::Display for LeaseViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenNotGreater => "P1: a token was granted that is not greater than all before",
            Self::TwoChildren => "P5: two children run at the same time",
            Self::Overrun => "a child runs after its lease",
            Self::OutcomeLost => "P3: an acknowledged outcome is lost",
            Self::OutcomeTwice => "P3: a grant has two outcomes",
            Self::HolderStopped => "a healthy holder was stopped",
            Self::ChildAbandoned => "a wrapper left its child running",
            Self::TwoCalls => "two store calls of one run at the same time",
            Self::Spins => "the driver never comes to rest",
            Self::StaleRan => "P2: a stale command was let at the resource",
            Self::RanTwice => "a named command ran twice under its token",
            Self::AppliedUnseen => "a command that may have died half-way is reported as applied",
            Self::NoRecovery => "a dead holder is never replaced",
        })
    }
}

impl LeaseWorld {
    /// Everything that is wrong with this state.
    pub fn violations(&self, config: &LeaseSetting) -> impl Iterator<Item = LeaseViolation> {
        let seen = [self.children_overlap(), self.child_overruns(config), self.outcomes(), self.recovery(config)];
        self.ghost.violation.into_iter().chain(seen.into_iter().flatten())
    }

    fn children_overlap(&self) -> Option<LeaseViolation> {
        (!self.ghost.rolled_back && self.running().count() > 1).then_some(LeaseViolation::TwoChildren)
    }

    fn child_overruns(&self, config: &LeaseSetting) -> Option<LeaseViolation> {
        if self.ghost.rolled_back {
            return None;
        }
        let lease = self.store.record().and_then(|record| record.lease.as_ref());
        let over = |run: u8| match lease {
            Some(lease) if lease.run == run_id(run) => {
                config.store_has_clock && lease.until.as_ref().is_some_and(|until| self.now_ms >= until.tick)
            }
            _ => true,
        };
        self.running().any(|process| over(process.run)).then_some(LeaseViolation::Overrun)
    }

    fn outcomes(&self) -> Option<LeaseViolation> {
        let ledger = self.store.record().map(|record| &record.ledger);
        for (run, status) in &self.ghost.acknowledged {
            let kept = ledger.and_then(|ledger| ledger.of_run(run_id(*run))).map(|outcome| outcome.status);
            if kept != Some(*status) {
                return Some(LeaseViolation::OutcomeLost);
            }
        }
        let ring = ledger.map_or(&[][..], |ledger| &ledger.ring);
        let twice = ring
            .iter()
            .enumerate()
            .any(|(at, one)| ring[..at].iter().any(|o| (o.token, o.run) == (one.token, one.run)));
        twice.then_some(LeaseViolation::OutcomeTwice)
    }

    /// From a state whose holder is dead, follows the one path on which nothing else goes wrong.
    fn recovery(&self, config: &LeaseSetting) -> Option<LeaseViolation> {
        let lease = self.store.record().and_then(|record| record.lease.as_ref())?;
        let holder_lives = self.processes().any(|(_, process)| run_id(process.run) == lease.run);
        if holder_lives || self.processes().next().is_some() || !self.strays.is_empty() {
            return None;
        }
        let other = if lease.holder.host == "0" { 1 } else { 0 };
        // The lease is over after two times-to-live at most, and the next trigger comes within a quantum of that.
        let end_ms = self.now_ms + 2 * millis(config.ttl) + config.quantum_ms;
        let mut world = self.clone();
        let calm = LeaseSetting { horizon_ms: u64::MAX, ..*config };
        world.budget = Default::default();
        world.wake_all(&calm);
        while world.now_ms <= end_ms {
            if world.now_ms.is_multiple_of(config.quantum_ms) {
                world.budget.triggers = 1;
                world = world.after(&calm, LeaseStep::Trigger { host: other });
            }
            world.serve_all(&calm);
            if world.ghost.grants > self.ghost.grants {
                return None;
            }
            world = world.after(&calm, LeaseStep::Advance);
        }
        Some(LeaseViolation::NoRecovery)
    }

    fn wake_all(&mut self, config: &LeaseSetting) {
        for host in 0..self.hosts.len() as u8 {
            if self.hosts[usize::from(host)].asleep {
                *self = self.after(config, LeaseStep::Wake { host });
            }
        }
    }

    /// Lets the store answer everything at once.
    fn serve_all(&mut self, config: &LeaseSetting) {
        let served = |step: &LeaseStep| matches!(step, LeaseStep::Perform { .. } | LeaseStep::Answer { .. });
        while let Some(step) = self.steps(config).into_iter().find(served) {
            *self = self.after(config, step);
        }
    }
}
