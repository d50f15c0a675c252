//! A schedule in words for people.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::cron::{Cron, OfMonth, OfWeek, Times, bits};

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
        let days = self.days_in_words();
        let times = self.times.words();
        if self.times.per_day() == 1 && days.is_empty() {
            format!("{times} every day")
        } else {
            format!("{times}{days}")
        }
    }

    fn days_in_words(&self) -> String {
        let (of_month, of_week) = (self.days.of_month.words(), self.days.of_week.words());
        let either = !self.days.of_month.is_star && !self.days.of_week.is_star;
        let days = match (of_month, of_week) {
            (None, None) => String::new(),
            (Some(days), None) | (None, Some(days)) => format!(" on {days}"),
            (Some(days), Some(week)) if either => format!(" on {days} and on {week}"),
            (Some(days), Some(week)) => format!(" on {week} if it is {days}"),
        };
        let months = if self.days.months.count_ones() == 12 {
            String::new()
        } else {
            format!(" in {}", ranges(self.days.months, |month| named(&MONTHS, month - 1)))
        };
        format!("{days}{months}")
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
        let seconds = part(self.seconds, 60, "second").unwrap_or_else(|| "every second".to_string());
        let is_whole = self.seconds == 1;
        let minutes = part(self.minutes, 60, "minute");
        let hours = if self.hours.count_ones() == 24 { None } else { Some(during(self.hours)) };
        let minute = match (is_whole, minutes) {
            (true, None) => "every minute".to_string(),
            (true, Some(minutes)) => minutes,
            (false, None) => seconds,
            (false, Some(minutes)) => format!("{seconds} of {minutes}"),
        };
        match hours {
            None if minute.starts_with("at minute") => format!("{minute} of every hour"),
            None => minute,
            Some(hours) => format!("{minute} {hours}"),
        }
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

/// "every 10 minutes" or "at minute 5 and 35"; nothing if it is every one.
fn part(set: u64, size: i64, unit: &str) -> Option<String> {
    let members: Vec<i64> = bits(set).collect();
    let step = members.get(1).map_or(0, |second| second - members[0]);
    let is_even = step > 1 && members[0] == 0 && members.windows(2).all(|pair| pair[1] - pair[0] == step);
    match members.len() as i64 {
        count if count == size => None,
        count if is_even && count * step == size => Some(format!("every {step} {unit}s")),
        _ => Some(format!("at {unit} {}", ranges(set, |member| member.to_string()))),
    }
}

fn during(hours: u64) -> String {
    let spans = spans(hours).into_iter().map(|(first, last)| {
        let end = if last == 23 { "midnight".to_string() } else { clock(last + 1, 0, 0) };
        format!("from {} to {end}", clock(first, 0, 0))
    });
    match part(hours, 24, "hour") {
        Some(every) if every.starts_with("every") => format!("of {every}"),
        _ => listed(&spans.collect::<Vec<_>>()),
    }
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
