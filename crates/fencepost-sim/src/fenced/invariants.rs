//! What must be true of a fenced file in every state.

use std::fmt;

use fencepost_core::fence::{Fence, Refused, Write, WriteMode};

use super::{FenceSetting, FenceWorld, FileState, WriterStage};

/// What went wrong. Some of these are seen in a state, the others when they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceViolation {
    StaleLanded,
    /// In mode *once*.
    TokenTwice,
    FenceBehind,
    /// All writers are at rest and none was interrupted, but the fence is not the content's.
    Unsettled,
    /// What was reported as done is not there, or not any more.
    ReportedLost,
    NotReadIsNone,
    OtherLineage,
    OtherRun,
    /// In mode *many*.
    HolderRefused,
    FenceTorn,
    ContentTorn,
}

impl fmt::Display for FenceViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StaleLanded => "content of a lower token replaced that of a higher one",
            Self::TokenTwice => "a token that is good for one write made two",
            Self::FenceBehind => "the fence is behind the content",
            Self::Unsettled => "no writer was interrupted, and the content is not that of the fence",
            Self::ReportedLost => "a write that was reported as done is not there",
            Self::NotReadIsNone => "a torn or lost fence was taken for no fence",
            Self::OtherLineage => "another lineage wrote over this one",
            Self::OtherRun => "two runs wrote under one token",
            Self::HolderRefused => "a holder was refused though no newer token had written",
            Self::FenceTorn => "a power cut has torn the fence",
            Self::ContentTorn => "a power cut has torn the content",
        })
    }
}

fn comparable(one: &Fence, other: &Fence) -> bool {
    (one.store, &one.job) == (other.store, &other.job)
}

/// Whether `one` is older than `other`.
fn behind(one: &Fence, other: &Fence) -> bool {
    comparable(one, other) && (one.token, one.seq) < (other.token, other.seq)
}

impl FenceWorld {
    /// Everything that is wrong with this state.
    pub(super) fn violations(&self) -> impl Iterator<Item = FenceViolation> {
        let seen = [self.fence_behind(), self.unsettled(), self.reported_lost(), self.torn()];
        self.ghost.violation.into_iter().chain(seen.into_iter().flatten())
    }

    fn fence_behind(&self) -> Option<FenceViolation> {
        let content = self.content().fence()?;
        let bad = match self.fence() {
            FileState::Of(fence) => behind(fence, content),
            FileState::Absent => !self.ghost.damaged,
            FileState::Torn => false,
        };
        bad.then_some(FenceViolation::FenceBehind)
    }

    fn unsettled(&self) -> Option<FenceViolation> {
        let quiet = |writer: &super::WriterProgress| writer.stage == WriterStage::Rest && !writer.interrupted;
        let settled = self.ghost.damaged || !self.writers.iter().all(quiet) || self.fence() == self.content();
        (!settled && !self.was_given_up()).then_some(FenceViolation::Unsettled)
    }

    /// The fence belongs to a write that was interrupted, and refused when it came again: a cost of the order, which
    /// leaves the fence ahead.
    fn was_given_up(&self) -> bool {
        let (Some(fence), reported) = (self.fence().fence(), self.ghost.reported.as_deref()) else { return false };
        self.ghost.interruptions && reported.is_none_or(|reported| behind(reported, fence))
    }

    fn reported_lost(&self) -> Option<FenceViolation> {
        let reported = self.ghost.reported.as_deref()?;
        let lost = match self.content() {
            FileState::Of(content) => behind(content, reported),
            FileState::Absent => true,
            FileState::Torn => false,
        };
        lost.then_some(FenceViolation::ReportedLost)
    }

    fn torn(&self) -> Option<FenceViolation> {
        if *self.content() == FileState::Torn {
            return Some(FenceViolation::ContentTorn);
        }
        (*self.fence() == FileState::Torn && !self.ghost.damaged).then_some(FenceViolation::FenceTorn)
    }

    /// The last counts, so that a bug is not hidden by another that it also causes.
    fn note(&mut self, wrong: bool, violation: FenceViolation) {
        if wrong {
            self.ghost.violation = Some(violation);
        }
    }

    pub(super) fn note_reading(&mut self, as_none: bool) {
        let something = *self.fence() == FileState::Torn || *self.content() != FileState::Absent;
        self.note(as_none && something, FenceViolation::NotReadIsNone);
    }

    pub(super) fn note_refusal(&mut self, setting: &FenceSetting, write: &Write, refused: &Refused) {
        let seen = &refused.seen;
        let own = (seen.store, &seen.job) == (write.store, &write.job)
            && (seen.token < write.token || (seen.token, seen.run) == (write.token, write.run));
        self.note(own && setting.mode == WriteMode::Many, FenceViolation::HolderRefused);
    }

    pub(super) fn note_fence(&mut self, fence: &Fence) {
        self.note_neighbours(self.fence().clone(), fence);
    }

    pub(super) fn note_landing(&mut self, setting: &FenceSetting, writer: u8, fence: &Fence) {
        let before = self.content().clone();
        let stale = before.fence().is_some_and(|before| comparable(before, fence) && fence.token < before.token);
        self.note(stale, FenceViolation::StaleLanded);
        self.note_neighbours(before, fence);
        let write = self.writers[usize::from(writer)].write;
        let first = *self.ghost.landed[usize::from(writer)].get_or_insert(write);
        self.note(setting.mode == WriteMode::Once && first != write, FenceViolation::TokenTwice);
    }

    fn note_neighbours(&mut self, before: FileState, fence: &Fence) {
        let Some(before) = before.fence() else { return };
        self.note(!comparable(before, fence), FenceViolation::OtherLineage);
        let same_token = comparable(before, fence) && before.token == fence.token;
        self.note(same_token && before.run != fence.run, FenceViolation::OtherRun);
    }
}
