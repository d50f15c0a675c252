//! Moments as people type them. A date or a local time means another instant in each zone.

use fencepost_core::time::Wall;
use fencepost_core::zone::{Date, TimeError, Zone};

/// No two zones are further apart than this, and no day is longer.
const ZONES_APART_MILLIS: i64 = 50 * 3_600_000;

/// A moment that was typed, checked but not yet in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A whole day.
    Day(Date),
    /// A local time, or an instant.
    Time(String),
}

impl Moment {
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        match Date::parse(text.trim()) {
            Ok(date) => Ok(Self::Day(date)),
            Err(_) => Zone::utc().parse_time(text).map(|_| Self::Time(text.to_string())),
        }
    }

    /// Its first instant in a zone.
    pub fn first(&self, zone: &Zone) -> Wall {
        match self {
            Self::Day(date) => zone.start_of_day(*date),
            Self::Time(text) => zone.parse_time_or_next(text).unwrap_or_default(),
        }
    }

    /// The first instant after it in a zone.
    pub fn end(&self, zone: &Zone) -> Wall {
        match self {
            Self::Day(date) => zone.start_of_day(date.tomorrow()),
            Self::Time(_) => Wall(self.first(zone).0.saturating_add(1)),
        }
    }
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

    /// Nothing before this is in it, in no zone.
    pub fn floor(&self) -> Wall {
        let floor = |since: &Moment| Wall(since.first(&Zone::utc()).0.saturating_sub(ZONES_APART_MILLIS));
        self.since.as_ref().map_or(Wall(i64::MIN), floor)
    }

    /// Nothing from this on is in it, in no zone.
    pub fn ceiling(&self) -> Wall {
        let ceiling = |until: &Moment| Wall(until.end(&Zone::utc()).0.saturating_add(ZONES_APART_MILLIS));
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
        let moment = |text: &str| Moment::parse(text).unwrap();
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
        assert!(Moment::parse("tomorrow").is_err());
    }

    #[test]
    fn days_around_a_change_of_the_clocks_have_their_own_length() {
        let hours = |zone: &str, day: &str| {
            let zone = Zone::parse(zone).unwrap();
            let day = Moment::parse(day).unwrap();
            (day.end(&zone).0 - day.first(&zone).0) / 3_600_000
        };
        assert_eq!(hours("America/New_York", "2026-03-08"), 23);
        assert_eq!(hours("Europe/London", "2026-10-25"), 25);
        assert_eq!(hours("Pacific/Apia", "2011-12-30"), 0);
        assert_eq!(hours("UTC", "2026-03-08"), 24);
    }
}
