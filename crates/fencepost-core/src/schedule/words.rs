//! A schedule in words for people.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::cron::{Cron, Days, OfMonth, OfWeek, Times, bits};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The most times of day that are listed one by one.
const LISTED_MAX: u64 = 6;

impl Cron {
    /// When it fires, as in "at 07:00 on Monday to Friday".
    pub fn words(&self) -> String {
        let (days, months) = (self.days.words(), self.months_in_words());
        let times = self.times.words();
        match days {
            None if self.times.per_day() == 1 => format!("{times} every day{months}"),
            None => format!("{times}{months}"),
            Some(days) => format!("{times} on {days}{months}"),
        }
    }

    fn months_in_words(&self) -> String {
        match self.days.months.count_ones() {
            12 => String::new(),
            _ => format!(" in {}", ranges(self.days.months, |month| named(&MONTHS, month - 1))),
        }
    }
}

impl Days {
    /// The days of a month; nothing if that is every day. A field that holds every day decides alone where either field
    /// may match, and does not count where both must.
    fn words(&self) -> Option<String> {
        let either = !self.of_month.is_star && !self.of_week.is_star;
        match (self.of_month.words(), self.of_week.words()) {
            (Some(days), Some(week)) if either => Some(format!("{days} and on {week}")),
            (Some(days), Some(week)) => Some(format!("{week} if it is {days}")),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) if either => None,
            (Some(days), None) | (None, Some(days)) => Some(days),
        }
    }
}

impl Times {
    fn words(&self) -> String {
        if self.per_day() <= LISTED_MAX {
            let times = bits(self.hours).flat_map(|hour| bits(self.minutes).map(move |minute| (hour, minute)));
            let times =
                times.flat_map(|(hour, minute)| bits(self.seconds).map(move |second| clock(hour, minute, second)));
            return format!("at {}", listed(&times.collect::<Vec<_>>()));
        }
        if self.per_hour() == 1 {
            return self.hourly();
        }
        let minutes = match (even(self.minutes, 60), even(self.seconds, 60)) {
            // A whole minute, every so many of them.
            (Some(1), _) if self.seconds == 1 => "every minute".to_string(),
            (Some(step), _) if self.seconds == 1 => format!("every {step} minutes"),
            (_, _) if self.seconds == 1 => format!("at minute {} of every hour", numbers(self.minutes)),
            (Some(1), Some(1)) => "every second".to_string(),
            (Some(1), Some(step)) => format!("every {step} seconds"),
            (Some(1), None) => format!("at second {} of every minute", numbers(self.seconds)),
            (_, _) => {
                format!("at second {} of minute {} of every hour", numbers(self.seconds), numbers(self.minutes))
            }
        };
        match self.hours.count_ones() {
            24 => minutes,
            _ => format!("{minutes} {}", self.during()),
        }
    }

    /// Once in each of many hours: "every 2 hours", "every hour from 09:30 to 17:30".
    fn hourly(&self) -> String {
        let hours: Vec<i64> = bits(self.hours).collect();
        let (first, last) = (hours[0], hours[hours.len() - 1]);
        let step = hours[1] - first;
        if hours.windows(2).any(|pair| pair[1] - pair[0] != step) {
            return format!("every hour {}", self.during());
        }
        let every = if step == 1 { "every hour".to_string() } else { format!("every {step} hours") };
        let is_whole = even(self.hours, 24).is_some();
        match (is_whole, bits(self.minutes).next(), bits(self.seconds).next()) {
            (true, Some(0), Some(0)) => every,
            (true, Some(minute), Some(0)) if step == 1 => format!("at minute {minute} of every hour"),
            _ => format!("{every} from {} to {}", self.first_in(first), self.last_in(last)),
        }
    }

    /// The hours that follow each other, from the first time in them to the last: "from 09:00 to 17:45".
    fn during(&self) -> String {
        let spans = spans(self.hours).into_iter();
        let spans = spans.map(|(first, last)| format!("from {} to {}", self.first_in(first), self.last_in(last)));
        listed(&spans.collect::<Vec<_>>())
    }

    fn first_in(&self, hour: i64) -> String {
        clock(hour, bits(self.minutes).next().unwrap_or(0), bits(self.seconds).next().unwrap_or(0))
    }

    fn last_in(&self, hour: i64) -> String {
        clock(hour, bits(self.minutes).last().unwrap_or(0), bits(self.seconds).last().unwrap_or(0))
    }
}

impl OfMonth {
    fn words(&self) -> Option<String> {
        let mut parts = Vec::new();
        let is_all = self.days.count_ones() == 31;
        if self.days != 0 && !is_all {
            parts.push(format!("day {}", ranges(self.days, |day| day.to_string())));
        }
        parts.extend(bits(self.nearest).map(|day| format!("the weekday nearest to day {day}")));
        parts.extend(bits(self.before_last).map(|back| match back {
            0 => "the last day of the month".to_string(),
            1 => "the day before the last of the month".to_string(),
            back => format!("the day {back} days before the last of the month"),
        }));
        parts.extend(self.last_weekday.then(|| "the last weekday of the month".to_string()));
        (!is_all && !parts.is_empty()).then(|| listed(&parts))
    }
}

impl OfWeek {
    fn words(&self) -> Option<String> {
        const NTH: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];
        let mut parts = Vec::new();
        let is_all = self.days.count_ones() == 7;
        if self.days != 0 {
            // A week that is spoken of begins on Monday.
            let week = (self.days & 0b111_1110) | (self.days & 1) << 7;
            parts.push(ranges(week, |day| named(&WEEKDAYS, day % 7)));
        }
        for (nth, days) in NTH.iter().zip(self.nth) {
            parts.extend(bits(days).map(|day| format!("the {nth} {} of the month", named(&WEEKDAYS, day))));
        }
        parts.extend(bits(self.last).map(|day| format!("the last {} of the month", named(&WEEKDAYS, day))));
        (!is_all && !parts.is_empty()).then(|| listed(&parts))
    }
}

/// The step of a set that goes evenly around the clock from 0, as `*/10` does in an hour.
fn even(set: u64, size: i64) -> Option<i64> {
    let step = bits(set).nth(1)?;
    let is_even =
        size % step == 0 && set == (0..size).step_by(step.unsigned_abs() as usize).fold(0, |set, at| set | 1 << at);
    is_even.then_some(step)
}

fn numbers(set: u64) -> String {
    ranges(set, |member| member.to_string())
}

/// Members that follow each other, as their first and last.
fn spans(set: u64) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    for member in bits(set) {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == member => *last = member,
            _ => spans.push((member, member)),
        }
    }
    spans
}

fn ranges(set: u64, name: impl Fn(i64) -> String) -> String {
    let spans = spans(set).into_iter().flat_map(|(first, last)| match last - first {
        0 => alloc::vec![name(first)],
        1 => alloc::vec![name(first), name(last)],
        _ => alloc::vec![format!("{} to {}", name(first), name(last))],
    });
    listed(&spans.collect::<Vec<_>>())
}

fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

fn named(names: &[&str], at: i64) -> String {
    usize::try_from(at).ok().and_then(|at| names.get(at)).map_or_else(|| at.to_string(), |name| name.to_string())
}

fn clock(hour: i64, minute: i64, second: i64) -> String {
    match second {
        0 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

/// A length of time in words: "45 minutes", "1 hour and 30 minutes".
pub fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    let units = [
        (seconds / 86_400, "day"),
        (seconds / 3600 % 24, "hour"),
        (seconds / 60 % 60, "minute"),
        (seconds % 60, "second"),
    ];
    let said = units.iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> =
        said.map(|(count, unit)| format!("{count} {unit}{}", if *count == 1 { "" } else { "s" })).collect();
    listed(&said)
}
