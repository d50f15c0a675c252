//! Every zone whose clocks changed from 1990 to 2030: a daily job has one slot on every civil day, and going forwards,
//! going backwards and counting agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::{Date, Zone};

const DAY: Duration = Duration::from_secs(86_400);
const FIRST: &str = "1990-01-01";
const END: &str = "2031-01-01";

/// The first instants after each change of the clocks in these years.
fn changes(zone: &Zone) -> Vec<Wall> {
    let minutely = Schedule::parse("* * * * *", zone).unwrap();
    let (start, end) = (zone.parse_time(FIRST).unwrap(), zone.parse_time(END).unwrap());
    let next = |at: &Wall| minutely.dst_within(*at, end.since(*at)).map(|change| change.at);
    std::iter::successors(next(&start), next).collect()
}

fn earlier(at: Wall, by: Duration) -> Wall {
    Wall(at.0 - by.as_millis() as i64)
}

/// How many days there are in these years that the zone did not leave out.
fn days(zone: &Zone) -> u64 {
    let dates = std::iter::successors(Some(Date::parse(FIRST).unwrap()), |date| Some(date.tomorrow()));
    let dates = dates.take_while(|date| *date < Date::parse(END).unwrap());
    let mut left_out = 0;
    for at in changes(zone) {
        let (before, after) = (zone.date(Wall(at.0 - 1)), zone.date(at));
        left_out += u64::from(after > before.tomorrow());
    }
    dates.count() as u64 - left_out
}

#[test]
fn a_daily_job_has_one_slot_on_every_civil_day() {
    let times = ["0 0", "15 0", "1 0", "30 1", "0 2", "30 2", "0 3", "17 12", "0 23", "30 23", "59 23"];
    let (mut zones, mut slots, mut left_out) = (0, 0, 0);
    let mut seen = BTreeSet::new();
    for name in Zone::names() {
        let zone = Zone::parse(&name).unwrap();
        let changes = changes(&zone);
        if changes.is_empty() {
            continue;
        }
        zones += 1;
        // Many names are of one and the same zone.
        if !seen.insert(changes.iter().map(|at| zone.show(*at)).collect::<Vec<_>>()) {
            continue;
        }
        let days = days(&zone);
        left_out += 14_975 - days;
        let (start, end) = (zone.parse_time(FIRST).unwrap(), zone.parse_time(END).unwrap());
        for time in times {
            let schedule = Schedule::parse(&format!("{time} * * *"), &zone).unwrap();
            assert_eq!(schedule.count(Wall(start.0 - 1), Wall(end.0 - 1)), days, "{time} {name}");
            for change in &changes {
                slots += one_a_day(&schedule, *change);
            }
        }
    }
    assert!(zones > 350 && seen.len() > 200 && slots > 500_000, "{zones}, {} zones, {slots} slots", seen.len());
    assert!(left_out > 0, "some zones left out a day");
}

/// Looks at the days around a change.
fn one_a_day(schedule: &Schedule, change: Wall) -> usize {
    let zone = schedule.zone();
    let (start, end) = (earlier(change, 3 * DAY), change + 3 * DAY);
    let slots: Vec<Wall> = schedule.forward(start).take_while(|slot| *slot < end).collect();
    let mut back: Vec<Wall> = schedule.backward(Wall(end.0 - 1)).take_while(|slot| *slot > start).collect();
    back.reverse();
    assert_eq!(slots, back, "{schedule}");
    let mut per_day: BTreeMap<Date, usize> = BTreeMap::new();
    slots.iter().for_each(|slot| *per_day.entry(zone.date(*slot)).or_default() += 1);
    let mut date = zone.date(start).tomorrow();
    while date < zone.date(end) {
        let exists = zone.date(zone.start_of_day(date)) == date;
        let count = per_day.get(&date).copied().unwrap_or(0);
        assert_eq!(count, usize::from(exists), "{schedule} on {date}");
        date = date.tomorrow();
    }
    slots.len()
}

/// A small generator with a seed, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn field(&mut self, low: u64, high: u64) -> String {
        let size = high - low;
        let value = |random: &mut Self| low + random.below(size + 1);
        match self.below(8) {
            0..=2 => "*".to_string(),
            3 => format!("*/{}", 1 + self.below(size)),
            4 | 5 => value(self).to_string(),
            6 => format!("{},{}", value(self), value(self)),
            _ => {
                let (left, right) = (value(self), value(self));
                format!("{}-{}", left.min(right), left.max(right))
            }
        }
    }

    fn schedule(&mut self, zone: &Zone) -> Schedule {
        loop {
            let fields = [self.field(0, 59), self.field(0, 23), self.field(1, 31), self.field(1, 12), self.field(0, 6)];
            let seconds = if self.below(5) == 0 { format!("{} ", self.below(60)) } else { String::new() };
            if let Ok(schedule) = Schedule::parse(&format!("{seconds}{}", fields.join(" ")), zone) {
                return schedule;
            }
        }
    }
}

#[test]
fn forwards_backwards_and_counting_agree() {
    let mut random = Random(0x5eed);
    let names = [
        "America/New_York",
        "Europe/London",
        "Asia/Tokyo",
        "Africa/Cairo",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Asia/Kathmandu",
        "UTC",
        "America/St_Johns",
        "America/Nuuk",
        "Africa/Casablanca",
        "Antarctica/Troll",
    ];
    for round in 0..3000 {
        let zone = Zone::parse(names[round % names.len()]).unwrap();
        let schedule = random.schedule(&zone);
        let changes = changes_near(&zone, &mut random);
        let start = earlier(changes, Duration::from_secs(random.below(3 * 86_400)));
        let slots: Vec<Wall> = schedule.forward(start).take(150).collect();
        let last = *slots.last().unwrap();
        let mut back: Vec<Wall> = schedule.backward(last).take_while(|slot| *slot > start).collect();
        back.reverse();
        assert_eq!(slots, back, "{schedule} after {}", zone.show(start));
        assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "{schedule} after {}", zone.show(start));
        assert_eq!(schedule.count(start, last), slots.len() as u64, "{schedule} after {}", zone.show(start));
        for pair in slots.windows(2).take(20) {
            let between = Wall(pair[0].0 + random.below((pair[1].0 - pair[0].0) as u64) as i64);
            assert_eq!(schedule.after(between), Some(pair[1]), "{schedule} after {}", zone.show(between));
            assert_eq!(schedule.at_or_before(between), Some(pair[0]), "{schedule} before {}", zone.show(between));
            assert_eq!(schedule.before(pair[1]), Some(pair[0]), "{schedule} before {}", zone.show(pair[1]));
            assert_eq!(schedule.period_hint(between), Some(pair[1].since(pair[0])));
        }
    }
}

/// An instant in these years, and every second time a change of the clocks.
fn changes_near(zone: &Zone, random: &mut Random) -> Wall {
    let start = zone.parse_time("1990-01-01").unwrap();
    let at = start + Duration::from_secs(random.below(40 * 365 * 86_400));
    let minutely = Schedule::parse("* * * * *", zone).unwrap();
    let change = minutely.dst_within(at, 366 * DAY);
    change.filter(|_| random.below(2) == 0).map_or(at, |change| change.at)
}

#[test]
fn counting_ten_years_of_minutes_and_seconds_is_exact() {
    for (name, minutes) in [("UTC", 5_258_880), ("Asia/Tokyo", 5_258_880), ("America/New_York", 5_258_880)] {
        let zone = Zone::parse(name).unwrap();
        let (from, to) = (zone.parse_time("2016-11-20").unwrap(), zone.parse_time("2026-11-20").unwrap());
        for (text, count) in [("* * * * *", minutes), ("* * * * * *", minutes * 60), ("every 1m", minutes)] {
            assert_eq!(Schedule::parse(text, &zone).unwrap().count(from, to), count, "{text} {name}");
        }
        assert_eq!(Schedule::parse("0 7 * * *", &zone).unwrap().count(from, to), 3652, "{name}");
    }
}

#[test]
fn the_ends_of_time_do_no_harm() {
    for text in ["* * * * *", "30 2 * * *", "0 0 29 2 *", "every 1s", "every 3660d from 2026-01-01"] {
        for name in ["UTC", "America/New_York", "Pacific/Apia"] {
            let schedule = Schedule::parse(text, &Zone::parse(name).unwrap()).unwrap();
            for at in [i64::MIN, i64::MIN + 1, -62_135_596_800_001, 0, 253_402_300_799_999, i64::MAX - 1, i64::MAX] {
                schedule.after(Wall(at));
                schedule.at_or_before(Wall(at));
                schedule.before(Wall(at));
                schedule.period_hint(Wall(at));
                schedule.forward(Wall(at)).take(3).for_each(drop);
                schedule.backward(Wall(at)).take(3).for_each(drop);
            }
            schedule.count(Wall(i64::MIN), Wall(i64::MAX));
        }
    }
}
