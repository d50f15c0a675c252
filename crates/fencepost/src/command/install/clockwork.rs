//! Translates schedules for other schedulers. What those cannot express they poll often enough: `run` finds what is
//! due.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

/// How far ahead slots are examined: more than a year, to include both clock changes.
const AHEAD: Duration = Duration::from_secs(400 * 24 * 3600);

/// Maximum number of slots examined.
const SLOTS_MAX: usize = 300_000;

/// Longest list that is still readable.
const LISTED_MAX: usize = 12;

/// When to poll whether a slot is due: every combination of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    pub hours: BTreeSet<u32>,
    pub minutes: BTreeSet<u32>,
    pub seconds: BTreeSet<u32>,
}

impl Poll {
    /// Returns the times of day of all coming slots in a zone. With whole minutes, a slot within a minute is polled
    /// after it.
    pub fn of(schedule: &Schedule, zone: &Zone, now: Wall, in_minutes: bool) -> Self {
        let mut poll = Self::default();
        for slot in schedule.forward(now).take_while(|slot| *slot <= now + AHEAD).take(SLOTS_MAX) {
            let slot = if in_minutes { Wall((slot.0 + 59_999).div_euclid(60_000) * 60_000) } else { slot };
            let shown = zone.show_time(slot);
            let mut parts = shown.split([':', '.']).map(|part| part.parse().unwrap_or(0));
            let mut next = || parts.next().unwrap_or(0);
            poll.hours.insert(next());
            poll.minutes.insert(next());
            poll.seconds.insert(next());
            if poll.hours.len() == 24 && poll.minutes.len() == 60 && (in_minutes || poll.seconds.len() == 60) {
                break;
            }
        }
        poll
    }
}

/// Whether the job is due more often than once a minute.
pub fn is_within_minutes(schedule: &Schedule, now: Wall) -> bool {
    let slots: Vec<Wall> = schedule.forward(now).take(64).collect();
    slots.windows(2).any(|pair| pair[1].since(pair[0]) < Duration::from_secs(60))
}

/// Shows a set as a cron field.
pub fn field(set: &BTreeSet<u32>, size: u32) -> String {
    let members: Vec<u32> = set.iter().copied().collect();
    if members.len() == size as usize || members.len() > LISTED_MAX {
        return "*".to_string();
    }
    let step = members.get(1).map_or(0, |second| second - members[0]);
    let is_even = members[0] == 0 && members.windows(2).all(|pair| pair[1] - pair[0] == step);
    match members.len() as u32 {
        count if count > 2 && is_even && step * count == size => format!("*/{step}"),
        _ => listed(&members),
    }
}

pub fn listed(members: &[u32]) -> String {
    members.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// One of the five fields of a portable cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronField {
    /// The field with names replaced by numbers.
    pub text: String,
    pub set: BTreeSet<u32>,
    /// Begins with a star: cron then ignores it beside the other field of days.
    pub is_star: bool,
    pub is_full: bool,
}

/// Parses the five fields. None if the expression uses an extension that only some implementations support.
pub fn plain(text: &str) -> Option<[CronField; 5]> {
    let text = match text {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@minutely" => "* * * * *",
        other => other,
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
    let fields: Vec<CronField> =
        words.iter().zip(bounds).filter_map(|(word, (low, high))| read(word, low, high)).collect();
    if words.len() == 5 { fields.try_into().ok() } else { None }
}

fn read(word: &str, low: u32, high: u32) -> Option<CronField> {
    let text = numbers(word, high);
    let mut set = BTreeSet::new();
    for part in text.split(',') {
        let (range, step) = part.split_once('/').map_or((part, Some(1)), |(range, step)| (range, step.parse().ok()));
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
            None => {
                let only = range.parse().ok()?;
                (only, only)
            }
        };
        let step: u32 = step.filter(|step| *step > 0)?;
        if first < low || last > high || first > last {
            return None;
        }
        // Sunday is both 0 and 7; a star means each day once.
        let last = if range == "*" && high == 7 { 6 } else { last };
        set.extend((first..=last).step_by(step as usize).map(|member| if high == 7 { member % 7 } else { member }));
    }
    let size = if high == 7 { 7 } else { high - low + 1 };
    let is_full = set.len() == size as usize;
    Some(CronField { is_star: text.starts_with('*'), text, set, is_full })
}

/// Replaces names of months and weekdays by numbers. Sunday at the end of a range is 7.
fn numbers(word: &str, high: u32) -> String {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let mut text = word.to_ascii_lowercase();
    match high {
        12 => MONTHS.iter().enumerate().for_each(|(at, name)| text = text.replace(name, &(at + 1).to_string())),
        7 => {
            text = text.replace("-sun", "-7");
            DAYS.iter().enumerate().for_each(|(at, name)| text = text.replace(name, &at.to_string()));
        }
        _ => {}
    }
    text
}

/// Whether the installed cron applies `CRON_TZ=` of a crontab to the lines after it. cronie and systemd-cron do.
/// Debian's cron and others pass it to the jobs as a variable.
pub fn obeys_cron_tz() -> bool {
    const SYSTEMD_CRON: &str = "/usr/lib/systemd/system-generators/systemd-crontab-generator";
    let version = Command::new("crontab").arg("-V").stdin(Stdio::null()).output();
    let is_cronie = version.is_ok_and(|version| {
        [version.stdout, version.stderr].iter().any(|text| String::from_utf8_lossy(text).contains("cronie"))
    });
    is_cronie || std::path::Path::new(SYSTEMD_CRON).exists()
}

/// The time zone of the machine's own schedulers, as far as it can be detected.
pub fn machine_zone() -> Zone {
    let link = std::fs::read_link("/etc/localtime").ok().and_then(|target| {
        let target = target.to_str()?.to_string();
        target.split_once("zoneinfo/").map(|(_, name)| name.to_string())
    });
    let named = link.or_else(|| std::fs::read_to_string("/etc/timezone").ok().map(|name| name.trim().to_string()));
    let utc = ["Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "Etc/GMT"];
    match named {
        Some(name) if !utc.contains(&name.as_str()) => Zone::of_machine(&name).unwrap_or_else(|_| Zone::utc()),
        _ => Zone::utc(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Wall {
        Zone::utc().parse_time(text).unwrap()
    }

    #[test]
    fn plain_fields_are_read_and_nothing_else() {
        let [minute, hour, day, month, week] = plain("*/20 9-17 1,15 JAN mon-sun").unwrap();
        assert_eq!(minute.set, BTreeSet::from([0, 20, 40]));
        assert_eq!(hour.set.len(), 9);
        assert_eq!((day.text.as_str(), day.is_star), ("1,15", false));
        assert_eq!((month.text.as_str(), week.text.as_str(), week.is_full), ("1", "1-7", true));
        for odd in ["0 0 L * *", "0 0 15W * *", "0 6 * * FRI#2", "0 0 ? * *", "1 2 3 4 5 6", "every 5m", "70 * * * *"] {
            assert_eq!(plain(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_cron_cannot_say_is_asked_for_often_enough() {
        let now = at("2026-01-10T00:00:00Z");
        for (schedule, zone, minutes, hours) in [
            ("every 45m", "UTC", "*/15", "*"),
            ("every 7m", "UTC", "*", "*"),
            ("30 0 7 * * *", "UTC", "1", "7"),
            ("0 7 * * *", "Asia/Tokyo", "0", "22"),
            // Summer time and standard time.
            ("0 7 * * *", "America/New_York", "0", "11,12"),
            // The gap: on one day 02:30 becomes 03:00.
            ("30 2 * * *", "America/New_York", "0,30", "6,7"),
        ] {
            let schedule = Schedule::parse(schedule, &Zone::parse(zone).unwrap()).unwrap();
            let poll = Poll::of(&schedule, &Zone::utc(), now, true);
            assert_eq!(
                (field(&poll.minutes, 60), field(&poll.hours, 24)),
                (minutes.into(), hours.into()),
                "{schedule}"
            );
        }
    }
}
