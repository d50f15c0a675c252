//! Whether this host has used its embedded store before: one that is gone is not made anew in silence.
//!
//! A disk that is not mounted, or a file that somebody removed, would otherwise look like a first use: whoever asks next
//! is granted the lease of a run that is still going, and all that was recorded is forgotten. A directory that hosts share
//! sees to it by itself.

use fencepost_store::{StoreError, Trouble, is_embedded};

use crate::exit::Failure;
use crate::mark::Mark;
use crate::place::Place;

/// Fails if a store that is not there was used before.
pub fn must_not_be_gone(place: &Place) -> Result<(), Failure> {
    let mark = mark(place);
    // The mark comes after the store: whoever sees the one has to look for the other again.
    if !mark.is_left() || !place.is_absent() {
        return Ok(());
    }
    let detail = format!(
        "The store {} is gone: this host has used it before. Nothing was changed. Mount its disk or restore it; a run that \
         began before may still be going. To begin anew, without anything that it knew, remove {} first.",
        place.shown_store(),
        mark.path().display()
    );
    Err(Failure::Store(StoreError::not_done(Trouble::Unavailable, detail)))
}

/// Remembers that the store is there. If that cannot be kept, its loss would go unnoticed, and no more.
pub fn remember(place: &Place) {
    let mark = mark(place);
    if is_embedded(&place.store) && !mark.is_left() {
        mark.leave();
    }
}

fn mark(place: &Place) -> Mark {
    Mark::of(place, "memory/stores")
}
