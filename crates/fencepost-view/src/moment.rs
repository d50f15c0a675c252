//! Moments as people type them. A date or a local time means another instant in each zone.

use fencepost_core::duration;
use fencepost_core::time::{Wall, millis};
use fencepost_core::zone::{Date, Zone};
use thiserror::Error;

/// No two zones are further apart than this, and no day is longer.
const ZONES_APART_MILLIS: i64 = 50 * 3_600_000;

/// A moment that was typed, checked but not yet in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A whole day.
    Day(Date),
    /// A local time, or an instant.
    Time(String),
    /// `12h`: so long before now.
    Instant(Wall),
    /// `today`, `yesterday`: the whole day of now in the zone, or the one before.
    DayOf { now: Wall, is_yesterday: bool },
    /// `07:00`: the last time that the clocks of the zone showed it.
    Clock { time: String, now: Wall },
}

/// Why a text is not a moment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a time. Write how long ago (12h), yesterday or today, a time of day (07:00), a date (2026-03-08), a \
     local time (2026-03-08T07:30) or an instant (2026-03-08T07:30:00Z)"
)]
pub struct MomentError(String);

impl Moment {
    /// Parses a moment that was typed now.
    pub fn parse(text: &str, now: Wall) -> Result<Self, MomentError> {
        let text = text.trim();
        if let "today" | "yesterday" = text {
            return Ok(Self::DayOf { now, is_yesterday: text == "yesterday" });
        }
        if let Ok(date) = Date::parse(text) {
            return Ok(Self::Day(date));
        }
        if is_clock(text) {
            return Ok(Self::Clock { time: text.to_string(), now });
        }
        if let Ok(length) = duration::parse(text) {
            let length = i64::try_from(millis(length)).unwrap_or(i64::MAX);
            return Ok(Self::Instant(Wall(now.0.saturating_sub(length))));
        }
        let time = Zone::utc().parse_time(text).map(|_| Self::Time(text.to_string()));
        time.map_err(|_| MomentError(text.to_string()))
    }

    /// The day that it means as a whole, if it means one.
    pub fn day(&self, zone: &Zone) -> Option<Date> {
        match self {
            Self::Day(date) => Some(*date),
            Self::DayOf { now, is_yesterday: false } => Some(zone.date(*now)),
            Self::DayOf { now, is_yesterday: true } => Some(zone.date(*now).yesterday()),
            Self::Time(_) | Self::Instant(_) | Self::Clock { .. } => None,
        }
    }

    /// Its first instant in a zone.
    pub fn first(&self, zone: &Zone) -> Wall {
        match (self, self.day(zone)) {
            (_, Some(date)) => zone.start_of_day(date),
            (Self::Time(text), _) => zone.parse_time_or_next(text).unwrap_or_default(),
            (Self::Clock { time, now }, _) => last_clock(time, *now, zone),
            (Self::Instant(at), _) => *at,
            (Self::Day(_) | Self::DayOf { .. }, None) => Wall::default(),
        }
    }

    /// The first instant after it in a zone.
    pub fn end(&self, zone: &Zone) -> Wall {
        match self.day(zone) {
            Some(date) => zone.start_of_day(date.tomorrow()),
            None => Wall(self.first(zone).0.saturating_add(1)),
        }
    }
}

/// Whether the text is a time of day: two digits each for hours, minutes and perhaps seconds.
fn is_clock(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    let is_part = |(place, part): (usize, &&str)| {
        let number = Some(part).filter(|part| part.len() == 2).and_then(|part| part.parse::<u8>().ok());
        number.is_some_and(|number| number < if place == 0 { 24 } else { 60 })
    };
    (2..=3).contains(&parts.len()) && parts.iter().enumerate().all(is_part)
}

/// The last time up to now that the clocks of the zone showed this time. A time that they skip is the first one after.
fn last_clock(time: &str, now: Wall, zone: &Zone) -> Wall {
    let on = |date: Date| zone.parse_time_or_next(&format!("{date}T{time}")).unwrap_or_default();
    let today = zone.date(now);
    Some(on(today)).filter(|at| *at <= now).unwrap_or_else(|| on(today.yesterday()))
}

/// The slots that are asked for.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub since: Option<Moment>,
    pub until: Option<Moment>,
    /// The zone that was typed with them. Otherwise it is each job's own.
    pub zone: Option<Zone>,
}

impl Range {
    /// Whether a stretch of slots of a job in this zone is in it, in part at least.
    pub fn meets(&self, first: Wall, last: Wall, zone: &Zone) -> bool {
        let zone = self.zone.as_ref().unwrap_or(zone);
        self.since.as_ref().is_none_or(|since| last >= since.first(zone))
            && self.until.as_ref().is_none_or(|until| first < until.end(zone))
    }

    /// Nothing before this is in it, in no zone that counts.
    pub fn floor(&self) -> Wall {
        let floor = |since: &Moment| match &self.zone {
            Some(zone) => since.first(zone),
            None => Wall(since.first(&Zone::utc()).0.saturating_sub(ZONES_APART_MILLIS)),
        };
        self.since.as_ref().map_or(Wall(i64::MIN), floor)
    }

    /// Nothing from this on is in it, in no zone that counts.
    pub fn ceiling(&self) -> Wall {
        let ceiling = |until: &Moment| match &self.zone {
            Some(zone) => until.end(zone),
            None => Wall(until.end(&Zone::utc()).0.saturating_add(ZONES_APART_MILLIS)),
        };
        self.until.as_ref().map_or(Wall(i64::MAX), ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Wall {
        Zone::utc().parse_time(text).unwrap()
    }

    fn range(since: Option<&str>, until: Option<&str>) -> Range {
        let moment = |text: &str| Moment::parse(text, at("2026-08-05T12:00Z")).unwrap();
        Range { since: since.map(moment), until: until.map(moment), zone: None }
    }

    #[test]
    fn a_day_is_the_day_of_the_zone() {
        let tokyo = Zone::parse("Asia/Tokyo").unwrap();
        let day = range(Some("2026-08-01"), Some("2026-08-01"));
        for (slot, in_utc, in_tokyo) in [
            ("2026-07-31T14:59:59Z", false, false),
            ("2026-07-31T15:00:00Z", false, true),
            ("2026-08-01T00:00:00Z", true, true),
            ("2026-08-01T14:59:59.999Z", true, true),
            ("2026-08-01T15:00:00Z", true, false),
            ("2026-08-02T00:00:00Z", false, false),
        ] {
            let slot = at(slot);
            assert_eq!(day.meets(slot, slot, &Zone::utc()), in_utc, "{slot:?}");
            assert_eq!(day.meets(slot, slot, &tokyo), in_tokyo, "{slot:?}");
            let typed = Range { zone: Some(tokyo.clone()), ..day.clone() };
            assert_eq!(typed.meets(slot, slot, &Zone::utc()), in_tokyo, "{slot:?}");
            assert!(day.floor() <= slot && slot < day.ceiling());
        }
    }

    #[test]
    fn a_time_is_an_instant_or_a_local_one_and_belongs_to_the_range() {
        let tokyo = Zone::parse("Asia/Tokyo").unwrap();
        let noon = at("2026-08-01T12:00:00Z");
        assert!(range(None, Some("2026-08-01T12:00:00Z")).meets(noon, noon, &tokyo));
        assert!(range(Some("2026-08-01T21:00"), Some("2026-08-01T21:00")).meets(noon, noon, &tokyo));
        assert!(!range(Some("2026-08-01T21:00"), None).meets(noon, noon, &Zone::utc()));
        // A stretch of slots is in it if any of them is.
        assert!(range(Some("2026-08-01"), Some("2026-08-01")).meets(at("2026-07-01"), at("2026-09-01"), &tokyo));
    }

    #[test]
    fn days_around_a_change_of_the_clocks_have_their_own_length() {
        let hours = |zone: &str, day: &str| {
            let zone = Zone::parse(zone).unwrap();
            let day = Moment::parse(day, Wall(0)).unwrap();
            (day.end(&zone).0 - day.first(&zone).0) / 3_600_000
        };
        assert_eq!(hours("America/New_York", "2026-03-08"), 23);
        assert_eq!(hours("Europe/London", "2026-10-25"), 25);
        assert_eq!(hours("Pacific/Apia", "2011-12-30"), 0);
        assert_eq!(hours("UTC", "2026-03-08"), 24);
    }

    #[test]
    fn what_people_type_in_the_morning_is_meant_in_the_zone() {
        let now = at("2026-11-18T10:00Z");
        let (utc, tokyo) = (Zone::utc(), Zone::parse("Asia/Tokyo").unwrap());
        for (text, in_utc, in_tokyo) in [
            ("12h", "2026-11-17T22:00Z", "2026-11-17T22:00Z"),
            ("90s", "2026-11-18T09:58:30Z", "2026-11-18T09:58:30Z"),
            ("07:00", "2026-11-18T07:00Z", "2026-11-17T22:00Z"),
            ("19:00", "2026-11-17T19:00Z", "2026-11-18T10:00Z"),
            ("19:00:01", "2026-11-17T19:00:01Z", "2026-11-17T10:00:01Z"),
            ("yesterday", "2026-11-17T00:00Z", "2026-11-16T15:00Z"),
            (" today ", "2026-11-18T00:00Z", "2026-11-17T15:00Z"),
            ("2026-11-01", "2026-11-01T00:00Z", "2026-10-31T15:00Z"),
            ("2026-11-01T07:00", "2026-11-01T07:00Z", "2026-10-31T22:00Z"),
            ("2026-11-01T07:00Z", "2026-11-01T07:00Z", "2026-11-01T07:00Z"),
        ] {
            let moment = Moment::parse(text, now).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((moment.first(&utc), moment.first(&tokyo)), (at(in_utc), at(in_tokyo)), "{text}");
            let range = Range { since: Some(moment), until: None, zone: None };
            assert!(range.floor() <= at(in_utc).min(at(in_tokyo)), "{text}");
        }
        // A day ends with the day.
        let yesterday = Moment::parse("yesterday", now).unwrap();
        assert_eq!(yesterday.end(&tokyo), at("2026-11-17T15:00Z"));
        for wrong in ["tomorrow", "12", "24:00", "7:00", "07:60", "-2h", "", "07:00Z", "12 h o"] {
            let error = Moment::parse(wrong, now).unwrap_err().to_string();
            assert!(
                error.contains("12h") && error.contains("07:00") && error.contains("yesterday"),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn a_time_that_the_clocks_skipped_is_the_first_one_after() {
        let zone = Zone::parse("America/New_York").unwrap();
        let skipped = Moment::parse("02:30", at("2026-03-08T12:00Z")).unwrap();
        assert_eq!(skipped.first(&zone), at("2026-03-08T07:00Z"));
    }
}
