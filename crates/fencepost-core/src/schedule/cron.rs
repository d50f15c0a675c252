//! The local times of a cron expression, on a calendar without zones.
//!
//! Local times are seconds since 1970-01-01 00:00 local time.

use alloc::format;
use alloc::string::String;

use jiff::Timestamp;
use jiff::tz::Offset;

pub const DAY: i64 = 24 * 3600;

/// The searched calendar: the years 1 to 8999.
pub const FIRST: i64 = -719_162 * DAY;
pub const END: i64 = 2_567_655 * DAY;

/// After this many months the calendar repeats itself, weekdays included.
const CYCLE_MONTHS: usize = 400 * 12;

/// A parsed cron expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cron {
    pub times: Times,
    pub days: Days,
    /// Whether the field of seconds, minutes or hours starts with a star: then the schedule follows real time.
    pub is_interval: bool,
}

impl Cron {
    /// The first match in `from..below`.
    pub fn first(&self, from: i64, below: i64) -> Option<i64> {
        let (from, below) = bounded(from, below)?;
        let (today, now) = (from.div_euclid(DAY), from.rem_euclid(DAY));
        let mut month = Month::of(today);
        while month.first * DAY < below {
            let mut days = self.days.of(&month);
            if month.first < today {
                days &= !0 << (today - month.first + 1);
            }
            while days != 0 {
                let day = month.first + i64::from(days.trailing_zeros()) - 1;
                let time = self.times.first(if day == today { now } else { 0 });
                if let Some(at) = time.map(|time| day * DAY + time) {
                    return (at < below).then_some(at);
                }
                days &= days - 1;
            }
            month = Month::of(month.first + month.len);
        }
        None
    }

    /// The last match in `from..below`.
    pub fn last(&self, from: i64, below: i64) -> Option<i64> {
        let (from, below) = bounded(from, below)?;
        let (today, now) = ((below - 1).div_euclid(DAY), (below - 1).rem_euclid(DAY));
        let mut month = Month::of(today);
        while (month.first + month.len) * DAY > from {
            let mut days = self.days.of(&month);
            if today < month.first + month.len - 1 {
                days &= (1 << (today - month.first + 2)) - 1;
            }
            while days != 0 {
                let bit = 63 - days.leading_zeros();
                let day = month.first + i64::from(bit) - 1;
                let time = self.times.last(if day == today { now } else { DAY - 1 });
                if let Some(at) = time.map(|time| day * DAY + time) {
                    return (at >= from).then_some(at);
                }
                days &= !(1 << bit);
            }
            month = Month::of(month.first - 1);
        }
        None
    }

    /// The number of matches in `from..below`, by arithmetic over months.
    pub fn count(&self, from: i64, below: i64) -> u64 {
        let Some((from, below)) = bounded(from, below) else { return 0 };
        self.count_below(below, from) - self.count_below(from, from)
    }

    /// The number of matches below `below`, counted from the start of the month of `from`.
    fn count_below(&self, below: i64, from: i64) -> u64 {
        let today = below.div_euclid(DAY);
        let mut month = Month::of(from.div_euclid(DAY));
        let mut days = 0;
        while month.first + month.len <= today {
            days += u64::from(self.days.of(&month).count_ones());
            month = Month::of(month.first + month.len);
        }
        let here = self.days.of(&month);
        let bit = 1_u64 << (today - month.first + 1);
        days += u64::from((here & (bit - 1)).count_ones());
        let partial = if here & bit == 0 { 0 } else { self.times.count_below(below.rem_euclid(DAY)) };
        days * self.times.per_day() + partial
    }

    pub fn any(&self, from: i64, below: i64) -> bool {
        self.first(from, below).is_some()
    }

    /// Whether there is a day on which it fires. The calendar repeats itself every 400 years.
    pub fn comes(&self) -> bool {
        let mut month = Month::of(0);
        for _ in 0..CYCLE_MONTHS {
            if self.days.of(&month) != 0 {
                return true;
            }
            month = Month::of(month.first + month.len);
        }
        false
    }

    /// One text for all spellings of the same schedule.
    pub fn canonical(&self) -> String {
        let Self { times, days, is_interval } = self;
        let Days { months, of_month: m, of_week: w } = days;
        format!(
            "cron {:x} {:x} {:x} {:x}:{:x}:{:x}:{} {:x} {:x}:{:x?}:{:x} {} {}",
            times.seconds,
            times.minutes,
            times.hours,
            m.days,
            m.before_last,
            m.nearest,
            u8::from(m.last_weekday),
            months,
            w.days,
            w.nth,
            w.last,
            u8::from(m.is_star || w.is_star),
            u8::from(*is_interval),
        )
    }
}

/// The times of a day: each hour with each minute with each second, as sets of bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Times {
    pub seconds: u64,
    pub minutes: u64,
    pub hours: u64,
}

impl Times {
    pub fn per_day(&self) -> u64 {
        u64::from(self.hours.count_ones()) * self.per_hour()
    }

    pub fn per_hour(&self) -> u64 {
        u64::from(self.minutes.count_ones()) * self.per_minute()
    }

    fn per_minute(&self) -> u64 {
        u64::from(self.seconds.count_ones())
    }

    /// The first time of day at or after `time`.
    fn first(&self, time: i64) -> Option<i64> {
        let (hour, minute, second) = split(time);
        let same = has(self.hours, hour) && has(self.minutes, minute);
        if let Some(second) = from(self.seconds, second).filter(|_| same) {
            return Some(join(hour, minute, second));
        }
        let second = from(self.seconds, 0)?;
        if let Some(minute) = from(self.minutes, minute + 1).filter(|_| has(self.hours, hour)) {
            return Some(join(hour, minute, second));
        }
        Some(join(from(self.hours, hour + 1)?, from(self.minutes, 0)?, second))
    }

    /// The last time of day at or before `time`.
    fn last(&self, time: i64) -> Option<i64> {
        let (hour, minute, second) = split(time);
        let same = has(self.hours, hour) && has(self.minutes, minute);
        if let Some(second) = below(self.seconds, second + 1).filter(|_| same) {
            return Some(join(hour, minute, second));
        }
        let second = below(self.seconds, 60)?;
        if let Some(minute) = below(self.minutes, minute).filter(|_| has(self.hours, hour)) {
            return Some(join(hour, minute, second));
        }
        Some(join(below(self.hours, hour)?, below(self.minutes, 60)?, second))
    }

    /// How many times of day lie before `time`.
    fn count_below(&self, time: i64) -> u64 {
        let (hour, minute, second) = split(time);
        let before = |set: u64, bit: i64| u64::from((set & ((1 << bit) - 1)).count_ones());
        let hours = before(self.hours, hour) * self.per_hour();
        let minutes = if has(self.hours, hour) { before(self.minutes, minute) * self.per_minute() } else { 0 };
        let is_minute = has(self.hours, hour) && has(self.minutes, minute);
        hours + minutes + if is_minute { before(self.seconds, second) } else { 0 }
    }
}

/// The days of a calendar: days in the given months that match both day fields or, if neither is a star, either.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Days {
    pub months: u64,
    pub of_month: OfMonth,
    pub of_week: OfWeek,
}

/// The day-of-month field. Bit 1 is the first day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OfMonth {
    pub days: u64,
    /// `L` is bit 0, `L-3` bit 3.
    pub before_last: u64,
    /// `15W`: the weekday nearest to that day, in the same month.
    pub nearest: u64,
    /// `LW`.
    pub last_weekday: bool,
    pub is_star: bool,
}

/// The day-of-week field. Bit 0 is Sunday.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OfWeek {
    pub days: u64,
    /// `FRI#2` sets Friday's bit in the second.
    pub nth: [u64; 5],
    /// `FRIL`: the last Friday of the month.
    pub last: u64,
    pub is_star: bool,
}

impl Days {
    /// The days of a month that match; bit 1 is the first.
    fn of(&self, month: &Month) -> u64 {
        if !has(self.months, month.number) {
            return 0;
        }
        let of_month = self.of_month.of(month);
        let of_week = self.of_week.of(month);
        let either = !self.of_month.is_star && !self.of_week.is_star;
        (if either { of_month | of_week } else { of_month & of_week }) & month.all()
    }
}

impl OfMonth {
    fn of(&self, month: &Month) -> u64 {
        let mut set = self.days & month.all();
        for back in bits(self.before_last).filter(|&back| back < month.len) {
            set |= 1 << (month.len - back);
        }
        for day in bits(self.nearest).filter(|&day| day <= month.len) {
            set |= 1 << month.nearest_weekday(day);
        }
        if self.last_weekday {
            set |= 1 << month.nearest_weekday_back(month.len);
        }
        set
    }
}

impl OfWeek {
    fn of(&self, month: &Month) -> u64 {
        let matches = |day: i64| {
            let weekday = month.weekday(day);
            let nth = self.nth[usize::try_from((day - 1) / 7).unwrap_or(4)];
            has(self.days | nth, weekday) || (day + 7 > month.len && has(self.last, weekday))
        };
        (1..=month.len).filter(|&day| matches(day)).fold(0, |set, day| set | 1 << day)
    }
}

/// A month of the calendar. Days are counted from 1970-01-01.
struct Month {
    first: i64,
    len: i64,
    number: i64,
}

impl Month {
    fn of(day: i64) -> Self {
        let at = Timestamp::from_second(day * DAY).unwrap_or(Timestamp::UNIX_EPOCH);
        let date = Offset::UTC.to_datetime(at).date();
        Self {
            first: day - i64::from(date.day()) + 1,
            len: i64::from(date.days_in_month()),
            number: i64::from(date.month()),
        }
    }

    fn all(&self) -> u64 {
        (1 << (self.len + 1)) - 2
    }

    /// 0 is Sunday; 1970 began on a Thursday.
    fn weekday(&self, day: i64) -> i64 {
        (self.first + day - 1 + 4).rem_euclid(7)
    }

    /// The nearest day from Monday to Friday that does not leave the month.
    fn nearest_weekday(&self, day: i64) -> i64 {
        match self.weekday(day) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.len => day - 2,
            0 => day + 1,
            _ => day,
        }
    }

    fn nearest_weekday_back(&self, day: i64) -> i64 {
        match self.weekday(day) {
            6 => day - 1,
            0 => day - 2,
            _ => day,
        }
    }
}

/// Clamps a search to the calendar; `None` if nothing remains.
fn bounded(from: i64, below: i64) -> Option<(i64, i64)> {
    let (from, below) = (from.max(FIRST), below.min(END));
    (from < below).then_some((from, below))
}

/// The members of a set, smallest first.
pub fn bits(set: u64) -> impl Iterator<Item = i64> + Clone {
    (0..64).filter(move |&bit| has(set, bit))
}

fn has(set: u64, bit: i64) -> bool {
    set >> bit & 1 == 1
}

/// The first member at or above `bit`, which is at most 60.
fn from(set: u64, bit: i64) -> Option<i64> {
    let rest = set >> bit << bit;
    (rest != 0).then(|| i64::from(rest.trailing_zeros()))
}

/// The last member below `bit`, which is at most 60.
fn below(set: u64, bit: i64) -> Option<i64> {
    let rest = set & ((1 << bit) - 1);
    (rest != 0).then(|| 63 - i64::from(rest.leading_zeros()))
}

fn split(time: i64) -> (i64, i64, i64) {
    (time / 3600, time / 60 % 60, time % 60)
}

fn join(hour: i64, minute: i64, second: i64) -> i64 {
    hour * 3600 + minute * 60 + second
}
