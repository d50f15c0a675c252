//! The effect of a coming clock change on a schedule.

use core::fmt;
use core::time::Duration;

use super::walk::Window;
use super::{Schedule, ScheduleKind, second, wall};
use crate::time::Wall;
use crate::zone::{Date, Stretch, Zone};

/// A clock change that affects a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockChange {
    /// The first instant after the change.
    pub at: Wall,
    /// The civil date of the skipped or repeated local times.
    pub date: Date,
    pub kind: ChangeKind,
    pub effect: Effect,
    zone: Zone,
    /// The first local time that is skipped or repeated, and the first after it that is not, shown as UTC: local times
    /// in a gap have no instant.
    from: Wall,
    to: Wall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Local times are skipped.
    Gap,
    /// Local times are repeated.
    Repeat,
}

/// The effect on slots in a gap or in repeated time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fixed times in a gap fire once, at this instant.
    Moved(Wall),
    /// Repeated fixed times fire once, the first at this instant.
    Once(Wall),
    /// This many times of an interval do not fire.
    Skipped(u64),
    /// This many times of an interval fire twice.
    Twice(u64),
    /// The whole day does not exist, and neither does its slot.
    NoDay,
}

impl Schedule {
    /// The first clock change after `now`, within `length`, that affects a slot. `every` is never affected.
    pub fn dst_within(&self, now: Wall, length: Duration) -> Option<ClockChange> {
        let ScheduleKind::Cron(_) = &self.kind else { return None };
        let end = second(now + length);
        let mut stretch = self.zone.stretch(second(now));
        while stretch.end <= end {
            if let Some(change) = self.change_at(&stretch) {
                return Some(change);
            }
            stretch = self.zone.stretch(stretch.end);
        }
        None
    }

    /// The effect on this schedule at the end of a period of constant offset.
    fn change_at(&self, stretch: &Stretch) -> Option<ClockChange> {
        let ScheduleKind::Cron(cron) = &self.kind else { return None };
        let (old, new) = (stretch.end + stretch.offset, stretch.end + stretch.after);
        let (low, high) = (old.min(new), old.max(new));
        let count = cron.count(low, high);
        if count == 0 {
            return None;
        }
        let kind = if old < new { ChangeKind::Gap } else { ChangeKind::Repeat };
        let first_pass = |local: i64| wall(local - stretch.offset);
        let effect = match (kind, cron.is_interval) {
            (ChangeKind::Gap, true) => Effect::Skipped(count),
            (ChangeKind::Repeat, true) => Effect::Twice(count),
            (ChangeKind::Repeat, false) => cron.first(low, high).map(|local| Effect::Once(first_pass(local)))?,
            (ChangeKind::Gap, false) => {
                let before = Window::at(cron, &self.zone, stretch.end - 1).before_gap;
                let after = Window::at(cron, &self.zone, stretch.end).after_gap;
                before.or(after).map_or(Effect::NoDay, |at| Effect::Moved(wall(at)))
            }
        };
        Some(ClockChange {
            at: wall(stretch.end),
            date: Zone::utc().date(wall(low)),
            kind,
            effect,
            zone: self.zone.clone(),
            from: wall(low),
            to: wall(high),
        })
    }
}

impl fmt::Display for ClockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (Zone::utc().show_time(self.from), Zone::utc().show_time(self.to));
        match self.kind {
            ChangeKind::Gap => write!(f, "on {} the clocks skip {from} to {to}, and ", self.date)?,
            ChangeKind::Repeat => write!(f, "on {} the clocks show {from} to {to} twice, and ", self.date)?,
        }
        match self.effect {
            Effect::Moved(at) => write!(f, "what falls into that runs once, at {}", self.zone.show(at)),
            Effect::Once(at) => {
                write!(f, "what falls into that runs once, the first time, from {} on", self.zone.show(at))
            }
            Effect::Skipped(1) => write!(f, "1 time of the interval does not come"),
            Effect::Skipped(count) => write!(f, "{count} times of the interval do not come"),
            Effect::Twice(1) => write!(f, "1 time of the interval comes twice"),
            Effect::Twice(count) => write!(f, "{count} times of the interval come twice"),
            Effect::NoDay => write!(f, "there is no slot for that day"),
        }
    }
}
