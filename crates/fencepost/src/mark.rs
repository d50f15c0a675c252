//! Something that this host remembers of a store, in a private file of its state directory.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fencepost_store::{Key, bare};

use crate::place::Place;

/// A store is known by its URL here: what it calls itself is not known before it is asked, or when it is gone.
#[derive(Debug)]
pub struct Mark {
    path: PathBuf,
    store: String,
}

impl Mark {
    /// The mark of the place's store among those of one kind, which have a directory for themselves.
    pub fn of(place: &Place, kind: &str) -> Self {
        let key = Key::resource(&bare(&place.store));
        Self { path: place.state.join(kind).join(key.as_str().replace('/', "-")), store: place.shown_store() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_left(&self) -> bool {
        self.path.exists()
    }

    /// Leaves it. One that cannot be kept is not there the next time, and no more.
    pub fn leave(&self) {
        if let Some(directory) = self.path.parent() {
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path);
        let _ = file.and_then(|mut file| writeln!(file, "{}", self.store));
    }
}
