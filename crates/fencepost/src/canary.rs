//! The first use of a store: five calls that find out whether it compares before it swaps.
//!
//! That it did is remembered in the state directory, so that it costs nothing afterwards. The embedded store is proved by
//! fencepost's own tests.

use fencepost_store::conformance::canary;
use fencepost_store::{Store, redacted};

use crate::exit::Failure;
use crate::mark::Mark;
use crate::place::Place;

/// Tries a store that this host has not tried before.
pub fn sing(place: &Place, store: &dyn Store) -> Result<(), Failure> {
    if place.store.starts_with("sqlite:") || memory(place).is_left() {
        return Ok(());
    }
    canary(store).map_err(|violation| match violation.failed {
        Some(error) => Failure::Store(error),
        None => Failure::Other(format!(
            "{} is not used, because it does not keep what a store must: {} Try: fencepost store check {}",
            redacted(&place.store),
            violation.detail,
            redacted(&place.store)
        )),
    })?;
    remember(place);
    Ok(())
}

/// Remembers that the store was tried. If that cannot be kept, it is tried again next time.
pub fn remember(place: &Place) {
    memory(place).leave();
}

fn memory(place: &Place) -> Mark {
    Mark::of(place, "cache/tried")
}
