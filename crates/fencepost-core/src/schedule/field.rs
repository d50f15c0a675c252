//! The parser of cron fields, with errors that say what was expected.

use alloc::format;
use alloc::string::{String, ToString};

use super::cron::{Cron, Days, OfMonth, OfWeek, Times};
use super::every::Every;
use crate::nearest::nearest;
use crate::zone::Zone;

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Parses five fields, or six with seconds first.
pub fn cron(text: &str) -> Result<Cron, String> {
    let fields: alloc::vec::Vec<&str> = text.split_whitespace().collect();
    let (seconds, rest) = match fields.len() {
        5 => ("0", &fields[..]),
        6 => (fields[0], &fields[1..]),
        count => return Err(wrong_count(count, text)),
    };
    let (seconds, minutes, hours) = (SECOND.read(seconds)?, MINUTE.read(rest[0])?, HOUR.read(rest[1])?);
    let is_interval = seconds.is_interval || minutes.is_interval || hours.is_interval;
    let times = Times { seconds: seconds.bits, minutes: minutes.bits, hours: hours.bits };
    let months = MONTH.read(rest[3])?.bits;
    let of_days = days_of_month(rest[2]).and_then(|of_month| Ok((of_month, days_of_week(rest[4])?)));
    let (of_month, of_week) = of_days.map_err(|error| nth_weekday(&fields).unwrap_or(error))?;
    let days = Days { months, of_month, of_week };
    let cron = Cron { times, days, is_interval };
    if cron.comes() { Ok(cron) } else { Err(never(rest[2], &MONTH, months)) }
}

fn wrong_count(count: usize, text: &str) -> String {
    let expected = "expected five fields (minute hour day-of-month month day-of-week) or six with the seconds first";
    match count {
        1 if text.trim().bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            format!("{expected}, or a word such as @daily, or every 45m")
        }
        7 => format!("it has 7 fields, {expected}; a year is not supported"),
        _ => format!("it has {count} field{}, {expected}", if count == 1 { "" } else { "s" }),
    }
}

/// The hint for two idioms of Vixie's cron, where a star in one field of days makes both fields match: `1-7 * */7` and
/// `*/100,1-7 * MON` are the first Sunday and the first Monday of the month.
fn nth_weekday(fields: &[&str]) -> Option<String> {
    let [times @ .., day, month, week] = fields else { return None };
    let long_step = |text: &str, longest: u32| {
        let step = text.strip_prefix("*/").and_then(|step| step.parse::<u32>().ok());
        step.is_some_and(|step| step > longest)
    };
    let (days, weekdays) = match day.split_once(',') {
        None if long_step(week, 6) => (*day, "SUN"),
        Some((star, days)) if long_step(star, 30) => (days, *week),
        _ => return None,
    };
    let nth = ["1-7", "8-14", "15-21", "22-28", "29-31"].iter().position(|&range| range == days)? + 1;
    let week = weekdays.split(',').map(|day| format!("{day}#{nth}")).collect::<alloc::vec::Vec<_>>().join(",");
    let instead = [times, &["*", month, week.as_str()]].concat().join(" ");
    cron(&instead).ok()?;
    Some(format!("the days are {day:?} and {:?}: write {week}, as in: {instead}", fields[fields.len() - 1]))
}

fn never(days: &str, field: &FieldSpec, months: u64) -> String {
    let months: alloc::vec::Vec<&str> = super::cron::bits(months)
        .filter_map(|month| field.names.get(usize::try_from(month - 1).ok()?).copied())
        .collect();
    format!("it can never fire, for {} never has the day-of-month {days:?}", months.join(", "))
}

/// A field of the expression: its name and its range.
struct FieldSpec {
    name: &'static str,
    low: u32,
    high: u32,
    /// The highest number a star stands for. Sunday is both 0 and 7, but a star counts it once.
    star: u32,
    names: &'static [&'static str],
}

const SECOND: FieldSpec = FieldSpec { name: "second", low: 0, high: 59, star: 59, names: &[] };
const MINUTE: FieldSpec = FieldSpec { name: "minute", low: 0, high: 59, star: 59, names: &[] };
const HOUR: FieldSpec = FieldSpec { name: "hour", low: 0, high: 23, star: 23, names: &[] };
const DAY_OF_MONTH: FieldSpec = FieldSpec { name: "day-of-month", low: 1, high: 31, star: 31, names: &[] };
const MONTH: FieldSpec = FieldSpec { name: "month", low: 1, high: 12, star: 12, names: &MONTHS };
const DAY_OF_WEEK: FieldSpec = FieldSpec { name: "day-of-week", low: 0, high: 7, star: 6, names: &WEEKDAYS };

/// The numbers selected by a field.
#[derive(Default)]
struct Set {
    bits: u64,
    /// Whether it starts with a star. A stepped range (`0-22/2`) means fixed times, as in every cron.
    is_interval: bool,
}

impl FieldSpec {
    fn read(&self, text: &str) -> Result<Set, String> {
        let bits = text.split(',').try_fold(0, |bits, item| Ok::<u64, String>(bits | self.item(item)?))?;
        Ok(Set { bits, is_interval: is_star(text) })
    }

    /// Parses one item of a list: `*`, `7`, `1-5`, `*/10`, `1-31/2`.
    fn item(&self, item: &str) -> Result<u64, String> {
        let (base, step) = match item.split_once('/') {
            None => (item, None),
            Some((base, step)) => (base, Some(self.step(item, step)?)),
        };
        let (low, high) = match base.split_once('-') {
            _ if base == "*" || base == "?" => (self.low, self.star),
            Some((low, high)) => self.range(item, (low, high), step.unwrap_or(1))?,
            None => {
                let value = self.value(item, base)?;
                if let Some(step) = step {
                    // A step that leads out of the field leaves the number itself.
                    let is_alone = value + step > self.star;
                    let instead = if is_alone { base.to_string() } else { format!("{base}-{}/{step}", self.star) };
                    return Err(self.wrong(item, &format!("a step needs a star or a range; write {instead}")));
                }
                (value, value)
            }
        };
        let step = step.unwrap_or(1);
        if step > 1 && step > high - low {
            return Err(self.long_step(item, step, low, high));
        }
        Ok((low..=high).step_by(step as usize).fold(0, |bits, value| bits | 1 << value))
    }

    fn step(&self, item: &str, step: &str) -> Result<u32, String> {
        match step.parse() {
            Ok(step) if step > 0 => Ok(step),
            _ => Err(self.wrong(item, "a step is a number from 1 on, as in */10")),
        }
    }

    fn long_step(&self, item: &str, step: u32, low: u32, high: u32) -> String {
        let unit = match self.name {
            "second" => "s",
            "minute" => "m",
            "hour" => "h",
            _ => "",
        };
        let every = format!("every {step}{unit}");
        let is_every = is_star(item) && !unit.is_empty() && Every::parse(&every[6..], &Zone::utc()).is_ok();
        let instead = match is_star(item) {
            true if is_every => format!("; for {every}, write: {every}"),
            true => String::new(),
            false => format!("; write {low}"),
        };
        self.wrong(item, &format!("a step of {step} leaves only {low} of {low} to {high}{instead}"))
    }

    fn range(&self, item: &str, (low, high): (&str, &str), step: u32) -> Result<(u32, u32), String> {
        let (first, mut last) = (self.value(item, low)?, self.value(item, high)?);
        // Sunday as the end of a week is its seventh day.
        if self.high == 7 && last == 0 && first > 0 && high.eq_ignore_ascii_case("SUN") {
            last = 7;
        }
        if first > last {
            let instead = self.wrapped((first, low), (last, high), step);
            return Err(self.wrong(item, &format!("the range goes backwards; write {instead}")));
        }
        Ok((first, last))
    }

    /// A backward range as a list that can be typed: `22-2` is `22-23,0-2`, and `22-2/2` is `22,0,2`.
    fn wrapped(&self, (first, low): (u32, &str), (last, high): (u32, &str), step: u32) -> String {
        let size = self.star - self.low + 1;
        let name = |value: u32, as_text: &str| match as_text.parse::<u32>() {
            Ok(_) => value.to_string(),
            Err(_) => self.names.get((value - self.low) as usize).map_or(value.to_string(), ToString::to_string),
        };
        // Sunday is 0 as well as 7: a range that begins with 7 does not go over the end of the week.
        let (first, end) = if first > self.star { (self.low, last) } else { (first, last + size) };
        let value = |at: u32| self.low + (at - self.low) % size;
        if step > 1 {
            let values = (first..=end).step_by(step as usize).map(|at| name(value(at), low));
            return values.collect::<alloc::vec::Vec<_>>().join(",");
        }
        let span = |from: u32, to: u32| match to - from {
            0 => name(from, low),
            _ => format!("{}-{}", name(from, low), name(to, high)),
        };
        if end <= self.star {
            return span(first, end);
        }
        format!("{},{}", span(first, self.star), span(self.low, last))
    }

    fn value(&self, item: &str, text: &str) -> Result<u32, String> {
        if let Some(at) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            // Months are counted from 1, weekdays from 0, as the fields are.
            return Ok(self.low + at as u32);
        }
        match text.parse::<u32>() {
            Ok(value) if (self.low..=self.high).contains(&value) && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(value)
            }
            _ => Err(self.wrong(item, &self.expected(text))),
        }
    }

    fn expected(&self, text: &str) -> String {
        let names = match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => format!(" or {first} to {last}"),
            _ => String::new(),
        };
        let is_word = text.bytes().any(|byte| byte.is_ascii_alphabetic());
        let start = text.get(..3).filter(|_| text.len() > 3).unwrap_or(text);
        let meant = nearest(text, self.names.iter().copied()).or_else(|| nearest(start, self.names.iter().copied()));
        let hint = match meant.filter(|_| is_word) {
            Some(name) => format!("; did you mean {name}?"),
            None => String::new(),
        };
        format!("expected {} to {}{names}{hint}", self.low, self.high)
    }

    fn wrong(&self, item: &str, what: &str) -> String {
        format!("the {} is {item:?}: {what}", self.name)
    }
}

fn is_star(text: &str) -> bool {
    text.starts_with(['*', '?'])
}

/// Besides numbers: `L`, `L-3`, `LW`, `15W`.
fn days_of_month(text: &str) -> Result<OfMonth, String> {
    let mut days = OfMonth { is_star: is_star(text), ..OfMonth::default() };
    for item in text.split(',') {
        let upper = item.to_ascii_uppercase();
        if upper == "L" {
            days.before_last |= 1;
        } else if upper == "LW" || upper == "WL" {
            days.last_weekday = true;
        } else if let Some(back) = upper.strip_prefix("L-") {
            match back.parse() {
                Ok(back @ 0..=30) => days.before_last |= 1_u64 << back,
                _ => return Err(DAY_OF_MONTH.wrong(item, "expected L-1 to L-30, days before the last")),
            }
        } else if let Some(day) = upper.strip_suffix('W') {
            let day = DAY_OF_MONTH.value(item, day);
            days.nearest |= 1 << day.map_err(|_| DAY_OF_MONTH.wrong(item, "expected 1W to 31W, or LW"))?;
        } else {
            days.days |= DAY_OF_MONTH.item(item)?;
        }
    }
    Ok(days)
}

/// Besides numbers and names: `FRI#2`, `5#2`, `FRIL`, `5L`.
fn days_of_week(text: &str) -> Result<OfWeek, String> {
    let mut days = OfWeek { is_star: is_star(text), ..OfWeek::default() };
    for item in text.split(',') {
        let upper = item.to_ascii_uppercase();
        if let Some((day, nth)) = upper.split_once('#') {
            let day = 1 << (DAY_OF_WEEK.value(item, day)? % 7);
            match (nth, nth.parse::<usize>()) {
                (_, Ok(nth @ 1..=5)) => days.nth[nth - 1] |= day,
                ("L", _) => days.last |= day,
                _ => return Err(DAY_OF_WEEK.wrong(item, "expected #1 to #5, the first to the fifth of a month")),
            }
        } else if upper == "L" {
            return Err(DAY_OF_WEEK.wrong(item, "L needs a day, as in FRIL or 5L, the last Friday of a month"));
        } else if let Some(day) = upper.strip_suffix('L') {
            days.last |= 1 << (DAY_OF_WEEK.value(item, day)? % 7);
        } else {
            let bits = DAY_OF_WEEK.item(item)?;
            days.days |= (bits | bits >> 7) & 0b111_1111;
        }
    }
    Ok(days)
}

/// Parses `@daily` and the like.
pub fn alias(text: &str) -> Result<&'static str, String> {
    const KNOWN: [(&str, &str); 8] = [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("@minutely", "* * * * *"),
    ];
    if let Some((_, fields)) = KNOWN.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Ok(fields);
    }
    if text.eq_ignore_ascii_case("@reboot") {
        return Err(
            "@reboot names no time. Start the job by the machine's own start-up, without a schedule".to_string()
        );
    }
    if let Some(length) = text.strip_prefix("@every") {
        let length = length.trim();
        let length = if Every::parse(length, &Zone::utc()).is_ok() { length } else { "45m, for example" };
        return Err(format!("write: every {length}"));
    }
    match nearest(text, KNOWN.iter().map(|(name, _)| *name)) {
        Some(name) => Err(format!("did you mean {name}?")),
        None => Err("expected @hourly, @daily, @weekly, @monthly or @yearly".to_string()),
    }
}
