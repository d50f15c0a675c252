//! Which stores this host has used: one that is gone is not made anew in silence.
//!
//! A disk that is not mounted, or a file that somebody removed, would otherwise look like a first use: whoever asks
//! next is granted the lease of a run that is still going, and all that was recorded is forgotten.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use fencepost_store::{Key, StoreError, Trouble, bare};

use crate::exit::Failure;
use crate::place::Place;

/// Fails if a store that is not there was used before.
pub fn must_not_be_gone(place: &Place) -> Result<(), Failure> {
    let mark = mark(place);
    // The mark comes after the store: whoever sees the one has to look for the other again.
    if !mark.exists() || !place.is_absent() {
        return Ok(());
    }
    let detail = format!(
        "The store {} is gone: this host has used it before. Nothing was changed. Mount its disk or restore it; a run that \
         began before may still be going. To begin anew, without anything that it knew, remove {} first.",
        place.shown_store(),
        mark.display()
    );
    Err(Failure::Store(StoreError::not_done(Trouble::Unavailable, detail)))
}

/// Remembers that the store is there. If that cannot be kept, its loss would go unnoticed, and no more.
pub fn remember(place: &Place) {
    let mark = mark(place);
    if !place.is_path() || mark.exists() {
        return;
    }
    if let Some(directory) = mark.parent() {
        let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    }
    let _ = fs::write(mark, format!("{}\n", place.shown_store()));
}

/// A store that is gone is known by its URL alone.
fn mark(place: &Place) -> PathBuf {
    let key = Key::resource(&bare(&place.store));
    place.state.join("memory/stores").join(key.as_str().replace('/', "-"))
}
