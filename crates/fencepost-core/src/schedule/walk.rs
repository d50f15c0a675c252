//! The instants of a cron expression in a zone, one stretch of constant offset at a time.
//!
//! Interval schedules follow real time: what the clocks skip does not come, what they show twice comes twice. Fixed
//! times come once per civil day: of a time that is shown twice the first counts, and a time that is skipped comes right
//! after the gap. It never leaves its day: where the gap reaches to midnight it comes in the last second before the gap,
//! and a day that does not exist has no times.

use super::cron::{Cron, DAY, END, FIRST};
use crate::zone::{Stretch, Zone};

/// The instants of one period of constant offset: local times between two bounds, and at its ends the times that fell
/// into a gap.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    stretch: Stretch,
    /// The first local time that counts in this period.
    from: i64,
    /// The end of the local times that count in this period.
    below: i64,
    /// The instant right after a gap, if fixed times fire then.
    pub after_gap: Option<i64>,
    /// The last second before a gap, if fixed times fire then.
    pub before_gap: Option<i64>,
}

impl Window {
    pub fn at(cron: &Cron, zone: &Zone, second: i64) -> Self {
        let stretch = zone.stretch(second);
        let Stretch { start, end, offset, before, after } = stretch;
        let (from, below) = (start.saturating_add(offset), end.saturating_add(offset));
        if cron.is_interval {
            return Self { stretch, from, below, after_gap: None, before_gap: None };
        }
        let shown = start.saturating_add(before);
        let resumed = end.saturating_add(after);
        let midnight = from.div_euclid(DAY).saturating_mul(DAY);
        let next_midnight = below.saturating_sub(1).div_euclid(DAY).saturating_add(1).saturating_mul(DAY);
        let is_after = shown < from && cron.any(shown.max(midnight), from);
        let is_before = resumed >= next_midnight && cron.any(below, next_midnight);
        Self {
            stretch,
            from: from.max(shown),
            below,
            after_gap: is_after.then_some(start),
            before_gap: is_before.then(|| end - 1),
        }
    }

    fn local(&self, second: i64) -> i64 {
        second.saturating_add(self.stretch.offset)
    }

    /// The first instant of this period at or after `second`.
    pub fn first(&self, cron: &Cron, second: i64) -> Option<i64> {
        let from = self.from.max(self.local(second));
        let inner = cron.first(from, self.below).map(|local| local - self.stretch.offset);
        let gaps = [self.after_gap, self.before_gap].into_iter().flatten().filter(|&gap| gap >= second);
        gaps.chain(inner).min()
    }

    /// The last instant of this period at or before `second`.
    pub fn last(&self, cron: &Cron, second: i64) -> Option<i64> {
        let below = self.below.min(self.local(second).saturating_add(1));
        let inner = cron.last(self.from, below).map(|local| local - self.stretch.offset);
        let gaps = [self.after_gap, self.before_gap].into_iter().flatten().filter(|&gap| gap <= second);
        gaps.chain(inner).max()
    }

    /// The number of instants of this period from `from` to `to`, both included.
    fn count(&self, cron: &Cron, from: i64, to: i64) -> u64 {
        let (low, high) = (self.from.max(self.local(from)), self.below.min(self.local(to).saturating_add(1)));
        let is_inner =
            |gap: i64| (low..high).contains(&self.local(gap)) && cron.any(self.local(gap), self.local(gap) + 1);
        let gaps = [self.after_gap, self.before_gap].into_iter().flatten();
        let extra = gaps.filter(|&gap| from <= gap && gap <= to && !is_inner(gap)).count();
        cron.count(low, high) + extra as u64
    }

    fn holds(&self, second: i64) -> bool {
        self.stretch.start <= second && second < self.stretch.end
    }
}

/// A cursor over the instants of a schedule. It caches its period, because most steps stay in it.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    cron: &'a Cron,
    zone: &'a Zone,
    window: Window,
}

impl<'a> Walk<'a> {
    pub fn new(cron: &'a Cron, zone: &'a Zone, second: i64) -> Self {
        Self { cron, zone, window: Window::at(cron, zone, second) }
    }

    fn go(&mut self, second: i64) {
        if !self.window.holds(second) {
            self.window = Window::at(self.cron, self.zone, second);
        }
    }

    /// The first instant at or after `second`.
    pub fn first(&mut self, mut second: i64) -> Option<i64> {
        loop {
            self.go(second);
            if let Some(found) = self.window.first(self.cron, second) {
                return Some(found);
            }
            second = self.window.stretch.end.max(second + 1);
            if !(FIRST..END).contains(&second) {
                return None;
            }
        }
    }

    /// The last instant at or before `second`.
    pub fn last(&mut self, mut second: i64) -> Option<i64> {
        loop {
            self.go(second);
            if let Some(found) = self.window.last(self.cron, second) {
                return Some(found);
            }
            // Always moves, even if the zone database has an empty period.
            second = self.window.stretch.start.saturating_sub(1).min(second - 1);
            if !(FIRST..END).contains(&second) {
                return None;
            }
        }
    }

    /// The number of instants from `from` to `to`, both included. Costs a little per month, nothing per instant.
    pub fn count(&mut self, mut from: i64, to: i64) -> u64 {
        let mut count = 0;
        while from <= to.min(END) {
            self.go(from);
            count += self.window.count(self.cron, from, to);
            from = self.window.stretch.end.max(from + 1);
        }
        count
    }
}
