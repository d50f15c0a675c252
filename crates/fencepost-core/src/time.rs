//! The three clocks, kept apart by type so that no two of them are ever compared.
//!
//! * [`Wall`] is for people and for tokens. It steps, and no lease is judged by one client's wall clock.
//! * [`Boot`] is this host's clock that runs through suspend. A holder counts its deadline on it.
//! * [`StoreClock`] is the store's own reading, the only clock that two clients share.

use alloc::string::String;
use core::ops::Add;
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01 UTC by a wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub i64);

impl Wall {
    /// The time since `earlier`; zero if the clock was set back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Wall {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// Milliseconds on this host's boot clock, which runs through suspend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(pub u64);

impl Boot {
    /// The time since `earlier`; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The moment `length` before this one.
    pub fn before(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(millis(length)))
    }
}

impl Add<Duration> for Boot {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(millis(length)))
    }
}

/// A period in which a store's clock runs steadily.
///
/// A database server has one era for ever. The embedded store's era is the machine's boot: every holder of an earlier
/// era is dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Era(pub String);

/// A store's reading of its own clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreClock {
    /// The date, for tokens and people.
    pub wall: Wall,
    pub era: Era,
    /// Milliseconds for judging leases, which never step within an era.
    pub tick: u64,
}

/// The last reading of the store's clock, and a local instant before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    pub clock: StoreClock,
    /// This host's boot clock before the reading was requested.
    pub asked: Boot,
}

impl Reference {
    /// An upper bound of the store's clock at `now`.
    pub fn at_most(&self, now: Boot) -> StoreClock {
        let elapsed = now.since(self.asked);
        StoreClock {
            wall: self.clock.wall + elapsed,
            era: self.clock.era.clone(),
            tick: self.clock.tick.saturating_add(millis(elapsed)),
        }
    }
}

/// Whole milliseconds of a length of time, the unit of every record.
pub fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Serialises durations as whole milliseconds.
pub mod as_millis {
    use core::time::Duration;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(super::millis(*length))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The same for an optional duration.
pub mod as_millis_if_any {
    use core::time::Duration;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(length: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match length {
            Some(length) => serializer.serialize_u64(super::millis(*length)),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Option::<u64>::deserialize(deserializer).map(|length| length.map(Duration::from_millis))
    }
}
