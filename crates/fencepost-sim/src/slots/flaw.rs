//! Known bugs that no rule can express, as switches of the world.

use fencepost_core::ledger::Status;
use fencepost_core::record::Record;
use fencepost_core::token::Token;

use super::{Purpose, SlotSetting, SlotWorld};

/// A known bug, as a switch of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFlaw {
    /// A run is recorded for the moment it began at instead of for its slot.
    SlotIsNow,
    /// The slot is chosen before the claim, and not again if the claim has to be repeated.
    PlanOutside,
    /// What was missed is accounted for and not written down.
    MissedUnwritten,
    /// A paused job is let through.
    PauseUnseen,
    /// The end of a pause is not kept.
    PauseUntilIgnored,
    /// Forgetting removes all outcomes.
    ForgetRerunsSlot,
    /// Forgetting makes a new record.
    ForgetResetsToken,
}

impl SlotWorld {
    /// A record as it is written by the bug.
    pub(super) fn flawed(&self, setting: &SlotSetting, purpose: Purpose, mut record: Record) -> Record {
        let is_claim = matches!(purpose, Purpose::Claim { .. });
        if let (true, true, Some(lease)) = (setting.has(SlotFlaw::SlotIsNow), is_claim, &mut record.lease) {
            lease.slot = self.wall(setting);
        }
        if setting.has(SlotFlaw::MissedUnwritten) {
            record.ledger.ring.retain(|outcome| outcome.status != Status::Missed);
        }
        if setting.has(SlotFlaw::PauseUnseen) {
            record.paused = None;
        }
        if let (true, Some(paused)) = (setting.has(SlotFlaw::PauseUntilIgnored), &mut record.paused) {
            paused.until = None;
        }
        if purpose == Purpose::Forget && setting.has(SlotFlaw::ForgetRerunsSlot) {
            record.ledger.ring.clear();
        }
        if purpose == Purpose::Forget && setting.has(SlotFlaw::ForgetResetsToken) {
            record.token = Token::default();
        }
        record
    }
}
