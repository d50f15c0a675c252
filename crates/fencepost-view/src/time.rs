//! Times as answers hold them: an instant, and how it is written.

use std::borrow::Cow;

use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// An instant in a job's zone. It serialises as RFC 3339 with the offset in force then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalTime {
    pub at: Wall,
    pub zone: Zone,
}

impl LocalTime {
    pub fn new(at: Wall, zone: &Zone) -> Self {
        Self { at, zone: zone.clone() }
    }
}

impl Serialize for LocalTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.zone.show(self.at))
    }
}

impl JsonSchema for LocalTime {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339 with offset: the job's zone, or UTC where no job's zone applies.",
        })
    }
}

/// An instant that belongs to no job's day. It serialises as RFC 3339 in UTC, with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcTime(pub Wall);

impl std::fmt::Display for UtcTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Timestamp::from_millisecond(self.0.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{}ms", self.0.0),
        }
    }
}

impl Serialize for UtcTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for UtcTime {
    fn schema_name() -> Cow<'static, str> {
        LocalTime::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        LocalTime::json_schema(generator)
    }
}
